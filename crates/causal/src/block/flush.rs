//! Who waits for a flush of the disk's cache.
//!
//! Flushes are coalesced: one flush completes for several waiters. The block layer keeps one flush in flight per hardware
//! queue and merges flushes requested meanwhile into the next (block/blk-flush.c), so a flush is shared equally by its
//! waiters. A waiter is a bio: a bare flush of the call that sent it, or a write with PREFLUSH or FUA, which the journal
//! sends with a commit record and which therefore represents all waiters of that commit.
//!
//! *Uncertainty*: a waiter may be listed without its bio (the list was cut at four, or the bio is unknown); then the disk's
//! oldest waiting barriers are used instead, and the link's confidence is `address`.

use super::requests::Request;
use super::{BlockIo, Env};
use crate::Config;
use crate::activity::Flight;
use crate::actor::{Charge, Source, is_near};
use crate::loss::Window;
use model::event::{FlushIssue, Header};
use model::{Confidence, DiskOp, Relation};

/// The step of a waiter that needs nothing but the flush.
const FLUSH_ONLY_STEP: u8 = 7;

/// A bio that waits for a flush.
struct Waiter {
    address: u64,
    /// It needs nothing else.
    flush_only: bool,
    /// The confidence of that.
    confidence: Confidence,
    /// The time of the flush's record.
    time_ns: u64,
}

impl BlockIo {
    /// A flush went to the driver.
    pub(crate) fn on_flush_issue(&mut self, header: &Header, r: &FlushIssue, env: &mut Env<'_, '_>) {
        let Some(mut request) = self.requests.remove(&r.rq) else { return };
        if request.waiters == 0 {
            let listed = usize::from(r.listed).min(r.bios.len());
            request.waiters = r.total.max(r.listed).into();
            for (&at, &step) in r.bios.iter().zip(&r.steps).take(listed) {
                if self.bios.contains_key(&at) {
                    let waiter = Waiter {
                        address: at,
                        flush_only: step == FLUSH_ONLY_STEP,
                        confidence: Confidence::Exact,
                        time_ns: header.time_ns,
                    };
                    self.add_waiter(&mut request, waiter, env);
                }
            }
            let named = r.bios[..listed].iter().filter(|at| self.bios.contains_key(at)).count();
            let missing = usize::try_from(request.waiters).unwrap_or(0).saturating_sub(named);
            let others = if missing > 0 {
                self.waiting_barriers(&request, &r.bios[..listed], env.cx.config)
            } else {
                Vec::new()
            };
            for at in others.into_iter().take(missing) {
                let waiter =
                    Waiter { address: at, flush_only: true, confidence: Confidence::Address, time_ns: header.time_ns };
                self.add_waiter(&mut request, waiter, env);
            }
        }
        self.requests.insert(r.rq, request);
    }

    /// A flush without a recorded list of waiters: takes all barriers that waited on its disk when it was issued.
    pub(crate) fn guess_waiters(&mut self, request: &mut Request, env: &mut Env<'_, '_>) {
        let listed: Vec<u64> = request.bios.iter().copied().filter(|at| self.bios.contains_key(at)).collect();
        let (all, sure) = if listed.is_empty() {
            (self.waiting_barriers(request, &[], env.cx.config), Confidence::Address)
        } else {
            (listed, Confidence::Exact)
        };
        request.charges.clear();
        request.waiters = all.len() as u32;
        for at in all {
            let waiter = Waiter { address: at, flush_only: true, confidence: sure, time_ns: request.issue_ns };
            self.add_waiter(request, waiter, env);
        }
    }

    /// Barriers of the request's disk that were queued before it and not carried yet, oldest first.
    fn waiting_barriers(&self, request: &Request, known: &[u64], config: &Config) -> Vec<u64> {
        let disk = config.disk_of(request.disk);
        let mut all: Vec<(u64, u64)> = self
            .barriers
            .iter()
            .filter(|at| !known.contains(at))
            .filter_map(|at| Some((at, self.bios.get(at)?)))
            .filter(|(_, b)| b.is_barrier() && config.disk_of(b.disk) == disk)
            .filter(|(_, b)| b.carrier == 0 && b.queue_ns <= request.issue_ns)
            .map(|(at, b)| (b.span, *at))
            .collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter().map(|(_, at)| at).collect()
    }

    /// Adds a waiter: an equal part of the flush, charged to whoever the waiter is charged to.
    fn add_waiter(
        &mut self,
        request: &mut Request,
        Waiter { address: at, flush_only: bare, confidence: sure, time_ns }: Waiter,
        env: &mut Env<'_, '_>,
    ) {
        let Some(mut bio) = self.bios.remove(&at) else { return };
        let window = Window { start_ns: bio.queue_ns, end_ns: time_ns, cpus: [bio.cpu, request.cpu] };
        let sure = env.cx.link(bio.span, request.command, Relation::WaitsForFlush, sure, window);
        let all: f64 = bio.charges.iter().map(|c| c.weight).sum();
        let first = request.charges.len();
        for charge in &bio.charges {
            let source = match charge.source {
                Source::Joiners(key) => Source::Waiters(key),
                other => other,
            };
            request.charges.push(Charge {
                source,
                weight: if all > 0.0 { charge.weight / all } else { 0.0 },
                confidence: charge.confidence.min(sure),
                via: "flush",
                span: charge.span,
            });
        }
        let part: f64 = request.charges[first..].iter().map(|c| c.weight).sum();
        debug_assert!(part == 0.0 || is_near(part, 1.0), "a waiter has {part} of an equal part");
        if let Some(flight) = env.objects.activity.get(bio.flight) {
            let flight = Flight {
                queue_ns: request.issue_ns,
                made_ns: request.issue_ns,
                issue_ns: request.issue_ns,
                done_ns: u64::MAX,
                guess: false,
                flush: true,
                request: request.span,
                command: request.command,
                ..flight
            };
            request.flights.push(env.objects.activity.add(flight));
        }
        if bare && bio.op == DiskOp::Flush {
            // From here on the flush is waited for.
            env.objects.activity.superseded(bio.flight, request.issue_ns);
            bio.carrier = request.command;
            self.put_bio(&mut bio, Some(time_ns), None, env.tasks, env.cx);
        }
        self.bios.insert(at, bio);
    }
}
