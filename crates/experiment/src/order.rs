//! The order of a randomised complete block design: every block is a permutation of all cells, drawn from one stream of a
//! recorded seed. The number of blocks need not be known when the first is drawn: a resumed run draws the same blocks
//! again.

use stats::random::Random;

/// Yields the blocks, one after the other, without end; each contains the numbers 0 to `cells` - 1 once.
pub fn blocks(seed: u64, cells: usize) -> impl Iterator<Item = Vec<usize>> {
    let mut random = Random::new(seed);
    std::iter::repeat_with(move || {
        let mut order: Vec<usize> = (0..cells).collect();
        random.shuffle(&mut order);
        order
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_block_has_each_cell_once_in_seeded_order(seed: u64, cells in 1_usize..20, number in 1_usize..30) {
            let all: Vec<Vec<usize>> = blocks(seed, cells).take(number).collect();
            for block in &all {
                let mut sorted = block.clone();
                sorted.sort_unstable();
                prop_assert_eq!(sorted, (0..cells).collect::<Vec<_>>());
            }
            prop_assert_eq!(&all[..], &blocks(seed, cells).take(number).collect::<Vec<_>>()[..]);
            // More blocks do not change the previous ones.
            prop_assert_eq!(&all[..], &blocks(seed, cells).take(number + 5).collect::<Vec<_>>()[..number]);
        }
    }

    #[test]
    fn every_cell_is_first_equally_often() {
        let mut first = [0_u32; 4];
        blocks(1, 4).take(4000).for_each(|block| first[block[0]] += 1);
        // Binomial, standard deviation 27.
        assert!(first.iter().all(|n| (865..1135).contains(n)), "{first:?}");
    }
}
