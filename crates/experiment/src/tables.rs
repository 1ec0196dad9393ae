//! A benchmark's tables, made from its log.

use crate::store::{self, Error};
use archive::runs::NET_RUN;
use archive::{Archive, Meta, Runs, SignalCleanup};
use std::path::Path;

/// Makes a benchmark's tables from its log, and says in `meta.json` that they are made. The second value says what is missing.
///
/// # Errors
/// The archive's, or [`Error::Cut`].
pub fn make(dir: &Path) -> Result<(Runs, Vec<String>), Error> {
    make_with(dir, Archive::open(dir)?.meta().clone())
}

/// The same where `meta.json` is gone or damaged: what can be known of it is in the log.
///
/// # Errors
/// As [`make`].
pub fn make_without_meta(dir: &Path) -> Result<(Runs, Vec<String>), Error> {
    let (runs, _) = Runs::salvage(dir)?;
    let began = runs.runs.first().and_then(|run| run.replicate.start_unix_ns).unwrap_or(0);
    let kind = if runs.designs.iter().any(|d| d.name == NET_RUN) { "net" } else { "bench" };
    make_with(dir, Meta::new(kind, began, Vec::new()))
}

fn make_with(dir: &Path, meta: Meta) -> Result<(Runs, Vec<String>), Error> {
    let (runs, warnings) = store::read(dir)?;
    store::keeps_tables(dir, &runs)?;
    {
        let _cleanup = SignalCleanup::tables(dir)?;
        runs.make_tables(dir)?;
    }
    store::tabled(meta, &runs).write(dir)?;
    Ok((runs, warnings))
}
