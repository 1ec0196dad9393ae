//! Which parts of the disk are allocated, put together from what the nodes' stores say. A stripe has a piece every few KiB, so each node
//! is asked once for all of its pieces.

use super::{MAP_PIECES_MAX, Volume};
use crate::frame::{Operation, Status, Stretch};
use crate::layout::Piece;
use crate::link::{Failure, FaultOffset};
use bytes::Bytes;
use futures_util::future::try_join_all;
use nbd::Extent;
use std::collections::VecDeque;

impl Volume {
    /// The extents of the range, according to the nodes' stores; the end of a long one may be omitted.
    pub(super) async fn map_range(&self, offset: u64, length: u32) -> Result<Vec<Extent>, Failure> {
        let pieces: Vec<Piece> = self.pieces(offset, length, u32::MAX).take(MAP_PIECES_MAX).collect();
        // One request to each node: its pieces are contiguous there.
        let mut shares: Vec<Piece> = Vec::new();
        let mut share_of = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            let continues =
                |share: &Piece| share.node == piece.node && share.offset + u64::from(share.length) == piece.offset;
            let nth = shares.iter().position(continues).unwrap_or_else(|| {
                shares.push(Piece { length: 0, ..*piece });
                shares.len() - 1
            });
            shares[nth].length += piece.length;
            share_of.push(nth);
        }
        let ask = |p: &Piece| self.links[p.node].ask(Operation::Map, p.offset, p.length, Bytes::new(), false);
        let answers = try_join_all(shares.iter().map(ask)).await?;
        let mut known = Vec::with_capacity(shares.len());
        for (share, answer) in shares.iter().zip(&answers) {
            let stretches = Stretch::parse_all(answer, share.length);
            let stretches = stretches
                .ok_or_else(|| Failure::Node(self.links[share.node].address(), Status::Io, FaultOffset::default()))?;
            known.push(VecDeque::from(stretches));
        }
        let mut extents: Vec<Extent> = Vec::new();
        for (piece, nth) in pieces.iter().zip(share_of) {
            let mut left = piece.length;
            while left > 0 {
                // A node may have omitted the end.
                let Some(next) = known[nth].front_mut() else { return Ok(extents) };
                let (now, hole) = (next.length.min(left), next.hole);
                (left, next.length) = (left - now, next.length - now);
                if next.length == 0 {
                    known[nth].pop_front();
                }
                match extents.last_mut() {
                    Some(last) if last.hole == hole => last.length += now,
                    _ => extents.push(Extent { length: now, hole, zero: hole }),
                }
            }
        }
        Ok(extents)
    }
}
