//! `fathom fix`, `fathom whatif` and the truth they are compared with: through the program, on disks of their own.
//!
//! No speed is asserted. The assertions are that everything is restored, that durability is given up only on request, that a removed
//! sync is gone from the prediction, and that an injected cause is found.

use anyhow::{Context, Result, ensure};
use fathom_tests::contracts::check_contract;
use fathom_tests::truth::{Place, causes};
use fathom_tests::{Case, ext4, fathom, installed, root, run, run_suite, wait_until};
use serde_json::Value;
use stats::random::Random;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};

fn main() -> ExitCode {
    let python = || installed("python3");
    let needs = || root().and_then(|()| installed("python3")).and_then(|()| installed("chrt"));
    let repeated = |program: &str| root().and_then(|()| installed(program));
    let cases: Vec<Case> = vec![
        ("kept_recording_is_predicted_without_syncs", Ok(()), kept_recording),
        ("unknown_removal_and_benchmark_are_refused", Ok(()), unknown_removal_and_benchmark_are_refused),
        ("database_is_unchanged_and_copy_is_removed", python(), database_is_unchanged_and_copy_is_removed),
        ("best_that_is_allowed_is_applied", python(), best_that_is_allowed_is_applied),
        ("connection_settings_reach_shared_sqlite_only", python(), connection_settings_reach_shared_sqlite_only),
        ("findings_of_recording_choose_remedies", needs(), findings_of_recording_choose_remedies),
        ("mount_is_restored_after_interrupt", needs(), mount_is_restored_after_interrupt),
        ("interrupt_of_diagnosis_removes_copy", needs(), diagnosis_interrupted),
        ("interrupted_check_leaves_nothing", installed("sleep"), check_interrupted),
        ("killed_run_is_restored_by_next", needs(), killed_run_is_restored_by_next),
        ("injected_causes_come_first", needs(), injected_causes_come_first),
        ("long::check_never_fails_without_change_of_git_commit", repeated("git"), || check_never_fails("git_commit")),
        ("long::check_never_fails_without_change_of_git_add", repeated("git"), || check_never_fails("git_add")),
        ("long::check_never_fails_without_change_of_sqlite3_delete", repeated("sqlite3"), || {
            check_never_fails("sqlite3_delete")
        }),
        ("long::check_never_fails_without_change_of_sqlite3_wal", repeated("sqlite3"), || {
            check_never_fails("sqlite3_wal")
        }),
        ("long::check_never_fails_without_change_of_python_sqlite", repeated("python3"), || {
            check_never_fails("python_sqlite")
        }),
        ("long::check_never_fails_without_change_of_python_dbm", repeated("python3"), || {
            check_never_fails("python_dbm")
        }),
        ("long::check_never_fails_without_change_of_cp", repeated("cp"), || check_never_fails("cp")),
        ("long::check_never_fails_without_change_of_tar", repeated("tar"), || check_never_fails("tar")),
        ("long::check_never_fails_without_change_of_gzip", repeated("gzip"), || check_never_fails("gzip")),
        ("long::check_never_fails_without_change_of_sort", repeated("sort"), || check_never_fails("sort")),
        ("long::check_never_fails_without_change_of_dd", repeated("dd"), || check_never_fails("dd")),
    ];
    run_suite(cases)
}

fn whatif(archive: &str, arguments: &[&str]) -> Result<Output> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("archives").join(archive);
    let directory = tempfile::tempdir()?;
    let copy = directory.path().join("t.fathom");
    run(Command::new("cp").arg("-r").arg(&path).arg(&copy))?;
    Ok(Command::new(fathom()).arg("whatif").arg(&copy).args(arguments).stdin(Stdio::null()).output()?)
}

fn kept_recording() -> Result<()> {
    let output = whatif("v3-linux-6.18-virtio", &["--without", "sync", "--json"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let done: Value = serde_json::from_slice(&output.stdout)?;
    let total = &done["total"];
    let [before, after] = ["recorded_ns", "predicted_ns"].map(|name| total[name].as_u64().unwrap_or(0));
    let gone = done["removed"][0]["time_ns"].as_u64().context("time_ns")?;
    ensure!(done["version"] == 1 && before.abs_diff(after + gone) <= 2 && gone > 0, "{done}");
    // The duration of the calls by their own spans: another table than the slices that were replayed.
    let directory = tempfile::tempdir()?;
    let copy = directory.path().join("t.fathom");
    run(Command::new("cp")
        .arg("-r")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("archives/v3-linux-6.18-virtio"))
        .arg(&copy))?;
    let mut syncs = 0;
    for span in fathom_tests::rows(&copy, "spans")? {
        if ["fsync", "fdatasync"].contains(&span["kind"].as_str())
            && span["layer"] == "Syscall"
            && !span["operation"].is_empty()
        {
            syncs += span["end_ns"].parse::<u64>()? - span["start_ns"].parse::<u64>()?;
        }
    }
    ensure!(gone == syncs, "{gone} and {syncs}");
    Ok(())
}

fn unknown_removal_and_benchmark_are_refused() -> Result<()> {
    let said = |archive: &str, arguments: &[&str]| -> Result<(Option<i32>, String)> {
        let output = whatif(archive, arguments)?;
        Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    let (code, text) = said("v3-linux-6.18-virtio", &["--without", "checkpoint"])?;
    ensure!(
        code == Some(1) && text.contains("no statement ran a WAL checkpoint") && text.contains("fdatasync"),
        "{text}"
    );
    let (code, text) = said("v3-linux-6.18-virtio", &["--without", "nothing"])?;
    ensure!(code == Some(2) && text.contains("directory-sync"), "{text}");
    let (code, text) = said("v3-linux-6.18-virtio", &[])?;
    ensure!(code == Some(2) && text.contains("--without, --device or --queue"), "{text}");
    let (code, text) = said("v3-bench", &["--without", "flush"])?;
    ensure!(code == Some(1) && text.contains("not a recording"), "{text}");
    Ok(())
}

/// argv: the database.
const APP_PROGRAM: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
for i in range(5):
    db.execute("INSERT INTO t VALUES (?)", (i,))
"#;

/// A database with a table in a directory.
fn make_database(directory: &Path) -> Result<PathBuf> {
    let path = directory.join("app.db");
    let make = "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute('CREATE TABLE t (x)'); d.commit()";
    run(Command::new("python3").args(["-c", make]).arg(&path))?;
    Ok(path)
}

fn fix(directory: &Path, database: &Path, options: &[&str], command: &[&str]) -> Command {
    let mut fix = Command::new(fathom());
    fix.args(["fix", "--quiet", "-o"]).arg(directory.join("fix.fathom")).arg("--database").arg(database).args(options);
    fix.arg("--").args(command).current_dir(directory).stdin(Stdio::null());
    fix
}

fn json(output: &Output) -> Result<Value> {
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let value = serde_json::from_slice(&output.stdout).context("--json")?;
    check_contract("fix", &value)?;
    Ok(value)
}

const RUN_COMMAND: [&str; 4] = ["python3", "-c", APP_PROGRAM, "{db}"];

fn hidden_files(directory: &Path) -> Result<Vec<String>> {
    let names = std::fs::read_dir(directory)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.starts_with('.')).collect())
}

fn database_is_unchanged_and_copy_is_removed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let database = make_database(directory.path())?;
    let before = std::fs::read(&database)?;
    let options = ["--try", "wal,page-8192", "--blocks", "2", "--json"];
    let done = json(&fix(directory.path(), &database, &options, &RUN_COMMAND).output()?)?;
    let tried = done["tried"].as_array().context("tried[]")?;
    ensure!(tried.len() == 2 && tried.iter().all(|t| t["failure"].is_null()), "{done}");
    ensure!(std::fs::read(&database)? == before, "the database was changed");
    ensure!(hidden_files(directory.path())?.is_empty(), "{:?}", hidden_files(directory.path())?);
    let output = fix(directory.path(), &database, &["--try", "wal"], &["true"]).output()?;
    ensure!(output.status.code() == Some(2), "a command that does not use the copy would use the database");
    Ok(())
}

/// A program that is slow unless its connection is set to sync less: by much more than any machine's noise.
const LAGGING_PROGRAM: &str = r#"
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
time.sleep({2: 1.5, 1: 0, 0: 0}[db.execute("PRAGMA synchronous").fetchone()[0]])
"#;

fn best_that_is_allowed_is_applied() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let database = make_database(directory.path())?;
    let command = ["python3", "-c", LAGGING_PROGRAM, "{db}"];
    let options = ["--try", "wal-normal", "--blocks", "6", "--allow", "last-commits", "--apply", "--json"];
    let done = json(&fix(directory.path(), &database, &options, &command).output()?)?;
    let tried = &done["tried"][0];
    ensure!(done["best"] == "wal-normal" && tried["verdict"] == "faster" && tried["allowed"] == true, "{done}");
    ensure!(tried["remedy"]["durability"] == "last-commits", "{done}");
    let ask = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('PRAGMA journal_mode').fetchone()[0])";
    let mode = run(Command::new("python3").args(["-c", ask]).arg(&database))?.stdout;
    ensure!(String::from_utf8_lossy(&mode).trim() == "wal", "--apply sets what lasts");
    Ok(())
}

fn connection_settings_reach_shared_sqlite_only() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let database = make_database(directory.path())?;
    let options = ["--try", "off,wal", "--blocks", "1", "--json"];
    // Our own SQLite is linked into the program.
    let own = fathom().canonicalize()?.display().to_string();
    let command = [own.as_str(), "workload", "variant", "--database", "{db}", "{db}.2"];
    let done = json(&fix(directory.path(), &database, &options, &command).output()?)?;
    let name = |list: &str| done[list][0].pointer("/remedy/name").or(done[list][0].get("name")).cloned();
    ensure!(name("tried") == Some("wal".into()) && name("not_tried") == Some("off".into()), "{done}");
    ensure!(done["not_tried"][0]["why"].as_str().is_some_and(|why| why.contains("linked into it")), "{done}");
    Ok(())
}

fn findings_of_recording_choose_remedies() -> Result<()> {
    let disk = ext4()?;
    let database = make_database(disk.path())?;
    let directory = tempfile::tempdir()?;
    let many = APP_PROGRAM.replace("range(5)", "range(40)");
    let output =
        fix(directory.path(), &database, &["--blocks", "1", "--json"], &["python3", "-c", &many, "{db}"]).output()?;
    let done = json(&output)?;
    let findings = done["findings"].as_array().context("findings[]")?;
    ensure!(findings.iter().any(|code| code == "J02" || code == "S01"), "{done}");
    let names: Vec<&str> =
        done["tried"].as_array().context("tried[]")?.iter().filter_map(|t| t["remedy"]["name"].as_str()).collect();
    ensure!(names.contains(&"wal") && names.contains(&"wal-normal"), "{names:?}");
    Ok(())
}

/// Whether a mount has an option.
fn mount_has_option(mount: &Path, option: &str) -> Result<bool> {
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let line = mounts.lines().find(|line| line.split(' ').nth(1) == mount.to_str()).context("not mounted")?;
    Ok(line.split(' ').nth(3).is_some_and(|options| options.split(',').any(|own| own == option)))
}

/// A run that is currently timing a command on a remounted file system.
fn under_way(directory: &Path, database: &Path, mount: &Path) -> Result<Child> {
    let at = mount.display().to_string();
    let options = ["--scratch", &at, "--try", "mount-nobarrier", "--blocks", "1000"];
    let child = fix(directory, database, &options, &RUN_COMMAND).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    wait_until("nobarrier", || mount_has_option(mount, "nobarrier"))?;
    Ok(child)
}

fn mount_is_restored_after_interrupt() -> Result<()> {
    let (disk, directory) = (ext4()?, tempfile::tempdir()?);
    let database = make_database(disk.path())?;
    let mut child = under_way(directory.path(), &database, disk.path())?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let status = child.wait()?;
    ensure!(status.code() == Some(130), "{status}");
    ensure!(!mount_has_option(disk.path(), "nobarrier")? && hidden_files(disk.path())?.is_empty());
    Ok(())
}

/// Sends a signal to a process alone, and waits for its end.
fn ended_by(signal: &str, child: &mut Child) -> Result<std::process::ExitStatus> {
    run(Command::new("kill").args([signal, &child.id().to_string()]))?;
    Ok(child.wait()?)
}

/// Before the first block, too: while the command is recorded, and while it is checked whether its SQLite can be reached.
fn diagnosis_interrupted() -> Result<()> {
    let program = "import os, sys, time; open('pid', 'w').write(str(os.getpid()) + '\\n'); time.sleep(600)";
    for (options, signal) in [(&[][..], "-TERM"), (&["--try", "truncate"], "-INT")] {
        let (directory, temporary) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let database = make_database(directory.path())?;
        let mut child = fix(directory.path(), &database, options, &["python3", "-c", program, "{db}"])
            .env("TMPDIR", temporary.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pid = || std::fs::read_to_string(directory.path().join("pid")).unwrap_or_default();
        wait_until("the program", || Ok(pid().ends_with('\n')))?;
        let status = ended_by(signal, &mut child)?;
        ensure!(status.code() == Some(130), "{options:?}: {status}");
        ensure!(hidden_files(directory.path())?.is_empty(), "{options:?}: {:?}", hidden_files(directory.path())?);
        ensure!(temporary.path().read_dir()?.next().is_none(), "{options:?}: files are left in TMPDIR");
        wait_until("its end", || Ok(!Path::new("/proc").join(pid().trim()).exists()))?;
    }
    Ok(())
}

fn check_interrupted() -> Result<()> {
    let (directory, temporary) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut child = Command::new(fathom())
        .args(["check", "record", "--no-trace", "--", "sh", "-c", "echo > begun; sleep 600"])
        .current_dir(directory.path())
        .env("TMPDIR", temporary.path())
        .stderr(Stdio::null())
        .spawn()?;
    wait_until("the command", || Ok(directory.path().join("begun").exists()))?;
    let status = ended_by("-INT", &mut child)?;
    ensure!(status.code() == Some(130), "{status}");
    ensure!(temporary.path().read_dir()?.next().is_none(), "files are left in TMPDIR");
    Ok(())
}

fn killed_run_is_restored_by_next() -> Result<()> {
    let (disk, directory) = (ext4()?, tempfile::tempdir()?);
    let database = make_database(disk.path())?;
    let mut child = under_way(directory.path(), &database, disk.path())?;
    child.kill()?;
    child.wait()?;
    ensure!(!hidden_files(disk.path())?.is_empty(), "the copy was removed by nobody");
    let output = run(Command::new(fathom()).args(["fix", "--list"]))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(said.contains("put back"), "{said}");
    ensure!(!mount_has_option(disk.path(), "nobarrier")? && hidden_files(disk.path())?.is_empty());
    Ok(())
}

/// The causes that show in counts, so that another program on this machine cannot hide them.
fn injected_causes_come_first() -> Result<()> {
    let list = causes::read_list()?;
    let place = Place::new(None)?;
    let mut random = Random::new(20_261_125);
    for name in ["autocommit loop", "rollback journal created and deleted per transaction", "missing index"] {
        let cause = list.cause.iter().find(|cause| cause.name == name).with_context(|| name.to_owned())?;
        let trial = causes::run_trial(&place, cause, &mut random)?;
        ensure!(trial.has_finding(cause), "{name}: {trial:?}");
    }
    Ok(())
}

/// Programs from which a contract is learnt and against which it is checked repeatedly: the preparation of each run, and the
/// program.
const HEALTHY_PROGRAMS: [(&str, &str, &str); 11] = [
    (
        "git_commit",
        "rm -rf r && git init -q r && echo a > r/a",
        "git -C r -c user.name=a -c user.email=a@b commit -qm x --allow-empty",
    ),
    ("git_add", "rm -rf r && git init -q r && echo a > r/a", "git -C r add a"),
    ("sqlite3_delete", "rm -f a.db*", "sqlite3 a.db 'CREATE TABLE t (x); INSERT INTO t VALUES (1)'"),
    (
        "sqlite3_wal",
        "rm -f a.db*",
        "sqlite3 a.db 'PRAGMA journal_mode=wal; CREATE TABLE t (x); INSERT INTO t VALUES (1)'",
    ),
    (
        "python_sqlite",
        "rm -f a.db*",
        "python3 -c 'import sqlite3; d = sqlite3.connect(\"a.db\"); d.execute(\"CREATE TABLE t (x)\"); d.commit()'",
    ),
    (
        "python_dbm",
        "rm -f d*",
        "python3 -c 'import dbm.dumb; d = dbm.dumb.open(\"d\", \"c\"); d[\"a\"] = \"b\"; d.close()'",
    ),
    ("cp", "seq 100000 > big", "cp big copy"),
    ("tar", "rm -rf t && mkdir t && seq 1000 > t/a", "tar cf t.tar t"),
    ("gzip", "seq 100000 > big; rm -f big.gz", "gzip -k big"),
    ("sort", "seq 100000 > big", "sort -n -o sorted big"),
    ("dd", "rm -f f", "dd if=/dev/zero of=f bs=4096 count=50 conv=fsync status=none"),
];
const REPEAT_COUNT: usize = 50;

/// One of the programs, unchanged: a separate test for each, of some four minutes, so that CI can run some of them.
fn check_never_fails(name: &str) -> Result<()> {
    let (_, prepare, line) =
        HEALTHY_PROGRAMS.iter().find(|(program, ..)| *program == name).context("no such program")?;
    let directory = tempfile::tempdir()?;
    let check = |words: &[&str], command: &[&str]| -> Result<Output> {
        let mut check = Command::new(fathom());
        check.arg("check").args(words).current_dir(directory.path()).stdin(Stdio::null());
        if !command.is_empty() {
            check.arg("--").args(command);
        }
        Ok(check.output()?)
    };
    let output = check(&["record", "--prepare", prepare], &["sh", "-c", line])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut failed = Vec::new();
    for nth in 0..REPEAT_COUNT {
        let output = check(&[], &[])?;
        if !output.status.success() {
            let messages = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
            failed.push(format!("run {nth}: {messages}"));
        }
    }
    ensure!(failed.is_empty(), "{} of {REPEAT_COUNT} failed:\n{}", failed.len(), failed.join("\n"));
    Ok(())
}
