//! `fathom device fetch`: fetches the results of a benchmark or a recording whose host went away.

use super::bench::make_bench_tables;
use super::record::make_recording_tables;
use super::result::{self, ReportOptions};
use crate::args::DeviceFetch;
use crate::progress;
use anyhow::Result;
use archive::ArchiveKind;
use device::remote::{DetachedOptions, DetachedStart};
use recorder::incoming::RemoteRun;
use std::process::ExitCode;
use std::time::Duration;

/// How long to wait for a device that goes away meanwhile.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(120);

pub fn run(args: &DeviceFetch) -> Result<ExitCode> {
    let context = progress::context(args.quiet);
    progress::end_on_signal(&context);
    let incoming = RemoteRun {
        place: &args.device,
        binaries: &args.binary,
        files: &[],
        words: &[],
        output: &args.output,
        detached: Some(DetachedOptions { name: &args.name, begin: DetachedStart::Fetch, patience: RECONNECT_TIMEOUT }),
    };
    let (done, has) =
        result::bring_archive(&incoming, ReportOptions { quiet: args.quiet, ..ReportOptions::default() }, &context)?;
    result::report_lost(&done, has, &args.output);
    let kind = if has { Some(archive::Meta::read(&args.output).map(|meta| meta.kind)) } else { None };
    if let Some(Ok(ArchiveKind::Bench)) = kind {
        make_bench_tables(&args.output, args.quiet)?;
    } else if has {
        make_recording_tables(&args.output, &done.place, args.quiet)?;
    } else {
        eprintln!("fathom: {} of {} has measured nothing", args.name, done.place);
    }
    Ok(if has { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
