//! A mode that is not the one that was asked for.

/// What was compiled, or runs, is not what the mode's name says: what was found instead, in the words of the proof.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unproven(pub String);

impl From<&str> for Unproven {
    fn from(why: &str) -> Self {
        Self(why.into())
    }
}
