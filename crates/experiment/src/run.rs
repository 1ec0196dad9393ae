//! Runs a design: blocks, order, gates, disks, directories; passes rows to the sink as they are produced.

use crate::gate::{self, Gate, Signal, WaitLimits};
use crate::process::{self, Background, Outcome};
use crate::results::{AbsentCell, Results, StopReason};
use crate::scratch::Scratch;
use crate::suite::ScoreKind;
use crate::{Cell, Design, DiskLifetime, DiskRequest, Error, disturbed, needs, order, template, units};
use device::{ActivityCount, Readings};
use model::Context;
use model::table::{DesignCell, MarkRow, Replicate, Sample};
use model::text::ShownPath as _;
use stats::stop::{self, Rule};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod ready;
mod replay;

use ready::ReadyProcess;
pub use replay::PastResults;
use replay::Replay;

/// Number of consecutive failures after which a cell is given up, so that a peer that cannot run here costs minutes and not hours.
const FAILURES_MAX: u64 = 3;
/// How often the sensors are read while a gate waits.
const GATE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a gate may wait before one process: half a minute cools most phones by some degrees.
const GATE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same in a quick run.
const GATE_TIMEOUT_QUICK: Duration = Duration::from_secs(2);
/// The total waiting time of a design is limited to this share of its budget,
const GATE_BUDGET_SHARE_MAX: f64 = 0.1;
/// and to this time; a comparison has no budget,
const GATE_TOTAL_TIMEOUT: Duration = Duration::from_secs(120);
/// and is limited to this time for each of its blocks.
const GATE_BLOCK_TIMEOUT: Duration = Duration::from_secs(6);

/// A disk requested by a design; removed on drop.
pub trait Disk {
    /// The mount point.
    fn path(&self) -> &Path;
    /// The block device.
    fn device(&self) -> &Path;
}

/// Makes a disk, or returns why it cannot. Errors are opaque: a run without its disk ends, whatever the reason.
pub type MakeDisk<'a> = dyn FnMut(&DiskRequest) -> Result<Box<dyn Disk>, Box<dyn std::error::Error + Send + Sync>> + 'a;

/// Returns, for each cell of a design, the current relative half-width of its interval, if it has one.
pub type HalfWidths<'a> = dyn FnMut(&Results) -> Vec<Option<f64>> + 'a;

/// The environment of a design.
pub struct Setting<'a> {
    /// Variables of the design's words: at least `fathom`, the path of this program. The run adds `disk`, `device`, `design`
    /// (the design's directory), `scratch` (a directory for the replicate, removed after it), `shared` (a directory for the cell), `dir`
    /// and `kept` (the same on the storage under test, the latter for the whole run), `inner` and `block_number`.
    pub variables: BTreeMap<String, String>,
    /// Directory for scratch directories; in memory, so that the peers' own output does not compete for the disk.
    pub scratch: PathBuf,
    /// Makes the disk that the design requests.
    pub make_disk: &'a mut MakeDisk<'a>,
    /// Reads the sensors for the gates; without it there are no gates.
    pub sensors: Option<&'a mut dyn FnMut() -> Readings>,
    /// Counts the activity of others, before and after each process; without it, disturbances are not detected.
    pub counts: Option<&'a mut dyn FnMut() -> ActivityCount>,
    /// Whether gates may wait; if not, a gate that is not passed is only marked.
    pub wait: bool,
    /// Computes the intervals, for a design that stops by precision.
    pub half_widths: Option<&'a mut HalfWidths<'a>>,
    /// The directory for recordings of one process of each cell; without it none is made.
    pub why: Option<PathBuf>,
    /// Results from before an interruption.
    pub past: PastResults,
}

impl<'a> Setting<'a> {
    /// Creates a setting for the program at `fathom`, with scratch directories in memory if /dev/shm exists, without gates.
    pub fn new(fathom: &Path, make_disk: &'a mut MakeDisk<'a>) -> Self {
        let memory = PathBuf::from("/dev/shm");
        Self {
            variables: BTreeMap::from([("fathom".into(), fathom.to_string_lossy().into_owned())]),
            scratch: if memory.is_dir() { memory } else { std::env::temp_dir() },
            make_disk,
            sensors: None,
            counts: None,
            wait: true,
            half_widths: None,
            why: None,
            past: PastResults::default(),
        }
    }
}

/// The result of storing a row.
pub type StoreResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Receives rows as they are produced; the writer of an archive is one.
pub trait Sink {
    /// Receives a cell; all come before the first replicate.
    fn cell(&mut self, row: &DesignCell) -> StoreResult;
    /// Notes that a cell has no, or no further, replicates.
    fn absent(&mut self, cell: u64, why: &str) -> StoreResult;
    /// Receives a replicate, when it has ended, with its output. Those from before an interruption are not passed again.
    fn replicate(&mut self, row: &Replicate, samples: &[Sample], marks: &[MarkRow]) -> StoreResult;
}

/// Keeps no rows: only the results have the measurements.
pub struct Discard;

impl Sink for Discard {
    fn cell(&mut self, _: &DesignCell) -> StoreResult {
        Ok(())
    }
    fn absent(&mut self, _: u64, _: &str) -> StoreResult {
        Ok(())
    }
    fn replicate(&mut self, _: &Replicate, _: &[Sample], _: &[MarkRow]) -> StoreResult {
        Ok(())
    }
}

/// Runs `design`. Cancelling ends the current replicate and keeps what was measured before it ([`Results::complete`] is
/// false); when that is passed as [`Setting::past`], the run continues from there in the same order.
///
/// # Errors
/// A disk or directory cannot be made, or the sink refuses a row. A cell's failure is not an error: it is in the results.
/// Without its baseline a comparison ends, with the reason in all of its cells.
pub fn run(
    design: &Design,
    setting: &mut Setting<'_>,
    context: &Context,
    sink: &mut dyn Sink,
) -> Result<Results, Error> {
    let (once, allowance) = match &design.plan {
        Some(plan) if plan.quick => {
            (GATE_TIMEOUT_QUICK, plan.budget.mul_f64(GATE_BUDGET_SHARE_MAX).min(GATE_TOTAL_TIMEOUT))
        }
        Some(plan) => (GATE_TIMEOUT, plan.budget.mul_f64(GATE_BUDGET_SHARE_MAX).min(GATE_TOTAL_TIMEOUT)),
        None => {
            let blocks = u32::try_from(design.warmup.saturating_add(design.blocks)).unwrap_or(u32::MAX);
            (GATE_TIMEOUT, GATE_BLOCK_TIMEOUT.saturating_mul(blocks).min(GATE_TOTAL_TIMEOUT))
        }
    };
    let allowance = if setting.wait { allowance } else { Duration::ZERO };
    let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    let mut runner = Runner {
        results: Results::new(design),
        shared: BTreeMap::new(),
        kept: BTreeMap::new(),
        storage: BTreeMap::new(),
        failures: BTreeMap::new(),
        inner: BTreeMap::new(),
        not_sized: BTreeMap::new(),
        past: Replay::new(std::mem::take(&mut setting.past)),
        gate: Gate::new(WaitLimits { process_ns: ns(once), design_ns: ns(allowance) }),
        begun_ns: process::now_ns(),
        disk: None,
        progress: RunProgress::default(),
        design,
        setting,
        context,
        sink,
    };
    runner.prepare()?;
    runner.run_blocks()?;
    runner.record_whys()?;
    Ok(runner.results)
}

struct Runner<'a, 'b> {
    design: &'a Design,
    setting: &'a mut Setting<'b>,
    context: &'a Context,
    sink: &'a mut dyn Sink,
    results: Results,
    /// The cells' own directories, by index in the design.
    shared: BTreeMap<usize, Scratch>,
    /// The run's directories on the storage under test.
    kept: BTreeMap<PathBuf, Scratch>,
    /// The file systems of the directories on storage under test, at the start of the run.
    storage: BTreeMap<PathBuf, u64>,
    /// Consecutive failures.
    failures: BTreeMap<usize, u64>,
    /// The inner count of each cell's iterations.
    inner: BTreeMap<usize, String>,
    /// Why a cell's iterations were not sized.
    not_sized: BTreeMap<usize, String>,
    past: Replay,
    gate: Gate,
    begun_ns: u64,
    disk: Option<Box<dyn Disk>>,
    progress: RunProgress,
}

/// The run's progress, as last reported.
#[derive(Default)]
struct RunProgress {
    what: String,
    done: u64,
    total: u64,
}

/// The purpose of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Warmup,
    Count,
}

impl Runner<'_, '_> {
    /// Makes the cells' directories, runs their setups, and reports absent cells.
    fn prepare(&mut self) -> Result<(), Error> {
        for (at, cell) in self.design.cells.iter().enumerate() {
            let row = DesignCell {
                id: at as u64,
                design: 0,
                name: cell.name.clone(),
                factors: serde_json::json!(cell.factors).to_string(),
                argv: serde_json::json!(self.expanded_argv(cell)).to_string(),
                metric: Some(self.design.metric(cell).to_string()),
                same_as: cell.same_as.clone(),
                absent: None,
            };
            self.sink.cell(&row).map_err(Error::Sink)?;
            self.results.cells.push(row);
        }
        if self.design.disk.as_ref().is_some_and(|d| d.fresh == DiskLifetime::Run) {
            self.renew_disk()?;
        }
        for (at, cell) in self.design.cells.iter().enumerate() {
            let directory = Scratch::new(&self.setting.scratch)?;
            self.shared.insert(at, directory);
            let dir = cell.dir.as_deref().unwrap_or(Path::new("."));
            let lacking = match self.past.absent.remove(&(at as u64)) {
                Some(why) => Some(why),
                None => cell.needs.iter().find_map(|need| needs::unmet(need, dir)),
            };
            let why = match lacking.or_else(|| self.make_kept_directory(cell).err()) {
                Some(why) => Some(why),
                // It was given up together with its baseline.
                None if self.results.is_absent(&cell.name) => None,
                None => self.set_up(at, cell)?,
            };
            if let Some(why) = why {
                self.give_up(at, why)?;
            }
        }
        Ok(())
    }

    /// Makes the run's directory on the cell's storage, if the cell's command uses one.
    fn make_kept_directory(&mut self, cell: &Cell) -> Result<(), String> {
        let Some(dir) = &cell.dir else { return Ok(()) };
        // It is better to know before the first block whether anything can be created there.
        let probe = Scratch::new(dir).map_err(|e| e.to_string())?;
        self.storage.insert(dir.clone(), file_system(dir)?);
        let words = self.word_lists(&cell.fill, false);
        let all = cell.argv.iter().chain(words.values().flatten());
        if !self.kept.contains_key(dir) && all.flat_map(|w| template::placeholders(w)).any(|hole| hole == "kept") {
            self.kept.insert(dir.clone(), probe);
        }
        Ok(())
    }

    /// Runs the cell's setup; returns the reason if it failed.
    fn set_up(&mut self, at: usize, cell: &Cell) -> Result<Option<String>, Error> {
        let scratch = Scratch::new(&self.setting.scratch)?;
        for words in &cell.setup {
            self.context.progress(&format!("{}: setting up {}", self.design.name, cell.name), 0, 0);
            let argv = match template::expand(words, &self.design.words, &self.variables(at, &cell.fill, &scratch)) {
                Ok(argv) => argv,
                Err(why) => return Ok(Some(why)),
            };
            if let Some(why) = process::run(&argv, self.timeout(), &|| self.context.cancelled()).failure {
                return Ok(Some(format!("its setup failed: {why}")));
            }
        }
        Ok(None)
    }

    fn run_blocks(&mut self) -> Result<(), Error> {
        let design = self.design;
        let cells = design.cells.len() as u64;
        let mut warm_ns = 0;
        // Every cell is included in the drawing, so that the order does not depend on which peers are installed.
        for (block, order) in (0_u64..).zip(order::blocks(design.seed, design.cells.len())) {
            if self.results.absent.len() >= design.cells.len() {
                self.results.stopped = (!self.context.cancelled()).then_some(StopReason::Nothing);
                return Ok(());
            }
            if design.disk.as_ref().is_some_and(|d| d.fresh == DiskLifetime::Block) {
                self.renew_disk()?;
            }
            let total = design.warmup.saturating_add(design.blocks).max(block + 1).saturating_mul(cells);
            for (place, at) in order.into_iter().enumerate() {
                if self.context.cancelled() {
                    return Ok(());
                }
                self.progress =
                    RunProgress { what: self.describe_progress(block, at), done: block * cells + place as u64, total };
                self.context.progress(&self.progress.what, self.progress.done, total);
                if let Some(run) = self.past.runs.remove(&(block, at as u64)) {
                    let (row, samples, marks) = replay::with_id(run, self.results.replicates.len() as u64);
                    self.add_results(at, row, samples, marks)?;
                } else if !self.results.is_absent(&design.cells[at].name) {
                    self.run_replicate(at, block, place as u64)?;
                }
            }
            if self.context.cancelled() {
                return Ok(());
            }
            let counted = (block + 1).saturating_sub(design.warmup);
            if counted == 0 {
                warm_ns = self.elapsed_ns();
            } else if self.past.has_later_block(block) {
                // What was measured stays part of the result.
            } else if let Some(stopped) = self.stop_reason(counted, warm_ns) {
                self.results.stopped = Some(stopped);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Describes what runs now: there are more blocks than the minimum because an interval is not narrow enough yet.
    fn describe_progress(&self, block: u64, at: usize) -> String {
        let Design { name, warmup, blocks, plan, .. } = self.design;
        let cell = &self.design.cells[at].name;
        match (block + 1).checked_sub(*warmup) {
            None | Some(0) => format!("{name}, warm-up: {cell}"),
            Some(n) if n > *blocks => {
                let wanted = plan.as_ref().map_or(0.0, |plan| plan.precision * 100.0);
                format!("{name}, block {n}, added until every interval is within {wanted} %: {cell}")
            }
            Some(n) if plan.as_ref().is_some_and(|plan| !plan.exactly) => {
                format!("{name}, block {n} of at least {blocks}: {cell}")
            }
            Some(n) => format!("{name}, block {n} of {blocks}: {cell}"),
        }
    }

    /// Whether to stop after this many measured blocks.
    fn stop_reason(&mut self, counted: u64, warm_ns: u64) -> Option<StopReason> {
        let design = self.design;
        let Some(plan) = design.plan.as_ref().filter(|p| !p.exactly) else {
            let spent = design.plan.as_ref().is_some_and(|plan| {
                let elapsed = self.elapsed_ns();
                u128::from(elapsed + elapsed / counted) > plan.budget.as_nanos()
            });
            return if counted >= design.blocks {
                Some(StopReason::Blocks)
            } else {
                spent.then_some(StopReason::Budget)
            };
        };
        let budget_ns = u64::try_from(plan.budget.as_nanos()).unwrap_or(u64::MAX);
        let rule = Rule {
            target: plan.precision,
            least_blocks: usize::try_from(design.blocks).unwrap_or(usize::MAX),
            most_blocks: usize::MAX,
            budget_ns: budget_ns.saturating_sub(warm_ns),
        };
        // Below the minimum number of blocks widths have no effect, and take time to compute.
        let widths = match &mut self.setting.half_widths {
            Some(of) if counted >= design.blocks => of(&self.results),
            _ => vec![None; design.cells.len()],
        };
        let present: Vec<Option<f64>> = design
            .cells
            .iter()
            .zip(widths)
            .filter(|(cell, _)| !self.results.is_absent(&cell.name))
            .map(|(_, width)| width)
            .collect();
        match rule.signal(counted as usize, self.elapsed_ns().saturating_sub(warm_ns), &present) {
            stop::Signal::Continue => None,
            stop::Signal::Precise => Some(StopReason::Precision),
            stop::Signal::Budget => Some(StopReason::Budget),
        }
    }

    fn elapsed_ns(&self) -> u64 {
        self.past.took_ns.saturating_add(process::now_ns().saturating_sub(self.begun_ns))
    }

    fn run_replicate(&mut self, at: usize, block: u64, place: u64) -> Result<(), Error> {
        if self.design.disk.as_ref().is_some_and(|d| d.fresh == DiskLifetime::Replicate) {
            self.renew_disk()?;
        }
        let design = self.design;
        let cell = &design.cells[at];
        let purpose = if block < design.warmup { Purpose::Warmup } else { Purpose::Count };
        let gates = self.pass_gates();
        let (mut outcome, during) = match self.prepare_process(at, cell, &cell.fill, block, purpose)? {
            Ok(ready) => self.run_process(cell, &ready),
            Err(why) => (Outcome::failed(why), None),
        };
        if outcome.interrupted {
            // Half a process is not a result. When the run is resumed, it is started again.
            return Ok(());
        }
        if outcome.failure.is_none() {
            outcome.failure = self.unify(cell, &mut outcome.lines).err();
        }
        if outcome.failure.is_none() {
            outcome.failure = self.output_error(cell, purpose, &outcome);
        }
        let (row, samples, marks) = self.to_rows(at, block, place, outcome);
        let all: gate::Marks = gates.into_iter().chain(during).flatten().collect();
        let gates = (!all.is_empty()).then(|| serde_json::to_string(&all).ok()).flatten();
        let row = Replicate { warmup: purpose == Purpose::Warmup, gates, ..row };
        self.sink.replicate(&row, &samples, &marks).map_err(Error::Sink)?;
        self.add_results(at, row, samples, marks)
    }

    /// Converts the metric to the unit that its score expects, or in which it was first printed.
    fn unify(&self, cell: &Cell, lines: &mut [process::Line]) -> Result<(), String> {
        let metric = self.design.metric(cell);
        let score = self.design.plan.as_ref().map(|plan| &plan.score).filter(|score| score.of != ScoreKind::Rate);
        let expected = score.and_then(|score| units::expected_unit(score.unit.as_deref()?, score.scale));
        let first = || self.results.samples.iter().find(|s| s.metric == metric).map(|s| s.unit.as_str());
        units::unify_units(lines, metric, expected.or_else(first))
    }

    /// Returns what makes a score from a process's output impossible.
    fn output_error(&self, cell: &Cell, purpose: Purpose, outcome: &Outcome) -> Option<String> {
        let metric = self.design.metric(cell);
        let plan = self.design.plan.as_ref();
        if plan.is_some_and(|p| p.sizing.is_some()) && purpose == Purpose::Warmup {
            let found =
                outcome.marks.iter().any(|(name, text)| name == "inner" && text.parse::<u64>().is_ok_and(|n| n > 0));
            return (!found).then(|| "it printed no `inner` mark with the count that it chose".into());
        }
        let mut values = outcome.lines.iter().filter(|l| l.metric == metric).map(|l| l.v).peekable();
        if values.peek().is_none() {
            return Some(format!("it printed no {metric}"));
        }
        let plan = plan?;
        if plan.score.of != ScoreKind::Value
            && let Some(v) = values.find(|v| *v <= 0.0)
        {
            return Some(format!("it printed a {metric} of {v}, which is not a valid time"));
        }
        let work: BTreeSet<u64> = outcome.lines.iter().filter(|l| l.metric == "work").map(|l| l.v.to_bits()).collect();
        match (plan.score.of, work.len(), work.first().map(|bits| f64::from_bits(*bits))) {
            (ScoreKind::Rate, 1, Some(v)) if v > 0.0 => None,
            (ScoreKind::Rate, 0, _) => Some("no `work` metric was printed, so no rate can be computed".into()),
            (ScoreKind::Rate, 1, v) => Some(format!("it printed an invalid amount of work: {}", v.unwrap_or_default())),
            (ScoreKind::Rate, ..) => Some("it printed varying amounts of work".into()),
            _ => None,
        }
    }

    /// Converts a process's output to rows.
    fn to_rows(&self, at: usize, block: u64, place: u64, outcome: Outcome) -> (Replicate, Vec<Sample>, Vec<MarkRow>) {
        let id = self.results.replicates.len() as u64;
        let row = Replicate {
            id,
            cell: at as u64,
            block,
            place,
            start_ns: outcome.start_ns,
            end_ns: outcome.end_ns,
            start_unix_ns: Some(outcome.start_unix_ns),
            exit: outcome.exit,
            verified: outcome.verified,
            verified_by: outcome.verified_by,
            warmup: false,
            why: None,
            gates: None,
            failure: outcome.failure,
        };
        let duration = process::Line {
            metric: "process.duration".into(),
            unit: "ns".into(),
            t: Some(row.end_ns),
            v: row.end_ns.saturating_sub(row.start_ns) as f64,
            labels: String::new(),
        };
        let sample = |line: process::Line| Sample {
            replicate: Some(id),
            metric: line.metric,
            unit: line.unit,
            labels: line.labels,
            time_ns: line.t,
            value: line.v,
        };
        let samples = outcome.lines.into_iter().chain([duration]).map(sample).collect();
        let mark = |(name, text)| MarkRow { replicate: Some(id), name, text };
        (row, samples, outcome.marks.into_iter().map(mark).collect())
    }

    /// Adds a replicate to the results, a new one or one from before an interruption.
    fn add_results(
        &mut self,
        at: usize,
        row: Replicate,
        samples: Vec<Sample>,
        marks: Vec<MarkRow>,
    ) -> Result<(), Error> {
        if let Some(inner) = marks.iter().find(|m| m.name == "inner").filter(|_| row.warmup) {
            self.inner.insert(at, inner.text.clone());
        }
        if let Some(marks) = row.gates.as_ref().and_then(|text| serde_json::from_str(text).ok()) {
            self.gate.restore_first_readings(&marks);
        }
        let failure = row.failure.clone();
        if let Some(why) = failure.as_ref().filter(|_| row.warmup) {
            self.not_sized.insert(at, why.clone());
        }
        self.results.replicates.push(row);
        self.results.samples.extend(samples);
        self.results.marks.extend(marks);
        let failures = self.failures.entry(at).or_default();
        *failures = if failure.is_some() { *failures + 1 } else { 0 };
        let failures = *failures;
        match failure {
            _ if self.results.is_absent(&self.design.cells[at].name) => Ok(()),
            Some(why) if failures >= FAILURES_MAX && !self.context.cancelled() => {
                self.give_up(at, format!("given up after {FAILURES_MAX} consecutive failures: {why}"))
            }
            _ => Ok(()),
        }
    }

    /// Waits until the machine is in the required state, up to the limits; returns the gates, if there are any.
    fn pass_gates(&mut self) -> Option<gate::Marks> {
        let sensors = self.setting.sensors.as_mut()?;
        loop {
            match self.gate.signal(process::now_ns(), &sensors()) {
                Signal::Wait(what) if !self.context.cancelled() => {
                    // Shown instead of the cell: the progress and the time left stay visible.
                    let text = format!("{} (waiting for the machine: {what})", self.progress.what);
                    self.context.progress(&text, self.progress.done, self.progress.total);
                    std::thread::sleep(GATE_POLL_INTERVAL);
                }
                Signal::Wait(_) => return None,
                Signal::Go(marks) | Signal::GiveUp(marks) => return Some(marks),
            }
        }
    }

    /// Runs a process to its end; returns what others did meanwhile, if that is counted.
    fn run_process(&mut self, cell: &Cell, ready: &ReadyProcess) -> (Outcome, Option<gate::Marks>) {
        let beside = (!ready.background.is_empty())
            .then(|| Background::start(&ready.background, Duration::from_millis(cell.background_settle_ms)))
            .transpose();
        let beside = match beside {
            Ok(beside) => beside,
            Err(why) => return (Outcome::failed(why.to_string()), None),
        };
        let before = self.setting.counts.as_mut().map(|counts| counts());
        let outcome = process::run(&ready.argv, self.timeout(), &|| self.context.cancelled());
        let after = self.setting.counts.as_mut().map(|counts| counts());
        let wall_s = outcome.end_ns.saturating_sub(outcome.start_ns) as f64 / 1e9;
        let marks = before.zip(after).map(|(before, after)| {
            disturbed::judge(wall_s, &after.since(&before), &outcome.resource_use, beside.is_some())
        });
        (outcome, marks)
    }

    /// Records one process of each cell that can be recorded, if requested.
    fn record_whys(&mut self) -> Result<(), Error> {
        let Some(directory) = self.setting.why.clone().filter(|_| self.results.complete()) else { return Ok(()) };
        let design = self.design;
        let block = self.results.replicates.iter().map(|r| r.block + 1).max().unwrap_or(0);
        for (at, cell) in design.cells.iter().enumerate() {
            let Some(fill) = cell.why.as_ref().filter(|_| !self.results.is_absent(&cell.name)) else { continue };
            if self.context.cancelled() {
                return Ok(());
            }
            if let Some(run) = self.past.whys.remove(&(at as u64)) {
                let (row, samples, marks) = replay::with_id(run, self.results.replicates.len() as u64);
                self.results.replicates.push(row);
                self.results.samples.extend(samples);
                self.results.marks.extend(marks);
                continue;
            }
            self.context.progress(&format!("{}: recording {}", design.name, cell.name), 0, 0);
            let name = format!("{}-{at}.fathom", design.name);
            // Whatever prevents a recording is reported as its reason of failure.
            let outcome = match self.prepare_process(at, cell, fill, block, Purpose::Count)? {
                Ok(ready) => self.run_process(cell, &self.wrap_in_recorder(ready, &directory.join(&name))).0,
                Err(why) => Outcome::failed(why),
            };
            if outcome.interrupted {
                return Ok(());
            }
            let (row, samples, marks) = self.to_rows(at, block, at as u64, outcome);
            let row = Replicate { why: Some(name), ..row };
            self.sink.replicate(&row, &samples, &marks).map_err(Error::Sink)?;
            self.results.replicates.push(row);
            self.results.samples.extend(samples);
            self.results.marks.extend(marks);
        }
        Ok(())
    }

    /// Gives up a cell. With a baseline all others are given up, since nothing is left to compare them with.
    fn give_up(&mut self, at: usize, why: String) -> Result<(), Error> {
        let name = &self.design.cells[at].name;
        if self.results.is_absent(name) {
            return Ok(());
        }
        if !self.context.cancelled() {
            self.sink.absent(at as u64, &why).map_err(Error::Sink)?;
        }
        self.results.absent.push(AbsentCell { cell: name.clone(), why });
        if Some(name) == self.design.baseline.as_ref() && !self.context.cancelled() {
            for other in (0..self.design.cells.len()).filter(|other| *other != at) {
                self.give_up(other, format!("nothing to compare with: {name} cannot run"))?;
            }
        }
        Ok(())
    }

    fn renew_disk(&mut self) -> Result<(), Error> {
        // The old one is removed first: there may be room for only one.
        self.disk = None;
        if let Some(wanted) = &self.design.disk {
            let disk = (self.setting.make_disk)(wanted).map_err(Error::Disk)?;
            self.disk = Some(disk);
        }
        Ok(())
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.design.timeout_s)
    }
}

/// Returns the directories in which a run of `design` makes directories of its own: those left there by killed runs may be
/// [cleaned](crate::remove_leftovers).
pub fn parents(design: &Design, setting: &Setting<'_>) -> BTreeSet<PathBuf> {
    design.cells.iter().filter_map(|cell| cell.dir.clone()).chain([setting.scratch.clone()]).collect()
}

/// Returns the number of the file system of a directory, as long as it is mounted.
fn file_system(dir: &Path) -> Result<u64, String> {
    std::fs::metadata(dir).map(|m| m.dev()).map_err(|e| format!("cannot inspect {}: {e}", dir.shown()))
}
