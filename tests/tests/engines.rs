//! Other engines read every table of every kind of archive, and compute with its times.
//!
//! The tables are made for DuckDB, DataFusion, Spark and their like; what those make of a column's type cannot be seen from
//! here. Each reads all values and subtracts times, and Python's own arithmetic on the same values is the truth.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, ext4, fathom, installed, lane, record, root, run};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let with = |engine: &str| root().and_then(|()| installed("sqlite3")).and_then(|()| there(engine));
    let cases: Vec<Case> = vec![
        ("duckdb_reads_every_table_and_subtracts_times", with("duckdb"), || reads("duckdb")),
        ("long::datafusion_reads_every_table_and_subtracts_times", with("datafusion"), || reads("datafusion")),
        ("long::spark_reads_every_table_and_subtracts_times", with("pyspark").and_then(|()| installed("java")), || {
            reads("pyspark")
        }),
    ];
    lane(cases)
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn python() -> PathBuf {
    here("../target/engines/bin/python3")
}

fn there(engine: &str) -> Result<(), String> {
    let import = Command::new(python()).args(["-c", &format!("import {engine}")]).stderr(Stdio::null()).status();
    let found = import.is_ok_and(|status| status.success());
    found.then_some(()).ok_or_else(|| format!("{engine} is not installed; `scripts/engines {engine}` does it"))
}

/// A recording with every table that one has.
fn trace(folder: &Path) -> Result<PathBuf> {
    let disk = ext4()?;
    let database = disk.path().join("t.db");
    let sql = "create table t(i); insert into t values (1); insert into t values (2); select * from t;";
    record(folder, &[], &["sqlite3", &database.to_string_lossy(), sql])
}

fn bench(folder: &Path) -> Result<PathBuf> {
    std::fs::write(folder.join("fake.toml"), fathom_tests::bench::DESIGN)?;
    let words = ["bench", "run", "fake.toml", "--blocks=2", "--no-wait", "-o", "bench.fathom"];
    run(Command::new(fathom()).args(words).current_dir(folder))?;
    Ok(folder.join("bench.fathom"))
}

fn net(folder: &Path) -> Result<PathBuf> {
    let mut serving = Command::new(fathom())
        .args(["net", "serve", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut at = String::new();
    BufReader::new(serving.stdout.take().context("it has no stdout")?).read_line(&mut at)?;
    let archive = folder.join("net.fathom");
    let ran = run(Command::new(fathom()).args(["net", "run", at.trim(), "--duration", "0.3", "-o"]).arg(&archive));
    serving.kill()?;
    serving.wait()?;
    ran.map(|_| archive)
}

/// The rows of each table, as the archive's own index has them.
fn totals(tables: &Path) -> Result<BTreeMap<String, u64>> {
    let index: serde_json::Value = serde_json::from_slice(&std::fs::read(tables.join("index.json"))?)?;
    let rows = index["rows"].as_object().context("index.json has no rows")?;
    rows.iter().map(|(name, n)| Ok((name.clone(), n.as_u64().context("no number of rows")?))).collect()
}

fn reads(engine: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let archives = [trace(folder.path())?, bench(folder.path())?, net(folder.path())?];
    let mut expected: BTreeMap<PathBuf, BTreeMap<String, u64>> = BTreeMap::new();
    for archive in archives {
        let tables = archive.join("tables");
        expected.insert(tables.clone(), totals(&tables)?);
    }
    // What older versions wrote, as it is handed on today.
    for old in std::fs::read_dir(here("archives"))? {
        let old = old?.path();
        if !old.is_dir() {
            continue; // README.md
        }
        let exported = folder.path().join(old.file_name().context("an archive without a name")?);
        run(Command::new(fathom()).args(["export", "--parquet"]).arg(&old).arg("-o").arg(&exported))?;
        expected.insert(exported, totals(&old.join("tables"))?);
    }
    let output = run(Command::new(python()).arg(here("programs/engines.py")).arg(engine).args(expected.keys()))?;
    let mut read: BTreeMap<PathBuf, BTreeMap<String, u64>> = BTreeMap::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [tables, table, rows] = words[..] else { continue };
        read.entry(tables.into()).or_default().insert(table.into(), rows.parse()?);
    }
    ensure!(read == expected, "{engine} read {read:#?}, and there are {expected:#?}");
    Ok(())
}
