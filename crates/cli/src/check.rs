//! `fathom check`: a contract of what a command asks of files and disk.

use crate::{Usage, args, link, output};
use analysis::check::contract::BPF;
use analysis::check::{self, Contract, Outcome};
use anyhow::{Context as _, Result};
use archive::table_maker::Failure;
use archive::{Archive, atomic_file};
use model::{Context, counted};
use runner::check::{Runs, Traced};
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &args::Check) -> Result<ExitCode> {
    match &args.verb {
        Some(args::CheckVerb::Record(record)) => self::record(record),
        None => compare(args),
    }
}

fn open(path: &Path) -> Result<Archive, Failure> {
    Ok(link::open(path, &Context::silent())?)
}

/// Says what is not counted without tracing.
fn print_blind(why: &str) {
    eprintln!(
        "fathom: not traced ({why}): only calls that read and write, and their bytes, of all files and pipes together, are counted; \
         syncs, statements, kinds of file and device commands are not"
    );
}

fn record(args: &args::CheckRecord) -> Result<ExitCode> {
    let runs = Runs::new(&args.command, args.prepare.as_deref(), &open)?;
    // Of the first run, what is cached or compiled meanwhile is not asked again.
    runs.untraced()?;
    let untraced = (0..args.runs).map(|_| runs.untraced()).collect::<Result<Vec<_>, _>>()?;
    let mut traced = Vec::new();
    if args.no_trace {
        print_blind("--no-trace");
    } else {
        for _ in 0..args.runs {
            match runs.traced()? {
                Traced::Counted(observed) => traced.push(observed),
                Traced::Impossible(why) => {
                    print_blind(&why);
                    break;
                }
            }
        }
    }
    let contract = Contract::learn(args.command.clone(), args.prepare.clone(), &traced, &untraced);
    atomic_file::text(&args.output, &contract.to_toml()?)?;
    recorder::output::give_to_caller(&args.output)?;
    let (statements, counts) = contract.size();
    let varied = match contract.varied() {
        0 => String::new(),
        n => format!(", {n} that varied"),
    };
    println!(
        "{}: {}{varied}, of {}, in {} of {}",
        args.output.display(),
        counted(counts, "exact count"),
        counted(statements, "statement"),
        counted(args.runs as usize, "run"),
        runs.shown()
    );
    Ok(ExitCode::SUCCESS)
}

fn compare(args: &args::Check) -> Result<ExitCode> {
    let file = args.file.display();
    let text = std::fs::read_to_string(&args.file)
        .with_context(|| format!("{file}: no contract; make one: fathom check record -o {file} -- CMD"))?;
    let contract = Contract::parse(&text).with_context(|| format!("{file} is no contract"))?;
    let command = if args.command.is_empty() { &contract.command } else { &args.command };
    if command.is_empty() {
        return Err(Usage(format!("{file} names no command: give it after --")).into());
    }
    let runs = Runs::new(command, args.prepare.as_deref().or(contract.prepare.as_deref()), &open)?;
    let outcome = match compared(args, &contract, &runs)? {
        Ok(outcome) => outcome,
        Err(why) => {
            print_blind(&why);
            runs.compared_untraced(&contract)?
        }
    };
    output::result(args.json, &outcome, || check::text::text(&outcome))?;
    Ok(if outcome.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Traced runs beside the contract; the inner error is why there are none.
fn compared(args: &args::Check, contract: &Contract, runs: &Runs<'_>) -> Result<Result<Outcome, String>> {
    if contract.counted_by != BPF {
        return Ok(Err(format!("{} was recorded without tracing", args.file.display())));
    }
    if args.no_trace {
        return Ok(Err("--no-trace".into()));
    }
    Ok(runs.compared(contract)?)
}
