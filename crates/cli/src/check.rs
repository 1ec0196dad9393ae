//! `fathom check`: a contract of a command's use of files and disk.

mod attach;

use crate::{Usage, args, destination, link, output, progress};
use anyhow::{Result, bail};
use archive::Archive;
use archive::table_maker::Failure;
use model::text::ShownPath as _;
use model::{Call, Context, counted};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use verdicts::check::attached_counts::CallCounts;
use verdicts::check::contract::{BPF, PTRACE};
use verdicts::check::counted::{Runs, UntracedReason};
use verdicts::check::{self, Contract};

pub fn run(args: &args::Check) -> Result<ExitCode> {
    match &args.verb {
        Some(args::CheckVerb::Record(record)) => self::record(record),
        Some(args::CheckVerb::Calls(calls)) => self::calls(calls),
        Some(args::CheckVerb::Attach(attach)) => attach::run(attach),
        None => compare(args),
    }
}

fn open_archive(path: &Path) -> Result<Archive, Failure> {
    Ok(link::open(path, &Context::silent())?)
}

/// Prints what is not counted without BPF.
fn print_blind(why: &UntracedReason, counted_by: &str) {
    if counted_by == PTRACE {
        eprintln!(
            "fathom: counted by ptrace ({why}): calls, syncs and bytes by kind of file, as with BPF; statements and device commands are not"
        );
    } else {
        eprintln!(
            "fathom: not traced ({why}): only read and write calls and their bytes, of all files and pipes together, are counted; \
             syncs, statements, kinds of file and device commands are not"
        );
    }
}

fn record(args: &args::CheckRecord) -> Result<ExitCode> {
    let context = Context::silent();
    progress::end_on_signal(&context);
    let runs = Runs::new(&args.command, args.prepare.as_deref(), &context, &open_archive)?;
    let learned = runs.learn(args.runs, !args.no_trace, &print_blind)?;
    let contract = Contract::learn(
        args.command.clone(),
        args.prepare.clone(),
        learned.counted_by,
        &learned.traced,
        &learned.untraced,
    );
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
    let outputs = [&args.sarif, &args.junit, &args.markdown];
    if outputs.into_iter().flatten().filter(|path| destination::is_stdout(path)).count() + usize::from(args.json) > 1 {
        return Err(Usage("only one result can go to standard output".into()).into());
    }
    let mut outcome = runs.compare(&contract, !args.no_trace, &print_blind)?;
    if !args.no_lines
        && outcome.counted_by == BPF
        && !outcome.passed
        && let Some(why) = runs.locate(&mut outcome)?
    {
        eprintln!("fathom: the lines that make these calls are not known: {why}");
    }
    let file = args.file.to_string_lossy();
    if let Some(output) = &args.sarif {
        write_result(output, &(serde_json::to_string_pretty(&check::sarif::sarif(&outcome, &file))? + "\n"))?;
    }
    if let Some(output) = &args.junit {
        write_result(output, &check::junit::junit(&contract, &outcome, &file))?;
    }
    if let Some(output) = &args.markdown {
        write_result(output, &check::comment::comment(&outcome, &file, args.keep.is_some()))?;
    }
    if let Some(output) = args.keep.as_ref().filter(|_| outcome.counted_by == BPF) {
        keep(&runs.archive(), output)?;
    }
    if !outputs.into_iter().flatten().any(|path| destination::is_stdout(path)) {
        output::print_result(args.json, &outcome, || check::text::text(&outcome))?;
    }
    Ok(if outcome.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write_result(output: &Path, text: &str) -> Result<()> {
    destination::write_text(output, text)?;
    if !destination::is_stdout(output) {
        recorder::output::give_to_caller(output)?;
    }
    Ok(())
}

/// Moves a recording, also to another file system. What was there before goes, if it is an archive.
fn keep(archive: &Path, output: &Path) -> Result<()> {
    if output.exists() {
        anyhow::ensure!(output.join("meta.json").exists(), "{}: exists, and is not an archive", output.shown());
        std::fs::remove_dir_all(output)?;
    }
    if std::fs::rename(archive, output).is_err() {
        std::fs::create_dir_all(output)?;
        for entry in std::fs::read_dir(archive)? {
            let entry = entry?;
            std::fs::copy(entry.path(), output.join(entry.file_name()))?;
        }
    }
    recorder::output::give_to_caller(output)?;
    Ok(())
}

/// Runs a command, stopped at its calls.
fn calls(args: &args::CheckCalls) -> Result<ExitCode> {
    let call = |name: &String| {
        let known = Call::ALL.iter().copied().find(|call| call.name() == name);
        known.ok_or_else(|| Usage(format!("{name}: no system call that is recorded")))
    };
    let calls = args.calls.iter().map(call).collect::<Result<Vec<_>, _>>()?;
    let Some((program, arguments)) = args.command.split_first() else { bail!("no command") };
    let mut command = Command::new(program);
    command.args(arguments);
    let status = if args.count {
        let mut counts = CallCounts::of_command(program);
        let status = capture::located::attached::count_command(command, &mut |call| {
            counts.add(attach::seen(call, call.file.as_ref().map(|path| path.to_string_lossy()).as_deref()));
        })?;
        destination::write_text(&args.output, &serde_json::to_string(&counts.counts)?)?;
        status
    } else {
        let written = destination::write(&args.output, |out| {
            capture::located::locate(command, &calls, &mut |call| {
                serde_json::to_writer(&mut *out, &call)?;
                out.write_all(b"\n")
            })
        })?;
        let Some(status) = written else { return Ok(ExitCode::SUCCESS) };
        status
    };
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        (None, signal) => ExitCode::from(u8::try_from(128 + signal.unwrap_or(0)).unwrap_or(1)),
    })
}
