//! `fathom net link`: the emulated link, until a command ends or Ctrl-C.

use crate::args::NetLink;
use crate::progress;
use ::net::link::LinkReport;
use ::net::link::TestBed;
use anyhow::{Context as _, Result};
use std::os::fd::AsFd;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

pub fn run(args: &NetLink) -> Result<ExitCode> {
    let spec = match args.link.spec() {
        Ok(spec) => spec,
        Err(sentence) => {
            eprintln!("fathom net link: {sentence}");
            return Ok(ExitCode::from(2));
        }
    };
    let context = progress::context(true);
    progress::end_on_signal(&context);
    let testbed = TestBed::create(&spec)?;
    let status = match args.command.split_first() {
        Some((program, arguments)) => {
            let mut command = testbed.command(program);
            command.args(arguments);
            if args.json {
                command.stdout(Stdio::from(std::io::stderr().as_fd().try_clone_to_owned()?));
            }
            let name = program.to_string_lossy();
            let mut command = command.spawn().with_context(|| format!("cannot run {name}"))?;
            Some(child::wait_or_terminate(&mut command, || context.cancelled(), EXIT_TIMEOUT)?)
        }
        None => {
            eprint!("The link is up until Ctrl-C. {}", testbed.usage());
            while !context.cancelled() {
                std::thread::sleep(POLL_INTERVAL);
            }
            None
        }
    };
    let outcome = testbed.finish()?;
    let link = LinkReport { spec: &spec, outcome: &outcome };
    if args.json {
        println!("{:#}", link.document(None, status.map(child::shell_status)));
    } else {
        eprint!("{}", link.text(None));
    }
    Ok(status.map_or(ExitCode::SUCCESS, |s| ExitCode::from(u8::try_from(child::shell_status(s)).unwrap_or(1))))
}

/// How long the command may take to exit after Ctrl-C.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// How often to check for a requested end. A poll: the signal handler may do no more than set a flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
