//! Ready-made operations on real databases, whose commits are grouped, compared with their own counters.

use anyhow::{Context as _, Result, ensure};
use fathom_tests::{assert_near, ext4, fathom, rows, run, show};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Records a command; returns the archive and the command's stdout.
pub fn record_command(directory: &Path, ops: &[&str], argv: &[&str]) -> Result<(PathBuf, String)> {
    let archive = directory.join("t.fathom");
    let mut command = Command::new(fathom());
    command.args(["record", "--quiet"]).args(ops.iter().flat_map(|op| ["--op", op]));
    command.arg("-o").arg(&archive).arg("--").args(argv);
    Ok((archive, String::from_utf8_lossy(&run(&mut command)?.stdout).into_owned()))
}

/// Returns the count of the operation of that name, and a function that sums one of its figures over all its
/// executions.
fn operation_counts(summary: &Value, name: &str) -> Result<(f64, impl Fn(&str) -> f64 + use<>)> {
    let all = summary["operations"].as_array().context("operations[]")?;
    let found = all.iter().find(|o| o["statement"] == name).with_context(|| format!("no {name} in {all:#?}"))?.clone();
    let count = found["count"].as_f64().context("count")?;
    Ok((count, move |pointer: &str| found.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0) * count))
}

/// Checks that each of its commits is made durable: by a flush that it has a part in, whoever issued it.
fn is_flushed(count: f64, sum: &impl Fn(&str) -> f64) -> Result<()> {
    let touched = sum("/per_operation/touched/flushes");
    ensure!(touched >= count, "{count} commits have parts in {touched} flushes");
    Ok(())
}

/// RocksDB counts its write groups: threads that wrote for themselves and others, threads whose writes another made, and how
/// often the log was synced.
pub fn write_groups_of_rocksdb_match_its_counters() -> Result<()> {
    let (disk, directory) = (ext4()?, tempfile::tempdir()?);
    let database = format!("--db={}", disk.path().join("r").display());
    let argv =
        ["db_bench", "--benchmarks=fillrandom", "--threads=4", "--num=50", "--sync=1", "--statistics", &database];
    let (archive, said) = record_command(directory.path(), &["rocksdb"], &argv)?;
    let counter = |name: &str| -> Result<f64> {
        let line =
            said.lines().find(|line| line.starts_with(&format!("rocksdb.{name} COUNT"))).context(said.clone())?;
        Ok(line.rsplit(' ').next().context("a number")?.parse()?)
    };
    let (count, sum) = operation_counts(&show(&archive)?, "rocksdb::DBImpl::WriteImpl")?;
    assert_near("writes", count, counter("number.keys.written")?)?;
    assert_near("writes of groups", count, counter("write.self")? + counter("write.other")?)?;
    assert_near("syncs of the log", sum("/per_operation/calls/fdatasync"), counter("wal.synced")?)?;
    is_flushed(count, &sum)
}

/// argv: a directory. Eight threads, each with its own keys; they are written in as many groups as the log has records.
const LEVELDB_PROGRAM: &str = "
import plyvel, sys, threading
db = plyvel.DB(sys.argv[1], create_if_missing=True)
def put(thread):
    for i in range(25):
        db.put(b'%d-%d' % (thread, i), b'x' * 100, sync=True)
threads = [threading.Thread(target=put, args=(n,)) for n in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
";

/// Counts the records of a LevelDB log, each of which is a group: blocks of 32 KiB of pieces with a checksum, a length and a type (1:
/// whole, 2: first).
fn count_log_records(log: &[u8]) -> usize {
    let mut count = 0;
    for block in log.chunks(32 << 10) {
        let mut rest = block;
        while let [_, _, _, _, low, high, kind, after @ ..] = rest {
            count += usize::from(matches!(kind, 1 | 2));
            rest = after.get(usize::from(u16::from_le_bytes([*low, *high]))..).unwrap_or_default();
        }
    }
    count
}

/// LevelDB has no counters; its log has a record for each group. Debian's exports only the functions around its own
/// (`DB::Put`).
pub fn write_groups_of_leveldb_match_its_log() -> Result<()> {
    let (disk, directory) = (ext4()?, tempfile::tempdir()?);
    let database = disk.path().join("l");
    let argv = ["/usr/bin/python3", "-c", LEVELDB_PROGRAM, &database.display().to_string()];
    let (archive, _) = record_command(directory.path(), &["leveldb"], &argv)?;
    let summary = show(&archive)?;
    let (count, sum) = operation_counts(&summary, "leveldb::DB::Put")
        .or_else(|_| operation_counts(&summary, "leveldb::DBImpl::Write"))?;
    assert_near("puts", count, 200.0)?;
    let log = std::fs::read_dir(&database)?.flatten().find(|file| file.path().extension().is_some_and(|e| e == "log"));
    let groups = count_log_records(&std::fs::read(log.context("its log")?.path())?);
    assert_near("syncs of the log", sum("/per_operation/calls/fdatasync"), groups as f64)?;
    is_flushed(count, &sum)
}

/// Whether Python has LevelDB.
pub fn has_plyvel() -> Result<(), String> {
    let output = Command::new("/usr/bin/python3").args(["-c", "import plyvel"]).output();
    let has = output.is_ok_and(|output| output.status.success());
    has.then_some(()).ok_or_else(|| "python3-plyvel is not installed".into())
}

/// argv: a directory. Four clients of a MariaDB of its own, each with 25 transactions; prints its counters before and after.
const MARIADB_PROGRAM: &str = "
own() { echo --no-defaults --datadir=$1 --user=root --socket=$1/socket; }
counters() {
    mariadb --no-defaults --socket=$1/socket -uroot -N -e \"show global status where variable_name in ('Handler_commit', 'Innodb_data_fsyncs')\"
}
mariadbd $(own $1) --skip-networking --innodb-log-file-size=16M --innodb-buffer-pool-size=32M > $1/log 2>&1 &
server=$!
until mariadb --no-defaults --socket=$1/socket -uroot -e 'create database x; create table x.t (i int primary key auto_increment, s text)' \\
    2> $1/said; do
    kill -0 $server || exit 1
    sleep 0.1
done
counters $1
clients=
for client in 1 2 3 4; do
    for i in $(seq 25); do echo \"insert into x.t (s) values ('abc');\"; done | mariadb --no-defaults --socket=$1/socket -uroot &
    clients=\"$clients $!\"
done
wait $clients
counters $1
mariadb-admin --no-defaults --socket=$1/socket -uroot shutdown
wait $server
";

/// Debian's MariaDB hides InnoDB's functions; the server's functions that call them are the operations. Its counters are bounds: there are
/// more commits than the clients' (of its own tables), and more syncs than for commits.
///
/// Of concurrent commits one syncs, and the others return immediately: InnoDB calls `thd_decrement_pending_ops` for each commit that is
/// durable by now, on the thread that synced, and only then the server answers the client. So that function tells, by the database's own
/// count, which thread committed for which.
pub fn commits_of_mariadb_match_its_counters() -> Result<()> {
    const COMPLETING_FUNCTION: &str = "thd_decrement_pending_ops";
    let (disk, directory) = (ext4()?, tempfile::tempdir()?);
    let data = disk.path().join("m").display().to_string();
    run(Command::new("mariadb-install-db").args(["--no-defaults", "--user=root", "--skip-test-db"]).args([
        "--auth-root-authentication-method=normal",
        &format!("--datadir={data}"),
        "--innodb-log-file-size=16M",
    ]))?;
    let completes = format!("mariadbd:{COMPLETING_FUNCTION}");
    let (archive, said) =
        record_command(directory.path(), &["innodb", &completes], &["sh", "-c", MARIADB_PROGRAM, "sh", &data])?;
    let counters: Vec<f64> = said.lines().filter_map(|line| line.split_once('\t')?.1.parse().ok()).collect();
    let [commits_before, syncs_before, commits, syncs] = counters[..] else { anyhow::bail!("{said}") };
    ensure!(commits - commits_before == 100.0, "{said}");
    let summary = show(&archive)?;
    let (count, sum) = operation_counts(&summary, "ha_commit_trans")?;
    ensure!(count >= commits, "{count} operations, {commits} commits");
    let synced = sum("/per_operation/calls/fdatasync");
    ensure!(synced > 0.0 && synced <= syncs + 20.0, "{synced} syncs in commits, {syncs_before} to {syncs} in all");
    let (completed, _) = operation_counts(&summary, COMPLETING_FUNCTION)?;
    ensure!(completed >= 100.0, "{completed} commits were completed");
    commits_of_others_wait_for_nothing(&archive)
}

/// Each commit that syncs has a part in a flush; each that does not makes no call: another thread writes and syncs its log.
fn commits_of_others_wait_for_nothing(archive: &Path) -> Result<()> {
    let (operations, shapes, spans) = (rows(archive, "operations")?, rows(archive, "shapes")?, rows(archive, "spans")?);
    let shape = shapes.iter().find(|shape| shape["text"] == "ha_commit_trans").context("a shape")?;
    let of_commits: BTreeSet<&str> =
        operations.iter().filter(|o| o["shape"] == shape["id"]).map(|o| o["id"].as_str()).collect();
    let flushes: BTreeSet<&str> = spans.iter().filter(|s| s["kind"] == "flush").map(|s| s["id"].as_str()).collect();
    let causes = rows(archive, "causes")?;
    let flushed: BTreeSet<&str> =
        causes.iter().filter(|c| flushes.contains(&*c["command"])).map(|c| c["operation"].as_str()).collect();
    let calls = spans.iter().filter(|s| s["layer"] == "Syscall" && of_commits.contains(&*s["operation"]));
    let without: Vec<_> = calls.filter(|call| !flushed.contains(&*call["operation"])).collect();
    ensure!(without.is_empty(), "calls of commits that have a part in no flush: {without:#?}");
    ensure!(of_commits.iter().any(|commit| flushed.contains(commit)), "no commit has a part in a flush");
    Ok(())
}
