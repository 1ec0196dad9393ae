//! `fathom bench run`.

use super::{eta, results};
use crate::output::{self, INTERRUPTED_STATUS};
use crate::{Usage, args, notices, progress};
use anyhow::{Context as _, Result};
use archive::Meta;
use device::knobs::SavedSettings;
use device::remote::detached;
use experiment::catalog::{self, Runnable};
use experiment::selection::Selection;
use experiment::{Design, Results};
use model::text::ShownPath as _;
use scores::Benchmark;
use scores::measure::run::{Bench, MeasuredDesigns, find};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Reports any error in the request as wrong usage.
fn as_usage(error: impl Into<anyhow::Error>) -> Usage {
    Usage(crate::error_sentence(&error.into()))
}

/// Sets Android's fixed-performance mode until the result is dropped.
fn set_fixed_performance() -> Result<SavedSettings, device::performance::Error> {
    let directory = std::env::var_os(detached::DIRECTORY_VARIABLE).map_or_else(std::env::temp_dir, PathBuf::from);
    device::performance::enable_fixed(&detached::undo_notes(&directory))
}

pub fn run(args: &args::BenchRun) -> Result<ExitCode> {
    let fixed_performance = args.fixed_performance.then(set_fixed_performance).transpose()?;
    let mut bench = open_bench(args)?;
    if fixed_performance.is_some() {
        bench.mark("performance", "Android's fixed-performance mode was set for this run")?;
    }
    let measured = measure(&mut bench, args)?;
    if let Some(Err(failed)) = fixed_performance.map(SavedSettings::restore) {
        failed.iter().for_each(|why| eprintln!("fathom: {}", analysis::text::shown(&why.to_string())));
    }
    let run = evaluate_run(&bench, measured)?;
    args.files.print(&results::format_results(&run.benchmark, &run.results, &run.dir, args.sweep.json)?);
    if let Some(error) = run.table_error {
        return Err(without_space_for_tables(error, run.error, &run.dir));
    }
    let unwritten = write_files(args, &run)?;
    conclude(args, run, &unwritten)
}

/// What was measured, and what follows from it.
struct EvaluatedRun {
    dir: PathBuf,
    results: Vec<Results>,
    benchmark: Benchmark,
    /// What ended the run early, other than an interruption.
    error: Option<anyhow::Error>,
    /// Why there are no tables: no space. The log has everything.
    table_error: Option<anyhow::Error>,
}

impl EvaluatedRun {
    fn is_empty(&self) -> bool {
        self.benchmark.results.iter().all(|r| r.estimate.processes == 0)
    }

    fn has_ended(&self) -> bool {
        self.benchmark.complete && self.error.is_none()
    }
}

/// Creates the archive, or opens the one to resume. What cannot be run as requested is reported before anything is made.
fn open_bench(args: &args::BenchRun) -> Result<Bench> {
    let mut bench = match &args.resume {
        Some(dir) => Bench::resume(dir, &notices::print_runner_notice)?,
        None => {
            let directories = scores::measure::run::parse_directories(&args.dir).map_err(as_usage)?;
            let chosen = choose_designs(args, &directories).map_err(as_usage)?;
            notices::keep_old(&args.output, args.quiet)?;
            Bench::create(&args.output, chosen, &directories, &notices::print_runner_notice)?
        }
    };
    if args.resume.is_some() && bench.is_finished() {
        eprintln!("fathom: {}", bench.finished_message());
    }
    if args.why {
        bench.record_why()?;
    }
    Ok(bench)
}

fn measure(bench: &mut Bench, args: &args::BenchRun) -> Result<MeasuredDesigns> {
    let fathom = std::env::current_exe().context("cannot find Fathom's own binary")?;
    let (context, eta) = eta::context(args.quiet, bench.eta());
    progress::end_on_signal(&context);
    Ok(bench.measure(&fathom, !args.sweep.no_wait, (&context, &eta), &notices::print_runner_notice))
}

/// Makes the tables and computes the scores; without space for the tables, from the log.
fn evaluate_run(bench: &Bench, measured: MeasuredDesigns) -> Result<EvaluatedRun> {
    let dir = bench.dir.clone();
    let (runs, table_error) = match experiment::tables::make(&dir) {
        Ok(made) => (notices::print_warnings(made), None),
        Err(error) => (bench.runs().clone(), Some(error.into())),
    };
    recorder::output::give_to_caller(&dir)?;
    let benchmark = results::evaluate(&runs, &dir);
    let error = measured.error.map(anyhow::Error::from);
    Ok(EvaluatedRun { dir, results: measured.results, benchmark, error, table_error })
}

/// Writes the requested files, and returns the names of those that were not: a page of the results until an interruption would replace a
/// complete one.
fn write_files(args: &args::BenchRun, run: &EvaluatedRun) -> Result<Vec<String>> {
    let unwritten = if run.has_ended() && !run.is_empty() { Vec::new() } else { args.files.names() };
    if unwritten.is_empty() {
        let kept = || format!("everything measured is kept: fathom bench show {}", output::word(&run.dir));
        let names = design_names(args, &run.dir);
        args.files.write(&run.benchmark, &run.results, Some(&names)).with_context(kept)?;
    } else {
        let why = if run.has_ended() { "nothing was measured" } else { "the run is incomplete" };
        eprintln!("fathom: not written: {} ({why})", unwritten.join(" and "));
    }
    Ok(unwritten)
}

/// Says how the run ended, and what to do next.
fn conclude(args: &args::BenchRun, run: EvaluatedRun, unwritten: &[String]) -> Result<ExitCode> {
    let is_empty = run.is_empty();
    if let Some(error) = run.error {
        return Err(error.context(format!("earlier results are in {}", run.dir.shown())));
    }
    if !run.benchmark.complete {
        let rest: String = unwritten.iter().map(|file| format!(" {file}")).collect();
        let dir = output::word(&run.dir);
        eprintln!("fathom: interrupted; continue with: fathom {} --resume {dir}{rest}", args.verb);
        return Ok(ExitCode::from(INTERRUPTED_STATUS));
    }
    if !args.quiet {
        results::print_next_steps(&run.dir);
    }
    let failures = scores::measure::results::failures(&run.benchmark, &run.results);
    failures.iter().for_each(|why| eprintln!("fathom: {why}"));
    Ok(if is_empty || !failures.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The designs to run; for a resumed run, those of its archive.
fn design_names(args: &args::BenchRun, dir: &Path) -> Vec<String> {
    let words = || args::parse_bench_run(Meta::read(dir).ok()?.command.get(1..)?).ok();
    if args.resume.is_some() { words().unwrap_or_default().what } else { args.what.clone() }
}

/// The error if there was no space for the tables: what is kept, and what to do. `before` is the error that had ended the
/// run, if any.
fn without_space_for_tables(error: anyhow::Error, before: Option<anyhow::Error>, dir: &Path) -> anyhow::Error {
    let log = archive::runs::path(dir);
    let what = format!(
        "the scores were computed from {0}, which is kept; the tables could not be written. With more free space, \
         run fathom reindex {1} here or on a copy elsewhere; fathom bench run --resume {1} runs what is missing",
        log.shown(),
        dir.shown()
    );
    before.unwrap_or(error).context(what)
}

/// The designs that the command line names, and which values were replaced by others since they cannot run here.
fn choose_designs(args: &args::BenchRun, dirs: &[(String, PathBuf)]) -> Result<(Vec<Design>, Vec<String>)> {
    let runnable: Vec<Runnable> = if args.what.is_empty() {
        catalog::all()?.into_iter().map(Runnable::Workload).collect()
    } else {
        args.what.iter().map(|word| find(word, args.verb == "net sweep")).collect::<Result<_, _>>()?
    };
    let selection = Selection {
        runnable,
        named: !args.what.is_empty(),
        parameters: args.sweep.parameters.clone(),
        dirs: dirs.to_vec(),
        quick: args.sweep.quick,
        blocks: args.sweep.blocks,
        budget: args.sweep.budget,
        precision: args.precision,
        seed: args.sweep.seed,
    };
    Ok(scores::measure::run::choose_designs(&selection)?)
}
