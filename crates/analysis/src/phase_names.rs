//! The names of an operation's phases ([`crate::gaps`]), and of what is between them.

use serde::{Serialize, Serializer};
use sqlite::FileClass;
use std::fmt;

/// Ordinal from which on phases are no longer distinguished: a checkpoint may have thousands.
pub const ORDINAL_MAX: u32 = 9;

/// A phase: the writes to files of a class without a sync between them; which of the operation's, from 1 to [`ORDINAL_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseName {
    pub class: FileClass,
    pub ordinal: u32,
}

impl fmt::Display for PhaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.ordinal < ORDINAL_MAX { "" } else { "+" };
        write!(f, "{} write {}{more}", self.class.name(), self.ordinal.min(ORDINAL_MAX))
    }
}

/// An end of a gap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GapEnd {
    /// The start of the operation.
    #[default]
    Begin,
    Phase(PhaseName),
    /// The start of the same thread's next statement.
    NextStatement,
}

impl fmt::Display for GapEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => f.write_str("begin"),
            Self::Phase(phase) => phase.fmt(f),
            Self::NextStatement => f.write_str("next statement"),
        }
    }
}

impl Serialize for GapEnd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
