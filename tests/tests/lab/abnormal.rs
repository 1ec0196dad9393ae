//! Guests that end abnormally: the output of `fathom lab`, its leftovers, and that no QEMU stays.

use super::scenario::{lab_command, messages_of};
use anyhow::{Context, Result, ensure};
use fathom_tests::contracts::check_contract;
use fathom_tests::{number, show};
use serde_json::Value;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// INSERTs, until that much of them is stored as events; then the rest of the command.
const BUSY_SCRIPT: &str = "while [ $(stat -c %s /share/trace.fathom/events.log) -lt 60000 ]; do \
                    fathom workload sqlite --op insert --rows 20 --samples none --dir {dir}; rm -f {dir}/*.db*; done";

fn scenario_words<'a>(setting: &'a str, silence: &'a str) -> [&'a str; 9] {
    ["run", "virtio-ext4", "-o", "out", "--json", "--set", setting, "--set", silence]
}

/// Waits until `so` holds. A guest that boots on a slow machine takes its time: the limit is only for one that never
/// comes up.
fn wait_until(what: &str, mut so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !so()? {
        ensure!(begun.elapsed() < Duration::from_secs(1200), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A run in that directory whose workload never ends.
struct RunningLab {
    fathom: Child,
    qemu: u32,
    out: PathBuf,
}

impl RunningLab {
    /// Starts it, and waits until something is recorded.
    fn start(directory: &Path, silence: &str) -> Result<Self> {
        let commands = format!("workload.commands=['{BUSY_SCRIPT}', 'sleep 100000']");
        let fathom = lab_command(directory, &scenario_words(&commands, silence)).stdout(Stdio::piped()).spawn()?;
        let log = directory.join("out/trace.fathom/events.log");
        let mut running = Self { fathom, qemu: 0, out: directory.join("out") };
        wait_until("a recording", || {
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

    /// Waits for its end: returns its exit status and its output. No QEMU is left.
    fn end(&mut self) -> Result<(Option<i32>, String, PathBuf)> {
        let mut line = String::new();
        self.fathom.stdout.take().context("its output")?.read_to_string(&mut line)?;
        let status = self.fathom.wait()?;
        let gone = || Ok(!Path::new(&format!("/proc/{}/exe", self.qemu)).exists());
        wait_until("the end of QEMU", gone)?;
        Ok((status.code(), line, self.out.clone()))
    }
}

impl Drop for RunningLab {
    fn drop(&mut self) {
        // Its guest ends with it. Both fail only if it has ended.
        let _ = self.fathom.kill();
        let _ = self.fathom.wait();
    }
}

/// Checks that what was recorded before the end can be shown.
fn show_json(out: &Path) -> Result<()> {
    let summary = show(&out.join("trace.fathom"))?;
    ensure!(summary["trace"]["complete"] == false, "{:#}", summary["trace"]);
    ensure!(number(&summary, "/device_commands/total")? > 0.0, "{:#}", summary["device_commands"]);
    ensure!(!summary["operations"].as_array().context("operations[]")?.is_empty(), "no operation");
    Ok(())
}

pub fn crashed_guest_leaves_its_recording() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let commands = format!("workload.commands=['{BUSY_SCRIPT}', 'echo c >/proc/sysrq-trigger']");
    let output = lab_command(directory.path(), &scenario_words(&commands, "machine.silence=2m")).output()?;
    let line: Value = serde_json::from_slice(&output.stdout).with_context(|| messages_of(&output))?;
    check_contract("lab-run", &line)?;
    ensure!(output.status.code() == Some(1) && line["ending"] == "crashed", "{line:#}");
    ensure!(line["said"].as_str().is_some_and(|s| s.contains("Kernel panic")), "{line:#}");
    ensure!(line["recording"]["complete"] == false && line["recording"]["operations"] != 0, "{line:#}");
    let console = std::fs::read_to_string(directory.path().join("out/console.log"))?;
    ensure!(console.contains("sysrq"), "{console}");
    show_json(&directory.path().join("out"))
}

pub fn hung_guest_is_ended_and_leaves_its_recording() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut running = RunningLab::start(directory.path(), "machine.silence=20s")?;
    // It is stopped completely, like a guest with all its processors in a loop.
    RunningLab::signal(running.qemu, "STOP")?;
    let (status, line, out) = running.end()?;
    ensure!(status == Some(1) && line.contains("\"ending\":\"hung\""), "{status:?}: {line}");
    show_json(&out)
}

pub fn ctrl_c_stops_guest_and_keeps_recording() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut running = RunningLab::start(directory.path(), "machine.silence=2m")?;
    RunningLab::signal(running.fathom.id(), "INT")?;
    let (status, line, out) = running.end()?;
    ensure!(status == Some(130) && line.contains("\"ending\":\"interrupted\""), "{status:?}: {line}");
    show_json(&out)
}

pub fn killed_lab_leaves_no_guest() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut running = RunningLab::start(directory.path(), "machine.silence=2m")?;
    RunningLab::signal(running.fathom.id(), "KILL")?;
    let (status, line, out) = running.end()?;
    ensure!(status.is_none() && line.is_empty(), "{status:?}: {line}");
    show_json(&out)
}

/// The files left in a directory for temporary files.
fn left_in(directory: &Path) -> Result<Vec<PathBuf>> {
    Ok(std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?)
}

/// The processes whose parent is this one.
fn child_pids(pid: u32) -> Vec<u32> {
    let said = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    said.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Starts a run, sends Ctrl-C once `phase` holds for its process and the directory of its temporary files, and checks its end: exit status
/// 130, no process and no file left.
fn ctrl_c_in(directory: &Path, mut command: Command, phase: impl Fn(u32, &Path) -> bool) -> Result<String> {
    let temporary = directory.join("tmp");
    std::fs::create_dir_all(&temporary)?;
    let fathom = command.env("TMPDIR", &temporary).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut running = RunningLab { fathom, qemu: 0, out: directory.join("out") };
    let pid = running.fathom.id();
    wait_until("the phase", || {
        ensure!(running.fathom.try_wait()?.is_none(), "it ended by itself");
        Ok(phase(pid, &temporary))
    })?;
    let started = child_pids(pid);
    RunningLab::signal(pid, "INT")?;
    let mut messages = String::new();
    running.fathom.stderr.take().context("its messages")?.read_to_string(&mut messages)?;
    let status = running.fathom.wait()?;
    ensure!(status.code() == Some(130), "{status:?}: {messages}");
    for pid in started {
        wait_until("the end of what it started", || Ok(!Path::new(&format!("/proc/{pid}/exe")).exists()))?;
    }
    let left = left_in(&temporary)?;
    ensure!(left.is_empty(), "{left:?} is left");
    Ok(messages)
}

/// While a kernel is fetched, or while waiting for another process that fetches: neither needs a guest.
pub fn fetching_is_interrupted() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let bin = directory.path().join("bin");
    std::fs::create_dir(&bin)?;
    let apt = bin.join("apt-get");
    std::fs::write(
        &apt,
        "#!/bin/sh\nsleep 100000 &\necho $$ $! >$APT_STARTED.new\nmv $APT_STARTED.new $APT_STARTED\nwait\n",
    )?;
    let made = Command::new("chmod").arg("+x").arg(&apt).status()?;
    ensure!(made.success(), "chmod");
    let started = directory.path().join("started");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let run = || {
        let mut command = Command::new(fathom_tests::fathom());
        command.current_dir(directory.path()).args(["lab", "run", "virtio-ext4", "-o", "out", "--cache", "cache"]);
        command.env("PATH", &path).env("APT_STARTED", &started);
        command
    };
    let said = ctrl_c_in(directory.path(), run(), |_, _| started.exists())?;
    ensure!(said.contains("interrupted before the guest had booted"), "{said}");
    for pid in std::fs::read_to_string(&started)?.split_whitespace() {
        wait_until("the end of apt", || Ok(!Path::new(&format!("/proc/{pid}/exe")).exists()))?;
    }
    ensure!(!directory.path().join("out").exists(), "an empty result is left");
    // Another process has the lock. The only sign that a run waits for it is that it has opened it.
    let lock = std::fs::File::create(directory.path().join("cache/lock"))?;
    lock.lock()?;
    let open = std::fs::canonicalize(directory.path().join("cache/lock"))?;
    let waits = |pid: u32, _: &Path| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.into_iter().any(|file| std::fs::read_link(file.path()).is_ok_and(|path| path == open))
    };
    ctrl_c_in(directory.path(), run(), waits)?;
    Ok(())
}

/// While the initramfs is built, while the guest boots, and while results are collected.
pub fn each_phase_is_interrupted() -> Result<()> {
    fn building(pid: u32, temporary: &Path) -> bool {
        child_pids(pid).is_empty() && left_in(temporary).is_ok_and(|all| !all.is_empty())
    }
    fn booting(pid: u32, _: &Path) -> bool {
        !child_pids(pid).is_empty()
    }
    for (name, phase) in [("building", building as fn(u32, &Path) -> bool), ("booting", booting)] {
        println!("{name}");
        let directory = tempfile::tempdir()?;
        let command = lab_command(directory.path(), &["run", "virtio-ext4", "-o", "out"]);
        let said = ctrl_c_in(directory.path(), command, phase)?;
        ensure!(said.contains("interrupted before the guest had booted"), "{name}: {said}");
        ensure!(!directory.path().join("out").exists(), "{name}: an empty result is left");
    }
    println!("collecting");
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("out/kernel.log");
    // Unmounting takes until all of this is on disk.
    let busy = "workload.commands=['fathom workload sqlite --op insert --rows 20 --dir {dir}', 'dd if=/dev/zero of={dir}/big bs=1M count=200']";
    let command = lab_command(directory.path(), &["run", "virtio-ext4", "-o", "out", "--set", busy]);
    ctrl_c_in(directory.path(), command, |_, _| log.exists())?;
    let summary = show(&directory.path().join("out/trace.fathom"))?;
    ensure!(number(&summary, "/operations/0/count")? > 0.0, "{:#}", summary["operations"]);
    Ok(())
}
