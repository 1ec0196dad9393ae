//! A coordinator's claim of a node: sent in its hello ([`crate::hello`]), and stored by the node ([`crate::store`]).

use crate::shm::MemoryOffer;
use serde::{Deserialize, Serialize};

/// The maximum number of connections to a node: more than is useful.
pub const CONNECTIONS_MAX: u16 = 64;

/// A store's position among the nodes of its pool. Changing it would scramble the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorePosition {
    /// The index of the node, from 0.
    pub index: u32,
    pub count: u32,
    /// 0: concatenated or mirrored; else the bytes of a stripe.
    pub stripe_bytes: u64,
    /// If the pool is mirrored. A release that does not know it cannot open such a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorPosition>,
}

/// How the chunks of a mirrored pool are placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorPosition {
    pub copies: u32,
    /// Another one for other places: other sizes, groups, order.
    pub placement: u32,
    /// Bytes of all stores, so that the disk can be served without some of them.
    pub sizes: Vec<u64>,
}

impl std::fmt::Display for StorePosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} of {}, ", self.index + 1, self.count)?;
        match (self.stripe_bytes, &self.mirror) {
            (_, Some(MirrorPosition { copies, placement, .. })) => {
                write!(f, "{copies} copies, placed as {placement:08x}")
            }
            (0, None) => write!(f, "concatenated"),
            (bytes, None) => write!(f, "striped by {bytes} bytes"),
        }
    }
}

/// Why acknowledged writes may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossCause {
    /// The node's machine restarted before they were flushed.
    MachineRestarted,
    /// A flush failed. The kernel reports this once, and keeps the data in memory only as long as it likes.
    FlushFailed,
    /// The medium was replugged, or mounted again, while no node had it open and before they were flushed.
    MediumReplaced,
    /// A cause that only a newer release knows.
    #[serde(other)]
    Unknown,
}

impl LossCause {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::MachineRestarted => "machine_restarted",
            Self::FlushFailed => "flush_failed",
            Self::MediumReplaced => "medium_replaced",
            Self::Unknown => "unknown",
        }
    }
}

impl std::fmt::Display for LossCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::MachineRestarted => "its machine restarted before they were flushed",
            Self::FlushFailed => "a flush failed",
            Self::MediumReplaced => "its medium was replugged or mounted again before they were flushed",
            Self::Unknown => "the cause is unknown to this release",
        })
    }
}

/// Where a node may have lost acknowledged writes, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Loss {
    /// Offset in its store, and length. Empty: nothing may be lost.
    pub ranges: Vec<(u64, u64)>,
    /// Why, without duplicates.
    pub causes: Vec<LossCause>,
    /// Changes whenever more may be lost; empty in a store of an older release.
    pub id: String,
}

impl Loss {
    /// The causes as a text: "a flush failed".
    pub fn why(&self) -> String {
        let causes: Vec<String> = self.causes.iter().map(ToString::to_string).collect();
        if causes.is_empty() { LossCause::MachineRestarted.to_string() } else { causes.join(", and ") }
    }
}

/// Identifies what may be lost at one time in all of a pool, for a user who accepts it: any further loss has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossId(u32);

impl LossId {
    /// Of the losses of these nodes, with their names; `None` if nothing may be lost.
    pub fn from_losses<'l>(nodes: impl Iterator<Item = (&'l str, &'l Loss)>) -> Option<Self> {
        let (mut sum, mut any) = (0, false);
        for (node, loss) in nodes.filter(|(_, loss)| !loss.ranges.is_empty()) {
            any = true;
            sum = crc32c::crc32c_append(sum, format!("{node:?} {:?} {:?}\n", loss.id, loss.ranges).as_bytes());
        }
        any.then_some(Self(sum))
    }
}

impl std::fmt::Display for LossId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A text that is not a [`LossId`].
#[derive(Debug, thiserror::Error)]
#[error("expected the identifier of a loss, 8 hexadecimal digits, as shown by `fathom pool status`")]
pub struct LossIdError;

impl std::str::FromStr for LossId {
    type Err = LossIdError;

    fn from_str(text: &str) -> Result<Self, LossIdError> {
        let digits = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(text, 16).ok().filter(|_| digits).map(Self).ok_or(LossIdError)
    }
}

/// Where a node's bytes are on the disk of its pool. So the others can be served without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskPosition {
    /// Offset of its first byte, if the pool is concatenated; else 0.
    pub begin_bytes: u64,
    /// Bytes of the disk.
    pub disk_bytes: u64,
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
    pub also: ClaimExtensions,
}

/// Extensions of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimExtensions {
    /// Only records pool and position: a session begins when that is done on all nodes of a new pool.
    pub reserve: bool,
    /// Everything that the node has acknowledged, to this coordinator and earlier ones, is flushed.
    pub flushed: bool,
    /// The node has accepted this claim before, so its store must contain it. A node of an older release does not check.
    pub again: bool,
    /// Ranges whose possible loss is accepted.
    pub accepts: Vec<(u64, u64)>,
    /// The identifier of that loss ([`Loss::id`]): a later one may concern the same ranges.
    pub accepts_id: String,
    /// The highest sequence number of the store's header that the node has sent, and the process that did. With `again`: a store that
    /// another process has opened with an older header is a copy.
    pub sequence: u64,
    /// See `sequence`.
    pub instance: String,
    /// The node has answered a flush of this coordinator with [`crate::frame::Status::Lost`]. Its store may not contain that: its header
    /// could not be written, and the node was restarted since.
    pub flush_failed: bool,
    /// Memory that the node may be able to share.
    pub memory: Option<MemoryOffer>,
    /// The node's place on the disk, which its store keeps.
    pub disk: Option<DiskPosition>,
    /// The interval of the node's reports in milliseconds; 0: the node's default.
    pub report_ms: u32,
}
