//! Turns events into spans, links, causes and slices. Streaming and pure: no kernel, no clock, no files, no root. A crate
//! of its own because the results that are hardest to believe come from here, so it must be testable from a text file.
//!
//! # The idea
//!
//! A single event carries little: an address, a time, a thread. But the events of one kernel object fit together: the
//! queued bio is the bio that a request carries; the page it carries was written by a call; a thread made the call inside a
//! statement; the journal's thread was between a commit's begin and its end. The linker sorts the events
//! ([`reorder`](self)) and keeps, for each kind of object, only what is still open:
//!
//! | tracker | open things | closed by |
//! |---|---|---|
//! | `threads` | operations and calls on each thread's stack | their end record |
//! | `inferred` | transactions that are inferred from SQLite's files | the journal's end, the WAL's sync |
//! | `pages` | who dirtied which page | the bio that carries the page |
//! | `logs` | who changed a file system without such transactions | a bounded number each |
//! | `checkpoints` | who asked such a file system for a commit | the commit's arrival, or the call's end |
//! | `journal` | members of transactions, waits, last log of each metadata block | commit end; a bounded memory for checkpoints |
//! | `block` | bios, requests, flushes by address and time | their completion |
//! | `stacked` | commands of loop disks | their completion |
//! | `uring` | requests submitted through a ring | their completion |
//! | `activity` | what a sleeping thread may be waiting for | the operation's end |
//! | `attribution` | completed commands whose cause is not known yet | a commit's end and one horizon |
//!
//! Each tracker owns its state. `linker` hands each event to the responsible tracker, with a `context` of shared state: the
//! configuration, the time, span numbers, the losses, the sink. A tracker queries those below it, never those above:
//!
//! ```text
//! attribution        who is charged for a completed command
//!   block            bios, requests, flushes
//!   checkpoints      commits of file systems without jbd2
//!     tasks          who is acting now: threads (with inferred), uring
//!       objects      names, pages, journal, logs, activity, stacked: independent of one another
//! ```
//!
//! # The uncertainty
//!
//! The head of each file states what it cannot know. Common to all: a link carries a [`model::Confidence`], a loss inside
//! its window lowers it by one step (`loss`), and the confidence of a cause is that of the weakest link of its chain. What
//! nothing explains is charged to [`model::Origin::Unattributed`], never to the nearest neighbour.
//!
//! # What the rows mean beyond what the tables document
//!
//! - A command that was issued again before it completed is two Driver spans linked by `retries`; only the last one is a command, with an
//!   end and causes. A command whose completion was not recorded has causes and no end. A bare flush on a disk without a cache has a bio
//!   and no command.
//! - Flags of bios, requests and commands begin with the operation: `write sync meta`.
//! - An App `mark` is an operation only if no statement began inside it; otherwise it is the parent of their spans. Its name is in
//!   `flags` and its ordinal in `number`. Marks that arrive late (by more than one horizon) are linked to operations that ended recently,
//!   but are never operations.
//! - A `step` span's `number` is its rows. Operations cut off by the end of the trace have slices up to the last event.
//!
//! # Memory
//!
//! Bounded by the open horizon, by limits on everything that a lost record could leave open, and by the number of distinct
//! files, processes and shapes: never by the length of the trace ([`Linker::held`]).

pub mod accounts;
mod activity;
mod actor;
mod attribution;
mod block;
mod blocked;
mod checkpoints;
mod context;
mod hash;
mod inferred;
mod inner;
mod journal;
mod linker;
mod logs;
mod loss;
mod names;
mod objects;
mod pages;
mod patience;
mod reorder;
mod stacked;
mod tasks;
pub mod text;
mod threads;
mod uring;

pub use inner::InnerTasks;
pub use loss::UNKNOWN_CPU;

use context::SharedState;
use linker::Router;
use model::table;
use model::{Confidence, Event, Relation};
use reorder::{ReorderBuffer, order_time};
use std::collections::{BTreeMap, BTreeSet};

/// What lies under a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// Other disks (device mapper, md).
    Disks(Vec<u32>),
    /// A file (loop).
    File {
        /// File system.
        dev: u32,
        /// Inode.
        ino: u64,
    },
}

/// A disk backed by other disks or by a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackedDisk {
    /// The disk (major << 20 | minor).
    pub disk: u32,
    pub backing: Backing,
}

/// Which sleeps of threads were recorded. A thread that was not seen to sleep was on the CPU only as far as its sleeps were recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sleeps {
    /// None: the recording has no records of the scheduler's.
    Unrecorded,
    /// Those within recorded calls, statements and functions.
    InOperations,
    /// Also all others of threads that write to storage or are in marks ([`Config::marks_from_ns`]), and of those that do neither
    /// ([`Config::are_idle_sleeps_recorded`]).
    All,
}

/// What the linker needs in addition to the events.
#[derive(Debug, Clone)]
pub struct Config {
    /// The tracer's process.
    pub tracer: Option<u32>,
    /// Files that the tracer writes: (file system, inode). Writes to them are charged to the tracer, whoever submits them.
    pub tracer_files: Vec<(u32, u64)>,
    /// How much later than a younger event an event may arrive and still be sorted before it, in ns of event time.
    pub horizon_ns: u64,
    /// Disks backed by other disks or by files.
    pub stacked: Vec<StackedDisk>,
    /// Partition to disk.
    pub partitions: BTreeMap<u32, u32>,
    /// Names of the functions given by --op, indexed by number.
    pub functions: Vec<String>,
    /// Numbers of those functions that commit in groups: the caller that syncs does so for all waiters.
    pub group_commits: BTreeSet<u64>,
    /// Whether completions were recorded at all; if not, a missing completion is no loss.
    pub completions_recorded: bool,
    /// Time from which the log had no room for some records, if that happened. Known only after the recording has ended; what is
    /// missing from then on is reported as that loss.
    pub full_since_ns: Option<u64>,
    /// Processes whose statements were recorded, known only from the whole log. In other processes, and outside statements in these,
    /// transactions are inferred from SQLite's files; `None`: nowhere.
    pub with_statements: Option<BTreeSet<u32>>,
    /// Events name objects by numbers that their reader derived from disk, sector and time, as with ftrace: then no link based
    /// on an object has more confidence than `address`, and no link at all more than `interval`.
    pub by_place: bool,
    /// Which sleeps were recorded.
    pub sleeps: Sleeps,
    /// If all: since when also those of threads that only mark intervals; `None`: never.
    pub marks_from_ns: Option<u64>,
    /// If all: whether also those of threads that do neither.
    pub are_idle_sleeps_recorded: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tracer: None,
            tracer_files: Vec::new(),
            horizon_ns: 100_000_000,
            stacked: Vec::new(),
            partitions: BTreeMap::new(),
            functions: Vec::new(),
            group_commits: BTreeSet::new(),
            completions_recorded: true,
            full_since_ns: None,
            with_statements: None,
            by_place: false,
            sleeps: Sleeps::All,
            marks_from_ns: Some(0),
            are_idle_sleeps_recorded: true,
        }
    }
}

impl Config {
    /// Whether the disk is backed by other disks.
    pub(crate) fn stands_on_disks(&self, disk: u32) -> bool {
        self.stacked.iter().any(|s| s.disk == disk && matches!(s.backing, Backing::Disks(_)))
    }

    /// The highest confidence that a link can have, given what the events are based on.
    pub(crate) fn at_most(&self, relation: Relation, sure: Confidence) -> Confidence {
        if !self.by_place {
            return sure;
        }
        match relation {
            Relation::Calls | Relation::JoinsTransaction | Relation::Commits | Relation::WaitsForLog => {
                sure.min(Confidence::Interval)
            }
            _ => sure.min(Confidence::Address),
        }
    }

    /// The whole disk of a disk or partition.
    pub(crate) fn disk_of(&self, dev: u32) -> u32 {
        self.partitions.get(&dev).copied().unwrap_or(dev)
    }
}

/// Receives rows. Rows of different tables are interleaved; a link may come before the spans that it names.
pub trait Sink {
    /// An operation; after its slices.
    fn operation(&mut self, row: table::Operation);
    /// A shape; before its first operation.
    fn shape(&mut self, row: table::Shape);
    /// The trace context of an operation; before the operation. Few programs have one.
    fn context(&mut self, _row: table::TraceContext) {}
    /// What SQLite counted during an operation; before the operation.
    fn counters(&mut self, _row: table::StatementCounters) {}
    /// A span; when it ends, or at the end of the trace.
    fn span(&mut self, row: table::Span);
    fn link(&mut self, row: table::Link);
    /// A cause; those of one command come together, one horizon or more after its completion.
    fn cause(&mut self, row: table::Cause);
    /// A driver's command; when it ends, or at the end of the trace.
    fn driver_command(&mut self, row: table::DriverCommand);
    /// A slice; those of one operation come in time order.
    fn slice(&mut self, row: table::Slice);
    /// Time of a thread outside its operations; the rows of a group come together.
    fn thread_time(&mut self, _row: table::ThreadTime) {}
    /// A file; when its name becomes known, or at the end.
    fn file(&mut self, row: table::File);
    /// A process; when it ends, or at the end.
    fn process(&mut self, row: table::Process);
    fn loss(&mut self, row: table::LossRow);
}

/// Turns a stream of events into rows.
///
/// Events may come in any order within [`Config::horizon_ns`]; later ones are still accepted, with weaker results. Marks do
/// not advance the clock, so all of them may be pushed first. The same events give the same rows.
pub struct Linker {
    order: ReorderBuffer,
    shared: SharedState,
    router: Router,
}

impl Linker {
    /// Creates a linker that has seen no events.
    pub fn new(config: Config) -> Self {
        Self {
            order: ReorderBuffer::new(config.horizon_ns),
            router: Router::new(&config),
            shared: SharedState::new(config),
        }
    }

    /// Accepts an event and writes the rows that became certain.
    pub fn push(&mut self, event: Event, sink: &mut dyn Sink) {
        self.router.on_arrival(&event, self.shared.config());
        self.order.push(event);
        while let Some(event) = self.order.pop(false) {
            self.process(&event, sink);
        }
    }

    /// Ends the trace: writes what is still open as far as it is known.
    pub fn finish(mut self, sink: &mut dyn Sink) {
        while let Some(event) = self.order.pop(true) {
            self.process(&event, sink);
        }
        let mut cx = self.shared.context(sink);
        // The last event may have ended long after it began.
        cx.advance(self.order.newest_ns());
        self.router.finish(&mut cx);
    }

    /// Processes an event whose turn has come.
    fn process(&mut self, event: &Event, sink: &mut dyn Sink) {
        let mut cx = self.shared.context(sink);
        self.router.on_event(event, &mut cx);
        // After the event, so that a late mark or call is recognised by its time.
        cx.advance(order_time(event));
        self.router.on_time(&mut cx);
    }

    /// Panics if the state contradicts itself: for tests and fuzz targets, after any event.
    pub fn check_invariants(&self) {
        self.router.check_invariants();
    }

    /// Number of entries held in memory, of all kinds: for the test of the memory bound.
    pub fn held(&self) -> usize {
        self.order.len() + self.shared.len() + self.router.len()
    }
}
