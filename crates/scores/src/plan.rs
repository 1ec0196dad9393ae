//! How many processes are needed, and how long should each be? Derived from the benchmark's own variance ([`stats::plan`]).
//!
//! The iterations of a process and the processes of a cell each add a variance of their own. From both follows how narrow the
//! interval of more processes would be, and, with the time of an iteration and of a start, how many iterations are worth their
//! time. The score is that of the typical process, and the width of its interval for other numbers of processes follows from the
//! ranks that its bounds would have among these ([`stats::median::expected_half_width`]). An estimate from few
//! processes is a hint, not a promise.

use super::results::{Bench, MeasuredCell};
use super::{CONFIDENCE_LEVEL, mean, to_seconds};
use analysis::text::{digits, shown};
use model::counted;
use serde::Serialize;
use stats::{median, plan, quantile, student, verdict};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// More processes than anyone would wait for.
const PROCESSES_MAX: usize = 10_000;
/// The requested power: how often a difference of the requested size is detected.
const POWER: f64 = 0.9;

/// A cell and the plan for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellPlan {
    pub workload: String,
    /// The cell's factors.
    pub parameters: BTreeMap<String, String>,
    pub name: String,
    /// Processes that it has.
    pub processes: usize,
    /// Valid iterations of each process: the smallest number of any.
    pub iterations: usize,
    /// Half-width of its current interval, as a fraction: the value shown by `bench show`.
    pub half_width: Option<f64>,
    /// The share of the mean's variance that more iterations of a process would not reduce.
    pub between: f64,
    /// Processes for an interval of the requested width; `None` if more than 10,000.
    pub for_precision: Option<usize>,
    /// Processes of each of two such cells to detect a difference of the requested size nine times out of ten.
    pub for_difference: Option<usize>,
    /// Iterations of a process that make the best use of the time, if known.
    pub best_iterations: Option<usize>,
}

/// Plans every cell with at least two processes. `precision` is the half-width of an interval, `difference` that between two
/// cells, as fractions.
pub fn plan(bench: &Bench, precision: f64, difference: f64) -> Vec<CellPlan> {
    bench.measured_cells().iter().filter_map(|m| plan_cell(m, precision, difference)).collect()
}

fn plan_cell(m: &MeasuredCell, precision: f64, difference: f64) -> Option<CellPlan> {
    let shortest = m.processes.iter().map(|r| r.costs.len()).min()?;
    // The method requires balanced data: of each process as many iterations as the shortest has.
    let (values, counts): (Vec<f64>, Vec<usize>) = match shortest {
        0 => return None,
        1 => (m.processes.iter().map(|r| mean(&r.costs)).collect(), vec![m.processes.len()]),
        n => (m.processes.iter().flat_map(|r| r.costs[..n].to_vec()).collect(), vec![n, m.processes.len()]),
    };
    let components = plan::components(&values, &counts)?;
    let (lower, own) = (&counts[..counts.len() - 1], &components.own);
    let within = if lower.is_empty() { 0.0 } else { own[0] / lower[0] as f64 };
    let between = own[own.len() - 1];
    let all = within + between;
    let mut scores = m.scores();
    scores.sort_unstable_by(f64::total_cmp);
    let typical = quantile::of_unsorted(&scores, 0.5)?;
    let needed = |half: f64| {
        let reaches = |n: &usize| {
            median::expected_half_width(&scores, *n, CONFIDENCE_LEVEL).is_some_and(|r| r <= half * typical.abs())
        };
        (median::VALUES_MIN..=PROCESSES_MAX).find(reaches)
    };
    // The rank test of two cells is more precise than their medians by the square root of its efficiency over theirs,
    // (3 / pi) / (2 / pi), and has the errors of both. A true difference is detected with this power if it is further from zero than these
    // quantiles of that error, and further from the margin.
    let (z, power) = (student::normal_quantile(0.5 + CONFIDENCE_LEVEL / 2.0), student::normal_quantile(POWER));
    let beyond = difference - verdict::MARGIN_DEFAULT;
    let error = difference / (z + power);
    let error = if beyond > 0.0 { error.min(beyond / power) } else { error };
    let target = error * z * (1.5_f64 / 2.0).sqrt();
    let costs = (!lower.is_empty()).then(|| time_costs(m)).flatten();
    Some(CellPlan {
        workload: m.design.name.clone(),
        parameters: m.factors.clone(),
        name: m.cell.name.clone(),
        processes: m.processes.len(),
        iterations: shortest,
        half_width: m.estimate.half_width(),
        between: if all > 0.0 { between / all } else { 0.0 },
        for_precision: needed(precision),
        for_difference: needed(target),
        best_iterations: costs.and_then(|costs| components.repetitions(&costs)?.first().copied()),
    })
}

/// Seconds of one more iteration, and of one more process excluding its iterations.
fn time_costs(m: &MeasuredCell) -> Option<[f64; 2]> {
    let mut times = Vec::with_capacity(m.processes.len());
    let mut starts = Vec::with_capacity(m.processes.len());
    for run in &m.processes {
        // A metric that is not a time does not give the length of an iteration.
        let time = to_seconds(&run.process.unit, mean(&run.process.values))?;
        let all = run.row.end_ns.saturating_sub(run.row.start_ns) as f64 / 1e9;
        times.push(time);
        starts.push((all - time * run.process.iterations as f64).max(0.0));
    }
    Some([mean(&times), mean(&starts).max(1e-3)])
}

pub fn text(all: &[CellPlan], precision: f64, difference: f64) -> String {
    let percent = |x: f64| format!("{} %", digits(x * 100.0));
    let count = |n: Option<usize>| n.map_or_else(|| format!("> {PROCESSES_MAX}"), |n| n.to_string());
    let mut out = String::new();
    let mut workload = "";
    for p in all {
        if p.workload != workload {
            workload = &p.workload;
            let _ = writeln!(out, "{}{}", if out.is_empty() { "" } else { "\n" }, shown(workload));
        }
        let now = p.half_width.map_or_else(|| "unknown".into(), |w| format!("\u{b1} {}", percent(w)));
        let _ = writeln!(
            out,
            "  {}\n      {} of {}: {now}; {} of the variance is between processes",
            shown(&p.name),
            counted(p.processes, "process"),
            counted(p.iterations, "iteration"),
            percent(p.between)
        );
        let _ = writeln!(
            out,
            "      \u{b1} {}: {} processes; a difference of {}: {} of each",
            percent(precision),
            count(p.for_precision),
            percent(difference),
            count(p.for_difference)
        );
        if let Some(best) = p.best_iterations {
            let _ = writeln!(out, "      best use of time: {} per process", counted(best, "iteration"));
        }
    }
    if all.is_empty() {
        out.push_str("no cell has two processes to estimate from\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::bench;

    #[test]
    fn the_needed_replicates_follow_from_the_variance() {
        let mut b = bench("b", "w");
        b.add(&[("rows", "1")], 100.0, 1000.0, 8);
        // 0.3 % between processes, uniform: a deviation of 0.17 %. 0.5 % within, over 30 iterations: 0.05 %.
        let of = |precision, difference| plan(&b, precision, difference).remove(0);
        let wide = of(0.02, 0.03);
        assert_eq!((wide.processes, wide.iterations, wide.name.as_str()), (8, 30, "rows=1"));
        assert!(wide.between > 0.5 && wide.half_width.unwrap() < 0.003, "{wide:?}");
        assert_eq!(wide.for_precision, Some(5), "the fewest that have an interval: {wide:?}");
        // Ten times as narrow takes about a hundred times as many, within the precision that eight processes allow.
        let (some, many) = (of(0.0005, 0.03).for_precision.unwrap(), of(0.00005, 0.03).for_precision.unwrap());
        assert!((20..400).contains(&(many / some)), "{some} {many}");
        assert_eq!(of(1e-9, 0.03).for_precision, None);
        // Detecting a difference needs a narrower interval than stating a score with the same precision.
        assert!(of(0.001, 0.001).for_difference > of(0.001, 0.001).for_precision);
        assert!(text(&[wide], 0.02, 0.03).contains("a difference of 3.00 %"));
    }

    /// Processes that differ by more than their median.
    #[test]
    fn a_plan_uses_the_half_width_that_is_shown() {
        let mut b = bench("b", "w");
        let cell = b.add(&[], 100.0, 1000.0, 5);
        let levels = [1.0, 2.0, 3.0, 9.0, 30.0];
        b.tables.samples.retain(|s| s.metric != "iteration");
        for (id, level) in (0..).zip(levels) {
            let (metric, unit) = ("iteration".to_string(), "ns".to_string());
            let (labels, time_ns) = (String::new(), None);
            b.tables.samples.push(model::table::Sample {
                replicate: Some(id),
                metric,
                unit,
                labels,
                time_ns,
                value: level,
            });
        }
        let shown = b.measured_cells().remove(cell as usize).estimate.half_width().expect("five processes");
        let plan_of = |precision| plan(&b, precision, 0.03).remove(0);
        let planned = plan_of(shown * 1.001);
        assert_eq!(planned.half_width, Some(shown));
        // By hand: rates from 1 / 30 to 1, median 1 / 3.
        assert!((shown - (1.0 - 1.0 / 30.0) / 2.0 * 3.0).abs() < 1e-9, "{shown}");
        assert_eq!(planned.for_precision, Some(5));
        assert_eq!(plan_of(shown * 0.999).for_precision, Some(6));
    }

    #[test]
    fn a_cell_without_processes_has_no_plan() {
        let mut b = bench("b", "w");
        b.add(&[], 100.0, 1000.0, 1);
        assert!(plan(&b, 0.02, 0.03).is_empty());
        assert!(text(&[], 0.02, 0.03).contains("no cell"));
    }
}
