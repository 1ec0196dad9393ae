//! io_uring requests: system calls without a call.
//!
//! Picture orders dropped through a letter slot: the customer goes on at once, and somebody inside carries them out. A
//! request's span runs from its submission to its completion and belongs to the thread that submitted it.
//!
//! *Uncertainty*: what a kernel worker does for a request carries no mark of it; only buffered writes (by their pages)
//! find back to it, and I/O that is sent within the submitting call (by that call).

use crate::Sink;
use crate::actor::Source;
use crate::linker::State;
use crate::loss::Window;
use crate::pages::Writer;
use crate::threads::span;
use model::event::{Header, Uring};
use model::table::Span;
use model::{Confidence, Layer, Relation};

/// IORING_OP_WRITEV, _WRITE_FIXED and _WRITE (include/uapi/linux/io_uring.h).
const WRITES: [u16; 3] = [2, 5, 23];
/// Requests under way at most; a ring has 32,768 entries.
const MOST: usize = 1 << 16;

impl State {
    /// A request was submitted or completed.
    pub(crate) fn on_uring(&mut self, header: &Header, r: &Uring, sink: &mut dyn Sink) {
        const SUBMITTED: u16 = 0;
        if r.phase != SUBMITTED {
            if let Some((submitted, request, id)) = self.urings.remove(&r.req) {
                self.put_uring(&submitted, &request, id, Some((header.time_ns, r.result)), sink);
            }
            return;
        }
        self.settle_marks(header.tid, header.time_ns, sink);
        let id = self.new_span();
        let around = self.inside(header.tid, header.time_ns, 0);
        let window = Window { start_ns: around.start_ns, end_ns: header.time_ns, cpus: [header.cpu; 2] };
        let sure = if around.guess { Confidence::Guess } else { Confidence::Interval };
        self.link(around.span, id, Relation::Calls, sure, window, sink);
        if let (true, Ok(pos)) = (WRITES.contains(&r.opcode) && r.ino != 0, u64::try_from(r.pos)) {
            let writer = Writer {
                source: Source::Actor(self.actor(header, model::event::flags::TRACKED, around.charged())),
                span: id,
                bytes: 0,
                start_ns: header.time_ns,
                end_ns: header.time_ns,
                call: (header.tid, id),
                cpu: header.cpu,
                confidence: Confidence::Structural,
                via: "page",
            };
            self.pages.write((r.dev, r.ino), pos, r.bytes, writer);
        }
        if self.urings.len() >= MOST {
            self.urings.clear();
        }
        if let Some((submitted, request, id)) = self.urings.insert(r.req, (*header, r.clone(), id)) {
            self.put_uring(&submitted, &request, id, None, sink);
        }
    }

    /// Writes a request's row; `end`: when it completed, and its result.
    pub(crate) fn put_uring(
        &mut self,
        header: &Header,
        r: &Uring,
        id: u64,
        end: Option<(u64, i64)>,
        sink: &mut dyn Sink,
    ) {
        let row = Span {
            end_ns: end.map(|e| e.0.max(header.time_ns)),
            operation: self.inside(header.tid, header.time_ns, 0).operation,
            file: self.names.file((r.dev, r.ino), header.time_ns),
            offset: u64::try_from(r.pos).ok(),
            bytes: r.bytes,
            result: end.map(|e| e.1),
            number: Some(r.opcode.into()),
            ..span(id, Layer::Syscall, "io_uring", header.time_ns, header.tgid, header.tid)
        };
        self.put_span(header.tid, row, sink);
    }
}
