//! The contract of `fathom diff --json`: what a program may rely on.
//!
//! As in [`crate::contract`], names and shapes change only together with [`VERSION`]. Times are ns. Differences are B less A, ratios B / A,
//! intervals `[low, high]` of 0.95. What is null is not known.

use super::align::Alone;
use super::edges::Edges;
use crate::bench::fact_difference::FactDifference;
use crate::contract::Blind;
use model::{Layer, Reason};
use serde::Serialize;
use stats::verdict::Verdict;

/// Version of this contract.
pub const VERSION: u32 = 1;

/// Two recordings compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diff {
    /// [`VERSION`].
    pub version: u32,
    /// The baseline.
    pub a: Side,
    /// The candidate.
    pub b: Side,
    /// Of B against A: `slower`, `faster`, `equivalent` or `inconclusive`.
    pub verdict: Verdict,
    /// Why, in a sentence.
    pub why: String,
    /// Whether the verdict is withheld for what the recordings lack; it is `inconclusive` then.
    pub withheld: bool,
    /// The smallest difference that matters, as a part of the time.
    pub margin: f64,
    /// Time of all executions that were compared; of those inside others that of the outer ones.
    pub latency_ns: Times,
    /// The part of the difference that lies in phases that did different work; absent without an interval.
    pub different_work_ns: Option<Delta>,
    /// The difference by phase and layer: what makes most of it first, what goes against it last. It adds up.
    pub contributions: Vec<Contribution>,
    /// The same by phase.
    pub phases: Vec<Contribution>,
    /// The same by layer.
    pub layers: Vec<Contribution>,
    /// Statements of both, the largest difference first.
    pub statements: Vec<Statement>,
    /// What executions of one do and those of the other never.
    pub edges: Edges,
    /// Statements of A only.
    pub only_a: Vec<Alone>,
    /// Statements of B only.
    pub only_b: Vec<Alone>,
    /// Facts about the devices and recordings that differ.
    pub facts: Vec<FactDifference>,
    /// With several recordings a side: what the verdict and `latency_ns.ratio` are made of. All else is of the middle one of each side.
    pub recordings: Option<Recordings>,
}

/// Several recordings of each side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recordings {
    /// Which of A's is the middle one, from 0, in the order given.
    pub middle_a: usize,
    /// Which of B's.
    pub middle_b: usize,
    /// Whether all of one side were made before all of the other, so that a change of the machine meanwhile counts as a difference.
    pub apart: bool,
    /// The time of all executions that all recordings have; of those inside others that of the outer ones.
    pub whole: Compared,
}

/// The sums of each recording, and how the two sides compare.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// A's, in the order given.
    pub a_ns: Vec<u64>,
    /// B's.
    pub b_ns: Vec<u64>,
    /// The median of all ratios B / A; null with too few recordings for an interval (4 and 4, or 3 and 5, have one).
    pub ratio: Option<f64>,
    /// Its interval, by the exact rank test.
    pub ratio_interval: Option<[f64; 2]>,
    /// The two-sided p value of no difference, by the same test.
    pub p: Option<f64>,
    /// The same as one of the statements that take 1 % of the time (Benjamini and Hochberg); null for the others and for all together.
    pub adjusted_p: Option<f64>,
    /// As in [`Diff`].
    pub verdict: Verdict,
}

/// One recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Side {
    /// The command that was recorded.
    pub command: Vec<String>,
    /// Whether the recording came to its end.
    pub complete: bool,
    /// Finished executions.
    pub executions: u64,
    /// What was not recorded, and what that means.
    pub blind: Vec<Blind>,
    /// What was lost, as far as it is known.
    pub losses: Vec<Lost>,
}

/// Records that were lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// What lost them.
    pub source: String,
    /// The probe concerned, if it is one.
    pub program: Option<String>,
    /// How many; absent if unknown.
    pub events: Option<u64>,
    /// Whether executions may be missing for it, or calls: not only what the device did.
    pub hides_executions: bool,
}

/// Times of both.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Times {
    /// Sum over A's executions that were compared.
    pub a: u64,
    /// Sum over B's.
    pub b: u64,
    /// B - A.
    pub delta_ns: f64,
    /// Its interval.
    pub interval: Option<[f64; 2]>,
    /// B / A.
    pub ratio: Option<f64>,
    /// Its interval.
    pub ratio_interval: Option<[f64; 2]>,
}

/// A difference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Delta {
    /// B - A.
    pub delta_ns: f64,
    /// Its interval.
    pub interval: [f64; 2],
}

/// A part of the difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Contribution {
    /// What the program was at: `fdatasync rollback journal`, `outside system calls`, `tracer`. Null in `layers[]`.
    pub phase: Option<String>,
    /// The layer that the time belongs to. Null in `phases[]`, and for time that nothing tells of.
    pub layer: Option<Layer>,
    /// What the thread did or waited for. Null in `phases[]`.
    pub reason: Option<Reason>,
    /// A's time.
    pub a_ns: f64,
    /// B's.
    pub b_ns: f64,
    /// B - A.
    pub delta_ns: f64,
    /// Its interval.
    pub interval: Option<[f64; 2]>,
    /// Its part of the whole difference: negative if it goes the other way. Shares add up to 1. Null unless the verdict is slower or faster.
    pub share: Option<f64>,
    /// Whether the phase did different work in the two: other numbers of calls, bytes, bios, flushes, rows. Null in `layers[]`.
    pub different_work: Option<bool>,
}

/// A statement of both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statement {
    /// Its text.
    pub statement: String,
    /// `statement`, `function`, `mark` or `transaction`.
    pub kind: String,
    /// Executions that were compared.
    pub pairs: u64,
    /// Finished executions of A without a counterpart.
    pub left_a: u64,
    /// Of B.
    pub left_b: u64,
    /// As in [`Diff`].
    pub verdict: Verdict,
    /// As in [`Diff`].
    pub why: String,
    /// Sums over the executions.
    pub latency_ns: Times,
    /// Medians of both, and the ratio of typical executions.
    pub median_ns: Medians,
    /// As in [`Diff`].
    pub different_work_ns: Option<Delta>,
    /// What an execution did, mean, from the application down.
    pub counts: Vec<Count>,
    /// Its time by phase, ns of all executions.
    pub phases: Vec<Contribution>,
    /// By layer.
    pub layers: Vec<Contribution>,
    /// With several recordings a side.
    pub recordings: Option<Compared>,
}

/// Medians of the latencies.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Medians {
    /// A's.
    pub a: u64,
    /// B's.
    pub b: u64,
    /// B / A: the median over stretches of executions of the ratio of their medians.
    pub ratio: Option<f64>,
    /// Its interval.
    pub ratio_interval: Option<[f64; 2]>,
}

/// A count, mean per execution.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Count {
    /// Layer.
    pub layer: Layer,
    /// What is counted.
    pub name: String,
    /// On which kind of file: `database`, `rollback journal`, `WAL`, `directory`, `other`, …
    pub file: Option<String>,
    /// A's.
    pub a: f64,
    /// B's.
    pub b: f64,
    /// B - A.
    pub delta: f64,
    /// Its interval.
    pub interval: Option<[f64; 2]>,
    /// Whether the difference is more than chance and more than a tenth.
    pub differs: bool,
}
