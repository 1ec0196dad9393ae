//! A benchmark's archive, with what belongs together found: each cell with its factors, its processes and its estimate.
//!
//! A process's values are kept as **costs per unit**: seconds for one unit of work where the score is a rate, the metric
//! itself otherwise. Two runs may have sized their iterations differently; the time for a row, a request or a flop can be
//! compared all the same.

use super::{CellEstimate, Process, Score, Tables, counts, estimate, process, seconds};
use archive::{Archive, Error};
use model::Fact;
use model::table::{DesignCell, DesignRow, FactRow, Replicate, Sample};
use stats::hierarchy;
use stats::steady::Penalty;
use stats::verdict::Better;
use std::collections::{BTreeMap, HashMap};

/// A benchmark's archive in memory.
#[derive(Debug, Clone, Default)]
pub struct Bench {
    /// What the user called it.
    pub name: String,
    /// When it was begun, ns since 1970.
    pub created_unix_ns: u64,
    /// The command that made it.
    pub command: Vec<String>,
    /// The identity of the boot whose clock its times are of, if it was kept.
    pub boot: Option<String>,
    /// Its tables.
    pub tables: Tables,
    /// What a change of level must pay when its processes are classified.
    pub penalty: Penalty,
}

/// A cell.
#[derive(Debug, Clone)]
pub struct Measured<'a> {
    /// Its design.
    pub design: &'a DesignRow,
    /// Its row.
    pub cell: &'a DesignCell,
    /// Its factors.
    pub factors: BTreeMap<String, String>,
    /// The score.
    pub estimate: CellEstimate,
    /// The processes that the score is made of.
    pub processes: Vec<Run<'a>>,
    /// What the processes said of themselves, with how many said it: by name.
    pub marks: BTreeMap<String, BTreeMap<String, u64>>,
}

/// A process that counts.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    /// Its row.
    pub row: &'a Replicate,
    /// As the estimate sees it.
    pub process: Process,
    /// Values that its mean is made of, as costs per unit, times the design's scale where the score is no rate.
    pub costs: Vec<f64>,
    /// All of the metric in order, as it was printed.
    pub series: Vec<f64>,
}

impl Run<'_> {
    /// The process's own score.
    pub fn score(&self, score: &Score) -> Option<f64> {
        let mean = super::mean(&self.costs);
        let value = if score.of == "rate" { score.scale / mean } else { mean };
        Some(value).filter(|v| v.is_finite())
    }
}

impl Bench {
    /// Reads an archive; `name` is what it is called.
    ///
    /// # Errors
    /// Those of [`Archive::rows`].
    pub fn load(archive: &Archive, name: &str) -> Result<Self, Error> {
        let meta = archive.meta();
        let facts: Vec<FactRow> = archive.rows()?;
        let fact = |f: FactRow| {
            let FactRow { name, value, unknown, unit, source, varies } = f;
            (name, Fact { value, unknown, unit, source, varies })
        };
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
                marks: archive.rows()?,
                environment: facts.into_iter().map(fact).collect(),
            },
            penalty: Penalty::default(),
        })
    }

    /// Whether every design came to its end.
    pub fn complete(&self) -> bool {
        self.tables.designs.iter().all(|d| d.stopped.is_some())
    }

    /// Every cell, in the archive's order.
    pub fn measured(&self) -> Vec<Measured<'_>> {
        let t = &self.tables;
        let estimates = estimate(t, self.penalty);
        let mut samples: HashMap<u64, Vec<&Sample>> = HashMap::new();
        for sample in &t.samples {
            samples.entry(sample.replicate.unwrap_or(u64::MAX)).or_default().push(sample);
        }
        let cell_of: HashMap<u64, u64> = t.replicates.iter().filter(|r| counts(r)).map(|r| (r.id, r.cell)).collect();
        let mut marks: HashMap<u64, BTreeMap<String, BTreeMap<String, u64>>> = HashMap::new();
        for mark in &t.marks {
            if let Some(cell) = mark.replicate.and_then(|id| cell_of.get(&id)) {
                let texts = marks.entry(*cell).or_default().entry(mark.name.clone()).or_default();
                *texts.entry(mark.text.clone()).or_default() += 1;
            }
        }
        let of = |cell: &u64| t.cells.iter().find(|c| c.id == *cell);
        estimates
            .into_iter()
            .filter_map(|estimate| {
                let cell = of(&estimate.cell)?;
                let design = t.designs.iter().find(|d| d.id == cell.design)?;
                let score = Score::of(design, cell);
                let run = |row| run(&score, self.penalty, row, samples.get(&row.id)?);
                Some(Measured {
                    design,
                    cell,
                    factors: serde_json::from_str(&cell.factors).unwrap_or_default(),
                    estimate,
                    processes: t.replicates.iter().filter(|r| r.cell == cell.id && counts(r)).filter_map(run).collect(),
                    marks: marks.remove(&cell.id).unwrap_or_default(),
                })
            })
            .collect()
    }
}

fn run<'a>(score: &Score, penalty: Penalty, row: &'a Replicate, samples: &[&Sample]) -> Option<Run<'a>> {
    let process = process(score, penalty, row.id, samples)?;
    let cost = |value: &f64| match &process.work {
        Some((work, _)) if score.of == "rate" => seconds(&process.unit, *value).map(|s| s / work),
        _ => Some(value * score.scale),
    };
    let costs: Vec<f64> = process.values.iter().filter_map(cost).collect();
    // A run's two directions are no course.
    let series = match super::net::is_told(score) {
        true => process.values.clone(),
        false => samples.iter().filter(|s| s.metric == score.metric).map(|s| s.value).collect(),
    };
    (costs.len() == process.values.len()).then_some(Run { row, process, costs, series })
}

impl Measured<'_> {
    /// What is made of its metric.
    pub fn score(&self) -> Score {
        Score::of(self.design, self.cell)
    }

    /// Which way its score is good; nothing if its archive does not say (comparisons did not, once), and nobody guesses.
    pub fn better(&self) -> Option<Better> {
        match self.design.better.as_deref()? {
            "lower" => Some(Better::Lower),
            "higher" => Some(Better::Higher),
            _ => None,
        }
    }

    /// Its processes for a ratio; those of `blocks` only, in that order, if blocks are named.
    pub fn costs(&self, blocks: Option<&[u64]>) -> Option<hierarchy::Cell> {
        let of = |block: &u64| self.processes.iter().find(|r| r.row.block == *block).map(|r| &r.costs[..]);
        let values: Option<Vec<&[f64]>> = match blocks {
            Some(blocks) => blocks.iter().map(of).collect(),
            None => Some(self.processes.iter().map(|r| &r.costs[..]).collect()),
        };
        hierarchy::Cell::new(&values?)
    }

    /// The scores of its processes.
    pub fn scores(&self) -> Vec<f64> {
        let score = self.score();
        self.processes.iter().filter_map(|r| r.score(&score)).collect()
    }

    /// Its factors as words: `mode=int size=64`.
    pub fn parameters(&self) -> String {
        words(&self.factors)
    }
}

/// Factors as words; of a comparison's cell, which may have none, nothing.
pub fn words(factors: &BTreeMap<String, String>) -> String {
    factors.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}
