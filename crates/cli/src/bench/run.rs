//! `fathom bench run`.

use super::eta;
use super::suite;
use super::{machine, results};
use crate::{args, notices, output, progress};
use analysis::bench::{self as estimates, Penalty, Process, Score};
use anyhow::{Context as _, Result, bail};
use archive::runs::Entry;
use archive::{Archive, ArchiveKind, Meta, Runs};
use clap::Parser as _;
use device::{Count, Local, Look, Readings};
use experiment::catalog::{self, Runnable};
use experiment::eta::{Eta, Part};
use experiment::store::{self, Store};
use experiment::{Choices, Design, Disk, DiskWanted, Results, Setting, Workload, needs};
use lab::loopdisk::{Backing, FileSystem, LoopDisk, Options};
use model::table::MarkRow;
use model::{Context, counted};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long the machine is looked at before each process: six ticks of a processor's counters.
const LOOK: Duration = Duration::from_millis(60);

/// The exit status of a run that was interrupted.
pub const INTERRUPTED: u8 = 130;

pub fn run(args: &args::BenchRun) -> Result<ExitCode> {
    if !args.devices.device.is_empty() {
        return crate::device::bench(args);
    }
    let fathom = std::env::current_exe().context("where this program is")?;
    // What cannot be run as it was asked for is told before anything is made.
    let asked = folders(&args.dir).and_then(|dirs| match args.resume {
        Some(_) => Ok((dirs, (Vec::new(), Vec::new()))),
        None => Ok((dirs.clone(), chosen(args, &dirs)?)),
    });
    let (dirs, (designs, instead)) = match asked {
        Ok(asked) => asked,
        Err(error) => {
            eprintln!("fathom: {}", crate::sentence(&error));
            return Ok(ExitCode::from(2));
        }
    };
    let (dir, mut store, designs) = match &args.resume {
        Some(dir) => {
            let store = resume(dir)?;
            let designs = store.designs()?;
            (dir.clone(), store, designs)
        }
        None => {
            let mut store = create(args, &designs, &dirs)?;
            for text in instead {
                eprintln!("fathom: {text}");
                store.push(Entry::Mark(MarkRow { replicate: None, name: "instead".into(), text }))?;
            }
            (args.output.clone(), store, designs)
        }
    };
    if args.resume.is_some() && designs.iter().enumerate().all(|(at, design)| store.finished(at, design).is_some()) {
        print_finished(&dir, &store);
    }
    let (context, eta) = eta::context(args.quiet, Eta::new(designs.iter().map(Part::of).collect()));
    progress::end_on_signal(&context);
    let why = wants_why(args, &dir)?;
    let begun = Instant::now();
    let mut all = Vec::new();
    let mut failed = None;
    for (at, design) in designs.iter().enumerate() {
        if let Some(done) = store.finished(at, design) {
            all.push(done);
            continue;
        }
        if let Ok(mut eta) = eta.lock() {
            eta.begin(at, begun.elapsed());
        }
        match one(design, at, &fathom, (why.clone(), !args.no_wait), &context, &mut store) {
            Ok(results) => all.push(results),
            // What was measured until then is kept, and shown, before the error is.
            Err(error) => failed = Some(error),
        }
        if failed.is_some() || context.cancelled() {
            break;
        }
    }
    progress::clear(&context);
    // The log has everything; without room for the tables the scores are told all the same.
    let (runs, without_tables) = match experiment::tables::make(&dir) {
        Ok(made) => (notices::warned(made), None),
        Err(error) => (store.runs().clone(), Some(error.into())),
    };
    recorder::output::give_to_caller(&dir)?;
    let benchmark = results::of(&runs, &dir, &Context::silent());
    let files = results::Files::new(args.csv.as_deref(), args.markdown.as_deref());
    files.print(&match args.json {
        true => results::json(&benchmark, &all, &dir)?,
        false => results::text(&benchmark, &all),
    });
    if let Some(error) = without_tables {
        return Err(cut_off(error, failed, &dir));
    }
    // A page of what was measured until an interruption would take the place of a whole one.
    let nothing = benchmark.results.iter().all(|r| r.estimate.processes == 0);
    let whole = benchmark.complete && failed.is_none() && !nothing;
    let unwritten = if whole { Vec::new() } else { files.names() };
    if !unwritten.is_empty() {
        let ended = benchmark.complete && failed.is_none();
        let why = if ended { "nothing was measured" } else { "the run is incomplete" };
        eprintln!("fathom: not written: {} ({why})", unwritten.join(" and "));
    } else {
        let what = design_names(args, &dir);
        files
            .write(&benchmark, &all, Some(&what))
            .with_context(|| format!("everything measured is kept: fathom bench show {}", output::word(&dir)))?;
    }
    if let Some(error) = failed {
        return Err(error.context(format!("earlier results are in {}", dir.display())));
    }
    let complete = benchmark.complete;
    if !complete {
        let rest: String = unwritten.iter().map(|file| format!(" {file}")).collect();
        eprintln!("fathom: interrupted; continue with: fathom {} --resume {}{rest}", args.verb, output::word(&dir));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    if !args.quiet {
        eprintln!(
            "fathom: results are in {0}. Show: fathom bench show {0}. Draw: fathom report {0}. Compare: fathom bench \
             compare {0} OTHER.fathom",
            output::word(&dir)
        );
    }
    let mut failed = nothing;
    // One that cannot be run here (no Java) is told and is no failure; one that failed again and again is.
    for given_up in benchmark.results.iter().filter(|r| r.estimate.failed > 0) {
        if let Some(why) = &given_up.estimate.absent {
            let shown = analysis::text::shown;
            eprintln!("fathom: {} {}: {}", shown(&given_up.workload), shown(&given_up.name), shown(why));
            failed = true;
        }
    }
    for results in &all {
        if let Some(absent) = results.without_baseline() {
            eprintln!("fathom: {} was not compared: {} is missing: {}", results.design.name, absent.cell, absent.why);
            failed = true;
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What was to be run: of a run that goes on, what its archive was made for.
fn design_names(args: &args::BenchRun, dir: &Path) -> Vec<String> {
    let words = || {
        let meta = Meta::read(dir).ok()?;
        match args::Cli::try_parse_from(meta.command).ok()?.verb {
            args::Verb::Bench(args::Bench { verb: args::BenchVerb::Run(first) }) => Some(first.what),
            _ => None,
        }
    };
    if args.resume.is_some() { words().unwrap_or_default() } else { args.what.clone() }
}

/// There was no room for the tables: what that leaves, and what to do. `before` is what had ended the run, if anything did.
fn cut_off(error: anyhow::Error, before: Option<anyhow::Error>, dir: &Path) -> anyhow::Error {
    let log = archive::runs::path(dir);
    let what = format!(
        "the scores were computed from {0}, which is kept; the tables could not be written. With more free space, \
         run fathom reindex {1} here or on a copy elsewhere; fathom bench run --resume {1} runs what is missing",
        log.display(),
        dir.display()
    );
    before.unwrap_or(error).context(what)
}

/// Says that there is nothing to go on with, and how to get what may have been wanted.
fn print_finished(dir: &Path, store: &Store) {
    let blocks = |r: &archive::runs::Run| (!r.replicate.warmup).then_some(r.replicate.block);
    let blocks = store.runs().runs.iter().filter_map(blocks).collect::<BTreeSet<u64>>().len();
    if blocks == 0 {
        eprintln!(
            "fathom: {} is complete, but none of it could run, for the reasons shown. Start a new run when they are \
             fixed",
            dir.display()
        );
        return;
    }
    eprintln!(
        "fathom: {} is complete ({}, {}): nothing is left to run, showing its results. For more blocks, start a new \
         run with --blocks N and another -o: a run that ended by its stopping rule is not extended, since continuing \
         after a look at the result produces false positives",
        dir.display(),
        counted(store.runs().runs.len(), "process"),
        counted(blocks, "block"),
    );
}

/// Runs a design, or the rest of it: where recordings go, if they are wanted, and whether gates may wait.
fn one(
    design: &Design,
    at: usize,
    fathom: &Path,
    (why, wait): (Option<PathBuf>, bool),
    context: &Context,
    store: &mut Store,
) -> Result<Results> {
    let mut make = |wanted: &DiskWanted| make_disk(wanted);
    let (mut sensors, mut counts) = (sensors, counts);
    let mut scores = scorer(design);
    let mut setting = Setting::new(fathom, &mut make);
    setting.sensors = Some(&mut sensors);
    setting.counts = Some(&mut counts);
    setting.half_widths = Some(&mut scores);
    setting.wait = wait;
    setting.why = why;
    setting.past = store.begin(at);
    clean(design, &setting);
    let results = experiment::run(design, &mut setting, context, store)?;
    if let Some(stopped) = results.stopped.filter(|_| !context.cancelled()) {
        store.end(at, stopped)?;
    }
    Ok(results)
}

/// Removes what killed runs left where this one makes its folders.
pub fn clean(design: &Design, setting: &Setting<'_>) {
    for parent in experiment::parents(design, setting) {
        let removed = experiment::clean(&parent);
        if removed > 0 {
            eprintln!(
                "fathom: removed {} in {}, left behind by a killed run",
                counted(removed, "folder"),
                parent.display()
            );
        }
    }
}

/// Looks at the machine while nothing of ours runs.
pub fn sensors() -> Readings {
    let before = Look::now(&Local);
    std::thread::sleep(LOOK);
    Readings::now(&Local, &before)
}

/// Counts what others do.
pub fn counts() -> Count {
    Count::now(&Local, std::process::id())
}

/// For each cell of `design` the half-width of its interval so far. A process is judged once.
fn scorer(design: &Design) -> impl FnMut(&Results) -> Vec<Option<f64>> {
    let of_cell = |cell: &experiment::Cell| {
        let plan = design.plan.as_ref();
        Score {
            of: plan.map_or("value", |p| p.score.of.name()).into(),
            metric: design.metric(cell).into(),
            unit: None,
            scale: 1.0,
        }
    };
    let scores: Vec<Score> = design.cells.iter().map(of_cell).collect();
    let mut known: HashMap<u64, Option<Process>> = HashMap::new();
    move |results: &Results| {
        let mut samples: HashMap<u64, Vec<&model::table::Sample>> = HashMap::new();
        let out = estimates::disturbed::left_out(&results.replicates);
        for sample in &results.samples {
            if let Some(id) = sample.replicate.filter(|id| !known.contains_key(id) && !out.contains(id)) {
                samples.entry(id).or_default().push(sample);
            }
        }
        let counting = || results.replicates.iter().filter(|r| estimates::counts(r) && !out.contains(&r.id));
        for (id, own) in samples {
            let score = counting().find(|r| r.id == id).and_then(|r| scores.get(r.cell as usize));
            known.insert(id, score.and_then(|score| estimates::process(score, Penalty::default(), id, &own)));
        }
        (0..scores.len() as u64)
            .map(|cell| {
                let own = counting().filter(|r| r.cell == cell);
                let processes: Vec<&Process> = own.filter_map(|r| known.get(&r.id)?.as_ref()).collect();
                estimates::half_width(&processes)
            })
            .collect()
    }
}

/// The folders of --dir: name and path.
fn folders(words: &[String]) -> Result<Vec<(String, PathBuf)>> {
    let mut all: Vec<(String, PathBuf)> = Vec::new();
    for word in words {
        // A folder whose own name has an equals sign is still a folder.
        let (name, path) = match word.split_once('=').filter(|_| !Path::new(word).is_dir()) {
            Some((name, path)) => (name, path),
            None => (word.as_str(), word.as_str()),
        };
        let found = std::fs::canonicalize(path).with_context(|| format!("--dir {path}"))?;
        if !found.is_dir() {
            bail!("--dir {path}: not a folder");
        }
        if all.iter().any(|(other, _)| other == name) {
            bail!("--dir: {name} is given twice; name the folders, such as internal=/data");
        }
        all.push((name.into(), found));
    }
    Ok(all)
}

/// The designs that the command line asks for, and which values gave way to others since they cannot run here.
fn chosen(args: &args::BenchRun, dirs: &[(String, PathBuf)]) -> Result<(Vec<Design>, Vec<String>)> {
    let runnable: Vec<Runnable> = if args.what.is_empty() {
        catalog::all()?.into_iter().map(Runnable::Workload).collect()
    } else {
        let find = if args.verb == "net sweep" { suite::find_sweep } else { suite::find };
        args.what.iter().map(|word| find(word)).collect::<Result<_>>()?
    };
    let workloads: Vec<&Workload> = runnable
        .iter()
        .filter_map(|r| match r {
            Runnable::Workload(workload) => Some(workload),
            Runnable::Comparison(_) => None,
        })
        .collect();
    for (name, _) in &args.parameters {
        if !workloads.iter().any(|w| of_parameter(name, w).is_some()) {
            bail!(
                "-p {name}: no selected workload has this parameter; `fathom bench list{}` lists the parameters",
                workloads.iter().map(|w| format!(" {}", w.name)).collect::<String>()
            );
        }
    }
    let mut gave_way = Vec::new();
    let fileless: Vec<&str> = runnable
        .iter()
        .filter_map(|one| match one {
            Runnable::Workload(workload) if workload.factors.iter().any(|f| f.folder) => None,
            Runnable::Workload(workload) => Some(workload.name.as_str()),
            Runnable::Comparison(design) => Some(design.name.as_str()),
        })
        .collect();
    if !dirs.is_empty() && !fileless.is_empty() && !args.what.is_empty() {
        let (names, has) = (fileless.join(", "), if fileless.len() == 1 { "has" } else { "have" });
        if fileless.len() == runnable.len() {
            bail!("--dir: {names} {has} no files on storage under test; omit it, or select a workload that has");
        }
        gave_way.push(format!("--dir does not apply to {names}, which {has} no files on storage under test"));
    }
    let own = |w: &Workload| Duration::from_secs(if args.quick { w.quick.budget_s } else { w.run.budget_s });
    let sum: Duration = workloads.iter().map(|w| own(w)).sum();
    let seed = args.seed.unwrap_or_else(|| archive::unix_now_ns() % 1_000_000_000);
    let mut designs: Vec<Design> = Vec::new();
    for one in &runnable {
        let design = match one {
            Runnable::Workload(workload) => {
                let mut factors = BTreeMap::new();
                for (name, values) in &args.parameters {
                    if let Some(factor) = of_parameter(name, workload) {
                        factors.insert(factor.to_string(), values.clone());
                    }
                }
                let choices = Choices {
                    factors,
                    dirs: dirs.to_vec(),
                    quick: args.quick,
                    blocks: args.blocks,
                    seed,
                    budget: args.budget.map(|all| all.mul_f64(own(workload).as_secs_f64() / sum.as_secs_f64())),
                    precision: args.precision,
                    unmet: unmet(workload, dirs),
                };
                gave_way.extend(experiment::instead(workload, &choices));
                experiment::expand(workload, &choices)?
            }
            Runnable::Comparison(design) => {
                let mut design = design.clone();
                design.blocks = args.blocks.unwrap_or(design.blocks);
                design.seed = args.seed.unwrap_or(design.seed);
                design
            }
        };
        if designs.iter().any(|d| d.name == design.name) {
            bail!("{} is given twice", design.name);
        }
        designs.push(design);
    }
    Ok((designs, gave_way))
}

/// What the values of a workload's factors need and this machine, or one of the folders, does not have.
fn unmet(workload: &Workload, dirs: &[(String, PathBuf)]) -> BTreeSet<String> {
    let here = [PathBuf::from(".")];
    let folders: Vec<&PathBuf> =
        if dirs.is_empty() { here.iter().collect() } else { dirs.iter().map(|d| &d.1).collect() };
    let needs: BTreeSet<&String> = workload.factors.iter().flat_map(|f| f.needs.values().flatten()).collect();
    let lacking = |need: &&&String| folders.iter().any(|folder| needs::unmet(need, folder).is_some());
    needs.iter().filter(lacking).map(|need| need.to_string()).collect()
}

/// The factor of `workload` that a parameter `FACTOR` or `WORKLOAD.FACTOR` names.
fn of_parameter<'a>(name: &'a str, workload: &Workload) -> Option<&'a str> {
    let factor = match name.split_once('.') {
        Some((only, factor)) if only == workload.name => factor,
        Some(_) => return None,
        None => name,
    };
    workload.factor(factor).map(|_| factor)
}

fn create(args: &args::BenchRun, designs: &[Design], dirs: &[(String, PathBuf)]) -> Result<Store> {
    notices::keep_old(&args.output, args.quiet)?;
    let meta = Meta::new(ArchiveKind::Bench, archive::unix_now_ns(), std::env::args().collect());
    Archive::create(&args.output, &meta, true)?;
    let mut store = Store::create(&args.output)?;
    store.push(Entry::Machine(machine::facts(dirs)))?;
    store.plan(designs)?;
    Ok(store)
}

/// Opens an archive to go on with it, and writes down what has changed since.
fn resume(dir: &Path) -> Result<Store> {
    let archive = Archive::open(dir)?;
    if archive.meta().kind != ArchiveKind::Bench {
        bail!("{} is {}, not a benchmark: nothing to resume", dir.display(), archive.meta().kind);
    }
    // The tables are made from the log again at the end.
    store::keeps_tables(dir, &Runs::salvage(dir)?.0)?;
    let (mut store, warning) = Store::resume(dir)?;
    if let Some(warning) = warning {
        eprintln!("fathom: {warning}");
    }
    if store.runs().designs.is_empty() {
        bail!("{} was interrupted before its designs were stored; start a new run", dir.display());
    }
    let designs = store.designs()?;
    if designs.iter().enumerate().all(|(at, design)| store.finished(at, design).is_some()) {
        return Ok(store);
    }
    let dirs: Vec<(String, PathBuf)> = designs
        .iter()
        .flat_map(|d| &d.cells)
        .filter_map(|c| Some((c.factors.get("dir")?.clone(), c.dir.clone()?)))
        .collect::<BTreeMap<_, _>>()
        .into_iter()
        .collect();
    let now = machine::facts(&dirs);
    let before = store.runs().machines.last().cloned().unwrap_or_default();
    if let Some(other) = experiment::machine::other_storage(&before, &now).filter(|_| !dirs.is_empty()) {
        bail!(
            "{}: the folders under test are on different storage now: {other}. Mount the original storage and \
             resume, or start a new run",
            dir.display()
        );
    }
    let text = match experiment::machine::differences(&before, &now) {
        Some(changed) => format!("on a machine that has changed: {changed}"),
        None => "on the same machine, as far as is known".into(),
    };
    store.push(Entry::Machine(now))?;
    store.push(Entry::Mark(MarkRow { replicate: None, name: "resumed".into(), text }))?;
    Ok(store)
}

/// The folder for recordings, if they are asked for now or were when the run began.
fn wants_why(args: &args::BenchRun, dir: &Path) -> Result<Option<PathBuf>> {
    let folder = dir.join(results::WHY);
    if args.why {
        // Of the archive that had this place before.
        if folder.exists() {
            std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
        }
        std::fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
    }
    Ok((args.why || args.resume.is_some() && folder.is_dir()).then_some(folder))
}

struct RamDisk(LoopDisk);

impl Disk for RamDisk {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn device(&self) -> &Path {
        self.0.device()
    }
}

fn make_disk(wanted: &DiskWanted) -> Result<Box<dyn Disk>, Box<dyn std::error::Error + Send + Sync>> {
    if wanted.kind != "loop-ram-ext4" {
        return Err(format!("unknown kind of disk {}; expected loop-ram-ext4", wanted.kind).into());
    }
    let disk = LoopDisk::create(wanted.size_mib << 20, FileSystem::Ext4, &Backing::Ram, &Options::default())
        .map_err(|e| format!("cannot create a disk in memory: {e} (this needs root)"))?;
    Ok(Box::new(RamDisk(disk)))
}
