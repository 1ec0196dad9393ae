//! From a snapshot of the ring to an incident's archive: linked once in memory, to find what belongs to it, and written and linked like any
//! recording.

use super::account::{Account, Culprit, account};
use super::closure::Closure;
use super::gate::Trigger;
use super::names::Names;
use super::ring::Snapshot;
use super::rotation::{self, Keep};
use crate::collect::{Collector, run_fact};
use crate::event_log::EventLog;
use crate::link::{self, linker_config};
use crate::sqlite_version::ProbedLibrary;
use crate::{ErrorContext, Metadata, Result, sqlite_facts};
use archive::{Archive, Meta, StagedArchive};
use capture::FinishedRecording;
use causal::Linker;
use model::event::{ANY_CPU, Header, op_kind};
use model::table::Coverage;
use model::{Context, Environment, Event, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Added to both ends of an incident, ns: the horizon within which the linker expects records to come out of order.
const MARGIN_NS: u64 = 100_000_000;
/// Maximum number of files of earlier incidents that later ones know as the recorder's own.
const OWN_FILES_MAX: usize = 256;

/// What every incident's archive says of the recording.
pub struct Template {
    pub metadata: Metadata,
    pub meta: Meta,
    pub keep_sql: bool,
    pub directory: PathBuf,
    pub keep: Keep,
}

/// What is known of the recording when an incident ends.
pub struct Job {
    pub trigger: Trigger,
    pub snapshot: Snapshot,
    pub names: Names,
    /// From when on every record is there, ns.
    pub complete_from_ns: u64,
    /// Until when, ns.
    pub until_ns: u64,
    pub limit_ns: Option<u64>,
    pub coverage: Vec<Coverage>,
    pub probed: Vec<ProbedLibrary>,
    pub records: u64,
    pub lost: u64,
    pub cpu_ns: u64,
}

/// An incident that was written.
#[derive(Debug, Clone)]
pub struct Incident {
    pub archive: PathBuf,
    /// The size of its files, bytes.
    pub bytes: u64,
    /// Its begin and end, CLOCK_BOOTTIME in ns.
    pub window_ns: (u64, u64),
    /// When it ended, ns since 1970.
    pub end_unix_ns: u64,
    pub events: u64,
    /// The slow operations, the slowest first; none if it was requested.
    pub operations: Vec<SlowOperation>,
    /// Archives that it displaced.
    pub removed: Vec<PathBuf>,
}

/// A slow operation, and what it spent its time on.
#[derive(Debug, Clone)]
pub struct SlowOperation {
    pub tgid: u32,
    pub tid: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    /// The process's name, if known.
    pub process: Option<String>,
    /// Its shape; `None`: the linker does not count it as an operation.
    pub shape: Option<String>,
    pub account: Account,
    /// Names of the processes in the account.
    pub culprits: BTreeMap<u32, String>,
    /// Names of the disks in the account.
    pub disks: BTreeMap<u32, String>,
}

/// The records of a job.
fn events(job: &Job, names: &Names, from_ns: u64) -> impl Iterator<Item = Vec<u8>> {
    let named: Vec<Vec<u8>> = names.records(from_ns).collect();
    let window = from_ns..=job.until_ns.saturating_add(MARGIN_NS);
    let in_ring = job.snapshot.iter().flat_map(|chunk| chunk.records());
    let of_window = in_ring.filter(move |record| Header::decode(record).is_some_and(|h| window.contains(&h.time_ns)));
    named.into_iter().chain(of_window.map(<[u8]>::to_vec))
}

/// What was named before a time, in the ring or earlier.
fn names_before(job: &Job, from_ns: u64) -> Names {
    let mut names = job.names.clone();
    let in_ring = job.snapshot.iter().flat_map(|chunk| chunk.records());
    in_ring
        .filter(|record| Header::decode(record).is_some_and(|header| header.time_ns < from_ns))
        .for_each(|record| names.learn(record));
    names
}

/// Links everything in memory.
fn link_all(job: &Job, metadata: &Metadata) -> Closure {
    let wanted = match &job.trigger {
        Trigger::Slow(operations) => &operations[..],
        Trigger::Request(_) => &[],
    };
    let mut closure = Closure::new(wanted);
    let names = names_before(job, job.complete_from_ns);
    let all = || events(job, &names, job.complete_from_ns).filter_map(|record| Event::decode(&record));
    let (mut losses, mut with_statements) = (Vec::new(), BTreeSet::new());
    for event in all() {
        match &event.record {
            Record::Loss(_) => losses.push(event),
            Record::Statement(_) => drop(with_statements.insert(event.header.tgid)),
            Record::OpBegin(begin) if begin.kind == op_kind::STATEMENT => {
                with_statements.insert(event.header.tgid);
            }
            _ => {}
        }
    }
    let mut linker = Linker::new(linker_config(metadata, with_statements));
    losses.into_iter().for_each(|event| linker.push(event, &mut closure));
    all().filter(|event| !matches!(event.record, Record::Loss(_))).for_each(|event| linker.push(event, &mut closure));
    linker.finish(&mut closure);
    closure.complete();
    closure
}

/// Writes the incident, and removes those for which there is no more room.
///
/// # Errors
/// The archive cannot be written; nothing is left of it.
pub fn write(template: &mut Template, job: &Job) -> Result<Incident> {
    let closure = link_all(job, &template.metadata);
    let operations = slow_operations(job, &closure, &template.metadata);
    let oldest_ns = match &job.trigger {
        Trigger::Slow(ended) => {
            let began = ended.iter().map(|operation| operation.start_ns);
            let causes =
                ended.iter().filter_map(|one| closure.operation_of(one)).map(|row| closure.oldest_cause_ns(row));
            began.chain(causes).min().unwrap_or(0)
        }
        Trigger::Request(_) => 0,
    };
    drop(closure);
    let from_ns = oldest_ns.saturating_sub(MARGIN_NS).max(job.complete_from_ns);
    let to_ns = match &job.trigger {
        Trigger::Slow(ended) => ended.iter().map(|operation| operation.end_ns).max().unwrap_or(0),
        Trigger::Request(at_ns) => *at_ns,
    };
    let window_ns = (from_ns, to_ns.saturating_add(MARGIN_NS).min(job.until_ns));
    let written = write_archive(template, job, window_ns)?;
    let removed = make_room(template)?;
    let end_unix_ns = unix_of(window_ns.1);
    Ok(Incident { window_ns, end_unix_ns, operations, removed, ..written })
}

/// Converts CLOCK_BOOTTIME to ns since 1970, by the clocks now.
fn unix_of(boot_ns: u64) -> u64 {
    archive::unix_now_ns().saturating_sub(capture::boot_ns().saturating_sub(boot_ns))
}

fn slow_operations(job: &Job, closure: &Closure, metadata: &Metadata) -> Vec<SlowOperation> {
    let disks: BTreeMap<u32, String> = metadata.disks.iter().map(|disk| (disk.dev, disk.name.clone())).collect();
    let Trigger::Slow(ended) = &job.trigger else { return Vec::new() };
    let name = |tgid: u32| closure.processes.get(&tgid).cloned().or_else(|| capture::comm_of(tgid));
    let mut all: Vec<SlowOperation> = Vec::new();
    for one in ended {
        let row = closure.operation_of(one);
        let account = row.map(|row| account(closure, row)).unwrap_or_default();
        let of_process = |culprit: &Culprit| match culprit {
            Culprit::Process(tgid) => Some(*tgid),
            _ => None,
        };
        let others = account.keys().filter_map(|(_, culprit)| of_process(culprit));
        all.push(SlowOperation {
            tgid: one.tgid,
            tid: one.tid,
            start_ns: one.start_ns,
            end_ns: one.end_ns,
            process: name(one.tgid),
            shape: row.and_then(|row| closure.shapes.get(&row.shape)).cloned(),
            culprits: others.filter_map(|tgid| Some((tgid, name(tgid)?))).collect(),
            account,
            disks: disks.clone(),
        });
    }
    all.sort_by_key(|one| std::cmp::Reverse(one.end_ns - one.start_ns));
    all
}

/// Writes the events of a window into an archive, and links it. It appears under its name when it is complete.
fn write_archive(template: &mut Template, job: &Job, window_ns: (u64, u64)) -> Result<Incident> {
    let (from_ns, to_ns) = window_ns;
    let mut meta = Meta { created_unix_ns: unix_of(from_ns), ..template.meta.clone() };
    let numbers = archives(&template.directory)?.into_iter().map(|(number, ..)| number);
    let name = rotation::name(numbers.max().map_or(1, |newest| newest + 1), unix_of(to_ns) / 1_000_000_000);
    let staged = StagedArchive::begin(&template.directory.join(name))?;
    let directory = staged.directory();
    Archive::create(directory, &meta, true)?;
    let mut log = EventLog::create(directory, None, template.keep_sql, None)?;
    log.begins_at(from_ns);
    log.ends_at(to_ns);
    events(job, &names_before(job, from_ns), from_ns).for_each(|record| log.put(&record));
    for tgid in log.observed.nameless().collect::<Vec<_>>() {
        if let Some(mut event) = capture::name_of(tgid) {
            (event.header.time_ns, event.header.cpu) = (from_ns, ANY_CPU);
            log.put_event(&event);
        }
    }
    log.finish()?;
    let mut collector = Collector::from_metadata(template.metadata.clone());
    collector.metadata.stored = Some(log.records);
    let finished = FinishedRecording {
        coverage: job.coverage.clone(),
        records: job.records,
        lost: job.lost,
        window_ns,
        cpu_ns: job.cpu_ns,
        counted_ns: 0,
        costs: Vec::new(),
        stacks: None,
        marks_from_ns: None,
    };
    let sqlite = sqlite_facts::facts(&mut log.observed, &job.probed);
    let file_systems = log.observed.file_systems();
    collector.finish(&finished, log.outside, &[], &file_systems, sqlite);
    collector.metadata.environment.append(&mut facts(job));
    collector.metadata.store(&mut meta)?;
    meta.complete = log.full.is_none();
    meta.write(directory)?;
    link::link(directory, &Context::silent(), &|_| ())?;
    let archive = staged.finish()?;
    let files = files_of(&archive).doing(|| "reading the incident's directory".into())?;
    let own = files.iter().map(|file| (device_of(file), file.ino()));
    template.metadata.tracer_files.extend(own);
    let surplus = template.metadata.tracer_files.len().saturating_sub(OWN_FILES_MAX);
    template.metadata.tracer_files.drain(..surplus);
    let bytes = files.iter().map(std::fs::Metadata::len).sum();
    Ok(Incident {
        archive,
        bytes,
        window_ns,
        end_unix_ns: 0,
        events: log.records,
        operations: Vec::new(),
        removed: Vec::new(),
    })
}

/// The kernel's own number of a file's device.
fn device_of(file: &std::fs::Metadata) -> u32 {
    libc::major(file.dev()) << 20 | libc::minor(file.dev())
}

fn facts(job: &Job) -> Environment {
    let mut facts = Environment::new();
    let mut add = |name: &str, value: String, unit: Option<&str>| {
        facts.insert(name.into(), run_fact(&value, unit, "fathom watch"));
    };
    if let Some(ns) = job.limit_ns {
        add("watch.slow", ns.to_string(), Some("ns"));
    }
    match &job.trigger {
        Trigger::Slow(operations) => {
            add("watch.trigger", "slow operations".into(), None);
            add("watch.operations", operations.len().to_string(), None);
        }
        Trigger::Request(_) => add("watch.trigger", "SIGUSR1".into(), None),
    }
    facts
}

/// Returns the files of an archive.
fn files_of(directory: &Path) -> std::io::Result<Vec<std::fs::Metadata>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.is_dir() {
            files.extend(files_of(&entry.path())?);
        } else {
            files.push(about);
        }
    }
    Ok(files)
}

/// Returns the incidents in a directory: number, size and path.
fn archives(directory: &Path) -> Result<Vec<(u64, u64, PathBuf)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).doing(|| "reading the incidents' directory".into())?.flatten() {
        if let Some(number) = rotation::number_of(&entry.file_name().to_string_lossy()) {
            let bytes = files_of(&entry.path()).unwrap_or_default().iter().map(std::fs::Metadata::len).sum();
            all.push((number, bytes, entry.path()));
        }
    }
    Ok(all)
}

/// Removes the oldest incidents; returns their paths. One that is being removed has another name, so that nobody opens half of it.
fn make_room(template: &Template) -> Result<Vec<PathBuf>> {
    let all = archives(&template.directory)?;
    let gone = rotation::surplus(all.iter().map(|(number, bytes, _)| (*number, *bytes)).collect(), template.keep);
    let mut removed = Vec::new();
    for (_, _, path) in all.into_iter().filter(|(number, ..)| gone.contains(number)) {
        let hidden = path.with_extension(format!("removed-{}", std::process::id()));
        std::fs::rename(&path, &hidden).doing(|| "removing an old incident".into())?;
        std::fs::remove_dir_all(&hidden).doing(|| "removing an old incident".into())?;
        removed.push(path);
    }
    Ok(removed)
}

/// Removes what an earlier recorder that was killed left unfinished.
pub fn remove_leftovers(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let unfinished = name.split_once(".fathom.coming-").or_else(|| name.split_once(".removed-"));
        let pid = unfinished.filter(|(before, _)| before.starts_with("incident-")).map(|(_, pid)| pid);
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
