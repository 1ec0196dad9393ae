//! What a coordinator claims of a node: sent in its hello ([`crate::hello`]), and kept in the node's store ([`crate::store`]).

use crate::shm::Offer;
use serde::{Deserialize, Serialize};

/// How a node's refusal begins that will never be another: a newer coordinator has the node.
pub(crate) const FENCED: &str = "fenced: ";

/// The most connections to a node: more than any has use for.
pub const MOST_CONNECTIONS: u16 = 64;

/// A store's place among the nodes of its pool. Data would be scrambled if it changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorePosition {
    /// Which node it is, from 0.
    pub index: u32,
    /// Of how many.
    pub count: u32,
    /// 0: one node after the other; else the bytes of a stripe.
    pub stripe_bytes: u64,
}

impl std::fmt::Display for StorePosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} of {}, ", self.index + 1, self.count)?;
        match self.stripe_bytes {
            0 => write!(f, "concatenated"),
            bytes => write!(f, "striped by {bytes} bytes"),
        }
    }
}

/// It begins to use the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Higher than that of any coordinator before.
    pub epoch: u64,
    /// Tells two coordinators that chose the same epoch apart, and people which one it is.
    pub coordinator: String,
    /// The node that it takes the other end for.
    pub node: String,
    /// What it counts on.
    pub size_bytes: u64,
    /// Where the node's bytes are on the pool's disk.
    pub place: StorePosition,
    /// A further connection of this session; none: a session is begun.
    pub joins: Option<u64>,
    /// What else it says. A coordinator of an older release says nothing.
    #[serde(default)]
    pub also: Also,
}

/// What a claim says besides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Also {
    /// Only pool and place are put down: a session is begun when that is done on all nodes of a new pool.
    pub reserve: bool,
    /// All that the node has answered, this coordinator and those before it, is flushed.
    pub flushed: bool,
    /// The node has answered this claim before, so that its store must know it. A node of an older release does not look.
    pub again: bool,
    /// That these ranges may be lost is accepted.
    pub accepts: Vec<(u64, u64)>,
    /// Memory that the node may be able to share.
    pub memory: Option<Offer>,
}
