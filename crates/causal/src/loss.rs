//! The effect of a loss on the links made meanwhile.
//!
//! A link is made from two records. If anything was lost on the CPU of either of them (or on an unknown CPU) between
//! the two, an intermediate event may be missing (a page written again, an address reused), so the link's confidence is
//! one step lower and it names the loss. No link is dropped because of a loss.
//!
//! *Uncertainty*: a loss on a third CPU may matter too (a thread that moved there and back); links do not remember
//! every CPU that their threads passed.

use crate::Sink;
use model::event::{Header, Loss};
use model::table::LossRow;
use model::{Confidence, LossScope, LossSource};
use std::collections::VecDeque;

/// The CPU number of a loss whose CPU is not known.
pub const UNKNOWN_CPU: u16 = u16::MAX;

/// Number of losses kept for links whose window reaches far back. Older ones stay in the table.
const LOSSES_MAX: usize = 1024;

#[derive(Debug)]
struct KnownLoss {
    id: u64,
    cpu: u16,
    start_ns: u64,
    end_ns: u64,
}

/// Missed completions this close together are one loss.
const MERGE_GAP_NS: u64 = 100_000_000;

#[derive(Debug, Default)]
pub(crate) struct Losses {
    count: u64,
    /// Completions that were not recorded although no loss was known: first time, last time, number.
    unseen: Option<(u64, u64, u64)>,
    known: VecDeque<KnownLoss>,
    latest_ns: u64,
}

/// The times and CPUs of the two records that a link is based on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub start_ns: u64,
    pub end_ns: u64,
    pub cpus: [u16; 2],
}

impl Losses {
    /// Adds a loss and writes its row.
    pub(crate) fn add(&mut self, header: &Header, loss: &Loss, sink: &mut dyn Sink) {
        self.count += 1;
        let start_ns = loss.start_ns.min(header.time_ns);
        let source = LossSource::from_number(loss.source);
        // No link is based on the scheduler's events.
        if LossScope::of(loss) != LossScope::Scheduling {
            self.known.push_back(KnownLoss { id: self.count, cpu: header.cpu, start_ns, end_ns: header.time_ns });
            self.latest_ns = self.latest_ns.max(header.time_ns);
        }
        if self.known.len() > LOSSES_MAX {
            self.known.pop_front();
        }
        sink.loss(LossRow {
            id: self.count,
            source,
            cpu: (header.cpu != UNKNOWN_CPU).then_some(header.cpu.into()),
            start_ns,
            end_ns: header.time_ns,
            events: (loss.events > 0).then_some(loss.events),
            at_least: loss.bound != 0,
            program: (!loss.text.is_empty()).then(|| loss.text.clone()),
        });
    }

    /// Records that the completion of a command is missing, which was issued at `start_ns` and ended by `end_ns`. A loss that was
    /// already reported explains it.
    pub(crate) fn add_unseen(&mut self, start_ns: u64, end_ns: u64, sink: &mut dyn Sink) {
        if self.known.iter().any(|k| k.start_ns <= end_ns && k.end_ns >= start_ns) {
            return;
        }
        match &mut self.unseen {
            Some((from, to, count)) if start_ns <= to.saturating_add(MERGE_GAP_NS) => {
                (*from, *to, *count) = ((*from).min(start_ns), (*to).max(end_ns), *count + 1);
            }
            _ => {
                self.put_unseen(sink);
                self.unseen = Some((start_ns, end_ns, 1));
            }
        }
    }

    /// Writes the row of the completions missed last.
    pub(crate) fn put_unseen(&mut self, sink: &mut dyn Sink) {
        let Some((start_ns, end_ns, events)) = self.unseen.take() else { return };
        self.count += 1;
        sink.loss(LossRow {
            id: self.count,
            source: LossSource::NotRun,
            cpu: None,
            start_ns,
            end_ns,
            events: Some(events),
            at_least: false,
            program: Some("rq_done".into()),
        });
    }

    /// Returns the confidence of a link with this window, and the loss that lowered it.
    pub(crate) fn weaken(&self, confidence: Confidence, window: Window) -> (Confidence, Option<u64>) {
        if self.latest_ns < window.start_ns || self.known.is_empty() {
            return (confidence, None);
        }
        let inside = |k: &&KnownLoss| {
            k.start_ns <= window.end_ns
                && k.end_ns >= window.start_ns
                && (k.cpu == UNKNOWN_CPU || window.cpus.contains(&k.cpu))
        };
        match self.known.iter().rev().find(inside) {
            Some(loss) => (confidence.weakened(), Some(loss.id)),
            None => (confidence, None),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}
