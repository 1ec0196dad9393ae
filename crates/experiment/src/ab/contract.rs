//! The result of a comparison of commands, as printed by `--json`. A change of a field's meaning or type changes [`FORMAT_VERSION`].

use super::{WALL_METRIC, command_line};
use crate::{Cell, Comparison, Results, StopReason};
use model::Environment;
use model::words::{EMULATED_TIMES, is_emulated};
use serde::Serialize;
use stats::verdict::{self, Better, Verdict};
use stats::{Estimate, quantile};
use std::collections::BTreeMap;

/// The version of the format.
pub const FORMAT_VERSION: u32 = 1;

#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// The commands in their order; the first is the baseline, the last the control.
    pub commands: Vec<MeasuredCommand>,
    /// Each command except the first, compared with the first, without the control.
    pub comparisons: Vec<ComparedCommand>,
    /// The first compared with itself; `null` if there are too few pairs.
    pub control: Option<Control>,
    /// The smallest difference that counts as one: 2 %, or the control's difference from itself.
    pub margin: f64,
    /// Number of measured blocks.
    pub blocks: u64,
    /// Number of warm-up blocks.
    pub warmup: u64,
    /// Seed of the order.
    pub seed: u64,
    /// Why no further block was run: `blocks`, `precision`, `budget`; `null` if it was interrupted.
    pub stopped: Option<StopReason>,
    /// Why there is no verdict, whatever the times; `null` if there is no such reason.
    pub withheld: Option<String>,
    /// Sources of the numbers.
    pub sources: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct MeasuredCommand {
    pub name: String,
    pub command: String,
    /// Whether it is a repetition of the first.
    pub control: bool,
    /// Valid processes.
    pub runs: u64,
    /// Processes that failed.
    pub failed: u64,
    /// Why it failed, or has no (further) result.
    pub failure: Option<String>,
    /// Wall time of every valid process, s, in order.
    pub wall_s: Vec<f64>,
    /// The distribution of every metric over the processes.
    pub metrics: BTreeMap<String, Metric>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Metric {
    pub median: f64,
    pub mean: f64,
    pub min: f64,
    pub max: f64,
}

/// A command compared with the first.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedCommand {
    pub name: String,
    /// The name of the first command.
    pub baseline: String,
    /// Median of its time divided by the first's, pair by pair; without an interval below six pairs.
    pub ratio: Option<f64>,
    /// The interval of 95 %.
    pub ci95: Option<[f64; 2]>,
    /// Blocks in which both have a result.
    pub pairs: u64,
    /// `slower`, `faster`, `equivalent`, `inconclusive`.
    pub verdict: Verdict,
}

/// The first command compared with itself.
#[derive(Debug, Clone, Serialize)]
pub struct Control {
    /// As in a comparison.
    pub ratio: f64,
    /// As in a comparison.
    pub ci95: [f64; 2],
    /// Whether its interval contains 1.
    pub passed: bool,
    /// The largest difference that cannot be distinguished from none.
    pub noise: f64,
}

impl Outcome {
    /// Evaluates a run on a machine with these facts.
    pub fn new(results: &Results, machine: &Environment) -> Self {
        let withheld = is_emulated(machine).then(|| EMULATED_TIMES.to_owned());
        let all = results.comparisons();
        let baseline = results.design.baseline.clone().unwrap_or_default();
        let control = all.iter().find_map(|c| Some((c.ratio?, c.self_check?))).map(|(ratio, check)| Control {
            ratio: ratio.value,
            ci95: [ratio.low, ratio.high],
            passed: check.passed,
            noise: check.noise,
        });
        let margin = verdict::margin(control.as_ref().map(|c| c.noise));
        let cells = || results.design.cells.iter().zip(&all).enumerate();
        let compared = |c: &Comparison| ComparedCommand {
            name: c.cell.clone(),
            baseline: baseline.clone(),
            ratio: c.ratio.map(|r| r.value).or(c.median_ratio),
            ci95: c.ratio.map(|r: Estimate| [r.low, r.high]),
            pairs: c.pairs as u64,
            verdict: match c.ratio.filter(|_| withheld.is_none()) {
                Some(ratio) => verdict::judge(&ratio, Better::Lower, margin),
                None => Verdict::Inconclusive,
            },
        };
        let counted = results.replicates.iter().filter(|r| !r.warmup).map(|r| r.block);
        Self {
            version: FORMAT_VERSION,
            commands: cells().map(|(at, (cell, c))| summarise_command(results, at, cell, c)).collect(),
            comparisons: cells()
                .filter(|(_, (cell, c))| cell.same_as.is_none() && c.cell != baseline)
                .map(|(_, (_, c))| compared(c))
                .collect(),
            control,
            margin,
            blocks: counted.collect::<std::collections::BTreeSet<_>>().len() as u64,
            warmup: results.design.warmup,
            seed: results.design.seed,
            stopped: results.stopped,
            withheld,
            sources: sources(results),
        }
    }

    /// Returns the commands that are slower than the first by more than this percentage.
    pub fn slower(&self, percent: f64) -> Vec<&ComparedCommand> {
        let beyond = |c: &&ComparedCommand| {
            c.verdict == Verdict::Slower && c.ratio.is_some_and(|ratio| ratio > 1.0 + percent / 100.0)
        };
        self.comparisons.iter().filter(beyond).collect()
    }

    /// Whether every command has been compared: a command without an interval or a verdict must not pass as not slower.
    pub fn all_compared(&self) -> bool {
        self.withheld.is_none() && self.comparisons.iter().all(|c| c.ci95.is_some())
    }
}

fn sources(results: &Results) -> BTreeMap<String, String> {
    let has = |metric: &str| results.samples.iter().any(|s| s.metric == metric);
    let mut all = BTreeMap::from([
        ("wall".to_string(), "CLOCK_MONOTONIC from before the process is made to its end".to_string()),
        (
            "user, system, max_rss, major_faults, context_switches".into(),
            "wait4: with children that it waited for".into(),
        ),
    ]);
    let io = "read_calls, write_calls, bytes_read, bytes_written, disk_bytes_read, disk_bytes_written";
    let from = match (has("read_calls"), has(WALL_METRIC)) {
        (true, _) => "/proc/PID/io of the ended process: with children that it waited for",
        (false, true) => "not counted: the kernel has no /proc/PID/io, or lets root alone read that of these commands",
        (false, false) => "not counted: no command succeeded",
    };
    all.insert(io.into(), from.into());
    all
}

fn summarise_command(results: &Results, at: usize, cell: &Cell, c: &Comparison) -> MeasuredCommand {
    let own: Vec<_> = results.replicates.iter().filter(|r| r.cell == at as u64 && !r.warmup).collect();
    let good: Vec<u64> = own.iter().filter(|r| r.failure.is_none()).map(|r| r.id).collect();
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for sample in &results.samples {
        if sample.replicate.is_some_and(|id| good.contains(&id)) && !sample.metric.starts_with("process.") {
            values.entry(&sample.metric).or_default().push(sample.value);
        }
    }
    let failure = results.replicates.iter().rev().filter(|r| r.cell == at as u64).find_map(|r| r.failure.clone());
    MeasuredCommand {
        name: cell.name.clone(),
        command: command_line(cell).into(),
        control: cell.same_as.is_some(),
        runs: good.len() as u64,
        failed: (own.len() - good.len()) as u64,
        failure: failure.or_else(|| c.absent.clone()),
        wall_s: values.get(WALL_METRIC).cloned().unwrap_or_default(),
        metrics: values.iter().filter_map(|(name, all)| Some((name.to_string(), summarise_metric(all)?))).collect(),
    }
}

fn summarise_metric(values: &[f64]) -> Option<Metric> {
    Some(Metric {
        median: quantile::of_unsorted(values, 0.5)?,
        mean: values.iter().sum::<f64>() / values.len() as f64,
        min: values.iter().copied().reduce(f64::min)?,
        max: values.iter().copied().reduce(f64::max)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ab::{text, verdict};
    use crate::markdown::tests::results;
    use model::Fact;
    use model::words::EMULATED_PROCESSOR;

    #[test]
    fn emulated_times_get_no_verdict() {
        let real = Outcome::new(&results(), &Environment::new());
        assert_eq!((real.comparisons[0].verdict, real.withheld.as_deref()), (Verdict::Faster, None));
        let (name, value) = EMULATED_PROCESSOR;
        let fact = Fact {
            value: Some(value.into()),
            unknown: None,
            unit: None,
            source: String::new(),
            varies: "device".into(),
        };
        let emulated = Outcome::new(&results(), &Environment::from([(name.to_owned(), fact)]));
        assert_eq!(emulated.comparisons[0].verdict, Verdict::Inconclusive);
        assert_eq!(emulated.comparisons[0].ratio, real.comparisons[0].ratio);
        assert!(text::text(&emulated).contains("\nNo verdict: the processor is emulated"), "{}", text::text(&emulated));
        let (messages, passed) = verdict(&emulated, Some(5.0));
        assert!(!passed && messages.iter().any(|line| line.contains("no verdict: the processor is emulated")));
    }
}
