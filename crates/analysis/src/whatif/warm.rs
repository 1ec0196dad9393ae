//! How much less CPU a thread takes that need not sleep: after a sleep it finds its caches cold, on a busy machine several times as slow.
//!
//! The recording shows by how much: within one stretch between two sleeps a call of a kind (its file's kind, the octave of its bytes) is
//! made once cold, and maybe again, warm. The ratio of these medians, over all kinds that were made often both ways, is what is left
//! of the CPU time of executions that slept and, without what is thought away, do not.
//!
//! **Uncertainty.** What a first call does beyond a later one (a page that has to be made writable) counts as cold, and the code
//! between the calls is taken to warm up as they do. Where no kind was made often enough both ways, CPU time stays as it was.

use super::pieces::Piece;
use crate::checkpoints::calls;
use crate::diff::phase::{Kind, Phases};
use crate::explain::median;
use crate::rows::Index;
use model::{Call, Reason};
use std::collections::{BTreeMap, HashSet};

/// Calls of a kind from which on their median counts, cold and warm each.
const ENOUGH: usize = 5;

type Sort = (Call, Kind, u32);

/// What part of its CPU time a warm execution takes of a cold one; `None` where the recording does not show it.
pub fn factor(index: &Index, phases: &Phases, pieces: &[Vec<Piece>]) -> Option<f64> {
    let mut times: BTreeMap<Sort, [Vec<u64>; 2]> = BTreeMap::new();
    // By operation: what was called since it last slept, and until when.
    let mut since: BTreeMap<usize, (u64, HashSet<Sort>)> = BTreeMap::new();
    for (at, operation, call, kind) in calls(index, phases) {
        let span = &index.rows.spans[at];
        let Some(end) = span.end_ns else { continue };
        let slept = |from: u64, to: u64| {
            let first = pieces[operation].partition_point(|piece| piece.start_ns < from);
            pieces[operation][first..]
                .iter()
                .take_while(|piece| piece.start_ns < to)
                .any(|piece| piece.reason != Reason::Cpu)
        };
        let (last, seen) = since.entry(operation).or_default();
        if slept(*last, span.start_ns) {
            seen.clear();
        }
        *last = end;
        if slept(span.start_ns, end) {
            seen.clear();
            continue;
        }
        let sort = (call, kind, span.bytes.max(1).ilog2());
        let warm = usize::from(!seen.insert(sort));
        times.entry(sort).or_default()[warm].push(end.saturating_sub(span.start_ns));
    }
    let (mut cold, mut warm) = (0.0, 0.0);
    for [first, later] in times.values().filter(|[first, later]| first.len().min(later.len()) >= ENOUGH) {
        cold += later.len() as f64 * median(first) as f64;
        warm += later.len() as f64 * median(later) as f64;
    }
    Some(warm / cold).filter(|factor| factor.is_finite()).map(|factor| factor.min(1.0))
}
