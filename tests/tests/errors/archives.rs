//! Archives for which there is no space, and archives that are damaged, foreign or newer.

use super::{messages, output_of};
use anyhow::{Context as _, Result, ensure};
use fathom_tests::tmpfs::Tmpfs;
use fathom_tests::{assert_near, ext4, fathom, number, record, run, shape_of, show, wait_until};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A tmpfs of its own for the archive; the mount is removed before its directory.
struct SmallTmpfs(Tmpfs, #[expect(dead_code, reason = "it is for its end")] tempfile::TempDir);

impl SmallTmpfs {
    fn new(size: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        Ok(Self(Tmpfs::new(directory.path().join("small"), size)?, directory))
    }

    fn path(&self) -> &Path {
        &self.0.0
    }
}

/// Many INSERTs by one process.
fn many_inserts(database: &Path, rows: u32) -> String {
    format!(
        "sqlite3 {0} 'create table t(i)'; for i in $(seq {rows}); do echo 'insert into t values (1);'; done | sqlite3 {0}",
        database.display()
    )
}

pub fn full_disk() -> Result<()> {
    let disk = ext4()?;
    // A limit that was not reached is no excuse.
    for (database, limit) in [("t.db", &[][..]), ("u.db", &["--max-size", "1G"])] {
        full_disk_with(&disk.path().join(database), limit).with_context(|| format!("{limit:?}"))?;
    }
    Ok(())
}

/// A limit on the size of files (`ulimit -f`, of systemd too) ends the recording as a full disk does, and is CMD's too.
pub fn size_limit() -> Result<()> {
    let (disk, directory) = (ext4()?, tempfile::tempdir()?);
    let archive = directory.path().join("t.fathom");
    // In units of 512 bytes: more than the database takes, less than the log of its INSERTs.
    let limited = format!(
        "ulimit -f 1024; exec \"$@\" sh -c '{}; ulimit -f'",
        many_inserts(&disk.path().join("t.db"), 2000).replace('\'', "\"")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &limited, "sh"]).arg(fathom()).args(["record", "-o"]).arg(&archive).arg("--");
    let output = output_of(&mut command)?;
    let messages = messages(&output);
    ensure!(output.status.code() == Some(1), "{}: {messages}", output.status);
    ensure!(messages.contains("is incomplete") && messages.contains("CMD ended with status 0"), "{messages}");
    ensure!(String::from_utf8_lossy(&output.stdout).trim() == "1024", "CMD has another limit: {output:?}");
    ensure!(number(shape_of(&show(&archive)?, "INSERT")?, "/count")? >= 10.0, "what fitted was not kept");
    Ok(())
}

fn full_disk_with(database: &Path, limit: &[&str]) -> Result<()> {
    let small = SmallTmpfs::new("2m")?;
    let archive = small.path().join("t.fathom");
    let script = many_inserts(database, 8000);
    let mut command = Command::new(fathom());
    command.args(["record", "-o"]).arg(&archive).args(limit).args(["--", "sh", "-c", &script]);
    let output = output_of(&mut command)?;
    let messages = messages(&output);
    ensure!(messages.contains("full") || messages.contains("No space"), "{messages}");
    // The command succeeded, but the recording did not.
    ensure!(output.status.code() == Some(1), "{}: {messages}", output.status);
    ensure!(messages.contains("is incomplete") && messages.contains("CMD ended with status 0"), "{messages}");
    // The tables do not fit next to the log; on a disk with more space everything that was kept can be shown.
    let roomy = tempfile::tempdir()?;
    run(Command::new("cp").arg("-r").arg(&archive).arg(roomy.path()))?;
    let summary = show(&roomy.path().join("t.fathom"))?;
    ensure!(number(shape_of(&summary, "INSERT")?, "/count")? >= 100.0, "what fitted was not kept");
    Ok(())
}

/// The recorder leaves space on its disk, and the command takes that too, to the last byte. The recording is readable nonetheless.
pub fn filled_disk() -> Result<()> {
    let (small, ext4) = (SmallTmpfs::new("16m")?, ext4()?);
    for disk in [small.path(), ext4.path()] {
        let archive = disk.join("t.fathom");
        let fill = format!(
            "sqlite3 {0}/db 'create table t(i)'; dd if=/dev/zero of={0}/filler bs=1M; dd if=/dev/zero of={0}/rest bs=1k; exit 0",
            disk.display()
        );
        let mut command = Command::new(fathom());
        command.args(["record", "--no-probe-cost", "-o"]).arg(&archive).args(["--", "sh", "-c", &fill]);
        let said = messages(&output_of(&mut command)?);
        let roomy = tempfile::tempdir()?;
        run(Command::new("cp").arg("-r").arg(&archive).arg(roomy.path()))?;
        let names: Vec<_> = fs::read_dir(&archive)?.flatten().map(|entry| entry.file_name()).collect();
        ensure!(!names.iter().any(|name| name == "meta.json.tmp"), "{names:?}");
        let shown = show(&roomy.path().join("t.fathom"))?;
        let probes = shown["coverage"].as_array().map_or(0, Vec::len);
        ensure!(probes > 20, "{probes} probes are known: {said}");
        ensure!(shown["environment"]["trace.end"]["value"].is_string(), "the facts are lost: {said}");
    }
    Ok(())
}

pub fn no_room_for_tables() -> Result<()> {
    let disk = ext4()?;
    // The space that tables take: half of it is left when the log is stored. The length of logs varies too much to
    // predict.
    let roomy = tempfile::tempdir()?;
    let whole = record(roomy.path(), &[], &["sh", "-c", &many_inserts(&disk.path().join("u.db"), 200)])?;
    let size = |path: &Path| fs::metadata(path).map_or(0, |about| about.len());
    let tables: u64 = fs::read_dir(whole.join("tables"))?.flatten().map(|entry| size(&entry.path())).sum();
    let small = SmallTmpfs::new("64m")?;
    let archive = small.path().join("t.fathom");
    // It waits at its stdin, which causes no events, until the log is stored and the disk is full.
    let done = roomy.path().join("done");
    let script = format!("{}; : > {}; read x; exit 3", many_inserts(&disk.path().join("t.db"), 200), done.display());
    let mut command = Command::new(fathom());
    command.args(["record", "-o"]).arg(&archive).args(["--", "sh", "-c", &script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    wait_until("the end of the INSERTs", || {
        ensure!(child.try_wait()?.is_none(), "the recording ended before its command");
        Ok(done.exists())
    })?;
    // The recorder stores its events once a second. Device commands of others may still arrive; there is space for a few of
    // them, and a busy disk is not waited for.
    let (mut stored, mut since, begun) = (0, Instant::now(), Instant::now());
    wait_until("a log that grows no more", || {
        let now = size(&archive.join("events.log"));
        if now.saturating_sub(stored) > 32 << 10 {
            (stored, since) = (now, Instant::now());
        }
        Ok(now > 0 && (since.elapsed() > Duration::from_secs(4) || begun.elapsed() > Duration::from_secs(15)))
    })?;
    let fill = format!(
        "fallocate -l $(($(stat -f -c '%a * %S' {0}) - {1})) {0}/filler",
        small.path().display(),
        tables / 2 + (80 << 10)
    );
    // The log may grow between the two commands.
    let mut said = String::new();
    wait_until("a disk with little space", || {
        let output = output_of(Command::new("sh").args(["-c", &fill]))?;
        said = messages(&output);
        Ok(output.status.success())
    })
    .context(said)?;
    // Closes its stdin.
    let output = child.wait_with_output()?;
    let messages = messages(&output);
    ensure!(output.status.code() == Some(3), "not the command's status: {:?}: {messages}", output.status);
    ensure!(
        messages.contains("a disk with more space") && messages.contains("not linked") && !messages.contains("next:"),
        "{messages}"
    );
    run(Command::new("cp").arg("-r").arg(&archive).arg(roomy.path().join("copy.fathom")))?;
    assert_near("INSERTs", number(shape_of(&show(&roomy.path().join("copy.fathom"))?, "INSERT")?, "/count")?, 200.0)
}

pub fn max_size() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let archive = directory.path().join("t.fathom");
    let script = many_inserts(&disk.path().join("t.db"), 3000);
    let mut command = Command::new(fathom());
    command.args(["record", "-q", "--max-size", "200K", "-o"]).arg(&archive).args(["--", "sh", "-c", &script]);
    let output = run(&mut command)?;
    ensure!(
        messages(&output).contains("ended early"),
        "nothing says that the limit was reached: {}",
        messages(&output)
    );
    let size = fs::metadata(archive.join("events.log"))?.len();
    ensure!(size <= 200 << 10, "the log has {size} bytes");
    let count = number(shape_of(&show(&archive)?, "INSERT")?, "/count")?;
    ensure!((1.0..3000.0).contains(&count), "{count} INSERTs of 3,000");
    Ok(())
}

fn record_archive(directory: &Path) -> Result<std::path::PathBuf> {
    let disk = ext4()?;
    record(directory, &[], &["sh", "-c", &many_inserts(&disk.path().join("t.db"), 200)])
}

pub fn cut_short() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = record_archive(directory.path())?;
    let whole = number(shape_of(&show(&archive)?, "INSERT")?, "/count")?;
    let log = archive.join("events.log");
    let bytes = fs::read(&log)?;
    fs::write(&log, &bytes[..bytes.len() - 7])?;
    // Whole tables are not replaced by those of what is left of their log.
    let refused = output_of(Command::new(fathom()).arg("reindex").arg(&archive))?;
    ensure!(refused.status.code() == Some(1) && messages(&refused).contains("is damaged"), "{}", messages(&refused));
    let reindexed = || -> Result<()> {
        fs::remove_dir_all(archive.join("tables"))?;
        run(Command::new(fathom()).arg("reindex").arg(&archive)).map(drop)
    };
    reindexed()?;
    let summary = show(&archive)?;
    let left = shape_of(&summary, "INSERT").and_then(|s| number(s, "/count")).unwrap_or(0.0);
    ensure!(left <= whole, "a shorter log shows more");
    ensure!(
        !summary["loss"]["intervals"].as_array().context("intervals")?.is_empty(),
        "the cut is not reported as a loss"
    );
    // Truncated at the end of a chunk, the log itself shows nothing.
    let all = number(&summary, "/loss/events")?;
    fs::write(&log, [])?;
    reindexed()?;
    let none = number(&show(&archive)?, "/loss/events")?;
    ensure!(none > all && none > 1000.0, "of an empty log {none} events are told as lost");
    Ok(())
}

pub fn damaged_table() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = record_archive(directory.path())?;
    let table = archive.join("tables/spans.parquet");
    let mut bytes = fs::read(&table)?;
    let end = bytes.len() - 40;
    bytes[end..].fill(0xff);
    fs::write(&table, bytes)?;
    let output = output_of(Command::new(fathom()).arg("show").arg(&archive))?;
    let messages = messages(&output);
    ensure!(
        output.status.code() == Some(1) && messages.contains("spans") && messages.contains("fathom reindex"),
        "{messages}"
    );
    run(Command::new(fathom()).arg("reindex").arg(&archive))?;
    run(Command::new(fathom()).arg("show").arg(&archive))?;
    // A flipped bit must not become a number.
    let mut bytes = fs::read(&table)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&table, bytes)?;
    let output = output_of(Command::new(fathom()).arg("show").arg(&archive))?;
    ensure!(output.status.code() == Some(1), "a flipped bit was not seen: {:?}", output.status);
    Ok(())
}

pub fn newer_archive() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = record_archive(directory.path())?;
    let meta = archive.join("meta.json");
    let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&meta)?)?;
    value["version"] = 999.into();
    fs::write(&meta, value.to_string())?;
    let output = output_of(Command::new(fathom()).arg("show").arg(&archive))?;
    ensure!(output.status.code() == Some(1) && messages(&output).contains("999"), "{}", messages(&output));
    // The name of the creator is untrusted text.
    value["made_by"] = "Fathom \u{1b}[31m9".into();
    fs::write(&meta, value.to_string())?;
    let output = output_of(Command::new(fathom()).arg("show").arg(&archive))?;
    ensure!(!output.stderr.contains(&0x1b), "an escape sequence of an archive reaches the terminal");
    Ok(())
}

pub fn foreign_directory() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let precious = directory.path().join("photos.fathom");
    fs::create_dir(&precious)?;
    fs::write(precious.join("wedding.jpg"), "precious")?;
    let output = output_of(Command::new(fathom()).args(["record", "-o"]).arg(&precious).args(["--", "true"]))?;
    ensure!(output.status.code() == Some(1), "{:?}", output.status);
    ensure!(fs::read_to_string(precious.join("wedding.jpg"))? == "precious", "the directory was touched");
    Ok(())
}

pub fn removed_meanwhile() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(fathom());
    command.args(["record", "-o", "t.fathom", "--", "rm", "-r", "t.fathom"]).current_dir(directory.path());
    let output = output_of(&mut command)?;
    let messages = messages(&output);
    ensure!(output.status.code() == Some(1), "{:?}: {messages}", output.status);
    ensure!(messages.contains("was removed while it was being written") && !messages.contains("kept"), "{messages}");
    Ok(())
}
