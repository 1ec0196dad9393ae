//! The verdict on a paper's claim.

use serde::Serialize;

/// Smallest relevant ratio between times without an interval.
pub(super) const RELEVANT_RATIO_MIN: f64 = 1.25;

/// The verdict on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything measured supports it.
    Confirmed,
    /// Something measured contradicts it.
    NotConfirmed,
    /// Nothing measured decides it.
    CannotBeTested,
}

impl Outcome {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::NotConfirmed => "not confirmed",
            Self::CannotBeTested => "cannot be tested",
        }
    }
}

/// The verdict on a claim, and the evidence.
pub(super) type Decision = (Outcome, String);

pub(super) fn cannot_be_tested(why: impl Into<String>) -> Decision {
    (Outcome::CannotBeTested, why.into())
}
