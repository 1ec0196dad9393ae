//! The SQLite used by a device's own programs: its version, options and defaults, read from the library's file. None of it is executed.

use model::{Environment, Fact};
use sqlite::library::{self, Library};
use std::path::Path;

/// Its usual paths; Android's come first.
const LIBRARY_PATHS: [&str; 7] = [
    "/system/lib64/libsqlite.so",
    "/system/lib/libsqlite.so",
    "/apex/com.android.art/lib64/libsqlite.so",
    "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0",
    "/usr/lib/aarch64-linux-gnu/libsqlite3.so.0",
    "/usr/lib64/libsqlite3.so.0",
    "/usr/lib/libsqlite3.so.0",
];
/// The maximum size of a library, bytes.
const LIBRARY_BYTES_MAX: u64 = 64 << 20;

/// Facts of the first existing library.
pub fn facts() -> Environment {
    let found = LIBRARY_PATHS.iter().find(|p| Path::new(p).is_file());
    let read = || -> Result<Library, String> {
        let path = found.ok_or("no libsqlite.so or libsqlite3.so.0 in the usual directories")?;
        let about = std::fs::metadata(path).map_err(|e| e.to_string())?;
        if about.len() > LIBRARY_BYTES_MAX {
            return Err("the file is too large for a library".into());
        }
        library::identify(&std::fs::read(path).map_err(|e| e.to_string())?).ok_or_else(|| "it names no version".into())
    };
    let library = read();
    let source = found.map_or("libsqlite.so", |p| p);
    let fact = |value: Result<String, String>| Fact {
        unknown: value.as_ref().err().cloned(),
        value: value.ok(),
        unit: None,
        source: source.into(),
        varies: "device".into(),
    };
    let of = |part: fn(&Library) -> String| fact(library.as_ref().map(part).map_err(Clone::clone));
    let defaults = |l: &Library| -> Result<String, String> {
        let all = l.defaults().ok_or("the library does not list its options")?;
        Ok(all.into_iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", "))
    };
    [
        ("sqlite.defaults", fact(library.clone().and_then(|l| defaults(&l)))),
        ("sqlite.version", of(|l| l.version.clone())),
        ("sqlite.source", of(|l| l.source.clone())),
        ("sqlite.options", of(|l| l.options.join(" "))),
    ]
    .into_iter()
    .map(|(name, fact)| (name.to_string(), fact))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Debian's program uses Debian's library, so it is queried for comparison.
    #[test]
    fn defaults_of_library_are_those_of_its_program() {
        let ask = |sql: &str| {
            let output =
                std::process::Command::new("sqlite3").args(["-batch", "-init", "/dev/null", ":memory:", sql]).output();
            output.ok().map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
        };
        let facts = facts();
        let known = |name: &str| facts.get(name).and_then(|fact| fact.value.clone());
        let (Some(defaults), Some(version)) = (known("sqlite.defaults"), known("sqlite.version")) else {
            println!("SKIP defaults_of_library_are_those_of_its_program: no libsqlite3.so.0 that lists its options");
            return;
        };
        if ask("SELECT sqlite_version()").as_deref() != Some(&*version) {
            println!("SKIP defaults_of_library_are_those_of_its_program: no sqlite3 of version {version}");
            return;
        }
        let level = ask("PRAGMA synchronous").and_then(|n| n.parse::<usize>().ok()).unwrap();
        let expected = [
            format!("synchronous {}", ["off", "normal", "full", "extra"][level]),
            format!("page_size {}", ask("PRAGMA page_size").unwrap()),
            format!("wal_autocheckpoint {}", ask("PRAGMA wal_autocheckpoint").unwrap()),
            format!("journal_size_limit {}", ask("PRAGMA journal_size_limit").unwrap()),
        ];
        for text in expected {
            assert!(defaults.split(", ").any(|part| part == text), "{text}: {defaults}");
        }
    }
}
