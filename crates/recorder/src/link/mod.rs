//! From the event log to the tables. The linker is pure; this module connects it to the archive's files.
//!
//! | file | purpose |
//! |---|---|
//! | `config` | the linker's settings |
//! | `first_pass` | what must be known of the whole log before its first event is linked |
//! | `tables` | writes the linker's rows to the archive's tables |
//! | `stacks` | where threads slept |
//! | `sqlite_coverage` | whether SQLite's statements were seen |
//! | `used_disks` | which disks hold the files that were used |
//! | `completeness` | what is missing, according to the log and to the disks' counters |

mod completeness;
mod config;
mod first_pass;
mod sqlite_coverage;
mod stacks;
mod tables;
mod used_disks;

use crate::collect::run_fact;
use crate::{Error, Metadata, Notice, Notify, Result};
use archive::table_maker::{Failure, Occasion, TableCounts};
use archive::{ArchiveKind, LogReader, Meta, SignalCleanup, TableMaker, TablesWriter};
use causal::Linker;
use causal::accounts::Accounts;
pub(crate) use config::linker_config;
use model::table::{Disk, FactRow, Process};
use model::{Context, Event, LossSource, Record};
use std::path::{Path, PathBuf};
use tables::Tables;

#[derive(Debug, Clone, Copy)]
pub struct LinkedCounts {
    pub events: u64,
    pub operations: u64,
}

/// Links what was recorded, and returns the number of operations; `None` if there is no room for the tables, which costs no event.
/// `full`: the log had no room either.
///
/// # Errors
/// As [`link`], except for lack of room.
pub(crate) fn link_if_room(dir: &Path, full: bool, context: &Context, notify: Notify<'_>) -> Result<Option<u64>> {
    match link(dir, context, notify) {
        Ok(linked) => Ok(Some(linked.operations)),
        Err(error) if full || error.lacks_room() => {
            notify(Notice::NotLinked { archive: dir.into(), error });
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Makes the tables of the archive at `dir` from its log. The caller holds its lock: there is only one place for unfinished
/// tables.
pub fn link(dir: &Path, context: &Context, notify: Notify<'_>) -> Result<LinkedCounts> {
    let mut meta = Meta::read(dir).or_else(|error| without_meta(dir, error, notify))?;
    let metadata = Metadata::load(&meta).unwrap_or_else(|error| {
        notify(Notice::MetadataDamaged { archive: dir.into(), error });
        Metadata::default()
    });
    let mut log = LogReader::open(dir)?;
    let writer = TablesWriter::create(dir)?;
    // Only now does the directory of unfinished tables belong to us.
    let _cleanup = SignalCleanup::tables(dir)?;
    let mut tables = Tables::new(writer, &metadata);
    let first_pass::FirstPass { marks_and_losses, with_statements, stacks } = first_pass::read_log(dir)?;
    tables.stacks = stacks;
    let mut accounts =
        Accounts::new(config::readings(&metadata.counted_before), config::readings(&metadata.counted_after));
    let mut linker = Linker::new(config::linker_config(&metadata, with_statements));
    marks_and_losses.into_iter().for_each(|event| linker.push(event, &mut tables));
    let (mut events, mut last_ns) = (0, 0);
    while let Some(event) = log.next_event() {
        events += 1;
        last_ns = event.header.time_ns.max(last_ns);
        accounts.learn(&event);
        if !is_known(&event) {
            linker.push(event, &mut tables);
        }
        if events % 65_536 == 0 {
            let (done, total) = log.progress();
            context.progress("linking", done, total);
        }
    }
    if let Some(loss) = completeness::cut_off(&metadata, events, last_ns, log.damage()) {
        linker.push(loss, &mut tables);
    }
    linker.finish(&mut tables);
    put_metadata(&metadata, &accounts, &mut tables);
    let operations = tables.finish().map_err(|source| Error::Tables { dir: dir.into(), source })?;
    meta.linked = true;
    meta.write(dir)?;
    context.clear_progress();
    Ok(LinkedCounts { events, operations })
}

/// Writes what is known in addition to the events, and what only all events together show.
fn put_metadata(metadata: &Metadata, accounts: &Accounts, tables: &mut Tables) {
    let stacks = std::mem::take(&mut tables.stacks);
    stacks.rows().for_each(|row| tables.put(&row));
    for row in metadata.coverage.iter().chain(&tables.sqlite.rows()) {
        tables.put(row);
    }
    if let Some(tgid) = metadata.tracer {
        tables.put(&Process { tgid, name: "fathom, recording".into(), parent: None, tracked: false });
    }
    if let Some((start_ns, end_ns, events)) = metadata.no_room {
        let row = tables.losses.row(LossSource::ArchiveFull, (start_ns, end_ns), events, None);
        tables.put(&row);
    }
    let (checks, losses) = completeness::check(metadata, accounts, &mut tables.losses, &tables.unissued);
    checks.iter().for_each(|row| tables.put(row));
    losses.iter().for_each(|row| tables.put(row));
    let holders = tables.used_disks.holders(&metadata.partitions);
    for row in &metadata.disks {
        tables.put(&Disk { holds_files: holders.contains(&row.dev), ..row.clone() });
    }
    let compared = completeness::disks_compared(metadata, accounts).to_string();
    let compared = (completeness::DISKS_COMPARED_FACT.to_owned(), run_fact(&compared, None, "the recorder"));
    for (name, fact) in metadata.environment.iter().chain([(&compared.0, &compared.1)]) {
        let fact = fact.clone();
        tables.put(&FactRow {
            name: name.clone(),
            value: fact.value,
            unknown: fact.unknown,
            unit: fact.unit,
            source: fact.source,
            varies: fact.varies,
        });
    }
}

/// Handles a log whose `meta.json` is missing or damaged: its events are still useful; the facts about the machine are
/// lost.
fn without_meta(dir: &Path, error: archive::Error, notify: Notify<'_>) -> Result<Meta> {
    if !error.is_rescuable() || !archive::log::path(dir).is_file() {
        return Err(error.into());
    }
    notify(Notice::MetaUnreadable(error));
    Ok(Meta::new(ArchiveKind::Trace, 0, Vec::new()))
}

/// Whether the first pass gave it to the linker.
fn is_known(event: &Event) -> bool {
    matches!(event.record, Record::Mark(_) | Record::Loss(_))
}

/// Tables from `events.log`.
pub struct FromEvents<'a> {
    /// Where notices go.
    pub notify: Notify<'a>,
}

impl FromEvents<'_> {
    fn link(&self, dir: &Path, context: &Context) -> std::result::Result<TableCounts, Failure> {
        let linked = link(dir, context, self.notify)?;
        Ok(TableCounts { read: (linked.events, "event"), found: (linked.operations, "operation") })
    }
}

impl TableMaker for FromEvents<'_> {
    fn kinds(&self) -> &'static [ArchiveKind] {
        &[ArchiveKind::Trace]
    }

    fn log(&self, dir: &Path) -> PathBuf {
        archive::log::path(dir)
    }

    fn reads_live(&self) -> bool {
        false
    }

    fn report_start(&self, dir: &Path, why: Occasion) {
        (self.notify)(Notice::Linking { archive: dir.into(), why });
    }

    fn report_cut(&self, why: archive::Error) {
        (self.notify)(Notice::LogCut(why));
    }

    fn make(&self, dir: &Path, context: &Context) -> std::result::Result<TableCounts, Failure> {
        self.link(dir, context)
    }

    /// [`link()`] detects by itself that there is none.
    fn make_without_meta(
        &self,
        dir: &Path,
        _why: archive::Error,
        context: &Context,
    ) -> std::result::Result<TableCounts, Failure> {
        self.link(dir, context)
    }
}

#[cfg(test)]
mod tests;
