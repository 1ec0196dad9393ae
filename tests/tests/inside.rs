//! Probes inside the command's processes: the same operations as with uprobes, whatever the program does, and no
//! leftovers.

#[path = "inside/counters.rs"]
mod counters;
#[path = "inside/ends.rs"]
mod ends;
#[path = "inside/foreign.rs"]
mod foreign;
#[path = "inside/known.rs"]
mod known;
#[path = "inside/linked.rs"]
mod linked;
#[path = "inside/running.rs"]
mod running;
#[path = "inside/running_named.rs"]
mod running_named;
#[path = "inside/started.rs"]
mod started;

use anyhow::{Context, Result, bail, ensure};
use fathom_tests::{
    Case, assert_near, ext4, fathom, installed, number, record, records_lost, root, rows, run, run_suite, shape_of,
    show, wait_until,
};
use linked::{LINK_METHODS, link_program};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let with = |program: &str| root().and_then(|()| check_x86()).and_then(|()| installed(program));
    let header = || {
        Path::new("/usr/include/sqlite3.h").exists().then_some(()).ok_or("libsqlite3-dev is not installed".to_string())
    };
    let cases: Vec<Case> = vec![
        ("inside_probes_match_uprobes_for_python", with("python3"), || python("wal")),
        ("long::inside_probes_match_uprobes_in_delete_mode", with("python3"), || python("delete")),
        (
            "inside_probes_match_uprobes_for_sqlite3_shell",
            with("sqlite3"),
            inside_probes_match_uprobes_for_sqlite3_shell,
        ),
        (
            "inside_probes_match_uprobes_for_16_threads",
            with("cc").and_then(|()| header()),
            inside_probes_match_uprobes_for_16_threads,
        ),
        ("statements_are_counted_despite_exceptions_and_longjmp", with("c++").and_then(|()| header()), || {
            ends::exits(1)
        }),
        ("long::statements_are_counted_despite_exceptions_each_time", with("c++").and_then(|()| header()), || {
            ends::exits(5)
        }),
        ("named_functions_are_counted_however_they_end", with("c++"), ends::named_functions),
        ("chaos_ends_as_without_fathom", with("cc").and_then(|()| header()), ends::chaos_ends_as_without_fathom),
        ("long::chaos_ends_as_without_fathom", with("cc").and_then(|()| header()), ends::long_chaos),
        ("children_ending_at_random_are_counted_either_way", with("cc").and_then(|()| header()), || ends::endings("7")),
        ("long::children_ending_at_other_times_are_counted", with("cc").and_then(|()| header()), || ends::endings("8")),
        (
            "child_without_preload_is_probed_by_uprobes",
            with("sqlite3").and_then(|()| installed("busybox")),
            child_without_preload_is_probed_by_uprobes,
        ),
        (
            "sanitized_programs_end_as_without_fathom",
            with("cc").and_then(|()| check_static_sqlite()),
            foreign::sanitized_programs_end_as_without_fathom,
        ),
        (
            "programs_started_by_tools_end_as_without_fathom",
            with("sqlite3"),
            foreign::programs_started_by_tools_end_as_without_fathom,
        ),
        (
            "functions_of_reopened_libraries_are_counted",
            with("cc"),
            foreign::functions_of_reopened_libraries_are_counted,
        ),
        (
            "program_does_not_see_object_in_its_environment",
            with("python3"),
            program_does_not_see_object_in_its_environment,
        ),
        ("static_program_matches_uprobes", with("cc").and_then(|()| check_static_sqlite()), || {
            linked::programs(&LINK_METHODS[1..2])
        }),
        ("long::programs_linked_otherwise_match_uprobes", with("cc").and_then(|()| check_static_sqlite()), || {
            linked::programs(&[LINK_METHODS[0], LINK_METHODS[2]])
        }),
        (
            "started_programs_are_probed_before_first_statement",
            with("python3").and_then(|()| check_static_sqlite()),
            || started::each_way(1),
        ),
        ("long::started_programs_are_probed_each_time", with("python3").and_then(|()| check_static_sqlite()), || {
            started::each_way(15)
        }),
        (
            "programs_of_static_shell_are_probed_inside",
            with("busybox").and_then(|()| check_static_sqlite()),
            started::of_static_shell,
        ),
        (
            "library_unknown_before_is_probed_when_loaded",
            with("python3").and_then(|()| check_static_sqlite()),
            started::library_unknown_before_is_probed_when_loaded,
        ),
        (
            "program_that_cannot_be_executed_fails_as_without_fathom",
            with("python3").and_then(|()| check_static_sqlite()),
            started::not_executed,
        ),
        ("static_musl_program_matches_uprobes", with("cc"), linked::to_musl),
        ("children_of_static_program_are_counted_either_way", with("cc").and_then(|()| check_static_sqlite()), || {
            linked::endings(&LINK_METHODS[1..2])
        }),
        (
            "long::children_of_static_pie_are_counted_either_way",
            with("cc").and_then(|()| check_static_sqlite()),
            || linked::endings(&LINK_METHODS[2..]),
        ),
        (
            "filtered_and_reloading_programs_survive",
            with("cc").and_then(|()| check_static_sqlite()),
            filtered_and_reloading_programs_survive,
        ),
        ("program_in_other_root_is_probed_by_uprobes", with("cc").and_then(|()| header()), other_root),
        ("jumps_are_gone_after_recording", with("python3"), jumps_are_gone_after_recording),
        ("killed_recorder_does_not_disturb_program", with("python3"), killed_recorder_does_not_disturb_program),
        ("counters_are_those_that_the_program_reads", with("python3"), counters::those_that_the_program_reads),
        ("counters_of_static_program_are_read", with("cc"), counters::of_static_program),
        ("counters_are_not_read_by_uprobes", with("sqlite3"), counters::none_by_uprobes),
        ("slow_statements_are_named_by_their_counters", with("python3"), counters::named),
        ("statements_served_by_an_index_have_no_scan", with("python3"), counters::healthy),
        ("omitted_probe_is_reported", with("sqlite3"), left_out),
        ("unprobed_programs_say_why", with("sqlite3"), unprobed_programs_say_why),
        ("calls_of_the_object_are_left_out_and_its_cost_is_reported", with("python3"), own_part),
        ("running_python_matches_uprobes", with("python3"), running::running_python_matches_uprobes),
        ("running_sqlite3_shell_matches_uprobes", with("sqlite3"), running::running_sqlite3_shell_matches_uprobes),
        (
            "running_program_that_reopens_sqlite_matches_uprobes",
            with("python3"),
            running::running_program_that_reopens_sqlite_matches_uprobes,
        ),
        ("running_threads_match_uprobes", with("cc").and_then(|()| header()), running::running_threads_match_uprobes),
        ("busy_process_is_attached_to_and_left", with("cc").and_then(|()| header()), || running::busy(3, "1")),
        ("long::busy_process_is_attached_to_many_times", with("cc").and_then(|()| header()), || running::busy(40, "4")),
        (
            "running_process_leaves_statements_by_exceptions",
            with("c++").and_then(|()| header()),
            running::running_process_leaves_statements_by_exceptions,
        ),
        ("recorder_killed_while_attaching_harms_nobody", with("cc").and_then(|()| header()), || {
            running::killed(6, "1")
        }),
        ("long::recorder_killed_many_times_harms_nobody", with("cc").and_then(|()| header()), || {
            running::killed(120, "4")
        }),
        (
            "running_programs_left_to_uprobes_say_why",
            with("python3").and_then(|()| check_static_sqlite()),
            running::running_programs_left_to_uprobes_say_why,
        ),
        (
            "running_process_is_recorded_among_others",
            with("python3").and_then(|()| header()),
            running::running_process_is_recorded_among_others,
        ),
        (
            "functions_of_running_process_match_uprobes",
            with("c++"),
            running_named::functions_of_running_process_match_uprobes,
        ),
        (
            "functions_left_otherwise_are_counted_in_running_process",
            with("c++"),
            running_named::functions_left_otherwise_are_counted_in_running_process,
        ),
        ("calls_under_way_end_well_without_object", with("c++"), running_named::under_way),
        ("functions_of_busy_process_are_counted_each_time", with("c++"), || running_named::busy(4)),
        ("long::functions_of_busy_process_are_counted_many_times", with("c++"), || running_named::busy(60)),
        ("forking_process_with_timer_is_attached_to", with("cc").and_then(|()| header()), || running_named::forking(2)),
        ("long::forking_process_with_timer_is_attached_to_many_times", with("cc").and_then(|()| header()), || {
            running_named::forking(40)
        }),
        ("functions_left_to_uprobes_say_why", with("c++"), running_named::functions_left_to_uprobes_say_why),
        (
            "filter_installed_meanwhile_does_not_kill",
            with("python3"),
            running_named::filter_installed_meanwhile_does_not_kill,
        ),
        ("long::php_matches_uprobes", with("php").and_then(|()| php_has_sqlite()), known::php_matches_uprobes),
        ("long::svn_matches_uprobes", with("svn"), known::svn_matches_uprobes),
        (
            "long::go_program_matches_uprobes",
            root().and_then(|()| check_built(known::GO_PROGRAM_PATH)),
            known::go_program_matches_uprobes,
        ),
        (
            "long::jvm_matches_uprobes",
            with("javac").and_then(|()| check_built(known::JDBC_JAR_PATH)),
            known::jvm_matches_uprobes,
        ),
        ("long::musl_program_in_chroot_matches_uprobes", with("chroot"), known::musl_in_chroot),
        ("long::browser_matches_its_own_log", with("firefox-esr"), known::browser_matches_its_own_log),
    ];
    run_suite(cases)
}

/// SQLite linked statically into programs.
fn check_static_sqlite() -> Result<(), String> {
    let there = Path::new("/usr/lib/x86_64-linux-gnu/libsqlite3.a").exists();
    there.then_some(()).ok_or_else(|| "libsqlite3-dev is not installed".into())
}

/// A program that set-up builds or fetches, if it can.
fn check_built(path: &str) -> Result<(), String> {
    Path::new(path).exists().then_some(()).ok_or_else(|| format!("set-up could not bring {path}"))
}

fn php_has_sqlite() -> Result<(), String> {
    let modules = Command::new("php").arg("-m").output().map_err(|e| e.to_string())?;
    let has = |name: &str| String::from_utf8_lossy(&modules.stdout).lines().any(|line| line == name);
    (has("sqlite3") && has("pdo_sqlite")).then_some(()).ok_or_else(|| "php-sqlite3 is not installed".into())
}

fn check_x86() -> Result<(), String> {
    cfg!(target_arch = "x86_64").then_some(()).ok_or_else(|| "the object is for x86-64".into())
}

/// The facts on which two recordings must agree: for each statement its count, results, rows, calls and writes. A read is an
/// operation only if it waited for the device, so only the first of two runs may have it.
fn statement_facts(summary: &Value) -> Result<BTreeMap<String, Value>> {
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
    all.iter().filter(|o| o["kind"] != "call").map(|o| named(o).context("a statement")).collect()
}

/// Records a command both ways and compares. The command removes its own leftovers when it begins.
fn same_operations(argv: &[&str], least: usize) -> Result<Value> {
    Ok(same_operations_after(|| Ok(()), argv, least)?.0)
}

/// Links that do not depend on timers and other processes: between statements, their calls, and the calls' work in files. Those of the
/// block layer and of the file system's journal depend on which commit a call fell into, and a call is an operation without a statement if
/// it was slow.
fn own_links(archive: &Path) -> Result<BTreeMap<[String; 6], usize>> {
    let spans: BTreeMap<String, BTreeMap<String, String>> =
        rows(archive, "spans")?.into_iter().filter_map(|mut row| Some((row.remove("id")?, row))).collect();
    let statements: BTreeSet<&String> =
        spans.values().filter(|span| span["kind"] == "step").map(|span| &span["operation"]).collect();
    let decided = |span: &BTreeMap<String, String>| {
        let of_statement = span.get("operation").is_some_and(|id| !id.is_empty() && statements.contains(id));
        of_statement
            && matches!(span["layer"].as_str(), "Database" | "Syscall" | "FileSystem")
            && span["kind"] != "commit"
    };
    let mut counts = BTreeMap::new();
    for link in rows(archive, "links")? {
        let (Some(parent), Some(child)) = (spans.get(&link["parent"]), spans.get(&link["child"])) else { continue };
        if decided(parent) && decided(child) {
            let [a, b, c, d] = [&parent["layer"], &parent["kind"], &child["layer"], &child["kind"]];
            let what = [a, b, c, d, &link["relation"], &link["confidence"]].map(ToOwned::to_owned);
            *counts.entry(what).or_default() += 1;
        }
    }
    Ok(counts)
}

/// How many calls were recorded, by name: in operations and outside. A call without a record of its own is known only if it waited.
fn call_counts(archive: &Path) -> Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    let recorded = |span: &BTreeMap<String, String>| span["layer"] == "Syscall" && span["kind"] != "system call";
    for mut span in rows(archive, "spans")?.into_iter().filter(recorded) {
        *counts.entry(span.remove("kind").unwrap_or_default()).or_default() += 1;
    }
    Ok(counts)
}

/// As above, with a preparation for each run; also returns the command's output, which must be the same each time.
fn same_operations_after(before: impl Fn() -> Result<()>, argv: &[&str], least: usize) -> Result<(Value, String)> {
    let directory = tempfile::tempdir()?;
    let (mut both, mut printed, mut links) = (Vec::new(), Vec::new(), Vec::new());
    for way in ["inside", "uprobe"] {
        before()?;
        let archive = directory.path().join(format!("{way}.fathom"));
        let mut command = Command::new(fathom());
        command.args(["record", "--quiet", "--probes", way, "--keep-sql", "-o"]).arg(&archive).arg("--").args(argv);
        printed.push(String::from_utf8(run(&mut command)?.stdout)?);
        let summary = show(&archive)?;
        ensure!(records_lost(&summary)? == 0.0, "{way}: {}", summary["loss"]);
        let probes = summary["environment"]["sqlite.probes"]["value"].as_str().unwrap_or_default();
        ensure!(probes.starts_with(way), "asked for {way}: {probes}");
        both.push(summary);
        links.push(own_links(&archive)?);
    }
    ensure!(printed[0] == printed[1], "it printed {}, then {}", printed[0], printed[1]);
    ensure!(links[0] == links[1], "links:\ninside {:?}\nuprobe {:?}", links[0], links[1]);
    same_statements(&both, least)?;
    Ok((both.swap_remove(0), printed.swap_remove(0)))
}

/// Checks that the statements of both recordings, the first with probes inside, have the same facts, and are at least
/// `least`.
fn same_statements(both: &[Value], least: usize) -> Result<()> {
    let [inside, uprobe] = both else { bail!("{} recordings", both.len()) };
    let (inside, uprobe) = (statement_facts(inside)?, statement_facts(uprobe)?);
    ensure!(inside.len() >= least, "only {} statements: {:?}", inside.len(), inside.keys());
    for statement in inside.keys().chain(uprobe.keys()) {
        let (ours, theirs) = (inside.get(statement), uprobe.get(statement));
        ensure!(ours == theirs, "{statement}:\ninside {ours:?}\nuprobe {theirs:?}");
    }
    Ok(())
}

const PYTHON_PROGRAM: &str = r#"
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
# Uprobes see the end of what was left when the next statement steps; this one is prepared already, so that no prepare lies between.
db.execute("select a from t where a < 20").fetchall()
try: db.execute("insert into t (a) values (1)")
except sqlite3.IntegrityError: pass
db.create_function("f", 1, lambda x: db.execute("select count(*) from t").fetchone()[0])
assert db.execute("select f(1)").fetchone() == (60,)
"#;

fn python(mode: &str) -> Result<()> {
    let disk = ext4()?;
    let database = disk.path().join("t.db");
    let summary = same_operations(&["python3", "-c", PYTHON_PROGRAM, &database.to_string_lossy(), mode], 9)?;
    let inserts = shape_of(&summary, "INSERT INTO T (B)")?;
    assert_near("INSERTs", number(inserts, "/count")?, 60.0)?;
    assert_near("updates between rows", number(shape_of(&summary, "UPDATE")?, "/count")?, 19.0)?;
    ensure!(number(inserts, "/per_operation/flushes")? > 0.0, "no flush is charged to an INSERT: {inserts}");
    hooked_by_name(&summary, "libsqlite3.so", "1 process")
}

fn inside_probes_match_uprobes_for_sqlite3_shell() -> Result<()> {
    let disk = ext4()?;
    let database = disk.path().join("t.db");
    let sql = "create table t(a, b); insert into t values (1, 2); begin; insert into t select a + 1, b from t; commit; \
        select count(*) from t; select * from t limit 1; explain query plan select * from t; vacuum;";
    // Through a shell, whose children inherit the object.
    let script =
        format!("rm -f {0}; sqlite3 {0} '{sql}'; echo 'select max(a) from t;' | sqlite3 {0}", database.display());
    let summary = same_operations(&["sh", "-c", &script], 8)?;
    let rows = number(shape_of(&summary, "SELECT MAX")?, "/rows")?;
    assert_near("rows", rows, 1.0)?;
    hooked_by_name(&summary, "libsqlite3.so", "2 processes")
}

/// The object opens, reads and patches in the program's process: none of that is attributed to the program. The recording's own share of a
/// statement's time is reported, from measurements in the program's process.
fn own_part() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let mut both = Vec::new();
    for way in ["inside", "uprobe"] {
        let database = disk.path().join(way);
        let argv = ["python3", "-c", PYTHON_PROGRAM, &database.to_string_lossy(), "wal"];
        let archive = record(directory.path(), &["--probes", way, "--keep-sql"], &argv)?;
        let summary = show(&archive)?;
        both.push(call_counts(&archive)?);
        let price = |what: &str| summary["environment"][format!("tracer.price.{what}")]["value"].as_str();
        let price = |what: &str| price(what).and_then(|ns| ns.parse::<f64>().ok());
        ensure!(price("step").is_some_and(|ns| ns > 0.0), "{way}: {}", summary["environment"]["tracer.price.step"]);
        ensure!(price("statement").is_some() == (way == "inside"), "{way}: {:?}", price("statement"));
        let insert = shape_of(&summary, "INSERT INTO T (B)")?;
        let [own, latency] = ["/tracer/ns", "/latency_ns/sum"].map(|path| number(insert, path));
        let (own, latency) = (own?, latency?);
        let all: f64 = price("step").unwrap_or_default() + price("statement").unwrap_or_default();
        ensure!(own > 0.0 && own < latency, "{way}: {own} of {latency} ns");
        // 60 executions of a step each, half of which is inside; a system call adds a cost of its own.
        ensure!(own > 60.0 * all / 2.0 - 60.0, "{way}: {own} ns, at {all} each");
    }
    let (uprobe, inside) = (both.remove(1), both.remove(0));
    let more = |call: &str| inside.get(call).copied().unwrap_or(0).wrapping_sub(uprobe.get(call).copied().unwrap_or(0));
    let changed: Vec<&String> = inside.keys().chain(uprobe.keys()).filter(|call| more(call) != 0).collect();
    // The program's loader opens the object's file and reads its first bytes, once per process.
    ensure!(changed.iter().all(|call| matches!(call.as_str(), "open" | "read")), "{inside:?} is not {uprobe:?}");
    ensure!(more("open") == more("read") && more("open") > 0, "{inside:?} is not {uprobe:?}");
    Ok(())
}

fn compile(compiler: &str, source: &str, directory: &Path) -> Result<PathBuf> {
    let program = directory.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(source);
    run(Command::new(compiler).arg("-O1").arg(source).arg("-o").arg(&program).args(["-lsqlite3", "-lpthread"]))?;
    Ok(program)
}

/// Checks that the coverage names a library as probed inside, in any process.
fn assert_hooked(summary: &Value, library: &Path) -> Result<()> {
    hooked_in(summary, library, "process")
}

/// As above, in this many processes.
fn hooked_in(summary: &Value, library: &Path, processes: &str) -> Result<()> {
    let rows = summary["coverage"].as_array().context("coverage[]")?;
    let wanted = format!("{} inside", library.display());
    let row = rows.iter().find(|row| row["probe"] == wanted.as_str());
    let how = row.with_context(|| format!("{wanted}: {rows:#?}"))?["how"].as_str().unwrap_or_default();
    let others = || rows.iter().filter(|row| row["probe"].as_str().is_some_and(|p| wanted.starts_with(p)));
    ensure!(how.contains(processes), "{wanted}: {how}; beside it {:#?}", others().collect::<Vec<_>>());
    Ok(())
}

/// Checks that a library, given by a part of its path, was probed inside in this many processes.
fn hooked_by_name(summary: &Value, part: &str, processes: &str) -> Result<()> {
    let rows = summary["coverage"].as_array().context("coverage[]")?;
    let is_it =
        |row: &&Value| row["probe"].as_str().is_some_and(|probe| probe.contains(part) && probe.ends_with(" inside"));
    let how =
        rows.iter().find(is_it).with_context(|| format!("{part}: {rows:#?}"))?["how"].as_str().unwrap_or_default();
    ensure!(how.starts_with(&format!("{processes}, by jumps in")), "{part}: {how}");
    Ok(())
}

fn filtered_and_reloading_programs_survive() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let shared = directory.path().join("shared");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/sqlite_safety.c");
    run(Command::new("cc").arg("-O1").arg(source).arg("-o").arg(&shared).arg("-ldl"))?;
    let linked = directory.path().join("linked");
    link_program("sqlite_safety.c", LINK_METHODS[1].1, &linked)?;
    for (program, what, statement, count) in [
        (&shared, "filter", "INSERT", 20_000.0),
        (&linked, "filter", "INSERT", 20_000.0),
        (&shared, "deepbind", "SELECT 1", 750.0),
        (&shared, "reload", "SELECT 1", 750.0),
    ] {
        let archive =
            record(directory.path(), &["--probes", "inside", "--keep-sql"], &[&program.to_string_lossy(), what])?;
        let summary = show(&archive)?;
        assert_near(&format!("{what}: {statement}"), number(shape_of(&summary, statement)?, "/count")?, count)?;
        let way = summary["environment"]["sqlite.probes"]["value"].as_str().unwrap_or_default();
        ensure!(way == "inside", "{what}: {way}");
    }
    Ok(())
}

/// As in a container: the object does not exist there.
fn other_root() -> Result<()> {
    let (directory, root) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let own = compile("cc", "sqlite_threads.c", directory.path())?;
    let needed = run(Command::new("ldd").arg(&own))?;
    let text = String::from_utf8(needed.stdout)?;
    for file in text.split_whitespace().filter(|word| word.starts_with('/')).chain([&*own.to_string_lossy()]) {
        let copy = root.path().join(file.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().context("a directory")?)?;
        // The same file, whose uprobes exist from the start: one that is found later loses its first statements.
        fs::hard_link(fs::canonicalize(file)?, &copy).or_else(|_| fs::copy(file, &copy).map(drop))?;
    }
    let root = root.path().to_string_lossy().into_owned();
    let program = own.to_string_lossy().into_owned();
    let archive = directory.path().join("r.fathom");
    let mut command = Command::new(fathom());
    command.args(["record", "--quiet", "--keep-sql", "--probes", "inside", "-o"]).arg(&archive);
    let output = run(command.args(["--", "chroot", &root, &program, "40"]))?;
    ensure!(output.stderr.is_empty(), "the loader complains: {}", output.stderr.escape_ascii());
    let summary = show(&archive)?;
    assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 66.0 * 40.0)
}

/// All ways in which a program can inspect its environment.
const ENVIRONMENT_PROGRAM: &str = "
env; printenv LD_PRELOAD; tr '\\0' '\\n' < /proc/self/environ
env -i sh -c env
sh -c 'python3 -c \"import os, subprocess; print(os.environ); subprocess.run([\\\"env\\\"], env={})\"'
LD_PRELOAD=libm.so.6 sh -c 'echo theirs $LD_PRELOAD'
LD_PRELOAD=libm.so.6 sqlite3 :memory: 'select 1'; env -i sqlite3 :memory: 'select 1'
python3 -c 'import os; os.posix_spawn(\"/bin/sh\", [\"sh\", \"-c\", \"sqlite3 :memory: \\\"select 1\\\"\"], os.environ); os.wait()'
";

fn program_does_not_see_object_in_its_environment() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let script = directory.path().join("script");
    fs::write(&script, ENVIRONMENT_PROGRAM)?;
    let archive = directory.path().join("e.fathom");
    let mut command = Command::new(fathom());
    command.args(["record", "--quiet", "--probes", "inside", "-o"]).arg(&archive).arg("--").arg("sh").arg(&script);
    let printed = String::from_utf8(run(&mut command)?.stdout)?;
    ensure!(!printed.contains("fathom-inside"), "the program sees the object: {printed}");
    ensure!(printed.contains("theirs libm.so.6"), "{printed}");
    let summary = show(&archive)?;
    // Each of them got the object again.
    assert_near("SELECTs", number(shape_of(&summary, "SELECT")?, "/count")?, 3.0)?;
    let rows = summary["coverage"].as_array().context("coverage[]")?;
    let says = |what: &str| rows.iter().any(|row| row["how"].as_str().is_some_and(|how| how.contains(what)));
    ensure!(says("3 processes, by jumps in sqlite3_step"), "{rows:#?}");
    Ok(())
}

/// Runs until its end is requested, and prints the address of its SQLite.
const OUTLIVING_PROGRAM: &str = r#"
import sqlite3, sys, os, time
db = sqlite3.connect(":memory:", isolation_level=None)
where = next(line for line in open("/proc/self/maps") if "libsqlite3" in line)
open(sys.argv[1] + ".new", "w").write("%d %s" % (os.getpid(), where))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while not os.path.exists(sys.argv[2]):
    db.execute("select 1").fetchall()
    time.sleep(0.001)
"#;

fn jumps_are_gone_after_recording() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (ready, go) = (directory.path().join("ready"), directory.path().join("go"));
    // The recording ends with its command, which leaves the other process behind.
    let script = format!(
        "python3 -c '{OUTLIVING_PROGRAM}' {} {} > /dev/null 2>&1 & while ! test -e {0}; do :; done",
        ready.display(),
        go.display()
    );
    let summary = show(&record(directory.path(), &["--probes", "inside"], &["sh", "-c", &script])?)?;
    let about = fs::read_to_string(&ready)?;
    let mut words = about.split_whitespace();
    let pid: u32 = words.next().context("a number")?.parse()?;
    let start = u64::from_str_radix(words.next().and_then(|range| range.split('-').next()).context("a range")?, 16)?;
    let library = words.next_back().context("a path")?;
    let whole = fs::read(library)?;
    let memory = fs::File::open(format!("/proc/{pid}/mem"))?;
    let names = run(Command::new("nm").args(["-D", library]))?;
    let names = String::from_utf8(names.stdout)?;
    let place = |name: &str| {
        let line = names.lines().find(|line| line.split(' ').nth(2).is_some_and(|n| n.split('@').next() == Some(name)));
        line.and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok())
    };
    for name in ["sqlite3_step", "sqlite3_reset", "sqlite3_prepare_v2"] {
        let at = place(name).with_context(|| name.to_string())?;
        wait_until(&format!("{name} to be as in its file"), || {
            let mut code = [0; 16];
            std::os::unix::fs::FileExt::read_exact_at(&memory, &mut code, start + at)?;
            Ok(code == whole[at as usize..at as usize + 16])
        })?;
    }
    fs::write(&go, "")?;
    wait_until("the program to end", || Ok(!Path::new(&format!("/proc/{pid}")).exists()))?;
    ensure!(
        summary["environment"]["sqlite.probes"]["value"] == "inside",
        "{}",
        summary["environment"]["sqlite.probes"]
    );
    Ok(())
}

fn inside_probes_match_uprobes_for_16_threads() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = compile("cc", "sqlite_threads.c", directory.path())?;
    let summary = same_operations(&[&program.to_string_lossy(), "40"], 5)?;
    assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 66.0 * 40.0)?;
    let rows: u32 = (0..40).map(|round: u32| (round % 7 + 1).min(round + 1)).sum();
    assert_near("rows", number(shape_of(&summary, "SELECT A FROM T")?, "/rows")?, f64::from(66 * rows))?;
    hooked_by_name(&summary, "libsqlite3.so", "1 process")
}

/// A probe that is left out is reported, and leaves no events behind.
fn left_out() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let database = disk.path().join("t.db");
    let words = ["sqlite3", &database.to_string_lossy(), "create table t(a); insert into t values (1)"];
    let mut bios = Vec::new();
    for options in
        [&["--probes", "inside"][..], &["--probes", "inside", "--without", "bio_queue", "--without", "rq_insert"]]
    {
        let _ = fs::remove_file(&database);
        let archive = record(directory.path(), options, &words)?;
        let summary = show(&archive)?;
        assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 1.0)?;
        let coverage = summary["coverage"].as_array().context("coverage[]")?;
        let left =
            coverage.iter().filter(|row| row["how"] == "left out (--without)").filter_map(|row| row["probe"].as_str());
        let (left, asked): (BTreeSet<_>, BTreeSet<_>) =
            (left.collect(), options.iter().skip(3).step_by(2).copied().collect());
        ensure!(left == asked, "{left:?} is not {asked:?}");
        bios.push(rows(&archive, "spans")?.iter().filter(|span| span["kind"] == "bio").count());
    }
    ensure!(bios[0] > 0 && bios[1] == 0, "{bios:?}");
    let refused = Command::new(fathom()).args(["record", "--without", "bio_queues", "--", "true"]).output()?;
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(2) && message.contains("rq_done, bio_done"), "{message}");
    Ok(())
}

/// A statement of some tenths of a second, so that the recorder finds a process before it has ended.
const LASTING_STATEMENT: &str =
    "with recursive c (x) as (select 1 union all select x + 1 from c where x < 2000000) select count(*) from c";

/// A statically linked program clears the environment of the programs that it starts.
fn child_without_preload_is_probed_by_uprobes() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let database = disk.path().join("t.db");
    let database = database.display();
    let script = format!(
        "sqlite3 {database} 'create table t(a); insert into t values (1)'; \
         for i in 1 2 3; do busybox env -i {} {database} 'delete from t where a = 7; {LASTING_STATEMENT}'; done; \
         sqlite3 {database} 'insert into t values (2)'",
        String::from_utf8(run(Command::new("which").arg("sqlite3"))?.stdout)?.trim()
    );
    let summary = show(&record(directory.path(), &["--probes", "inside"], &["sh", "-c", &script])?)?;
    assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 2.0)?;
    assert_near("DELETEs of processes without the object", number(shape_of(&summary, "DELETE")?, "/count")?, 3.0)?;
    let rows = summary["coverage"].as_array().context("coverage[]")?;
    // The number of processes for which the coverage reports this.
    let says = |what: &str| {
        let hows = rows.iter().filter_map(|row| row["how"].as_str()).filter(|how| how.contains(what));
        hows.map(|how| how.split_once(" process").and_then(|(n, _)| n.parse().ok()).unwrap_or(1)).sum::<u32>()
    };
    // A process that has ended before it is examined shows no environment, and gets a reason that does not depend on it.
    let reasons = ["LD_PRELOAD was taken out of its environment", "it ended without loading the object"];
    ensure!(reasons.map(says).iter().sum::<u32>() == 3, "{rows:#?}");
    ensure!(says("by jumps in sqlite3_step") == 2, "{rows:#?}");
    Ok(())
}

/// Directories of recordings in progress.
fn recording_directories() -> Vec<String> {
    let names =
        fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("fathom-inside-")).collect()
}

const LONG_PROGRAM: &str = r#"
import sqlite3, sys, os, time
db = sqlite3.connect(":memory:", isolation_level=None)
db.execute("create table t (a)")
open(sys.argv[1] + ".ready", "w").write(str(os.getpid()))
while not os.path.exists(sys.argv[1] + ".go"):
    db.execute("insert into t values (1)")
for i in range(300000): db.execute("select 1").fetchall()
import subprocess, ctypes
subprocess.check_call(["sh", "-c", "sqlite3 :memory: 'select 1'"])
ctypes.CDLL("libsqlite3.so.0")
open(sys.argv[1] + ".new", "w").write("whole")
os.rename(sys.argv[1] + ".new", sys.argv[1])
"#;

fn killed_recorder_does_not_disturb_program() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("done");
    let mut recorder = Command::new(fathom())
        .args(["record", "--quiet", "--probes", "inside", "-o"])
        .arg(directory.path().join("t.fathom"))
        .args(["--", "python3", "-c", LONG_PROGRAM])
        .arg(&file)
        .stdout(Stdio::null())
        .spawn()?;
    let own = format!("fathom-inside-{}-", recorder.id());
    wait_until("the program to run", || Ok(directory.path().join("done.ready").exists()))?;
    ensure!(
        recording_directories().iter().any(|name| name.starts_with(&own)),
        "it is not probed inside: {:?}",
        recording_directories()
    );
    recorder.kill()?;
    recorder.wait()?;
    // More records than its rings can hold.
    fs::write(directory.path().join("done.go"), "")?;
    wait_until("the program to end by itself", || Ok(file.exists()))?;
    ensure!(fs::read_to_string(&file)? == "whole", "it did not end as it should");
    let pid = fs::read_to_string(directory.path().join("done.ready"))?;
    wait_until("its process to be gone", || Ok(!Path::new(&format!("/proc/{pid}")).exists()))?;
    // The next recording cleans up.
    record(directory.path(), &["--probes", "inside"], &["python3", "-c", "pass"])?;
    ensure!(
        !recording_directories().iter().any(|name| name.starts_with(&own)),
        "left behind: {:?}",
        recording_directories()
    );
    Ok(())
}

fn unprobed_programs_say_why() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let probes = |options: &[&str], argv: &[&str]| -> Result<String> {
        let summary = show(&record(directory.path(), options, argv)?)?;
        Ok(summary["environment"]["sqlite.probes"]["value"].as_str().context("sqlite.probes")?.to_owned())
    };
    let sqlite = ["sqlite3", ":memory:", "select 1"];
    for (options, says) in [
        (&[][..], "inside"),
        (&["--probes", "auto"], "inside"),
        (&["--probes", "uprobe"], "uprobes: uprobes were selected"),
        (&["--probes", "auto", "--op", "libc.so.6:fsync"], "inside"),
        (
            &["--probes", "auto", "--op", "libc.so.6:dlopen"],
            "uprobes: /lib/x86_64-linux-gnu/libc.so.6: dlopen: it looks at where",
        ),
        (&["--probes", "auto", "--all"], "uprobes: --all records"),
    ] {
        let fact = probes(options, &sqlite)?;
        ensure!(fact.starts_with(says), "{options:?}: {fact}");
    }
    let binary = fathom();
    let fact = probes(&["--probes", "auto"], &[binary.to_str().context("a path in UTF-8")?, "--version"])?;
    ensure!(fact == "inside", "{fact}");
    let fact = probes(&["--probes", "auto"], &["true"])?;
    ensure!(fact.starts_with("inside, but no process had a SQLite"), "{fact}");
    let copy = directory.path().join("setuid");
    fs::copy("/usr/bin/sqlite3", &copy)?;
    run(Command::new("chmod").arg("4755").arg(&copy))?;
    let output = Command::new(fathom())
        .args(["record", "--probes", "inside", "-o"])
        .arg(directory.path().join("s.fathom"))
        .arg("--")
        .arg(&copy)
        .output()?;
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1) && message.contains("setuid"), "{output:?}");
    ensure!(!directory.path().join("s.fathom").exists(), "an archive was made");
    let own: Vec<String> = recording_directories();
    let alive = |name: &String| name.split('-').nth(2).is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists());
    ensure!(own.iter().all(alive), "left behind: {own:?}");
    Ok(())
}
