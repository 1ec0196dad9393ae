//! The contract of `fathom bench run --json` (docs/reference/json.md), built from the archive's tables.

use super::metrics::{OtherMetric, other_metrics};
use super::{CellEstimate, estimate_cells, merged_marks};
use analysis::contract::Summary;
use archive::Runs;
use model::table::{DesignCell, DesignRow, MarkRow, Replicate, Sample};
use model::{Environment, Fact};
use serde::{Serialize, Serializer};
use stats::steady::Penalty;
use std::collections::BTreeMap;

/// The mark that states how code was executed, with its proof.
pub(super) const MODE_MARK: &str = "mode";

/// Version of the contract; names and meanings change only with it.
pub const VERSION: u32 = 1;

/// A benchmark's results.
#[derive(Debug, Clone, Serialize)]
pub struct Benchmark {
    /// [`VERSION`].
    pub version: u32,
    /// Whether every design ran to its end.
    pub complete: bool,
    /// Whether any of it was a quick run.
    pub quick: bool,
    /// The penalty for a change of level when processes were classified: `15 ln n`, or `the elbow of CROPS`.
    #[serde(serialize_with = "serialize_penalty")]
    pub penalty: Penalty,
    /// What was run.
    pub designs: Vec<Design>,
    /// One entry per cell, in the order of the designs.
    pub results: Vec<CellResult>,
    /// Remarks on the whole archive, such as that it was resumed, and what had changed by then.
    pub marks: Vec<Mark>,
    /// Facts about the machine.
    pub environment: Environment,
}

fn serialize_penalty<S: Serializer>(penalty: &Penalty, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(penalty.name())
}

/// A design that was run.
#[derive(Debug, Clone, Serialize)]
pub struct Design {
    /// Name of the workload or comparison.
    pub name: String,
    /// The question that it answers.
    pub question: String,
    /// Seed of the order.
    pub seed: u64,
    /// Whether it was a quick run.
    pub quick: bool,
    /// Why no further block was run: `precision`, `budget`, `blocks`, `nothing to run`; `None` if it was interrupted.
    pub stopped: Option<String>,
    /// Requested half-width of each interval, as a fraction.
    pub precision: Option<f64>,
    /// Figures of the papers that it reproduces.
    pub figures: Vec<String>,
}

/// A cell with its estimate.
#[derive(Debug, Clone, Serialize)]
pub struct CellResult {
    /// The design.
    pub workload: String,
    /// The cell's name in it.
    pub name: String,
    /// Its factors.
    pub parameters: BTreeMap<String, String>,
    /// Direction of the score: `higher` or `lower`; `None` for a comparison.
    pub better: Option<String>,
    /// Whether it was a quick run.
    pub quick: bool,
    /// The estimate and its details.
    #[serde(flatten)]
    pub estimate: CellEstimate,
    /// Marks that all its processes agree on, such as the mode and its proof.
    pub marks: BTreeMap<String, String>,
    /// Other metrics that its processes printed, by name: latencies, disk activity.
    pub metrics: BTreeMap<String, OtherMetric>,
    /// Where the time of a recorded process went, if one was recorded.
    pub why: Option<Why>,
}

/// A recorded process.
#[derive(Debug, Clone, Serialize)]
pub struct Why {
    /// The archive, within this one.
    pub archive: String,
    /// Why it was not recorded.
    pub failure: Option<String>,
    /// The operation that took most time, and its layers' shares of it.
    pub operation: Option<String>,
    /// Shares of the layers.
    pub layers: BTreeMap<String, f64>,
}

impl Why {
    /// Builds the entry for the recording at `archive`, from its summary, or the reason why there is none.
    pub fn from_summary(archive: String, summary: Result<Summary, impl std::fmt::Display>) -> Self {
        let nothing = |failure: String| Self {
            archive: archive.clone(),
            failure: Some(failure),
            operation: None,
            layers: BTreeMap::new(),
        };
        let summary = match summary {
            Ok(summary) => summary,
            Err(failure) => return nothing(failure.to_string()),
        };
        match summary.operations.first() {
            None => nothing("no operation was recorded".into()),
            Some(operation) => Self {
                archive: archive.clone(),
                failure: None,
                operation: Some(operation.statement.clone()),
                layers: operation.layers.iter().map(|(layer, time)| (layer.to_string(), time.share)).collect(),
            },
        }
    }
}

/// A remark.
#[derive(Debug, Clone, Serialize)]
pub struct Mark {
    /// Name.
    pub name: String,
    /// Text.
    pub text: String,
}

/// The tables of a benchmark.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    /// `designs`
    pub designs: Vec<DesignRow>,
    /// `cells`
    pub cells: Vec<DesignCell>,
    /// `replicates`
    pub replicates: Vec<Replicate>,
    /// `samples`
    pub samples: Vec<Sample>,
    /// `marks`
    pub marks: Vec<MarkRow>,
    /// `facts`, by name.
    pub environment: BTreeMap<String, Fact>,
}

impl From<&Runs> for Tables {
    /// Reads the log of a run, whose tables may not have been written.
    fn from(runs: &Runs) -> Self {
        let marks = runs.runs.iter().flat_map(|r| &r.marks).chain(&runs.marks);
        Self {
            designs: runs.designs.clone(),
            cells: runs.cells.clone(),
            replicates: runs.runs.iter().map(|r| r.replicate.clone()).collect(),
            samples: runs.runs.iter().flat_map(|r| r.samples.clone()).collect(),
            marks: marks.cloned().collect(),
            environment: runs.machines.last().cloned().unwrap_or_default(),
        }
    }
}

/// Computes the results of an archive's tables; `penalty` is that for a change of level. `why` explains a recorded process,
/// given its archive's name.
pub fn benchmark(tables: &Tables, penalty: Penalty, why: &dyn Fn(&str) -> Why) -> Benchmark {
    let estimates = estimate_cells(tables, penalty);
    let metrics = other_metrics(&tables.replicates, &tables.samples);
    let out = super::disturbance::excluded_replicates(&tables.replicates);
    let result = |estimate: CellEstimate| {
        let cell = tables.cells.iter().find(|c| c.id == estimate.cell)?;
        let design = tables.designs.iter().find(|d| d.id == cell.design)?;
        let own = || tables.replicates.iter().filter(|r| r.cell == cell.id);
        Some(CellResult {
            workload: design.name.clone(),
            name: cell.name.clone(),
            // Ours are always texts; others in a foreign archive are left out.
            parameters: serde_json::from_str(&cell.factors).unwrap_or_default(),
            better: design.better.clone(),
            quick: design.quick,
            metrics: metrics.get(&cell.id).cloned().unwrap_or_default(),
            marks: agreed_marks(
                &own().filter(|r| super::is_counted(r) && !out.contains(&r.id)).map(|r| r.id).collect::<Vec<_>>(),
                &tables.marks,
            ),
            why: own().find_map(|r| {
                let archive = r.why.as_ref()?;
                Some(match &r.failure {
                    Some(failure) => Why {
                        archive: archive.clone(),
                        failure: Some(failure.clone()),
                        operation: None,
                        layers: BTreeMap::new(),
                    },
                    None => why(archive),
                })
            }),
            estimate,
        })
    };
    Benchmark {
        version: VERSION,
        complete: tables.designs.iter().all(|d| d.stopped.is_some()),
        quick: tables.designs.iter().any(|d| d.quick),
        penalty,
        designs: tables.designs.iter().map(describe_design).collect(),
        results: estimates.into_iter().filter_map(result).collect(),
        marks: tables
            .marks
            .iter()
            .filter(|m| m.replicate.is_none())
            .map(|m| Mark { name: m.name.clone(), text: m.text.clone() })
            .collect(),
        environment: tables.environment.clone(),
    }
}

fn describe_design(row: &DesignRow) -> Design {
    let whole: serde_json::Value = serde_json::from_str(&row.design).unwrap_or_default();
    let figures = whole["plan"]["figures"].as_array().into_iter().flatten();
    Design {
        name: row.name.clone(),
        question: row.question.clone(),
        seed: row.seed,
        quick: row.quick,
        stopped: row.stopped.clone(),
        precision: row.precision,
        figures: figures.filter_map(|f| f.as_str()).map(ToString::to_string).collect(),
    }
}

/// Marks with counts: the numbers in the text differ between processes, but all of them state the same fact.
const MARKS_WITH_COUNTS: [&str; 3] = [MODE_MARK, "cache", "cache.doubt"];

/// Returns the marks that each of these replicates has with the same text; for marks with counts, with ranges.
fn agreed_marks(replicates: &[u64], marks: &[MarkRow]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for mark in marks.iter().filter(|m| m.replicate.is_some_and(|r| replicates.contains(&r))) {
        all.entry(&mark.name).or_default().push(&mark.text);
    }
    let agreed = |(name, texts): (&str, Vec<&str>)| {
        let same = || texts.iter().all(|t| t == &texts[0]).then(|| texts[0].to_string());
        let said = if MARKS_WITH_COUNTS.contains(&name) { merged_marks::common_text(&texts) } else { same() };
        Some((name.to_string(), said.filter(|_| texts.len() >= replicates.len())?))
    };
    all.into_iter().filter_map(agreed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(replicate: u64, name: &str, text: &str) -> MarkRow {
        MarkRow { replicate: Some(replicate), name: name.into(), text: text.into() }
    }

    #[test]
    fn cache_marks_that_differ_in_the_page_count_are_merged() {
        let marks = [
            mark(
                1,
                "cache",
                "cold: posix_fadvise(DONTNEED) before each iteration; 0 of 2048 pages in the cache then (cachestat)",
            ),
            mark(
                2,
                "cache",
                "cold: posix_fadvise(DONTNEED) before each iteration; 3 of 2048 pages in the cache then (cachestat)",
            ),
            mark(2, "cache.doubt", "3 pages could not be evicted"),
        ];
        let agreed = agreed_marks(&[1, 2], &marks);
        assert_eq!(
            agreed["cache"],
            "cold: posix_fadvise(DONTNEED) before each iteration; 0 to 3 of 2048 pages in the cache then (cachestat)"
        );
        assert_eq!(agreed.get("cache.doubt"), None, "the other process has none");
    }

    #[test]
    fn differing_facts_are_omitted() {
        let marks = [mark(1, "direct", "512"), mark(2, "direct", "4096"), mark(1, "same", "a"), mark(2, "same", "a")];
        assert_eq!(agreed_marks(&[1, 2], &marks), [("same".to_string(), "a".to_string())].into());
    }
}
