//! The bootstrap interval corrected for bias and skewness (BCa: Efron and Tibshirani, "An Introduction to the Bootstrap", ch.
//! 14), which is often recommended for benchmarks. It is not used for estimates here: it is too narrow for few processes
//! (docs/internals/method.md), and to show that requires a correct implementation, hence the comparison with SciPy's. Its
//! acceleration comes from the jackknife, which is inconsistent for medians: use it for means.

use crate::bootstrap::resampled_statistics;
use crate::student::{normal_cdf, normal_quantile};
use crate::{Estimate, quantile};

/// The estimate of `statistic` with its BCa interval; `None` if there are fewer than two values, one is not finite, or all
/// resamples lie on one side of the estimate. `statistic` gets the values in ascending order.
pub fn bca(
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
    let value = statistic(&sorted);
    let method = "BCa bootstrap";
    if sorted[0] == sorted[n - 1] {
        return Some(Estimate { value, low: value, high: value, level, n, method });
    }
    let results = resampled_statistics(&sorted, &statistic, resamples, seed);
    // Half of the resamples that hit the estimate count as below it.
    let (below, up_to) = (results.partition_point(|r| *r < value), results.partition_point(|r| *r <= value));
    let bias = normal_quantile((below + up_to) as f64 / 2.0 / results.len() as f64);
    let without = |i: usize| statistic(&[&sorted[..i], &sorted[i + 1..]].concat());
    let jackknife: Vec<f64> = (0..n).map(without).collect();
    let middle = crate::mean(&jackknife);
    let power = |k| jackknife.iter().map(|j| (middle - j).powi(k)).sum::<f64>();
    let acceleration = power(3) / (6.0 * power(2).powf(1.5));
    let end = |p: f64| {
        let z = bias + normal_quantile(p);
        let corrected = normal_cdf(bias + z / (1.0 - acceleration * z));
        if corrected.is_finite() { quantile::of_sorted(&results, corrected) } else { None }
    };
    let tail = (1.0 - level) / 2.0;
    Some(Estimate { value, low: end(tail)?, high: end(1.0 - tail)?, level, n, method })
}

#[derive(serde::Deserialize)]
struct Goldens {
    bca: Vec<Golden>,
}

#[derive(serde::Deserialize)]
struct Golden {
    values: Vec<f64>,
    low: f64,
    high: f64,
    error: f64,
}

/// Both bounds come from resamples. The golden is the mean of twenty of SciPy's runs and the scatter of one; ours is the
/// mean of five runs of the same length. So their difference scatters by half of one run's, and five times that is allowed.
#[test]
fn bca_matches_scipy() {
    let goldens: Goldens = serde_json::from_str(include_str!("../tests/goldens/goldens.json")).unwrap();
    for b in goldens.bca {
        let runs = (0..5).map(|seed| bca(&b.values, crate::mean, 0.95, 100_000, seed).unwrap());
        let (lows, highs): (Vec<f64>, Vec<f64>) = runs.map(|e| (e.low, e.high)).unzip();
        let (low, high) = (crate::mean(&lows), crate::mean(&highs));
        let most = 5.0 * b.error / 2.0;
        assert!((low - b.low).abs() < most && (high - b.high).abs() < most, "{low} {high}, SciPy {} {}", b.low, b.high);
        // The test discriminates: the percentile interval is further off.
        let plain = crate::bootstrap::percentile(&b.values, crate::mean, 0.95, 100_000, 1).unwrap();
        assert!((plain.high - b.high).abs() > 2.0 * most, "{plain:?}");
    }
}
