//! The contract of `fathom whatif --json`: what a program may rely on. Names and shapes change only together with [`VERSION`].
//! Times are ns, ratios predicted / recorded, intervals `[low, high]` of 0.95. Unknown values are null.

use analysis::caveats::Caveats;
use analysis::contract::{Bin, Times};
use serde::Serialize;

/// Version of this contract.
pub const VERSION: u32 = 1;

/// The predicted times of a recording's operations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// [`VERSION`].
    pub version: u32,
    /// What was removed, as requested.
    pub without: Vec<String>,
    /// Whether commands took another recording's times.
    pub other_device: bool,
    /// Queue depth at the device, if requested.
    pub queue: Option<u32>,
    /// Seed for drawing times of another device.
    pub seed: u64,
    /// All outermost operations.
    pub total: Total,
    /// Each statement, the largest difference first.
    pub statements: Vec<Statement>,
    /// The removed parts, in the order of `without`.
    pub removed: Vec<RemovedPart>,
    /// The error of such predictions.
    pub model_error: ModelError,
    /// What cannot be claimed from the recordings it is made from. Where times cannot be relied on, no interval has the model's error.
    pub caveats: Caveats,
    /// Limits of the prediction, in sentences.
    pub unknown: Vec<String>,
}

/// A sum of latencies, recorded and predicted.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Total {
    /// Recorded sum.
    pub recorded_ns: u64,
    /// Predicted sum.
    pub predicted_ns: u64,
    /// Predicted / recorded.
    pub ratio: Option<f64>,
    /// From a bootstrap over stretches of executions: the precision for this recording.
    pub interval: Option<[f64; 2]>,
    /// The same, widened by the model's error.
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
    /// Recorded latencies.
    pub recorded_ns: Times,
    /// Predicted latencies.
    pub predicted_ns: Times,
    /// The predicted latencies in bins of a quarter of an octave.
    pub distribution: Vec<Bin>,
}

/// A removed part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RemovedPart {
    /// The removal, as requested.
    pub what: String,
    /// Executions in which it occurred.
    pub executions: u64,
    /// The time of these executions that was removed.
    pub time_ns: u64,
}

/// The error of predictions, measured by making the changes, relative to the time before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ModelError {
    /// Median error of the changes.
    pub median: f64,
    /// 90th percentile.
    pub p90: f64,
    /// The median relative to the true time after the change: large if little time remains.
    pub median_of_truth: f64,
    /// Number of changes made.
    pub changes: u32,
}
