//! The destination of a run's rows: the archive's log, each row as it is produced, with numbers for the whole archive; and
//! reading the log again.

use crate::{AbsentCell, Design, PastResults, Results, Sink, StopReason, StoreResult};
use archive::runs::{Entry, NET_RUN, Run};
use archive::tables::Index;
use archive::{Meta, Runs, RunsWriter, is_lost};
use model::shell_word;
use model::table::{DesignCell, DesignRow, MarkRow, Replicate, Row as _, Sample};
use model::text::ShownPath as _;
use std::path::{Path, PathBuf};

/// Why a log cannot be written, or resumed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Archive(#[from] archive::Error),
    /// A stored design is damaged.
    #[error("the design {name} in the archive is damaged: {why}")]
    Damaged {
        /// The design's name.
        name: String,
        why: serde_json::Error,
    },
    /// A design cannot be serialised.
    #[error(transparent)]
    Unwritten(serde_json::Error),
    /// The tables hold more than the log: the difference would be lost if they were regenerated.
    #[error(
        "{0}: its log (runs.jsonl) is truncated or damaged: {1} are intact, and its tables have {tabled}. `fathom \
         bench show {2}` shows the tables; to continue with the log instead, move the tables away first: mv {3} \
         {3}.before",
        dir.shown(),
        model::counted(*logged as usize, "process"),
        shell_word(dir),
        shell_word(&dir.join("tables")),
    )]
    LogCut {
        dir: PathBuf,
        /// Processes in the log.
        logged: u64,
        /// Processes in the tables.
        tabled: u64,
    },
}

/// An archive's log while designs are run, one after the other.
pub struct Store {
    log: RunsWriter,
    /// The current design, and the first number of its cells.
    design: u64,
    first_cell: u64,
}

impl Store {
    /// Creates a log.
    pub fn create(dir: &Path) -> Result<Self, Error> {
        Ok(Self { log: RunsWriter::create(dir)?, design: 0, first_cell: 0 })
    }

    /// Resumes a log; a damaged one from its intact lines: then the second value describes what is missing.
    pub fn resume(dir: &Path) -> Result<(Self, Option<String>), Error> {
        let (log, mended) = RunsWriter::resume(dir)?;
        let mut store = Self { log, design: 0, first_cell: 0 };
        let Some((damage, kept)) = mended else { return Ok((store, None)) };
        let text = format!("the log was damaged ({damage}) and was renamed to {}", kept.shown());
        let warning = format!(
            "{text}; {} are intact, and the rest is measured again",
            model::counted(store.runs().runs.len(), "process")
        );
        store.push(Entry::Mark(MarkRow { replicate: None, name: "mended".into(), text }))?;
        Ok((store, Some(warning)))
    }

    pub fn runs(&self) -> &Runs {
        self.log.runs()
    }

    /// Writes an entry.
    pub fn push(&mut self, entry: Entry) -> Result<(), Error> {
        Ok(self.log.push(entry)?)
    }

    /// Returns the designs of the log, as they were run.
    pub fn designs(&self) -> Result<Vec<Design>, Error> {
        designs(self.runs())
    }

    /// Stores the designs to be run.
    pub fn plan(&mut self, designs: &[Design]) -> Result<(), Error> {
        self.log.push(Entry::Planned { cells: designs.iter().map(|d| d.cells.len() as u64).collect() })?;
        for (id, design) in (0..).zip(designs) {
            self.log.push(Entry::Design(design_row(id, design)?))?;
        }
        Ok(())
    }

    /// Begins or resumes design `at`; returns its previous results.
    pub fn begin(&mut self, at: usize) -> PastResults {
        let own = DesignLog::from_runs(self.log.runs(), at);
        (self.design, self.first_cell) = (at as u64, own.first_cell);
        own.past
    }

    /// Returns the results of a design that ran to its end before, if none of them is missing.
    pub fn finished(&self, at: usize, design: &Design) -> Option<Results> {
        self.runs().designs.get(at)?.stopped.as_ref()?;
        let results = design_results(self.runs(), at, design);
        (!self.runs().cells.iter().any(|c| c.design == at as u64 && is_lost(c)) && results.missing_count() == 0)
            .then_some(results)
    }

    /// Marks design `at` as finished.
    pub fn end(&mut self, at: usize, why: StopReason) -> Result<(), Error> {
        let replicates = Some(self.runs().replicates_of(at as u64));
        self.push(Entry::Stopped { design: at as u64, why: why.name().into(), replicates })
    }
}

fn parse_design(row: &DesignRow) -> Result<Design, Error> {
    serde_json::from_str(&row.design).map_err(|why| Error::Damaged { name: row.name.clone(), why })
}

/// Returns the designs of a log, as they were run.
fn designs(runs: &Runs) -> Result<Vec<Design>, Error> {
    runs.designs.iter().map(parse_design).collect()
}

/// Yields the designs of a log that benchmarks have, each with its number: that of a network run is of another kind.
fn benchmark_designs(runs: &Runs) -> impl Iterator<Item = (usize, Result<Design, Error>)> {
    let own = runs.designs.iter().enumerate().filter(|(_, row)| row.name != NET_RUN);
    own.map(|(at, row)| (at, parse_design(row)))
}

/// Returns the comparisons of a log: the designs with a baseline.
pub fn comparisons(runs: &Runs) -> Result<Vec<Results>, Error> {
    let results = |(at, design): (usize, Result<Design, Error>)| match design {
        Ok(design) if design.baseline.is_some() => Some(Ok(design_results(runs, at, &design))),
        Ok(_) => None,
        Err(damaged) => Some(Err(damaged)),
    };
    benchmark_designs(runs).filter_map(results).collect()
}

/// Returns the results of design `at` in a log.
fn design_results(runs: &Runs, at: usize, design: &Design) -> Results {
    let own = DesignLog::from_runs(runs, at);
    let cells = runs.cells.iter().filter(|c| c.design == at as u64);
    let cells: Vec<DesignCell> = cells.map(|c| DesignCell { id: c.id - own.first_cell, ..c.clone() }).collect();
    let absent = |c: &DesignCell| Some(AbsentCell { cell: c.name.clone(), why: c.absent.clone()? });
    Results {
        design: design.clone(),
        absent: cells.iter().filter_map(absent).collect(),
        cells,
        replicates: own.past.replicates,
        samples: own.past.samples,
        marks: own.past.marks,
        stopped: runs.designs.get(at).and_then(|d| StopReason::from_name(d.stopped.as_deref()?)),
    }
}

/// The part of a log for one design, with numbers local to that design, and the number of its first cell.
struct DesignLog {
    first_cell: u64,
    past: PastResults,
}

impl DesignLog {
    fn from_runs(runs: &Runs, at: usize) -> Self {
        let id = at as u64;
        // Cells of a design are adjacent. Its replicates are too, unless some were lost and measured again later.
        let place = |found: Option<usize>, all: usize| found.unwrap_or(all) as u64;
        let first = place(runs.cells.iter().position(|c| c.design == id), runs.cells.len());
        let cells = first..first + runs.cells.iter().filter(|c| c.design == id).count() as u64;
        let own: Vec<(u64, &Run)> = (0..).zip(runs.runs.iter().filter(|r| cells.contains(&r.replicate.cell))).collect();
        let replicate = |(local, run): &(u64, &Run)| {
            let row = &run.replicate;
            Replicate { id: *local, cell: row.cell - first, ..row.clone() }
        };
        let samples = own.iter().flat_map(|(local, r)| r.samples.iter().map(|s| (*local, s)));
        let marks = own.iter().flat_map(|(local, r)| r.marks.iter().map(|m| (*local, m)));
        let absent = runs.cells.iter().filter(|c| c.design == id);
        let past = PastResults {
            replicates: own.iter().map(replicate).collect(),
            samples: samples.map(|(local, s)| Sample { replicate: Some(local), ..s.clone() }).collect(),
            marks: marks.map(|(local, m)| MarkRow { replicate: Some(local), ..m.clone() }).collect(),
            absent: absent.filter_map(|c| Some((c.id - first, c.absent.clone()?))).collect(),
        };
        Self { first_cell: first, past }
    }
}

fn design_row(id: u64, design: &Design) -> Result<DesignRow, Error> {
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
        design: serde_json::to_string(design).map_err(Error::Unwritten)?,
    })
}

impl Sink for Store {
    fn cell(&mut self, row: &DesignCell) -> StoreResult {
        let row = DesignCell { id: self.first_cell + row.id, design: self.design, ..row.clone() };
        // A resumed run sends its cells again, which restores one that was lost.
        if self.runs().cells.get(row.id as usize).is_some_and(|there| !is_lost(there)) {
            return Ok(());
        }
        Ok(self.log.push(Entry::Cell(row))?)
    }
    fn absent(&mut self, cell: u64, why: &str) -> StoreResult {
        Ok(self.log.push(Entry::Absent { cell: self.first_cell + cell, why: why.into() })?)
    }
    fn replicate(&mut self, row: &Replicate, samples: &[Sample], marks: &[MarkRow]) -> StoreResult {
        let id = self.runs().runs.len() as u64;
        let run = Run {
            replicate: Replicate { id, cell: self.first_cell + row.cell, ..row.clone() },
            samples: samples.iter().map(|s| Sample { replicate: s.replicate.map(|_| id), ..s.clone() }).collect(),
            marks: marks.iter().map(|m| MarkRow { replicate: m.replicate.map(|_| id), ..m.clone() }).collect(),
        };
        Ok(self.log.push(Entry::Replicate(Box::new(run)))?)
    }
}

/// Reads the log of an archive; of a damaged one, its intact lines. Its designs are then not finished. The second value describes
/// what is missing.
pub fn read(dir: &Path) -> Result<(Runs, Vec<String>), Error> {
    let mut warnings = Vec::new();
    let (mut runs, damage) = Runs::salvage(dir)?;
    if !damage.is_none() {
        warnings.push(format!(
            "the log of {0} is damaged ({damage}): {1} are intact, and only those are shown. `fathom bench run \
             --resume {2}` measures the rest, and keeps the damaged log",
            dir.shown(),
            model::counted(runs.runs.len(), "process"),
            shell_word(dir),
        ));
        runs.designs.iter_mut().for_each(|design| design.stopped = None);
    }
    for (at, design) in benchmark_designs(&runs).collect::<Vec<_>>() {
        let design = match design {
            Ok(design) => design,
            Err(damaged) => {
                warnings.push(format!("{}: {damaged}; so whether processes are missing is unknown", dir.shown()));
                continue;
            }
        };
        let gaps = design_results(&runs, at, &design).missing_count();
        if gaps > 0 && runs.designs[at].stopped.take().is_some() {
            warnings.push(format!(
                "{} of {} are missing in {}: `fathom bench run --resume {}` measures them",
                model::counted(gaps, "process"),
                design.name,
                dir.shown(),
                shell_word(dir),
            ));
        }
    }
    Ok((runs, warnings))
}

/// Checks that tables made from the log would hold everything that the existing tables do.
///
/// # Errors
/// [`Error::LogCut`]: they would not.
pub fn check_keeps_tables(dir: &Path, runs: &Runs) -> Result<(), Error> {
    let rows = |index: Index| index.rows.get(Replicate::TABLE.name).copied().unwrap_or(0);
    let tabled = Index::read(dir).map_or(0, rows);
    let logged = runs.runs.len() as u64;
    if logged < tabled { Err(Error::LogCut { dir: dir.into(), logged, tabled }) } else { Ok(()) }
}

/// Returns `meta.json` of an archive whose tables were made from its log.
pub fn meta_with_tables(meta: Meta, runs: &Runs) -> Meta {
    Meta {
        linked: true,
        complete: !runs.designs.is_empty() && runs.designs.iter().all(|d| d.stopped.is_some()),
        table_version: model::table::TABLE_VERSION,
        ..meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_design_is_a_warning_and_a_network_run_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::create(dir.path()).unwrap();
        let text = "name = 'w'\nquestion = '?'\nmetric = 'wall'\nbetter = 'lower'\nbaseline = 'a'\nblocks = 2\nseed = 1
            [[cell]]\nname = 'a'\nargv = ['a']\n[[cell]]\nname = 'a again'\nsame_as = 'a'";
        let good = design_row(0, &Design::parse("w.toml", text).unwrap()).unwrap();
        for (id, name, design) in [(0, NET_RUN, "{}"), (1, "w", good.design.as_str()), (2, "torn", "{")] {
            let row = DesignRow { id, name: name.into(), design: design.into(), ..good.clone() };
            store.push(Entry::Design(row)).unwrap();
        }
        let (mut runs, warnings) = read(dir.path()).unwrap();
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.contains("the design torn in the archive is damaged"), "{warning}");
        assert!(comparisons(&runs).is_err_and(|why| why.to_string().contains("torn")));
        runs.designs.pop();
        assert_eq!(comparisons(&runs).unwrap().len(), 1);
    }
}
