//! `fathom device fetch`: fetches the results of a benchmark or a recording whose host went away.

use super::bench::kept;
use super::record::linked;
use super::result::{self, Telling};
use crate::args::DeviceFetch;
use crate::progress;
use anyhow::Result;
use archive::ArchiveKind;
use device::remote::{Begin, Detached};
use recorder::incoming::Incoming;
use std::process::ExitCode;
use std::time::Duration;

/// How long to wait for a device that goes away meanwhile.
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
    let kind = if has { Some(archive::Meta::read(&args.output).map(|meta| meta.kind)) } else { None };
    if let Some(Ok(ArchiveKind::Bench)) = kind {
        kept(&args.output, args.quiet)?;
    } else if has {
        linked(&args.output, &done.place, args.quiet)?;
    } else {
        eprintln!("fathom: {} of {} has measured nothing", args.name, done.place);
    }
    Ok(if has { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
