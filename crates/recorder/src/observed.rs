//! What the recorder learns from passing records: which processes still need a name, which databases and file systems the
//! recorded programs used, which PRAGMAs they set.

use crate::sqlite_version::SqliteUse;
use model::event::{BioQueue, File, Header, Join, OpBegin, Record, Syscall, Task, file_what, flags, op_kind};
use model::{Call, Dev};
use sqlite::{FileClass, parse_pragma};
use std::collections::{BTreeMap, HashSet};

/// The kinds of records that name files and processes.
const FILE_KIND: u8 = File::INFO.kind;
const TASK_KIND: u8 = Task::INFO.kind;
/// The kinds of records from processes that send something to the disk or to the file system's journal.
const BIO_QUEUE_KIND: u8 = BioQueue::INFO.kind;
const JOIN_KIND: u8 = Join::INFO.kind;
/// The kind of record with which an execution of a statement or a function begins.
const OP_BEGIN_KIND: u8 = OpBegin::INFO.kind;
/// The kind of a system call's record, and the offsets of three of its fields.
const SYSCALL_KIND: u8 = Syscall::INFO.kind;
const DEV_OFFSET: usize = syscall_offset("dev");
const CALL_OFFSET: usize = syscall_offset("call");
const CTX_OFFSET: usize = syscall_offset("ctx");

/// Returns the offset of a field in a system call's record, in bytes, header included.
pub const fn syscall_offset(name: &str) -> usize {
    let (mut at, mut i) = (Header::SIZE, 0);
    while i < Syscall::INFO.fields.len() {
        let field = &Syscall::INFO.fields[i];
        if bytes_are_equal(field.name.as_bytes(), name.as_bytes()) {
            return at;
        }
        at += field.size;
        i += 1;
    }
    panic!("a system call has no such field")
}

const fn bytes_are_equal(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// Maximum number of databases whose headers are read when the recording ends.
const DATABASES_MAX: usize = 64;

/// A database that a recorded program opened.
#[derive(Debug, Clone, Copy)]
pub struct OpenedDatabase {
    /// The process that opened it.
    pub tgid: u32,
    /// Inode; 0: only a companion file was opened.
    pub ino: u64,
}

/// What was learned so far.
#[derive(Debug, Default)]
pub struct Observations {
    /// Per file system: files of databases opened.
    opened: BTreeMap<u32, u64>,
    /// Per file system: calls by the requested processes that changed its files or waited for that, and other calls.
    used: BTreeMap<u32, (u64, u64)>,
    /// PRAGMAs set, by lower-case name, the last value of each.
    pub pragmas: BTreeMap<String, String>,
    /// Databases opened, by path as seen by a process.
    pub databases: BTreeMap<String, OpenedDatabase>,
    /// Which processes executed statements, with which code.
    pub sqlite: SqliteUse,
    /// Processes that sent something to the disk, and those that have a name.
    busy: HashSet<u32>,
    named: HashSet<u32>,
    /// The name of the requested processes, and whether one of that name was seen.
    wanted: Option<String>,
    pub found_wanted: bool,
}

impl Observations {
    /// Starts empty. `wanted`: the name of the requested processes, as stored by the kernel.
    pub fn new(wanted: Option<String>) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Records that a process executed a statement of this shape.
    pub fn statement(&mut self, tgid: u32, shape: &str) {
        self.sqlite.statement(tgid);
        if let Some((name, value)) = parse_pragma(shape) {
            self.pragmas.insert(name, value);
        }
    }

    /// Learns from any other record.
    pub fn record(&mut self, header: &Header, record: &[u8]) {
        match header.kind {
            FILE_KIND => self.file(header, record),
            TASK_KIND => self.task(header, record),
            OP_BEGIN_KIND if !self.sqlite.has_statements(header.tgid) => self.begin(header, record),
            BIO_QUEUE_KIND | JOIN_KIND => drop(self.busy.insert(header.tgid)),
            SYSCALL_KIND => self.call(record),
            _ => {}
        }
    }

    fn file(&mut self, header: &Header, record: &[u8]) {
        let Some(Record::File(file)) = model::Event::decode(record).map(|e| e.record) else { return };
        if file.what == file_what::CODE {
            self.sqlite.mapped(header.tgid, (Dev(file.dev), file.ino));
        }
        let class = sqlite::classify_path(&file.text);
        if class == FileClass::Other {
            return;
        }
        let database = sqlite::database_of(&file.text).to_string();
        if matches!(class, FileClass::Database | FileClass::RollbackJournal | FileClass::Wal)
            && (self.databases.len() < DATABASES_MAX || self.databases.contains_key(&database))
        {
            let ino = if class == FileClass::Database { file.ino } else { 0 };
            let known = self.databases.entry(database).or_insert(OpenedDatabase { tgid: header.tgid, ino });
            known.ino = if ino == 0 { known.ino } else { ino };
        }
        *self.opened.entry(file.dev).or_default() += 1;
    }

    /// Not decoded: there may be hundreds of thousands per second.
    fn call(&mut self, record: &[u8]) {
        let half = |at: usize| Some(u16::from_ne_bytes(record.get(at..at + 2)?.try_into().ok()?));
        let dev = record.get(DEV_OFFSET..DEV_OFFSET + 4).and_then(|b| Some(u32::from_ne_bytes(b.try_into().ok()?)));
        let (Some(dev), Some(call), Some(ctx)) = (dev.filter(|d| *d != 0), half(CALL_OFFSET), half(CTX_OFFSET)) else {
            return;
        };
        if ctx & flags::TRACKED != 0 {
            let sums = self.used.entry(dev).or_default();
            let changes = Call::from_number(call)
                .is_some_and(|call| !call.reads() && !matches!(call, Call::Lseek | Call::Open | Call::Mmap));
            *if changes { &mut sums.0 } else { &mut sums.1 } += 1;
        }
    }

    fn begin(&mut self, header: &Header, record: &[u8]) {
        if let Some(Record::OpBegin(begin)) = model::Event::decode(record).map(|e| e.record)
            && begin.kind == op_kind::STATEMENT
        {
            self.sqlite.statement(header.tgid);
        }
    }

    fn task(&mut self, header: &Header, record: &[u8]) {
        let Some(Record::Task(task)) = model::Event::decode(record).map(|e| e.record) else { return };
        self.found_wanted |= self.wanted.as_ref() == Some(&task.text);
        if header.tid == header.tgid && !task.text.is_empty() {
            self.named.insert(header.tgid);
        }
    }

    /// Returns the processes without a name that sent something to the disk.
    pub fn nameless(&self) -> impl Iterator<Item = u32> {
        self.busy.difference(&self.named).copied().filter(|tgid| *tgid != 0)
    }

    /// Returns the file systems that the requested processes used, the most important first: with most databases, then with
    /// most calls that changed files or waited for that, then with most other calls.
    pub fn file_systems(&self) -> Vec<Dev> {
        let databases = |dev: u32| self.opened.get(&dev).copied().unwrap_or(0);
        let mut all: Vec<u32> = self.opened.keys().chain(self.used.keys()).copied().collect();
        all.sort_unstable();
        all.dedup();
        all.sort_by_key(|dev| std::cmp::Reverse((databases(*dev), self.used.get(dev).copied().unwrap_or_default())));
        // If some were changed, those that were only read hold libraries and settings.
        let changed = |dev: u32| databases(dev) > 0 || self.used.get(&dev).is_some_and(|(changes, _)| *changes > 0);
        let any = all.iter().any(|dev| changed(*dev));
        all.into_iter().filter(|dev| !any || changed(*dev)).map(Dev).collect()
    }
}
