//! io_uring requests: system calls without a call.
//!
//! The submitter continues at once, and another thread may carry the request out. Each request is identified by the time of
//! its submission, which its bios and writes carry as those of a system call carry the call's start, even where one of
//! io_uring's own workers makes them. So a request belongs to the operation that submitted it, whoever carries it out and
//! whenever it completes.
//!
//! *Uncertainty*: where the kernel polls the ring (SQPOLL), no system call submits: the process is known, not the thread.
//! Such a request belongs to an operation only if exactly one is running in the process, and that is a guess.

use crate::actor::{Actor, Source};
use crate::context::{Context, span};
use crate::hash::FastMap;
use crate::journal::SyncWait;
use crate::loss::Window;
use crate::objects::Objects;
use crate::pages::Writer;
use crate::threads::{RingSync, Threads};
use model::event::{Header, Uring, flags, header_flags, uring_phase};
use model::table::Span;
use model::{Call, Confidence, Layer, Relation};
use std::borrow::Cow;

/// Maximum number of requests in flight: twice as many as the kernel side follows.
const REQUESTS_MAX: usize = 1 << 14;

/// A request in flight.
#[derive(Debug, Clone)]
pub(crate) struct RingRequest {
    pub header: Header,
    pub request: Uring,
    pub span: u64,
    /// The span inside the file system.
    pub fs_span: u64,
    pub actor: Actor,
    /// The confidence of the actor.
    pub confidence: Confidence,
    /// The operation on whose thread it was submitted, or that it is itself; 0: none.
    operation: u64,
    /// It is an operation itself.
    alone: bool,
    pub call: Option<Call>,
    /// Its ranges come from `fs_write`.
    pub wrote: bool,
}

impl RingRequest {
    pub(crate) fn deepest(&self) -> u64 {
        if self.fs_span != 0 { self.fs_span } else { self.span }
    }
}

/// All requests in flight.
#[derive(Default)]
pub(crate) struct Rings {
    /// By process and submission.
    by_submission: FastMap<(u32, u64), RingRequest>,
    /// Keys into `by_submission`, by address.
    by_address: FastMap<u64, (u32, u64)>,
    /// The request that each thread works for, by its last record.
    workers: FastMap<u32, (u32, u64)>,
}

/// The kernel's `enum io_uring_op` (include/uapi/linux/io_uring.h).
mod io_uring_op {
    pub const READV: u16 = 1;
    pub const WRITEV: u16 = 2;
    pub const FSYNC: u16 = 3;
    pub const READ_FIXED: u16 = 4;
    pub const WRITE_FIXED: u16 = 5;
    pub const SYNC_FILE_RANGE: u16 = 8;
    pub const FALLOCATE: u16 = 17;
    pub const READ: u16 = 22;
    pub const WRITE: u16 = 23;
    pub const FTRUNCATE: u16 = 55;
    pub const READV_FIXED: u16 = 60;
    pub const WRITEV_FIXED: u16 = 61;
}

/// Flag of an fsync: IORING_FSYNC_DATASYNC.
const FSYNC_DATASYNC: u64 = 1;

/// Returns the system call equivalent to a request.
fn equivalent_call(request: &Uring) -> Option<Call> {
    use io_uring_op as op;
    Some(match request.opcode {
        op::READV | op::READV_FIXED => Call::Preadv,
        op::WRITEV | op::WRITEV_FIXED => Call::Pwritev,
        op::FSYNC if request.bytes & FSYNC_DATASYNC != 0 => Call::Fdatasync,
        op::FSYNC => Call::Fsync,
        op::READ_FIXED | op::READ => Call::Pread64,
        op::WRITE_FIXED | op::WRITE => Call::Pwrite64,
        op::SYNC_FILE_RANGE => Call::SyncFileRange,
        op::FALLOCATE => Call::Fallocate,
        op::FTRUNCATE => Call::Ftruncate,
        _ => return None,
    })
}

impl Rings {
    /// Returns the request that a record of this process names by its submission.
    pub(crate) fn get(&self, tgid: u32, start_ns: u64) -> Option<&RingRequest> {
        if self.by_submission.is_empty() { None } else { self.by_submission.get(&(tgid, start_ns)) }
    }

    /// Records that the request's ranges come from `fs_write`.
    pub(crate) fn wrote(&mut self, tgid: u32, start_ns: u64) {
        if let Some(ring) = self.by_submission.get_mut(&(tgid, start_ns)) {
            ring.wrote = true;
        }
    }

    /// Ends the trace: what is still in flight has no end.
    pub(crate) fn finish(&mut self, threads: &mut Threads, objects: &mut Objects, cx: &mut Context<'_>) {
        let mut rings: Vec<RingRequest> = std::mem::take(&mut self.by_submission).into_values().collect();
        rings.sort_by_key(|r| r.span);
        rings.iter().for_each(|r| self.lost(r, cx.now_ns, threads, objects, cx));
    }

    pub(crate) fn len(&self) -> usize {
        self.by_submission.len() + self.by_address.len() + self.workers.len()
    }

    /// A request was submitted or completed.
    pub(crate) fn on_uring(
        &mut self,
        header: &Header,
        r: &Uring,
        threads: &mut Threads,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        if r.phase == uring_phase::CARRIED_ON {
            if self.workers.len() >= REQUESTS_MAX {
                self.workers.clear();
            }
            self.workers.insert(header.tid, (header.tgid, r.result.cast_unsigned()));
            return;
        }
        if r.phase != uring_phase::SUBMITTED {
            if let Some(ring) = self.by_address.remove(&r.req).and_then(|key| self.by_submission.remove(&key)) {
                self.completed(header, ring, r, threads, objects, cx);
            }
            return;
        }
        threads.settle_marks(header.tid, header.time_ns, objects, cx);
        // Its completion was lost, or the address of a dropped request was reused.
        if let Some(old) = self.by_address.remove(&r.req).and_then(|key| self.by_submission.remove(&key)) {
            self.lost(&old, header.time_ns, threads, objects, cx);
        }
        if self.by_submission.len() >= REQUESTS_MAX {
            let mut all: Vec<_> = std::mem::take(&mut self.by_submission).into_values().collect();
            self.by_address.clear();
            all.sort_by_key(|r| r.span);
            all.iter().for_each(|r| self.lost(r, header.time_ns, threads, objects, cx));
        }
        let ctx = if header.flags & header_flags::BETWEEN_ROWS != 0 { flags::BETWEEN_ROWS } else { 0 };
        let tracked = if objects.names.is_tracked(header.tgid) { flags::TRACKED } else { 0 };
        let around = threads.surroundings_at(header.tid, header.time_ns, ctx, &objects.names);
        let polled = around.operation.is_none() && header.flags & header_flags::POLLING != 0;
        let sole = if polled { threads.sole_operation(header.tgid) } else { None };
        let call = equivalent_call(r);
        let alone = call.is_some_and(Call::syncs) && around.operation.or(sole).is_none();
        let alone = if alone { threads.begin_ring_sync(header, tracked, cx) } else { None };
        let charged = alone.map(|id| (id, false)).or(around.charged()).or(sole.map(|id| (id, true)));
        let (id, inside_fs) = (cx.new_span(), call.is_some_and(|c| c.reads() || c.writes() || c.syncs()));
        let ring = RingRequest {
            header: *header,
            request: r.clone(),
            span: id,
            fs_span: if inside_fs { cx.new_span() } else { 0 },
            actor: Actor::from_header(header, tracked, charged, cx),
            confidence: if sole.is_some() || around.guess { Confidence::Guess } else { Confidence::Structural },
            operation: alone.or(around.operation).unwrap_or(0),
            alone: alone.is_some(),
            call,
            wrote: false,
        };
        let entered = threads.call(header.tid);
        let entered = entered.filter(|c| c.call == Some(Call::IoUringEnter) && c.start_ns <= header.time_ns);
        let (parent, start_ns) = entered.map_or((around.span, around.start_ns), |c| (c.span, c.start_ns));
        let window = Window { start_ns, end_ns: header.time_ns, cpus: [header.cpu; 2] };
        let sure = if around.guess { Confidence::Guess } else { Confidence::Interval };
        cx.link(parent, id, Relation::Calls, sure, window);
        if call.is_some_and(Call::syncs) {
            objects.activity.ring_sync_began(header.tid, r.dev, ring.deepest(), header.time_ns);
            objects.journal.add_sync(r.dev, cx.now_ns, ring_wait(&ring, r.ino, u64::MAX));
        }
        self.by_address.insert(r.req, (header.tgid, header.time_ns));
        if let Some(old) = self.by_submission.insert((header.tgid, header.time_ns), ring) {
            self.by_address.remove(&old.request.req);
            self.lost(&old, header.time_ns, threads, objects, cx);
        }
    }

    /// Returns the request that a thread works for, by its last record, if it is still in flight.
    pub(crate) fn worked_for(&self, tid: u32) -> Option<&RingRequest> {
        self.workers.get(&tid).and_then(|key| self.get(key.0, key.1))
    }

    fn completed(
        &mut self,
        header: &Header,
        mut ring: RingRequest,
        r: &Uring,
        threads: &mut Threads,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        let end_ns = header.time_ns.max(ring.header.time_ns);
        let request = &mut ring.request;
        if r.ino != 0 {
            (request.dev, request.ino) = (r.dev, r.ino);
        }
        if request.pos < 0 {
            request.pos = r.pos;
        }
        // Of a vectored request, only the number of its segments is known.
        let done = u64::try_from(r.result).unwrap_or(0);
        if matches!(ring.call, Some(Call::Preadv | Call::Pwritev)) {
            request.bytes = done;
        }
        let file = (request.dev, request.ino);
        let cached = header.flags & header_flags::DIRECT == 0;
        if let (true, Ok(pos)) =
            (ring.call.is_some_and(Call::writes) && cached && !ring.wrote && file.1 != 0, u64::try_from(request.pos))
        {
            let writer = Writer {
                source: Source::Actor(ring.actor),
                span: ring.deepest(),
                bytes: 0,
                start_ns: ring.header.time_ns,
                end_ns,
                call: (ring.header.tid, ring.header.time_ns),
                cpu: ring.header.cpu,
                confidence: ring.confidence,
                via: "page",
            };
            objects.pages.write_by_call(file, pos, done, writer);
        }
        if ring.call.is_some_and(Call::syncs) {
            objects.activity.ring_sync_ended(ring.deepest(), end_ns);
            objects.journal.add_sync(file.0, cx.now_ns, ring_wait(&ring, file.1, end_ns));
        }
        self.put(&ring, Some((end_ns, r.result)), threads, objects, cx);
    }

    /// Ends a request whose completion was not seen and will not be; it ended by `by_ns`.
    fn lost(
        &mut self,
        ring: &RingRequest,
        by_ns: u64,
        threads: &mut Threads,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        // Otherwise all later commits would seem to be waited for by it.
        if ring.call.is_some_and(Call::syncs) {
            objects.activity.ring_sync_ended(ring.deepest(), by_ns);
            objects.journal.sync_ended(ring.request.dev, ring.deepest(), by_ns);
        }
        self.put(ring, None, threads, objects, cx);
    }

    /// Writes a request's rows; `end`: when it completed, and its result.
    fn put(
        &mut self,
        ring: &RingRequest,
        end: Option<(u64, i64)>,
        threads: &mut Threads,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        let (header, r) = (&ring.header, &ring.request);
        let operation = threads.settled(Actor { operation: ring.operation, ..Actor::UNATTRIBUTED }).operation;
        let moves = ring.call.is_some_and(|c| c.reads() || c.writes());
        let row = Span {
            end_ns: end.map(|e| e.0),
            operation: (operation != 0).then_some(operation),
            file: objects.names.file((r.dev, r.ino), header.time_ns),
            offset: u64::try_from(r.pos).ok().filter(|_| moves),
            bytes: if moves { r.bytes } else { 0 },
            result: end.map(|e| e.1),
            number: Some(r.opcode.into()),
            flags: Cow::Borrowed("io_uring"),
            ..span(
                ring.span,
                Layer::Syscall,
                ring.call.map_or("io_uring", Call::name),
                header.time_ns,
                header.tgid,
                header.tid,
            )
        };
        if ring.fs_span != 0 {
            let kind = match ring.call {
                Some(c) if c.writes() => "write",
                Some(c) if c.reads() => "read",
                _ => "sync",
            };
            let bytes = end.map_or(0, |e| u64::try_from(e.1).unwrap_or(0));
            let (id, kind) = (ring.fs_span, Cow::Borrowed(kind));
            threads.put_span(header.tid, row.clone(), cx);
            let fs = Span { id, kind, layer: Layer::FileSystem, number: None, bytes, ..row };
            threads.put_span(header.tid, fs, cx);
            let window = Window { start_ns: header.time_ns, end_ns: header.time_ns, cpus: [header.cpu; 2] };
            cx.link(ring.span, ring.fs_span, Relation::Calls, Confidence::Exact, window);
        } else {
            threads.put_span(header.tid, row, cx);
        }
        if let Some(call) = ring.call.filter(|_| ring.alone) {
            let (operation, span, fs_span) = (ring.operation, ring.span, ring.fs_span);
            let sync = RingSync { operation, span, fs_span, call, file: (r.dev, r.ino) };
            threads.end_ring_sync(header, &sync, end, objects, cx);
        }
    }
}

fn ring_wait(ring: &RingRequest, ino: u64, end_ns: u64) -> SyncWait {
    SyncWait {
        tid: ring.header.tid,
        start_ns: ring.header.time_ns,
        end_ns,
        ino,
        source: Source::Actor(ring.actor),
        span: ring.deepest(),
        expects: 0,
        asked: false,
        confidence: ring.confidence.min(Confidence::Interval),
    }
}
