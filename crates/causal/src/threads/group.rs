//! Group commit: of several concurrent commits one, the leader, writes the log for all and syncs it, and the others wait for it
//! (PostgreSQL's XLogFlush, which takes WALWriteLock or finds its record flushed; the write groups of LevelDB and RocksDB). The flush is
//! shared among all commits whose records it made durable, like a commit of the file system's journal.
//!
//! By time, the flush covers a commit that began before the leader began to write and had not ended when the flush did. Such a commit has
//! put its record in the log before it asks for its flush, and the leader takes what is there when it writes (XLogFlush calls
//! WaitXLogInsertionsToFinish to find out how far that is). A commit that synced by itself was not covered by another's; and the first
//! flush that covers a commit is the one it waited for, even if the commit has to wait for a CPU until the next flush has ended too.
//!
//! *Uncertainty*: a record behind one that is still being copied into the log waits for the next flush although it came in time; its
//! commit then syncs by itself, and is therefore left out, unless it is still running one horizon after the flush. A commit that was
//! delayed between its record and its wait until the leader wrote looks as if it came too late, and has no flush. MariaDB's commits do
//! not wait for another's sync (since 10.6 they return, and the connection waits): they end before it, and look like those that wrote
//! nothing. Two databases in one process are not distinguished; only processes with the same parent are considered one database.

use crate::names::Names;
use model::Call;
use std::collections::{BTreeMap, VecDeque};

/// Number of ended commits that are kept: a flush is settled one horizon after its end, or after that of the journal's commit.
const ENDED_COMMITS_MAX: usize = 1 << 12;

/// A commit: an execution of a function that commits in groups.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Commit {
    pub operation: u64,
    pub span: u64,
    pub tgid: u32,
    tid: u32,
    key: u64,
    start_ns: u64,
    end_ns: u64,
    /// When its last write before its sync began, or, if it only synced, when the sync began.
    wrote_ns: u64,
    synced: bool,
    /// The commit that synced for it; 0: none.
    led_by: u64,
}

/// Commits that are running, and the last ones that ended.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    open: BTreeMap<u64, Commit>,
    ended: VecDeque<Commit>,
    /// When the flush ended whose commits were taken last.
    taken_ns: u64,
}

impl Groups {
    /// A commit began: its operation and span, its process and thread, the function, and when.
    pub(crate) fn began(&mut self, (operation, span): (u64, u64), (tgid, tid): (u32, u32), key: u64, start_ns: u64) {
        let never = u64::MAX;
        let (end_ns, wrote_ns) = (never, never);
        let commit = Commit { operation, span, tgid, tid, key, start_ns, end_ns, wrote_ns, synced: false, led_by: 0 };
        self.open.insert(operation, commit);
    }

    /// Records that a commit ended, or that its end was lost by then.
    pub(crate) fn ended(&mut self, operation: u64, end_ns: u64) {
        let Some(commit) = self.open.remove(&operation) else { return };
        self.ended.push_back(Commit { end_ns, ..commit });
        if self.ended.len() > ENDED_COMMITS_MAX {
            self.ended.pop_front();
        }
    }

    /// Records that a commit made a call.
    pub(crate) fn called(&mut self, operation: u64, call: Call, start_ns: u64) {
        let Some(commit) = self.open.get_mut(&operation).filter(|commit| !commit.synced) else { return };
        if call.syncs() {
            commit.synced = true;
            commit.wrote_ns = commit.wrote_ns.min(start_ns);
        } else if call.writes() {
            commit.wrote_ns = start_ns;
        }
    }

    /// Returns the commits that a flush also served which ended at `done_ns`, if `leader` requested it. Must be called in
    /// the order of the flushes' ends.
    pub(crate) fn take_covered(&mut self, leader: u64, done_ns: u64, names: &Names) -> Vec<Commit> {
        assert!(done_ns >= self.taken_ns, "flushes out of order: {done_ns} after {}", self.taken_ns);
        self.taken_ns = done_ns;
        let Self { open, ended: over, .. } = self;
        let found = open.values().chain(&*over).find(|commit| commit.operation == leader && commit.synced).copied();
        let Some(leader) = found else { return Vec::new() };
        let covered = |commit: &&mut Commit| {
            commit.key == leader.key
                && commit.tid != leader.tid
                && !commit.synced
                // A sync of a file system on several disks is a flush of each.
                && (commit.led_by == 0 || commit.led_by == leader.operation)
                && commit.start_ns <= leader.wrote_ns
                && commit.end_ns > done_ns
                && (commit.tgid == leader.tgid || names.are_siblings(commit.tgid, leader.tgid))
        };
        let all = open.values_mut().chain(over.iter_mut()).filter(covered);
        all.map(|commit| {
            commit.led_by = leader.operation;
            *commit
        })
        .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len() + self.ended.len()
    }
}
