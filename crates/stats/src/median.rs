//! The median with a distribution-free interval.
//!
//! A value lies below the true median with probability 1/2, like a coin toss. So the number of values below it is
//! binomial, and the interval from the k-th smallest to the k-th largest value misses the true median with probability 2
//! P(Bin(n, 1/2) < k). We take the largest k for which that is at most 1 - level. The coverage of the interval is
//! therefore at least its level (at n = 20 and 0.95: from the 6th to the 15th value, 0.9586). Fewer than six values have
//! no interval of 0.95, and none is made up. See Conover, "Practical Nonparametric Statistics", 3.2.

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

/// The fewest values that have an interval of [`interpolated`]: the range of five contains the median in 15 of 16
/// cases.
pub const VALUES_MIN: usize = 5;

/// The median with an interval of very nearly `level`, where the order statistics alone offer only steps (at n = 10 their
/// coverage is 0.979 or 0.891): between the two the bounds are interpolated according to Hettmansperger and Sheather ("Confidence
/// intervals based on interpolated order statistics", Statistics and Probability Letters 4, 1986), which hardly depends on the
/// distribution. The bounds are always within the range of the values. For [`VALUES_MIN`] values the interval is their
/// range, and the level is its coverage (0.9375); `None` for fewer, or if a value is not finite.
pub fn interpolated(values: &[f64], level: f64) -> Option<Estimate> {
    let sorted = crate::sorted(values)?;
    let n = sorted.len();
    let (place, reached) = lower_bound_rank(n, level)?;
    let value = quantile::of_sorted(&sorted, 0.5)?;
    Some(Estimate {
        value,
        low: value_at_rank(&sorted, place).min(value),
        high: value_at_rank(&sorted, (n + 1) as f64 - place).max(value),
        level: reached,
        n,
        method: "median of processes, interpolated order-statistic interval",
    })
}

/// The expected half-width of that interval for `n` values like these ascending ones, of at least two: the quantiles of these at
/// the ranks that the bounds have among `n`. `None` if `n` is below [`VALUES_MIN`].
pub fn expected_half_width(sorted: &[f64], n: usize, level: f64) -> Option<f64> {
    let (place, _) = lower_bound_rank(n, level)?;
    let own = place / (n + 1) as f64 * (sorted.len() + 1) as f64;
    Some((value_at_rank(sorted, (sorted.len() + 1) as f64 - own) - value_at_rank(sorted, own)) / 2.0)
}

/// The value at a rank counted from 1, interpolated between two if the rank has a fraction.
fn value_at_rank(sorted: &[f64], place: f64) -> f64 {
    let place = place.clamp(1.0, sorted.len() as f64);
    let (below, part) = (place.floor() as usize, place.fract());
    let low = sorted[below - 1];
    sorted.get(below).map_or(low, |high| low + (high - low) * part)
}

/// The rank of the lower bound among n, and the level that is reached.
fn lower_bound_rank(n: usize, level: f64) -> Option<(f64, f64)> {
    if n < VALUES_MIN {
        return None;
    }
    let k = rank(n, level);
    if k == 0 {
        return Some((1.0, 1.0 - 2.0 * binomial_below(n, 1)));
    }
    let (outer, inner) = (1.0 - 2.0 * binomial_below(n, k), 1.0 - 2.0 * binomial_below(n, k + 1));
    let part = (outer - level) / (outer - inner);
    let (n, k) = (n as f64, k as f64);
    Some((k + (n - k) * part / (k + (n - 2.0 * k) * part), level))
}

/// P(Bin(n, 1/2) < k).
fn binomial_below(n: usize, k: usize) -> f64 {
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for i in 0..k {
        sum += log_term.exp();
        log_term += ((n - i) as f64 / (i + 1) as f64).ln();
    }
    sum
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
        // Where 2^-n is 0 in f64, the normal approximation n/2 - 1.96 sqrt(n)/2 is still accurate enough.
        assert!(rank(10_000, 0.95).abs_diff(4902) <= 1);
    }

    #[test]
    fn median_interval_ends_are_order_statistics() {
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        let m = median(&values, 0.95).unwrap();
        assert_eq!((m.value, m.low, m.high, m.n), (10.5, 6.0, 15.0, 20));
        assert_eq!(median(&values[..5], 0.95), None);
    }

    /// The interval has its nominal coverage: exactly 0.9586 at n = 20, for any distribution. Over 4,000 trials the
    /// standard error is 0.003.
    #[test]
    fn median_interval_has_nominal_coverage() {
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

    /// Goldens, calculated from the paper's formula: at n = 10 the coverage of the 2nd value is 0.97852, of the 3rd 0.89063; I
    /// = 0.3244, lambda = 8 I / (2 + 6 I) = 0.6577.
    #[test]
    fn interval_ends_are_interpolated() {
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        let m = interpolated(&values, 0.95).unwrap();
        assert!((m.low - 2.6577).abs() < 2e-4 && (m.high - 8.3423).abs() < 2e-4 && m.value == 5.5, "{m:?}");
        let five = interpolated(&values[..5], 0.95).unwrap();
        assert_eq!((five.low, five.value, five.high, five.level), (1.0, 3.0, 5.0, 0.9375));
        assert_eq!(interpolated(&values[..4], 0.95), None);
        // The planned width for the same number is the actual one.
        assert!((expected_half_width(&values, 10, 0.95).unwrap() - (m.high - m.low) / 2.0).abs() < 1e-12);
        assert!(expected_half_width(&values, 40, 0.95).unwrap() < expected_half_width(&values, 10, 0.95).unwrap());
    }

    /// 47 processes of about 10 ms and one of 111: a studentised interval of the mean reached 44 times the largest value.
    #[test]
    fn interval_stays_within_values() {
        let mut values: Vec<f64> = (0..47).map(|i| 10.0 + f64::from(i) * 0.001).collect();
        values.push(111.0);
        let m = interpolated(&values, 0.95).unwrap();
        assert!(m.low >= 10.0 && m.high < 10.05, "{m:?}");
    }
}
