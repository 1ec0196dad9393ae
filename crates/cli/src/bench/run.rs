//! `fathom bench run`.

use super::eta;
use super::suite;
use super::{machine, results};
use crate::{args, notices, output, progress};
use analysis::bench::{self as estimates, Penalty, Process, Score};
use anyhow::{Context as _, Result, bail};
use archive::runs::Entry;
use archive::{Archive, ArchiveKind, Meta};
use clap::Parser as _;
use device::{Count, Local, Look, Readings};
use experiment::catalog::{self, Runnable};
use experiment::eta::{Eta, Part};
use experiment::selection::{self, Selection};
use experiment::store::Store;
use experiment::{Design, Disk, DiskWanted, Results, Setting};
use lab::loopdisk::{Backing, FileSystem, LoopDisk, Options};
use model::table::MarkRow;
use model::{Context, counted};
use std::collections::{BTreeSet, HashMap};
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
    let selection = Selection {
        runnable,
        named: !args.what.is_empty(),
        parameters: args.parameters.clone(),
        dirs: dirs.to_vec(),
        quick: args.quick,
        blocks: args.blocks,
        budget: args.budget,
        precision: args.precision,
        seed: args.seed,
    };
    Ok(selection::designs(&selection, archive::unix_now_ns() % 1_000_000_000)?)
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
    let (store, warning) = experiment::resume::resume(dir, &machine::facts)?;
    if let Some(warning) = warning {
        eprintln!("fathom: {warning}");
    }
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
