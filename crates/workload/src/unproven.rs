//! A mode that is not the requested one.

/// The compiled or running code does not have the mode of that name: what was found instead, as text of the proof.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnprovenMode(pub String);

impl From<&str> for UnprovenMode {
    fn from(why: &str) -> Self {
        Self(why.into())
    }
}
