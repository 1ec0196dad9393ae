//! Inputs of the rules for each execution: time spent waiting for flushes, for queues, for the file system's own writes, for data
//! that others wrote. Collected in one pass over the slices and the spans; no rule reads a table again.

use super::account::{AccountBuilder, LeafNumber};
use super::between;
use super::carried_data::CarriedData;
use super::connections::{self, Connected};
use super::contract::{Account, Between};
use super::others::OtherProcesses;
use crate::checkpoints::is_sync;
use crate::diff::phase::{FileRole, Phase, Phases, wal_databases};
use analysis::charges::SharedItems;
use analysis::contract::SlowWait;
use analysis::rows::{Index, IoAction};
use analysis::stacks::{Key, Sleeps};
use analysis::{tracer, waits};
use model::table::Slice;
use model::{CHECKPOINT_REASONS, Call, Layer, Reason, ShapeKind, SpanKind, Wait};
use sqlite::FileClass;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

/// What made an execution wait.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Culprit {
    /// A process for whose flush, commit or pages it waited.
    Process {
        /// Its ID.
        tgid: u32,
        /// Its name, if known.
        name: Option<String>,
    },
    /// A lock that was held by another holder.
    Lock {
        /// Its kind.
        wait: Wait,
        /// Its file and holder, as they follow the kind in a sentence.
        holder: String,
    },
    /// An fsync for which f2fs wrote a checkpoint of the whole file system.
    Checkpoint {
        /// f2fs's reason.
        reason: String,
        /// Whether it was caused by a change to a directory.
        is_of_directories: bool,
    },
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { tgid, name } => write!(f, "{} ({tgid})", name.as_deref().unwrap_or("unnamed")),
            Self::Lock { wait, holder } => write!(f, "{wait}{holder}"),
            Self::Checkpoint { reason, .. } => f.write_str(reason),
        }
    }
}

/// Categories of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimeCategory {
    /// Asleep until a flush was done.
    Flush,
    /// Asleep until the device had read or written.
    Device,
    /// Asleep until a bio or request was issued.
    Queue,
    /// Runnable, but without a CPU.
    RunQueue,
    /// The part of that in which the cgroup's CPU quota was used up.
    Quota,
    /// Asleep for a lock with another holder.
    Lock,
    /// Asleep until the kernel allowed more dirty pages.
    Dirty,
    /// In fsync and fdatasync.
    Sync,
    /// In calls that open, remove or sync the directory of a rollback journal.
    JournalFile,
    /// Asleep for the file system's journal and metadata.
    Metadata,
    /// In fdatasync of a file, the part of a commit of the file system's journal beyond one flush.
    DataCommit,
    /// In a sync, asleep for pages that another process wrote, or for other processes' part of a commit.
    ForeignData,
    /// Asleep for a flush or a commit in which this process has no part, or behind one.
    OthersFlush,
    /// The same in syncs of a rollback journal, if its file is new or grows.
    NewFile,
    /// In fsync and fdatasync that made f2fs write a checkpoint.
    ForcedCheckpoint,
    /// In the calls of a WAL checkpoint.
    Checkpoint,
    /// On a CPU, in the database's code.
    DatabaseCpu,
    /// In reads of a database or a WAL.
    DatabaseRead,
    /// In calls on temporary files of SQLite's.
    Temporary,
    /// In calls on SQLite's files and in prepares since the last execution, if a database was opened; not part of its latency.
    Connect,
    /// In prepare calls right before the execution, minus the recording's cost; not part of its latency.
    Prepare,
}

/// Maximum number of categories that one slice adds to.
const TOUCHED_MAX: usize = 64;
/// Maximum number of spans kept as evidence.
const EVIDENCE_SPANS_MAX: usize = 5;

/// The facts of all executions.
#[derive(Debug, Default)]
pub struct Facts {
    times: BTreeMap<TimeCategory, Vec<(u64, u32)>>,
    evidence: HashMap<(usize, TimeCategory), Vec<(u64, u64)>>,
    /// Flushes in which an execution had a share.
    pub flushes: HashMap<u32, u32>,
    /// Calls of fsync and fdatasync, and the longest of them.
    pub syncs: HashMap<u32, (u32, u64)>,
    /// Rollback journals opened and removed.
    pub journals: HashMap<u32, (u32, u32)>,
    /// Executions that synced a directory.
    pub directories: HashSet<u32>,
    /// Bytes: written by calls, of these to rollback journals; written by the device, of these the file system's own.
    pub bytes: HashMap<u32, [f64; 4]>,
    /// Device commands, by share.
    pub commands: HashMap<u32, f64>,
    /// Executions that wrote a WAL's database.
    pub checkpoints: HashSet<u32>,
    /// By statement: what it waited for, ns.
    pub culprits: BTreeMap<(usize, TimeCategory, Culprit), u64>,
    /// By statement: the longest sleeps with a stack, by the part of this category.
    pub asleep: HashMap<(usize, TimeCategory), Vec<SlowWait>>,
    /// By statement: the leaves of the account that hold the time of a category, with how much of it, the most first.
    pub leaves: HashMap<(usize, TimeCategory), Vec<(usize, u64)>>,
    /// Executions that write a WAL.
    pub wal_writers: HashSet<u32>,
    /// The time of all outermost executions.
    pub whole_ns: u64,
    /// The categories of the current slice.
    touched: Vec<(TimeCategory, u64)>,
}

/// While the account is made: its leaves by statement and category.
type Labels = HashMap<(usize, TimeCategory), HashMap<LeafNumber, u64>>;

impl Facts {
    /// Returns the time of an execution in a category.
    pub fn ns(&self, at: u32, of: TimeCategory) -> u64 {
        self.time(at, of).0
    }

    /// Returns the number of pieces of that time.
    pub fn pieces(&self, at: u32, of: TimeCategory) -> u32 {
        self.time(at, of).1
    }

    fn time(&self, at: u32, of: TimeCategory) -> (u64, u32) {
        self.times.get(&of).and_then(|all| all.get(at as usize)).copied().unwrap_or_default()
    }

    /// Returns the spans with most of the time.
    pub fn evidence(&self, shape: usize, of: &[TimeCategory]) -> Vec<u64> {
        let mut spans: Vec<_> = of.iter().filter_map(|of| self.evidence.get(&(shape, *of))).flatten().collect();
        spans.sort_unstable_by(|p, q| q.cmp(p));
        spans.into_iter().map(|(_, span)| *span).take(EVIDENCE_SPANS_MAX).collect()
    }

    /// Returns what made a statement wait longest.
    pub fn culprit(&self, shape: usize, of: TimeCategory) -> Option<&Culprit> {
        let own = self.culprits.iter().filter(|((s, o, _), _)| (*s, *o) == (shape, of));
        own.max_by_key(|(_, ns)| **ns).map(|((.., culprit), _)| culprit)
    }

    /// Adds time to one execution, with a span as evidence.
    fn add_time(&mut self, index: &Index, at: usize, of: TimeCategory, ns: u64, span: u64) {
        if ns == 0 {
            return;
        }
        let all = self.times.entry(of).or_default();
        if all.len() <= at {
            all.resize(at + 1, (0, 0));
        }
        all[at] = (all[at].0.saturating_add(ns), all[at].1.saturating_add(1));
        if self.touched.len() < TOUCHED_MAX {
            self.touched.push((of, ns));
        }
        let Some(shape) = index.shape(at) else { return };
        let list = self.evidence.entry((shape, of)).or_default();
        match list.iter_mut().find(|(_, known)| *known == span) {
            Some(known) => known.0 = known.0.saturating_add(ns),
            None => list.push((ns, span)),
        }
        if list.len() > EVIDENCE_SPANS_MAX {
            let least = (0..list.len()).min_by_key(|&i| list[i].0).unwrap_or(0);
            list.swap_remove(least);
        }
    }

    /// The same for the operations around it.
    fn add_time_around(&mut self, index: &Index, operation: usize, of: TimeCategory, ns: u64, span: u64) {
        index.chain(operation).for_each(|at| self.add_time(index, at, of, ns, span));
    }

    fn blame(&mut self, index: &Index, at: usize, of: TimeCategory, culprit: Culprit, ns: u64) {
        if let Some(shape) = index.shape(at) {
            let sum = self.culprits.entry((shape, of, culprit)).or_default();
            *sum = sum.saturating_add(ns);
        }
    }
}

/// Syncs of files, by operation and call.
type SyncWaits = BTreeMap<(u32, u32), SyncWait>;

/// What a sync of a file slept for.
#[derive(Debug, Default)]
struct SyncWait {
    what: Option<(Call, FileRole)>,
    /// Whether it waited for the file system's journal itself.
    committed: bool,
    /// Time waiting for flushes, and for the journal and its writes.
    flushes: Vec<(u64, u64)>,
    journal_ns: u64,
    most: (u64, u64),
}

impl SyncWait {
    fn add(&mut self, call: Call, kind: FileRole, reason: Reason, metadata: bool, (ns, span): (u64, u64)) {
        self.what = Some((call, kind));
        self.committed |= reason == Reason::Journal && ns > 0;
        match reason {
            Reason::Flush => {
                match self.flushes.iter_mut().find(|(known, _)| *known == span) {
                    Some((_, sum)) => *sum = sum.saturating_add(ns),
                    None => {
                        // Most syncs wait for one.
                        self.flushes.reserve_exact(1);
                        self.flushes.push((span, ns));
                    }
                }
            }
            Reason::Journal => self.journal_ns = self.journal_ns.saturating_add(ns),
            Reason::Device | Reason::Queue if metadata => self.journal_ns = self.journal_ns.saturating_add(ns),
            _ => return,
        }
        self.most = self.most.max((ns, span));
    }

    /// Adds the extra cost of the commit: a sync of a file with unchanged size and blocks waits only for its data and one flush.
    fn add_commit_cost(&self, facts: &mut Facts, index: &Index, at: usize) {
        let Some((call, kind)) = self.what.filter(|_| self.committed) else { return };
        let flushes = self.flushes.iter().fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
        let longest = self.flushes.iter().map(|(_, ns)| *ns).max().unwrap_or(0);
        let ns = self.journal_ns.saturating_add(flushes - longest);
        if call == Call::Fdatasync {
            facts.add_time(index, at, TimeCategory::DataCommit, ns, self.most.1);
        }
        if kind == FileRole::Of(FileClass::RollbackJournal) {
            facts.add_time(index, at, TimeCategory::NewFile, ns, self.most.1);
        }
    }
}

/// Facts in the making: slices are added one after the other.
pub struct FactsBuilder<'a> {
    index: &'a Index<'a>,
    phases: Phases<'a>,
    carried: CarriedData,
    commands: &'a SharedItems,
    others: OtherProcesses,
    facts: Facts,
    syncing: SyncWaits,
    sleeps: Sleeps<'a>,
    asleep: HashMap<(usize, TimeCategory), BTreeMap<Key, u64>>,
    accounting: AccountBuilder<'a>,
    labels: Labels,
}

/// What a builder has found.
pub struct Found {
    pub facts: Facts,
    pub account: Account,
    pub between: Between,
}

impl<'a> FactsBuilder<'a> {
    /// Indexes the rows; `commands` are the shares of all device commands.
    pub fn new(index: &'a Index<'a>, commands: &'a SharedItems) -> Self {
        Self {
            index,
            phases: Phases::new(index),
            carried: CarriedData::new(index),
            commands,
            others: OtherProcesses::new(index, commands),
            facts: Facts::default(),
            syncing: SyncWaits::new(),
            sleeps: Sleeps::new(index),
            asleep: HashMap::new(),
            accounting: AccountBuilder::new(index),
            labels: Labels::new(),
        }
    }

    pub fn slice(&mut self, slice: &Slice) {
        let index = self.index;
        // The slices of an inner operation duplicate those of the operations around it: each slice counts for its own operation only.
        let Some(at) = index.operation(slice.operation) else { return };
        let theirs = part_of_others(index, &self.carried, &self.others, at, slice);
        let leaves = self.accounting.add(at, slice, theirs, &self.sleeps);
        let others = (&self.carried, &self.others);
        self.facts.touched.clear();
        collect_slice(&mut self.facts, index, &self.phases, others, &mut self.syncing, at, slice);
        self.label(at, leaves);
        let (Some(of), Some(shape)) = (asleep_for(slice), index.shape(at)) else { return };
        let thread = (index.rows.operations.tgid(at), index.rows.operations.tid(at));
        for (key, ns) in self.sleeps.within(thread, slice.start_ns, slice.end_ns) {
            let asleep = self.asleep.entry((shape, of)).or_default().entry(key).or_default();
            *asleep = asleep.saturating_add(ns);
        }
    }

    /// Notes which leaves hold the time that the current slice added to categories.
    fn label(&mut self, at: usize, [own, theirs]: [Option<LeafNumber>; 2]) {
        let Some(shape) = self.index.shape(at) else { return };
        for (of, ns) in &self.facts.touched {
            let both = [own, theirs];
            let held = match of {
                TimeCategory::OthersFlush | TimeCategory::ForeignData => [theirs.or(own), None],
                TimeCategory::Sync
                | TimeCategory::JournalFile
                | TimeCategory::DatabaseRead
                | TimeCategory::Temporary => both,
                _ => [own.or(theirs), None],
            };
            for number in held.into_iter().flatten() {
                let sum = self.labels.entry((shape, *of)).or_default().entry(number).or_default();
                *sum = sum.saturating_add(*ns);
            }
        }
    }

    /// Adds what is in no slice.
    pub fn finish(self) -> Found {
        let Self {
            index,
            phases,
            carried,
            commands: shared,
            others,
            mut facts,
            syncing,
            sleeps,
            asleep,
            accounting,
            labels,
        } = self;
        drop(others);
        let (account, places) = accounting.finish(&sleeps);
        let between = between::divide(index, &sleeps);
        facts.whole_ns = account.whole_ns;
        for (of, numbers) in labels {
            let held = numbers.into_iter().filter_map(|(number, ns)| Some((*places.get(&number)?, ns)));
            let mut held: Vec<(usize, u64)> = held.collect();
            held.sort_unstable_by_key(|(place, ns)| (std::cmp::Reverse(*ns), *place));
            facts.leaves.insert(of, held);
        }
        facts.asleep = asleep.into_iter().map(|(of, parts)| (of, sleeps.longest(parts))).collect();
        for ((at, _), sync) in syncing {
            sync.add_commit_cost(&mut facts, index, at as usize);
        }
        collect_calls(&mut facts, index, &phases);
        collect_commands(&mut facts, index, shared, &carried);
        collect_prepares(&mut facts, index);
        for Connected { at, ns, span } in connections::connected(index, &phases) {
            facts.add_time(index, at, TimeCategory::Connect, ns, span);
        }
        Found { facts, account, between }
    }
}

/// Finds the leaf of a slice without the whole account.
pub struct LeafFinder<'a> {
    index: &'a Index<'a>,
    carried: CarriedData,
    others: OtherProcesses,
}

impl<'a> LeafFinder<'a> {
    pub fn new(index: &'a Index<'a>, commands: &SharedItems) -> Self {
        Self { index, carried: CarriedData::new(index), others: OtherProcesses::new(index, commands) }
    }

    /// Returns the leaf's name, and the process that the slice waited for.
    pub fn find(&self, at: usize, slice: &Slice) -> (String, Option<u32>) {
        let theirs = part_of_others(self.index, &self.carried, &self.others, at, slice);
        let tgid = theirs.map(|(tgid, _)| tgid).or(slice.by_tgid);
        (super::account::leaf_id_of(self.index, slice, theirs), tgid)
    }
}

/// Returns the part of a wait for the device or the file system's journal that was for another process alone, or behind it.
fn part_of_others(
    index: &Index,
    carried: &CarriedData,
    others: &OtherProcesses,
    at: usize,
    slice: &Slice,
) -> Option<(u32, u64)> {
    let ns = slice.end_ns.saturating_sub(slice.start_ns);
    let own = index.rows.operations.tgid(at);
    if slice.reason == Reason::Journal {
        let (part, tgid) = carried.foreign(slice.span.and_then(|id| index.span(id))?, own)?;
        return Some((tgid, (part * ns as f64) as u64));
    }
    if !matches!(slice.reason, Reason::Flush | Reason::Device | Reason::Queue) {
        return None;
    }
    let whole = slice.span.filter(|_| slice.reason != Reason::Queue).and_then(|span| others.whose(index, span, own));
    if let Some(tgid) = whole {
        return Some((tgid, ns));
    }
    let mut behind: BTreeMap<u32, u64> = BTreeMap::new();
    for period in others.behind(at, slice.start_ns, slice.end_ns) {
        let sum = behind.entry(period.tgid).or_default();
        *sum = sum.saturating_add(period.to - period.from);
    }
    let most = behind.iter().max_by_key(|(_, ns)| **ns).map(|(tgid, _)| *tgid)?;
    Some((most, behind.values().fold(0_u64, |sum, ns| sum.saturating_add(*ns)).min(ns)))
}

/// Returns the category by which a finding's stacks are distinguished.
fn asleep_for(slice: &Slice) -> Option<TimeCategory> {
    match (slice.reason, slice.wait) {
        (_, Some(Wait::DirtyThrottling)) => Some(TimeCategory::Dirty),
        (_, Some(wait)) if is_lock(wait, slice) => Some(TimeCategory::Lock),
        (Reason::RunQueue, _) => Some(TimeCategory::RunQueue),
        (Reason::Flush, _) => Some(TimeCategory::Flush),
        (Reason::Device, _) => Some(TimeCategory::Device),
        (Reason::Queue, _) => Some(TimeCategory::Queue),
        _ => None,
    }
}

/// A futex may be a condition that becomes true by itself; it is a lock only if another thread ended the wait.
fn is_lock(wait: Wait, slice: &Slice) -> bool {
    wait.is_lock() && (wait != Wait::Futex || slice.by_tgid.is_some())
}

/// SQLite's result of a statement that did not get its lock; extended codes contain it in their low byte.
const SQLITE_BUSY: i64 = 5;

/// A statement that was refused a lock until the end slept for it, whatever connection holds it, even one of its own thread.
fn ended_busy(result: Option<i64>, slice: &Slice) -> bool {
    slice.layer == Layer::Database && result.is_some_and(|result| result & 0xff == SQLITE_BUSY)
}

fn collect_slice(
    facts: &mut Facts,
    index: &Index,
    phases: &Phases,
    (carried, others): (&CarriedData, &OtherProcesses),
    syncing: &mut SyncWaits,
    at: usize,
    slice: &Slice,
) {
    let operations = &index.rows.operations;
    let thread = (operations.tgid(at), operations.tid(at));
    let span = slice.span.unwrap_or_else(|| operations.span(at));
    let whole = slice.end_ns.saturating_sub(slice.start_ns);
    let mut ns = whole;
    let call_at = phases.call_of_thread(thread, slice.start_ns);
    let phase = call_at.map_or(Phase::Outside, |at| phases.of_call(at));
    let in_sync = matches!(phase, Phase::In(call, _) if is_sync(call));
    let of_span = slice.span.and_then(|id| index.span(id));
    let own = of_span.is_some_and(|at| carried.is_metadata(at));
    // The process for which it was, if only for others; data that they wrote into files is handled below.
    let theirs = slice.span.and_then(|span| others.whose(index, span, thread.0));
    match slice.reason {
        Reason::Flush | Reason::Device if theirs.is_some() && (own || slice.reason == Reason::Flush) => {
            facts.add_time(index, at, TimeCategory::OthersFlush, ns, span);
            theirs
                .iter()
                .for_each(|tgid| facts.blame(index, at, TimeCategory::OthersFlush, process_culprit(index, *tgid), ns));
            ns = 0;
        }
        Reason::Flush | Reason::Device | Reason::Queue => {
            for behind in others.behind(at, slice.start_ns, slice.end_ns).filter(|b| in_sync || !b.data) {
                let part = behind.to - behind.from;
                let of = if behind.data { TimeCategory::ForeignData } else { TimeCategory::OthersFlush };
                facts.add_time(index, at, of, part, behind.command);
                facts.blame(index, at, of, process_culprit(index, behind.tgid), part);
                ns = ns.saturating_sub(part);
            }
        }
        Reason::RunQueue | Reason::Cpu | Reason::Journal | Reason::Other => {}
    }
    let give = |facts: &mut Facts, of: TimeCategory| facts.add_time(index, at, of, ns, span);
    match slice.reason {
        Reason::Flush => give(facts, TimeCategory::Flush),
        Reason::Device => give(facts, TimeCategory::Device),
        Reason::Queue => give(facts, TimeCategory::Queue),
        Reason::RunQueue => give(facts, TimeCategory::RunQueue),
        Reason::Other if slice.wait.is_none() => {
            if let Some(sent) = carried.held_back(index, thread.0, slice) {
                facts.add_time(index, at, TimeCategory::Queue, sent - slice.start_ns, span);
            }
        }
        Reason::Cpu | Reason::Journal | Reason::Other => {}
    }
    match slice.wait {
        Some(Wait::CpuQuota) => give(facts, TimeCategory::Quota),
        Some(Wait::DirtyThrottling) => give(facts, TimeCategory::Dirty),
        Some(Wait::Timer) if ended_busy(operations.result(at), slice) => {
            give(facts, TimeCategory::Lock);
            let holder = ", held by another connection until the busy timeout (SQLITE_BUSY)".into();
            facts.blame(index, at, TimeCategory::Lock, Culprit::Lock { wait: Wait::Fcntl, holder }, ns);
        }
        Some(wait) if is_lock(wait, slice) => {
            give(facts, TimeCategory::Lock);
            facts.blame(index, at, TimeCategory::Lock, lock_culprit(index, wait, slice), ns);
        }
        _ => {}
    }
    // The part of a commit that others joined is attributed to them.
    let commit = of_span.filter(|_| slice.reason == Reason::Journal);
    let foreign = commit.and_then(|commit| carried.foreign(commit, thread.0));
    let joined = foreign.map_or(0, |(part, _)| (part * ns as f64) as u64);
    if slice.reason == Reason::Journal || own && slice.reason != Reason::Cpu {
        facts.add_time(index, at, TimeCategory::Metadata, ns.saturating_sub(joined), span);
    }
    if let Some((_, tgid)) = foreign {
        facts.add_time(index, at, TimeCategory::ForeignData, joined, span);
        facts.blame(index, at, TimeCategory::ForeignData, process_culprit(index, tgid), joined);
    }
    if slice.reason == Reason::Cpu && slice.layer == Layer::Database {
        facts.add_time(index, at, TimeCategory::DatabaseCpu, whole, span);
    }
    if let Phase::In(call, kind) = phase {
        let syncs = is_sync(call);
        let of_call = match kind {
            FileRole::Of(FileClass::Temporary) => Some(TimeCategory::Temporary),
            FileRole::Of(FileClass::Database | FileClass::Wal) if call.reads() => Some(TimeCategory::DatabaseRead),
            _ => None,
        };
        of_call.iter().for_each(|of| facts.add_time(index, at, *of, whole, span));
        if syncs {
            // Includes the waits caused by others: without the call there would be none.
            facts.add_time(index, at, TimeCategory::Sync, whole, span);
        }
        let journal = kind == FileRole::Of(FileClass::RollbackJournal) && matches!(call, Call::Open | Call::Unlink);
        if journal || syncs && kind == FileRole::Directory {
            facts.add_time(index, at, TimeCategory::JournalFile, whole, span);
        }
        if let Some(call_at) = call_at.filter(|_| syncs && kind != FileRole::Directory) {
            let left = ns.saturating_sub(joined);
            syncing.entry((at as u32, call_at as u32)).or_default().add(call, kind, slice.reason, own, (left, span));
        }
        let writers = of_span.map(|at| carried.writers(at)).filter(|writers| !writers.is_empty());
        let foreign = match writers {
            Some(writers) => writers.first().copied().filter(|_| !writers.contains(&thread.0)),
            // Calls of a process that is not recorded are no spans; the process to which its pages are charged is known all the same.
            None => theirs.filter(|_| slice.reason == Reason::Device && !own),
        };
        if let Some(tgid) = foreign.filter(|_| syncs) {
            give(facts, TimeCategory::ForeignData);
            facts.blame(index, at, TimeCategory::ForeignData, process_culprit(index, tgid), ns);
        }
    }
}

/// Describes a lock and its holder.
fn lock_culprit(index: &Index, wait: Wait, slice: &Slice) -> Culprit {
    let rows = index.rows;
    let path = slice.wait_file.and_then(|id| index.file(id)).and_then(|at| rows.files[at].path.as_deref());
    let on = path.map_or_else(String::new, |path| format!(" on {}", path.rsplit('/').next().unwrap_or(path)));
    let shape = slice.by_operation.and_then(|id| index.operation(id)).and_then(|at| index.shape(at));
    let statement = shape.map(|shape| rows.shapes[shape].text.as_str());
    let by = waits::ended_by(wait, slice.by_tgid, slice.by_tgid.and_then(|tgid| index.process_name(tgid)), statement);
    Culprit::Lock { wait, holder: format!("{on}{}", by.map_or_else(String::new, |by| format!(", {by}"))) }
}

fn process_culprit(index: &Index, tgid: u32) -> Culprit {
    Culprit::Process { tgid, name: index.process_name(tgid).map(str::to_string) }
}

/// Returns the reason for a checkpoint, from the flags of its span.
fn checkpoint_culprit(reason: &str) -> Culprit {
    let is_of_directories = CHECKPOINT_REASONS.iter().any(|known| known.name == reason && known.is_of_directories);
    Culprit::Checkpoint { reason: reason.to_string(), is_of_directories }
}

/// Collects facts from the calls.
fn collect_calls(facts: &mut Facts, index: &Index, phases: &Phases) {
    let rows = index.rows;
    let wal = wal_databases(index);
    let needed: BTreeMap<(u32, u64), Cow<'_, str>> = (0..rows.spans.len())
        .filter(|&at| rows.spans.kind(at) == SpanKind::CheckpointNeeded.name())
        .map(|at| ((rows.spans.tid(at), rows.spans.start_ns(at)), rows.spans.flags(at)))
        .collect();
    let windows = crate::checkpoints::checkpoint_windows(index, phases);
    for (i, span) in rows.spans.of_layer(Layer::Syscall) {
        let (Some(operation), Phase::In(call, kind)) = (index.operation_of(&span), phases.of_call(i)) else { continue };
        let ns = span.end_ns.map_or(0, |end| end.saturating_sub(span.start_ns));
        let done = span.result.map_or(span.bytes, |done| done.try_into().unwrap_or(0)) as f64;
        let own_class = matches!(kind, FileRole::Of(FileClass::RollbackJournal | FileClass::MasterJournal));
        let back =
            kind == FileRole::Of(FileClass::Database) && index.path_of(&span).is_some_and(|path| wal.contains(path));
        for at in index.chain(operation).map(|at| at as u32) {
            match call {
                Call::Fsync | Call::Fdatasync => {
                    let whole = (span.tid, span.start_ns)..=(span.tid, span.end_ns.unwrap_or(span.start_ns));
                    if let Some((_, why)) = needed.range(whole).next() {
                        facts.add_time(index, at as usize, TimeCategory::ForcedCheckpoint, ns, span.id);
                        facts.blame(index, at as usize, TimeCategory::ForcedCheckpoint, checkpoint_culprit(why), ns);
                    }
                    let (count, most) = facts.syncs.entry(at).or_default();
                    (*count, *most) = (*count + 1, (*most).max(ns));
                    if kind == FileRole::Directory {
                        facts.directories.insert(at);
                    }
                }
                Call::Open if kind == FileRole::Of(FileClass::RollbackJournal) => {
                    facts.journals.entry(at).or_default().0 += 1
                }
                Call::Unlink if kind == FileRole::Of(FileClass::RollbackJournal) => {
                    facts.journals.entry(at).or_default().1 += 1;
                }
                call if call.writes() => {
                    if kind == FileRole::Of(FileClass::Wal) {
                        facts.wal_writers.insert(at);
                    }
                    let bytes = facts.bytes.entry(at).or_default();
                    bytes[0] += done;
                    bytes[1] += if own_class { done } else { 0.0 };
                }
                _ => {}
            }
        }
        if back && call.writes() {
            facts.checkpoints.extend(index.chain(operation).map(|at| at as u32));
        }
        let within = |windows: &Vec<(u64, u64)>| windows.iter().any(|(from, to)| (*from..*to).contains(&span.start_ns));
        if windows.get(&operation).is_some_and(within) {
            facts.add_time_around(index, operation, TimeCategory::Checkpoint, ns, span.id);
        }
    }
}

/// Collects facts from device commands: flushes and bytes by share.
fn collect_commands(facts: &mut Facts, index: &Index, shared: &SharedItems, carried: &CarriedData) {
    for (at, parts) in shared.iter() {
        let span = &index.rows.spans.at(at);
        if span.disk.is_none_or(|disk| !index.counted_disks.contains(&disk)) {
            continue;
        }
        let sharers = parts.iter().filter(|part| part.share > 0.0);
        for part in sharers.clone() {
            *facts.commands.entry(part.operation).or_default() += part.share;
        }
        match IoAction::on_disk(span) {
            IoAction::Flush => sharers.for_each(|part| *facts.flushes.entry(part.operation).or_default() += 1),
            IoAction::Write => {
                for part in sharers {
                    let bytes = facts.bytes.entry(part.operation).or_default();
                    bytes[2] += span.bytes as f64 * part.share;
                    let own = carried.is_metadata(at);
                    bytes[3] += if own { span.bytes as f64 * part.share } else { 0.0 };
                }
            }
            IoAction::Read | IoAction::Discard | IoAction::Other => {}
        }
    }
}

/// Calls of a thread by start time: an execution, or a prepare (`Err`), by position.
type Calls = Vec<(u64, Result<usize, usize>)>;

/// Adds prepare calls: those of a thread between one execution and the next belong to the next.
fn collect_prepares(facts: &mut Facts, index: &Index) {
    let rows = index.rows;
    let recording_ns = tracer::in_prepare_ns(rows);
    let mut threads: BTreeMap<(u32, u32), Calls> = BTreeMap::new();
    let statement = |at: usize| index.shape(at).is_some_and(|shape| rows.shapes[shape].is(ShapeKind::Statement));
    for (i, span) in rows.spans.of_layer(Layer::Database) {
        if span.is(SpanKind::Prepare) && span.operation.is_none() {
            threads.entry((span.tgid, span.tid)).or_default().push((span.start_ns, Err(i)));
        }
    }
    for (at, operation) in rows.operations.iter().enumerate().filter(|(at, o)| o.parent.is_none() && statement(*at)) {
        if let Some(list) = threads.get_mut(&(operation.tgid, operation.tid)) {
            list.push((operation.start_ns, Ok(at)));
        }
    }
    for list in threads.values_mut() {
        list.sort_by_key(|(start, what)| (*start, what.is_ok()));
        let mut last: Option<usize> = None;
        for (_, what) in list.iter() {
            match what {
                Err(prepare) => last = Some(*prepare),
                Ok(at) => {
                    if let Some(prepare) = last.take() {
                        let span = &rows.spans.at(prepare);
                        let ns = span.end_ns.map_or(0, |end| end.saturating_sub(span.start_ns));
                        // Even a very short one counts as one.
                        let own = ns.saturating_sub(recording_ns).max(1);
                        facts.add_time_around(index, *at, TimeCategory::Prepare, own, span.id);
                    }
                }
            }
        }
    }
}
