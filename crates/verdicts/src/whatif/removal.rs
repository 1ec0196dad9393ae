//! What can be removed: waits of a kind, or system calls of a kind. Each has a name on the command line; calls are named as in
//! `fathom diff` (`second fdatasync rollback journal`).
//!
//! A **wait** is removed where a thread slept for it: the time of the sleep goes, the thread's activity before and after stays. A
//! **call** is removed with everything that the thread did in it, since a program that does not make the call does not enter the
//! kernel.

use super::pieces::Piece;
use crate::checkpoints::{calls_in_operations, checkpoint_windows, is_sync};
use crate::diff::phase::{FileRole, Phases};
use crate::explain::LeafFinder;
use analysis::charges;
use analysis::rows::{Index, IoAction};
use model::{Call, Layer, Reason, SpanFlag, Wait};
use sqlite::FileClass;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

/// Something to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// Waits for flushes of the disk's cache.
    Flush,
    /// The same, except for the longest of each execution.
    SecondFlush,
    /// Calls of fsync and fdatasync.
    Sync,
    /// The same, except for the longest of each execution.
    SecondSync,
    /// Calls that create and delete rollback journals, and syncs of directories.
    JournalDelete,
    DirectorySync,
    /// WAL checkpoints.
    Checkpoint,
    /// Waits for the file system's journal and metadata.
    Metadata,
    /// Waits until requests are issued.
    Queue,
    /// Waits for a CPU.
    RunQueue,
    /// Calls of one kind; only the n-th of each execution, if that is not 0.
    Calls(u32, Call, Option<FileRole>),
    /// A part of the account of `fathom explain`, by its name.
    Leaf(String),
    /// Waits for locks that a process held, by its ID.
    LockOf(u32),
    /// Waits for what was for a process alone (its flush, its commit), or that it ended.
    Foreign(u32),
}

/// Whether a text is the name of a part of the account: it begins with a wait or a reason.
fn is_leaf_name(text: &str) -> bool {
    let first = text.split(':').next().unwrap_or("");
    let known = Wait::ALL.iter().map(|wait| wait.name()).chain(Reason::ALL.iter().map(|reason| reason.name()));
    known.into_iter().any(|name| name.replace(' ', "-") == first)
}

/// The names, each with its description.
pub const NAMED_REMOVALS: [(&str, Removal, &str); 10] = [
    ("flush", Removal::Flush, "waits for flushes of the disk's cache"),
    ("second-flush", Removal::SecondFlush, "the same, except for the longest of each execution"),
    ("sync", Removal::Sync, "calls of fsync and fdatasync"),
    ("second-sync", Removal::SecondSync, "the same, except for the longest of each execution"),
    ("journal-delete", Removal::JournalDelete, "calls that create and delete rollback journals, syncs of directories"),
    ("directory-sync", Removal::DirectorySync, "syncs of directories"),
    ("checkpoint", Removal::Checkpoint, "WAL checkpoints within statements"),
    ("metadata", Removal::Metadata, "waits for the file system's journal and metadata"),
    ("queue", Removal::Queue, "waits until requests are issued"),
    ("run-queue", Removal::RunQueue, "waits for a CPU"),
];

impl Removal {
    /// Describes that no execution has it, in a sentence.
    pub fn absence_sentence(&self) -> String {
        let what = match self {
            Self::Flush => "waited for a flush",
            Self::SecondFlush => "waited for a second flush",
            Self::Sync => "called fsync or fdatasync",
            Self::SecondSync => "called fsync or fdatasync a second time",
            Self::JournalDelete => "created or deleted a rollback journal, or synced a directory",
            Self::DirectorySync => "synced a directory",
            Self::Checkpoint => "ran a WAL checkpoint",
            Self::Metadata => "waited for the file system's journal or metadata",
            Self::Queue => "waited for a request to be issued",
            Self::RunQueue => "waited for a CPU",
            Self::Calls(..) => return format!("no statement made the call `{self}`"),
            Self::Leaf(_) => return format!("no statement has a part `{self}` of the account"),
            Self::LockOf(tgid) => return format!("no statement waited for a lock that process {tgid} held"),
            Self::Foreign(tgid) => return format!("no statement waited for process {tgid}"),
        };
        format!("no statement {what}")
    }
}

/// The ordinals up to the third, as `fathom diff` prints them; later ones are `4th`, `5th` …
const ORDINALS: [&str; 3] = ["first", "second", "third"];

/// Parses an ordinal, from 1.
fn parse_ordinal(word: &str) -> Option<u32> {
    let later = || word.strip_suffix("th")?.parse().ok().filter(|nth| *nth > 3);
    ORDINALS.iter().zip(1..).find(|(known, _)| **known == word).map(|(_, nth)| nth).or_else(later)
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, ..)) = NAMED_REMOVALS.iter().find(|(_, removal, _)| removal == self) {
            return f.write_str(name);
        }
        let (nth, call, kind) = match self {
            Self::Calls(nth, call, kind) => (nth, call, kind),
            Self::Leaf(name) => return f.write_str(name),
            Self::LockOf(tgid) => return write!(f, "lock:{tgid}"),
            Self::Foreign(tgid) => return write!(f, "foreign:{tgid}"),
            _ => return Ok(()),
        };
        match (*nth as usize).checked_sub(1).map(|at| ORDINALS.get(at)) {
            Some(Some(ordinal)) => write!(f, "{ordinal} ")?,
            Some(None) => write!(f, "{nth}th ")?,
            None => {}
        }
        write!(f, "{}", call.name())?;
        kind.map_or(Ok(()), |kind| write!(f, " {}", kind.name()))
    }
}

/// No removal has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: expected {names}, calls as `fathom diff` names them: [second] fdatasync [WAL], a part of the account of `fathom explain --json` (account.leaves[].id: timer, futex, flush:others …), lock:PID or foreign:PID", names = NAMED_REMOVALS.map(|(name, ..)| name).join(", "))]
pub struct UnknownRemoval(String);

impl FromStr for Removal {
    type Err = UnknownRemoval;

    fn from_str(text: &str) -> Result<Self, UnknownRemoval> {
        if let Some((_, removal, _)) = NAMED_REMOVALS.iter().find(|(name, ..)| *name == text) {
            return Ok(removal.clone());
        }
        let of_process = |kind: &str| text.strip_prefix(kind)?.strip_prefix(':')?.parse().ok();
        if let Some(tgid) = of_process("lock") {
            return Ok(Self::LockOf(tgid));
        }
        if let Some(tgid) = of_process("foreign") {
            return Ok(Self::Foreign(tgid));
        }
        if is_leaf_name(text) {
            return Ok(Self::Leaf(text.into()));
        }
        let wrong = || UnknownRemoval(text.into());
        let mut words = text.split_whitespace().peekable();
        let nth = words.peek().and_then(|word| parse_ordinal(word));
        if nth.is_some() {
            words.next();
        }
        let call = words.next().and_then(|word| Call::ALL.iter().copied().find(|call| call.name() == word));
        let kind = words.collect::<Vec<_>>().join(" ");
        let kind = match kind.as_str() {
            "" => None,
            name => Some(FileRole::all().find(|kind| kind.name().eq_ignore_ascii_case(name)).ok_or_else(wrong)?),
        };
        Ok(Self::Calls(nth.unwrap_or(0), call.ok_or_else(wrong)?, kind))
    }
}

/// Whether something is removed, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalExtent {
    /// The whole call that the thread was in.
    Call,
    /// The sleep only.
    Wait,
}

/// A removal, resolved for a recording.
pub struct Lookup {
    removal: Removal,
    /// Calls to remove, by position of their spans.
    calls: HashSet<u32>,
    /// Time windows of operations that are removed completely.
    windows: HashMap<u32, Vec<(u64, u64)>>,
    /// Spans that carry the file system's own writes, and flushes.
    spans: HashSet<u64>,
    /// For each operation, the flush that is kept.
    kept_flush: HashMap<u32, u64>,
    /// Pieces of a part of the account: operation and start.
    parts: HashSet<(u32, u64)>,
}

impl Lookup {
    /// Resolves the removal in one pass over the rows.
    pub fn new(removal: Removal, index: &Index, phases: &Phases, pieces: &[Vec<Piece>]) -> Self {
        let mut lookup = Self {
            removal,
            calls: HashSet::new(),
            windows: HashMap::new(),
            spans: HashSet::new(),
            kept_flush: HashMap::new(),
            parts: HashSet::new(),
        };
        let below = |layer| matches!(layer, Layer::Block | Layer::IoScheduler | Layer::Driver);
        let spans = || index.rows.spans.iter().filter(|span| below(span.layer));
        match &lookup.removal {
            Removal::Leaf(_) | Removal::LockOf(_) | Removal::Foreign(_) => lookup.take_parts(index),
            Removal::Flush => {
                lookup.spans = spans().filter(|s| IoAction::on_disk(s) == IoAction::Flush).map(|s| s.id).collect()
            }
            Removal::Metadata => {
                lookup.spans = spans().filter(|s| s.has(SpanFlag::Meta)).map(|s| s.id).collect();
            }
            Removal::SecondFlush => lookup.keep_longest_flushes(pieces),
            Removal::SecondSync => lookup.take_all_but_longest(index, phases),
            Removal::Checkpoint => {
                for (operation, windows) in checkpoint_windows(index, phases) {
                    for at in index.chain(operation) {
                        lookup.windows.entry(at as u32).or_default().extend(windows.iter().copied());
                    }
                }
            }
            Removal::Queue | Removal::RunQueue => {}
            Removal::Sync | Removal::JournalDelete | Removal::DirectorySync | Removal::Calls(..) => {
                lookup.take_matching(index, phases);
            }
        }
        lookup
    }

    /// Returns whether and how a piece of an operation is removed.
    pub fn extent_of(&self, at: u32, piece: &Piece) -> Option<RemovalExtent> {
        let slept = |reasons: &[Reason]| reasons.contains(&piece.reason);
        let carried = || piece.span.is_some_and(|span| self.spans.contains(&span));
        let wait = match &self.removal {
            Removal::Flush => slept(&[Reason::Flush]) || slept(&[Reason::Queue]) && carried(),
            Removal::SecondFlush => slept(&[Reason::Flush]) && piece.span != self.kept_flush.get(&at).copied(),
            Removal::Metadata => slept(&[Reason::Journal]) || slept(&[Reason::Device, Reason::Queue]) && carried(),
            Removal::Queue => slept(&[Reason::Queue]),
            Removal::RunQueue => slept(&[Reason::RunQueue]),
            Removal::Leaf(_) | Removal::LockOf(_) | Removal::Foreign(_) => self.parts.contains(&(at, piece.start_ns)),
            _ => false,
        };
        let within =
            |windows: &Vec<(u64, u64)>| windows.iter().any(|(from, to)| (*from..*to).contains(&piece.start_ns));
        let in_window = || self.windows.get(&at).is_some_and(within);
        if wait {
            Some(RemovalExtent::Wait)
        } else if piece.call.is_some_and(|call| self.calls.contains(&call)) || in_window() {
            Some(RemovalExtent::Call)
        } else {
            None
        }
    }

    fn take_parts(&mut self, index: &Index) {
        let commands = charges::command_shares(index);
        let finder = LeafFinder::new(index, &commands);
        for slice in &index.rows.slices {
            let Some(at) = index.operation(slice.operation) else { continue };
            let (id, tgid) = finder.find(at, &slice);
            let is = match &self.removal {
                Removal::Leaf(name) => *name == id,
                Removal::LockOf(holder) => slice.wait.is_some_and(Wait::is_lock) && tgid == Some(*holder),
                Removal::Foreign(other) => slice.reason != Reason::Cpu && tgid == Some(*other),
                _ => false,
            };
            if is {
                self.parts.insert((at as u32, slice.start_ns));
            }
        }
    }

    fn keep_longest_flushes(&mut self, pieces: &[Vec<Piece>]) {
        for (at, pieces) in pieces.iter().enumerate() {
            let mut flushes: BTreeMap<u64, u64> = BTreeMap::new();
            for piece in pieces.iter().filter(|p| p.reason == Reason::Flush) {
                if let Some(span) = piece.span {
                    let sum = flushes.entry(span).or_default();
                    *sum = sum.saturating_add(piece.ns);
                }
            }
            if let Some((span, _)) = flushes.into_iter().max_by_key(|(span, ns)| (*ns, std::cmp::Reverse(*span))) {
                self.kept_flush.insert(at as u32, span);
            }
        }
    }

    fn take_all_but_longest(&mut self, index: &Index, phases: &Phases) {
        let mut longest: HashMap<usize, (u64, u32)> = HashMap::new();
        let syncs = calls_in_operations(index, phases).filter(|(_, _, call, _)| is_sync(*call));
        for (at, operation, ..) in syncs {
            let span = &index.rows.spans.at(at);
            let ns = span.end_ns.map_or(0, |end| end.saturating_sub(span.start_ns));
            self.calls.insert(at as u32);
            let most = longest.entry(operation).or_insert((ns, at as u32));
            if ns > most.0 {
                *most = (ns, at as u32);
            }
        }
        longest.values().for_each(|(_, at)| {
            self.calls.remove(at);
        });
    }

    fn take_matching(&mut self, index: &Index, phases: &Phases) {
        let mut seen: HashMap<usize, u32> = HashMap::new();
        for (at, operation, call, kind) in calls_in_operations(index, phases) {
            let journal = kind == FileRole::Of(FileClass::RollbackJournal) && matches!(call, Call::Open | Call::Unlink);
            let directory = is_sync(call) && kind == FileRole::Directory;
            let goes = match &self.removal {
                Removal::Sync => is_sync(call),
                Removal::JournalDelete => journal || directory,
                Removal::DirectorySync => directory,
                Removal::Calls(nth, wanted, of) => {
                    let (nth, wanted, of) = (*nth, *wanted, *of);
                    let fits = call == wanted && of.is_none_or(|of| of == kind);
                    let count = seen.entry(operation).or_default();
                    *count += u32::from(fits);
                    fits && (nth == 0 || *count == nth)
                }
                _ => false,
            };
            if goes {
                self.calls.insert(at as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let calls = [
            "second fdatasync rollback journal",
            "fsync directory",
            "unlink",
            "fdatasync WAL",
            "4th fsync database",
            "8th fsync directory",
            "21th unlink",
        ];
        for name in NAMED_REMOVALS.map(|(name, ..)| name).into_iter().chain(calls) {
            assert_eq!(name.parse::<Removal>().unwrap().to_string(), name);
        }
        for name in ["timer", "fcntl-lock", "flush:others", "cpu:Syscall:pread64", "lock:12", "foreign:7"] {
            assert_eq!(name.parse::<Removal>().unwrap().to_string(), name);
        }
        for wrong in
            ["", "flushes", "second", "second flush", "fdatasync nothing", "tenth fsync", "0th fsync", "3th fsync"]
        {
            assert!(wrong.parse::<Removal>().is_err_and(|why| why.to_string().contains("expected flush")), "{wrong}");
        }
    }
}
