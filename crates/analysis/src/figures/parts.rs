//! Cuts a recording that is too large for one table into parts by time, each with everything to which its operations and spans
//! are linked, so that a page loads only the viewed part, which has the whole chain of each of its operations.
//!
//! A part owns the spans that begin in its time, and repeats those of others that extend into it or that belong to chains of its
//! own. An operation with more spans than a part may repeat gets a part of its own. The chains are those that `web/src/chain.js`
//! walks.

use super::end_of;
use crate::by_key::RowsByKey;
use crate::rows::{Index, Rows};
use model::Layer;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::Range;

/// A part may repeat this many times the number of spans that it owns.
const REPEATED_SPANS_RATIO_MAX: usize = 4;
/// A walk that exceeds its limit has a cost: after this many in one part, the limit of the others is lower.
const FAILED_WALKS_MAX: usize = 20;
/// The lower limit.
const REDUCED_WALK_SPANS_MAX: usize = 5_000;

/// Links between operations and spans, by positions in the rows.
struct ChainLinks {
    down: RowsByKey,
    up: RowsByKey,
    /// Spans of an operation made by its thread.
    made: RowsByKey,
    /// Commands charged to an operation.
    charged: RowsByKey,
    /// Operations that ran inside an operation.
    inner: RowsByKey,
}

impl ChainLinks {
    fn new(index: &Index) -> Self {
        let rows = index.rows;
        let links = || rows.links.iter().filter_map(|l| Some((index.span(l.parent)?, index.span(l.child)?)));
        let made = rows.spans.iter().enumerate();
        let made = made.filter_map(|(at, span)| Some((index.operation(span.operation?)?, at as u32)));
        let causes = rows.causes.iter();
        let charged = causes.filter_map(|c| Some((index.operation(c.operation?)?, index.span(c.command)? as u32)));
        let inner = rows.operations.iter().enumerate();
        let inner = inner.filter_map(|(at, operation)| Some((index.operation(operation.parent?)?, at as u32)));
        Self {
            down: RowsByKey::new(rows.spans.len(), links().map(|(parent, child)| (parent, child as u32))),
            up: RowsByKey::new(rows.spans.len(), links().map(|(parent, child)| (child, parent as u32))),
            made: RowsByKey::new(rows.operations.len(), made),
            charged: RowsByKey::new(rows.operations.len(), charged),
            inner: RowsByKey::new(rows.operations.len(), inner),
        }
    }

    /// Adds to `found` everything in an operation's chain that is not in `held`; returns false if that is more than `room`.
    fn add_chain(&self, index: &Index, operation: usize, held: &Marks, room: usize, found: &mut HashSet<u32>) -> bool {
        let rows = index.rows;
        let own = |at: usize| index.span(rows.operations.span(at)).map(|span| span as u32);
        let mut within: Vec<u32> = vec![operation as u32];
        let mut next = 0;
        let mut waiting = Vec::new();
        let mut seen = HashSet::from([operation as u32]);
        while let Some(&at) = within.get(next) {
            next += 1;
            within.extend(self.inner.rows_of(at as usize).iter().filter(|&&inner| seen.insert(inner)));
            waiting.extend(own(at as usize));
            waiting.extend(self.made.rows_of(at as usize).iter().chain(self.charged.rows_of(at as usize)));
            if waiting.len() > room.saturating_mul(8) {
                return false;
            }
        }
        self.walk(rows, waiting, true, held, room, found)
            && self.walk(rows, own(operation).into_iter().collect(), false, held, room, found)
    }

    /// Adds what is reachable from spans, down to the device or up to the request's origin.
    fn walk(
        &self,
        rows: &Rows,
        from: Vec<u32>,
        downward: bool,
        held: &Marks,
        room: usize,
        found: &mut HashSet<u32>,
    ) -> bool {
        let mut seen: HashSet<u32> = from.iter().copied().collect();
        let mut waiting: Vec<(u32, bool)> = from.into_iter().map(|span| (span, true)).collect();
        while let Some((span, begun_with)) = waiting.pop() {
            if !held.has(span) {
                found.insert(span);
            }
            if found.len() > room {
                return false;
            }
            // Do not continue upward from an application's span, unless the walk began there.
            let asks = matches!(rows.spans.layer(span as usize), Layer::App | Layer::Database);
            if !downward && asks && !begun_with {
                continue;
            }
            let next = if downward { &self.down } else { &self.up };
            waiting.extend(
                next.rows_of(span as usize).iter().filter(|&&other| seen.insert(other)).map(|&other| (other, false)),
            );
        }
        true
    }
}

/// Marks the spans that a part holds; allocated once, and cleared for the next part.
struct Marks {
    marked: Vec<bool>,
    list: Vec<u32>,
}

impl Marks {
    fn has(&self, span: u32) -> bool {
        self.marked[span as usize]
    }

    fn add(&mut self, span: u32) {
        if !std::mem::replace(&mut self.marked[span as usize], true) {
            self.list.push(span);
        }
    }

    fn take(&mut self) -> Vec<u32> {
        self.list.iter().for_each(|&span| self.marked[span as usize] = false);
        std::mem::take(&mut self.list)
    }
}

/// A part of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// The spans that it owns, as positions in order of time; none in a part for one operation.
    pub own: Range<usize>,
    /// All spans that it holds, likewise, ascending.
    pub spans: Vec<u32>,
    /// The operations whose chains are complete in it, as positions in the rows.
    pub operations: Vec<usize>,
}

/// Limits for cutting a recording.
#[derive(Debug)]
pub struct Limits {
    /// Spans that a part owns.
    pub part: usize,
    /// Maximum number of spans of a part for one operation.
    pub single: usize,
    /// Spans of all parts.
    pub all: usize,
}

/// Cuts a recording whose spans begin in this order. If not all fit, parts of `window`, which is from one CLOCK_BOOTTIME to
/// another, have priority, followed by those of the slowest operations.
pub fn cut(index: &Index, order: &[usize], limits: &Limits, window: Option<(u64, u64)>) -> Vec<Cut> {
    let rows = index.rows;
    assert_eq!(order.len(), rows.spans.len(), "an order has each span once");
    let belongs = ChainLinks::new(index);
    let part = limits.part.max(1);
    let mut position = vec![0_u32; order.len()];
    order.iter().enumerate().for_each(|(i, &at)| position[at] = i as u32);
    let count = order.len().div_ceil(part);
    let begin = |number: usize| rows.spans.start_ns(order[number * part]);
    let mut operations: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (at, operation) in rows.operations.iter().enumerate() {
        let number = match index.span(operation.span) {
            Some(span) => position[span] as usize / part,
            None => (1..count).take_while(|&n| begin(n) <= operation.start_ns).count(),
        };
        if let Some(of_part) = operations.get_mut(number) {
            of_part.push(at);
        }
    }
    let wanted = by_priority(rows, &operations, window, |number| {
        (begin(number), if number + 1 < count { begin(number + 1) } else { u64::MAX })
    });
    let mut reaching: Vec<Vec<u32>> = vec![Vec::new(); count];
    let mut open: Vec<u32> = Vec::new();
    for (number, reaching) in reaching.iter_mut().enumerate() {
        let from = begin(number);
        open.retain(|&at| end_of(&rows.spans.at(at as usize)) >= from);
        reaching.clone_from(&open);
        open.extend(order[number * part..order.len().min((number + 1) * part)].iter().map(|&at| at as u32));
    }

    let mut marks = Marks { marked: vec![false; rows.spans.len()], list: Vec::new() };
    let mut cuts: Vec<Cut> = Vec::new();
    let mut alone: Vec<usize> = Vec::new();
    let mut held = 0;
    let mut found = HashSet::new();
    for number in wanted {
        let own = number * part..order.len().min((number + 1) * part);
        if held + own.len() > limits.all {
            break;
        }
        let most = own.len() * (1 + REPEATED_SPANS_RATIO_MAX);
        order[own.clone()].iter().for_each(|&at| marks.add(at as u32));
        reaching[number].iter().take(most - own.len()).for_each(|&at| marks.add(at));
        let mut whole = Vec::new();
        let mut passed_over = 0;
        for &at in &operations[number] {
            found.clear();
            let room = most - marks.list.len().min(most);
            let room = if passed_over > FAILED_WALKS_MAX { room.min(REDUCED_WALK_SPANS_MAX) } else { room };
            if belongs.add_chain(index, at, &marks, room, &mut found) {
                found.iter().for_each(|&span| marks.add(span));
                whole.push(at);
            } else {
                passed_over += 1;
                alone.push(at);
            }
        }
        // Add the other chains that start here, as far as there is room.
        for downward in [true, false] {
            found.clear();
            let from = order[own.clone()].iter().map(|&at| at as u32).collect();
            belongs.walk(rows, from, downward, &marks, most - marks.list.len().min(most), &mut found);
            found.iter().for_each(|&span| marks.add(span));
        }
        held += marks.list.len();
        cuts.push(make_cut(own, marks.take(), whole, &position));
    }
    cuts.sort_by_key(|cut| cut.own.start);
    assert!(cuts.windows(2).all(|pair| pair[0].own.end <= pair[1].own.start), "a span has two owners");
    alone.sort_by_key(|&at| Reverse(length_ns(rows, at)));
    let mut passed_over = 0;
    for at in alone {
        found.clear();
        let room = limits.single.min(limits.all.saturating_sub(held));
        if belongs.add_chain(index, at, &marks, room, &mut found) {
            held += found.len();
            cuts.push(make_cut(0..0, found.iter().copied().collect(), vec![at], &position));
        } else {
            passed_over += 1;
            if passed_over > FAILED_WALKS_MAX {
                break;
            }
        }
    }
    cuts
}

fn make_cut(own: Range<usize>, spans: Vec<u32>, operations: Vec<usize>, position: &[u32]) -> Cut {
    let mut spans: Vec<u32> = spans.into_iter().map(|at| position[at as usize]).collect();
    spans.sort_unstable();
    debug_assert!(
        own.clone().all(|position| spans.binary_search(&(position as u32)).is_ok()),
        "an owned span is not held"
    );
    debug_assert!(spans.is_sorted_by(|a, b| a < b), "a span is held twice");
    Cut { own, spans, operations }
}

/// Returns how long an operation took; one without an end is longer than any other.
fn length_ns(rows: &Rows, at: usize) -> u64 {
    rows.operations.end_ns(at).unwrap_or(u64::MAX).saturating_sub(rows.operations.start_ns(at))
}

/// Returns the parts by time, or, if not all are kept, those with priority first.
fn by_priority(
    rows: &Rows,
    operations: &[Vec<usize>],
    window: Option<(u64, u64)>,
    time: impl Fn(usize) -> (u64, u64),
) -> Vec<usize> {
    let slowest = |number: usize| operations[number].iter().map(|&at| length_ns(rows, at)).max().unwrap_or(0);
    let inside = |number: usize| {
        let (begin, end) = time(number);
        window.is_some_and(|(from, to)| begin <= to && end >= from)
    };
    let mut order: Vec<usize> = (0..operations.len()).collect();
    order.sort_by_key(|&number| (!inside(number), Reverse(slowest(number))));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_trace;

    fn in_order(rows: &Rows) -> Vec<usize> {
        let mut order: Vec<usize> = (0..rows.spans.len()).collect();
        order.sort_by_key(|&at| (rows.spans.start_ns(at), rows.spans.layer(at), rows.spans.id(at)));
        order
    }

    fn all(part: usize) -> Limits {
        Limits { part, single: usize::MAX, all: usize::MAX }
    }

    #[test]
    fn each_span_is_owned_once_and_each_chain_is_whole() {
        let rows = small_trace::rows();
        let (index, order) = (Index::new(&rows), in_order(&rows));
        for part in 1..=rows.spans.len() + 1 {
            let cuts = cut(&index, &order, &all(part), None);
            let owned: Vec<usize> = cuts.iter().flat_map(|cut| cut.own.clone()).collect();
            assert_eq!(owned, (0..rows.spans.len()).collect::<Vec<_>>(), "parts of {part}");
            let mut whole: Vec<usize> = cuts.iter().flat_map(|cut| cut.operations.clone()).collect();
            whole.sort_unstable();
            assert_eq!(whole, (0..rows.operations.len()).collect::<Vec<_>>(), "parts of {part}");
            for one in &cuts {
                let has = |at: usize| one.spans.iter().any(|&position| order[position as usize] == at);
                for &operation in &one.operations {
                    let id = rows.operations.id(operation);
                    for (at, span) in rows.spans.iter().enumerate().filter(|(_, span)| span.operation == Some(id)) {
                        assert!(has(at), "span {} of operation {id} in parts of {part}", span.id);
                    }
                    for cause in rows.causes.iter().filter(|cause| cause.operation == Some(id)) {
                        assert!(index.span(cause.command).is_none_or(has), "a command of {id} in parts of {part}");
                    }
                }
            }
        }
    }

    /// In a damaged archive; those without an end are the longest.
    #[test]
    fn operations_that_end_before_they_begin_are_cut() {
        let mut rows = small_trace::rows();
        rows.operations.edit().iter_mut().for_each(|o| (o.start_ns, o.end_ns) = (u64::MAX, Some(0)));
        let (index, order) = (Index::new(&rows), in_order(&rows));
        for limits in [all(1), Limits { single: 1, ..all(1) }, Limits { all: 2, ..all(1) }] {
            assert!(!cut(&index, &order, &limits, Some((u64::MAX, 0))).is_empty(), "{limits:?}");
        }
    }

    #[test]
    fn the_window_and_the_slowest_operations_are_kept_first() {
        let rows = small_trace::rows();
        let (index, order) = (Index::new(&rows), in_order(&rows));
        let limits = Limits { all: rows.spans.len() / 2, ..all(4) };
        let slowest = |rows: &Rows| {
            let by_length = |&at: &usize| rows.operations.end_ns(at).unwrap_or(u64::MAX) - rows.operations.start_ns(at);
            (0..rows.operations.len()).max_by_key(by_length)
        };
        let kept = cut(&index, &order, &limits, None);
        assert!(!kept.is_empty() && kept.iter().map(|cut| cut.own.len()).sum::<usize>() < order.len());
        let own = index.span(rows.operations.span(slowest(&rows).unwrap())).unwrap();
        let owned = |cuts: &[Cut], span: usize| cuts.iter().any(|cut| cut.own.clone().any(|i| order[i] == span));
        assert!(owned(&kept, own));
        let last = order[order.len() - 1];
        let start = rows.spans.start_ns(last);
        assert!(owned(&cut(&index, &order, &limits, Some((start, start))), last));
    }
}
