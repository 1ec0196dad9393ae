//! Causes that are injected, and the finding that `fathom explain` must put first; healthy workloads, of which it must find nothing.
//!
//! `experiments/causes/causes.toml` lists both. A cause's size has a truth, too: the same workload without it, recorded in the same trial, in
//! random order. What the first expected finding says is saved at most is held against what is saved.

use super::whatif::Hogs;
use super::{Disk, Settings, latency, median, recorded, said};
use anyhow::{Context, Result, bail};
use lab::loopdisk::LoopDisk;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use stats::random::Random;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The list.
const LIST: &str = include_str!("../../../experiments/causes/causes.toml");
/// More than so much of a thread's time without a CPU is scheduling delay, whoever caused it: `explain`'s own rule.
const BUSY: f64 = 0.1;

/// Causes and healthy workloads.
#[derive(Debug, Deserialize)]
pub struct List {
    /// Causes.
    pub cause: Vec<Cause>,
    /// Workloads without any.
    pub healthy: Vec<Cause>,
}

/// A cause, or the lack of one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// What it is, for people.
    pub name: String,
    /// Codes of which any names it.
    #[serde(default)]
    pub expect: Vec<String>,
    /// Settings, or what they are drawn from.
    pub settings: Map<String, Value>,
    /// What takes the cause away.
    pub without: Option<Map<String, Value>>,
    /// `hogs`, `quota` or `writer`.
    pub inject: Option<String>,
    /// How much of it.
    #[serde(default)]
    pub amount: Value,
}

/// The list as it stands in the repository.
///
/// # Errors
/// It is no such list.
pub fn list() -> Result<List> {
    toml::from_str(LIST).context("experiments/causes/causes.toml")
}

/// What is alive while the program runs.
enum Injected {
    Nothing,
    Hogs { _alive: Hogs },
    Quota { folder: PathBuf },
    Writer(Child),
}

impl Drop for Injected {
    fn drop(&mut self) {
        match self {
            Self::Nothing | Self::Hogs { .. } => {}
            Self::Quota { folder } => {
                let _ = std::fs::remove_dir(folder);
            }
            Self::Writer(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Syncs a file of its own again and again.
const WRITER: &str = "
import os, sys
f = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o644)
n = int(sys.argv[2])
while True:
    os.pwrite(f, b'x' * 4096 * n, 0)
    os.fsync(f)
";

/// The program in a cgroup with so many percent of a CPU.
fn quota(argv: &mut Vec<String>, percent: u64) -> Result<Injected> {
    let own = format!("fathom-truth-{}", std::process::id());
    let two = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let folder = Path::new(if two { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/cpu" }).join(own);
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    // 10 ms are short enough that a short run meets the limit often.
    let limits: &[(&str, String)] = &match two {
        true => vec![("cpu.max", format!("{} 10000", percent * 100))],
        false => vec![("cpu.cfs_period_us", "10000".into()), ("cpu.cfs_quota_us", format!("{}", percent * 100))],
    };
    let injected = Injected::Quota { folder: folder.clone() };
    for (file, value) in limits {
        std::fs::write(folder.join(file), value).with_context(|| format!("{} of {}", file, folder.display()))?;
    }
    let enter = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", folder.display());
    argv.splice(0..0, ["sh", "-c", &enter, "sh"].map(String::from));
    Ok(injected)
}

impl Cause {
    fn injected(&self, amount: u64, disk: &LoopDisk, argv: &mut Vec<String>) -> Result<Injected> {
        Ok(match self.inject.as_deref() {
            None => Injected::Nothing,
            Some("hogs") => Injected::Hogs { _alive: Hogs::start(usize::try_from(amount)?)? },
            Some("quota") => quota(argv, amount)?,
            Some("writer") => {
                let mut writer = Command::new("python3");
                writer.args(["-c", WRITER]).arg(disk.path().join("other")).arg(amount.to_string());
                Injected::Writer(writer.spawn()?)
            }
            Some(other) => bail!("{}: unknown injection {other}", self.name),
        })
    }
}

/// A value as it stands, one of a list, or a number of a range.
fn drawn(value: &Value, random: &mut Random) -> Value {
    match value {
        Value::Array(all) if !all.is_empty() => all[random.below(all.len() as u64) as usize].clone(),
        Value::Object(range) => {
            let [from, to] = ["from", "to"].map(|end| range.get(end).and_then(Value::as_u64).unwrap_or(0));
            json!(from + random.below(to.saturating_sub(from) + 1))
        }
        other => other.clone(),
    }
}

/// What a trial of a cause gave.
#[derive(Debug, Clone, Default)]
pub struct Trial {
    /// The codes that were found, T01 aside, in their order.
    pub codes: Vec<String>,
    /// Whether the trace called itself unreliable.
    pub unreliable: bool,
    /// What part of the time the expected finding says is saved at most.
    pub claimed: Option<f64>,
    /// What part was saved.
    pub saved: Option<f64>,
}

impl Trial {
    /// Whether the first finding names the cause.
    pub fn first(&self, cause: &Cause) -> bool {
        self.codes.first().is_some_and(|code| cause.expect.contains(code))
    }

    /// Whether any does.
    pub fn found(&self, cause: &Cause) -> bool {
        self.codes.iter().any(|code| cause.expect.contains(code))
    }
}

/// Records a workload with its cause, and without it.
///
/// # Errors
/// A program failed.
pub fn trial(folder: &Path, cause: &Cause, random: &mut Random) -> Result<Trial> {
    let draw = |random: &mut Random| {
        let mut settings = Settings::draw(random);
        settings.set("rows", json!(0));
        for (name, value) in &cause.settings {
            settings.set(name, drawn(value, random));
        }
        settings
    };
    let mut with = draw(random);
    if matches!(cause.inject.as_deref(), Some("hogs" | "quota")) {
        with.set("plain", json!(true));
    }
    let amount = drawn(&cause.amount, random).as_u64().unwrap_or(0);
    let takes_us = super::device(random);
    let own = tempfile::Builder::new().prefix("truth").tempdir_in(folder)?;
    let mut runs = vec![("with", with.clone(), true)];
    let counterpart = cause.without.is_some() || cause.inject.is_some();
    if counterpart && !cause.expect.is_empty() {
        let mut without = with.clone();
        cause.without.iter().flatten().for_each(|(name, value)| without.set(name, value.clone()));
        runs.push(("without", without, cause.inject.is_none()));
    }
    random.shuffle(&mut runs);
    for (name, settings, inject) in &runs {
        let disk = Disk { takes_us, ..Disk::default() }.make(own.path())?;
        recorded(own.path(), name, &disk.disk, settings, |argv| match inject {
            true => cause.injected(amount, &disk.disk, argv),
            false => Ok(Injected::Nothing),
        })?;
    }
    let archive = own.path().join("with.fathom");
    let explained = said("explain", &archive, &[])?;
    let findings = explained["findings"].as_array().context("findings[]")?;
    let code = |finding: &Value| finding["code"].as_str().unwrap_or_default().to_owned();
    let whole = explained["latency_ns"].as_f64().context("latency_ns")?;
    let expected = findings.iter().find(|f| cause.expect.contains(&code(f)));
    let saved = match runs.len() {
        2 => Some(1.0 - latency(&own.path().join("without.fathom"))? / latency(&archive)?),
        _ => None,
    };
    Ok(Trial {
        codes: findings.iter().map(code).filter(|code| code != "T01").collect(),
        unreliable: findings.iter().any(|f| code(f) == "T01"),
        claimed: expected.and_then(|f| f["saving_ns"].as_f64()).map(|ns| ns / whole),
        saved,
    })
}

/// A healthy workload's findings that are wrong. Scheduling delay that was there is none of them: others may use the machine.
///
/// # Errors
/// A program failed.
pub fn false_findings(folder: &Path, healthy: &Cause, random: &mut Random) -> Result<Vec<String>> {
    let trial = trial(folder, healthy, random)?;
    let busy = pressure() > BUSY;
    Ok(trial.codes.into_iter().filter(|code| !(busy && code == "G01")).collect())
}

/// How much more threads are runnable on this machine than it has CPUs.
fn pressure() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    (load / cpus - 1.0).max(0.0)
}

/// The page of results.
pub fn page(causes: &[(Cause, Vec<Trial>)], healthy: &[(Cause, Vec<Vec<String>>)], how: &str) -> String {
    let percent = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
    let all: Vec<(&Cause, &Trial)> = causes.iter().flat_map(|(c, trials)| trials.iter().map(move |t| (c, t))).collect();
    let first = all.iter().filter(|(c, t)| t.first(c)).count();
    let found = all.iter().filter(|(c, t)| t.found(c)).count();
    let quiet: usize = healthy.iter().map(|(_, trials)| trials.len()).sum();
    let loud: usize = healthy.iter().flat_map(|(_, trials)| trials).filter(|codes| !codes.is_empty()).count();
    let mut out = format!(
        "# Truth\n\nCauses that were injected, and what [`fathom explain`](../guide/explain.md) found. {how}\n\n\
         The finding of the cause came first in **{first} of {} trials ({:.0} %; target: 95 %)**, and was among the findings in {found}. \
         On healthy\nworkloads there was a finding in **{loud} of {quiet} ({:.0} %; target: at most 5 %)**.\n\n",
        all.len(),
        percent(first, all.len()),
        percent(loud, quiet),
    );
    out += "*Claimed* is what part of all time the finding says is saved at most, *saved* what part was, when the same workload was \
            recorded without the\ncause; medians. *Error* is the median of |claimed - saved|, in percent of the time (target: 10).\n\n";
    out += "| cause | expected | first | found | first instead | claimed | saved | error |\n|---|---|---:|---:|---|---:|---:|---:|\n";
    let mut rows: Vec<(f64, String)> = Vec::new();
    for (cause, trials) in causes {
        let first = trials.iter().filter(|t| t.first(cause)).count();
        let found = trials.iter().filter(|t| t.found(cause)).count();
        let mut instead: Vec<&str> =
            trials.iter().filter(|t| !t.first(cause)).map(|t| t.codes.first().map_or("none", String::as_str)).collect();
        instead.sort_unstable();
        instead.dedup();
        let both: Vec<(f64, f64)> = trials.iter().filter_map(|t| Some((t.claimed?, t.saved?))).collect();
        let of = |value: fn(&(f64, f64)) -> f64| median(&both.iter().map(value).collect::<Vec<_>>());
        let part = |x: f64| if x.is_finite() { format!("{:.0} %", 100.0 * x) } else { String::new() };
        let row = format!(
            "| {} | {} | {first} of {} | {found} | {} | {} | {} | {} |\n",
            cause.name,
            cause.expect.join(", "),
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
        let mut codes: Vec<&str> = trials.iter().flatten().map(String::as_str).collect();
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
    fn list_is_read_and_drawn_within_its_ranges() {
        let list = list().unwrap();
        assert!(list.cause.len() >= 9 && list.healthy.len() == 20);
        assert!(list.cause.iter().all(|c| !c.expect.is_empty()) && list.healthy.iter().all(|c| c.expect.is_empty()));
        let mut random = Random::new(1);
        for _ in 0..100 {
            let n = drawn(&json!({"from": 4, "to": 6}), &mut random).as_u64().unwrap();
            assert!((4..=6).contains(&n));
            assert!(["a", "b"].contains(&drawn(&json!(["a", "b"]), &mut random).as_str().unwrap()));
        }
        assert_eq!(drawn(&json!("x"), &mut random), "x");
    }

    #[test]
    fn page_lists_worst_cause_first() {
        let list = list().unwrap();
        let hit = Trial { codes: vec!["S01".into()], claimed: Some(0.5), saved: Some(0.4), ..Trial::default() };
        let miss = Trial { codes: vec!["F03".into(), "S02".into()], ..Trial::default() };
        let causes = [(list.cause[0].clone(), vec![hit.clone(), hit]), (list.cause[3].clone(), vec![miss])];
        let page = page(&causes, &[(list.healthy[0].clone(), vec![vec![], vec!["G01".into()]])], "By hand.");
        assert!(page.contains("**2 of 3 trials (67 %") && page.contains("**1 of 2 (50 %"), "{page}");
        let at = |text: &str| page.find(text).unwrap();
        assert!(at("small WAL autocheckpoint") < at("autocommit loop"), "{page}");
        assert!(page.contains("| S01 | 2 of 2 | 2 |  | 50 % | 40 % | 10 % |") && page.contains("| F03 |"), "{page}");
    }
}
