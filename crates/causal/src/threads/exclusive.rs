//! Where each nanosecond of an operation went.
//!
//! Each thread has one sequence of time slices. At each moment the thread ran (the slice then names the innermost of
//! application, database, system call, file system), was runnable without a CPU, or slept (then [`crate::activity`] names
//! the deepest thing that it waited for). The slices of an operation are that sequence cut to its interval, so they follow
//! each other without gap or overlap. An operation inside another (a trigger's statement, a statement run by a function)
//! has its own slices; its parent's slices show the same time by their layers too.
//!
//! A statement is open from its first step to its last, and between steps the application runs. What the trace sees it do
//! there (a system call, a sleep, another statement) is layer App in the statement's slices, with the reason, and is not
//! explained further: the disk it waits for is not the statement's.
//!
//! *Uncertainty*: the slices are made when the operation ends, or in parts when it is long; a system call that shows up
//! after its part was filled in (longer than two horizons, and never asleep) is missing there. The rest of the time between
//! rows, on the CPU, is known only as a sum (one record per execution, never per row): the missing part is taken from the
//! statement's own time, from the end backwards, and given to the application. Its length is right, its position is not
//! known. The same holds for statements that are stepped alternately: how their common time is divided is known, not when.

use super::stack::{Frame, Kind, OffCpuPeriod, Thread};
use crate::activity::{Activity, OWN_SPAN, SleepContext, TimeSlice};
use crate::blocked::KernelWait;
use crate::{Sink, Sleeps};
use model::event::flags;
use model::table::Slice;
use model::{Confidence, Layer, Reason, Wait};

/// Number of slices that an operation holds back, since its last ones may still be given to the application.
const HELD_SLICES_MAX: usize = 4096;

/// Number of periods off the CPU that a thread outside operations holds back.
const OUTSIDE_OFF_CPU_MAX: usize = 1 << 14;

/// Number of slices that covers most operations: their memory is allocated once.
const SLICES_CAPACITY: usize = 16;

/// Time of an execution that began between the rows: the application's, up to the sum of such time.
const SIBLING_SPAN: u64 = u64::MAX - 1;

/// Makes the thread's slices up to `upto_ns`.
pub(crate) fn make_slices(thread: &mut Thread, upto_ns: u64, activity: &mut Activity, sink: &mut dyn Sink) {
    let mut at = thread.cursor_ns;
    let mut pieces = activity.take_buffer();
    while at < upto_ns {
        while thread.calls.front().is_some_and(|c| c.end_ns <= at) {
            thread.calls.pop_front();
        }
        while thread.off_cpu.front().is_some_and(|a| a.end_ns <= at) {
            thread.off_cpu.pop_front();
        }
        let mut next = upto_ns;
        let mut border = |ns: u64| {
            if ns > at {
                next = next.min(ns);
            }
        };
        let call = thread.calls.front();
        if let Some(c) = call {
            [c.start_ns, c.end_ns, c.fs_start_ns, c.fs_end_ns].into_iter().for_each(&mut border);
        }
        let away = thread.off_cpu.front();
        if let Some(a) = away {
            [a.start_ns, a.wake_ns, a.end_ns].into_iter().for_each(&mut border);
            if a.throttled_ns > 0 {
                border(a.wake_ns.saturating_add(a.throttled_ns).min(a.end_ns));
            }
        }
        let call = call.filter(|c| c.start_ns <= at);
        let in_fs = call.filter(|c| c.fs_start_ns <= at && at < c.fs_end_ns);
        let place = match (in_fs, call) {
            (Some(c), _) => (Layer::FileSystem, c.fs_span),
            (None, Some(c)) => (Layer::Syscall, c.span),
            (None, None) => (Layer::Database, OWN_SPAN),
        };
        let confidence = Confidence::Exact;
        let away = away.filter(|a| a.start_ns <= at);
        let between_rows = call.map_or(away.is_some_and(|a| a.between_rows), |c| c.ctx & flags::BETWEEN_ROWS != 0);
        let (start_ns, end_ns) = (at, next);
        let transaction = call.map(|c| c.transaction);
        let name = call.and_then(|c| c.call);
        let piece = |layer, reason, span| TimeSlice {
            layer,
            reason,
            span,
            start_ns,
            end_ns,
            confidence,
            between_rows,
            transaction,
            call: name,
            blocked: None,
        };
        match away {
            None => pieces.push(piece(place.0, Reason::Cpu, place.1)),
            Some(a) if at >= a.wake_ns => {
                let throttled = at < a.wake_ns.saturating_add(a.throttled_ns);
                // The maximum duration is known, not the time.
                let confidence = if throttled { Confidence::Interval } else { confidence };
                let blocked = throttled.then(|| KernelWait::from_wait(Wait::CpuQuota));
                pieces.push(TimeSlice { confidence, blocked, ..piece(Layer::RunQueue, Reason::RunQueue, 0) });
            }
            Some(OffCpuPeriod { blocked: Some(blocked), .. }) if blocked.decides() => {
                let (confidence, blocked) = (Confidence::Structural, Some(*blocked));
                pieces.push(TimeSlice { confidence, blocked, ..piece(place.0, Reason::Other, place.1) });
            }
            Some(away) => {
                let who = SleepContext {
                    tid: thread.tid,
                    call_ns: call.map_or(0, |c| c.start_ns),
                    call: call.and_then(|c| c.call),
                    dev: call.map_or(0, |c| c.dev),
                    ino: call.map_or(0, |c| c.ino),
                    ctx: call.map_or(0, |c| c.ctx),
                };
                let before = pieces.len();
                activity.explain(&who, at, next, place, &mut pieces);
                for piece in &mut pieces[before..] {
                    (piece.between_rows, piece.transaction, piece.call) = (between_rows, transaction, name);
                    if matches!(piece.reason, Reason::Other | Reason::Journal) {
                        piece.blocked = away.blocked;
                    }
                }
            }
        }
        at = next;
    }
    thread.cursor_ns = thread.cursor_ns.max(at);
    if !thread.frames.iter().any(Frame::is_operation) {
        let who = (thread.tgid, thread.tid);
        pieces.iter().for_each(|piece| thread.outside.add(who, *piece, sink));
    }
    for place in 0..thread.frames.len() {
        let Some((frame, later)) = thread.frames[place..].split_first_mut() else { break };
        if !frame.is_operation() {
            continue;
        }
        let sibling = later.iter().any(|f| frame.waits_for(f));
        let innermost = later.iter().rev().find(|f| f.kind != Kind::Mark);
        let inner = innermost.filter(|f| f.kind == Kind::Statement).map(|f| f.span);
        for &piece in &pieces {
            let piece = match frame.kind {
                Kind::Statement if piece.between_rows => as_application(piece, 0),
                Kind::Statement if sibling => as_application(piece, SIBLING_SPAN),
                // A call on another file.
                Kind::Inferred if piece.transaction.is_some_and(|t| t != frame.id) => as_application(piece, 0),
                Kind::Function if piece.span == OWN_SPAN && !piece.between_rows => {
                    TimeSlice { span: inner.unwrap_or(OWN_SPAN), ..piece }
                }
                _ => piece,
            };
            if frame.slices.is_empty() && !frame.flushed && frame.start_ns < piece.start_ns {
                // It began in a part that was already filled in: its begin record came late.
                frame.add_slice(unknown_slice(frame.start_ns, piece.start_ns));
            }
            frame.add_slice(piece);
        }
        if frame.slices.len() > HELD_SLICES_MAX {
            (frame.decided, frame.flushed) = (true, true);
            let keep = frame.slices.len() - HELD_SLICES_MAX / 2;
            let id = frame.id;
            for slice in frame.slices.drain(..keep) {
                if frame.kind == Kind::Statement && slice.layer == Layer::App {
                    frame.flushed_app_ns += slice.end_ns - slice.start_ns;
                }
                sink.slice(slice_row(id, slice));
            }
        }
    }
    activity.give_back(pieces);
}

/// Prepares a thread for its first frame, which begins at `start_ns`: what it did before was outside.
pub(crate) fn begin_frames(
    thread: &mut Thread,
    start_ns: u64,
    cursor_ns: u64,
    activity: &mut Activity,
    sink: &mut dyn Sink,
) {
    if thread.outside.is_on() {
        make_slices(thread, start_ns, activity, sink);
    }
    thread.begins(start_ns, cursor_ns);
}

/// Gives a frame that its thread did not wait in (a request through a ring) the slices of what was waited for, and writes them.
pub(crate) fn put_ring_slices(
    frame: &mut Frame,
    who: &SleepContext,
    end_ns: u64,
    place: (Layer, u64),
    activity: &mut Activity,
    sink: &mut dyn Sink,
) {
    let mut pieces = activity.take_buffer();
    activity.explain(who, frame.start_ns, end_ns, place, &mut pieces);
    pieces.iter().for_each(|piece| frame.add_slice(*piece));
    activity.give_back(pieces);
    finish_slices(frame, end_ns, 0, sink);
}

/// Returns up to when slices of a thread with a long operation can be made: not into a call that is still open, nor beyond the
/// time when it last ran, since it may be asleep.
pub(crate) fn slices_possible_until(thread: &Thread, now_ns: u64, horizon_ns: u64) -> u64 {
    let mut upto = now_ns.saturating_sub(horizon_ns.saturating_mul(2)).min(thread.ran_ns);
    if let Some(call) = thread.call.as_ref().filter(|c| !c.seen) {
        upto = upto.min(call.start_ns);
    }
    // What it slept for is told by a record of the time when it ran again.
    if let Some(away) = thread.off_cpu.iter().find(|a| a.end_ns >= upto) {
        upto = upto.min(away.start_ns);
    }
    // Of a call whose record was lost, nothing more comes.
    if thread.frames.is_empty() && thread.off_cpu.len() > OUTSIDE_OFF_CPU_MAX {
        return upto;
    }
    let uncovered =
        |a: &&OffCpuPeriod| a.in_call && !thread.calls.iter().any(|c| c.start_ns <= a.start_ns && a.end_ns <= c.end_ns);
    if let Some(away) = thread.off_cpu.iter().find(uncovered) {
        upto = upto.min(away.start_ns);
    }
    upto
}

/// Returns the time before which nothing in flight explains a wait of the thread any more.
pub(crate) fn explained_until(thread: &Thread, now_ns: u64, horizon_ns: u64) -> u64 {
    let pending = thread.is_pending();
    // Asleep outside any call, it waits at most for a page, which is in flight until it is woken.
    let idle_ns = if pending { 0 } else { now_ns.saturating_sub(horizon_ns.saturating_mul(2)) };
    thread.cursor_ns.max(idle_ns)
}

/// Writes what an operation still holds back. It ended at `end_ns`; `between_ns` of it was the application's, between rows.
/// Returns how much of that the slices did not show: time on the CPU, which is known only as a sum.
pub(crate) fn finish_slices(frame: &mut Frame, end_ns: u64, between_ns: u64, sink: &mut dyn Sink) -> u64 {
    // Records that came late may have moved the slices past the end, or left its last part blank.
    while let Some(last) = frame.slices.last_mut().filter(|s| s.end_ns > end_ns) {
        last.end_ns = end_ns;
        if last.start_ns < end_ns {
            break;
        }
        frame.slices.pop();
    }
    let filled_ns = frame.slices.last().map_or(frame.start_ns, |s| s.end_ns);
    if filled_ns < end_ns && !(frame.flushed && frame.slices.is_empty()) {
        frame.add_slice(unknown_slice(filled_ns, end_ns));
    }
    let app = |s: &&TimeSlice| frame.kind == Kind::Statement && s.layer == Layer::App;
    let shown = frame.slices.iter().filter(app).map(length_ns).sum::<u64>() + frame.flushed_app_ns;
    let unseen = between_ns.saturating_sub(shown);
    give_back(frame, shown.saturating_sub(between_ns));
    between_rows(frame, frame.span, unseen);
    let id = frame.id;
    frame.slices.drain(..).for_each(|s| sink.slice(slice_row(id, s)));
    unseen
}

/// Converts time between rows for the statement's own slices: whatever happened then is the application's.
fn as_application(piece: TimeSlice, span: u64) -> TimeSlice {
    let reason = match piece.reason {
        Reason::Cpu | Reason::RunQueue => piece.reason,
        _ => Reason::Other,
    };
    // Whatever was waited for, the application waited.
    TimeSlice { layer: Layer::App, reason, span, confidence: Confidence::Exact, ..piece }
}

fn length_ns(slice: &TimeSlice) -> u64 {
    slice.end_ns - slice.start_ns
}

/// Gives `unseen_ns` of a statement's time in these slices, its own or those of a function around it, to the application,
/// from the end backwards.
pub(crate) fn between_rows(frame: &mut Frame, statement: u64, unseen_ns: u64) {
    let span = if frame.span == statement { 0 } else { frame.span };
    let wanted = |s: &TimeSlice| s.layer == Layer::Database && s.span == statement;
    // How long is known, not when.
    let confidence = Confidence::Guess;
    convert_slices(frame, unseen_ns, wanted, |s| TimeSlice {
        layer: Layer::App,
        reason: Reason::Cpu,
        span,
        confidence,
        ..s
    });
}

/// If the executions that began between the rows took longer than the time between them, the statement was stepped
/// alternately with them: their excess of time on the CPU is the statement's own.
fn give_back(frame: &mut Frame, excess_ns: u64) {
    if !frame.slices.iter().any(|s| s.span == SIBLING_SPAN) {
        return;
    }
    let own = frame.span;
    let sibling = |s: &TimeSlice| s.span == SIBLING_SPAN && s.reason == Reason::Cpu;
    let confidence = Confidence::Guess;
    convert_slices(frame, excess_ns, sibling, |s| TimeSlice { layer: Layer::Database, span: own, confidence, ..s });
    let slices = std::mem::take(&mut frame.slices);
    for slice in slices {
        frame.add_slice(TimeSlice { span: if slice.span == SIBLING_SPAN { 0 } else { slice.span }, ..slice });
    }
}

/// Converts `left` ns of the slices that `wanted` accepts with `other`, from the end backwards.
fn convert_slices(
    frame: &mut Frame,
    mut left: u64,
    wanted: impl Fn(&TimeSlice) -> bool,
    other: impl Fn(TimeSlice) -> TimeSlice,
) {
    if left == 0 {
        return;
    }
    let mut done: Vec<TimeSlice> = Vec::with_capacity(frame.slices.len() + 1);
    while let Some(mut slice) = frame.slices.pop_if(|_| left > 0) {
        if wanted(&slice) {
            let taken = length_ns(&slice).min(left);
            left -= taken;
            let border = slice.end_ns - taken;
            done.push(other(TimeSlice { start_ns: border, ..slice }));
            slice.end_ns = border;
            if slice.start_ns == border {
                continue;
            }
        }
        done.push(slice);
    }
    done.into_iter().rev().for_each(|s| frame.add_slice(s));
}

fn unknown_slice(start_ns: u64, end_ns: u64) -> TimeSlice {
    let confidence = Confidence::Guess;
    let (layer, reason) = (Layer::Database, Reason::Other);
    TimeSlice {
        layer,
        reason,
        span: OWN_SPAN,
        start_ns,
        end_ns,
        confidence,
        between_rows: false,
        transaction: None,
        call: None,
        blocked: None,
    }
}

fn slice_row(operation: u64, s: TimeSlice) -> Slice {
    Slice {
        operation,
        layer: s.layer,
        reason: s.reason,
        start_ns: s.start_ns,
        end_ns: s.end_ns,
        span: (s.span != 0 && s.span != SIBLING_SPAN).then_some(s.span),
        confidence: Some(s.confidence),
        wait: s.blocked.map(|b| b.wait),
        by_tgid: s.blocked.map(|b| b.tgid).filter(|tgid| *tgid != 0),
        by_operation: s.blocked.map(|b| b.operation).filter(|id| *id != 0),
        wait_file: s.blocked.map(|b| b.file).filter(|id| *id != 0),
    }
}

impl Frame {
    /// Adds a slice; merges it with the last one if they are alike.
    fn add_slice(&mut self, mut piece: TimeSlice) {
        let outside_calls = piece.span == OWN_SPAN && matches!(self.kind, Kind::Inferred | Kind::Mark);
        let unseen = self.sleeps == Sleeps::Unrecorded || outside_calls && self.sleeps == Sleeps::InOperations;
        if unseen && piece.reason == Reason::Cpu {
            (piece.reason, piece.confidence) = (Reason::Other, Confidence::Guess);
        }
        if self.is_guess() {
            piece.confidence = Confidence::Guess;
        }
        if piece.span == OWN_SPAN {
            piece.span = self.span;
            match self.kind {
                Kind::Statement | Kind::Inferred => {}
                Kind::Function | Kind::Mark => piece.layer = Layer::App,
                Kind::Call => piece.layer = Layer::Syscall,
            }
        }
        match self.slices.last_mut() {
            Some(last)
                if last.end_ns == piece.start_ns
                    && (last.layer, last.reason, last.span) == (piece.layer, piece.reason, piece.span)
                    && last.blocked == piece.blocked =>
            {
                last.end_ns = piece.end_ns;
                last.confidence = last.confidence.min(piece.confidence);
            }
            _ => {
                if self.slices.is_empty() {
                    self.slices.reserve(SLICES_CAPACITY);
                }
                self.slices.push(piece);
            }
        }
    }
}
