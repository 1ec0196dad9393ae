//! Which slow operations become incidents, so that a machine on which everything is slow is not slowed further.
//!
//! Slow operations that follow each other closely are one incident. For a time after an incident, further slow operations are counted and
//! not kept. If there are too many of them, the limit is doubled until they are few again. While an incident is written, those of the next
//! one are collected.
//!
//! Every operation is counted once: `seen = kept + below + shed`, once nothing is pending.

use super::detector::EndedOperation;
use super::limit::{Limit, Slow};

/// An incident ends when no slow operation has ended for this time, ns: the causes of what it waited for are then recorded, too.
const GAP_NS: u64 = 300_000_000;
/// Longest time from the end of the first slow operation of an incident to that of the last, ns.
const SPAN_NS_MAX: u64 = 5_000_000_000;
/// Maximum number of slow operations in one incident.
const MERGED_MAX: usize = 4096;
/// Number of slow operations not kept since the last incident beyond which the limit is doubled.
const NOT_KEPT_MAX: u64 = 1000;
/// The limit is raised at most by 2 to the power of this.
const RAISES_MAX: u32 = 10;

/// Number of operations, by what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub seen: u64,
    /// Not slow.
    pub below: u64,
    /// In an incident that was kept.
    pub kept: u64,
    /// Slow, and not kept, since the last incident was too recent, or this one had as many as fit.
    pub shed_rate: u64,
    /// Slow by the requested limit, but not by the raised one.
    pub shed_raised: u64,
    /// They began before what the buffer still held.
    pub shed_buffer: u64,
    /// Their incident could not be written.
    pub shed_failed: u64,
}

impl Counts {
    pub fn shed(&self) -> u64 {
        self.shed_rate + self.shed_raised + self.shed_buffer + self.shed_failed
    }
}

/// What makes an incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// These operations, the first to end first.
    Slow(Vec<EndedOperation>),
    /// A request for what was recorded until this time, ns.
    Request(u64),
}

/// What a user is told about the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitChange {
    /// There were too many slow operations: now it is this many times as high.
    Raised(u64),
    Lowered(u64),
}

#[derive(Debug)]
pub struct Gate {
    limit: Limit,
    /// Least time between the end of the last slow operation of an incident and that of the first of the next, ns.
    interval_ns: u64,
    raises: u32,
    open: Vec<EndedOperation>,
    /// An incident is being written.
    is_busy: bool,
    resumes_ns: u64,
    not_kept: u64,
    counts: Counts,
}

impl Gate {
    pub fn new(slow: Slow, interval_ns: u64) -> Self {
        Self {
            limit: Limit::new(slow),
            interval_ns,
            raises: 0,
            open: Vec::new(),
            is_busy: false,
            resumes_ns: 0,
            not_kept: 0,
            counts: Counts::default(),
        }
    }

    /// The duration from which on operations are kept now, ns.
    pub fn limit_ns(&self) -> Option<u64> {
        self.limit.current_ns().map(|ns| ns << self.raises)
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether an incident is being written.
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Slow operations whose incident has not begun to be written.
    #[cfg(test)]
    pub fn pending(&self) -> u64 {
        self.open.len() as u64
    }

    /// Judges an operation that ended.
    pub fn judge(&mut self, operation: EndedOperation) {
        let duration_ns = operation.duration_ns();
        let limit_ns = self.limit.current_ns();
        self.limit.learn(duration_ns);
        self.counts.seen += 1;
        match limit_ns.filter(|ns| duration_ns >= *ns) {
            None => self.counts.below += 1,
            Some(ns) if duration_ns < ns << self.raises => self.counts.shed_raised += 1,
            Some(_) if self.accepts(operation.end_ns) => self.open.push(operation),
            Some(_) => {
                self.counts.shed_rate += 1;
                self.not_kept += 1;
            }
        }
    }

    fn accepts(&self, end_ns: u64) -> bool {
        match self.open.first() {
            Some(first) => self.open.len() < MERGED_MAX && end_ns.saturating_sub(first.end_ns) <= SPAN_NS_MAX,
            None => end_ns >= self.resumes_ns,
        }
    }

    /// Returns the incident that has ended, given that all records until `now_ns` were seen. The caller calls [`Gate::settle`] for it.
    pub fn take_due(&mut self, now_ns: u64) -> Option<Trigger> {
        let last_ns = self.open.iter().map(|operation| operation.end_ns).max()?;
        // It may have ended before this one was ready to be written.
        (!self.is_busy && now_ns >= last_ns.saturating_add(GAP_NS)).then(|| self.take())
    }

    /// Returns the incident that has not ended yet, if any, at the end of the recording.
    pub fn take_last(&mut self) -> Option<Trigger> {
        (!self.open.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> Trigger {
        self.is_busy = true;
        let last_ns = self.open.iter().map(|operation| operation.end_ns).max().unwrap_or(0);
        self.resumes_ns = last_ns.saturating_add(self.interval_ns);
        Trigger::Slow(std::mem::take(&mut self.open))
    }

    /// Returns the requested incident, unless one is being written.
    pub fn request(&mut self, now_ns: u64) -> Option<Trigger> {
        if self.is_busy {
            return None;
        }
        self.is_busy = true;
        Some(Trigger::Request(now_ns))
    }

    /// Counts the operations of an incident that was written, or not. `complete_from_ns`: when what was written begins.
    pub fn settle(&mut self, trigger: &Trigger, written_from_ns: Option<u64>) {
        self.is_busy = false;
        let Trigger::Slow(operations) = trigger else { return };
        let all = operations.len() as u64;
        let Some(from_ns) = written_from_ns else {
            self.counts.shed_failed += all;
            return;
        };
        let whole = operations.iter().filter(|operation| operation.start_ns >= from_ns).count() as u64;
        self.counts.kept += whole;
        self.counts.shed_buffer += all - whole;
    }

    /// Returns the number of slow operations that were not kept since this was last called.
    pub fn take_not_kept(&mut self) -> u64 {
        std::mem::take(&mut self.not_kept)
    }

    /// Raises the limit if more was shed than should be; lowers it if little was, and an interval has passed. Called about once a second,
    /// with the number of slow operations that were not kept since the last incident.
    pub fn adapt(&mut self, not_kept: u64, now_ns: u64) -> Option<LimitChange> {
        if not_kept > NOT_KEPT_MAX && self.raises < RAISES_MAX {
            self.raises += 1;
            return Some(LimitChange::Raised(1 << self.raises));
        }
        if not_kept == 0 && self.raises > 0 && !self.is_busy && now_ns >= self.resumes_ns {
            self.raises -= 1;
            return Some(LimitChange::Lowered(1 << self.raises));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;

    fn operation(end_ns: u64, duration_ns: u64) -> EndedOperation {
        EndedOperation { tgid: 1, tid: 1, start_ns: end_ns - duration_ns, end_ns }
    }

    fn gate() -> Gate {
        Gate::new(Slow::Time(5 * MS), 10 * S)
    }

    #[test]
    fn fast_operations_make_no_incident() {
        let mut gate = gate();
        (0..1000).for_each(|n| gate.judge(operation(S + n * MS, 5 * MS - 1)));
        assert_eq!(gate.take_due(u64::MAX), None);
        assert_eq!(gate.counts(), Counts { seen: 1000, below: 1000, ..Counts::default() });
    }

    #[test]
    fn close_operations_are_one_incident() {
        let mut gate = gate();
        gate.judge(operation(S, 5 * MS));
        gate.judge(operation(S + 200 * MS, 7 * MS));
        assert_eq!(gate.take_due(S + 400 * MS), None, "another one may follow");
        let incident = gate.take_due(S + 500 * MS).unwrap();
        assert_eq!(incident, Trigger::Slow(vec![operation(S, 5 * MS), operation(S + 200 * MS, 7 * MS)]));
        gate.judge(operation(2 * S, 9 * MS));
        assert_eq!((gate.counts().shed_rate, gate.take_not_kept()), (1, 1), "the first is too recent");
        gate.judge(operation(12 * S, 9 * MS));
        assert_eq!(gate.take_due(13 * S), None, "the first is being written");
        gate.settle(&incident, Some(0));
        assert_eq!(gate.take_due(13 * S), Some(Trigger::Slow(vec![operation(12 * S, 9 * MS)])));
    }

    #[test]
    fn operation_that_began_before_the_buffer_is_not_kept() {
        let mut gate = gate();
        gate.judge(operation(S, 900 * MS));
        gate.judge(operation(S + MS, 5 * MS));
        let incident = gate.take_due(2 * S).unwrap();
        gate.settle(&incident, Some(500 * MS));
        let counts = gate.counts();
        assert_eq!((counts.kept, counts.shed_buffer, counts.shed()), (1, 1, 1));
    }

    #[test]
    fn limit_is_raised_under_load_and_lowered_after_it() {
        let mut gate = gate();
        assert_eq!(gate.adapt(NOT_KEPT_MAX + 1, S), Some(LimitChange::Raised(2)));
        assert_eq!(gate.limit_ns(), Some(10 * MS));
        gate.judge(operation(S, 7 * MS));
        assert_eq!(gate.counts().shed_raised, 1);
        assert_eq!(gate.adapt(1, S), None);
        assert_eq!(gate.adapt(0, S), Some(LimitChange::Lowered(1)));
        assert_eq!((gate.limit_ns(), gate.adapt(0, S)), (Some(5 * MS), None));
        for _ in 0..100 {
            gate.adapt(u64::MAX, S);
        }
        assert_eq!(gate.limit_ns(), Some((5 * MS) << RAISES_MAX));
    }

    /// Whatever comes, in whatever order things are asked for.
    #[test]
    fn counters_add_up_and_memory_is_bounded() {
        for seed in 1..60u64 {
            let mut state = seed;
            let mut below = |n: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % n
            };
            let slow = if seed % 3 == 0 { Slow::Quantile(0.9) } else { Slow::Time(5 * MS) };
            let mut gate = Gate::new(slow, below(3) * S);
            let mut writing: Option<Trigger> = None;
            let (mut now_ns, mut incidents) = (100 * S, 0);
            for _ in 0..20_000 {
                let longest = [2, 20, 2000][below(3) as usize];
                now_ns += below(longest) * MS;
                match below(20) {
                    0 if writing.is_none() => writing = gate.take_due(now_ns),
                    1 if writing.is_none() => writing = gate.request(now_ns),
                    2 => {
                        let not_kept = gate.take_not_kept();
                        gate.adapt(not_kept * below(300), now_ns);
                    }
                    3 | 4 => {
                        if let Some(trigger) = writing.take() {
                            incidents += 1;
                            gate.settle(&trigger, (below(5) > 0).then(|| now_ns - below(9) * S));
                        }
                    }
                    _ => gate.judge(operation(now_ns - below(50) * MS, below(20) * MS)),
                }
                assert!(gate.open.len() <= MERGED_MAX);
                let held = writing.as_ref().map_or(0, |trigger| match trigger {
                    Trigger::Slow(operations) => operations.len() as u64,
                    Trigger::Request(_) => 0,
                });
                let counts = gate.counts();
                assert_eq!(counts.seen, counts.kept + counts.below + counts.shed() + gate.pending() + held, "{seed}");
            }
            assert!(incidents > 10 && gate.counts().kept > 0, "{seed}: {:?}", gate.counts());
        }
    }
}
