//! The object's reading of SQLite's own counters (`object/counters.h`), on statements of the system's SQLite, whose functions are the
//! oracle (`counters/counters.c`).
#![cfg(target_arch = "x86_64")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

#[path = "../compile.rs"]
#[allow(dead_code, reason = "the rest is for the build script")]
mod compile;

#[test]
fn loaded_counters_are_those_that_sqlite_returns() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (program, database) = (directory.join("counters"), directory.join("counters.db"));
    let _ = std::fs::remove_file(&database);
    let mut compiler = compile::compiler("x86_64").unwrap();
    compiler.args(["-Iobject", "tests/counters/counters.c", "-ldl", "-lpthread", "-o"]);
    let built = compiler.arg(&program).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let out = Command::new(&program).arg(&database).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8(out.stdout).unwrap();
    if text.is_empty() {
        println!("SKIP loaded_counters_are_those_that_sqlite_returns: there is no libsqlite3.so.0 here");
        return;
    }
    let number = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
    let line = |line: &str| {
        let (name, words) = line.split_once(' ').unwrap();
        (name.to_owned(), words.split(' ').map(|word| number(word).unwrap()).collect())
    };
    let all: BTreeMap<String, BTreeMap<String, u32>> = text.lines().map(line).collect();
    // The statement's alone: the connection's mutex was held.
    assert_eq!(all["held"]["known"], 0b11_1111);
    for (name, cache) in [("own", 80), ("temporary", 5), ("attached", 0), ("detached", 5)] {
        let p = &all[name];
        assert_eq!((p["stmt"], p["cache"], p["different"]), (p["executions"], cache, 0), "{name}: {p:?}");
        assert_eq!(p["equal"], 6 * p["stmt"] + 4 * p["cache"], "{name}: {p:?}");
        assert!(p["stmt_at"] > 1 && p["cache_at"] > 1, "they are loaded: {name}: {p:?}");
    }
}
