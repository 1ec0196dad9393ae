//! Other engines read every table of every kind of archive, and compute with its times.
//!
//! The tables are made for DuckDB, DataFusion, Spark and similar engines; how those interpret a column's type cannot be
//! seen from here. Each reads all values and subtracts times, and Python's own arithmetic on the same values is the truth.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, ext4, fathom, installed, record, root, run, run_suite};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let with = |engine: &str| root().and_then(|()| installed("sqlite3")).and_then(|()| check_engine(engine));
    let with_sql = |engine: &str| sql_built().and_then(|()| check_engine(engine));
    let cases: Vec<Case> = vec![
        ("duckdb_reads_every_table_and_subtracts_times", with("duckdb"), || engine_reads_tables("duckdb")),
        ("long::shipped_questions_give_same_rows_on_duckdb", with_sql("duckdb"), || engine_answers_questions("duckdb")),
        (
            "long::shipped_questions_give_same_rows_on_spark",
            with_sql("pyspark").and_then(|()| installed("java")),
            || engine_answers_questions("pyspark"),
        ),
        ("long::shipped_questions_give_same_rows_on_sail", with_sql("pysail"), || engine_answers_questions("pysail")),
        ("long::shipped_questions_give_same_rows_on_ballista", sql_built().and_then(|()| ballista().map(drop)), || {
            engine_answers_questions("ballista")
        }),
        ("long::python_package_opens_archive_and_fleet", with_sql("pyarrow"), python_package),
        ("long::python_package_trusts_no_table", check_engine("pyarrow"), python_package_trusts_nothing),
        ("long::notebook_makes_comparison_of_paper", with_sql("pyarrow"), || run_notebook("plain")),
        (
            "long::notebook_runs_in_jupyter",
            with_sql("pyarrow").and_then(|()| ["nbclient", "ipykernel"].into_iter().try_for_each(check_engine)),
            || run_notebook("jupyter"),
        ),
        ("long::datafusion_reads_every_table_and_subtracts_times", with("datafusion"), || {
            engine_reads_tables("datafusion")
        }),
        ("long::spark_reads_every_table_and_subtracts_times", with("pyspark").and_then(|()| installed("java")), || {
            engine_reads_tables("pyspark")
        }),
    ];
    run_suite(cases)
}

fn sql_built() -> Result<(), String> {
    let built = fathom().with_file_name("fathom-sql").is_file();
    built.then_some(()).ok_or_else(|| "fathom-sql is not built; `make build-sql` does it".to_string())
}

/// The scheduler, executors and client of Ballista.
fn ballista() -> Result<PathBuf, String> {
    let built = crate_path("../target/tools/bin/ballista-engine");
    built.is_file().then_some(built).ok_or_else(|| "Ballista is not built; `scripts/ballista` does it".into())
}

fn crate_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn python() -> PathBuf {
    crate_path("../target/engines/bin/python3")
}

fn check_engine(engine: &str) -> Result<(), String> {
    let import = Command::new(python()).args(["-c", &format!("import {engine}")]).stderr(Stdio::null()).status();
    let found = import.is_ok_and(|status| status.success());
    found.then_some(()).ok_or_else(|| format!("{engine} is not installed; `scripts/engines {engine}` does it"))
}

/// A recording with every table that a recording has.
fn make_trace(directory: &Path) -> Result<PathBuf> {
    let disk = ext4()?;
    let database = disk.path().join("t.db");
    let sql = "create table t(i); insert into t values (1); insert into t values (2); select * from t;";
    record(directory, &[], &["sqlite3", &database.to_string_lossy(), sql])
}

fn make_benchmark(directory: &Path) -> Result<PathBuf> {
    std::fs::write(directory.join("fake.toml"), fathom_tests::bench::FAKE_DESIGN)?;
    let words = ["bench", "run", "fake.toml", "--blocks=2", "--no-wait", "-o", "bench.fathom"];
    run(Command::new(fathom()).args(words).current_dir(directory))?;
    Ok(directory.join("bench.fathom"))
}

fn make_net_run(directory: &Path) -> Result<PathBuf> {
    let mut serving = Command::new(fathom())
        .args(["net", "serve", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut at = String::new();
    BufReader::new(serving.stdout.take().context("it has no stdout")?).read_line(&mut at)?;
    let archive = directory.join("net.fathom");
    let ran = run(Command::new(fathom()).args(["net", "run", at.trim(), "--duration", "1", "-o"]).arg(&archive));
    serving.kill()?;
    serving.wait()?;
    ran.map(|_| archive)
}

/// The rows of each table, from the archive's own index.
fn indexed_rows(tables: &Path) -> Result<BTreeMap<String, u64>> {
    let index: Value = serde_json::from_slice(&std::fs::read(tables.join("index.json"))?)?;
    let rows = index["rows"].as_object().context("index.json has no rows")?;
    rows.iter().map(|(name, n)| Ok((name.clone(), n.as_u64().context("no number of rows")?))).collect()
}

fn engine_reads_tables(engine: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archives = [make_trace(directory.path())?, make_benchmark(directory.path())?, make_net_run(directory.path())?];
    let mut expected: BTreeMap<PathBuf, BTreeMap<String, u64>> = BTreeMap::new();
    for archive in archives {
        let tables = archive.join("tables");
        expected.insert(tables.clone(), indexed_rows(&tables)?);
    }
    // Tables of older versions, as they are exported today.
    for old in std::fs::read_dir(crate_path("archives"))? {
        let old = old?.path();
        if !old.is_dir() {
            continue; // README.md
        }
        let exported = directory.path().join(old.file_name().context("an archive without a name")?);
        run(Command::new(fathom()).args(["export", "--parquet"]).arg(&old).arg("-o").arg(&exported))?;
        expected.insert(exported, indexed_rows(&old.join("tables"))?);
    }
    let output = run(Command::new(python()).arg(crate_path("programs/engines.py")).arg(engine).args(expected.keys()))?;
    let mut read: BTreeMap<PathBuf, BTreeMap<String, u64>> = BTreeMap::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [tables, table, rows] = words[..] else { continue };
        read.entry(tables.into()).or_default().insert(table.into(), rows.parse()?);
    }
    ensure!(read == expected, "{engine} read {read:#?}, and there are {expected:#?}");
    Ok(())
}

/// A fleet with the samples of every version, and with recordings of four devices on nine days with different times.
fn make_fleet(directory: &Path) -> Result<PathBuf> {
    let place = directory.join("fleet");
    run(Command::new(fathom()).args(["fleet", "init"]).arg(&place))?;
    run(Command::new(fathom()).args(["fleet", "add"]).arg(&place).arg(crate_path("archives")))?;
    run(Command::new(fathom().with_file_name("fathom-sql"))
        .args(["generate", "--seed", "7", "--count", "120", "--devices", "4", "--days", "9"])
        .arg(directory.join("generated"))
        .args(["v3-linux-6.18-virtio", "v3-net", "v3-bench"].map(|name| crate_path("archives").join(name))))?;
    run(Command::new(fathom()).args(["fleet", "add"]).arg(&place).arg(directory.join("generated")))?;
    // A pattern over the directory sees each row once if no files wait to be removed.
    run(Command::new(fathom()).args(["fleet", "gc", "--grace", "0"]).arg(&place))?;
    Ok(place)
}

/// Each shipped question, unchanged, answered by another engine and by the embedded one.
fn engine_answers_questions(engine: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let place = make_fleet(directory.path())?;
    let mut files: Vec<PathBuf> = std::fs::read_dir(crate_path("../crates/fleet/questions"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    ensure!(files.len() == 20, "{files:?}");
    let mut ask = match engine {
        "ballista" => {
            let mut ask = Command::new(ballista().map_err(anyhow::Error::msg)?);
            ask.arg(&place).arg(crate_path("../python/fathom/tables.json"));
            ask
        }
        _ => {
            let mut ask = Command::new(python());
            ask.arg(crate_path("programs/questions.py")).arg(engine).arg(&place);
            ask
        }
    };
    let output = run(ask.args(&files))?;
    let (mut asked, mut answered) = (0, 0);
    for line in String::from_utf8(output.stdout)?.lines().filter(|line| line.starts_with('{')) {
        let theirs: Value = serde_json::from_str(line)?;
        if let Some(wrote) = theirs["executors"].as_array() {
            // Both executors wrote intermediate rows, or it was not a cluster.
            ensure!(wrote.len() == 2 && wrote.iter().all(|files| files.as_u64() > Some(0)), "{wrote:?}");
            continue;
        }
        asked += 1;
        let file = theirs["question"].as_str().context("a question has a file")?;
        let ours = run(Command::new(fathom()).args(["sql", "--format", "json", "--file", file]).arg(&place))?;
        let ours: Value = serde_json::from_slice(&ours.stdout)?;
        let names: Vec<&Value> =
            ours["columns"].as_array().context("columns")?.iter().map(|one| &one["name"]).collect();
        let columns: Vec<&Value> = theirs["columns"].as_array().context("columns")?.iter().collect();
        ensure!(names == columns, "{file}: columns {columns:?}, and ours {names:?}");
        let rows = theirs["rows"].as_array().context("rows")?;
        let own = ours["rows"].as_array().context("rows")?;
        ensure!(rows.len() == own.len(), "{file}: {} rows, and ours {}", rows.len(), own.len());
        for (row, mine) in rows.iter().zip(own) {
            for (at, name) in names.iter().enumerate() {
                let (value, ours) = (&row[at], &mine[name.as_str().unwrap_or_default()]);
                ensure!(is_same_value(value, ours), "{file}: {name} is {value}, and ours {ours}, in {row} and {mine}");
            }
        }
        answered += usize::from(!rows.is_empty());
    }
    ensure!(asked == 20, "{asked} questions were answered");
    // Only losses occur in none of these archives, and no kernel of theirs counted more.
    ensure!(answered >= 18, "{answered} questions had an answer");
    Ok(())
}

/// Sums of floating-point numbers depend on their order.
fn is_same_value(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(x), Some(y)) if a.is_f64() || b.is_f64() => (x - y).abs() <= 1e-9 * x.abs().max(y.abs()),
        _ => a == b,
    }
}

/// Two benchmarks as two devices: the notebook's numbers equal those of a shipped question, and of the archives' own
/// indexes.
fn run_notebook(how: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let place = directory.path().join("fleet");
    run(Command::new(fathom()).args(["fleet", "init"]).arg(&place))?;
    for (archive, device) in [("v3-bench", "linux"), ("v3-bench-slower", "android")] {
        let add = ["fleet", "add", "--device", device];
        run(Command::new(fathom()).args(add).arg(&place).arg(crate_path("archives").join(archive)))?;
    }
    let made = run(Command::new(python())
        .arg(crate_path("programs/notebook.py"))
        .arg(how)
        .arg(crate_path("../python/notebooks/paper-000.ipynb"))
        .env("PYTHONPATH", crate_path("../python"))
        .env("FATHOM_FLEET", &place)
        .env("FATHOM_DEVICES", "linux,android"))?;
    let made: Value = serde_json::from_slice(&made.stdout)?;
    let rows = made["comparison"].as_array().context("a comparison")?;
    let scores = run(Command::new(fathom()).args(["sql", "--format", "json", "--example", "18"]).arg(&place))?;
    let scores: Value = serde_json::from_slice(&scores.stdout)?;
    let scores = scores["rows"].as_array().context("scores")?;
    ensure!(rows.len() == 2 && scores.len() == 4, "{made} and {scores:?}");
    for row in rows {
        let of = |device: &str| {
            let found = scores.iter().find(|s| s["device"] == device && s["cell"] == row["cell"]);
            found.and_then(|score| score["processes"].as_u64())
        };
        ensure!(of("linux") == row["processes"][0].as_u64() && of("android") == row["processes"][1].as_u64(), "{row}");
        // Its script makes up numbers a little over N in one, and 10,000 more in the other.
        let n: f64 =
            row["cell"].as_str().and_then(|cell| cell.strip_prefix("duration=")?.parse().ok()).context("a cell")?;
        let (ratio, expected) = (row["ratio"].as_f64().context("a ratio")?, (n + 10_000.0) / n);
        let end = |at: usize| row["interval"][at].as_f64().unwrap_or(0.0);
        ensure!(
            (ratio / expected - 1.0).abs() < 0.01 && end(0) <= ratio && ratio <= end(1),
            "{row}, and {expected} is expected"
        );
    }
    ensure!(made["said"].as_str().is_some_and(|said| said.contains("linux beside android")), "{made}");
    Ok(())
}

fn python_package() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let place = make_fleet(directory.path())?;
    let read = run(Command::new(python())
        .arg(crate_path("programs/package.py"))
        .arg(crate_path("archives/v3-linux-6.18-virtio"))
        .arg(&place)
        .env("PYTHONPATH", crate_path("../python")))?;
    let read: Value = serde_json::from_slice(&read.stdout)?;
    let tables = crate_path("archives/v3-linux-6.18-virtio/tables");
    for (table, rows) in indexed_rows(&tables)? {
        ensure!(read["archive"][&table] == rows, "{table}: {} rows, and {rows} there", read["archive"][&table]);
    }
    ensure!(read["archive"]["samples"] == 0 && read["fact"] == "ext4", "{read}");
    for (table, rows) in read["fleet"].as_object().context("tables")? {
        let count = format!("SELECT count(*) AS n FROM {table}");
        let ours = run(Command::new(fathom()).args(["sql", "--format", "json"]).arg(&place).arg(&count))?;
        let ours: Value = serde_json::from_slice(&ours.stdout)?;
        ensure!(ours["rows"][0]["n"] == *rows, "{table}: {rows} rows, and {ours}");
    }
    ensure!(read["refused"].as_str().is_some_and(|why| why.contains("reindex")), "{read}");
    Ok(())
}

/// Rows of 100 MB and texts of 2 GB from files of a few KB, and tables that are not as declared.
fn python_package_trusts_nothing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let made = run(Command::new(python())
        .arg(crate_path("programs/package_trust.py"))
        .arg(directory.path())
        .env("PYTHONPATH", crate_path("../python")))?;
    let made: Value = serde_json::from_slice(&made.stdout)?;
    ensure!(made["good"] == "2 rows", "{made}");
    for (case, part) in [
        ("without a required column", "missing column id"),
        ("with empty cells", "empty cells"),
        ("of another type", "has the type"),
        ("with fewer rows than stated", "index.json says 3"),
        ("many rows", "it claims 5000000 rows"),
        ("long texts", "repeats texts"),
    ] {
        let said = made[case].as_str().unwrap_or_default();
        ensure!(said.starts_with("refused: ") && said.contains(part), "{case}: {made}");
    }
    let cut = made["cut log"].as_str().unwrap_or_default();
    ensure!(cut.starts_with("2 rows; ") && cut.contains("has 5 bytes"), "{made}");
    ensure!(made["grew"].as_u64().is_some_and(|kib| kib < 200 << 10), "{made}");
    Ok(())
}
