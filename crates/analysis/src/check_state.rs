//! Whether a recording, or what it has of a disk, is complete ([`crate::completeness`]).

use serde::Serialize;
use std::fmt;

/// The result of comparing what was recorded with the kernel's own counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// Nothing is missing.
    Checked,
    /// Something is missing, or the counts disagree.
    Failed,
    /// Completeness is unknown.
    #[default]
    #[serde(rename = "not checked")]
    NotChecked,
}

impl CheckState {
    /// The name in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Checked => "checked",
            Self::Failed => "failed",
            Self::NotChecked => "not checked",
        }
    }
}

impl fmt::Display for CheckState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
