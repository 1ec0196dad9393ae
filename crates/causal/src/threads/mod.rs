//! Operations: what each thread was asked to do.
//!
//! Each thread has a stack of operations: what the thread does belongs to the one on top. A statement's execution is pushed
//! when it begins and popped when it ends. A mark of the application is pushed too, but only groups: if a statement began
//! inside it, it is not an operation.
//!
//! A statement that returned a row stays on the stack, open, while the application works on the row. What the thread does
//! then (`BETWEEN_ROWS`) belongs not to the statement but to the surrounding mark or function, else to the process; and a
//! statement that begins then is its sibling: only running statements count for nesting.
//!
//! *Uncertainty*: a program may step two statements alternately; then what its thread does in a step is charged to the one that began
//! last. When the end of an execution was lost, its frame is popped when that statement or function begins again, or when more are open
//! than the kernel side keeps, and has no end. The same holds for a function that did not return but was left (longjmp, an exception), as
//! soon as that is recorded; and for one that was displaced because more were open. An execution whose begin was not seen is known only
//! from its end record, and what its thread did meanwhile was not charged to it.

mod alone;
mod calls;
mod exclusive;
mod group;
mod marks;
mod operations;
mod outside;
mod stack;
mod transactions;

pub(crate) use alone::RingSync;
pub(crate) use stack::{Call, Thread};

use crate::Config;
use crate::actor::Actor;
use crate::blocked::KernelWait;
use crate::context::Context;
use crate::hash::FastMap;
use crate::inferred::InferredTransactions;
use crate::names::Names;
use crate::objects::Objects;
use group::Groups;
use model::event::{self, Header, OffCpu, OpCounts, flags, task_what};
use model::table::{Shape, Span};
use model::{Event, Origin, Record, ShapeKind, Wait};
use stack::{Frame, Kind, OffCpuPeriod, RefusedLock, Surroundings};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of ended operations kept for records that come late (marks, long calls).
const HISTORY_MAX: usize = 1 << 14;
/// The kind of a `lock` record from flock.
const LOCK_KIND_FLOCK: u16 = 3;
/// Maximum number of spans held back until it is known whether a mark is an operation.
const HELD_SPANS_MAX: usize = 4096;
/// Number of threads beyond which the longest inactive ones are considered dead: the kernel side follows half as many.
const LIVE_THREADS_MAX: usize = 1 << 15;

struct EndedOperation {
    tid: u32,
    kind: Kind,
    id: u64,
    span: u64,
    start_ns: u64,
    end_ns: u64,
}

/// All threads, statements and shapes.
#[derive(Default)]
pub(crate) struct Threads {
    map: FastMap<u32, Thread>,
    inferred: InferredTransactions,
    statements: FastMap<(u32, u64), u64>,
    /// The trace contexts of statements.
    contexts: FastMap<(u32, u64), String>,
    /// What SQLite counted during the execution whose end follows, by thread.
    counted: FastMap<u32, OpCounts>,
    statements_order: VecDeque<(u32, u64)>,
    shapes: BTreeMap<(ShapeKind, String), u64>,
    executions: FastMap<u64, u64>,
    history: VecDeque<EndedOperation>,
    /// Marks that turned out not to be operations: their number and the operation around them.
    void: FastMap<u64, u64>,
    void_order: VecDeque<u64>,
    /// The threads of the open marks and undecided calls, by the number that each has as an operation.
    marks: BTreeMap<u64, u32>,
    /// Processes that set marks.
    marked: BTreeSet<u32>,
    operations: u64,
    groups: Groups,
}

impl Threads {
    fn new_operation(&mut self) -> u64 {
        self.operations += 1;
        self.operations
    }

    fn shape(&mut self, kind: ShapeKind, text: &str, cx: &mut Context<'_>) -> u64 {
        let key = (kind, text.to_string());
        if let Some(id) = self.shapes.get(&key) {
            return *id;
        }
        let id = self.shapes.len() as u64 + 1;
        cx.sink.shape(Shape { id, kind: Cow::Borrowed(kind.name()), text: text.to_string() });
        self.shapes.insert(key, id);
        id
    }

    /// Returns the operation that runs in this process, if there is exactly one.
    pub(crate) fn sole_operation(&self, tgid: u32) -> Option<u64> {
        let mut all = self.map.values().filter(|t| t.tgid == tgid).filter_map(|t| t.operation(0));
        let first = all.next()?;
        if all.next().is_some() { None } else { Some(first.id) }
    }

    /// Notes what must be known of an event on arrival, before it is handed on in order.
    pub(crate) fn on_arrival(&mut self, event: &Event, config: &Config) {
        if let Record::Mark(_) = event.record {
            self.marked.insert(event.header.tgid);
        }
        self.inferred.on_arrival(config.with_statements.as_ref(), event);
    }

    /// A thread was off the CPU.
    pub(crate) fn on_off_cpu(&mut self, header: &Header, record: &OffCpu, config: &Config) {
        let (tgid, tid) = (header.tgid, header.tid);
        let thread = self.map.entry(tid).or_insert_with(|| Thread { tgid, tid, ..Thread::default() });
        if record.ctx & flags::TRACKED != 0 {
            thread.sum_outside(record.start_ns, config);
        }
        thread.on_off_cpu(record.start_ns, record.wake_ns, header.time_ns, record.state, record.ctx);
        thread.ran(header.time_ns);
    }

    /// A process began, or a thread ended.
    pub(crate) fn on_task(&mut self, header: &Header, what: u16, objects: &mut Objects, cx: &mut Context<'_>) {
        match what {
            task_what::FORKED => {
                self.thread(header.tgid, header.tid, objects, cx).born_ns.get_or_insert(header.time_ns);
            }
            task_what::ENDED => {
                if let Some(thread) = self.map.get_mut(&header.tid).filter(|t| t.tgid == header.tgid) {
                    thread.ran(header.time_ns);
                }
                self.thread_ended(header.tid, header.time_ns, objects, cx);
            }
            _ => {}
        }
    }

    /// Records what the thread that was just off the CPU waited for.
    pub(crate) fn on_wait(&mut self, header: &Header, record: &event::Wait, names: &Names) {
        let Some(thread) = self.map.get(&header.tid) else { return };
        let Some(at) = thread.off_cpu.iter().rposition(|a| a.start_ns == record.start_ns) else { return };
        let OffCpuPeriod { start_ns, wake_ns, between_rows, .. } = thread.off_cpu[at];
        let blocked = Wait::from_number(record.what).filter(|_| start_ns < wake_ns).map(|wait| {
            let since =
                |r: &RefusedLock| r.at_ns <= start_ns && !between_rows && !thread.called_between(r.at_ns, start_ns);
            let refused = thread.refused.filter(since);
            match (wait, refused) {
                // SQLite's busy handler sleeps and retries.
                (Wait::Fcntl | Wait::Flock | Wait::Timer, Some(refused)) => refused.blocked,
                (Wait::Timer, None) => {
                    self.same_process_lock_wait(thread, &thread.off_cpu[at]).unwrap_or(KernelWait::from_wait(wait))
                }
                _ => self.woken_by(header.tid, wait, record, wake_ns, names),
            }
        });
        let Some(thread) = self.map.get_mut(&header.tid) else { return };
        if let Some(blocked) =
            blocked.filter(|b| b.wait == Wait::Fcntl && Wait::from_number(record.what) == Some(Wait::Timer))
        {
            thread.refused = Some(RefusedLock { at_ns: start_ns, blocked });
        }
        if let Some(away) = thread.off_cpu.get_mut(at) {
            (away.blocked, away.throttled_ns) = (blocked, record.throttled_ns);
        }
    }

    /// Recognises SQLite's busy handler by a timer's sleep within a statement's own step, while another thread of the process is in a
    /// statement: a lock held by a connection of the same process is refused without asking the kernel.
    fn same_process_lock_wait(&self, thread: &Thread, away: &OffCpuPeriod) -> Option<KernelWait> {
        let running = thread.operation_at(away.start_ns, 0, None)?.kind == Kind::Statement;
        if !running || away.in_call || away.between_rows {
            return None;
        }
        let beside = self.statements_beside(thread, away.start_ns);
        let [one, rest @ ..] = &beside[..] else { return None };
        let operation = if rest.is_empty() { *one } else { 0 };
        Some(KernelWait { wait: Wait::Fcntl, tgid: thread.tgid, operation, file: 0 })
    }

    /// Returns the statements that other threads of its process were in at that time; if some made calls on files, only
    /// those.
    fn statements_beside(&self, thread: &Thread, time_ns: u64) -> Vec<u64> {
        let others = || self.map.values().filter(|other| other.tgid == thread.tgid && other.tid != thread.tid);
        let mut all: Vec<(u64, bool)> = Vec::new();
        for other in others() {
            let within = |f: &&Frame| f.kind == Kind::Statement && f.covers(time_ns);
            if let Some(open) = other.frames.iter().rev().find(within) {
                let calls = other.called_between(open.start_ns, time_ns)
                    || other.call.is_some_and(|c| c.start_ns >= open.start_ns);
                all.push((open.id, calls));
            }
        }
        let from = self.history.partition_point(|e| e.end_ns < time_ns);
        let ended =
            self.history.range(from..).take(1024).filter(|e| e.kind == Kind::Statement && e.start_ns <= time_ns);
        all.extend(ended.filter(|e| others().any(|other| other.tid == e.tid)).map(|e| (e.id, true)));
        let calls = all.iter().any(|(_, calls)| *calls);
        all.retain(|(_, own)| *own || !calls);
        all.into_iter().map(|(id, _)| id).collect()
    }

    /// Returns who ended a wait that was not for a timer or a device.
    fn woken_by(&self, tid: u32, wait: Wait, record: &event::Wait, wake_ns: u64, names: &Names) -> KernelWait {
        let by_someone = matches!(
            wait,
            Wait::Fcntl | Wait::Flock | Wait::Futex | Wait::Pipe | Wait::Socket | Wait::Child | Wait::KernelLock
        );
        if !by_someone || record.waker == tid || record.waker_tgid == 0 {
            return KernelWait::from_wait(wait);
        }
        let operation = self.surroundings_at(record.waker, wake_ns, 0, names).operation.unwrap_or(0);
        KernelWait { wait, tgid: record.waker_tgid, operation, file: 0 }
    }

    /// Records that a thread did not get a lock on a file at once.
    pub(crate) fn on_lock(&mut self, header: &Header, record: &event::Lock, objects: &mut Objects) {
        let file = objects.names.file((record.dev, record.ino), header.time_ns).unwrap_or(0);
        let operation = if record.holder == 0 { None } else { self.sole_operation(record.holder) };
        let operation = operation.unwrap_or(0);
        let wait = if record.kind == LOCK_KIND_FLOCK { Wait::Flock } else { Wait::Fcntl };
        let blocked = KernelWait { wait, tgid: record.holder, operation, file };
        if let Some(thread) = self.map.get_mut(&header.tid) {
            thread.refused = Some(RefusedLock { at_ns: header.time_ns, blocked });
        }
    }

    pub(crate) fn get(&self, tid: u32) -> Option<&Thread> {
        self.map.get(&tid)
    }

    fn get_mut(&mut self, tid: u32) -> Option<&mut Thread> {
        self.map.get_mut(&tid)
    }

    /// Returns the call that a thread is in, or was in last.
    pub(crate) fn call(&self, tid: u32) -> Option<Call> {
        self.map.get(&tid)?.call
    }

    /// Number of known threads.
    pub(crate) fn count(&self) -> usize {
        self.map.len()
    }

    /// Returns the commits that a flush made durable in addition to that of the operation that requested it.
    pub(crate) fn take_covered(&mut self, leader: u64, done_ns: u64, names: &Names) -> Vec<group::Commit> {
        self.groups.take_covered(leader, done_ns, names)
    }

    /// Returns the final actor: charges to a mark that is not an operation move to what is around it.
    pub(crate) fn settled(&self, mut actor: Actor) -> Actor {
        while let Some(&around) = self.void.get(&actor.operation) {
            actor.operation = around;
            if around == 0 {
                actor.origin = Origin::Process;
            }
        }
        actor
    }

    fn undecided_frame(&mut self, operation: u64) -> Option<&mut Frame> {
        let thread = self.map.get_mut(self.marks.get(&operation)?)?;
        thread.frames.iter_mut().find(|f| f.id == operation && f.is_undecided())
    }

    /// Whether it is a mark that may yet turn out not to be an operation.
    pub(crate) fn is_undecided(&self, operation: u64) -> bool {
        let thread = self.marks.get(&operation).and_then(|tid| self.map.get(tid));
        thread.is_some_and(|t| t.frames.iter().any(|f| f.id == operation && f.is_undecided()))
    }

    /// Makes it an operation for good.
    pub(crate) fn decide(&mut self, operation: u64, cx: &mut Context<'_>) {
        if let Some(frame) = self.undecided_frame(operation) {
            frame.decided = true;
            frame.held.drain(..).for_each(|s| cx.sink.span(s));
        }
    }

    /// Returns the ended operation that `tid` was in at `time_ns`.
    fn past_operation(&self, tid: u32, time_ns: u64, ctx: u16) -> Option<Surroundings> {
        let from = self.history.partition_point(|e| e.end_ns < time_ns);
        let runs = |e: &EndedOperation| e.kind != Kind::Statement || ctx & flags::BETWEEN_ROWS == 0;
        // The calls of an inferred transaction are not kept.
        let counts = |e: &&EndedOperation| e.kind != Kind::Inferred && runs(e);
        let inside = |e: &&EndedOperation| e.tid == tid && e.start_ns <= time_ns && time_ns <= e.end_ns && counts(e);
        let found = self.history.range(from..).take(1024).find(inside)?;
        Some(Surroundings { operation: Some(found.id), span: found.span, start_ns: found.start_ns, guess: false })
    }

    fn remember(&mut self, ended: EndedOperation) {
        // Ordered by end, which is also the order of arrival except for late records.
        let at = self.history.partition_point(|e| e.end_ns <= ended.end_ns);
        self.history.insert(at, ended);
        if self.history.len() > HISTORY_MAX {
            self.history.pop_front();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.map.values().map(|t| 1 + t.frames.len() + t.calls.len() + t.off_cpu.len() + t.outside.len()).sum::<usize>()
            + self.statements.len()
            + self.contexts.len()
            + self.counted.len()
            + self.history.len()
            + self.void.len()
            + self.inferred.len()
            + self.groups.len()
    }
}

impl Threads {
    /// Returns the thread's state. If another process has the thread number now, it is a different thread.
    fn thread(&mut self, tgid: u32, tid: u32, objects: &mut Objects, cx: &mut Context<'_>) -> &mut Thread {
        if self.map.get(&tid).is_some_and(|t| t.tgid != tgid) {
            self.thread_ended(tid, cx.now_ns, objects, cx);
        }
        self.map.entry(tid).or_insert_with(|| Thread { tgid, tid, ..Thread::default() })
    }

    /// Ends a thread at `end_ns`: its open operations have no end; their slices reach to there.
    pub(crate) fn thread_ended(&mut self, tid: u32, end_ns: u64, objects: &mut Objects, cx: &mut Context<'_>) {
        self.end_thread(tid, end_ns, end_ns, objects, cx);
    }

    /// Ends a thread, at its own end or that of the trace. `known_ns`: up to when operations end whose end is in their own record, maybe
    /// later than anything else in the trace.
    fn end_thread(&mut self, tid: u32, known_ns: u64, end_ns: u64, objects: &mut Objects, cx: &mut Context<'_>) {
        self.settle_marks(tid, known_ns, objects, cx);
        self.open_call_on_sheet(tid, end_ns);
        let top = |s: &Self| s.map.get(&tid).map_or(0, |t| t.frames.len()).saturating_sub(1);
        while self.close_lost(tid, top(self), end_ns, objects, cx) {
            self.settle_marks(tid, known_ns, objects, cx);
        }
        if let Some(mut thread) = self.map.remove(&tid) {
            if thread.outside.is_on() {
                // It may have been asleep since it was last seen.
                let upto_ns = end_ns.min(thread.ran_ns);
                exclusive::make_slices(&mut thread, upto_ns, &mut objects.activity, cx.sink);
                thread.outside.put((thread.tgid, tid), cx.sink);
            }
            [thread.before, thread.call]
                .into_iter()
                .flatten()
                .for_each(|c| self.put_unfinished_call((thread.tgid, tid), &c, end_ns, objects, cx));
        }
    }

    /// Fills in the time sheets of long operations, or of all if `many` things are in flight. Returns the earliest
    /// time for which waits may still have to be explained.
    pub(crate) fn sweep(&mut self, many: bool, objects: &mut Objects, cx: &mut Context<'_>) -> u64 {
        self.settle_calls(objects, cx);
        let mut before_ns = cx.now_ns;
        let is_needed = |t: &Thread| !t.frames.is_empty() || t.outside.is_on() && t.is_pending();
        let mut open: Vec<u32> = self.map.iter().filter(|(_, t)| is_needed(t)).map(|(tid, _)| *tid).collect();
        open.sort_unstable();
        for tid in open {
            let Some(thread) = self.map.get_mut(&tid) else { continue };
            if many || thread.frames.is_empty() || thread.calls.len() + thread.off_cpu.len() > 256 {
                let upto_ns = exclusive::slices_possible_until(thread, cx.now_ns, cx.config.horizon_ns);
                exclusive::make_slices(thread, upto_ns, &mut objects.activity, cx.sink);
            }
            before_ns = before_ns.min(exclusive::explained_until(thread, cx.now_ns, cx.config.horizon_ns));
        }
        before_ns
    }

    /// Drops what is only left because records of its end were lost.
    pub(crate) fn forget_dead(&mut self, objects: &mut Objects, cx: &mut Context<'_>) {
        if self.map.len() > LIVE_THREADS_MAX {
            self.forget_threads(objects, cx);
        }
        self.inferred.prune(cx.now_ns);
    }

    /// Ends the trace.
    pub(crate) fn finish(&mut self, objects: &mut Objects, cx: &mut Context<'_>) {
        let mut tids: Vec<u32> = self.map.keys().copied().collect();
        tids.sort_unstable();
        // `u64::MAX` is the end of an operation that has none.
        tids.into_iter().for_each(|tid| self.end_thread(tid, u64::MAX - 1, cx.now_ns, objects, cx));
    }

    /// Ends the longest inactive half of all threads: records of their ends were lost.
    fn forget_threads(&mut self, objects: &mut Objects, cx: &mut Context<'_>) {
        let last = |t: &Thread| {
            let begun = t.frames.iter().map(|f| f.start_ns).max().unwrap_or(0);
            t.call.map_or(0, |c| c.start_ns).max(begun).max(t.cursor_ns)
        };
        let mut all: Vec<(u64, u32)> = self.map.iter().map(|(tid, t)| (last(t), *tid)).collect();
        all.sort_unstable();
        let old = all.len() / 2;
        all[..old].iter().for_each(|(_, tid)| self.thread_ended(*tid, cx.now_ns, objects, cx));
    }

    /// Returns what surrounds something that `tid` began at `time_ns` in the context `ctx`.
    pub(crate) fn surroundings_at(&self, tid: u32, time_ns: u64, ctx: u16, names: &Names) -> Surroundings {
        let thread = self.map.get(&tid);
        let own = self.inferred.transaction_at(tid, time_ns, names);
        let within = |f: &&Frame| f.covers(time_ns) && f.runs(ctx) && f.may_be(own);
        if let Some(top) = thread.and_then(|t| t.frames.iter().rev().find(within)) {
            let operation = thread.and_then(|t| t.operation_at(time_ns, ctx, own));
            let guess = operation.is_some_and(Frame::is_guess);
            return Surroundings { operation: operation.map(|f| f.id), span: top.span, start_ns: top.start_ns, guess };
        }
        let nothing = Surroundings { operation: None, span: 0, start_ns: time_ns, guess: false };
        self.past_operation(tid, time_ns, ctx).unwrap_or(nothing)
    }

    /// Writes a span, or holds it back until it is known whether the mark around it is an operation.
    pub(crate) fn put_span(&mut self, tid: u32, row: Span, cx: &mut Context<'_>) {
        let thread = self.map.get_mut(&tid).filter(|_| row.operation.is_some());
        let frame = thread.and_then(|t| t.frames.iter_mut().find(|f| row.operation == Some(f.id)));
        match frame.filter(|f| f.is_undecided()) {
            Some(frame) if frame.held.len() < HELD_SPANS_MAX => frame.held.push(row),
            Some(frame) => {
                frame.decided = true;
                frame.held.drain(..).for_each(|s| cx.sink.span(s));
                cx.sink.span(row);
            }
            None => cx.sink.span(row),
        }
    }
}
