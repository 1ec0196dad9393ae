//! The data of the report page of a benchmark: computed here, so that the page only has to draw.

use super::comparability::Rules;
use super::compare::{BenchComparison, compare_archives, distinguishing_factors};
use super::figure::Figure;
use super::figures::{figures, other_figures};
use super::flows::{Flows, flows};
use super::metrics::{self, OtherMetric};
use super::results::{Bench, CountedProcess, MeasuredCell, factor_words};
use super::run_score::{self, DirectionLimits};
use super::{Benchmark, ScoreKind, Why, benchmark};
use analysis::text::digits;
use model::counted;
use serde::Serialize;
use stats::steady::{self, Penalty};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of iterations drawn for a process; a longer series is reduced to the extremes of its parts.
const POINTS_MAX: usize = 400;

/// The page's data.
#[derive(Debug, Clone, Serialize)]
pub struct Page {
    /// The contract of `fathom bench run --json`.
    pub shown: Benchmark,
    /// What the processes measured besides the score.
    pub metrics: Vec<Metric>,
    /// The command that made the archive.
    pub command: Vec<String>,
    /// The question of each design, and how it was run.
    pub designs: Vec<Design>,
    /// The papers' figures, then the cells that are in none of them.
    pub figures: Vec<Figure>,
    /// The cells with their processes' iterations.
    pub curves: Vec<Curves>,
    /// What sending TCPs reported over time.
    pub flows: Vec<Flows>,
    /// What limited network runs.
    pub held: Vec<DirectionLimits>,
    /// The comparison with another benchmark, if there is one.
    pub compared: Option<BenchComparison>,
}

/// A metric besides the score.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metric {
    pub cell: u64,
    /// Its workload and factors in words.
    pub title: String,
    pub metric: String,
    pub unit: String,
    /// The mean over processes of what each printed (the mean, if it printed it more than once).
    pub mean: f64,
    /// The smallest and the largest value of a process.
    pub range: [f64; 2],
}

#[derive(Debug, Clone, Serialize)]
pub struct Design {
    pub name: String,
    /// The question that it answers.
    pub question: String,
    /// How it was run, in sentences.
    pub method: Vec<String>,
}

/// A cell's processes over their iterations.
#[derive(Debug, Clone, Serialize)]
pub struct Curves {
    pub cell: u64,
    /// Its workload and factors in words.
    pub title: String,
    /// Unit of the metric: mostly `ns`.
    pub unit: String,
    /// The processes, in the order of their blocks.
    pub processes: Vec<Curve>,
}

/// A process.
#[derive(Debug, Clone, Serialize)]
pub struct Curve {
    pub block: u64,
    pub class: Option<&'static str>,
    /// The first steady iteration.
    pub steady_from: Option<usize>,
    /// Its iterations: number and value.
    pub points: Vec<(usize, f64)>,
    /// Its segments: first iteration, the one after the last, mean.
    pub segments: Vec<(usize, usize, f64)>,
    /// Numbers of its flagged outliers.
    pub outliers: Vec<usize>,
    pub iterations: usize,
    /// Its score, in words.
    pub score: String,
}

/// Returns the page's data of a benchmark; `why` explains a recorded process.
pub fn page(bench: &Bench, why: &dyn Fn(&str) -> Why) -> Page {
    let measured = bench.measured_cells();
    let printed = metrics::other_metrics(&bench.tables.replicates, &bench.tables.samples);
    let mut figures = figures(bench);
    figures.extend(other_figures(bench, &figures));
    Page {
        shown: benchmark(&bench.tables, bench.penalty, why),
        metrics: measured.iter().flat_map(|m| metrics_of_cell(m, printed.get(&m.cell.id))).collect(),
        command: bench.command.clone(),
        designs: bench.tables.designs.iter().map(|d| describe_design(bench, d)).collect(),
        figures,
        curves: measured.iter().map(|m| cell_curves(m, bench.penalty)).filter(|c| !c.processes.is_empty()).collect(),
        flows: flows(bench, &measured),
        held: Vec::new(),
        compared: None,
    }
}

/// The same for a benchmark compared with the previous one (`a`).
pub fn page_with_comparison(a: &Bench, bench: &Bench, why: &dyn Fn(&str) -> Why) -> Page {
    Page { compared: Some(compare_archives(a, bench, &Rules::default())), ..page(bench, why) }
}

fn describe_design(bench: &Bench, d: &model::table::DesignRow) -> Design {
    if let Some(method) = run_score::describe_method(d) {
        return Design { name: d.name.clone(), question: d.question.clone(), method };
    }
    let cells: Vec<u64> = bench.tables.cells.iter().filter(|c| c.design == d.id).map(|c| c.id).collect();
    let of = bench.tables.replicates.iter().filter(|r| cells.contains(&r.cell));
    let blocks = of.clone().filter(|r| !r.warmup).map(|r| r.block).collect::<BTreeSet<_>>().len();
    let mut method = vec![format!(
        "{} measured, each a fresh process of each of {} in randomised order (seed {}); {} in all.",
        counted(blocks, "block"),
        counted(cells.len(), "cell"),
        d.seed,
        counted(of.count(), "process")
    )];
    method.push(match (d.precision, d.stopped.as_deref()) {
        (Some(p), Some(why)) => format!("Target: intervals of +-{} %. Stopped because: {why}.", digits(p * 100.0)),
        (None, Some(why)) => format!("Stopped because: {why}."),
        (_, None) => "It was interrupted.".into(),
    });
    method.push(match ScoreKind::from_name(&d.score) {
        ScoreKind::Rate => {
            "The score is work / mean time of the steady iterations; times are averaged, then inverted.".into()
        }
        ScoreKind::Time => "The score is the mean time of the steady iterations.".into(),
        ScoreKind::Value | ScoreKind::Run => "The score is the mean of what each process printed.".into(),
    });
    if d.quick {
        method.push("A quick run: fewer processes and smaller values; not comparable with a full run.".into());
    }
    Design { name: d.name.clone(), question: d.question.clone(), method }
}

fn cell_title(m: &MeasuredCell) -> String {
    format!("{} {}", m.design.name, factor_words(&distinguishing_factors(m))).trim().to_string()
}

/// Returns the other metrics of a cell.
fn metrics_of_cell<'a>(
    m: &'a MeasuredCell,
    metrics: Option<&'a BTreeMap<String, OtherMetric>>,
) -> impl Iterator<Item = Metric> + 'a {
    metrics.into_iter().flatten().map(|(metric, other)| Metric {
        cell: m.cell.id,
        title: cell_title(m),
        metric: metric.clone(),
        unit: other.unit.clone(),
        mean: other.mean,
        range: other.range,
    })
}

fn cell_curves(m: &MeasuredCell, penalty: Penalty) -> Curves {
    let score = m.score();
    let one = |run: &CountedProcess| {
        // Classified again like in the estimate, since the rows hold no segments.
        let classified = || steady::classify(&run.series, steady::EQUIVALENCE_MARGIN, penalty, run.row.id);
        let steady = score.kind.has_iterations().then(classified).flatten();
        Curve {
            block: run.row.block,
            class: steady.as_ref().map(|s| s.class.name()),
            steady_from: steady.as_ref().and_then(|s| s.from),
            points: thin_series(&run.series),
            segments: steady.iter().flat_map(|s| &s.segments).map(|s| (s.start, s.end, s.mean)).collect(),
            outliers: steady.map(|s| s.outliers.flagged.to_vec()).unwrap_or_default(),
            iterations: run.series.len(),
            score: run.score(&score).map_or_else(String::new, |s| format!("{} {}", digits(s), m.estimate.unit)),
        }
    };
    // A single number is not a series.
    let mut processes: Vec<Curve> = m.processes.iter().filter(|r| r.series.len() > 1).map(one).collect();
    processes.sort_by_key(|c| c.block);
    Curves {
        cell: m.cell.id,
        title: cell_title(m),
        unit: m.processes.first().map(|r| r.process.unit.clone()).unwrap_or_default(),
        processes,
    }
}

/// Returns the series, or the minimum and maximum of each of its parts, so that no spike is lost.
fn thin_series(series: &[f64]) -> Vec<(usize, f64)> {
    let all = series.iter().copied().enumerate();
    if series.len() <= POINTS_MAX {
        return all.collect();
    }
    let part = series.len().div_ceil(POINTS_MAX / 2);
    let all: Vec<(usize, f64)> = all.collect();
    let mut points = Vec::with_capacity(POINTS_MAX + 2);
    for chunk in all.chunks(part) {
        let by = |a: &&(usize, f64), b: &&(usize, f64)| a.1.total_cmp(&b.1);
        let (low, high) = (chunk.iter().min_by(by), chunk.iter().max_by(by));
        let mut both: Vec<(usize, f64)> = low.into_iter().chain(high).copied().collect();
        both.sort_unstable_by_key(|p| p.0);
        both.dedup();
        points.extend(both);
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::bench;

    #[test]
    fn a_long_series_keeps_its_spikes() {
        let mut series = vec![1.0; 5000];
        series[1234] = 9.0;
        series[4321] = 0.1;
        let points = thin_series(&series);
        assert!(points.len() <= POINTS_MAX + 2 && points.contains(&(1234, 9.0)) && points.contains(&(4321, 0.1)));
        assert!(points.is_sorted_by_key(|p| p.0));
        assert_eq!(thin_series(&series[..3]), [(0, 1.0), (1, 1.0), (2, 1.0)]);
    }

    #[test]
    fn every_process_has_a_curve() {
        let mut b = bench("b", "http");
        b.add(&[("connections", "1")], 100.0, 1000.0, 5);
        let page = page(&b, &|_| unreachable!("nothing was recorded"));
        let curves = &page.curves[0];
        assert_eq!((page.curves.len(), curves.processes.len(), curves.title.as_str()), (1, 5, "http connections=1"));
        let curve = &curves.processes[0];
        assert_eq!((curve.points.len(), curve.class, curve.steady_from), (30, Some("flat"), Some(0)));
        assert_eq!(curve.segments.len(), 1);
        assert!(curve.score.ends_with("row/s") && page.figures[0].figure == "3");
        let metric = &page.metrics[0];
        assert_eq!((metric.metric.as_str(), metric.mean, metric.range), ("latency.p99", 102.0, [100.0, 104.0]));
        assert!(page.designs[0].method[0].starts_with("5 blocks measured"));
        assert!(page.compared.is_none());
        let both = page_with_comparison(&b, &b, &|_| unreachable!("nothing was recorded"));
        assert_eq!(both.compared.unwrap().results[0].verdict.name(), "equivalent");
    }
}
