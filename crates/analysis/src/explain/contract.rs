//! The contract of `fathom explain --json`: what a program may rely on.
//!
//! As in [`crate::contract`], names and shapes change only together with [`VERSION`]. Times are ns, shares from 0 to 1, intervals
//! `[low, high]` of 0.95. What is null is not known.

use crate::contract::SlowWait;
use serde::Serialize;

/// Version of this contract.
pub const VERSION: u32 = 1;

/// What a recording's statements lost time to.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// [`VERSION`].
    pub version: u32,
    /// What saves most first, by the low end of its interval, and what only says where time goes after its cause; what makes the recording
    /// itself doubtful before all.
    pub findings: Vec<Finding>,
    /// Executions that ended, of all operations; without any there is nothing to explain.
    pub executions: u64,
    /// Time of all executions, of those inside others that of the outer ones.
    pub latency_ns: u64,
}

/// A conclusion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What it is: `F01`.
    pub code: String,
    /// The same in words.
    pub title: String,
    /// The statement it is about; absent if about the recording.
    pub statement: Option<String>,
    /// What was found, with its numbers.
    pub claim: String,
    /// Executions of the statement that show it.
    pub executions: u64,
    /// Executions of the statement.
    pub of: u64,
    /// The time concerned, over all executions.
    pub time_ns: Option<u64>,
    /// Its part of the statement's time.
    pub share: Option<f64>,
    /// The interval of that: how well it is known for this recording.
    pub interval: Option<[f64; 2]>,
    /// Its part of the time of all statements.
    pub share_of_all: Option<f64>,
    /// What the remedy could save at most; absent if nobody can tell.
    pub saving_ns: Option<u64>,
    /// The interval of that: how well it is known for this recording.
    pub saving_interval_ns: Option<[u64; 2]>,
    /// What to do.
    pub remedy: String,
    /// Spans to look at (`spans.id`), the longest first.
    pub evidence: Vec<u64>,
    /// Where the threads stood that slept so, of a choice of sleeps (facts `stacks.*`): times are the part that the finding concerns.
    pub slow_waits: Vec<SlowWait>,
}
