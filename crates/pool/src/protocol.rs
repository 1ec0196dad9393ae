//! A coordinator's claim of a node: sent in its hello ([`crate::hello`]), and stored by the node ([`crate::store`]).

use crate::shm::Offer;
use serde::{Deserialize, Serialize};

/// Prefix of a node's permanent refusal: a newer coordinator has the node.
pub(crate) const FENCED: &str = "fenced: ";

/// The maximum number of connections to a node: more than is useful.
pub const MOST_CONNECTIONS: u16 = 64;

/// A store's position among the nodes of its pool. Changing it would scramble the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorePosition {
    /// The index of the node, from 0.
    pub index: u32,
    /// The number of nodes.
    pub count: u32,
    /// 0: concatenated; else the bytes of a stripe.
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

/// A coordinator's request to use the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Higher than that of any earlier coordinator.
    pub epoch: u64,
    /// Distinguishes coordinators that chose the same epoch, and identifies them in messages.
    pub coordinator: String,
    /// The expected name of the node.
    pub node: String,
    /// The minimum size of the node.
    pub size_bytes: u64,
    /// The position of the node's bytes on the pool's disk.
    pub place: StorePosition,
    /// The session that a further connection joins; `None` begins a session.
    pub joins: Option<u64>,
    /// Extensions. A coordinator of an older release does not send them.
    #[serde(default)]
    pub also: Also,
}

/// Extensions of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Also {
    /// Only records pool and position: a session begins when that is done on all nodes of a new pool.
    pub reserve: bool,
    /// Everything that the node has acknowledged, to this coordinator and earlier ones, is flushed.
    pub flushed: bool,
    /// The node has accepted this claim before, so its store must contain it. A node of an older release does not check.
    pub again: bool,
    /// Ranges whose possible loss is accepted.
    pub accepts: Vec<(u64, u64)>,
    /// Memory that the node may be able to share.
    pub memory: Option<Offer>,
}
