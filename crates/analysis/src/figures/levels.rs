//! Levels of detail: for each row of the timeline, how busy it was in equal parts of the run.
//!
//! A window in which a row has more spans than pixels is drawn from them, at a cost that does not grow with the recording; and
//! if a page has no room for all spans, they still show the whole run.

use super::lanes::LayerLanes;
use super::{columns, end_of};
use model::packed::PackedTable;
use model::table::Span;
use serde::Serialize;

/// Parts of the run in the coarse level: about two for each pixel of the whole run.
const COARSE_PART_COUNT: u64 = 2048;
/// Parts in the fine level, for pages that do not hold all spans.
const FINE_PART_COUNT: u64 = 16_384;

columns! {
    /// Activity of a row in parts of the run; only parts with activity, by row and time.
    CellColumns {
        /// Position among the rows of all layers, from the top.
        row: u32,
        /// Index of the part.
        at: u32,
        /// Time in the part that spans cover, ns. Exceeds its length where spans overlap.
        busy: u64,
        /// Spans that begin in it.
        begun: u32,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Level {
    /// Length of a part, ns.
    pub part_ns: u64,
    pub cells: CellColumns,
}

/// Computes the levels of a run of `length_ns` from `origin_ns`; the fine one only if `fine`. `places` are the layer and lane of
/// each span of `order`.
pub fn levels(
    spans: &PackedTable<Span>,
    order: &[usize],
    places: &[(u32, u32)],
    layers: &[LayerLanes],
    (origin_ns, length_ns): (u64, u64),
    fine: bool,
) -> Vec<Level> {
    let mut first = vec![0];
    for layer in layers {
        first.push(first[first.len() - 1] + layer.lanes.len());
    }
    let mut of_row: Vec<Vec<u32>> = vec![Vec::new(); first[layers.len()]];
    for (&at, &(layer, lane)) in order.iter().zip(places) {
        of_row[first[layer as usize] + lane as usize].push(at as u32);
    }
    let parts = [Some(COARSE_PART_COUNT), fine.then_some(FINE_PART_COUNT)];
    parts
        .into_iter()
        .flatten()
        .map(|parts| {
            let part_ns = (length_ns / parts + 1).max(1);
            let mut cells = CellColumns::default();
            let mut sums: Vec<(u64, u32)> = vec![(0, 0); parts as usize];
            for (row, own) in of_row.iter().enumerate() {
                sums.fill((0, 0));
                for span in own.iter().map(|&at| spans.at(at as usize)) {
                    let (start, end) = (span.start_ns - origin_ns, end_of(&span).saturating_sub(origin_ns));
                    let mut at = (start / part_ns).min(parts - 1);
                    sums[at as usize].1 += 1;
                    while at < parts && at * part_ns < end {
                        let within = end.min((at + 1) * part_ns).saturating_sub(start.max(at * part_ns));
                        sums[at as usize].0 += within;
                        at += 1;
                    }
                }
                for (at, &(busy, begun)) in sums.iter().enumerate().filter(|(_, sums)| **sums != (0, 0)) {
                    cells.push(row as u32, at as u32, busy, begun);
                }
            }
            Level { part_ns, cells }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, timeline};
    use crate::small_trace;

    #[test]
    fn cells_add_up_to_spans_and_their_time() {
        let rows = small_trace::rows();
        for spans in [usize::MAX, 5] {
            let t = timeline(&rows, &Limits { spans, ..Limits::default() });
            assert_eq!(t.levels.len(), if spans == 5 { 2 } else { 1 }, "the fine level is for what is left out");
            for level in &t.levels {
                let begun: u32 = level.cells.begun.iter().sum();
                assert_eq!(begun as usize, rows.spans.len(), "all spans, also those that are left out");
                let busy: u64 = level.cells.busy.iter().sum();
                let time: u64 = rows.spans.iter().map(|s| s.end_ns.unwrap_or(s.start_ns) - s.start_ns).sum();
                assert_eq!(busy, time);
            }
        }
    }
}
