//! SQLite's own counters of each execution, and the findings on them. The oracle is the program, which reads the same counters by itself,
//! or SQLite's query plan.

use anyhow::{Context, Result, ensure};
use fathom_tests::{ext4, fathom, record, rows, run};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Columns of the table, in the order of the program's counts.
const COLUMNS: [&str; 10] = [
    "fullscan_steps",
    "sorts",
    "autoindex_rows",
    "vm_steps",
    "reprepares",
    "runs",
    "cache_hits",
    "cache_misses",
    "cache_writes",
    "cache_spills",
];

/// Returns the counters of an archive's outermost operations, in the order in which these began.
fn counted(archive: &Path) -> Result<Vec<Option<BTreeMap<String, String>>>> {
    let mut operations = rows(archive, "operations")?;
    operations.retain(|row| row["parent"].is_empty());
    operations.sort_by_key(|row| row["start_ns"].parse::<u64>().unwrap_or(0));
    let counters = rows(archive, "statement_counters")?;
    let mut by_operation: BTreeMap<String, _> =
        counters.into_iter().map(|row| (row["operation"].clone(), row)).collect();
    Ok(operations.iter().map(|row| by_operation.remove(&row["id"])).collect())
}

/// Returns the fact that says whether the counters were read.
fn fact(archive: &Path) -> Result<String> {
    let all = rows(archive, "facts")?;
    let fact = all.iter().find(|row| row["name"] == "sqlite.counters").context("no fact sqlite.counters")?;
    Ok(fact["value"].trim_matches('"').to_string())
}

pub fn those_that_the_program_reads() -> Result<()> {
    let disk = ext4()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("t.fathom");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/counters.py");
    let mut command = Command::new(fathom());
    command.args(["record", "--quiet", "--probes", "inside", "-o"]).arg(&archive).args(["--", "python3"]);
    let output = run(command.arg(program).arg(disk.path().join("t.db")))?;
    let truth: Vec<(String, Vec<i64>)> = serde_json::from_slice(&output.stdout).context("the program's output")?;
    let counted = counted(&archive)?;
    // SQLite reads the schema by a statement of its own, in the first prepare.
    ensure!(counted.len() == truth.len() + 1, "{} operations of {}", counted.len(), truth.len());
    ensure!(fact(&archive)? == "read", "{}", fact(&archive)?);
    let mut known = 0;
    for (nth, ((sql, truth), ours)) in truth.iter().zip(&counted[1..]).enumerate() {
        let ours = ours.as_ref().with_context(|| format!("execution {nth} was not counted: {sql}"))?;
        for (column, (name, truth)) in COLUMNS.iter().zip(truth).enumerate() {
            let cell = ours[*name].as_str();
            // Those of the cache have to be found first.
            ensure!(!cell.is_empty() || column >= 6, "{name} of execution {nth} is empty: {sql}");
            ensure!(
                cell.is_empty() || cell == truth.to_string(),
                "{name} of execution {nth}: {cell}, not {truth}: {sql}"
            );
            known += usize::from(!cell.is_empty() && column == 9);
        }
    }
    ensure!(known + 16 >= truth.len(), "the spills of {known} executions of {} are known", truth.len());
    // The program does what the counters are for.
    for (column, name) in COLUMNS.iter().enumerate() {
        ensure!(truth.iter().any(|(_, counts)| counts[column] > 0), "{name} is 0 in the whole program");
    }
    Ok(())
}

pub fn of_static_program() -> Result<()> {
    let disk = ext4()?;
    let directory = tempfile::tempdir()?;
    let binary = fathom();
    let (binary, place) = (binary.to_string_lossy(), disk.path().to_string_lossy());
    let words = ["workload", "sqlite", "--op=demo", "--rows=200", "--scans=3", "--samples=none", "--dir", &place];
    let archive = record(directory.path(), &["--probes", "inside"], &[&[&*binary], &words[..]].concat())?;
    let counted = counted(&archive)?;
    let run = |row: &BTreeMap<String, String>| row["vm_steps"] != "0" && row["runs"] == "1";
    ensure!(counted.len() >= 200 && counted.iter().flatten().all(run), "{counted:?}");
    ensure!(counted.iter().all(Option::is_some) && fact(&archive)? == "read", "{}: {counted:?}", fact(&archive)?);
    Ok(())
}

pub fn none_by_uprobes() -> Result<()> {
    let disk = ext4()?;
    let directory = tempfile::tempdir()?;
    let database = disk.path().join("t.db").to_string_lossy().into_owned();
    let argv = ["sqlite3", &database, "CREATE TABLE t (a)"];
    let archive = record(directory.path(), &["--probes", "uprobe"], &argv)?;
    let (operations, counters) = (rows(&archive, "operations")?, rows(&archive, "statement_counters")?);
    ensure!(!operations.is_empty() && counters.is_empty(), "{operations:?} {counters:?}");
    ensure!(fact(&archive)?.starts_with("not read"), "{}", fact(&archive)?);
    Ok(())
}

/// Records a Python program whose argument is a prepared database; returns codes of findings by statement.
fn findings(prepare: &str, program: &str) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let disk = ext4()?;
    let directory = tempfile::tempdir()?;
    let database = disk.path().join("t.db").to_string_lossy().into_owned();
    let common = "import sqlite3, sys, random, os\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\nr = random.Random(7)\n";
    run(Command::new("python3").args(["-c", &format!("{common}{prepare}"), &database]))?;
    let program = format!("{common}{program}");
    let archive = record(directory.path(), &["--probes", "inside"], &["python3", "-c", &program, &database])?;
    let output = run(Command::new(fathom()).args(["explain", "--json"]).arg(&archive))?;
    let explained: Value = serde_json::from_slice(&output.stdout).context("explain --json")?;
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for finding in explained["findings"].as_array().context("findings[]")? {
        for part in finding["statements"].as_array().into_iter().flatten() {
            let codes = found.entry(part["statement"].as_str().unwrap_or_default().to_string()).or_default();
            codes.insert(finding["code"].as_str().unwrap_or_default().to_string());
        }
        // Whatever names counters names leaves, and saves no more than these hold.
        let held = finding["leaves"].as_array().map(|leaves| {
            let ns = |leaf: &Value| explained["account"]["leaves"][leaf.as_u64().unwrap_or(0) as usize]["ns"].as_u64();
            leaves.iter().filter_map(ns).sum::<u64>()
        });
        // The time between executions is in no leaf.
        if CODES.iter().any(|code| finding["code"] == *code && *code != "S10") {
            ensure!(finding["saving_ns"].as_u64() <= held && held > Some(0), "{finding}");
        }
    }
    Ok(found)
}

/// Findings that a program whose statements an index serves does not have.
const CODES: [&str; 7] = ["S04", "S05", "S06", "S07", "S08", "S09", "S10"];

const TABLES: &str = r#"
c.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, k INTEGER, v TEXT)")
c.execute("BEGIN")
c.executemany("INSERT INTO t VALUES (?, ?, ?)", ((i, r.randrange(150), os.urandom(150).hex()) for i in range(20000)))
c.execute("CREATE TABLE u AS SELECT id, k FROM t")
c.execute("CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES t ON DELETE CASCADE)")
c.execute("COMMIT")
"#;

pub fn named() -> Result<()> {
    // A scan of what is in SQLite's cache; a join by no index; a sort that does not fit; a cache that is full; a cascade without an index; a
    // schema that changes; a connection for each statement.
    let cases = [
        ("for i in range(30): c.execute('SELECT id FROM t WHERE k = ?', (i,)).fetchall()", "SELECT id", "S04"),
        (
            "for i in range(9): c.execute('SELECT count(*) FROM u a CROSS JOIN u b ON a.k = b.k WHERE a.id < 20').fetchall()",
            "SELECT count",
            "S05",
        ),
        (
            "c.execute('PRAGMA cache_size = 50')\nfor i in range(5): c.execute('SELECT v FROM t ORDER BY v').fetchall()",
            "SELECT v",
            "S06",
        ),
        (
            "c.execute('PRAGMA cache_size = 10')\nc.execute('BEGIN')\nc.execute(\"UPDATE t SET v = 'x' || v\")\nc.execute('COMMIT')",
            "UPDATE",
            "S07",
        ),
        (
            "c.execute('PRAGMA foreign_keys = 1')\nc.execute('INSERT INTO child (parent) SELECT id FROM t')\nc.execute('BEGIN')\nfor i in range(40): c.execute('DELETE FROM t WHERE id = ?', (i,))\nc.execute('COMMIT')",
            "DELETE",
            "S09",
        ),
        (
            "for i in range(60):\n  c.execute('CREATE TEMP TABLE x%d (a)' % i)\n  c.execute('SELECT v FROM t WHERE id = 9').fetchall()",
            "SELECT v",
            "S08",
        ),
        (
            "for i in range(30):\n  d = sqlite3.connect(sys.argv[1])\n  d.execute('SELECT v FROM t WHERE id = 9').fetchall()\n  d.close()",
            "SELECT v",
            "S10",
        ),
    ];
    for (program, statement, code) in cases {
        let found = findings(TABLES, program)?;
        let codes: Vec<_> =
            found.iter().filter(|(text, _)| text.starts_with(statement)).map(|(_, codes)| codes).collect();
        ensure!(codes.iter().any(|codes| codes.contains(code)), "no {code}: {found:?}");
        let others: Vec<_> = CODES.into_iter().filter(|other| *other != code).collect();
        ensure!(
            !codes.iter().any(|codes| others.iter().any(|other| codes.contains(*other))),
            "beside {code}: {found:?}"
        );
    }
    Ok(())
}

pub fn healthy() -> Result<()> {
    // Each statement is asserted to be served by an index or by rowid, by SQLite's own query plan.
    let program = r#"
c.execute("PRAGMA journal_mode = wal")
def served(sql, *values):
    plan = [row[3] for row in c.execute("EXPLAIN QUERY PLAN " + sql, values)]
    assert plan and all(not step.startswith("SCAN") and "AUTOMATIC" not in step and "B-TREE" not in step for step in plan), plan
    return sql
total = served("SELECT sum(length(v)) FROM t WHERE k = ?", 1)
for i in range(60): c.execute(total, (r.randrange(150),)).fetchall()
blob = served("SELECT v FROM t WHERE id = ?", 1)
for i in range(300): c.execute(blob, (i,)).fetchall()
ordered = served("SELECT id, v FROM t WHERE k = ? ORDER BY id", 1)
for i in range(60): c.execute(ordered, (i,)).fetchall()
joined = served("SELECT count(*) FROM t a JOIN t b ON b.id = a.id + 1 WHERE a.k = ?", 1)
for i in range(60): c.execute(joined, (i,)).fetchall()
c.execute("BEGIN")
update = served("UPDATE t SET v = 'y' WHERE k = ?", 1)
for i in range(40): c.execute(update, (i,))
c.execute("COMMIT")
remove = served("DELETE FROM t WHERE id = ?", 1)
c.execute("BEGIN")
for i in range(300): c.execute(remove, (i,))
c.execute("COMMIT")
"#;
    let found = findings(&format!("{TABLES}c.execute('CREATE INDEX ik ON t (k)')"), program)?;
    let wrong: Vec<_> = found.iter().filter(|(_, codes)| CODES.iter().any(|code| codes.contains(*code))).collect();
    ensure!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}
