//! The verbs that show results: `bench compare`, `bench history`, `bench show`.

use super::results;
use crate::args::ResultFiles;
use crate::{args, destination, link, notices, output, progress};
use anyhow::Result;
use archive::Archive;
use model::text::ShownPath as _;
use scores::comparability::Rules;
use scores::regressions::check_regressions;
use scores::results::Bench;
use scores::{self, Benchmark, Penalty, compare_text, history};
use std::path::Path;
use std::process::ExitCode;

/// The benchmark in an archive.
pub fn load(path: &Path) -> Result<Bench> {
    Ok(scores::measure::archives::load(path, &|path| Ok(link::open(path, &progress::context(true))?))?)
}

/// The same, with its processes classified as the user wants.
fn load_classified(path: &Path, penalty: Penalty) -> Result<Bench> {
    Ok(Bench { penalty, ..load(path)? })
}

/// The same for a comparison, in which disturbed processes may count like others.
fn load_for_comparison(path: &Path, args: &args::BenchCompare) -> Result<Bench> {
    let mut bench = load_classified(path, args.penalty)?;
    if args.even_disturbed {
        scores::disturbance::ignore_disturbances(&mut bench.tables.replicates);
    }
    Ok(bench)
}

/// Its results; recorded processes are explained.
fn evaluate_archive(path: &Path, penalty: Penalty) -> Result<Benchmark> {
    let context = progress::context(true);
    let bench = load_classified(path, penalty)?;
    Ok(scores::benchmark(&bench.tables, bench.penalty, &|name| results::explain(path, name, &context)))
}

pub fn show(args: &args::BenchShow) -> Result<ExitCode> {
    let benchmark = evaluate_archive(&args.archive, args.penalty)?;
    // The ratios of a comparison follow from its design, which only the log holds. Tables of version 1 came without one.
    let comparisons = match Archive::open(&args.archive)?.meta().table_version {
        ..2 => {
            eprintln!(
                "fathom: {} has tables of version 1, which name no design, so there are no scores; \
                 `fathom export --csv` gives what its processes printed",
                args.archive.shown()
            );
            Vec::new()
        }
        _ => experiment::store::comparisons(&notices::print_warnings(experiment::store::read(&args.archive)?))?,
    };
    let files = &args.files;
    files.print(&results::format_results(&benchmark, &comparisons, &args.archive, args.json)?);
    files.write(&benchmark, &comparisons, None)?;
    Ok(ExitCode::SUCCESS)
}

pub fn plan(args: &args::BenchPlan) -> Result<ExitCode> {
    let all = scores::plan::plan(&load(&args.archive)?, args.precision, args.difference);
    let value = serde_json::json!({
        "version": 1, "archive": args.archive, "precision": args.precision, "difference": args.difference, "results": all,
    });
    output::print_result(args.json, &value, || scores::plan::text(&all, args.precision, args.difference))?;
    Ok(ExitCode::SUCCESS)
}

pub fn compare(args: &args::BenchCompare) -> Result<ExitCode> {
    let a = load_for_comparison(&args.a, args)?;
    let rules = Rules { better: args.better, other_commands: args.other_commands };
    let b = args.b.as_deref().map(|b| load_for_comparison(b, args)).transpose()?;
    let done = scores::measure::archives::compare_benchmarks(&a, b.as_ref(), args.by.as_deref(), &rules)?;
    if let Some(path) = &args.markdown {
        destination::write_text(path, &compare_text::markdown(&done))?;
    }
    let text = if args.json { serde_json::to_string_pretty(&done)? + "\n" } else { compare_text::text(&done) };
    ResultFiles { markdown: args.markdown.clone(), ..ResultFiles::default() }.print(&text);
    let shown = analysis::text::shown;
    // A build without a comparison, or without one of the cell that became slower, must not pass for one that is no
    // slower.
    for cell in &done.incomparable {
        eprintln!("fathom: not compared: {}: {}", shown(&cell.title()), shown(&cell.why.join("; ")));
    }
    if done.results.is_empty() {
        if done.incomparable.is_empty() {
            eprintln!("fathom: nothing was compared: the archives have no cell with the same workload and parameters");
        }
        return Ok(ExitCode::from(1));
    }
    let Some(percent) = args.fail_on else { return Ok(ExitCode::SUCCESS) };
    let verdict = check_regressions(&done, percent);
    for line in verdict.lines {
        eprintln!("fathom: {line}");
    }
    Ok(if verdict.passed { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

pub fn history(args: &args::BenchHistory) -> Result<ExitCode> {
    let mut benches = Vec::new();
    for path in scores::measure::archives::expand_directories(&args.paths)? {
        let mut bench = load(&path)?;
        if args.even_disturbed {
            scores::disturbance::ignore_disturbances(&mut bench.tables.replicates);
        }
        benches.push(bench);
    }
    let done = history::history(benches);
    output::print_result(args.json, &done, || history::text(&done))?;
    Ok(ExitCode::SUCCESS)
}
