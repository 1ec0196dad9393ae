//! A disk whose device has known service times, whatever else a machine does: a loop disk on a file of
//! `experiments/causes/slowdisk.py`.

use anyhow::{Context, Result, ensure};
use lab::loopdisk::{Backing, FileSystem, LoopDisk, Options};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use tempfile::TempDir;

const PROGRAM_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments/causes/slowdisk.py");
/// Space for the database and a small journal; it is held in memory.
const DISK_BYTES: u64 = 64 << 20;

/// The disk, removed when dropped: first the disk, then its server.
#[derive(Debug)]
pub struct SlowDisk {
    pub disk: LoopDisk,
    server: Server,
}

#[derive(Debug)]
struct Server {
    child: Child,
    stdout: Mutex<BufReader<ChildStdout>>,
    _directory: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of its standard input ends it, and it unmounts.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl SlowDisk {
    /// Creates a disk whose writes and flushes take the given microseconds once it is [slow](Self::slow); with `tail`, one of this many
    /// commands takes twenty times as long. It serves `at_once` of them at a time.
    ///
    /// # Errors
    /// FUSE is missing, or the privilege to create disks.
    pub fn create(
        directory: &Path,
        (write_us, flush_us): (u64, u64),
        tail: Option<u64>,
        at_once: u64,
        options: &Options,
    ) -> Result<Self> {
        let own = tempfile::Builder::new().prefix("slow").tempdir_in(directory)?;
        let mut command = Command::new("chrt");
        command
            .args(["--rr", "2", "python3", PROGRAM_PATH])
            .arg(own.path())
            .args([write_us, flush_us, tail.unwrap_or(0), at_once].map(|n| n.to_string()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("starting slowdisk.py")?;
        let mut said = String::new();
        let stdout = child.stdout.take().context("its output")?;
        let mut stdout = BufReader::new(stdout);
        let read = stdout.read_line(&mut said);
        let server = Server { child, stdout: Mutex::new(stdout), _directory: own };
        read?;
        ensure!(said.trim() == "ready", "slowdisk.py does not serve");
        let backing = Backing::Directory(server._directory.path().into());
        let mut options = options.clone();
        if at_once > 1 {
            // Otherwise the loop device's worker waits for each.
            options.losetup.push("--direct-io=on".into());
        }
        options.mkfs.extend(["-J", "size=4"].map(String::from));
        if options.mkfs.iter().any(|word| word.contains("^has_journal")) {
            options.mkfs.truncate(options.mkfs.len() - 2);
        }
        let disk = LoopDisk::create(DISK_BYTES, FileSystem::Ext4, &backing, &options)?;
        hasten_journal(disk.device())?;
        Ok(Self { disk, server })
    }

    /// Switches to the given service times, which do not apply while the file system and the database are made.
    pub fn slow(&self) -> Result<()> {
        let mut stdin = self.server.child.stdin.as_ref().context("its input")?;
        stdin.write_all(b"slow\n").context("slowing slowdisk.py")?;
        let mut said = String::new();
        let mut stdout = self.server.stdout.lock().map_err(|_| anyhow::anyhow!("its output"))?;
        stdout.read_line(&mut said)?;
        ensure!(said.trim() == "slow", "slowdisk.py does not answer");
        Ok(())
    }
}

/// Gives the thread that commits the file system's journal the priority of the recorded program: a program that waits for it must not
/// wait for this machine's other work, nor for the CPU on which another program of that priority runs.
fn hasten_journal(device: &Path) -> Result<()> {
    let name = device.file_name().context("its name")?.to_string_lossy();
    let own = format!("jbd2/{name}-");
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let comm = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if comm.starts_with(&own) {
            crate::run(Command::new("chrt").args(["--rr", "--pid", "1"]).arg(entry.file_name()))?;
        }
    }
    Ok(())
}
