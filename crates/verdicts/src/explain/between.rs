//! The time of threads outside their operations: between one statement and the next, and all of it where a program has none.
//!
//! The account of operations ends where they end: a program that computes for a minute between two INSERTs would look like one that
//! only inserts. Here each thread's window, from the first to the last thing that it was seen to do, is divided once more: its
//! outermost operations, which [`super::account`] divides; what it ran in and waited for beside them (`thread_times`); and what is in
//! neither. These add up to the window of every thread.
//!
//! **Uncertainty.** The program's own time includes calls that are not recorded. In archives whose scheduler was not recorded outside
//! operations, whether a thread ran or slept there is not known: that time is unaccounted.

use super::account::{ENDERS_MAX, EndedBy, Key, leaf_id, longest_first};
use super::contract::{Between, BetweenLeaf};
use super::leaf::{self, Said};
use super::{CONFIDENCE_LEVEL, INTERVALS_SEED};
use analysis::rows::Index;
use analysis::stacks::{Key as Sleep, Sleeps};
use model::table::ThreadTime;
use model::{Layer, Reason};
use stats::stretches::{Draws, STRETCH_COUNT, resample_sum};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum number of stacks of a leaf.
const STACKS_MAX: usize = 3;

/// The share of the threads' time outside operations from which on its parts are listed, and that of a part.
const OUTSIDE_SHARE_MIN: f64 = 0.05;
const LISTED_SHARE_MIN: f64 = 0.02;

type Thread = (u32, u32);

#[derive(Default)]
struct Sums {
    ns: u64,
    stretches: [f64; STRETCH_COUNT],
    threads: BTreeSet<Thread>,
    by_process: BTreeMap<u32, u64>,
    times: u64,
    longest: (u64, Option<u64>),
    ended_by: HashMap<EndedBy, (u64, u64, Option<u64>)>,
    sleeps: BTreeMap<Sleep, u64>,
}

/// What a thread was seen to do.
#[derive(Default)]
struct Seen {
    /// Start and end of outermost operations.
    operations: Vec<(u64, u64)>,
    times: Vec<ThreadTime>,
}

impl Seen {
    /// The first and the last moment.
    fn window(&self) -> (u64, u64) {
        let groups = self.times.iter().map(|time| (time.start_ns, time.end_ns.max(time.start_ns)));
        let all = self.operations.iter().copied().chain(groups);
        let (from, to) = all.fold((u64::MAX, 0), |(from, to), (start, end)| (from.min(start), to.max(end)));
        (from.min(to), to)
    }

    /// The time in operations: those that are open at once, or go on beside their thread (io_uring), are counted once.
    fn operations_ns(&mut self) -> u64 {
        self.operations.sort_unstable();
        let (mut sum, mut cursor) = (0_u64, 0);
        for (start, end) in &self.operations {
            sum = sum.saturating_add(end.saturating_sub(cursor.max(*start)));
            cursor = cursor.max(*end);
        }
        sum
    }
}

/// Sums of all threads.
#[derive(Default)]
struct Division {
    leaves: BTreeMap<Key<'static>, Sums>,
    operations_ns: u64,
    unaccounted_ns: u64,
    whole_ns: u64,
    whole: [f64; STRETCH_COUNT],
}

/// Divides the time of the recorded threads.
pub fn divide(index: &Index, sleeps: &Sleeps) -> Between {
    let mut division = Division::default();
    let threads = threads(index);
    let count = threads.len() as u64;
    for seen in threads.into_values() {
        division.add_thread(sleeps, seen);
    }
    division.finish(index, sleeps, count)
}

fn threads(index: &Index) -> BTreeMap<Thread, Seen> {
    let rows = index.rows;
    let mut threads: BTreeMap<Thread, Seen> = BTreeMap::new();
    for at in (0..rows.operations.len()).filter(|&at| index.chain(at).nth(1).is_none()) {
        let operation = rows.operations.at(at);
        if let Some(end_ns) = operation.end_ns {
            let own = threads.entry((operation.tgid, operation.tid)).or_default();
            own.operations.push((operation.start_ns, end_ns.max(operation.start_ns)));
        }
    }
    for time in rows.thread_times.iter() {
        threads.entry((time.tgid, time.tid)).or_default().times.push(time.clone());
    }
    threads
}

/// Yields the parts of an interval by stretch of the window.
fn by_stretch((from_ns, to_ns): (u64, u64), start_ns: u64, end_ns: u64) -> impl Iterator<Item = (usize, f64)> {
    let length = (to_ns - from_ns) as f64 / STRETCH_COUNT as f64;
    let ends = [start_ns, end_ns].map(|ns| ns.clamp(from_ns, to_ns) - from_ns).map(|ns| ns as f64);
    let place = |ns: f64| ((ns / length.max(f64::MIN_POSITIVE)) as usize).min(STRETCH_COUNT - 1);
    (place(ends[0])..=place(ends[1])).filter_map(move |at| {
        let part = ends[1].min(length * (at + 1) as f64) - ends[0].max(length * at as f64);
        (part > 0.0).then_some((at, part))
    })
}

impl Division {
    fn add_thread(&mut self, sleeps: &Sleeps, mut seen: Seen) {
        let window = seen.window();
        let outside = seen.times.iter().fold(0_u64, |sum, time| sum.saturating_add(time.ns));
        // Only in a damaged archive is it longer than the window.
        let whole = (window.1 - window.0).max(outside);
        let operations = seen.operations_ns().min(whole - outside);
        self.whole_ns = self.whole_ns.saturating_add(whole);
        self.operations_ns = self.operations_ns.saturating_add(operations);
        self.unaccounted_ns = self.unaccounted_ns.saturating_add(whole - outside - operations);
        by_stretch(window, window.0, window.1).for_each(|(at, part)| self.whole[at] += part);
        for time in &seen.times {
            self.add(sleeps, window, time);
        }
    }

    fn add(&mut self, sleeps: &Sleeps, window: (u64, u64), time: &ThreadTime) {
        let thread = (time.tgid, time.tid);
        let has_no_name = time.reason == Reason::Other && time.wait.is_none();
        let is_placed = time.reason == Reason::Cpu || has_no_name;
        let call = time.call.clone().filter(|_| is_placed);
        let layer = match time.layer {
            _ if !is_placed => None,
            // Both are the call.
            Layer::FileSystem => Some(Layer::Syscall),
            layer => Some(layer),
        };
        let sums = self.leaves.entry((layer, time.reason, time.wait, call, None)).or_default();
        sums.ns = sums.ns.saturating_add(time.ns);
        sums.times = sums.times.saturating_add(time.times);
        sums.threads.insert(thread);
        let of_process = sums.by_process.entry(time.tgid).or_default();
        *of_process = of_process.saturating_add(time.ns);
        sums.longest = sums.longest.max((time.longest_ns, time.span));
        // Where in its group it was is not known.
        let length = time.end_ns.saturating_sub(time.start_ns).max(1) as f64;
        by_stretch(window, time.start_ns, time.end_ns)
            .for_each(|(at, part)| sums.stretches[at] += part * time.ns as f64 / length);
        if time.reason == Reason::Cpu {
            return;
        }
        let mut by = (time.wait_file, time.by_tgid, None);
        if sums.ended_by.len() >= ENDERS_MAX && !sums.ended_by.contains_key(&by) {
            by = (None, None, None);
        }
        let (times, ns, _) = sums.ended_by.entry(by).or_default();
        (*times, *ns) = (times.saturating_add(time.times), ns.saturating_add(time.ns));
        let longest_end_ns = time.longest_start_ns.saturating_add(time.longest_ns);
        for (sleep, ns) in sleeps.within(thread, time.longest_start_ns, longest_end_ns) {
            let slept = sums.sleeps.entry(sleep).or_default();
            *slept = slept.saturating_add(ns);
        }
    }

    fn finish(self, index: &Index, sleeps: &Sleeps, threads: u64) -> Between {
        let draws = Draws::new(STRETCH_COUNT, INTERVALS_SEED);
        let Self { leaves, operations_ns, unaccounted_ns, whole_ns, whole } = self;
        let share_of_whole = |ns: u64| ns as f64 / whole_ns.max(1) as f64;
        let is_noticeable = share_of_whole(whole_ns.saturating_sub(operations_ns)) >= OUTSIDE_SHARE_MIN;
        let leaf = |(key, sums): (Key<'_>, Sums)| {
            let share = draws.as_ref().and_then(|draws| {
                draws.estimate(CONFIDENCE_LEVEL, |t| resample_sum(t, &sums.stretches) / resample_sum(t, &whole))
            });
            let most = sums.by_process.iter().max_by_key(|(_, ns)| **ns).map(|(tgid, _)| *tgid);
            let mut slow_waits = sleeps.longest(sums.sleeps);
            slow_waits.truncate(STACKS_MAX);
            let id = leaf_id(&key);
            let (layer, reason, wait, call, whose) = key;
            let call = call.map(std::borrow::Cow::into_owned);
            let by = longest_first(index, sums.ended_by);
            let said = Said { layer, reason, wait, call: call.as_deref(), whose, by: &by, ns: sums.ns };
            BetweenLeaf {
                id,
                what: leaf::phrase_of(&said),
                layer,
                reason,
                wait,
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
                by,
                longest_ns: sums.longest.0,
                longest_span: sums.longest.1,
                slow_waits,
            }
        };
        let mut leaves: Vec<BetweenLeaf> = leaves.into_iter().filter(|(_, sums)| sums.ns > 0).map(leaf).collect();
        leaves.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.id.cmp(&b.id)));
        if let Some(largest) = leaves.first_mut() {
            largest.listed = is_noticeable;
        }
        let accounted = leaves.iter().fold(operations_ns, |sum, leaf| sum.saturating_add(leaf.ns));
        assert_eq!(accounted.saturating_add(unaccounted_ns), whole_ns, "each moment of a window is in one part");
        Between { whole_ns, threads, operations_ns, leaves, unaccounted_ns }
    }
}
