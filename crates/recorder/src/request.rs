//! What to record.

use crate::control::Control;
use crate::{Error, Result, functions};
use capture::Scope;
use capture::request::Function;
use model::quantity::Choices;
use model::text::ShownPath as _;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The processes whose statements and calls are operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A command that the recorder starts: the program, searched in PATH, and its arguments.
    Command(Vec<OsString>),
    /// Running processes, and what they start.
    Pids(Vec<u32>),
    /// The processes of this name, now and later.
    Comm(String),
    /// Every process.
    All,
}

/// How SQLite's functions are probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Probes {
    /// Inside the command's processes where that sees everything that uprobes see, else by uprobes.
    #[default]
    Auto,
    /// Inside, or the recording fails. Processes that are already running are probed inside only with this, and otherwise by
    /// uprobes.
    Inside,
    Uprobe,
}

impl Probes {
    /// The values of `--probes`.
    pub const CHOICES: Choices<Self, 3> = [
        ("auto", "Inside for CMD on x86-64 if no data would be lost, otherwise uprobes", Self::Auto),
        ("inside", "Inside only; fail otherwise. With --pid: inside where possible, otherwise uprobes", Self::Inside),
        ("uprobe", "With uprobes", Self::Uprobe),
    ];
}

/// A recording to be made.
#[derive(Debug, Clone)]
pub struct Request {
    pub output: PathBuf,
    /// The processes whose operations are recorded.
    pub target: Target,
    /// Whether those of all other processes are recorded too.
    pub also_all: bool,
    /// Ends the recording after this time.
    pub duration: Option<Duration>,
    /// Ends it when the event log has this size, in bytes.
    pub max_size: Option<u64>,
    /// Functions whose executions are operations: a program or library, by path or name, and the function.
    pub functions: Vec<(PathBuf, String)>,
    /// Stores SQL with its literals.
    pub keep_sql: bool,
    /// Runs the command as root even under sudo.
    pub as_root: bool,
    /// Samples the cost of each probe.
    pub price: bool,
    /// Records the stacks of the longest sleeps.
    pub stacks: bool,
    /// How SQLite's functions are probed.
    pub probes: Probes,
    /// Probes of the kernel that are left out, to show their cost ([`capture::probe_names`]).
    pub without: Vec<String>,
    /// Commands to the recording while it is made.
    pub control: Option<Control>,
    /// Links what was recorded. Otherwise that is done when the archive is first opened, here or on another machine.
    pub link: bool,
}

impl Request {
    /// Requests a recording of `target` into `output`, with default settings.
    pub fn new(output: PathBuf, target: Target) -> Self {
        Self {
            output,
            target,
            also_all: false,
            duration: None,
            max_size: None,
            functions: Vec::new(),
            keep_sql: false,
            as_root: false,
            price: true,
            stacks: true,
            probes: Probes::Auto,
            without: Vec::new(),
            control: None,
            link: true,
        }
    }

    /// Returns the command; empty if there is none.
    pub(crate) fn command(&self) -> &[OsString] {
        if let Target::Command(words) = &self.target { words } else { &[] }
    }

    /// Returns the processes that were requested by number.
    pub(crate) fn pids(&self) -> &[u32] {
        if let Target::Pids(pids) = &self.target { pids } else { &[] }
    }

    /// Returns the name of the requested processes.
    pub(crate) fn comm(&self) -> Option<&str> {
        if let Target::Comm(name) = &self.target { Some(name) } else { None }
    }

    /// Returns the request for the probes. `hollow`: they are attached and record nothing.
    pub(crate) fn probe_request(&self, hollow: bool) -> Result<capture::Request> {
        let scope = match &self.target {
            Target::Command(_) => Scope::Command,
            Target::Pids(pids) => Scope::Pids(pids.clone()),
            Target::Comm(name) => Scope::Comm(name.clone()),
            Target::All => Scope::All,
        };
        let mut request = capture::Request::new(scope);
        request.also_all = self.also_all;
        request.hollow = hollow;
        request.price = self.price && !hollow;
        request.stacks = self.stacks && !hollow;
        request.without.clone_from(&self.without);
        let (path, libraries) = (std::env::var_os("PATH"), std::env::var_os("LD_LIBRARY_PATH"));
        for (binary, name) in &self.functions {
            let path = functions::find_file(binary, path.as_deref(), libraries.as_deref())
                .map_err(|source| Error::NoFile { function: format!("{}:{name}", binary.shown()), source })?;
            request.functions.push(Function { path, name: name.clone(), inside: None });
        }
        Ok(request)
    }

    /// Describes the target in words: a recording's title if there is no command.
    pub(crate) fn title(&self) -> String {
        match &self.target {
            Target::Pids(pids) => pids.iter().map(|pid| process_text(*pid)).collect::<Vec<_>>().join(", "),
            Target::Comm(name) => format!("processes named {name}"),
            Target::Command(_) | Target::All => "every process".into(),
        }
    }

    /// Returns the command in the form in which it is stored. A word with a space or a quote is usually SQL or a script, and
    /// what the user typed there is as private as a statement's literals.
    pub(crate) fn stored_command(&self) -> Vec<String> {
        let store = |word: &OsString| {
            let word = word.to_string_lossy();
            let looks_like_sql = word.contains(|c: char| c.is_whitespace() || c == '\'' || c == '"');
            if self.keep_sql || !looks_like_sql { word.into_owned() } else { sqlite::normalise(&word) }
        };
        self.command().iter().map(store).collect()
    }
}

fn process_text(pid: u32) -> String {
    capture::comm_of(pid).map_or_else(|| format!("process {pid}"), |name| format!("process {pid} ({name})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_command_omits_sql_literals() {
        let words = ["sqlite3", "t.db", "SELECT 'secret'"].map(OsString::from).to_vec();
        let mut request = Request::new("t.fathom".into(), Target::Command(words));
        assert_eq!(request.stored_command()[..2], ["sqlite3", "t.db"]);
        assert!(!request.stored_command()[2].contains("secret"), "{:?}", request.stored_command());
        request.keep_sql = true;
        assert_eq!(request.stored_command()[2], "SELECT 'secret'");
    }

    #[test]
    fn missing_file_of_a_function_is_named() {
        let mut request = Request::new("t.fathom".into(), Target::All);
        request.functions.push(("./nosuch".into(), "f".into()));
        let error = request.probe_request(false).unwrap_err().to_string();
        assert!(error.starts_with("--op ./nosuch:f: ") && error.contains("give the path"), "{error}");
    }
}
