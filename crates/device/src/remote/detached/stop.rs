//! Detached commands left on a device: list, stop, remove.

use super::{DetachedCommands, Error, FoundCommand, State};
use serde::{Deserialize, Serialize};

/// A request to list or stop commands.
#[derive(Debug, Clone, Copy)]
pub struct StopRequest<'a> {
    /// The names; all commands if empty.
    pub names: &'a [String],
    /// Whether to list only.
    pub list: bool,
    /// Whether to remove results that were not fetched too.
    pub discard: bool,
}

/// The action taken for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// None: it was only listed.
    Listed,
    /// It was stopped and removed.
    Removed,
    /// It was stopped; its results can be fetched.
    Kept,
    /// It could not be stopped or removed.
    Failed,
}

impl Action {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Removed => "removed",
            Self::Kept => "kept",
            Self::Failed => "failed",
        }
    }
}

/// A command, and the action taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftCommand {
    pub name: String,
    /// `service`, which runs until it is stopped, or `run`, whose results are fetched.
    pub kind: String,
    /// The command's words after the program.
    pub command: String,
    /// Its state before: `prepared`, `running`, `ended` or `vanished`.
    pub state: String,
    /// When it was started, in seconds since 1970 by the device's clock.
    pub since_s: Option<u64>,
    /// Bytes that it wrote to its directory.
    pub bytes: u64,
    pub action: Action,
    pub problem: Option<String>,
}

impl DetachedCommands {
    /// Lists the commands, and stops the requested ones.
    ///
    /// # Errors
    /// The directory cannot be read, or a named command does not exist.
    pub fn stop_all(&self, wanted: &StopRequest<'_>) -> Result<Vec<LeftCommand>, Error> {
        let mut all = self.list()?;
        if let Some(missing) = wanted.names.iter().find(|name| !all.iter().any(|found| found.name == **name)) {
            self.place(missing)?;
            return Err(Error::Missing(missing.clone()));
        }
        all.retain(|found| wanted.names.is_empty() || wanted.names.contains(&found.name));
        Ok(all.iter().map(|found| self.stop_one(found, wanted)).collect())
    }

    fn stop_one(&self, found: &FoundCommand, wanted: &StopRequest<'_>) -> LeftCommand {
        let about = found.about.as_ref();
        let run = about.is_some_and(|about| about.lease_s > 0);
        let words = about.map_or_else(String::new, |about| about.argv.get(1..).unwrap_or_default().join(" "));
        let done = if wanted.list { Ok(Action::Listed) } else { self.end(found, run && !wanted.discard) };
        LeftCommand {
            name: found.name.clone(),
            kind: if run { "run" } else { "service" }.into(),
            command: words,
            state: found.state.name().into(),
            since_s: about.map(|about| about.since_s),
            bytes: found.bytes,
            action: *done.as_ref().unwrap_or(&Action::Failed),
            problem: done.err().map(|error| error.to_string()),
        }
    }

    fn end(&self, found: &FoundCommand, keep: bool) -> Result<Action, Error> {
        if found.state == State::Running {
            self.stop(&found.name)?;
        }
        if keep && found.bytes > 0 {
            return Ok(Action::Kept);
        }
        self.remove(&found.name).map(|()| Action::Removed)
    }
}
