//! Ten pairs of recordings of which exactly one thing differs, each on a disk whose times are known: what `diff` puts first is what was changed.

use super::diff;
use anyhow::{Context, Result, ensure};
use fathom_tests::truth::{Disk, Settings, recorded};
use serde_json::{Value, json};

/// What differs.
struct Change {
    name: &'static str,
    base: Value,
    after: Value,
    /// Of the second disk, whose writes and flushes take 0.3 and 3 ms else.
    takes_us: (u64, u64),
    mount: &'static str,
    /// Beginnings of what may come first, as `PHASE / REASON` of the first contribution.
    first: &'static [&'static str],
}

const TAKES_US: (u64, u64) = (300, 3000);
/// What a rollback journal needs and others do not.
const JOURNAL: &[&str] =
    &["fdatasync rollback journal", "fdatasync database", "fdatasync directory", "fdatasync WAL", "unlink rollback"];

fn changes() -> Vec<Change> {
    let change = |name, base, after, first| Change { name, base, after, takes_us: TAKES_US, mount: "", first };
    let inserts = |mode: &str, synchronous: &str| json!({"journal_mode": mode, "synchronous": synchronous, "rows": 60, "bytes": 100, "page_size": 4096});
    let with = |mut base: Value, name: &str, value: Value| {
        base[name] = value;
        base
    };
    let selects = json!({"journal_mode": "wal", "index": true, "table_rows": 4000, "bytes": 400, "selects": 60, "cache_size": 10, "rows": 0});
    let wal = inserts("wal", "full");
    vec![
        change("journal_mode DELETE to WAL", inserts("delete", "full"), json!({"journal_mode": "wal"}), JOURNAL),
        change("DELETE: synchronous FULL to OFF", inserts("delete", "full"), json!({"synchronous": "off"}), JOURNAL),
        change("WAL: synchronous FULL to NORMAL", wal.clone(), json!({"synchronous": "normal"}), &["fdatasync WAL"]),
        change(
            "checkpoint every 10 pages",
            with(inserts("wal", "normal"), "wal_autocheckpoint", json!(100_000)),
            json!({"wal_autocheckpoint": 10}),
            &["fdatasync database", "fdatasync WAL", "pwrite64 database"],
        ),
        change(
            "rows of 100 to 60,000 bytes",
            wal.clone(),
            json!({"bytes": 60_000}),
            &["pwrite64 WAL", "fdatasync WAL"],
        ),
        change("twenty INSERTs a transaction", wal.clone(), json!({"per_transaction": 20}), &["fdatasync WAL"]),
        change(
            "index dropped",
            selects.clone(),
            json!({"index": false}),
            &["pread64 database", "outside system calls"],
        ),
        change("page cache dropped", selects, json!({"cold": true}), &["pread64 database"]),
        Change {
            takes_us: (300, 12_000),
            ..change("flushes of 3 to 12 ms", wal.clone(), json!({}), &["fdatasync WAL / flush"])
        },
        Change { mount: "nobarrier", ..change("barriers to nobarrier", wal, json!({}), &["fdatasync WAL / flush"]) },
    ]
}

pub fn named_first() -> Result<()> {
    let mut wrong = Vec::new();
    for change in changes() {
        let folder = tempfile::tempdir()?;
        let settings = |value: &Value| Settings(value.as_object().cloned().unwrap_or_default());
        let base = settings(&change.base);
        let mut after = base.clone();
        change.after.as_object().into_iter().flatten().for_each(|(name, value)| after.set(name, value.clone()));
        let record = |name: &str, takes_us, mount: &str, settings: &Settings| {
            let disk = Disk { takes_us, mount: mount.into(), ..Disk::default() }.make(folder.path())?;
            recorded(folder.path(), name, &disk, settings, |_| Ok(())).map(|(archive, _)| archive)
        };
        let a = record("a", TAKES_US, "", &base)?;
        let b = record("b", change.takes_us, change.mount, &after)?;
        let done = diff(&a, &b)?;
        let first = done["contributions"].as_array().and_then(|all| all.first()).context("contributions[]")?;
        let text = |name: &str| first[name].as_str().unwrap_or("").to_string();
        let first = format!("{} / {}", text("phase"), text("reason"));
        println!("{}: {first} ({}: {})", change.name, done["verdict"], done["why"]);
        if !change.first.iter().any(|expected| first.starts_with(expected)) {
            wrong.push(format!("{}: {first}, expected {:?}", change.name, change.first));
        }
    }
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}
