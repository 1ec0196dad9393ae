//! `fathom pool bench`.

use super::auth;
use crate::args::{Paper, PoolBench, PoolLoad};
use anyhow::{Result, anyhow};
use pool::bench::{Figures, Load};
use pool::volume::Volume;
use serde_json::json;
use std::process::ExitCode;
use std::rc::Rc;

pub fn run(args: &PoolBench) -> Result<ExitCode> {
    let paper = &args.paper;
    if let Some(place) = &args.server.nbd {
        return super::nbd_bench::run(args, place);
    }
    if paper.paper_figures {
        return super::figures::run(args);
    }
    if let Some(nodes) = paper.nodes.filter(|_| paper.compute) {
        return super::compute::run(args, nodes);
    }
    if let Some(nodes) = paper.nodes {
        return super::cluster::run(args, nodes);
    }
    let (figures, by) = if paper.paper == Some(Paper::Cluster) {
        let measured = super::paper::bench(args)?;
        let checked = measured.checked;
        (measured.figures, format!("{checked} answers verified"))
    } else {
        let key = auth::key(&args.disk.trust, args.node.iter().copied())?;
        let figures = super::local(1, async {
            if !args.take_over {
                super::is_free(&args.node, &args.disk, key.clone()).await?;
            }
            let volume =
                super::join(&args.node, &args.disk, key, &super::control(&args.control), (false, false)).await?;
            measure(volume, &args.load, args.load.requesters(), args.write, !args.no_checksum).await
        })?;
        let checked =
            if args.no_checksum { "no answer was verified" } else { "every answer matches its store's checksum" };
        (figures, format!("{checked}; {} failed", figures.failed))
    };
    if paper.lines {
        println!("{}", lines(&figures, &by).join("\n"));
    } else if args.load.json {
        println!("{}", serde_json::to_string(&figures)?);
    } else {
        let units = if paper.paper == Some(Paper::Cluster) { PAPER_UNITS } else { UNITS };
        println!("{}\n{}\n\n{units}", heading(), line("", &figures));
    }
    Ok(if figures.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// As a design's replicate prints them.
fn lines(figures: &Figures, by: &str) -> Vec<String> {
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

pub async fn measure(volume: Rc<Volume>, load: &PoolLoad, threads: u32, write: bool, checked: bool) -> Result<Figures> {
    let load = Load { block_bytes: load.block, threads, duration: load.duration, write, checked, seed: load.seed };
    pool::bench::run(volume, load).await.map_err(|error| anyhow!(error))
}

/// Of the columns whose headings have no room for them.
pub const UNITS: &str = "window: limit of requests in flight to a node; batch: requests per frame";

/// The same of the paper's cluster, which has no frames and no limit on them.
const PAPER_UNITS: &str = "window: mean requests in flight to a node; batch: requests per write";

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

#[cfg(test)]
mod tests {
    use super::*;
    use pool::bench::Latency;
    use pool::packets::BothWays;

    /// Each number ends where its heading ends, and no two headings touch.
    #[test]
    fn headings_stand_apart_over_their_numbers() {
        let ways = BothWays { sent: 123_456.0, received: 654_321.0 };
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
