//! Fathom's figures against independent counts: strace's system calls, the disk's statistics, arithmetic.
//!
//! The load is Python's sqlite3 on a quiet ext4 disk of the test's own. The cost of INSERTs is measured with strace as the
//! difference between a run with and one without them, so that opening and creating cancel out.

use anyhow::{Context, Result, bail, ensure};
use fathom_tests::{
    Case, assert_near, ext4, fathom, installed, number, record, recorded_whole, records_lost, root, run, run_suite,
    shape_of, show,
};
use lab::kept::UndoGuard;
use lab::loopdisk::{Backing, FileSystem, LoopDisk, Options};
use model::DiskOp;
use model::event::{Event, Record, bio_flags};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

const ROW_COUNT: u32 = 40;

/// argv: database, journal mode, INSERTs, scans.
const PYTHON_PROGRAM: &str = r#"
import os, sqlite3, sys
path, mode, rows, scans = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
db = sqlite3.connect(path, isolation_level=None)
db.execute("PRAGMA journal_mode=" + mode)
db.execute("CREATE TABLE IF NOT EXISTS t (i INTEGER, s TEXT)")
for i in range(rows):
    db.execute("INSERT INTO t VALUES (?, ?)", (i, "x" * 100))
for _ in range(scans):
    sum(1 for row in db.execute("SELECT * FROM t"))
# Without closing: what SQLite does at the end (a checkpoint of the WAL) belongs to no statement.
os._exit(0)
"#;

#[path = "../../crates/formats/tests/processor/mod.rs"]
mod processor;

fn main() -> ExitCode {
    let perfetto = || processor::processor().map(drop).map_err(str::to_string);
    let needs = || root().and_then(|()| installed("python3"));
    let strace = || needs().and_then(|()| installed("strace"));
    let cases: Vec<Case> = vec![
        ("delete_mode_agrees_with_strace", strace(), || agrees_with_strace("delete")),
        ("long::truncate_mode_agrees_with_strace", strace(), || agrees_with_strace("truncate")),
        ("long::persist_mode_agrees_with_strace", strace(), || agrees_with_strace("persist")),
        ("wal_mode_agrees_with_strace", strace(), || agrees_with_strace("wal")),
        ("long::memory_mode_agrees_with_strace", strace(), || agrees_with_strace("memory")),
        ("totals_match_diskstats", needs(), totals_match_diskstats),
        ("recording_is_checked_against_diskstats", needs(), disks_are_checked),
        ("every_journal_command_is_charged", needs(), every_command_is_charged),
        ("archive_on_same_disk_takes_no_database_writes", needs(), archive_beside),
        ("warm_scans_are_charged_no_commands", needs(), warm_scans_are_charged_no_commands),
        ("cold_reads_are_charged_to_their_select", needs(), cold_reads_are_charged),
        ("two_programs_are_distinguished", needs(), two_programs_are_distinguished),
        ("databases_on_two_disks_are_both_charged", needs(), two_disks),
        ("work_between_rows_is_not_charged_to_select", needs(), work_between_rows),
        ("loop_disk_maps_to_disk_below", needs(), loop_leads_below),
        (
            "partition_is_charged_to_its_disk",
            needs().and_then(|()| installed("partx")),
            partition_is_charged_to_its_disk,
        ),
        (
            "xfs_writes_are_followed_to_device",
            needs().and_then(|()| installed("mkfs.xfs")),
            xfs_writes_are_followed_to_device,
        ),
        (
            "btrfs_writes_are_followed_to_device",
            needs().and_then(|()| installed("mkfs.btrfs")),
            btrfs_writes_are_followed_to_device,
        ),
        ("fast_commits_are_charged_to_their_callers", needs(), fast_commits),
        ("journal_on_other_disk_is_charged_and_counted", needs(), external_journal),
        (
            "btrfs_mirrors_are_charged_alike",
            needs().and_then(|()| installed("mkfs.btrfs")),
            btrfs_mirrors_are_charged_alike,
        ),
        ("direct_io_from_any_memory_is_charged", needs().and_then(|()| installed("mkfs.btrfs")), direct_io),
        ("io_uring_requests_are_charged_to_operations", root().and_then(|()| installed("cc")), || {
            ring_requests(&[&["read", "opened"], &["vector", "registered", "opened", "async"]])
        }),
        ("long::other_io_uring_requests_are_charged_to_operations", root().and_then(|()| installed("cc")), || {
            ring_requests(&[&["async", "opened"], &["direct", "own"], &["registered"]])
        }),
        ("sqpoll_ring_is_charged_to_its_process", root().and_then(|()| installed("cc")), polled_ring),
        ("marks_from_pid_namespace_are_joined", needs().and_then(|()| installed("unshare")), namespaced_marks),
        ("perfetto_finds_every_span", needs().and_then(|()| perfetto()), perfetto_agrees),
        ("million_calls_are_recorded_without_loss", needs(), nothing_is_lost),
        ("losses_at_full_speed_are_counted", root(), losses_are_reported),
    ];
    run_suite(cases)
}

/// Calls by class, counted by strace.
fn strace_counts(directory: &Path, mode: &str, rows: u32) -> Result<BTreeMap<&'static str, f64>> {
    let disk = ext4()?;
    let log = directory.join(format!("strace.{rows}"));
    run(Command::new("strace")
        .args(["-f", "-y", "-o"])
        .arg(&log)
        .args([
            "-e",
            "trace=write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync",
            "--",
            "python3",
            "-c",
            PYTHON_PROGRAM,
        ])
        .arg(disk.path().join("t.db"))
        .args([mode, &rows.to_string(), "0"]))?;
    let mut counts = BTreeMap::new();
    for line in fs::read_to_string(&log)?.lines().filter(|l| l.contains("t.db") || l.contains("fathom-disk")) {
        let call = line.split_whitespace().nth(1).and_then(|w| w.split('(').next()).unwrap_or_default();
        let path = line.split('<').nth(1).and_then(|w| w.split('>').next()).unwrap_or_default();
        let class = match call {
            "fsync" | "fdatasync" => "fsyncs",
            _ if path.contains("t.db-journal") => "rollback journal",
            _ if path.ends_with("t.db-wal") => "WAL",
            _ if path.ends_with("t.db-shm") => "shm",
            _ => "database",
        };
        *counts.entry(class).or_insert(0.0) += 1.0;
    }
    Ok(counts)
}

fn agrees_with_strace(mode: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (without, with) =
        (strace_counts(directory.path(), mode, 0)?, strace_counts(directory.path(), mode, ROW_COUNT)?);
    let disk = ext4()?;
    let database = disk.path().join("t.db");
    let rows = ROW_COUNT.to_string();
    let argv = ["python3", "-c", PYTHON_PROGRAM, &database.to_string_lossy(), mode, &rows, "0"];
    let (_, summary) = recorded_whole(|| {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", database.display()));
        }
        record(directory.path(), &[], &argv)
    })?;
    assert_near("lost events", records_lost(&summary)?, 0.0)?;
    let insert = shape_of(&summary, "INSERT")?;
    assert_near("INSERTs", number(insert, "/count")?, f64::from(ROW_COUNT))?;
    for class in ["rollback journal", "WAL", "shm", "database", "fsyncs"] {
        let truth = with.get(class).unwrap_or(&0.0) - without.get(class).unwrap_or(&0.0);
        let path = match class {
            "fsyncs" => "/per_operation/fsyncs".to_string(),
            _ => format!("/per_operation/filesystem_writes/{class}/count"),
        };
        let ours = insert.pointer(&path).and_then(Value::as_f64).unwrap_or(0.0) * f64::from(ROW_COUNT);
        assert_near(&format!("{class} in {mode} mode"), ours, truth)?;
    }
    ensure!(mode == "memory" || with["fsyncs"] > 0.0, "strace saw no fsync: the test tests nothing");
    adds_up(insert)
}

/// The layers' exclusive times add up to the latency.
fn adds_up(operation: &Value) -> Result<()> {
    let layers = operation["layers"].as_object().context("layers")?;
    let sum: f64 = layers.values().filter_map(|l| l["exclusive_ns"].as_f64()).sum();
    let latency = number(operation, "/latency_ns/sum")?;
    ensure!((sum - latency).abs() <= latency * 0.01, "the layers take {sum} ns of {latency} ns");
    Ok(())
}

/// `/sys/block/DISK/stat`: reads, sectors read, writes, sectors written, flushes.
fn parse_stat(text: &str) -> Result<[f64; 5]> {
    let fields: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let at = |i: usize| fields.get(i).copied().with_context(|| format!("a short stat line: {text}"));
    Ok([at(0)?, at(2)?, at(4)?, at(6)?, at(15)?])
}

/// The same five numbers from the recorded completions. The rule (block/blk-core.c, blk-flush.c): a request counts when it completes
/// and is one of those counted by the disk's statistics; the flush machinery's own request counts as a flush, and a request that it
/// holds back to flush before or after is counted by that machinery's completion, not twice.
fn completed_requests(archive: &Path, disk: model::Dev) -> Result<[f64; 5]> {
    let text = run(Command::new(fathom()).args(["export", "--events"]).arg(archive))?.stdout;
    let mut sums = [0.0; 5];
    for line in String::from_utf8(text)?.lines() {
        let event = Event::parse(line)?;
        let Record::RqDone(done) = event.record else { continue };
        let flush = done.op == DiskOp::Flush as u8;
        if done.disk != disk.0 || !(flush || done.flags & bio_flags::COUNTED != 0) {
            continue;
        }
        let (at, sectors) = (DiskOp::from_number(done.op), f64::from(done.bytes / 512));
        let held = done.flags & bio_flags::FLUSH_SEQUENCE != 0;
        match at {
            Some(DiskOp::Read) => {
                sums[0] += f64::from(done.last);
                sums[1] += sectors;
            }
            Some(DiskOp::Write) => {
                sums[2] += f64::from(u8::from(done.last == 1 && !held));
                sums[3] += sectors;
            }
            Some(DiskOp::Flush) => sums[4] += f64::from(done.last),
            _ => {}
        }
    }
    Ok(sums)
}

/// Exact for a recording without losses. One in which the kernel did not run a program (an interrupt during the same program, on
/// a busy machine) must report that, and the recording is repeated.
fn totals_match_diskstats() -> Result<()> {
    for _ in 0..5 {
        let disk = ext4()?;
        let directory = tempfile::tempdir()?;
        let (before, after) = (directory.path().join("before"), directory.path().join("after"));
        // A writer is woken before its request is accounted (blk_update_request, then __blk_mq_end_request): the ninth
        // field, requests in flight, shows when all are.
        let script = format!(
            "stat() {{ while read -r _ _ _ _ _ _ _ _ flying _ < $s && [ $flying != 0 ]; do :; done; cat $s; }}; s=/sys/block/{disk}/stat; \
             stat > {before}; python3 -c \"$0\" {mount}/t.db delete {ROW_COUNT} 3; sync -f {mount}; stat > {after}",
            mount = disk.path().display(),
            disk = disk.name(),
            before = before.display(),
            after = after.display()
        );
        let archive = record(directory.path(), &[], &["sh", "-c", &script, PYTHON_PROGRAM])?;
        let (before, after) = (parse_stat(&fs::read_to_string(before)?)?, parse_stat(&fs::read_to_string(after)?)?);
        let (ours, lost) = (completed_requests(&archive, disk.dev()?)?, number(&show(&archive)?, "/loss/events")?);
        ensure!(after[2] > before[2] && after[4] > before[4], "the disk did nothing: the test tests nothing");
        let names = ["reads", "sectors read", "writes", "sectors written", "flushes"];
        let equal = (0..names.len()).try_for_each(|i| assert_near(names[i], ours[i], after[i] - before[i]));
        if equal.is_ok() || lost == 0.0 {
            return equal;
        }
    }
    bail!("each of five recordings lost completions")
}

/// While others write to the same disk before, during and after the recording: requests in flight at its ends are not
/// losses.
fn disks_are_checked() -> Result<()> {
    let (disk, directory) = (ext4()?, tempfile::tempdir()?);
    let at = disk.path().display().to_string();
    let writer = "import os, sys\nf = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\n\
        while True:\n    os.pwrite(f, b'x' * 8192, 0)\n    os.fdatasync(f)\n";
    let mut others: Vec<_> = (0..2)
        .map(|i| Command::new("python3").args(["-c", writer, &format!("{at}/other{i}")]).spawn())
        .collect::<Result<_, _>>()?;
    let tried = (0..2).try_for_each(|_| {
        let script = format!("for i in 1 2 3 4 5 6 7 8; do echo $i > {at}/f; sync {at}/f; done");
        let (archive, summary) = recorded_whole(|| record(directory.path(), &[], &["sh", "-c", &script]))?;
        let check = &summary["completeness"]["disks"][disk.name()];
        ensure!(check["state"] == "checked", "{check}; losses: {}", summary["loss"]);
        for what in ["writes", "flushes"] {
            let (kernel, recorded) = (
                number(check, &format!("/counts/{what}/kernel"))?,
                number(check, &format!("/counts/{what}/recorded"))?,
            );
            ensure!(kernel > 8.0 && recorded - kernel <= number(check, &format!("/counts/{what}/unsure"))?, "{check}");
        }
        let commands = &summary["device_commands"]["by_disk"][disk.name()];
        assert_near(
            "commands without a completion but those under way",
            number(commands, "/incomplete")?.max(2.0),
            2.0,
        )?;
        // An fsync's flush counts as a write, but is none of the disk's commands. The commands are those of the recorded time, which
        // includes the time between the two reads.
        let empty = number(check, "/counts/flushes counted as writes/recorded")?;
        let commands = number(commands, "/kinds/write")?;
        let writes = number(check, "/counts/writes/recorded")?;
        ensure!(
            empty > 0.0 && commands + empty + 8.0 >= writes && writes > empty,
            "{commands} and {empty} are not {writes}"
        );
        // Whether other disks' counts add up depends on the kernel; what is reported about them must be consistent.
        let (state, lost) = (&summary["completeness"]["state"], number(&summary, "/loss/events")?);
        // Another disk's own count may not have been read: it is then not checked.
        let agrees = if lost == 0.0 { *state == "checked" || *state == "not checked" } else { *state != "checked" };
        ensure!(agrees, "{lost} lost, and {}", summary["completeness"]);
        fs::remove_dir_all(archive)?;
        Ok(())
    });
    others.iter_mut().try_for_each(|other| other.kill().and_then(|()| other.wait().map(drop)))?;
    tried
}

fn record_mode(mode: &str, scans: &str) -> Result<(LoopDisk, Value)> {
    let disk = ext4()?;
    let directory = tempfile::tempdir()?;
    let database = disk.path().join("t.db");
    let rows = ROW_COUNT.to_string();
    let archive = record(
        directory.path(),
        &[],
        &["python3", "-c", PYTHON_PROGRAM, &database.to_string_lossy(), mode, &rows, scans],
    )?;
    Ok((disk, show(&archive)?))
}

fn every_command_is_charged() -> Result<()> {
    let (disk, summary) = record_mode("delete", "0")?;
    let all = &summary["device_commands"]["by_disk"][disk.name()];
    let total = number(all, "/total")?;
    ensure!(total >= f64::from(ROW_COUNT) * 5.0, "only {total} commands for {ROW_COUNT} INSERTs");
    assert_near("unattributed", number(all, "/unattributed")?, 0.0)?;
    let parts: f64 = ["attributed", "other_processes", "unattributed", "tracer"]
        .iter()
        .map(|k| number(all, &format!("/{k}")).unwrap_or(f64::NAN))
        .sum();
    assert_near("the parts of all commands", parts, total)
}

/// The recorder creates and removes files on the disk of the database, whose inodes are reused at once.
fn archive_beside() -> Result<()> {
    let (_apart, apart) = record_mode("delete", "0")?;
    let disk = ext4()?;
    // ext4 keeps a directory's files together; those in the root directory it spreads.
    let directory = disk.path().join("directory");
    fs::create_dir(&directory)?;
    let (database, rows) = (directory.join("t.db"), ROW_COUNT.to_string());
    let command = ["python3", "-c", PYTHON_PROGRAM, &database.to_string_lossy(), "delete", &rows, "0"];
    let beside = show(&record(&directory, &[], &command)?)?;
    let bytes = |summary: &Value| number(shape_of(summary, "INSERT")?, "/per_operation/device_bytes");
    let ratio = bytes(&beside)? / bytes(&apart)?;
    // The database's pages are a quarter of them; the number of the journal's blocks may vary.
    ensure!((0.9..1.1).contains(&ratio), "{ratio} of the bytes that an INSERT has with the archive elsewhere");
    Ok(())
}

fn warm_scans_are_charged_no_commands() -> Result<()> {
    let (_disk, summary) = record_mode("delete", "5")?;
    let select = shape_of(&summary, "SELECT * FROM T")?;
    assert_near("scans", number(select, "/count")?, 5.0)?;
    assert_near("requests of a warm scan", number(select, "/per_operation/requests")?, 0.0)?;
    assert_near("rows of all scans", number(select, "/rows")?, f64::from(ROW_COUNT) * 5.0)?;
    adds_up(select)
}

fn cold_reads_are_charged() -> Result<()> {
    let disk = ext4()?;
    let directory = tempfile::tempdir()?;
    let database = disk.path().join("t.db");
    let database = database.to_string_lossy();
    run(Command::new("python3").args(["-c", PYTHON_PROGRAM, &database, "delete", "2000", "0"]))?;
    // Pages that are dirty now would be written back during the recording, rightly unattributed.
    run(Command::new("sync").arg("-f").arg(disk.path()))?;
    let device = disk.name().to_string();
    let script = format!(
        "echo 3 > /proc/sys/vm/drop_caches; cat /sys/block/{device}/stat > {0}/before; python3 -c \"$0\" {database} delete 0 1; \
         cat /sys/block/{device}/stat > {0}/after",
        directory.path().display()
    );
    let archive = record(directory.path(), &[], &["sh", "-c", &script, PYTHON_PROGRAM])?;
    let summary = show(&archive)?;
    let select = shape_of(&summary, "SELECT * FROM T")?;
    let requests = number(select, "/per_operation/requests")?;
    ensure!(requests >= 1.0, "a cold scan read nothing from the disk");
    let bytes = number(select, "/per_operation/device_bytes")?;
    ensure!(bytes >= 2000.0 * 100.0 * 0.9, "a cold scan of 200 kB read {bytes} bytes");
    let class = "/per_operation/filesystem_reads/database";
    let (reads, hits) = (number(select, &format!("{class}/count"))?, number(select, &format!("{class}/cache_hits"))?);
    ensure!(hits < reads, "{hits} of {reads} cold reads are called page-cache hits");
    let (before, after) = (
        parse_stat(&fs::read_to_string(directory.path().join("before"))?)?,
        parse_stat(&fs::read_to_string(directory.path().join("after"))?)?,
    );
    let read = (after[1] - before[1]) * 512.0;
    ensure!(bytes <= read, "the SELECT is charged {bytes} bytes, of {read} that the disk read");
    assert_near("unattributed", number(&summary, &format!("/device_commands/by_disk/{device}/unattributed"))?, 0.0)
}

/// Two programs: one writes without ever syncing, the other syncs, which in ext4's ordered mode may write both's pages.
const TWO_PROGRAMS: &str = r#"
import os, sys, sqlite3
directory, who = sys.argv[1], sys.argv[2]
db = sqlite3.connect(os.path.join(directory, who + ".db"), isolation_level=None)
db.execute("PRAGMA synchronous=" + ("OFF" if who == "lazy" else "FULL"))
db.execute("CREATE TABLE " + who + " (i INTEGER, s TEXT)")
for i in range(60):
    db.execute("INSERT INTO " + who + " VALUES (?, ?)", (i, "x" * 100))
"#;

fn two_programs_are_distinguished() -> Result<()> {
    let disk = ext4()?;
    let directory = tempfile::tempdir()?;
    let script =
        format!("python3 -c \"$0\" {0} lazy & python3 -c \"$0\" {0} eager; wait; sync -f {0}", disk.path().display());
    let archive = record(directory.path(), &[], &["sh", "-c", &script, TWO_PROGRAMS])?;
    let summary = show(&archive)?;
    let (lazy, eager) = (shape_of(&summary, "INSERT INTO LAZY")?, shape_of(&summary, "INSERT INTO EAGER")?);
    assert_near("fsyncs of the lazy one", number(lazy, "/per_operation/fsyncs")?, 0.0)?;
    ensure!(number(eager, "/per_operation/flushes")? > 0.0, "the eager one waited for no flush");
    assert_near("flushes charged to who never waited", number(lazy, "/per_operation/flushes")?, 0.0)?;
    ensure!(
        number(lazy, "/per_operation/device_bytes")? > 0.0,
        "the lazy one's pages were written by somebody, yet it is charged nothing"
    );
    Ok(())
}

/// INSERTs on `disk`, every command of which must have its cause.
fn all_charged_on(disk: &LoopDisk, directory: &Path, at: &Path) -> Result<Value> {
    let database = at.join("t.db");
    let argv = ["python3", "-c", PYTHON_PROGRAM, &database.to_string_lossy(), "delete", "20", "0"];
    let summary = show(&record(directory, &[], &argv)?)?;
    let all = format!("/device_commands/by_disk/{}", disk.name());
    ensure!(number(&summary, &format!("{all}/total"))? >= 80.0, "too few commands: {:#}", summary["device_commands"]);
    assert_near("unattributed", number(&summary, &format!("{all}/unattributed"))?, 0.0)?;
    ensure!(
        number(shape_of(&summary, "INSERT")?, "/per_operation/flushes")? > 3.0,
        "the flushes of 4 fsyncs are not charged"
    );
    Ok(summary)
}

fn loop_leads_below() -> Result<()> {
    let directory = tempfile::tempdir()?;
    // The loop's worker changes the file's time stamps; let the timer commit them within the recording.
    let hasty = Options { mount: "commit=1".into(), ..Options::default() };
    let outer = LoopDisk::create(256 << 20, FileSystem::Ext4, &Backing::Ram, &hasty)?;
    let below = Backing::Directory(outer.path().to_path_buf());
    let inner = LoopDisk::create(100 << 20, FileSystem::Ext4, &below, &Options::default())?;
    // The upper one first: its writes change the time stamps below, whose transaction the timer would otherwise commit during
    // the recording, with members that joined it before. A plain `sync` goes in mount order.
    for disk in [&inner, &outer] {
        run(Command::new("sync").arg("-f").arg(disk.path()))?;
    }
    let summary = all_charged_on(&inner, directory.path(), inner.path())?;
    let all = format!("/device_commands/by_disk/{}", outer.name());
    ensure!(summary.pointer(&format!("{all}/role")) == Some(&"below".into()), "{:#}", summary["device_commands"]);
    ensure!(number(&summary, &format!("{all}/total"))? >= 80.0, "the disk below did nothing");
    let mut unattributed = number(&summary, &format!("{all}/unattributed"))?;
    // A time stamp that changed before the recording is committed within it if a second passes until it begins.
    for _ in 0..3 {
        if unattributed > 0.0 {
            fs::remove_dir_all(directory.path())?;
            fs::create_dir(directory.path())?;
            fs::remove_file(inner.path().join("t.db"))?;
            let summary = all_charged_on(&inner, directory.path(), inner.path())?;
            unattributed = number(&summary, &format!("{all}/unattributed"))?;
        }
    }
    assert_near("unattributed below", unattributed, 0.0)?;
    ensure!(number(&summary, "/relations/remaps")? > 0.0, "no command leads to the disk below");
    Ok(())
}

/// An MBR with one Linux partition, from 1 MiB to the end.
fn make_mbr(sectors: u32) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
    bytes[446 + 12..446 + 16].copy_from_slice(&(sectors - 2048).to_le_bytes());
    bytes[510..].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

fn partition_is_charged_to_its_disk() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let options = Options { losetup: vec!["--partscan".into()], ..Options::default() };
    let disk = LoopDisk::create(128 << 20, FileSystem::None, &Backing::Ram, &options)?;
    fs::write(disk.device(), make_mbr(128 << 11))?;
    run(Command::new("partx").arg("--update").arg(disk.device()))?;
    let part = format!("{}p1", disk.device().display());
    run(Command::new("mkfs.ext4").args(["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", &part]))?;
    let at = directory.path().join("mnt");
    fs::create_dir(&at)?;
    let _mounted = UndoGuard::mount_device(Path::new(&part), &at)?;
    run(Command::new("sync").arg("-f").arg(&at))?;
    let summary = all_charged_on(&disk, directory.path(), &at)?;
    ensure!(
        summary.pointer(&format!("/device_commands/by_disk/{}/role", disk.name())) == Some(&"holds the files".into()),
        "{:#}",
        summary["device_commands"]
    );
    // The header is that disk's, not that of the working directory.
    let queue = fs::read_to_string(format!("/sys/block/{}/queue/scheduler", disk.name()))?;
    let (_, in_force) = queue.split_once('[').context("a scheduler in force")?;
    let scheduler = in_force.split(']').next().unwrap_or_default();
    for (fact, truth) in [("disk.name", disk.name()), ("fs.type", "ext4"), ("disk.scheduler", scheduler)] {
        ensure!(summary["environment"][fact]["value"] == truth, "{fact}: {}", summary["environment"][fact]);
    }
    Ok(())
}

fn xfs_writes_are_followed_to_device() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = LoopDisk::create(400 << 20, FileSystem::Xfs, &Backing::Ram, &Options::default())?;
    // The writes of the log, as counted by the file system: each of these small checkpoints is one.
    let log_writes = || -> Result<f64> {
        let text = fs::read_to_string(format!("/sys/fs/xfs/{}/stats/stats", disk.name()))?;
        let line = text.lines().find_map(|l| l.strip_prefix("log ")).context("no line of the log")?;
        Ok(line.split(' ').next().context("no number")?.parse()?)
    };
    let before = log_writes()?;
    let summary = all_charged_on(&disk, directory.path(), disk.path())?;
    let written = log_writes()? - before;
    let insert = number(shape_of(&summary, "INSERT")?, "/per_operation/journal_commits")? * 20.0;
    let create = number(shape_of(&summary, "CREATE")?, "/per_operation/journal_commits")?;
    // Nobody waits for the checkpoint of the file system's own log worker, which runs every 30 s.
    let unwaited = (written - insert - create).round();
    ensure!((0.0..=1.0).contains(&unwaited), "statements waited for {insert} + {create} checkpoints of {written}");
    Ok(())
}

fn btrfs_writes_are_followed_to_device() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = LoopDisk::create(400 << 20, FileSystem::Btrfs, &Backing::Ram, &Options::default())?;
    let summary = all_charged_on(&disk, directory.path(), disk.path())?;
    // The file system has no disk's number, but is known to be on this disk.
    account_holds(&summary, &[&disk])
}

/// INSERTs on a disk whose file system is already quiet; returns the summary, and the kernel's count of flushes of each disk meanwhile.
fn inserts_on(disks: &[&LoopDisk], mode: &str, rows: u32) -> Result<(Value, Vec<f64>)> {
    let directory = tempfile::tempdir()?;
    run(Command::new("sync").arg("-f").arg(disks[0].path()))?;
    let database = disks[0].path().join("t.db");
    let argv = ["python3", "-c", PYTHON_PROGRAM, &database.to_string_lossy(), mode, &rows.to_string(), "0"];
    let flushes = || -> Result<Vec<f64>> {
        let count = |disk: &&LoopDisk| {
            let stat = fs::read_to_string(format!("/sys/block/{}/stat", disk.name()))?;
            Ok(stat.split_whitespace().nth(15).context("flushes")?.parse()?)
        };
        disks.iter().map(count).collect()
    };
    let before = flushes()?;
    let summary = show(&record(directory.path(), &[], &argv)?)?;
    let of_kernel = flushes()?.iter().zip(&before).map(|(after, before)| after - before).collect();
    assert_near("the reported loss", number(&summary, "/loss/unattributed_commands")?, 0.0)?;
    Ok((summary, of_kernel))
}

/// The flushes of the INSERTs are those that the kernel counted, but for a few of the table's creation.
fn flushes_are_of_inserts(summary: &Value, of_kernel: f64, rows: u32) -> Result<()> {
    let insert = shape_of(summary, "INSERT")?;
    let charged = number(insert, "/count")? * number(insert, "/per_operation/flushes")?;
    assert_near("INSERTs", number(insert, "/count")?, rows.into())?;
    let told = || format!("{charged} of {of_kernel} flushes: {:#}", summary["device_commands"]);
    ensure!(
        charged >= 0.9 * of_kernel - 20.0 && charged <= of_kernel && charged >= 1.9 * f64::from(rows),
        "{}",
        told()
    );
    Ok(())
}

/// ext4 with fast commits: an fsync writes the log itself.
fn fast_commits() -> Result<()> {
    let options = Options { mkfs: vec!["-O".into(), "fast_commit".into()], ..Options::default() };
    for mode in ["wal", "delete"] {
        let disk = LoopDisk::create(256 << 20, FileSystem::Ext4, &Backing::Ram, &options)?;
        let (summary, flushes) = inserts_on(&[&disk], mode, 100).context(mode)?;
        let unattributed = number(&summary, &format!("/device_commands/by_disk/{}/unattributed", disk.name()))?;
        // What was logged by an ordinary commit before the recording may be written home meanwhile.
        ensure!(unattributed <= 2.0, "{mode}: {unattributed} unattributed: {:#}", summary["device_commands"]);
        flushes_are_of_inserts(&summary, flushes[0], 100).context(mode)?;
    }
    Ok(())
}

/// With and without fast commits: what is asked of the journal's disk belongs to the INSERTs as well.
fn external_journal() -> Result<()> {
    for feature in ["^fast_commit", "fast_commit"] {
        let journal = LoopDisk::create(64 << 20, FileSystem::None, &Backing::Ram, &Options::default())?;
        run(Command::new("mkfs.ext4").args(["-q", "-b", "4096", "-O", "journal_dev"]).arg(journal.device()))?;
        let device = format!("device={}", journal.device().display());
        let mkfs = ["-b", "4096", "-O", feature, "-J", &device].map(Into::into).to_vec();
        let disk =
            LoopDisk::create(256 << 20, FileSystem::Ext4, &Backing::Ram, &Options { mkfs, ..Options::default() })?;
        let (summary, flushes) = inserts_on(&[&disk, &journal], "wal", 100).context(feature)?;
        flushes_are_of_inserts(&summary, flushes.iter().sum(), 100).context(feature)?;
        account_holds(&summary, &[&disk, &journal])?;
    }
    Ok(())
}

fn btrfs_mirrors_are_charged_alike() -> Result<()> {
    let second = LoopDisk::create(400 << 20, FileSystem::None, &Backing::Ram, &Options::default())?;
    let mkfs = ["-d", "raid1", "-m", "raid1", &second.device().to_string_lossy()].map(Into::into).to_vec();
    let first = LoopDisk::create(400 << 20, FileSystem::Btrfs, &Backing::Ram, &Options { mkfs, ..Options::default() })?;
    let (summary, _) = inserts_on(&[&first, &second], "wal", 40)?;
    for disk in [&first, &second] {
        let all = &summary["device_commands"]["by_disk"][disk.name()];
        assert_near("unattributed", number(all, "/unattributed")?, 0.0).with_context(|| format!("{all:#}"))?;
        ensure!(number(all, "/total")? >= 100.0, "{all:#}");
    }
    Ok(())
}

/// Direct I/O, 100 writes of 4 KiB; argv: a disk or file, the memory that they are from, a file to be mapped.
const DIRECT_PROGRAM: &str = r#"
import mmap, os, sys
target, memory, file = sys.argv[1:]
fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
if memory == "mapped":
    open(file, "wb").write(b"y" * 4096)
    memory = mmap.mmap(os.open(file, os.O_RDWR), 4096)
else:
    memory = mmap.mmap(-1, 4096, flags=mmap.MAP_SHARED if memory == "shared" else mmap.MAP_PRIVATE)
memory[:] = b"x" * 4096
for n in range(100): os.pwrite(fd, memory, n * 4096)
for n in range(100): os.preadv(fd, [memory], n * 4096)
"#;

/// To a block device, and to files on ext4 and btrfs: from memory of its own, shared memory, and a mapped file of another disk.
fn direct_io() -> Result<()> {
    let other = ext4()?;
    for system in [FileSystem::None, FileSystem::Ext4, FileSystem::Btrfs] {
        let disk = LoopDisk::create(256 << 20, system, &Backing::Ram, &Options::default())?;
        let target = if system == FileSystem::None { disk.device().to_path_buf() } else { disk.path().join("f") };
        for memory in ["private", "shared", "mapped"] {
            let directory = tempfile::tempdir()?;
            let file = other.path().join("mapped");
            let argv = ["python3", "-c", DIRECT_PROGRAM, &target.to_string_lossy(), memory, &file.to_string_lossy()];
            run(&mut Command::new("sync"))?;
            let summary = show(&record(directory.path(), &[], &argv)?)?;
            let all = &summary["device_commands"]["by_disk"][disk.name()];
            let told = || format!("{system:?}, {memory}: {all:#}");
            ensure!(number(all, "/total")? >= 200.0, "{}", told());
            // A timer may commit what making and mounting the disk changed.
            ensure!(number(all, "/unattributed")? <= 2.0 && number(all, "/attributed")? >= 200.0, "{}", told());
        }
    }
    Ok(())
}

/// The account covers the disks that hold the files: these and, if the program's libraries are not in the page cache yet, the one
/// that the program itself is read from.
fn account_holds(summary: &Value, disks: &[&LoopDisk]) -> Result<()> {
    let by_disk = summary["device_commands"]["by_disk"].as_object().context("by_disk")?;
    let holding: BTreeMap<_, _> = by_disk.iter().filter(|(_, disk)| disk["role"] == "holds the files").collect();
    ensure!(disks.iter().all(|disk| holding.contains_key(&disk.name().to_owned())), "{:#}", summary["device_commands"]);
    let totals = holding.values().map(|disk| number(disk, "/total")).collect::<Result<Vec<_>>>()?;
    assert_near("the account's total", number(summary, "/device_commands/total")?, totals.iter().sum())
}

/// Records `tests/programs/ring.c` in these modes; 20 records are written.
fn record_ring(modes: &[&str]) -> Result<(LoopDisk, Value)> {
    let (disk, directory) = (ext4()?, tempfile::tempdir()?);
    let (source, program) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/ring.c"), directory.path().join("ring"));
    run(Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source))?;
    let (file, program) = (disk.path().join("f"), program.to_string_lossy().into_owned());
    let operations = [format!("{program}:insert"), format!("{program}:lookup")];
    let options = ["--op", &operations[0], "--op", &operations[1]];
    let mut argv = vec![program.as_str(), file.to_str().context("a name")?, "20"];
    argv.extend(modes);
    let summary = show(&record(directory.path(), &options, &argv)?)?;
    Ok((disk, summary))
}

/// Submitted by the caller or a worker, with vectors, registered files, without the page cache; the file opened through the ring.
fn ring_requests(all: &[&[&str]]) -> Result<()> {
    for modes in all {
        let (disk, summary) = record_ring(modes)?;
        let insert = shape_of(&summary, "INSERT")?;
        let context = || format!("{modes:?}: {insert:#}\n{:#}", summary["device_commands"]);
        let (files, path) = (summary["files"].as_array().context("files[]")?, disk.path().join("f"));
        ensure!(
            files.iter().any(|f| f["path"].as_str() == path.to_str()),
            "{modes:?}: the file has no name: {files:?}"
        );
        let of = |what: &str| number(insert, &format!("/per_operation/{what}"));
        assert_near("operations", number(insert, "/count")?, 20.0).with_context(context)?;
        assert_near("fsyncs", of("fsyncs")?, 1.0).with_context(context)?;
        assert_near("writes", of("filesystem_writes/other/count")?, 1.0).with_context(context)?;
        assert_near("bytes", of("filesystem_writes/other/bytes")?, 4096.0).with_context(context)?;
        // One before the commit record, one after; the first operation may in addition read the disk's block maps.
        assert_near("flushes", of("flushes")?, 2.0).with_context(context)?;
        ensure!(of("requests")? >= 2.5 && of("device_bytes")? >= 4096.0, "{}", context());
        let unattributed = format!("/device_commands/by_disk/{}/unattributed", disk.name());
        assert_near("unattributed", number(&summary, &unattributed)?, 0.0).with_context(context)?;
        assert_near("links by guess", number(&summary, "/links/guess")?, 0.0).with_context(context)?;
        adds_up(insert).with_context(context)?;
        if modes.contains(&"read") {
            let lookup = shape_of(&summary, "LOOKUP")?;
            assert_near("cold reads", number(lookup, "/per_operation/requests")?, 1.0)?;
            assert_near("bytes of cold reads", number(lookup, "/per_operation/device_bytes")?, 4096.0)?;
        }
    }
    Ok(())
}

fn polled_ring() -> Result<()> {
    let (disk, summary) = record_ring(&["polled"])?;
    let context = || format!("{summary:#}");
    let by = |what: &str| number(&summary, &format!("/device_commands/by_disk/{}/{what}", disk.name()));
    assert_near("unattributed", by("unattributed")?, 0.0).with_context(context)?;
    // One operation runs at a time, so it is guessed as the cause; none of its calls is recorded.
    assert_near("flushes", number(shape_of(&summary, "INSERT")?, "/per_operation/flushes")?, 2.0)
        .with_context(context)?;
    assert_near("calls", number(shape_of(&summary, "INSERT")?, "/per_operation/fsyncs")?, 0.0).with_context(context)?;
    ensure!(number(&summary, "/links/guess")? >= 20.0, "a guess is not called one: {}", context());
    Ok(())
}

/// The demo's own load, in a PID namespace: its marks carry the process IDs of that namespace.
fn namespaced_marks() -> Result<()> {
    let (disk, directory) = (ext4()?, tempfile::tempdir()?);
    let (fathom, at) = (fathom().display().to_string(), disk.path().display().to_string());
    let load = [&fathom, "workload", "sqlite", "--op", "insert", "--rows", "3000", "--dir", &at];
    let argv: Vec<&str> = ["unshare", "--pid", "--fork"].into_iter().chain(load).collect();
    let summary = show(&record(directory.path(), &[], &argv)?)?;
    // The program is found when it is mapped, so the first statements may run unseen (docs/guide/record.md); each seen one has a
    // mark around it, which then is not an operation of its own.
    let seen = number(shape_of(&summary, "INSERT")?, "/count")?;
    ensure!(seen >= 500.0, "only {seen} INSERTs were seen");
    let all = summary["operations"].as_array().context("operations[]")?;
    let is_insert = |o: &&Value| o["kind"] == "mark" && o["statement"].as_str().is_some_and(|s| s == "INSERT");
    let alone: f64 = all.iter().filter(is_insert).filter_map(|o| o["count"].as_f64()).sum();
    assert_near("INSERTs, and marks without one", seen + alone, 3000.0)
}

/// Two writers of 500,000 single bytes each, on as many CPUs, each call a record: returns how many of their calls are missing in the
/// recording, and how many events it counts as lost.
fn two_writers(writer: &str) -> Result<(f64, f64)> {
    const WRITES_PER_WRITER: u32 = 500_000;
    let (disk, directory) = (ext4()?, tempfile::tempdir()?);
    let at = disk.path().display();
    let script = format!("for i in 1 2; do {writer} {at}/$i & done; wait");
    let archive = record(directory.path(), &[], &["sh", "-c", &script])?;
    let lost = records_lost(&show(&archive)?)?;
    let text = String::from_utf8(run(Command::new(fathom()).args(["export", "--events"]).arg(archive))?.stdout)?;
    let calls = text.lines().filter(|l| l.contains(" syscall ") && l.contains(" bytes=1 result=1 ")).count();
    Ok((f64::from(2 * WRITES_PER_WRITER) - calls as f64, lost))
}

/// At 400,000 calls a second, a third more than is guaranteed. The guarantee assumes that the recorder gets a CPU: if three runs in a row
/// overflow, the machine is too busy, or the recorder too slow.
fn nothing_is_lost() -> Result<()> {
    let paced = "import os, sys, time\nf = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\nbegan = time.monotonic()\n\
        for i in range(500):\n    for j in range(1000): os.write(f, b'x')\n    \
        time.sleep(max(0, began + (i + 1) / 200 - time.monotonic()))\n";
    let mut lost = Vec::new();
    for _ in 0..3 {
        let (missing, unseen) = two_writers(&format!("/usr/bin/python3 -c \"{paced}\""))?;
        // Missing calls were counted, however busy the machine.
        ensure!((0.0..=unseen).contains(&missing), "{missing} calls are missing, {unseen} events are counted as lost");
        if unseen == 0.0 {
            return Ok(());
        }
        lost.push(unseen);
    }
    bail!("each of three runs lost events: {lost:?}")
}

/// As fast as possible, which on a fast machine is more than the rings hold.
fn losses_are_reported() -> Result<()> {
    let (missing, lost) = two_writers("dd_to() { dd if=/dev/zero bs=1 count=500000 status=none of=$1; }; dd_to")?;
    ensure!((0.0..=lost).contains(&missing), "{missing} calls are missing, {lost} events are counted as lost");
    Ok(())
}

/// Perfetto's own trace processor finds in the export of a real recording what its tables hold, and no errors.
fn perfetto_agrees() -> Result<()> {
    let (disk, directory) = (ext4()?, tempfile::tempdir()?);
    let database = disk.path().join("t.db");
    let argv = ["python3", "-c", PYTHON_PROGRAM, &database.to_string_lossy(), "delete", &ROW_COUNT.to_string(), "3"];
    let archive = record(directory.path(), &[], &argv)?;
    let (trace, tables) = (directory.path().join("t.pftrace"), directory.path().join("csv"));
    let messages =
        run(Command::new(fathom()).args(["export", "--perfetto"]).arg(&archive).arg("-o").arg(&trace))?.stdout;
    run(Command::new(fathom()).args(["export", "--csv"]).arg(&archive).arg("-o").arg(&tables))?;
    let rows = |table: &str| -> Result<u64> {
        Ok(fs::read_to_string(tables.join(table).with_extension("csv"))?.lines().count() as u64 - 1)
    };
    // "N slices, N arrows", and if a slice has too many: "; N more arrows omitted, …"
    let messages = String::from_utf8(messages)?;
    // The next line has the trace's path.
    let first = messages.lines().next().unwrap_or_default();
    let numbers: Vec<u64> = first.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
    let left_out = numbers.get(2).copied().unwrap_or(0);
    let [spans, slices, links] = [rows("spans")?, rows("slices")?, rows("links")?];
    ensure!(spans > 40 * 20 && links > spans / 2, "{spans} spans and {links} links: the recording is empty");
    let checks = [
        ("slices of spans", "select count(*) from slice where category not in ('Loss', 'Time')", spans),
        ("slices of time", "select count(*) from slice where category = 'Time'", slices),
        ("flows", "select count(*) from flow", links - left_out),
        ("slices without an end", "select count(*) from slice where dur < 0", 0),
        ("wrong", "select count(*) from stats where severity in ('error', 'data_loss') and value > 0", 0),
    ];
    let queries: Vec<&str> = checks.iter().map(|(_, query, _)| *query).collect();
    let directory = processor::processor().map_err(anyhow::Error::msg)?;
    let answers = processor::ask(directory, &trace, &queries).map_err(anyhow::Error::msg)?;
    for ((what, _, expected), answer) in checks.iter().zip(answers) {
        let found = answer.pointer("/0/0").and_then(Value::as_u64);
        ensure!(found == Some(*expected), "{what}: Perfetto finds {found:?}, the tables hold {expected}");
    }
    ensure!(left_out * 20 < links, "{left_out} of {links} arrows are omitted");
    Ok(())
}

const BOTH_PROGRAMS: &str = r#"
import sqlite3, sys
for path in sys.argv[1:]:
    db = sqlite3.connect(path, isolation_level=None)
    table = "t" + str(sys.argv.index(path))
    db.execute("CREATE TABLE " + table + " (i INTEGER)")
    for i in range(20):
        db.execute("INSERT INTO " + table + " VALUES (?)", (i,))
"#;

fn two_disks() -> Result<()> {
    let (one, two, directory) = (ext4()?, ext4()?, tempfile::tempdir()?);
    let paths = [one.path().join("a.db"), two.path().join("b.db")];
    let argv = ["python3", "-c", BOTH_PROGRAMS, &paths[0].to_string_lossy(), &paths[1].to_string_lossy()];
    let summary = show(&record(directory.path(), &[], &argv)?)?;
    for (verb, disk) in [("INSERT INTO T1", &one), ("INSERT INTO T2", &two)] {
        let flushes = number(shape_of(&summary, verb)?, "/per_operation/flushes")?;
        ensure!(flushes > 3.0, "{verb} on {} shows {flushes} flushes", disk.name());
    }
    account_holds(&summary, &[&one, &two])
}

const BETWEEN_PROGRAM: &str = r#"
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("CREATE TABLE r (i INTEGER)")
db.execute("CREATE TABLE w (i INTEGER)")
for i in range(4):
    db.execute("INSERT INTO r VALUES (?)", (i,))
log = os.open(sys.argv[1] + ".log", os.O_CREAT | os.O_WRONLY)
for row in db.execute("SELECT i FROM r"):
    os.write(log, b"x" * 4096)
    os.fsync(log)
    db.execute("INSERT INTO w VALUES (?)", row)
os._exit(0)
"#;

fn work_between_rows() -> Result<()> {
    let (disk, directory) = (ext4()?, tempfile::tempdir()?);
    let database = disk.path().join("t.db");
    let summary =
        show(&record(directory.path(), &[], &["python3", "-c", BETWEEN_PROGRAM, &database.to_string_lossy()])?)?;
    let select = shape_of(&summary, "SELECT I FROM R")?;
    assert_near("rows", number(select, "/rows")?, 4.0)?;
    assert_near("fsyncs of the SELECT", number(select, "/per_operation/fsyncs")?, 0.0)?;
    assert_near("INSERTs between the rows", number(shape_of(&summary, "INSERT INTO W")?, "/count")?, 4.0)?;
    adds_up(select)?;
    // Nothing is charged twice: the sum over the statements equals the total charged to operations.
    let all = summary["operations"].as_array().context("operations[]")?;
    let mut sum = 0.0;
    for operation in all {
        let of = |what: &str| number(operation, &format!("/per_operation/{what}"));
        sum += number(operation, "/count")? * (of("requests")? + of("discards")? + of("flushes")?);
    }
    assert_near("commands of all operations", sum, number(&summary, "/device_commands/by_operations")?)
}
