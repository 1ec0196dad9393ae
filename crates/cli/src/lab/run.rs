//! `fathom lab run`: runs a scenario in a guest, and reports the result in one line.

use super::{explained, host, usage};
use crate::{args, link, output, progress};
use anyhow::Result;
use lab::folder;
use lab::run::{Ending, NotStarted, Options};
use lab::scenario;
use lab::show::{contract, is_well, sentence};
use model::Context;
use std::path::PathBuf;
use std::process::ExitCode;

pub fn run(args: &args::LabRun) -> Result<ExitCode> {
    let (name, scenario) = scenario::find(&args.scenario, &args.set).map_err(usage)?;
    let (cache, program) = host(&args.host)?;
    let folder = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.lab")));
    // Before an earlier result is moved.
    lab::guest::available(scenario.machine.arch).map_err(explained)?;
    // No other run may write into it until this one ends.
    let _own = folder::result(&folder)?;
    let context = progress::context(args.json);
    progress::end_on_signal(&context);
    let options = Options { cache: &cache, program: &program, folder: &folder, keep: args.keep };
    let outcome = lab::run::run(&scenario, &options, &context);
    progress::clear(&context);
    if outcome.is_err() {
        // Removes the folder only if it is empty.
        let _ = std::fs::remove_dir(&folder);
    }
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(NotStarted::Wrong(error)) => return Err(usage(error)),
        Err(NotStarted::Lab(_)) if context.cancelled() => {
            eprintln!("fathom: interrupted before the guest had booted");
            return Ok(ExitCode::from(crate::output::INTERRUPTED));
        }
        Err(NotStarted::Lab(error)) => return Err(explained(error)),
    };
    // A user who interrupted the run gets the partial result, and can interrupt this step as well.
    let recording = runner::guest::recording(&folder, &|path| Ok(link::open(path, &Context::silent())?));
    let well = is_well(&scenario, &outcome.ending, recording.as_ref());
    if args.json {
        let line = contract(&name, &folder, &outcome, recording.as_ref(), well);
        output::text(&(serde_json::to_string(&line)? + "\n"));
    } else {
        println!("{}", sentence(&name, &folder, &outcome, recording.as_ref(), well));
        if recording.as_ref().is_some_and(|r| r.problem.is_none()) {
            let archive = output::word(&folder.join(lab::run::ARCHIVE));
            eprintln!("next: fathom show {archive}, or fathom report {archive}");
        }
    }
    Ok(match (well, &outcome.ending) {
        (true, _) => ExitCode::SUCCESS,
        (false, Ending::Interrupted) => ExitCode::from(crate::output::INTERRUPTED),
        (false, _) => ExitCode::FAILURE,
    })
}
