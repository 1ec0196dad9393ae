//! Mistakes, to test the tests.

/// A mistake that the simulation must find; there is none but in its tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "the simulation makes them"))]
pub enum Mutant {
    #[default]
    None,
    /// A write is answered when one copy has it.
    AckAfterOne,
    /// What a node that is out lacks is not recorded.
    ForgetBitmap,
    /// What a node lacks is not on the media when requests go on without it.
    NoRecord,
    /// Copies are read that lack the region.
    ServeStale,
    /// A flush does not wait for the record of who missed it.
    FlushWithoutRecord,
    /// With two nodes, either may go on alone while the other may too.
    OtherQuorum,
    /// A read or flush is answered without a proof that there is no newer coordinator.
    ReadWithoutProof,
    /// What was flushed without a slow node counts as flushed there.
    ForgetMissed,
    /// A coordinator begins with the highest record seen, without a majority.
    EpochWithoutMajority,
}
