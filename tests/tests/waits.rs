//! What programs wait for above the file system, and programs without SQLite: with programs that know who blocks them, and how often
//! they sync.
//!
//! No time is asserted, only counts that the program itself has, what a sleep was for, and who ended it.

#[path = "waits/account.rs"]
mod account;
#[path = "waits/databases.rs"]
mod databases;
#[path = "waits/files.rs"]
mod files;
#[path = "waits/stacks.rs"]
mod stacks;

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, ext4, fathom, installed, record, root, run, run_suite, show};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let needs = || root().and_then(|()| installed("python3"));
    let cases: Vec<Case> = vec![
        ("syncs_of_program_without_sqlite_are_counted", needs(), syncs_of_program_without_sqlite_are_counted),
        ("every_wait_in_every_operation_is_waiting", needs().and_then(|()| installed("chrt")), account::of_all_pairs),
        ("sleep_before_marks_are_mapped_is_known", needs(), account::before_marks_are_mapped),
        ("waiter_for_wal_names_its_holder", needs(), two_writers),
        ("pipe_futex_and_flock_waits_name_their_ends", needs(), pipe_futex_and_flock_waits_name_their_ends),
        ("calls_on_files_add_up_and_syncs_wait", needs(), files::add_up),
        ("control_answers_once_running_process_is_recorded", needs(), control_answers_once_running_process_is_recorded),
        ("ready_made_operations_are_listed", Ok(()), ready_made_operations_are_listed),
        (
            "write_groups_of_rocksdb_match_its_counters",
            needs().and_then(|()| installed("db_bench")),
            databases::write_groups_of_rocksdb_match_its_counters,
        ),
        (
            "write_groups_of_leveldb_match_its_log",
            needs().and_then(|()| databases::has_plyvel()),
            databases::write_groups_of_leveldb_match_its_log,
        ),
        (
            "slept_in_functions_are_named_exactly",
            needs().and_then(|()| installed("cc")),
            stacks::slept_in_functions_are_named_exactly,
        ),
        ("functions_probed_inside_stay_on_stacks", needs().and_then(|()| installed("cc")), stacks::exact_inside),
        (
            "unknown_callers_end_chain_and_say_so",
            needs().and_then(|()| installed("cc")),
            stacks::unknown_callers_end_chain_and_say_so,
        ),
        ("lost_library_is_read_where_it_is_mapped", needs().and_then(|()| installed("cc")), stacks::of_lost_library),
        (
            "stripped_library_is_named_by_what_is_left",
            needs().and_then(|()| installed("cc")),
            stacks::of_stripped_library,
        ),
        ("closed_library_keeps_its_names", needs().and_then(|()| installed("cc")), stacks::of_closed_library),
        (
            "program_with_own_root_has_names",
            needs().and_then(|()| installed("cc")).and_then(|()| installed("ldd")),
            stacks::of_own_root,
        ),
        ("stacks_of_odd_places_are_whole", needs().and_then(|()| installed("cc")), stacks::of_odd_places),
        ("endless_stack_ends_and_says_why", needs().and_then(|()| installed("cc")), stacks::of_endless_stack),
        ("hostile_function_name_steers_nothing", needs().and_then(|()| installed("objcopy")), stacks::of_hostile_name),
        (
            "function_skipped_on_the_stack_is_reported",
            needs().and_then(|()| installed("musl-gcc")),
            stacks::of_static_program,
        ),
        ("stacks_keep_their_budget", needs().and_then(|()| installed("cc")), stacks::stacks_keep_their_budget),
        (
            "slow_waits_are_shown_unless_off",
            needs().and_then(|()| installed("cc")),
            stacks::slow_waits_are_shown_unless_off,
        ),
        (
            "long::commits_of_mariadb_match_its_counters",
            needs().and_then(|()| installed("mariadbd")).and_then(|()| installed("mariadb-install-db")),
            databases::commits_of_mariadb_match_its_counters,
        ),
    ];
    run_suite(cases)
}

fn operations(summary: &Value) -> Result<&Vec<Value>> {
    summary["operations"].as_array().context("operations[]")
}

/// argv: a directory on a disk.
const SYNC_PROGRAM: &str = r#"
import ctypes, mmap, os, sys
os.chdir(sys.argv[1])
log = os.open("segment.000017.log", os.O_CREAT | os.O_RDWR, 0o644)
for i in range(12):
    os.pwrite(log, b"x" * 4096, 4096 * i)
    os.fsync(log) if i % 4 else os.fdatasync(log)
durable = os.open("durable", os.O_CREAT | os.O_RDWR | os.O_DSYNC, 0o644)
for i in range(5):
    os.pwrite(durable, b"y" * 4096, 4096 * i)
plain = os.open("plain", os.O_CREAT | os.O_RDWR, 0o644)
for i, how in enumerate([os.RWF_DSYNC, os.RWF_SYNC, 0] * 2):
    os.pwritev(plain, [b"z" * 4096], 4096 * i, how)
with mmap.mmap(log, 8192) as area:
    area[:5] = b"hello"
    area.flush()
directory = os.open(".", os.O_RDONLY)
os.fsync(directory)
# What Fathom's object marks its own calls by, in a process that has no object.
hidden = os.open("hidden", os.O_CREAT | os.O_RDWR, 0o644)
fsync = 74 if os.uname().machine == "x86_64" else 82
for i in range(2):
    ctypes.CDLL(None).syscall(fsync, hidden, 0, 0, 0, 0, ctypes.c_long(0x6c6c61436e776f46))
os.posix_fadvise(log, 0, 0, os.POSIX_FADV_DONTNEED)
os.pread(log, 100, 0)
os.pread(log, 100, 0)
os._exit(0)
"#;

fn syncs_of_program_without_sqlite_are_counted() -> Result<()> {
    let disk = ext4()?;
    let directory = tempfile::tempdir()?;
    let options = ["--probes", "uprobe"];
    let archive =
        record(directory.path(), &options, &["python3", "-c", SYNC_PROGRAM, &disk.path().display().to_string()])?;
    let summary = show(&archive)?;
    let all = operations(&summary)?;
    let own = |statement: &str| all.iter().find(|o| o["statement"] == statement);
    for (statement, count) in [
        ("fsync segment.N.log", 9),
        ("fdatasync segment.N.log", 3),
        ("pwrite64 durable", 5),
        ("pwritev2 plain", 4),
        ("fsync hidden", 2),
        ("msync segment.N.log", 1),
        ("pread64 segment.N.log", 1),
    ] {
        let own = own(statement).with_context(|| format!("no {statement}: {all:?}"))?;
        ensure!(own["count"] == count && own["kind"] == "call", "{statement}: {own}");
        ensure!(own["per_operation"]["syscalls"] == 1.0, "a call is one call: {own}");
    }
    let directories = all.iter().filter(|o| o["statement"].as_str().is_some_and(|s| s.starts_with("fsync ")));
    ensure!(directories.count() == 3, "two files, and the directory has a name, too");
    // What is charged to an operation is not also charged to the process: every flush is charged once.
    let flushes = all.iter().filter_map(|o| Some(o["own"]["flushes"].as_f64()? * o["count"].as_f64()?)).sum::<f64>();
    ensure!(flushes >= 12.0, "each sync has a flush: {flushes}");
    let again = disk.path().join("again");
    std::fs::create_dir(&again)?;
    let directory = tempfile::tempdir()?;
    let options = ["--backend", "ftrace"];
    let summary =
        show(&record(directory.path(), &options, &["python3", "-c", SYNC_PROGRAM, &again.display().to_string()])?)?;
    for (statement, count) in [("pwrite64 durable", 5), ("pwritev2 plain", 4)] {
        let own = operations(&summary)?.iter().find(|o| o["statement"] == statement);
        ensure!(own.is_some_and(|own| own["count"] == count), "ftrace: {statement}: {own:?}");
    }
    Ok(())
}

/// argv: a file. Syncs on request only.
const COMMANDED_PROGRAM: &str = r#"
import os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o644)
print("ready", flush=True)
sys.stdin.readline()
for i in range(9):
    os.fsync(file)
print("done", flush=True)
sys.stdin.readline()
"#;

/// A controller that waits for the acknowledgement misses nothing of a running process, and ends the recording without
/// a signal.
fn control_answers_once_running_process_is_recorded() -> Result<()> {
    let (disk, directory) = (ext4()?, tempfile::tempdir()?);
    let fifos = ["ctl", "ack"].map(|name| directory.path().join(name));
    run(Command::new("mkfifo").args(&fifos))?;
    let mut program = Command::new("python3");
    program.args(["-c", COMMANDED_PROGRAM]).arg(disk.path().join("told")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.spawn()?;
    let mut told = BufReader::new(program.stdout.take().context("stdout")?);
    let mut line = String::new();
    told.read_line(&mut line)?;
    for backend in ["ebpf", "ftrace"] {
        let archive = directory.path().join(format!("{backend}.fathom"));
        let mut record = Command::new(fathom());
        record.args(["record", "--quiet", "--no-probe-cost", "--backend", backend, "--pid", &program.id().to_string()]);
        record.arg(format!("--control=fifo:{},{}", fifos[0].display(), fifos[1].display())).arg("-o").arg(&archive);
        let mut record = record.stderr(Stdio::piped()).spawn()?;
        // Opening blocks until the recorder has opened its end.
        let mut commands = std::fs::File::options().write(true).open(&fifos[0])?;
        let mut answers = BufReader::new(std::fs::File::open(&fifos[1])?);
        let mut ask = |what: &str| -> Result<()> {
            let mut line = String::new();
            writeln!(commands, "{what}")?;
            answers.read_line(&mut line)?;
            ensure!(line == "ack\n", "{what}: {line:?}");
            Ok(())
        };
        ask("ping")?;
        let mut stdin = program.stdin.as_ref().context("stdin")?;
        if backend == "ebpf" {
            writeln!(stdin)?;
            line.clear();
            told.read_line(&mut line)?;
        }
        ask("stop")?;
        let status = record.wait()?;
        ensure!(status.success(), "{backend}: {status}");
        let summary = show(&archive)?;
        let operations = operations(&summary)?;
        let syncs = operations.iter().find(|o| o["statement"] == "fsync told").map(|o| &o["count"]);
        ensure!(
            backend != "ebpf" || syncs == Some(&Value::from(9)),
            "{backend}: {:?}, lost {}",
            operations.iter().map(|o| (&o["statement"], &o["count"])).collect::<Vec<_>>(),
            summary["losses"]
        );
    }
    drop(program.stdin.take());
    program.wait()?;
    let refused = |place: &str| Command::new(fathom()).args(["record", "--all", "--control", place]).output();
    for (place, status) in [("fd:x", 2), ("fd:999", 1), ("fifo:/dev/null", 1)] {
        let output = refused(place)?;
        ensure!(output.status.code() == Some(status), "{place}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// argv: database. The parent holds the write lock while the child requests it; its exit tells which process was which.
const TWO_WRITERS_PROGRAM: &str = r#"
import os, sqlite3, sys, time
path = sys.argv[1]
def connect():
    db = sqlite3.connect(path, isolation_level=None, timeout=60)
    db.execute("PRAGMA journal_mode=WAL")
    return db
db = connect()
db.execute("CREATE TABLE t (i)")
db.close()
began, go = os.pipe()
child = os.fork()
def asked():
    # Until the child sleeps in another call than the read of the pipe: it has asked for the lock.
    while True:
        state = open(f"/proc/{child}/stat").read().rsplit(") ", 1)[1][0]
        call = open(f"/proc/{child}/syscall").read().split()[0]
        if state == "S" and call not in ("running", "0" if os.uname().machine == "x86_64" else "63"):
            return 1
        time.sleep(0.001)
if not child:
    db = connect()
    os.read(began, 1)
    db.execute("BEGIN IMMEDIATE")
    db.execute("COMMIT")
    os._exit(0)
db = connect()
db.execute("BEGIN IMMEDIATE")
db.create_function("asked", 0, asked)
os.write(go, b"x")
db.execute("WITH RECURSIVE n(i) AS (SELECT asked() UNION ALL SELECT i + 1 FROM n WHERE i < 4000000) INSERT INTO t SELECT max(i) FROM n")
db.execute("COMMIT")
print(os.getpid(), flush=True)
os.waitpid(child, 0)
os._exit(0)
"#;

fn two_writers() -> Result<()> {
    let disk = ext4()?;
    let directory = tempfile::tempdir()?;
    let archive = record(
        directory.path(),
        &[],
        &["python3", "-c", TWO_WRITERS_PROGRAM, &disk.path().join("x.db").display().to_string()],
    )?;
    let summary = show(&archive)?;
    let all = operations(&summary)?;
    let begin = all.iter().find(|o| o["statement"] == "BEGIN IMMEDIATE").context("no BEGIN")?;
    let waits = begin["waits"].as_array().context("waits[]")?;
    let of_lock = |w: &&Value| w["wait"] == "fcntl lock" && w["by_tgid"].is_u64();
    let lock = waits.iter().find(of_lock).with_context(|| format!("no lock: {begin}"))?;
    ensure!(lock["file"].as_str().is_some_and(|path| path.ends_with("x.db-shm")), "{lock}");
    ensure!(lock["by_process"] == "python3", "{lock}");
    let said = |w: &Value| w["by_statement"].as_str().is_some_and(|text| text.starts_with("WITH RECURSIVE"));
    ensure!(waits.iter().any(said), "the holder's statement: {waits:?}");
    let reasons = &begin["layers"]["Database"]["reasons"];
    let (named, other) = (reasons["fcntl lock"].as_u64(), reasons["other"].as_u64().unwrap_or(0));
    ensure!(named.is_some_and(|ns| ns > 10 * other), "{reasons}");
    let output = run(Command::new(fathom()).args(["explain", "--json"]).arg(&archive))?;
    let explained: Value = serde_json::from_slice(&output.stdout)?;
    let l01 = explained["findings"].as_array().context("findings[]")?.iter().find(|f| f["code"] == "L01");
    let claim = l01.and_then(|f| f["claim"].as_str()).context("no L01")?;
    ensure!(claim.contains("fcntl lock on x.db-shm, held by python3"), "{claim}");
    Ok(())
}

/// argv: a file to lock. Statements whose function waits for a pipe, a thread and a lock, each ended by a known
/// process.
const OTHER_SYNCS_PROGRAM: &str = r#"
import fcntl, os, sqlite3, sys, threading, time
path = sys.argv[1]
parent = os.getpid()
def asleep(task):
    # Until it has slept at five looks in a row: once it may have waited for the interpreter's own lock.
    seen = 0
    while seen < 5:
        time.sleep(0.01)
        seen = seen + 1 if open(f"/proc/{task}/stat").read().rsplit(") ", 1)[1][0] == "S" else 0
ask, asked = os.pipe()
answer, answered = os.pipe()
locked, lock_taken = os.pipe()
child = os.fork()
if not child:
    held = os.open(path, os.O_CREAT | os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    os.write(lock_taken, b"x")
    os.read(ask, 1)
    asleep(parent)
    os.write(answered, b"x")
    os.read(ask, 1)
    asleep(parent)
    fcntl.flock(held, fcntl.LOCK_UN)
    os._exit(0)
os.read(locked, 1)
def pipe():
    os.write(asked, b"x")
    return os.read(answer, 1)
def futex():
    begun, done = threading.Event(), threading.Event()
    def later():
        begun.wait()
        asleep(parent)
        done.set()
    thread = threading.Thread(target=later)
    thread.start()
    begun.set()
    done.wait()
    thread.join()
    return 1
own = os.open(path, os.O_RDWR)
def flock():
    os.write(asked, b"x")
    fcntl.flock(own, fcntl.LOCK_EX)
    return 1
db = sqlite3.connect(":memory:")
for name, function in [("pipe", pipe), ("futex", futex), ("flock", flock)]:
    db.create_function(name, 0, function)
    db.execute(f"SELECT {name}()").fetchall()
os.waitpid(child, 0)
os._exit(0)
"#;

fn pipe_futex_and_flock_waits_name_their_ends() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let lock = directory.path().join("lock").display().to_string();
    let archive = record(directory.path(), &[], &["python3", "-c", OTHER_SYNCS_PROGRAM, &lock])?;
    let summary = show(&archive)?;
    let all = operations(&summary)?;
    let waits = |statement: &str| -> Result<&Vec<Value>> {
        let own = all.iter().find(|o| o["statement"] == statement).with_context(|| format!("no {statement}"))?;
        own["waits"].as_array().context("waits[]")
    };
    let longest = |statement: &str| -> Result<Value> { Ok(waits(statement)?.first().context("no wait")?.clone()) };
    let (pipe, futex, flock) = (longest("SELECT pipe()")?, longest("SELECT futex()")?, longest("SELECT flock()")?);
    ensure!(pipe["wait"] == "pipe" && pipe["by_tgid"].is_u64(), "{pipe}");
    ensure!(futex["wait"] == "futex" && futex["by_tgid"].is_u64(), "{futex}");
    ensure!(flock["wait"] == "flock lock", "{flock}");
    ensure!(flock["file"].as_str().is_some_and(|path| path.ends_with("/lock")), "{flock}");
    // Child and parent have the same name; only their numbers distinguish them.
    ensure!(pipe["by_tgid"] == flock["by_tgid"] && pipe["by_tgid"] != futex["by_tgid"], "{pipe} {futex} {flock}");
    Ok(())
}

fn ready_made_operations_are_listed() -> Result<()> {
    let output = run(Command::new(fathom()).args(["record", "--list-ops"]))?;
    let text = String::from_utf8(output.stdout)?;
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    ensure!(names == ["postgres", "innodb", "rocksdb", "leveldb", "lmdb"], "{text}");
    let output = Command::new(fathom()).args(["record", "--op", "oracle", "--", "true"]).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(2) && said.contains("or one of postgres, innodb"), "{said}");
    Ok(())
}
