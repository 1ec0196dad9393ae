//! Processes that a command leaves behind: a daemon ends the command at once and continues by itself, and what it does then is not
//! in the recording, which ends with the command.

use capture::launch::Child;
use model::text::shown;
use std::fmt;

/// Maximum number of processes that are named.
const PROCESSES_NAMED_MAX: usize = 5;

/// A process that continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number in `/proc`.
    pub pid: u32,
    pub name: String,
}

/// The processes that a command left running, excluding the command itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftProcesses(pub Vec<Process>);

impl LeftProcesses {
    /// Returns those that were being recorded when the command had ended.
    pub fn candidates(child: &mut Child, recorded: impl FnOnce() -> Vec<u32>) -> Vec<u32> {
        // A command that is still running itself is reported as such.
        match child.try_wait() {
            Ok(Some(_)) => recorded().into_iter().filter(|pid| *pid != child.pid()).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the candidates that still exist, once the probes are gone: by then many children that nobody waited for have ended, and
    /// others have executed the program that they were created for.
    pub fn from_candidates(candidates: &[u32]) -> Option<Self> {
        let there = |pid: &u32| Some(Process { pid: *pid, name: capture::comm_of(*pid)? });
        let all: Vec<Process> = candidates.iter().filter_map(there).collect();
        (!all.is_empty()).then_some(Self(all))
    }
}

/// `daemon (1234), helper (1235)`.
impl fmt::Display for LeftProcesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named =
            self.0.iter().take(PROCESSES_NAMED_MAX).map(|Process { pid, name }| format!("{} ({pid})", shown(name)));
        f.write_str(&named.collect::<Vec<_>>().join(", "))?;
        match self.0.len().saturating_sub(PROCESSES_NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_processes_are_counted_after_the_first_five() {
        let of = |n: u32| LeftProcesses((1..=n).map(|pid| Process { pid, name: "d".into() }).collect()).to_string();
        assert_eq!(of(2), "d (1), d (2)");
        assert!(of(7).ends_with("d (5) and 2 more"), "{}", of(7));
    }
}
