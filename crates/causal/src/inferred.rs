//! Transactions that no probe reports, inferred from SQLite's files.
//!
//! Where a program's SQLite cannot be probed (its symbols are stripped), its files still follow SQLite's protocols
//! (<https://sqlite.org/atomiccommit.html>, <https://sqlite.org/wal.html>), which reveal the begin and the end of a write
//! transaction:
//!
//! | mode | a write transaction begins | and ends |
//! |---|---|---|
//! | rollback journal | with the journal's creation, if it is then written from its start; else with its first write | when the journal is removed, truncated to nothing or its header zeroed, and synced if a sync follows |
//! | WAL | with its first write | with the sync after a frame, or with its last write if no sync follows |
//! | neither is written | with the first write to the database; if it has a WAL, that is a checkpoint | with the database's sync, or with its last write |
//!
//! A database is recognised by a journal or WAL next to it, or by a read of its header ([`sqlite::reads_database_header`]), not by its
//! name alone.
//!
//! A transaction belongs to one thread and one database, and has only the calls on that database's files: what the thread
//! does meanwhile on other files is not part of it, nor is what it does after the transaction's last write or sync. Two
//! databases, whether attached or on two connections, are two transactions, neither inside the other. Between its calls a
//! thread may do anything; that time belongs to the transaction only from its first call to its last.
//!
//! A transaction is an operation like any other but with confidence `guess`: in every link that leads down from it, and in
//! every cause that names it. Nothing is inferred on a thread that is inside a mark or function, nor from what a thread does inside a
//! statement, even an open one between two of its rows: what is recorded takes precedence over what is inferred. What SQLite does outside
//! statements is inferred in any process: the copy by its backup API, a checkpoint as the last connection closes.
//!
//! *Uncertainty*: names may mislead. Read transactions leave no trace in files. Commits that are not synced (WAL with
//! `synchronous=NORMAL`, any mode with `OFF`) and are less than [`COMMIT_PAUSE_NS`] apart look like one. A transaction that one
//! thread begins and another ends is two, one on each. Work outside any call (a page fault in a mapped database) is not
//! part of the transaction. Where the sleeps of a thread between its calls are not recorded ([`crate::Sleeps`]), its time there is shown
//! as `other`.

use crate::hash::FastMap;
use crate::names::Names;
use crate::pages::FileKey;
use model::event::{file_what, flags};
use model::{Call, Event, Record};
use sqlite::{FileClass, database_in, database_of};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of databases remembered by name or by how they are read.
const DATABASES_MAX: usize = 1 << 12;
/// Between two writes of one commit to a WAL, only the next frame is prepared. A thread that pauses longer has finished the
/// commit.
const COMMIT_PAUSE_NS: u64 = 10_000_000;
/// The announcement of a sync and the start time in its record are taken from the clock one after the other.
const SAME_CALL_NS: u64 = 100_000;
/// A call whose end was lost is not waited for longer than this.
const CALL_TIMEOUT_NS: u64 = 10_000_000_000;

/// The evidence in a record, which may have arrived before its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// The file that a call just opened; if it is a rollback journal, its database.
    Named(Option<String>),
    Opened,
    /// The file's contents were changed; `true`: from its start on.
    Changed(bool),
    Synced,
    Other,
}

/// A call of a thread, by the time at which it began.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CallNote {
    file: FileKey,
    evidence: Evidence,
    /// `u64::MAX`: not known yet.
    end_ns: u64,
}

/// Whether a thread in this context is inside a statement, or between two of its rows.
pub(crate) fn in_statement(ctx: u16) -> bool {
    ctx & (flags::IN_OP | flags::BETWEEN_ROWS) != 0
}

#[derive(Debug)]
pub(crate) struct Transaction {
    pub operation: u64,
    /// When its first call began, whose file may not have been named yet.
    pub start_ns: u64,
    /// Path.
    pub database: String,
    /// When its last write or sync ended.
    pub last_ns: u64,
    /// Its rollback journal has contents, so it is still open, no matter how much time passes.
    pub journal: bool,
    /// A frame was written to the WAL.
    pub frames: bool,
    /// It writes the database without a journal.
    pub bare: bool,
    /// Its journal is gone. A sync may still follow.
    pub over: bool,
}

impl Transaction {
    /// Whether it has ended by `time_ns` if only reads followed its last write or sync.
    pub(crate) fn over_by(&self, time_ns: u64) -> bool {
        !self.journal && time_ns > self.last_ns.saturating_add(COMMIT_PAUSE_NS)
    }
}

/// What is known of threads that may be in a transaction.
#[derive(Default)]
pub(crate) struct InferredTransactions {
    notes: BTreeMap<(u32, u64), Vec<CallNote>>,
    open: FastMap<u32, Vec<Transaction>>,
    /// Paths of databases that have a journal or WAL; `true`: a WAL.
    databases: BTreeMap<String, bool>,
    /// Files that were read the way SQLite reads a database's header.
    read: BTreeSet<FileKey>,
    /// Name without its directory to path.
    names: BTreeMap<String, String>,
}

impl InferredTransactions {
    pub(crate) fn len(&self) -> usize {
        self.notes.len() + self.open.len() + self.databases.len() + self.read.len() + self.names.len()
    }

    /// Notes what must be known of a record on arrival, for the events before and during it.
    pub(crate) fn on_arrival(&mut self, with_statements: Option<&BTreeSet<u32>>, event: &Event) {
        let h = &event.header;
        let Some(with_statements) = with_statements else { return };
        // The kind first: it is cheaper than the look-up, and most events are of other kinds.
        let ctx = match &event.record {
            Record::File(_) => 0,
            Record::SyncBegin(r) => r.ctx,
            Record::Syscall(r) => r.ctx,
            _ => return,
        };
        if in_statement(ctx) && with_statements.contains(&h.tgid) {
            return;
        }
        let (time_ns, note) = match &event.record {
            Record::File(r) => {
                let class = sqlite::classify_path(&r.text);
                if let FileClass::RollbackJournal | FileClass::Wal = class {
                    self.remember_database(database_of(&r.text), class == FileClass::Wal);
                }
                if !matches!(r.what, file_what::OPENED | file_what::CREATED) {
                    return;
                }
                let journal_of = (class == FileClass::RollbackJournal).then(|| database_of(&r.text).to_string());
                (h.time_ns, CallNote { file: (r.dev, r.ino), evidence: Evidence::Named(journal_of), end_ns: h.time_ns })
            }
            Record::SyncBegin(r) => {
                (h.time_ns, CallNote { file: (r.dev, r.ino), evidence: Evidence::Synced, end_ns: u64::MAX })
            }
            Record::Syscall(r) if r.ctx & flags::TRACKED != 0 && r.ino != 0 => {
                let file = (r.dev, r.ino);
                let evidence = match Call::from_number(r.call) {
                    Some(call) if call.syncs() => {
                        let from = r.start_ns.saturating_sub(SAME_CALL_NS);
                        let mut near = self.notes.range_mut((h.tid, from)..=(h.tid, r.start_ns + SAME_CALL_NS));
                        let announced = near.find_map(|(_, all)| {
                            all.iter_mut()
                                .find(|n| n.evidence == Evidence::Synced && n.file == file && n.end_ns == u64::MAX)
                        });
                        if let Some(note) = announced {
                            note.end_ns = h.time_ns;
                            return;
                        }
                        Evidence::Synced
                    }
                    _ if r.result < 0 => Evidence::Other,
                    Some(Call::Open) => Evidence::Opened,
                    Some(Call::Ftruncate | Call::Unlink) => Evidence::Changed(false),
                    Some(call) if call.writes() => Evidence::Changed(r.pos == 0),
                    _ => Evidence::Other,
                };
                (r.start_ns, CallNote { file, evidence, end_ns: h.time_ns })
            }
            _ => return,
        };
        self.notes.entry((h.tid, time_ns)).or_default().push(note);
    }

    /// Drops the calls that ended before the events that are being processed.
    pub(crate) fn prune(&mut self, now_ns: u64) {
        let lost = |start_ns: u64| now_ns.saturating_sub(start_ns) > CALL_TIMEOUT_NS;
        self.notes.retain(|&(_, start_ns), all| {
            all.retain(|n| n.end_ns >= now_ns && !(n.end_ns == u64::MAX && lost(start_ns)));
            !all.is_empty()
        });
    }

    fn remember_database(&mut self, database: &str, wal: bool) {
        if self.databases.len() >= DATABASES_MAX && !self.databases.contains_key(database) {
            self.databases.clear();
        }
        *self.databases.entry(database.into()).or_default() |= wal;
    }

    /// Records that the file was read the way SQLite reads a database's header.
    pub(crate) fn reads_header(&mut self, file: FileKey) {
        if self.read.len() >= DATABASES_MAX {
            self.read.clear();
        }
        self.read.insert(file);
    }

    /// Returns what the thread does from `time_ns` on, as far as it has arrived.
    fn notes_from(&self, tid: u32, time_ns: u64) -> impl Iterator<Item = (u64, &CallNote)> {
        self.notes.range((tid, time_ns)..=(tid, u64::MAX)).flat_map(|((_, at), all)| all.iter().map(move |n| (*at, n)))
    }

    /// If the file that a call opens at `start_ns` is a rollback journal that the thread then writes from its start,
    /// returns its database.
    pub(crate) fn makes_journal(&self, tid: u32, start_ns: u64, file: FileKey) -> Option<String> {
        let mut database = None;
        for (_, note) in self.notes_from(tid, start_ns.saturating_add(1)).filter(|(_, n)| n.file == file) {
            match &note.evidence {
                Evidence::Named(journal_of) if database.is_none() => database = Some(journal_of.as_ref()?),
                Evidence::Changed(true) => return database.cloned(),
                Evidence::Opened => return None,
                _ => {}
            }
        }
        None
    }

    /// Returns the call that the thread was in at `time_ns`.
    fn call_at(&self, tid: u32, time_ns: u64) -> Option<&CallNote> {
        let call = |n: &&CallNote| !matches!(n.evidence, Evidence::Named(_));
        let mut before = self.notes.range((tid, 0)..=(tid, time_ns)).rev().flat_map(|(_, all)| all);
        if let Some(note) = before.find(call).filter(|n| time_ns <= n.end_ns) {
            return Some(note);
        }
        let soon = self.notes_from(tid, time_ns).take_while(|&(at, _)| at <= time_ns.saturating_add(SAME_CALL_NS));
        soon.map(|(_, note)| note).find(call).filter(|n| n.evidence == Evidence::Synced)
    }

    /// Returns the database's name for use in a shape: without its directory, unless another database has that name.
    pub(crate) fn name(&mut self, path: &str) -> String {
        let short = path.rsplit('/').next().unwrap_or(path);
        if self.names.len() >= DATABASES_MAX {
            return path.into();
        }
        let known = self.names.entry(short.into()).or_insert_with(|| path.into());
        if known == path { short.into() } else { path.into() }
    }

    /// Returns the thread's transaction on this database.
    pub(crate) fn transaction_of(&mut self, tid: u32, database: &str) -> Option<&mut Transaction> {
        self.open.get_mut(&tid)?.iter_mut().find(|t| t.database == database)
    }

    /// Returns the file's role for SQLite.
    pub(crate) fn class_of(&self, file: FileKey, names: &Names) -> FileClass {
        let Some(path) = names.path(file) else { return FileClass::Other };
        match sqlite::classify_path(path) {
            // Names such as x.db are also used by Berkeley DB and many others.
            FileClass::Other | FileClass::Database => {
                let is_sqlite = self.databases.contains_key(path) || self.read.contains(&file);
                if is_sqlite { FileClass::Database } else { FileClass::Other }
            }
            class => class,
        }
    }

    /// Whether a call on this file belongs to a transaction on the database. The directory is synced after a journal was
    /// created.
    fn is_of(&self, database_path: &str, file: FileKey, evidence: &Evidence, names: &Names) -> bool {
        let Some(path) = names.path(file) else { return false };
        let directory =
            || *evidence == Evidence::Synced && database_path.rsplit_once('/').is_some_and(|(f, _)| f == path);
        database_in(path, self.class_of(file, names)) == database_path || directory()
    }

    /// Returns the transaction that the thread was working for at `time_ns`: that of its call's file.
    pub(crate) fn transaction_at(&self, tid: u32, time_ns: u64, names: &Names) -> Option<u64> {
        let open = self.open.get(&tid)?;
        if let Some(begun) = open.iter().find(|t| t.start_ns == time_ns) {
            return Some(begun.operation);
        }
        let note = self.call_at(tid, time_ns)?;
        let of = |t: &&Transaction| self.is_of(&t.database, note.file, &note.evidence, names);
        let transaction = open.iter().find(of)?;
        let changes = |n: &CallNote| matches!(n.evidence, Evidence::Changed(_) | Evidence::Synced);
        let goes_on = || {
            let later = self.notes_from(tid, time_ns.saturating_add(1));
            let mut later = later.take_while(|&(at, _)| at <= transaction.last_ns.saturating_add(COMMIT_PAUSE_NS));
            later.any(|(_, n)| changes(n) && self.is_of(&transaction.database, n.file, &n.evidence, names))
        };
        // Reads after its last write no longer belong to the transaction.
        let within = changes(note) || transaction.journal || !transaction.over && goes_on();
        within.then_some(transaction.operation)
    }

    /// Removes a transaction that left the thread's stack by other means. Returns when it ended; one whose journal still
    /// exists did not end.
    pub(crate) fn forget(&mut self, tid: u32, operation: u64) -> Option<u64> {
        let open = self.open.get_mut(&tid)?;
        let at = open.iter().position(|t| t.operation == operation)?;
        let transaction = open.swap_remove(at);
        if open.is_empty() {
            self.open.remove(&tid);
        }
        (!transaction.journal).then_some(transaction.last_ns)
    }

    /// Whether no thread is known to be in a transaction.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether the database is known to have a WAL.
    pub(crate) fn has_wal(&self, database: &str) -> bool {
        self.databases.get(database).is_some_and(|wal| *wal)
    }

    /// A transaction began.
    pub(crate) fn begin(&mut self, tid: u32, transaction: Transaction) {
        self.open.entry(tid).or_default().push(transaction);
    }

    /// Returns the database of the thread's transaction that a call on this file belongs to.
    pub(crate) fn database_at(&self, tid: u32, file: FileKey, evidence: &Evidence, names: &Names) -> Option<String> {
        self.open.get(&tid)?.iter().find(|t| self.is_of(&t.database, file, evidence, names)).map(|t| t.database.clone())
    }

    /// Returns the other threads in a transaction with a journal on this database, in order.
    pub(crate) fn other_threads(&self, tid: u32, database: &str) -> Vec<u32> {
        let has = |all: &[Transaction]| all.iter().any(|t| t.database == database && t.journal);
        let mut others: Vec<u32> =
            self.open.iter().filter(|(other, all)| **other != tid && has(all)).map(|(t, _)| *t).collect();
        others.sort_unstable();
        others
    }

    /// Removes those of a thread's transactions that are over; returns their operations, and when each had its last write or
    /// sync.
    pub(crate) fn end_transactions(&mut self, tid: u32, over: impl Fn(&Transaction) -> bool) -> Vec<(u64, u64)> {
        let mut ended = Vec::new();
        let Some(open) = self.open.get_mut(&tid) else { return ended };
        open.retain(|t| {
            let over = over(t);
            if over {
                ended.push((t.operation, t.last_ns));
            }
            !over
        });
        if open.is_empty() {
            self.open.remove(&tid);
        }
        ended
    }
}
