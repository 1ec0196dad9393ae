//! Finds the file of a function that is to be an operation, and explains helpfully why the function cannot be probed: it is in
//! another file, or its name was stripped.
//!
//! A library need not be executable: Debian's are not. So files are not found the way commands are, except for a name without
//! a slash, which may also be a library's name as known to the loader.

use capture::launch::{self, LaunchError};
use capture::sqlite::find::Libraries;
use model::text::ShownPath as _;
use object::{Object as _, ObjectSymbol as _};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Usual paths of C libraries.
const C_LIBRARY_PATHS: [&str; 7] = [
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib/aarch64-linux-gnu/libc.so.6",
    "/lib/arm-linux-gnueabihf/libc.so.6",
    "/lib/riscv64-linux-gnu/libc.so.6",
    "/lib64/libc.so.6",
    "/usr/lib/libc.so.6",
    "/system/lib64/libc.so",
];

/// Larger than any program; a larger file is not read just for an error message.
const PROGRAM_BYTES_MAX: u64 = 1 << 30;

/// Why a name does not denote a file whose functions could be probed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoFile {
    /// A directory has no functions.
    #[error("is a directory; name a program or library in it")]
    Directory,
    /// Neither has a device or a pipe.
    #[error("neither a program nor a library")]
    NotAFile,
    /// The path does not exist or cannot be read.
    #[error("{0}; give the path of a program or library")]
    Unreadable(#[source] std::io::Error),
    /// The name was not found.
    #[error("no such program in PATH and no such library; give its path")]
    Unknown,
    /// The search itself failed.
    #[error(transparent)]
    Launch(LaunchError),
}

/// Returns the file that a name denotes: itself if it has a slash, else the program of that name in `path` (the value of PATH),
/// else the library that the loader finds, searching `library_path` (the value of LD_LIBRARY_PATH) first.
///
/// # Errors
/// There is no such file, or it cannot be mapped.
pub fn find_file(name: &Path, path: Option<&OsStr>, library_path: Option<&OsStr>) -> Result<PathBuf, NoFile> {
    if name.as_os_str().as_encoded_bytes().contains(&b'/') {
        return match std::fs::metadata(name) {
            Ok(about) if about.is_file() => Ok(name.into()),
            Ok(about) if about.is_dir() => Err(NoFile::Directory),
            Ok(_) => Err(NoFile::NotAFile),
            Err(error) => Err(NoFile::Unreadable(error)),
        };
    }
    match launch::resolve_program(name.as_os_str(), path) {
        Ok(program) => Ok(program),
        Err(LaunchError::NotFound(_) | LaunchError::NotExecutable { .. }) => {
            let first: Vec<PathBuf> = library_path.map_or_else(Vec::new, |all| std::env::split_paths(all).collect());
            let library = name.to_str().and_then(|name| Libraries::system().resolve(name, &first));
            match library.filter(|library| library.is_file()) {
                Some(library) => Ok(library),
                None => Err(NoFile::Unknown),
            }
        }
        Err(error) => Err(NoFile::Launch(error)),
    }
}

/// A function's name in a file's symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Symbol {
    /// It is a function of this file.
    Defined,
    /// Another file defines it.
    Imported,
    /// No symbol has the name; `stripped`: the file has lost the names of its own functions.
    Absent { stripped: bool },
}

fn find_symbol(bytes: &[u8], name: &str) -> Option<Symbol> {
    let file = object::File::parse(bytes).ok()?;
    let mut all = file.symbols().chain(file.dynamic_symbols()).filter(|symbol| symbol.name() == Ok(name)).peekable();
    if all.peek().is_none() {
        return Some(Symbol::Absent { stripped: file.symbols().next().is_none() });
    }
    // An IFUNC is no definition to `object`.
    Some(if all.any(|symbol| !symbol.is_undefined()) { Symbol::Defined } else { Symbol::Imported })
}

/// Returns a program's bytes, if its size is plausible for a program.
pub fn read_program(path: &Path) -> Option<Vec<u8>> {
    let about = std::fs::metadata(path).ok()?;
    let small = about.is_file() && about.len() <= PROGRAM_BYTES_MAX;
    small.then(|| std::fs::read(path).ok())?
}

/// Whether the file contains or calls functions that throw exceptions or start a panic.
pub fn may_throw(path: &Path) -> bool {
    const THROWING_FUNCTIONS: [&str; 3] = ["__cxa_throw", "_Unwind_RaiseException", "_Unwind_Resume"];
    let names = |bytes: &[u8]| {
        let file = object::File::parse(bytes).ok()?;
        let mut all = file.symbols().chain(file.dynamic_symbols());
        Some(all.any(|symbol| symbol.name().is_ok_and(|name| THROWING_FUNCTIONS.contains(&name))))
    };
    read_program(path).and_then(|bytes| names(&bytes)).unwrap_or(false)
}

/// Returns a C library of this machine that has the function.
fn find_c_library(name: &str) -> Option<PathBuf> {
    let has =
        |path: &PathBuf| read_program(path).is_some_and(|bytes| find_symbol(&bytes, name) == Some(Symbol::Defined));
    C_LIBRARY_PATHS.iter().map(PathBuf::from).find(has)
}

/// Explains why it cannot be probed; `how` is the error from attaching the probe, used if nothing better is known.
pub fn why_not(path: &Path, name: &str, how: &str) -> String {
    let elsewhere = || match find_c_library(name) {
        Some(library) => format!("give --op {}:{name}", library.shown()),
        None => format!("name the library that defines it (`ldd {}` lists them)", path.shown()),
    };
    match read_program(path).and_then(|bytes| find_symbol(&bytes, name)) {
        None | Some(Symbol::Defined) => how.into(),
        Some(Symbol::Imported) => format!("does not define {name}, but imports it: {}", elsewhere()),
        Some(Symbol::Absent { stripped: true }) => format!(
            "no symbol {name}: the binary is stripped, so that only exported functions have names; install its debug \
             symbols, build it without stripping, or name a function of a library"
        ),
        Some(Symbol::Absent { stripped: false }) => {
            format!("no function {name}; `nm {}` lists its functions", path.shown())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test's own program panics.
    #[test]
    fn throwing_program_is_recognised() {
        assert!(may_throw(&std::env::current_exe().unwrap()));
        assert!(!may_throw(Path::new("/bin/sh")) && !may_throw(Path::new("/no/such/file")));
    }

    #[test]
    fn library_need_not_be_executable() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("libnosuch.so.7");
        std::fs::write(&library, "").unwrap();
        std::fs::set_permissions(&library, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(find_file(&library, None, None).unwrap(), library);
        let here = Some(directory.path().as_os_str());
        let found = |name: &str| find_file(Path::new(name), here, here);
        assert_eq!(found("libnosuch.so.7").unwrap(), library);
        assert!(found("libnosuch.so.8").is_err_and(|e| matches!(e, NoFile::Unknown)));
        assert!(find_file(directory.path(), None, None).is_err_and(|e| matches!(e, NoFile::Directory)));
        assert!(find_file(Path::new("/dev/null"), None, None).is_err_and(|e| matches!(e, NoFile::NotAFile)));
        assert!(find_file(Path::new("./nosuch"), None, None).is_err_and(|e| matches!(e, NoFile::Unreadable(_))));
    }

    /// This test's own program defines its `main` and, where it is linked to a C library, takes `write` from there.
    #[test]
    fn stripped_and_imported_names_have_different_errors() {
        let own = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&own).unwrap();
        assert_eq!(find_symbol(&bytes, "main"), Some(Symbol::Defined));
        assert_eq!(find_symbol(&bytes, "nosuchfn"), Some(Symbol::Absent { stripped: false }));
        assert_eq!(find_symbol(b"#!/bin/sh\n", "main"), None);
        assert_eq!(why_not(&own, "main", "said so"), "said so");
        assert_eq!(why_not(Path::new("/no/such/file"), "main", "said so"), "said so");
        if cfg!(target_env = "gnu") {
            let why = why_not(&own, "write", "said so");
            assert!(why.contains("imports it: ") && why.contains("libc.so.6:write"), "{why}");
        }
    }
}
