//! The functions found are compared with the running ones: where the loader put them, and what they leave in memory.

use super::*;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

#[test]
fn source_id_is_distinguished_from_other_dates() {
    let id = "2022-12-28 14:03:47 df5c253c0b3dd24916e4ec7cf77d3db5294cc9fd45ae7b9c5e82ad8197f3alt1";
    assert_eq!(parse_source_id(format!("{id}\0more").as_bytes()).as_deref(), Some(id));
    let old = "2016-01-20 14:53:41 17efb4209f97fb4971656086b138599a91a75ff9";
    assert_eq!(parse_source_id(format!("{old}\0").as_bytes()).as_deref(), Some(old));
    assert_eq!(parse_source_id(old.as_bytes()), None, "it must end");
    assert_eq!(parse_source_id(b"2016-01-20 14:53:41 release\0"), None);
    assert_eq!(parse_source_id(b"2016/01/20 14:53:41 17efb4209f97fb4971656086b138599a91a75ff9\0"), None);
}

#[test]
fn files_without_sqlite_have_a_reason() {
    assert_eq!(find(Path::new("/bin/true")), Err(FindError::NoSqlite));
    assert_eq!(find(Path::new("/etc/passwd")), Err(FindError::NotElf));
    assert!(matches!(find(Path::new("/no/such/file")), Err(FindError::Unreadable(_))));
    assert_eq!(find(Path::new("/dev/null")), Err(FindError::NotElf));
    assert_eq!(find(Path::new("/")), Err(FindError::NotElf));
}

/// Returns the address at which this process has mapped the byte of a file as code.
fn mapped(file: &str, offset: u64) -> Option<u64> {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-')?;
        let number = |hex| u64::from_str_radix(hex, 16).unwrap();
        let (start, end, from) = (number(start), number(end), number(words[2]));
        let inside = words[1].contains('x') && (from..from + (end - start)).contains(&offset);
        (inside && words.get(5) == Some(&file)).then(|| start + offset - from)
    })
}

/// Reads the SQL as a probe would: the pointer at the offset in the statement, then up to the NUL.
///
/// # Safety
/// `stmt` must be a live `sqlite3_stmt` of the SQLite that `offset` was found for.
unsafe fn text_of(stmt: *const c_void, offset: u32) -> String {
    // SAFETY: the caller's promise; a wrong offset is what the test would detect, at worst by a fault of this process.
    unsafe { CStr::from_ptr(*stmt.byte_add(offset as usize).cast::<*const c_char>()) }.to_str().unwrap().to_owned()
}

const STATEMENT_TEXT: &str = "SELECT 'where does my text stand?'";

/// SQLite built into this program (without optimisation in a debug build).
#[test]
fn built_in_sqlite_is_found_and_its_sql_read() {
    let exe = std::env::current_exe().unwrap();
    let found = find(&exe).unwrap();
    assert_eq!(found.source, SymbolSource::Symtab);
    assert_eq!(found.version.as_deref(), Some(rusqlite::version()));
    assert_eq!(found.blind_to(), Vec::<&str>::new());

    let exe = exe.to_str().unwrap();
    use rusqlite::ffi;
    assert_eq!(mapped(exe, found.step), Some(ffi::sqlite3_step as *const () as u64));
    assert_eq!(mapped(exe, found.finalize.unwrap()), Some(ffi::sqlite3_finalize as *const () as u64));
    let v2 = found.prepares.iter().find(|p| p.name == "sqlite3_prepare_v2").unwrap();
    assert_eq!(mapped(exe, v2.offset), Some(ffi::sqlite3_prepare_v2 as *const () as u64));

    let connection = rusqlite::Connection::open_in_memory().unwrap();
    let sql = CString::new(STATEMENT_TEXT).unwrap();
    let mut stmt = std::ptr::null_mut();
    // SAFETY: the connection lives, the text is zero-terminated, and the statement is finalised before the connection ends.
    unsafe {
        let result =
            ffi::sqlite3_prepare_v2(connection.handle(), sql.as_ptr(), -1, &raw mut stmt, std::ptr::null_mut());
        assert_eq!(result, ffi::SQLITE_OK);
        assert_eq!(text_of(stmt.cast(), found.sql_offset.unwrap()), STATEMENT_TEXT);
        ffi::sqlite3_finalize(stmt);
    }
}

/// The system's SQLite, stripped and optimised, loaded by hand.
#[test]
fn system_sqlite_is_found_and_its_sql_read() {
    let library = find::Libraries::system().with_prefix("libsqlite3.so").next();
    let path = library.expect("this test needs the system's SQLite: apt-get install libsqlite3-0");
    let path = path.canonicalize().unwrap();
    let found = find(&path).unwrap();
    assert_eq!(found.blind_to(), Vec::<&str>::new());
    assert!(found.source_id.as_ref().is_some_and(|id| id.starts_with("20")), "{found:?}");

    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: plain calls of the loader and of SQLite's documented interface, with zero-terminated texts; each function has
    // the type given in its manual. RTLD_LOCAL separates this SQLite from the built-in one.
    unsafe {
        let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null());
        let address = |name: &CStr| libc::dlsym(library, name.as_ptr());
        assert_eq!(mapped(path.to_str().unwrap(), found.step), Some(address(c"sqlite3_step") as u64));
        assert_eq!(mapped(path.to_str().unwrap(), found.reset.unwrap()), Some(address(c"sqlite3_reset") as u64));

        type Open = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
        type Prepare =
            unsafe extern "C" fn(*mut c_void, *const c_char, c_int, *mut *mut c_void, *mut *const c_char) -> c_int;
        type End = unsafe extern "C" fn(*mut c_void) -> c_int;
        let open: Open = std::mem::transmute(address(c"sqlite3_open"));
        let prepare: Prepare = std::mem::transmute(address(c"sqlite3_prepare_v2"));
        let finalize: End = std::mem::transmute(address(c"sqlite3_finalize"));
        let close: End = std::mem::transmute(address(c"sqlite3_close"));

        let (mut db, mut stmt) = (std::ptr::null_mut(), std::ptr::null_mut());
        assert_eq!(open(c":memory:".as_ptr(), &raw mut db), 0);
        let sql = CString::new(STATEMENT_TEXT).unwrap();
        assert_eq!(prepare(db, sql.as_ptr(), -1, &raw mut stmt, std::ptr::null_mut()), 0);
        assert_eq!(text_of(stmt, found.sql_offset.unwrap()), STATEMENT_TEXT);
        assert_eq!(finalize(stmt), 0);
        assert_eq!(close(db), 0);
        assert_eq!(libc::dlclose(library), 0);
    }
}

/// Compiles a small program with the compiler that built this program's SQLite.
fn compile(directory: &Path, source: &str, options: &[&str]) -> PathBuf {
    let (code, program) = (directory.join("p.c"), directory.join("p"));
    std::fs::write(&code, source).unwrap();
    assert!(
        std::process::Command::new("cc").args(options).arg("-o").arg(&program).arg(&code).status().unwrap().success()
    );
    program
}

/// The `sqlite3` command contains SQLite's stamp, since it was built with it, but takes the functions from the library.
#[test]
fn program_linked_to_library_is_not_stripped_sqlite() {
    const LINKED_PROGRAM: &str = r#"
const char id[] = "2022-12-28 14:03:47 df5c253c0b3dd24916e4ec7cf77d3db5294cc9fd45ae7b9c5e82ad8197f38a24";
const char magic[] = "SQLite format 3";
int sqlite3_step(void *p);
int main(void) { return id[0] + magic[0] + sqlite3_step(0); }
"#;
    let (directory, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let library = compile(directory.path(), "int sqlite3_step(void *p) { return !p; }", &["-shared", "-fPIC"]);
    let program = compile(user.path(), LINKED_PROGRAM, &["-s", "-Wl,--no-as-needed", library.to_str().unwrap()]);
    assert_eq!(find(&program), Err(FindError::NoSqlite));
}

/// A stand-in for a program with SQLite inside: the names, the stamp and the first bytes of a database.
const STAND_IN_PROGRAM: &str = r#"
const char id[] = "2022-12-28 14:03:47 df5c253c0b3dd24916e4ec7cf77d3db5294cc9fd45ae7b9c5e82ad8197f38a24";
const char magic[] = "SQLite format 3";
struct stmt { char before[0x88]; char *text; };
char *sqlite3_sql(struct stmt *p) { return p ? p->text : 0; }
int sqlite3_step(struct stmt *p) { return p->before[0]; }
int sqlite3LockAndPrepare(void *db) { return !db; }
int sqlite3Prepare(void *db) { return sqlite3LockAndPrepare(db); }
int main(void) { return id[0] + magic[0] + sqlite3_step(0) + sqlite3Prepare(0) + !sqlite3_sql(0); }
"#;

/// A stripped program has only the source id; the debug file with its build id has all symbols.
#[test]
fn stripped_program_is_resolved_by_debug_file() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), STAND_IN_PROGRAM, &["-O1", "-Wl,--build-id=sha1"]);
    let whole = find(&program).unwrap();
    assert_eq!((whole.source, whole.sql_offset), (SymbolSource::Symtab, Some(0x88)));
    // Without the public functions, only the local function that the other one calls is probed.
    let prepares: Vec<_> = whole.prepares.iter().map(|p| (p.name, p.stmt_arg)).collect();
    assert_eq!(prepares, [("sqlite3LockAndPrepare", 5)]);
    assert_eq!(whole.blind_to().len(), 2, "reset and finalize are missing: {:?}", whole.blind_to());

    let id = Elf::open(&program).unwrap().build_id().unwrap();
    let debug = directory.path().join("debug").join(&id[..2]);
    std::fs::create_dir_all(&debug).unwrap();
    let debug_file = debug.join(format!("{}.debug", &id[2..]));
    let run = |tool: &str, arguments: &[&std::ffi::OsStr]| {
        assert!(std::process::Command::new(tool).args(arguments).status().unwrap().success());
    };
    run("objcopy", &["--only-keep-debug".as_ref(), program.as_ref(), debug_file.as_ref()]);
    run("strip", &[program.as_ref()]);

    let stripped = find_with_debug_files(&program, Path::new("/no/such/directory"));
    assert!(
        matches!(&stripped, Err(FindError::Stripped { source_id }) if source_id.starts_with("2022-12-28 14:03:47"))
    );
    let found = find_with_debug_files(&program, &directory.path().join("debug")).unwrap();
    assert_eq!(found, SqliteSymbols { source: SymbolSource::DebugFile, ..whole });
}

/// Functions, and what else has a name in the symbol table.
const SYMBOLS_PROGRAM: &str = r#"
__asm__(".text\n.type around, @function\naround: nop\n.globl label\nlabel: nop\n"
	".globl nested\n.type nested, @function\nnested: nop\n ret\n.size nested, . - nested\n.size around, . - around\n"
	".globl torn.cold\n.type torn.cold, @function\ntorn.cold: ret\n.size torn.cold, . - torn.cold\n"
	".globl main.handle\n.type main.handle, @function\nmain.handle: ret\n.size main.handle, . - main.handle\n"
	".section .gopclntab,\"a\"\n.byte 0\n.text\n");
int data;
int plain(int n) { return n + data; }
int setjmp(void) { return 0; }
static int (*choose(void))(int) { return plain; }
int chosen(int n) __attribute__((ifunc("choose")));
int main(void) { return plain(0) + chosen(0); }
"#;

/// The same with a file that holds all symbols, and with one whose symbols are in another file next to it.
#[test]
fn entry_is_found_for_functions_alone() {
    use super::entry::{EntryError, find_entry};
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), SYMBOLS_PROGRAM, &["-O1", "-w"]);
    let run = |tool: &str, arguments: &[&std::ffi::OsStr]| {
        assert!(
            std::process::Command::new(tool).args(arguments).current_dir(directory.path()).status().unwrap().success()
        );
    };
    for split in [false, true] {
        if split {
            run("objcopy", &["--only-keep-debug".as_ref(), "p".as_ref(), "p.debug".as_ref()]);
            run("strip", &["p".as_ref()]);
            run("objcopy", &["--add-gnu-debuglink=p.debug".as_ref(), "p".as_ref()]);
        }
        let of = |name: &str| find_entry(&program, name);
        let at = of("plain").unwrap();
        assert!(code_at(&program, at, 8).is_some_and(|(_, _, code)| code.len() == 8), "{at:#x} is not code");
        assert_ne!(of("main").unwrap(), at);
        assert_eq!(of("around").map(drop), Ok(()));
        assert_eq!(of("label"), Err(EntryError::NotFunction("label".into())));
        assert_eq!(of("data"), Err(EntryError::NotFunction("data".into())));
        assert_eq!(of("nested"), Err(EntryError::Within("around".into())));
        assert_eq!(of("torn.cold"), Err(EntryError::NotCalled));
        assert_eq!(of("_start"), Err(EntryError::NotCalled));
        assert_eq!(of("setjmp"), Err(EntryError::KeepsReturn));
        assert_eq!(
            of("main.handle"),
            Err(EntryError::Go),
            "a function of Go; those of C in the same program have no dot"
        );
        assert_eq!(of("chosen"), Err(EntryError::Indirect));
        assert_eq!(of("printf"), Err(EntryError::NoSymbol));
        assert_eq!(of(""), Err(EntryError::NoSymbol));
    }
    assert!(matches!(find_entry(Path::new("/etc/passwd"), "main"), Err(EntryError::NoProgram(_))));
}

/// Its symbols are half as large, and it needs no C library to be compiled.
#[test]
fn entry_in_32_bit_program_is_found() {
    use super::entry::{EntryError, find_entry};
    if cfg!(not(target_arch = "x86_64")) {
        println!("SKIP entry_in_32_bit_program_is_found: the compiler here makes no such programs for this kernel");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = "int first(void) { return 1; }\nint plain(int n) { return n; }\n\
                  __asm__(\".globl label\\nlabel: nop\");\nvoid _start(void) { first(); plain(0); for (;;); }\n";
    let program =
        compile(directory.path(), source, &["-m32", "-O0", "-w", "-nostdlib", "-static", "-fno-pic", "-no-pie"]);
    let [first, plain] = ["first", "plain"].map(|name| find_entry(&program, name).unwrap());
    // push %ebp, with or without endbr32 before it.
    for at in [first, plain] {
        let code = std::fs::read(&program).unwrap()[at as usize..][..5].to_vec();
        assert!(code[0] == 0x55 || code == [0xf3, 0x0f, 0x1e, 0xfb, 0x55], "{code:x?}");
    }
    assert!(plain > first);
    assert_eq!(find_entry(&program, "label"), Err(EntryError::NotFunction("label".into())));
    assert_eq!(find_entry(&program, "_start"), Err(EntryError::NotCalled));
    assert!(matches!(find(&program), Err(FindError::Foreign(_))));
}

/// A damaged library must be refused or read without a panic: every header byte is set to extreme values in turn.
#[test]
fn damaged_elf_headers_do_not_panic() {
    let whole = std::fs::read("/bin/true").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged");
    for at in (0..64).chain(64..64 + 56 * 4).step_by(3) {
        for value in [0, 0x7f, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            std::fs::write(&path, &bytes).unwrap();
            let _ = find(&path);
            let _ = super::entry::find_entry(&path, "main");
        }
    }
    // Every segment in turn claims to be longer than the file, or to begin beyond it (program headers: 56 bytes from 64 on,
    // the offset at 8, the size at 32).
    for (header, field) in (0..8).flat_map(|n| [(n, 8), (n, 32)]) {
        for value in [whole.len() as u64, u64::MAX / 2, u64::MAX] {
            let mut bytes = whole.clone();
            bytes[64 + 56 * header + field..][..8].copy_from_slice(&value.to_le_bytes());
            std::fs::write(&path, &bytes).unwrap();
            let _ = find(&path);
            if let Ok(elf) = Elf::open(&path) {
                for address in [0, 1, 0x1000, 0x10_0000, u64::MAX / 2, u64::MAX - 1] {
                    let inside = elf.code_offset(address).is_none_or(|at| at < bytes.len() as u64);
                    assert!(inside, "header {header}: {address:#x} leads out of the file");
                }
            }
        }
    }
    for cut in [0, 3, 19, 63, 64, 200, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        assert!(find(&path).is_err(), "cut at {cut}");
    }
}
