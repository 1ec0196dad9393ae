//! Why a requested run is not possible.

/// What is wrong with a [`crate::spec::Spec`], and the valid values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A number is out of range.
    #[error("{what} is {value}; must be from {least} to {most}")]
    OutOfRange { what: &'static str, value: u64, least: u64, most: u64 },
    /// No direction, or the same one twice.
    #[error("a run needs a direction: up, down or both")]
    Direction,
    /// Requests only go from the client to the server.
    #[error("requests always go up, to the server: omit --direction")]
    RequestsGoUp,
    /// Only bulk TCP has acknowledgements worth recording.
    #[error("--tcp-probe is for bulk TCP")]
    ProbeNeedsTcp,
    /// The cost of sampling is a ratio of throughputs of one direction.
    #[error("--readings-cost needs bulk TCP in one direction")]
    CostNeedsTcp,
    /// The cost is that of sampling every 10 ms.
    #[error(
        "this many streams are sampled less often than every 10 ms in a run this long: use fewer streams \
         or a shorter run"
    )]
    SampledTooRarely,
    /// Not a valid name.
    #[error("the name of a congestion control has 1 to 15 letters, such as cubic")]
    CongestionName,
}
