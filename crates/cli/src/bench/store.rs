//! Where a run's rows go: into the archive's log, each as it is made, under numbers of the whole archive.

use crate::unfinished::Unfinished;
use anyhow::{Context as _, Result};
use archive::runs::{Entry, Run};
use archive::{Archive, Meta, Runs, RunsWriter};
use experiment::{Design, Past, Results, Sink, Stopped};
use model::table::{DesignCell, DesignRow, MarkRow, Replicate, Sample};
use std::path::Path;

/// An archive's log while designs are run, one after the other.
pub struct Store {
    log: RunsWriter,
    /// The design that runs, and the first numbers of its cells and replicates.
    design: u64,
    cells: u64,
    replicates: u64,
}

impl Store {
    pub fn create(dir: &Path) -> Result<Self> {
        Ok(Self { log: RunsWriter::create(dir)?, design: 0, cells: 0, replicates: 0 })
    }

    pub fn resume(dir: &Path) -> Result<Self> {
        Ok(Self { log: RunsWriter::resume(dir)?, design: 0, cells: 0, replicates: 0 })
    }

    pub fn runs(&self) -> &Runs {
        self.log.runs()
    }

    pub fn push(&mut self, entry: Entry) -> Result<()> {
        Ok(self.log.push(entry)?)
    }

    /// The designs of the log, as they were run.
    pub fn designs(&self) -> Result<Vec<Design>> {
        designs(self.runs())
    }

    /// Writes down what will be run.
    pub fn plan(&mut self, designs: &[Design]) -> Result<()> {
        for (id, design) in (0..).zip(designs) {
            self.log.push(Entry::Design(row(id, design)?))?;
        }
        Ok(())
    }

    /// Begins design `at`, or goes on with it; gives what was measured of it before.
    pub fn begin(&mut self, at: usize) -> Past {
        let own = Own::of(self.log.runs(), at);
        (self.design, self.cells, self.replicates) = (at as u64, own.cells, own.replicates);
        own.past
    }

    /// The results of a design that came to its end before.
    pub fn finished(&self, at: usize, design: &Design) -> Option<Results> {
        self.runs().designs.get(at)?.stopped.as_ref()?;
        Some(results(self.runs(), at, design))
    }

    /// Design `at` has come to its end.
    pub fn end(&mut self, at: usize, why: Stopped) -> Result<()> {
        self.push(Entry::Stopped { design: at as u64, why: why.name().into() })
    }
}

/// The designs of a log, as they were run.
fn designs(runs: &Runs) -> Result<Vec<Design>> {
    let read = |row: &DesignRow| {
        serde_json::from_str(&row.design).with_context(|| format!("the design {} in the archive is damaged", row.name))
    };
    runs.designs.iter().map(read).collect()
}

/// The comparisons of a log: the designs with a baseline.
pub fn comparisons(runs: &Runs) -> Result<Vec<Results>> {
    let all = designs(runs)?;
    Ok((0..).zip(&all).filter(|(_, d)| d.baseline.is_some()).map(|(at, d)| results(runs, at, d)).collect())
}

/// What a log says of design `at`.
fn results(runs: &Runs, at: usize, design: &Design) -> Results {
    let own = Own::of(runs, at);
    let cells = runs.cells.iter().filter(|c| c.design == at as u64);
    let cells: Vec<DesignCell> = cells.map(|c| DesignCell { id: c.id - own.cells, ..c.clone() }).collect();
    let absent = |c: &DesignCell| Some(experiment::Absent { cell: c.name.clone(), why: c.absent.clone()? });
    Results {
        design: design.clone(),
        absent: cells.iter().filter_map(absent).collect(),
        cells,
        replicates: own.past.replicates,
        samples: own.past.samples,
        marks: own.past.marks,
        stopped: runs.designs.get(at).and_then(|d| Stopped::from_name(d.stopped.as_deref()?)),
    }
}

/// What a log holds of one design, in numbers of that design alone, and where those begin.
struct Own {
    cells: u64,
    replicates: u64,
    past: Past,
}

impl Own {
    fn of(runs: &Runs, at: usize) -> Self {
        let id = at as u64;
        // Designs run one after the other, so that what is there of this one is the end of the log, or has its neighbours'
        // behind it.
        let place = |found: Option<usize>, all: usize| found.unwrap_or(all) as u64;
        let first = place(runs.cells.iter().position(|c| c.design == id), runs.cells.len());
        let cells = first..first + runs.cells.iter().filter(|c| c.design == id).count() as u64;
        let replicates = place(runs.runs.iter().position(|r| cells.contains(&r.replicate.cell)), runs.runs.len());
        let own: Vec<&Run> = runs.runs.iter().filter(|r| cells.contains(&r.replicate.cell)).collect();
        let local = |id: Option<u64>| id.and_then(|id| id.checked_sub(replicates));
        let replicate = |r: &Replicate| Replicate { id: r.id - replicates, cell: r.cell - first, ..r.clone() };
        let samples = own.iter().flat_map(|r| &r.samples);
        let marks = own.iter().flat_map(|r| &r.marks);
        let absent = runs.cells.iter().filter(|c| c.design == id);
        let past = Past {
            replicates: own.iter().map(|r| replicate(&r.replicate)).collect(),
            samples: samples.map(|s| Sample { replicate: local(s.replicate), ..s.clone() }).collect(),
            marks: marks.map(|m| MarkRow { replicate: local(m.replicate), ..m.clone() }).collect(),
            absent: absent.filter_map(|c| Some((c.id - first, c.absent.clone()?))).collect(),
        };
        Self { cells: first, replicates, past }
    }
}

fn row(id: u64, design: &Design) -> Result<DesignRow> {
    let plan = design.plan.as_ref();
    Ok(DesignRow {
        id,
        name: design.name.clone(),
        question: design.question.clone(),
        seed: design.seed,
        quick: plan.is_some_and(|p| p.quick),
        score: plan.map_or("value", |p| p.score.of.name()).into(),
        unit: plan.and_then(|p| p.score.unit.clone()),
        scale: plan.map_or(1.0, |p| p.score.scale),
        better: design.better().map(|better| better.name().into()),
        precision: plan.filter(|p| !p.exactly).map(|p| p.precision),
        stopped: None,
        baseline: design.baseline.clone(),
        design: serde_json::to_string(design)?,
    })
}

type Stored = Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl Sink for Store {
    fn cell(&mut self, row: &DesignCell) -> Stored {
        let row = DesignCell { id: self.cells + row.id, design: self.design, ..row.clone() };
        // A run that goes on tells its cells again.
        if self.runs().cells.get(row.id as usize).is_some() {
            return Ok(());
        }
        Ok(self.log.push(Entry::Cell(row))?)
    }
    fn absent(&mut self, cell: u64, why: &str) -> Stored {
        Ok(self.log.push(Entry::Absent { cell: self.cells + cell, why: why.into() })?)
    }
    fn replicate(&mut self, row: &Replicate, samples: &[Sample], marks: &[MarkRow]) -> Stored {
        let id = |local: Option<u64>| local.map(|local| self.replicates + local);
        let run = Run {
            replicate: Replicate { id: self.replicates + row.id, cell: self.cells + row.cell, ..row.clone() },
            samples: samples.iter().map(|s| Sample { replicate: id(s.replicate), ..s.clone() }).collect(),
            marks: marks.iter().map(|m| MarkRow { replicate: id(m.replicate), ..m.clone() }).collect(),
        };
        Ok(self.log.push(Entry::Replicate(Box::new(run)))?)
    }
}

/// Makes a benchmark's tables from its log, and says in `meta.json` that they are made.
pub fn remake(dir: &Path) -> Result<Runs> {
    remake_with(dir, Archive::open(dir)?.meta().clone())
}

/// The same where `meta.json` is gone or damaged: what can be known of it is in the log.
pub fn remake_without_meta(dir: &Path) -> Result<Runs> {
    let runs = Runs::read(dir)?;
    let began = runs.runs.first().and_then(|run| run.replicate.start_unix_ns).unwrap_or(0);
    let kind = if runs.designs.iter().any(|d| d.name == analysis::bench::net::RUN) { "net" } else { "bench" };
    remake_with(dir, Meta::new(kind, began, Vec::new()))
}

fn remake_with(dir: &Path, mut meta: Meta) -> Result<Runs> {
    let runs = Runs::read(dir)?;
    {
        let _unfinished = Unfinished::tables(dir)?;
        runs.make_tables(dir)?;
    }
    meta.linked = true;
    meta.complete = !runs.designs.is_empty() && runs.designs.iter().all(|d| d.stopped.is_some());
    meta.table_version = model::table::TABLE_VERSION;
    meta.write(dir)?;
    Ok(runs)
}
