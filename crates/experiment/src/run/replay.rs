//! Results from before an interruption: a resumed run uses them in place of its processes, in the same order.

use model::table::{MarkRow, Replicate, Sample};
use std::collections::BTreeMap;

/// Results from before an interruption, numbered as in [`Results`].
#[derive(Debug, Clone, Default)]
pub struct PastResults {
    /// The replicates in order.
    pub replicates: Vec<Replicate>,
    pub samples: Vec<Sample>,
    pub marks: Vec<MarkRow>,
    /// The cells that were given up, by number, with the reason.
    pub absent: BTreeMap<u64, String>,
}

/// A replicate with its output.
pub(super) type ReplayedRun = (Replicate, Vec<Sample>, Vec<MarkRow>);

/// Changes the number of a replicate: what was lost from a damaged log is measured again in between.
pub(super) fn with_id((row, samples, marks): ReplayedRun, id: u64) -> ReplayedRun {
    let samples = samples.into_iter().map(|s| Sample { replicate: Some(id), ..s }).collect();
    let marks = marks.into_iter().map(|m| MarkRow { replicate: Some(id), ..m }).collect();
    (Replicate { id, ..row }, samples, marks)
}

/// Results from before an interruption, by block and cell.
#[derive(Default)]
pub(super) struct Replay {
    pub runs: BTreeMap<(u64, u64), ReplayedRun>,
    /// The recorded replicates, by cell.
    pub whys: BTreeMap<u64, ReplayedRun>,
    pub absent: BTreeMap<u64, String>,
    /// How long the replicates took.
    pub took_ns: u64,
}

impl Replay {
    pub(super) fn new(past: PastResults) -> Self {
        let mut by_id: BTreeMap<u64, ReplayedRun> =
            past.replicates.into_iter().map(|r| (r.id, (r, Vec::new(), Vec::new()))).collect();
        let each = by_id.values().map(|(r, ..)| r.end_ns.saturating_sub(r.start_ns));
        let took_ns = each.fold(0_u64, u64::saturating_add);
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

    /// Whether there are results of a later block.
    pub(super) fn has_later_block(&self, block: u64) -> bool {
        self.runs.keys().next_back().is_some_and(|(last, _)| *last > block)
    }
}
