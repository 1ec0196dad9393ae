//! How much less CPU time a thread takes that need not sleep: after a sleep it finds its caches cold, and is several times slower on a
//! busy machine.
//!
//! The recording shows by how much: between two sleeps a call of a kind (its file's kind, the octave of its bytes) is made once
//! cold, and possibly again, warm. The ratio of the medians, over all kinds that were made often in both states, is the remaining
//! fraction of the CPU time of executions that slept and, with the removal, no longer do.
//!
//! **Uncertainty.** Extra work of a first call (a page that has to be made writable) counts as cold, and the code between the
//! calls is assumed to warm up like the calls. If no kind was made often enough in both states, CPU time is unchanged.

use super::pieces::Piece;
use crate::checkpoints::calls_in_operations;
use crate::diff::phase::{FileRole, Phases};
use crate::explain::median;
use analysis::rows::Index;
use model::{Call, Reason};
use std::collections::{BTreeMap, HashSet};

/// Minimum number of calls of a kind for its median to count, for cold and warm each.
const CALLS_MIN: usize = 5;

type CallClass = (Call, FileRole, u32);

/// Returns the CPU time of a warm execution as a fraction of that of a cold one; `None` if the recording does not show it.
pub fn factor(index: &Index, phases: &Phases, pieces: &[Vec<Piece>]) -> Option<f64> {
    let mut times: BTreeMap<CallClass, [Vec<u64>; 2]> = BTreeMap::new();
    // By operation: the calls since its last sleep, and the end of the last one.
    let mut since: BTreeMap<usize, (u64, HashSet<CallClass>)> = BTreeMap::new();
    for (at, operation, call, kind) in calls_in_operations(index, phases) {
        let span = &index.rows.spans.at(at);
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
    for [first, later] in times.values().filter(|[first, later]| first.len().min(later.len()) >= CALLS_MIN) {
        cold += later.len() as f64 * median(first) as f64;
        warm += later.len() as f64 * median(later) as f64;
    }
    Some(warm / cold).filter(|factor| factor.is_finite()).map(|factor| factor.min(1.0))
}
