//! System calls, and what a call does without saying so: dirty pages, join transactions, wait for the medium.
//!
//! Picture a parcel counter that writes its receipt when the customer leaves. Most of what we know stands on the receipt
//! (the `syscall` record); but parcels sent meanwhile already carry the customer's number (`syscall_ns`), and those who
//! wait long for the medium announce themselves at the door (`sync_begin`). So a call may be known before its record is
//! there: it has an identity (thread, start) and spans, and the record fills them in.
//!
//! A call is the operation's that its thread was inside of. While a statement is only open, between two of its rows, it
//! is not inside it (`BETWEEN_ROWS`): then the call is the mark's or the function's around it, else the process's.
//!
//! *Uncertainty*: whose handle a kernel thread's is, is known only from what that thread writes next, as the range of a
//! command by a loop disk's worker.

use crate::actor::{Actor, Source};
use crate::context::Context;
use crate::journal::{Joiner, Sync};
use crate::linker::State;
use crate::loss::Window;
use crate::pages::Writer;
use crate::stack::{Call, CallSegment, Thread};
use crate::threads::span;
use model::event::{CacheAdd, FsWrite, Header, Join, SyncBegin, Syscall, flags, header_flags};
use model::table::Span;
use model::{Call as CallName, Confidence, Layer, Origin, Relation};
use std::borrow::Cow;

/// A `sync_begin` and the start in the call's record are read from the clock one after the other.
const SAME_CALL_NS: u64 = 100_000;

/// A write joins a transaction (for the file's time stamps) just before its first page; this is for slow machines.
const SAME_WRITE_NS: u64 = 10_000_000;

/// Who does something now, and on which span it hangs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Issuer {
    pub actor: Actor,
    pub span: u64,
    pub operation: Option<u64>,
    pub call: Option<CallName>,
    pub confidence: Confidence,
    /// The thread that submitted it through a ring; 0: none.
    pub ring: u32,
    /// When and on which CPU the span above began.
    pub start_ns: u64,
    pub cpu: u16,
}

impl State {
    /// Who is charged for what a thread does, if nothing else tells: the operation around it, which may be a guess.
    pub(crate) fn actor(&self, header: &Header, ctx: u16, around: Option<(u64, bool)>, cx: &Context<'_>) -> Actor {
        let kernel = ctx & flags::KERNEL_THREAD != 0 || header.flags & 1 != 0;
        if cx.config.tracer == Some(header.tgid) || ctx & flags::TRACER != 0 {
            Actor::process(Origin::Tracer, header.tgid)
        } else if let Some((operation, guess)) = around {
            Actor { origin: Origin::Operation, operation, tgid: header.tgid, guess }
        } else if ctx & flags::TRACKED != 0 {
            Actor::process(Origin::Process, header.tgid)
        } else if kernel || header.tgid == 0 {
            Actor::NOBODY
        } else {
            Actor::process(Origin::OtherProcess, header.tgid)
        }
    }

    /// Who does this now: the system call that the record names, else the operation, else the process.
    pub(crate) fn issuer(&mut self, header: &Header, ctx: u16, syscall_ns: u64, cx: &mut Context<'_>) -> Issuer {
        let tracer = cx.config.tracer == Some(header.tgid) || ctx & flags::TRACER != 0;
        if let Some(ring) = self.ring(header.tgid, syscall_ns).filter(|_| !tracer) {
            let operation = ring.confidence == Confidence::Structural && ring.actor.operation != 0;
            return Issuer {
                actor: ring.actor,
                span: ring.deepest(),
                operation: operation.then_some(ring.actor.operation),
                call: ring.call,
                confidence: ring.confidence,
                ring: ring.header.tid,
                start_ns: ring.header.time_ns,
                cpu: ring.header.cpu,
            };
        }
        if syscall_ns != 0 && !tracer {
            let call = self.enter(header, syscall_ns.min(header.time_ns), None, ctx, (0, 0), cx);
            if !self.keeps(header.tid, call.span) {
                let (tgid, tid) = (header.tgid, header.tid);
                self.put_unfinished_call(&Thread { tgid, tid, ..Thread::default() }, &call, header.time_ns, cx);
            }
            return Issuer {
                actor: call.actor,
                span: call.deepest(),
                operation: (call.actor.operation != 0).then_some(call.actor.operation),
                call: call.call,
                confidence: Confidence::Structural,
                ring: 0,
                start_ns: call.start_ns,
                cpu: call.cpu,
            };
        }
        let frame = self.threads.map.get(&header.tid).filter(|t| t.tgid == header.tgid).and_then(|t| t.operation(ctx));
        let told = ctx & flags::IN_OP != 0;
        Issuer {
            actor: self.actor(header, ctx, frame.map(|f| (f.id, f.is_guess())), cx),
            span: frame.map_or(0, |f| f.span),
            operation: frame.map(|f| f.id),
            call: None,
            confidence: match frame {
                Some(frame) if frame.is_guess() => Confidence::Guess,
                Some(_) if !told => Confidence::Interval,
                _ => Confidence::Structural,
            },
            ring: 0,
            start_ns: frame.map_or(header.time_ns, |f| f.start_ns),
            cpu: frame.map_or(header.cpu, |f| f.cpu),
        }
    }

    /// The call of this thread that began at `start_ns`, made known if it was not.
    fn enter(
        &mut self,
        header: &Header,
        start_ns: u64,
        name: Option<CallName>,
        ctx: u16,
        file: (u32, u64),
        cx: &mut Context<'_>,
    ) -> Call {
        let thread = self.thread(header.tgid, header.tid, cx);
        let announced = |c: &Call| {
            !c.seen
                && c.call.is_some_and(CallName::syncs)
                && (name.is_none() || c.call == name)
                && c.start_ns.abs_diff(start_ns) < SAME_CALL_NS
        };
        let found = [thread.call, thread.before].into_iter().flatten().find(|c| c.start_ns == start_ns || announced(c));
        if let Some(mut call) = found {
            // `fs_write` does not say whether a statement ran; whoever does say is believed.
            if !call.seen && ctx & flags::BETWEEN_ROWS & !call.ctx != 0 {
                let around = self.inside(header.tid, start_ns, ctx);
                call = Call { actor: self.actor(header, ctx, around.charged(), cx), ctx, ..call };
                self.update(header.tid, call);
            }
            return call;
        }
        let around = self.inside(header.tid, start_ns, ctx);
        let call = Call {
            start_ns,
            end_ns: u64::MAX,
            span: cx.new_span(),
            fs_span: 0,
            actor: self.actor(header, ctx, around.charged(), cx),
            call: name,
            dev: file.0,
            ino: file.1,
            cpu: header.cpu,
            ctx,
            seen: false,
            wrote: false,
        };
        if ctx & flags::TRACKED != 0 {
            self.names.tracked(header.tgid);
        }
        let Some(thread) = self.threads.map.get_mut(&header.tid) else { return call };
        if thread.call.is_some_and(|c| c.start_ns > start_ns) {
            return call; // Older than what the thread does now: see `keeps`.
        }
        let old = std::mem::replace(&mut thread.before, thread.call.replace(call));
        let next_ns = thread.before.map_or(start_ns, |c| c.start_ns);
        if let Some(old) = old.filter(|c| !c.seen) {
            let (tgid, tid) = (header.tgid, header.tid);
            self.put_unfinished_call(&Thread { tgid, tid, ..Thread::default() }, &old, next_ns, cx);
        }
        call
    }

    /// Whether a call is remembered: one that is older than its thread's present call is not, and nobody asks again.
    fn keeps(&self, tid: u32, span: u64) -> bool {
        let thread = self.threads.map.get(&tid);
        thread.is_some_and(|t| [t.call, t.before].into_iter().flatten().any(|c| c.span == span))
    }

    /// Writes back what became known of a call.
    fn update(&mut self, tid: u32, call: Call) {
        let Some(thread) = self.threads.map.get_mut(&tid) else { return };
        [&mut thread.call, &mut thread.before]
            .into_iter()
            .filter_map(Option::as_mut)
            .filter(|c| c.span == call.span)
            .for_each(|c| *c = call);
    }

    /// A call whose end was not seen and will not be; it was over by `by_ns`.
    pub(crate) fn put_unfinished_call(&mut self, thread: &Thread, call: &Call, by_ns: u64, cx: &mut Context<'_>) {
        if call.seen {
            return;
        }
        // Else all commits that come would be taken to be waited for by it.
        self.journal.sync_ended(call.dev, call.deepest(), by_ns);
        let kind = call.call.map_or("system call", CallName::name);
        let file = self.names.file((call.dev, call.ino), call.start_ns);
        let row = span(call.span, Layer::Syscall, kind, call.start_ns, thread.tgid, thread.tid);
        let operation = self.threads.settled(call.actor).operation;
        let operation = (operation != 0).then_some(operation);
        self.put_span(thread.tid, Span { operation, file, ..row }, cx);
        if call.fs_span != 0 {
            let row = span(call.fs_span, Layer::FileSystem, "sync", call.start_ns, thread.tgid, thread.tid);
            self.put_span(thread.tid, Span { operation, file, ..row }, cx);
        }
    }

    /// A call still open when its thread's trace ends is on the time sheet until then.
    pub(crate) fn open_call_on_sheet(&mut self, tid: u32, now_ns: u64) {
        let Some(thread) = self.threads.map.get_mut(&tid) else { return };
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
        // Whoever waits for the medium sleeps; the record of the sleep would have come with its end.
        let asleep_from = thread.aways.back().map_or(call.start_ns, |a| a.end_ns.max(call.start_ns));
        if call.call.is_some_and(CallName::syncs) {
            thread.on_away(asleep_from, now_ns, now_ns, 2, call.ctx | flags::IN_SYSCALL);
        }
    }

    /// A call that waits for the medium began.
    pub(crate) fn on_sync_begin(&mut self, header: &Header, record: &SyncBegin, cx: &mut Context<'_>) {
        self.settle_marks(header.tid, header.time_ns, cx);
        let file = (record.dev, record.ino);
        let name = CallName::from_number(record.call).unwrap_or(CallName::Fsync);
        if record.ctx & flags::REGULAR == 0 && record.ino != 0 {
            self.logs.folder(file);
        }
        let mut call = self.enter(header, header.time_ns, Some(name), record.ctx, file, cx);
        if !self.keeps(header.tid, call.span) {
            return;
        }
        if call.fs_span == 0 && !call.seen {
            call = Call { fs_span: cx.new_span(), call: Some(name), dev: file.0, ino: file.1, ..call };
            self.update(header.tid, call);
        }
        if !call.seen {
            self.journal.sync(record.dev, cx.now_ns, wait(header.tid, &call, record.ino, u64::MAX, 0));
        }
    }

    /// A call ended.
    pub(crate) fn on_syscall(&mut self, header: &Header, record: &Syscall, cx: &mut Context<'_>) {
        let (start_ns, end_ns) = (record.start_ns.min(header.time_ns), header.time_ns);
        self.settle_marks(header.tid, start_ns, cx);
        let name = CallName::from_number(record.call);
        let file = (record.dev, record.ino);
        let mut call = self.enter(header, start_ns, name, record.ctx, file, cx);
        if call.seen {
            return; // The same identity twice: a damaged log.
        }
        let is = |f: fn(CallName) -> bool| name.is_some_and(f);
        let regular = record.ctx & flags::REGULAR != 0;
        let fs_kind = match name {
            Some(c) if c.writes() || c == CallName::CopyRange => "write",
            Some(c) if c.reads() => "read",
            Some(c) if c.syncs() => "sync",
            _ => "",
        };
        // Some file systems tell of the entry only (xfs).
        let entered = record.fs_start_ns != 0 && record.fs_end_ns >= record.fs_start_ns;
        if call.fs_span == 0 && !fs_kind.is_empty() && (entered || regular) {
            call.fs_span = cx.new_span();
        }
        let around = self.inside(header.tid, start_ns, record.ctx);
        call.actor = self.actor(header, record.ctx, around.charged(), cx);
        call = Call { start_ns, end_ns, call: name, dev: file.0, ino: file.1, ctx: record.ctx, seen: true, ..call };
        self.update(header.tid, call);

        if name == Some(CallName::Open) {
            self.names.opened(file, start_ns);
        }
        let file_id = self.names.file(file, start_ns);
        let offset = u64::try_from(record.pos).ok().filter(|_| is(CallName::writes) || is(CallName::reads));
        let row = Span {
            end_ns: Some(end_ns),
            operation: around.operation,
            file: file_id,
            offset,
            bytes: record.bytes,
            result: Some(record.result),
            cache_added: is(CallName::reads).then_some(record.cache_added.into()),
            flags: Cow::Borrowed(opened(record.ctx)),
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
        let told = record.ctx & flags::IN_OP != 0;
        let sure = match (around.guess, told) {
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
        if let Some(thread) = self.threads.map.get_mut(&header.tid) {
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
        self.consequences(header, record, &call, (fs_start_ns, end_ns), cx);
    }

    /// Pages, transactions and waits of a call that is known in full.
    fn consequences(
        &mut self,
        header: &Header,
        record: &Syscall,
        call: &Call,
        (start_ns, end_ns): (u64, u64),
        cx: &mut Context<'_>,
    ) {
        let file = (record.dev, record.ino);
        let done = u64::try_from(record.result).unwrap_or(0);
        let writes = call.call.is_some_and(|c| c.writes() || c == CallName::CopyRange);
        let cached = record.ctx & flags::DIRECT == 0 && (record.ctx & flags::REGULAR != 0 || record.fs_writes > 0);
        let pos = u64::try_from(record.pos).ok().filter(|_| record.ino != 0);
        let by = writer(header, call, call.actor, start_ns, end_ns);
        match (pos.filter(|_| writes && done > 0), cached) {
            (Some(pos), true) if !call.wrote => self.pages.write_by_call(file, pos, done, by),
            (Some(pos), _) if record.ctx & flags::REGULAR != 0 => self.pages.grown(file, pos.saturating_add(done)),
            _ => {}
        }
        if let (true, Ok(pos)) = (call.wrote && record.ctx & flags::BETWEEN_ROWS != 0, u64::try_from(record.pos)) {
            self.pages.now_by(file, (pos, done), (header.tid, call.start_ns), Source::Actor(call.actor));
        }
        let changes = writes || call.call.is_some_and(CallName::changes);
        if changes && record.txn == 0 && record.result >= 0 {
            self.changed(record.dev, call.actor, start_ns);
        }
        match (call.call, pos.filter(|_| record.result >= 0)) {
            (Some(CallName::Ftruncate), Some(length)) => self.pages.resize(file, length, by),
            (Some(CallName::Fallocate), Some(pos)) => self.pages.allocate(file, pos, record.bytes, by),
            (Some(CallName::Open), _) => self.pages.opened(file),
            _ => {}
        }
        if record.txn != 0 {
            let dev = if record.dev != 0 { Some(record.dev) } else { self.journal.disk_of(record.txn) };
            if let Some(dev) = dev {
                let joiner = Joiner {
                    source: Source::Actor(call.actor),
                    span: call.deepest(),
                    handles: f64::from(record.handles.max(1)),
                    confidence: Confidence::Structural,
                    time_ns: start_ns,
                    cpu: header.cpu,
                };
                self.join((dev, record.txn), record.ino, joiner, cx);
            }
        }
        if call.call.is_some_and(CallName::syncs) {
            self.journal.sync(record.dev, cx.now_ns, wait(header.tid, call, record.ino, end_ns, record.txn));
        }
    }

    /// Puts a member into a transaction; if its commit has begun, the link is made here, else when it begins.
    fn join(&mut self, key: (u32, u32), ino: u64, joiner: Joiner, cx: &mut Context<'_>) -> usize {
        let place = self.journal.join(key, ino, joiner);
        if let Some((span, begin_ns, cpu)) = self.journal.get(key).map(|t| (t.span, t.begin_ns, t.cpu)) {
            self.link_joiner(&joiner, span, begin_ns, cpu, cx);
        }
        place
    }

    pub(crate) fn link_joiner(&mut self, joiner: &Joiner, commit: u64, begin_ns: u64, cpu: u16, cx: &mut Context<'_>) {
        let window = Window { start_ns: joiner.time_ns, end_ns: begin_ns, cpus: [joiner.cpu, cpu] };
        cx.link(joiner.span, commit, Relation::JoinsTransaction, joiner.confidence, window);
    }

    /// A handle outside a recorded call, or a second transaction inside one.
    pub(crate) fn on_join(&mut self, header: &Header, record: &Join, cx: &mut Context<'_>) {
        let ctx = record.ctx as u16;
        let kernel = ctx & flags::KERNEL_THREAD != 0 || header.flags & 1 != 0;
        let time_ns = if record.start_ns == 0 { header.time_ns } else { record.start_ns.min(header.time_ns) };
        let key = (record.dev, record.txn);
        let mut joiner = Joiner {
            source: Source::Actor(Actor::NOBODY),
            span: 0,
            handles: f64::from(record.handles.max(1)),
            confidence: Confidence::Structural,
            time_ns,
            cpu: header.cpu,
        };
        if kernel {
            // A loop disk's worker serves a command; a writeback thread serves whoever dirtied what it submits next.
            if let Some(upper) = self.stacked.served_by(header.tid, record.dev) {
                joiner.source = Source::Command(upper);
                joiner.span = upper;
                self.join(key, 0, joiner, cx);
            } else {
                let place = self.join(key, 0, joiner, cx);
                self.kernel_joins.insert(header.tid, (key, place));
            }
            return;
        }
        let around = self.inside(header.tid, time_ns, ctx);
        joiner.source = Source::Actor(self.actor(header, ctx, around.charged(), cx));

        joiner.span = around.span;
        let call = self.threads.map.get(&header.tid).and_then(|t| t.call).filter(|c| c.start_ns <= time_ns);
        if let Some(call) = call.filter(|_| ctx & flags::IN_SYSCALL != 0) {
            joiner.span = call.deepest();
            self.journal.expects(record.dev, call.deepest(), record.txn);
        }
        // A ring's request is carried out in io_uring_enter, or outside any call.
        let in_ring = ctx & flags::IN_SYSCALL == 0 || call.is_some_and(|c| c.call == Some(CallName::IoUringEnter));
        let mut ino = 0;
        if let Some(ring) = self.worked_for(header.tid).filter(|_| in_ring) {
            joiner.source = Source::Actor(ring.actor);
            joiner.span = ring.deepest();
            joiner.confidence = ring.confidence;
            ino = ring.request.ino;
        }
        self.join(key, ino, joiner, cx);
    }

    /// What a record without a `ctx` says of its context.
    fn told(&self, header: &Header) -> u16 {
        let tracked = if self.names.is_tracked(header.tgid) { flags::TRACKED } else { 0 };
        tracked | if header.flags & header_flags::BETWEEN_ROWS != 0 { flags::BETWEEN_ROWS } else { 0 }
    }

    /// Somebody changed a file system that has no transactions known by number.
    fn changed(&mut self, dev: u32, actor: Actor, time_ns: u64) {
        if dev != 0 && !self.journal.is_journal(dev) {
            self.logs.changed(dev, Source::Actor(actor), time_ns);
        }
    }

    /// A loop disk's worker, which just joined a transaction of this file system, turns out to serve a command.
    fn settle_join(&mut self, header: &Header, dev: u32, upper: u64, cx: &mut Context<'_>) {
        let Some((key, place)) = self.kernel_joins.remove(&header.tid).filter(|(key, _)| key.0 == dev) else { return };
        let Some(t) = self.journal.get(key) else { return };
        let (commit, begin_ns, cpu) = (t.span, t.begin_ns, t.cpu);
        let joined = t.joiners.get(place).copied();
        let Some(joiner) = joined.filter(|j| header.time_ns.saturating_sub(j.time_ns) < SAME_WRITE_NS) else { return };
        let (source, span) = (Source::Command(upper), upper);
        let sure = joiner.confidence.min(Confidence::Interval);
        let joiner = crate::journal::Joiner { source, span, confidence: sure, ..joiner };
        self.journal.replace(key, place, std::iter::once(joiner));
        if commit != 0 {
            self.link_joiner(&joiner, commit, begin_ns, cpu, cx);
        }
    }

    /// A range of a file is being written, told apart from its call's record.
    pub(crate) fn on_fs_write(&mut self, header: &Header, record: &FsWrite, cx: &mut Context<'_>) {
        let file = (record.dev, record.ino);
        if header.flags & 1 != 0 {
            // A loop disk's worker: the pages were signed when the command came (see `stacked`).
            self.stacked.serve(header.tid, file, record.pos, record.bytes.into());
            if let Some(upper) = self.stacked.served_by(header.tid, record.dev) {
                self.settle_join(header, record.dev, upper, cx);
            }
            return;
        }
        let issuer = self.issuer(header, self.told(header), record.syscall_ns, cx);
        if issuer.ring != 0
            && let Some(ring) = self.rings.get_mut(&(header.tgid, record.syscall_ns))
        {
            ring.wrote = true;
        }
        self.changed(record.dev, issuer.actor, header.time_ns);
        let known = self.threads.map.get(&header.tid).and_then(|t| t.call);
        let mut by = known.filter(|c| c.start_ns == record.syscall_ns);
        if let Some(call) = &mut by {
            call.wrote = true;
            self.update(header.tid, *call);
        }
        let writer = Writer {
            source: Source::Actor(issuer.actor),
            span: issuer.span,
            bytes: 0,
            start_ns: header.time_ns,
            end_ns: header.time_ns,
            call: (header.tid, record.syscall_ns),
            cpu: header.cpu,
            confidence: issuer.confidence,
            via: "page",
        };
        self.pages.write_by_call(file, record.pos, record.bytes.into(), writer);
    }

    /// A mapped file was touched: if its pages are ever written, then perhaps because of this thread.
    pub(crate) fn on_cache_add(&mut self, header: &Header, record: &CacheAdd, cx: &mut Context<'_>) {
        if header.flags & 1 != 0 || record.ino == 0 {
            return;
        }
        let issuer = self.issuer(header, self.told(header), 0, cx);
        let writer = Writer {
            source: Source::Actor(issuer.actor),
            span: issuer.span,
            bytes: 1,
            start_ns: header.time_ns,
            end_ns: header.time_ns,
            call: (header.tid, 0),
            cpu: header.cpu,
            confidence: Confidence::Guess,
            via: "mapped",
        };
        self.pages.sign((record.dev, record.ino), record.index, record.pages.into(), writer);
    }
}

fn writer(header: &Header, call: &Call, actor: Actor, start_ns: u64, end_ns: u64) -> Writer {
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

fn wait(tid: u32, call: &Call, ino: u64, end_ns: u64, expects: u32) -> Sync {
    Sync {
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

/// How the file was opened, as a span's flags.
fn opened(ctx: u16) -> &'static str {
    match (ctx & flags::DIRECT != 0, ctx & flags::SYNC_FILE != 0) {
        (true, true) => "direct sync",
        (true, false) => "direct",
        (false, true) => "sync",
        (false, false) => "",
    }
}
