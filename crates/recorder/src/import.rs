//! `import`: turns a trace made by another tool into an archive like any other.
//!
//! Its events take the same path as those of a recording ([`crate::event_log`]), so that SQL loses its literals there too.
//! Facts about the machine that the trace lacks are not taken from the importing machine: they are unknown.

use crate::collect::run_fact;
use crate::event_log::EventLog;
use crate::foreign::{self, Foreign};
use crate::output;
use crate::{Error, ErrorContext, Metadata, Notice, Notify, Result, link};
use archive::{Archive, Lock, Meta};
use formats::ftrace::calls::Machine;
use formats::ftrace::decoder::Kind;
use formats::ftrace::run::Summary;
use model::table::{Coverage, Disk};
use model::text::ShownPath as _;
use model::{Absence, Context, Dev, Environment, Event, Layer, Record, counted};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What is to be imported.
#[derive(Debug, Clone)]
pub struct Import {
    /// The file; for blktrace one per disk.
    pub files: Vec<PathBuf>,
    pub output: PathBuf,
    /// Stores SQL with its literals.
    pub keep_sql: bool,
    /// The architecture whose system call numbers apply, overriding what the trace contains.
    pub machine: Option<Machine>,
    /// What whoever fetched the trace knows about its device and the trace does not contain.
    pub facts: Environment,
}

#[derive(Debug, Clone, Default)]
pub struct ImportResult {
    /// The kind of file.
    pub format: String,
    /// Events of the trace that were used.
    pub taken: u64,
    /// Events of the trace that have no meaning here, by name.
    pub left_out: Vec<(String, u64)>,
    /// Events of the trace that have a meaning, but could not be read, by name.
    pub unread: Vec<(String, u64)>,
    /// Number of events lost when the trace was recorded.
    pub lost: u64,
    /// Whether more may have been lost.
    pub at_least: bool,
    /// Parts of the file that could not be read.
    pub damaged: u64,
    /// What the user should know about how it was read.
    pub notes: Vec<String>,
    pub operations: u64,
    /// Layers without any events in the trace.
    pub blind: Vec<Layer>,
}

/// Makes an archive from a file.
///
/// # Errors
/// The file is of an unknown kind or damaged, or the archive cannot be written.
pub fn import(request: &Import, context: &Context, notify: Notify<'_>) -> Result<ImportResult> {
    Archive::check_create(&request.output, true)?;
    let files = foreign::read_files(&request.files)?;
    context.progress("reading the trace", 0, 0);
    let first = request.files.first().map(PathBuf::as_path).unwrap_or(Path::new(""));
    let trace = Foreign::open(&files, first, request.machine)?;
    let mut meta = Meta::new(archive::ArchiveKind::Trace, archive::unix_now_ns(), Vec::new());
    // Made next to its place, so that an import that fails or is killed leaves what was there.
    let here = unfinished_path(&request.output);
    let done = make_archive(request, &here, context, notify, &trace, &mut meta);
    let moved = done.and_then(|done| {
        let kept = output::keep_old(&request.output)?;
        std::fs::rename(&here, &request.output).doing(|| format!("cannot move it to {}", request.output.shown()))?;
        kept.into_iter().for_each(|kept| notify(Notice::KeptOld(kept)));
        Ok(done)
    });
    if moved.is_err() {
        output::put_back(&here, None);
    }
    moved
}

/// Where an archive is made until it is complete. The next import to the same place replaces what a killed one left.
fn unfinished_path(output: &Path) -> PathBuf {
    let mut name = output.components().as_path().as_os_str().to_owned();
    name.push(".importing");
    PathBuf::from(name)
}

/// Makes the archive at `here`.
fn make_archive(
    request: &Import,
    here: &Path,
    context: &Context,
    notify: Notify<'_>,
    trace: &Foreign<'_>,
    meta: &mut Meta,
) -> Result<ImportResult> {
    let first = request.files.first().map(PathBuf::as_path).unwrap_or(Path::new(""));
    Archive::create(here, meta, true)?;
    let _lock = Lock::take(here)?;
    let mut store = Store::new(here, request.keep_sql)?;
    let summary = trace.run(&mut |event| store.put(event));
    if summary.taken.is_empty() {
        return Err(Error::Foreign { file: first.to_path_buf(), why: nothing_used(&summary) });
    }
    let format = trace.format.clone();
    let mut metadata = store.finish(&summary)?;
    metadata.environment.extend(request.facts.clone());
    let mut add = |name: &str, value: &str| {
        metadata.environment.insert(name.into(), run_fact(value, None, &format));
    };
    let names: Vec<_> = request.files.iter().map(|file| file.to_string_lossy()).collect();
    add("trace.asked", &format!("import of {} ({format})", names.join(", ")));
    add("trace.backend", "ftrace");
    if let Some(release) = &trace.release {
        add("kernel.release", release);
    }
    for (nth, note) in trace.notes.iter().enumerate() {
        add(&format!("trace.note.{}", nth + 1), note);
    }
    let unread: Vec<(String, u64)> = summary.unread.iter().map(|(kind, n)| (kind.name().to_owned(), *n)).collect();
    let left_out: Vec<(String, u64)> = summary.all_left_out().into_iter().collect();
    for (name, events) in [("trace.left_out", &left_out), ("trace.not_readable", &unread)] {
        if !events.is_empty() {
            add(name, &by_number(events, KINDS_STORED_MAX));
        }
    }
    metadata.store(meta)?;
    meta.complete = true;
    meta.write(here)?;
    let linked = link::link(here, context, notify)?;
    Ok(ImportResult {
        format,
        taken: summary.taken.values().sum(),
        left_out,
        unread,
        lost: summary.lost.values().sum(),
        at_least: summary.at_least,
        damaged: summary.damaged,
        notes: trace.notes.clone(),
        operations: linked.operations,
        blind: blind_layers(&metadata.coverage),
    })
}

/// Most kinds of events that an archive names of those that were not used.
const KINDS_STORED_MAX: usize = 64;

/// Kinds of events with their numbers, the most frequent first: `kmalloc 1,000, kfree 990 and 3 more kinds (12)`.
pub fn by_number(events: &[(String, u64)], kinds_max: usize) -> String {
    let mut all: Vec<&(String, u64)> = events.iter().collect();
    all.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    let (named, others) = all.split_at(all.len().min(kinds_max));
    let mut text = named.iter().map(|(name, number)| format!("{name} {}", number)).collect::<Vec<_>>().join(", ");
    if !others.is_empty() {
        let number: u64 = others.iter().map(|(_, number)| number).sum();
        text.push_str(&format!(" and {} ({})", counted(others.len(), "more kind"), number));
    }
    text
}

/// Why a trace is not imported of which no event is used.
fn nothing_used(summary: &Summary) -> String {
    const KINDS_NAMED_MAX: usize = 5;
    let unread = summary.unread.iter().map(|(kind, events)| (format!("{} (not readable)", kind.name()), *events));
    let all: Vec<(String, u64)> = summary.all_left_out().into_iter().chain(unread).collect();
    if all.is_empty() {
        return "it has no event".into();
    }
    let events = counted(all.iter().map(|(_, events)| events).sum::<u64>() as usize, "event");
    let names = by_number(&all, KINDS_NAMED_MAX);
    format!("none of its {events} is used ({names}); docs/guide/import.md has the events to record")
}

/// The log of an archive whose events come out of ftrace.
pub(crate) struct Store {
    log: EventLog,
    disks: BTreeSet<u32>,
    bytes: Vec<u8>,
}

impl Store {
    pub fn new(dir: &Path, keep_sql: bool) -> Result<Self> {
        Ok(Self { log: EventLog::create(dir, None, keep_sql, None)?, disks: BTreeSet::new(), bytes: Vec::new() })
    }

    pub fn put(&mut self, event: &Event) {
        match &event.record {
            Record::BioQueue(r) => self.disks.extend([r.disk]),
            Record::RqIssue(r) => self.disks.extend([r.disk]),
            Record::RqDone(r) => self.disks.extend([r.disk]),
            Record::DriverBegin(r) => self.disks.extend((r.disk != 0).then_some(r.disk)),
            _ => {}
        }
        self.bytes.clear();
        event.encode(&mut self.bytes);
        self.log.put(&self.bytes);
    }

    /// Ends the log; returns the other known facts.
    pub fn finish(mut self, summary: &Summary) -> Result<Metadata> {
        self.log.finish()?;
        let named = |dev: u32| summary.disks.iter().find(|(own, _)| *own == dev).map(|(_, name)| name.clone());
        let disk = |dev: &u32| {
            let name = named(*dev).unwrap_or_else(|| Dev(*dev).to_string());
            Disk { dev: *dev, name, below: String::new(), holds_files: false }
        };
        let mut metadata = Metadata {
            by_place: true,
            all_sleeps: true,
            idle_sleeps: true,
            marks_from_ns: Some(0),
            stored: Some(self.log.records),
            disks: self.disks.iter().map(disk).collect(),
            partitions: summary.partitions.clone(),
            coverage: [
                coverage(summary),
                vec![capture::stacks::coverage_absent("another tool recorded this, without stacks")],
            ]
            .concat(),
            ..Metadata::default()
        };
        let (start, end) = summary.window_ns;
        for (name, ns) in [("trace.start", start), ("trace.end", end)] {
            metadata.environment.insert(name.into(), run_fact(&ns.to_string(), Some("ns"), "the trace"));
        }
        Ok(metadata)
    }
}

/// What programs write into the trace themselves; our own recordings obtain it another way.
pub(crate) const MARKS_PROBE: &str = "marks";

/// Probes of the eBPF backend, the events that are equivalent to them, and the layer that is blind without.
const PROBE_EQUIVALENTS: &[(&str, Layer, &[Kind])] = &[
    ("sqlite3_step", Layer::Database, &[Kind::Step]),
    (MARKS_PROBE, Layer::App, &[Kind::Print]),
    ("task_fork", Layer::App, &[Kind::NewTask, Kind::Fork]),
    ("task_exec", Layer::App, &[Kind::Exec]),
    ("task_exit", Layer::App, &[Kind::Exit]),
    ("sys_enter", Layer::Syscall, &[Kind::SysEnter]),
    ("sys_exit", Layer::Syscall, &[Kind::SysExit]),
    ("ext4_da_write_begin", Layer::FileSystem, &[Kind::DaWriteBegin, Kind::WriteBegin, Kind::F2fsWriteBegin]),
    ("ext4_sync_enter", Layer::FileSystem, &[Kind::SyncEnter, Kind::F2fsSyncEnter]),
    ("ext4_writepages", Layer::FileSystem, &[Kind::WritePages]),
    ("ext4_extents", Layer::FileSystem, &[Kind::ExtentFound, Kind::ExtentKept]),
    ("jbd2_handle_start", Layer::FileSystem, &[Kind::Handle]),
    ("jbd2_start_commit", Layer::FileSystem, &[Kind::CommitBegin]),
    ("jbd2_end_commit", Layer::FileSystem, &[Kind::CommitEnd]),
    ("page_cache_add", Layer::FileSystem, &[Kind::CacheAdd]),
    ("bio_queue", Layer::Block, &[Kind::BioQueue]),
    ("bio_split", Layer::Block, &[Kind::BioSplit]),
    ("bio_remap", Layer::Block, &[Kind::BioRemap]),
    ("rq_insert", Layer::IoScheduler, &[Kind::RqInsert]),
    ("rq_issue", Layer::Driver, &[Kind::RqIssue]),
    ("rq_done", Layer::Driver, &[Kind::RqComplete]),
    ("scsi_begin", Layer::Driver, &[Kind::ScsiStart, Kind::UfsCommand]),
    ("scsi_done", Layer::Driver, &[Kind::ScsiDone, Kind::UfsCommand]),
    ("scsi_handler", Layer::Driver, &[Kind::ScsiHandler]),
    ("nvme_begin", Layer::Driver, &[Kind::NvmeSetup]),
    ("nvme_end", Layer::Driver, &[Kind::NvmeDone]),
    ("mmc_begin", Layer::Driver, &[Kind::MmcStart]),
    ("mmc_end", Layer::Driver, &[Kind::MmcDone]),
    ("sched_switch", Layer::RunQueue, &[Kind::Switch]),
    ("sched_waking", Layer::RunQueue, &[Kind::Waking, Kind::Wakeup]),
];

/// Returns what the trace covers, and what it does not. Three facts are told apart: events that were used; events that are there, but
/// could not be used; no events. A kind without events may have been disabled: the trace does not record that.
pub(crate) fn coverage(summary: &Summary) -> Vec<Coverage> {
    let row = |(probe, layer, kinds): &(&str, Layer, &[Kind])| {
        let sum = |of: &BTreeMap<Kind, u64>| kinds.iter().filter_map(|kind| of.get(kind)).sum::<u64>();
        let (hits, unread) = (sum(&summary.taken), sum(&summary.unread));
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        let described = kinds.iter().any(|kind| summary.described.contains(kind));
        let names = names.join(", ");
        if hits > 0 {
            let less = if unread > 0 {
                format!("; {} could not be read", counted(unread as usize, "event"))
            } else {
                String::new()
            };
            let attached = Coverage::attached(*layer, *probe, format!("ftrace {names}{less}"));
            return Coverage { hits: Some(hits), ..attached };
        }
        let (absence, why) = if unread > 0 {
            let events = counted(unread as usize, "event");
            (Absence::Unreadable, format!("{events} {names} in the trace, none of which could be read"))
        } else if *probe == MARKS_PROBE && !summary.unused_texts.is_empty() {
            let texts: Vec<(String, u64)> =
                summary.unused_texts.iter().map(|(what, n)| (what.name().to_owned(), *n)).collect();
            (
                Absence::Unreadable,
                format!("no mark with its begin and end among the texts: {}", by_number(&texts, KINDS_STORED_MAX)),
            )
        } else if described {
            (Absence::Failed, format!("none in the trace: {names} was disabled, or did not occur"))
        } else {
            (Absence::NoTracepoint, format!("not recorded: the trace does not describe {names}"))
        };
        Coverage::absent(*layer, *probe, absence, why)
    };
    PROBE_EQUIVALENTS.iter().map(row).collect()
}

/// Returns the layers without any events.
fn blind_layers(coverage: &[Coverage]) -> Vec<Layer> {
    let layers: BTreeSet<Layer> = coverage.iter().map(|row| row.layer).collect();
    let sees = |layer: &Layer| coverage.iter().any(|row| row.layer == *layer && row.attached);
    layers.into_iter().filter(|layer| !sees(layer)).collect()
}

#[cfg(test)]
mod tests;
