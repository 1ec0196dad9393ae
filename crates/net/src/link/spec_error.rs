//! Errors in the parameters of a link.

/// Why a link is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// One loss would drop a whole GSO frame.
    #[error("with GSO, each loss would drop up to 64 KiB: use --gso off")]
    LossWithGso,
    /// A packet would arrive before it was sent.
    #[error("jitter must not exceed the delay: raise --delay")]
    Jitter,
    /// The delay is too long.
    #[error("a delay is at most 60 s")]
    Delay,
    /// A packet would take too long.
    #[error("a rate is at least 1 kbit")]
    Rate,
    #[error("a queue holds at least one packet")]
    Queue,
    /// IP does not allow this MTU.
    #[error("an MTU is 1280 to 65535 bytes, not {0}")]
    Mtu(u32),
}

/// Why a text is not a parameter of a link; each message shows the accepted syntax.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityError {
    #[error("{0:?} is not a rate; expected bits per second, such as 50mbit, 1.5gbit or 64kbit")]
    Rate(String),
    /// A rate out of range.
    #[error("{0:?} is not a rate; expected up to 1000gbit, such as 50mbit")]
    RateRange(String),
    /// A time without a unit.
    #[error("{0} has no unit; expected {0}ms, {0}us or {0}s")]
    NoUnit(String),
    #[error("{0:?} is not a time; expected a value such as 8ms, 500us or 0.3s")]
    Time(String),
    /// A time out of range.
    #[error("{0:?} is not a time; expected 0 to 60 s, such as 8ms or 500us")]
    TimeRange(String),
    #[error("{0:?} is not a number; expected a value such as 100, 64K or 1M")]
    Count(String),
    #[error("{0:?} is not a share of packets; expected 0 to 1, or percent such as 1%")]
    Share(String),
    #[error("expected burst:WORSEN,RECOVER[,BAD[,GOOD]], such as burst:0.5%,25%")]
    Burst,
}
