//! `fathom check` on real programs: an unchanged one passes, and a seeded regression is found, the right one first.
//!
//! No times are asserted here. A difference must show in three runs, so effects of a busy machine on the device do not count.

#[path = "check/seeded.rs"]
mod seeded;

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, assert_near, ext4, fathom, installed, number, root, run, run_suite, shape_of, show};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

/// argv: journal mode, synchronous, and an extra action: `each` commits each INSERT, `sync` syncs a file of its own, `small` checkpoints
/// often, `scan` drops the index before it queries.
const PYTHON_PROGRAM: &str = r#"
import os, sqlite3, sys
mode, synchronous, extra = sys.argv[1:]
db = sqlite3.connect("t.db", isolation_level=None)
db.execute("PRAGMA journal_mode=" + mode)
db.execute("PRAGMA synchronous=" + synchronous)
db.execute("PRAGMA cache_size=5")
db.execute("PRAGMA wal_autocheckpoint=" + ("5" if extra == "small" else "100000"))
for batch in range(4):
    if extra != "each": db.execute("BEGIN")
    for i in range(5):
        db.execute("INSERT INTO orders VALUES (?, ?)", (1000 + i, "x" * 500))
        if extra == "sync":
            note = os.open("note", os.O_CREAT | os.O_RDWR, 0o644)
            os.write(note, b"x")
            os.fsync(note)
            os.close(note)
    if extra != "each": db.execute("COMMIT")
for i in range(10):
    db.execute("SELECT s FROM items WHERE i=?", (i,)).fetchall()
os._exit(0)
"#;

/// A database with a table of 200 pages, with or without an index.
const MAKE_DATABASE: &str = r#"
import sqlite3, sys
db = sqlite3.connect("t.db", isolation_level=None)
db.execute("CREATE TABLE orders (i INTEGER, s TEXT)")
db.execute("CREATE TABLE items (i INTEGER, s TEXT)")
if sys.argv[1] == "index": db.execute("CREATE INDEX x ON items (i)")
db.execute("BEGIN")
db.executemany("INSERT INTO items VALUES (?, ?)", ((i, "y" * 400) for i in range(2000)))
db.execute("COMMIT")
"#;

fn main() -> ExitCode {
    let needs = |program: &str| root().and_then(|()| installed(program));
    let cases: Vec<Case> = vec![
        ("unchanged_python_passes_and_regressions_are_named", needs("python3"), || regressions(&RULE_REGRESSIONS)),
        ("long::other_regressions_of_python_are_named", needs("python3"), || regressions(&OTHER_REGRESSIONS)),
        (
            "long::unchanged_sqlite3_shell_passes_and_mode_is_named",
            needs("sqlite3"),
            unchanged_sqlite3_shell_passes_and_mode_is_named,
        ),
        (
            "unchanged_git_commit_passes_and_fsync_is_found",
            needs("git"),
            unchanged_git_commit_passes_and_fsync_is_found,
        ),
        ("unchanged_tar_passes_and_more_files_are_found", needs("tar"), unchanged_tar_passes_and_more_files_are_found),
        ("files_that_replace_others_keep_their_names", needs("python3"), files_that_replace_others_keep_their_names),
        ("syncs_of_files_with_random_names_are_found", needs("python3"), random_names),
        (
            "files_below_overlayfs_have_their_names",
            needs("python3").and_then(|()| installed("unshare")),
            files_below_overlayfs_have_their_names,
        ),
        ("added_rename_is_found", needs("python3"), added_rename_is_found),
        ("untraced_counts_find_more_writes", installed("dd"), untraced_counts_find_more_writes),
        (
            "ptrace_counts_the_same_calls_as_bpf",
            root().and(installed("sqlite3")).and(installed("tar")),
            ptrace_counts_the_same_calls_as_bpf,
        ),
        ("ordinary_user_notices_an_added_fsync", root(), ordinary_user_notices_an_added_fsync),
        ("failed_command_and_bad_contract_are_errors", Ok(()), failed_command_and_bad_contract_are_errors),
        ("long::seeded_regressions_are_named_of_git", seeded::needs("git"), || seeded::regressions_are_found("git")),
        ("long::seeded_regressions_are_named_of_sqlite3", seeded::needs("sqlite3"), || {
            seeded::regressions_are_found("sqlite3")
        }),
        ("long::seeded_regressions_are_named_of_svn", seeded::needs("svn"), || seeded::regressions_are_found("svn")),
        ("long::seeded_regressions_are_named_of_svnadmin", seeded::needs("svnadmin"), || {
            seeded::regressions_are_found("svnadmin")
        }),
        ("long::seeded_regressions_are_named_of_django", seeded::needs("django"), || {
            seeded::regressions_are_found("django")
        }),
        ("long::seeded_regressions_are_named_of_redis", seeded::needs("redis"), || {
            seeded::regressions_are_found("redis")
        }),
        ("long::seeded_regressions_are_named_of_tar", seeded::needs("tar"), || seeded::regressions_are_found("tar")),
        ("long::seeded_regressions_are_named_of_sort", seeded::needs("sort"), || seeded::regressions_are_found("sort")),
        ("long::seeded_regressions_are_named_of_dd", seeded::needs("dd"), || seeded::regressions_are_found("dd")),
        ("long::seeded_regressions_are_named_of_dpkg", seeded::needs("dpkg"), || seeded::regressions_are_found("dpkg")),
    ];
    run_suite(cases)
}

fn check_command(directory: &Path, words: &[&str], command: &[&str]) -> Result<Output> {
    let mut check = Command::new(fathom());
    check.arg("check").args(words).current_dir(directory).stdin(Stdio::null());
    if !command.is_empty() {
        check.arg("--").args(command);
    }
    Ok(check.output()?)
}

fn record_contract(directory: &Path, options: &[&str], command: &[&str]) -> Result<()> {
    let output = check_command(directory, &[&["record"], options].concat(), command)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Checks again: no difference. `long::check_never_fails_*` of the suite `fix` show that there never is one.
fn assert_passes(directory: &Path) -> Result<()> {
    let output = check_command(directory, &[], &[])?;
    let messages = [&output.stdout[..], &output.stderr].concat();
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&messages));
    Ok(())
}

fn assert_fails(directory: &Path, options: &[&str], command: &[&str]) -> Result<Value> {
    let output = check_command(directory, &[&["--json"], options].concat(), command)?;
    let outcome: Value =
        serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    ensure!(output.status.code() == Some(1) && outcome["passed"] == false, "{command:?}: {outcome}");
    Ok(outcome)
}

fn text<'a>(outcome: &'a Value, name: &str) -> &'a str {
    outcome[name].as_str().unwrap_or_default()
}

/// Arguments of the program; the statement and the count that differ first, and the expected text of the reason.
type Regression = ([&'static str; 3], &'static str, &'static str, &'static str);

const INSERT_STATEMENT: &str = "INSERT INTO orders VALUES (?, ?)";

/// A setting and a use of transactions; a missing index follows, and calls outside statements are covered by `git` and `tar`. The
/// rules themselves are tested in `analysis`.
const RULE_REGRESSIONS: [Regression; 2] = [
    (["delete", "full", "-"], "COMMIT", "fdatasync", "journal_mode changed from WAL to DELETE"),
    (["wal", "full", "each"], INSERT_STATEMENT, "fdatasync WAL", "no longer share a transaction"),
];

/// The other rules that name a reason, a call outside statements, and other values of the same settings.
const OTHER_REGRESSIONS: [Regression; 5] = [
    (["wal", "off", "-"], "COMMIT", "fdatasync WAL", "synchronous"),
    (["wal", "full", "small"], "COMMIT", "WAL checkpoints", "checkpointed"),
    (["wal", "full", "sync"], "", "fsync file", ""),
    (["truncate", "full", "-"], "COMMIT", "fdatasync", "journal_mode changed from WAL to TRUNCATE"),
    (["wal", "normal", "-"], "COMMIT", "fdatasync WAL", "synchronous"),
];

fn regressions(all: &[Regression]) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let here = directory.path();
    std::fs::write(here.join("app.py"), PYTHON_PROGRAM)?;
    std::fs::write(here.join("make.py"), MAKE_DATABASE)?;
    let prepare = |index: &str| format!("rm -f t.db* note; python3 make.py {index}");
    let app = |arguments: [&'static str; 3]| [&["python3", "app.py"][..], &arguments].concat();
    record_contract(here, &["--prepare", &prepare("index")], &app(["wal", "full", "-"]))?;
    assert_passes(here)?;
    for (arguments, statement, what, because) in all.iter().copied() {
        let outcome = assert_fails(here, &[], &app(arguments))?;
        let first = &outcome["differences"][0];
        ensure!(text(first, "statement") == statement, "{arguments:?}: {outcome}");
        ensure!(text(first, "what").starts_with(what), "{arguments:?}: {outcome}");
        ensure!(text(&outcome, "because").contains(because), "{arguments:?}: {outcome}");
        println!("{arguments:?}: {}; {}", text(&outcome, "first"), text(&outcome, "because"));
    }
    let outcome = assert_fails(here, &["--prepare", &prepare("none")], &app(["wal", "full", "-"]))?;
    ensure!(text(&outcome, "first").starts_with("SELECT s FROM items WHERE i=?: +"), "{outcome}");
    ensure!(text(&outcome, "because").contains("index is missing"), "{outcome}");
    println!("no index: {}", text(&outcome, "first"));
    Ok(())
}

fn unchanged_sqlite3_shell_passes_and_mode_is_named() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let sql =
        |mode: &str| format!("PRAGMA journal_mode={mode}; CREATE TABLE t (x); INSERT INTO t VALUES (1); DELETE FROM t");
    record_contract(directory.path(), &["--prepare", "rm -f t.db*"], &["sqlite3", "t.db", &sql("delete")])?;
    assert_passes(directory.path())?;
    let outcome = assert_fails(directory.path(), &[], &["sqlite3", "t.db", &sql("persist")])?;
    ensure!(text(&outcome, "because").contains("journal_mode changed from DELETE to PERSIST"), "{outcome}");
    Ok(())
}

fn unchanged_git_commit_passes_and_fsync_is_found() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let prepare = "rm -rf r && git init -q r && echo x > r/f && git -C r add f";
    let commit = |sync: &'static str| {
        let settings = ["git", "-C", "r", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0", "-c", sync];
        [&settings[..], &["commit", "-q", "-m", "x"]].concat()
    };
    record_contract(directory.path(), &["--prepare", prepare], &commit("core.fsync=none"))?;
    assert_passes(directory.path())?;
    let outcome = assert_fails(directory.path(), &[], &commit("core.fsync=all"))?;
    // A sync by a program without SQLite is an operation of its own, named after its file.
    ensure!(text(&outcome["differences"][0], "statement").starts_with("fsync tmp_obj"), "{outcome}");
    ensure!(text(&outcome, "first").contains("0 -> "), "{outcome}");
    println!("git: {}", text(&outcome, "first"));
    Ok(())
}

fn unchanged_tar_passes_and_more_files_are_found() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let make = |files: u32| format!("rm -rf d t.tar; mkdir d; for i in $(seq {files}); do echo $i > d/$i; done");
    record_contract(directory.path(), &["--prepare", &make(20)], &["tar", "cf", "t.tar", "d"])?;
    assert_passes(directory.path())?;
    let outcome = assert_fails(directory.path(), &["--prepare", &make(200)], &[])?;
    ensure!(outcome["differences"].to_string().contains("open file"), "{outcome}");
    Ok(())
}

/// Files get the inodes of replaced files, which are not reported as removed; a directory has no name before its first sync. One process
/// uses SQLite, so its syncs are calls outside of statements; each of the other's is an execution.
const REPLACE_PROGRAM: &str = r#"
import os, sqlite3
for name in ("left", "right"):
    if os.fork() == 0:
        os.mkdir(name)
        if name == "left":
            sqlite3.connect(":memory:").execute("SELECT 1").fetchall()
        for i in range(100):
            new = os.path.join(name, f"new-{i}")
            os.mkdir(new)
            directory = os.open(new, os.O_RDONLY)
            for target in ("status", "available"):
                file = os.open(os.path.join(new, target), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                os.write(file, b"x")
                os.fdatasync(file)
                os.close(file)
                os.rename(os.path.join(new, target), os.path.join(name, "current"))
            os.fsync(directory)
            os.close(directory)
            os.rmdir(new)
        os._exit(0)
os.wait(), os.wait()
"#;

fn files_that_replace_others_keep_their_names() -> Result<()> {
    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join("replace.py"), REPLACE_PROGRAM)?;
    record_contract(directory.path(), &["--prepare", "rm -rf left right"], &["python3", "replace.py"])?;
    let written = std::fs::read_to_string(directory.path().join("fathom-check.toml"))?;
    let contract: toml::Value = toml::from_str(&written)?;
    let outside = |what: &str| contract["program"]["exact"].get(what).and_then(toml::Value::as_integer);
    ensure!((outside("fdatasync file"), outside("fsync directory")) == (Some(200), Some(100)), "{written}");
    let executions = contract["statement"].as_array().context("no statement")?.iter();
    let executions: BTreeMap<&str, i64> = executions
        .filter_map(|one| Some((one["text"].as_str()?, one.get("exact")?.get("executions")?.as_integer()?)))
        .collect();
    let expected = [("SELECT ?", 1), ("fdatasync available", 100), ("fdatasync status", 100), ("fsync new-N", 100)];
    ensure!(executions == expected.into(), "{written}");
    Ok(())
}

/// Files that are saved as editors and package managers do it: a random name, syncs, the right name.
const SAVE_PROGRAM: &str = r#"
import os, sys, tempfile
os.makedirs("out", exist_ok=True)
for i in range(6):
    file, name = tempfile.mkstemp(dir="out")
    os.write(file, b"x" * 100)
    for _ in range(int(sys.argv[1])): os.fsync(file)
    os.close(file)
    os.rename(name, f"out/{i}.json")
"#;

/// Each sync is of another name in each run: names that differ are one, and the whole program's calls show what was not there before.
fn random_names() -> Result<()> {
    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join("saves.py"), SAVE_PROGRAM)?;
    let saves = |syncs: &'static str| ["python3", "saves.py", syncs];
    for (recorded, others) in [("1", ["0", "2"]), ("0", ["1", "3"])] {
        record_contract(directory.path(), &["--prepare", "rm -rf out"], &saves(recorded))?;
        assert_passes(directory.path())?;
        for other in others {
            let outcome = assert_fails(directory.path(), &[], &saves(other))?;
            let [was, is] = [recorded, other].map(|n| n.parse::<u64>().map_or(0, |n| 6 * n));
            let said = format!("fsync file ({was} -> {is})");
            ensure!(text(&outcome, "first").contains(&said), "{recorded}, {other}: {outcome}");
        }
    }
    Ok(())
}

/// In a container's file system: calls on a file of the overlay are of an inode of the file system below, be the file older and
/// copied when it is first written, or new.
const OVERLAY_PROGRAM: &str = r#"
import os
older, new = os.open("merged/older", os.O_RDWR), os.open("merged/new", os.O_RDWR | os.O_CREAT)
for i in range(5):
    os.pwrite(older, b"x" * 5000, 0)
    os.fdatasync(older)
for i in range(3):
    os.write(new, b"y" * 5000)
    os.fsync(new)
os.rename("merged/new", "merged/renamed")
again = os.open("merged/renamed", os.O_RDWR)
os.pwrite(again, b"z", 0)
os.fsync(again)
"#;

fn files_below_overlayfs_have_their_names() -> Result<()> {
    let disk = ext4()?;
    let here = disk.path();
    std::fs::write(here.join("program.py"), OVERLAY_PROGRAM)?;
    for directory in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir(here.join(directory))?;
    }
    std::fs::write(here.join("lower/older"), "old")?;
    // The mount ends with the namespace of the command.
    let mount =
        "mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged && exec python3 program.py";
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(fathom());
    command.current_dir(here).args(["record", "--quiet", "-o"]).arg(directory.path().join("t.fathom"));
    run(command.args(["--", "unshare", "-m", "sh", "-c", mount]))?;
    let summary = show(&directory.path().join("t.fathom"))?;
    for (syncs, count) in [("FDATASYNC OLDER", 5.0), ("FSYNC NEW", 3.0), ("FSYNC RENAMED", 1.0)] {
        assert_near(syncs, number(shape_of(&summary, syncs)?, "/count")?, count)?;
    }
    Ok(())
}

fn untraced_counts_find_more_writes() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let copy = |blocks: &'static str| ["dd", "if=/dev/zero", "of=f", "bs=1000", "status=none", blocks];
    record_contract(directory.path(), &["--no-trace"], &copy("count=20"))?;
    let written = std::fs::read_to_string(directory.path().join("fathom-check.toml"))?;
    ensure!(written.contains("\"write calls\" = 20") && written.contains("counted_by = \"/proc/PID/io\""), "{written}");
    let output = check_command(directory.path(), &[], &[])?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() && messages.contains("syncs, statements"), "{messages}");
    let outcome = assert_fails(directory.path(), &[], &copy("count=21"))?;
    ensure!(
        outcome["counted_by"] == "/proc/PID/io" && outcome["differences"].to_string().contains("write calls"),
        "{outcome}"
    );
    Ok(())
}

fn failed_command_and_bad_contract_are_errors() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let says = |words: &[&str], command: &[&str], code: i32, expected: &str| {
        let output = check_command(directory.path(), words, command)?;
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(code) && messages.contains(expected), "{words:?}: {messages}");
        Ok(())
    };
    says(&[], &["true"], 1, "fathom check record -o fathom-check.toml")?;
    says(&["record", "--no-trace"], &["/no/such/program"], 1, "/no/such/program")?;
    says(&["record", "--no-trace"], &["sh", "-c", "exit 3"], 1, "exit status 3")?;
    says(&["record"], &[], 2, "CMD")?;
    std::fs::write(directory.path().join("bad.toml"), "version = 9")?;
    says(&["bad.toml"], &["true"], 1, "version 9")
}

/// A rename is recorded without its file, and counts in the whole program's calls all the same.
fn added_rename_is_found() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = "import os, sys\nopen('f', 'w').close()\nfor i in range(int(sys.argv[1])): os.rename('f', 'f')\n";
    std::fs::write(directory.path().join("renames.py"), program)?;
    let renames = |times: &'static str| ["python3", "-B", "renames.py", times];
    record_contract(directory.path(), &[], &renames("1"))?;
    assert_passes(directory.path())?;
    for (times, said) in [("2", "rename (1 -> 2)"), ("0", "rename (1 -> 0)")] {
        let outcome = assert_fails(directory.path(), &[], &renames(times))?;
        ensure!(text(&outcome, "first").contains(said), "{outcome}");
    }
    Ok(())
}

/// Without statements and the device, but the same calls by the same names: BPF is the oracle.
fn ptrace_counts_the_same_calls_as_bpf() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let here = directory.path();
    std::fs::write(here.join("saves.py"), SAVE_PROGRAM)?;
    let sql = "CREATE TABLE t (x); INSERT INTO t VALUES (1); DELETE FROM t";
    let programs: [(&str, &[&str]); 4] = [
        ("rm -f t.db*", &["sqlite3", "t.db", sql]),
        ("rm -f f", &["dd", "if=/dev/zero", "of=f", "bs=1000", "count=20", "conv=fsync", "status=none"]),
        ("rm -rf d t.tar; mkdir d; for i in 1 2 3 4 5; do echo $i > d/$i; done", &["tar", "cf", "t.tar", "d"]),
        ("rm -rf out", &["python3", "-B", "saves.py", "1"]),
    ];
    for (prepare, command) in programs {
        record_contract(here, &["--prepare", prepare, "--runs", "2"], command)?;
        let contract: toml::Value = toml::from_str(&std::fs::read_to_string(here.join("fathom-check.toml"))?)?;
        run(Command::new("sh").args(["-c", prepare]).current_dir(here))?;
        check_command(here, &["calls", "--count", "-o", "counts.json"], command)?;
        let counts: Value = serde_json::from_slice(&std::fs::read(here.join("counts.json"))?)?;
        let calls = counts["calls"].as_object().context("no calls")?.iter();
        // A recording's total has no bytes, and does not know the file of a rename.
        let in_recording = |name: &'_ String| if name == "rename file" { "rename".into() } else { name.clone() };
        let calls: BTreeMap<String, i64> = calls
            .filter(|(name, _)| !name.starts_with("bytes"))
            .filter_map(|(name, n)| Some((in_recording(name), n.as_i64()?)))
            .collect();
        let exact = contract["total"]["exact"].as_table().context("no total")?.iter();
        // By ptrace a directory that is made is not seen.
        let exact = exact.filter(|(name, _)| *name != "mkdir");
        let expected: BTreeMap<String, i64> =
            exact.filter_map(|(name, n)| Some((name.clone(), n.as_integer()?))).collect();
        ensure!(!expected.is_empty() && calls == expected, "{command:?}: ptrace {calls:?}, BPF {expected:?}");
    }
    Ok(())
}

/// A user who may not use BPF has a contract all the same.
fn ordinary_user_notices_an_added_fsync() -> Result<()> {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    use std::os::unix::process::CommandExt as _;
    const NOBODY: u32 = 65534;
    let directory = tempfile::tempdir()?;
    // The program under test may be below a directory that only root may enter.
    let program = directory.path().join("fathom");
    std::fs::copy(fathom(), &program)?;
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))?;
    let here = directory.path().join("home");
    std::fs::create_dir(&here)?;
    std::fs::write(here.join("saves.py"), SAVE_PROGRAM)?;
    chown(&here, Some(NOBODY), Some(NOBODY))?;
    let check = |words: &[&str], syncs: &str| -> Result<Output> {
        let mut check = Command::new(&program);
        check.arg("check").args(words).args(["--", "/usr/bin/python3", "-B", "saves.py", syncs]);
        check.current_dir(&here).env("HOME", &here).uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
        Ok(check.output()?)
    };
    let recorded = check(&["record", "--prepare", "rm -rf out"], "1")?;
    let said = String::from_utf8_lossy(&recorded.stderr).into_owned();
    let contract = std::fs::read_to_string(here.join("fathom-check.toml")).unwrap_or_default();
    ensure!(recorded.status.success() && said.contains("counted by ptrace"), "{said}");
    ensure!(contract.contains("counted_by = \"ptrace\"") && contract.contains("\"fsync file\" = 6"), "{contract}");
    ensure!(check(&[], "1")?.status.success());
    let output = check(&["--json"], "2")?;
    let outcome: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(output.status.code() == Some(1) && outcome["counted_by"] == "ptrace", "{outcome}");
    ensure!(text(&outcome, "first").contains("+6 fsync file (6 -> 12)"), "{outcome}");
    Ok(())
}
