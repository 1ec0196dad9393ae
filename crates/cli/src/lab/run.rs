//! `fathom lab run`: a scenario in a guest; what came back of it, in one line.

use super::folder;
use crate::{Usage, args, link, output, progress};
use anyhow::{Context as _, Result};
use lab::accelerator::Accelerator;
use lab::run::{Ending, NotStarted, Options, Outcome};
use lab::scenario::{self, Scenario};
use model::{Context, counted};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What every result says of its times, for no guest's are a device's.
fn functional(accelerator: Accelerator) -> &'static str {
    match accelerator {
        Accelerator::Kvm => "times are of a virtual machine whose disk is a file (KVM): they are no device's",
        _ => "times are of an emulated processor: they show order, not speed",
    }
}

pub fn run(args: &args::LabRun) -> Result<ExitCode> {
    let usage = |error: scenario::Error| anyhow::Error::new(Usage(error.to_string()));
    let (name, scenario) = scenario::find(&args.scenario, &args.set).map_err(usage)?;
    let cache = folder::cache(args.cache.as_deref())?;
    let program = args.program.clone().map_or_else(std::env::current_exe, std::path::absolute);
    let program = program.context("where this program is")?;
    let folder = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.lab")));
    // Before an earlier result is moved.
    lab::guest::available().map_err(explained)?;
    folder::result(&folder)?;
    let context = progress::context(args.json);
    progress::end_on_signal(&context);
    let options = Options { cache: &cache, program: &program, folder: &folder, keep: args.keep };
    let outcome = lab::run::run(&scenario, &options, &context);
    progress::clear(&context);
    if outcome.is_err() {
        // It stays only if there is something in it.
        let _ = std::fs::remove_dir(&folder);
    }
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(NotStarted::Wrong(error)) => return Err(usage(error)),
        Err(NotStarted::Lab(_)) if context.cancelled() => {
            eprintln!("fathom: interrupted before the guest had booted");
            return Ok(ExitCode::from(crate::bench::INTERRUPTED));
        }
        Err(NotStarted::Lab(error)) => return Err(explained(error)),
    };
    let recording = Recording::find(&folder);
    let well = is_well(&scenario, &outcome.ending) && recording.as_ref().is_some_and(|r| r.problem.is_none());
    if args.json {
        let line = contract(&name, &folder, &outcome, recording.as_ref(), well);
        output::text(&(serde_json::to_string(&line)? + "\n"));
    } else {
        println!("{}", sentence(&name, &folder, &outcome, recording.as_ref(), well));
        if recording.as_ref().is_some_and(|r| r.problem.is_none()) {
            let archive = output::word(&folder.join(lab::run::ARCHIVE));
            eprintln!("next: fathom show {archive}, or fathom report {archive}");
        }
    }
    Ok(match (well, &outcome.ending) {
        (true, _) => ExitCode::SUCCESS,
        (false, Ending::Interrupted) => ExitCode::from(crate::bench::INTERRUPTED),
        (false, _) => ExitCode::FAILURE,
    })
}

/// What this machine lacks, and what to do.
pub(super) fn explained(error: lab::Error) -> anyhow::Error {
    const REMEDY: &str = "fathom lab needs QEMU, a static busybox and apt (on Debian: apt-get install qemu-system-x86 busybox-static), \
                          and the network once, for the kernel";
    match error {
        lab::Error::Missing(_) => anyhow::anyhow!("{error}\n{REMEDY}"),
        other => other.into(),
    }
}

/// What was recorded, if anything was.
#[derive(Default)]
struct Recording {
    operations: u64,
    commands: u64,
    /// Whether it came to its end.
    complete: bool,
    lost: bool,
    /// Why it cannot be read.
    problem: Option<String>,
}

impl Recording {
    /// Reads it; one that a guest left unfinished is linked here.
    fn find(folder: &Path) -> Option<Self> {
        let path = folder.join(lab::run::ARCHIVE);
        if !archive::log::path(&path).is_file() {
            return None;
        }
        // Whoever asked for the end of the run gets what there is, and may end this too.
        let read = || -> Result<Self> {
            let linked = link::open(&path, &Context::silent())?;
            let summary = analysis::summarise_archive(&linked)?;
            let operations = summary.operations.iter().map(|o| o.count).sum();
            let (commands, lost) = (summary.device_commands.total as u64, !summary.loss.intervals.is_empty());
            Ok(Self { operations, commands, complete: summary.trace.complete, lost, problem: None })
        };
        let problem = |error| Self { problem: Some(crate::sentence(&error)), ..Self::default() };
        Some(read().unwrap_or_else(problem))
    }
}

/// Whether it ended as the scenario expects.
fn is_well(scenario: &Scenario, ending: &Ending) -> bool {
    match ending {
        Ending::Ended { status } => *status == 0 || scenario.workload.may_fail,
        _ => false,
    }
}

fn sentence(name: &str, folder: &Path, outcome: &Outcome, recording: Option<&Recording>, well: bool) -> String {
    let what = match &outcome.ending {
        Ending::Ended { status: 0 } => "the workload ended well".into(),
        Ending::Ended { status } => {
            let expected = if well { ", as the scenario expects" } else { "" };
            format!("the workload ended with status {status}{expected} (see {})", lab::run::SAID)
        }
        Ending::TimedOut => "the workload did not end within workload.limit".into(),
        Ending::NotPrepared(why) => format!("the disks could not be prepared: {why}"),
        Ending::NotRecorded(why) => format!("the recording failed: {why}"),
        Ending::Crashed(said) => format!("the guest kernel panicked: {said} (see {})", lab::run::CONSOLE),
        Ending::Hung => format!("the guest hung: it was silent for machine.silence (see {})", lab::run::CONSOLE),
        Ending::Interrupted => "interrupted".into(),
    };
    let recorded = match recording {
        None => "nothing was recorded".into(),
        Some(Recording { problem: Some(why), .. }) => format!("the recording cannot be read: {why}"),
        Some(r) => {
            let cut = if r.complete { "" } else { " until then" };
            let lost = if r.lost { ", events lost" } else { "" };
            let operations = counted(r.operations as usize, "operation");
            let commands = counted(r.commands as usize, "device command");
            let archive = folder.join(lab::run::ARCHIVE);
            format!("{operations}, {commands}{cut}{lost} in {}; {}", archive.display(), functional(outcome.accelerator))
        }
    };
    format!("{name} on Linux {}, {} s: {what}; {recorded}", outcome.release, outcome.took.as_secs())
}

fn contract(
    name: &str,
    folder: &Path,
    outcome: &Outcome,
    recording: Option<&Recording>,
    well: bool,
) -> serde_json::Value {
    let (ending, said, status) = match &outcome.ending {
        Ending::Ended { status } => ("ended", None, Some(status)),
        Ending::TimedOut => ("timed_out", None, None),
        Ending::NotPrepared(why) => ("not_prepared", Some(why), None),
        Ending::NotRecorded(why) => ("not_recorded", Some(why), None),
        Ending::Crashed(said) => ("crashed", Some(said), None),
        Ending::Hung => ("hung", None, None),
        Ending::Interrupted => ("interrupted", None, None),
    };
    let recording = recording.map(|r| {
        json!({"archive": folder.join(lab::run::ARCHIVE), "operations": r.operations, "commands": r.commands,
               "complete": r.complete, "lost": r.lost, "problem": r.problem})
    });
    json!({"version": 1, "scenario": name, "folder": folder, "kernel": outcome.release, "ending": ending, "said": said,
           "status": status, "as_expected": well, "took_s": outcome.took.as_secs_f64(), "functional": true,
           "accelerator": outcome.accelerator.name(),
           "recording": recording})
}
