//! Maps a byte of the pool's disk to a node and an offset in its store.
//!
//! **Concatenated**, as in the paper (001): node 0's bytes come first, then node 1's. Nodes may differ in size.
//! **Striped**: stripes of a fixed size are distributed round robin, so that a long read keeps all nodes busy; every node
//! contributes as much as the smallest.

/// The arrangement of the nodes' space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// One after the other.
    Concatenated,
    /// Round robin, in units of `stripe_bytes` (a multiple of the block).
    Striped { stripe_bytes: u64 },
}

/// A contiguous range of the disk that is contiguous on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Index of the node.
    pub node: usize,
    /// Offset in the node's store.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// Offset within the request.
    pub request_offset: u32,
}

/// The map from disk to nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    arrangement: Arrangement,
    /// Offset on the disk of each node, and the end (concatenated).
    node_begins: Vec<u64>,
    /// Bytes that each node contributes (striped).
    node_bytes: u64,
}

impl Layout {
    /// Creates the map for nodes of these sizes, in this order.
    pub fn new(arrangement: Arrangement, sizes: &[u64]) -> Self {
        let mut begins = vec![0];
        for size in sizes {
            begins.push(begins.last().copied().unwrap_or(0) + size);
        }
        let smallest = sizes.iter().copied().min().unwrap_or(0);
        let each = match arrangement {
            Arrangement::Concatenated => smallest,
            Arrangement::Striped { stripe_bytes } => smallest - smallest % stripe_bytes,
        };
        Self { arrangement, node_begins: begins, node_bytes: each }
    }

    /// Bytes of the disk.
    pub fn size_bytes(&self) -> u64 {
        match self.arrangement {
            Arrangement::Concatenated => self.node_begins.last().copied().unwrap_or(0),
            Arrangement::Striped { .. } => self.node_bytes * self.node_count(),
        }
    }

    fn node_count(&self) -> u64 {
        self.node_begins.len() as u64 - 1
    }

    /// The pieces of a range that ends within the disk, in order. Consecutive stripes on the same node are not merged: they
    /// travel in one frame anyway.
    pub fn pieces(&self, offset: u64, length: u32) -> impl Iterator<Item = Piece> {
        debug_assert!(offset + u64::from(length) <= self.size_bytes());
        let mut before = 0;
        std::iter::from_fn(move || {
            let left = length - before;
            if left == 0 {
                return None;
            }
            let (node, node_offset, room) = self.locate(offset + u64::from(before));
            let now = u64::from(left).min(room) as u32;
            let piece = Piece { node, offset: node_offset, length: now, request_offset: before };
            before += now;
            Some(piece)
        })
    }

    /// The part of a range on each node, merged per node: stripes that are apart on the disk are contiguous on their node.
    /// For operations whose data does not have to be put in order: the node, the offset there, and the length.
    pub fn shares(&self, offset: u64, length: u32) -> impl Iterator<Item = (usize, u64, u32)> {
        let end = offset + u64::from(length);
        (0..self.node_begins.len() - 1).filter_map(move |node| {
            let (first, last) = (self.node_bytes_before(node, offset), self.node_bytes_before(node, end));
            (first < last).then_some((node, first, (last - first) as u32))
        })
    }

    /// Bytes of a node before an offset on the disk: a node's bytes have the same order on both.
    fn node_bytes_before(&self, node: usize, at: u64) -> u64 {
        match self.arrangement {
            Arrangement::Concatenated => {
                at.clamp(self.node_begins[node], self.node_begins[node + 1]) - self.node_begins[node]
            }
            Arrangement::Striped { stripe_bytes } => {
                let (round, within) =
                    (at / (stripe_bytes * self.node_count()), at % (stripe_bytes * self.node_count()));
                round * stripe_bytes + within.saturating_sub(node as u64 * stripe_bytes).min(stripe_bytes)
            }
        }
    }

    /// The range of the disk from the first to the last of these bytes of a node; with stripes, it includes bytes of other
    /// nodes. `None` if the disk uses none of them.
    pub fn disk_range(&self, node: usize, range: std::ops::Range<u64>) -> Option<std::ops::Range<u64>> {
        let size = match self.arrangement {
            Arrangement::Concatenated => self.node_begins[node + 1] - self.node_begins[node],
            Arrangement::Striped { .. } => self.node_bytes,
        };
        let (first, end) = (range.start, range.end.min(size));
        let place = |at: u64| match self.arrangement {
            Arrangement::Concatenated => self.node_begins[node] + at,
            Arrangement::Striped { stripe_bytes } => {
                (at / stripe_bytes * self.node_count() + node as u64) * stripe_bytes + at % stripe_bytes
            }
        };
        (first < end).then(|| place(first)..place(end - 1) + 1)
    }

    /// The node, the offset there, and the bytes until the next node begins.
    fn locate(&self, at: u64) -> (usize, u64, u64) {
        match self.arrangement {
            Arrangement::Concatenated => {
                // The last node that begins at or before `at`: an empty node has the same beginning as its successor.
                let node = self.node_begins.partition_point(|begin| *begin <= at) - 1;
                (node, at - self.node_begins[node], self.node_begins[node + 1] - at)
            }
            Arrangement::Striped { stripe_bytes } => {
                let (stripe, within) = (at / stripe_bytes, at % stripe_bytes);
                let node = (stripe % self.node_count()) as usize;
                (node, stripe / self.node_count() * stripe_bytes + within, stripe_bytes - within)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn range_across_two_nodes_has_two_pieces() {
        let layout = Layout::new(Arrangement::Concatenated, &[8192, 4096]);
        assert_eq!(layout.size_bytes(), 12_288);
        let pieces: Vec<Piece> = layout.pieces(8000, 500).collect();
        let expected = [
            Piece { node: 0, offset: 8000, length: 192, request_offset: 0 },
            Piece { node: 1, offset: 0, length: 308, request_offset: 192 },
        ];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn stripes_rotate_and_the_smallest_node_limits_the_size() {
        let layout = Layout::new(Arrangement::Striped { stripe_bytes: 4096 }, &[9000, 20_000]);
        assert_eq!(layout.size_bytes(), 16_384);
        let nodes: Vec<(usize, u64)> = layout.pieces(0, 16_384).map(|p| (p.node, p.offset)).collect();
        assert_eq!(nodes, [(0, 0), (1, 0), (0, 4096), (1, 4096)]);
    }

    proptest! {
        /// Every byte of the disk has exactly one place, within its node.
        #[test]
        fn every_byte_has_its_own_place(sizes in proptest::collection::vec(0_u64..300, 1..5), stripe in proptest::option::of(1_u64..40)) {
            let arrangement = stripe.map_or(Arrangement::Concatenated, |stripe_bytes| Arrangement::Striped { stripe_bytes });
            let layout = Layout::new(arrangement, &sizes);
            let mut places = BTreeSet::new();
            let mut expected = 0;
            for piece in layout.pieces(0, layout.size_bytes() as u32) {
                prop_assert_eq!(piece.request_offset, expected);
                expected += piece.length;
                prop_assert!(piece.offset + u64::from(piece.length) <= sizes[piece.node]);
                for at in 0..u64::from(piece.length) {
                    prop_assert!(places.insert((piece.node, piece.offset + at)));
                }
            }
            prop_assert_eq!(u64::from(expected), layout.size_bytes());
        }

        /// `disk_range` returns the range whose pieces map back to the node's bytes.
        #[test]
        fn disk_range_inverts_pieces(
            sizes in proptest::collection::vec(0_u64..300, 1..5),
            stripe in proptest::option::of(1_u64..40),
            (node, one, other) in (0_usize..4, 0_u64..300, 0_u64..300),
        ) {
            let arrangement = stripe.map_or(Arrangement::Concatenated, |stripe_bytes| Arrangement::Striped { stripe_bytes });
            let layout = Layout::new(arrangement, &sizes);
            let node = node % sizes.len();
            let range = one.min(other)..one.max(other);
            let all: Vec<u64> = (0..layout.size_bytes())
                .filter(|at| layout.pieces(*at, 1).all(|p| p.node == node && range.contains(&p.offset)))
                .collect();
            let hull = all.first().zip(all.last()).map(|(first, last)| *first..last + 1);
            prop_assert_eq!(layout.disk_range(node, range), hull);
        }

        /// A range's shares are the bytes of its pieces, with at most one share per node.
        #[test]
        fn shares_join_pieces_per_node(
            sizes in proptest::collection::vec(0_u64..300, 1..5),
            stripe in proptest::option::of(1_u64..40),
            range in (0_u64..1200, 0_u64..1200),
        ) {
            let arrangement = stripe.map_or(Arrangement::Concatenated, |stripe_bytes| Arrangement::Striped { stripe_bytes });
            let layout = Layout::new(arrangement, &sizes);
            let (one, other) = (range.0.min(layout.size_bytes()), range.1.min(layout.size_bytes()));
            let (offset, length) = (one.min(other), one.abs_diff(other) as u32);
            let bytes = |node: usize, offset: u64, length: u32| (offset..offset + u64::from(length)).map(move |at| (node, at));
            let pieces: BTreeSet<_> = layout.pieces(offset, length).flat_map(|p| bytes(p.node, p.offset, p.length)).collect();
            let shares: Vec<_> = layout.shares(offset, length).collect();
            prop_assert!(shares.len() <= sizes.len());
            let together: Vec<_> = shares.iter().flat_map(|(node, offset, length)| bytes(*node, *offset, *length)).collect();
            prop_assert_eq!(together.len(), pieces.len());
            prop_assert_eq!(together.into_iter().collect::<BTreeSet<_>>(), pieces);
        }
    }
}
