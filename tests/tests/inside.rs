//! Probes inside the command's processes: the same operations as by uprobes, whatever the program does, and no leftovers.

use anyhow::{Context, Result, bail, ensure};
use fathom_tests::{
    Case, ext4, fathom, installed, lane, near, number, record, records_lost, root, run, shape, show, until,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let with = |program: &str| root().and_then(|()| x86()).and_then(|()| installed(program));
    let header = || {
        Path::new("/usr/include/sqlite3.h").exists().then_some(()).ok_or("libsqlite3-dev is not installed".to_string())
    };
    let cases: Vec<Case> = vec![
        ("inside_probes_match_uprobes_for_python", with("python3"), python),
        ("inside_probes_match_uprobes_for_sqlite3_shell", with("sqlite3"), shell),
        ("inside_probes_match_uprobes_for_16_threads", with("cc").and_then(|()| header()), threads),
        ("statements_are_counted_despite_exceptions_and_longjmp", with("c++").and_then(|()| header()), exits),
        ("children_ending_at_random_are_counted_either_way", with("cc").and_then(|()| header()), endings),
        ("child_without_preload_is_probed_by_uprobes", with("sqlite3"), scrubbed),
        ("killed_recorder_does_not_disturb_program", with("python3"), killed),
        ("unprobed_programs_say_why", with("sqlite3"), reasons),
    ];
    lane(cases)
}

fn x86() -> Result<(), String> {
    cfg!(target_arch = "x86_64").then_some(()).ok_or_else(|| "the object is for x86-64".into())
}

/// What two recordings must agree on: of each statement how often, with which results, rows, calls and writes.
fn facts(summary: &Value) -> Result<BTreeMap<String, Value>> {
    let all = summary["operations"].as_array().context("operations[]")?;
    let fact = |o: &Value| {
        let writes = o["per_operation"]["filesystem_writes"].as_object().cloned().unwrap_or_default();
        let writes: BTreeMap<String, Value> = writes.into_iter().map(|(file, w)| (file, w["count"].clone())).collect();
        json!({
            "count": o["count"], "unfinished": o["unfinished"], "results": o["results"], "rows": o["rows"],
            "calls": o["per_operation"]["calls"], "writes": writes,
            "own": [&o["own"]["syscalls"], &o["own"]["fsyncs"]],
        })
    };
    let named = |o: &Value| Some((o["statement"].as_str()?.to_owned(), fact(o)));
    all.iter().map(|o| named(o).context("a statement")).collect()
}

/// Records a command both ways and compares. Whatever a command leaves is removed by it when it begins.
fn same_operations(argv: &[&str], least: usize) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let mut both = Vec::new();
    for way in ["inside", "uprobe"] {
        let summary = show(&record(folder.path(), &["--probes", way, "--keep-sql"], argv)?)?;
        ensure!(records_lost(&summary)? == 0.0, "{way}: {}", summary["loss"]);
        let probes = summary["environment"]["sqlite.probes"]["value"].as_str().unwrap_or_default();
        ensure!(probes.starts_with(way), "asked for {way}: {probes}");
        both.push(summary);
    }
    let (inside, uprobe) = (facts(&both[0])?, facts(&both[1])?);
    ensure!(inside.len() >= least, "only {} statements: {:?}", inside.len(), inside.keys());
    for statement in inside.keys().chain(uprobe.keys()) {
        let (ours, theirs) = (inside.get(statement), uprobe.get(statement));
        ensure!(ours == theirs, "{statement}:\ninside {ours:?}\nuprobe {theirs:?}");
    }
    Ok(both.swap_remove(0))
}

const PYTHON: &str = r#"
import os, sqlite3, sys
for end in ("", "-wal", "-shm", "-journal"):
    if os.path.exists(sys.argv[1] + end): os.remove(sys.argv[1] + end)
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("pragma journal_mode=" + sys.argv[2]).fetchall()
db.execute("create table t (a integer primary key, b text)")
for i in range(60): db.execute("insert into t (b) values (?)", ("x%d" % i,))
for row in db.execute("select a from t where a < 20"):
    db.execute("update t set b = 'u' where a = ?", (row[0],))
left = db.execute("select a from t"); left.fetchone(); left.close()
try: db.execute("insert into t (a) values (1)")
except sqlite3.IntegrityError: pass
db.create_function("f", 1, lambda x: db.execute("select count(*) from t").fetchone()[0])
assert db.execute("select f(1)").fetchone() == (60,)
"#;

fn python() -> Result<()> {
    let disk = ext4()?;
    let database = disk.path().join("t.db");
    for mode in ["delete", "wal"] {
        let summary = same_operations(&["python3", "-c", PYTHON, &database.to_string_lossy(), mode], 9)?;
        let inserts = shape(&summary, "INSERT INTO T (B)")?;
        near("INSERTs", number(inserts, "/count")?, 60.0)?;
        near("updates between rows", number(shape(&summary, "UPDATE")?, "/count")?, 19.0)?;
        ensure!(number(inserts, "/per_operation/flushes")? > 0.0, "no flush is charged to an INSERT: {inserts}");
    }
    Ok(())
}

fn shell() -> Result<()> {
    let disk = ext4()?;
    let database = disk.path().join("t.db");
    let sql = "create table t(a, b); insert into t values (1, 2); begin; insert into t select a + 1, b from t; commit; \
        select count(*) from t; select * from t limit 1; explain query plan select * from t; vacuum;";
    // By way of a shell, whose children inherit the object.
    let script =
        format!("rm -f {0}; sqlite3 {0} '{sql}'; echo 'select max(a) from t;' | sqlite3 {0}", database.display());
    let summary = same_operations(&["sh", "-c", &script], 8)?;
    let rows = number(shape(&summary, "SELECT MAX")?, "/rows")?;
    near("rows", rows, 1.0)
}

fn compile(compiler: &str, source: &str, folder: &Path) -> Result<PathBuf> {
    let program = folder.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(source);
    run(Command::new(compiler).arg("-O1").arg(source).arg("-o").arg(&program).args(["-lsqlite3", "-lpthread"]))?;
    Ok(program)
}

fn threads() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = compile("cc", "sqlite_threads.c", folder.path())?;
    let summary = same_operations(&[&program.to_string_lossy(), "40"], 5)?;
    near("INSERTs", number(shape(&summary, "INSERT")?, "/count")?, 66.0 * 40.0)?;
    let rows: u32 = (0..40).map(|round: u32| (round % 7 + 1).min(round + 1)).sum();
    near("rows", number(shape(&summary, "SELECT A FROM T")?, "/rows")?, f64::from(66 * rows))
}

/// Uprobes cannot be compared with: they end a program at the first exception.
fn exits() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = compile("c++", "sqlite_exits.cc", folder.path())?;
    let bare = Command::new(&program).output()?;
    for _ in 0..3 {
        let archive = folder.path().join("t.fathom");
        let mut command = Command::new(fathom());
        command
            .args(["record", "--quiet", "--keep-sql", "--probes", "inside", "-o"])
            .arg(&archive)
            .arg("--")
            .arg(&program);
        let traced = command.output()?;
        ensure!(traced.status.code() == Some(7), "{traced:?}");
        ensure!(traced.stdout == bare.stdout, "{} is not {}", traced.stdout.escape_ascii(), bare.stdout.escape_ascii());
        let summary = show(&archive)?;
        // A thread keeps eight executions that are open; those that a jump left, 22, give way to further ones, and are reported.
        let losses = summary["loss"]["intervals"].as_array().context("loss/intervals[]")?;
        let gave_way = losses.iter().filter(|loss| loss["source"] == "kernel table full");
        let gave_way: f64 = gave_way.filter_map(|loss| loss["events"].as_f64()).sum();
        ensure!(gave_way <= 22.0 && records_lost(&summary)? == gave_way, "{}", summary["loss"]);
        let counts = [
            ("UPDATE", 3000.0, 0.0, 0.0),
            ("SELECT JUMP()", 0.0, 12.0, 0.0),
            ("SELECT TOSS()", 0.0, 5.0, 0.0),
            ("SELECT DIE()", 0.0, 5.0, 0.0),
            ("SELECT COUNT(*) FROM T WHERE", 1.0, 0.0, 1.0),
            ("SELECT SPLIT()", 1.0, 0.0, 1.0),
            ("SELECT A, A FROM T", 1.0, 0.0, 1.0),
            ("INSERT INTO T VALUES (5), (6), (7)", 20.0, 0.0, 0.0),
            ("INSERT INTO T VALUES (9), (9)", 10.0, 0.0, 0.0),
            ("INSERT INTO T VALUES (3) RETURNING A", 800.0, 0.0, 800.0),
        ];
        for (statement, count, unfinished, rows) in counts {
            let found = shape(&summary, statement)?;
            near(&format!("{statement}: count"), number(found, "/count")?, count)?;
            near(&format!("{statement}: unfinished"), number(found, "/unfinished")?, unfinished)?;
            near(&format!("{statement}: rows"), number(found, "/rows")?, rows)?;
        }
    }
    Ok(())
}

/// What it prints says how many statements there were, and that each child ended as it was to.
fn endings() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = compile("cc", "sqlite_endings.c", folder.path())?;
    for (seed, way) in [("7", "inside"), ("7", "uprobe"), ("8", "inside"), ("8", "uprobe")] {
        let words = [seed, "400"];
        let bare = Command::new(&program).args(words).output()?;
        let archive = folder.path().join(format!("{way}{seed}.fathom"));
        let mut command = Command::new(fathom());
        command.args(["record", "--quiet", "--keep-sql", "--probes", way, "-o"]).arg(&archive).arg("--");
        let traced = run(command.arg(&program).args(words))?;
        let printed = String::from_utf8(traced.stdout)?;
        ensure!(printed.as_bytes() == bare.stdout, "{way}: {printed} is not {}", bare.stdout.escape_ascii());
        let numbers: Vec<f64> = printed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [counted, again, 0.0] = numbers[..] else { bail!("{way}, seed {seed}: {printed}") };
        let summary = show(&archive)?;
        // A machine that does other I/O meanwhile may miss runs of the block layer's probes.
        let losses = summary["loss"]["intervals"].as_array().context("loss/intervals[]")?;
        ensure!(losses.iter().all(|loss| loss["source"] == "probe not run"), "{way}, seed {seed}: {losses:?}");
        for (statement, count) in [("INSERT INTO T VALUES (5)", counted), ("INSERT INTO T VALUES (5), (6)", again)] {
            let all = summary["operations"].as_array().context("operations[]")?;
            let is_it = |o: &&Value| o["statement"].as_str().is_some_and(|s| s.eq_ignore_ascii_case(statement));
            let found = all.iter().find(is_it).with_context(|| format!("{way}: {statement}"))?;
            near(&format!("{way}, seed {seed}, {statement}: count"), number(found, "/count")?, count)?;
            near(&format!("{way}, seed {seed}, {statement}: unfinished"), number(found, "/unfinished")?, 0.0)?;
        }
    }
    Ok(())
}

/// A statement of some tenths of a second, so that the recorder meets a process before it has ended.
const LASTS: &str =
    "with recursive c (x) as (select 1 union all select x + 1 from c where x < 2000000) select count(*) from c";

fn scrubbed() -> Result<()> {
    let (folder, disk) = (tempfile::tempdir()?, ext4()?);
    let database = disk.path().join("t.db");
    let database = database.display();
    let script = format!(
        "sqlite3 {database} 'create table t(a); insert into t values (1)'; \
         for i in 1 2 3; do env -i {} {database} 'delete from t where a = 7; {LASTS}'; done; \
         sqlite3 {database} 'insert into t values (2)'",
        String::from_utf8(run(Command::new("which").arg("sqlite3"))?.stdout)?.trim()
    );
    let summary = show(&record(folder.path(), &["--probes", "inside"], &["sh", "-c", &script])?)?;
    near("INSERTs", number(shape(&summary, "INSERT")?, "/count")?, 2.0)?;
    near("DELETEs of processes without the object", number(shape(&summary, "DELETE")?, "/count")?, 3.0)?;
    let rows = summary["coverage"].as_array().context("coverage[]")?;
    // Of how many processes the coverage says this.
    let says = |what: &str| {
        let hows = rows.iter().filter_map(|row| row["how"].as_str()).filter(|how| how.contains(what));
        hows.map(|how| how.split_once(" process").and_then(|(n, _)| n.parse().ok()).unwrap_or(1)).sum::<u32>()
    };
    // A process that has ended before it is looked at shows no environment, and gets a reason that does not depend on it.
    let reasons = ["LD_PRELOAD was taken out of its environment", "it ended without loading the object"];
    ensure!(reasons.map(says).iter().sum::<u32>() == 3, "{rows:#?}");
    ensure!(says("by jumps in sqlite3_step") == 2, "{rows:#?}");
    Ok(())
}

/// Folders of recordings that are under way.
fn folders() -> Vec<String> {
    let names =
        fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("fathom-inside-")).collect()
}

const LONG: &str = r#"
import sqlite3, sys, os, time
db = sqlite3.connect(":memory:", isolation_level=None)
db.execute("create table t (a)")
open(sys.argv[1] + ".ready", "w").write(str(os.getpid()))
while not os.path.exists(sys.argv[1] + ".go"):
    db.execute("insert into t values (1)")
for i in range(300000): db.execute("select 1").fetchall()
open(sys.argv[1] + ".new", "w").write("whole")
os.rename(sys.argv[1] + ".new", sys.argv[1])
"#;

fn killed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("done");
    let mut recorder = Command::new(fathom())
        .args(["record", "--quiet", "--probes", "inside", "-o"])
        .arg(folder.path().join("t.fathom"))
        .args(["--", "python3", "-c", LONG])
        .arg(&file)
        .stdout(Stdio::null())
        .spawn()?;
    let own = format!("fathom-inside-{}-", recorder.id());
    until("the program to run", || Ok(folder.path().join("done.ready").exists()))?;
    ensure!(folders().iter().any(|name| name.starts_with(&own)), "it is not probed inside: {:?}", folders());
    recorder.kill()?;
    recorder.wait()?;
    // More records than its rings have room for.
    fs::write(folder.path().join("done.go"), "")?;
    until("the program to end by itself", || Ok(file.exists()))?;
    ensure!(fs::read_to_string(&file)? == "whole", "it did not end as it should");
    let pid = fs::read_to_string(folder.path().join("done.ready"))?;
    until("its process to be gone", || Ok(!Path::new(&format!("/proc/{pid}")).exists()))?;
    // The next recording clears up.
    record(folder.path(), &["--probes", "inside"], &["python3", "-c", "pass"])?;
    ensure!(!folders().iter().any(|name| name.starts_with(&own)), "left behind: {:?}", folders());
    Ok(())
}

fn reasons() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let probes = |options: &[&str], argv: &[&str]| -> Result<String> {
        let summary = show(&record(folder.path(), options, argv)?)?;
        Ok(summary["environment"]["sqlite.probes"]["value"].as_str().context("sqlite.probes")?.to_owned())
    };
    let sqlite = ["sqlite3", ":memory:", "select 1"];
    for (options, says) in [
        (&["--probes", "auto"][..], "inside"),
        (&["--probes", "uprobe"], "uprobes: --probes uprobe asks"),
        (&[], "uprobes: --probes uprobe asks"),
        (&["--probes", "auto", "--op", "libc.so.6:fsync"], "uprobes: statements are to be nested"),
        (&["--probes", "auto", "--all"], "uprobes: --all records"),
    ] {
        let fact = probes(options, &sqlite)?;
        ensure!(fact.starts_with(says), "{options:?}: {fact}");
    }
    let binary = fathom();
    let fact = probes(&["--probes", "auto"], &[binary.to_str().context("a path in UTF-8")?, "--version"])?;
    ensure!(fact == "uprobes: the command is linked statically" || fact.starts_with("inside"), "{fact}");
    let copy = folder.path().join("setuid");
    fs::copy("/usr/bin/sqlite3", &copy)?;
    run(Command::new("chmod").arg("4755").arg(&copy))?;
    let output = Command::new(fathom())
        .args(["record", "--probes", "inside", "-o"])
        .arg(folder.path().join("s.fathom"))
        .arg("--")
        .arg(&copy)
        .output()?;
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1) && message.contains("setuid"), "{output:?}");
    ensure!(!folder.path().join("s.fathom").exists(), "an archive was made");
    let own: Vec<String> = folders();
    let alive = |name: &String| name.split('-').nth(2).is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists());
    ensure!(own.iter().all(alive), "left behind: {own:?}");
    Ok(())
}
