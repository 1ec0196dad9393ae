//! `fathom workload`: a benchmark's replicate, a process that prints what it measured as JSON lines.

use crate::{args, output, progress};
use anyhow::Result;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use workload::Error;

pub fn run(args: &args::Workload) -> Result<ExitCode> {
    let context = progress::context(false);
    progress::end_on_signal(&context);
    let mut out = BufWriter::new(output::Stdout);
    let result = workload::run(&args.words, &context, &mut out);
    progress::clear(&context);
    out.flush()?;
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Error::Help(text)) => {
            println!("{text}");
            Ok(ExitCode::SUCCESS)
        }
        Err(Error::Usage(text)) => {
            eprintln!("fathom workload: {text}");
            Ok(ExitCode::from(2))
        }
        Err(Error::Interrupted) => Ok(ExitCode::from(output::INTERRUPTED_STATUS)),
        Err(error) => Err(error.into()),
    }
}
