//! Transactions that nobody tells of, inferred from SQLite's files.
//!
//! Picture a watchman who knows the shop's customs and sees only its back door: when the ledger is carried out, a sale has
//! begun, and when it is carried in again, it is over. Where a program's SQLite cannot be probed (its symbols are stripped),
//! its files still keep SQLite's customs (<https://sqlite.org/atomiccommit.html>, <https://sqlite.org/wal.html>):
//!
//! | mode | a write transaction begins | and ends |
//! |---|---|---|
//! | rollback journal | with the journal's creation, if it is then written from its start; else with its first write | when the journal is removed, truncated to nothing or its header zeroed, and synced if a sync follows |
//! | WAL | with its first write | with the sync after a frame, or with its last write if no sync follows |
//! | neither is written | with the first write to the database; if it has a WAL, that is a checkpoint | with the database's sync, or with its last write |
//!
//! A transaction is a thread's on one database, and has the calls on that database's files only: what the thread does
//! meanwhile on other files is not the transaction's, nor is what it does after the transaction's last write or sync. Two
//! databases, whether attached or of two connections, are two transactions, neither inside the other. In the time between
//! its calls a thread may do anything; that is the transaction's only from its first call to its last.
//!
//! A transaction is an operation like any other but with confidence `guess`: in every link
//! that leads down from it, and in every cause that names it. It is done only for processes of which no statement was
//! recorded ([`crate::Config::told`]), and not on a thread that is inside a mark or function of its own: what is told goes
//! before what is guessed.
//!
//! *Uncertainty*: names may lie. Reading transactions leave no trace in files. Commits that are not synced (WAL with
//! `synchronous=NORMAL`, any mode with `OFF`) and are less than [`PAUSE_NS`] apart cannot be told apart and look like one. A
//! transaction that one thread begins and another ends is two, one on each. What no call does (a page fault in a mapped
//! database) is not the transaction's. The thread's time between its calls is shown as `other`, since its sleeps there are
//! not recorded.

use crate::context::Context;
use crate::hash::FastMap;
use crate::linker::State;
use crate::pages::FileKey;
use crate::stack::Kind;
use model::event::{Header, Syscall, flags};
use model::files::{FileClass, database_of, reads_database_header, without_mark};
use model::{Call, Event, Record};
use std::collections::{BTreeMap, BTreeSet};

/// Databases remembered by their names or by how they are read.
const DATABASES: usize = 1 << 12;
/// Bytes of a journal's header: SQLite writes as many zeros over it to end a transaction in PERSIST mode (`zeroJournalHdr`).
const JOURNAL_HEADER: u64 = 28;
/// Bytes of a WAL's header, before its first frame.
const WAL_HEADER: i64 = 32;
/// In a `file` record: it was opened.
const OPENED: u16 = 0;
/// Between two writes of one commit to a WAL lies only the making of the next frame. A thread that waited longer had done.
const PAUSE_NS: u64 = 10_000_000;
/// The announcement of a sync and the start in its record are read from the clock one after the other.
const SAME_CALL_NS: u64 = 100_000;
/// A call of which the end was lost is not waited for longer.
const LONGEST_CALL_NS: u64 = 10_000_000_000;

/// What a record tells, which may have arrived before its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    /// The file that a call just opened; the database, if it is a rollback journal.
    Named(Option<String>),
    Opened,
    /// Its contents were changed; from the file's start on.
    Changed(bool),
    Synced,
    Other,
}

/// A call of a thread, by the time at which it began.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Note {
    file: FileKey,
    told: Told,
    /// `u64::MAX`: not known yet.
    end_ns: u64,
}

#[derive(Debug)]
struct Transaction {
    operation: u64,
    /// When its first call began, of which the file may not have been named yet.
    start_ns: u64,
    /// Path.
    database: String,
    /// When its last write or sync ended.
    last_ns: u64,
    /// Its rollback journal has something in it, so that it is not over whatever time passes.
    journal: bool,
    /// A frame was written to the WAL.
    frames: bool,
    /// It writes the database, and there was no journal.
    bare: bool,
    /// Its journal is gone. It may be synced yet.
    over: bool,
}

impl Transaction {
    /// Whether it is over by `time_ns` if nothing but reading came after its last write or sync.
    fn over_by(&self, time_ns: u64) -> bool {
        !self.journal && time_ns > self.last_ns.saturating_add(PAUSE_NS)
    }
}

/// What is known of threads that may be in a transaction.
#[derive(Default)]
pub(crate) struct Inferred {
    notes: BTreeMap<(u32, u64), Vec<Note>>,
    open: FastMap<u32, Vec<Transaction>>,
    /// Paths of databases that have a journal or WAL; `true`: a WAL.
    databases: BTreeMap<String, bool>,
    /// Files read as SQLite reads a database's header.
    read: BTreeSet<FileKey>,
    /// The path that a name without its folder stands for.
    names: BTreeMap<String, String>,
}

impl Inferred {
    pub(crate) fn len(&self) -> usize {
        self.notes.len() + self.open.len() + self.databases.len() + self.read.len() + self.names.len()
    }

    /// Notes what a record that has just arrived tells, for what comes before it and during it.
    pub(crate) fn arrives(&mut self, told: Option<&BTreeSet<u32>>, event: &Event) {
        let h = &event.header;
        // The kind first: it costs less than the look-up, and most events are of others.
        if !matches!(event.record, Record::File(_) | Record::SyncBegin(_) | Record::Syscall(_))
            || told.is_none_or(|told| told.contains(&h.tgid))
        {
            return;
        }
        let (time_ns, note) = match &event.record {
            Record::File(r) => {
                let class = model::files::class(&r.text);
                if let FileClass::RollbackJournal | FileClass::Wal = class {
                    self.remember(database_of(&r.text), class == FileClass::Wal);
                }
                if r.what != OPENED {
                    return;
                }
                let journal_of = (class == FileClass::RollbackJournal).then(|| database_of(&r.text).to_string());
                (h.time_ns, Note { file: (r.dev, r.ino), told: Told::Named(journal_of), end_ns: h.time_ns })
            }
            Record::SyncBegin(r) => (h.time_ns, Note { file: (r.dev, r.ino), told: Told::Synced, end_ns: u64::MAX }),
            Record::Syscall(r) if r.ctx & flags::TRACKED != 0 && r.ino != 0 => {
                let file = (r.dev, r.ino);
                let told = match Call::from_number(r.call) {
                    Some(call) if call.syncs() => {
                        let from = r.start_ns.saturating_sub(SAME_CALL_NS);
                        let mut near = self.notes.range_mut((h.tid, from)..=(h.tid, r.start_ns + SAME_CALL_NS));
                        let announced = near.find_map(|(_, all)| {
                            all.iter_mut().find(|n| n.told == Told::Synced && n.file == file && n.end_ns == u64::MAX)
                        });
                        if let Some(note) = announced {
                            note.end_ns = h.time_ns;
                            return;
                        }
                        Told::Synced
                    }
                    _ if r.result < 0 => Told::Other,
                    Some(Call::Open) => Told::Opened,
                    Some(Call::Ftruncate | Call::Unlink) => Told::Changed(false),
                    Some(call) if call.writes() => Told::Changed(r.pos == 0),
                    _ => Told::Other,
                };
                (r.start_ns, Note { file, told, end_ns: h.time_ns })
            }
            _ => return,
        };
        self.notes.entry((h.tid, time_ns)).or_default().push(note);
    }

    /// Forgets the calls that ended before the events whose turn it is.
    pub(crate) fn prune(&mut self, now_ns: u64) {
        let lost = |start_ns: u64| now_ns.saturating_sub(start_ns) > LONGEST_CALL_NS;
        self.notes.retain(|&(_, start_ns), all| {
            all.retain(|n| n.end_ns >= now_ns && !(n.end_ns == u64::MAX && lost(start_ns)));
            !all.is_empty()
        });
    }

    fn remember(&mut self, database: &str, wal: bool) {
        if self.databases.len() >= DATABASES && !self.databases.contains_key(database) {
            self.databases.clear();
        }
        *self.databases.entry(database.into()).or_default() |= wal;
    }

    fn reads_header(&mut self, file: FileKey) {
        if self.read.len() >= DATABASES {
            self.read.clear();
        }
        self.read.insert(file);
    }

    /// What the thread does from `time_ns` on, as far as it has arrived.
    fn after(&self, tid: u32, time_ns: u64) -> impl Iterator<Item = (u64, &Note)> {
        self.notes.range((tid, time_ns)..=(tid, u64::MAX)).flat_map(|((_, at), all)| all.iter().map(move |n| (*at, n)))
    }

    /// If the file that a call opens at `start_ns` is a rollback journal that the thread then writes from its start: the
    /// database that it is of.
    fn makes_journal(&self, tid: u32, start_ns: u64, file: FileKey) -> Option<String> {
        let mut database = None;
        for (_, note) in self.after(tid, start_ns.saturating_add(1)).filter(|(_, n)| n.file == file) {
            match &note.told {
                Told::Named(journal_of) if database.is_none() => database = Some(journal_of.as_ref()?),
                Told::Changed(true) => return database.cloned(),
                Told::Opened => return None,
                _ => {}
            }
        }
        None
    }

    /// The call that the thread was in at `time_ns`.
    fn call(&self, tid: u32, time_ns: u64) -> Option<&Note> {
        let call = |n: &&Note| !matches!(n.told, Told::Named(_));
        let mut before = self.notes.range((tid, 0)..=(tid, time_ns)).rev().flat_map(|(_, all)| all);
        if let Some(note) = before.find(call).filter(|n| time_ns <= n.end_ns) {
            return Some(note);
        }
        let soon = self.after(tid, time_ns).take_while(|&(at, _)| at <= time_ns.saturating_add(SAME_CALL_NS));
        soon.map(|(_, note)| note).find(call).filter(|n| n.told == Told::Synced)
    }

    /// The database's name as it stands in a shape: without its folder, unless another one has that name.
    fn name(&mut self, path: &str) -> String {
        let short = path.rsplit('/').next().unwrap_or(path);
        if self.names.len() >= DATABASES {
            return path.into();
        }
        let known = self.names.entry(short.into()).or_insert_with(|| path.into());
        if known == path { short.into() } else { path.into() }
    }

    fn of(&mut self, tid: u32, database: &str) -> Option<&mut Transaction> {
        self.open.get_mut(&tid)?.iter_mut().find(|t| t.database == database)
    }
}

/// The database that a path is beside or in: itself, that of its journal, WAL or shm, the first of a transaction over several.
fn database(path: &str, class: FileClass) -> &str {
    match class {
        FileClass::MasterJournal => without_mark(path).rsplit_once("-mj").map_or(path, |(database, _)| database),
        _ => database_of(path),
    }
}

impl State {
    /// What the file is to SQLite.
    fn class_of(&self, file: FileKey) -> FileClass {
        let Some(path) = self.names.path(file) else { return FileClass::Other };
        match model::files::class(path) {
            FileClass::Other if self.inferred.databases.contains_key(path) || self.inferred.read.contains(&file) => {
                FileClass::Database
            }
            class => class,
        }
    }

    fn infers(&self, header: &Header, record: &Syscall, cx: &Context<'_>) -> bool {
        cx.config.told.as_ref().is_some_and(|told| !told.contains(&header.tgid))
            && record.ctx & flags::TRACKED != 0
            && record.ino != 0
            && record.result >= 0
    }

    /// Whether a call on this file is of a transaction on the database. The folder is synced when a journal was made.
    fn is_of(&self, database_path: &str, file: FileKey, told: &Told) -> bool {
        let Some(path) = self.names.path(file) else { return false };
        let folder = || *told == Told::Synced && database_path.rsplit_once('/').is_some_and(|(f, _)| f == path);
        database(path, self.class_of(file)) == database_path || folder()
    }

    /// The transaction that the thread was at work for at `time_ns`: that of its call's file.
    pub(crate) fn inferred_at(&self, tid: u32, time_ns: u64) -> Option<u64> {
        let open = self.inferred.open.get(&tid)?;
        if let Some(begun) = open.iter().find(|t| t.start_ns == time_ns) {
            return Some(begun.operation);
        }
        let note = self.inferred.call(tid, time_ns)?;
        let of = |t: &&Transaction| self.is_of(&t.database, note.file, &note.told);
        let transaction = open.iter().find(of)?;
        let changes = |n: &Note| matches!(n.told, Told::Changed(_) | Told::Synced);
        let goes_on = || {
            let later = self.inferred.after(tid, time_ns.saturating_add(1));
            let mut later = later.take_while(|&(at, _)| at <= transaction.last_ns.saturating_add(PAUSE_NS));
            later.any(|(_, n)| changes(n) && self.is_of(&transaction.database, n.file, &n.told))
        };
        // What is read after its last write is not the transaction's any more.
        let within = changes(note) || transaction.journal || !transaction.over && goes_on();
        within.then_some(transaction.operation)
    }

    /// Before a call is taken in: transactions may be over, and one may begin with it.
    pub(crate) fn infer_begin(&mut self, header: &Header, record: &Syscall, cx: &mut Context<'_>) {
        let (tid, start_ns) = (header.tid, record.start_ns.min(header.time_ns));
        self.infer_ends(tid, cx, |t| t.over_by(start_ns));
        let Some(call) = Call::from_number(record.call).filter(|_| self.infers(header, record, cx)) else { return };
        let file = (record.dev, record.ino);
        let mut path = None;
        let class = match call {
            Call::Open => {
                path = self.inferred.makes_journal(tid, start_ns, file);
                if path.is_some() { FileClass::RollbackJournal } else { return }
            }
            _ if call.writes() => self.class_of(file),
            _ if call.reads() && u64::try_from(record.pos).is_ok_and(|p| reads_database_header(p, record.bytes)) => {
                return self.inferred.reads_header(file);
            }
            _ => return,
        };
        if !matches!(class, FileClass::RollbackJournal | FileClass::Wal | FileClass::Database) {
            return;
        }
        let known = || self.names.path(file).map(|path| database(path, class).to_string());
        let Some(path) = path.or_else(known) else { return };
        let wal = self.inferred.databases.get(&path).is_some_and(|wal| *wal);
        let checkpoint = class == FileClass::Database && wal;
        // In a WAL's mode the database itself is written by checkpoints only, which are no part of a commit.
        self.infer_ends(tid, cx, |t| t.database == path && (t.over || wal && !t.journal && t.bare != checkpoint));
        if self.inferred.of(tid, &path).is_none() {
            self.settle_marks(tid, start_ns, cx);
            // What the program itself told, or the user asked for, needs no guess.
            if self.threads.map.get(&tid).is_some_and(|t| t.tgid == header.tgid && t.told_operation().is_some()) {
                return;
            }
            let what = if checkpoint { "checkpoint of" } else { "write transaction on" };
            let name = format!("({what} {}, inferred from its files)", self.inferred.name(&path));
            let operation = self.open_frame(header, start_ns, (Kind::Inferred, 0, 0), name, cx);
            let bare = class == FileClass::Database;
            let (journal, frames, over) = (false, false, false);
            let database = path.clone();
            let last_ns = start_ns;
            let transaction = Transaction { operation, start_ns, database, last_ns, journal, frames, bare, over };
            self.inferred.open.entry(tid).or_default().push(transaction);
        }
        if let (FileClass::RollbackJournal, Some(transaction)) = (class, self.inferred.of(tid, &path)) {
            (transaction.journal, transaction.bare) = (true, false);
        }
    }

    /// After a call was taken in: a transaction may be over with it.
    pub(crate) fn infer_end(&mut self, header: &Header, record: &Syscall, cx: &mut Context<'_>) {
        if self.inferred.open.is_empty() {
            return;
        }
        let Some(call) = Call::from_number(record.call).filter(|_| self.infers(header, record, cx)) else { return };
        let (tid, file, end_ns) = (header.tid, (record.dev, record.ino), header.time_ns);
        let told = match call {
            _ if call.syncs() => Told::Synced,
            Call::Ftruncate | Call::Unlink => Told::Changed(false),
            _ if call.writes() => Told::Changed(record.pos == 0),
            Call::Open => Told::Opened,
            _ => return,
        };
        let class = self.class_of(file);
        // The journal that this call ended, if it did.
        let journal_ends = class == FileClass::RollbackJournal
            && match call {
                Call::Unlink => true,
                Call::Ftruncate => record.pos == 0,
                _ => call.writes() && record.pos == 0 && record.bytes == JOURNAL_HEADER,
            };
        if journal_ends && let Some(path) = self.names.path(file).map(|path| database_of(path).to_string()) {
            self.infer_elsewhere(header, &path, cx);
        }
        let Some(open) = self.inferred.open.get(&tid) else { return };
        let Some(path) = open.iter().find(|t| self.is_of(&t.database, file, &told)).map(|t| t.database.clone()) else {
            return;
        };
        let Some(transaction) = self.inferred.of(tid, &path) else { return };
        transaction.last_ns = transaction.last_ns.max(end_ns);
        if journal_ends {
            (transaction.journal, transaction.over) = (false, true);
        }
        transaction.frames |= class == FileClass::Wal && call.writes() && record.pos >= WAL_HEADER;
        let synced = told == Told::Synced
            && (transaction.over
                || class == FileClass::Wal && transaction.frames
                || class == FileClass::Database && transaction.bare);
        if synced {
            self.infer_ends(tid, cx, |t| t.database == path);
        }
    }

    /// This thread ended the journal of the database, or made a new one: what another one of the process had begun is over.
    fn infer_elsewhere(&mut self, header: &Header, path: &str, cx: &mut Context<'_>) {
        let has = |all: &[Transaction]| all.iter().any(|t| t.database == path && t.journal);
        let others = self.inferred.open.iter().filter(|(tid, all)| **tid != header.tid && has(all));
        let mut others: Vec<u32> = others.map(|(tid, _)| *tid).collect();
        others.retain(|tid| self.threads.map.get(tid).is_some_and(|t| t.tgid == header.tgid));
        others.sort_unstable();
        for tid in others {
            self.infer_ends(tid, cx, |t| t.database == path && t.journal);
        }
    }

    /// Ends those of a thread's transactions that are over, when they had their last write or sync.
    fn infer_ends(&mut self, tid: u32, cx: &mut Context<'_>, over: impl Fn(&Transaction) -> bool) {
        let Some(open) = self.inferred.open.get_mut(&tid) else { return };
        let mut ended: Vec<(u64, u64)> = Vec::new();
        open.retain(|t| {
            let over = over(t);
            if over {
                ended.push((t.operation, t.last_ns));
            }
            !over
        });
        if open.is_empty() {
            self.inferred.open.remove(&tid);
        }
        for (operation, end_ns) in ended {
            self.close_inferred(tid, operation, end_ns, cx);
        }
    }

    /// The thread's transaction is off the stack by other means. When it ended, if it did: one whose journal is there did not.
    pub(crate) fn forget_inferred(&mut self, tid: u32, operation: u64) -> Option<u64> {
        let open = self.inferred.open.get_mut(&tid)?;
        let at = open.iter().position(|t| t.operation == operation)?;
        let transaction = open.swap_remove(at);
        if open.is_empty() {
            self.inferred.open.remove(&tid);
        }
        (!transaction.journal).then_some(transaction.last_ns)
    }
}
