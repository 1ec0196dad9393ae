//! `fathom fleet gc`: merges small files, and removes files that no commit names.
//!
//! A file that a merge has replaced, or that no commit names, is removed only after a grace period: a query that began before the
//! merge may still read the former, and a writer may be about to commit the latter.

use super::log::{CommitError, Fleet};
use super::progress::Progress;
use super::rows::{Files, in_fleet};
use anyhow::{Context as _, Result, anyhow};
use fleet::commits::{Commit, Conflict, is_data_path};
use fleet::plan::{self, Merge};
use std::collections::HashSet;
use std::path::Path;

/// The outcome of a collection.
#[derive(Debug, Default)]
pub struct CollectResult {
    /// Files merged.
    pub merged: usize,
    /// Number of files they were merged into.
    pub into: usize,
    /// Files removed.
    pub removed: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Files that will be removed after their grace period.
    pub waiting: usize,
}

/// Merges small files if there are at least `at_least` together; returns how many became how many.
///
/// # Errors
/// The store fails; the fleet is in the state before or after each merge.
pub async fn merge(fleet: &mut Fleet, at_least: usize) -> Result<(usize, usize)> {
    let plan = plan::plan_merges(&fleet.state, fleet.info.file_bytes, at_least);
    let (mut merged, mut into) = (0, 0);
    let mut progress = Progress::default();
    for (at, one) in plan.iter().enumerate() {
        progress.step("merging files", at, plan.len());
        if merge_one(fleet, one).await? {
            merged += one.files.len();
            into += 1;
        }
    }
    Ok((merged, into))
}

async fn merge_one(fleet: &mut Fleet, merge: &Merge) -> Result<bool> {
    let table = fleet::tables().find(|table| table.name == merge.table);
    let table = table.with_context(|| format!("no such table: {}", merge.table))?;
    let info = in_fleet(table);
    let mut files = Files::new(&fleet.store, &merge.date);
    for file in &merge.files {
        // Ctrl-C is handled here.
        tokio::task::yield_now().await;
        let mut source = fleet.store.fetch(&file.path).await?;
        if super::rows::checksum(&mut source)? != file.sum {
            return Err(anyhow!("{} is damaged (checksum mismatch): restore it from a copy of the fleet", file.path));
        }
        let mut failed = None;
        let read = archive::tables::read_file(source, Path::new(&file.path), &info, file.table_version, &mut |cells| {
            if failed.is_none() {
                failed = files.push(table, cells.to_vec()).err();
            }
        });
        let rows = read.map_err(|error| anyhow!("{}: {error}", file.path))?;
        if let Some(error) = failed {
            return Err(error);
        }
        if rows != file.rows {
            return Err(anyhow!("{} has {rows} rows, but its commit says {}", file.path, file.rows));
        }
    }
    let add = files.finish().await?;
    let remove = merge.files.iter().map(|file| file.path.clone()).collect();
    match fleet.commit(Commit { add: add.clone(), remove, ..Commit::default() }).await {
        Ok(()) => Ok(true),
        // Another writer merged some of these; its merge remains.
        Err(CommitError::Conflict(Conflict::Gone(_))) => {
            fleet.discard(&add).await?;
            Ok(false)
        }
        Err(CommitError::Conflict(other)) => Err(other.into()),
        Err(CommitError::Store(error)) => Err(error),
    }
}

/// Merges, then removes unneeded files that are older than `grace_ns`.
pub async fn gc(fleet: &mut Fleet, grace_ns: u64) -> Result<CollectResult> {
    // A store that is too full to merge has space again once unneeded files are removed; then the error is reported.
    let merged = merge(fleet, 2).await;
    let (files, into) = *merged.as_ref().unwrap_or(&(0, 0));
    let mut collected = CollectResult { merged: files, into, ..CollectResult::default() };
    let now = archive::unix_now_ns();
    let due = |at: u64| at.saturating_add(grace_ns) <= now;
    let listed = fleet.store.list("").await?;
    // Listed first, read second: commits in between are seen.
    fleet.refresh().await?;
    // A reader starts from the newest checkpoint; one that began earlier may still read the one before it.
    let mut checkpoints: Vec<&str> = Vec::new();
    checkpoints
        .extend(listed.iter().filter(|file| file.path.starts_with("_checkpoints/")).map(|file| file.path.as_str()));
    checkpoints.sort_unstable();
    let old: HashSet<&str> = checkpoints.iter().rev().skip(1).copied().collect();
    let mut forgotten = Vec::new();
    let listed_paths: HashSet<&str> = listed.iter().map(|file| file.path.as_str()).collect();
    for file in &listed {
        let data = is_data_path(&file.path);
        let raw = file.path.strip_prefix("_raw/").and_then(|rest| rest.split('/').next());
        let ours = match (data, raw) {
            (true, _) => !fleet.state.files.contains_key(&file.path),
            (false, Some(run)) => !fleet.state.runs.contains(run),
            (false, None) => old.contains(file.path.as_str()),
        };
        if !ours {
            continue;
        }
        let replaced = fleet.state.removed.get(&file.path).copied().unwrap_or(0);
        if !due(file.at_unix_ns.max(replaced)) {
            collected.waiting += 1;
            continue;
        }
        fleet.store.delete(&file.path).await?;
        collected.removed += 1;
        collected.bytes += file.bytes;
        if data {
            forgotten.push(file.path.clone());
        }
    }
    // Replaced files that were removed earlier.
    forgotten.extend(fleet.state.removed.keys().filter(|path| !listed_paths.contains(path.as_str())).cloned());
    fleet.state.forget(&forgotten);
    collected.removed += usize::try_from(fleet.store.sweep(grace_ns)?).unwrap_or(0);
    if let Err(error) = merged {
        let removed = model::counted(collected.removed, "file");
        return Err(error.context(format!("{removed} removed, but not all files merged")));
    }
    fleet.checkpoint().await?;
    Ok(collected)
}
