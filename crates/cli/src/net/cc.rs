//! `fathom net cc`: the available congestion controls, and a command that runs with one more.

use crate::{args, output, progress};
use anyhow::{Context as _, Result, bail};
use capture::launch::{Command, LaunchError, User};
use net::cc;
use net::show::cc as show;
use std::process::ExitCode;
use std::time::Duration;

/// How long a signal that comes just before the wait may go unnoticed; a later one ends the wait.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);

pub fn run(args: &args::NetCc) -> Result<ExitCode> {
    if let Some(name) = &args.unload {
        return unload(name);
    }
    if args.command.is_empty() {
        return list(args.json);
    }
    match run_registered(args) {
        Ok(code) => Ok(code),
        // A shell's own statuses for a command that does not exist or cannot be run.
        Err(error) if let Some(code) = error.downcast_ref::<LaunchError>().map(LaunchError::exit_code) => {
            eprintln!("fathom: {error:#}");
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
        Err(error) => Err(error),
    }
}

fn list(as_json: bool) -> Result<ExitCode> {
    let known = cc::list()?;
    output::print_result(as_json, &show::json(&known), || show::text(&known))?;
    Ok(ExitCode::SUCCESS)
}

fn unload(name: &str) -> Result<ExitCode> {
    if !cc::unregister(name).with_context(|| format!("unregistering {name}"))? {
        bail!("no congestion control named {name:?} is registered through BPF");
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the command while the congestion controls are registered.
fn run_registered(args: &args::NetCc) -> Result<ExitCode> {
    let context = progress::context(true);
    progress::end_on_signal(&context);
    let _registered = args.load.iter().map(|name| cc::ensure_available(name)).collect::<Result<Vec<_>, _>>()?;
    let mut command = Command::new(&args.command)?;
    if let Some(user) = User::sudo_caller()?.filter(|_| !args.as_root) {
        command = command.as_user(user);
    }
    let mut command = command.spawn()?;
    command.release()?;
    let mut reported = false;
    let exit = loop {
        if let Some(exit) = command.try_wait()? {
            break exit;
        }
        if context.cancelled() && !reported {
            reported = true;
            command.signal(libc::SIGTERM)?;
        }
        child::wait_pid(command.pid(), SIGNAL_POLL_INTERVAL)?;
    };
    Ok(ExitCode::from(u8::try_from(exit.status()).unwrap_or(1)))
}
