//! Why a function that --op names cannot be probed, in words that help: it is in another file, or its name is gone.

use object::{Object as _, ObjectSymbol as _};
use std::path::{Path, PathBuf};

/// Where C libraries usually are.
const LIBRARIES: [&str; 7] = [
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib/aarch64-linux-gnu/libc.so.6",
    "/lib/arm-linux-gnueabihf/libc.so.6",
    "/lib/riscv64-linux-gnu/libc.so.6",
    "/lib64/libc.so.6",
    "/usr/lib/libc.so.6",
    "/system/lib64/libc.so",
];

/// More than any program's file has; a larger one is not read for an error's sake.
const MOST_BYTES: u64 = 1 << 30;

/// What a file says of a function's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It is a function of this file.
    Defined,
    /// Another file has it.
    Imported,
    /// No symbol has the name; whether the file still has its own functions' names.
    Absent { stripped: bool },
}

fn known(bytes: &[u8], name: &str) -> Option<Known> {
    let file = object::File::parse(bytes).ok()?;
    let mut all = file.symbols().chain(file.dynamic_symbols()).filter(|symbol| symbol.name() == Ok(name)).peekable();
    if all.peek().is_none() {
        return Some(Known::Absent { stripped: file.symbols().next().is_none() });
    }
    Some(if all.any(|symbol| symbol.is_definition()) { Known::Defined } else { Known::Imported })
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let about = std::fs::metadata(path).ok()?;
    let small = about.is_file() && about.len() <= MOST_BYTES;
    small.then(|| std::fs::read(path).ok())?
}

/// A C library of this machine that has the function.
fn library(name: &str) -> Option<PathBuf> {
    let has = |path: &PathBuf| read(path).is_some_and(|bytes| known(&bytes, name) == Some(Known::Defined));
    LIBRARIES.iter().map(PathBuf::from).find(has)
}

/// What to tell the user; `how` is what the probe's maker said, if nothing better is known.
pub fn why(path: &Path, name: &str, how: &str) -> String {
    let elsewhere = || match library(name) {
        Some(library) => format!("say --op {}:{name}", library.display()),
        None => format!("name the library that has it (`ldd {}` lists them)", path.display()),
    };
    match read(path).and_then(|bytes| known(&bytes, name)) {
        None | Some(Known::Defined) => how.into(),
        Some(Known::Imported) => format!("it has no function {name} of its own, but imports it: {}", elsewhere()),
        Some(Known::Absent { stripped: true }) => format!(
            "it has no function {name} that can be found by name: it is stripped, so only what it exports has a name; install its \
             debug symbols or build it without stripping, or name a function of a library"
        ),
        Some(Known::Absent { stripped: false }) => {
            format!("it has no function {name}; `nm {}` lists those that it has", path.display())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test's own program defines its `main` and, where it is linked to a C library, takes `write` from there.
    #[test]
    fn it_is_told_whether_the_name_is_gone_or_elsewhere() {
        let own = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&own).unwrap();
        assert_eq!(known(&bytes, "main"), Some(Known::Defined));
        assert_eq!(known(&bytes, "nosuchfn"), Some(Known::Absent { stripped: false }));
        assert_eq!(known(b"#!/bin/sh\n", "main"), None);
        assert_eq!(why(&own, "main", "said so"), "said so");
        assert_eq!(why(Path::new("/no/such/file"), "main", "said so"), "said so");
        if cfg!(target_env = "gnu") {
            let told = why(&own, "write", "said so");
            assert!(told.contains("imports it: ") && told.contains("libc.so.6:write"), "{told}");
        }
    }
}
