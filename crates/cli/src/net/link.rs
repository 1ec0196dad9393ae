//! `fathom net link`: the emulated link, until a command ends or Ctrl-C.

use crate::args::NetLink;
use crate::progress;
use ::net::link::LinkReport;
use ::net::link::test_bed::{CLIENT, SERVER, TestBed};
use anyhow::{Context as _, Result};
use model::Context;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

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
            Some(wait(command.spawn().with_context(|| format!("cannot run {name}"))?, &context)?)
        }
        None => {
            eprint!("{}", usage(&testbed));
            while !context.cancelled() {
                std::thread::sleep(LOOK);
            }
            None
        }
    };
    let outcome = testbed.finish()?;
    let link = LinkReport { spec: &spec, outcome: &outcome };
    if args.json {
        println!("{:#}", link.document(None, status.map(code)));
    } else {
        eprint!("{}", link.text(None));
    }
    Ok(status.map_or(ExitCode::SUCCESS, |s| ExitCode::from(u8::try_from(code(s)).unwrap_or(1))))
}

/// How often it is looked whether somebody asked for an end.
const LOOK: Duration = Duration::from_millis(50);

/// Waits for the command. Ctrl-C reaches it from the terminal too and it ends as it likes, within a second; then, or if only
/// we were told to end, it is told.
fn wait(mut child: Child, context: &Context) -> Result<ExitStatus> {
    let mut cancelled_at = None;
    loop {
        if let Some(status) = child::wait_timeout(&mut child, LOOK)? {
            return Ok(status);
        }
        if context.cancelled() {
            let since = *cancelled_at.get_or_insert_with(Instant::now);
            if since.elapsed() > Duration::from_secs(1) {
                // SAFETY: two integers; the child was not waited for yet, so that the number is its.
                unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
                return Ok(child.wait()?);
            }
        }
    }
}

/// A status as a shell would say it.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn usage(testbed: &TestBed) -> String {
    format!(
        "The link is up until Ctrl-C. In the client's namespace, {}:\n  {} CMD\nIn the server's namespace, {}:\n  {} \
         CMD\n",
        CLIENT.join(" and "),
        testbed.client().nsenter(false),
        SERVER.join(" and "),
        testbed.server().nsenter(false),
    )
}
