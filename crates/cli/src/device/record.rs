//! `fathom record --device`: this program records there, and what it recorded is linked here.

use super::result::{self, Telling};
use crate::args::{Backend, Probes, Record, Via};
use crate::{link, output, progress};
use anyhow::{Context as _, Result};
use archive::Archive;
use device::remote::{DeviceAddress, Ended};
use model::{Context, counted};
use recorder::incoming::{Incoming, THERE};
use std::process::ExitCode;

pub fn run(args: &Record, place: &DeviceAddress) -> Result<ExitCode> {
    if args.via == Some(Via::Perfetto) {
        return super::perfetto::run(args, place);
    }
    // Told before anything is copied.
    Archive::has_room(&args.output, true)?;
    let words = words(args);
    let context = progress::context(args.quiet);
    progress::end_on_signal(&context);
    let (binaries, output) = (&args.elsewhere.binary[..], &args.output);
    let incoming = Incoming { place, binaries, files: &[], words: &words, output, detached: None };
    let telling = Telling { quiet: args.quiet, prints: true, prefix: "" };
    let (done, kept) = result::bring(&incoming, telling, &context)?;
    let writes = !matches!(args.backend, Backend::None | Backend::Attached);
    let lost = result::lost(&done, kept, &args.output);
    if kept {
        recorder::output::give_to_caller(&args.output)?;
        let archive = link::open(&args.output, &Context::silent())?;
        recorder::output::give_to_caller(&args.output)?;
        if !args.quiet {
            let summary = analysis::summarise_archive(&archive).context("what came back")?;
            let operations: u64 = summary.operations.iter().map(|o| o.count).sum();
            eprintln!("{}: {} on {}", args.output.display(), counted(operations as usize, "operation"), done.place);
            eprintln!("next: fathom show {0}, or fathom report {0}", output::word(&args.output));
        }
    }
    Ok(match done.ended {
        Ended::Exit(status) if kept || status != 0 || !writes => ExitCode::from(status),
        _ if lost => ExitCode::FAILURE,
        _ => {
            eprintln!("fathom: {} brought no recording back", done.place);
            ExitCode::FAILURE
        }
    })
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
        assert!(again.all && again.keep_sql && again.no_link && again.elsewhere.device.is_none());
        assert_eq!(
            (again.duration.unwrap().as_millis(), again.max_size, again.backend),
            (1500, Some(65536), Backend::Ftrace)
        );
        assert_eq!((again.operations.len(), again.output.to_str()), (1, Some(THERE)));
        assert_eq!(again.command, ["sh", "-c", "a b"]);
    }
}
