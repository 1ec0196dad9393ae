//! The object for aarch64 and its trampolines, on any machine: their meaning, for all functions of Debian's arm64 libraries, which are
//! unpacked and not installed; their behaviour, under a user-mode emulator (qemu-aarch64-static); and a whole program that is probed
//! inside.

use capture::inside::arenas::Arenas;
use inside::hook::aarch64::recipe;
use inside::plan::{Function, Library, Plan, Role};
use lab::debian::Packages;
use model::Record;
use object::{Object, ObjectSection, ObjectSymbol};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[path = "../../inside/compile.rs"]
mod compile;

const QEMU_PROGRAM: &str = "qemu-aarch64-static";

/// Debian's arm64 packages that these tests use, and the libraries in them.
const PACKAGE_LIBRARIES: [(&str, &str); 4] = [
    ("libsqlite3-0", "usr/lib/aarch64-linux-gnu/libsqlite3.so.0"),
    ("libc6", "lib/aarch64-linux-gnu/libc.so.6"),
    ("libpq5", "usr/lib/aarch64-linux-gnu/libpq.so.5"),
    ("musl", "lib/aarch64-linux-musl/libc.so"),
];

fn library_path(package: &str) -> Result<PathBuf, String> {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/lab");
    let unpacked = Packages::new(&cache, "arm64").and_then(|all| all.unpack(package)).map_err(|e| e.to_string())?;
    let (_, path) = PACKAGE_LIBRARIES.iter().find(|(name, _)| *name == package).ok_or("no such library")?;
    Ok(unpacked.join(path))
}

fn check_installed(program: &str) -> Result<(), String> {
    let there = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    there.map(drop).map_err(|e| format!("{program}: {e}"))
}

fn skip(test: &str, why: &str) {
    println!("SKIP {test}: {why}");
}

/// The name, address and code of a function.
struct Code {
    name: String,
    address: u64,
    code: Vec<u8>,
}

fn read_functions(path: &Path) -> Vec<Code> {
    let bytes = fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let of = |symbol: object::Symbol<'_, '_>| {
        let is_function = symbol.is_definition() && symbol.kind() == object::SymbolKind::Text && symbol.size() > 0;
        let section = file.section_by_index(symbol.section_index().filter(|_| is_function)?).ok()?;
        let at = symbol.address().checked_sub(section.address())? as usize;
        let code = section.data().ok()?.get(at..at + symbol.size() as usize)?.to_vec();
        Some(Code { name: symbol.name().unwrap_or("?").to_owned(), address: symbol.address(), code })
    };
    file.dynamic_symbols().chain(file.symbols()).filter_map(of).collect()
}

fn word(code: &[u8], n: usize) -> u32 {
    u32::from_le_bytes(code[n * 4..n * 4 + 4].try_into().unwrap())
}

/// Offsets in words in a piece of `moved.c`: the targets for branches of its two instructions, and the place of constants.
const BRANCH_TARGET_WORD: i64 = 4;
const CALL_TARGET_WORD: i64 = 6;
const CONSTANT_WORD: i64 = 12;

/// Rewrites an instruction's targets to places within a piece; `None`: it cannot run in one (it would leave it, or read memory that does
/// not exist).
fn retarget(word: u32, at: i64) -> Option<u32> {
    let place = |mask: u32, shift: u32, to: i64| word & !(mask << shift) | (((to - at) as u32) & mask) << shift;
    let fields = |which: &[u32]| which.iter().any(|shift| matches!(word >> shift & 31, 16..=18 | 26..=28));
    match word {
        _ if word & 0xfc00_0000 == 0x1400_0000 => Some(place(0x3ff_ffff, 0, BRANCH_TARGET_WORD)),
        _ if word & 0xfc00_0000 == 0x9400_0000 => Some(place(0x3ff_ffff, 0, CALL_TARGET_WORD)),
        _ if word & 0xff00_0010 == 0x5400_0000 => Some(place(0x7ffff, 5, BRANCH_TARGET_WORD)),
        _ if fields(&[0]) => None,
        _ if word & 0x7e00_0000 == 0x3400_0000 => Some(place(0x7ffff, 5, BRANCH_TARGET_WORD)),
        _ if word & 0x7e00_0000 == 0x3600_0000 => Some(place(0x3fff, 5, BRANCH_TARGET_WORD)),
        // adr and adrp: a few bytes, or pages, further.
        _ if word & 0x1f00_0000 == 0x1000_0000 => Some(word & !(0x7ffff << 5) | 3 << 5),
        // Constants in the code.
        _ if word & 0x3b00_0000 == 0x1800_0000 => Some(place(0x7ffff, 5, CONSTANT_WORD)),
        // svc; indirect branches.
        _ if word & 0xff00_0000 == 0xd400_0000 || word & 0xfe00_0000 == 0xd600_0000 => None,
        _ if fields(&[5, 10, 16]) => None,
        // Loads and stores with two registers, and atomic operations.
        _ if word & 0x3b20_0000 == 0x3820_0000 => None,
        _ => Some(word),
    }
}

/// Builds a `struct piece` of `moved.c`. `None`: it cannot be hooked, for this role.
fn build_piece(first: u32, second: u32, offset: u64, flags: u64) -> Option<Vec<u8>> {
    let mark = |n: u32| 0xd280_0000 | n << 5;
    // movz x27, #1; ret x28; at BRANCH_TARGET_WORD movz x27, #2; ret x28; at CALL_TARGET_WORD movz x26, #3; ret
    let code = [first, second, mark(1) | 27, 0xd65f_0380, mark(2) | 27, 0xd65f_0380, mark(3) | 26, 0xd65f_03c0];
    let code: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
    let recipe = recipe(&code, offset, &[], false).ok()?;
    let function = Function { address: offset, role: Role::Syscall, recipe };
    let library = Library { functions: vec![function], ..Library::default() };
    // As in the plan, after its header and the library's (layout.h).
    const HEADER_BYTES: usize = 40;
    const LIBRARY_HEADER_BYTES: usize = 80;
    const FUNCTION_BYTES: usize = 136;
    let plan = Plan { libraries: vec![library], ..Plan::default() }.to_bytes();
    assert_eq!((plan.len() - HEADER_BYTES) % (LIBRARY_HEADER_BYTES + 12 * FUNCTION_BYTES), 0, "the layout has changed");
    let function = &plan[HEADER_BYTES + LIBRARY_HEADER_BYTES..][..FUNCTION_BYTES];
    Some([&code[..], &flags.to_le_bytes(), function].concat())
}

/// Instructions whose meaning depends on their address, in forms that compilers rarely put second.
const SECOND_INSTRUCTIONS: [u32; 22] = [
    0x1000_0003,
    0x7000_0003,
    0x9000_0003,
    0xf000_0003,
    0x1800_0003,
    0x5800_0003,
    0x9800_0003,
    0x1c00_0003,
    0x5c00_0003,
    0x9c00_0003,
    0xd800_0000,
    0x5400_0000,
    0x5400_0001,
    0x5400_000a,
    0x3400_0001,
    0xb500_0001,
    0x3600_0001,
    0xb7f8_0001,
    0x1400_0000,
    0x9400_0000,
    0xd503_233f,
    0xd53b_d043,
];
/// First instructions: nothing; bti c; paciasp; pacibsp; stp; sub sp; str; cmp x0, #0; mov x9, x0; adrp x3.
const FIRST_INSTRUCTIONS: [u32; 10] = [
    0xd503_201f,
    0xd503_245f,
    0xd503_233f,
    0xd503_237f,
    0xa9be_7bfd,
    0xd101_03ff,
    0xf81f_0ffe,
    0xf100_001f,
    0xaa00_03e9,
    0x9000_0003,
];

#[test]
fn moved_instructions_compute_the_same_under_qemu() {
    const TEST_NAME: &str = "moved_instructions_compute_the_same_under_qemu";
    if let Err(why) = check_installed(QEMU_PROGRAM) {
        return skip(TEST_NAME, &why);
    }
    let mut pairs: BTreeSet<(u32, u32)> =
        FIRST_INSTRUCTIONS.iter().flat_map(|f| SECOND_INSTRUCTIONS.map(|s| (*f, s))).collect();
    for (package, _) in PACKAGE_LIBRARIES {
        let path = match library_path(package) {
            Ok(path) => path,
            Err(why) => return skip(TEST_NAME, &why),
        };
        let code = read_functions(&path).into_iter().filter(|f| f.code.len() >= 8);
        pairs.extend(code.map(|f| (word(&f.code, 0), word(&f.code, 1))));
    }
    // An access through the first instruction's result, which is no valid address in the test.
    let accesses = |f: u32, s: u32| s >> 25 & 0b101 == 0b100 && f & 31 == s >> 5 & 31;
    let normal = pairs.iter().filter_map(|(f, s)| Some((retarget(*f, 0)?, retarget(*s, 1)?)));
    let normal = normal.filter(|(f, s)| !accesses(*f, *s));
    let normal: BTreeSet<(u32, u32)> = normal.collect();
    let mut input = Vec::new();
    let mut cases = Vec::new();
    for (n, (first, second)) in normal.iter().enumerate() {
        // Carry and zero, or negative and overflow; at different offsets in a page.
        let flags = if n % 2 == 0 { 0x6000_0000 } else { 0x9000_0000 };
        if let Some(piece) = build_piece(*first, *second, 0x100 + 4 * (n as u64 % 900), flags) {
            input.extend(piece);
            cases.push(format!("{first:08x} {second:08x}"));
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (source, object) = (crate_directory.join("tests/arm64/moved.c"), directory.path().join("moved.o"));
    let mut clang = Command::new("clang");
    clang.args(["--target=aarch64-unknown-linux-gnu", "-O1", "-ffreestanding", "-fno-builtin", "-fno-stack-protector"]);
    clang.args(["-mgeneral-regs-only", "-ffixed-x18", "-mno-outline-atomics", "-fno-omit-frame-pointer"]);
    clang.args(["-DFATHOM_EMULATED", "-I"]).arg(crate_directory.join("../inside/object")).arg("-c").arg(source);
    assert!(clang.arg("-o").arg(&object).status().unwrap().success());
    let program = directory.path().join("moved");
    let mut link = compile::linker().unwrap();
    link.args(["-static", "--defsym=_DYNAMIC=0"]).arg(&object).arg("-o").arg(&program);
    assert!(link.status().unwrap().success());
    let mut child = Command::new(QEMU_PROGRAM);
    child.args(["-cpu", "max"]).arg(program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || to.write_all(&input));
    let out = child.wait_with_output().unwrap();
    let _ = writer.join();
    let (text, trace) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let which = |line: &str| cases.get(line.split(' ').next()?.parse::<usize>().ok()?).cloned();
    let wrong: Vec<_> = text.lines().map(|line| format!("{line}: {:?}", which(line))).take(20).collect();
    // If it was killed, the last case that it began.
    let last = trace.lines().rev().find_map(which);
    assert!(out.status.success(), "{} {last:?} {wrong:#?}", out.status);
    assert!(text.ends_with(&format!("{} ran, 0 wrong\n", cases.len())) && cases.len() > 500, "{text}");
    println!("{} pairs of instructions", cases.len());
}

fn plan_of(sqlite: &Path) -> Plan {
    let all: BTreeMap<String, Code> = read_functions(sqlite).into_iter().map(|f| (f.name.clone(), f)).collect();
    let prepare = Role::Prepare { stmt: 3, sql: 1, length: 2, utf16: false };
    let wanted = [
        ("sqlite3_step", Role::Step),
        ("sqlite3_reset", Role::Reset),
        ("sqlite3_finalize", Role::Finalize),
        ("sqlite3_prepare_v2", prepare),
    ];
    let function = |(name, role): (&str, Role)| {
        let f = &all[name];
        let recipe = recipe(&f.code, f.address, &role.reads(), role.ignores_null());
        Function { address: f.address, role, recipe: recipe.unwrap_or_else(|why| panic!("{name}: {why}")) }
    };
    let about = fs::metadata(sqlite).unwrap();
    let functions = wanted.into_iter().map(function).collect();
    let library = Library { dev: about.dev(), ino: about.ino(), functions, ..Library::default() };
    let namespace = |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).map_or(0, |about| about.ino());
    Plan { pid_namespace: namespace("pid"), time_namespace: namespace("time"), libraries: vec![library] }
}

#[test]
fn program_is_probed_inside_under_qemu() {
    const TEST_NAME: &str = "program_is_probed_inside_under_qemu";
    if let Err(why) = check_installed(QEMU_PROGRAM) {
        return skip(TEST_NAME, &why);
    }
    let (libc, sqlite) = match (library_path("libc6"), library_path("libsqlite3-0")) {
        (Ok(libc), Ok(sqlite)) => (libc, fs::canonicalize(sqlite).unwrap()),
        (Err(why), _) | (_, Err(why)) => return skip(TEST_NAME, &why),
    };
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let object = at("fathom-inside.so");
    assert!(compile::compile(&crate_directory.join("../inside"), "aarch64", &["-DFATHOM_EMULATED"], &object).unwrap());
    fs::write(at("plan"), plan_of(&sqlite).to_bytes()).unwrap();
    fs::create_dir(at("arenas")).unwrap();
    let mut clang = Command::new("clang");
    clang
        .args(["--target=aarch64-unknown-linux-gnu", "-O1", "-fPIE", "-c"])
        .arg(crate_directory.join("tests/arm64/statements.c"));
    assert!(clang.arg("-o").arg(at("s.o")).status().unwrap().success());
    let mut link = compile::linker().unwrap();
    link.args(["-pie", "-dynamic-linker", "/lib/ld-linux-aarch64.so.1", "--allow-shlib-undefined"]);
    link.arg(at("s.o")).args([&libc, &sqlite]).arg("-o").arg(at("s"));
    assert!(link.status().unwrap().success());

    // In hundredths of a second, rounded down.
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let from = (uptime.split(' ').next().unwrap().parse::<f64>().unwrap() * 1e9) as u64;
    let root = libc.ancestors().nth(3).unwrap();
    let directories = format!("{}:{}", libc.parent().unwrap().display(), sqlite.parent().unwrap().display());
    let mut qemu = Command::new(QEMU_PROGRAM);
    qemu.arg("-L").arg(root).args(["-E", &format!("LD_LIBRARY_PATH={directories}")]);
    qemu.args(["-E", &format!("LD_PRELOAD={}", object.display())]).arg(at("s"));
    let child = qemu.stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success() && out.stdout == b"done\n", "{out:?}");

    let mut arenas = Arenas::new(at("arenas"), from, 0);
    arenas.open_new();
    assert_eq!(arenas.status(pid, 0), inside::layout::LibraryStatus::Hooked);
    let events = arenas.collect(&|_| Some(pid));
    assert_eq!(arenas.lost(), 0);
    let mut by_thread: BTreeMap<u32, Vec<&Record>> = BTreeMap::new();
    for event in &events {
        assert!(event.header.tgid == pid && event.header.time_ns >= from, "{event:?}");
        by_thread.entry(event.header.tid).or_default().push(&event.record);
    }
    assert_eq!(by_thread.len(), 4, "a ring for each thread");
    for records in by_thread.values() {
        let texts: Vec<_> =
            records.iter().filter_map(|r| if let Record::Statement(s) = r { Some(&*s.text) } else { None }).collect();
        let expected = [
            "create table t (a integer primary key, b text)",
            "insert into t (b) values ('x')",
            "select a from t",
            "insert into t (a) values (1)",
        ];
        assert!(expected.iter().all(|text| texts.contains(text)), "{texts:?}");
        let ends: Vec<_> =
            records.iter().filter_map(|r| if let Record::OpEnd(e) = r { Some(e) } else { None }).collect();
        let count = |result: i32, rows: u64| ends.iter().filter(|e| e.result == result && e.rows == rows).count();
        // SQLITE_DONE for all except the last, which violates the key (SQLITE_CONSTRAINT). Within CREATE TABLE SQLite itself updates
        // its schema and reads it.
        assert_eq!((count(101, 0), count(101, 1), count(101, 100), count(19, 0), ends.len()), (102, 1, 3, 1, 107));
        assert!(ends.iter().all(|e| e.steps == e.rows + 1 && e.inside_ns > 0));
        let begins = records.iter().filter(|r| matches!(r, Record::OpBegin(_))).count();
        assert_eq!(begins, 107);
    }
}

/// Returns instructions as disassembled by llvm-objdump, by address.
fn disassemble(args: &[&str], file: &Path) -> Result<BTreeMap<u64, String>, String> {
    let out = Command::new("llvm-objdump").arg("--no-show-raw-insn").args(args).arg(file).output();
    let out = out.map_err(|e| format!("llvm-objdump: {e}"))?;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let line = |line: &str| {
        let (address, text) = line.trim_start().split_once(':')?;
        let address = u64::from_str_radix(address, 16).ok()?;
        // The rest is the target's symbol, or the number in another base.
        let text = text.split("//").next()?.split('<').next()?;
        Some((address, text.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    Ok(String::from_utf8_lossy(&out.stdout).lines().filter_map(line).collect())
}

/// Splits an instruction's text into the part before an address that it names, and that address.
fn split_address(text: &str, here: u64) -> Option<(&str, u64)> {
    let (before, last) = text.rsplit_once(' ')?;
    if let Some(hex) = last.strip_prefix("0x") {
        return Some((before, u64::from_str_radix(hex, 16).ok()?));
    }
    let relative = last.strip_prefix('#').filter(|_| before.starts_with("adr "))?;
    Some((before, here.wrapping_add_signed(relative.parse().ok()?)))
}

/// A trampoline at some address, while it is compared with the original code.
struct Walk<'a> {
    name: &'a str,
    texts: &'a BTreeMap<u64, String>,
    code: &'a [u8],
    begin: u64,
    at: u64,
}

impl Walk<'_> {
    fn next(&mut self) -> &str {
        self.at += 4;
        self.texts.get(&(self.at - 4)).map_or("", |text| text)
    }

    /// Expects exactly this instruction.
    fn expect(&mut self, expected: &str) {
        let (name, at) = (self.name.to_owned(), self.at);
        assert_eq!(self.next(), expected, "{name} at {at:x}");
    }

    /// Expects an instruction that loads this address from after the code.
    fn expect_load(&mut self, register: &str, address: u64) {
        let (at, begin) = (self.at, self.begin);
        let text = self.next().to_owned();
        let (before, place) = split_address(&text, at).unwrap_or_else(|| panic!("{}: {text}", self.name));
        assert_eq!(before, format!("ldr {register},"), "{}", self.name);
        let place = (place - begin) as usize;
        let word = u64::from_le_bytes(self.code[place..place + 8].try_into().unwrap());
        assert_eq!(word, address, "{}: {text}", self.name);
    }

    /// Expects code equivalent to an instruction at another address. Returns whether execution continues after it.
    fn expect_equivalent(&mut self, text: &str, here: u64, entry: u64) -> bool {
        let mnemonic = text.split(' ').next().unwrap_or_default();
        let register = text.split([' ', ',']).nth(1).unwrap_or_default();
        let wide = register.replace('w', "x");
        match (mnemonic, split_address(text, here)) {
            ("adr" | "adrp", Some((_, target))) => self.expect_load(register, target),
            ("ldr" | "ldrsw", Some((_, target))) if register.starts_with(['x', 'w']) => {
                self.expect_load(&wide, target);
                self.expect(&format!("{mnemonic} {register}, [{wide}]"));
            }
            ("ldr" | "prfm", Some((_, target))) => {
                self.expect_load("x17", target);
                self.expect(&format!("{mnemonic} {register}, [x17]"));
            }
            ("b", Some((_, target))) => {
                self.expect(&format!("b 0x{target:x}"));
                return false;
            }
            ("bl", Some((_, target))) => {
                self.expect_load("x30", entry + 8);
                self.expect(&format!("b 0x{target:x}"));
                return false;
            }
            ("blr", _) => {
                self.expect_load("x30", entry + 8);
                self.expect(&format!("br {register}"));
                return false;
            }
            (_, Some((before, target)))
                if mnemonic.starts_with("b.") || before.ends_with(',') && "ct".contains(&mnemonic[..1]) =>
            {
                let at = self.at;
                self.expect(&format!("{before} 0x{:x}", at + 8));
                self.expect(&format!("b 0x{:x}", at + 12));
                self.expect(&format!("b 0x{target:x}"));
            }
            _ => {
                self.expect(text);
                return !matches!(mnemonic, "ret" | "br" | "retaa" | "retab");
            }
        }
        true
    }
}

#[test]
fn trampolines_of_arm64_functions_do_the_same() {
    const TEST_NAME: &str = "trampolines_of_arm64_functions_do_the_same";
    // The address of the trampolines: within reach of a jump.
    const TRAMPOLINE_ADDRESS: u64 = 64 << 20;
    let directory = tempfile::tempdir().unwrap();
    for (package, _) in PACKAGE_LIBRARIES {
        let (path, known) =
            match library_path(package).and_then(|path| Ok((path.clone(), disassemble(&["-d"], &path)?))) {
                Ok(both) => both,
                Err(why) => return skip(TEST_NAME, &why),
            };
        let all = read_functions(&path);
        let (mut bytes, mut hooked) = (Vec::new(), Vec::new());
        for f in &all {
            let Ok(recipe) = recipe(&f.code, f.address, &[0, 1, 2], true) else { continue };
            let begin = TRAMPOLINE_ADDRESS + bytes.len() as u64;
            let mut code = recipe.code.clone();
            // As in `build` of object/aarch64_code.h.
            for fixup in &recipe.fixups {
                let (at, target) = (usize::from(fixup.at), f.address.wrapping_add_signed(fixup.target.into()));
                if fixup.absolute {
                    code[at..at + 8].copy_from_slice(&target.to_le_bytes());
                } else {
                    let distance = (target as i64 - (begin as i64 + at as i64)) >> 2;
                    code[at..at + 4].copy_from_slice(&(0x1400_0000 | distance as u32 & 0x3ff_ffff).to_le_bytes());
                }
            }
            bytes.extend(&code);
            hooked.push((f, begin, code, recipe));
        }
        let (blob, elf) = (directory.path().join("blob"), directory.path().join("elf"));
        fs::write(&blob, &bytes).unwrap();
        let mut copy = Command::new("llvm-objcopy");
        copy.args(["-I", "binary", "-O", "elf64-littleaarch64"]).arg(&blob).arg(&elf);
        assert!(copy.status().unwrap().success());
        let texts = disassemble(&["-D", &format!("--adjust-vma={TRAMPOLINE_ADDRESS}")], &elf).unwrap();
        for (f, begin, code, recipe) in &hooked {
            let mut walk = Walk { name: &f.name, texts: &texts, code, begin: *begin, at: *begin };
            let text = |n: u64| known.get(&(f.address + 4 * n)).map_or("", |text| text);
            let goes_on = walk.expect_equivalent(text(0), f.address, f.address)
                && walk.expect_equivalent(text(1), f.address + 4, f.address);
            let end = begin + code.len() as u64;
            if goes_on && walk.at != end {
                walk.expect(&format!("b 0x{end:x}"));
            }
            // What the stub undoes, according to the disassembler.
            let lowered = text(0).strip_prefix("sub sp, sp, #").and_then(|n| n.split(' ').next()?.parse::<i64>().ok());
            let stored = text(0).split("[sp, #-").nth(1).and_then(|n| n.strip_suffix("]!")?.parse().ok());
            let signs = text(0).starts_with("paci").then_some(if text(0) == "paciasp" { 255 * 16 } else { 254 * 16 });
            let expected = lowered.or(stored).or(signs).unwrap_or(0);
            assert_eq!(i64::from(recipe.undo) * 16, expected, "{}: {}", f.name, text(0));
            for (n, here) in (f.address + 8..f.address + f.code.len() as u64).step_by(4).enumerate() {
                let target = known.get(&here).and_then(|text| split_address(text, here)).map(|(_, target)| target);
                assert_ne!(target, Some(f.address + 4), "{}: instruction {n} leads into what was moved", f.name);
            }
        }
        println!("{package}: {} of {} functions can be hooked", hooked.len(), all.len());
        assert!(all.len() > 100 && hooked.len() * 2 > all.len(), "{package}: {} of {}", hooked.len(), all.len());
    }
}
