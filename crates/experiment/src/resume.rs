//! Resuming an interrupted run: whether this is possible, and what has changed on the machine since.

use crate::machine;
use crate::store::{self, Store, check_keeps_tables};
use archive::runs::Entry;
use archive::{Archive, ArchiveKind, Runs};
use model::Environment;
use model::table::MarkRow;
use model::text::ShownPath as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Why a run cannot be resumed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive is not a benchmark.
    #[error("{} is {kind}, not a benchmark: nothing to resume", dir.shown())]
    NoBenchmark { dir: PathBuf, kind: ArchiveKind },
    /// It ended before its designs were stored.
    #[error("{} was interrupted before its designs were stored; start a new run", .0.shown())]
    NoDesigns(PathBuf),
    /// The storage under test is different.
    #[error(
        "{}: the directories under test are on different storage now: {other}. Mount the original storage and \
         resume, or start a new run",
        dir.shown()
    )]
    OtherStorage { dir: PathBuf, other: String },
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Archive(#[from] archive::Error),
}

/// Returns facts about the machine, and about these directories on storage under test.
pub type CollectFacts = dyn Fn(&[(String, PathBuf)]) -> Environment;

/// Opens an archive to resume it, and records what has changed since. The text describes the damage of the log that was repaired.
///
/// # Errors
/// There is nothing to resume, or the storage is different.
pub fn resume(dir: &Path, facts: &CollectFacts) -> Result<(Store, Option<String>), Error> {
    let archive = Archive::open(dir)?;
    if archive.meta().kind != ArchiveKind::Bench {
        return Err(Error::NoBenchmark { dir: dir.into(), kind: archive.meta().kind });
    }
    // The tables are made from the log again at the end.
    check_keeps_tables(dir, &Runs::salvage(dir)?.0)?;
    let (mut store, warning) = Store::resume(dir)?;
    if store.runs().designs.is_empty() {
        return Err(Error::NoDesigns(dir.into()));
    }
    let designs = store.designs()?;
    if designs.iter().enumerate().all(|(at, design)| store.finished(at, design).is_some()) {
        return Ok((store, warning));
    }
    let dirs: Vec<(String, PathBuf)> = designs
        .iter()
        .flat_map(|d| &d.cells)
        .filter_map(|c| Some((c.factors.get("dir")?.clone(), c.dir.clone()?)))
        .collect::<BTreeMap<_, _>>()
        .into_iter()
        .collect();
    let now = facts(&dirs);
    let before = store.runs().machines.last().cloned().unwrap_or_default();
    if let Some(other) = machine::other_storage(&before, &now).filter(|_| !dirs.is_empty()) {
        return Err(Error::OtherStorage { dir: dir.into(), other });
    }
    let text = match machine::differences(&before, &now) {
        Some(changed) => format!("on a machine that has changed: {changed}"),
        None => "on the same machine, as far as is known".into(),
    };
    store.push(Entry::Machine(now))?;
    store.push(Entry::Mark(MarkRow { replicate: None, name: "resumed".into(), text }))?;
    Ok((store, warning))
}
