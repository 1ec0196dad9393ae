//! Why a run cannot be made as it is asked for.

/// What is wrong with a [`crate::spec::Spec`], and what can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A number is too small or too large.
    #[error("{what} is {value}; must be from {least} to {most}")]
    OutOfRange {
        /// Which.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// The least that is possible.
        least: u64,
        /// The most.
        most: u64,
    },
    /// It goes nowhere, or twice the same way.
    #[error("a run needs a direction: up, down or both")]
    Direction,
    /// Requests cannot go the other way.
    #[error("requests always go up, to the server: omit --direction")]
    RequestsGoUp,
    /// Only bulk TCP has acknowledgements worth recording.
    #[error("--tcp-probe is for bulk TCP")]
    ProbeNeedsTcp,
    /// The cost of readings is a ratio of throughputs of one direction.
    #[error("--readings-cost needs bulk TCP in one direction")]
    CostNeedsTcp,
    /// The cost is that of readings every 10 ms.
    #[error(
        "so many streams for so long are sampled less often than every 10 ms: use fewer streams or a \
         shorter run"
    )]
    SampledTooRarely,
    /// No congestion control can have such a name.
    #[error("the name of a congestion control has 1 to 15 letters, such as cubic")]
    CongestionName,
}
