//! What processes print besides their score: latencies, disk activity, requested bytes. The number of a process is the mean of
//! what it printed; a cell has the mean of those, and the minimum and the maximum.

use super::{is_counted, mean};
use model::table::{Replicate, Sample};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A metric of a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OtherMetric {
    /// Its unit, as the processes print it.
    pub unit: String,
    /// Mean over processes.
    pub mean: f64,
    /// The smallest and the largest value of a process.
    pub range: [f64; 2],
}

/// Returns the metrics of each cell, by name; without those that make up the score, and those with labels.
pub fn other_metrics(replicates: &[Replicate], samples: &[Sample]) -> BTreeMap<u64, BTreeMap<String, OtherMetric>> {
    let out = super::disturbance::excluded_replicates(replicates);
    let counted = replicates.iter().filter(|r| is_counted(r) && !out.contains(&r.id));
    let cells: BTreeMap<u64, u64> = counted.map(|r| (r.id, r.cell)).collect();
    // By cell and metric: its unit, and by process what it printed.
    type PrintedValues<'a> = (&'a str, BTreeMap<u64, Vec<f64>>);
    let mut all: BTreeMap<(u64, &str), PrintedValues<'_>> = BTreeMap::new();
    for s in samples.iter().filter(|s| s.labels.is_empty()) {
        let Some((id, cell)) = s.replicate.and_then(|id| Some((id, *cells.get(&id)?))) else { continue };
        if !matches!(s.metric.as_str(), "iteration" | "work" | "process.duration") {
            all.entry((cell, &s.metric)).or_insert((&s.unit, BTreeMap::new())).1.entry(id).or_default().push(s.value);
        }
    }
    let mut by_cell: BTreeMap<u64, BTreeMap<String, OtherMetric>> = BTreeMap::new();
    for ((cell, metric), (unit, of)) in all {
        let means: Vec<f64> = of.values().map(|values| mean(values)).collect();
        let range = means.iter().fold([f64::MAX, f64::MIN], |[low, high], v| [low.min(*v), high.max(*v)]);
        let other = OtherMetric { unit: unit.into(), mean: mean(&means), range };
        by_cell.entry(cell).or_default().insert(metric.into(), other);
    }
    by_cell
}

/// Formats a line for people: the latencies of single requests, and the bytes that the disk moved for each requested byte.
pub fn metrics_line(metrics: &BTreeMap<String, OtherMetric>) -> Option<String> {
    let percentiles: BTreeSet<&str> = metrics.keys().filter_map(|name| name.strip_prefix("latency.p")).collect();
    let latency = |p: &&str| {
        let found = metrics.get(&format!("latency.p{p}")).filter(|m| m.unit == "ns")?;
        Some(format!("p{p} {} us", analysis::text::digits(found.mean / 1000.0)))
    };
    let shown: Vec<String> = percentiles.iter().filter(|p| ["50", "99"].contains(p)).filter_map(latency).collect();
    let latencies = (!shown.is_empty()).then(|| format!("latency {}", shown.join(", ")));
    let disk = metrics
        .get("amplification")
        .map(|m| format!("the disk transferred {} bytes per byte requested", analysis::text::digits(m.mean)));
    let parts: Vec<String> = latencies.into_iter().chain(disk).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::bench;

    #[test]
    fn a_cell_has_the_mean_and_range_of_its_processes() {
        let mut made = bench("b", "http");
        made.add(&[("op", "x")], 100.0, 1000.0, 5);
        let all = other_metrics(&made.tables.replicates, &made.tables.samples);
        let latency = &all[&0]["latency.p99"];
        assert_eq!((latency.mean, latency.range, latency.unit.as_str()), (102.0, [100.0, 104.0], "ns"));
        assert!(!all[&0].contains_key("iteration"));
        // A process with a wrong result is excluded.
        made.tables.replicates[0].verified = Some(false);
        assert_eq!(
            other_metrics(&made.tables.replicates, &made.tables.samples)[&0]["latency.p99"].range,
            [101.0, 104.0]
        );
    }

    #[test]
    fn the_metrics_line_shows_latencies_and_amplification() {
        let other = |unit: &str, mean| OtherMetric { unit: unit.into(), mean, range: [mean, mean] };
        let mut all = BTreeMap::from([
            ("latency.p50".to_string(), other("ns", 12_300.0)),
            ("latency.p99".into(), other("ns", 90_000.0)),
            ("latency.p99.9".into(), other("ns", 1e6)),
            ("device.reads".into(), other("request", 7.0)),
        ]);
        assert_eq!(metrics_line(&all).unwrap(), "latency p50 12.3 us, p99 90.0 us");
        all.insert("amplification".into(), other("1", 4096.0));
        assert!(metrics_line(&all).unwrap().ends_with("; the disk transferred 4096 bytes per byte requested"));
        assert_eq!(metrics_line(&BTreeMap::new()), None);
    }
}
