//! Why a node refuses a coordinator. It is sent as a text, since the coordinator may be of another release.

use crate::frame;
use crate::protocol::{CONNECTIONS_MAX, StorePosition};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another version of the protocol.
    #[error(
        "the coordinator speaks version {theirs} of the pool's protocol, and the node version {}; use the same release on both",
        frame::VERSION
    )]
    Protocol { theirs: u8 },
    /// Another node listens at the address of the wanted one.
    #[error("this is the node {has}, not {wanted}")]
    OtherNode { has: String, wanted: String },
    /// The node is smaller than before.
    #[error("this node has {has} bytes, fewer than the {announced} it announced")]
    Smaller {
        /// Bytes now.
        has: u64,
        announced: u64,
    },
    /// Its store belongs to another pool.
    #[error("this store belongs to the pool {has:?}, not to {wanted:?}")]
    OtherPool {
        /// The pool of the store.
        has: String,
        wanted: String,
    },
    /// Its store has another position in this pool.
    #[error("this store is {has}, not {wanted}; give the nodes in their original order")]
    OtherPosition {
        /// The position of the store.
        has: Box<StorePosition>,
        wanted: Box<StorePosition>,
    },
    /// Another coordinator claimed it with a higher epoch.
    #[error(
        "fenced: another coordinator has taken over (epoch {has}, this one's is {claimed}): {}", coordinator.escape_debug()
    )]
    Fenced {
        has: u64,
        /// The epoch of the claim.
        claimed: u64,
        /// The coordinator that has claimed it.
        coordinator: String,
    },
    /// The store lacks writes of this coordinator.
    #[error(
        "its store is older than this coordinator's writes (its epoch is {has}, and was {was}): an old copy was restored, \
         or its medium lost a flush"
    )]
    OlderStore { has: u64, was: u64 },
    /// The store lacks changes that it had when this coordinator used it.
    #[error(
        "its store is older than this coordinator's writes (the sequence number of its header is {has}, and was {was}): an old copy \
         was restored, or its medium lost a flush"
    )]
    OlderCopy {
        has: u64,
        /// The sequence number that the coordinator was sent.
        was: u64,
    },
    /// The claim cannot be stored.
    #[error("cannot write the store's header: {0}")]
    Header(String),
    /// A newer session has begun.
    #[error("taken over by another connection of a coordinator")]
    TakenOver,
    /// The maximum number of connections is reached.
    #[error("it has reached its limit of {CONNECTIONS_MAX} connections")]
    TooManyConnections,
}
