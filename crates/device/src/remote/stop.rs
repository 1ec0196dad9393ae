//! Lists and stops commands left on a device: directly on this machine, otherwise with this program on the device.

use super::detached::{self, Action, DetachedCommands, LeftCommand, StopRequest};
use super::{DeviceAddress, Unreachable, ask, program};
use model::Context;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The output of `fathom device stop --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The version of this format.
    pub version: u32,
    /// The device's full name.
    pub device: String,
    /// The commands found, and the actions taken.
    pub left: Vec<LeftCommand>,
    /// Whether the program itself was removed; `None` if that was not requested.
    pub program_removed: Option<bool>,
}

/// Why the commands left there are unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device could not be queried.
    #[error(transparent)]
    Ask(#[from] ask::Error),
    /// This machine's directory is unreadable, or a name does not exist.
    #[error(transparent)]
    Here(#[from] detached::Error),
    /// The device was lost before the program was removed.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("{place}: invalid reply")]
    Unreadable { place: DeviceAddress, source: serde_json::Error },
}

/// Lists the commands left on a device, and stops the requested ones. With `remove_program` the program is also removed, if
/// nothing needs it; `tell` receives messages of the host.
pub fn stop(
    place: &DeviceAddress,
    binaries: &[PathBuf],
    wanted: &StopRequest<'_>,
    remove_program: bool,
    context: &Context,
    tell: &mut dyn FnMut(String),
) -> Result<Document, Error> {
    let mut document = match place {
        DeviceAddress::Local | DeviceAddress::Netns(_) => Document {
            version: 1,
            device: place.to_string(),
            left: DetachedCommands::from_environment().stop_all(wanted)?,
            program_removed: None,
        },
        place => {
            let (place, said) = ask::run_program(place, binaries, &words(wanted), context, tell)?;
            let answer: Document =
                serde_json::from_slice(&said).map_err(|source| Error::Unreadable { place: place.clone(), source })?;
            Document { device: place.to_string(), ..answer }
        }
    };
    if remove_program {
        let gone = document.left.iter().all(|left| left.action == Action::Removed);
        document.program_removed = Some(gone && program::remove(place, context)?);
    }
    Ok(document)
}

/// The arguments for the same request to the program there.
fn words(wanted: &StopRequest<'_>) -> Vec<String> {
    let mut words: Vec<String> = ["device", "stop", "local", "--json"].map(String::from).to_vec();
    words.extend(wanted.list.then(|| "--list".into()));
    words.extend(wanted.discard.then(|| "--discard".into()));
    words.push("--".into());
    words.extend(wanted.names.iter().cloned());
    words
}

impl Document {
    /// Whether everything requested was done.
    pub fn succeeded(&self) -> bool {
        self.left.iter().all(|left| left.problem.is_none()) && self.program_removed != Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_dashes_stay_names() {
        let names = ["--all".to_owned()];
        let wanted = StopRequest { names: &names, list: true, discard: false };
        assert_eq!(words(&wanted).join(" "), "device stop local --json --list -- --all");
    }

    #[test]
    fn problem_or_kept_program_is_a_failure() {
        let left = |problem: Option<&str>| LeftCommand {
            name: "node-1".into(),
            kind: "service".into(),
            command: String::new(),
            state: "running".into(),
            since_s: None,
            bytes: 0,
            action: Action::Removed,
            problem: problem.map(Into::into),
        };
        let done = |problem, program_removed| {
            Document { version: 1, device: "adb:X".into(), left: vec![left(problem)], program_removed }.succeeded()
        };
        assert!(done(None, None) && done(None, Some(true)));
        assert!(!done(Some("no"), None) && !done(None, Some(false)));
    }
}
