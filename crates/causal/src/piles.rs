//! A queue for things that come almost in order.
//!
//! Picture a game of patience: each card is laid on the first pile whose uppermost card is not higher, so every pile is in
//! order, and the lowest card of all lies at the bottom of one of them. Cards that come in order need one pile. Records
//! need a few: moments come in order, and so do intervals among themselves, which are told at their end and belong at their
//! start; those that lasted longer open a further pile. Laying and taking then cost a few comparisons, where a heap of all
//! that waits costs a walk through memory.
//!
//! *Uncertainty*: none of the result, only of the cost. What fits on none of [`PILES`] piles goes into a tree, so any order,
//! chosen to be the worst, costs what a tree costs.

use std::collections::{BTreeMap, VecDeque};

/// Piles looked at for each card. Two CPUs' records of INSERTs need three or four.
const PILES: usize = 8;

/// Things by their places, which are all different.
#[derive(Debug)]
pub(crate) struct Piles<K, T> {
    piles: Vec<VecDeque<(K, T)>>,
    rest: BTreeMap<K, T>,
    len: usize,
}

impl<K: Ord + Copy, T> Piles<K, T> {
    pub(crate) fn new() -> Self {
        Self { piles: Vec::new(), rest: BTreeMap::new(), len: 0 }
    }

    /// Lays a thing at its place.
    pub(crate) fn push(&mut self, place: K, thing: T) {
        self.len += 1;
        let fits = |pile: &&mut VecDeque<(K, T)>| pile.back().is_none_or(|(last, _)| *last <= place);
        if let Some(pile) = self.piles.iter_mut().find(fits) {
            pile.push_back((place, thing));
        } else if self.piles.len() < PILES {
            self.piles.push(VecDeque::from([(place, thing)]));
        } else {
            self.rest.insert(place, thing);
        }
    }

    /// Takes the first thing of all, if `wanted` says so of its place.
    pub(crate) fn pop_if(&mut self, wanted: impl FnOnce(&K) -> bool) -> Option<T> {
        let fronts = self.piles.iter().zip(0..).filter_map(|(pile, i)| Some((pile.front()?.0, i)));
        let first = fronts.min();
        if let Some((place, _)) = self.rest.first_key_value()
            && first.is_none_or(|(other, _)| *place < other)
        {
            let thing = wanted(place).then(|| self.rest.pop_first())??.1;
            self.len -= 1;
            return Some(thing);
        }
        let (place, i) = first?;
        let thing = wanted(&place).then(|| self.piles[i].pop_front())??.1;
        self.len -= 1;
        Some(thing)
    }

    /// Things that lie there.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    #[test]
    fn what_comes_in_order_needs_one_pile_and_what_comes_backwards_the_tree() {
        let mut piles = Piles::new();
        (0..1000).for_each(|n| piles.push(n, ()));
        assert_eq!((piles.piles.len(), piles.rest.len()), (1, 0));
        let mut piles = Piles::new();
        (0..1000).rev().for_each(|n| piles.push(n, n));
        assert_eq!((piles.piles.len(), piles.rest.len()), (PILES, 1000 - PILES));
        assert!((0..1000).all(|n| piles.pop_if(|_| true) == Some(n)));
        assert_eq!((piles.len(), piles.pop_if(|_| true)), (0, None));
    }

    proptest! {
        /// Whatever comes, and whenever it is taken: the same as a heap gives.
        #[test]
        fn it_is_a_heap(steps in prop::collection::vec((0u32..50, 0u32..50), 0..400)) {
            let (mut piles, mut heap) = (Piles::new(), BinaryHeap::new());
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
