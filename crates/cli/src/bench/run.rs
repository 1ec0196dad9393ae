//! `fathom bench run`.

use super::{eta, results};
use crate::output::{self, INTERRUPTED_STATUS};
use crate::{Usage, args, notices, progress};
use anyhow::{Context as _, Result};
use archive::Meta;
use device::knobs::SavedSettings;
use device::remote::detached;
use experiment::Design;
use experiment::catalog::{self, Runnable};
use experiment::selection::Selection;
use model::text::ShownPath as _;
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
    let fathom = std::env::current_exe().context("cannot find Fathom's own binary")?;
    let steady = args.fixed_performance.then(set_fixed_performance).transpose()?;
    let mut bench = match &args.resume {
        Some(dir) => Bench::resume(dir, &notices::print_runner_notice)?,
        None => {
            // What cannot be run as requested is reported before anything is made.
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
    if steady.is_some() {
        bench.mark("performance", "Android's fixed-performance mode was set for this run")?;
    }
    let (context, eta) = eta::context(args.quiet, bench.eta());
    progress::end_on_signal(&context);
    let MeasuredDesigns { results: all, error: failed } =
        bench.measure(&fathom, !args.sweep.no_wait, (&context, &eta), &notices::print_runner_notice);
    let (dir, failed) = (bench.dir.clone(), failed.map(anyhow::Error::from));
    if let Some(Err(failed)) = steady.map(SavedSettings::restore) {
        failed.iter().for_each(|why| eprintln!("fathom: {}", analysis::text::shown(&why.to_string())));
    }
    // The log has everything; without space for the tables the scores are printed all the same.
    let (runs, without_tables) = match experiment::tables::make(&dir) {
        Ok(made) => (notices::print_warnings(made), None),
        Err(error) => (bench.runs().clone(), Some(error.into())),
    };
    recorder::output::give_to_caller(&dir)?;
    let benchmark = results::evaluate(&runs, &dir);
    let files = &args.files;
    files.print(&results::format_results(&benchmark, &all, &dir, args.sweep.json)?);
    if let Some(error) = without_tables {
        return Err(without_space_for_tables(error, failed, &dir));
    }
    // A page of the results until an interruption would replace a complete one.
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
        return Err(error.context(format!("earlier results are in {}", dir.shown())));
    }
    let complete = benchmark.complete;
    if !complete {
        let rest: String = unwritten.iter().map(|file| format!(" {file}")).collect();
        eprintln!("fathom: interrupted; continue with: fathom {} --resume {}{rest}", args.verb, output::word(&dir));
        return Ok(ExitCode::from(INTERRUPTED_STATUS));
    }
    if !args.quiet {
        results::print_next_steps(&dir);
    }
    let failures = scores::measure::results::failures(&benchmark, &all);
    failures.iter().for_each(|why| eprintln!("fathom: {why}"));
    let failed = nothing || !failures.is_empty();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
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
