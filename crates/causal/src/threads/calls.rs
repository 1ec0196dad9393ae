//! System calls, and their effects beyond what their records contain: they dirty pages, join transactions, wait for the
//! medium.
//!
//! Most information about a call is in its `syscall` record, which is written when it ends. But bios that it sends carry
//! its start (`syscall_ns`), and calls that wait long for the device are announced at their start (`sync_begin`). So a call
//! may be known before its record arrives: it has an identity (thread, start) and spans, and the record fills them in.
//!
//! A call belongs to the operation that its thread was inside of. A statement that is merely open, between two of its rows,
//! does not count (`BETWEEN_ROWS`): then the call belongs to the surrounding mark or function, else to the process.
//!
//! *Uncertainty*: of a call whose record was lost, only what other records contain is known, and no end.

use super::Threads;
use super::alone::CallFacts;
use super::stack::{Call, CallSegment, Frame, Kind};
use crate::actor::{Actor, Source};
use crate::context::{Context, span};
use crate::journal::{Joiner, SyncWait};
use crate::loss::Window;
use crate::objects::Objects;
use crate::pages::{FileKey, Writer};
use model::event::{Header, SyncBegin, Syscall, flags};
use model::table::Span;
use model::{Call as CallName, Confidence, Layer, Relation};
use std::borrow::Cow;

/// The times of `sync_begin` and of the start in the call's record are taken one after the other.
const SAME_CALL_NS_MAX: u64 = 100_000;

impl Threads {
    /// Returns the call of this thread that began at `start_ns`, adding it if it was not known.
    pub(crate) fn enter(
        &mut self,
        header: &Header,
        start_ns: u64,
        ctx: u16,
        (name, file): (Option<CallName>, FileKey),
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) -> Call {
        let thread = self.thread(header.tgid, header.tid, objects, cx);
        if ctx & flags::TRACKED != 0 {
            thread.sum_outside(start_ns, cx.config);
        }
        let announced = |c: &Call| {
            !c.seen
                && c.call.is_some_and(|call| call.syncs() || call.writes())
                && (name.is_none() || c.call == name)
                && c.start_ns.abs_diff(start_ns) < SAME_CALL_NS_MAX
        };
        let found = [thread.call, thread.before].into_iter().flatten().find(|c| c.start_ns == start_ns || announced(c));
        if let Some(mut call) = found {
            // `fs_write` does not contain whether a statement ran; a record that does takes precedence.
            if !call.seen && ctx & flags::BETWEEN_ROWS & !call.ctx != 0 {
                let around = self.surroundings_at(header.tid, start_ns, ctx, &objects.names);
                call = Call { actor: Actor::from_header(header, ctx, around.charged(), cx), ctx, ..call };
                self.update(header.tid, call);
            }
            return call;
        }
        self.abandon_call(header.tid, start_ns, objects, cx);
        let around = self.surroundings_at(header.tid, start_ns, ctx, &objects.names);
        let call = Call {
            start_ns,
            end_ns: u64::MAX,
            span: cx.new_span(),
            fs_span: 0,
            actor: Actor::from_header(header, ctx, around.charged(), cx),
            call: name,
            dev: file.0,
            ino: file.1,
            cpu: header.cpu,
            ctx,
            seen: false,
            wrote: false,
        };
        if ctx & flags::TRACKED != 0 {
            objects.names.mark_tracked(header.tgid);
        }
        let Some(thread) = self.get_mut(header.tid) else { return call };
        if thread.call.is_some_and(|c| c.start_ns > start_ns) {
            return call; // Older than what the thread does now: see `keeps`.
        }
        let old = std::mem::replace(&mut thread.before, thread.call.replace(call));
        let next_ns = thread.before.map_or(start_ns, |c| c.start_ns);
        if let Some(old) = old.filter(|c| !c.seen) {
            let (tgid, tid) = (header.tgid, header.tid);
            self.put_unfinished_call((tgid, tid), &old, next_ns, objects, cx);
        }
        call
    }

    /// Whether a call is kept: one older than its thread's current call is not, and is not needed again.
    pub(crate) fn keeps_call(&self, tid: u32, span: u64) -> bool {
        let thread = self.get(tid);
        thread.is_some_and(|t| [t.call, t.before].into_iter().flatten().any(|c| c.span == span))
    }

    /// Stores what became known of a call.
    pub(crate) fn update(&mut self, tid: u32, call: Call) {
        let Some(thread) = self.get_mut(tid) else { return };
        [&mut thread.call, &mut thread.before]
            .into_iter()
            .filter_map(Option::as_mut)
            .filter(|c| c.span == call.span)
            .for_each(|c| *c = call);
    }

    /// Writes a call whose end was not seen and will not be; it ended by `by_ns`.
    pub(crate) fn put_unfinished_call(
        &mut self,
        (tgid, tid): (u32, u32),
        call: &Call,
        by_ns: u64,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        if call.seen {
            return;
        }
        let open = |f: &Frame| f.kind == Kind::Call && f.span == call.span;
        if let Some(place) = self.get(tid).and_then(|t| t.frames.iter().position(open)) {
            self.close_lost(tid, place, by_ns, objects, cx);
        }
        // Otherwise all later commits would seem to be waited for by it.
        objects.journal.sync_ended(call.dev, call.deepest(), by_ns);
        let kind = call.call.map_or("system call", CallName::name);
        let file = objects.names.file((call.dev, call.ino), call.start_ns);
        let row = span(call.span, Layer::Syscall, kind, call.start_ns, tgid, tid);
        let operation = self.settled(call.actor).operation;
        let operation = (operation != 0).then_some(operation);
        self.put_span(tid, Span { operation, file, ..row }, cx);
        if call.fs_span != 0 {
            let row = span(call.fs_span, Layer::FileSystem, "sync", call.start_ns, tgid, tid);
            self.put_span(tid, Span { operation, file, ..row }, cx);
        }
    }

    /// Adds a call that is still open when its thread's trace ends to the slices until then.
    pub(crate) fn open_call_on_sheet(&mut self, tid: u32, now_ns: u64) {
        let Some(thread) = self.get_mut(tid) else { return };
        let Some(call) = thread.call.filter(|c| !c.seen) else { return };
        thread.on_call(CallSegment {
            start_ns: call.start_ns,
            end_ns: now_ns,
            fs_start_ns: call.start_ns,
            fs_end_ns: if call.fs_span != 0 { now_ns } else { call.start_ns },
            span: call.span,
            fs_span: call.fs_span,
            call: call.call,
            dev: call.dev,
            ino: call.ino,
            ctx: call.ctx,
            transaction: call.transaction(),
        });
        // A call that waits for the medium sleeps; the record of the sleep would have come with its end.
        let asleep_from = thread.off_cpu.back().map_or(call.start_ns, |a| a.end_ns.max(call.start_ns));
        if awaits_medium(call.call, call.ctx) {
            thread.on_off_cpu(asleep_from, now_ns, now_ns, 2, call.ctx | flags::IN_SYSCALL);
        }
    }

    /// A call that waits for the medium began.
    pub(crate) fn on_sync_begin(
        &mut self,
        header: &Header,
        record: &SyncBegin,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        self.settle_marks(header.tid, header.time_ns, objects, cx);
        let file = (record.dev, record.ino);
        let name = CallName::from_number(record.call).unwrap_or(CallName::Fsync);
        if record.ctx & flags::REGULAR == 0 && record.ino != 0 {
            objects.logs.add_directory(file);
        }
        let mut call = self.enter(header, header.time_ns, record.ctx, (Some(name), file), objects, cx);
        if !self.keeps_call(header.tid, call.span) {
            return;
        }
        if call.fs_span == 0 && !call.seen {
            call = Call { fs_span: cx.new_span(), call: Some(name), dev: file.0, ino: file.1, ..call };
            self.update(header.tid, call);
        }
        if !call.seen {
            let asked = CallFacts {
                start_ns: call.start_ns,
                end_ns: u64::MAX,
                ctx: record.ctx,
                call: Some(name),
                added: 0,
                result: None,
            };
            if let Some(id) = self.begin_alone(header, &call, &asked, objects, cx) {
                call.actor = Actor::from_header(header, record.ctx, Some((id, false)), cx);
                self.update(header.tid, call);
            }
            objects.journal.add_sync(record.dev, cx.now_ns, sync_wait(header.tid, &call, record.ino, u64::MAX, 0));
        }
    }

    /// A call ended.
    pub(crate) fn on_syscall(
        &mut self,
        header: &Header,
        record: &Syscall,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        let (start_ns, end_ns) = (record.start_ns.min(header.time_ns), header.time_ns);
        self.settle_marks(header.tid, start_ns, objects, cx);
        let name = CallName::from_number(record.call);
        let file = (record.dev, record.ino);
        let mut call = self.enter(header, start_ns, record.ctx, (name, file), objects, cx);
        if call.seen {
            return; // The same identity twice: a damaged log.
        }
        let is = |f: fn(CallName) -> bool| name.is_some_and(f);
        let regular = record.ctx & flags::REGULAR != 0;
        let fs_kind = match name {
            Some(c) if c.writes() || c.copies() => "write",
            Some(c) if c.reads() => "read",
            Some(c) if c.syncs() => "sync",
            _ => "",
        };
        // Some file systems report only the entry (xfs).
        let entered = record.fs_start_ns != 0 && record.fs_end_ns >= record.fs_start_ns;
        if call.fs_span == 0 && !fs_kind.is_empty() && (entered || regular) {
            call.fs_span = cx.new_span();
        }
        let known = Call { call: name, dev: file.0, ino: file.1, ..call };
        let added = record.cache_added;
        let asked = CallFacts { start_ns, end_ns, ctx: record.ctx, call: name, added, result: Some(record.result) };
        self.begin_alone(header, &known, &asked, objects, cx);
        let around = self.surroundings_at(header.tid, start_ns, record.ctx, &objects.names);
        call.actor = Actor::from_header(header, record.ctx, around.charged(), cx);
        call = Call { start_ns, end_ns, call: name, dev: file.0, ino: file.1, ctx: record.ctx, seen: true, ..call };
        self.update(header.tid, call);
        if let Some(name) = name {
            self.groups.called(call.actor.operation, name, start_ns);
        }

        let file_id = match name {
            Some(CallName::Open) => objects.names.opened_file(file, (header.tid, end_ns), start_ns),
            Some(CallName::Unlink) => objects.names.removed_file(file, (header.tid, end_ns), start_ns),
            _ => objects.names.file(file, start_ns),
        };
        let offset = u64::try_from(record.pos).ok().filter(|_| is(CallName::writes) || is(CallName::reads));
        let row = Span {
            end_ns: Some(end_ns),
            operation: around.operation,
            file: file_id,
            offset,
            bytes: record.bytes,
            result: Some(record.result),
            cache_added: is(CallName::reads).then_some(record.cache_added.into()),
            flags: Cow::Borrowed(open_flags(record.ctx)),
            ..span(
                call.span,
                Layer::Syscall,
                name.map_or("system call", CallName::name),
                call.start_ns,
                header.tgid,
                header.tid,
            )
        };
        let (fs_start_ns, fs_end_ns) = if entered {
            (record.fs_start_ns.clamp(call.start_ns, end_ns), record.fs_end_ns.clamp(call.start_ns, end_ns))
        } else {
            (call.start_ns, end_ns)
        };
        let fs_end_ns = fs_end_ns.max(fs_start_ns);
        let window = Window { start_ns: around.start_ns, end_ns, cpus: [header.cpu; 2] };
        let in_operation = record.ctx & flags::IN_OP != 0;
        let sure = match (around.guess, in_operation) {
            (true, _) => Confidence::Guess,
            (false, true) => Confidence::Structural,
            (false, false) => Confidence::Interval,
        };
        cx.link(around.span, call.span, Relation::Calls, sure, window);
        if call.fs_span != 0 {
            let fs = Span {
                layer: Layer::FileSystem,
                id: call.fs_span,
                kind: Cow::Borrowed(if fs_kind.is_empty() { "sync" } else { fs_kind }),
                start_ns: fs_start_ns,
                end_ns: Some(fs_end_ns),
                bytes: if is(CallName::syncs) { 0 } else { u64::try_from(record.result).unwrap_or(0) },
                ..row.clone()
            };
            self.put_span(header.tid, row, cx);
            self.put_span(header.tid, fs, cx);
            let window = Window { start_ns: call.start_ns, end_ns: call.start_ns, cpus: [header.cpu; 2] };
            cx.link(call.span, call.fs_span, Relation::Calls, Confidence::Exact, window);
        } else {
            self.put_span(header.tid, row, cx);
        }
        if let Some(thread) = self.get_mut(header.tid) {
            thread.ran(end_ns);
            thread.on_call(CallSegment {
                start_ns: call.start_ns,
                end_ns,
                fs_start_ns,
                fs_end_ns: if call.fs_span != 0 { fs_end_ns } else { fs_start_ns },
                span: call.span,
                fs_span: call.fs_span,
                call: name,
                dev: record.dev,
                ino: record.ino,
                ctx: record.ctx,
                transaction: call.transaction(),
            });
        }
        self.apply_effects(header, record, &call, (fs_start_ns, end_ns), objects, cx);
    }

    /// Applies the effects of a completed call on pages, transactions and waits.
    fn apply_effects(
        &mut self,
        header: &Header,
        record: &Syscall,
        call: &Call,
        (start_ns, end_ns): (u64, u64),
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        let file = (record.dev, record.ino);
        let done = u64::try_from(record.result).unwrap_or(0);
        let writes = call.call.is_some_and(|c| c.writes() || c.copies());
        let cached = record.ctx & flags::DIRECT == 0 && (record.ctx & flags::REGULAR != 0 || record.fs_writes > 0);
        let pos = u64::try_from(record.pos).ok().filter(|_| record.ino != 0);
        let by = page_writer(header, call, call.actor, start_ns, end_ns);
        match (pos.filter(|_| writes && done > 0), cached) {
            (Some(pos), true) if !call.wrote => objects.pages.write_by_call(file, pos, done, by),
            (Some(pos), _) if record.ctx & flags::REGULAR != 0 => {
                objects.pages.extend_to(file, pos.saturating_add(done))
            }
            _ => {}
        }
        if let (true, Ok(pos)) = (call.wrote && record.ctx & flags::BETWEEN_ROWS != 0, u64::try_from(record.pos)) {
            objects.pages.set_source(file, (pos, done), (header.tid, call.start_ns), Source::Actor(call.actor));
        }
        let changes = writes || call.call.is_some_and(CallName::changes);
        if changes && record.txn == 0 && record.result >= 0 {
            objects.changed(record.dev, call.actor, start_ns);
        }
        match (call.call, pos.filter(|_| record.result >= 0)) {
            (Some(CallName::Ftruncate), Some(length)) => objects.pages.resize(file, length, by),
            (Some(CallName::Fallocate), Some(pos)) => objects.pages.allocate(file, pos, record.bytes, by),
            (Some(CallName::Open), _) => objects.pages.on_opened(file),
            _ => {}
        }
        if record.txn != 0 {
            let dev = if record.dev != 0 { Some(record.dev) } else { objects.journal.disk_of(record.txn) };
            if let Some(dev) = dev {
                let joiner = Joiner {
                    source: Source::Actor(call.actor),
                    span: call.deepest(),
                    handles: f64::from(record.handles.max(1)),
                    confidence: Confidence::Structural,
                    time_ns: start_ns,
                    cpu: header.cpu,
                };
                objects.journal.join((dev, record.txn), record.ino, joiner, cx);
            }
        }
        if awaits_medium(call.call, record.ctx) {
            objects.journal.add_sync(
                record.dev,
                cx.now_ns,
                sync_wait(header.tid, call, record.ino, end_ns, record.txn),
            );
        }
    }
}

fn page_writer(header: &Header, call: &Call, actor: Actor, start_ns: u64, end_ns: u64) -> Writer {
    Writer {
        source: Source::Actor(actor),
        span: call.deepest(),
        bytes: 0,
        start_ns,
        end_ns,
        call: (header.tid, call.start_ns),
        cpu: header.cpu,
        confidence: Confidence::Structural,
        via: "page",
    }
}

/// Whether the call returns only when something is on the medium.
pub(crate) fn awaits_medium(call: Option<CallName>, ctx: u16) -> bool {
    call.is_some_and(|call| call.syncs() || call.writes() && ctx & flags::SYNC_FILE != 0)
}

fn sync_wait(tid: u32, call: &Call, ino: u64, end_ns: u64, expects: u32) -> SyncWait {
    SyncWait {
        tid,
        start_ns: call.start_ns,
        end_ns,
        ino,
        source: Source::Actor(call.actor),
        span: call.deepest(),
        expects,
        asked: false,
        confidence: Confidence::Interval,
    }
}

/// Returns how the file was opened, as a span's flags.
fn open_flags(ctx: u16) -> &'static str {
    match (ctx & flags::DIRECT != 0, ctx & flags::SYNC_FILE != 0) {
        (true, true) => "direct sync",
        (true, false) => "direct",
        (false, true) => "sync",
        (false, false) => "",
    }
}
