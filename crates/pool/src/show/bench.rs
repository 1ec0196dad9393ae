//! Output of a pool's bench: a table as text, lines for a design's runner, JSON.

use crate::bench::{Figures, Load};
use crate::started::compute::Slowdown;
use serde::Serialize;
use serde_json::{Value, json};

/// The version of the JSON.
const FORMAT_VERSION: u32 = 1;

/// The results of a bench as JSON.
#[derive(Debug, Serialize)]
pub struct Document<'a, T> {
    version: u32,
    #[serde(flatten)]
    figures: &'a T,
}

impl<'a, T> Document<'a, T> {
    pub fn new(figures: &'a T) -> Self {
        Self { version: FORMAT_VERSION, figures }
    }
}

/// A trial of nodes under several loads as JSON: the loads, and their results.
pub fn trial_json(nodes: u32, load: &Load, rows: &[(&str, Figures)]) -> Value {
    let rows: Vec<_> = rows.iter().map(|(what, figures)| json!({"what": what, "figures": figures})).collect();
    json!({
        "version": FORMAT_VERSION, "nodes": nodes, "block_bytes": load.block_bytes, "threads": load.threads, "rows": rows,
    })
}

/// An explanation of columns whose headings are too short for their units.
pub const COLUMN_NOTES: &str = "window: limit of requests in flight to a node; batch: requests per frame";

/// The same for the paper's cluster, which has no frames and no limit on outstanding requests.
pub const PAPER_COLUMN_NOTES: &str = "window: mean requests in flight to a node; batch: requests per write";

pub fn heading() -> String {
    format!(
        "{:<34}{:>10}{:>10}{:>10}{:>8}{:>8}{:>15}{:>12}",
        "", "ops/s", "p50 us", "p99 us", "window", "batch", "packets/s up", "down"
    )
}

pub fn line(name: &str, figures: &Figures) -> String {
    let Figures { ops_per_s, latency_us, window, batch_mean, packets_per_s, failed, .. } = figures;
    let failed = if *failed > 0 { format!("  {failed} failed") } else { String::new() };
    format!(
        "{name:<34}{ops_per_s:>10.0}{:>10.1}{:>10.1}{window:>8.1}{batch_mean:>8.1}{:>15.0}{:>12.0}{failed}",
        latency_us.p50, latency_us.p99, packets_per_s.sent, packets_per_s.received
    )
}

/// The output of a design's replicate.
pub fn lines(figures: &Figures, by: &str) -> Vec<String> {
    let Figures { ops_per_s, latency_us, window, batch_mean, packets_per_s, packet_bytes_mean, failed } = figures;
    let metric = |metric, unit, v: f64| json!({"metric": metric, "unit": unit, "v": v});
    let lines = [
        metric("transactions", "1/s", *ops_per_s),
        metric("latency.p50", "ns", latency_us.p50 * 1000.0),
        metric("latency.p99", "ns", latency_us.p99 * 1000.0),
        metric("window", "request", *window),
        metric("batch", "request", *batch_mean),
        metric("packets.sent", "1/s", packets_per_s.sent),
        metric("packets.received", "1/s", packets_per_s.received),
        metric("packet_bytes.sent", "byte", packet_bytes_mean.sent),
        metric("packet_bytes.received", "byte", packet_bytes_mean.received),
        json!({"verified": *failed == 0, "by": by}),
    ];
    lines.map(|line| line.to_string()).to_vec()
}

/// The mutual slowdown of computing and reading, as text.
pub fn slowdown(measured: &Slowdown) -> String {
    let Slowdown { reads_alone, reads_during, compute_alone, compute_during } = measured;
    let [alone, during] = [compute_alone, compute_during].map(|rates| rates.iter().sum::<f64>());
    let kept = |during: f64, alone: f64| format!("{:.0} % kept", 100.0 * during / alone);
    [
        heading(),
        line("reads, alone", reads_alone),
        line("reads, while the nodes compute", reads_during),
        format!("{:<34}{}", "", kept(reads_during.ops_per_s, reads_alone.ops_per_s)),
        format!("\nLINPACK (200 equations, C -O2), {} together", model::counted(compute_alone.len(), "node")),
        format!("{:<34}{:>10.1} Mflop/s", "alone", alone / 1e6),
        format!("{:<34}{:>10.1} Mflop/s, {}", "while the pool is read", during / 1e6, kept(during, alone)),
    ]
    .join("\n")
}

/// The same as JSON.
pub fn slowdown_json(measured: &Slowdown) -> Value {
    let Slowdown { reads_alone, reads_during, compute_alone, compute_during } = measured;
    let [alone, during] = [compute_alone, compute_during].map(|rates| rates.iter().sum::<f64>());
    json!({
        "version": FORMAT_VERSION,
        "nodes": compute_alone.len(),
        "reads": {"alone": reads_alone, "during": reads_during},
        "compute": {"kernel": "linpack 200, C -O2", "unit": "flop/s", "alone": alone, "during": during,
                    "nodes_alone": compute_alone, "nodes_during": compute_during},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Latency;
    use crate::packets::PerDirection;

    /// Numbers are right-aligned with their headings, and headings are separated.
    #[test]
    fn headings_are_aligned_with_numbers() {
        let ways = PerDirection { sent: 123_456.0, received: 654_321.0 };
        let figures = Figures {
            ops_per_s: 1_234_567.0,
            latency_us: Latency { p50: 1.0, p99: 2.0 },
            window: 1024.0,
            batch_mean: 12.5,
            packets_per_s: ways,
            packet_bytes_mean: ways,
            failed: 0,
        };
        let (heading, line) = (heading(), line("reads", &figures));
        assert_eq!(heading.len(), line.len(), "{heading}\n{line}");
        assert!(heading.contains(" batch ") && heading.contains(" packets/s up "), "{heading}");
    }
}
