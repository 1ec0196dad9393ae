//! Benchmarks: combines the results of the processes of a cell.
//!
//! An archive holds what each process printed. This module turns that into one number per cell, in three steps that
//! never use other cells:
//!
//! 1. **A process** ([`evaluate_process`]): its iterations are classified ([`stats::steady`]), and the steady ones are kept, with their
//!    outliers. A process without a steady state contributes all its iterations, and is classified accordingly.
//! 2. **A cell** ([`estimate_cells`]): the median of the processes' means, with an interval from the differences between processes
//!    ([`stats::cells`]).
//! 3. **The score**: for a rate, work divided by that time, and likewise the bounds of the interval. Times of iterations are
//!    averaged and then inverted, since the mean of rates is not the rate of the mean time.
//!
//! A network run ([`net`]) is a cell of one process that reports its own interval.
//!
//! A replicate that failed, belongs to a warm-up block or was recorded as an explanation is not part of any estimate;
//! failures are counted and the first reason is kept.

pub mod cluster;
pub mod comparability;
pub mod compare;
pub mod compare_text;
pub mod contract;
pub mod decomposition;
pub mod disturbance;
mod error;
pub mod fact_difference;
pub mod figure;
pub mod figures;
pub mod flows;
pub mod gates;
pub mod history;
pub mod measure;
pub mod merged_marks;
pub mod metrics;
pub mod net;
pub mod net_text;
pub mod page;
pub mod plan;
pub mod recording_series;
pub mod regressions;
pub mod results;
pub mod run_score;
pub mod selftest;
pub mod show;

pub use contract::{Benchmark, Tables, Why, benchmark};
pub use error::{Error, WithoutDirection};
pub use selftest::{SelfTest, self_test};
pub use stats::steady::Penalty;

use gates::{GateCounts, count_gate_states};
use model::table::{DesignCell, DesignRow, Replicate, Sample};
use serde::Serialize;
use stats::steady::{self, Class, Consistency};
use stats::{Estimate, cells};
use std::collections::HashMap;

/// The level of every interval.
pub const CONFIDENCE_LEVEL: f64 = 0.95;

/// What a score is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoreKind {
    /// Work in an iteration / its mean time.
    Rate,
    /// The mean time of an iteration.
    Time,
    /// The mean of the metric as it was printed.
    Value,
    /// The value that a network run measured.
    Run,
}

impl ScoreKind {
    /// Parses the name used in archives. Other names, of other versions, are times.
    pub fn from_name(name: &str) -> Self {
        match name {
            "rate" => Self::Rate,
            "value" => Self::Value,
            "run" => Self::Run,
            _ => Self::Time,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Time => "time",
            Self::Value => "value",
            Self::Run => "run",
        }
    }

    /// Whether the score is computed from iterations, so that they are classified.
    fn has_iterations(self) -> bool {
        matches!(self, Self::Rate | Self::Time)
    }
}

/// How a cell's metric becomes its score.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// What it is computed from.
    pub kind: ScoreKind,
    pub metric: String,
    /// Unit of the score; empty if it follows from the samples.
    pub unit: Option<String>,
    /// Factor by which the score is multiplied.
    pub scale: f64,
}

impl Score {
    /// Returns the score of a cell of a design.
    pub fn for_cell(design: &DesignRow, cell: &DesignCell) -> Self {
        Self {
            kind: if design.name == run_score::RUN { ScoreKind::Run } else { ScoreKind::from_name(&design.score) },
            metric: cell.metric.clone().unwrap_or_default(),
            unit: design.unit.clone(),
            scale: design.scale,
        }
    }

    /// Returns a further score.
    pub fn from_extra(also: &results::ExtraScore) -> Self {
        Self { kind: ScoreKind::Value, metric: also.metric.clone(), unit: also.unit.clone(), scale: also.scale }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    pub replicate: u64,
    /// Its behaviour over its iterations; `None` if it has too few, or prints scores instead of times.
    pub class: Option<Class>,
    /// The first steady iteration; `None` without a steady state.
    pub steady_from: Option<usize>,
    /// The values of which it is the mean: steady iterations, in the metric's unit.
    pub values: Vec<f64>,
    pub iterations: usize,
    /// The first iteration: the cost of a cold start.
    pub first: f64,
    /// Flagged outliers among them.
    pub outliers: usize,
    /// The share of time of these outliers.
    pub outlier_share: f64,
    /// Work in an iteration and its unit, for a rate.
    pub work: Option<(f64, String)>,
    /// The rate of requests that it reports as achieved, per second (`request.rate`), for an offered rate.
    pub achieved: Option<f64>,
    /// The metric's unit.
    pub unit: String,
}

/// Evaluates one process by its samples; `penalty` is that for a change of level. `None` if it did not print the
/// metric, or no work where work is needed.
pub fn evaluate_process(score: &Score, penalty: Penalty, replicate: u64, samples: &[&Sample]) -> Option<Process> {
    let own: Vec<&&Sample> = samples.iter().filter(|s| s.metric == score.metric).collect();
    let times: Vec<f64> = if run_score::is_per_run(score) {
        vec![run_score::run_score(&score.metric, samples, |_| true)?.value]
    } else {
        own.iter().map(|s| s.value).collect()
    };
    let unit = own.first()?.unit.clone();
    let work = samples.iter().find(|s| s.metric == "work").map(|s| (s.value, s.unit.clone()));
    if score.kind == ScoreKind::Rate && work.as_ref().is_none_or(|(amount, _)| *amount <= 0.0) {
        return None;
    }
    // A printed score is not a time: a lower later one does not indicate a warm-up.
    let classified = || steady::classify(&times, steady::EQUIVALENCE_MARGIN, penalty, replicate);
    let steady = score.kind.has_iterations().then(classified).flatten();
    Some(Process {
        replicate,
        class: steady.as_ref().map(|s| s.class),
        steady_from: steady.as_ref().and_then(|s| s.from),
        values: steady.as_ref().map_or(&times[..], |s| s.part(&times)).to_vec(),
        iterations: times.len(),
        first: times[0],
        outliers: steady.as_ref().map_or(0, |s| s.outliers.count()),
        outlier_share: steady.as_ref().map_or(0.0, |s| s.outliers.share_of_time),
        work,
        achieved: samples.iter().find(|s| s.metric == "request.rate").map(|s| s.value),
        unit,
    })
}

/// Returns the half-width of the interval of these processes so far, as a fraction of their median: the input of the stop rule.
pub fn half_width(processes: &[&Process]) -> Option<f64> {
    let values: Vec<&[f64]> = processes.iter().map(|p| &p.values[..]).collect();
    cells::typical_process(&cells::Cell::new(&values)?, CONFIDENCE_LEVEL)?.precision()
}

/// The combined result of a cell's processes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellEstimate {
    pub cell: u64,
    /// Unit of the estimate.
    pub unit: String,
    /// The score of the typical process (the median); `None` if fewer than two gave a result (for a network run, which is one
    /// process, if it gave none).
    pub estimate: Option<f64>,
    /// Bounds of the interval of 0.95 (for five processes their range, which covers 0.94); `None` for fewer than five.
    pub ci95: Option<[f64; 2]>,
    /// How the interval was computed.
    pub method: String,
    /// `flat`, `warmup`, `slowdown`, `no steady state`, or `inconsistent` if processes differ; `None` if they have too few iterations.
    pub class: Option<Consistency>,
    /// Number of processes in the estimate.
    pub processes: usize,
    /// Number of processes with a result that are excluded, since others disturbed them ([`disturbance`]).
    pub left_out: usize,
    /// Number of processes without a result.
    pub failed: usize,
    /// The reason of the first of them.
    pub failure: Option<String>,
    /// The score of the first iteration, median over processes: the cost of a cold start.
    pub first: Option<f64>,
    /// Iterations of all these processes.
    pub iterations: usize,
    /// Those flagged as outliers; they are part of the estimate.
    pub outliers: usize,
    /// The largest share of a process's time that was spent in outliers.
    pub outlier_share: f64,
    /// How many processes each gate passed, marked, or could not evaluate: gate, state, number. Includes those for the time in
    /// which they ran ([`disturbance`]).
    pub gates: GateCounts,
    /// Whether all of these processes checked their results; `None` if none reports it.
    pub verified: Option<bool>,
    /// What they checked, as the first one reports.
    pub verified_by: Option<String>,
    /// Why it has no processes, or no further ones.
    pub absent: Option<String>,
}

impl CellEstimate {
    /// Returns the half-width of the interval as a fraction of the score. The bounds of a logarithm's interval are not
    /// equally far from it.
    pub fn half_width(&self) -> Option<f64> {
        let [low, high] = self.ci95?;
        self.estimate.map(|value| (high - low) / 2.0 / value.abs()).filter(|half| half.is_finite())
    }
}

/// Returns the estimate of every cell, in the order of the table of cells.
pub fn estimate_cells(tables: &Tables, penalty: Penalty) -> Vec<CellEstimate> {
    estimate_cells_by(tables, penalty, &|design, cell| Some(Score::for_cell(design, cell)))
}

/// The same with a custom score; cells without one are left out.
pub fn estimate_cells_by(
    tables: &Tables,
    penalty: Penalty,
    score: &dyn Fn(&DesignRow, &DesignCell) -> Option<Score>,
) -> Vec<CellEstimate> {
    let mut by_replicate: HashMap<u64, Vec<&Sample>> = HashMap::new();
    for sample in &tables.samples {
        if let Some(id) = sample.replicate {
            by_replicate.entry(id).or_default().push(sample);
        }
    }
    let of = |cell: &DesignCell| {
        let design = tables.designs.iter().find(|d| d.id == cell.design)?;
        let counted = |r: &&Replicate| r.cell == cell.id && !r.warmup && r.why.is_none();
        let own: Vec<&Replicate> = tables.replicates.iter().filter(counted).collect();
        Some(estimate_cell(&score(design, cell)?, cell, penalty, &own, &by_replicate))
    };
    tables.cells.iter().filter_map(of).collect()
}

fn estimate_cell(
    score: &Score,
    cell: &DesignCell,
    penalty: Penalty,
    replicates: &[&Replicate],
    samples: &HashMap<u64, Vec<&Sample>>,
) -> CellEstimate {
    let failures: Vec<&str> = replicates.iter().filter_map(|r| r.failure.as_deref()).collect();
    let out = disturbance::excluded_replicates(replicates.iter().copied());
    let good: Vec<&&Replicate> = replicates.iter().filter(|r| is_counted(r) && !out.contains(&r.id)).collect();
    let none = Vec::new();
    let judged = |r: &&&Replicate| evaluate_process(score, penalty, r.id, samples.get(&r.id).unwrap_or(&none));
    let processes: Vec<Process> = good.iter().filter_map(judged).collect();
    let classes: Vec<Class> = processes.iter().filter_map(|p| p.class).collect();
    let class = steady::consistency(&classes).filter(|_| classes.len() == processes.len());
    // Processes that sized their iterations themselves may have done different amounts of work: normalise times to the
    // same amount. Values that they print do not depend on that amount.
    let work = |p: &Process| p.work.as_ref().filter(|_| score.kind != ScoreKind::Value).map(|(amount, _)| *amount);
    let amount = |p: &Process| work(p).unwrap_or(1.0);
    let of_first = processes.first().map_or(1.0, amount);
    let same = |p: &Process| -> Vec<f64> { p.values.iter().map(|v| v * of_first / amount(p)).collect() };
    let times: Vec<Vec<f64>> = processes.iter().map(same).collect();
    let convert = |time: f64| to_score(score, processes.first(), time);
    let of_run = good.iter().filter(|_| run_score::is_per_run(score)).find_map(|r| {
        let score = run_score::run_score(&score.metric, samples.get(&r.id)?, |_| true)?;
        Some((score.value, score.ci95, score.method()))
    });
    let between = || {
        let middle = |cell: &cells::Cell| convert_estimate(&cells::typical_process(cell, CONFIDENCE_LEVEL)?, &convert);
        let found = cells::Cell::new(&times).as_ref().and_then(middle);
        // Too few for an interval, but enough for a median.
        let few = || convert(stats::quantile::of_unsorted(&times.iter().map(|t| mean(t)).collect::<Vec<_>>(), 0.5)?);
        if times.len() < 2 {
            return None;
        }
        match found {
            Some(e) => Some((e.value, Some([e.low, e.high]), e.method)),
            None => Some((few()?, None, "median of processes; too few for an interval")),
        }
    };
    let estimate = if run_score::is_per_run(score) { of_run } else { between() };
    let firsts: Vec<f64> = processes.iter().map(|p| p.first).collect();
    let verified: Vec<bool> = good.iter().filter_map(|r| r.verified).collect();
    CellEstimate {
        cell: cell.id,
        unit: score_unit(score, processes.first()),
        estimate: estimate.map(|e| e.0),
        ci95: estimate.and_then(|e| e.1),
        method: estimate.map_or_else(String::new, |e| e.2.into()),
        class,
        processes: processes.len(),
        left_out: replicates.iter().filter(|r| is_counted(r) && out.contains(&r.id)).count(),
        failed: failures.len(),
        failure: failures.first().map(ToString::to_string),
        first: stats::quantile::of_unsorted(&firsts, 0.5).and_then(convert),
        iterations: processes.iter().map(|p| p.iterations).sum(),
        outliers: processes.iter().map(|p| p.outliers).sum(),
        outlier_share: processes.iter().map(|p| p.outlier_share).fold(0.0, f64::max),
        gates: count_gate_states(replicates),
        verified: (!verified.is_empty()).then(|| verified.len() == good.len() && verified.iter().all(|v| *v)),
        verified_by: good.iter().find_map(|r| r.verified_by.clone()),
        absent: cell.absent.clone(),
    }
}

/// Whether a replicate may be part of an estimate. A result that was checked and found wrong never is, whatever the
/// runner that stored it decided.
pub fn is_counted(replicate: &Replicate) -> bool {
    !replicate.warmup && replicate.why.is_none() && replicate.failure.is_none() && replicate.verified != Some(false)
}

/// Converts a mean of the metric to a score; `None` if there is none (a rate of no time).
fn to_score(score: &Score, process: Option<&Process>, mean: f64) -> Option<f64> {
    let value = match (score.kind, process?.work.as_ref()) {
        (ScoreKind::Rate, Some((work, _))) => work / to_seconds(&process?.unit, mean)?,
        (ScoreKind::Rate, None) => return None,
        _ => mean,
    };
    Some(value * score.scale).filter(|v| v.is_finite())
}

/// Converts a time to seconds. An iteration without a unit is in ns, as defined for the metric.
fn to_seconds(unit: &str, time: f64) -> Option<f64> {
    let size = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "ns" | "" => 1e-9,
        _ => return None,
    };
    Some(time * size)
}

/// Converts the estimate and its bounds; the reciprocal of a time swaps the bounds.
fn convert_estimate(time: &Estimate, convert: &dyn Fn(f64) -> Option<f64>) -> Option<Estimate> {
    let value = convert(time.value)?;
    let (a, b) = (convert(time.low)?, convert(time.high)?);
    Some(Estimate { value, low: a.min(b), high: a.max(b), ..*time })
}

fn score_unit(score: &Score, process: Option<&Process>) -> String {
    let of_process = |p: &Process| match (score.kind, &p.work) {
        (ScoreKind::Rate, Some((_, unit))) => format!("{unit}/s"),
        _ => p.unit.clone(),
    };
    score.unit.clone().or_else(|| process.map(of_process)).unwrap_or_default()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(any(test, feature = "synthetic"))]
pub mod synthetic;
#[cfg(test)]
mod tests;
