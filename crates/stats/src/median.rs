//! The median with an interval that supposes nothing about the distribution.
//!
//! A value lies below the true median with probability 1/2, as a coin falls. So the number of values below it is
//! binomial, and the interval from the k-th smallest to the k-th largest value misses the true median with probability
//! 2 P(Bin(n, 1/2) < k). We take the largest k for which that is at most 1 - level. The interval therefore holds at
//! least as often as it says (at n = 20 and 0.95: from the 6th to the 15th value, 0.9586). Fewer than six values have no
//! interval of 0.95, and none is made up. See Conover, "Practical Nonparametric Statistics", 3.2.

use crate::{Estimate, quantile};

/// The largest k such that the k-th smallest and the k-th largest of `n` values enclose the median with probability at
/// least `level`; 0 if `n` is too small for any.
pub fn rank(n: usize, level: f64) -> usize {
    let miss = (1.0 - level) / 2.0;
    // In logarithms, since 2^-n underflows beyond n = 1074: ln P(X = k) = ln P(X = k - 1) + ln((n - k + 1) / k).
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut below = 0.0;
    for k in 0..n {
        below += log_term.exp();
        if below > miss {
            return k;
        }
        log_term += ((n - k) as f64 / (k + 1) as f64).ln();
    }
    0
}

/// The median and its interval; `None` if there are too few values for `level` or one is not finite.
pub fn median(values: &[f64], level: f64) -> Option<Estimate> {
    let sorted = crate::sorted(values)?;
    let n = sorted.len();
    let k = rank(n, level);
    if k == 0 {
        return None;
    }
    Some(Estimate {
        value: quantile::of_sorted(&sorted, 0.5)?,
        low: sorted[k - 1],
        high: sorted[n - k],
        level,
        n,
        method: "median, order-statistic interval",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Golden: SciPy 1.17, the largest k with `2 * scipy.stats.binom.cdf(k - 1, n, 0.5) <= 0.05`.
    #[test]
    fn ranks_agree_with_scipy() {
        for (n, k) in [(0, 0), (1, 0), (5, 0), (6, 1), (10, 2), (20, 6), (21, 6), (25, 8), (100, 40), (1000, 469)] {
            assert_eq!(rank(n, 0.95), k, "n = {n}");
        }
        // Where 2^-n is 0 in f64, the normal approximation n/2 - 1.96 sqrt(n)/2 still says about where.
        assert!(rank(10_000, 0.95).abs_diff(4902) <= 1);
    }

    #[test]
    fn the_interval_is_made_of_order_statistics() {
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        let m = median(&values, 0.95).unwrap();
        assert_eq!((m.value, m.low, m.high, m.n), (10.5, 6.0, 15.0, 20));
        assert_eq!(median(&values[..5], 0.95), None);
    }

    /// The interval holds the true median as often as it says: exactly 0.9586 at n = 20, for any distribution. Over
    /// 4,000 trials the standard error is 0.003.
    #[test]
    fn coverage_is_as_stated() {
        let mut random = Random::new(7);
        let trials = 4000;
        // Exponential of mean 1, as skewed as latencies are; its median is ln 2.
        let held = (0..trials).filter(|_| {
            let sample: Vec<f64> = (0..20).map(|_| -(1.0 - random.unit()).ln()).collect();
            median(&sample, 0.95).unwrap().holds(std::f64::consts::LN_2)
        });
        let coverage = held.count() as f64 / f64::from(trials);
        assert!((coverage - 0.9586).abs() < 0.012, "{coverage}");
    }
}
