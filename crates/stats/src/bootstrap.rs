//! The bootstrap: how much would an estimate vary if the experiment were repeated? Draw as many values as there are,
//! with replacement, from the values themselves; compute the estimate; repeat; the middle share of the results is the
//! interval (Efron's percentile interval: Efron and Tibshirani, "An Introduction to the Bootstrap", ch. 13).
//!
//! It does not correct for few values varying less than their population; the correction for the mean of few values explodes under one
//! outlier: see [`crate::cells`].

use crate::random::Random;
use crate::{Estimate, quantile};

/// Number of resamples that makes the bounds of a 0.95 interval stable to the third digit.
pub const RESAMPLE_COUNT: usize = 10_000;

/// The estimate of `statistic` with its percentile interval; `None` if there are fewer than two values or one is not
/// finite. `statistic` gets the values in ascending order.
pub fn percentile(
    values: &[f64],
    statistic: impl Fn(&[f64]) -> f64,
    level: f64,
    resamples: usize,
    seed: u64,
) -> Option<Estimate> {
    let sorted = crate::sorted(values)?;
    let n = sorted.len();
    if n < 2 {
        return None;
    }
    let results = resampled_statistics(&sorted, &statistic, resamples, seed);
    let tail = (1.0 - level) / 2.0;
    Some(Estimate {
        value: statistic(&sorted),
        low: quantile::of_sorted(&results, tail)?,
        high: quantile::of_sorted(&results, 1.0 - tail)?,
        level,
        n,
        method: "percentile bootstrap",
    })
}

/// The statistic of this many resamples of values in ascending order, sorted ascending.
pub(crate) fn resampled_statistics(
    sorted: &[f64],
    statistic: impl Fn(&[f64]) -> f64,
    resamples: usize,
    seed: u64,
) -> Vec<f64> {
    let n = sorted.len();
    let mut random = Random::new(seed);
    let mut resample = Vec::with_capacity(n);
    let mut times = vec![0_u32; n];
    let mut results: Vec<f64> = (0..resamples)
        .map(|_| {
            // Counting how often each value is drawn gives the resample in order without sorting it.
            times.fill(0);
            (0..n).for_each(|_| times[random.below(n as u64) as usize] += 1);
            resample.clear();
            resample.extend(sorted.iter().zip(&times).flat_map(|(v, k)| std::iter::repeat_n(*v, *k as usize)));
            statistic(&resample)
        })
        .collect();
    results.sort_unstable_by(f64::total_cmp);
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn bootstrap_interval_of_mean_matches_standard_error() {
        // 0..=99: the bootstrap's standard error is sqrt(variance / n) = 28.866 / 10.
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let e = percentile(&values, mean, 0.95, RESAMPLE_COUNT, 1).unwrap();
        assert_eq!(e.value, 49.5);
        assert!(
            (e.low - (49.5 - 1.96 * 2.8866)).abs() < 0.25 && (e.high - (49.5 + 1.96 * 2.8866)).abs() < 0.25,
            "{e:?}"
        );
    }

    #[test]
    fn interval_depends_on_seed_and_not_on_order() {
        let values = [3.0, 1.0, 2.0, 8.0, 5.0, 4.0];
        let mut turned = values;
        turned.reverse();
        let one = percentile(&values, mean, 0.9, 500, 9);
        assert_eq!(one, percentile(&turned, mean, 0.9, 500, 9));
        assert_ne!(one, percentile(&values, mean, 0.9, 500, 10));
        assert_eq!(percentile(&values[..1], mean, 0.9, 500, 9), None);
    }
}
