//! The time of threads outside their operations: between one statement and the next, and all of it where a program has none.
//!
//! The account of operations ends where they end: a program that computes for a minute between two INSERTs would look like one that
//! only inserts. Here each thread's window, from the first to the last thing that it was seen to do, is divided once more: its
//! outermost operations, which [`super::account`] divides; the system calls beside them; sleeps of which a stack was sampled; and the
//! rest, the program itself. These add up to the window of every thread.
//!
//! **Uncertainty.** What a thread does before its first call and after its last is in no window. Outside operations an archive has no
//! slices, so whether a thread ran or slept is known only from calls and sampled stacks: the rest says "running or asleep".

use super::contract::{Between, BetweenLeaf};
use super::{CONFIDENCE_LEVEL, INTERVALS_SEED};
use analysis::rows::Index;
use analysis::stacks::{Key as Sleep, Sleeps};
use model::Layer;
use stats::stretches::{Draws, STRETCH_COUNT, resample_sum};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of stacks of a leaf.
const STACKS_MAX: usize = 3;

/// The share of the threads' time outside operations from which on its parts are listed, and that of a part.
const OUTSIDE_SHARE_MIN: f64 = 0.05;
const LISTED_SHARE_MIN: f64 = 0.02;

/// What a thread did outside its operations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Doing<'a> {
    /// A system call.
    Call(Cow<'a, str>),
    /// A sleep outside the calls that are recorded, in this call if the kernel's stack shows it.
    Asleep(Option<String>),
    Program,
}

type Thread = (u32, u32);

/// A piece of a thread's time: start, end, and the call's span; `None`: an operation.
type Piece = (u64, u64, Option<usize>);

#[derive(Default)]
struct Sums {
    ns: u64,
    stretches: [f64; STRETCH_COUNT],
    threads: BTreeSet<Thread>,
    by_process: BTreeMap<u32, u64>,
    times: u64,
    longest: (u64, Option<u64>),
    sleeps: BTreeMap<Sleep, u64>,
}

/// Sums of all threads.
#[derive(Default)]
struct Division<'a> {
    leaves: BTreeMap<Doing<'a>, Sums>,
    operations_ns: u64,
    whole_ns: u64,
    whole: [f64; STRETCH_COUNT],
}

/// A thread and the time in which it was seen.
struct Window {
    thread: Thread,
    from_ns: u64,
    to_ns: u64,
}

impl Window {
    /// Yields the parts of an interval by stretch of the window.
    fn by_stretch(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = (usize, f64)> {
        let length = (self.to_ns - self.from_ns) as f64 / STRETCH_COUNT as f64;
        let (from, to) = ((from_ns - self.from_ns) as f64, (to_ns - self.from_ns) as f64);
        let place = |ns: f64| ((ns / length.max(f64::MIN_POSITIVE)) as usize).min(STRETCH_COUNT - 1);
        (place(from)..=place(to)).filter_map(move |at| {
            let part = to.min(length * (at + 1) as f64) - from.max(length * at as f64);
            (part > 0.0).then_some((at, part))
        })
    }
}

/// Divides the time of the recorded threads.
pub fn divide(index: &Index, sleeps: &Sleeps) -> Between {
    let mut division = Division::default();
    let threads = pieces_by_thread(index);
    let count = threads.len() as u64;
    for (thread, mut pieces) in threads {
        // Of two that begin together, the operation is around the call.
        pieces.sort_unstable_by_key(|(start, end, call)| (*start, call.is_some(), std::cmp::Reverse(*end)));
        let from_ns = pieces.first().map_or(0, |piece| piece.0);
        let to_ns = pieces.iter().map(|piece| piece.1).max().unwrap_or(from_ns);
        division.add_thread(index, sleeps, &Window { thread, from_ns, to_ns }, &pieces);
    }
    division.finish(index, sleeps, count)
}

/// Returns the outermost operations and the calls outside them of each recorded thread.
fn pieces_by_thread(index: &Index) -> BTreeMap<Thread, Vec<Piece>> {
    let rows = index.rows;
    let tracked: BTreeSet<u32> = rows.processes.iter().filter(|p| p.tracked).map(|p| p.tgid).collect();
    let mut threads: BTreeMap<Thread, Vec<Piece>> = BTreeMap::new();
    for at in (0..rows.operations.len()).filter(|&at| index.chain(at).nth(1).is_none()) {
        let operation = rows.operations.at(at);
        if let Some(end_ns) = operation.end_ns {
            let own = threads.entry((operation.tgid, operation.tid)).or_default();
            own.push((operation.start_ns, end_ns.max(operation.start_ns), None));
        }
    }
    for (at, span) in rows.spans.of_layer(Layer::Syscall) {
        let known = tracked.contains(&span.tgid) || threads.contains_key(&(span.tgid, span.tid));
        if let (Some(end_ns), None, true) = (span.end_ns, span.operation, known) {
            let own = threads.entry((span.tgid, span.tid)).or_default();
            own.push((span.start_ns, end_ns.max(span.start_ns), Some(at)));
        }
    }
    threads
}

impl<'a> Division<'a> {
    fn add_thread(&mut self, index: &'a Index<'a>, sleeps: &Sleeps, window: &Window, pieces: &[Piece]) {
        self.whole_ns = self.whole_ns.saturating_add(window.to_ns - window.from_ns);
        window.by_stretch(window.from_ns, window.to_ns).for_each(|(at, part)| self.whole[at] += part);
        let mut cursor = window.from_ns;
        for (start_ns, end_ns, call) in pieces {
            self.add_gap(sleeps, window, cursor, *start_ns);
            let from = cursor.max(*start_ns);
            if from < *end_ns {
                match call {
                    None => self.operations_ns = self.operations_ns.saturating_add(end_ns - from),
                    Some(at) => {
                        let spans = &index.rows.spans;
                        self.add(window, Doing::Call(spans.kind(*at)), from, *end_ns, Some(spans.id(*at)));
                    }
                }
            }
            cursor = cursor.max(*end_ns);
        }
    }

    /// Adds time in which a thread was in no operation and in no recorded call.
    fn add_gap(&mut self, sleeps: &Sleeps, window: &Window, from_ns: u64, to_ns: u64) {
        if from_ns >= to_ns {
            return;
        }
        let mut asleep: Vec<(Sleep, u64)> = sleeps.within(window.thread, from_ns, to_ns).collect();
        asleep.sort_unstable();
        let mut cursor = from_ns;
        for (sleep, ns) in asleep.into_iter().filter(|(_, ns)| *ns > 0) {
            let start = sleep.1.max(cursor);
            let end = sleep.1.max(from_ns).saturating_add(ns).min(to_ns);
            if start >= end {
                continue;
            }
            self.add(window, Doing::Program, cursor, start, None);
            let doing = Doing::Asleep(sleeps.longest([(sleep, ns)]).pop().and_then(|wait| wait.call));
            let sums = self.add(window, doing, start, end, None);
            *sums.sleeps.entry(sleep).or_default() += end - start;
            cursor = end;
        }
        self.add(window, Doing::Program, cursor, to_ns, None);
    }

    fn add(&mut self, window: &Window, doing: Doing<'a>, from_ns: u64, to_ns: u64, span: Option<u64>) -> &mut Sums {
        let ns = to_ns.saturating_sub(from_ns);
        let sums = self.leaves.entry(doing).or_default();
        if ns > 0 {
            sums.ns = sums.ns.saturating_add(ns);
            sums.times += 1;
            sums.threads.insert(window.thread);
            let of_process = sums.by_process.entry(window.thread.0).or_default();
            *of_process = of_process.saturating_add(ns);
            sums.longest = sums.longest.max((ns, span));
            window.by_stretch(from_ns, to_ns).for_each(|(at, part)| sums.stretches[at] += part);
        }
        sums
    }

    fn finish(self, index: &Index, sleeps: &Sleeps, threads: u64) -> Between {
        let draws = Draws::new(STRETCH_COUNT, INTERVALS_SEED);
        let Self { leaves, operations_ns, whole_ns, whole } = self;
        let share_of_whole = |ns: u64| ns as f64 / whole_ns.max(1) as f64;
        let is_noticeable = share_of_whole(whole_ns.saturating_sub(operations_ns)) >= OUTSIDE_SHARE_MIN;
        let leaf = |(doing, sums): (Doing<'_>, Sums)| {
            let share = draws.as_ref().and_then(|draws| {
                draws.estimate(CONFIDENCE_LEVEL, |t| resample_sum(t, &sums.stretches) / resample_sum(t, &whole))
            });
            let most = sums.by_process.iter().max_by_key(|(_, ns)| **ns).map(|(tgid, _)| *tgid);
            let mut slow_waits = sleeps.longest(sums.sleeps);
            slow_waits.truncate(STACKS_MAX);
            let (what, call) = match doing {
                Doing::Call(name) => (format!("in the system call {name}"), Some(name.into_owned())),
                Doing::Asleep(Some(name)) => (format!("asleep, in {name}"), Some(name)),
                Doing::Asleep(None) => ("asleep".into(), None),
                Doing::Program => ("in the program itself, running or asleep".into(), None),
            };
            BetweenLeaf {
                what,
                call,
                ns: sums.ns,
                share: share_of_whole(sums.ns),
                listed: is_noticeable && share_of_whole(sums.ns) >= LISTED_SHARE_MIN,
                interval: share.map(|e| [e.low.clamp(0.0, 1.0), e.high.clamp(0.0, 1.0)]),
                saves_at_most_ns: sums.ns,
                times: sums.times,
                threads: sums.threads.len() as u64,
                tgid: most,
                process: most.and_then(|tgid| index.process_name(tgid)).map(str::to_string),
                longest_ns: sums.longest.0,
                longest_span: sums.longest.1,
                slow_waits,
            }
        };
        let mut leaves: Vec<BetweenLeaf> = leaves.into_iter().filter(|(_, sums)| sums.ns > 0).map(leaf).collect();
        leaves.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.what.cmp(&b.what)));
        if let Some(largest) = leaves.first_mut() {
            largest.listed = is_noticeable;
        }
        let listed = leaves.iter().fold(operations_ns, |sum, leaf| sum.saturating_add(leaf.ns));
        assert_eq!(listed, whole_ns, "each moment of a window is in one part");
        Between { whole_ns, threads, operations_ns, leaves }
    }
}
