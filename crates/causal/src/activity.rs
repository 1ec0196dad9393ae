//! The I/O in flight between the block layer and the device, and what a sleeping thread waits for.
//!
//! Every bio has four times: queued, its request made, issued, done. A journal commit has a start and an end. A thread
//! asleep in a system call waits for its own bios; an fsync also for others' bios on its file, and for the commit. At each
//! moment it waits for the one that is furthest along, since the others wait behind it.
//!
//! *Uncertainty*: the kernel does not report what a thread sleeps on. A call that sleeps on a lock while a commit of its
//! file system runs is assumed to wait for the commit. For a bio or commit whose end was lost, only the latest possible end
//! is known, so what it explains is a guess.

use crate::actor::TxnKey;
use crate::blocked::KernelWait;
use model::event::flags;
use model::{Call, Confidence, Layer, Reason};
use std::collections::VecDeque;

/// Maximum number of bios kept; beyond it the oldest are dropped, and waits for them become `other`.
const IN_FLIGHT_MAX: usize = 1 << 15;

/// One bio in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flight {
    pub queue_ns: u64,
    pub made_ns: u64,
    pub issue_ns: u64,
    pub done_ns: u64,
    /// Its completion was not seen: `done_ns` is only the latest time at which it can have ended.
    pub guess: bool,
    pub flush: bool,
    pub read: bool,
    /// Who queued it: the thread, and the start of its system call.
    pub call: (u32, u64),
    pub file: (u32, u64),
    pub commit: Option<TxnKey>,
    /// The thread that submitted it through a ring; 0: none.
    pub ring: u32,
    pub bio: u64,
    pub request: u64,
    pub command: u64,
}

#[derive(Debug, Clone, Copy)]
struct Commit {
    key: TxnKey,
    span: u64,
    begin_ns: u64,
    end_ns: u64,
    /// Its end was not seen: `end_ns` is only the latest time at which it can have ended.
    guess: bool,
}

impl Commit {
    fn confidence(&self) -> Confidence {
        if self.guess { Confidence::Guess } else { Confidence::Interval }
    }
}

/// A sync requested through a ring.
#[derive(Debug, Clone, Copy)]
struct RingSync {
    tid: u32,
    dev: u32,
    span: u64,
    start_ns: u64,
    end_ns: u64,
}

/// The situation in which a thread sleeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SleepContext {
    pub tid: u32,
    /// Start of its system call; 0: none (a page fault, or a call that was not recorded).
    pub call_ns: u64,
    pub call: Option<Call>,
    pub dev: u32,
    pub ino: u64,
    pub ctx: u16,
}

/// The span of a frame's own time, which goes to the frame's layer.
pub(crate) const OWN_SPAN: u64 = u64::MAX;

/// A piece of a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeSlice {
    pub layer: Layer,
    pub reason: Reason,
    pub span: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    pub confidence: Confidence,
    /// It was the application that waited, while it worked on a row.
    pub between_rows: bool,
    /// In a call: the inferred transaction that it belongs to; 0: none.
    pub transaction: Option<u64>,
    /// The recorded system call that the thread was in.
    pub call: Option<Call>,
    /// What the kernel itself reported about the wait.
    pub blocked: Option<KernelWait>,
}

/// An interval in which something may be waited for.
type Interval = (u64, u64, u64, Reason, Confidence);

/// Bios and commits in flight or recently ended.
#[derive(Default)]
pub(crate) struct Activity {
    first: u64,
    flights: VecDeque<Flight>,
    commits: VecDeque<Commit>,
    ring_syncs: VecDeque<RingSync>,
    /// Kept to reuse its memory.
    levels: [Vec<Interval>; 4],
    /// Likewise, for a thread's slices.
    buffer: Vec<TimeSlice>,
}

impl Activity {
    /// Records that a bio was queued; returns its number.
    pub(crate) fn add(&mut self, flight: Flight) -> u64 {
        self.flights.push_back(flight);
        if self.flights.len() > IN_FLIGHT_MAX {
            self.flights.pop_front();
            self.first += 1;
        }
        self.first + self.flights.len() as u64 - 1
    }

    /// Returns a bio, unless it was dropped.
    pub(crate) fn get(&self, number: u64) -> Option<Flight> {
        self.flights.get(usize::try_from(number.checked_sub(self.first)?).ok()?).copied()
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Flight> {
        self.flights.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Records that a request took the bio and was issued as this command. Returns whether the bio is still known.
    pub(crate) fn issued(&mut self, number: u64, times: (u64, u64), (request, command): (u64, u64)) -> bool {
        let Some(flight) = self.get_mut(number) else { return false };
        (flight.made_ns, flight.issue_ns) = times;
        (flight.request, flight.command) = (request, command);
        true
    }

    /// Records that its request was issued again, as another command.
    pub(crate) fn issued_again(&mut self, number: u64, issue_ns: u64, command: u64) {
        if let Some(flight) = self.get_mut(number) {
            (flight.issue_ns, flight.command) = (issue_ns, command);
        }
    }

    /// Records that it ended at `end_ns` or earlier. `seen`: the end was recorded; if not, it is only known to have ended
    /// by then.
    pub(crate) fn completed(&mut self, number: u64, end_ns: u64, seen: bool) {
        if let Some(flight) = self.get_mut(number).filter(|f| end_ns < f.done_ns) {
            (flight.done_ns, flight.guess) = (end_ns, !seen);
        }
    }

    /// From `at_ns` on, something else is waited for in its place, or it has ended.
    pub(crate) fn superseded(&mut self, number: u64, at_ns: u64) {
        if let Some(flight) = self.get_mut(number) {
            flight.done_ns = flight.done_ns.min(at_ns);
        }
    }

    /// Its address was reused by `at_ns`, so it has ended, but not before it was queued.
    pub(crate) fn forgotten(&mut self, number: u64, at_ns: u64) {
        if let Some(flight) = self.get_mut(number) {
            flight.done_ns = flight.done_ns.min(at_ns.max(flight.queue_ns));
        }
    }

    pub(crate) fn commit_began(&mut self, key: TxnKey, span: u64, begin_ns: u64) {
        self.commits.push_back(Commit { key, span, begin_ns, end_ns: u64::MAX, guess: false });
        if self.commits.len() > IN_FLIGHT_MAX {
            self.commits.pop_front();
        }
    }

    /// `seen`: the end was recorded; if not, it is only known to have ended by then.
    pub(crate) fn commit_ended(&mut self, key: TxnKey, end_ns: u64, seen: bool) {
        if let Some(commit) = self.commits.iter_mut().rev().find(|t| t.key == key && t.end_ns == u64::MAX) {
            (commit.end_ns, commit.guess) = (end_ns, !seen);
        }
    }

    /// A commit whose begin and end come in one record.
    pub(crate) fn commit_took(&mut self, key: TxnKey, span: u64, begin_ns: u64, end_ns: u64) {
        if begin_ns < end_ns {
            self.commit_began(key, span, begin_ns);
            self.commit_ended(key, end_ns, true);
        }
    }

    pub(crate) fn ring_sync_began(&mut self, tid: u32, dev: u32, span: u64, start_ns: u64) {
        self.ring_syncs.push_back(RingSync { tid, dev, span, start_ns, end_ns: u64::MAX });
        if self.ring_syncs.len() > IN_FLIGHT_MAX {
            self.ring_syncs.pop_front();
        }
    }

    pub(crate) fn ring_sync_ended(&mut self, span: u64, end_ns: u64) {
        if let Some(sync) = self.ring_syncs.iter_mut().rev().find(|s| s.span == span) {
            sync.end_ns = end_ns;
        }
    }

    /// Drops what ended before `before_ns`, oldest first.
    pub(crate) fn prune(&mut self, before_ns: u64) {
        while self.flights.front().is_some_and(|f| f.done_ns < before_ns) {
            self.flights.pop_front();
            self.first += 1;
        }
        while self.commits.front().is_some_and(|t| t.end_ns < before_ns) {
            self.commits.pop_front();
        }
        while self.ring_syncs.front().is_some_and(|s| s.end_ns < before_ns) {
            self.ring_syncs.pop_front();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.flights.len() + self.commits.len() + self.ring_syncs.len()
    }

    /// Returns an empty buffer for a thread's slices, to be given back.
    pub(crate) fn take_buffer(&mut self) -> Vec<TimeSlice> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer
    }

    pub(crate) fn give_back(&mut self, buffer: Vec<TimeSlice>) {
        self.buffer = buffer;
    }

    /// Returns what the sleeper waited for from `start_ns` to `end_ns`: pieces in order, without gaps. Time that nothing
    /// explains goes to `rest`.
    pub(crate) fn explain(
        &mut self,
        who: &SleepContext,
        start_ns: u64,
        end_ns: u64,
        rest: (Layer, u64),
        out: &mut Vec<TimeSlice>,
    ) {
        let syncs = who.call.is_some_and(|c| c.syncs() || c.writes() && who.ctx & flags::SYNC_FILE != 0);
        let reads = who.call.is_some_and(Call::reads);
        let in_ring = who.call == Some(Call::IoUringEnter);
        // Reading and seeking need no journal.
        let journal = who.dev != 0 && !reads && who.call.is_some_and(|c| c != Call::Lseek);
        // Four levels, the deepest first: (start, end, span).
        let mut levels = std::mem::take(&mut self.levels);
        levels.iter_mut().for_each(Vec::clear);
        let mut add = |level: usize, from: u64, to: u64, span: u64, reason: Reason, sure: Confidence| {
            let (from, to) = (from.max(start_ns), to.min(end_ns));
            if from < to {
                levels[level].push((from, to, span, reason, sure));
            }
        };
        for f in &self.flights {
            if f.queue_ns >= end_ns || f.done_ns <= start_ns {
                continue;
            }
            let through_ring = f.ring == who.tid && (in_ring || f.call.1 == who.call_ns);
            let own = f.call == (who.tid, who.call_ns) || through_ring;
            let same_file = who.ino != 0
                && f.file == (who.dev, who.ino)
                && ((syncs && !f.read) || (reads && f.read && who.ctx & flags::DIRECT == 0));
            let of_commit = journal && f.commit.is_some_and(|c| c.0 == who.dev);
            if own || same_file || of_commit {
                let reason = if f.flush { Reason::Flush } else { Reason::Device };
                // A bio names the call that sent it; waits for other bios of the file or of a commit are inferred.
                let sure = if own { Confidence::Structural } else { Confidence::Interval };
                add(0, f.issue_ns, f.done_ns, f.command, reason, if f.guess { Confidence::Guess } else { sure });
                add(1, f.made_ns, f.issue_ns.min(f.done_ns), f.request, Reason::Queue, sure);
                add(2, f.queue_ns, f.made_ns.min(f.done_ns), f.bio, Reason::Queue, sure);
            }
        }
        // Syncs that the thread requested through a ring, if it now waits on the ring.
        for s in self.ring_syncs.iter().filter(|s| in_ring && s.tid == who.tid) {
            let (from, to) = (s.start_ns, s.end_ns);
            for t in self.commits.iter().filter(|t| t.key.0 == s.dev) {
                add(3, t.begin_ns.max(from), t.end_ns.min(to), t.span, Reason::Journal, t.confidence());
            }
            for f in self.flights.iter().filter(|f| f.commit.is_some_and(|c| c.0 == s.dev)) {
                let reason = if f.flush { Reason::Flush } else { Reason::Device };
                let sure = if f.guess { Confidence::Guess } else { Confidence::Interval };
                add(0, f.issue_ns.max(from), f.done_ns.min(to), f.command, reason, sure);
                add(
                    1,
                    f.made_ns.max(from),
                    f.issue_ns.min(f.done_ns).min(to),
                    f.request,
                    Reason::Queue,
                    Confidence::Interval,
                );
                add(
                    2,
                    f.queue_ns.max(from),
                    f.made_ns.min(f.done_ns).min(to),
                    f.bio,
                    Reason::Queue,
                    Confidence::Interval,
                );
            }
        }
        if journal {
            for t in self.commits.iter().filter(|t| t.key.0 == who.dev) {
                add(3, t.begin_ns, t.end_ns, t.span, Reason::Journal, t.confidence());
            }
        }
        levels.iter_mut().for_each(|l| l.sort_unstable());
        fill_level(&levels, 0, start_ns, end_ns, rest, out);
        self.levels = levels;
    }
}

const LEVEL_LAYERS: [Layer; 4] = [Layer::Driver, Layer::IoScheduler, Layer::Block, Layer::FileSystem];

/// Covers `from..to` by the intervals of `level`, and the gaps between them by those of the levels after it.
fn fill_level(
    levels: &[Vec<Interval>; 4],
    level: usize,
    from: u64,
    to: u64,
    rest: (Layer, u64),
    out: &mut Vec<TimeSlice>,
) {
    let Some(intervals) = levels.get(level) else {
        // That no wait was seen does not prove that there was none.
        let confidence = Confidence::Interval;
        out.push(TimeSlice {
            layer: rest.0,
            reason: Reason::Other,
            span: rest.1,
            start_ns: from,
            end_ns: to,
            confidence,
            between_rows: false,
            transaction: None,
            call: None,
            blocked: None,
        });
        return;
    };
    let mut at = from;
    for &(start, end, span, reason, confidence) in intervals {
        if end <= at {
            continue;
        }
        if start >= to {
            break;
        }
        if start > at {
            fill_level(levels, level + 1, at, start, rest, out);
            at = start;
        }
        let end = end.min(to);
        let layer = LEVEL_LAYERS[level];
        out.push(TimeSlice {
            layer,
            reason,
            span,
            start_ns: at,
            end_ns: end,
            confidence,
            between_rows: false,
            transaction: None,
            call: None,
            blocked: None,
        });
        at = end;
        if at >= to {
            return;
        }
    }
    fill_level(levels, level + 1, at, to, rest, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_last_part_of_its_request() {
        let mut activity = Activity::default();
        let flight = Flight {
            queue_ns: 10,
            made_ns: 20,
            issue_ns: 30,
            done_ns: 60,
            guess: false,
            flush: false,
            read: false,
            call: (7, 5),
            file: (1, 2),
            commit: None,
            ring: 0,
            bio: 1,
            request: 2,
            command: 3,
        };
        activity.add(flight);
        activity.add(Flight {
            queue_ns: 40,
            made_ns: 45,
            issue_ns: 50,
            done_ns: 90,
            flush: true,
            command: 6,
            ..flight
        });
        activity.add(Flight { call: (8, 5), ..flight });
        let who = SleepContext { tid: 7, call_ns: 5, call: Some(Call::Fsync), dev: 1, ino: 9, ctx: 0 };
        let mut out = Vec::new();
        activity.explain(&who, 8, 100, (Layer::FileSystem, 0), &mut out);
        let seen: Vec<_> = out.iter().map(|w| (w.layer, w.reason, w.span, w.start_ns, w.end_ns)).collect();
        assert_eq!(
            seen,
            [
                (Layer::FileSystem, Reason::Other, 0, 8, 10),
                (Layer::Block, Reason::Queue, 1, 10, 20),
                (Layer::IoScheduler, Reason::Queue, 2, 20, 30),
                (Layer::Driver, Reason::Device, 3, 30, 60),
                (Layer::Driver, Reason::Flush, 6, 60, 90),
                (Layer::FileSystem, Reason::Other, 0, 90, 100),
            ]
        );
    }
}
