//! The outcome of a run, for people and for programs.

use crate::accelerator::Accelerator;
use crate::run::{ARCHIVE_NAME, CONSOLE_LOG, Ending, Outcome, WORKLOAD_LOG};
use crate::scenario::Scenario;
use model::counted;
use model::text::ShownPath as _;
use serde_json::{Value, json};
use std::path::Path;

/// The recording, if there is one.
#[derive(Debug, Default)]
pub struct Recording {
    /// Calls that were recorded.
    pub operations: u64,
    pub commands: u64,
    pub complete: bool,
    /// Whether events are missing.
    pub lost: bool,
    /// What could not be observed, though nothing was lost: one sentence each.
    pub blind: Vec<String>,
    /// Why it cannot be read.
    pub problem: Option<String>,
}

/// The remark on times in every result, since no guest's times are a device's.
fn times_remark(accelerator: Accelerator) -> &'static str {
    match accelerator {
        Accelerator::Kvm => "times are of a virtual machine whose disk is a file (KVM), not of a device",
        _ => "times are of an emulated processor: they show order, not speed",
    }
}

/// Whether it ended as the scenario expects, and was recorded to its end.
pub fn is_success(scenario: &Scenario, ending: &Ending, recording: Option<&Recording>) -> bool {
    let ended = match ending {
        Ending::Ended { status } => *status == 0 || scenario.workload.may_fail,
        _ => false,
    };
    ended && recording.is_some_and(|r| r.complete && r.problem.is_none())
}

pub fn sentence(name: &str, directory: &Path, outcome: &Outcome, recording: Option<&Recording>, well: bool) -> String {
    let what = match &outcome.ending {
        Ending::Ended { status: 0 } => "the workload ended well".into(),
        Ending::Ended { status } => {
            let expected = if well { ", as the scenario expects" } else { "" };
            format!("the workload ended with status {status}{expected} (see {})", WORKLOAD_LOG)
        }
        Ending::TimedOut => "the workload did not end within workload.limit".into(),
        Ending::NotPrepared(why) => format!("the disks could not be prepared: {why}"),
        Ending::NotRecorded(why) => format!("the recording failed: {why}"),
        Ending::Crashed(said) if said.contains("Kernel panic") => {
            format!("the guest kernel panicked: {said} (see {CONSOLE_LOG})")
        }
        Ending::Crashed(said) => format!("the guest ended: {said} (see {CONSOLE_LOG})"),
        Ending::Hung => format!("the guest hung: it was silent for machine.silence (see {})", CONSOLE_LOG),
        Ending::Interrupted => "interrupted".into(),
    };
    let recorded = match recording {
        None => "nothing was recorded".into(),
        Some(Recording { problem: Some(why), .. }) => format!("the recording cannot be read: {why}"),
        Some(r) => {
            let cut = match outcome.ending {
                _ if r.complete => String::new(),
                Ending::Ended { .. } => format!(" until the recording ended early (see {WORKLOAD_LOG})"),
                _ => " until then".into(),
            };
            let lost = if r.lost { ", events lost" } else { "" };
            let unseen = if r.blind.is_empty() { "" } else { ", not all could be seen" };
            let operations = counted(r.operations as usize, "operation");
            let commands = counted(r.commands as usize, "device command");
            let archive = directory.join(ARCHIVE_NAME);
            format!(
                "{operations}, {commands}{cut}{lost}{unseen} in {}; {}",
                archive.shown(),
                times_remark(outcome.accelerator)
            )
        }
    };
    format!("{name} on Linux {}, {} s: {what}; {recorded}", outcome.release, outcome.took.as_secs())
}

/// The outcome as specified in docs/reference/json.md.
pub fn to_json(name: &str, directory: &Path, outcome: &Outcome, recording: Option<&Recording>, well: bool) -> Value {
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
        json!({"archive": directory.join(ARCHIVE_NAME), "operations": r.operations, "commands": r.commands,
               "complete": r.complete, "lost": r.lost, "blind": r.blind, "problem": r.problem})
    });
    json!({"version": 1, "scenario": name, "folder": directory, "kernel": outcome.release, "ending": ending, "said": said,
           "status": status, "as_expected": well, "took_s": outcome.took.as_secs_f64(), "functional": true,
           "accelerator": outcome.accelerator.name(),
           "recording": recording})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workload_not_recorded_to_its_end_is_no_success() {
        let scenario = crate::scenario::find("scsi-ext4", &[]).unwrap().1;
        let ending = Ending::Ended { status: 0 };
        let full = Recording { operations: 3, commands: 20, complete: true, ..Recording::default() };
        let cut = Recording { operations: 3, complete: false, ..Recording::default() };
        assert!(is_success(&scenario, &ending, Some(&full)));
        assert!(!is_success(&scenario, &ending, Some(&cut)) && !is_success(&scenario, &ending, None));
        let outcome = Outcome {
            ending,
            release: "6.1".into(),
            accelerator: Accelerator::Tcg,
            took: std::time::Duration::from_secs(9),
        };
        let said = |recording| sentence("x", Path::new("x.lab"), &outcome, Some(recording), false);
        assert!(
            said(&cut).contains(&format!("until the recording ended early (see {WORKLOAD_LOG})")),
            "{}",
            said(&cut)
        );
        assert!(!said(&full).contains("until"), "{}", said(&full));
        let off = Outcome { ending: Ending::Crashed("reboot: Power down".into()), ..outcome.clone() };
        let said = sentence("x", Path::new("x.lab"), &off, Some(&cut), false);
        assert!(said.contains("the guest ended: reboot: Power down") && !said.contains("panicked"), "{said}");
    }
}
