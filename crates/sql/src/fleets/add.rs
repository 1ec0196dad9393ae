//! `fathom fleet add`: adds archives, a day at a time, in batches that are committed atomically.
//!
//! Archives are sorted by day, device and run, so that only files of one day are open at a time and rows of one device are adjacent. A
//! batch ends with the day, or when its largest file has the target size. Rows are passed on while they are read: if an archive turns
//! out to be damaged, the batch is restarted without it, so that nothing of it is in the fleet and memory does not depend on its size.
//!
//! Of several archives of one recording, the best is added, and the next best if that turns out to be damaged. An archive that the fleet
//! already has (by its run) is skipped. So an `add` that was killed at any point can simply be repeated.

use super::collect;
use super::log::{CommitError, Fleet};
use super::progress::Progress;
use super::rows::Files;
use crate::{errors, open};
use anyhow::{Context as _, Result};
use archive::Archive;
use fleet::candidates::{Candidate, FleetMatch, find_match, group_by_recording};
use fleet::commits::{Commit, Conflict};
use fleet::privacy::{self, Class};
use fleet::{ARCHIVES_TABLE, Identity};
use model::table::{Cell, ColumnType, TABLES, TableInfo};
use std::path::{Path, PathBuf};

/// Adding merges small files once there are this many of one table and day.
const MERGE_AT: usize = 16;

/// How archives are added.
#[derive(Debug, Default)]
pub struct Options {
    /// The device's name, which overrides those of the archives.
    pub device: Option<String>,
}

/// The outcome of adding.
#[derive(Debug, Default)]
pub struct AddResult {
    /// Archives added.
    pub added: usize,
    /// Archives that the fleet had already, or that were given twice.
    pub known: usize,
    /// Archives that were not added, and the reasons.
    pub skipped: Vec<(PathBuf, String)>,
    /// Archives that were added although a part of their log is missing.
    pub damaged: Vec<PathBuf>,
    /// Rows added.
    pub rows: u64,
    /// Files written.
    pub files: usize,
}

struct WaitingArchive {
    dir: PathBuf,
    identity: Identity,
    /// Other archives of its recording, in case that this one cannot be read; the next best last.
    spare: Vec<Candidate>,
}

impl WaitingArchive {
    /// The best of a recording's archives, which are in order; `None` if there is none.
    fn best_of(mut group: Vec<Candidate>) -> Option<Self> {
        group.reverse();
        group.pop().map(|Candidate { dir, identity }| Self { dir, identity, spare: group })
    }

    /// Puts the next best in its place, and returns the path of the one that was not good; `None` if it was the last.
    fn replace(&mut self) -> Option<PathBuf> {
        let Candidate { dir, identity } = self.spare.pop()?;
        self.identity = identity;
        Some(std::mem::replace(&mut self.dir, dir))
    }
}

/// Notes that the archive at this position cannot be read for the given reason; whether another is in its place.
fn note_failure(waiting: &mut Vec<WaitingArchive>, at: usize, why: String, added: &mut AddResult) -> bool {
    let next = waiting[at].replace();
    let is_replaced = next.is_some();
    added.skipped.push((next.unwrap_or_else(|| waiting.remove(at).dir), why));
    is_replaced
}

/// Adds archives; one that cannot be added is reported and skipped.
///
/// # Errors
/// The fleet's store fails; earlier commits stay.
pub async fn add(fleet: &mut Fleet, dirs: &[PathBuf], options: &Options) -> Result<AddResult> {
    let mut added = AddResult::default();
    let mut waiting = known_and_new(fleet, dirs, options, &mut added).await;
    let mut progress = Progress::default();
    let total = waiting.len();
    while !waiting.is_empty() {
        progress.step("adding archives", total - waiting.len(), total);
        let taken = add_batch(fleet, &mut waiting, &mut added, &mut progress, total).await?;
        waiting.drain(..taken);
    }
    drop(progress);
    if added.added > 0 {
        collect::merge(fleet, MERGE_AT).await?;
    }
    Ok(added)
}

/// The archives that are new to the fleet, in order.
async fn known_and_new(
    fleet: &Fleet,
    dirs: &[PathBuf],
    options: &Options,
    added: &mut AddResult,
) -> Vec<WaitingArchive> {
    let mut progress = Progress::default();
    let mut new = Vec::new();
    for (at, dir) in dirs.iter().enumerate() {
        progress.step("reading archives", at, dirs.len());
        yield_to_interrupt().await;
        let identity = match read_identity(dir, options.device.as_deref()) {
            Ok(identity) => identity,
            Err(error) => {
                added.skipped.push((dir.clone(), errors::full_text(&error)));
                continue;
            }
        };
        match find_match(&fleet.state, &identity) {
            None => new.push(Candidate { dir: dir.clone(), identity }),
            Some(FleetMatch::Same) => added.known += 1,
            Some(FleetMatch::OtherState(run)) => added.skipped.push((dir.clone(), other_state(&run))),
        }
    }
    let mut new: Vec<WaitingArchive> =
        group_by_recording(new).into_iter().filter_map(WaitingArchive::best_of).collect();
    new.sort_by(|a, b| {
        let key = |one: &WaitingArchive| (one.identity.day, one.identity.device.clone(), one.identity.run.clone());
        key(a).cmp(&key(b))
    });
    new
}

/// Gives Ctrl-C a chance: reading an archive never yields, and making its tables may take minutes.
async fn yield_to_interrupt() {
    tokio::task::yield_now().await;
}

fn read_identity(dir: &Path, device: Option<&str>) -> Result<Identity> {
    Ok(Identity::from_archive(&open::open_linked(dir)?, device)?)
}

/// Why an archive is not added whose recording the fleet has.
fn other_state(run: &str) -> String {
    format!("the fleet has another state of this recording, run {run}: its rows would count twice")
}

/// Adds the first of the waiting archives, as many as make a batch; returns how many of them are done.
async fn add_batch(
    fleet: &mut Fleet,
    waiting: &mut Vec<WaitingArchive>,
    added: &mut AddResult,
    progress: &mut Progress,
    total: usize,
) -> Result<usize> {
    'anew: loop {
        let Some(first) = waiting.first() else { return Ok(0) };
        let day = first.identity.day;
        let mut files = Files::new(&fleet.store, &first.identity.date());
        let (mut taken, mut rows) = (0, 0);
        for one in waiting.iter().take_while(|one| one.identity.day == day) {
            progress.step("adding archives", total.saturating_sub(waiting.len()) + taken, total);
            yield_to_interrupt().await;
            match rows_of(fleet, one, &mut files) {
                Ok(count) => rows += count,
                Err(StopReason::Archive(why)) => {
                    note_failure(waiting, taken, why, added);
                    // If one is damaged, others may be. All are found before the batch restarts, since each restart costs a pass.
                    let mut at = taken;
                    while waiting.get(at).is_some_and(|one| one.identity.day == day) {
                        yield_to_interrupt().await;
                        match read_rows(fleet, &waiting[at], &mut |_, _| Ok(())) {
                            Err(StopReason::Archive(why)) => drop(note_failure(waiting, at, why, added)),
                            _ => at += 1,
                        }
                    }
                    continue 'anew;
                }
                Err(StopReason::Store(error)) => return Err(error),
            }
            taken += 1;
            if files.largest() >= fleet.info.file_bytes {
                break;
            }
        }
        if fleet.info.keep_raw {
            for one in &waiting[..taken] {
                keep_raw(fleet, one).await?;
            }
        }
        let add = files.finish().await?;
        let runs = waiting[..taken].iter().map(|one| one.identity.run.clone()).collect();
        let recording = |one: &WaitingArchive| Some((one.identity.run.clone(), one.identity.recording.clone()?));
        let recordings = waiting[..taken].iter().filter_map(recording).collect();
        let made = add.len();
        match fleet.commit(Commit { add: add.clone(), runs, recordings, ..Commit::default() }).await {
            Ok(()) => {
                added.added += taken;
                added.rows += rows;
                added.files += made;
                for one in &mut waiting[..taken] {
                    if one.identity.damaged {
                        added.damaged.push(one.dir.clone());
                    }
                    for other in one.spare.drain(..) {
                        if other.identity.run == one.identity.run {
                            added.known += 1;
                        } else {
                            added.skipped.push((other.dir, other_state(&one.identity.run)));
                        }
                    }
                }
                return Ok(taken);
            }
            Err(CommitError::Conflict(Conflict::Runs(known))) => {
                fleet.discard(&add).await?;
                waiting.retain(|one| !known.contains(&one.identity.run));
                added.known += known.len();
            }
            Err(CommitError::Conflict(Conflict::Recordings(others))) => {
                fleet.discard(&add).await?;
                let of = |one: &WaitingArchive| find_match(&fleet.state, &one.identity);
                for one in waiting.extract_if(.., |one| others.contains(&one.identity.run)) {
                    if let Some(FleetMatch::OtherState(run)) = of(&one) {
                        added.skipped.push((one.dir, other_state(&run)));
                    }
                }
            }
            Err(CommitError::Conflict(other)) => return Err(other.into()),
            Err(CommitError::Store(error)) => return Err(error),
        }
    }
}

enum StopReason {
    /// The archive is at fault.
    Archive(String),
    /// The fleet's store is at fault.
    Store(anyhow::Error),
}

/// Passes an archive's rows to the files; returns how many there are.
fn rows_of(fleet: &Fleet, one: &WaitingArchive, files: &mut Files) -> Result<u64, StopReason> {
    read_rows(fleet, one, &mut |table, row| files.push(table, row))
}

/// Reads an archive's rows, as they are in the fleet; returns how many there are.
fn read_rows(
    fleet: &Fleet,
    one: &WaitingArchive,
    take: &mut dyn FnMut(&'static TableInfo, Vec<Cell>) -> Result<()>,
) -> Result<u64, StopReason> {
    let of_archive = |error: archive::Error| StopReason::Archive(error.to_string());
    let archive = Archive::open(&one.dir).map_err(of_archive)?;
    let mut rows = 0;
    for table in TABLES {
        let keeper = RowConverter::new(fleet, table);
        let mut failed = None;
        archive
            .for_each_cells(table, &mut |cells| {
                // The reader cannot be stopped; further rows are dropped.
                if failed.is_none() {
                    rows += 1;
                    failed = take(table, keeper.row(&one.identity, cells.to_vec())).err();
                }
            })
            .map_err(of_archive)?;
        if let Some(error) = failed {
            return Err(StopReason::Store(error));
        }
    }
    let keeper = RowConverter::new(fleet, &ARCHIVES_TABLE);
    let cells = fleet::row::archives_row(archive.meta(), &one.identity);
    take(&ARCHIVES_TABLE, keeper.row(&one.identity, cells)).map_err(StopReason::Store)?;
    Ok(rows + 1)
}

/// Converts a table's rows to their form in the fleet.
struct RowConverter<'a> {
    fleet: &'a Fleet,
    /// The private columns: index, column_class, and whether they may be empty.
    private: Vec<(usize, Class, bool)>,
    /// The column whose text names the kind of a row.
    name: Option<usize>,
}

impl<'a> RowConverter<'a> {
    fn new(fleet: &'a Fleet, table: &TableInfo) -> Self {
        let columns = table.columns.iter().enumerate().filter(|(_, column)| column.kind == ColumnType::Text);
        let private = columns.map(|(at, column)| (at, privacy::column_class(table.name, column.name), column.optional));
        let private = if fleet.info.private.keep_all() {
            Vec::new()
        } else {
            private.filter(|one| one.1 != Class::Public).collect()
        };
        Self { fleet, private, name: table.columns.iter().position(|column| column.name == "name") }
    }

    fn row(&self, identity: &Identity, mut cells: Vec<Cell>) -> Vec<Cell> {
        let name = self.name.and_then(|at| match cells.get(at) {
            Some(Cell::Text(name)) => Some(name.to_string()),
            _ => None,
        });
        for &(at, class, optional) in &self.private {
            let info = &self.fleet.info;
            info.private.apply(class, name.as_deref(), &mut cells[at], optional, &info.salt);
        }
        let text = |text: &str| Cell::Text(text.to_string().into());
        let mut row = vec![text(&identity.device), text(&identity.run), text(&identity.archive)];
        row.append(&mut cells);
        row
    }
}

/// Copies an archive's own files, but not its tables, which are made from its log; an archive without a log has nothing but
/// tables.
async fn keep_raw(fleet: &Fleet, one: &WaitingArchive) -> Result<()> {
    let root = format!("_raw/{}", one.identity.run);
    let has_log = one.identity.log_bytes > 0;
    let mut directories = vec![one.dir.clone()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let inside = path.strip_prefix(&one.dir)?.to_string_lossy().into_owned();
            if kind.is_dir() && !(has_log && inside == "tables") {
                directories.push(path);
            } else if kind.is_file() && inside != "lock" {
                let to = format!("{root}/{inside}");
                let mut copy = fleet.store.temporary()?;
                let mut from = std::fs::File::open(&path).with_context(|| format!("reading {}", path.display()))?;
                std::io::copy(&mut from, copy.as_file_mut()).with_context(|| format!("copying {}", path.display()))?;
                // A writer that was killed may have put it there, or one that is committing it right now.
                fleet.store.replace_file(copy, &to).await?;
            }
        }
    }
    Ok(())
}
