//! Comparison of two groups of processes by ranks: the size of an outlier does not matter.
//!
//! - [`mann_whitney`]: could both be drawn from one distribution? (Mann and Whitney, Ann. Math. Stat. 18, 1947.) Exact if
//!   no two values are equal and the smaller group has at most [`EXACT_GROUP_MAX`]; otherwise the normal approximation
//!   with the correction for ties and for continuity. These are SciPy's choices too.
//! - [`shift`]: by how much is a typical value of the first larger? The median of all differences, with the interval that
//!   belongs to the test above (Hodges and Lehmann, Ann. Math. Stat. 34, 1963). Give logarithms to get a ratio.
//! - [`cliffs_delta`]: how often is a value of the first larger than one of the second, minus how often it is
//!   smaller?
//!
//! - [`difference`]: the last two in one, counted exactly for typical sizes of benchmarks: the comparison for two independent
//!   cells.
//!
//! Values must be independent: use the means of processes, never their iterations.

use crate::student::{normal_cdf, normal_quantile};
use crate::within::Difference;
use crate::{Estimate, quantile};

/// The largest size of the smaller group for which probabilities are counted, not approximated.
pub const EXACT_GROUP_MAX: usize = 8;
/// The maximum number of pairs for counting, however small the smaller group is.
const EXACT_PAIRS_MAX: usize = 10_000;

/// A Mann-Whitney test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MannWhitney {
    /// Pairs in which the first group's value is larger, an equal pair counting one half.
    pub u: f64,
    /// Two-sided p value.
    pub p: f64,
    /// Whether p was counted exactly.
    pub exact: bool,
}

/// Tests whether both groups come from one distribution; `None` if one is empty or a value is not finite.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<MannWhitney> {
    let (n, m) = (a.len(), b.len());
    let pooled = pooled_sorted(a, b)?;
    let ties: Vec<f64> = pooled.chunk_by(|x, y| x == y).map(|c| c.len() as f64).collect();
    let u = win_count(a, b);
    let pairs = (n * m) as f64;
    if is_exact(n, m) && ties.len() == n + m {
        let upper = u.max(pairs - u) as usize;
        let p = (2.0 * exact_probabilities(n, m)[upper..].iter().sum::<f64>()).min(1.0);
        return Some(MannWhitney { u, p, exact: true });
    }
    let error = normal_error(n, m, &ties);
    // Half a pair is the continuity correction: u is whole, or half with ties.
    let away = (u.max(pairs - u) - pairs / 2.0 - 0.5).max(0.0);
    let p = if error > 0.0 { (2.0 * normal_cdf(-away / error)).min(1.0) } else { 1.0 };
    Some(MannWhitney { u, p, exact: false })
}

/// The median of all differences a - b, with its interval; `None` if a group is empty, a value is not finite, or there are
/// too few values for an interval of this level (4 and 4 for 0.95).
pub fn shift(a: &[f64], b: &[f64], level: f64) -> Option<Estimate> {
    let (n, m) = (a.len(), b.len());
    let pooled = pooled_sorted(a, b)?;
    let differences: Vec<f64> = a.iter().flat_map(|x| b.iter().map(move |y| x - y)).collect();
    let differences = crate::sorted(&differences)?;
    // The largest k for which the k-th smallest and the k-th largest difference enclose often enough.
    let miss = (1.0 - level) / 2.0;
    let k = if is_exact(n, m) {
        let mut below = 0.0;
        exact_probabilities(n, m)
            .iter()
            .take_while(|p| {
                below += **p;
                below <= miss
            })
            .count()
    } else {
        let ties: Vec<f64> = pooled.chunk_by(|x, y| x == y).map(|c| c.len() as f64).collect();
        let pairs = (n * m) as f64;
        (pairs / 2.0 + 0.5 + normal_quantile(miss) * normal_error(n, m, &ties)).floor().max(0.0) as usize
    };
    let k = k.min(differences.len().div_ceil(2));
    if k == 0 {
        return None;
    }
    Some(Estimate {
        value: quantile::of_sorted(&differences, 0.5)?,
        low: differences[k - 1],
        high: differences[differences.len() - k],
        level,
        n: n.min(m),
        method: "Hodges-Lehmann shift, rank interval",
    })
}

/// The largest size of a group for which [`difference`] counts exactly.
const COUNTED_GROUP_MAX: usize = 50;
/// Whether [`difference`] counts exactly for groups of these sizes; otherwise it approximates.
pub fn counts_exactly(n: usize, m: usize) -> bool {
    n.max(m) <= COUNTED_GROUP_MAX
}

/// The fewest values of a group for a comparison.
const GROUP_VALUES_MIN: usize = 3;

/// Hodges and Lehmann's shift a - b with its interval, and Mann and Whitney's p value for no shift, from one distribution: exact
/// if no group has more than 50 values, whatever the noise is, as long as it is the same for both. Equal values make it
/// conservative. Give logarithms to get a ratio. The bounds are measured differences. `None` if a group has fewer than three
/// values, if there are too few for an interval of this level (3 and 5, or 4 and 4, have one of 0.95), or if one is not finite.
pub fn difference(a: &[f64], b: &[f64], level: f64) -> Option<Difference> {
    let (n, m) = (a.len(), b.len());
    let pooled = pooled_sorted(a, b)?;
    if n.min(m) < GROUP_VALUES_MIN {
        return None;
    }
    let all: Vec<f64> = a.iter().flat_map(|x| b.iter().map(move |y| x - y)).collect();
    let all = crate::sorted(&all)?;
    let (u, pairs) = (win_count(a, b), n * m);
    let miss = (1.0 - level) / 2.0;
    let away = u.max(pairs as f64 - u);
    let (k, p) = if counts_exactly(n, m) {
        let shares = probabilities_by_addition(n, m);
        let k = shares.iter().scan(0.0, |below, share| {
            *below += share;
            Some(*below)
        });
        let beyond: f64 = shares[..=pairs - (away.floor() as usize).min(pairs)].iter().sum();
        (k.take_while(|below| *below <= miss).count(), 2.0 * beyond)
    } else {
        let ties: Vec<f64> = pooled.chunk_by(|x, y| x == y).map(|c| c.len() as f64).collect();
        let error = normal_error(n, m, &ties);
        let k = (pairs as f64 / 2.0 + 0.5 + normal_quantile(miss) * error).floor().max(0.0) as usize;
        let beyond = (away - pairs as f64 / 2.0 - 0.5).max(0.0);
        (k, if error > 0.0 { 2.0 * normal_cdf(-beyond / error) } else { 1.0 })
    };
    let k = k.min(all.len().div_ceil(2));
    if k == 0 {
        return None;
    }
    let value = quantile::of_sorted(&all, 0.5)?;
    let method = if counts_exactly(n, m) {
        "median difference of processes, exact rank test"
    } else {
        "median difference of processes, rank test by normal approximation"
    };
    let (low, high) = (all[k - 1], all[all.len() - k]);
    Some(Difference { estimate: Estimate { value, low, high, level, n: n.min(m), method }, p: p.min(1.0) })
}

/// Like [`exact_probabilities`], by additions only, so that large groups lose no precision: for n ranks drawn from n +
/// m, how many of the others lie below them.
fn probabilities_by_addition(n: usize, m: usize) -> Vec<f64> {
    let mut shares = vec![vec![0.0; n * m + 1]; n + 1];
    shares[0][0] = 1.0;
    for place in 0..n + m {
        // The place's value belongs to the first group in proportion to those that are left to place; `drawn` are before it.
        for drawn in (0..n.min(place + 1)).rev() {
            let others = place - drawn;
            if others <= m {
                let (below, from) = shares.split_at_mut(drawn + 1);
                for (to, share) in from[0][others..].iter_mut().zip(&below[drawn]) {
                    *to += share;
                }
            }
        }
    }
    let all: f64 = shares[n].iter().sum();
    shares[n].iter().map(|share| share / all).collect()
}

/// The share of pairs in which a is larger minus the share in which b is: -1 to 1, 0 if neither tends to be larger.
/// `None` if a group is empty or a value is not finite.
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> Option<f64> {
    pooled_sorted(a, b)?;
    Some(2.0 * win_count(a, b) / (a.len() * b.len()) as f64 - 1.0)
}

/// Both groups in ascending order; `None` if one is empty or a value is not finite.
fn pooled_sorted(a: &[f64], b: &[f64]) -> Option<Vec<f64>> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    crate::sorted(&[a, b].concat())
}

fn win_count(a: &[f64], b: &[f64]) -> f64 {
    let one = |x: &f64, y: &f64| if x > y { 1.0 } else { f64::from(u8::from(x == y)) / 2.0 };
    a.iter().map(|x| b.iter().map(|y| one(x, y)).sum::<f64>()).sum()
}

fn is_exact(n: usize, m: usize) -> bool {
    n.min(m) <= EXACT_GROUP_MAX && n * m <= EXACT_PAIRS_MAX
}

/// The standard deviation of U under no difference, given the sizes of the groups of equal values.
fn normal_error(n: usize, m: usize, ties: &[f64]) -> f64 {
    let (n, m) = (n as f64, m as f64);
    let all = n + m;
    let tied: f64 = ties.iter().map(|t| t * t * t - t).sum();
    (n * m / 12.0 * (all + 1.0 - tied / (all * (all - 1.0)))).sqrt()
}

/// The probability of each U from 0 to n m if all orders are equally likely: the coefficients of the Gaussian binomial
/// (n + m choose n) in q, which is the product over i = 1..n of (1 - q^(m + i)) / (1 - q^i), divided by their sum.
fn exact_probabilities(n: usize, m: usize) -> Vec<f64> {
    let (n, m) = (n.min(m), n.max(m));
    let last = n * m;
    let mut counts = vec![0.0; last + 1];
    counts[0] = 1.0;
    for i in 1..=n {
        for u in (m + i..=last).rev() {
            counts[u] -= counts[u - m - i];
        }
        for u in i..=last {
            counts[u] += counts[u - i];
        }
    }
    let all: f64 = counts.iter().sum();
    counts.iter_mut().for_each(|c| *c /= all);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mann_whitney_matches_hand_computed_cases() {
        // 3 and 3 without overlap: 1 of 20 orders, on either side.
        let t = mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).unwrap();
        assert!(t.u == 0.0 && (t.p - 0.1).abs() < 1e-12 && t.exact);
        assert_eq!(cliffs_delta(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), Some(-1.0));
        // 2 and 2: U is 0..4 with counts 1, 1, 2, 1, 1 of 6.
        assert_eq!(
            exact_probabilities(2, 2).iter().map(|p| (p * 6.0).round()).collect::<Vec<_>>(),
            [1.0, 1.0, 2.0, 1.0, 1.0]
        );
        let same = mann_whitney(&[5.0; 4], &[5.0; 4]).unwrap();
        assert_eq!((same.u, same.p, same.exact), (8.0, 1.0, false));
    }

    /// All orders, enumerated.
    #[test]
    fn exact_counts_match_enumeration() {
        let (n, m) = (4_usize, 6_usize);
        let mut counts = vec![0_u32; n * m + 1];
        for set in (0_u32..1 << (n + m)).filter(|s| s.count_ones() as usize == n) {
            let mut below = 0;
            let mut u = 0;
            for i in 0..n + m {
                if set >> i & 1 == 1 { u += below } else { below += 1 }
            }
            counts[u] += 1;
        }
        let ours: Vec<u32> = exact_probabilities(n, m).iter().map(|p| (p * 210.0).round() as u32).collect();
        assert_eq!(ours, counts);
    }

    #[test]
    fn summed_probabilities_match_exact_counts() {
        for (n, m) in [(3, 5), (4, 4), (8, 10)] {
            let both: Vec<(f64, f64)> =
                exact_probabilities(n, m).into_iter().zip(probabilities_by_addition(n, m)).collect();
            assert!(both.len() == n * m + 1 && both.iter().all(|(x, y)| (x - y).abs() < 1e-12), "{n} {m}");
        }
        let many = probabilities_by_addition(50, 50);
        assert!(many.iter().all(|p| *p > 0.0) && (many[0].ln() + 66.785).abs() < 0.01, "1 of 1.0089e29: {}", many[0]);
        let turned: Vec<f64> = many.iter().rev().copied().collect();
        assert!(many.iter().zip(&turned).all(|(x, y)| (x / y - 1.0).abs() < 1e-9));
    }

    #[test]
    fn difference_interval_agrees_with_p() {
        let mut random = crate::random::Random::new(9);
        for _ in 0..50 {
            let a: Vec<f64> = (0..10).map(|_| random.unit() + 0.35).collect();
            let b: Vec<f64> = (0..12).map(|_| random.unit()).collect();
            let d = difference(&a, &b, 0.95).unwrap();
            assert_eq!(d.p <= 0.05, !d.estimate.holds(0.0), "{d:?}");
            let turned = difference(&b, &a, 0.95).unwrap();
            assert!((turned.estimate.low + d.estimate.high).abs() < 1e-12 && (turned.p - d.p).abs() < 1e-12);
        }
        // SciPy: mannwhitneyu(range(10), range(10, 20), method="exact").pvalue is 1.0825e-05, of 2 / (20 over 10).
        let apart = difference(&[0.0, 1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0], 0.95).unwrap();
        assert!((apart.p - 2.0 / 56.0).abs() < 1e-12 && apart.estimate.high == -1.0, "{apart:?}");
        assert_eq!(difference(&[1.0, 2.0], &[3.0; 9], 0.95), None, "two are too few");
        assert_eq!(difference(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0, 7.0], 0.95), None, "2 of 35 orders are too many");
        let many: Vec<f64> = (0..60).map(f64::from).collect();
        assert!(difference(&many, &many, 0.95).is_some_and(|d| d.estimate.holds(0.0) && d.p > 0.99));
    }

    #[test]
    fn approximated_test_is_not_called_exact() {
        for (n, m, exact) in [(50, 50, true), (51, 10, false), (10, 51, false), (200, 200, false)] {
            let values = |n: u32| -> Vec<f64> { (0..n).map(f64::from).collect() };
            let method = difference(&values(n), &values(m), 0.95).unwrap().estimate.method;
            assert_eq!(method.contains("exact"), exact, "{n} {m}: {method}");
        }
    }

    #[test]
    fn shift_is_median_of_differences() {
        let a = [11.0, 12.5, 14.0, 10.5];
        let b = [1.0, 2.0, 3.0, 4.5];
        let e = shift(&a, &b, 0.95).unwrap();
        // 16 differences; at 4 and 4 only the extreme ones are far enough out: 2/70 of the orders.
        assert_eq!((e.low, e.high), (6.0, 13.0));
        assert!((e.value - 9.25).abs() < 0.26, "{e:?}");
        assert_eq!(shift(&a[..3], &b[..3], 0.95), None, "2 of 20 orders are too many");
    }

    #[test]
    fn invalid_input_is_refused() {
        assert_eq!(mann_whitney(&[], &[1.0]), None);
        assert_eq!(mann_whitney(&[f64::NAN], &[1.0]), None);
        assert_eq!(cliffs_delta(&[1.0], &[]), None);
        assert_eq!(shift(&[1.0], &[f64::INFINITY], 0.5), None);
    }
}
