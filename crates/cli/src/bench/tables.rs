//! A benchmark's tables, made from its log, whenever `fathom bench` or `fathom reindex` needs them.

use anyhow::Result;
use archive::{Archive, Meta, Runs, SignalCleanup};
use experiment::store;
use std::path::Path;

/// Makes a benchmark's tables from its log, and says in `meta.json` that they are made.
pub fn remake(dir: &Path) -> Result<Runs> {
    remake_with(dir, Archive::open(dir)?.meta().clone())
}

/// The same where `meta.json` is gone or damaged: what can be known of it is in the log.
pub fn remake_without_meta(dir: &Path) -> Result<Runs> {
    let (runs, _) = Runs::salvage(dir)?;
    let began = runs.runs.first().and_then(|run| run.replicate.start_unix_ns).unwrap_or(0);
    let kind = if runs.designs.iter().any(|d| d.name == analysis::bench::net::RUN) { "net" } else { "bench" };
    remake_with(dir, Meta::new(kind, began, Vec::new()))
}

/// The log of an archive; what is missing of it is said.
pub fn log(dir: &Path) -> Result<Runs> {
    let (runs, warnings) = store::read(dir)?;
    for warning in warnings {
        eprintln!("fathom: {warning}");
    }
    Ok(runs)
}

fn remake_with(dir: &Path, meta: Meta) -> Result<Runs> {
    let runs = log(dir)?;
    store::keeps_tables(dir, &runs)?;
    {
        let _cleanup = SignalCleanup::tables(dir)?;
        runs.make_tables(dir)?;
    }
    store::tabled(meta, &runs).write(dir)?;
    Ok(runs)
}
