//! What the recorder does with each record before it is stored: take the literals out of SQL, notice what must be
//! answered at once, and count.

use super::behind::Behind;
use super::library::Ran;
use archive::{Error, LogWriter};
use model::event::{ANY_CPU, BioQueue, File, Header, Join, Loss, OpBegin, Record, Statement, Syscall, Task, flags};
use model::{Call, Dev};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// The record's kind that carries SQL.
const STATEMENT: u8 = Statement::INFO.kind;
/// The one that gives a file its name.
const FILE: u8 = File::INFO.kind;
/// Those of whoever sends something to the disk or to the file system's journal.
const QUEUE: u8 = BioQueue::INFO.kind;
const JOIN: u8 = Join::INFO.kind;
/// The one that an execution begins with, of a statement or a function.
const BEGIN: u8 = OpBegin::INFO.kind;
/// That of a system call, and where in it three of its fields stand.
const CALL: u8 = Syscall::INFO.kind;
const CALL_DEV: usize = place("dev");
const CALL_CALL: usize = place("call");
const CALL_CTX: usize = place("ctx");

/// Where a field of a system call's record begins, in bytes, header included.
const fn place(name: &str) -> usize {
    let (mut at, mut i) = (Header::SIZE, 0);
    while i < Syscall::INFO.fields.len() {
        let field = &Syscall::INFO.fields[i];
        if equal(field.name.as_bytes(), name.as_bytes()) {
            return at;
        }
        at += field.size;
        i += 1;
    }
    panic!("a system call has no such field")
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// What a file's record says of one that was mapped as code.
const CODE: u16 = 1;
/// The one that gives a process its name.
const TASK: u8 = Task::INFO.kind;
/// The one that tells of what is missing.
const LOSS: u8 = Loss::INFO.kind;

/// The log and what stands before it.
pub struct Log {
    writer: Option<Behind>,
    keep_sql: bool,
    /// The window: outside it not every probe was in force.
    from_ns: u64,
    to_ns: u64,
    /// Records taken; once it is finished, those stored.
    pub records: u64,
    /// Records of before and after the window, which are not stored.
    pub outside: u64,
    /// Records lost before and after the window, of which the log says nothing.
    pub lost_outside: u64,
    /// Why the log takes no more: the disk or the limit is full. Known once it is finished.
    pub full: Option<String>,
    /// When it became full, by the first record that found no room.
    pub full_since_ns: u64,
    /// Per file system: files of databases opened.
    opened: BTreeMap<u32, u64>,
    /// Per file system: calls of what was asked for that changed its files or waited for that, and others.
    used: BTreeMap<u32, (u64, u64)>,
    /// PRAGMAs set, the last value of each.
    pragmas: BTreeMap<String, String>,
    /// Databases opened: path as a process saw it, its inode if the database itself was opened, and that process.
    databases: BTreeMap<String, Opened>,
    /// Who executed statements, with which code.
    ran: Ran,
    /// Processes that sent something to the disk, and those that have a name.
    busy: HashSet<u32>,
    named: HashSet<u32>,
    /// Names of tasks wanted by --comm that were seen.
    wanted: Option<String>,
    /// Whether a task of that name was seen.
    pub found_wanted: bool,
}

/// A database that a recorded program opened.
#[derive(Debug, Clone, Copy)]
pub struct Opened {
    /// The process that did.
    pub tgid: u32,
    /// Inode; 0: only a file beside it was opened.
    pub ino: u64,
}

/// Databases whose headers are read when the recording ends.
const DATABASES: usize = 64;

impl Log {
    /// A log in the archive at `dir`. `wanted`: the name of the processes that were asked for, as the kernel keeps it.
    pub fn create(dir: &Path, max_bytes: Option<u64>, keep_sql: bool, wanted: Option<String>) -> Result<Self, Error> {
        let writer = Some(Behind::new(LogWriter::create(dir, max_bytes)?));
        Ok(Self {
            writer,
            keep_sql,
            from_ns: 0,
            to_ns: u64::MAX,
            records: 0,
            outside: 0,
            lost_outside: 0,
            full: None,
            full_since_ns: 0,
            opened: BTreeMap::new(),
            used: BTreeMap::new(),
            pragmas: BTreeMap::new(),
            databases: BTreeMap::new(),
            ran: Ran::default(),
            busy: HashSet::new(),
            named: HashSet::new(),
            wanted,
            found_wanted: false,
        })
    }

    /// The window begins: all probes are in force.
    pub fn begins_at(&mut self, ns: u64) {
        self.from_ns = ns;
    }

    /// The window ends: probes are about to be taken off.
    pub fn ends_at(&mut self, ns: u64) {
        self.to_ns = ns;
    }

    /// Stores one record as the kernel made it, if it is of the window. What user space made (names, losses) is stored always.
    pub fn put(&mut self, record: &[u8]) {
        let Some(header) = Header::decode(record) else { return };
        let kind = header.kind;
        if kind == LOSS {
            return self.put_loss(record);
        }
        // What gives a name is told once, maybe before the window.
        let names = [STATEMENT, FILE, TASK].contains(&kind) || header.cpu == ANY_CPU;
        if !names && !(self.from_ns..=self.to_ns).contains(&header.time_ns) {
            self.outside += 1;
            return;
        }
        if kind == STATEMENT {
            self.ran.statement(header.tgid);
            self.put_statement(record);
        } else {
            match kind {
                FILE => self.notice_file(record),
                TASK => self.notice_task(&header, record),
                BEGIN if !self.ran.has_told(header.tgid) => self.notice_begin(&header, record),
                QUEUE | JOIN => drop(self.busy.insert(header.tgid)),
                CALL => self.notice_call(record),
                _ => {}
            }
            self.append(record);
        }
    }

    /// A loss is of an interval and is noticed at its end, which may be after the window: the last look always is.
    fn put_loss(&mut self, record: &[u8]) {
        let Some(mut event) = model::Event::decode(record) else { return };
        let Record::Loss(loss) = &mut event.record else { return };
        let (start_ns, end_ns) = (loss.start_ns.min(event.header.time_ns), event.header.time_ns);
        if start_ns > self.to_ns || end_ns < self.from_ns {
            self.lost_outside += loss.events;
            return;
        }
        loss.start_ns = start_ns.max(self.from_ns);
        event.header.time_ns = end_ns.min(self.to_ns);
        self.put_event(&event);
    }

    /// PRAGMAs that the recorded programs set, by lower-case name.
    pub fn pragmas(&self) -> &BTreeMap<String, String> {
        &self.pragmas
    }

    /// A text of a traced program may hold what its user would not want stored, so it goes no further as it is.
    fn put_statement(&mut self, record: &[u8]) {
        let Some(mut event) = model::Event::decode(record) else { return };
        if let Record::Statement(statement) = &mut event.record {
            let shape = analysis::sql::normalise(&statement.text);
            if let Some((name, value)) = pragma(&shape) {
                self.pragmas.insert(name, value);
            }
            if !self.keep_sql {
                statement.text = shape;
            }
        }
        self.put_event(&event);
    }

    fn notice_file(&mut self, record: &[u8]) {
        let Some(Record::File(file)) = model::Event::decode(record).map(|e| e.record) else { return };
        use analysis::files::FileClass as Class;
        if let Some(header) = Header::decode(record).filter(|_| file.what == CODE) {
            self.ran.mapped(header.tgid, (Dev(file.dev), file.ino));
        }
        let class = analysis::files::class(&file.text);
        let Some(header) = Header::decode(record).filter(|_| class != Class::Other) else { return };
        let database = analysis::files::database_of(&file.text).to_string();
        if matches!(class, Class::Database | Class::RollbackJournal | Class::Wal)
            && (self.databases.len() < DATABASES || self.databases.contains_key(&database))
        {
            let ino = if class == Class::Database { file.ino } else { 0 };
            let known = self.databases.entry(database).or_insert(Opened { tgid: header.tgid, ino });
            known.ino = if ino == 0 { known.ino } else { ino };
        }
        *self.opened.entry(file.dev).or_default() += 1;
    }

    /// Not decoded: there may be hundreds of thousands a second.
    fn notice_call(&mut self, record: &[u8]) {
        let half = |at: usize| Some(u16::from_ne_bytes(record.get(at..at + 2)?.try_into().ok()?));
        let dev = record.get(CALL_DEV..CALL_DEV + 4).and_then(|b| Some(u32::from_ne_bytes(b.try_into().ok()?)));
        let (Some(dev), Some(call), Some(ctx)) = (dev.filter(|d| *d != 0), half(CALL_CALL), half(CALL_CTX)) else {
            return;
        };
        if ctx & flags::TRACKED != 0 {
            let sums = self.used.entry(dev).or_default();
            let changes = !matches!(
                Call::from_number(call),
                None | Some(
                    Call::Read | Call::Pread64 | Call::Readv | Call::Preadv | Call::Lseek | Call::Open | Call::Mmap
                )
            );
            *if changes { &mut sums.0 } else { &mut sums.1 } += 1;
        }
    }

    fn notice_begin(&mut self, header: &Header, record: &[u8]) {
        if let Some(Record::OpBegin(begin)) = model::Event::decode(record).map(|e| e.record)
            && begin.kind == 0
        {
            self.ran.statement(header.tgid);
        }
    }

    fn notice_task(&mut self, header: &Header, record: &[u8]) {
        let Some(Record::Task(task)) = model::Event::decode(record).map(|e| e.record) else { return };
        self.found_wanted |= self.wanted.as_ref() == Some(&task.text);
        if header.tid == header.tgid && !task.text.is_empty() {
            self.named.insert(header.tgid);
        }
    }

    /// Processes that sent something to the disk under no name.
    pub fn nameless(&self) -> impl Iterator<Item = u32> {
        self.busy.difference(&self.named).copied().filter(|tgid| *tgid != 0)
    }

    /// Who executed statements, and with which code; those that still live are asked.
    pub fn ran(&mut self) -> &Ran {
        self.ran.ask_the_living();
        &self.ran
    }

    /// Databases that recorded programs opened, by their paths.
    pub fn databases(&self) -> &BTreeMap<String, Opened> {
        &self.databases
    }

    /// File systems that what was asked for used, those first that the facts should tell of: with most databases, then with most
    /// calls that changed files or waited for that, then with most other calls.
    pub fn file_systems(&self) -> Vec<Dev> {
        let databases = |dev: u32| self.opened.get(&dev).copied().unwrap_or(0);
        let mut all: Vec<u32> = self.opened.keys().chain(self.used.keys()).copied().collect();
        all.sort_unstable();
        all.dedup();
        all.sort_by_key(|dev| std::cmp::Reverse((databases(*dev), self.used.get(dev).copied().unwrap_or_default())));
        // What was only read beside what was changed is libraries and settings.
        let changed = |dev: u32| databases(dev) > 0 || self.used.get(&dev).is_some_and(|(changes, _)| *changes > 0);
        let any = all.iter().any(|dev| changed(*dev));
        all.into_iter().filter(|dev| !any || changed(*dev)).map(Dev).collect()
    }

    /// Stores an event that the recorder itself made.
    pub fn put_event(&mut self, event: &model::Event) {
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        self.append(&bytes);
    }

    fn append(&mut self, record: &[u8]) {
        if let Some(writer) = &mut self.writer {
            writer.append(record);
            self.records += 1;
        }
    }

    /// Has written what is buffered, so that a crash loses no more than what came since.
    pub fn sync(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.hand_on();
        }
    }

    /// Whether nothing more can be stored.
    pub fn ended(&self) -> bool {
        self.writer.as_ref().is_none_or(Behind::ended)
    }

    /// Ends the log; returns how many records found no room in it.
    pub fn finish(&mut self) -> Result<u64, Error> {
        let Some(writer) = self.writer.take() else { return Ok(0) };
        let written = writer.finish()?;
        (self.full, self.full_since_ns) = (written.full, written.full_since_ns);
        self.records = written.records;
        Ok(written.refused)
    }
}

/// Name and value of `PRAGMA name = value`; values that are private are `?` by now.
fn pragma(shape: &str) -> Option<(String, String)> {
    let rest = shape.get(..7).filter(|w| w.eq_ignore_ascii_case("pragma ")).map(|_| &shape[7..])?;
    let (name, value) = rest.split_once('=').or_else(|| rest.strip_suffix(')')?.split_once('('))?;
    let value = value.trim().trim_end_matches(';').trim();
    let quotes = |q: char| Some(value.strip_prefix(q)?.strip_suffix(q)?.trim());
    let value = ['\'', '"', '`'].into_iter().find_map(quotes).unwrap_or(value);
    (value != "?").then(|| (name.trim().to_ascii_lowercase(), value.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::{Log, pragma};
    use archive::LogReader;
    use model::event::{ANY_CPU, FsWrite, Header, Loss};
    use model::{Event, Record};

    /// The last look at the counters is after the window, but tells of what was lost within.
    #[test]
    fn a_loss_is_stored_as_far_as_it_lies_in_the_window() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(dir.path(), None, false, None).unwrap();
        log.begins_at(100);
        log.ends_at(200);
        let put = |log: &mut Log, time_ns: u64, cpu: u16, record: Record| {
            let mut bytes = Vec::new();
            Event { header: Header { time_ns, cpu, kind: record.kind(), ..Header::default() }, record }
                .encode(&mut bytes);
            log.put(&bytes);
        };
        let of = |start_ns: u64, events: u64| Loss { start_ns, events, ..Loss::default() }.into();
        put(&mut log, 90, 1, of(50, 1));
        put(&mut log, 110, 1, of(90, 2));
        put(&mut log, 150, ANY_CPU, of(120, 4));
        put(&mut log, 230, 0, of(190, 8));
        put(&mut log, 210, 0, FsWrite::default().into());
        put(&mut log, 260, ANY_CPU, of(230, 16));
        log.finish().unwrap();
        let mut reader = LogReader::open(dir.path()).unwrap();
        let stored: Vec<_> = std::iter::from_fn(|| reader.next_event())
            .map(|event| match event.record {
                Record::Loss(loss) => (loss.start_ns, event.header.time_ns, loss.events),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(stored, [(100, 110, 2), (120, 150, 4), (190, 200, 8)]);
        assert_eq!((log.outside, log.lost_outside), (1, 17));
    }

    #[test]
    fn only_a_pragma_that_sets_something_is_one() {
        assert_eq!(pragma("PRAGMA journal_mode = WAL"), Some(("journal_mode".into(), "wal".into())));
        assert_eq!(pragma("pragma synchronous(off)"), Some(("synchronous".into(), "off".into())));
        assert_eq!(pragma("PRAGMA page_size = '4096';"), Some(("page_size".into(), "4096".into())));
        assert_eq!(pragma("PRAGMA synchronous(\"FULL\")"), Some(("synchronous".into(), "full".into())));
        assert_eq!(pragma("PRAGMA journal_mode"), None);
        assert_eq!(pragma("PRAGMA key = ?"), None);
        assert_eq!(pragma("SELECT a = b"), None);
    }
}
