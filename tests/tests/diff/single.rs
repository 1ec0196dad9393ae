//! Ten pairs of recordings that differ in exactly one thing, each on a disk with known service times: `diff` puts the change first.
//!
//! On a busy machine the worker of a loop disk waits for a CPU at each command, some ms at a load of 18, which the recording shows as the
//! device's time: 60 commits are off by some 400 ms in either direction. So the change that a pair is expected to show is either all that
//! its commits wait for, or takes seconds.

use super::diff_of;
use anyhow::{Context, Result, ensure};
use fathom_tests::truth::{Disk, Settings, run_recorded};
use serde_json::{Value, json};

/// A difference.
struct Change {
    name: &'static str,
    base: Value,
    after: Value,
    /// Service times of writes and flushes on both disks.
    takes_us: [(u64, u64); 2],
    mount: &'static str,
    /// Prefixes of what may come first, as `PHASE / REASON` of the first contribution.
    first: &'static [&'static str],
}

const TAKES_US: (u64, u64) = (300, 3000);
/// Flushes so slow that 60 of them exceed the effect of a busy machine on as many commits.
const SLOW_FLUSHES_US: (u64, u64) = (300, 40_000);
/// Calls that a rollback journal needs and others do not.
const JOURNAL_CALLS: &[&str] =
    &["fdatasync rollback journal", "fdatasync database", "fdatasync directory", "fdatasync WAL", "unlink rollback"];

fn all_changes() -> Vec<Change> {
    let change = |name, base, after, first| Change { name, base, after, takes_us: [TAKES_US; 2], mount: "", first };
    let inserts = |mode: &str, synchronous: &str| json!({"journal_mode": mode, "synchronous": synchronous, "rows": 60, "bytes": 100, "page_size": 4096});
    let with = |mut base: Value, name: &str, value: Value| {
        base[name] = value;
        base
    };
    let selects = json!({"journal_mode": "wal", "index": true, "table_rows": 4000, "bytes": 400, "selects": 60, "cache_size": 10, "rows": 0});
    let wal = inserts("wal", "full");
    // Rows so far apart that none is in the readahead for another.
    let apart = with(with(selects.clone(), "table_rows", json!(20_000)), "stride", json!(331));
    // 60 rows of 60,000 bytes are some 1,000 pages of 4 KiB: by default SQLite checkpoints at about the last one. That would be another
    // effect of nearly the same size, where only one thing is to differ.
    let unbounded = with(wal.clone(), "wal_autocheckpoint", json!(100_000));
    vec![
        change("journal_mode DELETE to WAL", inserts("delete", "full"), json!({"journal_mode": "wal"}), JOURNAL_CALLS),
        change(
            "DELETE: synchronous FULL to OFF",
            inserts("delete", "full"),
            json!({"synchronous": "off"}),
            JOURNAL_CALLS,
        ),
        change("WAL: synchronous FULL to NORMAL", wal.clone(), json!({"synchronous": "normal"}), &["fdatasync WAL"]),
        change(
            "checkpoint every 10 pages",
            with(inserts("wal", "normal"), "wal_autocheckpoint", json!(100_000)),
            json!({"wal_autocheckpoint": 10}),
            &["fdatasync database", "fdatasync WAL", "pwrite64 database"],
        ),
        change("rows of 100 to 60,000 bytes", unbounded, json!({"bytes": 60_000}), &["pwrite64 WAL", "fdatasync WAL"]),
        change("twenty INSERTs a transaction", wal.clone(), json!({"per_transaction": 20}), &["fdatasync WAL"]),
        change("index dropped", selects, json!({"index": false}), &["pread64 database", "outside system calls"]),
        change("page cache dropped", apart, json!({"cold": true}), &["pread64 database"]),
        Change {
            takes_us: [TAKES_US, SLOW_FLUSHES_US],
            ..change("flushes of 3 to 40 ms", wal.clone(), json!({}), &["fdatasync WAL / flush"])
        },
        Change {
            mount: "nobarrier",
            takes_us: [SLOW_FLUSHES_US; 2],
            ..change("barriers to nobarrier", wal, json!({}), &["fdatasync WAL / flush"])
        },
    ]
}

fn ms(difference: &Value) -> String {
    difference["delta_ns"].as_f64().map_or_else(String::new, |ns| format!("{:+.2}", ns / 1e6))
}

pub fn named_first() -> Result<()> {
    let mut wrong = Vec::new();
    for change in all_changes() {
        let directory = tempfile::tempdir()?;
        let settings = |value: &Value| Settings(value.as_object().cloned().unwrap_or_default());
        let base = settings(&change.base);
        let mut after = base.clone();
        change.after.as_object().into_iter().flatten().for_each(|(name, value)| after.set(name, value.clone()));
        let record = |name: &str, takes_us, mount: &str, settings: &Settings| {
            let disk = Disk { takes_us, mount: mount.into(), ..Disk::default() }.make(directory.path())?;
            run_recorded(directory.path(), name, &disk, settings, |_| Ok(())).map(|(archive, _)| archive)
        };
        let a = record("a", change.takes_us[0], "", &base)?;
        let b = record("b", change.takes_us[1], change.mount, &after)?;
        let done = diff_of(&a, &b)?;
        let all = done["contributions"].as_array().context("contributions[]")?;
        let text = |one: &Value, name: &str| one[name].as_str().unwrap_or("").to_string();
        let place = |one: &Value| format!("{} / {}", text(one, "phase"), text(one, "reason"));
        let first = all.first().map(place).context("a contribution")?;
        println!(
            "{}: {} by {} ms: {}",
            change.name,
            text(&done, "verdict"),
            ms(&done["latency_ns"]),
            text(&done, "why")
        );
        all.iter().take(4).for_each(|one| println!("  {}: {} ms", place(one), ms(one)));
        if !change.first.iter().any(|expected| first.starts_with(expected)) {
            wrong.push(format!("{}: {first}, expected {:?}", change.name, change.first));
        }
    }
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}
