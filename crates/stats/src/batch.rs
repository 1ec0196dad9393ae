//! The mean of an autocorrelated series, such as the throughput of a connection in every tenth of a second, by batch
//! means: the series is cut into [`BATCH_COUNT`] stretches of equal length, and the means of these, which depend on
//! each other far less than the values do, get a t interval (Law and Kelton, "Simulation Modeling and Analysis",
//! 9.5.3). A t interval of the values themselves would be too narrow because of their correlation.
//!
//! **Uncertainty.** The interval is valid if the stretches are long compared with the correlation time.
//! [`lag1_correlation`] is the remaining correlation of neighbouring batch means; for ten, more than about 0.6 is not
//! chance (2 / sqrt(10)). A trend makes the interval wide and the mean meaningless; look for changes of the level first
//! ([`crate::pelt`]). The interval is the uncertainty of *this* run's mean, not the variation between runs.

use crate::{Estimate, student};

/// Number of stretches: ten or more are recommended, and more would be shorter.
pub const BATCH_COUNT: usize = 10;

/// The mean of the series with its interval; `None` if there are fewer than two batches of one value, or a value is not
/// finite. If the length of the series is not a multiple of [`BATCH_COUNT`], the surplus first values are included in
/// the mean of the first batch.
pub fn mean(series: &[f64], level: f64) -> Option<Estimate> {
    let estimate = student::mean(&batch_means(series), level)?;
    // The estimate is the mean of all values, from which the mean of unequal batches would deviate.
    let value = crate::mean(series);
    let shift = value - estimate.value;
    Some(Estimate {
        value,
        low: estimate.low + shift,
        high: estimate.high + shift,
        n: series.len(),
        method: "mean, t interval of batch means",
        ..estimate
    })
}

/// Correlation of neighbouring batch means: their lag-1 autocorrelation, -1 to 1; 0 if there are too few.
pub fn lag1_correlation(series: &[f64]) -> f64 {
    let means = batch_means(series);
    let middle = crate::mean(&means);
    let squares: f64 = means.iter().map(|m| (m - middle).powi(2)).sum();
    let products: f64 = means.windows(2).map(|w| (w[0] - middle) * (w[1] - middle)).sum();
    let r = products / squares;
    if r.is_finite() { r } else { 0.0 }
}

fn batch_means(series: &[f64]) -> Vec<f64> {
    let count = BATCH_COUNT.min(series.len());
    let Some(size) = series.len().checked_div(count) else { return Vec::new() };
    let first = series.len() - size * (count - 1);
    let (head, tail) = series.split_at(first);
    std::iter::once(crate::mean(head)).chain(tail.chunks(size).map(crate::mean)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// A series around 100 in which each value keeps the fraction `memory` of the previous one.
    fn series(random: &mut Random, memory: f64) -> Vec<f64> {
        let mut at = 0.0;
        (0..400)
            .map(|_| {
                at = memory * at + (random.unit() - 0.5);
                100.0 + at
            })
            .collect()
    }

    #[test]
    fn batch_means_interval_has_nominal_coverage() {
        let mut random = Random::new(3);
        let (mut batches, mut values) = (0, 0);
        for _ in 0..400 {
            let series = series(&mut random, 0.8);
            batches += usize::from(mean(&series, 0.95).unwrap().holds(100.0));
            values += usize::from(student::mean(&series, 0.95).unwrap().holds(100.0));
        }
        assert!((360..=395).contains(&batches), "{batches} of 400");
        assert!(values < 280, "{values} of 400");
    }

    #[test]
    fn batch_means_match_hand_computed_values() {
        // Ten batches of two: means 0.5, 2.5, ..., 18.5; variance of them 36.67, t of 9 degrees 2.262.
        let e = mean(&(0..20).map(f64::from).collect::<Vec<_>>(), 0.95).unwrap();
        assert_eq!((e.value, e.n), (9.5, 20));
        assert!((e.high - 9.5 - 2.262_157 * (36.666_667_f64 / 10.0).sqrt()).abs() < 1e-4, "{e:?}");
        let odd = mean(&[1.0, 2.0, 3.0], 0.95).unwrap();
        assert!((odd.value - 2.0).abs() < 1e-12);
        assert_eq!(mean(&[1.0], 0.95), None);
        assert_eq!(mean(&[], 0.95), None);
        assert_eq!(mean(&[1.0, f64::NAN], 0.95), None);
        let long: Vec<f64> = (0..25).map(f64::from).collect();
        assert!((mean(&long, 0.95).unwrap().value - 12.0).abs() < 1e-12);
    }

    #[test]
    fn trend_correlates_batches() {
        let trend: Vec<f64> = (0..100).map(f64::from).collect();
        assert!(lag1_correlation(&trend) > 0.6, "{}", lag1_correlation(&trend));
        let mut random = Random::new(5);
        assert!(lag1_correlation(&series(&mut random, 0.0)).abs() < 0.6);
        assert_eq!(lag1_correlation(&[5.0; 40]), 0.0);
    }
}
