//! Translates ftrace events to those of the eBPF backend ([`model::event`]).
//!
//! From there on everything is the same: the log, the linker, the tables. But two things are missing from an ftrace
//! event: the addresses of the kernel's objects, and what else a thread was doing. The first is found by location
//! ([`block`], [`extents`]), the second by the events of the same thread just before ([`calls`], [`operations`]). The
//! linker takes this into account (`causal::Config::by_place`), and calls the one kind of link `address` and the other
//! `interval`; none is `exact`.
//!
//! A trace is read twice; the first pass only learns ([`Translator::first_pass`]).
//!
//! | file | what |
//! |---|---|
//! | `tasks` | the identity of a thread |
//! | `calls` | system calls, and the file of a descriptor |
//! | `operations` | SQLite's statements, and marks |
//! | `extents` | the location of a file's blocks |
//! | `block` | bios, requests and flushes |
//! | `disks` | translation of block events |
//! | `driver` | commands that drivers send to their devices |
//! | `threads` | translation of threads' events |

mod block;
mod calls;
mod disks;
mod driver;
mod extents;
mod operations;
mod tasks;
mod threads;

use super::calls::Machine;
use super::decoder::{DecodedEvent, Kind};
use super::merge::TraceItem;
use block::Block;
use calls::{Call, DescriptorCall, Descriptors, FirstPassFacts};
use driver::Drivers;
use extents::{Extents, File};
use model::event::{ANY_CPU, Header, Loss, flags, header_flags};
use model::{Event, LossSource, Record};
use operations::Operations;
pub use operations::UnusedText;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use tasks::Tasks;

/// Context that is not in the trace.
#[derive(Debug, Clone)]
pub struct TraceContext {
    /// The architecture of the system call numbers.
    pub machine: Machine,
    /// Threads and their names.
    pub names: Vec<(u32, String)>,
    /// Threads that existed when the trace began, and their processes; 0: the kernel's.
    pub tasks: Vec<(u32, u32)>,
    /// Threads whose process is known, if it is not known of all.
    pub members: Vec<(u32, u32)>,
    /// Partitions and their disks.
    pub partitions: Vec<(u32, u32)>,
    /// Descriptors seen open: time, process, number, file, path.
    pub open: Vec<OpenDescriptor>,
    /// The recording process, if it is known.
    pub tracer: Option<u32>,
    /// Threads that mark intervals elsewhere than in the trace.
    pub marking: Vec<u32>,
}

impl TraceContext {
    /// Of a trace of which nothing else is known.
    pub fn for_machine(machine: Machine) -> Self {
        Self {
            machine,
            names: Vec::new(),
            tasks: Vec::new(),
            members: Vec::new(),
            partitions: Vec::new(),
            open: Vec::new(),
            tracer: None,
            marking: Vec::new(),
        }
    }
}

/// A descriptor that was seen open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDescriptor {
    /// When.
    pub time_ns: u64,
    /// Process.
    pub tgid: u32,
    /// Number.
    pub fd: i32,
    /// File system.
    pub dev: u32,
    /// Inode.
    pub ino: u64,
    pub path: String,
}

/// The current state of a thread.
#[derive(Debug, Default)]
struct Thread {
    call: Option<Call>,
    odd: Option<DescriptorCall>,
    /// The path that the C library's `open` was last given.
    path: String,
    /// The file whose pages it writes back.
    writes_back: Option<File>,
    commits: Option<(u32, u32)>,
    /// Pages added to the cache and not read yet: file, first page, number of pages.
    added: VecDeque<(File, u64, u64)>,
    /// A bio that is about to be remapped to another disk: disk and sector there, the bio, disk and sector here.
    clone: Option<(u32, u64, u64, u32, u64)>,
    /// Off the CPU: since when, in which state, when and by which thread it was woken.
    away: Option<(u64, u16, u64, u32)>,
    /// When it was last woken while it was not known to be off the CPU.
    woken_ns: Option<u64>,
}

/// Translates one trace to events.
#[derive(Debug)]
pub struct Translator {
    machine: Machine,
    tracer: Option<u32>,
    tasks: Tasks,
    named: HashSet<u32>,
    executed: BTreeSet<String>,
    threads: HashMap<u32, Thread>,
    descriptors: Descriptors,
    known: FirstPassFacts,
    learns: bool,
    extents: Extents,
    block: Block,
    drivers: Drivers,
    operations: Operations,
    open: VecDeque<OpenDescriptor>,
    /// Descriptors whose file is not learnt yet: the call that opened each one.
    pending_opens: HashMap<(u32, i32, u32), (u32, u64)>,
    /// Pages written and not submitted yet.
    dirty: HashMap<File, BTreeSet<u64>>,
    /// Transactions whose metadata was reported already.
    logged: HashSet<(u32, u32)>,
    seq: HashMap<u16, u32>,
    out: Vec<Event>,
    /// Events that lack a field without which they say nothing, by kind.
    unread: BTreeMap<Kind, u64>,
    first_ns: Option<u64>,
    last_ns: u64,
}

impl Translator {
    /// Creates the translator for the first pass.
    pub fn first_pass(trace_context: &TraceContext) -> Self {
        Self::new(trace_context, FirstPassFacts::default(), true)
    }

    /// Creates the translator for the second pass, with what the first one learnt.
    #[must_use]
    pub fn second_pass(self, trace_context: &TraceContext) -> Self {
        let mut partitions = trace_context.clone();
        partitions.partitions = self.block.partitions().collect();
        Self::new(&partitions, self.known, false)
    }

    fn new(trace_context: &TraceContext, mut known: FirstPassFacts, learns: bool) -> Self {
        let mut tasks = Tasks::default();
        trace_context.names.iter().for_each(|(tid, name)| tasks.set_name(*tid, name));
        trace_context.tasks.iter().for_each(|(tid, tgid)| tasks.add_existing(*tid, *tgid));
        trace_context.members.iter().for_each(|(tid, tgid)| tasks.set_process(*tid, *tgid));
        known.callers.iter().for_each(|tid| tasks.on_call(*tid));
        known.sleepers.extend(&trace_context.marking);
        let mut block = Block::default();
        trace_context.partitions.iter().for_each(|(partition, disk)| block.add_partition(*partition, *disk));
        let mut open = trace_context.open.clone();
        open.sort_by_key(|o| o.time_ns);
        Self {
            machine: trace_context.machine,
            tracer: trace_context.tracer,
            tasks,
            named: HashSet::new(),
            executed: BTreeSet::new(),
            threads: HashMap::new(),
            descriptors: Descriptors::default(),
            known,
            learns,
            extents: Extents::default(),
            block,
            drivers: Drivers::default(),
            operations: Operations::default(),
            open: open.into(),
            pending_opens: HashMap::new(),
            dirty: HashMap::new(),
            logged: HashSet::new(),
            seq: HashMap::new(),
            out: Vec::new(),
            unread: BTreeMap::new(),
            first_ns: None,
            last_ns: 0,
        }
    }

    /// When the first and the last event happened, in ns.
    pub fn window_ns(&self) -> (u64, u64) {
        (self.first_ns.unwrap_or(0), self.last_ns)
    }

    /// Files that recorded processes executed, as they named them.
    pub fn executed(&self) -> BTreeSet<String> {
        self.executed.clone()
    }

    /// Partitions and their disks, as far as they are known from the trace or the recorder.
    pub fn partitions(&self) -> Vec<(u32, u32)> {
        let mut all: Vec<(u32, u32)> = self.block.partitions().collect();
        all.sort_unstable();
        all
    }

    /// The events translated since the last call.
    pub fn events(&mut self) -> std::vec::Drain<'_, Event> {
        self.out.drain(..)
    }

    /// Takes the next event of the trace.
    pub fn take(&mut self, next: &TraceItem) {
        match next {
            TraceItem::Missed(cpu, missed) => {
                let record = Loss {
                    start_ns: missed.since,
                    events: missed.events.unwrap_or(1),
                    bound: u16::from(missed.events.is_none()),
                    source: LossSource::Ring.number(),
                    ..Loss::default()
                };
                self.forget_open_calls();
                self.put(Header { time_ns: missed.until, cpu: *cpu, ..Header::default() }, record);
            }
            TraceItem::DecodedEvent(seen) => {
                self.first_ns.get_or_insert(seen.time_ns);
                self.last_ns = self.last_ns.max(seen.time_ns);
                self.note_open(seen.time_ns);
                if seen.is_whole() {
                    self.dispatch(seen);
                } else {
                    *self.unread.entry(seen.kind).or_default() += 1;
                }
            }
        }
        if self.learns {
            self.out.clear();
        }
    }

    /// Records `events` more lost events of a CPU, at an unknown time.
    pub fn lost(&mut self, cpu: u16, events: u64) {
        let (start_ns, time_ns) = self.window_ns();
        let record = Loss { start_ns, events, source: LossSource::Ring.number(), ..Loss::default() };
        self.put(Header { time_ns, cpu, ..Header::default() }, record);
    }

    /// Records that `parts` parts of the trace could not be read: their content is missing, at an unknown time.
    pub fn damaged(&mut self, parts: u64) {
        let (start_ns, time_ns) = self.window_ns();
        let record = Loss { start_ns, events: parts, bound: 1, source: LossSource::Damage.number(), ..Loss::default() };
        self.put(Header { time_ns, cpu: ANY_CPU, ..Header::default() }, record);
    }

    /// Records that events of a kind are in the trace, but could not be read: their content is missing, at an unknown time.
    pub fn not_readable(&mut self, kind: Kind, events: u64) {
        let (start_ns, time_ns) = self.window_ns();
        let (source, text) = (LossSource::Unreadable.number(), kind.name().to_owned());
        self.put(
            Header { time_ns, cpu: ANY_CPU, ..Header::default() },
            Loss { start_ns, events, source, text, ..Loss::default() },
        );
    }

    /// Events that lack a field without which they say nothing, by kind.
    pub fn unread(&self) -> &BTreeMap<Kind, u64> {
        &self.unread
    }

    /// Texts that programs wrote into the trace and that became no mark, by what they are, once the trace has ended.
    pub fn unused_texts(&self) -> BTreeMap<UnusedText, u64> {
        self.operations.unused()
    }

    /// Names of disks, by number, as far as the trace has them.
    pub fn disks(&self) -> Vec<(u32, String)> {
        self.disk_names()
    }

    /// Where events are missing, a thread's call may have ended.
    fn forget_open_calls(&mut self) {
        for thread in self.threads.values_mut() {
            (thread.writes_back, thread.commits) = (None, None);
            thread.added.clear();
        }
    }

    fn dispatch(&mut self, s: &DecodedEvent) {
        match s.kind {
            Kind::SysEnter | Kind::SysExit => self.on_call(s),
            Kind::Switch | Kind::Waking | Kind::Wakeup => self.on_schedule(s),
            Kind::NewTask | Kind::Fork | Kind::Exec | Kind::Exit => self.on_task(s),
            Kind::Step | Kind::StepReturn | Kind::Reset | Kind::Finalize | Kind::Print => self.on_operation(s),
            Kind::OpenPath => s.text.clone_into(&mut self.thread(s.tid).path),
            Kind::BioQueue | Kind::BioRemap | Kind::BioSplit | Kind::BioComplete => self.on_bio(s),
            Kind::GetRequest | Kind::RqInsert | Kind::RqIssue | Kind::RqComplete => self.on_request(s),
            Kind::ScsiHandler => self.on_scsi_handler(s),
            Kind::ScsiStart | Kind::ScsiDone | Kind::ScsiTimeout | Kind::ScsiError => self.on_scsi(s),
            Kind::MmcStart | Kind::MmcDone => self.on_mmc(s),
            Kind::NvmeSetup | Kind::NvmeDone => self.on_nvme(s),
            Kind::UfsCommand => self.on_ufs(s),
            Kind::CommitBegin | Kind::CommitEnd | Kind::Handle => self.on_journal(s),
            Kind::ExtentFound | Kind::ExtentKept | Kind::DirtyBuffer => self.on_place(s),
            Kind::WritePages | Kind::WritePagesDone => {
                let file = self.file(s);
                self.thread(s.tid).writes_back = file.filter(|_| s.kind == Kind::WritePages);
            }
            Kind::AllocateInode | Kind::EvictInode => {}
            Kind::DaWriteBegin
            | Kind::WriteBegin
            | Kind::F2fsWriteBegin
            | Kind::SyncEnter
            | Kind::F2fsSyncEnter
            | Kind::UnlinkEnter
            | Kind::GetPages
            | Kind::CacheAdd => self.on_file_system(s),
        }
    }

    fn thread(&mut self, tid: u32) -> &mut Thread {
        self.threads.entry(tid).or_default()
    }

    /// The file in an event's first fields: file system and inode.
    fn file(&self, s: &DecodedEvent) -> Option<File> {
        Some((u32::try_from(s.number(0)?).ok()?, s.number(1).filter(|ino| *ino != 0)?))
    }

    /// Time, CPU and thread of an event.
    fn header(&self, s: &DecodedEvent) -> Header {
        Header {
            flags: u8::from(self.tasks.is_kernel(s.tid)) * header_flags::KERNEL_THREAD,
            ..self.header_of(s, s.tid)
        }
    }

    fn header_of(&self, s: &DecodedEvent, tid: u32) -> Header {
        Header { time_ns: s.time_ns, cpu: s.cpu, tgid: self.tasks.process(tid), tid, ..Header::default() }
    }

    /// A header without a thread.
    fn header_without_thread(s: &DecodedEvent) -> Header {
        Header { time_ns: s.time_ns, cpu: s.cpu, ..Header::default() }
    }

    fn put(&mut self, header: Header, record: impl Into<Record>) {
        let record = record.into();
        let seq = self.seq.entry(header.cpu).or_default();
        *seq += 1;
        self.out.push(Event { header: Header { seq: *seq, kind: record.kind(), ..header }, record });
    }

    /// Reports a process's name once.
    fn name(&mut self, s: &DecodedEvent, tid: u32) {
        let tgid = self.tasks.process(tid);
        if !self.named.insert(tgid) {
            return;
        }
        if let Some(text) = self.tasks.name(tgid).or_else(|| self.tasks.name(tid)).map(str::to_owned) {
            let record =
                model::event::Task { what: model::event::task_what::EXISTED_BEFORE, text, ..Default::default() };
            self.put(Header { tid: tgid, ..self.header_of(s, tid) }, record);
        }
    }

    /// The context of a thread.
    fn context(&self, tid: u32) -> u16 {
        if self.tasks.is_kernel(tid) {
            return flags::KERNEL_THREAD;
        }
        if self.tracer.is_some_and(|t| self.tasks.process(tid) == t) {
            return flags::TRACER;
        }
        if !self.tasks.is_caller(tid) {
            return 0;
        }
        let called = self.threads.get(&tid).and_then(|t| t.call.as_ref()).is_some_and(|c| c.emitted);
        flags::TRACKED | self.operations.context(tid) | if called { flags::IN_SYSCALL } else { 0 }
    }

    fn note_open(&mut self, now_ns: u64) {
        while self.open.front().is_some_and(|o| o.time_ns <= now_ns) {
            let Some(o) = self.open.pop_front() else { break };
            let opened = self.descriptors.opened(o.tgid, o.fd);
            if self.learns {
                self.known.files.entry(opened).or_insert((o.dev, o.ino));
                self.known.regular.insert((o.dev, o.ino));
            }
            let what = model::event::file_what::OPEN_BEFORE;
            let record = model::event::File { ino: o.ino, dev: o.dev, what, text: o.path, ..Default::default() };
            let header = Header { time_ns: o.time_ns, cpu: ANY_CPU, tgid: o.tgid, tid: o.tgid, ..Header::default() };
            self.put(header, record);
        }
    }
}
