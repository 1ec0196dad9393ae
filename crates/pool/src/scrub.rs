//! Reads every block of every node and compares it with its checksum, on the nodes themselves, while the pool serves.
//!
//! Each node has one request to verify at a time, so a scrub takes one of its threads, and no data crosses the network. It
//! is a task of the coordinator, which goes on whether or not anybody looks; `pool scrub` starts it and waits, and
//! `pool status` shows it.

use crate::frame::{BadBlock, Operation, VERIFY_BYTES_MAX};
use crate::link::{Failure, NodeLink};
use crate::volume::Volume;
use bytes::Bytes;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;

/// The maximum number of bad ranges kept for a node; further ones are counted.
const BAD_RANGES_MAX: usize = 1000;

/// The state and result of a scrub.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrub {
    /// Whether it is still running.
    pub running: bool,
    /// In the disk's order.
    pub nodes: Vec<NodeScrub>,
}

/// That of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeScrub {
    pub address: String,
    pub node: String,
    /// Its file or device there.
    pub store: String,
    /// Bytes of its store.
    pub size_bytes: u64,
    /// Bytes that were read and compared.
    pub verified_bytes: u64,
    /// Blocks that do not match their checksums, and blocks that cannot be read.
    pub damaged_blocks: u64,
    /// See `damaged_blocks`.
    pub unreadable_blocks: u64,
    /// Where they are.
    pub bad: Vec<BadRange>,
    /// Bad ranges that are counted above, and not in this list.
    pub ranges_left_out: u64,
    /// Why the node could not be read to its end.
    pub failed: Option<String>,
}

/// Bad blocks in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadRange {
    /// Offset in the store.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Where that is on the disk of the pool: offset and length; with stripes it may include bytes of other nodes. `None` if the disk does
    /// not use it.
    pub on_disk: Option<(u64, u64)>,
    /// Whether they cannot be read; otherwise they do not match their checksums.
    pub is_unreadable: bool,
}

impl Scrub {
    /// Whether all was read and nothing is wrong.
    pub fn is_clean(&self) -> bool {
        let clean = |node: &NodeScrub| node.failed.is_none() && node.damaged_blocks + node.unreadable_blocks == 0;
        !self.running && self.nodes.iter().all(clean)
    }

    /// Bytes verified, and bytes of all nodes that can be read.
    pub fn progress(&self) -> (u64, u64) {
        let of = |nodes: &[NodeScrub], bytes: fn(&NodeScrub) -> u64| nodes.iter().map(bytes).sum();
        let all = |node: &NodeScrub| if node.failed.is_some() { node.verified_bytes } else { node.size_bytes };
        (of(&self.nodes, |node| node.verified_bytes), of(&self.nodes, all))
    }
}

impl NodeScrub {
    pub(crate) fn new(link: &NodeLink) -> Self {
        let claim = link.claim();
        Self {
            address: link.address().to_string(),
            node: claim.map(|claim| claim.node.clone()).unwrap_or_default(),
            store: link.store().into(),
            size_bytes: claim.map_or(0, |claim| claim.size_bytes),
            ..Self::default()
        }
    }

    fn add_block(&mut self, bad: BadBlock, block_bytes: u64) {
        let BadBlock { offset, is_unreadable } = bad;
        *(if is_unreadable { &mut self.unreadable_blocks } else { &mut self.damaged_blocks }) += 1;
        let is_complete = self.bad.len() == BAD_RANGES_MAX;
        match self.bad.last_mut() {
            Some(last) if last.offset + last.bytes == offset && last.is_unreadable == is_unreadable => {
                last.bytes += block_bytes;
            }
            _ if is_complete => self.ranges_left_out += 1,
            _ => self.bad.push(BadRange { offset, bytes: block_bytes, on_disk: None, is_unreadable }),
        }
    }
}

/// A disk whose nodes can be verified.
pub trait Scrubbed: 'static {
    /// In the disk's order, with what is known of them.
    fn nodes(&self) -> Vec<NodeScrub>;
    /// Has a node verify a part of its store: the answer to [`Operation::Verify`]; `None`: it is not there.
    fn verify(&self, nth: usize, offset: u64, length: u32) -> impl Future<Output = Option<Result<Bytes, Failure>>>;
    /// See [`BadRange::on_disk`].
    fn disk_range(&self, nth: usize, range: std::ops::Range<u64>) -> Option<(u64, u64)>;
    /// A block of a node, at this offset of its store, is bad.
    fn report_bad(&self, _nth: usize, _offset: u64) {}
}

impl Scrubbed for Volume {
    fn nodes(&self) -> Vec<NodeScrub> {
        self.links().iter().map(NodeScrub::new).collect()
    }

    async fn verify(&self, nth: usize, offset: u64, length: u32) -> Option<Result<Bytes, Failure>> {
        let link = self.links().get(nth).filter(|link| link.claim().is_some())?;
        Some(link.ask(Operation::Verify, offset, length, Bytes::new(), false).await)
    }

    fn disk_range(&self, nth: usize, range: std::ops::Range<u64>) -> Option<(u64, u64)> {
        self.disk_range(nth, range)
    }
}

/// The scrubs of a coordinator, one at a time.
#[derive(Debug, Default)]
pub struct Scrubber {
    current: Rc<RefCell<Option<Scrub>>>,
}

impl Scrubber {
    /// The current scrub, or the last one.
    pub fn state(&self) -> Option<Scrub> {
        self.current.borrow().clone()
    }

    /// Starts one, unless one is running. Must run in a `LocalSet`.
    pub fn start<D: Scrubbed>(&self, disk: &Rc<D>) {
        if self.current.borrow().as_ref().is_some_and(|scrub| scrub.running) {
            return;
        }
        let nodes = disk.nodes();
        let sizes: Vec<u64> = nodes.iter().map(|node| node.size_bytes).collect();
        *self.current.borrow_mut() = Some(Scrub { running: true, nodes });
        let (now, disk) = (self.current.clone(), disk.clone());
        tokio::task::spawn_local(async move {
            join_all((0..).zip(sizes).map(|(nth, size_bytes)| verify_node(&*disk, nth, size_bytes, &now))).await;
            if let Some(scrub) = &mut *now.borrow_mut() {
                scrub.running = false;
            }
        });
    }
}

/// Verifies all of one node.
async fn verify_node(disk: &impl Scrubbed, nth: usize, size_bytes: u64, now: &RefCell<Option<Scrub>>) {
    let change = |change: &dyn Fn(&mut NodeScrub)| {
        if let Some(node) = now.borrow_mut().as_mut().and_then(|scrub| scrub.nodes.get_mut(nth)) {
            change(node);
        }
    };
    if size_bytes == 0 {
        return change(&|node| node.failed = Some("the node is missing".into()));
    }
    for offset in (0..size_bytes).step_by(VERIFY_BYTES_MAX as usize) {
        let length = u64::from(VERIFY_BYTES_MAX).min(size_bytes - offset) as u32;
        let Some(asked) = disk.verify(nth, offset, length).await else {
            return change(&|node| node.failed = Some("the node is missing".into()));
        };
        match asked.map(|data| BadBlock::parse_all(&data)) {
            Ok(Some(bad)) => {
                change(&|node| {
                    for block in &bad {
                        node.add_block(*block, crate::store::BLOCK_BYTES);
                    }
                    for range in node.bad.iter_mut().filter(|range| range.offset + range.bytes > offset) {
                        range.on_disk = disk.disk_range(nth, range.offset..range.offset + range.bytes);
                    }
                    node.verified_bytes += u64::from(length);
                });
                bad.iter().for_each(|block| disk.report_bad(nth, block.offset));
            }
            // The link has checked the answer.
            Ok(None) => {}
            Err(failure) => {
                change(&|node| node.failed = Some(failure.to_string()));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_blocks_are_one_range_and_many_ranges_are_counted() {
        let mut node = NodeScrub::default();
        for (block, is_unreadable) in [(0, false), (1, false), (2, true), (4, true), (5, true)] {
            node.add_block(BadBlock { offset: block * 4096, is_unreadable }, 4096);
        }
        let ranges: Vec<_> = node.bad.iter().map(|bad| (bad.offset, bad.bytes, bad.is_unreadable)).collect();
        assert_eq!(ranges, [(0, 8192, false), (8192, 4096, true), (16_384, 8192, true)]);
        assert_eq!((node.damaged_blocks, node.unreadable_blocks), (2, 3));
        for nth in 5..5 + BAD_RANGES_MAX as u64 {
            node.add_block(BadBlock { offset: nth << 20, is_unreadable: false }, 4096);
        }
        assert_eq!(
            (node.bad.len(), node.ranges_left_out, node.damaged_blocks),
            (BAD_RANGES_MAX, 3, 2 + BAD_RANGES_MAX as u64)
        );
    }

    #[test]
    fn clean_scrub_has_read_everything() {
        let node = NodeScrub { size_bytes: 8, verified_bytes: 8, ..NodeScrub::default() };
        let of = |node: NodeScrub| Scrub { running: false, nodes: vec![node] };
        assert!(of(node.clone()).is_clean());
        assert!(!of(NodeScrub { failed: Some("away".into()), ..node.clone() }).is_clean());
        assert!(!of(NodeScrub { unreadable_blocks: 1, ..node.clone() }).is_clean());
        assert!(!Scrub { running: true, ..of(node) }.is_clean());
    }
}
