//! `fathom net watch`: any program's flows.

use crate::{args, progress};
use ::net::clock;
use ::net::flow::watch::{Selection, Watch, WatchError};
use ::net::show::flows as show;
use anyhow::Result;
use capture::launch::{Child, Command, LaunchError, User};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// How long a request to end may go unnoticed. A poll: the signal handler may do no more than set a flag.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long CMD may take to exit after Ctrl-C.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

pub fn run(args: &args::NetWatch) -> Result<ExitCode> {
    match watch(args) {
        Ok(code) => Ok(code),
        // A shell's own statuses for a command that does not exist or cannot be run.
        Err(error) if let Some(code) = error.downcast_ref::<LaunchError>().map(LaunchError::exit_code) => {
            eprintln!("fathom: {error:#}");
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
        Err(error) if matches!(error.downcast_ref(), Some(WatchError::NoProcess(_) | WatchError::Cgroup { .. })) => {
            eprintln!("fathom net watch: {error:#}");
            Ok(ExitCode::from(2))
        }
        Err(error) => Err(error),
    }
}

fn watch(args: &args::NetWatch) -> Result<ExitCode> {
    let context = progress::context(true);
    progress::end_on_signal(&context);
    let mut command = if args.command.is_empty() { None } else { Some(spawn(args)?) };
    let selection = Selection {
        pids: args.pid.iter().copied().chain(command.as_ref().map(Child::pid)).collect(),
        ports: args.port.clone(),
        cgroup: args.cgroup.clone(),
        interface: args.interface.clone(),
    };
    let mut watch = Watch::start(selection)?;
    let started_ns = clock::now_ns();
    let say = |text: &str| {
        if command_prints(args) {
            eprint!("{text}");
        } else {
            print!("{text}");
        }
    };
    if args.json {
        println!("{}", show::start_json(watch.coverage(), started_ns));
    } else {
        eprint!("{}", show::start_text(watch.coverage()));
    }
    watch.pass()?;
    if let Some(command) = &mut command {
        command.release()?;
    }
    let mut exit = None;
    let mut next_ns = started_ns + nanoseconds(args.every);
    let until_ns = args.duration.map(|duration| started_ns.saturating_add(nanoseconds(duration)));
    loop {
        wait(&watch, args.sample, &context);
        watch.pass()?;
        let now = clock::now_ns();
        if now >= next_ns {
            next_ns = now + nanoseconds(args.every);
            let intervals = watch.take_intervals();
            if args.json {
                intervals.iter().for_each(|i| println!("{}", show::interval_json(i)));
            } else {
                say(&show::intervals_text(&intervals, now - started_ns));
            }
        }
        if let Some(command) = &mut command {
            exit = command.try_wait()?;
        }
        if exit.is_some() || context.cancelled() || until_ns.is_some_and(|until| now >= until) || watch.is_over() {
            break;
        }
    }
    if let (Some(command), None) = (&mut command, exit) {
        exit = end(command)?;
    }
    let watched = watch.finish();
    if args.json {
        watched.flows.iter().for_each(|flow| println!("{}", show::flow_json(flow)));
        println!("{}", show::end_json(&watched, clock::now_ns()));
    } else {
        say(&show::summary_text(&watched, started_ns));
    }
    Ok(exit.map_or(ExitCode::SUCCESS, |exit| ExitCode::from(u8::try_from(exit.status()).unwrap_or(1))))
}

/// Whether stdout is CMD's.
fn command_prints(args: &args::NetWatch) -> bool {
    !args.command.is_empty()
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Starts CMD, which waits to be released. With --json its stdout is our stderr.
fn spawn(args: &args::NetWatch) -> Result<Child> {
    let mut words = args.command.clone();
    if args.json {
        // Checked here, since the shell's own message would not say it as clearly.
        capture::launch::resolve_program(&words[0], std::env::var_os("PATH").as_deref())?;
        let shell = ["/bin/sh", "-c", "exec \"$@\" >&2", "sh"].map(OsString::from);
        words.splice(0..0, shell);
    }
    let mut command = Command::new(&words)?;
    if let Some(user) = User::sudo_caller()?.filter(|_| !args.as_root) {
        command = command.as_user(user);
    }
    Ok(command.spawn()?)
}

/// Waits for the next pass, or until the end is requested.
fn wait(watch: &Watch, period: Duration, context: &model::Context) {
    loop {
        let pause = watch.pause(period);
        if pause.is_zero() || context.cancelled() {
            return;
        }
        std::thread::sleep(pause.min(SIGNAL_POLL_INTERVAL));
    }
}

/// Ends CMD: it got Ctrl-C from the terminal too, or is told here.
fn end(command: &mut Child) -> Result<Option<capture::launch::Exit>> {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        command.signal(signal)?;
        let from = std::time::Instant::now();
        while from.elapsed() < EXIT_TIMEOUT {
            if let Some(exit) = command.try_wait()? {
                return Ok(Some(exit));
            }
            child::wait_pid(command.pid(), SIGNAL_POLL_INTERVAL)?;
        }
    }
    Ok(None)
}
