//! Guests that end otherwise: what `fathom lab` says, what it leaves, and that no QEMU stays.

use super::scenario::{lab, messages};
use anyhow::{Context, Result, ensure};
use fathom_tests::contracts::hold;
use fathom_tests::{number, show};
use serde_json::Value;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// INSERTs, until so much of them is stored as events; then what comes next.
const BUSY: &str = "while [ $(stat -c %s /share/trace.fathom/events.log) -lt 60000 ]; do \
                    fathom workload sqlite --op insert --rows 20 --samples none --dir {dir}; rm -f {dir}/*.db*; done";

fn words<'a>(setting: &'a str, silence: &'a str) -> [&'a str; 9] {
    ["run", "virtio-ext4", "-o", "out", "--json", "--set", setting, "--set", silence]
}

/// Waits until `so` holds. A guest that boots on a slow machine takes its time: the limit is for one that never comes.
fn until(what: &str, mut so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !so()? {
        ensure!(begun.elapsed() < Duration::from_secs(1200), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A run in that folder whose workload goes on for ever.
struct Running {
    fathom: Child,
    qemu: u32,
    out: PathBuf,
}

impl Running {
    /// Starts it, and waits until something is recorded.
    fn start(folder: &Path, silence: &str) -> Result<Self> {
        let commands = format!("workload.commands=['{BUSY}', 'sleep 100000']");
        let fathom = lab(folder, &words(&commands, silence)).stdout(Stdio::piped()).spawn()?;
        let log = folder.join("out/trace.fathom/events.log");
        let mut running = Self { fathom, qemu: 0, out: folder.join("out") };
        until("a recording", || {
            ensure!(running.fathom.try_wait()?.is_none(), "it ended by itself");
            Ok(log.metadata().is_ok_and(|m| m.len() >= 60_000))
        })?;
        let children = format!("/proc/{0}/task/{0}/children", running.fathom.id());
        let children = std::fs::read_to_string(&children).context(children)?;
        running.qemu = children.split_whitespace().next().context("it has no child")?.parse()?;
        Ok(running)
    }

    fn signal(pid: u32, signal: &str) -> Result<()> {
        let sent = Command::new("kill").args(["-s", signal, &pid.to_string()]).status()?;
        ensure!(sent.success(), "cannot send {signal} to {pid}");
        Ok(())
    }

    /// Waits for its end: its exit status and what it printed. No QEMU is left.
    fn end(&mut self) -> Result<(Option<i32>, String, PathBuf)> {
        let mut line = String::new();
        self.fathom.stdout.take().context("its output")?.read_to_string(&mut line)?;
        let status = self.fathom.wait()?;
        let gone = || Ok(!Path::new(&format!("/proc/{}/exe", self.qemu)).exists());
        until("the end of QEMU", gone)?;
        Ok((status.code(), line, self.out.clone()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its guest ends with it. Both fail only if it has ended.
        let _ = self.fathom.kill();
        let _ = self.fathom.wait();
    }
}

/// What was recorded before the end can be shown.
fn show_json(out: &Path) -> Result<()> {
    let summary = show(&out.join("trace.fathom"))?;
    ensure!(summary["trace"]["complete"] == false, "{:#}", summary["trace"]);
    ensure!(number(&summary, "/device_commands/total")? > 0.0, "{:#}", summary["device_commands"]);
    ensure!(!summary["operations"].as_array().context("operations[]")?.is_empty(), "no operation");
    Ok(())
}

pub fn crash() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let commands = format!("workload.commands=['{BUSY}', 'echo c >/proc/sysrq-trigger']");
    let output = lab(folder.path(), &words(&commands, "machine.silence=2m")).output()?;
    let line: Value = serde_json::from_slice(&output.stdout).with_context(|| messages(&output))?;
    hold("lab-run", &line)?;
    ensure!(output.status.code() == Some(1) && line["ending"] == "crashed", "{line:#}");
    ensure!(line["said"].as_str().is_some_and(|s| s.contains("Kernel panic")), "{line:#}");
    ensure!(line["recording"]["complete"] == false && line["recording"]["operations"] != 0, "{line:#}");
    let console = std::fs::read_to_string(folder.path().join("out/console.log"))?;
    ensure!(console.contains("sysrq"), "{console}");
    show_json(&folder.path().join("out"))
}

pub fn hang() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut running = Running::start(folder.path(), "machine.silence=20s")?;
    // It stands still as a whole, as a guest with all its processors in a loop does.
    Running::signal(running.qemu, "STOP")?;
    let (status, line, out) = running.end()?;
    ensure!(status == Some(1) && line.contains("\"ending\":\"hung\""), "{status:?}: {line}");
    show_json(&out)
}

pub fn interrupted() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut running = Running::start(folder.path(), "machine.silence=2m")?;
    Running::signal(running.fathom.id(), "INT")?;
    let (status, line, out) = running.end()?;
    ensure!(status == Some(130) && line.contains("\"ending\":\"interrupted\""), "{status:?}: {line}");
    show_json(&out)
}

pub fn killed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut running = Running::start(folder.path(), "machine.silence=2m")?;
    Running::signal(running.fathom.id(), "KILL")?;
    let (status, line, out) = running.end()?;
    ensure!(status.is_none() && line.is_empty(), "{status:?}: {line}");
    show_json(&out)
}
