//! Why a node does not let a coordinator in. The coordinator gets it as a text, for it may be another release's.

use crate::frame;
use crate::protocol::{FENCED, MOST_CONNECTIONS, StorePosition};

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another release.
    #[error(
        "the coordinator speaks version {theirs} of the pool's protocol, and the node version {}; use the same release on both",
        frame::VERSION
    )]
    Protocol {
        /// The coordinator's version.
        theirs: u8,
    },
    /// Another node listens where the one that is wanted did.
    #[error("this is the node {has}, not {wanted}")]
    OtherNode {
        /// This one.
        has: String,
        /// That one.
        wanted: String,
    },
    /// It was larger.
    #[error("this node has {has} bytes, fewer than the {announced} it announced")]
    Smaller {
        /// Bytes now.
        has: u64,
        /// Bytes when it was opened.
        announced: u64,
    },
    /// Its store is another pool's.
    #[error("this store belongs to the pool {has:?}, not to {wanted:?}")]
    OtherPool {
        /// Whose it is.
        has: String,
        /// Whose it should be.
        wanted: String,
    },
    /// Its store has another place in this pool.
    #[error("this store is {has}, not {wanted}; give the nodes in their original order")]
    OtherPosition {
        /// Where it is.
        has: Box<StorePosition>,
        /// Where it should be.
        wanted: Box<StorePosition>,
    },
    /// Another coordinator claimed it with a higher epoch.
    #[error(
        "{FENCED}another coordinator has taken over (epoch {has}, this one's is {claimed}): {}", coordinator.escape_debug()
    )]
    Fenced {
        /// The store's epoch.
        has: u64,
        /// The claim's.
        claimed: u64,
        /// Whose it is now.
        coordinator: String,
    },
    /// The store does not know what this coordinator did with it.
    #[error(
        "its store is older than this coordinator's writes (its epoch is {has}, and was {was}): an old copy was restored, \
         or its medium lost a flush"
    )]
    OlderStore {
        /// The store's epoch.
        has: u64,
        /// The coordinator's.
        was: u64,
    },
    /// The claim cannot be stored.
    #[error("cannot write the store's header: {0}")]
    Header(String),
    /// A newer session has begun.
    #[error("taken over by another connection of a coordinator")]
    TakenOver,
    /// As many as may be.
    #[error("it has reached its limit of {MOST_CONNECTIONS} connections")]
    TooManyConnections,
}
