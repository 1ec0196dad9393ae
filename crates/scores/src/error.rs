//! Reasons why benchmarks cannot be compared, or not be shown on one page.

use std::fmt;

/// Why there is no comparison or no page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The scores are better in opposite directions.
    #[error("the directions differ: {a} is better in A, {b} in B")]
    OppositeDirections {
        /// `higher` or `lower`.
        a: &'static str,
        b: &'static str,
    },
    /// The direction of a score is not recorded.
    #[error(
        "{silent} not record the direction of {metric:?}; run it again with better = \"higher\" or \"lower\" in its design, \
         or give --better higher or --better lower"
    )]
    NoDirection {
        /// Which of the two lacks it.
        silent: WithoutDirection,
        metric: String,
    },
    /// No cell has the factor to be compared.
    #[error("no cell has a factor {factor:?}; {}", has(there, "it has no factors"))]
    NoFactor { factor: String, there: Vec<String> },
    /// No cell of an archive has the value.
    #[error("no cell of {archive} has {factor}={value}; {}", has(there, "none has this factor"))]
    NoCell { archive: String, factor: String, value: String, there: Vec<String> },
    /// No cell has the base value of the comparison.
    #[error("no cell has {factor}={value}; it has {}", there.join(", "))]
    NoBase { factor: String, value: String, there: Vec<String> },
    /// A factor has one value only.
    #[error(
        "every cell has {factor}={value}, so there is no other value to compare with; run more values (`fathom \
         bench run WORKLOAD -p {factor}=A,B`), or give a second archive"
    )]
    OneValue { factor: String, value: String },
    /// Cells with other values also differ in other factors.
    #[error("no two cells differ in {factor} alone, which has the values {}", values.join(", "))]
    NotAlone { factor: String, values: Vec<String> },
    /// There is nothing to show.
    #[error("no archive contains a network run")]
    NoRun,
    /// A recording cannot be on an axis with several origins.
    #[error(
        "these runs were not made at the same time, so {recording} cannot be placed on their time axis: make a page \
         with only the run that was measured during the recording"
    )]
    SeveralTimes { recording: String },
    /// Their clocks differ.
    #[error(
        "{run} and {recording} have different clocks: they are from different machines, or the machine restarted in \
         between"
    )]
    DifferentClocks { run: String, recording: String },
    /// The recording was made at another time.
    #[error("{recording} does not overlap in time with the others")]
    NoOverlap { recording: String },
}

/// Which of two archives lacks the direction of a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutDirection {
    A,
    B,
    Both,
}

impl fmt::Display for WithoutDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "A does",
            Self::B => "B does",
            Self::Both => "the archives do",
        })
    }
}

/// Lists what exists instead.
fn has(there: &[String], nothing: &str) -> String {
    if there.is_empty() { nothing.into() } else { format!("it has {}", there.join(", ")) }
}
