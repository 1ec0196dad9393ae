//! Determines which files to search for SQLite: those that a command will run, or that a process has mapped.
//!
//! Before a command runs, only what its files reveal is known: its interpreter if it is a script, the libraries it needs
//! and those that these need, for Python the modules that bring SQLite, and the system's own libsqlite3, which covers the
//! children of a shell; and the programs that its words name. What a program loads later (a Java machine unpacks its SQLite
//! into /tmp, Node loads addons) is found by [`Finder::search_process`] once it is mapped.
//!
//! A [`Finder`] returns each file only once, by device and inode, since a probe on a file applies to every process that
//! maps it. Returned paths can be opened from here: those in a container go through `/proc/PID/root`, or, if the file has
//! been replaced or removed, through `/proc/PID/map_files`.

pub use super::libraries::Libraries;
use super::{FindError, SqliteSymbols, elf::Elf};
use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Maximum number of words of a command and its script that are looked up, and of bytes of a script that are read.
const WORDS_MAX: usize = 1000;
const SCRIPT_BYTES_MAX: u64 = 64 << 10;

/// A file with SQLite in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSqlite {
    /// A path by which it can be opened from here, as long as the process in the path exists.
    pub path: PathBuf,
    pub symbols: SqliteSymbols,
}

/// The new results of a search.
#[derive(Debug, Default)]
pub struct SearchResult {
    /// Files to probe.
    pub found: Vec<FoundSqlite>,
    /// Files that may matter and cannot be probed: stripped, foreign or unreadable. Files that clearly lack SQLite, nearly
    /// all, are not listed.
    pub absent: Vec<(PathBuf, FindError)>,
}

impl SearchResult {
    fn append(&mut self, mut other: Self) {
        self.found.append(&mut other.found);
        self.absent.append(&mut other.absent);
    }
}

fn child_pids(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Searches files, each once.
#[derive(Debug)]
pub struct Finder {
    libraries: Libraries,
    library_path: Vec<PathBuf>,
    seen: BTreeSet<(u64, u64)>,
    /// (device, inode) as in `/proc/PID/maps`. They differ from `stat`'s on overlayfs and btrfs.
    mapped: BTreeSet<(String, u64)>,
}

impl Finder {
    /// Creates a finder for this system. `library_path` is the value of `LD_LIBRARY_PATH` that commands will have.
    pub fn new(library_path: Option<&OsStr>) -> Self {
        let library_path = library_path.map_or_else(Vec::new, |all| std::env::split_paths(all).collect());
        Self { libraries: Libraries::system(), library_path, seen: BTreeSet::new(), mapped: BTreeSet::new() }
    }

    /// Searches one file.
    pub fn search_file(&mut self, path: &Path) -> SearchResult {
        let mut search = SearchResult::default();
        let Ok(about) = fs::metadata(path) else { return search };
        if !self.seen.insert((about.dev(), about.ino())) {
            return search;
        }
        match super::find(path) {
            Ok(symbols) => search.found.push(FoundSqlite { path: path.to_owned(), symbols }),
            Err(FindError::NoSqlite | FindError::NotElf) => {}
            Err(absent) => search.absent.push((path.to_owned(), absent)),
        }
        search
    }

    /// Searches the system's own SQLite libraries.
    pub fn search_system(&mut self) -> SearchResult {
        let all = ["libsqlite3.so", "libsqlite.so", "libsqlcipher.so"];
        let paths: Vec<PathBuf> = all.iter().flat_map(|name| self.libraries.with_prefix(name)).collect();
        self.search_paths(paths)
    }

    /// Searches what a program (by its resolved path) will load.
    pub fn search_command(&mut self, program: &Path, path_variable: Option<&OsStr>) -> SearchResult {
        let programs = interpreters(program, path_variable);
        let mut search = SearchResult::default();
        for program in &programs {
            search.append(self.search_with_libraries(program));
            for module in python_modules(program) {
                search.append(self.search_with_libraries(&module));
            }
        }
        search
    }

    /// Searches the programs named by a command, also inside a word (`sh -c 'make; ./app'`), and by its scripts, whether the command
    /// itself or a word of it (`sh run.sh`): once they run, their first statements are over before they could be searched. A word that is
    /// not a program costs one lookup of a file name.
    pub fn search_named(&mut self, command: &[OsString], path_variable: Option<&OsStr>) -> SearchResult {
        let mut text: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let own = command.first().and_then(|first| crate::launch::resolve_program(first, path_variable).ok());
        text.extend(
            own.iter()
                .map(PathBuf::as_path)
                .chain(command.iter().skip(1).map(Path::new).filter(|word| word.is_file()))
                .filter_map(read_script),
        );
        let mut search = SearchResult::default();
        for word in
            text.iter().flat_map(|text| text.split(ends_word)).collect::<BTreeSet<_>>().into_iter().take(WORDS_MAX)
        {
            if let Ok(program) = crate::launch::resolve_program(OsStr::new(word), path_variable)
                && fs::metadata(&program).is_ok_and(|about| about.is_file())
            {
                search.append(self.search_command(&program, path_variable));
            }
        }
        search
    }

    /// Searches what a process has mapped as code.
    pub fn search_process(&mut self, pid: u32) -> SearchResult {
        let Ok(maps) = fs::read(format!("/proc/{pid}/maps")) else { return SearchResult::default() };
        let mut paths = Vec::new();
        for mapping in parse_mappings(&String::from_utf8_lossy(&maps)) {
            if self.mapped.insert((mapping.device.to_owned(), mapping.inode)) {
                paths.push(openable_path(pid, &mapping));
            }
        }
        self.search_paths(paths)
    }

    /// Searches what these processes and all their descendants have mapped as code.
    pub fn search_trees(&mut self, roots: &[u32]) -> SearchResult {
        let (mut search, mut seen, mut left) = (SearchResult::default(), BTreeSet::new(), roots.to_vec());
        while let Some(pid) = left.pop() {
            if seen.insert(pid) {
                search.append(self.search_process(pid));
                left.extend(child_pids(pid));
            }
        }
        search
    }

    /// Searches what every process has mapped as code. Processes that may not be read are skipped.
    pub fn search_every_process(&mut self) -> SearchResult {
        let mut search = SearchResult::default();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                search.append(self.search_process(pid));
            }
        }
        search
    }

    /// Searches files that the kernel named as a process saw them, each with its inode: a different file with that name here is left
    /// alone.
    pub fn search_files(&mut self, named: &[(PathBuf, u64)]) -> SearchResult {
        let same = |(path, ino): &&(PathBuf, u64)| fs::metadata(path).is_ok_and(|about| about.ino() == *ino);
        self.search_paths(named.iter().filter(same).map(|(path, _)| path.clone()).collect())
    }

    fn search_paths(&mut self, paths: Vec<PathBuf>) -> SearchResult {
        let mut search = SearchResult::default();
        for path in paths {
            search.append(self.search_file(&path));
        }
        search
    }

    /// Searches a file, the libraries it needs, those that these need, and so on.
    fn search_with_libraries(&mut self, program: &Path) -> SearchResult {
        let mut search = SearchResult::default();
        let mut known = BTreeSet::from([program.to_owned()]);
        let mut queue = VecDeque::from([program.to_owned()]);
        while let Some(path) = queue.pop_front() {
            search.append(self.search_file(&path));
            let Ok(elf) = Elf::open(&path) else { continue };
            let origin = path.canonicalize().ok().and_then(|p| p.parent().map(Path::to_owned)).unwrap_or_default();
            let mut first: Vec<PathBuf> =
                elf.search.iter().map(|directory| expand_origin(directory, &origin)).collect();
            first.extend_from_slice(&self.library_path);
            for name in &elf.needed {
                if let Some(library) = self.libraries.resolve(name, &first)
                    && known.insert(library.clone())
                {
                    queue.push_back(library);
                }
            }
        }
        search
    }
}

/// Expands a directory of a search path with the location of the file itself.
fn expand_origin(directory: &str, origin: &Path) -> PathBuf {
    let origin = origin.to_string_lossy();
    PathBuf::from(directory.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
}

/// Returns the program that the kernel executes first for a command, given its resolved path: for a script, the interpreter
/// that it names.
pub fn executed_program(program: &Path) -> PathBuf {
    let all = interpreters(program, None);
    // A text without such a first line is executed by a shell.
    let is_elf = |path: &&PathBuf| Elf::open(path).is_ok();
    all.iter().find(is_elf).cloned().unwrap_or_else(|| "/bin/sh".into())
}

/// Returns the program, and if it is a script, its interpreters. `env` is resolved; four steps are the kernel's limit.
fn interpreters(program: &Path, path_variable: Option<&OsStr>) -> Vec<PathBuf> {
    let mut all = vec![program.to_owned()];
    for _ in 0..4 {
        let Some(last) = all.last() else { break };
        let Some(words) = shebang_words(last) else { break };
        all.push(PathBuf::from(&words[0]));
        if Path::new(&words[0]).file_name() != Some(OsStr::new("env")) {
            continue;
        }
        // `env -S prog args`, `env NAME=value prog`
        let named = words[1..].iter().find(|w| !w.starts_with('-') && !w.contains('='));
        if let Some(path) = named.and_then(|name| crate::launch::resolve_program(OsStr::new(name), path_variable).ok())
        {
            all.push(path);
        }
    }
    all
}

/// Whether a shell word ends here.
fn ends_word(c: char) -> bool {
    c.is_whitespace() || "\"'`;|&()<>{}=".contains(c)
}

/// Returns the text of a script, or its beginning if it is long.
fn read_script(program: &Path) -> Option<String> {
    shebang_words(program)?;
    let mut text = Vec::new();
    fs::File::open(program).ok()?.take(SCRIPT_BYTES_MAX).read_to_end(&mut text).ok()?;
    // A comment in another encoding must not hide a program.
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the words after `#!`, at least one.
fn shebang_words(path: &Path) -> Option<Vec<String>> {
    let mut start = [0; 256];
    let mut options = fs::File::options();
    let read = options.read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?.read(&mut start).ok()?;
    let line = start[..read].strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let words: Vec<String> = String::from_utf8_lossy(line).split_whitespace().map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}

/// Returns the modules through which a Python uses SQLite: its own `_sqlite3`, and packages with another one.
fn python_modules(program: &Path) -> Vec<PathBuf> {
    let canonical = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let is_python = |p: &Path| p.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python"));
    if !is_python(program) && !is_python(&canonical) {
        return Vec::new();
    }
    let list = |directory: &Path| -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path()).collect();
        all.sort();
        all
    };
    let starts = |path: &Path, with: &str| path.file_name().is_some_and(|n| n.as_bytes().starts_with(with.as_bytes()));
    let mut found = Vec::new();
    // Both the path by which it is called (a virtual environment) and its real one.
    let prefixes: BTreeSet<&Path> = [program, &canonical].iter().filter_map(|p| p.parent()?.parent()).collect();
    for prefix in prefixes {
        let versions = list(&prefix.join("lib")).into_iter().chain(list(&prefix.join("lib64")));
        for version in versions.filter(|p| starts(p, "python")) {
            found.extend(list(&version.join("lib-dynload")).into_iter().filter(|p| starts(p, "_sqlite3")));
            for packages in ["site-packages", "dist-packages"] {
                for package in ["apsw", "pysqlite3", "sqlcipher3"] {
                    let files = list(&version.join(packages).join(package));
                    found.extend(files.into_iter().filter(|p| p.extension() == Some(OsStr::new("so"))));
                }
            }
        }
    }
    found
}

/// A file mapped as code.
#[derive(Debug, PartialEq, Eq)]
pub struct MappedFile<'a> {
    /// `START-END`, as in `/proc/PID/map_files`.
    pub range: &'a str,
    /// `MAJOR:MINOR`, in hexadecimal.
    pub device: &'a str,
    pub inode: u64,
    /// Path as seen by the process.
    pub path: &'a str,
    /// It has been removed or replaced.
    pub deleted: bool,
}

/// Parses `/proc/PID/maps` (proc(5)): range, permissions, offset, device, inode, path; the path may contain spaces.
pub fn parse_mappings(maps: &str) -> impl Iterator<Item = MappedFile<'_>> {
    maps.lines().filter_map(|line| {
        let mut words = line.splitn(6, ' ');
        let range = words.next()?;
        let code = words.next()?.contains('x');
        let device = words.nth(1)?;
        let inode = words.next()?.parse().ok()?;
        let path = words.next()?.trim_start();
        let (path, deleted) = path.strip_suffix(" (deleted)").map_or((path, false), |p| (p, true));
        (code && inode != 0 && path.starts_with('/')).then_some(MappedFile { range, device, inode, path, deleted })
    })
}

/// Returns a path by which the mapped file can be opened: the shortest that leads to the same inode.
fn openable_path(pid: u32, mapping: &MappedFile<'_>) -> PathBuf {
    let same = |path: &PathBuf| fs::metadata(path).is_ok_and(|about| about.ino() == mapping.inode);
    let inside = PathBuf::from(format!("/proc/{pid}/root{}", mapping.path));
    let outside = PathBuf::from(mapping.path);
    if !mapping.deleted && same(&inside) {
        // The same path from here, unless the process has another root.
        let both = (fs::metadata(&inside), fs::metadata(&outside));
        let here = matches!(both, (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()));
        return if here { outside } else { inside };
    }
    PathBuf::from(format!("/proc/{pid}/map_files/{}", mapping.range))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn maps_with_spaces_and_deleted_files_are_parsed() {
        let maps = "\
7f0000000000-7f0000001000 r--p 00000000 fe:00 42                         /usr/lib/libsqlite3.so.0.8.6
7f0000001000-7f0000002000 r-xp 00001000 fe:00 42                         /usr/lib/libsqlite3.so.0.8.6
7f0000003000-7f0000004000 r-xp 00001000 00:2d 43                         /tmp/my libs/a b.so (deleted)
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                          [vdso]
7f0000005000-7f0000006000 rwxp 00000000 00:00 0 
nonsense
";
        let all: Vec<_> = parse_mappings(maps).collect();
        let shown: Vec<_> = all.iter().map(|m| (m.range, m.device, m.inode, m.path, m.deleted)).collect();
        assert_eq!(
            shown,
            [
                ("7f0000001000-7f0000002000", "fe:00", 42, "/usr/lib/libsqlite3.so.0.8.6", false),
                ("7f0000003000-7f0000004000", "00:2d", 43, "/tmp/my libs/a b.so", true),
            ]
        );
    }

    #[test]
    fn interpreters_are_resolved_through_env() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let inner = make("inner", "#!/bin/sh\n");
        let plain = make("plain", &format!("#! {} -x\necho\n", inner.to_string_lossy()));
        assert_eq!(interpreters(&plain, None), [plain.clone(), inner.clone(), "/bin/sh".into()]);
        let by_env = make("by_env", "#!/usr/bin/env -S LANG=C inner\n");
        let path = Some(directory.path().as_os_str());
        assert_eq!(interpreters(&by_env, path), [by_env.clone(), "/usr/bin/env".into(), inner, "/bin/sh".into()]);
        assert_eq!(executed_program(&plain), Path::new("/bin/sh"));
        assert_eq!(executed_program(&std::env::current_exe().unwrap()), std::env::current_exe().unwrap());
        assert_eq!(executed_program(&make("text", "echo\n")), Path::new("/bin/sh"), "a shell's");
        let circle = make("circle", &format!("#!{}\n", directory.path().join("circle").to_string_lossy()));
        assert_eq!(interpreters(&circle, None).len(), 5);
    }

    #[test]
    fn python_modules_are_found_from_virtual_environment() {
        let directory = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        let real = make("base/bin/python3.11");
        let own = make("base/lib/python3.11/lib-dynload/_sqlite3.cpython-311-x86_64-linux-gnu.so");
        make("base/lib/python3.11/lib-dynload/_ssl.so");
        let other = make("venv/lib/python3.11/site-packages/apsw/__init__.cpython-311.so");
        fs::create_dir_all(directory.path().join("venv/bin")).unwrap();
        let python = directory.path().join("venv/bin/python3");
        symlink(&real, &python).unwrap();
        let (own, other) = (own.canonicalize().unwrap(), other.canonicalize().unwrap());
        let found: Vec<_> = python_modules(&python).iter().map(|p| p.canonicalize().unwrap()).collect();
        assert_eq!(found, [own, other]);
        assert_eq!(python_modules(Path::new("/bin/sh")), Vec::<PathBuf>::new());
    }

    /// This process has SQLite built in and mapped; a second call finds nothing new.
    #[test]
    fn process_with_sqlite_is_found_once() {
        let mut finder = Finder::new(None);
        let exe = std::env::current_exe().unwrap();
        // Keeps SQLite linked into this program.
        assert!(rusqlite::version().starts_with("3."));
        let found = finder.search_process(std::process::id()).found;
        assert!(found.iter().any(|f| f.path == exe), "{found:?}");
        assert!(finder.search_process(std::process::id()).found.is_empty());
        assert!(finder.search_file(&exe).found.is_empty());
    }

    /// This program has SQLite linked in.
    #[test]
    fn programs_named_in_words_and_scripts_are_found() {
        let exe = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("run");
        fs::write(&script, format!("#!/bin/sh\nexec {} --list\n", exe.to_string_lossy())).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let line = OsString::from(format!("cd /;X=1 {};true", exe.to_string_lossy()));
        // A shell also executes a script that is not an executable file.
        let text = directory.path().join("text");
        fs::write(&text, [&fs::read(&script).unwrap(), b"# caf\xe9\n".as_slice()].concat()).unwrap();
        fs::set_permissions(&text, fs::Permissions::from_mode(0o644)).unwrap();
        for command in [
            vec!["sh".into(), "-c".into(), line],
            vec![script.into()],
            vec!["sh".into(), text.into()],
            vec!["nice".into(), exe.clone().into()],
        ] {
            let found = Finder::new(None).search_named(&command, Some(OsStr::new("/usr/bin:/bin"))).found;
            assert!(found.iter().any(|f| f.path == exe), "{command:?}: {found:?}");
        }
        let none = Finder::new(None).search_named(&["sh".into(), "-c".into(), "no-such-program /".into()], None);
        assert!(none.found.iter().all(|f| f.path != exe));
    }

    /// A file that a process in another root saw by the same name is a different one.
    #[test]
    fn files_named_by_the_kernel_are_identified_by_inode() {
        let exe = std::env::current_exe().unwrap();
        let ino = fs::metadata(&exe).unwrap().ino();
        assert_eq!(Finder::new(None).search_files(&[(exe.clone(), ino)]).found.len(), 1);
        assert_eq!(Finder::new(None).search_files(&[(exe, ino + 1)]).found, []);
    }

    #[test]
    fn deleted_mapped_file_can_be_opened() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("copy of cat");
        fs::copy("/bin/cat", &program).unwrap();
        let inode = fs::metadata(&program).unwrap().ino();
        let piped = std::process::Stdio::piped;
        let mut child = std::process::Command::new(&program).stdin(piped()).stdout(piped()).spawn().unwrap();
        // `spawn` returns before the kernel has mapped the program; an answer proves that it is running.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let maps = format!("/proc/{}/maps", child.id());
        let path_of = |text: &str| {
            parse_mappings(text).find(|m| m.inode == inode).map(|m| (m.deleted, openable_path(child.id(), &m)))
        };
        let before = path_of(&fs::read_to_string(&maps).unwrap());
        fs::remove_file(&program).unwrap();
        let after = path_of(&fs::read_to_string(&maps).unwrap());
        let still = after.as_ref().map(|(_, path)| fs::metadata(path).map(|m| m.ino()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(before, Some((false, program)));
        assert!(matches!(after, Some((true, _))));
        // Without CAP_SYS_ADMIN the kernel refuses access to map_files.
        match still {
            Some(Err(e)) if e.kind() == std::io::ErrorKind::PermissionDenied => {}
            Some(found) => assert_eq!(found.unwrap(), inode),
            None => panic!("not mapped"),
        }
    }
}
