//! `fathom check`: a contract of a command's use of files and disk.

use crate::{Usage, args, destination, link, output, progress};
use anyhow::{Result, bail};
use archive::Archive;
use archive::table_maker::Failure;
use model::text::ShownPath as _;
use model::{Context, counted};
use std::path::Path;
use std::process::ExitCode;
use verdicts::check::counted::{Runs, UntracedReason};
use verdicts::check::{self, Contract};

pub fn run(args: &args::Check) -> Result<ExitCode> {
    match &args.verb {
        Some(args::CheckVerb::Record(record)) => self::record(record),
        None => compare(args),
    }
}

fn open_archive(path: &Path) -> Result<Archive, Failure> {
    Ok(link::open(path, &Context::silent())?)
}

/// Prints what is not counted without tracing.
fn print_blind(why: &UntracedReason) {
    eprintln!(
        "fathom: not traced ({why}): only read and write calls and their bytes, of all files and pipes together, are counted; \
         syncs, statements, kinds of file and device commands are not"
    );
}

fn record(args: &args::CheckRecord) -> Result<ExitCode> {
    let context = Context::silent();
    progress::end_on_signal(&context);
    let runs = Runs::new(&args.command, args.prepare.as_deref(), &context, &open_archive)?;
    let learned = runs.learn(args.runs, !args.no_trace, &print_blind)?;
    let contract = Contract::learn(args.command.clone(), args.prepare.clone(), &learned.traced, &learned.untraced);
    if let Some(unnoticed) = check::proof::unnoticed_sync(&contract, &learned.traced) {
        bail!(
            "no contract was made: {unnoticed}; make the command repeatable (--prepare 'COMMAND' runs before each run), or check a part of it"
        );
    }
    destination::write_text(&args.output, &contract.to_toml()?)?;
    if destination::is_stdout(&args.output) {
        return Ok(ExitCode::SUCCESS);
    }
    recorder::output::give_to_caller(&args.output)?;
    println!(
        "{}: {}, in {} of {}; {}",
        args.output.shown(),
        contract.sentence(),
        counted(args.runs as usize, "run"),
        runs.shown(),
        contract.notices()
    );
    Ok(ExitCode::SUCCESS)
}

fn compare(args: &args::Check) -> Result<ExitCode> {
    let contract = verdicts::check::counted::read_contract(&args.file)?;
    let command = if args.command.is_empty() { &contract.command } else { &args.command };
    if command.is_empty() {
        return Err(Usage(format!("{} names no command: give it after --", args.file.shown())).into());
    }
    let context = Context::silent();
    progress::end_on_signal(&context);
    let runs = Runs::new(command, args.prepare.as_deref().or(contract.prepare.as_deref()), &context, &open_archive)?;
    let outcome = runs.compare(&contract, !args.no_trace, &print_blind)?;
    output::print_result(args.json, &outcome, || check::text::text(&outcome))?;
    Ok(if outcome.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
