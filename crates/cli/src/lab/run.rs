//! `fathom lab run`: runs a scenario in a guest, and reports the result in one line; or the scenarios of a series, with their figure.

use super::{as_usage, explain_missing, host_paths};
use crate::{args, destination, link, output, papers, progress};
use anyhow::{Context as _, Result};
use lab::directory;
use lab::run::{Ending, NotStarted, Options};
use lab::scenario::{self, Scenario, Series};
use lab::show::{is_success, sentence, to_json};
use model::Context;
use model::text::ShownPath as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The page of a series, in its directory.
const PAGE_FILE_NAME: &str = "papers.md";

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// As the scenario expects.
    Well,
    /// Otherwise.
    Badly,
    /// The user interrupted it.
    Interrupted,
}

/// The end of a run, and whether its recording can be read.
struct ScenarioOutcome {
    end: End,
    recorded: bool,
}

pub fn run(args: &args::LabRun) -> Result<ExitCode> {
    if let Some((series, settings)) = scenario::find_series(&args.scenario) {
        return run_series(args, series, settings);
    }
    let (name, scenario) = scenario::find(&args.scenario, &args.set).map_err(as_usage)?;
    let directory = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.lab")));
    let done = run_scenario(args, &name, &scenario, &directory)?;
    if done.recorded && !args.json {
        let archive = output::word(&directory.join(lab::run::ARCHIVE_NAME));
        eprintln!("next: fathom show {archive}, or fathom report {archive}");
    }
    Ok(exit_status(done.end))
}

fn exit_status(end: End) -> ExitCode {
    match end {
        End::Well => ExitCode::SUCCESS,
        End::Badly => ExitCode::FAILURE,
        End::Interrupted => ExitCode::from(output::INTERRUPTED_STATUS),
    }
}

/// Runs a series: a run that ends badly does not keep the others from running.
fn run_series(args: &args::LabRun, series: &Series, mut settings: Vec<String>) -> Result<ExitCode> {
    settings.extend_from_slice(&args.set);
    // A wrong setting is reported before anything boots.
    let find = |word: &str| scenario::find(word, &settings).map_err(as_usage);
    let all = series.runs.iter().map(|(name, word)| Ok((*name, find(word)?.1))).collect::<Result<Vec<_>>>()?;
    let directory = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.lab", series.name)));
    for (_, scenario) in &all {
        lab::guest::check_available(scenario.machine.arch).map_err(explain_missing)?;
    }
    claim_directory(&directory, series)?;
    let mut end = End::Well;
    let mut archives = Vec::new();
    for (name, scenario) in &all {
        let own = directory.join(format!("{name}.lab"));
        let done = run_scenario(args, name, scenario, &own)?;
        if done.recorded {
            archives.push(own.join(lab::run::ARCHIVE_NAME));
        }
        match done.end {
            End::Well => {}
            End::Badly => end = End::Badly,
            End::Interrupted => {
                end = End::Interrupted;
                break;
            }
        }
    }
    if archives.is_empty() {
        return Ok(exit_status(end));
    }
    let command = format!("fathom lab run {}", output::word(Path::new(&args.scenario)));
    let figure =
        papers::figure_page(series.figure, &archives, &command, "made in virtual machines; not run on Android")?;
    let page = directory.join(PAGE_FILE_NAME);
    destination::write_text(&page, &figure)?;
    if !args.json {
        output::print_text(&format!("\n{figure}"));
    }
    eprintln!("fathom: the figure is in {}", page.shown());
    Ok(exit_status(end))
}

/// Creates the directory of a series, unless it is that of an earlier run, whose results are then kept.
fn claim_directory(directory: &Path, series: &Series) -> Result<()> {
    let known = |name: &str| {
        let run = name.strip_suffix(".old").unwrap_or(name).strip_suffix(".lab").unwrap_or_default();
        name == PAGE_FILE_NAME || series.runs.iter().any(|(own, _)| *own == run)
    };
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.shown()))?;
    for entry in std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.shown()))? {
        if !entry?.file_name().to_str().is_some_and(known) {
            return Err(directory::DirectoryError::Foreign(directory.into()).into());
        }
    }
    Ok(())
}

/// Runs one scenario, and prints the result.
fn run_scenario(args: &args::LabRun, name: &str, scenario: &Scenario, directory: &Path) -> Result<ScenarioOutcome> {
    let (cache, program) = host_paths(&args.host)?;
    // Before an earlier result is moved.
    lab::guest::check_available(scenario.machine.arch).map_err(explain_missing)?;
    // No other run may write into it until this one ends.
    let _own = directory::create_result(directory)?;
    let context = progress::context(args.json);
    progress::end_on_signal(&context);
    let options = Options { cache: &cache, program: &program, directory, keep: args.keep };
    let outcome = lab::run::run(scenario, &options, &context);
    progress::clear(&context);
    if outcome.is_err() {
        // Removes the directory only if it is empty.
        let _ = std::fs::remove_dir(directory);
    }
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(NotStarted::Wrong(error)) => return Err(as_usage(error)),
        Err(NotStarted::Lab(_)) if context.cancelled() => {
            eprintln!("fathom: interrupted before the guest had booted");
            return Ok(ScenarioOutcome { end: End::Interrupted, recorded: false });
        }
        Err(NotStarted::Lab(error)) => return Err(explain_missing(error)),
    };
    // A user who interrupted the run gets the partial result, and can interrupt this step as well.
    let recording = super::recording::read_recording(directory, &|path| Ok(link::open(path, &Context::silent())?));
    let well = is_success(scenario, &outcome.ending, recording.as_ref());
    if args.json {
        let line = to_json(name, directory, &outcome, recording.as_ref(), well);
        output::print_text(&(serde_json::to_string(&line)? + "\n"));
    } else {
        println!("{}", sentence(name, directory, &outcome, recording.as_ref(), well));
    }
    let end = match (well, &outcome.ending) {
        (true, _) => End::Well,
        (false, Ending::Interrupted) => End::Interrupted,
        (false, _) => End::Badly,
    };
    Ok(ScenarioOutcome { end, recorded: recording.as_ref().is_some_and(|r| r.problem.is_none()) })
}
