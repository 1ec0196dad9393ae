//! The measurements of a design, and the resulting ratios.

use crate::Design;
use model::table::{DesignCell, MarkRow, Replicate, Sample};
use serde::Serialize;
use serde_json::{Value, json};
use stats::ratio::SelfCheck;
use stats::{Estimate, quantile, ratio};
use std::collections::{BTreeMap, BTreeSet};

/// The level of every interval.
const CONFIDENCE_LEVEL: f64 = 0.95;

/// A cell that has no (further) results here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsentCell {
    pub cell: String,
    pub why: String,
}

#[derive(Debug, Clone)]
pub struct Results {
    /// The design as it was run.
    pub design: Design,
    /// Its cells; `id` is the index in the design.
    pub cells: Vec<DesignCell>,
    /// The replicates in the order in which they ran.
    pub replicates: Vec<Replicate>,
    pub samples: Vec<Sample>,
    pub marks: Vec<MarkRow>,
    /// The cells that could not run, with the reasons.
    pub absent: Vec<AbsentCell>,
    /// Why no further block was run; `None` if it was interrupted.
    pub stopped: Option<StopReason>,
}

/// Why no further block was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// The requested number is complete.
    Blocks,
    /// Every interval is narrow enough.
    Precision,
    /// The time is spent.
    Budget,
    /// No cell can run here.
    #[serde(rename = "nothing to run")]
    Nothing,
}

impl StopReason {
    /// The name in the archive.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Precision => "precision",
            Self::Budget => "budget",
            Self::Nothing => "nothing to run",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Blocks, Self::Precision, Self::Budget, Self::Nothing].into_iter().find(|s| s.name() == name)
    }
}

/// A cell compared with the baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    pub cell: String,
    /// Median of the metric over its replicates; `None` if it has none.
    pub median: Option<f64>,
    /// Replicates of measured blocks with a result.
    pub replicates: usize,
    /// Replicates of measured blocks that failed.
    pub failed: usize,
    /// Blocks in which both it and the baseline have a result, and neither was excluded.
    pub pairs: usize,
    /// Blocks in which one of the two was disturbed while it ran.
    pub disturbed: usize,
    /// Whether these were too many to be excluded: then they are included in the ratio, and nothing is concluded from it.
    pub too_disturbed: bool,
    /// Its metric divided by the baseline's, pair by pair; `None` for the baseline itself and for fewer than six pairs.
    pub ratio: Option<Estimate>,
    /// The median of those quotients, however few they are; `None` for the baseline itself.
    pub median_ratio: Option<f64>,
    /// For a cell that repeats the baseline under another name: the result for the machine.
    pub self_check: Option<SelfCheck>,
    /// Why it has no, or no further, results.
    pub absent: Option<String>,
}

impl Results {
    pub(crate) fn new(design: &Design) -> Self {
        Self {
            design: design.clone(),
            cells: Vec::new(),
            replicates: Vec::new(),
            samples: Vec::new(),
            marks: Vec::new(),
            absent: Vec::new(),
            stopped: None,
        }
    }

    /// Whether it ran to its end.
    pub fn complete(&self) -> bool {
        self.stopped.is_some()
    }

    /// Returns why its baseline could not run, or not to the end.
    pub fn missing_baseline(&self) -> Option<&AbsentCell> {
        self.absent.iter().find(|a| Some(&a.cell) == self.design.baseline.as_ref())
    }

    /// Returns the number of missing processes: in a design that ended, each cell that was not given up has run in every block,
    /// and a cell that was given up in every one until then.
    pub fn missing_count(&self) -> usize {
        let own = |cell: usize| -> BTreeSet<u64> {
            self.replicates.iter().filter(|r| r.cell == cell as u64 && r.why.is_none()).map(|r| r.block).collect()
        };
        let blocks: Vec<BTreeSet<u64>> = (0..self.design.cells.len()).map(own).collect();
        let end = |of: &BTreeSet<u64>| of.last().map_or(0, |last| last.saturating_add(1));
        let all = blocks.iter().map(end).max().unwrap_or(0);
        let requested = self.design.warmup.saturating_add(self.design.blocks);
        let least = if self.stopped == Some(StopReason::Blocks) { all.max(requested) } else { all };
        let lacks = |(of, cell): (&BTreeSet<u64>, &crate::Cell)| {
            let until = if self.is_absent(&cell.name) { end(of) } else { least };
            usize::try_from(until).unwrap_or(usize::MAX).saturating_sub(of.len())
        };
        blocks.iter().zip(&self.design.cells).map(lacks).sum()
    }

    pub(crate) fn is_absent(&self, cell: &str) -> bool {
        self.absent.iter().any(|a| a.cell == cell)
    }

    /// Returns the metric of a cell by block, for the valid replicates: no warm-up, no failure.
    pub fn values(&self, cell: u64) -> BTreeMap<u64, f64> {
        let counts = |r: &&Replicate| r.cell == cell && !r.warmup && r.failure.is_none();
        let value = |r: &Replicate| {
            let of_it = |s: &&Sample| s.replicate == Some(r.id) && s.metric == self.design.metric;
            let values: Vec<f64> = self.samples.iter().filter(of_it).map(|s| s.value).collect();
            Some((r.block, quantile::of_unsorted(&values, 0.5)?))
        };
        self.replicates.iter().filter(counts).filter_map(value).collect()
    }

    /// Returns the unit of the metric, as printed by the replicates.
    pub fn unit(&self) -> &str {
        self.samples.iter().find(|s| s.metric == self.design.metric).map_or("", |s| &s.unit)
    }

    /// Compares every cell with the baseline, in the order of the design.
    pub fn comparisons(&self) -> Vec<Comparison> {
        let baseline =
            self.design.cells.iter().position(|c| Some(&c.name) == self.design.baseline.as_ref()).unwrap_or_default();
        let base = self.values(baseline as u64);
        let of = |at: usize| -> BTreeSet<u64> {
            let own = self.replicates.iter().filter(|r| r.cell == at as u64 && crate::disturbed::is_disturbed(r));
            own.map(|r| r.block).collect()
        };
        let disturbed: Vec<BTreeSet<u64>> = (0..self.design.cells.len()).map(of).collect();
        let compare = |(at, cell): (usize, &crate::Cell)| {
            let values = self.values(at as u64);
            let disturbed_blocks = &disturbed[at] | &disturbed[baseline];
            let all: Vec<(u64, (f64, f64))> =
                values.iter().filter_map(|(block, v)| Some((*block, (*v, *base.get(block)?)))).collect();
            let disturbed_pairs = all
                .iter()
                .filter(|(block, _)| disturbed_blocks.contains(block))
                .map(|(block, _)| *block)
                .collect::<BTreeSet<_>>();
            let too_disturbed = crate::disturbed::too_many(disturbed_pairs.len(), all.len());
            let counts = |(block, _): &&(u64, (f64, f64))| too_disturbed || !disturbed_pairs.contains(block);
            let pairs: Vec<(f64, f64)> = all.iter().filter(counts).map(|(_, pair)| *pair).collect();
            // Each cell has its own seed: equal arms must not get equal resamples by construction.
            let ratio = (at != baseline)
                .then(|| ratio::paired_ratio(&pairs, CONFIDENCE_LEVEL, self.design.seed.wrapping_add(at as u64)))
                .flatten();
            let is_self = cell.same_as.is_some() && cell.same_as == self.design.baseline;
            let failed =
                self.replicates.iter().filter(|r| r.cell == at as u64 && !r.warmup && r.failure.is_some()).count();
            Comparison {
                cell: cell.name.clone(),
                median: quantile::of_unsorted(&values.values().copied().collect::<Vec<_>>(), 0.5),
                replicates: values.len(),
                pairs: pairs.len(),
                disturbed: if at == baseline { disturbed[at].len() } else { disturbed_pairs.len() },
                too_disturbed: at != baseline && too_disturbed,
                median_ratio: quantile::of_unsorted(&pairs.iter().map(|(a, b)| a / b).collect::<Vec<_>>(), 0.5)
                    .filter(|middle| at != baseline && middle.is_finite()),
                failed,
                self_check: ratio.as_ref().filter(|_| is_self).map(ratio::self_check),
                ratio,
                absent: self.absent.iter().find(|a| a.cell == cell.name).map(|a| a.why.clone()),
            }
        };
        self.design.cells.iter().enumerate().map(compare).collect()
    }
}

/// Formats a comparison as JSON: docs/reference/json.md.
pub fn json(results: &Results) -> Value {
    let cells: Vec<Value> = results
        .comparisons()
        .iter()
        .map(|c| {
            json!({
                "cell": c.cell, "median": c.median, "unit": results.unit(), "processes": c.replicates, "failed": c.failed,
                "ratio": c.median_ratio.map(|middle| json!({
                    "estimate": c.ratio.map_or(middle, |r| r.value), "ci95": c.ratio.map(|r| [r.low, r.high]), "pairs": c.pairs,
                })),
                "absent": c.absent,
            })
        })
        .collect();
    json!({"name": results.design.name, "question": results.design.question, "baseline": results.design.baseline,
           "seed": results.design.seed, "complete": results.complete(), "results": cells})
}
