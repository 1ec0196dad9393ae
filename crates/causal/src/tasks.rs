//! Who is acting now: what threads run and what they requested through rings, and the consequences for pages, transactions
//! and logs.
//!
//! *Uncertainty*: on whose behalf a kernel thread took a handle is known only from what that thread writes next, such as
//! the range of a command by a loop disk's worker.

use crate::actor::{Actor, Source};
use crate::context::{Context, span};
use crate::journal::Joiner;
use crate::loss::Window;
use crate::names::Names;
use crate::objects::Objects;
use crate::pages::{FileKey, PAGE_BYTES, Writer};
use crate::threads::Threads;
use crate::uring::Rings;
use model::event::{CacheAdd, FsWrite, Header, Join, flags, header_flags};
use model::table::Span;
use model::{Call as CallName, Confidence, Layer, Relation, SpanKind};

/// Maximum time between joining a transaction (for the file's time stamps) and the first page of the same write; allows for
/// slow machines.
const SAME_WRITE_NS_MAX: u64 = 10_000_000;

/// Who is acting now, and the span it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Issuer {
    pub actor: Actor,
    pub span: u64,
    pub operation: Option<u64>,
    pub call: Option<CallName>,
    pub confidence: Confidence,
    /// The thread that submitted it through a ring; 0: none.
    pub ring: u32,
    /// Start and CPU of the span above.
    pub start_ns: u64,
    pub cpu: u16,
}

/// Threads and rings.
#[derive(Default)]
pub(crate) struct Tasks {
    pub threads: Threads,
    pub rings: Rings,
}

impl Tasks {
    pub(crate) fn len(&self) -> usize {
        self.threads.len() + self.rings.len()
    }

    /// Returns who is acting now: the system call that the record names, else the operation, else the process.
    pub(crate) fn issuer(
        &mut self,
        header: &Header,
        ctx: u16,
        syscall_ns: u64,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) -> Issuer {
        let tracer = cx.config.tracer == Some(header.tgid) || ctx & flags::TRACER != 0;
        if let Some(ring) = self.rings.get(header.tgid, syscall_ns).filter(|_| !tracer) {
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
            let call = self.threads.enter(header, syscall_ns.min(header.time_ns), ctx, (None, (0, 0)), objects, cx);
            let call = self.threads.long_call(header, ctx, call, objects, cx);
            if !self.threads.keeps_call(header.tid, call.span) {
                let (tgid, tid) = (header.tgid, header.tid);
                self.threads.put_unfinished_call((tgid, tid), &call, header.time_ns, objects, cx);
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
        let frame = self.threads.get(header.tid).filter(|t| t.tgid == header.tgid).and_then(|t| t.operation(ctx));
        let in_operation = ctx & flags::IN_OP != 0;
        Issuer {
            actor: Actor::from_header(header, ctx, frame.map(|f| (f.id, f.is_guess())), cx),
            span: frame.map_or(0, |f| f.span),
            operation: frame.map(|f| f.id),
            call: None,
            confidence: match frame {
                Some(frame) if frame.is_guess() => Confidence::Guess,
                Some(_) if !in_operation => Confidence::Interval,
                _ => Confidence::Structural,
            },
            ring: 0,
            start_ns: frame.map_or(header.time_ns, |f| f.start_ns),
            cpu: frame.map_or(header.cpu, |f| f.cpu),
        }
    }

    /// A handle outside a recorded call, or a second transaction inside one.
    pub(crate) fn on_join(&mut self, header: &Header, record: &Join, objects: &mut Objects, cx: &mut Context<'_>) {
        let ctx = record.ctx as u16;
        let kernel = ctx & flags::KERNEL_THREAD != 0 || header.flags & header_flags::KERNEL_THREAD != 0;
        let time_ns = if record.start_ns == 0 { header.time_ns } else { record.start_ns.min(header.time_ns) };
        let key = (record.dev, record.txn);
        let mut joiner = Joiner {
            source: Source::Actor(Actor::UNATTRIBUTED),
            span: 0,
            handles: f64::from(record.handles.max(1)),
            confidence: Confidence::Structural,
            time_ns,
            cpu: header.cpu,
        };
        if kernel {
            // A loop disk's worker serves a command; a writeback thread serves whoever dirtied what it submits next.
            if let Some(upper) = objects.stacked.served_by(header.tid, record.dev) {
                joiner.source = Source::Command(upper);
                joiner.span = upper;
                objects.journal.join(key, 0, joiner, cx);
            } else {
                let place = objects.journal.join(key, 0, joiner, cx);
                objects.journal.joined_as_proxy(header.tid, key, place);
            }
            return;
        }
        let around = self.threads.surroundings_at(header.tid, time_ns, ctx, &objects.names);
        joiner.source = Source::Actor(Actor::from_header(header, ctx, around.charged(), cx));

        joiner.span = around.span;
        let call = self.threads.call(header.tid).filter(|c| c.start_ns <= time_ns);
        if let Some(call) = call.filter(|_| ctx & flags::IN_SYSCALL != 0) {
            joiner.span = call.deepest();
            objects.journal.expect_transaction(record.dev, call.deepest(), record.txn);
        }
        // A ring's request is carried out in io_uring_enter, or outside any call.
        let in_ring = ctx & flags::IN_SYSCALL == 0 || call.is_some_and(|c| c.call == Some(CallName::IoUringEnter));
        let mut ino = 0;
        if let Some(ring) = self.rings.worked_for(header.tid).filter(|_| in_ring) {
            joiner.source = Source::Actor(ring.actor);
            joiner.span = ring.deepest();
            joiner.confidence = ring.confidence;
            ino = ring.request.ino;
        }
        objects.journal.join(key, ino, joiner, cx);
    }

    /// Handles a loop disk's worker that just joined a transaction of this file system and turns out to serve a command.
    fn settle_join(&mut self, header: &Header, dev: u32, upper: u64, objects: &mut Objects, cx: &mut Context<'_>) {
        let Some((key, place)) = objects.journal.take_proxy(header.tid).filter(|(key, _)| key.0 == dev) else { return };
        let Some(t) = objects.journal.get(key) else { return };
        let (commit, begin_ns, cpu) = (t.span, t.begin_ns, t.cpu);
        let joined = t.joiners.get(place).copied();
        let Some(joiner) = joined.filter(|j| header.time_ns.saturating_sub(j.time_ns) < SAME_WRITE_NS_MAX) else {
            return;
        };
        let (source, span) = (Source::Command(upper), upper);
        let sure = joiner.confidence.min(Confidence::Interval);
        let joiner = crate::journal::Joiner { source, span, confidence: sure, ..joiner };
        objects.journal.replace(key, place, std::iter::once(joiner), cx);
        if commit != 0 {
            joiner.link(commit, begin_ns, cpu, cx);
        }
    }

    /// A range of a file is being written, reported by a record separate from the call's.
    pub(crate) fn on_fs_write(
        &mut self,
        header: &Header,
        record: &FsWrite,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        let file = (record.dev, record.ino);
        if header.flags & header_flags::KERNEL_THREAD != 0 {
            // A loop disk's worker: the writer was noted when the command was issued (see `stacked`).
            objects.stacked.serve(header.tid, file, record.pos, record.bytes.into());
            if let Some(upper) = objects.stacked.served_by(header.tid, record.dev) {
                self.settle_join(header, record.dev, upper, objects, cx);
            }
            return;
        }
        let issuer = self.issuer(header, context_of(header, &objects.names), record.syscall_ns, objects, cx);
        if issuer.ring != 0 {
            self.rings.wrote(header.tgid, record.syscall_ns);
        }
        objects.changed(record.dev, issuer.actor, header.time_ns);
        if record.syscall_ns == 0 {
            let range = (record.pos, record.bytes.into());
            self.put_mapped(header, SpanKind::MappedWrite, file, range, &issuer, objects, cx);
        }
        let known = self.threads.call(header.tid);
        let mut by = known.filter(|c| c.start_ns == record.syscall_ns);
        if let Some(call) = &mut by {
            call.wrote = true;
            self.threads.update(header.tid, *call);
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
        objects.pages.write_by_call(file, record.pos, record.bytes.into(), writer);
    }

    /// Writes the span of an access to a mapped file, if its process was selected: it has no call that would show it.
    #[expect(clippy::too_many_arguments, reason = "what, where, by whom, and the state of the linker")]
    fn put_mapped(
        &mut self,
        header: &Header,
        kind: SpanKind,
        file: FileKey,
        (offset, bytes): (u64, u64),
        issuer: &Issuer,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        if !objects.names.is_tracked(header.tgid) || cx.config.tracer == Some(header.tgid) {
            return;
        }
        let id = cx.new_span();
        let row = Span {
            operation: issuer.operation,
            end_ns: Some(header.time_ns),
            file: objects.names.file(file, header.time_ns),
            offset: Some(offset),
            bytes,
            ..span(id, Layer::FileSystem, kind.name(), header.time_ns, header.tgid, header.tid)
        };
        self.threads.put_span(header.tid, row, cx);
        let window = Window { start_ns: issuer.start_ns, end_ns: header.time_ns, cpus: [issuer.cpu, header.cpu] };
        cx.link(issuer.span, id, Relation::Calls, issuer.confidence, window);
    }

    /// A mapped file was touched: if its pages are ever written, this thread may be the cause.
    pub(crate) fn on_cache_add(
        &mut self,
        header: &Header,
        record: &CacheAdd,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        if header.flags & header_flags::KERNEL_THREAD != 0 || record.ino == 0 {
            return;
        }
        let issuer = self.issuer(header, context_of(header, &objects.names), 0, objects, cx);
        let range = (record.index.saturating_mul(PAGE_BYTES), u64::from(record.pages).saturating_mul(PAGE_BYTES));
        self.put_mapped(header, SpanKind::MappedRead, (record.dev, record.ino), range, &issuer, objects, cx);
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
        objects.pages.add_writer((record.dev, record.ino), record.index, record.pages.into(), writer);
    }
}

/// Returns the context of a record without a `ctx`.
fn context_of(header: &Header, names: &Names) -> u16 {
    let tracked = if names.is_tracked(header.tgid) { flags::TRACKED } else { 0 };
    tracked | if header.flags & header_flags::BETWEEN_ROWS != 0 { flags::BETWEEN_ROWS } else { 0 }
}
