//! Events to spans, links, causes and slices. Streaming and pure: no kernel, no clock, no files, no root. Alone in its
//! room because everything that is hard to believe happens here, and so must be testable from a text file.
//!
//! # The idea
//!
//! An event says little: an address, a time, a thread.
//! But the events of one kernel object fit together: the bio that is queued is the bio that a request carries;
//! the page it carries was written by a call; the call was made by a thread inside a statement; the journal's thread was
//! between a commit's begin and its end. The linker sorts the events ([`reorder`](self)) and keeps, for each
//! kind of object, only what is still open:
//!
//! | tracker | open things | closed by |
//! |---|---|---|
//! | `threads` | operations and calls on each thread's stack | their end record |
//! | `inferred` | transactions that are inferred from SQLite's files | the journal's end, the WAL's sync |
//! | `pages` | who dirtied which page | the bio that carries the page |
//! | `logs` | who changed a file system that has no such transactions | a bounded number each |
//! | `checkpoints` | who asked such a file system for a commit | its arrival, or the call's end |
//! | `journal` | members of transactions, waits, last log of each metadata block | commit end; a bounded memory for checkpoints |
//! | `block` | bios, requests, flushes by address and time | their completion |
//! | `stacked` | commands of loop disks | their completion |
//! | `uring` | requests submitted through a ring | their completion |
//! | `activity` | what a sleeping thread may be waiting for | the operation's end |
//! | `attribution` | completed commands whose cause is not known yet | a commit's end and one horizon |
//!
//! Each tracker owns what it keeps. `linker` hands each event to the one that it is for, with a `context` of
//! what all share: the configuration, the time, span numbers, the losses, the sink. A tracker asks those below it, never above:
//!
//! ```text
//! attribution        who is charged for a command that is over
//!   block            bios, requests, flushes
//!   checkpoints      commits that are not jbd2's
//!     tasks          who does something now: threads (with inferred), uring
//!       objects      names, pages, journal, logs, activity, stacked: none knows another
//! ```
//!
//! # The uncertainty
//!
//! The head of each file says what it cannot know. Common to all: a link carries a [`model::Confidence`], a loss
//! inside its window lowers it by one step (`loss`), and a cause is as sure as the least sure link of its chain.
//! What nothing explains is charged to [`model::Origin::Unattributed`], never to the nearest neighbour.
//!
//! # What the rows mean, where the tables do not say it
//!
//! - A command that was issued again before it completed is two Driver spans linked by `retries`; only the last one is a
//!   command, with an end and causes. One whose completion was not recorded has causes and no end. A bare flush on a disk without a cache has a bio and no command.
//! - Flags of bios, requests and commands begin with what they do: `write sync meta`.
//! - An App `mark` is an operation only if no statement began inside it; else it is the parent of their spans. Its name
//!   stands in `flags` and its ordinal in `number`. Marks that come out of order (later than one horizon) are linked to
//!   operations that ended lately, but are never operations.
//! - A `step` span's `number` is its rows. Operations cut off by the end of the trace have slices up to the last event.
//!
//! # Memory
//!
//! Bounded by the open horizon, by limits on everything that a lost record could leave open, and by the number of
//! distinct files, processes and shapes: never by the length of the trace ([`Linker::held`]).

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

use context::Shared;
use linker::Router;
use model::table;
use model::{Confidence, Event, Relation};
use reorder::{Reorder, moment};
use std::collections::{BTreeMap, BTreeSet};

/// What lies under a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Below {
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

/// A disk that stands on something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stacked {
    /// The disk (major << 20 | minor).
    pub disk: u32,
    /// What it stands on.
    pub below: Below,
}

/// What the linker needs beside the events.
#[derive(Debug, Clone)]
pub struct Config {
    /// The tracer's process.
    pub tracer: Option<u32>,
    /// Files that the tracer writes: (file system, inode). What is written there is charged to it, whoever sends it.
    pub tracer_files: Vec<(u32, u64)>,
    /// How much later than a younger event an event may arrive and still be put before it, in ns of event time.
    pub horizon_ns: u64,
    /// Disks that stand on other disks or on files.
    pub stacked: Vec<Stacked>,
    /// Partition to disk.
    pub partitions: BTreeMap<u32, u32>,
    /// Names of the functions given by --op, by their number.
    pub functions: Vec<String>,
    /// Those of them that commit in groups, by their number: who syncs does so for all that wait.
    pub group_commits: BTreeSet<u64>,
    /// Whether completions were recorded at all: else that one is missing is no loss.
    pub completions: bool,
    /// Since when the log had no room for some records, if it ever had none. This is known when the recording has ended, and what is
    /// missing from then on is reported as that loss.
    pub full_since_ns: Option<u64>,
    /// Processes whose statements were recorded, which is known only from the whole log. In the others transactions are inferred
    /// from SQLite's files; `None`: in none.
    pub with_statements: Option<BTreeSet<u32>>,
    /// Events name objects by numbers that who read them made up of disk, sector and time, as those out of ftrace: then no link
    /// that rests on an object is surer than `address`, and none at all than `interval`.
    pub by_place: bool,
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
            completions: true,
            full_since_ns: None,
            with_statements: None,
            by_place: false,
        }
    }
}

impl Config {
    /// Whether the disk stands on other disks.
    pub(crate) fn stands_on_disks(&self, disk: u32) -> bool {
        self.stacked.iter().any(|s| s.disk == disk && matches!(s.below, Below::Disks(_)))
    }

    /// How sure a link can be at most, by what the events rest on.
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

/// Where rows go. Rows of different tables come interleaved; a link may come before the spans that it names.
pub trait Sink {
    /// An operation; after its slices.
    fn operation(&mut self, row: table::Operation);
    /// A shape; before its first operation.
    fn shape(&mut self, row: table::Shape);
    /// The trace context of an operation; before it. Few programs have one.
    fn context(&mut self, _row: table::TraceContext) {}
    /// A span; when it ended, or at the end of the trace.
    fn span(&mut self, row: table::Span);
    /// A link.
    fn link(&mut self, row: table::Link);
    /// A cause; those of one command come together, one horizon or more after its completion.
    fn cause(&mut self, row: table::Cause);
    /// A driver's command; when it ended, or at the end of the trace.
    fn driver_command(&mut self, row: table::DriverCommand);
    /// A slice; those of one operation come in order of time.
    fn slice(&mut self, row: table::Slice);
    /// A file; when its name is learnt, or at the end.
    fn file(&mut self, row: table::File);
    /// A process; when it ended, or at the end.
    fn process(&mut self, row: table::Process);
    /// A loss.
    fn loss(&mut self, row: table::LossRow);
}

/// Turns a stream of events into rows.
///
/// Events may come in any order within [`Config::horizon_ns`]; what comes later is still taken, with weaker results.
/// Marks do not move the clock, so all of them may be pushed first. The same events give the same rows.
pub struct Linker {
    order: Reorder,
    shared: Shared,
    router: Router,
}

impl Linker {
    /// A linker that has seen nothing.
    pub fn new(config: Config) -> Self {
        Self { order: Reorder::new(config.horizon_ns), router: Router::new(&config), shared: Shared::new(config) }
    }

    /// Takes an event in and writes the rows that became certain.
    pub fn push(&mut self, event: Event, sink: &mut dyn Sink) {
        self.router.arrives(&event, self.shared.config());
        self.order.push(event);
        while let Some(event) = self.order.pop(false) {
            self.take(&event, sink);
        }
    }

    /// Ends the trace: what is still open is written as far as it is known.
    pub fn finish(mut self, sink: &mut dyn Sink) {
        while let Some(event) = self.order.pop(true) {
            self.take(&event, sink);
        }
        self.router.finish(&mut self.shared.context(sink));
    }

    /// An event whose turn has come.
    fn take(&mut self, event: &Event, sink: &mut dyn Sink) {
        let mut cx = self.shared.context(sink);
        self.router.on_event(event, &mut cx);
        // After the event, so that a late mark or call is recognised by its time.
        cx.advance(moment(event));
        self.router.on_time(&mut cx);
    }

    /// Entries held in memory, of all kinds: for the test of the memory's bound.
    pub fn held(&self) -> usize {
        self.order.len() + self.shared.len() + self.router.len()
    }
}
