//! `fathom record --device`: this program records there, and what it recorded is linked here.

use super::each::{Turns, chosen, each};
use super::perfetto;
use super::result::{self, Telling};
use crate::args::{Backend, Probes, Record, Stacks, Via};
use crate::bench::INTERRUPTED;
use crate::{Usage, link, output, progress};
use analysis::host_clock::HostClock;
use anyhow::{Context as _, Result};
use archive::Archive;
use device::remote::{DeviceAddress, Ended};
use model::text::ShownPath as _;
use model::{Context, counted};
use recorder::incoming::{Incoming, THERE};
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &Record) -> Result<ExitCode> {
    if let Some(word) = args.command.iter().find(|word| word.to_str().is_none()) {
        return Err(Usage(format!("{}: words for a device must be UTF-8", Path::new(word).shown())).into());
    }
    let chosen = chosen(&args.devices.device)?;
    let places = &chosen.places;
    if args.via == Some(Via::Perfetto) {
        perfetto::possible(args, places)?;
    }
    let context = progress::context(args.quiet);
    progress::end_on_signal(&context);
    let one = |place: &DeviceAddress, output: &Path, prefix: &str| match args.via {
        Some(Via::Perfetto) => {
            let clock = perfetto::one(args, place, output, prefix, &context)?;
            Ok(Recorded { code: ExitCode::SUCCESS, clock, lost: None })
        }
        None => one(args, place, output, prefix, &context),
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

/// What came of one.
pub struct Recorded {
    /// As the program ends.
    pub code: ExitCode,
    /// How its clock relates to this machine's.
    clock: Option<HostClock>,
    /// Why the device went.
    pub lost: Option<String>,
}

/// Records on one device, for another verb.
pub fn alone(args: &Record, place: &DeviceAddress) -> Result<Recorded> {
    let context = progress::context(args.quiet);
    progress::end_on_signal(&context);
    one(args, place, &args.output, "", &context)
}

/// Records on one, and brings it to `output`.
fn one(args: &Record, place: &DeviceAddress, output: &Path, prefix: &str, context: &Context) -> Result<Recorded> {
    // Told before anything is copied.
    Archive::has_room(output, true)?;
    let words = words(args);
    let name = result::name("run");
    let detached = result::detached(place, &name, &args.devices);
    let incoming = Incoming { place, binaries: &args.devices.binary, files: &[], words: &words, output, detached };
    let telling = Telling { quiet: args.quiet, prints: true, prefix };
    let (done, kept) = result::bring(&incoming, telling, context)?;
    let writes = !matches!(args.backend, Backend::None | Backend::Attached);
    let lost = result::lost(&done, kept, output);
    if kept {
        linked(output, &done.place, args.quiet)?;
    }
    let code = match done.ended {
        _ if lost && context.cancelled() => ExitCode::from(INTERRUPTED),
        Ended::Exit(status) if kept || status != 0 || !writes => ExitCode::from(status),
        _ if lost => ExitCode::FAILURE,
        _ => {
            eprintln!("fathom: {} brought no recording back", done.place);
            ExitCode::FAILURE
        }
    };
    let why = match &done.ended {
        Ended::Lost(why) => Some(why.to_string()),
        Ended::Exit(_) => None,
    };
    Ok(Recorded { code, clock: result::clock(&done), lost: why })
}

/// Makes the tables of what came, and says what to do with it.
pub fn linked(output: &Path, place: &DeviceAddress, quiet: bool) -> Result<()> {
    recorder::output::give_to_caller(output)?;
    let archive = link::open(output, &Context::silent())?;
    recorder::output::give_to_caller(output)?;
    if !quiet {
        let summary = analysis::summarise_archive(&archive).context("what came back")?;
        let operations: u64 = summary.operations.iter().map(|o| o.count).sum();
        eprintln!("{}: {} on {place}", output.shown(), counted(operations as usize, "operation"));
        eprintln!("next: fathom show {0}, or fathom report {0}", output::word(output));
    }
    Ok(())
}

/// The same recording, asked of the program there.
fn words(args: &Record) -> Vec<String> {
    let mut words: Vec<String> = ["record", "--no-link", "--output", THERE].map(Into::into).to_vec();
    let mut flag = |on: bool, name: &str| words.extend(on.then(|| name.to_owned()));
    flag(args.all, "--all");
    flag(args.keep_sql, "--keep-sql");
    flag(args.as_root, "--as-root");
    flag(args.no_probe_cost, "--no-probe-cost");
    flag(args.quiet, "--quiet");
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    args.pid.iter().for_each(|pid| option("--pid", pid.to_string()));
    args.comm.iter().for_each(|comm| option("--comm", comm.clone()));
    args.duration.iter().for_each(|d| option("--duration", d.as_secs_f64().to_string()));
    args.max_size.iter().for_each(|bytes| option("--max-size", bytes.to_string()));
    args.operations.iter().for_each(|operation| option("--op", operation.to_string()));
    let probes = match args.probes {
        Probes::Auto => "auto",
        Probes::Inside => "inside",
        Probes::Uprobe => "uprobe",
    };
    option("--probes", probes.into());
    args.without.iter().for_each(|probe| option("--without", probe.into()));
    option("--stacks", if args.stacks == Stacks::Auto { "auto" } else { "off" }.into());
    let backend = match args.backend {
        Backend::Auto => "auto",
        Backend::Ebpf => "ebpf",
        Backend::Ftrace => "ftrace",
        Backend::Attached => "attached",
        Backend::None => "none",
    };
    option("--backend", backend.into());
    if !args.command.is_empty() {
        words.push("--".into());
        words.extend(args.command.iter().map(|w| w.to_string_lossy().into_owned()));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};
    use clap::Parser as _;

    fn parsed(words: &[&str]) -> Record {
        match Cli::try_parse_from([&["fathom", "record"], words].concat()).unwrap().verb {
            Verb::Record(args) => args,
            _ => unreachable!("it is `record`"),
        }
    }

    #[test]
    fn device_gets_same_recording_request() {
        let asked = [
            "--device",
            "adb:X",
            "--all",
            "--keep-sql",
            "--duration",
            "1.5",
            "--max-size",
            "65536",
            "--op",
            "libc.so:fsync",
            "--backend",
            "ftrace",
            "-o",
            "mine.fathom",
            "--",
            "sh",
            "-c",
            "a b",
        ];
        let there = words(&parsed(&asked));
        let again = parsed(&there.iter().skip(1).map(String::as_str).collect::<Vec<_>>());
        assert!(again.all && again.keep_sql && again.no_link && again.devices.device.is_empty());
        assert_eq!(
            (again.duration.unwrap().as_millis(), again.max_size, again.backend),
            (1500, Some(65536), Backend::Ftrace)
        );
        assert_eq!((again.operations.len(), again.output.to_str()), (1, Some(THERE)));
        assert_eq!(again.command, ["sh", "-c", "a b"]);
    }
}
