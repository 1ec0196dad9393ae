//! `fathom record --device`: records with this program on the device, and links the recording here.

use super::each::{choose_archived_devices, run_each};
use super::perfetto;
use super::result::{self, ReportOptions};
use crate::args::{self, Record, Via};
use crate::output::{self, INTERRUPTED_STATUS};
use crate::{Usage, link, progress};
use analysis::host_clock::HostClock;
use anyhow::{Context as _, Result};
use archive::Archive;
use device::remote::{CommandEnd, Concurrency, DeviceAddress, PROGRAM_PLACEHOLDER, new_name};
use model::text::ShownPath as _;
use model::{Context, counted};
use recorder::incoming::{REMOTE_ARCHIVE_NAME, RemoteRun};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// `given`: the arguments after the program's name.
pub fn run(args: &Record, given: impl IntoIterator<Item = OsString>) -> Result<ExitCode> {
    let chosen = choose_archived_devices(&args.devices.device)?;
    let places = &chosen.places;
    if args.via == Some(Via::Perfetto) {
        perfetto::check_possible(args, places)?;
    }
    let words = device_words(given)?;
    let context = progress::context(args.quiet);
    progress::end_on_signal(&context);
    let one = |place: &DeviceAddress, output: &Path, prefix: &str| match args.via {
        Some(Via::Perfetto) => {
            let clock = perfetto::record_trace(args, place, output, prefix, &context)?;
            Ok(DeviceRecording { code: ExitCode::SUCCESS, clock, lost: None })
        }
        None => record_one(args, &words, place, (output, prefix), &context),
    };
    if let Some(place) = chosen.alone() {
        return Ok(one(place, &args.output, "")?.code);
    }
    let all = run_each(places, Concurrency::Together, &args.output, "recording", one)?;
    let mut code = ExitCode::SUCCESS;
    for (place, done) in all {
        let own = done.unwrap_or(DeviceRecording { code: ExitCode::FAILURE, clock: None, lost: None });
        code = if own.code == ExitCode::SUCCESS { code } else { own.code };
        if let Some(clock) = own.clock.filter(|_| !args.quiet) {
            eprintln!("fathom: {}", clock.describe(&place.to_string()));
        }
    }
    Ok(code)
}

/// The result of one device.
pub struct DeviceRecording {
    /// The exit status of the program.
    pub code: ExitCode,
    /// How its clock relates to this machine's.
    clock: Option<HostClock>,
    /// Why the device was lost.
    pub lost: Option<String>,
}

/// Records on one device, for another verb; `given` as of [`run`].
pub fn record_alone(args: &Record, given: &[String], place: &DeviceAddress) -> Result<DeviceRecording> {
    let words = device_words(given.iter().map(OsString::from))?;
    let context = progress::context(args.quiet);
    progress::end_on_signal(&context);
    record_one(args, &words, place, (&args.output, ""), &context)
}

/// Records on one device, and fetches the recording to `output`.
fn record_one(
    args: &Record,
    words: &[String],
    place: &DeviceAddress,
    (output, prefix): (&Path, &str),
    context: &Context,
) -> Result<DeviceRecording> {
    // Reported before anything is copied.
    Archive::check_create(output, true)?;
    let name = new_name("run");
    let detached = result::detached(place, &name, &args.devices);
    let incoming = RemoteRun { place, binaries: &args.devices.binary, files: &[], words, output, detached };
    let telling = ReportOptions { quiet: args.quiet, prints_output: true, prefix };
    if args.command.first().is_some_and(|program| program == "fathom") && !args.quiet {
        eprintln!(
            "fathom: {place} looks up `fathom` in its PATH; `{PROGRAM_PLACEHOLDER}` is the program that this one copies there"
        );
    }
    let (done, kept) = result::bring_archive(&incoming, telling, context)?;
    let lost = result::report_lost(&done, kept, output);
    if kept {
        make_recording_tables(output, &done.place, args.quiet)?;
    }
    let code = match done.ended {
        _ if lost && context.cancelled() => ExitCode::from(INTERRUPTED_STATUS),
        CommandEnd::Exit(status) if kept || status != 0 || !args.backend.writes() => ExitCode::from(status),
        _ if lost => ExitCode::FAILURE,
        _ => {
            eprintln!("fathom: {} returned no recording", done.place);
            ExitCode::FAILURE
        }
    };
    let why = match &done.ended {
        CommandEnd::Lost(why) => Some(why.to_string()),
        CommandEnd::Exit(_) => None,
    };
    Ok(DeviceRecording { code, clock: result::clock(&done), lost: why })
}

/// Makes the tables of the fetched recording, and prints the next commands.
pub fn make_recording_tables(output: &Path, place: &DeviceAddress, quiet: bool) -> Result<()> {
    recorder::output::give_to_caller(output)?;
    let archive = link::open(output, &Context::silent())?;
    recorder::output::give_to_caller(output)?;
    if !quiet {
        let summary = analysis::summarise_archive(&archive).context("cannot read the returned recording")?;
        let operations: u64 = summary.operations.iter().map(|o| o.count).sum();
        eprintln!("{}: {} on {place}", output.shown(), counted(operations as usize, "operation"));
        eprintln!("next: fathom show {0}, or fathom report {0}", output::word(output));
    }
    Ok(())
}

/// Returns the arguments for the same recording by the program there; `given` are the arguments of this one.
fn device_words(given: impl IntoIterator<Item = OsString>) -> Result<Vec<String>, Usage> {
    let here = ["output", "device", "binary", "reconnect", "no_link"];
    let mut words = args::forwarded_words(given, &here)?;
    words.splice(1..1, ["--no-link", "--output", REMOTE_ARCHIVE_NAME].map(String::from));
    Ok(words)
}
