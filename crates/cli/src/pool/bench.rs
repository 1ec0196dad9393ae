//! `fathom pool bench`.

use super::trust;
use crate::args::{PoolBench, PoolLoad};
use anyhow::{Result, anyhow};
use pool::bench::{Figures, Load};
use pool::volume::Volume;
use std::process::ExitCode;
use std::rc::Rc;

pub fn run(args: &PoolBench) -> Result<ExitCode> {
    let key = trust::settle(&args.disk.trust, args.node.iter().copied())?;
    let figures = super::local(1, async {
        let volume = super::join(&args.node, &args.disk, key, &super::control(&args.control)).await?;
        measure(volume, &args.load, args.load.threads, args.write, !args.no_checksum).await
    })?;
    if args.load.json {
        println!("{}", serde_json::to_string(&figures)?);
    } else {
        println!("{}\n{}", heading(), line("", &figures));
    }
    Ok(if figures.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub async fn measure(volume: Rc<Volume>, load: &PoolLoad, threads: u32, write: bool, checked: bool) -> Result<Figures> {
    let load = Load { block_bytes: load.block, threads, duration: load.duration, write, checked, seed: 1 };
    pool::bench::run(volume, load).await.map_err(|error| anyhow!(error))
}

pub fn heading() -> String {
    format!(
        "{:<34}{:>10}{:>10}{:>10}{:>8}{:>8}{:>12}{:>12}",
        "", "ops/s", "p50 us", "p99 us", "window", "batch", "frames/s up", "down"
    )
}

pub fn line(name: &str, figures: &Figures) -> String {
    let Figures { ops_per_s, latency_us, window, batch_mean, packets_per_s, failed } = figures;
    let failed = if *failed > 0 { format!("  {failed} failed") } else { String::new() };
    format!(
        "{name:<34}{ops_per_s:>10.0}{:>10.1}{:>10.1}{window:>8.1}{batch_mean:>8.1}{:>12.0}{:>12.0}{failed}",
        latency_us.p50, latency_us.p99, packets_per_s.sent, packets_per_s.received
    )
}
