//! Where a recorded thread's time goes outside its operations: sums by what it did or waited for, over a group of intervals.
//!
//! Slices of all that would be as many as those of the operations, though nobody asks for one of them. So their sums are kept, and
//! written when the group has a fiftieth of the thread's age: how the time changed remains visible, and an hour has few rows.
//!
//! *Uncertainty*: the time outside recorded calls includes calls that are not recorded. Whether a thread slept there is known only if its
//! sleeps were recorded; if not, the time is in no sum.

use crate::activity::{OWN_SPAN, TimeSlice};
use crate::{Config, Sink, Sleeps};
use model::table::ThreadTime;
use model::{Call, Layer, Reason, Wait};
use std::borrow::Cow;

/// Minimum length of a group.
const GROUP_NS_MIN: u64 = 100_000_000;
/// A longer group has this part of its thread's age.
const GROUP_AGE_DIVISOR: u64 = 50;
/// Maximum number of sums in a group.
const GROUP_SUMS_MAX: usize = 256;

/// What distinguishes sums: as the columns of the table.
type Key = (Layer, Reason, Option<Call>, Option<(Wait, u32, u64)>);

/// Sum, number of pieces, and the longest: its length, start and span.
#[derive(Debug)]
struct Sums {
    ns: u64,
    times: u64,
    longest: (u64, u64, u64),
}

/// The group of a thread.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    /// Whether sleeps outside recorded calls, and those inside, are recorded; `None`: nothing is summed up.
    sees: Option<(bool, bool)>,
    /// Start of the first group.
    first_ns: u64,
    /// Up to when pieces were added.
    until_ns: u64,
    /// The group's start and end.
    group: Option<(u64, u64)>,
    sums: Vec<(Key, Sums)>,
}

impl Outside {
    pub(crate) fn begin(&mut self, config: &Config) {
        let all = config.sleeps == Sleeps::All && config.are_idle_sleeps_recorded;
        self.sees = Some((all, config.sleeps != Sleeps::Unrecorded));
    }

    pub(crate) fn is_on(&self) -> bool {
        self.sees.is_some()
    }

    /// Up to when the thread's time has been summed up.
    pub(crate) fn until_ns(&self) -> u64 {
        self.until_ns
    }

    pub(crate) fn len(&self) -> usize {
        self.sums.len()
    }

    /// Adds a piece of the thread's time, and writes the group if it is complete.
    pub(crate) fn add(&mut self, who: (u32, u32), piece: TimeSlice, sink: &mut dyn Sink) {
        let Some((sees_idle, sees_calls)) = self.sees else { return };
        self.until_ns = self.until_ns.max(piece.end_ns);
        let is_own = piece.span == OWN_SPAN;
        let layer = if is_own { Layer::App } else { piece.layer };
        let is_seen = if is_own { sees_idle } else { sees_calls };
        if piece.reason == Reason::Cpu && !is_seen {
            return;
        }
        let key = (layer, piece.reason, piece.call, piece.blocked.map(|b| (b.wait, b.tgid, b.file)));
        let ns = piece.end_ns - piece.start_ns;
        let longest = (ns, piece.start_ns, if is_own { 0 } else { piece.span });
        match self.sums.iter_mut().find(|(known, _)| *known == key) {
            Some((_, sums)) => {
                (sums.ns, sums.times) = (sums.ns + ns, sums.times + 1);
                if longest.0 > sums.longest.0 {
                    sums.longest = longest;
                }
            }
            None => self.sums.push((key, Sums { ns, times: 1, longest })),
        }
        let group = self.group.get_or_insert((piece.start_ns, piece.end_ns));
        *group = (group.0.min(piece.start_ns), group.1.max(piece.end_ns));
        let (start_ns, end_ns) = *group;
        if self.first_ns == 0 {
            self.first_ns = start_ns;
        }
        let full_ns = GROUP_NS_MIN.max(end_ns.saturating_sub(self.first_ns) / GROUP_AGE_DIVISOR);
        if end_ns - start_ns >= full_ns || self.sums.len() >= GROUP_SUMS_MAX {
            self.put(who, sink);
        }
    }

    /// Writes the group.
    pub(crate) fn put(&mut self, (tgid, tid): (u32, u32), sink: &mut dyn Sink) {
        let Some((start_ns, end_ns)) = self.group.take() else { return };
        for ((layer, reason, call, blocked), sums) in self.sums.drain(..) {
            let (longest_ns, longest_start_ns, span) = sums.longest;
            sink.thread_time(ThreadTime {
                tgid,
                tid,
                start_ns,
                end_ns,
                layer,
                reason,
                call: call.map(|call| Cow::Borrowed(call.name())),
                wait: blocked.map(|b| b.0),
                by_tgid: blocked.map(|b| b.1).filter(|tgid| *tgid != 0),
                wait_file: blocked.map(|b| b.2).filter(|file| *file != 0),
                ns: sums.ns,
                times: sums.times,
                longest_start_ns,
                longest_ns,
                span: (span != 0).then_some(span),
            });
        }
    }
}
