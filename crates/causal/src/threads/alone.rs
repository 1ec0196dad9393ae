//! System calls that are operations themselves, in programs without statements, marks or functions.
//!
//! Where a program has no statements, marks or `--op` functions, each call that waits for the device is an operation, since
//! that is what its user waits for: fsync and its variants, writes to files opened with O_SYNC or O_DSYNC or with RWF_SYNC
//! or RWF_DSYNC (pwritev2), and reads and direct writes that slept until the device had completed them. Its shape is the
//! call with its file's name, digits normalised, so that the segments of a log share one shape.
//!
//! Nothing is counted twice: a process with a recorded statement or a mark has none of them, nor has a recording with functions,
//! and calls within an inferred transaction remain part of it. Whether a read slept for the device is known only when it has
//! ended; until then it is undecided, like a mark.
//!
//! A sync that is requested through a ring (io_uring) is an operation too, from its submission to its completion. Its thread goes on
//! meanwhile, so it is on no stack, and all its time is waiting.
//!
//! *Uncertainty*: reads and writes that were submitted through a ring are no operations. A long call of unknown kind, known because a
//! bio names it before its record arrives, is undecided too.

use super::operations::OperationEnd;
use super::stack::{Call, Frame, Kind};
use super::{HISTORY_MAX, Threads, exclusive};
use crate::activity::SleepContext;
use crate::actor::Actor;
use crate::context::Context;
use crate::names::Names;
use crate::objects::Objects;
use model::event::{Header, flags};
use model::table::Span;
use model::{Call as CallName, Layer, Reason, ShapeKind};

/// What is known about a call when it is decided whether it is an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallFacts {
    pub start_ns: u64,
    /// `u64::MAX`: has not ended.
    pub end_ns: u64,
    pub ctx: u16,
    pub call: Option<CallName>,
    /// The pages that a read had to add to the page cache.
    pub added: u16,
    pub result: Option<i64>,
}

/// A sync that was requested through a ring and is an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingSync {
    pub operation: u64,
    pub span: u64,
    pub fs_span: u64,
    pub call: CallName,
    pub file: (u32, u64),
}

/// Whether a call of this kind always waits for the medium (`Some(true)`), or only if it slept (`Some(false)`).
fn waits_for_medium(facts: &CallFacts) -> Option<bool> {
    let is = |flag| facts.ctx & flag != 0;
    match facts.call {
        None => Some(false),
        Some(call) if call.syncs() => Some(true),
        Some(call) if call.writes() && is(flags::SYNC_FILE) => Some(true),
        Some(call) if call.writes() && is(flags::DIRECT) => Some(false),
        Some(call) if call.reads() && (facts.added > 0 || is(flags::DIRECT)) => Some(false),
        Some(_) => None,
    }
}

impl Threads {
    /// Whether calls of a process, in this context, may be operations.
    fn are_operations(&self, tgid: u32, ctx: u16, cx: &Context<'_>) -> bool {
        let has_statements = cx.config.with_statements.as_ref().is_none_or(|tgids| tgids.contains(&tgid));
        let wanted = ctx & (flags::TRACKED | flags::TRACER) == flags::TRACKED;
        wanted && !has_statements && cx.config.functions.is_empty() && !self.marked.contains(&tgid)
    }

    /// Returns the number of a sync that is requested through a ring, outside any operation, if it is one.
    pub(crate) fn begin_ring_sync(&mut self, header: &Header, ctx: u16, cx: &Context<'_>) -> Option<u64> {
        self.are_operations(header.tgid, ctx, cx).then(|| self.new_operation())
    }

    /// Writes the rows of such an operation; `end`: when it completed and with what result, if that was seen.
    pub(crate) fn end_ring_sync(
        &mut self,
        header: &Header,
        sync: &RingSync,
        end: Option<(u64, i64)>,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        let RingSync { operation, span, fs_span, call, file } = *sync;
        let (start_ns, end_ns) = (header.time_ns, end.map(|e| e.0.max(header.time_ns)));
        let facts = CallFacts {
            start_ns,
            end_ns: end_ns.unwrap_or(u64::MAX),
            ctx: 0,
            call: Some(call),
            added: 0,
            result: end.map(|e| e.1),
        };
        let name = shape_name(header.tid, &facts, file, &objects.names);
        let mut frame = Frame::new(Kind::Call, operation, span, start_ns);
        let (dev, ino) = file;
        let who = SleepContext { tid: header.tid, call_ns: start_ns, call: Some(call), dev, ino, ctx: 0 };
        let until_ns = end_ns.unwrap_or(cx.now_ns).max(start_ns);
        let place = (Layer::FileSystem, fs_span);
        exclusive::put_ring_slices(&mut frame, &who, until_ns, place, &mut objects.activity, cx.sink);
        let shape = self.shape(ShapeKind::Call, &name, cx);
        let inside_ns = end_ns.map_or(0, |end_ns| end_ns - start_ns);
        let end = OperationEnd { end_ns, inside_ns, rows: 0, steps: None, result: facts.result };
        self.put_operation(header.tgid, header.tid, &frame, shape, &end, cx);
    }

    /// Pushes a call on its thread's stack, if it is an operation; returns its number.
    pub(super) fn begin_alone(
        &mut self,
        header: &Header,
        call: &Call,
        facts: &CallFacts,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) -> Option<u64> {
        let decided = waits_for_medium(facts);
        if decided.is_none() && call.actor.operation == 0 {
            return None;
        }
        if !self.are_operations(header.tgid, facts.ctx, cx) {
            return None;
        }
        let thread = self.map.get(&header.tid)?;
        let known = thread.frames.iter().find(|f| f.kind == Kind::Call && f.span == call.span).map(|f| f.id);
        let name = || shape_name(header.tid, facts, (call.dev, call.ino), &objects.names);
        match (known, decided) {
            // It was taken for an operation before its record arrived.
            (Some(_), None) => {
                self.drop_undecided(header.tid, call.span, objects, cx);
                return None;
            }
            (Some(id), Some(decided)) => {
                let name = name();
                let frame = self.map.get_mut(&header.tid)?.frames.iter_mut().find(|f| f.id == id)?;
                (frame.end_ns, frame.result, frame.name) = (facts.end_ns, facts.result, name);
                if decided {
                    self.decide(id, cx);
                    self.marks.remove(&id);
                }
                return Some(id);
            }
            (None, None) => return None,
            (None, Some(_)) => {}
        }
        let decided = decided == Some(true);
        // What its thread did since it began was not kept.
        let late = facts.start_ns < cx.now_ns && facts.call.is_some();
        if late || !thread.frames.is_empty() || !self.keeps_call(header.tid, call.span) {
            return None;
        }
        let (name, id) = (name(), self.new_operation());
        let thread = self.map.get_mut(&header.tid)?;
        let cursor_ns = facts.start_ns.max(cx.now_ns);
        exclusive::begin_frames(thread, facts.start_ns, cursor_ns, &mut objects.activity, cx.sink);
        thread.frames.push(Frame {
            end_ns: facts.end_ns,
            name,
            result: facts.result,
            cpu: header.cpu,
            decided,
            sleeps: cx.config.sleeps,
            ..Frame::new(Kind::Call, id, call.span, facts.start_ns)
        });
        if !decided {
            self.marks.insert(id, header.tid);
        }
        Some(id)
    }

    /// Handles a call that a bio names before its record arrives: it lasts longer than the horizon, and may be an
    /// operation.
    pub(crate) fn long_call(
        &mut self,
        header: &Header,
        ctx: u16,
        call: Call,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) -> Call {
        if call.seen || call.call.is_some() || call.actor.operation != 0 {
            return call;
        }
        let facts = CallFacts { start_ns: call.start_ns, end_ns: u64::MAX, ctx, call: None, added: 0, result: None };
        let Some(id) = self.begin_alone(header, &call, &facts, objects, cx) else { return call };
        let call = Call { actor: Actor::from_header(header, ctx, Some((id, false)), cx), ..call };
        self.update(header.tid, call);
        call
    }

    /// Pops calls that ended, of threads that have done nothing since.
    pub(super) fn settle_calls(&mut self, objects: &mut Objects, cx: &mut Context<'_>) {
        let over = |f: &Frame| f.kind == Kind::Call && f.end_ns <= cx.now_ns;
        let mut tids: Vec<u32> =
            self.map.iter().filter(|(_, t)| t.frames.last().is_some_and(over)).map(|(tid, _)| *tid).collect();
        tids.sort_unstable();
        tids.into_iter().for_each(|tid| self.settle_marks(tid, cx.now_ns, objects, cx));
    }

    /// Handles a thread that does something impossible within a call: the end of the call on its stack was lost.
    pub(super) fn abandon_call(&mut self, tid: u32, time_ns: u64, objects: &mut Objects, cx: &mut Context<'_>) {
        let Some(thread) = self.map.get(&tid) else { return };
        let open = |f: &Frame| f.kind == Kind::Call && f.start_ns < time_ns;
        if let Some(place) = thread.frames.iter().position(open) {
            self.close_lost(tid, place, time_ns, objects, cx);
        }
    }

    /// Drops a call that turned out not to be an operation.
    fn drop_undecided(&mut self, tid: u32, span: u64, objects: &mut Objects, cx: &mut Context<'_>) {
        let Some(thread) = self.map.get_mut(&tid) else { return };
        let Some(place) = thread.frames.iter().position(|f| f.span == span) else { return };
        exclusive::make_slices(thread, cx.now_ns, &mut objects.activity, cx.sink);
        let frame = thread.frames.remove(place);
        self.void_call(tid, frame, cx);
    }

    fn void_call(&mut self, tid: u32, mut frame: Frame, cx: &mut Context<'_>) {
        if let Some(thread) = self.map.get_mut(&tid).filter(|t| !t.frames.iter().any(Frame::is_operation)) {
            let who = (thread.tgid, tid);
            frame.slices.drain(..).for_each(|slice| thread.outside.add(who, slice, cx.sink));
        }
        self.marks.remove(&frame.id);
        frame.held.drain(..).for_each(|s| cx.sink.span(Span { operation: None, ..s }));
        self.void.insert(frame.id, 0);
        self.void_order.push_back(frame.id);
        while self.void_order.len() > HISTORY_MAX {
            self.void_order.pop_front().map(|old| self.void.remove(&old));
        }
    }

    /// Closes a call that ended, or that was abandoned (`end_ns` is `None`).
    pub(super) fn close_call(&mut self, tid: u32, mut frame: Frame, end_ns: Option<u64>, cx: &mut Context<'_>) {
        let Some(tgid) = self.map.get(&tid).map(|t| t.tgid) else { return };
        let slept = |frame: &Frame| {
            frame.slices.iter().any(|s| matches!(s.reason, Reason::Device | Reason::Flush | Reason::Queue))
        };
        // A call of unknown kind whose record never came: rmdir, which has none, is named in the bio of its discard.
        if !frame.decided && (end_ns.is_none() || !slept(&frame)) {
            return self.void_call(tid, frame, cx);
        }
        self.marks.remove(&frame.id);
        frame.held.drain(..).for_each(|s| cx.sink.span(s));
        let until_ns = end_ns.or_else(|| frame.slices.last().map(|s| s.end_ns)).unwrap_or(frame.start_ns);
        exclusive::finish_slices(&mut frame, until_ns, 0, cx.sink);
        let shape = self.shape(ShapeKind::Call, &frame.name, cx);
        let inside_ns = end_ns.map_or(0, |end| end.saturating_sub(frame.start_ns));
        let end = OperationEnd { end_ns, inside_ns, rows: 0, steps: None, result: frame.result };
        self.operation_row(tgid, tid, &frame, shape, &end, cx);
    }
}

/// Returns the shape of a call: its name and the kind of file.
fn shape_name(tid: u32, facts: &CallFacts, file: (u32, u64), names: &Names) -> String {
    let call = facts.call.map_or("system call", CallName::name);
    let path = match facts.call {
        Some(CallName::Open) => names.path_opened(file, tid, facts.end_ns),
        Some(CallName::Unlink) => names.path_removed(file, tid, facts.end_ns),
        _ => names.path(file),
    };
    match path {
        Some(path) => format!("{call} {}", normalised(path)),
        None if file.1 != 0 => format!("{call} (unnamed file)"),
        None => call.to_string(),
    }
}

/// Maximum number of directories prefixed to a name without letters.
const PREFIX_DIRECTORIES_MAX: usize = 3;

/// Returns a file's name without what distinguishes files of one kind: numbers, including hexadecimal ones, and mkstemp's
/// suffix. If nothing else is left, its directory's name is prefixed.
fn normalised(path: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.trim_end_matches('/').rsplit('/').take(PREFIX_DIRECTORIES_MAX) {
        let part = normalised_part(part);
        let has_letter = part.chars().any(|c| c.is_alphabetic() && c != NUMBER_PLACEHOLDER);
        parts.push(part);
        if has_letter {
            break;
        }
    }
    parts.reverse();
    let name = parts.join("/");
    if name.is_empty() { "/".into() } else { name }
}

/// Placeholder for a number.
const NUMBER_PLACEHOLDER: char = 'N';
/// Minimum number of digits: shorter hexadecimal numbers may be words.
const HEX_DIGITS_MIN: usize = 8;
/// Length of what mkstemp substitutes for its `XXXXXX`.
const MKSTEMP_SUFFIX_CHARS: usize = 6;

fn normalised_part(name: &str) -> String {
    let temporary = name.to_ascii_lowercase().contains("tmp");
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        if word == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (own, after) = rest.split_at(word);
        let digits = own.chars().any(|c| c.is_ascii_digit());
        let hex = own.len() >= HEX_DIGITS_MIN && digits && own.chars().all(|c| c.is_ascii_hexdigit());
        let last = after.is_empty() && !out.is_empty();
        let capital = own.chars().skip(1).any(char::is_uppercase) && own.chars().any(char::is_lowercase);
        let letters = own.chars().any(char::is_alphabetic);
        let made_up = digits || capital || temporary;
        let random = last && own.len() == MKSTEMP_SUFFIX_CHARS && own.is_ascii() && letters && made_up;
        if hex || random {
            out.push(NUMBER_PLACEHOLDER);
        } else {
            let mut number = false;
            for c in own.chars() {
                if !c.is_ascii_digit() {
                    out.push(c);
                } else if !number {
                    out.push(NUMBER_PLACEHOLDER);
                }
                number = c.is_ascii_digit();
            }
        }
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_kind_are_normalised_alike() {
        for (path, shape) in [
            ("/var/lib/redis/appendonly.aof.1.incr.aof", "appendonly.aof.N.incr.aof"),
            ("/db/000012.log", "N.log"),
            ("/db/MANIFEST-000004", "MANIFEST-N"),
            ("/pg/pg_wal/00000001000000000000000A", "pg_wal/N"),
            ("/pg/base/16384/2619", "base/N/N"),
            ("/r/.git/objects/pack/tmp_pack_Xa81Bc", "tmp_pack_N"),
            ("/r/.git/objects/4f/tmp_obj_QAEAPX", "tmp_obj_N"),
            ("/x/README.md", "README.md"),
            ("/x/MyFile", "MyFile"),
            ("/x/cafe", "cafe"),
            ("/tmp/d41d8cd98f00b204e9800998ecf8427e", "tmp/N"),
            ("/12/34/56/78", "N/N/N"),
            ("/", "/"),
            ("", "/"),
            ("/é7/ü1", "üN"),
        ] {
            assert_eq!(normalised(path), shape, "{path}");
        }
    }
}
