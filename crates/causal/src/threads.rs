//! Operations: what each thread was asked to do.
//!
//! Picture the stack of folders on a clerk's desk: the folder on top is what he works at, and whatever he does meanwhile
//! belongs to it. A statement's execution puts a folder on the stack and its end takes it off; an application's mark is
//! a folder too, but one that only groups others: if a statement was opened on it, it is no operation of its own.
//!
//! A statement that returned a row stays on the stack, open, while the application works on the row. What the thread does
//! then (`BETWEEN_ROWS`) is not the statement's but that of the mark or function around it, else the process's; and a
//! statement that begins then is its sibling, which the nesting says: only what runs counts in it.
//!
//! *Uncertainty*: a program may step two statements by turns; then what its thread does in a step is charged to the one
//! that began last. When the end of an execution was lost, its folder is taken off when that statement or function
//! begins again, or when more are open than the kernel side keeps, and has no end. So it is with a function that did not return
//! but was left (longjmp, an exception), as soon as that is told; and with one that gave way, since more were open. An execution whose begin was not seen is known only from its end record,
//! and what its thread did meanwhile was not charged to it.

use crate::actor::Actor;
use crate::context::Context;
use crate::exclusive;
use crate::hash::FastMap;
use crate::linker::State;
use crate::loss::Window;
use crate::stack::{Around, Frame, Kind, Thread};
use model::event::{Header, Mark, OpBegin, OpEnd, Statement, flags, header_flags};
use model::table::{Operation, Shape, Span};
use model::{Confidence, Layer, Origin, Relation};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

/// Ended operations remembered for records that come late (marks, long calls).
const HISTORY: usize = 1 << 14;
/// Statements remembered; addresses of finalised ones are used again, so programs have far fewer.
const STATEMENTS: usize = 1 << 16;
/// Spans held back until a mark is known to be an operation or not.
const HELD: usize = 4096;
/// Executions that the kernel side keeps open on a thread (OPS in common.h). More are open here only if ends were lost.
const OPEN: usize = 8;

/// In an end record: a function was left otherwise than by returning (OP_LEFT in operations.bpf.c).
const LEFT: u32 = 2;
/// In an end record: an execution gave way to others on the kernel side (OP_GAVE_WAY there). How it went on is not known.
const GAVE_WAY: u32 = 3;

struct Ended {
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
    pub map: FastMap<u32, Thread>,
    statements: FastMap<(u32, u64), u64>,
    statements_order: VecDeque<(u32, u64)>,
    shapes: BTreeMap<(&'static str, String), u64>,
    executions: FastMap<u64, u64>,
    history: VecDeque<Ended>,
    /// Marks that turned out to be none: their number and the operation around them.
    void: FastMap<u64, u64>,
    void_order: VecDeque<u64>,
    /// The threads of the open marks, by the number that a mark has as an operation.
    marks: BTreeMap<u64, u32>,
    operations: u64,
}

impl Threads {
    pub(crate) fn new_operation(&mut self) -> u64 {
        self.operations += 1;
        self.operations
    }

    fn shape(&mut self, kind: &'static str, text: &str, cx: &mut Context<'_>) -> u64 {
        let key = (kind, text.to_string());
        if let Some(id) = self.shapes.get(&key) {
            return *id;
        }
        let id = self.shapes.len() as u64 + 1;
        cx.sink.shape(Shape { id, kind: Cow::Borrowed(kind), text: text.to_string() });
        self.shapes.insert(key, id);
        id
    }

    /// The actor as it turned out: a mark that is no operation leaves what it was charged to what is around it.
    pub(crate) fn settled(&self, mut actor: Actor) -> Actor {
        while let Some(&around) = self.void.get(&actor.operation) {
            actor.operation = around;
            if around == 0 {
                actor.origin = Origin::Process;
            }
        }
        actor
    }

    fn undecided(&mut self, operation: u64) -> Option<&mut Frame> {
        let thread = self.map.get_mut(self.marks.get(&operation)?)?;
        thread.frames.iter_mut().find(|f| f.id == operation && f.is_undecided())
    }

    /// Whether it is a mark that may yet turn out to be none.
    pub(crate) fn is_undecided(&self, operation: u64) -> bool {
        let thread = self.marks.get(&operation).and_then(|tid| self.map.get(tid));
        thread.is_some_and(|t| t.frames.iter().any(|f| f.id == operation && f.is_undecided()))
    }

    /// Makes it an operation for good.
    pub(crate) fn decide(&mut self, operation: u64, cx: &mut Context<'_>) {
        if let Some(frame) = self.undecided(operation) {
            frame.decided = true;
            frame.held.drain(..).for_each(|s| cx.sink.span(s));
        }
    }

    /// The ended operation that `tid` was in at `time_ns`.
    fn past(&self, tid: u32, time_ns: u64, ctx: u16) -> Option<Around> {
        let from = self.history.partition_point(|e| e.end_ns < time_ns);
        let runs = |e: &Ended| e.kind != Kind::Statement || ctx & flags::BETWEEN_ROWS == 0;
        // Which calls an inferred transaction had is not remembered.
        let told = |e: &&Ended| e.kind != Kind::Inferred && runs(e);
        let inside = |e: &&Ended| e.tid == tid && e.start_ns <= time_ns && time_ns <= e.end_ns && told(e);
        let found = self.history.range(from..).take(1024).find(inside)?;
        Some(Around { operation: Some(found.id), span: found.span, start_ns: found.start_ns, guess: false })
    }

    fn remember(&mut self, ended: Ended) {
        // Ordered by end, which is also the order of arrival but for late records.
        let at = self.history.partition_point(|e| e.end_ns <= ended.end_ns);
        self.history.insert(at, ended);
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.map.values().map(|t| 1 + t.frames.len() + t.calls.len() + t.aways.len()).sum::<usize>()
            + self.statements.len()
            + self.history.len()
            + self.void.len()
    }
}

impl State {
    /// The thread's desk. A thread number that another process has now is another thread.
    pub(crate) fn thread(&mut self, tgid: u32, tid: u32, cx: &mut Context<'_>) -> &mut Thread {
        if self.threads.map.get(&tid).is_some_and(|t| t.tgid != tgid) {
            self.thread_ended(tid, cx);
        }
        self.threads.map.entry(tid).or_insert_with(|| Thread { tgid, tid, ..Thread::default() })
    }

    /// Takes off the marks that ended.
    pub(crate) fn settle_marks(&mut self, tid: u32, time_ns: u64, cx: &mut Context<'_>) {
        while let Some(thread) = self.threads.map.get_mut(&tid) {
            let Some(frame) = thread.frames.last().filter(|f| f.kind == Kind::Mark && f.end_ns <= time_ns) else {
                return;
            };
            let end_ns = frame.end_ns;
            exclusive::account(thread, end_ns, &mut self.activity, cx.sink);
            let frame = thread.frames.pop();
            if let Some(frame) = frame {
                self.close_mark(tid, frame, cx);
            }
        }
    }

    fn close_mark(&mut self, tid: u32, mut frame: Frame, cx: &mut Context<'_>) {
        self.threads.marks.remove(&frame.id);
        let Some(tgid) = self.threads.map.get(&tid).map(|t| t.tgid) else { return };
        let operation = frame.is_operation();
        // Its thread may have ended before it.
        let cursor_ns = self.threads.map.get(&tid).map_or(frame.end_ns, |t| t.cursor_ns);
        let end_ns = frame.end_ns.min(cursor_ns).max(frame.start_ns);
        let row = Span {
            number: Some(frame.nth),
            flags: Cow::Owned(frame.name.clone()),
            operation: operation.then_some(frame.id),
            end_ns: Some(end_ns),
            ..span(frame.span, Layer::App, "mark", frame.start_ns, tgid, tid)
        };
        cx.sink.span(row);
        if !operation {
            return;
        }
        frame.held.drain(..).for_each(|s| cx.sink.span(s));
        exclusive::finish(&mut frame, end_ns, 0, cx.sink);
        let shape = self.threads.shape("mark", &frame.name, cx);
        let end = End { end_ns: Some(end_ns), inside_ns: end_ns - frame.start_ns, rows: 0, steps: None, result: None };
        self.operation_row(tgid, tid, &frame, shape, &end, cx);
    }

    fn operation_row(&mut self, tgid: u32, tid: u32, frame: &Frame, shape: u64, end: &End, cx: &mut Context<'_>) {
        let count = self.threads.executions.entry(shape).or_default();
        let nth = *count;
        *count += 1;
        let around = Actor { operation: frame.parent, ..Actor::NOBODY };
        let parent = Some(self.threads.settled(around).operation).filter(|&p| p != 0);
        cx.sink.operation(Operation {
            id: frame.id,
            span: frame.span,
            shape,
            nth,
            parent,
            tgid,
            tid,
            start_ns: frame.start_ns,
            end_ns: end.end_ns,
            inside_ns: end.inside_ns,
            rows: end.rows,
            steps: end.steps,
            result: end.result,
        });
        if let Some(end_ns) = end.end_ns {
            let (id, span, start_ns, kind) = (frame.id, frame.span, frame.start_ns, frame.kind);
            self.threads.remember(Ended { tid, kind, id, span, start_ns, end_ns });
        }
    }

    /// A statement became known.
    pub(crate) fn on_statement(&mut self, header: &Header, record: &Statement, cx: &mut Context<'_>) {
        let shape = self.threads.shape("statement", &record.text, cx);
        let key = (header.tgid, record.stmt);
        if self.threads.statements.insert(key, shape).is_none() {
            self.threads.statements_order.push_back(key);
            if self.threads.statements_order.len() > STATEMENTS {
                self.threads.statements_order.pop_front().map(|old| self.threads.statements.remove(&old));
            }
        }
        if record.start_ns == 0 {
            return;
        }
        self.settle_marks(header.tid, record.start_ns, cx);
        let start_ns = record.start_ns.min(header.time_ns);
        let id = cx.new_span();
        let ctx = if header.flags & header_flags::BETWEEN_ROWS != 0 { flags::BETWEEN_ROWS } else { 0 };
        let around = self.inside(header.tid, start_ns, ctx);
        let row = Span {
            operation: around.operation,
            end_ns: Some(header.time_ns),
            result: Some(record.result.into()),
            ..span(id, Layer::Database, "prepare", start_ns, header.tgid, header.tid)
        };
        self.put_span(header.tid, row, cx);
        let window = Window { start_ns: around.start_ns, end_ns: header.time_ns, cpus: [header.cpu; 2] };
        cx.link(around.span, id, Relation::Calls, Confidence::Interval, window);
    }

    /// An execution began.
    pub(crate) fn on_op_begin(&mut self, header: &Header, record: &OpBegin, cx: &mut Context<'_>) {
        self.settle_marks(header.tid, header.time_ns, cx);
        let kind = if record.kind == 0 { Kind::Statement } else { Kind::Function };
        self.open_frame(header, header.time_ns, (kind, record.key, record.depth), String::new(), cx);
    }

    /// Puts a folder on the thread's stack; returns its operation.
    pub(crate) fn open_frame(
        &mut self,
        header: &Header,
        time_ns: u64,
        begins: (Kind, u64, u32),
        name: String,
        cx: &mut Context<'_>,
    ) -> u64 {
        let (kind, key, depth) = begins;
        let (id, span_id) = (self.threads.new_operation(), cx.new_span());
        self.thread(header.tgid, header.tid, cx);
        if kind != Kind::Inferred {
            self.close_impossible(header.tid, begins, time_ns, cx);
        }
        let Some(thread) = self.threads.map.get_mut(&header.tid) else { return id };
        if thread.frames.is_empty() {
            thread.cursor_ns = time_ns;
            thread.calls.clear();
            thread.aways.clear();
        } else {
            exclusive::account(thread, time_ns, &mut self.activity, cx.sink);
        }
        // The marks below are not operations, after all; what they held belongs to what is around them.
        let open = thread.frames.iter().filter(|f| f.is_probed()).count() as u32;
        let nesting = if depth == 0 { open + 1 } else { depth };
        let mut around = 0;
        let mut parent = (0, header.cpu, time_ns);
        for frame in &mut thread.frames {
            if frame.is_undecided() {
                let outer = (around != 0).then_some(around);
                frame.held.drain(..).for_each(|s| cx.sink.span(Span { operation: outer, ..s }));
                frame.slices.clear();
                self.threads.void.insert(frame.id, around);
                self.threads.void_order.push_back(frame.id);
            }
            frame.opened = true;
            // Nothing is inside a guess but calls.
            if !frame.is_around(nesting) || frame.is_guess() {
                continue;
            }
            if frame.is_operation() {
                around = frame.id;
            }
            parent = (frame.span, frame.cpu, frame.start_ns);
        }
        while self.threads.void_order.len() > HISTORY {
            self.threads.void_order.pop_front().map(|old| self.threads.void.remove(&old));
        }
        thread.frames.push(Frame {
            parent: around,
            depth: if kind == Kind::Inferred { 0 } else { nesting },
            key,
            name,
            cpu: header.cpu,
            ..Frame::new(kind, id, span_id, time_ns)
        });
        let window = Window { start_ns: parent.2, end_ns: time_ns, cpus: [parent.1, header.cpu] };
        let sure = if kind == Kind::Inferred { Confidence::Guess } else { Confidence::Interval };
        cx.link(parent.0, span_id, Relation::Calls, sure, window);
        id
    }

    /// An inferred transaction is over.
    pub(crate) fn close_inferred(&mut self, tid: u32, operation: u64, end_ns: u64, cx: &mut Context<'_>) {
        let Some(thread) = self.threads.map.get_mut(&tid) else { return };
        let Some(place) = thread.frames.iter().position(|f| f.id == operation) else { return };
        exclusive::account(thread, end_ns, &mut self.activity, cx.sink);
        let tgid = thread.tgid;
        let mut frame = thread.frames.remove(place);
        let end_ns = end_ns.max(frame.start_ns);
        exclusive::finish(&mut frame, end_ns, 0, cx.sink);
        let end = End { end_ns: Some(end_ns), inside_ns: end_ns - frame.start_ns, rows: 0, steps: None, result: None };
        self.close(tgid, tid, &frame, &end, cx);
    }

    /// An execution ended.
    pub(crate) fn on_op_end(&mut self, header: &Header, record: &OpEnd, cx: &mut Context<'_>) {
        let end_ns = header.time_ns;
        self.settle_marks(header.tid, end_ns, cx);
        self.thread(header.tgid, header.tid, cx);
        let same = |f: &Frame| f.is_probed() && f.key == record.key && f.start_ns == record.start_ns;
        // Not always the top: an application may step two statements by turns.
        let found = self.threads.map.get(&header.tid).and_then(|t| t.frames.iter().rposition(same));
        if matches!(record.kind, LEFT | GAVE_WAY) {
            // It is known that it was left by now, not when; or that it was not over yet.
            found.map(|place| self.close_lost(header.tid, place, end_ns, cx));
            return;
        }
        let (id, span_id) = if found.is_some() { (0, 0) } else { (self.threads.new_operation(), cx.new_span()) };
        let Some(thread) = self.threads.map.get_mut(&header.tid) else { return };
        let frame = found.map(|place| {
            exclusive::account(thread, end_ns, &mut self.activity, cx.sink);
            thread.frames.remove(place)
        });
        let start_ns = record.start_ns.min(end_ns);
        let mut frame = frame.unwrap_or_else(|| {
            // What it did is not known, only that it was: `finish` writes one slice that says so.
            let kind = if record.kind == 0 { Kind::Statement } else { Kind::Function };
            Frame { depth: 1, key: record.key, end_ns, cpu: header.cpu, ..Frame::new(kind, id, span_id, start_ns) }
        });
        let end_ns = end_ns.max(frame.start_ns);
        let between = (end_ns - frame.start_ns).saturating_sub(record.inside_ns);
        let unseen = exclusive::finish(&mut frame, end_ns, between, cx.sink);
        if let (Some(place), Some(thread)) = (found, self.threads.map.get_mut(&header.tid)) {
            let around = thread.frames[..place].iter_mut().filter(|f| f.kind == Kind::Function);
            around.for_each(|f| exclusive::between_rows(f, frame.span, unseen));
        }
        let end = End {
            end_ns: Some(end_ns),
            inside_ns: record.inside_ns,
            rows: record.rows,
            steps: Some(record.steps),
            result: Some(record.result.into()),
        };
        self.close(header.tgid, header.tid, &frame, &end, cx);
    }

    /// Writes the rows of an execution that is off the stack.
    fn close(&mut self, tgid: u32, tid: u32, frame: &Frame, end: &End, cx: &mut Context<'_>) {
        let (layer, span_kind, shape) = match frame.kind {
            Kind::Inferred => (Layer::Database, "transaction", self.threads.shape("transaction", &frame.name, cx)),
            Kind::Statement => match self.threads.statements.get(&(tgid, frame.key)) {
                Some(shape) => (Layer::Database, "step", *shape),
                None => (Layer::Database, "step", self.threads.shape("statement", "(text not known)", cx)),
            },
            _ => {
                let name = usize::try_from(frame.key).ok().and_then(|k| cx.config.functions.get(k));
                let name = name.cloned().unwrap_or_else(|| format!("function {}", frame.key));
                (Layer::App, "function", self.threads.shape("function", &name, cx))
            }
        };
        cx.sink.span(Span {
            operation: Some(frame.id),
            end_ns: end.end_ns,
            result: end.result,
            number: (frame.kind == Kind::Statement).then_some(end.rows),
            ..span(frame.span, layer, span_kind, frame.start_ns, tgid, tid)
        });
        self.operation_row(tgid, tid, frame, shape, end, cx);
    }

    /// Takes off what cannot be open any more when this begins, hence had an end that was lost: the same execution; a
    /// function of its nesting, since a function does not wait; and the oldest, if more are open than can be.
    fn close_impossible(&mut self, tid: u32, begins: (Kind, u64, u32), time_ns: u64, cx: &mut Context<'_>) {
        let (kind, key, depth) = begins;
        loop {
            let Some(thread) = self.threads.map.get(&tid) else { return };
            let find = |wanted: &dyn Fn(&Frame) -> bool| thread.frames.iter().position(wanted);
            let open = thread.frames.iter().filter(|f| f.is_probed()).count();
            let lost = find(&|f| f.kind == kind && f.key == key)
                .or_else(|| find(&|f| f.kind == Kind::Function && depth > 0 && !f.is_around(depth)))
                .or_else(|| find(&Frame::is_probed).filter(|_| open >= OPEN));
            let Some(place) = lost else { return };
            self.close_lost(tid, place, time_ns, cx);
        }
    }

    /// Takes a folder off whose end was lost. `false`: there was none.
    fn close_lost(&mut self, tid: u32, place: usize, time_ns: u64, cx: &mut Context<'_>) -> bool {
        let frame = self.threads.map.get(&tid).and_then(|t| t.frames.get(place));
        let guess = frame.filter(|f| f.is_guess()).map(|f| f.id);
        let ended = guess.and_then(|operation| self.forget_inferred(tid, operation));
        let Some(thread) = self.threads.map.get_mut(&tid).filter(|t| place < t.frames.len()) else { return false };
        exclusive::account(thread, ended.unwrap_or(0).max(time_ns), &mut self.activity, cx.sink);
        let tgid = thread.tgid;
        let mut frame = thread.frames.remove(place);
        if frame.kind == Kind::Mark {
            self.close_mark(tid, frame, cx);
        } else {
            let end_ns = ended.map(|at| at.max(frame.start_ns));
            exclusive::finish(&mut frame, end_ns.unwrap_or(time_ns), 0, cx.sink);
            let inside_ns = end_ns.map_or(0, |at| at - frame.start_ns);
            self.close(tgid, tid, &frame, &End { end_ns, inside_ns, rows: 0, steps: None, result: None }, cx);
        }
        true
    }

    /// The thread ended, or the trace: its open operations have no end; their slices reach to `now`.
    pub(crate) fn thread_ended(&mut self, tid: u32, cx: &mut Context<'_>) {
        self.settle_marks(tid, cx.now_ns, cx);
        let now_ns = cx.now_ns;
        self.open_call_on_sheet(tid, now_ns);
        let top = |s: &Self| s.threads.map.get(&tid).map_or(0, |t| t.frames.len()).saturating_sub(1);
        while self.close_lost(tid, top(self), now_ns, cx) {}
        if let Some(thread) = self.threads.map.remove(&tid) {
            [thread.before, thread.call]
                .into_iter()
                .flatten()
                .for_each(|c| self.put_unfinished_call(&thread, &c, now_ns, cx));
        }
    }

    /// Ends the half of all threads that was not heard of for longest: records of their ends were lost.
    pub(crate) fn forget_threads(&mut self, cx: &mut Context<'_>) {
        let last = |t: &Thread| {
            let begun = t.frames.iter().map(|f| f.start_ns).max().unwrap_or(0);
            t.call.map_or(0, |c| c.start_ns).max(begun).max(t.cursor_ns)
        };
        let mut all: Vec<(u64, u32)> = self.threads.map.iter().map(|(tid, t)| (last(t), *tid)).collect();
        all.sort_unstable();
        let old = all.len() / 2;
        all[..old].iter().for_each(|(_, tid)| self.thread_ended(*tid, cx));
    }

    /// The application marked an interval.
    pub(crate) fn on_mark(&mut self, header: &Header, record: &Mark, cx: &mut Context<'_>) {
        let (start_ns, end_ns) = (record.start_ns.min(header.time_ns), header.time_ns);
        self.settle_marks(header.tid, start_ns, cx);
        let span_id = cx.new_span();
        if start_ns < cx.now_ns {
            return self.on_late_mark(header, record, start_ns, span_id, cx);
        }
        let id = self.threads.new_operation();
        self.thread(header.tgid, header.tid, cx);
        let Some(thread) = self.threads.map.get_mut(&header.tid) else { return };
        if thread.frames.is_empty() {
            thread.cursor_ns = start_ns;
            thread.calls.clear();
            thread.aways.clear();
        } else {
            exclusive::account(thread, start_ns, &mut self.activity, cx.sink);
        }
        let around = thread.operation(0).map_or(0, |f| f.id);
        let parent = thread.frames.iter().rfind(|f| !f.is_guess());
        let parent = parent.map_or((0, header.cpu, start_ns), |f| (f.span, f.cpu, f.start_ns));
        thread.frames.push(Frame {
            parent: around,
            end_ns,
            name: record.text.clone(),
            nth: record.nth,
            cpu: header.cpu,
            decided: false,
            ..Frame::new(Kind::Mark, id, span_id, start_ns)
        });
        self.threads.marks.insert(id, header.tid);
        let window = Window { start_ns: parent.2, end_ns: start_ns, cpus: [parent.1, header.cpu] };
        cx.link(parent.0, span_id, Relation::Calls, Confidence::Interval, window);
    }

    /// A mark that came after what it spans: it is linked to the operations inside it, but is none itself, since
    /// what its thread did is not remembered.
    fn on_late_mark(&mut self, header: &Header, record: &Mark, start_ns: u64, id: u64, cx: &mut Context<'_>) {
        let end_ns = header.time_ns;
        let from = self.threads.history.partition_point(|e| e.end_ns < start_ns);
        let inside: Vec<(u64, u64)> = self
            .threads
            .history
            .range(from..)
            .take_while(|e| e.end_ns <= end_ns)
            .filter(|e| e.tid == header.tid && e.start_ns >= start_ns)
            .map(|e| (e.span, e.start_ns))
            .collect();
        cx.sink.span(Span {
            number: Some(record.nth),
            flags: Cow::Owned(record.text.clone()),
            end_ns: Some(end_ns),
            ..span(id, Layer::App, "mark", start_ns, header.tgid, header.tid)
        });
        for (child, at_ns) in inside {
            let window = Window { start_ns, end_ns: at_ns, cpus: [header.cpu; 2] };
            cx.link(id, child, Relation::Calls, Confidence::Interval, window);
        }
    }

    /// What is around a thing that `tid` began at `time_ns` in the context `ctx`.
    pub(crate) fn inside(&self, tid: u32, time_ns: u64, ctx: u16) -> Around {
        let thread = self.threads.map.get(&tid);
        let own = self.inferred_at(tid, time_ns);
        let within = |f: &&Frame| f.start_ns <= time_ns && f.runs(ctx) && f.may_be(own);
        if let Some(top) = thread.and_then(|t| t.frames.iter().rev().find(within)) {
            let operation = thread.and_then(|t| t.operation_at(time_ns, ctx, own));
            let guess = operation.is_some_and(Frame::is_guess);
            return Around { operation: operation.map(|f| f.id), span: top.span, start_ns: top.start_ns, guess };
        }
        let nothing = Around { operation: None, span: 0, start_ns: time_ns, guess: false };
        self.threads.past(tid, time_ns, ctx).unwrap_or(nothing)
    }

    /// Writes a span, or holds it back while it is not known whether the mark around it is an operation.
    pub(crate) fn put_span(&mut self, tid: u32, row: Span, cx: &mut Context<'_>) {
        let thread = self.threads.map.get_mut(&tid).filter(|_| row.operation.is_some());
        let frame = thread.and_then(|t| t.frames.iter_mut().find(|f| row.operation == Some(f.id)));
        match frame.filter(|f| f.is_undecided()) {
            Some(frame) if frame.held.len() < HELD => frame.held.push(row),
            Some(frame) => {
                frame.decided = true;
                frame.held.drain(..).for_each(|s| cx.sink.span(s));
                cx.sink.span(row);
            }
            None => cx.sink.span(row),
        }
    }
}

struct End {
    end_ns: Option<u64>,
    inside_ns: u64,
    rows: u64,
    steps: Option<u64>,
    result: Option<i64>,
}

/// A span of which only the beginning is known.
pub(crate) fn span(id: u64, layer: Layer, kind: &'static str, start_ns: u64, tgid: u32, tid: u32) -> Span {
    Span {
        id,
        layer,
        kind: Cow::Borrowed(kind),
        start_ns,
        end_ns: None,
        tgid,
        tid,
        operation: None,
        file: None,
        offset: None,
        disk: None,
        sector: None,
        bytes: 0,
        result: None,
        number: None,
        cache_added: None,
        flags: Cow::Borrowed(""),
    }
}
