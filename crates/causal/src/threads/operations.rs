//! Executions of statements and functions: opens and closes the frames of a thread's stack.

use super::stack::{Frame, Kind};
use super::{EndedOperation, HISTORY_MAX, Threads, exclusive};
use crate::actor::Actor;
use crate::context::{Context, span};
use crate::loss::Window;
use crate::objects::Objects;
use model::event::{Header, OpBegin, OpCounts, OpEnd, Statement, flags, header_flags, op_kind};
use model::table::{Operation, Span, StatementCounters, TraceContext};
use model::{Confidence, Layer, Relation, ShapeKind, SpanKind};

/// Maximum number of statements kept; addresses of finalised ones are reused, so programs have far fewer.
const STATEMENTS_MAX: usize = 1 << 16;
/// Number of executions that the kernel side keeps open on a thread (OPS in common.h). More are open here only if ends were
/// lost.
const OPEN_EXECUTIONS_MAX: usize = 8;

/// Maximum number of threads whose execution is about to end.
const COUNTED_THREADS_MAX: usize = 1 << 12;

/// In an end record: a function was left other than by returning (OP_LEFT in operations.bpf.c).
const OP_LEFT: u32 = 2;
/// In an end record: an execution was displaced by others on the kernel side (OP_GAVE_WAY there). How it continued is not
/// known.
const OP_GAVE_WAY: u32 = 3;

/// The text of a statement that has none.
const NO_TEXT: &str = "(no text)";

/// How an operation ended.
pub(super) struct OperationEnd {
    pub end_ns: Option<u64>,
    pub inside_ns: u64,
    pub rows: u64,
    pub steps: Option<u64>,
    pub result: Option<i64>,
}

impl Threads {
    /// Writes an operation's row, and remembers it for records that come late.
    pub(super) fn operation_row(
        &mut self,
        tgid: u32,
        tid: u32,
        frame: &Frame,
        shape: u64,
        end: &OperationEnd,
        cx: &mut Context<'_>,
    ) {
        self.put_operation(tgid, tid, frame, shape, end, cx);
        if let Some(end_ns) = end.end_ns {
            let (id, span, start_ns, kind) = (frame.id, frame.span, frame.start_ns, frame.kind);
            self.remember(EndedOperation { tid, kind, id, span, start_ns, end_ns });
        }
    }

    /// Writes an operation's row.
    pub(super) fn put_operation(
        &mut self,
        tgid: u32,
        tid: u32,
        frame: &Frame,
        shape: u64,
        end: &OperationEnd,
        cx: &mut Context<'_>,
    ) {
        let count = self.executions.entry(shape).or_default();
        let nth = *count;
        *count += 1;
        let around = Actor { operation: frame.parent, ..Actor::UNATTRIBUTED };
        let parent = Some(self.settled(around).operation).filter(|&p| p != 0);
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
    }

    /// A statement became known.
    pub(crate) fn on_statement(
        &mut self,
        header: &Header,
        record: &Statement,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        let parsed = sqlite::without_traceparent(&record.text);
        // SQLite's own statement of an open blob (sqlite3_blob_open), such as FTS5's, has none.
        let text = if parsed.text.is_empty() { NO_TEXT } else { &parsed.text };
        let shape = self.shape(ShapeKind::Statement, text, cx);
        let key = (header.tgid, record.stmt);
        match parsed.traceparent {
            Some(context) => self.contexts.insert(key, context.to_string()),
            None => self.contexts.remove(&key),
        };
        if self.statements.insert(key, shape).is_none() {
            self.statements_order.push_back(key);
            if self.statements_order.len() > STATEMENTS_MAX
                && let Some(old) = self.statements_order.pop_front()
            {
                self.statements.remove(&old);
                self.contexts.remove(&old);
            }
        }
        if record.start_ns == 0 {
            return;
        }
        self.settle_marks(header.tid, record.start_ns, objects, cx);
        let start_ns = record.start_ns.min(header.time_ns);
        let id = cx.new_span();
        let ctx = if header.flags & header_flags::BETWEEN_ROWS != 0 { flags::BETWEEN_ROWS } else { 0 };
        let around = self.surroundings_at(header.tid, start_ns, ctx, &objects.names);
        let row = Span {
            operation: around.operation,
            end_ns: Some(header.time_ns),
            result: Some(record.result.into()),
            ..span(id, Layer::Database, SpanKind::Prepare.name(), start_ns, header.tgid, header.tid)
        };
        self.put_span(header.tid, row, cx);
        let window = Window { start_ns: around.start_ns, end_ns: header.time_ns, cpus: [header.cpu; 2] };
        cx.link(around.span, id, Relation::Calls, Confidence::Interval, window);
    }

    /// Handles the begin of an execution.
    pub(crate) fn on_op_begin(
        &mut self,
        header: &Header,
        record: &OpBegin,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        self.settle_marks(header.tid, header.time_ns, objects, cx);
        let kind = if record.kind == op_kind::STATEMENT { Kind::Statement } else { Kind::Function };
        self.open_frame(header, header.time_ns, (kind, record.key, record.depth), String::new(), objects, cx);
    }

    /// Pushes a frame on the thread's stack; returns its operation.
    pub(crate) fn open_frame(
        &mut self,
        header: &Header,
        time_ns: u64,
        begins: (Kind, u64, u32),
        name: String,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) -> u64 {
        let (kind, key, depth) = begins;
        let (id, span_id) = (self.new_operation(), cx.new_span());
        self.thread(header.tgid, header.tid, objects, cx);
        if kind != Kind::Inferred {
            self.close_impossible(header.tid, begins, time_ns, objects, cx);
        }
        self.abandon_call(header.tid, time_ns, objects, cx);
        let Some(thread) = self.map.get_mut(&header.tid) else { return id };
        if thread.frames.is_empty() {
            exclusive::begin_frames(thread, time_ns, time_ns, &mut objects.activity, cx.sink);
        } else {
            exclusive::make_slices(thread, time_ns, &mut objects.activity, cx.sink);
        }
        // The marks below turn out not to be operations; what they held back belongs to what is around them.
        let open = thread.frames.iter().filter(|f| f.is_probed()).count() as u32;
        let nesting = if depth == 0 { open + 1 } else { depth };
        let (mut around, mut outside) = (0, None);
        let mut parent = (0, header.cpu, time_ns);
        for frame in &mut thread.frames {
            if frame.is_undecided() {
                let outer = (around != 0).then_some(around);
                frame.held.drain(..).for_each(|s| cx.sink.span(Span { operation: outer, ..s }));
                // Those inside it repeat them.
                let slices = std::mem::take(&mut frame.slices);
                outside = outside.or((around == 0).then_some(slices));
                self.void.insert(frame.id, around);
                self.void_order.push_back(frame.id);
            }
            frame.opened = true;
            // Only calls can be inside a guess.
            if !frame.is_around(nesting) || frame.is_guess() {
                continue;
            }
            if frame.is_operation() {
                around = frame.id;
            }
            parent = (frame.span, frame.cpu, frame.start_ns);
        }
        while self.void_order.len() > HISTORY_MAX {
            self.void_order.pop_front().map(|old| self.void.remove(&old));
        }
        let who = (thread.tgid, thread.tid);
        outside.into_iter().flatten().for_each(|slice| thread.outside.add(who, slice, cx.sink));
        thread.frames.push(Frame {
            parent: around,
            depth: if kind == Kind::Inferred { 0 } else { nesting },
            key,
            name,
            cpu: header.cpu,
            sleeps: cx.config.sleeps,
            ..Frame::new(kind, id, span_id, time_ns)
        });
        thread.ran(time_ns);
        if kind == Kind::Function && cx.config.group_commits.contains(&key) {
            self.groups.began((id, span_id), (header.tgid, header.tid), key, time_ns);
        }
        let window = Window { start_ns: parent.2, end_ns: time_ns, cpus: [parent.1, header.cpu] };
        let sure = if kind == Kind::Inferred { Confidence::Guess } else { Confidence::Interval };
        cx.link(parent.0, span_id, Relation::Calls, sure, window);
        id
    }

    /// Notes when an inferred transaction ended, and closes it if that time has come.
    pub(crate) fn end_inferred(
        &mut self,
        tid: u32,
        operation: u64,
        end_ns: u64,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        let frame = self.map.get_mut(&tid).and_then(|t| t.frames.iter_mut().find(|f| f.id == operation));
        if let Some(frame) = frame {
            frame.end_ns = end_ns.max(frame.start_ns);
        }
        self.settle_marks(tid, cx.now_ns, objects, cx);
    }

    /// Writes the rows of an inferred transaction that was popped.
    pub(super) fn close_inferred(&mut self, (tgid, tid): (u32, u32), mut frame: Frame, cx: &mut Context<'_>) {
        let end_ns = frame.end_ns;
        exclusive::finish_slices(&mut frame, end_ns, 0, cx.sink);
        let end = OperationEnd {
            end_ns: Some(end_ns),
            inside_ns: end_ns - frame.start_ns,
            rows: 0,
            steps: None,
            result: None,
        };
        self.close_execution(tgid, tid, &frame, &end, cx);
    }

    /// Keeps what SQLite counted until the end of the execution, the thread's next record.
    pub(crate) fn on_op_counts(&mut self, header: &Header, record: &OpCounts) {
        // Only ends that were lost leave any behind.
        if self.counted.len() >= COUNTED_THREADS_MAX {
            self.counted.clear();
        }
        self.counted.insert(header.tid, record.clone());
    }

    /// Handles the end of an execution.
    pub(crate) fn on_op_end(&mut self, header: &Header, record: &OpEnd, objects: &mut Objects, cx: &mut Context<'_>) {
        let end_ns = header.time_ns;
        self.settle_marks(header.tid, end_ns, objects, cx);
        self.thread(header.tgid, header.tid, objects, cx);
        let counted = self.counted.remove(&header.tid);
        let counted = counted.filter(|c| (c.key, c.start_ns) == (record.key, record.start_ns));
        let same = |f: &Frame| f.is_probed() && f.key == record.key && f.start_ns == record.start_ns;
        // Not always the top: an application may step two statements alternately.
        let found = self.map.get(&header.tid).and_then(|t| t.frames.iter().rposition(same));
        if matches!(record.kind, OP_LEFT | OP_GAVE_WAY) {
            // It is known that it was left by now, not when; or that it had not ended yet.
            found.map(|place| self.close_lost(header.tid, place, end_ns, objects, cx));
            return;
        }
        let (id, span_id) = if found.is_some() { (0, 0) } else { (self.new_operation(), cx.new_span()) };
        let Some(thread) = self.map.get_mut(&header.tid) else { return };
        thread.ran(end_ns);
        let frame = found.map(|place| {
            exclusive::make_slices(thread, end_ns, &mut objects.activity, cx.sink);
            thread.frames.remove(place)
        });
        let start_ns = record.start_ns.min(end_ns);
        let mut frame = frame.unwrap_or_else(|| {
            // Its activity is not known, only its interval: `finish_slices` writes one slice with that reason.
            let kind = if record.kind == op_kind::STATEMENT { Kind::Statement } else { Kind::Function };
            Frame { depth: 1, key: record.key, end_ns, cpu: header.cpu, ..Frame::new(kind, id, span_id, start_ns) }
        });
        let end_ns = end_ns.max(frame.start_ns);
        let between = (end_ns - frame.start_ns).saturating_sub(record.inside_ns);
        let unseen = exclusive::finish_slices(&mut frame, end_ns, between, cx.sink);
        if let (Some(place), Some(thread)) = (found, self.map.get_mut(&header.tid)) {
            let around = thread.frames[..place].iter_mut().filter(|f| f.kind == Kind::Function);
            around.for_each(|f| exclusive::between_rows(f, frame.span, unseen));
        }
        let end = OperationEnd {
            end_ns: Some(end_ns),
            inside_ns: record.inside_ns,
            rows: record.rows,
            steps: Some(record.steps),
            result: Some(record.result.into()),
        };
        if let Some(counts) = counted {
            cx.sink.counters(counters_row(frame.id, &counts));
        }
        self.close_execution(header.tgid, header.tid, &frame, &end, cx);
    }

    /// Writes the rows of an execution that was popped.
    fn close_execution(&mut self, tgid: u32, tid: u32, frame: &Frame, end: &OperationEnd, cx: &mut Context<'_>) {
        self.groups.ended(frame.id, end.end_ns.unwrap_or(0));
        let (layer, span_kind, shape) = match frame.kind {
            Kind::Inferred => (Layer::Database, "transaction", self.shape(ShapeKind::Transaction, &frame.name, cx)),
            Kind::Statement => match self.statements.get(&(tgid, frame.key)) {
                Some(shape) => (Layer::Database, "step", *shape),
                None => (Layer::Database, "step", self.shape(ShapeKind::Statement, "(unknown text)", cx)),
            },
            _ => {
                let name = usize::try_from(frame.key).ok().and_then(|k| cx.config.functions.get(k));
                let name = name.cloned().unwrap_or_else(|| format!("function {}", frame.key));
                (Layer::App, "function", self.shape(ShapeKind::Function, &name, cx))
            }
        };
        cx.sink.span(Span {
            operation: Some(frame.id),
            end_ns: end.end_ns,
            result: end.result,
            number: (frame.kind == Kind::Statement).then_some(end.rows),
            ..span(frame.span, layer, span_kind, frame.start_ns, tgid, tid)
        });
        if frame.kind == Kind::Statement
            && let Some(traceparent) = self.contexts.get(&(tgid, frame.key))
        {
            cx.sink.context(TraceContext { operation: frame.id, traceparent: traceparent.clone() });
        }
        self.operation_row(tgid, tid, frame, shape, end, cx);
    }

    /// Pops what cannot be open any more when this begins, so that its end must have been lost: the same execution; a
    /// function at this nesting, since functions do not wait; and the oldest, if more are open than possible.
    fn close_impossible(
        &mut self,
        tid: u32,
        begins: (Kind, u64, u32),
        time_ns: u64,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        let (kind, key, depth) = begins;
        loop {
            let Some(thread) = self.map.get(&tid) else { return };
            let find = |wanted: &dyn Fn(&Frame) -> bool| thread.frames.iter().position(wanted);
            let open = thread.frames.iter().filter(|f| f.is_probed()).count();
            let lost = find(&|f| f.kind == kind && f.key == key)
                .or_else(|| find(&|f| f.kind == Kind::Function && depth > 0 && !f.is_around(depth)))
                .or_else(|| find(&Frame::is_probed).filter(|_| open >= OPEN_EXECUTIONS_MAX));
            let Some(place) = lost else { return };
            self.close_lost(tid, place, time_ns, objects, cx);
        }
    }

    /// Pops a frame whose end was lost. Returns `false` if there was none.
    pub(super) fn close_lost(
        &mut self,
        tid: u32,
        place: usize,
        time_ns: u64,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) -> bool {
        let frame = self.map.get(&tid).and_then(|t| t.frames.get(place));
        let guess = frame.filter(|f| f.is_guess()).map(|f| f.id);
        let ended = guess.and_then(|operation| self.inferred.forget(tid, operation));
        let Some(thread) = self.map.get_mut(&tid).filter(|t| place < t.frames.len()) else { return false };
        let frame = &thread.frames[place];
        let known = Some(frame.end_ns).filter(|end_ns| frame.kind != Kind::Mark && *end_ns != u64::MAX).or(ended);
        exclusive::make_slices(thread, known.unwrap_or(0).max(time_ns), &mut objects.activity, cx.sink);
        let tgid = thread.tgid;
        let mut frame = thread.frames.remove(place);
        if frame.kind == Kind::Mark {
            self.close_mark(tid, frame, cx);
        } else if frame.kind == Kind::Call {
            self.close_call(tid, frame, known, cx);
        } else {
            let end_ns = known.map(|at| at.max(frame.start_ns));
            exclusive::finish_slices(&mut frame, end_ns.unwrap_or(time_ns), 0, cx.sink);
            let inside_ns = end_ns.map_or(0, |at| at - frame.start_ns);
            self.close_execution(
                tgid,
                tid,
                &frame,
                &OperationEnd { end_ns, inside_ns, rows: 0, steps: None, result: None },
                cx,
            );
        }
        true
    }
}

/// Returns the row of an operation's counters; those that are not known are empty.
fn counters_row(operation: u64, counts: &OpCounts) -> StatementCounters {
    let known = |bit: u32, count: u32| (counts.known >> bit & 1 == 1).then_some(u64::from(count));
    StatementCounters {
        operation,
        fullscan_steps: known(0, counts.fullscan_steps),
        sorts: known(1, counts.sorts),
        autoindex_rows: known(2, counts.autoindex_rows),
        vm_steps: known(3, counts.vm_steps),
        reprepares: known(4, counts.reprepares),
        runs: known(5, counts.runs),
        cache_hits: known(6, counts.cache_hits),
        cache_misses: known(7, counts.cache_misses),
        cache_writes: known(8, counts.cache_writes),
        cache_spills: known(9, counts.cache_spills),
    }
}
