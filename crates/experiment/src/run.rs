//! Runs a design: blocks, order, disks, scratch folders; gives rows to the sink as they are made.

use crate::process::{self, Background, Outcome};
use crate::results::{Absent, Results};
use crate::{Cell, Design, DiskWanted, Error, Fresh, needs, template};
use model::Context;
use model::table::{DesignCell, Replicate, Sample};
use stats::random::Random;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// After so many failures in a row a cell is given up, so that a peer that cannot run here costs minutes and not hours.
const PATIENCE: u64 = 3;

/// A disk that a design asked for; removed when dropped.
pub trait Disk {
    /// Where it is mounted.
    fn path(&self) -> &Path;
    /// The block device.
    fn device(&self) -> &Path;
}

/// Makes a disk, or says why it cannot.
pub type MakeDisk<'a> = dyn FnMut(&DiskWanted) -> Result<Box<dyn Disk>, String> + 'a;

/// Where a design runs.
pub struct Setting<'a> {
    /// Variables of the design's words: at least `fathom`, the path of this program. `disk`, `device`, `scratch` (a folder
    /// of the replicate's own, removed after it) and `shared` (a folder of the cell's own) are added.
    pub variables: BTreeMap<String, String>,
    /// Folder in which scratch folders are made; in memory, lest the peers' own output compete for the disk.
    pub scratch: PathBuf,
    /// Makes the disk that the design asks for.
    pub make_disk: &'a mut MakeDisk<'a>,
}

impl<'a> Setting<'a> {
    /// A setting for the program at `fathom`, with scratch folders in memory where /dev/shm allows.
    pub fn new(fathom: &Path, make_disk: &'a mut MakeDisk<'a>) -> Self {
        let memory = PathBuf::from("/dev/shm");
        Self {
            variables: BTreeMap::from([("fathom".into(), fathom.to_string_lossy().into_owned())]),
            scratch: if memory.is_dir() { memory } else { std::env::temp_dir() },
            make_disk,
        }
    }
}

/// Takes rows as they are made; an archive's writer is one.
pub trait Sink {
    /// A cell; all come before the first replicate.
    fn cell(&mut self, row: &DesignCell) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
    /// A replicate, when it has ended.
    fn replicate(&mut self, row: &Replicate) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
    /// A sample of the replicate just given.
    fn sample(&mut self, row: &Sample) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}

/// Runs `design`. Cancelling ends the replicate that runs and keeps what was measured ([`Results::complete`] is false).
///
/// # Errors
/// The baseline cannot run here, a disk or folder cannot be made, or the sink refuses a row. A cell's failure is no
/// error: it is in the results.
pub fn run(
    design: &Design,
    setting: &mut Setting<'_>,
    context: &Context,
    sink: &mut dyn Sink,
) -> Result<Results, Error> {
    let mut runner = Runner {
        results: Results::new(design),
        shared: BTreeMap::new(),
        failures: BTreeMap::new(),
        disk: None,
        design,
        setting,
        context,
        sink,
    };
    runner.prepare()?;
    runner.blocks()?;
    Ok(runner.results)
}

struct Runner<'a, 'b> {
    design: &'a Design,
    setting: &'a mut Setting<'b>,
    context: &'a Context,
    sink: &'a mut dyn Sink,
    results: Results,
    /// The cells' own folders, by place in the design.
    shared: BTreeMap<usize, Scratch>,
    /// Failures in a row.
    failures: BTreeMap<usize, u64>,
    disk: Option<Box<dyn Disk>>,
}

impl Runner<'_, '_> {
    /// Makes the cells' folders, runs their setups, and tells which cells are absent.
    fn prepare(&mut self) -> Result<(), Error> {
        for (at, cell) in self.design.cells.iter().enumerate() {
            let row = DesignCell {
                id: at as u64,
                name: cell.name.clone(),
                factors: serde_json::json!(cell.factors).to_string(),
                argv: serde_json::json!(self.unfolded(cell)).to_string(),
            };
            self.sink.cell(&row).map_err(Error::Sink)?;
            self.results.cells.push(row);
        }
        if self.design.disk.as_ref().is_some_and(|d| d.fresh == Fresh::Run) {
            self.renew_disk()?;
        }
        for (at, cell) in self.design.cells.iter().enumerate() {
            let folder = Scratch::new(&self.setting.scratch)?;
            self.shared.insert(at, folder);
            let dir = cell.dir.as_deref().unwrap_or(Path::new("."));
            let why = match cell.needs.iter().find_map(|need| needs::unmet(need, dir)) {
                Some(why) => Some(why),
                None => self.set_up(at, cell)?,
            };
            if let Some(why) = why {
                self.give_up(at, why)?;
            }
        }
        Ok(())
    }

    /// The cell's command with lists taken in and variables as they were written, for the record.
    fn unfolded(&self, cell: &Cell) -> Vec<String> {
        let list = |word: &String| match word.strip_prefix('@').and_then(|name| self.design.words.get(name)) {
            Some(list) => list.clone(),
            None => vec![word.clone()],
        };
        cell.argv.iter().flat_map(list).collect()
    }

    /// Runs the cell's setup; the reason if it failed.
    fn set_up(&mut self, at: usize, cell: &Cell) -> Result<Option<String>, Error> {
        let scratch = Scratch::new(&self.setting.scratch)?;
        for words in &cell.setup {
            self.context.progress(&format!("{}: setting up {}", self.design.name, cell.name), 0, 0);
            let argv = match template::expand(words, &self.design.words, &self.variables(at, &scratch)) {
                Ok(argv) => argv,
                Err(why) => return Ok(Some(why)),
            };
            if let Some(why) = process::run(&argv, self.timeout(), &|| self.context.cancelled()).failure {
                return Ok(Some(format!("its setup failed: {why}")));
            }
        }
        Ok(None)
    }

    fn blocks(&mut self) -> Result<(), Error> {
        let design = self.design;
        let mut random = Random::new(design.seed);
        let total = (design.warmup + design.blocks) * design.cells.len() as u64;
        for block in 0..design.warmup + design.blocks {
            // Every cell takes part in the drawing, so that the order does not depend on which peers are installed.
            let mut order: Vec<usize> = (0..design.cells.len()).collect();
            random.shuffle(&mut order);
            if design.disk.as_ref().is_some_and(|d| d.fresh == Fresh::Block) {
                self.renew_disk()?;
            }
            for (place, at) in order.into_iter().enumerate() {
                if self.context.cancelled() {
                    return Ok(());
                }
                let done = block * design.cells.len() as u64 + place as u64;
                self.context.progress(&format!("{}: {}", design.name, design.cells[at].name), done, total);
                if !self.results.is_absent(&design.cells[at].name) {
                    self.replicate(at, block, place as u64)?;
                }
            }
        }
        self.results.complete = !self.context.cancelled();
        Ok(())
    }

    fn replicate(&mut self, at: usize, block: u64, place: u64) -> Result<(), Error> {
        if self.design.disk.as_ref().is_some_and(|d| d.fresh == Fresh::Replicate) {
            self.renew_disk()?;
        }
        let cell = &self.design.cells[at];
        let mut outcome = self.process(at, cell)?;
        if outcome.failure.is_none() && !outcome.lines.iter().any(|l| l.metric == self.design.metric) {
            outcome.failure = Some(format!("it printed no {}", self.design.metric));
        }
        let row = Replicate {
            id: self.results.replicates.len() as u64,
            cell: at as u64,
            block,
            place,
            start_ns: outcome.start_ns,
            end_ns: outcome.end_ns,
            exit: outcome.exit,
            verified: outcome.verified,
            warmup: block < self.design.warmup,
            failure: outcome.failure.clone(),
        };
        self.sink.replicate(&row).map_err(Error::Sink)?;
        let duration = process::Line {
            metric: "process.duration".into(),
            unit: "ns".into(),
            t: Some(row.end_ns),
            v: (row.end_ns - row.start_ns) as f64,
            labels: String::new(),
        };
        for line in outcome.lines.into_iter().chain([duration]) {
            let sample = Sample {
                replicate: Some(row.id),
                metric: line.metric,
                unit: line.unit,
                labels: line.labels,
                time_ns: line.t,
                value: line.v,
            };
            self.sink.sample(&sample).map_err(Error::Sink)?;
            self.results.samples.push(sample);
        }
        self.results.replicates.push(row);
        let failures = self.failures.entry(at).or_default();
        *failures = if outcome.failure.is_some() { *failures + 1 } else { 0 };
        match outcome.failure {
            Some(why) if *failures >= PATIENCE && !self.context.cancelled() => {
                self.give_up(at, format!("given up after {PATIENCE} failures in a row: {why}"))
            }
            _ => Ok(()),
        }
    }

    fn process(&self, at: usize, cell: &Cell) -> Result<Outcome, Error> {
        let scratch = Scratch::new(&self.setting.scratch)?;
        let variables = self.variables(at, &scratch);
        let expand = |words| template::expand(words, &self.design.words, &variables);
        let (argv, background) = match (expand(&cell.argv), expand(&cell.background)) {
            (Ok(argv), Ok(background)) => (argv, background),
            (Err(why), _) | (_, Err(why)) => return Ok(Outcome::failed(why)),
        };
        let beside = (!background.is_empty())
            .then(|| Background::start(&background, Duration::from_millis(cell.background_settle_ms)))
            .transpose();
        let _beside = match beside {
            Ok(beside) => beside,
            Err(why) => return Ok(Outcome::failed(why)),
        };
        Ok(process::run(&argv, self.timeout(), &|| self.context.cancelled()))
    }

    fn give_up(&mut self, at: usize, why: String) -> Result<(), Error> {
        let cell = &self.design.cells[at];
        if Some(&cell.name) == self.design.baseline.as_ref() && !self.context.cancelled() {
            let (design, baseline) = (&self.design.name, &cell.name);
            return Err(Error::Setting(format!("design {design}: its baseline {baseline} cannot run: {why}")));
        }
        self.results.absent.push(Absent { cell: cell.name.clone(), why });
        Ok(())
    }

    fn renew_disk(&mut self) -> Result<(), Error> {
        // The old one goes first: there may be room for one only.
        self.disk = None;
        if let Some(wanted) = &self.design.disk {
            let disk = (self.setting.make_disk)(wanted).map_err(Error::Setting)?;
            self.disk = Some(disk);
        }
        Ok(())
    }

    fn variables(&self, at: usize, scratch: &Scratch) -> BTreeMap<String, String> {
        let mut variables = self.setting.variables.clone();
        let mut add = |name: &str, path: &Path| variables.insert(name.into(), path.to_string_lossy().into_owned());
        add("scratch", &scratch.0);
        if let Some(shared) = self.shared.get(&at) {
            add("shared", &shared.0);
        }
        if let Some(disk) = &self.disk {
            add("disk", disk.path());
            add("device", disk.device());
        }
        variables
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.design.timeout_s)
    }
}

/// A folder removed with what is in it.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: &Path) -> Result<Self, Error> {
        let path = parent.join(format!("fathom-bench-{}-{}", std::process::id(), process::now_ns()));
        let told = |e| Error::Setting(format!("cannot make the folder {}: {e}", path.display()));
        std::fs::create_dir(&path).map_err(told)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
