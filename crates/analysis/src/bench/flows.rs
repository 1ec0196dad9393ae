//! What a sending TCP said of itself over time: congestion window, round-trip time. Cells that differ only in the factor that a
//! figure tells lines apart by (the congestion control) are lines of one chart, so that several flows stand on one axis.
//!
//! Of each cell the first process that counts is drawn: a course is an example, and an average of courses would be one that
//! no flow ever took.

use super::counts;
use super::results::{Bench, Measured, words};
use serde::Serialize;
use std::collections::BTreeMap;

/// Readings of a flow that are drawn; of a longer course every n-th.
const POINTS: usize = 600;
/// What is drawn: the metric, its unit, and what it is.
const DRAWN: &[(&str, &str, &str)] = &[
    ("tcp.cwnd", "segments", "congestion window"),
    ("tcp.srtt_us", "us", "round-trip time under load (smoothed, of the sender)"),
];
/// The factor that tells the lines of a chart apart.
const APART: &str = "cc";

/// A chart of flows over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flows {
    /// What it shows, and the factors that all its lines have.
    pub title: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// The lines.
    pub flows: Vec<Flow>,
}

/// A flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flow {
    /// The factor's value, and which of several streams.
    pub name: String,
    /// Seconds since the process's first reading, and the value.
    pub points: Vec<(f64, f64)>,
}

/// The charts that this archive holds readings for.
pub fn flows(bench: &Bench, all: &[Measured]) -> Vec<Flows> {
    let mut charts: BTreeMap<(usize, String), Vec<Flow>> = BTreeMap::new();
    for m in all {
        let first = bench.tables.replicates.iter().find(|r| r.cell == m.cell.id && counts(r));
        let Some(id) = first.map(|r| r.id) else { continue };
        let rest: BTreeMap<String, String> = m.factors.clone().into_iter().filter(|(name, _)| name != APART).collect();
        // By what is drawn, and by stream.
        let mut courses: BTreeMap<(usize, &str), Vec<(u64, f64)>> = BTreeMap::new();
        for s in bench.tables.samples.iter().filter(|s| s.replicate == Some(id)) {
            let (Some(at), Some(t)) = (DRAWN.iter().position(|d| d.0 == s.metric), s.time_ns) else { continue };
            courses.entry((at, &s.labels)).or_default().push((t, s.value));
        }
        let start = courses.values().flatten().map(|(t, _)| *t).min().unwrap_or(0);
        let apart = m.factors.get(APART).cloned().unwrap_or_else(|| m.cell.name.clone());
        let several = courses.keys().filter(|(at, _)| *at == 0).count() > 1;
        for ((at, labels), course) in courses {
            let name = if several { format!("{apart} {labels}") } else { apart.clone() };
            let title = format!("{} {}", m.design.name, words(&rest));
            charts.entry((at, title)).or_default().push(Flow { name, points: points(course, start) });
        }
    }
    let chart = |((at, title), flows): ((usize, String), Vec<Flow>)| Flows {
        title: format!("{}: {}", DRAWN[at].2, title.trim()),
        unit: DRAWN[at].1,
        flows,
    };
    charts.into_iter().map(chart).collect()
}

fn points(mut course: Vec<(u64, f64)>, start: u64) -> Vec<(f64, f64)> {
    course.sort_unstable_by_key(|(t, _)| *t);
    let step = course.len().div_ceil(POINTS).max(1);
    course.iter().step_by(step).map(|(t, v)| ((t - start) as f64 / 1e9, *v)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::made::bench;
    use model::table::Sample;

    #[test]
    fn cells_that_differ_in_the_congestion_control_share_an_axis() {
        let mut b = bench("b", "net-delay");
        let cells = [
            [("cc", "reno"), ("delay_ms", "8")],
            [("cc", "cubic"), ("delay_ms", "8")],
            [("cc", "reno"), ("delay_ms", "0")],
        ];
        for factors in &cells {
            b.add(factors, 100.0, 1000.0, 2);
        }
        let reading = |replicate: u64, metric: &str, time_ns: u64, value: f64| Sample {
            replicate: Some(replicate),
            metric: metric.into(),
            unit: "segment".into(),
            labels: "direction=down stream=0".into(),
            time_ns: Some(time_ns),
            value,
        };
        for replicate in 0..6 {
            for n in 0..2000 {
                // Out of order, as two ends bring them.
                b.tables.samples.push(reading(replicate, "tcp.cwnd", 5_000_000_000 - n * 1_000_000, n as f64));
            }
        }
        b.tables.samples.push(reading(0, "tcp.srtt_us", 5_000_000_000, 16_000.0));
        let charts = flows(&b, &b.measured());
        let said: Vec<(&str, Vec<&str>)> =
            charts.iter().map(|c| (c.title.as_str(), c.flows.iter().map(|f| f.name.as_str()).collect())).collect();
        assert_eq!(
            said,
            [
                ("congestion window: net-delay delay_ms=0", vec!["reno"]),
                ("congestion window: net-delay delay_ms=8", vec!["reno", "cubic"]),
                ("round-trip time under load (smoothed, of the sender): net-delay delay_ms=8", vec!["reno"]),
            ]
        );
        let course = &charts[1].flows[0].points;
        assert!(course.len() <= POINTS && course.is_sorted_by(|a, b| a.0 <= b.0));
        assert_eq!(course[0], (0.0, 1999.0), "times count from the first reading");
        assert!(flows(&bench("b", "http"), &[]).is_empty());
    }
}
