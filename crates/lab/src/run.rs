//! Runs a scenario in a guest, from boot to outcome.
//!
//! Everything that is to outlive the guest is written into a directory of the host while it happens: the recording, the workload's
//! output, the console. So a guest that panics or hangs in the middle leaves what was written until then, and its end is a
//! result like any other: only a failed start is an error.
//!
//! Uncertainty: a busy guest and a hung one look alike for a while. Its init reports every five seconds while a command runs
//! (`init.sh`); a guest that was silent for `machine.silence` is considered hung.

use crate::guest::{Config, Disk, Guest, Output};
use crate::scenario::{Bus, Error as Wrong, Scenario, script};
use crate::{Error, find_program};
use model::Context;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long preparing the disks may take: an emulated processor is slow to make file systems.
pub(crate) const PREPARE_TIMEOUT: Duration = Duration::from_secs(300);
/// Time for a recording beyond its workload's limit: attaching, and linking the recording.
const LINKING_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a shell may stay open.
const SHELL_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// How often progress is drawn.
const DRAW_INTERVAL: Duration = Duration::from_millis(200);

/// The recording, in the run's directory.
pub const ARCHIVE_NAME: &str = script::ARCHIVE_NAME;
/// Output of recording and workload.
pub const WORKLOAD_LOG: &str = script::WORKLOAD_LOG;
/// The guest's kernel log, from its boot.
pub const CONSOLE_LOG: &str = "console.log";
/// The guest's disks, if they are kept, its initramfs and the command that started it.
pub const GUEST_DIRECTORY: &str = "guest";
/// The scenario with its settings, to run the same again.
pub const SCENARIO_FILE: &str = "scenario.toml";

/// The paths of a run.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    pub cache: &'a Path,
    /// The program that records in the guest.
    pub program: &'a Path,
    /// The directory of the result, which exists.
    pub directory: &'a Path,
    /// Whether to keep the guest's disks, in [`GUEST_DIRECTORY`].
    pub keep: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Ended {
        /// Its exit status.
        status: i32,
    },
    /// The workload did not end within its limit.
    TimedOut,
    /// The disks could not be prepared.
    NotPrepared(String),
    /// The recording failed before the workload began.
    NotRecorded(String),
    /// The guest's kernel panicked, with this message.
    Crashed(String),
    /// The guest was alive and printed nothing.
    Hung,
    Interrupted,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub ending: Ending,
    /// The guest's kernel.
    pub release: String,
    pub accelerator: crate::accelerator::Accelerator,
    /// How long it took in all.
    pub took: Duration,
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// The scenario is wrong.
    #[error(transparent)]
    Wrong(#[from] Wrong),
    /// The machine or the guest is at fault.
    #[error(transparent)]
    Lab(#[from] Error),
}

/// Boots a guest and runs the scenario in it. Cancelling the context ends it, with the results until then.
///
/// # Errors
/// This machine lacks something, or the guest does not boot.
pub fn run(scenario: &Scenario, options: &Options<'_>, context: &Context) -> Result<Outcome, NotStarted> {
    let begin = Instant::now();
    check_no_forward(scenario)?;
    let config = guest_config(scenario, options, context)?;
    let phase = Mutex::new("booting".to_string());
    let (end, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let shown = &phase;
        scope.spawn(move || draw_progress(shown, context, &ended));
        // Dropped on every return path, which ends the drawing.
        let _end = end;
        let enter = |name: &str| *phase.lock().unwrap_or_else(|e| e.into_inner()) = name.to_string();
        enter(if crate::kernel::Kernel::is_cached(options.cache, scenario.machine.arch) {
            "booting"
        } else {
            "fetching Debian's kernel"
        });
        let mut guest = Guest::boot(&config, options.cache)?;
        write(&options.directory.join(SCENARIO_FILE), &scenario.to_toml())?;
        let ending = run_steps(&mut guest, scenario, options.directory, &enter);
        let ending = ending.unwrap_or_else(|_| abnormal_ending(&mut guest, context));
        write(&options.directory.join(CONSOLE_LOG), &guest.console())?;
        Ok(Outcome { ending, release: guest.release.clone(), accelerator: guest.accelerator, took: begin.elapsed() })
    })
}

/// Boots a guest with the scenario's disks, prepares them, and runs a shell on its terminal, whose other end is passed to `attach`.
/// Ends with the shell.
///
/// # Errors
/// This machine lacks something, the guest does not boot, or it ends before the shell does.
pub fn shell(
    scenario: &Scenario,
    options: &Options<'_>,
    context: &Context,
    attach: impl FnOnce(UnixStream),
) -> Result<(), NotStarted> {
    check_no_forward(scenario)?;
    let config = Config { terminal: true, ..guest_config(scenario, options, context)? };
    context.progress("booting", 0, 0);
    let mut guest = Guest::boot(&config, options.cache)?;
    context.progress("preparing disks", 0, 0);
    let Output { status, stderr, .. } = guest.run(&format!("sh {}", script::PREPARE_PATH), PREPARE_TIMEOUT)?;
    context.clear_progress();
    if status != 0 {
        return Err(Error::Guest(format!("could not prepare its disks: {}", last_lines(&stderr))).into());
    }
    if let Some(terminal) = guest.terminal.take() {
        attach(terminal);
    }
    guest.run(script::SHELL_COMMAND, SHELL_TIMEOUT)?;
    guest.run(&script::put_away(), PREPARE_TIMEOUT)?;
    Ok(())
}

/// Shows the current phase and its duration, until the other end of `ended` is gone.
fn draw_progress(phase: &Mutex<String>, context: &Context, ended: &std::sync::mpsc::Receiver<()>) {
    let (mut since, mut last) = (Instant::now(), String::new());
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(DRAW_INTERVAL) {
        let phase = phase.lock().unwrap_or_else(|e| e.into_inner()).clone();
        if phase != last {
            (since, last) = (Instant::now(), phase);
        }
        context.progress(&format!("{last}, {} s", since.elapsed().as_secs()), 0, 0);
    }
}

fn run_steps(guest: &mut Guest, scenario: &Scenario, directory: &Path, enter: &dyn Fn(&str)) -> Result<Ending, Error> {
    enter("preparing disks");
    let Output { status, stderr, .. } = guest.run(&format!("sh {}", script::PREPARE_PATH), PREPARE_TIMEOUT)?;
    if status != 0 {
        return Ok(Ending::NotPrepared(last_lines(&stderr)));
    }
    enter("running the workload");
    let limit = scenario.workload.limit.duration() + LINKING_TIMEOUT;
    let recorded = guest.run(&script::record(scenario), limit)?;
    enter("collecting");
    let away = guest.run(&script::put_away(), PREPARE_TIMEOUT)?;
    Ok(match away.stdout.trim().parse() {
        Ok(status) => Ending::Ended { status },
        Err(_) if recorded.status == 0 || recorded.status > 2 => Ending::TimedOut,
        Err(_) => {
            let messages = std::fs::read_to_string(directory.join(WORKLOAD_LOG)).unwrap_or_default();
            Ending::NotRecorded(last_lines(&messages))
        }
    })
}

/// Why the guest does not respond any more.
fn abnormal_ending(guest: &mut Guest, context: &Context) -> Ending {
    if context.cancelled() {
        return Ending::Interrupted;
    }
    if guest.has_exited() {
        return Ending::Crashed(panic_line(&guest.console()));
    }
    Ending::Hung
}

/// The kernel's panic message.
fn panic_line(console: &str) -> String {
    let plain = |line: &str| line.split_once("] ").map_or(line, |(_, messages)| messages).trim().to_string();
    let panic = console.lines().find(|line| line.contains("Kernel panic"));
    let last = console.lines().rev().find(|line| !line.trim().is_empty());
    panic.or(last).map_or_else(|| "its console is empty".into(), plain)
}

pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

pub(crate) fn guest_config(
    scenario: &Scenario,
    options: &Options<'_>,
    context: &Context,
) -> Result<Config, NotStarted> {
    let arch = scenario.machine.arch;
    let wrong = |what: String| Wrong { place: "scenario".into(), what };
    if !arch.is_own() {
        check_foreign(scenario).map_err(wrong)?;
    }
    let (mkfs, package) = scenario.filesystem.kind.mkfs();
    let mkfs_path = find_program(mkfs, package)?;
    let mut programs: Vec<(String, PathBuf)> = Vec::new();
    let mut made = BTreeMap::new();
    if arch.is_own() {
        programs.push((mkfs.into(), mkfs_path));
    } else {
        let fs = &scenario.filesystem;
        let words = std::iter::once(mkfs).chain(fs.kind.mkfs_options().iter().copied()).map(String::from);
        made.insert(fs.disk.clone(), words.chain(fs.mkfs.iter().cloned()).collect());
    }
    if scenario.disk.values().any(|disk| disk.map.is_some()) {
        programs.push(("dmsetup".into(), find_program("dmsetup", "dmsetup")?));
    }
    for name in &scenario.workload.programs {
        let path = find_program(name, name).map_err(|_| Error::Workload(name.clone()))?;
        programs.push((name.clone(), path));
    }
    let named: Vec<(String, String)> =
        programs.iter().map(|(n, p)| (n.clone(), p.to_string_lossy().into_owned())).collect();
    let texts = vec![
        (script::PREPARE_PATH.to_string(), script::prepare(scenario, &named, !made.is_empty())),
        (script::WORKLOAD_PATH.to_string(), script::workload(scenario).map_err(wrong)?),
    ];
    let disk = |(name, disk): (&String, &crate::scenario::Disk)| {
        Some(Disk { name: name.clone(), bus: disk.bus.qemu()?, bytes: disk.size.0, ext4: false })
    };
    let directory = std::fs::canonicalize(options.directory).map_err(|e| Error::io("find", options.directory, e))?;
    let program = arch.program(options.program)?;
    Ok(Config {
        arch,
        memory_mb: (scenario.machine.memory.0 >> 20) as u32,
        cpus: scenario.machine.cpus,
        accelerator: scenario.machine.accelerator,
        disks: scenario.disk.iter().filter_map(disk).collect(),
        mkfs: made,
        modules: modules(scenario),
        // Its path here may be below a directory that the guest has as well.
        files: vec![(program, "bin/fathom".into())],
        programs: programs.into_iter().map(|(_, path)| path).collect(),
        texts,
        keep: options.keep.then(|| directory.join(GUEST_DIRECTORY)),
        share: Some(directory),
        silence: scenario.machine.silence.duration(),
        context: context.clone(),
        ..Config::default()
    })
}

/// A guest without a network has no ports to forward.
fn check_no_forward(scenario: &Scenario) -> Result<(), Wrong> {
    if scenario.machine.forward.is_empty() {
        return Ok(());
    }
    let what = "only a guest that is a device has a network: `fathom lab exec`, --device lab:SCENARIO".into();
    Err(Wrong { place: "machine.forward".into(), what })
}

/// What a guest of another architecture cannot have: this machine's programs do not run in it.
fn check_foreign(scenario: &Scenario) -> Result<(), String> {
    let arch = scenario.machine.arch.name();
    if let Some(name) = scenario.workload.programs.first() {
        return Err(format!("workload.programs: this machine's {name} does not run on {arch}; busybox and fathom do"));
    }
    if let Some((name, _)) = scenario.disk.iter().find(|(_, disk)| disk.map.is_some()) {
        return Err(format!("disk.{name}.map: this machine's dmsetup does not run on {arch}"));
    }
    let disk = &scenario.filesystem.disk;
    if scenario.disk.get(disk).is_some_and(|disk| disk.bus.qemu().is_none()) {
        return Err(format!(
            "disk.{disk}.bus: the file system of an {arch} guest is made on this machine, so its disk must be virtio, scsi, nvme or sd"
        ));
    }
    Ok(())
}

/// The kernel modules that the scenario's parts need.
fn modules(scenario: &Scenario) -> Vec<String> {
    let mut modules: Vec<String> = scenario.filesystem.kind.modules().iter().map(ToString::to_string).collect();
    for disk in scenario.disk.values() {
        modules.extend(disk.scheduler.and_then(|s| s.module()).map(String::from));
        modules.extend(disk.map.as_ref().and_then(|m| m.module()).map(String::from));
        if disk.bus == Bus::ScsiDebug {
            let parameters = disk.parameters.iter().map(|p| format!(" {p}")).collect::<String>();
            modules.push(format!("scsi_debug dev_size_mb={}{parameters}", disk.size.0 >> 20));
        }
    }
    modules
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|e| Error::io("write", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_panic_is_quoted_from_the_console() {
        let console = "[    1.2] EXT4-fs (sda): mounted\n[   12.0] Kernel panic - not syncing: sysrq triggered crash\n[   12.1] CPU: 0\n";
        assert_eq!(panic_line(console), "Kernel panic - not syncing: sysrq triggered crash");
        assert_eq!(panic_line("[ 9.1] reboot: Power down\n\n"), "reboot: Power down");
        assert_eq!(panic_line(""), "its console is empty");
    }
}
