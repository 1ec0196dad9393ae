//! A disk of which each chunk has two or three copies, on nodes of different failure groups.

mod disk;
mod join;
mod machine;
mod mutant;
mod placement;
mod record;
mod regions;
mod scrub;

pub use disk::{MirrorDisk, MirrorNode};
use mutant::Mutant;
pub use placement::{Member, Placement, PlacementError};

use crate::link::JoinError;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// How a pool is mirrored; fixed when it is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirroring {
    /// 2 or 3; `None`: as the pool has, or, for a new one, 3 if there are as many groups, else 2.
    pub copies: Option<u32>,
    /// The failure groups of the nodes, in order; nodes beyond the end, and `None`, are groups of their own.
    pub groups: Vec<Option<String>>,
}

impl Mirroring {
    /// The number of groups of this many nodes.
    fn group_count(&self, nodes: usize) -> usize {
        let group = |node: usize| self.groups.get(node).cloned().flatten();
        let named: BTreeSet<String> = (0..nodes).filter_map(group).collect();
        named.len() + (0..nodes).filter(|node| group(*node).is_none()).count()
    }
}

/// Why a mirrored pool cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MirrorError {
    #[error("cannot use the node {address}: {why}")]
    Node { address: SocketAddr, why: JoinError },
    #[error("{first} and {second} are the same node; give each node once")]
    Twice { first: SocketAddr, second: SocketAddr },
    #[error("the node {0} keeps its store in memory; a copy must survive its process: use --store")]
    Volatile(SocketAddr),
    #[error("the node {0} is of an older release, which cannot hold a copy of a mirrored pool")]
    Older(SocketAddr),
    #[error(
        "the node {new} is new, and the pool of {old} has data; give the node that was there before (to put a new one in its place \
         is not supported yet)"
    )]
    Mixed { new: SocketAddr, old: SocketAddr },
    #[error("at {address} is the node {is}, and the pool has {was} there; nodes cannot be exchanged yet")]
    OtherNode { address: SocketAddr, is: String, was: String },
    #[error(
        "the node {0} has data, and the pool is new: its copies would differ; make its store anew (--init), or copy the data into the \
         pool through NBD"
    )]
    NotEmpty(SocketAddr),
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error("the node {address}: {why}")]
    Record { address: SocketAddr, why: String },
    /// A majority, or the last copy of something, is missing.
    #[error("not enough copies are there to know what was last written; needed: {}", .0.join(", "))]
    Needs(Vec<String>),
    #[error(
        "all copies of something may have lost acknowledged writes (nodes {}); --accept-loss {id} continues with one of them",
        .nodes.join(", ")
    )]
    Lost { nodes: Vec<String>, id: String },
    #[error(
        "the node {address} may have lost acknowledged writes in {regions} regions of which no other copy is there; start the \
         other nodes, or serve the pool again with --accept-loss"
    )]
    OnlyCopy { address: SocketAddr, regions: u32 },
    #[error("the node {0} may have lost acknowledged writes, which is being recorded")]
    Recording(SocketAddr),
    #[error("{0}")]
    Fenced(String),
}

#[cfg(test)]
mod tests;
