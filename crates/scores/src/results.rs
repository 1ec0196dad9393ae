//! A benchmark's archive with related rows joined: each cell with its factors, its processes and its estimate.
//!
//! A process's values are kept as **costs per unit**: seconds for one unit of work where the score is a rate, the metric
//! itself otherwise. Two runs may have sized their iterations differently; the time for a row, a request or a flop is
//! still comparable.

use super::{
    CellEstimate, Process, Score, ScoreKind, Tables, disturbance, estimate_cells_by, evaluate_process, is_counted,
    to_seconds,
};
use analysis::older_archives;
use archive::{Archive, Error};
use model::Fact;
use model::table::{DesignCell, DesignRow, FactRow, MarkRow, Replicate, Sample};
use model::words::is_emulated;
use serde::Deserialize;
use stats::cells;
use stats::steady::Penalty;
use stats::verdict::Better;
use std::collections::{BTreeMap, HashMap};

/// A benchmark's archive in memory.
#[derive(Debug, Clone, Default)]
pub struct Bench {
    /// Name given by the user.
    pub name: String,
    /// When it was started, ns since 1970.
    pub created_unix_ns: u64,
    /// The command that made it.
    pub command: Vec<String>,
    /// Boot ID of the clock of its times, if it was stored.
    pub boot: Option<String>,
    pub tables: Tables,
    /// Penalty for a change of level when its processes are classified.
    pub penalty: Penalty,
}

/// A cell.
#[derive(Debug, Clone)]
pub struct MeasuredCell<'a> {
    pub design: &'a DesignRow,
    /// Its row.
    pub cell: &'a DesignCell,
    pub factors: BTreeMap<String, String>,
    /// The score.
    pub estimate: CellEstimate,
    /// The processes in the score.
    pub processes: Vec<CountedProcess<'a>>,
    /// The processes' marks, by name, each text with the number of processes that reported it.
    pub marks: BTreeMap<String, BTreeMap<String, u64>>,
    /// `None` if this is the cell's own score; otherwise the further score ([`Bench::scores`]).
    pub extra: Option<ExtraScore>,
    /// Whether the processor was emulated, so that its times show order, not speed.
    pub emulated: bool,
    /// The offered rate of the cell's processes, per second; the score is what they achieved.
    pub offered: Option<f64>,
}

/// A further score of a design's cells: another metric that processes print, such as a latency percentile.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ExtraScore {
    pub metric: String,
    /// Unit of the score; by default the metric's own.
    pub unit: Option<String>,
    /// Factor by which the score is multiplied.
    pub scale: f64,
    /// Direction: `higher` or `lower`.
    pub better: String,
}

/// The scores in a design's JSON.
#[derive(Debug, Default, Deserialize)]
struct DesignJson {
    #[serde(default)]
    plan: Option<Scores>,
}

#[derive(Debug, Default, Deserialize)]
struct Scores {
    #[serde(default)]
    also: Vec<ExtraScore>,
    #[serde(default)]
    score: SetBy,
}

#[derive(Debug, Default, Deserialize)]
struct SetBy {
    #[serde(default)]
    set_by: Option<String>,
}

impl Scores {
    /// Returns the scores of a design; empty if its JSON has none.
    fn from_design(design: &DesignRow) -> Self {
        serde_json::from_str::<DesignJson>(&design.design).unwrap_or_default().plan.unwrap_or_default()
    }
}

/// A valid process.
#[derive(Debug, Clone)]
pub struct CountedProcess<'a> {
    pub row: &'a Replicate,
    /// Its evaluation in the estimate.
    pub process: Process,
    /// Values of which its mean is computed, as costs per unit, times the design's scale where the score is not a rate.
    pub costs: Vec<f64>,
    /// All values of the metric in order, as printed.
    pub series: Vec<f64>,
}

impl CountedProcess<'_> {
    /// Returns the process's own score.
    pub fn score(&self, score: &Score) -> Option<f64> {
        let mean = super::mean(&self.costs);
        let value = if score.kind == ScoreKind::Rate { score.scale / mean } else { mean };
        Some(value).filter(|v| v.is_finite())
    }
}

impl Bench {
    /// Reads an archive; `name` is its display name.
    ///
    /// # Errors
    /// Those of [`Archive::rows`].
    pub fn load(archive: &Archive, name: &str) -> Result<Self, Error> {
        let meta = archive.meta();
        let facts: Vec<FactRow> = archive.rows()?;
        let fact = |f: FactRow| {
            let FactRow { name, value, unknown, unit, source, varies } = f;
            (older_archives::fact(name), Fact { value, unknown, unit, source, varies })
        };
        let marks: Vec<MarkRow> = archive.rows()?;
        Ok(Self {
            name: name.into(),
            created_unix_ns: meta.created_unix_ns,
            command: meta.command.clone(),
            boot: meta.boot.clone(),
            tables: Tables {
                designs: archive.rows()?,
                cells: archive.rows()?,
                replicates: archive.rows()?,
                samples: archive.rows()?,
                marks: marks.into_iter().map(older_archives::mark).collect(),
                environment: facts.into_iter().map(fact).collect(),
            },
            penalty: Penalty::default(),
        })
    }

    /// Whether every design ran to its end.
    pub fn is_complete(&self) -> bool {
        self.tables.designs.iter().all(|d| d.stopped.is_some())
    }

    /// Returns every cell, in the archive's order.
    pub fn measured_cells(&self) -> Vec<MeasuredCell<'_>> {
        self.measured_cells_by(None)
    }

    /// Returns every score of every cell: each cell's own, followed by the further ones whose metric its processes printed.
    pub fn scores(&self) -> Vec<MeasuredCell<'_>> {
        let most = self.tables.designs.iter().map(|d| Scores::from_design(d).also.len()).max().unwrap_or(0);
        let mut all = self.measured_cells();
        for at in 0..most {
            all.extend(self.measured_cells_by(Some(at)).into_iter().filter(|m| !m.processes.is_empty()));
        }
        // Stable sort: by cell, its own score first.
        all.sort_by_key(|m| m.cell.id);
        all
    }

    /// Returns the cells by their own score, or by the further score at this index, for designs that have it.
    fn measured_cells_by(&self, at: Option<usize>) -> Vec<MeasuredCell<'_>> {
        let t = &self.tables;
        let scores: HashMap<u64, Scores> = t.designs.iter().map(|d| (d.id, Scores::from_design(d))).collect();
        let also = |design: &DesignRow| scores.get(&design.id)?.also.get(at?).cloned();
        let score = |design: &DesignRow, cell: &DesignCell| match (at, also(design)) {
            (None, _) => Some(Score::for_cell(design, cell)),
            (Some(_), also) => also.map(|also| Score::from_extra(&also)),
        };
        let estimates = estimate_cells_by(t, self.penalty, &score);
        let mut samples: HashMap<u64, Vec<&Sample>> = HashMap::new();
        for sample in &t.samples {
            samples.entry(sample.replicate.unwrap_or(u64::MAX)).or_default().push(sample);
        }
        let out = disturbance::excluded_replicates(&t.replicates);
        let counts = |r: &&Replicate| is_counted(r) && !out.contains(&r.id);
        let cell_of: HashMap<u64, u64> = t.replicates.iter().filter(counts).map(|r| (r.id, r.cell)).collect();
        let mut marks: HashMap<u64, BTreeMap<String, BTreeMap<String, u64>>> = HashMap::new();
        for mark in &t.marks {
            if let Some(cell) = mark.replicate.and_then(|id| cell_of.get(&id)) {
                let texts = marks.entry(*cell).or_default().entry(mark.name.clone()).or_default();
                *texts.entry(mark.text.clone()).or_default() += 1;
            }
        }
        let of = |cell: &u64| t.cells.iter().find(|c| c.id == *cell);
        let emulated = is_emulated(&t.environment);
        estimates
            .into_iter()
            .filter_map(|estimate| {
                let cell = of(&estimate.cell)?;
                let design = t.designs.iter().find(|d| d.id == cell.design)?;
                let score = score(design, cell)?;
                let run = |row| counted_process(&score, self.penalty, row, samples.get(&row.id)?);
                let factors: BTreeMap<String, String> = serde_json::from_str(&cell.factors).unwrap_or_default();
                let set_by = scores.get(&design.id).and_then(|s| s.score.set_by.as_ref());
                let offered = set_by.and_then(|by| factors.get(by)?.parse::<f64>().ok()).filter(|rate| *rate > 0.0);
                Some(MeasuredCell {
                    design,
                    cell,
                    factors,
                    extra: also(design),
                    emulated,
                    offered,
                    estimate,
                    processes: t.replicates.iter().filter(|r| r.cell == cell.id && counts(r)).filter_map(run).collect(),
                    marks: marks.get(&cell.id).cloned().unwrap_or_default(),
                })
            })
            .collect()
    }
}

fn counted_process<'a>(
    score: &Score,
    penalty: Penalty,
    row: &'a Replicate,
    samples: &[&Sample],
) -> Option<CountedProcess<'a>> {
    let process = evaluate_process(score, penalty, row.id, samples)?;
    let cost = |value: &f64| match &process.work {
        Some((work, _)) if score.kind == ScoreKind::Rate => to_seconds(&process.unit, *value).map(|s| s / work),
        _ => Some(value * score.scale),
    };
    let costs: Vec<f64> = process.values.iter().filter_map(cost).collect();
    // The two directions of a run are not a series.
    let series = if super::run_score::is_per_run(score) {
        process.values.clone()
    } else {
        samples.iter().filter(|s| s.metric == score.metric).map(|s| s.value).collect()
    };
    (costs.len() == process.values.len()).then_some(CountedProcess { row, process, costs, series })
}

impl MeasuredCell<'_> {
    /// Returns how its metric becomes its score.
    pub fn score(&self) -> Score {
        self.extra.as_ref().map_or_else(|| Score::for_cell(self.design, self.cell), Score::from_extra)
    }

    /// Returns the metric of a further score; `None` for the cell's own.
    pub fn extra_metric(&self) -> Option<&str> {
        self.extra.as_ref().map(|also| also.metric.as_str())
    }

    /// Whether its score is just a setting: the rate of an open loop.
    pub fn is_offered(&self) -> bool {
        self.extra.is_none() && self.offered.is_some()
    }

    /// Returns the direction of its score; `None` if its archive does not record it (comparisons once did not): it is never guessed.
    pub fn better(&self) -> Option<Better> {
        Better::from_name(self.extra.as_ref().map(|also| also.better.as_str()).or(self.design.better.as_deref())?)
    }

    /// Returns its processes for a ratio; only those of `blocks`, in that order, if blocks are given.
    pub fn costs(&self, blocks: Option<&[u64]>) -> Option<cells::Cell> {
        let of = |block: &u64| self.processes.iter().find(|r| r.row.block == *block).map(|r| &r.costs[..]);
        let values: Option<Vec<&[f64]>> = match blocks {
            Some(blocks) => blocks.iter().map(of).collect(),
            None => Some(self.processes.iter().map(|r| &r.costs[..]).collect()),
        };
        cells::Cell::new(&values?)
    }

    /// Returns the scores of its processes.
    pub fn scores(&self) -> Vec<f64> {
        let score = self.score();
        self.processes.iter().filter_map(|r| r.score(&score)).collect()
    }

    /// Returns its factors as words: `mode=int size=64`.
    pub fn parameters(&self) -> String {
        factor_words(&self.factors)
    }
}

/// Formats factors as words; empty for a comparison's cell, which may have none.
pub fn factor_words(factors: &BTreeMap<String, String>) -> String {
    factors.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}
