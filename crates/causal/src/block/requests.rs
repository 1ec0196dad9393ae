//! Requests and the device commands they become.
//!
//! A request is made, takes one or more bios, is issued to the driver and completes. The list of its bios is read when it
//! is issued, since the list is gone at its completion. A request that is issued twice without having completed is the same
//! request retried if its allocation time is the same; otherwise its completion was missed, and its memory is another
//! request now.
//!
//! *Uncertainty*: a command counts as completed when its completion was seen; one whose completion is missing is charged all the same,
//! and the loss is reported. An earlier try of the same request (the driver could not accept it) has neither end nor causes. A completion
//! whose issue was not seen is a command of unknown origin. A write with PREFLUSH or FUA completes twice (its data, then the whole
//! sequence); the second completion is not a command. A flush without data is a request that is never issued, and completes with 0 bytes.

use super::bio::{disk_op, flag_words};
use super::{BlockIo, Env};
use crate::actor::{Charge, Source, is_near};
use crate::attribution::PendingCommand;
use crate::context::{Context, span};
use crate::journal::SyncWait;
use crate::loss::Window;
use crate::objects::Objects;
use crate::pages::Writer;
use crate::stacked::UpperCommand;
use model::event::{Header, RqBios, RqDone, RqInsert, RqIssue, bio_flags};
use model::table::Span;
use model::{Confidence, DiskOp, Layer, Relation};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Maximum number of entries in maps whose ends may be lost.
pub(super) const IN_FLIGHT_MAX: usize = 1 << 16;

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Request {
    pub command: u64,
    pub span: u64,
    /// When it was allocated, by the kernel's own time; 0: unknown.
    pub alloc_ns: u64,
    pub made_ns: u64,
    pub issue_ns: u64,
    pub cpu: u16,
    pub disk: u32,
    pub sector: u64,
    pub bytes: u64,
    pub op: DiskOp,
    pub flags: u16,
    /// Total number of bios, listed or not.
    pub total: u32,
    pub bios: Vec<u64>,
    pub charges: Vec<Charge>,
    /// Total number of waiters of a flush.
    pub waiters: u32,
    pub flights: Vec<u64>,
    pub done_bytes: u64,
}

/// Returns the first sector on its disk. Flushes and commands of a driver or a program have none: the kernel stores -1 for them, and its
/// events print 0 (`blk_rq_trace_sector`). Ftrace does not distinguish those commands from others that are not known by name.
fn first_sector(op: DiskOp, sector: u64) -> Option<u64> {
    (!matches!(op, DiskOp::Flush | DiskOp::DriverCommand | DiskOp::Other)).then_some(sector)
}

impl Request {
    /// Panics if it contradicts itself.
    pub(super) fn check_invariants(&self) {
        assert!(self.made_ns <= self.issue_ns, "{self:?}");
        assert!(self.charges.iter().all(Charge::is_valid), "{self:?}");
        let flights: BTreeSet<u64> = self.flights.iter().copied().collect();
        assert_eq!(flights.len(), self.flights.len(), "it carries something twice: {self:?}");
    }

    /// Whether it moves data of its disk's sectors; commands of the driver's own complete without any.
    fn is_data(&self) -> bool {
        self.bytes > 0 && !matches!(self.op, DiskOp::Flush | DiskOp::Other)
    }
}

impl PendingCommand {
    /// The charges of a command that ended at `done_ns`.
    fn from_request(request: Request, due_ns: u64, done_ns: u64, above: bool) -> Self {
        assert!(done_ns >= request.issue_ns, "it ended before it was issued");
        let flush = request.op == DiskOp::Flush;
        Self {
            due_ns,
            command: request.command,
            issue_ns: request.issue_ns,
            done_ns,
            cpu: request.cpu,
            expected_weight: if flush { request.waiters.max(1).into() } else { request.bytes as f64 },
            flush,
            on_file: above,
            charges: request.charges,
        }
    }
}

impl BlockIo {
    /// A request entered the I/O scheduler.
    pub(crate) fn on_rq_insert(&mut self, header: &Header, r: &RqInsert) {
        if self.inserts.len() >= IN_FLIGHT_MAX {
            self.inserts.clear();
        }
        self.inserts.insert(r.rq, header.time_ns);
    }

    /// A request went to the driver.
    pub(crate) fn on_rq_issue(&mut self, header: &Header, r: &RqIssue, env: &mut Env<'_, '_>) {
        let inserted = self.inserts.remove(&r.rq);
        self.sequences.remove(&r.rq);
        let op = disk_op(r.op);
        if let Some(mut old) = self.requests.remove(&r.rq) {
            let first = if r.listed > 0 { r.bios.first() } else { None };
            // A flush, or a page written over and over, looks like the one before; but each request gets a new allocation
            // time, and a retried one keeps its own.
            let same = old.alloc_ns == 0 || r.alloc_ns == 0 || old.alloc_ns == r.alloc_ns;
            let again = same && (old.disk, old.sector, old.op) == (r.disk, r.sector, op) && old.bios.first() == first;
            // If it was not retried, it ended when its memory became another request.
            let by_ns = if again || r.alloc_ns == 0 { header.time_ns } else { r.alloc_ns.min(header.time_ns) };
            let by_ns = by_ns.max(old.issue_ns);
            if again {
                self.put_lost(&old, by_ns, env.objects, env.cx);
                let tried = old.command;
                old.command = env.cx.new_span();
                let window = Window { start_ns: old.issue_ns, end_ns: header.time_ns, cpus: [old.cpu, header.cpu] };
                env.cx.link(tried, old.command, Relation::Retries, Confidence::Exact, window);
                env.cx.link(old.span, old.command, Relation::Carries, Confidence::Exact, window);
                // It cannot be issued again before it was issued, though its record may come late.
                (old.issue_ns, old.cpu) = (by_ns, header.cpu);
                for flight in &old.flights {
                    env.objects.activity.issued_again(*flight, by_ns, old.command);
                }
                for at in &old.bios {
                    self.bios.get_mut(at).into_iter().for_each(|b| b.carrier = old.command);
                }
                self.issue_above(&old, env.objects, env.cx);
                self.requests.insert(r.rq, old);
                return;
            }
            self.end_flights(&old, by_ns, false, env.objects);
            self.charge_missed(old, by_ns, env);
        }
        let made_ns = if r.alloc_ns != 0 { r.alloc_ns } else { inserted.unwrap_or(header.time_ns) };
        let mut request = Request {
            span: env.cx.new_span(),
            command: env.cx.new_span(),
            alloc_ns: r.alloc_ns,
            made_ns: made_ns.min(header.time_ns),
            issue_ns: header.time_ns,
            cpu: header.cpu,
            disk: r.disk,
            sector: r.sector,
            bytes: r.bytes.into(),
            op,
            flags: r.flags,
            total: r.total,
            bios: Vec::new(),
            charges: Vec::new(),
            waiters: 0,
            flights: Vec::new(),
            done_bytes: 0,
        };
        for &at in r.bios.iter().take(r.listed.into()) {
            self.add_bio(&mut request, at, env);
        }
        let number = if op == DiskOp::Flush { None } else { Some(r.total.into()) };
        env.cx.sink.span(Span {
            end_ns: Some(request.issue_ns),
            disk: Some(r.disk),
            sector: first_sector(op, r.sector),
            bytes: r.bytes.into(),
            number,
            flags: flag_words(op, r.flags),
            ..span(request.span, Layer::IoScheduler, "request", request.made_ns, 0, 0)
        });
        let window = Window { start_ns: header.time_ns, end_ns: header.time_ns, cpus: [header.cpu; 2] };
        env.cx.link(request.span, request.command, Relation::Carries, Confidence::Exact, window);
        self.issue_above(&request, env.objects, env.cx);
        self.requests.insert(r.rq, request);
        if self.requests.len() > IN_FLIGHT_MAX {
            let mut all: Vec<(u64, u64)> = self.requests.iter().map(|(at, r)| (r.issue_ns, *at)).collect();
            all.sort_unstable();
            for (_, at) in &all[..IN_FLIGHT_MAX / 2] {
                let Some(old) = self.requests.remove(at) else { continue };
                // Its end is entirely unknown, so it explains nothing after its issue.
                let issue_ns = old.issue_ns;
                self.end_flights(&old, issue_ns, false, env.objects);
                self.charge_missed(old, issue_ns, env);
            }
        }
    }

    /// If the disk is backed by a file, whoever serves this command acts for it.
    fn issue_above(&mut self, request: &Request, objects: &mut Objects, cx: &Context<'_>) {
        let Some(file) = objects.stacked.file_below(request.disk) else { return };
        let pos = request.sector.saturating_mul(512);
        objects.stacked.issued(UpperCommand {
            command: request.command,
            file,
            pos,
            bytes: request.bytes,
            op: request.op,
            issue_ns: request.issue_ns,
            cpu: request.cpu,
        });
        match request.op {
            DiskOp::Write | DiskOp::WriteZeroes => {
                let writer = Writer {
                    source: Source::Command(request.command),
                    span: request.command,
                    bytes: 0,
                    start_ns: request.issue_ns,
                    end_ns: request.issue_ns,
                    call: (0, request.command),
                    cpu: request.cpu,
                    confidence: Confidence::Structural,
                    via: "stacked",
                };
                objects.pages.write(file, pos, request.bytes, writer);
            }
            DiskOp::Flush => objects.journal.add_sync(
                file.0,
                cx.now_ns,
                SyncWait {
                    tid: 0,
                    start_ns: request.issue_ns,
                    end_ns: u64::MAX,
                    ino: 0,
                    source: Source::Command(request.command),
                    span: request.command,
                    expects: 0,
                    asked: false,
                    confidence: Confidence::Interval,
                },
            ),
            _ => {}
        }
    }

    /// Adds a bio to a request that is being issued to the driver.
    fn add_bio(&mut self, request: &mut Request, at: u64, env: &mut Env<'_, '_>) {
        request.bios.push(at);
        let Some(mut bio) = self.bios.remove(&at) else { return };
        // Damaged records may list it twice.
        if bio.carrier == request.command || request.flights.contains(&bio.flight) {
            self.bios.insert(at, bio);
            return;
        }
        bio.carrier = request.command;
        // A bio that came after the request was made joined it at once: plugging merges inside submit_bio.
        let taken_ns = request.made_ns.clamp(bio.queue_ns.min(request.issue_ns), request.issue_ns);
        let (times, carried_by) = ((taken_ns, request.issue_ns), (request.span, request.command));
        if env.objects.activity.issued(bio.flight, times, carried_by) {
            request.flights.push(bio.flight);
        }
        if request.total == 1 && request.bytes > 0 {
            bio.bytes = request.bytes;
        }
        self.put_bio(&mut bio, Some(taken_ns), None, env.tasks, env.cx);
        let relation = if request.total > 1 { Relation::Merges } else { Relation::Carries };
        let window = Window { start_ns: bio.queue_ns, end_ns: request.issue_ns, cpus: [bio.cpu, request.cpu] };
        let sure = env.cx.link(bio.span, request.span, relation, Confidence::Exact, window);
        let all: f64 = bio.charges.iter().map(|c| c.weight).sum();
        if all > 0.0 {
            let bytes = bio.bytes.max(1) as f64;
            let first = request.charges.len();
            // Divided first: `all` may be next to nothing after many splits in a damaged log.
            request.charges.extend(bio.charges.iter().map(|c| Charge {
                weight: c.weight / all * bytes,
                confidence: c.confidence.min(sure),
                ..*c
            }));
            debug_assert!(is_near(request.charges[first..].iter().map(|c| c.weight).sum(), bytes));
        }
        self.bios.insert(at, bio);
    }

    /// More bios of a request.
    pub(crate) fn on_rq_bios(&mut self, r: &RqBios, env: &mut Env<'_, '_>) {
        let Some(mut request) = self.requests.remove(&r.rq) else { return };
        for &at in r.bios.iter().take(usize::try_from(r.listed).unwrap_or(usize::MAX)) {
            // A retried request lists its bios again.
            if !request.bios.contains(&at) || self.bios.get(&at).is_some_and(|b| b.carrier != request.command) {
                self.add_bio(&mut request, at, env);
            }
        }
        self.requests.insert(r.rq, request);
    }

    /// A request, or a part of it, completed.
    pub(crate) fn on_rq_done(&mut self, header: &Header, r: &RqDone, env: &mut Env<'_, '_>) {
        let Some(mut request) = self.requests.remove(&r.rq) else {
            return self.on_unknown_done(header, r, env);
        };
        // Data ends with bytes, and this is the end of a flush without data, whose issue is not traced: it got the memory of a command
        // whose completion was missed.
        if r.bytes == 0 && r.error == 0 && request.done_bytes == 0 && request.is_data() {
            let by_ns = header.time_ns.max(request.issue_ns);
            self.end_flights(&request, by_ns, false, env.objects);
            return self.charge_missed(request, by_ns, env);
        }
        request.done_bytes += u64::from(r.bytes);
        if r.last == 0 {
            self.requests.insert(r.rq, request);
            return;
        }
        request.flags |= r.flags;
        let end_ns = header.time_ns.max(request.issue_ns);
        if request.op == DiskOp::Flush && request.waiters == 0 {
            self.guess_waiters(&mut request, env);
        }
        self.end_flights(&request, end_ns, true, env.objects);
        let result = if r.error != 0 { i64::from(r.error) } else { request.done_bytes as i64 };
        self.put_command(&request, Some(end_ns), Some(result), env.cx);
        let above = env.objects.stacked.file_below(request.disk);
        if let Some(file) = above {
            env.objects.stacked.done(request.command);
            env.objects.journal.sync_ended(file.0, request.command, end_ns);
        }
        let bios = std::mem::take(&mut request.bios);
        if r.flags & bio_flags::FLUSH_SEQUENCE != 0 && request.op != DiskOp::Flush {
            if self.sequences.len() >= IN_FLIGHT_MAX {
                self.sequences.clear();
            }
            self.sequences.insert(r.rq, bios);
        } else {
            bios.iter().for_each(|at| self.drop_carried(*at, request.command, env));
        }
        let due_ns = env.cx.now_ns.max(end_ns).saturating_add(env.cx.config.horizon_ns);
        self.completed.push(PendingCommand::from_request(request, due_ns, end_ns, above.is_some()));
    }

    /// Ends the waits for this command. `seen`: the end was recorded; if not, the command is only known to have ended by
    /// then.
    fn end_flights(&mut self, request: &Request, end_ns: u64, seen: bool, objects: &mut Objects) {
        for flight in &request.flights {
            objects.activity.completed(*flight, end_ns, seen);
        }
    }

    /// Handles a command that ended but whose completion was not recorded.
    fn charge_missed(&mut self, request: Request, by_ns: u64, env: &mut Env<'_, '_>) {
        if env.cx.config.completions_recorded && env.cx.config.full_since_ns.is_none_or(|since_ns| by_ns < since_ns) {
            env.cx.losses.add_unseen(request.issue_ns, by_ns, env.cx.sink);
        }
        self.charge_open(request, by_ns, env);
    }

    /// Charges a command without an end, which ended by then if at all: its causes are known from its issue.
    pub(crate) fn charge_open(&mut self, mut request: Request, by_ns: u64, env: &mut Env<'_, '_>) {
        let by_ns = by_ns.max(request.issue_ns);
        if request.op == DiskOp::Flush && request.waiters == 0 {
            self.guess_waiters(&mut request, env);
        }
        self.put_lost(&request, by_ns, env.objects, env.cx);
        let above = env.objects.stacked.file_below(request.disk).is_some();
        self.completed.push(PendingCommand::from_request(
            request,
            env.cx.now_ns.saturating_add(env.cx.config.horizon_ns),
            by_ns,
            above,
        ));
    }

    /// Writes a command whose end was not seen, and will not be.
    fn put_lost(&mut self, request: &Request, by_ns: u64, objects: &mut Objects, cx: &mut Context<'_>) {
        self.put_command(request, None, None, cx);
        if let Some(file) = objects.stacked.file_below(request.disk) {
            objects.journal.sync_ended(file.0, request.command, by_ns);
        }
        objects.stacked.done(request.command);
    }

    /// Drops a bio whose command ended.
    fn drop_carried(&mut self, at: u64, command: u64, env: &mut Env<'_, '_>) {
        if self.bios.get(&at).is_some_and(|b| b.carrier == command) {
            self.drop_bio(at, env);
        }
    }

    fn on_unknown_done(&mut self, header: &Header, r: &RqDone, env: &mut Env<'_, '_>) {
        if let Some(bios) = self.sequences.remove(&r.rq) {
            bios.iter().for_each(|at| self.drop_bio(*at, env));
            return;
        }
        // A flush whose issue was lost looks like a sequence that needed none.
        if r.last == 0 || r.bytes == 0 || disk_op(r.op) == DiskOp::Flush {
            return;
        }
        let command = env.cx.new_span();
        env.cx.sink.span(Span {
            end_ns: Some(header.time_ns),
            disk: Some(r.disk),
            sector: first_sector(disk_op(r.op), r.sector),
            bytes: r.bytes.into(),
            result: Some(if r.error != 0 { r.error.into() } else { r.bytes.into() }),
            flags: flag_words(disk_op(r.op), r.flags | bio_flags::UNTIMED),
            ..span(command, Layer::Driver, "command", header.time_ns, 0, 0)
        });
        self.completed.push(PendingCommand {
            due_ns: env.cx.now_ns.saturating_add(env.cx.config.horizon_ns),
            command,
            issue_ns: header.time_ns,
            done_ns: header.time_ns,
            cpu: header.cpu,
            expected_weight: 1.0,
            flush: false,
            on_file: false,
            charges: vec![Charge { confidence: Confidence::Guess, ..Charge::unattributed(1.0, "issue not seen") }],
        });
    }

    /// Writes a command's row.
    pub(crate) fn put_command(&self, r: &Request, end_ns: Option<u64>, result: Option<i64>, cx: &mut Context<'_>) {
        let flush = r.op == DiskOp::Flush;
        cx.sink.span(Span {
            end_ns,
            disk: Some(r.disk),
            sector: first_sector(r.op, r.sector),
            bytes: r.bytes,
            result,
            number: Some(if flush { r.waiters.into() } else { r.total.into() }),
            kind: Cow::Borrowed(if flush { "flush" } else { "command" }),
            flags: flag_words(r.op, r.flags),
            ..span(r.command, Layer::Driver, "command", r.issue_ns, 0, 0)
        });
    }
}
