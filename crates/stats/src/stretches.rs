//! The bootstrap over stretches: two series that were measured once each, aligned place by place, and every sum, ratio and
//! share computed from them.
//!
//! Neighbours in a series are correlated: a busy machine stays busy for a while. Drawing single values would treat each as
//! independent, and make intervals too narrow because of their correlation. So the series is cut into [`STRETCH_COUNT`]
//! stretches of equal length, and these are drawn, with replacement (Künsch, "The jackknife and the bootstrap for
//! general stationary observations", Annals of Statistics 17, 1989, with blocks that do not overlap). A stretch of one
//! series is drawn together with the same stretch of the other, so that effects common to both at the same place (the
//! first executions, every thousandth one's checkpoint) cancel.
//!
//! The draws are made once, from a seed, and shared by every estimate: values that add up have estimates that add up, and an
//! estimate of B against A is the mirror image of A against B.
//!
//! **Uncertainty.** The intervals cover how precisely *these two* series' sums are known, not how much two other recordings
//! would differ: whatever is constant throughout a recording does not show between its stretches. And with twenty units the
//! percentile interval is slightly too narrow (the test at the end of this file counts how often).

use crate::{Estimate, median, quantile};

/// Number of stretches into which a long enough series is cut.
pub const STRETCH_COUNT: usize = 20;
/// Number of resamples: the intervals are compared with a verdict's margin of 2 %, for which these are plenty.
const RESAMPLE_COUNT: usize = 2000;
/// Minimum share of resamples in which a statistic must be a number to have an interval.
const FINITE_SHARE_MIN: f64 = 0.95;

/// The stretch of the value at `place` of `count`, if there are `stretches`.
pub fn stretch_index(place: usize, count: usize, stretches: usize) -> usize {
    // In 128 bits, since a place times the stretches may be more than a usize holds.
    (place as u128 * stretches as u128 / (count as u128).max(1)) as usize
}

/// The draws: how often each stretch is in each resample.
#[derive(Debug, Clone)]
pub struct Draws {
    stretches: usize,
    counts: Vec<u32>,
}

impl Draws {
    /// Draws for this many stretches; `None` if they are too few for an interval of 0.95 (six, see [`crate::median`]).
    pub fn new(stretches: usize, seed: u64) -> Option<Self> {
        if median::rank(stretches, 0.95) == 0 {
            return None;
        }
        let mut random = crate::random::Random::new(seed);
        let mut times = vec![0; stretches * RESAMPLE_COUNT];
        for resample in times.chunks_exact_mut(stretches) {
            (0..stretches).for_each(|_| resample[random.below(stretches as u64) as usize] += 1);
        }
        Some(Self { stretches, counts: times })
    }

    /// A statistic with its percentile interval. It gets how often each stretch counts, and computes sums by
    /// [`resample_sum`]. `None` if it is not a finite number for the original series, or for too many resamples.
    pub fn estimate(&self, level: f64, statistic: impl Fn(&[u32]) -> f64) -> Option<Estimate> {
        let value = statistic(&vec![1; self.stretches]);
        let mut results: Vec<f64> = self.counts.chunks_exact(self.stretches).map(statistic).collect();
        results.retain(|x| x.is_finite());
        if !value.is_finite() || (results.len() as f64) < FINITE_SHARE_MIN * RESAMPLE_COUNT as f64 {
            return None;
        }
        results.sort_unstable_by(f64::total_cmp);
        let tail = (1.0 - level) / 2.0;
        Some(Estimate {
            value,
            low: quantile::of_sorted(&results, tail)?,
            high: quantile::of_sorted(&results, 1.0 - tail)?,
            level,
            n: self.stretches,
            method: "bootstrap over aligned stretches",
        })
    }
}

/// The sum in a resample of one value per stretch.
pub fn resample_sum(times: &[u32], values: &[f64]) -> f64 {
    times.iter().zip(values).map(|(n, x)| f64::from(*n) * x).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn places_spread_evenly_over_stretches() {
        let of = |count: usize| -> Vec<usize> { (0..count).map(|at| stretch_index(at, count, 3)).collect() };
        assert_eq!(of(7), [0, 0, 0, 1, 1, 2, 2]);
        assert_eq!(of(2), [0, 1]);
        assert_eq!(stretch_index(usize::MAX - 1, usize::MAX, STRETCH_COUNT), STRETCH_COUNT - 1);
        assert_eq!(stretch_index(0, 0, STRETCH_COUNT), 0);
    }

    #[test]
    fn constant_difference_has_point_interval() {
        let draws = Draws::new(20, 1).unwrap();
        let (a, b) = ([2.0; 20], [3.0; 20]);
        let difference = draws.estimate(0.95, |t| resample_sum(t, &b) - resample_sum(t, &a)).unwrap();
        assert_eq!((difference.low, difference.value, difference.high), (20.0, 20.0, 20.0));
        let ratio = draws.estimate(0.95, |t| resample_sum(t, &b) / resample_sum(t, &a)).unwrap();
        assert_eq!((ratio.low, ratio.value, ratio.high), (1.5, 1.5, 1.5));
    }

    #[test]
    fn swapped_series_give_mirrored_estimate() {
        let draws = Draws::new(20, 7).unwrap();
        let mut random = Random::new(3);
        let mut series = || (0..20).map(|_| random.unit()).collect::<Vec<f64>>();
        let (a, b) = (series(), series());
        let there = draws.estimate(0.95, |t| resample_sum(t, &b) - resample_sum(t, &a)).unwrap();
        let back = draws.estimate(0.95, |t| resample_sum(t, &a) - resample_sum(t, &b)).unwrap();
        assert!((there.value + back.value).abs() < 1e-12);
        assert!((there.low + back.high).abs() < 1e-12 && (there.high + back.low).abs() < 1e-12);
    }

    #[test]
    fn too_few_stretches_or_undefined_statistic_has_no_interval() {
        assert!(Draws::new(5, 1).is_none());
        let draws = Draws::new(6, 1).unwrap();
        assert_eq!(draws.estimate(0.95, |t| resample_sum(t, &[0.0; 6]) / 0.0), None);
        // All of it is in one stretch, which about a third of the resamples lack.
        let once = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(draws.estimate(0.95, |t| 1.0 / resample_sum(t, &once)), None);
    }

    /// Executions that depend on the previous one, as on a busy machine, and a true ratio of 1.1: the interval's coverage must be
    /// nearly nominal, while that of an interval from single executions would not be.
    #[test]
    fn interval_holds_true_difference_about_as_often_as_it_says() {
        let mut random = Random::new(11);
        let mut series = |level: f64| {
            let mut at = 0.0;
            let mut sums = vec![0.0; STRETCH_COUNT];
            for place in 0..2000 {
                at = 0.8 * at + (random.unit() - 0.5);
                sums[stretch_index(place, 2000, STRETCH_COUNT)] += level * (10.0 + at);
            }
            sums
        };
        let draws = Draws::new(STRETCH_COUNT, 5).unwrap();
        let held = (0..300)
            .filter(|_| {
                let (a, b) = (series(1.0), series(1.1));
                draws.estimate(0.95, |t| resample_sum(t, &b) / resample_sum(t, &a)).unwrap().holds(1.1)
            })
            .count();
        // 300 trials have a standard error of 4; with twenty stretches the percentile interval has a coverage of 0.92 to 0.94.
        assert!((264..=294).contains(&held), "{held} of 300");
    }
}
