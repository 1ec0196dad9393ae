//! A count that is not as the contract has it, and what came of a check.

use serde::Serialize;

/// The version of the JSON.
pub const VERSION: u32 = 1;

/// One count that is not as it was.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The statement; none outside of statements.
    pub statement: Option<String>,
    /// What is counted, such as `fdatasync WAL`.
    pub what: String,
    /// Least and most that is expected.
    pub expected: [u64; 2],
    /// What was counted.
    pub found: u64,
    /// Whether it is the device's, not the program's.
    pub device: bool,
    /// A file that it concerns.
    pub example: Option<String>,
    /// What it may cost; the greatest first.
    #[serde(skip)]
    pub(super) weight: f64,
}

impl Difference {
    /// By how much it is more than expected; less if negative.
    pub fn delta(&self) -> i64 {
        let [least, most] = self.expected.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
        let found = i64::try_from(self.found).unwrap_or(i64::MAX);
        if found > most { found - most } else { found - least }
    }

    pub(super) fn same(&self, other: &Self) -> bool {
        self.statement == other.statement && self.what == other.what && (self.delta() > 0) == (other.delta() > 0)
    }
}

/// What came of a check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// [`VERSION`].
    pub version: u32,
    /// Whether the run is as the contract says.
    pub passed: bool,
    /// How it was counted.
    pub counted_by: String,
    /// Runs that were compared: a difference must be in all of them.
    pub runs: u64,
    /// The difference that matters most, in a sentence.
    pub first: Option<String>,
    /// The setting or habit that explains it, if one does.
    pub because: Option<String>,
    /// All, the one that matters most first.
    pub differences: Vec<Difference>,
}
