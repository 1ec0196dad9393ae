//! The contract of `fathom diff --json`: what a program may rely on.
//!
//! As in [`analysis::contract`], names and shapes change only together with [`VERSION`]. Times are ns. Differences are B minus A,
//! ratios B / A, intervals `[low, high]` of 0.95. Unknown values are null.

use super::align::UnmatchedStatement;
use super::edges::Edges;
use super::series::CountUnit;
use analysis::caveats::Caveats;
use analysis::contract::Blind;
use model::{Layer, Reason};
use scores::fact_difference::FactDifference;
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
    /// Verdict on B relative to A: `slower`, `faster`, `equivalent` or `inconclusive`.
    pub verdict: Verdict,
    /// The reason, in a sentence.
    pub why: String,
    /// Whether the verdict is withheld because of what the recordings cannot carry (gaps, an emulated processor); it is `inconclusive`
    /// then.
    pub withheld: bool,
    /// The smallest difference that matters, as a fraction of the time.
    pub margin: f64,
    /// Time of all compared executions; nested ones count as part of the outer ones.
    pub latency_ns: Times,
    /// The part of the difference in phases that did different work; absent without an interval.
    pub different_work_ns: Option<Delta>,
    /// The difference by phase and layer: the largest contributions first, those in the opposite direction last. They add up.
    pub contributions: Vec<Contribution>,
    /// The same by phase.
    pub phases: Vec<Contribution>,
    /// The same by layer.
    pub layers: Vec<Contribution>,
    /// Statements in both recordings, the largest difference first.
    pub statements: Vec<Statement>,
    /// What some executions of one recording do, and none of the other.
    pub edges: Edges,
    /// Statements in A only.
    pub only_a: Vec<UnmatchedStatement>,
    /// Statements in B only.
    pub only_b: Vec<UnmatchedStatement>,
    /// Facts about the devices and recordings that differ.
    pub facts: Vec<FactDifference>,
    /// With several recordings a side: the basis of the verdict and of `latency_ns.ratio`. All else is from the median recording
    /// of each side.
    pub recordings: Option<Recordings>,
    /// What the whole programs asked of the layers below, in statements and outside: the weightiest difference first. Compared even if no
    /// statement is in both.
    pub counts: Vec<CountTotal>,
    /// Where the time of the whole programs went, the largest difference first: the parts of `fathom explain`.
    pub times: Vec<TimeTotal>,
}

/// A count of the whole program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CountTotal {
    /// What is counted, as in `fathom check`: `fsync file`, `bytes written WAL`.
    pub what: String,
    /// Minimum and maximum of the recordings of A.
    pub a: [u64; 2],
    /// Of B.
    pub b: [u64; 2],
    /// By how much B's middle is more.
    pub delta: i64,
    /// Whether B's is more than any of A's.
    pub direction: Direction,
}

/// How a count of B compares to that of A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// All of B's are above all of A's.
    More,
    /// All of B's are below all of A's.
    Fewer,
    /// All are equal.
    Same,
    /// The ranges overlap, or differ by no more than the bytes of a time stamp.
    Unclear,
}

/// Time of the whole program in a part of its account.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimeTotal {
    /// What the threads did or waited for, in words.
    pub what: String,
    /// In A.
    pub a_ns: u64,
    /// In B.
    pub b_ns: u64,
    /// B minus A.
    pub delta_ns: f64,
}

/// Several recordings of each side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recordings {
    /// Index of A's median recording, from 0, in the order given.
    pub middle_a: usize,
    /// Index of B's median recording.
    pub middle_b: usize,
    /// Whether all of one side were made before all of the other, so that a change of the machine in between counts as a difference.
    pub apart: bool,
    /// The time of all executions that all recordings have; nested ones count as part of the outer ones.
    pub whole: SumsComparison,
}

/// The sums of each recording, and how the two sides compare.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SumsComparison {
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
    /// The same, adjusted for the number of statements that take 1 % of the time (Benjamini and Hochberg); null for the others
    /// and for all together.
    pub adjusted_p: Option<f64>,
    /// As in [`Diff`].
    pub verdict: Verdict,
}

/// One recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Side {
    /// The command that was recorded.
    pub command: Vec<String>,
    /// Whether the recording ended normally.
    pub complete: bool,
    /// What cannot be claimed from this recording.
    pub caveats: Caveats,
    /// Finished executions.
    pub executions: u64,
    /// What was not recorded, and the consequences.
    pub blind: Vec<Blind>,
    /// Known losses.
    pub losses: Vec<LostRecords>,
}

/// Records that were lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LostRecords {
    /// What lost them.
    pub source: String,
    /// The probe concerned, if it is one probe.
    pub program: Option<String>,
    /// How many; absent if unknown.
    pub events: Option<u64>,
    /// Whether executions or calls may be missing because of it, not only the activity of the device.
    pub hides_executions: bool,
}

/// Times of both recordings.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Times {
    /// Sum over A's compared executions.
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
    /// The activity of the program: `fdatasync rollback journal`, `outside system calls`, `tracer`. Null in `layers[]`.
    pub phase: Option<String>,
    /// The layer to which the time belongs. Null in `phases[]`, and for time of an unknown layer.
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
    /// Its share of the whole difference: negative if it has the opposite direction. Shares add up to 1. Null unless the verdict is
    /// slower or faster.
    pub share: Option<f64>,
    /// Whether the phase did different work in both recordings: other numbers of calls, bytes, bios, flushes, rows. Null in `layers[]`.
    pub different_work: Option<bool>,
}

/// A statement in both recordings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statement {
    /// Its text.
    pub statement: String,
    /// `statement`, `function`, `mark` or `transaction`.
    pub kind: String,
    /// Compared executions.
    pub pairs: u64,
    /// Finished executions of A without a counterpart.
    pub left_a: u64,
    /// Finished executions of B without a counterpart.
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
    /// Mean counts per execution, from the application down.
    pub counts: Vec<CountDifference>,
    /// Its time by phase, ns of all executions.
    pub phases: Vec<Contribution>,
    /// By layer.
    pub layers: Vec<Contribution>,
    /// The comparison of several recordings a side, if there are several.
    pub recordings: Option<SumsComparison>,
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
pub struct CountDifference {
    /// Layer.
    pub layer: Layer,
    /// What is counted.
    pub name: String,
    /// Its unit, which its name tells people.
    #[serde(skip)]
    pub unit: CountUnit,
    /// The kind of file: `database`, `rollback journal`, `WAL`, `directory`, `other`, …
    pub file: Option<String>,
    /// A's.
    pub a: f64,
    /// B's.
    pub b: f64,
    /// B - A.
    pub delta: f64,
    /// Its interval.
    pub interval: Option<[f64; 2]>,
    /// Whether the difference is more than chance, and more than a tenth.
    pub differs: bool,
}
