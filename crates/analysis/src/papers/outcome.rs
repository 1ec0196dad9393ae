//! What becomes of a paper's claim.

use serde::Serialize;

/// A difference of times that has no interval counts from here.
pub(super) const QUARTER: f64 = 1.25;

/// What becomes of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything measured says so.
    Confirmed,
    /// Something measured says otherwise.
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

/// What becomes of a claim, and by what.
pub(super) type Decided = (Outcome, String);

pub(super) fn cannot(why: impl Into<String>) -> Decided {
    (Outcome::CannotBeTested, why.into())
}
