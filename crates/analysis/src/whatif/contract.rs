//! The contract of `fathom whatif --json`: what a program may rely on. Names and shapes change only together with [`VERSION`]. Times are
//! ns, ratios predicted / recorded, intervals `[low, high]` of 0.95. What is null is not known.

use crate::contract::{Bin, Times};
use serde::Serialize;

/// Version of this contract.
pub const VERSION: u32 = 1;

/// What a recording's operations would have taken.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// [`VERSION`].
    pub version: u32,
    /// What was thought away, as it was asked.
    pub without: Vec<String>,
    /// Whether commands took another recording's times.
    pub other_device: bool,
    /// Commands at the device at once, if that was asked.
    pub queue: Option<u32>,
    /// Of the draws of another device's times.
    pub seed: u64,
    /// All operations, of those inside others the outer ones.
    pub total: Total,
    /// Each statement, the largest difference first.
    pub statements: Vec<Statement>,
    /// What went, in the order of `without`.
    pub removed: Vec<Removed>,
    /// By how much such predictions were wrong.
    pub model_error: ModelError,
    /// What this cannot know, in sentences.
    pub unknown: Vec<String>,
}

/// A sum of latencies, recorded and predicted.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Total {
    /// As it was.
    pub recorded_ns: u64,
    /// As it would have been.
    pub predicted_ns: u64,
    /// Predicted / recorded.
    pub ratio: Option<f64>,
    /// By a bootstrap over stretches of executions: how well this recording knows it.
    pub interval: Option<[f64; 2]>,
    /// The same, wider by the model's error.
    pub interval_with_model: Option<[f64; 2]>,
}

/// A statement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statement {
    /// Its text.
    pub statement: String,
    /// `statement`, `function`, `mark` or `transaction`.
    pub kind: String,
    /// Finished executions.
    pub count: u64,
    /// Their sum.
    pub total: Total,
    /// Latencies as they were.
    pub recorded_ns: Times,
    /// As they would have been.
    pub predicted_ns: Times,
    /// The predicted latencies in bins of a quarter of an octave.
    pub distribution: Vec<Bin>,
}

/// What went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Removed {
    /// As it was asked.
    pub what: String,
    /// Executions that had it.
    pub executions: u64,
    /// Their time in it.
    pub time_ns: u64,
}

/// By how much predictions were wrong when the changes were made, relative to the time before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ModelError {
    /// Half of the changes had an error up to this.
    pub median: f64,
    /// Nine of ten up to this.
    pub p90: f64,
    /// The median relative to the true time after the change: large where little is left.
    pub median_of_truth: f64,
    /// Changes that were tried.
    pub changes: u32,
}
