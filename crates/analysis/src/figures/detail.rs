//! Which spans a page holds one by one, where it cannot hold all: those of the time that was asked for, then those of the slowest
//! operations, each with all that belongs to it. The rest is in the levels of detail.

use super::end_of;
use crate::rows::{Index, Rows};
use model::{Layer, Relation};
use std::cmp::Reverse;
use std::collections::HashSet;

/// Of operations that do not fit so many are passed over: each costs a walk.
const PASSED_OVER: usize = 200;

/// What is chosen.
#[derive(Debug, Default)]
pub struct Detail {
    /// Whether each span of the rows is held.
    pub spans: Vec<bool>,
    /// Whether each operation has all of its spans.
    pub operations: Vec<bool>,
}

/// Rows of one table by a key that is a position of another.
struct RowsByKey {
    first: Vec<u32>,
    rows: Vec<u32>,
}

impl RowsByKey {
    fn new(keys: usize, pairs: impl Iterator<Item = (usize, u32)> + Clone) -> Self {
        let mut first = vec![0_u32; keys + 1];
        pairs.clone().for_each(|(key, _)| first[key + 1] += 1);
        (0..keys).for_each(|key| first[key + 1] += first[key]);
        let mut next = first.clone();
        let mut rows = vec![0; first[keys] as usize];
        for (key, row) in pairs {
            rows[next[key] as usize] = row;
            next[key] += 1;
        }
        Self { first, rows }
    }

    fn of(&self, key: usize) -> &[u32] {
        &self.rows[self.first[key] as usize..self.first[key + 1] as usize]
    }
}

/// All spans of the window, if there is one, which is from one CLOCK_BOOTTIME to another; then whole operations, the slowest first
/// (one whose end was not seen is as slow as the recording was long after its begin), as long as there are not more than `limit` spans;
/// then whatever begins first.
pub fn chosen(index: &Index, limit: usize, window: Option<(u64, u64)>) -> Detail {
    let rows = index.rows;
    let links = || rows.links.iter().filter_map(|l| Some((index.span(l.parent)?, index.span(l.child)?, l.relation)));
    let down = RowsByKey::new(rows.spans.len(), links().map(|(parent, child, _)| (parent, child as u32)));
    // What carries a command's data stands above it; the calls and threads above that are others' too.
    let carried = |relation| matches!(relation, Relation::Carries | Relation::Merges);
    let up = links().filter(|&(_, _, relation)| carried(relation));
    let up = RowsByKey::new(rows.spans.len(), up.map(|(parent, child, _)| (child, parent as u32)));
    let made = rows.spans.iter().enumerate();
    let made = made.filter_map(|(at, span)| Some((index.operation(span.operation?)?, at as u32)));
    let made = RowsByKey::new(rows.operations.len(), made);
    let causes = rows.causes.iter();
    let charged = causes.filter_map(|c| Some((index.operation(c.operation?)?, index.span(c.command)? as u32)));
    let charged = RowsByKey::new(rows.operations.len(), charged);

    let mut detail = Detail { spans: vec![false; rows.spans.len()], operations: vec![false; rows.operations.len()] };
    let mut held = 0;
    let inside = |start: u64, end: u64| window.is_some_and(|(from, to)| start <= to && end >= from);
    let by_time = by_time(rows);
    for &at in &by_time {
        let span = &rows.spans[at as usize];
        if held < limit && inside(span.start_ns, end_of(span)) {
            detail.spans[at as usize] = true;
            held += 1;
        }
    }
    let mut passed_over = 0;
    for at in slowest_first(rows, inside) {
        let begin = index.span(rows.operations[at].span).map(|span| span as u32);
        let mut waiting: Vec<(u32, bool)> =
            begin.into_iter().chain(made.of(at).iter().copied()).map(|span| (span, false)).collect();
        waiting.extend(charged.of(at).iter().map(|&span| (span, true)));
        let mut seen: HashSet<u32> = HashSet::new();
        let mut more = 0;
        while let Some((span, upward)) = waiting.pop() {
            if !seen.insert(span) {
                continue;
            }
            more += usize::from(!detail.spans[span as usize]);
            if held + more > limit {
                break;
            }
            waiting.extend(down.of(span as usize).iter().map(|&child| (child, false)));
            if upward || matches!(rows.spans[span as usize].layer, Layer::IoScheduler | Layer::Driver) {
                waiting.extend(up.of(span as usize).iter().map(|&parent| (parent, true)));
            }
        }
        if held + more > limit {
            passed_over += 1;
            if passed_over > PASSED_OVER {
                break;
            }
            continue;
        }
        seen.into_iter().for_each(|span| detail.spans[span as usize] = true);
        held += more;
        detail.operations[at] = true;
    }
    for &at in &by_time {
        if held < limit && !detail.spans[at as usize] {
            detail.spans[at as usize] = true;
            held += 1;
        }
    }
    detail
}

fn by_time(rows: &Rows) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rows.spans.len() as u32).collect();
    order.sort_by_key(|&at| rows.spans[at as usize].start_ns);
    order
}

fn slowest_first(rows: &Rows, inside: impl Fn(u64, u64) -> bool) -> Vec<usize> {
    let recorded = rows.spans.iter().map(end_of).max().unwrap_or(0);
    let mut order: Vec<usize> = (0..rows.operations.len()).collect();
    order.sort_by_key(|&at| {
        let operation = &rows.operations[at];
        let end = operation.end_ns.unwrap_or(recorded);
        (!inside(operation.start_ns, end), Reverse(end.saturating_sub(operation.start_ns)), operation.start_ns)
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    fn held(detail: &Detail) -> (usize, Vec<usize>) {
        let operations = (0..detail.operations.len()).filter(|&at| detail.operations[at]).collect();
        (detail.spans.iter().filter(|held| **held).count(), operations)
    }

    #[test]
    fn operations_are_held_whole_and_slowest_first() {
        let rows = case::rows();
        let index = Index::new(&rows);
        let slowest = slowest_first(&rows, |_, _| false)[0];
        let mut since = None;
        for limit in 0..=rows.spans.len() {
            let detail = chosen(&index, limit, None);
            let (spans, operations) = held(&detail);
            assert_eq!(spans, limit, "there is room for so many");
            for &at in &operations {
                let id = rows.operations[at].id;
                for (i, span) in rows.spans.iter().enumerate().filter(|(_, s)| s.operation == Some(id)) {
                    assert!(detail.spans[i], "span {} of operation {id} is missing at {limit}", span.id);
                }
                for cause in rows.causes.iter().filter(|c| c.operation == Some(id)) {
                    assert!(index.span(cause.command).is_none_or(|i| detail.spans[i]), "a command of {id} at {limit}");
                }
            }
            since = since.or(detail.operations[slowest].then_some(limit));
            assert!(since.is_none() || detail.operations[slowest], "the slowest is held wherever it fits: {limit}");
            assert!(limit < rows.spans.len() || operations.len() == rows.operations.len());
        }
        assert!(since.is_some_and(|limit| limit < rows.spans.len() / 2), "{since:?}");
    }

    #[test]
    fn window_comes_before_slowest() {
        let rows = case::rows();
        let index = Index::new(&rows);
        let last = rows.operations.iter().enumerate().max_by_key(|(_, o)| o.start_ns).map(|(at, _)| at).unwrap();
        let start = rows.operations[last].start_ns;
        let all = rows.spans.iter().filter(|s| s.start_ns <= start && end_of(s) >= start).count();
        let detail = chosen(&index, all, Some((start, start)));
        for (span, held) in rows.spans.iter().zip(&detail.spans) {
            assert_eq!(*held, span.start_ns <= start && end_of(span) >= start, "span {}", span.id);
        }
    }
}
