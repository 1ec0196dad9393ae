//! `fathom device fetch`: what a benchmark measured whose host went away.

use super::bench::kept;
use super::result::{self, Telling};
use crate::args::DeviceFetch;
use crate::progress;
use anyhow::Result;
use device::remote::{Begin, Detached};
use recorder::incoming::Incoming;
use std::process::ExitCode;
use std::time::Duration;

/// How long a device is waited for that goes meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn run(args: &DeviceFetch) -> Result<ExitCode> {
    let context = progress::context(args.quiet);
    progress::end_on_signal(&context);
    let incoming = Incoming {
        place: &args.device,
        binaries: &args.binary,
        files: &[],
        words: &[],
        output: &args.output,
        detached: Some(Detached { name: &args.name, begin: Begin::Fetch, patience: PATIENCE }),
    };
    let (done, has) = result::bring(&incoming, Telling { quiet: args.quiet, ..Telling::default() }, &context)?;
    result::lost(&done, has, &args.output);
    if has {
        kept(&args.output, args.quiet)?;
    } else {
        eprintln!("fathom: {} of {} has measured nothing", args.name, done.place);
    }
    Ok(if has { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
