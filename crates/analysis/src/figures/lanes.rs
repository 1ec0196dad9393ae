//! Assigns spans to rows of the timeline.
//!
//! A thread or a disk has as many lanes as its maximum number of concurrent spans. A short-lived thread has no rows of its own if
//! there are many of its kind (a script starts thousands of processes): threads that did not live at the same time share rows,
//! the same in every layer.

use super::end_of;
use crate::rows::Index;
use crate::text::shown;
use model::Layer;
use model::packed::PackedTable;
use model::table::Span;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

/// A thread is short-lived if the recording is at least this many times as long.
const SHORT_LIVED_RATIO_MIN: u64 = 8;
/// Up to this many short-lived threads have rows of their own.
const SHORT_LIVED_OWN_ROWS_MAX: usize = 6;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerLanes {
    pub name: &'static str,
    /// Lanes from top to bottom.
    pub lanes: Vec<Lane>,
}

/// A row of boxes that do not overlap, except in the last lane of a group with too many concurrent spans.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lane {
    /// The thread, the number of threads that share it, or the disk.
    pub name: String,
    /// Lanes of one thread, disk or set of threads share a number.
    pub group: u32,
}

/// What shares lanes; the order is the one on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Group {
    /// A thread, by process and thread.
    Thread(u32, u32),
    /// Threads that lived one after the other.
    ShortLived(u32),
    Disk(u32),
}

/// Short-lived threads, with the set to which each belongs.
#[derive(Debug, Default)]
struct ShortLivedThreads {
    of: HashMap<(u32, u32), u32>,
    /// Threads of each set.
    threads: Vec<usize>,
}

impl ShortLivedThreads {
    fn new(spans: &PackedTable<Span>, order: &[usize]) -> Self {
        let mut lives: HashMap<(u32, u32), (u64, u64)> = HashMap::new();
        let (mut first, mut last) = (u64::MAX, 0);
        for span in order.iter().map(|&at| spans.at(at)) {
            (first, last) = (first.min(span.start_ns), last.max(end_of(&span)));
            if is_disk_layer(span.layer) {
                continue;
            }
            let life = lives.entry((span.tgid, span.tid)).or_insert((span.start_ns, 0));
            *life = (life.0.min(span.start_ns), life.1.max(end_of(&span)));
        }
        let whole = last.saturating_sub(first);
        let mut brief: Vec<_> = lives
            .into_iter()
            .filter(|(_, (start, end))| end.saturating_sub(*start).saturating_mul(SHORT_LIVED_RATIO_MIN) <= whole)
            .collect();
        if brief.len() <= SHORT_LIVED_OWN_ROWS_MAX {
            return Self::default();
        }
        brief.sort_by_key(|&(thread, (start, _))| (start, thread));
        // Take the set that has been free longest, if any: this needs no more sets than there were such threads at once.
        let mut made = Self::default();
        let mut free: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
        for (thread, (start, end)) in brief {
            let set = match free.peek() {
                Some(&Reverse((since, set))) if since <= start => {
                    free.pop();
                    set
                }
                _ => {
                    made.threads.push(0);
                    made.threads.len() as u32 - 1
                }
            };
            made.threads[set as usize] += 1;
            made.of.insert(thread, set);
            free.push(Reverse((end, set)));
        }
        made
    }

    fn group(&self, span: &Span) -> Group {
        if is_disk_layer(span.layer) {
            return Group::Disk(span.disk.unwrap_or(0));
        }
        self.of
            .get(&(span.tgid, span.tid))
            .filter(|&&set| self.threads[set as usize] > 1)
            .map_or(Group::Thread(span.tgid, span.tid), |&set| Group::ShortLived(set))
    }
}

fn is_disk_layer(layer: Layer) -> bool {
    matches!(layer, Layer::Block | Layer::IoScheduler | Layer::Driver)
}

/// Assigns spans, ordered by start time, to lanes: each to the first free lane of its group. Returns the layers and the (layer,
/// lane) of each span.
pub fn assign_lanes(index: &Index, order: &[usize], most: usize) -> (Vec<LayerLanes>, Vec<(u32, u32)>) {
    let spans = &index.rows.spans;
    let brief = ShortLivedThreads::new(spans, order);
    // For each layer and group, when each of its lanes becomes free.
    let mut free: BTreeMap<Layer, BTreeMap<Group, Vec<u64>>> = BTreeMap::new();
    let mut within: Vec<(u32, u32)> = Vec::with_capacity(order.len());
    let mut numbers: HashMap<(Layer, Group), u32> = HashMap::new();
    // The threads of each set with any span in a layer.
    let mut seen: HashMap<(Layer, Group), HashSet<(u32, u32)>> = HashMap::new();
    for &at in order {
        let span = &spans.at(at);
        let group = brief.group(span);
        if matches!(group, Group::ShortLived(_)) {
            seen.entry((span.layer, group)).or_default().insert((span.tgid, span.tid));
        }
        let ends = free.entry(span.layer).or_default().entry(group).or_default();
        let found = ends.iter().position(|&end| end <= span.start_ns);
        let lane = found.unwrap_or_else(|| {
            if ends.len() < most.max(1) {
                ends.push(0);
            }
            ends.len() - 1
        });
        ends[lane] = ends[lane].max(end_of(span));
        let next = numbers.len() as u32;
        within.push((*numbers.entry((span.layer, group)).or_insert(next), lane as u32));
    }
    let mut layers = Vec::new();
    let mut first: HashMap<(Layer, Group), (u32, u32)> = HashMap::new();
    for (layer, groups) in &free {
        let mut lanes = Vec::new();
        for (number, (&group, ends)) in groups.iter().enumerate() {
            first.insert((*layer, group), (layers.len() as u32, lanes.len() as u32));
            let name = match group {
                Group::Disk(disk) => index.disk_name(disk),
                Group::Thread(tgid, tid) => format!("{} {tid}", index.process_name(tgid).unwrap_or("thread")),
                Group::ShortLived(_) => format!("{} short-lived", seen.get(&(*layer, group)).map_or(0, HashSet::len)),
            };
            lanes.extend(ends.iter().map(|_| Lane { name: shown(&name), group: number as u32 }));
        }
        layers.push(LayerLanes { name: layer.name(), lanes });
    }
    let mut first_of = vec![(0, 0); numbers.len()];
    numbers.iter().for_each(|(of, &number)| first_of[number as usize] = first[of]);
    let places = within
        .into_iter()
        .map(|(number, lane)| {
            let (layer, start) = first_of[number as usize];
            (layer, start + lane)
        })
        .collect();
    (layers, places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Rows;
    use crate::small_trace;

    /// The test case, lengthened, with calls of `threads` more threads of one span each, two of which overlap at any time.
    fn with_threads(threads: u32) -> Rows {
        let mut rows = small_trace::rows();
        let first = rows.spans.iter().map(|s| s.start_ns).min().unwrap_or(0);
        let call = rows.spans.iter().find(|s| s.layer == Layer::Syscall).expect("the case has calls");
        for i in 0..threads {
            let start_ns = first + u64::from(i) * 1_000_000;
            rows.spans.push(Span {
                id: 10_000 + u64::from(i),
                start_ns,
                end_ns: Some(start_ns + 1_500_000),
                tgid: 900 + i,
                tid: 900 + i,
                operation: None,
                ..call.clone()
            });
        }
        rows
    }

    fn laid(rows: &Rows) -> (Vec<LayerLanes>, Vec<(u32, u32)>, Vec<usize>) {
        let index = Index::new(rows);
        let mut order: Vec<usize> = (0..rows.spans.len()).collect();
        order.sort_by_key(|&at| rows.spans.start_ns(at));
        let (layers, places) = assign_lanes(&index, &order, 32);
        (layers, places, order)
    }

    #[test]
    fn short_lived_threads_share_as_few_rows_as_lived_at_once() {
        let rows = with_threads(200);
        let (layers, places, order) = laid(&rows);
        let (at, calls) = layers.iter().enumerate().find(|(_, l)| l.name == "Syscall").expect("calls");
        let shared: Vec<_> = calls.lanes.iter().filter(|l| l.name.ends_with("short-lived")).collect();
        let threads: usize = shared.iter().filter_map(|l| l.name.split(' ').next()?.parse::<usize>().ok()).sum();
        // The case's own two threads were short-lived too, at the same time as the first of them.
        assert!((2..=3).contains(&shared.len()), "{shared:?}");
        assert_eq!(threads, 202);
        // No box overlaps another.
        let mut ends: HashMap<u32, u64> = HashMap::new();
        for (&(layer, lane), &span) in places.iter().zip(&order).filter(|((layer, _), _)| *layer == at as u32) {
            let span = &rows.spans.at(span);
            let end = ends.entry(lane).or_default();
            assert!(*end <= span.start_ns, "span {} of layer {layer}", span.id);
            *end = end_of(span);
        }
    }

    #[test]
    fn a_few_short_lived_threads_keep_rows_of_their_own() {
        let (layers, ..) = laid(&with_threads(3));
        assert!(layers.iter().flat_map(|l| &l.lanes).all(|l| !l.name.ends_with("short-lived")), "{layers:?}");
    }
}
