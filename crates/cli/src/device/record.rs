//! `fathom record --device`: records with this program on the device, and links the recording here.

use super::each::{chosen, each};
use super::perfetto;
use super::result::{self, Telling};
use crate::args::{self, Record, Via};
use crate::output::{self, INTERRUPTED};
use crate::{Usage, link, progress};
use analysis::host_clock::HostClock;
use anyhow::{Context as _, Result};
use archive::Archive;
use device::remote::{DeviceAddress, Ended, PROGRAM, Turns, new_name};
use model::text::ShownPath as _;
use model::{Context, counted};
use recorder::incoming::{Incoming, THERE};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// `given`: the arguments after the program's name.
pub fn run(args: &Record, given: impl IntoIterator<Item = OsString>) -> Result<ExitCode> {
    let chosen = chosen(&args.devices.device)?;
    let places = &chosen.places;
    if args.via == Some(Via::Perfetto) {
        perfetto::possible(args, places)?;
    }
    let words = words(given)?;
    let context = progress::context(args.quiet);
    progress::end_on_signal(&context);
    let one = |place: &DeviceAddress, output: &Path, prefix: &str| match args.via {
        Some(Via::Perfetto) => {
            let clock = perfetto::one(args, place, output, prefix, &context)?;
            Ok(Recorded { code: ExitCode::SUCCESS, clock, lost: None })
        }
        None => one(args, &words, place, (output, prefix), &context),
    };
    if let Some(place) = chosen.alone() {
        return Ok(one(place, &args.output, "")?.code);
    }
    let all = each(places, Turns::Together, &args.output, "recording", one)?;
    let mut code = ExitCode::SUCCESS;
    for (place, done) in all {
        let own = done.unwrap_or(Recorded { code: ExitCode::FAILURE, clock: None, lost: None });
        code = if own.code == ExitCode::SUCCESS { code } else { own.code };
        if let Some(clock) = own.clock.filter(|_| !args.quiet) {
            eprintln!("fathom: {}", clock.text(&place.to_string()));
        }
    }
    Ok(code)
}

/// The result of one device.
pub struct Recorded {
    /// The exit status of the program.
    pub code: ExitCode,
    /// How its clock relates to this machine's.
    clock: Option<HostClock>,
    /// Why the device was lost.
    pub lost: Option<String>,
}

/// Records on one device, for another verb; `given` as of [`run`].
pub fn alone(args: &Record, given: &[String], place: &DeviceAddress) -> Result<Recorded> {
    let words = words(given.iter().map(OsString::from))?;
    let context = progress::context(args.quiet);
    progress::end_on_signal(&context);
    one(args, &words, place, (&args.output, ""), &context)
}

/// Records on one device, and fetches the recording to `output`.
fn one(
    args: &Record,
    words: &[String],
    place: &DeviceAddress,
    (output, prefix): (&Path, &str),
    context: &Context,
) -> Result<Recorded> {
    // Reported before anything is copied.
    Archive::has_room(output, true)?;
    let name = new_name("run");
    let detached = result::detached(place, &name, &args.devices);
    let incoming = Incoming { place, binaries: &args.devices.binary, files: &[], words, output, detached };
    let telling = Telling { quiet: args.quiet, prints: true, prefix };
    if args.command.first().is_some_and(|program| program == "fathom") && !args.quiet {
        eprintln!(
            "fathom: {place} looks up `fathom` in its PATH; `{PROGRAM}` is the program that this one copies there"
        );
    }
    let (done, kept) = result::bring(&incoming, telling, context)?;
    let lost = result::lost(&done, kept, output);
    if kept {
        linked(output, &done.place, args.quiet)?;
    }
    let code = match done.ended {
        _ if lost && context.cancelled() => ExitCode::from(INTERRUPTED),
        Ended::Exit(status) if kept || status != 0 || !args.backend.writes() => ExitCode::from(status),
        _ if lost => ExitCode::FAILURE,
        _ => {
            eprintln!("fathom: {} returned no recording", done.place);
            ExitCode::FAILURE
        }
    };
    let why = match &done.ended {
        Ended::Lost(why) => Some(why.to_string()),
        Ended::Exit(_) => None,
    };
    Ok(Recorded { code, clock: result::clock(&done), lost: why })
}

/// Makes the tables of the fetched recording, and prints the next commands.
pub fn linked(output: &Path, place: &DeviceAddress, quiet: bool) -> Result<()> {
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
fn words(given: impl IntoIterator<Item = OsString>) -> Result<Vec<String>, Usage> {
    let here = ["output", "device", "binary", "reconnect", "no_link"];
    let mut words = args::forwarded(given, &here)?;
    words.splice(1..1, ["--no-link", "--output", THERE].map(String::from));
    Ok(words)
}
