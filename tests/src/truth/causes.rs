//! Injected causes, and the finding that `fathom explain` must put first; healthy workloads, in which it must find nothing.
//!
//! `experiments/causes/causes.toml` lists both. A cause's size has a truth, too: the same workload without it, recorded in the same trial,
//! in random order. The largest possible saving in the first expected finding is compared with the actual saving.

use super::whatif::Hogs;
use super::{Disk, MissingParts, Place, PreparedRun, Settings, median, run_recorded, run_unrecorded, verb_output};
use anyhow::{Context, Result, bail, ensure};
use lab::loopdisk::LoopDisk;
use model::FindingCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use stats::random::Random;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const CAUSES_TOML: &str = include_str!("../../../experiments/causes/causes.toml");
/// From this share of the program's time without a CPU on, by the kernel's count, scheduling delay is not a false finding: half of the
/// threshold of `explain`, which is relative to the statements' time only.
const DELAY_SHARE_MIN: f64 = 0.05;

/// Rounds, each of both sides, recorded and unrecorded, where the truth comes from unrecorded runs. The fastest of each kind counts: a
/// neighbour on the same processor can only make one slower, by a half or more, for a second or longer.
const ROUND_COUNT: usize = 6;

/// Causes and healthy workloads.
#[derive(Debug, Deserialize)]
pub struct List {
    pub cause: Vec<Cause>,
    /// Workloads without any.
    pub healthy: Vec<Cause>,
}

/// A cause, or the lack of one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// Its name, for people.
    pub name: String,
    /// Codes of findings, any of which names it. The first one's size is compared, or with `sum` that of all.
    #[serde(default)]
    pub expect: Vec<FindingCode>,
    /// Settings, or the values that they are drawn from.
    pub settings: Map<String, Value>,
    /// The settings that remove the cause.
    pub without: Option<Map<String, Value>>,
    /// What other processes are made to do: see [`Injection`].
    pub inject: Option<String>,
    /// The amount of it.
    #[serde(default)]
    pub amount: Value,
    /// How long writes and flushes take, us, where that matters.
    pub device: Option<[Value; 2]>,
    #[serde(default)]
    pub mount: String,
    /// The same without the cause.
    pub mount_without: Option<String>,
    #[serde(default)]
    pub mkfs: Vec<String>,
    /// Whether the size of the finding has a truth to compare with.
    #[serde(default = "yes")]
    pub sized: bool,
    /// Whether the times of the expected findings are disjoint, so that together they are the cause's.
    #[serde(default)]
    pub sum: bool,
    /// Whether that truth comes from unrecorded runs: if the cause makes calls that are costly to record, it would be too large.
    #[serde(default)]
    pub unrecorded: bool,
}

fn yes() -> bool {
    true
}

/// The list in the repository.
pub fn read_list() -> Result<List> {
    toml::from_str(CAUSES_TOML).context("experiments/causes/causes.toml")
}

/// What lives while the program runs.
enum Injection {
    Nothing,
    Hogs { _alive: Hogs },
    Group { directory: PathBuf },
    Dirty { directory: PathBuf },
    Other(Child),
}

impl Drop for Injection {
    fn drop(&mut self) {
        match self {
            Self::Nothing | Self::Hogs { .. } => {}
            Self::Group { directory } => {
                let _ = std::fs::remove_dir(directory);
            }
            Self::Dirty { directory } => remove_dirty_limit(directory),
            Self::Other(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Removes the limit of dirty pages from a disk. A loop device's limit outlives the disk: the next user of the device would be
/// throttled.
fn remove_dirty_limit(directory: &Path) {
    for (file, value) in [("strict_limit", "0"), ("max_ratio", "100")] {
        let _ = std::fs::write(directory.join(file), value);
    }
}

/// The path of the limits of a disk's dirty pages.
fn dirty_limits_path(directory: &Path) -> Result<PathBuf> {
    Ok(Path::new("/sys/class/bdi").join(device_numbers(directory)?))
}

/// Syncs a file of its own repeatedly, from when the program begins.
const WRITER_SCRIPT: &str = "
import os, sys, time
f = os.open(sys.argv[1] + '.other', os.O_CREAT | os.O_RDWR, 0o644)
n = int(sys.argv[2])
print('ready', flush=True)
while not os.path.exists(sys.argv[3]):
    time.sleep(0.001)
while True:
    os.pwrite(f, b'x' * 4096 * n, 0)
    os.fsync(f)
";

/// Appends to a file of its own, a number of KiB at a time, and leaves the writing to processes that sync. It, too, begins with the
/// program: the owner of pages dirtied before a recording is unknown.
const APPENDER_SCRIPT: &str = "
import os, sys, time
f = os.open(sys.argv[1] + '.other', os.O_CREAT | os.O_RDWR, 0o644)
at = 0
print('ready', flush=True)
while not os.path.exists(sys.argv[3]):
    time.sleep(0.001)
while True:
    os.pwrite(f, b'x' * 1024 * int(sys.argv[2]), at)
    at = (at + 1024 * int(sys.argv[2])) % (16 << 20)
    if at < 1024 * int(sys.argv[2]):
        os.ftruncate(f, 0)
    time.sleep(0.004)
";

/// Holds the database's write lock for the given ms, then releases it for one. It requests the lock without a pause, since SQLite's busy
/// handler, which sleeps longer each time, hardly ever hits the moment between two transactions of a program that does nothing else; and it
/// has the lock before it reports so, so that the program finds it held.
const HOLDER_SCRIPT: &str = "
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)
s = int(sys.argv[2]) / 1000
said = False
while True:
    try:
        db.execute('BEGIN IMMEDIATE')
    except sqlite3.OperationalError:
        continue
    if not said:
        print('ready', flush=True)
        said = True
    time.sleep(s)
    db.execute('ROLLBACK')
    time.sleep(0.001)
";

/// Runs the program in a cgroup of its own, with a limit: file and text for the unified hierarchy, otherwise those of version
/// 1.
fn limit_by_cgroup(
    argv: &mut Vec<String>,
    controller: &str,
    unified: (&str, String),
    old: &[(&str, String)],
) -> Result<Injection> {
    let own = format!("fathom-truth-{}", std::process::id());
    let two = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let root = if two { PathBuf::from("/sys/fs/cgroup") } else { Path::new("/sys/fs/cgroup").join(controller) };
    let directory = root.join(own);
    std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    let injected = Injection::Group { directory: directory.clone() };
    let unified = [unified];
    for (file, value) in if two { &unified[..] } else { old } {
        std::fs::write(directory.join(file), value).with_context(|| format!("{} of {}", file, directory.display()))?;
    }
    let enter = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", directory.display());
    argv.splice(0..0, ["sh", "-c", &enter, "sh"].map(String::from));
    Ok(injected)
}

/// `MAJOR:MINOR` of the disk that holds a directory.
fn device_numbers(directory: &Path) -> Result<String> {
    let dev = std::fs::metadata(directory)?.dev();
    Ok(format!("{}:{}", libc::major(dev), libc::minor(dev)))
}

/// Starts a program that reports when it is ready, and waits for that.
fn start_helper(program: &str, prepared: &PreparedRun, amount: u64) -> Result<Injection> {
    // With the priority of the recorded program: other work on this machine must not keep it from its purpose.
    let mut command = Command::new("chrt");
    command.args(["--rr", "1", "python3", "-c", program]).arg(&prepared.database);
    command.arg(amount.to_string()).arg(&prepared.begun);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take();
    let injected = Injection::Other(child);
    let mut said = String::new();
    BufReader::new(stdout.context("its output")?).read_line(&mut said)?;
    ensure!(said.trim() == "ready", "the other program does not answer");
    Ok(injected)
}

impl Cause {
    fn injected(&self, amount: u64, disk: &LoopDisk, prepared: &mut PreparedRun) -> Result<Injection> {
        Ok(match self.inject.as_deref() {
            None => Injection::Nothing,
            Some("hogs") => Injection::Hogs { _alive: Hogs::start(usize::try_from(amount)?)? },
            // 10 ms are short enough that a short run meets the limit often.
            Some("quota") => limit_by_cgroup(
                &mut prepared.argv,
                "cpu",
                ("cpu.max", format!("{} 10000", amount * 100)),
                &[("cpu.cfs_period_us", "10000".into()), ("cpu.cfs_quota_us", format!("{}", amount * 100))],
            )?,
            Some("io") => {
                let disk = device_numbers(disk.path())?;
                let bytes = amount << 10;
                let old = ("blkio.throttle.read_bps_device", format!("{disk} {bytes}"));
                limit_by_cgroup(&mut prepared.argv, "blkio", ("io.max", format!("{disk} rbps={bytes}")), &[old])?
            }
            Some("dirty") => {
                let directory = dirty_limits_path(disk.path())?;
                let injected = Injection::Dirty { directory: directory.clone() };
                for (file, value) in [("strict_limit", "1".to_owned()), ("max_bytes", (amount << 10).to_string())] {
                    std::fs::write(directory.join(file), value)
                        .with_context(|| format!("{file} of {}", directory.display()))?;
                }
                injected
            }
            Some("writer") => start_helper(WRITER_SCRIPT, prepared, amount)?,
            Some("appender") => start_helper(APPENDER_SCRIPT, prepared, amount)?,
            Some("holder") => start_helper(HOLDER_SCRIPT, prepared, amount)?,
            Some(other) => bail!("{}: unknown injection {other}", self.name),
        })
    }
}

/// A value as it is, one of a list, or a number in a range.
fn draw_value(value: &Value, random: &mut Random) -> Value {
    match value {
        Value::Array(all) if !all.is_empty() => all[random.below(all.len() as u64) as usize].clone(),
        Value::Object(range) => {
            let [from, to] = ["from", "to"].map(|end| range.get(end).and_then(Value::as_u64).unwrap_or(0));
            json!(from + random.below(to.saturating_sub(from) + 1))
        }
        other => other.clone(),
    }
}

/// The result of a trial of a cause.
#[derive(Debug, Clone, Default)]
pub struct Trial {
    /// The codes that were found, except T01, in order.
    pub codes: Vec<FindingCode>,
    /// Whether the trace was reported as unreliable.
    pub unreliable: bool,
    /// The share of the statements' time that can be saved at most according to the expected finding, less that without
    /// the cause.
    pub claimed: Option<f64>,
    /// The share that was saved.
    pub saved: Option<f64>,
    /// How much that share differs between the even and the odd rounds, where it comes from several.
    pub spread: Option<f64>,
    /// The share of its time for which the program was runnable without a CPU, by the kernel's count.
    pub delayed: f64,
}

impl Trial {
    /// Whether the first finding names the cause.
    pub fn first(&self, cause: &Cause) -> bool {
        self.codes.first().is_some_and(|code| cause.expect.contains(code))
    }

    /// Whether any finding does.
    pub fn has_finding(&self, cause: &Cause) -> bool {
        self.codes.iter().any(|code| cause.expect.contains(code))
    }

    /// The result in one line.
    pub fn result_line(&self, cause: &Cause) -> String {
        let codes = if self.codes.is_empty() { "nothing".to_owned() } else { join_codes(&self.codes, " ") };
        let right = if cause.expect.is_empty() { self.wrong().is_empty() } else { self.first(cause) };
        let mut said = format!("{}{codes}", if right { "" } else { "WRONG: " });
        if let Some((claimed, saved)) = self.claimed.zip(self.saved) {
            said += &format!(", {:.0} % claimed, {:.0} % saved", 100.0 * claimed, 100.0 * saved);
        }
        if let Some(spread) = self.spread {
            said += &format!(" (within {:.0} %)", 100.0 * spread);
        }
        if self.unreliable {
            said += ", unreliable";
        }
        said + &format!(", delayed {:.0} %", 100.0 * self.delayed)
    }

    /// For a healthy workload, the findings that are wrong. Scheduling delay that the kernel counted is not.
    pub fn wrong(&self) -> Vec<FindingCode> {
        let counted = self.delayed >= DELAY_SHARE_MIN;
        self.codes.iter().copied().filter(|code| *code != FindingCode::G01 || !counted).collect()
    }
}

fn join_codes(codes: &[FindingCode], separator: &str) -> String {
    codes.iter().map(|code| code.name()).collect::<Vec<_>>().join(separator)
}

/// A recorded run: its findings, and the reports of the program itself and the kernel.
struct Run {
    codes: Vec<FindingCode>,
    unreliable: bool,
    claimed_ns: f64,
    statements_ns: f64,
    delayed: f64,
}

fn run_of(cause: &Cause, archive: &Path, report: &Value) -> Result<Run> {
    let explained = verb_output("explain", archive, &[])?;
    let findings = explained["findings"].as_array().context("findings[]")?;
    let code = |finding: &Value| FindingCode::deserialize(&finding["code"]).context("findings[].code");
    let codes = findings.iter().map(code).collect::<Result<Vec<_>>>()?;
    // All statements with the finding.
    let sizing = if cause.sum { &cause.expect[..] } else { &cause.expect[..cause.expect.len().min(1)] };
    let sized = codes.iter().zip(findings).filter(|(code, _)| sizing.contains(code));
    let elapsed_ns = report["elapsed_ns"].as_f64().context("elapsed_ns")?;
    Ok(Run {
        unreliable: codes.contains(&FindingCode::T01),
        claimed_ns: sized.filter_map(|(_, finding)| finding["saving_ns"].as_f64()).sum(),
        codes: codes.into_iter().filter(|code| *code != FindingCode::T01).collect(),
        statements_ns: report["statements_ns"].as_f64().context("statements_ns")?,
        delayed: report["run_delay_ns"].as_f64().context("run_delay_ns")? / elapsed_ns,
    })
}

/// Records a workload with its cause, and without it.
pub fn run_trial(place: &Place, cause: &Cause, random: &mut Random) -> Result<Trial> {
    let mut with = Settings::draw(random);
    with.set("rows", json!(0));
    for (name, value) in &cause.settings {
        with.set(name, draw_value(value, random));
    }
    if matches!(cause.inject.as_deref(), Some("hogs" | "quota")) {
        with.set("plain", json!(true));
    }
    let amount = draw_value(&cause.amount, random).as_u64().unwrap_or(0);
    let takes_us = match &cause.device {
        None => super::draw_device(random),
        Some(device) => {
            let [write, flush] = device.each_ref().map(|value| draw_value(value, random).as_u64().unwrap_or(0));
            (write, flush)
        }
    };
    let own = place.trial()?;
    let tail = (cause.inject.as_deref() == Some("tail")).then_some(amount);
    let disk = Disk { takes_us, tail, mount: cause.mount.clone(), mkfs: cause.mkfs.clone(), ..Disk::default() };
    let mut runs = vec![("with", with.clone(), disk.clone(), true)];
    let counterpart = cause.without.is_some() || cause.inject.is_some() || cause.mount_without.is_some();
    if cause.sized && counterpart && !cause.expect.is_empty() {
        let mut without = with.clone();
        cause.without.iter().flatten().for_each(|(name, value)| without.set(name, value.clone()));
        let mount = cause.mount_without.clone().unwrap_or(disk.mount.clone());
        runs.push(("without", without, Disk { tail: None, mount, ..disk }, cause.inject.is_none()));
    }
    random.shuffle(&mut runs);
    let mut done: BTreeMap<&str, Run> = BTreeMap::new();
    let mut bare: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for round in 0..if cause.unrecorded { ROUND_COUNT } else { 1 } {
        for (name, settings, disk, inject) in &runs {
            let disk = disk.make(own.path())?;
            // A trial that was killed may have left its limit on the loop device.
            remove_dirty_limit(&dirty_limits_path(disk.disk.path())?);
            let inject = *inject && cause.inject.as_deref() != Some("tail");
            let label = if round == 0 { (*name).to_owned() } else { format!("{name}{round}") };
            let (archive, report) = run_recorded(own.path(), &label, &disk, settings, |prepared| {
                if inject { cause.injected(amount, &disk.disk, prepared) } else { Ok(Injection::Nothing) }
            })?;
            let run = run_of(cause, &archive, &report)?;
            if done.get(name).is_none_or(|fastest| run.statements_ns < fastest.statements_ns) {
                done.insert(name, run);
            }
            if cause.unrecorded {
                let report = run_unrecorded(own.path(), &format!("{label}-bare"), &disk, settings)?;
                bare.entry(name).or_default().push(report["statements_ns"].as_f64().context("statements_ns")?);
            }
        }
        random.shuffle(&mut runs);
    }
    let (other, first) = (done.remove("without"), done.remove("with").context("a run with the cause")?);
    let saved = |(with, without): (f64, f64)| 1.0 - without / with;
    let both = other.as_ref().map(|other| (first.statements_ns, other.statements_ns));
    let both = fastest_runs(&bare, |_| true).or(both);
    let halves = fastest_runs(&bare, |round| round % 2 == 0).zip(fastest_runs(&bare, |round| round % 2 == 1));
    let trial = Trial {
        claimed: other.as_ref().zip(both).map(|(other, (with, _))| (first.claimed_ns - other.claimed_ns) / with),
        saved: both.map(saved),
        spread: halves.map(|(even, odd)| (saved(even) - saved(odd)).abs()),
        codes: first.codes,
        unreliable: first.unreliable,
        delayed: first.delayed,
    };
    place.done(own, &cause.name, &trial.result_line(cause))?;
    Ok(trial)
}

/// Returns the fastest unrecorded run with the cause and without it, of these rounds; `None` without any.
fn fastest_runs(bare: &BTreeMap<&str, Vec<f64>>, rounds: impl Fn(usize) -> bool) -> Option<(f64, f64)> {
    let of = |side| {
        let all = bare.get(side)?.iter().enumerate().filter(|(round, _)| rounds(*round));
        all.map(|(_, ns)| *ns).reduce(f64::min)
    };
    Some((of("with")?, of("without")?))
}

pub fn results_page(
    causes: &[(Cause, Vec<Trial>)],
    healthy: &[(Cause, Vec<Vec<FindingCode>>)],
    missing: &MissingParts,
    how: &str,
) -> String {
    let percent = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
    let all: Vec<(&Cause, &Trial)> = causes.iter().flat_map(|(c, trials)| trials.iter().map(move |t| (c, t))).collect();
    let first = all.iter().filter(|(c, t)| t.first(c)).count();
    let found = all.iter().filter(|(c, t)| t.has_finding(c)).count();
    let quiet: usize = healthy.iter().map(|(_, trials)| trials.len()).sum();
    let loud: usize = healthy.iter().flat_map(|(_, trials)| trials).filter(|codes| !codes.is_empty()).count();
    let sizes =
        |trials: &[Trial]| -> Vec<f64> { trials.iter().filter_map(|t| Some((t.claimed? - t.saved?).abs())).collect() };
    let each: Vec<f64> = causes.iter().flat_map(|(_, trials)| sizes(trials)).collect();
    let medians: Vec<f64> = causes.iter().map(|(_, trials)| median(&sizes(trials))).filter(|m| m.is_finite()).collect();
    let within = |errors: &[f64]| errors.iter().filter(|error| **error <= 0.1).count();
    let mut out = format!(
        "# Truth\n\nCauses that were injected, and what [`fathom explain`](../guide/explain.md) found.\n\n{how}\n\n{}\
         The finding of the cause came first in **{first} of {} trials ({:.0} %; target: 95 %)**, and was among the findings in {found}. \
         On healthy\nworkloads there was a finding in **{loud} of {quiet} ({:.0} %; target: at most 5 %)**. Sizes were within 10 % of \
         the time in {} of {} trials,\nand in the median of the trials for **{} of {} causes**.\n\n",
        missing.said(),
        all.len(),
        percent(first, all.len()),
        percent(loud, quiet),
        within(&each),
        each.len(),
        within(&medians),
        medians.len(),
    );
    out += "*Saved* is what part of the time in statements, by the program's own clock, went when the same workload ran without the cause;\n\
            *claimed* what part the finding says is saved at most, less what the same finding says without the cause; medians. *Error* is the median of\n\
            |claimed - saved|, in percent of the time (target: 10). Scheduling delay (G01) of a healthy workload is no false finding where\n\
            the kernel counted such delay (/proc/PID/schedstat).\n\n";
    let spreads: Vec<f64> = all.iter().filter_map(|(_, trial)| trial.spread).collect();
    if !spreads.is_empty() {
        let names: Vec<&str> = causes.iter().filter(|(c, _)| c.unrecorded).map(|(c, _)| c.name.as_str()).collect();
        out += &format!(
            "Recording \"{}\" takes longer than the cause itself, so *saved*, and the time of which *claimed* is a part, are\n\
             those of unrecorded runs: the fastest of {ROUND_COUNT}, in turns with recorded ones, of which the fastest counts too. *Saved* by\n\
             the even rounds and by the odd ones differs by {:.0} % in the median of the trials: an error below that means nothing.\n\n",
            names.join("\", \""),
            100.0 * median(&spreads)
        );
    }
    out += "| cause | expected | first | found | first instead | claimed | saved | error |\n|---|---|---:|---:|---|---:|---:|---:|\n";
    let mut rows: Vec<(f64, String)> = Vec::new();
    for (cause, trials) in causes {
        let first = trials.iter().filter(|t| t.first(cause)).count();
        let found = trials.iter().filter(|t| t.has_finding(cause)).count();
        let mut instead: Vec<&str> = trials
            .iter()
            .filter(|t| !t.first(cause))
            .map(|t| t.codes.first().map_or("none", |code| code.name()))
            .collect();
        instead.sort_unstable();
        instead.dedup();
        let both: Vec<(f64, f64)> = trials.iter().filter_map(|t| Some((t.claimed?, t.saved?))).collect();
        let of = |value: fn(&(f64, f64)) -> f64| median(&both.iter().map(value).collect::<Vec<_>>());
        let part = |x: f64| if x.is_finite() { format!("{:.0} %", 100.0 * x) } else { String::new() };
        let row = format!(
            "| {} | {} | {first} of {} | {found} | {} | {} | {} | {} |\n",
            cause.name,
            join_codes(&cause.expect, ", "),
            trials.len(),
            instead.join(", "),
            part(of(|b| b.0)),
            part(of(|b| b.1)),
            part(of(|b| (b.0 - b.1).abs())),
        );
        rows.push((percent(first, trials.len()), row));
    }
    rows.sort_by(|p, q| p.0.total_cmp(&q.0));
    rows.iter().for_each(|(_, row)| out += row);
    out += "\n| healthy workload | trials with a finding | findings |\n|---|---:|---|\n";
    let mut rows: Vec<(f64, String)> = Vec::new();
    for (cause, trials) in healthy {
        let loud = trials.iter().filter(|codes| !codes.is_empty()).count();
        let mut codes: Vec<&str> = trials.iter().flatten().map(|code| code.name()).collect();
        codes.sort_unstable();
        codes.dedup();
        let row = format!("| {} | {loud} of {} | {} |\n", cause.name, trials.len(), codes.join(", "));
        rows.push((percent(loud, trials.len()), row));
    }
    rows.sort_by(|p, q| q.0.total_cmp(&p.0));
    rows.iter().for_each(|(_, row)| out += row);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_read_and_values_are_drawn_within_ranges() {
        let list = read_list().unwrap();
        assert!(list.cause.len() >= 9 && list.healthy.len() == 20);
        assert!(list.cause.iter().all(|c| !c.expect.is_empty()) && list.healthy.iter().all(|c| c.expect.is_empty()));
        let mut random = Random::new(1);
        for _ in 0..100 {
            let n = draw_value(&json!({"from": 4, "to": 6}), &mut random).as_u64().unwrap();
            assert!((4..=6).contains(&n));
            assert!(["a", "b"].contains(&draw_value(&json!(["a", "b"]), &mut random).as_str().unwrap()));
        }
        assert_eq!(draw_value(&json!("x"), &mut random), "x");
    }

    #[test]
    fn counted_delay_is_no_false_finding() {
        let trial = |delayed| Trial { codes: vec![FindingCode::G01, FindingCode::D01], delayed, ..Trial::default() };
        assert_eq!(trial(0.06).wrong(), [FindingCode::D01]);
        assert_eq!(trial(0.04).wrong(), [FindingCode::G01, FindingCode::D01]);
    }

    #[test]
    fn fastest_run_of_each_side_is_taken_from_its_rounds() {
        let bare = BTreeMap::from([("with", vec![5.0, 3.1, 3.0, 9.0]), ("without", vec![1.5, 2.4, 1.6, 1.4])]);
        assert_eq!(fastest_runs(&bare, |_| true), Some((3.0, 1.4)));
        assert_eq!(fastest_runs(&bare, |round| round % 2 == 1), Some((3.1, 1.4)));
        assert_eq!(fastest_runs(&BTreeMap::from([("with", vec![5.0])]), |_| true), None);
        assert_eq!(fastest_runs(&BTreeMap::new(), |_| true), None);
    }

    #[test]
    fn page_names_the_spread_of_unrecorded_runs() {
        let cause = read_list().unwrap().cause.into_iter().find(|c| c.unrecorded).unwrap();
        let trial = |spread| Trial { claimed: Some(0.45), saved: Some(0.5), spread, ..Trial::default() };
        let of = |spreads: &[Option<f64>]| {
            let trials = spreads.iter().map(|spread| trial(*spread)).collect();
            results_page(&[(cause.clone(), trials)], &[], &MissingParts::default(), "By hand.")
        };
        let told = of(&[Some(0.01), Some(0.04), Some(0.2)]);
        assert!(told.contains("ones differs by 4 % in the median") && told.contains(&cause.name), "{told}");
        assert!(!of(&[None]).contains("unrecorded"));
    }

    #[test]
    fn page_lists_the_worst_cause_first() {
        let list = read_list().unwrap();
        let hit = Trial { codes: vec![FindingCode::S01], claimed: Some(0.5), saved: Some(0.4), ..Trial::default() };
        let miss = Trial { codes: vec![FindingCode::F03, FindingCode::S02], ..Trial::default() };
        let named = |name: &str| list.cause.iter().find(|c| c.name == name).unwrap().clone();
        let causes =
            [(named("autocommit loop"), vec![hit.clone(), hit]), (named("small WAL autocheckpoint"), vec![miss])];
        let page = results_page(
            &causes,
            &[(list.healthy[0].clone(), vec![vec![], vec![FindingCode::D01]])],
            &MissingParts::default(),
            "By hand.",
        );
        assert!(page.contains("**2 of 3 trials (67 %") && page.contains("**1 of 2 (50 %"), "{page}");
        let at = |text: &str| page.find(text).unwrap();
        assert!(at("small WAL autocheckpoint") < at("autocommit loop"), "{page}");
        assert!(page.contains("| S01 | 2 of 2 | 2 |  | 50 % | 40 % | 10 % |") && page.contains("| F03 |"), "{page}");
    }
}
