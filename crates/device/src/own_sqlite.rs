//! The SQLite that a device's own programs use: its version and its options, as the library's file names them. Nothing of it is run.

use model::{Environment, Fact};
use sqlite::library::{self, Library};
use std::path::Path;

/// Where systems keep it; Android's comes first.
const PLACES: [&str; 7] = [
    "/system/lib64/libsqlite.so",
    "/system/lib/libsqlite.so",
    "/apex/com.android.art/lib64/libsqlite.so",
    "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0",
    "/usr/lib/aarch64-linux-gnu/libsqlite3.so.0",
    "/usr/lib64/libsqlite3.so.0",
    "/usr/lib/libsqlite3.so.0",
];
/// No library of it is longer, bytes.
const LONGEST: u64 = 64 << 20;

/// Facts of the first library that is there.
pub fn facts() -> Environment {
    let found = PLACES.iter().find(|p| Path::new(p).is_file());
    let read = || -> Result<Library, String> {
        let path = found.ok_or("no libsqlite.so or libsqlite3.so.0 where systems keep it")?;
        let about = std::fs::metadata(path).map_err(|e| e.to_string())?;
        if about.len() > LONGEST {
            return Err("the file is too long for a library".into());
        }
        library::about(&std::fs::read(path).map_err(|e| e.to_string())?).ok_or_else(|| "it names no version".into())
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
    [
        ("sqlite.version", of(|l| l.version.clone())),
        ("sqlite.source", of(|l| l.source.clone())),
        ("sqlite.options", of(|l| l.options.join(" "))),
    ]
    .into_iter()
    .map(|(name, fact)| (name.to_string(), fact))
    .collect()
}
