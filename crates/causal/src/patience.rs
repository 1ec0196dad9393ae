//! A priority queue for items that arrive almost in order, after patience sorting.
//!
//! The items are kept in piles, each in order: an item goes on the first pile whose last item is not later, so the smallest
//! item is the first of some pile. Items that arrive in order need one pile. Records need a few: single points in time
//! arrive in order, and so do intervals among themselves, whose records are written at their end and sorted by their start;
//! longer intervals open another pile. Pushing and popping then cost a few comparisons, where a heap of all waiting items
//! costs a walk through memory.
//!
//! A log of many CPUs delivers a block of each in turn, so each needs its own piles. The last items descend from pile to
//! pile, so an item's pile is found by binary search; a small heap, with one entry per pile, finds the smallest.
//!
//! *Uncertainty*: none in the result, only in the cost. An item that fits on none of [`PILES_MAX`] piles goes into a tree, so
//! even the worst order costs no more than a tree.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Maximum number of piles. Records of INSERTs on two CPUs need three or four.
const PILES_MAX: usize = 128;
/// Number of items for which a pile that became emptier keeps its memory.
const PILE_CAPACITY_KEPT: usize = 1024;

/// Items by their keys, which are all different.
#[derive(Debug)]
pub(crate) struct PatienceQueue<K, T> {
    piles: Vec<VecDeque<(K, T)>>,
    /// Non-empty piles, the one with the highest last key first.
    order: Vec<usize>,
    empty: Vec<usize>,
    /// The lowest key of each non-empty pile.
    lowest: BinaryHeap<Reverse<(K, usize)>>,
    rest: BTreeMap<K, T>,
    len: usize,
}

impl<K: Ord + Copy, T> PatienceQueue<K, T> {
    pub(crate) fn new() -> Self {
        Self {
            piles: Vec::new(),
            order: Vec::new(),
            empty: Vec::new(),
            lowest: BinaryHeap::new(),
            rest: BTreeMap::new(),
            len: 0,
        }
    }

    /// Adds an item with its key.
    pub(crate) fn push(&mut self, place: K, thing: T) {
        self.len += 1;
        let higher = |&pile: &usize| self.piles[pile].back().is_some_and(|(last, _)| *last > place);
        if let Some(&pile) = self.order.get(self.order.partition_point(higher)) {
            self.piles[pile].push_back((place, thing));
            return;
        }
        if self.empty.is_empty() && self.piles.len() < PILES_MAX {
            self.empty.push(self.piles.len());
            self.piles.push(VecDeque::new());
        }
        let Some(pile) = self.empty.pop() else {
            self.rest.insert(place, thing);
            return;
        };
        self.piles[pile].push_back((place, thing));
        self.order.push(pile);
        self.lowest.push(Reverse((place, pile)));
    }

    /// Takes the smallest item, if `wanted` accepts its key.
    pub(crate) fn pop_if(&mut self, wanted: impl FnOnce(&K) -> bool) -> Option<T> {
        let first = self.lowest.peek_mut();
        if let Some((place, _)) = self.rest.first_key_value()
            && first.as_ref().is_none_or(|first| *place < first.0.0)
        {
            let thing = wanted(place).then(|| self.rest.pop_first())??.1;
            self.len -= 1;
            return Some(thing);
        }
        let mut first = first?;
        let Reverse((place, pile)) = *first;
        let items = &mut self.piles[pile];
        let thing = wanted(&place).then(|| items.pop_front())??.1;
        self.len -= 1;
        match items.front() {
            Some((next, _)) => first.0.0 = *next,
            None => {
                PeekMut::pop(first);
                self.order.retain(|other| *other != pile);
                self.empty.push(pile);
            }
        }
        if items.capacity() > PILE_CAPACITY_KEPT && items.len() < items.capacity() / 4 {
            items.shrink_to(items.capacity() / 2);
        }
        Some(thing)
    }

    /// Number of items.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordered_input_uses_one_pile_and_reversed_input_the_tree() {
        let mut piles = PatienceQueue::new();
        (0..100_000).for_each(|n| piles.push(n, ()));
        assert_eq!((piles.piles.len(), piles.rest.len()), (1, 0));
        (0..99_000).for_each(|_| assert!(piles.pop_if(|_| true).is_some()));
        assert!(piles.piles[0].capacity() < 10_000, "memory for {} of 1,000", piles.piles[0].capacity());
        let mut piles = PatienceQueue::new();
        (0..1000).rev().for_each(|n| piles.push(n, n));
        assert_eq!((piles.piles.len(), piles.rest.len()), (PILES_MAX, 1000 - PILES_MAX));
        assert!((0..1000).all(|n| piles.pop_if(|_| true) == Some(n)));
        assert_eq!((piles.len(), piles.pop_if(|_| true)), (0, None));
    }

    #[test]
    fn interleaved_cpus_use_one_pile_each() {
        let mut piles = PatienceQueue::new();
        let block = |round: u64, cpu: u64| (0..50).map(move |n| (round * 50 + n, cpu));
        (0..64).flat_map(|cpu| block(0, cpu)).for_each(|place| piles.push(place, place));
        for round in 1..20 {
            for cpu in 0..64 {
                block(round, cpu).for_each(|place| piles.push(place, place));
            }
            for n in (round - 1) * 50..round * 50 {
                assert!((0..64).all(|cpu| piles.pop_if(|_| true) == Some((n, cpu))));
            }
            assert_eq!((piles.rest.len(), piles.piles.len() <= 64), (0, true), "{} piles", piles.piles.len());
        }
    }

    proptest! {
        /// Any pushes and pops give the same results as a heap.
        #[test]
        fn a_patience_queue_behaves_as_a_heap(steps in prop::collection::vec((0u32..500, 0u32..60), 0..800)) {
            let (mut piles, mut heap) = (PatienceQueue::new(), BinaryHeap::new());
            for (n, (place, upto)) in steps.into_iter().enumerate() {
                piles.push((place, n), n);
                heap.push(Reverse((place, n)));
                while heap.peek().is_some_and(|Reverse((place, _))| *place < upto) {
                    let expected = heap.pop().map(|Reverse((_, n))| n);
                    prop_assert_eq!(piles.pop_if(|(place, _)| *place < upto), expected);
                }
                prop_assert_eq!(piles.pop_if(|(place, _)| *place < upto), None);
                prop_assert_eq!(piles.len(), heap.len());
            }
        }
    }
}
