//! What was measured before an interruption: a run that goes on takes it in the place of its processes, in the same order.

use model::table::{MarkRow, Replicate, Sample};
use std::collections::BTreeMap;

/// What was measured before an interruption, numbered as in [`Results`].
#[derive(Debug, Clone, Default)]
pub struct Completed {
    /// The replicates in their order.
    pub replicates: Vec<Replicate>,
    /// Their samples.
    pub samples: Vec<Sample>,
    /// Their marks.
    pub marks: Vec<MarkRow>,
    /// The cells that were given up, by number, with the reason.
    pub absent: BTreeMap<u64, String>,
}

/// A replicate with what it printed.
pub(super) type ReplayedRun = (Replicate, Vec<Sample>, Vec<MarkRow>);

/// The same under another number: what was lost of a damaged log is measured again between what is there.
pub(super) fn renumbered((row, samples, marks): ReplayedRun, id: u64) -> ReplayedRun {
    let samples = samples.into_iter().map(|s| Sample { replicate: Some(id), ..s }).collect();
    let marks = marks.into_iter().map(|m| MarkRow { replicate: Some(id), ..m }).collect();
    (Replicate { id, ..row }, samples, marks)
}

/// What was measured before, by block and cell.
#[derive(Default)]
pub(super) struct Replay {
    pub runs: BTreeMap<(u64, u64), ReplayedRun>,
    /// Those that were recorded, by cell.
    pub whys: BTreeMap<u64, ReplayedRun>,
    pub absent: BTreeMap<u64, String>,
    /// How long it took.
    pub took_ns: u64,
}

impl Replay {
    pub(super) fn new(past: Completed) -> Self {
        let mut by_id: BTreeMap<u64, ReplayedRun> =
            past.replicates.into_iter().map(|r| (r.id, (r, Vec::new(), Vec::new()))).collect();
        let took_ns = by_id.values().map(|(r, ..)| r.end_ns.saturating_sub(r.start_ns)).sum();
        for sample in past.samples {
            if let Some((_, samples, _)) = sample.replicate.and_then(|id| by_id.get_mut(&id)) {
                samples.push(sample);
            }
        }
        for mark in past.marks {
            if let Some((.., marks)) = mark.replicate.and_then(|id| by_id.get_mut(&id)) {
                marks.push(mark);
            }
        }
        let (whys, runs): (Vec<ReplayedRun>, Vec<ReplayedRun>) =
            by_id.into_values().partition(|run| run.0.why.is_some());
        let runs = runs.into_iter().map(|run| ((run.0.block, run.0.cell), run)).collect();
        let whys = whys.into_iter().map(|run| (run.0.cell, run)).collect();
        Self { runs, whys, absent: past.absent, took_ns }
    }

    /// Whether there is something of a block behind this one.
    pub(super) fn goes_beyond(&self, block: u64) -> bool {
        self.runs.keys().next_back().is_some_and(|(last, _)| *last > block)
    }
}
