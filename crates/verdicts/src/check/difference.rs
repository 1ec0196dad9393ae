//! A count that differs from the contract, and the result of a check.

use super::located::{Located, Place};
use analysis::caveats::Caveats;
use serde::Serialize;

/// The version of the JSON.
pub const OUTCOME_VERSION: u32 = 1;

/// One count that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The statement; `None` outside of statements.
    pub statement: Option<String>,
    /// Whether it is a count of the whole program, which no statement's and no other count explains.
    pub total: bool,
    /// What is counted, such as `fdatasync WAL`.
    pub what: String,
    /// Minimum and maximum of the expected count.
    pub expected: [u64; 2],
    /// The actual count.
    pub found: u64,
    /// Whether it is a count of the device, not of the program.
    pub device: bool,
    /// A file that it concerns.
    pub example: Option<String>,
    /// How often the statement ran; none outside of statements.
    pub executions: Option<u64>,
    /// The lines of the program that make such calls, the most frequent first; empty if they are not known.
    pub places: Vec<Place>,
    /// How many such calls were made elsewhere in the run that looked for them: at a place that is not known, or not listed.
    pub calls_elsewhere: u64,
    /// Its estimated cost; the largest first.
    #[serde(skip)]
    pub(super) weight: f64,
}

impl Difference {
    /// Returns by how much it is more than expected; less if negative.
    pub fn delta(&self) -> i64 {
        let [least, most] = self.expected.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
        let found = i64::try_from(self.found).unwrap_or(i64::MAX);
        if found > most { found - most } else { found - least }
    }

    pub(super) fn is_same_count(&self, other: &Self) -> bool {
        (&self.statement, self.total, &self.what) == (&other.statement, other.total, &other.what)
            && (self.delta() > 0) == (other.delta() > 0)
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// [`OUTCOME_VERSION`].
    pub version: u32,
    /// Whether the run matches the contract.
    pub passed: bool,
    /// How it was counted.
    pub counted_by: String,
    /// Number of compared runs: a difference must be in all of them.
    pub runs: u64,
    /// Whether the whole program's counts were compared: a contract of an older version that counts by tracing lacks them.
    pub totals: bool,
    /// The most important difference, in a sentence.
    pub first: Option<String>,
    /// The setting or habit that explains it, if one does.
    pub because: Option<String>,
    /// What the last run's recording cannot carry; none if the kernel alone counted.
    pub caveats: Caveats,
    /// All differences, the most important first.
    pub differences: Vec<Difference>,
}

impl Outcome {
    /// Adds the lines of the program.
    pub fn locate(&mut self, located: &Located) {
        for one in &mut self.differences {
            (one.places, one.calls_elsewhere) = located.places(one.statement.as_deref(), one.total, &one.what);
        }
    }
}
