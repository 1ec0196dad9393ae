//! Truth for the claims of `explain` and the predictions of `whatif`: a program with known settings runs on a disk of its own, something is
//! changed that is known in every detail, and Fathom's output is compared with it.
//!
//! Every workload is drawn from a new seed, so that rules cannot be tuned to it: rows, their size, the page's size, the journal's
//! mode.

pub mod causes;
pub mod slowdisk;
pub mod whatif;

use self::slowdisk::SlowDisk;
use crate::{fathom, run};
use anyhow::{Context, Result};
use lab::loopdisk::Options;
use serde_json::{Map, Value, json};
use stats::random::Random;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const WORKLOAD_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments/causes/workload.py");

/// Where trials have their files: a temporary directory, or one in which they are kept.
#[derive(Debug)]
pub struct Place {
    keep: Option<PathBuf>,
    temporary: TempDir,
}

impl Place {
    /// Creates the place; the archives are kept in `keep`, if that is given.
    pub fn new(keep: Option<PathBuf>) -> Result<Self> {
        keep.iter().try_for_each(std::fs::create_dir_all).context("--keep")?;
        Ok(Self { keep, temporary: tempfile::tempdir()? })
    }

    /// A directory for one trial.
    pub fn trial(&self) -> Result<TempDir> {
        Ok(tempfile::Builder::new().prefix("truth").tempdir_in(self.temporary.path())?)
    }

    /// Keeps the files of a trial, if requested. `said` describes it and its outcome.
    pub fn done(&self, trial: TempDir, name: &str, said: &str) -> Result<()> {
        let Some(keep) = &self.keep else { return Ok(()) };
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        std::fs::write(trial.path().join("said"), format!("{said}\n"))?;
        let mut free = (0..).map(|nth| keep.join(format!("{name}.{nth}"))).filter(|to| !to.exists());
        let to = free.next().context("a name")?;
        run(Command::new("mv").arg(trial.path()).arg(&to)).map(drop)
    }
}

/// A disk of known service times, and how its file system is made.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    /// How long writes and flushes take, us.
    pub takes_us: (u64, u64),
    /// One of this many commands takes twenty times as long.
    pub tail: Option<u64>,
    /// How many commands it serves at a time, if more than one.
    pub at_once: Option<u64>,
    /// The most requests that the block layer has in flight on it (`nr_requests`).
    pub requests: Option<u64>,
    pub mount: String,
    pub mkfs: Vec<String>,
}

impl Disk {
    /// Makes it.
    pub fn make(&self, directory: &Path) -> Result<SlowDisk> {
        let options = Options { mount: self.mount.clone(), mkfs: self.mkfs.clone(), ..Options::default() };
        let disk = SlowDisk::create(directory, self.takes_us, self.tail, self.at_once.unwrap_or(1), &options)?;
        if let Some(requests) = self.requests {
            let name = disk.disk.device().file_name().context("its name")?;
            let file = Path::new("/sys/class/block").join(name).join("queue/nr_requests");
            std::fs::write(&file, requests.to_string()).with_context(|| format!("{}", file.display()))?;
        }
        Ok(disk)
    }
}

/// Draws a random device: writes of 0.1 to 1 ms, flushes of 1 to 8 ms.
pub fn draw_device(random: &mut Random) -> (u64, u64) {
    (100 + random.below(900), 1000 + random.below(7000))
}

/// Settings of the program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings(pub Map<String, Value>);

impl Settings {
    /// Draws settings for INSERTs, each a transaction of its own, of a random size and number.
    pub fn draw(random: &mut Random) -> Self {
        let mut own = Self::default();
        let between = |random: &mut Random, low: u64, high: u64| low + random.below(high - low + 1);
        let page = [1024, 2048, 4096, 8192][random.below(4) as usize];
        own.set("page_size", json!(page));
        own.set("rows", json!(between(random, 40, 100)));
        own.set("bytes", json!(between(random, 20, 900)));
        own.set("table_rows", json!(between(random, 100, 2000)));
        own
    }

    pub fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.into(), value);
    }

    /// These settings with more.
    pub fn with_settings(&self, more: &[(&str, Value)]) -> Self {
        let mut own = self.clone();
        more.iter().for_each(|(name, value)| own.set(name, value.clone()));
        own
    }

    /// The command that runs the program.
    fn argv(&self, action: &str, database: &Path) -> Vec<String> {
        let with = self.with_settings(&[("database", json!(database))]);
        ["python3", WORKLOAD_PATH, action, &Value::Object(with.0).to_string()].map(String::from).to_vec()
    }
}

/// The state before a recording begins.
#[derive(Debug)]
pub struct PreparedRun {
    /// The program and the wrapper that runs it.
    pub argv: Vec<String>,
    pub database: PathBuf,
    /// A file, elsewhere, that it creates when its statements begin.
    pub begun: PathBuf,
}

/// Creates the database on a disk, then records the program there, with the disk as slow as requested. `around` runs between the two,
/// and its result lives as long as the recording. Returns the archive, and the program's own report.
pub fn run_recorded<T>(
    directory: &Path,
    name: &str,
    disk: &SlowDisk,
    settings: &Settings,
    around: impl FnOnce(&mut PreparedRun) -> Result<T>,
) -> Result<(PathBuf, Value)> {
    let (mut prepared, report) = prepare_run(directory, name, disk, settings)?;
    let alive = around(&mut prepared)?;
    let archive = directory.join(format!("{name}.fathom"));
    let mut command = Command::new(fathom());
    command.args(["record", "--quiet", "--as-root", "--backend", "ebpf", "-o"]).arg(&archive);
    run(command.arg("--").args(&prepared.argv))?;
    drop(alive);
    Ok((archive, read_report(&report)?))
}

/// The same without recording: returns the program's own report.
pub fn run_unrecorded(directory: &Path, name: &str, disk: &SlowDisk, settings: &Settings) -> Result<Value> {
    let (prepared, report) = prepare_run(directory, name, disk, settings)?;
    run(Command::new(&prepared.argv[0]).args(&prepared.argv[1..]))?;
    read_report(&report)
}

fn prepare_run(directory: &Path, name: &str, disk: &SlowDisk, settings: &Settings) -> Result<(PreparedRun, PathBuf)> {
    let database = disk.disk.path().join(format!("{name}.db"));
    let [report, begun] = ["json", "begun"].map(|end| directory.join(format!("{name}.{end}")));
    let settings = settings.with_settings(&[("report", json!(report)), ("begun", json!(begun))]);
    let setup = settings.argv("setup", &database);
    run(Command::new(&setup[0]).args(&setup[1..]))?;
    disk.slow()?;
    // Others may use this machine's CPUs; the time that they take from the program would hide the effect.
    let mut argv: Vec<String> = ["chrt", "--rr", "1"].map(String::from).to_vec();
    argv.truncate(if settings.0.get("plain").is_some() { 0 } else { 3 });
    argv.extend(settings.argv("run", &database));
    Ok((PreparedRun { argv, database, begun }, report))
}

fn read_report(report: &Path) -> Result<Value> {
    let said = std::fs::read_to_string(report).context("what the program says of itself")?;
    Ok(serde_json::from_str(&said)?)
}

/// The JSON output of a verb for an archive.
pub fn verb_output(verb: &str, archive: &Path, arguments: &[String]) -> Result<Value> {
    let output = run(Command::new(fathom()).arg(verb).arg(archive).args(arguments).arg("--json"))?;
    serde_json::from_slice(&output.stdout).with_context(|| format!("fathom {verb} --json"))
}

/// The time of all statements, ns: those of the program run inside no other.
pub fn statement_time_ns(archive: &Path) -> Result<f64> {
    let summary = verb_output("show", archive, &[])?;
    let all = summary["operations"].as_array().context("operations[]")?;
    Ok(all.iter().filter_map(|operation| operation["latency_ns"]["sum"].as_f64()).sum())
}

/// The machine while something ran on it.
#[derive(Debug)]
pub struct Machine {
    load: String,
    waited_us: Option<u64>,
    since: Instant,
}

fn read_text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn load_average() -> String {
    read_text("/proc/loadavg").split_whitespace().next().unwrap_or("unknown").to_owned()
}

/// Time in which some thread was runnable without a CPU, as the kernel counts it.
fn waited_us() -> Option<u64> {
    let text = read_text("/proc/pressure/cpu");
    text.lines().find_map(|line| line.strip_prefix("some ")?.rsplit_once("total=")?.1.parse().ok())
}

impl Machine {
    /// Starts watching.
    pub fn watch() -> Self {
        Self { load: load_average(), waited_us: waited_us(), since: Instant::now() }
    }

    /// The machine and how busy it was, for a results page.
    pub fn said(&self) -> String {
        let release = read_text("/proc/sys/kernel/osrelease");
        let kernel = release.trim().split('.').take(2).collect::<Vec<_>>().join(".");
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        let elapsed = self.since.elapsed();
        let waited = self.waited_us.zip(waited_us()).map_or_else(String::new, |(before, after)| {
            let part = after.saturating_sub(before) as f64 / elapsed.as_micros().max(1) as f64;
            format!(", some thread waited for a CPU {:.0} % of the time (/proc/pressure/cpu)", 100.0 * part)
        });
        let minutes = elapsed.as_secs_f64() / 60.0;
        format!(
            "Linux {kernel}, {cpus} CPUs, {minutes:.0} minutes, load average {} to {}{waited}",
            self.load,
            load_average()
        )
    }
}

/// The reason why trials ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Ctrl-C, or a SIGTERM.
    Interrupt,
    /// Their time limit.
    Time(Duration),
}

/// What is missing from a page of results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MissingParts {
    /// Trials that were requested.
    pub trials: usize,
    /// Why they ended early, and after how many trials.
    pub ended: Option<(End, usize)>,
    /// Trials that failed, with why.
    pub failed: Vec<String>,
    /// Subjects without a trial.
    pub untried: Vec<String>,
}

impl MissingParts {
    /// The missing parts as paragraphs of a page; nothing if nothing is missing.
    pub fn said(&self) -> String {
        let mut out = String::new();
        match self.ended {
            Some((End::Interrupt, done)) => {
                out += &format!(
                    "**Interrupted after {done} of {} trials**: what stands here is of these only.\n\n",
                    self.trials
                );
            }
            Some((End::Time(budget), done)) => {
                out += &format!(
                    "**{}, as many as {:.0} minutes allowed**, each subject in turn; at most {} were requested.\n\n",
                    model::counted(done, "trial"),
                    budget.as_secs_f64() / 60.0,
                    self.trials
                );
            }
            None => {}
        }
        if !self.failed.is_empty() {
            out += &format!("{} failed, not in it:\n\n", model::counted(self.failed.len(), "trial"));
            self.failed.iter().for_each(|failed| out += &format!("- {failed}\n"));
            out += "\n";
        }
        if !self.untried.is_empty() {
            out += "Without a trial:\n\n";
            self.untried.iter().for_each(|name| out += &format!("- {name}\n"));
            out += "\n";
        }
        out
    }
}

/// Whether Ctrl-C was pressed: completed measurements are kept, the current trial is not.
static STOP_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Ctrl-C, SIGTERM and SIGHUP end the trials from now on.
pub fn stop_on_interrupt() {
    extern "C" fn stop(_: libc::c_int) {
        STOP_REQUESTED.store(true, Ordering::Relaxed);
    }
    let handler = stop as extern "C" fn(libc::c_int);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores into an atomic.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

pub fn is_stopped() -> bool {
    STOP_REQUESTED.load(Ordering::Relaxed)
}

/// The median; for an even number of values the upper one.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_names_what_is_missing() {
        let missing = MissingParts {
            trials: 220,
            ended: Some((End::Interrupt, 4)),
            failed: vec!["lock holder: no answer".into()],
            untried: vec!["lock holder".into(), "missing index".into()],
        };
        let said = missing.said();
        assert!(said.starts_with("**Interrupted after 4 of 220 trials**"), "{said}");
        assert!(
            said.contains("1 trial failed") && said.contains("Without a trial:\n\n- lock holder\n- missing index"),
            "{said}"
        );
        assert_eq!(MissingParts { trials: 9, ..MissingParts::default() }.said(), "");
        let late = MissingParts { trials: 900, ended: Some((End::Time(Duration::from_secs(1200)), 187)), ..missing };
        assert!(late.said().starts_with("**187 trials, as many as 20 minutes allowed**"), "{}", late.said());
    }
}
