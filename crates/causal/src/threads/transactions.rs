//! Opens and closes transactions on their threads' stacks, as `inferred` recognises them from SQLite's files.

use super::Threads;
use super::stack::Kind;
use crate::Config;
use crate::context::Context;
use crate::inferred::{Evidence, Transaction, in_statement};
use crate::objects::Objects;
use model::Call;
use model::event::{Header, Syscall, flags};
use sqlite::{FileClass, JOURNAL_HEADER_BYTES, WAL_HEADER_BYTES, database_in, database_of, reads_database_header};

/// Whether a call of this process may belong to such a transaction.
fn may_infer(header: &Header, record: &Syscall, config: &Config) -> bool {
    config.with_statements.as_ref().is_some_and(|tgids| !in_statement(record.ctx) || !tgids.contains(&header.tgid))
        && record.ctx & flags::TRACKED != 0
        && record.ino != 0
        && record.result >= 0
}

impl Threads {
    /// Runs before a call is processed: transactions may have ended, and one may begin with it.
    pub(crate) fn infer_begin(
        &mut self,
        header: &Header,
        record: &Syscall,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        let (tid, start_ns) = (header.tid, record.start_ns.min(header.time_ns));
        self.infer_ends(tid, objects, cx, |t| t.over_by(start_ns));
        let Some(call) = Call::from_number(record.call).filter(|_| may_infer(header, record, cx.config)) else {
            return;
        };
        let file = (record.dev, record.ino);
        let mut path = None;
        let class = match call {
            Call::Open => {
                path = self.inferred.makes_journal(tid, start_ns, file);
                if path.is_some() { FileClass::RollbackJournal } else { return }
            }
            _ if call.writes() => self.inferred.class_of(file, &objects.names),
            _ if call.reads() && u64::try_from(record.pos).is_ok_and(|p| reads_database_header(p, record.bytes)) => {
                return self.inferred.reads_header(file);
            }
            _ => return,
        };
        if !matches!(class, FileClass::RollbackJournal | FileClass::Wal | FileClass::Database) {
            return;
        }
        let known = || objects.names.path(file).map(|path| database_in(path, class).to_string());
        let Some(path) = path.or_else(known) else { return };
        let wal = self.inferred.has_wal(&path);
        let checkpoint = class == FileClass::Database && wal;
        // In WAL mode only checkpoints write the database itself, and they are not part of a commit.
        self.infer_ends(tid, objects, cx, |t| {
            t.database == path && (t.over || wal && !t.journal && t.bare != checkpoint)
        });
        if self.inferred.transaction_of(tid, &path).is_none() {
            self.settle_marks(tid, start_ns, objects, cx);
            // Recorded operations, including those that the user requested, need no guess.
            if self.get(tid).is_some_and(|t| t.tgid == header.tgid && t.recorded_operation().is_some()) {
                return;
            }
            let what = if checkpoint { "checkpoint of" } else { "write transaction on" };
            let name = format!("({what} {}, inferred from its files)", self.inferred.name(&path));
            let operation = self.open_frame(header, start_ns, (Kind::Inferred, 0, 0), name, objects, cx);
            let bare = class == FileClass::Database;
            let (journal, frames, over) = (false, false, false);
            let database = path.clone();
            let last_ns = start_ns;
            let transaction = Transaction { operation, start_ns, database, last_ns, journal, frames, bare, over };
            self.inferred.begin(tid, transaction);
        }
        if let (FileClass::RollbackJournal, Some(transaction)) = (class, self.inferred.transaction_of(tid, &path)) {
            (transaction.journal, transaction.bare) = (true, false);
        }
    }

    /// Runs after a call was processed: a transaction may have ended with it.
    pub(crate) fn infer_end(&mut self, header: &Header, record: &Syscall, objects: &mut Objects, cx: &mut Context<'_>) {
        if self.inferred.is_idle() {
            return;
        }
        let Some(call) = Call::from_number(record.call).filter(|_| may_infer(header, record, cx.config)) else {
            return;
        };
        let (tid, file, end_ns) = (header.tid, (record.dev, record.ino), header.time_ns);
        let evidence = match call {
            _ if call.syncs() => Evidence::Synced,
            Call::Ftruncate | Call::Unlink => Evidence::Changed(false),
            _ if call.writes() => Evidence::Changed(record.pos == 0),
            Call::Open => Evidence::Opened,
            _ => return,
        };
        let class = self.inferred.class_of(file, &objects.names);
        // Whether this call ended a journal.
        let journal_ends = class == FileClass::RollbackJournal
            && match call {
                Call::Unlink => true,
                Call::Ftruncate => record.pos == 0,
                _ => call.writes() && record.pos == 0 && record.bytes == JOURNAL_HEADER_BYTES,
            };
        if journal_ends && let Some(path) = objects.names.path(file).map(|path| database_of(path).to_string()) {
            self.infer_elsewhere(header, &path, objects, cx);
        }
        let Some(path) = self.inferred.database_at(tid, file, &evidence, &objects.names) else { return };
        let Some(transaction) = self.inferred.transaction_of(tid, &path) else { return };
        // To look for a hot journal is not part of the transaction that removed the last one.
        if transaction.over && evidence == Evidence::Opened {
            return;
        }
        transaction.last_ns = transaction.last_ns.max(end_ns);
        if journal_ends {
            (transaction.journal, transaction.over) = (false, true);
        }
        transaction.frames |= class == FileClass::Wal && call.writes() && record.pos >= WAL_HEADER_BYTES as i64;
        let synced = evidence == Evidence::Synced
            && (transaction.over
                || class == FileClass::Wal && transaction.frames
                || class == FileClass::Database && transaction.bare);
        if synced {
            self.infer_ends(tid, objects, cx, |t| t.database == path);
        }
    }

    /// Handles a thread that ended the journal of the database, or created a new one: what another thread of the process
    /// had begun is over.
    fn infer_elsewhere(&mut self, header: &Header, path: &str, objects: &mut Objects, cx: &mut Context<'_>) {
        for tid in self.inferred.other_threads(header.tid, path) {
            if self.get(tid).is_none_or(|t| t.tgid != header.tgid) {
                continue;
            }
            self.infer_ends(tid, objects, cx, |t| t.database == path && t.journal);
        }
    }

    /// Ends those of a thread's transactions that are over, at their last write or sync.
    fn infer_ends(
        &mut self,
        tid: u32,
        objects: &mut Objects,
        cx: &mut Context<'_>,
        over: impl Fn(&Transaction) -> bool,
    ) {
        for (operation, end_ns) in self.inferred.end_transactions(tid, over) {
            self.end_inferred(tid, operation, end_ns, objects, cx);
        }
    }
}
