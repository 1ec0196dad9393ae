//! The application's marks: operations only if no statement or function begins inside them.

use super::operations::OperationEnd;
use super::stack::{Frame, Kind};
use super::{Threads, exclusive};
use crate::Sleeps;
use crate::context::{Context, span};
use crate::loss::Window;
use crate::objects::Objects;
use model::event::{Header, Mark};
use model::table::Span;
use model::{Confidence, Layer, Relation, ShapeKind};
use std::borrow::Cow;

impl Threads {
    /// Pops what is known to have ended by `time_ns`: marks, calls that are operations, and inferred transactions.
    ///
    /// They end with the passage of time, not with the record from which their end is known: that record is handled at its begin, when
    /// what their thread did and waited for meanwhile has not arrived yet.
    pub(crate) fn settle_marks(&mut self, tid: u32, time_ns: u64, objects: &mut Objects, cx: &mut Context<'_>) {
        while let Some(thread) = self.map.get_mut(&tid) {
            let last = thread.frames.len().saturating_sub(1);
            // Of two inferred transactions, neither is inside the other.
            let over = |(at, f): &(usize, &Frame)| f.end_ns <= time_ns && (*at == last || f.is_guess());
            let ended = thread.frames.iter().enumerate().filter(over).min_by_key(|(_, f)| f.end_ns);
            let Some((place, end_ns)) = ended.map(|(place, f)| (place, f.end_ns)) else { return };
            exclusive::make_slices(thread, end_ns, &mut objects.activity, cx.sink);
            let tgid = thread.tgid;
            let frame = thread.frames.remove(place);
            match frame.kind {
                Kind::Call => self.close_call(tid, frame, Some(end_ns), cx),
                Kind::Inferred => self.close_inferred((tgid, tid), frame, cx),
                _ => self.close_mark(tid, frame, cx),
            }
        }
    }

    pub(super) fn close_mark(&mut self, tid: u32, mut frame: Frame, cx: &mut Context<'_>) {
        self.marks.remove(&frame.id);
        let Some(tgid) = self.map.get(&tid).map(|t| t.tgid) else { return };
        let operation = frame.is_operation();
        // As its record says, even if nothing else was recorded until then.
        let end_ns = frame.end_ns.max(frame.start_ns);
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
        exclusive::finish_slices(&mut frame, end_ns, 0, cx.sink);
        let shape = self.shape(ShapeKind::Mark, &frame.name, cx);
        let end = OperationEnd {
            end_ns: Some(end_ns),
            inside_ns: end_ns - frame.start_ns,
            rows: 0,
            steps: None,
            result: None,
        };
        self.operation_row(tgid, tid, &frame, shape, &end, cx);
    }

    /// The application marked an interval.
    pub(crate) fn on_mark(&mut self, header: &Header, record: &Mark, objects: &mut Objects, cx: &mut Context<'_>) {
        let (start_ns, end_ns) = (record.start_ns.min(header.time_ns), header.time_ns);
        self.settle_marks(header.tid, start_ns, objects, cx);
        let span_id = cx.new_span();
        if start_ns < cx.now_ns {
            return self.on_late_mark(header, record, start_ns, span_id, cx);
        }
        let id = self.new_operation();
        self.thread(header.tgid, header.tid, objects, cx);
        let Some(thread) = self.map.get_mut(&header.tid) else { return };
        if thread.frames.is_empty() {
            exclusive::begin_frames(thread, start_ns, start_ns, &mut objects.activity, cx.sink);
        } else {
            exclusive::make_slices(thread, start_ns, &mut objects.activity, cx.sink);
        }
        let around = thread.operation(0).map_or(0, |f| f.id);
        let parent = thread.frames.iter().rfind(|f| !f.is_guess());
        let parent = parent.map_or((0, header.cpu, start_ns), |f| (f.span, f.cpu, f.start_ns));
        let sleeps = match cx.config.sleeps {
            Sleeps::All if cx.config.marks_from_ns.is_none_or(|from_ns| start_ns < from_ns) => Sleeps::InOperations,
            sleeps => sleeps,
        };
        thread.frames.push(Frame {
            parent: around,
            end_ns,
            name: record.text.clone(),
            nth: record.nth,
            cpu: header.cpu,
            decided: false,
            sleeps,
            ..Frame::new(Kind::Mark, id, span_id, start_ns)
        });
        self.marks.insert(id, header.tid);
        let window = Window { start_ns: parent.2, end_ns: start_ns, cpus: [parent.1, header.cpu] };
        cx.link(parent.0, span_id, Relation::Calls, Confidence::Interval, window);
    }

    /// A mark that arrived after the interval it spans: it is linked to the operations inside it, but is not one itself,
    /// since its thread's activity was not kept.
    fn on_late_mark(&mut self, header: &Header, record: &Mark, start_ns: u64, id: u64, cx: &mut Context<'_>) {
        let end_ns = header.time_ns;
        let from = self.history.partition_point(|e| e.end_ns < start_ns);
        let inside: Vec<(u64, u64)> = self
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
}
