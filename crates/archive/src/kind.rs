//! The kind of an archive: the only code that handles its word in `meta.json`; everything else matches on a type.

use serde::de::value::StrDeserializer;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of an archive's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArchiveKind {
    /// Events of a kernel, recorded or imported.
    Trace,
    /// Designs and what their processes measured.
    Bench,
    /// One run over a network.
    Net,
}

impl ArchiveKind {
    pub const ALL: [Self; 3] = [Self::Trace, Self::Bench, Self::Net];

    /// The kind of this word in `meta.json`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::deserialize(StrDeserializer::<serde::de::value::Error>::new(word)).ok()
    }
}

/// The kind for people, with its article: `a recording`.
impl fmt::Display for ArchiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trace => "a recording",
            Self::Bench => "a benchmark",
            Self::Net => "a network run",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_words_are_those_of_older_archives() {
        for (kind, word) in ArchiveKind::ALL.into_iter().zip(["trace", "bench", "net"]) {
            assert_eq!((ArchiveKind::from_word(word), serde_json::to_value(kind).unwrap()), (Some(kind), word.into()));
        }
        assert_eq!(ArchiveKind::from_word("lab"), None);
    }
}
