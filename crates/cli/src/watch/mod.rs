//! `fathom watch`: turns the command line into a request, and prints what happens.

mod json;
mod prometheus;
mod text;

use crate::{args, notices, progress};
use anyhow::Result;
use recorder::watch::matrix::Matrix;
use recorder::watch::{Counts, Happening, Rules};
use recorder::{Error, Request, Target};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

pub fn run(args: &args::Watch) -> Result<ExitCode> {
    let context = progress::context(true);
    progress::end_on_signal(&context);
    let rules = Rules {
        slow: args.slow,
        buffer: args.buffer,
        keep: args.keep,
        interval: args.interval,
        keep_now: std::sync::Arc::default(),
    };
    archive::interrupt::set_on_request(rules.keep_now.clone());
    let request = request(args)?;
    let cancel = context.cancel_flag();
    let mut matrix = Matrix::default();
    let write_metrics = |counts: &Counts, matrix: &Matrix| {
        if let Some(file) = &args.prometheus
            && let Err(error) = archive::atomic_file::write_text(file, &prometheus::metrics(counts, matrix))
        {
            notices::print_notice(&error);
        }
    };
    let mut happened = |happening: Happening| {
        if let Happening::Incident(incident, counts) = &happening {
            incident.operations.iter().for_each(|operation| matrix.add(operation));
            write_metrics(counts, &matrix);
        }
        let line = if args.json { json::json_line(&happening) } else { text::text_line(args.slow, &happening) };
        if let Some(line) = line {
            // Line by line, for a reader at the other end of a pipe. If that is gone, nobody watches.
            let mut out = std::io::stdout().lock();
            if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
                cancel.store(true, Ordering::Relaxed);
            }
        }
        if let (Happening::Incident(incident, _), false) = (&happening, args.as_root)
            && let Err(error) = recorder::output::give_to_caller(&incident.archive)
        {
            notices::print_notice(&error);
        }
    };
    let done = recorder::watch::watch(&request, &rules, &context, &notices::print_recorder_notice, &mut happened);
    let done = match done {
        Ok(done) => done,
        Err(Error::Launch(error)) => {
            let code = error.exit_code();
            eprintln!("fathom: {:#}", anyhow::Error::new(error));
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
        }
        Err(error) => return Err(error.into()),
    };
    write_metrics(&done.counts, &matrix);
    if args.json {
        // Nobody may be there to read it.
        let _ = writeln!(std::io::stdout(), "{}", json::json_summary(&done, &matrix));
    } else {
        if args.who {
            print!("{}", text::text_matrix(&matrix));
        }
        eprintln!("{}", text::text_summary(&done));
    }
    Ok(ExitCode::from(u8::try_from(done.status).unwrap_or(1)))
}

fn request(args: &args::Watch) -> Result<Request> {
    let target = if !args.command.is_empty() {
        Target::Command(args.command.clone())
    } else if !args.pid.is_empty() {
        Target::Pids(args.pid.clone())
    } else if let Some(name) = &args.comm {
        Target::Comm(name.clone())
    } else if let Some(cgroup) = &args.cgroup {
        Target::Pids(recorder::cgroup::processes(cgroup)?)
    } else {
        Target::All
    };
    let program = args.command.first().map(|word| word.as_os_str());
    let functions = args.operations.iter().flat_map(|operation| match operation.functions(program) {
        Ok(found) => found,
        Err(why) => args::usage_error(&why.to_string()),
    });
    Ok(Request {
        also_all: target == Target::All,
        duration: args.duration,
        functions: functions.collect(),
        keep_sql: args.keep_sql,
        as_root: args.as_root,
        probes: args.probes,
        stacks: false,
        ..Request::new(args.output.clone(), target)
    })
}
