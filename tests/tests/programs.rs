//! Any program: a shell, a static binary, a process that is already running, one in a container, a JVM, any function.

use anyhow::{Context, Result, ensure};
use fathom_tests::{
    Case, assert_near, ext4, fathom, installed, number, record, recorded_whole, records_lost, root, rows, run,
    run_suite, shape_of, show,
};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let with = |program: &str| root().and_then(|()| installed(program));
    let cases: Vec<Case> = vec![
        ("sqlite3_shell_is_recorded", with("sqlite3"), sqlite3_shell_is_recorded),
        ("static_binary_with_symbols_is_recorded", root(), static_binary),
        ("stripped_binary_is_inferred_from_files", with("strip"), || stripped_binary(&["delete", "wal"])),
        ("long::stripped_binary_is_inferred_in_other_journal_modes", with("strip"), || {
            stripped_binary(&["truncate", "persist", "memory"])
        }),
        ("unset_pragmas_are_read_from_file_header", with("sqlite3"), unset_pragmas_are_read_from_file_header),
        ("running_process_is_recorded_by_pid", with("python3"), running_process),
        ("running_process_is_recorded_by_name", with("python3"), by_name),
        ("short_lived_processes_are_recorded_by_name", with("sleep"), short_lived),
        (
            "program_named_in_words_is_probed_before_it_runs",
            with("sh"),
            program_named_in_words_is_probed_before_it_runs,
        ),
        (
            "statements_before_probes_are_reported_missing",
            with("python3"),
            statements_before_probes_are_reported_missing,
        ),
        ("ftrace_names_library_that_is_loaded_late", with("python3"), loaded_late),
        ("program_in_container_is_recorded", with("unshare"), program_in_container_is_recorded),
        ("recorder_works_in_container", with("unshare").and_then(|()| installed("sqlite3")), || {
            recorder_inside(&NAMESPACE_COMMANDS)
        }),
        ("long::recorder_works_in_other_containers", with("unshare").and_then(|()| installed("sqlite3")), || {
            recorder_inside(&NESTED_NAMESPACE_COMMANDS)
        }),
        ("recorder_in_container_sees_running_programs", with("unshare").and_then(|()| installed("python3")), || {
            running_inside(&NAMESPACE_COMMANDS[..1])
        }),
        (
            "long::recorder_in_other_containers_sees_running_programs",
            with("unshare").and_then(|()| installed("python3")),
            || running_inside(&NESTED_NAMESPACE_COMMANDS),
        ),
        ("marks_in_recorder_namespace_are_joined", with("unshare"), marks_inside),
        ("function_is_recorded_as_operation", with("cc"), function_is_recorded_as_operation),
        (
            "calls_of_32_bit_programs_are_recorded",
            with("cc").and_then(|()| x86_64()),
            calls_of_32_bit_programs_are_recorded,
        ),
        ("places_in_functions_are_not_probed", with("cc").and_then(|()| x86_64()), places_in_functions_are_not_probed),
        ("nested_functions_add_up", with("cc"), || both_ways(nested_functions)),
        ("recursion_is_one_operation", with("cc"), || both_ways(recursion)),
        ("function_left_by_longjmp_has_no_end", with("cc"), || both_ways(left_by_longjmp)),
        ("function_resumed_by_longjmp_keeps_its_work", with("cc"), || both_ways(resumed_by_longjmp)),
        ("outermost_of_ten_nested_functions_have_no_end", with("cc"), || both_ways(deep_functions)),
        ("earliest_of_many_cursors_have_no_end", with("python3"), many_cursors),
        ("function_inside_statement_is_charged_its_flushes", with("sqlite3"), || both_ways(function_in_statement)),
        ("recording_overhead_is_reported_separately", with("sqlite3"), own_part),
        ("jvm_with_seeking_sqlite_is_recorded", with("java").and_then(|()| check_jdbc()), old_driver),
        ("jvm_with_stripped_sqlite_is_inferred_from_files", with("java").and_then(|()| check_jdbc()), stripped_driver),
        ("child_runs_as_sudo_caller", root(), sudo_user),
        ("other_writers_are_named", with("python3"), others_have_names),
        ("all_records_every_process_while_command_runs", with("sqlite3"), all_records_every_process_while_command_runs),
    ];
    run_suite(cases)
}

fn sqlite3_shell_is_recorded() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let sql = "create table t(i); insert into t values (1); insert into t values (2); select * from t;";
    let archive = record(directory.path(), &[], &["sqlite3", &disk.path().join("t.db").to_string_lossy(), sql])?;
    let summary = show(&archive)?;
    assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 2.0)?;
    assert_near("rows", number(shape_of(&summary, "SELECT * FROM T")?, "/rows")?, 2.0)
}

fn workload(directory: &str, rows: u32) -> Vec<String> {
    let words = ["workload", "sqlite", "--op", "insert", "--rows"];
    let mut argv: Vec<String> = words.iter().map(ToString::to_string).collect();
    argv.extend([rows.to_string(), "--dir".into(), directory.into()]);
    argv
}

fn static_binary() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let binary = fathom();
    let rest = workload(&disk.path().to_string_lossy(), 20);
    let argv: Vec<&str> =
        std::iter::once(binary.to_str().context("a path in UTF-8")?).chain(rest.iter().map(String::as_str)).collect();
    let summary = show(&record(directory.path(), &[], &argv)?)?;
    assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 20.0)?;
    ensure!(
        number(shape_of(&summary, "INSERT")?, "/layers/App/exclusive_ns").is_ok() || summary["operations"].is_array(),
        "no layers"
    );
    Ok(())
}

/// As many write transactions as INSERTs, in addition to those of a recording without INSERTs (the table, the WAL).
fn stripped_binary(modes: &[&str]) -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let binary = directory.path().join("application");
    fs::copy(fathom(), &binary)?;
    run(Command::new("strip").arg("--strip-all").arg(&binary))?;
    for mode in modes {
        let mut counts = Vec::new();
        for rows in [1, 31] {
            let rest = workload(&disk.path().to_string_lossy(), rows);
            let mut argv = vec!["env", "-u", model::marks::FD_VARIABLE, binary.to_str().context("a path in UTF-8")?];
            argv.extend(rest.iter().map(String::as_str));
            argv.extend(["--journal-mode", mode]);
            let archive = record(directory.path(), &[], &argv)?;
            let summary = show(&archive)?;
            let writes = shape_of(&summary, "(WRITE TRANSACTION ON")?;
            ensure!(writes["kind"] == "transaction", "{writes}");
            counts.push(number(writes, "/count")?);
            assert_near(&format!("unfinished in {mode} mode"), number(writes, "/unfinished")?, 0.0)?;
            ensure!(number(writes, "/per_operation/flushes")? > 0.0, "no flush is charged in {mode} mode: {writes}");
            // Calls outside its transactions that wait for the medium are operations of their own, and are more
            // certain.
            let mut calls = 0.0;
            for call in
                summary["operations"].as_array().context("no operations")?.iter().filter(|o| o["kind"] == "call")
            {
                for kind in ["requests", "flushes", "discards"] {
                    calls += number(call, "/count")? * number(call, &format!("/per_operation/{kind}"))?;
                }
            }
            let of_transactions = number(&summary, "/device_commands/by_operations")? - calls;
            assert_near("causes surer than a guess", of_transactions, number(&summary, "/cause_confidence/guess")?)?;
            let says = "no SQLite was found in application: its transactions are inferred from its files";
            let covered = summary["coverage"].as_array().context("coverage[]")?.iter().any(|c| c["how"] == says);
            ensure!(covered, "the coverage does not say that it is inferred: {:#}", summary["coverage"]);
            let shown = String::from_utf8(run(Command::new(fathom()).arg("show").arg(&archive))?.stdout)?;
            let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            ensure!(shown.contains(&says.replacen('n', "N", 1)), "the table does not say that it is inferred: {shown}");
        }
        assert_near(&format!("transactions of 30 more INSERTs in {mode} mode"), counts[1] - counts[0], 30.0)?;
    }
    Ok(())
}

/// Settings that PRAGMAs made before the recording are read from the file, and those that no file keeps are reported as
/// unknown.
fn unset_pragmas_are_read_from_file_header() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let database = disk.path().join("any name");
    let database = database.to_string_lossy();
    let before = "pragma page_size=8192; pragma encoding='UTF-16le'; pragma journal_mode=wal; create table t(i);";
    run(Command::new("sqlite3").args([&database, before]))?;
    let argv = ["sqlite3", &database, "insert into t values (1);"];
    let summary = show(&record(directory.path(), &[], &argv)?)?;
    let fact = |name: &str| &summary["environment"][format!("sqlite.{name}")];
    for (name, value) in
        [("page_size", "8192"), ("journal_mode", "wal"), ("encoding", "UTF-16le"), ("schema_format", "4")]
    {
        ensure!(fact(name)["value"] == value, "{name}: {}", fact(name));
        ensure!(fact(name)["source"].as_str().is_some_and(|s| s.starts_with("file header")), "{}", fact(name));
    }
    for name in ["synchronous", "cache_size"] {
        ensure!(fact(name)["unknown"].as_str().is_some_and(|u| u.contains("does not store")), "{}", fact(name));
    }
    Ok(())
}

/// INSERTs until end of stdin. Its table has a unique name: where all programs are recorded, others insert as well.
const LOOP_PROGRAM: &str = r#"
import sqlite3, sys, select
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("CREATE TABLE looped (i INTEGER)")
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.001)[0]:
    db.execute("INSERT INTO looped VALUES (1)")
"#;

/// Starts a program that inserts until its stdin is closed, and waits until it has begun.
fn start_inserting(directory: &Path) -> Result<Child> {
    use std::io::Read;
    let mut child = Command::new("python3")
        .args(["-c", LOOP_PROGRAM])
        .arg(directory.join("t.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child.stdout.as_mut().context("stdout")?.read_exact(&mut [0; 5])?;
    Ok(child)
}

fn during_a_loop(options: impl Fn(u32) -> Vec<String>) -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let mut child = start_inserting(disk.path())?;
    let archive = directory.path().join("t.fathom");
    let recorded = run(Command::new(fathom())
        .args(["record", "-q", "--duration", "1", "-o"])
        .arg(&archive)
        .args(options(child.id())));
    drop(child.stdin.take());
    child.wait()?;
    recorded?;
    let summary = show(&archive)?;
    let insert = shape_of(&summary, "INSERT INTO LOOPED")?;
    ensure!(number(insert, "/count")? >= 5.0, "few INSERTs: {insert}");
    ensure!(number(insert, "/per_operation/fsyncs")? >= 1.0, "no fsync seen: {insert}");
    let database = number(insert, "/per_operation/filesystem_writes/database/count")?;
    ensure!(database >= 1.0, "the database, open before the recording, is not known by its name: {insert}");
    Ok(())
}

/// A process that was running before the recording, and is not a target, is named as the process that its commands are
/// charged to.
fn others_have_names() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let mut child = start_inserting(disk.path())?;
    // Until the other process has written its database three times: everything before the last write is done.
    let script = format!(
        "cd {}; echo x >f; sync f; for n in 1 2 3; do was=$(stat -c %y t.db); until [ \"$(stat -c %y t.db)\" != \"$was\" ]; do :; done; done",
        disk.path().display()
    );
    let recorded = record(directory.path(), &[], &["sh", "-c", &script]);
    let name = fs::read_to_string(format!("/proc/{}/comm", child.id()))?;
    drop(child.stdin.take());
    child.wait()?;
    let summary = show(&recorded?)?;
    let all = summary["device_commands"]["processes"].as_array().context("processes[]")?;
    ensure!(
        all.iter().any(|p| p["name"] == name.trim() && p["origin"] == "other process"),
        "{name:?} is not in {all:?}"
    );
    Ok(())
}

fn running_process() -> Result<()> {
    during_a_loop(|pid| vec!["--pid".into(), pid.to_string()])
}

fn by_name() -> Result<()> {
    during_a_loop(|_| vec!["--comm".into(), "python3".into()])
}

/// The process with that name ends between the recorder's search and the attachment of its probes.
fn short_lived() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let sleep = run(Command::new("sh").args(["-c", "command -v sleep"]))?;
    fs::copy(String::from_utf8(sleep.stdout)?.trim(), directory.path().join("shortlived"))?;
    let mut child = Command::new("sh")
        .args(["-c", "while :; do ./shortlived 0.1 & ./shortlived 0.05; done"])
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .spawn()?;
    let archive = directory.path().join("t.fathom");
    let recorded =
        run(Command::new(fathom()).args(["record", "--comm", "shortlived", "--duration", "0.5", "-o"]).arg(&archive));
    child.kill()?;
    child.wait()?;
    let said = String::from_utf8_lossy(&recorded?.stderr).into_owned();
    ensure!(!said.contains("no process named"), "{said}");
    Ok(())
}

/// A program with SQLite linked in, started by a shell, whose 20 INSERTs are over within milliseconds.
fn program_named_in_words_is_probed_before_it_runs() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let place = directory.path().to_string_lossy().into_owned();
    let line = std::iter::once(fathom().to_string_lossy().into_owned()).chain(workload(&place, 20)).collect::<Vec<_>>();
    let summary = show(&record(directory.path(), &[], &["sh", "-c", &format!("true; {}; true", line.join(" "))])?)?;
    let count = number(shape_of(&summary, "INSERT")?, "/count")?;
    ensure!(count == 20.0, "{count} INSERTs of 20");
    Ok(())
}

/// The same, by a program whose command line does not identify it: what ran before the probes is reported missing, or
/// nothing is missing.
fn statements_before_probes_are_reported_missing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let place = directory.path().to_string_lossy().into_owned();
    let program = fathom().to_string_lossy().chars().rev().collect::<String>();
    let script = "import subprocess, sys; subprocess.run([sys.argv[1][::-1]] + sys.argv[2:], check=True)";
    let line: Vec<String> =
        ["python3", "-c", script, &program].map(String::from).into_iter().chain(workload(&place, 20)).collect();
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    for backend in ["ebpf", "ftrace"] {
        let inner = tempfile::tempdir_in(directory.path())?;
        let summary = show(&record(inner.path(), &["--backend", backend, "--probes", "uprobe"], &line)?)?;
        let count = shape_of(&summary, "INSERT").and_then(|insert| number(insert, "/count")).unwrap_or(0.0);
        let rows = summary["coverage"].as_array().context("coverage[]")?;
        let reported = |row: &Value| {
            row["attached"] == false && row["how"].as_str().is_some_and(|how| how.contains("first statements"))
        };
        ensure!(
            rows.iter().any(reported),
            "{backend}: {count} INSERTs of 20, and nothing says that some may be missing: {rows:?}"
        );
        // And where users look: next to the statements, for programs, and before the findings.
        let blind = summary["blind"].as_array().context("blind[]")?;
        let missing = |row: &Value| row["layer"] == "Database";
        ensure!(blind.iter().any(missing), "{backend}: {blind:?}");
        let archive = inner.path().join("t.fathom");
        for verb in ["show", "explain"] {
            let said = run(Command::new(fathom()).arg(verb).arg(&archive))?;
            let said = String::from_utf8(said.stdout)?;
            let told = ["may be missing", "statements are not recorded"].iter().any(|text| said.contains(text));
            ensure!(told, "{backend}: {verb}: {said}");
        }
    }
    Ok(())
}

/// A library with SQLite in it that a program loads long after its start: the ftrace backend does not probe it, and reports
/// that.
fn loaded_late() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let known =
        run(Command::new("sh").args(["-c", "ldconfig -p | sed -n 's/.*libsqlite3.so.0 .*=> //p' | head -n 1"]))?;
    let known = String::from_utf8(known.stdout)?;
    let late = directory.path().join("late.so").to_string_lossy().chars().rev().collect::<String>();
    // A fixed wait: there is no notice that Fathom has looked, which it does four times a second.
    let script = "import ctypes, shutil, sys, time; late = sys.argv[2][::-1]; shutil.copy(sys.argv[1], late); ctypes.CDLL(late); time.sleep(4)";
    let line = ["python3", "-c", script, known.trim(), &late];
    let summary = show(&record(directory.path(), &["--backend", "ftrace"], &line)?)?;
    let rows = summary["coverage"].as_array().context("coverage[]")?;
    let reported = |row: &Value| {
        row["probe"].as_str().is_some_and(|probe| probe.ends_with("/late.so"))
            && row["how"].as_str().is_some_and(|how| how.contains("first statements"))
    };
    ensure!(rows.iter().any(reported), "nothing tells of the library: {rows:?}");
    Ok(())
}

fn program_in_container_is_recorded() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let inner = disk.path().join("root");
    fs::create_dir_all(inner.join("data"))?;
    fs::copy(fathom(), inner.join("fathom"))?;
    let mut argv = vec!["unshare", "--mount", "--pid", "--fork", "chroot"];
    let root = inner.to_string_lossy().into_owned();
    let rest = workload("/data", 2000);
    argv.extend([root.as_str(), "/fathom"]);
    argv.extend(rest.iter().map(String::as_str));
    let summary = show(&record(directory.path(), &[], &argv)?)?;
    let insert = shape_of(&summary, "INSERT")?;
    // A program that exists only inside is probed when it is mapped. Its statements before that are known by their marks, and that they
    // are missing is said.
    let (seen, marked) = (number(insert, "/count")?, mark_count(&summary, "INSERT"));
    assert_near("INSERTs and marks", seen + marked, 2000.0)?;
    let probes = summary["coverage"].as_array().context("coverage[]")?;
    ensure!(
        marked == 0.0 || probes.iter().any(|probe| probe["absence"] == "found late"),
        "{marked} not seen: {probes:?}"
    );
    ensure!(number(insert, "/per_operation/filesystem_writes/rollback journal/count")? >= 1.0, "{insert}");
    Ok(())
}

/// How many marks of this name were recorded whose work is no statement.
fn mark_count(summary: &Value, name: &str) -> f64 {
    let all = summary["operations"].as_array().into_iter().flatten();
    all.filter(|o| o["kind"] == "mark" && o["statement"] == name).filter_map(|o| o["count"].as_f64()).sum()
}

/// Ways into namespaces: a PID namespace with its own /proc, one with the /proc of the machine, and time offsets.
const NAMESPACE_COMMANDS: [&[&str]; 3] = [
    &["--pid", "--fork", "--mount-proc"],
    &["--pid", "--fork"],
    &["--time", "--boottime", "100000", "--monotonic", "50000"],
];
/// As in a container, and nested.
const NESTED_NAMESPACE_COMMANDS: [&[&str]; 2] = [
    &["--mount", "--pid", "--fork", "--uts", "--ipc", "--mount-proc"],
    &["--pid", "--fork", "--mount-proc", "unshare", "--pid", "--fork", "--mount-proc"],
];

/// Runs `fathom record` in a PID namespace that is entered this way.
fn record_inside(way: &[&str], archive: &Path, options: &[&str], argv: &[&str]) -> Result<Value> {
    let mut command = Command::new("unshare");
    command.args(way).arg(fathom()).args(["record", "--quiet", "-o"]).arg(archive).args(options);
    run(if argv.is_empty() { &mut command } else { command.arg("--").args(argv) })?;
    show(archive)
}

fn recorder_inside(ways: &[&[&str]]) -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let sql = "create table t(i); insert into t values (1); insert into t values (2); select * from t;";
    for (i, way) in ways.iter().copied().enumerate() {
        let database = disk.path().join(format!("{i}.db"));
        let archive = directory.path().join(format!("{i}.fathom"));
        let summary = record_inside(way, &archive, &[], &["sqlite3", &database.to_string_lossy(), sql])?;
        let insert = shape_of(&summary, "INSERT").with_context(|| format!("unshare {way:?}"))?;
        assert_near("INSERTs", number(insert, "/count")?, 2.0)?;
        ensure!(number(insert, "/per_operation/fsyncs")? >= 1.0, "unshare {way:?}: {insert}");
        ensure!(number(insert, "/per_operation/flushes")? >= 1.0, "unshare {way:?}: {insert}");
        // The recorder's writes are attributed to it, and the command's name is known.
        let processes = summary["device_commands"]["processes"].as_array().context("processes[]")?;
        ensure!(!processes.iter().any(|p| p["name"] == "fathom" && p["origin"] != "tracer"), "{processes:?}");
        ensure!(summary["environment"]["sqlite.version"]["value"].is_string(), "unshare {way:?}: which SQLite?");
        let says_so = summary["environment"]["trace.processes"]["value"].is_string();
        ensure!(says_so == way.contains(&"--pid"), "unshare {way:?}: {:?}", summary["environment"]);
    }
    Ok(())
}

/// Records a program that was already running, by its number, by its name, and as one of all.
fn running_inside(ways: &[&[&str]]) -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let script = directory.path().join("inside.sh");
    fs::write(
        &script,
        "sleep infinity | python3 -c \"$LOOP\" $1 > $2.ready & \n\
         until [ -s $2.ready ]; do sleep 0.01; done\n\
         n=0; for what in \"--pid $!\" \"--comm python3\" --all; do n=$((n + 1))\n\
         $FATHOM record --quiet $what --duration 1 -o $2.$n.fathom || exit 1\ndone\n",
    )?;
    for (i, way) in ways.iter().copied().enumerate() {
        let (database, name) = (disk.path().join(format!("{i}.db")), directory.path().join(i.to_string()));
        let mut command = Command::new("unshare");
        command.args(way).arg("sh").arg(&script).arg(&database).arg(&name);
        if way.contains(&"--mount-proc") {
            run(command.env("LOOP", LOOP_PROGRAM).env("FATHOM", fathom()))?;
        } else {
            // A shell has its child's number of that namespace, and this /proc does not.
            continue;
        }
        for archive in fs::read_dir(directory.path())?.filter_map(|e| Some(e.ok()?.path())) {
            if archive.extension().is_none_or(|e| e != "fathom") {
                continue;
            }
            let summary = show(&archive)?;
            let insert = shape_of(&summary, "INSERT INTO LOOPED")
                .with_context(|| format!("unshare {way:?}: {}", archive.display()))?;
            ensure!(number(insert, "/count")? >= 10.0, "unshare {way:?}: {}: {insert}", archive.display());
            ensure!(number(insert, "/per_operation/fsyncs")? > 1.0, "{insert}");
            fs::remove_dir_all(&archive)?;
        }
    }
    Ok(())
}

/// A program's marks carry PIDs of its namespace, which is the recorder's own.
fn marks_inside() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let load = workload(&disk.path().to_string_lossy(), 400);
    let fathom = fathom().to_string_lossy().into_owned();
    let argv: Vec<&str> = std::iter::once(fathom.as_str()).chain(load.iter().map(String::as_str)).collect();
    let summary = record_inside(NAMESPACE_COMMANDS[0], &directory.path().join("t.fathom"), &[], &argv)?;
    assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 400.0)?;
    let all = summary["operations"].as_array().context("operations[]")?;
    let alone: Vec<&Value> = all.iter().filter(|o| o["kind"] == "mark" && o["statement"] == "INSERT").collect();
    ensure!(alone.is_empty(), "marks that were not joined to their statements: {alone:?}");
    Ok(())
}

fn function_is_recorded_as_operation() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let (source, binary) = (directory.path().join("p.c"), directory.path().join("p"));
    fs::write(
        &source,
        "#include <fcntl.h>\n#include <unistd.h>\n\
         __attribute__((noinline)) int handle(int fd) { write(fd, \"x\", 1); return fsync(fd); }\n\
         int main(int n, char **a) { int fd = open(a[1], O_CREAT | O_WRONLY, 0600); for (int i = 0; i < 7; i++) handle(fd); return 0; }\n",
    )?;
    run(Command::new("cc").args(["-O1", "-o"]).arg(&binary).arg(&source))?;
    let operation = format!("{}:handle", binary.display());
    let file = disk.path().join("f");
    let archive =
        record(directory.path(), &["--op", &operation], &[&binary.to_string_lossy(), &file.to_string_lossy()])?;
    let summary = show(&archive)?;
    let handle = summary["operations"]
        .as_array()
        .and_then(|all| all.iter().find(|o| o["statement"].as_str().is_some_and(|s| s.contains("handle"))))
        .context("no operation `handle`")?;
    assert_near("calls", number(handle, "/count")?, 7.0)?;
    assert_near("fsyncs a call", number(handle, "/per_operation/fsyncs")?, 1.0)
}

/// The same calls by a 64-bit program, by a 32-bit one, and by a 64-bit one through int 0x80.
fn calls_of_32_bit_programs_are_recorded() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/calls.c");
    let mut seen: Vec<Vec<String>> = Vec::new();
    for kind in [&["-m64"][..], &["-m32"], &["-m64", "-DINT80"]] {
        let disk = ext4()?;
        fs::create_dir(directory.path().join(kind.concat()))?;
        let program = directory.path().join("calls");
        let plain = ["-O1", "-w", "-nostdlib", "-static", "-no-pie", "-fno-pic", "-fno-stack-protector"];
        run(Command::new("cc").args(kind).args(plain).arg("-o").arg(&program).arg(&source))?;
        let script = format!("cd {} && exec {}", disk.path().display(), program.display());
        if let Err(why) = run(Command::new("sh").args(["-c", &script])) {
            println!("SKIP calls_of_32_bit_programs_are_recorded: {kind:?} does not run here: {why:#}");
            continue;
        }
        let archive = record(directory.path(), &[], &["sh", "-c", &script])?;
        let summary = show(&archive)?;
        let mut spans: Vec<_> = rows(&archive, "spans")?.into_iter().filter(|s| s["layer"] == "Syscall").collect();
        spans.sort_by_key(|span| span["start_ns"].parse::<u64>().unwrap_or_default());
        // Before the first one, the shell's.
        let first = spans.iter().position(|span| span["kind"] == "pwrite64").context("no pwrite64")?;
        let all = ["kind", "offset", "bytes", "result"];
        let shown = spans[first..].iter().map(|span| all.map(|column| span[column].clone()).join(" "));
        seen.push(shown.filter(|span| !span.starts_with("write ") || !span.ends_with(" 7")).collect());
        assert_near("fdatasyncs", number(shape_of(&summary, "FDATASYNC")?, "/count")?, 20.0)?;
        let unattributed = format!("/device_commands/by_disk/{}/unattributed", disk.name());
        assert_near("unattributed", number(&summary, &unattributed)?, 0.0).with_context(|| format!("{kind:?}"))?;
        let blind = summary["blind"].as_array().context("blind[]")?;
        ensure!(!blind.iter().any(|layer| layer["layer"] == "Syscall"), "{kind:?}: {blind:?}");
        // Its numbers mean other calls, which ftrace does not tell.
        let by_ftrace =
            record(&directory.path().join(kind.concat()), &["--backend", "ftrace"], &["sh", "-c", &script])?;
        let blind = show(&by_ftrace)?["blind"].to_string();
        ensure!(blind.contains("a 32-bit program ran") == (kind == ["-m32"]), "{kind:?} by ftrace: {blind}");
    }
    let (native, others) = seen.split_first().context("nothing ran")?;
    ensure!(native.len() >= 54, "{native:#?}");
    for other in others {
        ensure!(other == native, "{other:#?} instead of {native:#?}");
    }
    Ok(())
}

fn x86_64() -> Result<(), String> {
    if cfg!(target_arch = "x86_64") { Ok(()) } else { Err("the program is written for x86-64".into()) }
}

/// A probe within a function would change what it computes; each is refused with the reason, before the program runs. A function that
/// begins where the kernel replaces the code is probed, and unharmed.
fn places_in_functions_are_not_probed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/places.c");
    let program = directory.path().join("places");
    run(Command::new("cc").args(["-O1", "-w", "-o"]).arg(&program).arg(&source))?;
    let record = |way: &str, operation: &str, words: &[&str]| {
        let mut command = Command::new(fathom());
        command.args(["record", "-q", "--probes", way, "--op", operation, "-o"]).arg(directory.path().join("t.fathom"));
        command.arg("--").arg(&program).args(words).output()
    };
    let own = |name: &str| format!("{}:{name}", program.display());
    for (operation, reason) in [
        (own("site"), "not a function, but a label"),
        (own("inner"), "within the function other"),
        (own("saved"), "not a function, but a label"),
        (own("_start"), "not called, but jumped to"),
        (own("chosen"), "the loader chooses its implementation"),
        ("libc.so.6:_setjmp".into(), "stores where it returns to"),
        (own("no_such_function"), "no function no_such_function"),
    ] {
        for way in ["auto", "inside", "uprobe"] {
            let output = record(way, &operation, &["jump"])?;
            let (told, ran) = (String::from_utf8(output.stderr)?, String::from_utf8(output.stdout)?);
            let refused = output.status.code() == Some(1) && ran.is_empty();
            let why = if way == "inside" && reason.starts_with("no function") { "symbol not found" } else { reason };
            ensure!(refused && told.contains(why), "{way} {operation}: {}: {ran}{told}", output.status);
        }
    }
    for way in ["auto", "uprobe"] {
        let output = record(way, &own("begins"), &[])?;
        let (told, ran) = (String::from_utf8(output.stderr)?, String::from_utf8(output.stdout)?);
        let whole = ran == "leaf 0\nother 0\nsaves 0\nbegins 0\narguments 0, chosen 7\n";
        ensure!(output.status.success() && whole, "{way}: {}: {ran}{told}", output.status);
        let summary = show(&directory.path().join("t.fathom"))?;
        assert_near(way, number(shape_of(&summary, "BEGINS")?, "/count")?, 1000.0)?;
    }
    Ok(())
}

/// Runs the test with functions probed by uprobes, and inside the processes where that is possible.
fn both_ways(test: fn(&str) -> Result<()>) -> Result<()> {
    let ways: &[&str] = if cfg!(target_arch = "x86_64") { &["uprobe", "inside"] } else { &["uprobe"] };
    ways.iter().try_for_each(|way| test(way).with_context(|| (*way).to_owned()))
}

/// Records `tests/programs/nested.c`, whose functions are in a library without execute permission, as Debian installs
/// them.
fn record_nested(way: &str, mode: &str, times: u32, functions: &[&str]) -> Result<serde_json::Value> {
    use std::os::unix::fs::PermissionsExt as _;
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/nested.c");
    let (library, program) = (directory.path().join("libnested.so"), directory.path().join("nested"));
    run(Command::new("cc").args(["-O2", "-DLIBRARY", "-fPIC", "-shared", "-o"]).arg(&library).arg(&source))?;
    fs::set_permissions(&library, fs::Permissions::from_mode(0o644))?;
    let rpath = format!("-Wl,-rpath,{}", directory.path().display());
    run(Command::new("cc").arg("-O2").arg("-o").arg(&program).args([&source, &library]).args(["-lpthread", &rpath]))?;
    let operations: Vec<String> = functions.iter().map(|f| format!("{}:{f}", library.display())).collect();
    let options: Vec<&str> = operations.iter().flat_map(|o| ["--op", o]).chain(["--probes", way]).collect();
    let (program, file, times) = (program.to_string_lossy(), disk.path().join("f"), times.to_string());
    let argv: [&str; 4] = [&program, &file.to_string_lossy(), mode, &times];
    Ok(recorded_whole(|| record(directory.path(), &options, &argv))?.1)
}

/// The sum of the operations' own counts equals what was charged to operations.
fn own_adds_up(summary: &serde_json::Value) -> Result<()> {
    let all = summary["operations"].as_array().context("operations[]")?;
    let own = |o: &serde_json::Value| {
        let of = |what: &str| number(o, &format!("/own/{what}"));
        Ok(number(o, "/count")? * (of("requests")? + of("flushes")? + of("discards")?))
    };
    let sum = all.iter().map(own).sum::<Result<f64>>()?;
    assert_near("commands of operations", sum, number(summary, "/device_commands/by_operations")?)
}

fn nested_functions(way: &str) -> Result<()> {
    for (mode, calls) in [("plain", 7.0), ("threads", 14.0)] {
        let summary = record_nested(way, mode, 7, &["outer", "inner", "last"])?;
        let told = || format!("{mode}: {:#}", summary["operations"]);
        // (function, executions, syncs in it, its own)
        for (name, count, all) in [("OUTER", calls, 2.0), ("INNER", 3.0 * calls, 1.0), ("LAST", calls, 2.0)] {
            let function = shape_of(&summary, name)?;
            assert_near(name, number(function, "/count")?, count).with_context(told)?;
            assert_near("unfinished", number(function, "/unfinished")?, 0.0).with_context(told)?;
            assert_near("syncs", number(function, "/per_operation/fsyncs")?, all).with_context(told)?;
            assert_near("own syncs", number(function, "/own/fsyncs")?, 1.0).with_context(told)?;
            ensure!(number(function, "/own/flushes")? > 0.0, "{}", told());
            let own = number(function, "/own/latency_ns")? * count;
            let latency = number(function, "/latency_ns/sum")?;
            // The average is rounded.
            ensure!(if all > 1.0 { own < latency } else { (own - latency).abs() < 1.0 }, "{}", told());
        }
        let inside = &shape_of(&summary, "INNER")?["inside"];
        ensure!(*inside == serde_json::json!({"outer": calls as u64, "last": calls as u64}), "{inside}");
        own_adds_up(&summary).with_context(told)?;
    }
    Ok(())
}

fn recursion(way: &str) -> Result<()> {
    let summary = record_nested(way, "recursion", 2, &["again", "inner"])?;
    let again = shape_of(&summary, "AGAIN")?;
    assert_near("executions", number(again, "/count")?, 2.0)?;
    assert_near("syncs", number(again, "/per_operation/fsyncs")?, 300.0)?;
    assert_near("own syncs", number(again, "/own/fsyncs")?, 300.0)?;
    own_adds_up(&summary)
}

/// `outer` and `inner` are left by longjmp each time; what follows is charged to neither, and the next call is complete
/// again.
fn left_by_longjmp(way: &str) -> Result<()> {
    let summary = record_nested(way, "jumps", 5, &["outer", "inner", "again"])?;
    let told = || format!("{:#}", summary["operations"]);
    for name in ["OUTER", "INNER"] {
        let function = shape_of(&summary, name)?;
        assert_near(name, number(function, "/count")?, 0.0).with_context(told)?;
        assert_near("left", number(function, "/unfinished")?, 5.0).with_context(told)?;
    }
    let again = shape_of(&summary, "AGAIN")?;
    assert_near("whole", number(again, "/count")?, 5.0).with_context(told)?;
    assert_near("unfinished", number(again, "/unfinished")?, 0.0).with_context(told)?;
    assert_near("its syncs", number(again, "/own/fsyncs")?, 1.0).with_context(told)?;
    ensure!(again["inside"] == serde_json::json!({}), "{}", told());
    let outside = number(&summary, "/device_commands/by_recorded_processes")?;
    ensure!(outside > 0.0, "what came after the jump was charged to a function: {:#}", summary["device_commands"]);
    Ok(())
}

/// What the function that is jumped back to does next is charged to it, though the stack is as deep as in the function
/// that was left.
fn resumed_by_longjmp(way: &str) -> Result<()> {
    let summary = record_nested(way, "lands", 5, &["lands", "leaps"])?;
    let told = || format!("{:#}", summary["operations"]);
    let (lands, leaps) = (shape_of(&summary, "LANDS")?, shape_of(&summary, "LEAPS")?);
    assert_near("whole", number(lands, "/count")?, 5.0).with_context(told)?;
    assert_near("its syncs", number(lands, "/per_operation/fsyncs")?, 4.0).with_context(told)?;
    assert_near("own syncs", number(lands, "/own/fsyncs")?, 3.0).with_context(told)?;
    assert_near("left", number(leaps, "/unfinished")?, 5.0).with_context(told)?;
    assert_near("finished", number(leaps, "/count")?, 0.0).with_context(told)
}

/// Ten nested functions, of which eight are kept: the two outermost are dropped, and the others are complete.
fn deep_functions(way: &str) -> Result<()> {
    let names: Vec<String> = (0..10).map(|n| format!("level{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let summary = record_nested(way, "deep", 3, &names)?;
    let told = || format!("{:#}\n{:#}", summary["operations"], summary["loss"]);
    for (n, name) in names.iter().enumerate() {
        let function = shape_of(&summary, &name.to_uppercase())?;
        let (whole, unfinished) = if n < 2 { (0.0, 3.0) } else { (3.0, 0.0) };
        assert_near(name, number(function, "/count")?, whole).with_context(told)?;
        assert_near("unfinished", number(function, "/unfinished")?, unfinished).with_context(told)?;
        if n < 2 {
            continue;
        }
        assert_near("syncs", number(function, "/per_operation/fsyncs")?, 10.0 - n as f64).with_context(told)?;
        assert_near("own syncs", number(function, "/own/fsyncs")?, 1.0).with_context(told)?;
    }
    assert_near("given up", records_lost(&summary)?, 6.0).with_context(told)
}

/// Statements that are stepped alternately on one thread: eight are kept, the oldest are dropped.
fn many_cursors() -> Result<()> {
    const TURNS_PROGRAM: &str = "import sqlite3, sys\n\
        c = sqlite3.connect(':memory:', isolation_level=None)\n\
        c.execute('create table t(a)')\n\
        c.executemany('insert into t values(?)', [(i,) for i in range(10)])\n\
        for k in range(20):\n    \
            all = [c.cursor().execute('select a from t as x%d where a>=0' % i) for i in range(int(sys.argv[1]))]\n    \
            for r in range(11):\n        \
                for x in all: next(x, None)\n";
    for (cursors, gave_way) in [(8, 0), (11, 3)] {
        let directory = tempfile::tempdir()?;
        let argv = ["python3", "-c", TURNS_PROGRAM, &cursors.to_string()];
        let (_, summary) = recorded_whole(|| record(directory.path(), &[], &argv))?;
        let told = || format!("{cursors}: {:#}\n{:#}", summary["operations"], summary["loss"]);
        for n in 0..cursors {
            let select = shape_of(&summary, &format!("SELECT A FROM T AS X{n} "))?;
            let (whole, unfinished) = if n < gave_way { (0.0, 20.0) } else { (20.0, 0.0) };
            assert_near("executions", number(select, "/count")?, whole).with_context(told)?;
            assert_near("unfinished", number(select, "/unfinished")?, unfinished).with_context(told)?;
            assert_near("rows", number(select, "/rows")?, 10.0 * whole).with_context(told)?;
        }
        assert_near("given up", records_lost(&summary)?, 20.0 * f64::from(gave_way)).with_context(told)?;
    }
    Ok(())
}

/// A library by its loader name.
fn function_in_statement(way: &str) -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let sql = "create table t(i); insert into t values (1); insert into t values (2);";
    let database = disk.path().join("t.db");
    let options = ["--op", "libc.so.6:fdatasync", "--op", "libc.so.6:fsync", "--probes", way];
    let summary = show(&record(directory.path(), &options, &["sqlite3", &database.to_string_lossy(), sql])?)?;
    let insert = shape_of(&summary, "INSERT")?;
    let syncs = number(insert, "/per_operation/fsyncs")?;
    ensure!(syncs >= 2.0, "{insert}");
    assert_near("own syncs of an INSERT", number(insert, "/own/fsyncs")?, 0.0)?;
    let mut inside = 0.0;
    // How SQLite was built decides which of the two syncs the directory.
    for sync in ["FDATASYNC", "FSYNC"].into_iter().filter_map(|name| shape_of(&summary, name).ok()) {
        assert_near("own syncs", number(sync, "/own/fsyncs")?, 1.0)?;
        let around = sync["inside"].as_object().context("inside{}")?;
        let around = around.iter().filter(|(name, _)| name.starts_with("insert"));
        inside += around.filter_map(|(_, n)| n.as_f64()).sum::<f64>();
    }
    assert_near("inside INSERTs", inside, 2.0 * syncs)?;
    own_adds_up(&summary)
}

/// Steps times the cost that the recorder measured, as far as there was time for it; and the layers add up including
/// it.
fn own_part() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let sql = "create table t(i); with recursive r(n) as (select 1 union all select n+1 from r where n<50000) \
               insert into t select n from r; select i from t where i % 5 = 0;";
    let database = disk.path().join("t.db");
    let archive = record(directory.path(), &[], &["sqlite3", &database.to_string_lossy(), sql])?;
    let summary = show(&archive)?;
    let price = |part: &str| {
        let fact = &summary["environment"][format!("tracer.price.step{part}")]["value"];
        fact.as_str().and_then(|v| v.parse::<f64>().ok()).with_context(|| format!("no price{part} of a step"))
    };
    let (low, middle, high) = (price(".low")?, price("")?, price(".high")?);
    ensure!(0.0 < low && low <= middle && middle <= high, "a price of {low}, {middle}, {high} ns");
    for operation in summary["operations"].as_array().context("operations[]")? {
        let layers = operation["layers"].as_object().context("layers{}")?;
        let sum: f64 = layers.values().filter_map(|l| l["exclusive_ns"].as_f64()).sum();
        let latency = number(operation, "/latency_ns/sum")?;
        assert_near("the layers' sum", sum + number(operation, "/unexplained_ns")?, latency)?;
        let own = layers.get("Tracer").map_or(0.0, |l| l["exclusive_ns"].as_f64().unwrap_or(-1.0));
        assert_near("the recording's own", number(operation, "/tracer/ns")?, own)?;
        ensure!(operation["tracer"]["large"] == (number(operation, "/tracer/share")? > 0.1), "{operation}");
    }
    let scan = shape_of(&summary, "SELECT I FROM T")?;
    // 10,000 rows, each with a step, and one more step for the end; half of the last pair of probes is outside.
    let (rows, took) = (number(scan, "/rows")?, number(scan, "/tracer/ns")?);
    assert_near("rows", rows, 10_000.0)?;
    let calls = number(scan, "/per_operation/syscalls")?;
    ensure!(took > 0.0 && took <= (rows + 0.5) * middle + calls * 10_000.0, "{took} ns for {rows} rows at {middle} ns");
    let steps: Vec<_> = rows_of(&archive)?;
    ensure!(steps.contains(&"10001".to_string()), "the steps are not in the table: {steps:?}");
    Ok(())
}

fn rows_of(archive: &Path) -> Result<Vec<String>> {
    Ok(rows(archive, "operations")?.into_iter().filter_map(|mut row| row.remove("steps")).collect())
}

/// The drivers, which set-up fetches; their functions are found when the JVM maps the unpacked library.
fn check_jdbc() -> Result<(), String> {
    let missing =
        [DRIVER_JAR, OLD_DRIVER_JAR, LOGGER_JAR].into_iter().find(|jar| !Path::new(JARS_DIRECTORY).join(jar).exists());
    missing.map_or(Ok(()), |jar| Err(format!("set-up could not fetch {jar}")))
}

const JARS_DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/jars");
const DRIVER_JAR: &str = "sqlite-jdbc-3.46.1.3.jar";
/// This one seeks and writes, where newer ones use pwrite.
const OLD_DRIVER_JAR: &str = "sqlite-jdbc-3.7.2.jar";
const LOGGER_JAR: &str = "slf4j-api-1.7.36.jar";

const JAVA_PROGRAM: &str = r#"
import java.sql.*;
public class Load {
    public static void main(String[] a) throws Exception {
        Class.forName("org.sqlite.JDBC");
        try (Connection c = DriverManager.getConnection("jdbc:sqlite:" + a[0]); Statement s = c.createStatement()) {
            // A fixed wait: what runs in the milliseconds between the mapping of a library and the probes on it is not seen.
            Thread.sleep(1000);
            s.executeUpdate("CREATE TABLE t (i INTEGER)");
            try (PreparedStatement p = c.prepareStatement("INSERT INTO t VALUES (?)")) {
                for (int i = 0; i < 12; i++) { p.setInt(1, i); p.executeUpdate(); }
            }
        }
    }
}
"#;

fn record_jdbc(driver: &str) -> Result<serde_json::Value> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let source = directory.path().join("Load.java");
    fs::write(&source, JAVA_PROGRAM)?;
    let path = format!("{JARS_DIRECTORY}/{driver}:{JARS_DIRECTORY}/{LOGGER_JAR}");
    let database = disk.path().join("t.db");
    let argv = ["java", "-cp", &path, &source.to_string_lossy(), &database.to_string_lossy()];
    show(&record(directory.path(), &[], &argv)?)
}

/// The library is unpacked and loaded by a JVM that is already running.
fn old_driver() -> Result<()> {
    let summary = record_jdbc(OLD_DRIVER_JAR)?;
    let insert = shape_of(&summary, "INSERT")?;
    // Beside other programs the probes may come later than the program waits for them: that is said then.
    let seen = number(insert, "/count")?;
    let probes = summary["coverage"].as_array().context("coverage[]")?;
    let is_told = probes.iter().any(|probe| probe["absence"] == "found late");
    ensure!(seen == 12.0 || (seen < 12.0 && is_told), "{seen} of 12 INSERTs: {probes:?}");
    ensure!(number(insert, "/per_operation/fsyncs")? >= 1.0, "{insert}");
    ensure!(number(insert, "/per_operation/filesystem_writes/database/count")? >= 1.0, "{insert}");
    Ok(())
}

/// The driver's library is stripped of all SQLite symbols: the statements cannot be seen, which is reported; its files
/// show the table's creation and the twelve INSERTs.
fn stripped_driver() -> Result<()> {
    let summary = record_jdbc(DRIVER_JAR)?;
    let blind = summary["coverage"].as_array().context("coverage")?.iter().any(|c| {
        c["attached"] == false
            && c["probe"].as_str().is_some_and(|p| p.contains("sqlitejdbc"))
            && c["how"].as_str().is_some_and(|h| h.contains("stripped"))
    });
    ensure!(blind, "nothing says that the driver's SQLite cannot be seen: {:#}", summary["coverage"]);
    let writes = shape_of(&summary, "(WRITE TRANSACTION ON T.DB")?;
    assert_near("write transactions", number(writes, "/count")?, 13.0)?;
    ensure!(number(writes, "/per_operation/flushes")? > 0.0, "{writes}");
    Ok(())
}

fn sudo_user() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (options, uid) in [(&[][..], "65534"), (&["--as-root"][..], "0")] {
        let output = run(Command::new(fathom())
            .args(["record", "-q", "-o"])
            .arg(directory.path().join("t.fathom"))
            .args(options)
            .args(["--", "id", "-u"])
            .env("SUDO_UID", "65534")
            .env("SUDO_GID", "65534"))?;
        let messages = String::from_utf8_lossy(&output.stdout).trim().to_string();
        ensure!(messages.lines().next() == Some(uid), "{options:?}: ran as {messages}");
    }
    Ok(())
}

fn all_records_every_process_while_command_runs() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let archive = directory.path().join("t.fathom");
    let mut recorder = Command::new(fathom())
        .args(["record", "-q", "--all", "-o"])
        .arg(&archive)
        .args(["--", "sh", "-c", "echo up; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut up = [0; 2];
    std::io::Read::read_exact(recorder.stdout.as_mut().context("stdout")?, &mut up)?;
    let other = run(Command::new("sqlite3")
        .arg(disk.path().join("t.db"))
        .arg("create table everyone(i); insert into everyone values (1);"));
    drop(recorder.stdin.take());
    recorder.wait()?;
    other?;
    assert_near(
        "another process's INSERTs",
        number(shape_of(&show(&archive)?, "INSERT INTO EVERYONE")?, "/count")?,
        1.0,
    )
}
