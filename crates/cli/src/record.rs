//! `fathom record`: turns the command line into a request, and reports the result.

use crate::{args, notices, output, progress};
use anyhow::{Context as _, Result};
use model::counted;
use model::text::ShownPath as _;
use recorder::control::Control;
use recorder::presets::Operation;
use recorder::{Backend, Error, RecordResult, Request, Target};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(args: &args::Record) -> Result<ExitCode> {
    if args.list_ops {
        return Ok(list_operations());
    }
    if !args.devices.device.is_empty() {
        return crate::device::record(args, std::env::args_os().skip(1));
    }
    if !args.without.is_empty() && matches!(args.backend, Backend::Ftrace | Backend::None) {
        args::usage_error("--without names probes of the eBPF backend");
    }
    let mut request = request_from_args(args);
    // Before anything that may fail or take time: a process that waits for an acknowledgement sees the channel close.
    request.control = args.control.as_ref().map(Control::open).transpose().context("--control")?;
    let context = progress::context(args.quiet);
    progress::end_on_signal(&context);
    let notify =
        |notice| if args.quiet { notices::print_warning(notice) } else { notices::print_recorder_notice(notice) };
    let done = recorder::record_by(args.backend, &request, &context, &notify);
    progress::clear(&context);
    let done = match done {
        Ok(done) => done,
        // A shell's own statuses for a command that does not exist or cannot be run.
        Err(Error::Launch(error)) => {
            let code = error.exit_code();
            eprintln!("fathom: {:#}", anyhow::Error::new(error));
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
        }
        Err(error) => return Err(error.into()),
    };
    if args.backend.writes() {
        if !args.as_root {
            recorder::output::give_to_caller(&args.output)?;
        }
        if !args.quiet {
            summarise(&args.output, &done);
        }
    }
    // As perf does: a script must not mistake an incomplete recording for a complete one.
    let status = if done.no_room && done.status == 0 { 1 } else { done.status };
    if done.no_room {
        let ended =
            if args.command.is_empty() { String::new() } else { format!("; CMD ended with status {}", done.status) };
        eprintln!("fathom: the recording is incomplete for lack of space{ended}");
    }
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)))
}

fn request_from_args(args: &args::Record) -> Request {
    let target = if !args.command.is_empty() {
        Target::Command(args.command.clone())
    } else if args.backend == Backend::None {
        args::usage_error("--backend none needs a command: -- CMD");
    } else if !args.pid.is_empty() {
        Target::Pids(args.pid.clone())
    } else if let Some(name) = &args.comm {
        Target::Comm(name.clone())
    } else if args.all {
        Target::All
    } else {
        args::usage_error("nothing to record: pass a command (-- CMD), --pid N, --comm NAME or --all");
    };
    Request {
        also_all: args.all,
        duration: args.duration,
        max_size: args.max_size,
        functions: traced_functions(args),
        keep_sql: args.keep_sql,
        as_root: args.as_root,
        price: !args.no_probe_cost,
        stacks: args.stacks,
        probes: args.probes,
        without: args.without.clone(),
        link: !args.no_link,
        ..Request::new(args.output.clone(), target)
    }
}

/// Returns the functions that `--op` names; those of predefined operations are looked up here, since they depend on
/// what is recorded.
fn traced_functions(args: &args::Record) -> Vec<(PathBuf, String)> {
    let program = args.command.first().map(|word| word.as_os_str());
    let of = |operation: &Operation| match operation.functions(program) {
        Ok(found) => found,
        Err(why) => args::usage_error(&why.to_string()),
    };
    args.operations.iter().flat_map(of).collect()
}

fn list_operations() -> ExitCode {
    for preset in recorder::presets::PRESETS {
        println!("{:<10} {}", preset.name, preset.about);
    }
    ExitCode::SUCCESS
}

fn summarise(archive: &Path, done: &RecordResult) {
    let operations = done.operations.map(|n| format!(", {}", counted(n as usize, "operation")));
    eprintln!(
        "{}: {}{}{}{}",
        archive.shown(),
        counted(done.records as usize, "event"),
        done.backend.map_or_else(String::new, |backend| format!(" by {backend}")),
        operations.as_deref().unwrap_or(", not linked"),
        if done.lost > 0 { format!(", {} lost", counted(done.lost as usize, "event")) } else { String::new() }
    );
    if operations.is_some() {
        eprintln!("next: fathom show {0}, or fathom report {0}", output::word(archive));
    }
}
