//! `fathom net cc`: the congestion controls that there are, and a command that runs with one more.

use crate::{args, output, progress};
use anyhow::{Context as _, Result, bail};
use capture::launch::{Command, LaunchError, User};
use net::cc::{self, CongestionControl, Origin};
use serde_json::json;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

/// How often the command is asked whether it has ended.
const POLL: Duration = Duration::from_millis(20);

pub fn run(args: &args::NetCc) -> Result<ExitCode> {
    if let Some(name) = &args.unload {
        return unload(name);
    }
    if args.command.is_empty() {
        return list(args.json);
    }
    match with(args) {
        Ok(code) => Ok(code),
        // A shell's own statuses for a command that is not there or cannot be run.
        Err(error) if let Some(code) = error.downcast_ref::<LaunchError>().map(LaunchError::exit_code) => {
            eprintln!("fathom: {error:#}");
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
        Err(error) => Err(error),
    }
}

fn list(as_json: bool) -> Result<ExitCode> {
    let known = cc::list()?;
    let text = if as_json {
        let all: Vec<_> = known.iter().map(contract).collect();
        serde_json::to_string_pretty(&json!({"version": 1, "congestion_controls": all}))? + "\n"
    } else {
        table(&known)
    };
    output::text(&text);
    Ok(ExitCode::SUCCESS)
}

/// A word for machines, a sentence for people.
fn words(origin: &Origin) -> (&'static str, String) {
    match origin {
        Origin::Kernel => ("kernel", "the kernel's".into()),
        Origin::Bpf => ("bpf", "registered through BPF now".into()),
        Origin::KernelOrBpf => ("available", "ready".into()),
        Origin::Module => ("module", "a kernel module, loaded on demand by root".into()),
        Origin::Supplied => ("supplied", "provided by Fathom on request (--load, or net's --cc)".into()),
        Origin::Missing(why) => ("missing", format!("missing: {why}")),
    }
}

fn contract(known: &CongestionControl) -> serde_json::Value {
    let (origin, _) = words(&known.origin);
    let why = if let Origin::Missing(why) = &known.origin { Some(why) } else { None };
    json!({"name": known.name, "origin": origin, "missing_because": why})
}

fn table(known: &[CongestionControl]) -> String {
    let width = known.iter().map(|k| k.name.len()).max().unwrap_or(0);
    known.iter().fold(String::new(), |mut out, known| {
        let _ = writeln!(out, "{:width$}  {}", known.name, words(&known.origin).1);
        out
    })
}

fn unload(name: &str) -> Result<ExitCode> {
    if !cc::unregister(name).with_context(|| format!("unregistering {name}"))? {
        bail!("no congestion control named {name:?} is registered through BPF");
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the command while the congestion controls are registered.
fn with(args: &args::NetCc) -> Result<ExitCode> {
    let context = progress::context(true);
    progress::end_on_signal(&context);
    let _registered = args.load.iter().map(|name| cc::ensure(name)).collect::<Result<Vec<_>, _>>()?;
    let mut command = Command::new(&args.command)?;
    if let Some(user) = User::caller()?.filter(|_| !args.as_root) {
        command = command.as_user(user);
    }
    let mut child = command.spawn()?;
    child.release()?;
    let mut reported = false;
    let exit = loop {
        if let Some(exit) = child.try_wait()? {
            break exit;
        }
        if context.cancelled() && !reported {
            reported = true;
            child.signal(libc::SIGTERM)?;
        }
        std::thread::sleep(POLL);
    };
    Ok(ExitCode::from(u8::try_from(exit.status()).unwrap_or(1)))
}
