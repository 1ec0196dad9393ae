//! Two cells measured side by side: by how much do they differ, if the machine drifts and single processes are disturbed?
//!
//! Block i has a process of each, a_i and b_i, in random order. The obvious statistic is the pair's difference d_i = a_i - b_i,
//! in which common effects cancel. But a disturbed process spoils its pair: with ten pairs one large difference of the wrong sign
//! is enough to make Wilcoxon's signed ranks inconclusive, and means fare worse. Ranks of two independent groups (Mann-Whitney)
//! lose next to nothing to one bad process, and everything to a drift.
//!
//! **Ranks among neighbours** have both advantages. Each a_i is compared with the b_j of the [`NEIGHBOUR_BLOCKS`]
//! blocks before and after and of its own, in which the machine was in much the same state, and only the sign counts:
//!
//! ```text
//! S(t) = sum over |i - j| <= 4 of sign(a_i - b_j - t)
//! ```
//!
//! The estimate is the median of these differences (Hodges and Lehmann's, restricted to neighbours).
//!
//! **The test is exact, whatever the noise.** If the two differ by t and by nothing else, then in each block the random order
//! could have given a_i - t and b_i the other way round: all 2^n such swaps are equally likely, whatever the noise of a process
//! is, whatever happened during each block, and however blocks depend on each other. S is odd under swapping all blocks and has
//! no terms of two blocks together: sign(a_i - b_j) + sign(a_j - b_i), with i, j, both or none swapped, is c_i s_i + c_j s_j with
//! s = 1 or -1. So S = sum of w_i s_i with weights w_i from the data, and its distribution over all swaps is counted by
//! convolution, for any n, without a random number. The interval is every t that this test does not reject; its bounds are
//! measured differences.
//!
//! **Uncertainty.** "By nothing else": if one of the two also varies more than the other, the interval is for the median
//! difference, with about nominal coverage (`simulation` has the figures). Steps of the machine within a block affect one of the
//! two, at random. Fewer than six blocks cannot reject anything at 0.05 (2 of 32 swaps are the extreme ones): for five the
//! interval is the one of 0.9375, and no difference is reported; for fewer there is none.

use crate::{Estimate, quantile};

/// Number of blocks before and after its own with which a process is compared.
pub const NEIGHBOUR_BLOCKS: usize = 4;
/// The fewest blocks that have an interval.
pub const BLOCKS_MIN: usize = 5;

/// A difference, and how unlikely it would be if there were none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// a - b, with its interval.
    pub estimate: Estimate,
    /// The two-sided p value for no difference.
    pub p: f64,
}

/// The typical difference a - b of values measured in the same blocks, in the order in which the blocks ran. Give logarithms to
/// get a ratio. `None` if there are fewer than [`BLOCKS_MIN`], the numbers are unequal, or one is not finite.
pub fn difference(a: &[f64], b: &[f64], level: f64) -> Option<Difference> {
    let n = a.len();
    if n != b.len() || n < BLOCKS_MIN || !a.iter().chain(b).all(|v| v.is_finite()) {
        return None;
    }
    let near = |i: usize| i.saturating_sub(NEIGHBOUR_BLOCKS)..(i + NEIGHBOUR_BLOCKS + 1).min(n);
    let all: Vec<f64> = (0..n).flat_map(|i| near(i).map(move |j| a[i] - b[j])).collect();
    let all = crate::sorted(&all)?;
    let value = quantile::of_sorted(&all, 0.5)?;
    let one = 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let miss = ((1.0 - level) / 2.0).max(one);
    // The test result is constant between two neighbouring differences: the k-th interval is below all[k].
    let stretch = |k: usize| match (k.checked_sub(1).map(|k| all[k]), all.get(k)) {
        (Some(low), Some(high)) => low + (high - low) / 2.0,
        (Some(low), None) => low + low.abs().max(1.0),
        (None, _) => all[0] - all[0].abs().max(1.0),
    };
    let low = first_not_rejected(all.len(), |k| tail_shares(a, b, stretch(k)).0 > miss);
    let high = first_not_rejected(all.len(), |k| tail_shares(a, b, stretch(all.len() - k)).1 > miss);
    assert!(low <= all.len() / 2 && high <= all.len() / 2);
    let (low, high) = (all[low.saturating_sub(1)], all[all.len() - high.max(1)]);
    assert!(low <= high);
    let (above, below) = tail_shares(a, b, 0.0);
    // Their sum counts the value itself twice.
    debug_assert!(above + below > 1.0 - 1e-9);
    let method = "median difference of neighbouring processes, exact test by swaps within blocks";
    Some(Difference {
        estimate: Estimate {
            value,
            low: low.min(value),
            high: high.max(value),
            level: level.min(1.0 - 2.0 * one),
            n,
            method,
        },
        p: (2.0 * above.min(below)).min(1.0),
    })
}

/// The first interval from the outside that is not rejected, of 0 to `most`: by bisection, since S falls as t rises.
fn first_not_rejected(most: usize, is_held: impl Fn(usize) -> bool) -> usize {
    if is_held(0) {
        return 0;
    }
    let (mut out, mut held) = (0, most / 2);
    while held - out > 1 {
        let middle = out + (held - out) / 2;
        if is_held(middle) { held = middle } else { out = middle }
    }
    held
}

/// The shares of all swaps in which S is at least, and at most, its value for a reduced by `t`.
fn tail_shares(a: &[f64], b: &[f64], t: f64) -> (f64, f64) {
    let weights = doubled_weights(a, b, t);
    let found: i64 = weights.iter().sum();
    let most: i64 = weights.iter().map(|w| w.abs()).sum();
    // The share of swaps with each sum; index `most` is a sum of 0. Each weight shifts it up or down.
    assert!(found.abs() <= most);
    let width = usize::try_from(2 * most + 1).unwrap_or(1);
    let mut shares = vec![0.0; width];
    let mut next = vec![0.0; width];
    let middle = width / 2;
    shares[middle] = 1.0;
    let mut reach = 0;
    for weight in weights.iter().map(|w| w.unsigned_abs() as usize) {
        reach += weight;
        assert!(reach <= middle);
        let part = middle - reach..=middle + reach;
        next[part.clone()].fill(0.0);
        for at in middle - (reach - weight)..=middle + (reach - weight) {
            let half = shares[at] / 2.0;
            next[at - weight] += half;
            next[at + weight] += half;
        }
        shares[part.clone()].copy_from_slice(&next[part]);
    }
    assert!(reach == middle);
    debug_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    let at = usize::try_from(found + most).unwrap_or(0);
    (shares[at..].iter().sum(), shares[..=at].iter().sum())
}

/// Twice the weight of each block in S, so that equal values, whose sign is 0, give integers.
fn doubled_weights(a: &[f64], b: &[f64], t: f64) -> Vec<i64> {
    let sign = |x: f64, y: f64| i64::from(x > y) - i64::from(x < y);
    let n = a.len();
    let low = |i: usize| a[i] - t;
    let mut weights: Vec<i64> = (0..n).map(|i| 2 * sign(low(i), b[i])).collect();
    for i in 0..n {
        for j in i + 1..(i + NEIGHBOUR_BLOCKS + 1).min(n) {
            let across = sign(low(i), b[j]) + sign(low(j), b[i]);
            let along = sign(a[i], a[j]) + sign(b[j], b[i]);
            weights[i] += across + along;
            weights[j] += across - along;
        }
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn random_blocks(n: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
        let mut random = Random::new(seed);
        let mut some = |n: usize| (0..n).map(|_| random.unit()).collect::<Vec<f64>>();
        (some(n), some(n))
    }

    /// The literal definition: S of every one of the 2^n swaps.
    #[test]
    fn weighted_count_equals_all_swaps() {
        for (n, seed) in [(5, 1), (7, 2), (9, 3), (10, 4)] {
            let (mut a, b) = random_blocks(n, seed);
            a[2] = b[3];
            for t in [0.0, 0.1, -0.3] {
                let s = |swapped: usize| -> i64 {
                    let of = |i: usize| if swapped >> i & 1 == 1 { (b[i], a[i] - t) } else { (a[i] - t, b[i]) };
                    let near = (0..n)
                        .flat_map(|i| (0..n).map(move |j| (i, j)))
                        .filter(|(i, j)| i.abs_diff(*j) <= NEIGHBOUR_BLOCKS);
                    near.map(|(i, j)| i64::from(of(i).0 > of(j).1) - i64::from(of(i).0 < of(j).1)).sum()
                };
                let found = s(0);
                let share =
                    |is: &dyn Fn(i64) -> bool| (0..1 << n).filter(|x| is(s(*x))).count() as f64 / (1 << n) as f64;
                let (above, below) = tail_shares(&a, &b, t);
                let (tried_above, tried_below) = (share(&|x| x >= found), share(&|x| x <= found));
                assert!((above - tried_above).abs() < 1e-12 && (below - tried_below).abs() < 1e-12, "{n} {t}");
            }
        }
    }

    #[test]
    fn drift_cancels_and_one_outlier_does_not_decide() {
        let (mut a, mut b) = random_blocks(12, 5);
        a.iter_mut().zip(0..).for_each(|(x, i)| *x = *x * 0.02 + 0.04 + f64::from(i) * 0.01);
        b.iter_mut().zip(0..).for_each(|(x, i)| *x = *x * 0.02 + f64::from(i) * 0.01);
        let clean = difference(&a, &b, 0.95).unwrap();
        assert!(clean.estimate.holds(0.04) && clean.estimate.low > 0.02 && clean.p < 0.001, "{clean:?}");
        b[4] += 10.0;
        let hit = difference(&a, &b, 0.95).unwrap();
        assert!(hit.estimate.low > 0.0 && hit.estimate.high < 0.1 && hit.p < 0.02, "{hit:?}");
    }

    #[test]
    fn interval_agrees_with_p_and_ends_are_measured_differences() {
        for seed in 0..60 {
            let (mut a, b) = random_blocks(10, seed);
            a.iter_mut().for_each(|x| *x += 0.35);
            let d = difference(&a, &b, 0.95).unwrap();
            assert_eq!(d.p <= 0.05, !d.estimate.holds(0.0), "{d:?}");
            let measured = |end: f64| a.iter().any(|x| b.iter().any(|y| x - y == end));
            assert!(measured(d.estimate.low) && measured(d.estimate.high), "{d:?}");
            let turned = difference(&b, &a, 0.95).unwrap();
            assert!((turned.estimate.low + d.estimate.high).abs() < 1e-12 && (turned.p - d.p).abs() < 1e-12);
        }
    }

    #[test]
    fn few_blocks_have_reachable_level_or_no_interval() {
        let (a, b) = ([5.0, 6.0, 7.0, 8.0, 9.0], [1.0, 1.5, 2.0, 2.5, 3.0]);
        let five = difference(&a, &b, 0.95).unwrap();
        assert!(five.estimate.low >= 2.0 && five.estimate.high <= 8.0 && five.p == 0.0625, "{five:?}");
        assert!((five.estimate.level - 0.9375).abs() < 1e-12);
        assert_eq!(difference(&a[..4], &b[..4], 0.95), None);
        assert_eq!(difference(&a, &b[..4], 0.95), None);
        assert_eq!(difference(&[f64::NAN; 6], &[0.0; 6], 0.95), None);
        let same = difference(&[2.0; 8], &[1.0; 8], 0.95).unwrap();
        assert_eq!((same.estimate.low, same.estimate.value, same.estimate.high), (1.0, 1.0, 1.0));
        assert_eq!(difference(&[2.0; 8], &[2.0; 8], 0.95).unwrap().p, 1.0);
    }
}
