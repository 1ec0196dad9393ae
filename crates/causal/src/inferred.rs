//! Transactions that nobody tells of, inferred from SQLite's files.
//!
//! Picture a watchman who knows the shop's customs and sees only its back door: when the ledger is carried out, a sale has
//! begun, and when it is carried in again, it is over. Where a program's SQLite cannot be probed (its symbols are stripped),
//! its files still keep SQLite's customs (<https://sqlite.org/atomiccommit.html>, <https://sqlite.org/wal.html>):
//!
//! | mode | a write transaction begins | and ends |
//! |---|---|---|
//! | rollback journal | with the journal's creation, if it is then written from its start; else with its first write | when the journal is removed, truncated to nothing or its header zeroed, and synced if a sync follows |
//! | WAL | with its first write | with the sync after a frame |
//! | neither is written | with the first write to the database; if it has a WAL, that is a checkpoint | with the database's sync |
//!
//! What a thread does meanwhile is the transaction's, an operation like any other but with confidence `guess`: in every link
//! that leads down from it, and in every cause that names it. It is done only for processes of which no statement was
//! recorded ([`crate::Config::told`]), and not on a thread that is inside a mark or function of its own: what is told goes
//! before what is guessed.
//!
//! *Uncertainty*: names may lie. Reading transactions leave no trace in files. Commits that are not synced (WAL with
//! `synchronous=NORMAL`, any mode with `OFF`) cannot be told apart and look like one. The thread's time between its calls is
//! shown as `other`, since its sleeps there are not recorded.

use crate::Sink;
use crate::hash::FastMap;
use crate::linker::State;
use crate::pages::FileKey;
use crate::stack::Kind;
use model::event::{Header, Syscall, flags};
use model::files::{FileClass, database_of, reads_database_header};
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

/// A record that has arrived but whose turn is a horizon away.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Coming {
    /// The file that a call just opened; the database, if it is a rollback journal.
    Named(FileKey, Option<String>),
    Opened(FileKey),
    WrittenFromStart(FileKey),
    Synced(FileKey),
}

/// A file that a transaction waits for.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    file: FileKey,
    class: FileClass,
    /// Its next sync ends it: a frame was written to the WAL, or the journal's header is gone.
    last_sync: bool,
}

#[derive(Debug)]
struct Transaction {
    operation: u64,
    waiting: Vec<Waiting>,
}

/// What is known of threads that may be in a transaction.
#[derive(Default)]
pub(crate) struct Inferred {
    coming: BTreeMap<(u32, u64), Vec<Coming>>,
    open: FastMap<u32, Transaction>,
    /// Paths of databases that have a journal or WAL; `true`: a WAL.
    databases: BTreeMap<String, bool>,
    /// Files read as SQLite reads a database's header.
    read: BTreeSet<FileKey>,
    /// The path that a name without its folder stands for.
    names: BTreeMap<String, String>,
}

impl Inferred {
    pub(crate) fn len(&self) -> usize {
        self.coming.len() + self.open.len() + self.databases.len() + self.read.len() + self.names.len()
    }

    /// Notes what a record that has just arrived will tell, for the calls whose turn comes before its own.
    pub(crate) fn arrives(&mut self, told: Option<&BTreeSet<u32>>, event: &Event) {
        let h = &event.header;
        // The kind first: it costs less than the look-up, and most events are of others.
        if !matches!(event.record, Record::File(_) | Record::SyncBegin(_) | Record::Syscall(_))
            || told.is_none_or(|told| told.contains(&h.tgid))
        {
            return;
        }
        let (time_ns, coming) = match &event.record {
            Record::File(r) => {
                let class = model::files::class(&r.text);
                if let FileClass::RollbackJournal | FileClass::Wal = class {
                    self.remember(database_of(&r.text), class == FileClass::Wal);
                }
                if r.what != OPENED {
                    return;
                }
                let journal_of = (class == FileClass::RollbackJournal).then(|| database_of(&r.text).to_string());
                (h.time_ns, Coming::Named((r.dev, r.ino), journal_of))
            }
            Record::SyncBegin(r) => (h.time_ns, Coming::Synced((r.dev, r.ino))),
            Record::Syscall(r) if r.ctx & flags::TRACKED != 0 && r.result >= 0 => match Call::from_number(r.call) {
                Some(Call::Open) => (r.start_ns, Coming::Opened((r.dev, r.ino))),
                Some(call) if call.writes() && r.pos == 0 => (r.start_ns, Coming::WrittenFromStart((r.dev, r.ino))),
                _ => return,
            },
            _ => return,
        };
        self.coming.entry((h.tid, time_ns)).or_default().push(coming);
    }

    /// Forgets what is older than the events whose turn it is.
    pub(crate) fn prune(&mut self, now_ns: u64) {
        self.coming.retain(|&(_, time_ns), _| time_ns >= now_ns);
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
    fn after(&self, tid: u32, time_ns: u64) -> impl Iterator<Item = &Coming> {
        self.coming.range((tid, time_ns)..=(tid, u64::MAX)).flat_map(|(_, all)| all)
    }

    /// If the file that a call opens at `start_ns` is a rollback journal that the thread then writes from its start: the
    /// database that it is of.
    fn makes_journal(&self, tid: u32, start_ns: u64, file: FileKey) -> Option<String> {
        let mut database = None;
        for coming in self.after(tid, start_ns.saturating_add(1)) {
            match coming {
                Coming::Named(f, journal_of) if *f == file && database.is_none() => {
                    database = Some(journal_of.as_ref()?);
                }
                Coming::WrittenFromStart(f) if *f == file => return database.cloned(),
                Coming::Opened(f) if *f == file => return None,
                _ => {}
            }
        }
        None
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

    fn infers(&self, header: &Header, record: &Syscall) -> bool {
        self.config.told.as_ref().is_some_and(|told| !told.contains(&header.tgid))
            && record.ctx & flags::TRACKED != 0
            && record.ino != 0
            && record.result >= 0
    }

    /// Before a call is taken in: a transaction may begin with it.
    pub(crate) fn infer_begin(&mut self, header: &Header, record: &Syscall, sink: &mut dyn Sink) {
        let Some(call) = Call::from_number(record.call).filter(|_| self.infers(header, record)) else { return };
        let file = (record.dev, record.ino);
        let (tid, start_ns) = (header.tid, record.start_ns.min(header.time_ns));
        let mut database = None;
        let class = match call {
            Call::Open => {
                database = self.inferred.makes_journal(tid, start_ns, file);
                if database.is_some() { FileClass::RollbackJournal } else { return }
            }
            _ if call.writes() => self.class_of(file),
            _ if call.reads() && u64::try_from(record.pos).is_ok_and(|p| reads_database_header(p, record.bytes)) => {
                return self.inferred.reads_header(file);
            }
            _ => return,
        };
        let waits_for = match class {
            FileClass::RollbackJournal | FileClass::Wal => true,
            FileClass::Database => !self.inferred.open.contains_key(&tid),
            _ => false,
        };
        if !waits_for {
            return;
        }
        if !self.inferred.open.contains_key(&tid) {
            self.settle_marks(tid, start_ns, sink);
            // What the program itself told, or the user asked for, needs no guess.
            if self.threads.map.get(&tid).is_some_and(|t| t.tgid == header.tgid && t.operation(0).is_some()) {
                return;
            }
            let known = || self.names.path(file).map(|path| database_of(path).to_string());
            let Some(database) = database.or_else(known) else { return };
            let name = self.inferred.name(&database);
            let checkpoint =
                class == FileClass::Database && self.inferred.databases.get(&database).is_some_and(|wal| *wal);
            let what = if checkpoint { "checkpoint of" } else { "write transaction on" };
            let name = format!("({what} {name}, inferred from its files)");
            let operation = self.open_frame(header, start_ns, (Kind::Inferred, 0, 0), name, sink);
            self.inferred.open.insert(tid, Transaction { operation, waiting: Vec::new() });
        }
        let Some(transaction) = self.inferred.open.get_mut(&tid) else { return };
        if !transaction.waiting.iter().any(|w| w.file == file) {
            transaction.waiting.push(Waiting { file, class, last_sync: class == FileClass::Database });
        }
    }

    /// After a call was taken in: a transaction may be over with it.
    pub(crate) fn infer_end(&mut self, header: &Header, record: &Syscall, sink: &mut dyn Sink) {
        let Some(call) = Call::from_number(record.call).filter(|_| self.infers(header, record)) else { return };
        let (tid, file, end_ns) = (header.tid, (record.dev, record.ino), header.time_ns);
        let sync_follows = self.inferred.after(tid, end_ns).next() == Some(&Coming::Synced(file));
        let Some(transaction) = self.inferred.open.get_mut(&tid) else { return };
        let Some(at) = transaction.waiting.iter().position(|w| w.file == file) else { return };
        let waiting = &mut transaction.waiting[at];
        let over = match (waiting.class, call) {
            (FileClass::RollbackJournal, Call::Unlink) => true,
            (FileClass::RollbackJournal, Call::Ftruncate) if record.pos == 0 => {
                waiting.last_sync = true;
                !sync_follows
            }
            (FileClass::RollbackJournal, _) if call.writes() => {
                waiting.last_sync = record.pos == 0 && record.bytes == JOURNAL_HEADER;
                waiting.last_sync && !sync_follows
            }
            (FileClass::Wal, _) if call.writes() => {
                waiting.last_sync |= record.pos >= WAL_HEADER;
                false
            }
            (_, Call::Fsync | Call::Fdatasync) => waiting.last_sync,
            _ => false,
        };
        if over {
            transaction.waiting.remove(at);
        }
        if transaction.waiting.is_empty() {
            let operation = transaction.operation;
            self.inferred.open.remove(&tid);
            self.close_inferred(tid, operation, end_ns, sink);
        }
    }

    /// The thread's transaction is off the stack by other means.
    pub(crate) fn forget_inferred(&mut self, tid: u32, operation: u64) {
        if self.inferred.open.get(&tid).is_some_and(|t| t.operation == operation) {
            self.inferred.open.remove(&tid);
        }
    }
}
