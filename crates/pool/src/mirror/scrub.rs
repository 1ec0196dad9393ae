//! A scrub of a mirrored disk: what is damaged in one copy is given to it by another.

use super::disk::{MirrorDisk, MirrorNode};
use crate::frame::Operation;
use crate::link::{Failure, NodeLink};
use crate::scrub::{NodeScrub, Scrubbed};
use bytes::Bytes;
use std::ops::Range;
use std::rc::Rc;

impl Scrubbed for MirrorDisk {
    fn nodes(&self) -> Vec<NodeScrub> {
        let node = |(link, state): (Option<Rc<NodeLink>>, MirrorNode)| match link {
            Some(link) => NodeScrub::new(&link),
            None => NodeScrub { address: state.address.to_string(), ..NodeScrub::default() },
        };
        self.links().into_iter().zip(self.nodes()).map(node).collect()
    }

    async fn verify(&self, nth: usize, offset: u64, length: u32) -> Option<Result<Bytes, Failure>> {
        let link = self.links().into_iter().nth(nth)??;
        Some(link.ask(Operation::Verify, offset, length, Bytes::new(), false).await)
    }

    fn disk_range(&self, nth: usize, range: Range<u64>) -> Option<(u64, u64)> {
        self.placement().range_of(nth, range)
    }

    fn report_bad(&self, nth: usize, offset: u64) {
        self.mend(nth, offset);
    }
}
