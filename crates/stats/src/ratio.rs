//! How many times as fast is A as B, when both were measured side by side?
//!
//! The two are measured in pairs: within a block, one right after the other, in random order. A machine that is slow
//! for a minute is slow for both, so it cancels in the pair's ratio, where it would widen the interval of a ratio of
//! means. The estimate is the **median of the pairs' ratios**: one pair disturbed by a cron job moves it by one rank
//! at most. Its interval is the percentile bootstrap over pairs; pairs are drawn, since they are the unit of
//! repetition.
//!
//! The **A/A check** runs the same thing under two names. Its ratio must be 1 up to noise; how far its interval reaches
//! from 1 is the resolution of this machine, and no smaller difference should be believed.

use crate::bootstrap::{RESAMPLE_COUNT, percentile};
use crate::{Estimate, median, quantile};

/// The median of the ratios first / second with its interval; `None` if a value is not positive and finite, or if there
/// are too few pairs for any interval of this level (six for 0.95, see [`crate::median`]): the bootstrap would give one,
/// but its coverage would be below its level.
pub fn paired_ratio(pairs: &[(f64, f64)], level: f64, seed: u64) -> Option<Estimate> {
    resampled_ratio(pairs, level, seed, RESAMPLE_COUNT)
}

fn resampled_ratio(pairs: &[(f64, f64)], level: f64, seed: u64, resamples: usize) -> Option<Estimate> {
    let positive = |x: f64| x.is_finite() && x > 0.0;
    if !pairs.iter().all(|(a, b)| positive(*a) && positive(*b)) {
        return None;
    }
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| a / b).collect();
    let middle = |sorted: &[f64]| quantile::of_sorted(sorted, 0.5).unwrap_or(f64::NAN);
    if median::rank(ratios.len(), level) == 0 {
        return None;
    }
    let estimate = percentile(&ratios, middle, level, resamples, seed)?;
    Some(Estimate { method: "median of pairwise ratios, percentile bootstrap over pairs", ..estimate })
}

/// The result of an A/A comparison for the machine and the method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelfCheck {
    /// Whether the interval contains 1. At level 0.95 one valid check in twenty fails.
    pub passed: bool,
    /// How far the interval reaches from 1 ([`distance_from_one`]): a smaller difference cannot be distinguished from
    /// none.
    pub noise: f64,
}

/// Judges the ratio of something to itself.
pub fn self_check(ratio: &Estimate) -> SelfCheck {
    SelfCheck { passed: ratio.holds(1.0), noise: distance_from_one(ratio) }
}

/// The smallest margin that contains the interval: like a verdict's, from 1 / (1 + margin) to 1 + margin. An interval that
/// reaches down to 0.7 reaches as far as one up to 1 / 0.7, so it does not matter which of two equal things is the first.
pub fn distance_from_one(ratio: &Estimate) -> f64 {
    ratio.high.max(1.0 / ratio.low) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::verdict;

    /// Golden: `scipy.stats.bootstrap((r,), numpy.median, method='percentile', n_resamples=200000)`, SciPy 1.17, gave
    /// [0.9125, 0.9475] for three seeds.
    #[test]
    fn paired_ratio_matches_scipy() {
        let thousandths =
            [910, 950, 890, 930, 970, 900, 940, 920, 960, 880, 935, 925, 915, 945, 955, 905, 965, 885, 975, 930];
        // The second of each pair differs, so that only the ratio can be right.
        let pairs: Vec<_> =
            thousandths.iter().zip(1..).map(|(t, s)| (f64::from(*t) / 1000.0 * f64::from(s), f64::from(s))).collect();
        let e = paired_ratio(&pairs, 0.95, 20).unwrap();
        assert!((e.value - 0.93).abs() < 1e-12);
        assert!((e.low - 0.9125).abs() < 0.0026 && (e.high - 0.9475).abs() < 0.0026, "{e:?}");
    }

    #[test]
    fn drift_does_not_change_paired_ratio() {
        let pairs: Vec<_> = (1..=20).map(|i| (0.9 * f64::from(i), f64::from(i))).collect();
        let e = paired_ratio(&pairs, 0.95, 1).unwrap();
        assert!((e.value - 0.9).abs() < 1e-12 && (e.high - e.low).abs() < 1e-12);
    }

    /// Whatever an A/A control shows must be no difference for the margin derived from it, in either order.
    #[test]
    fn noise_as_margin_holds_control_interval() {
        for (low, high) in [(0.715, 1.01), (0.99, 1.4), (0.7, 0.9), (1.1, 1.3), (0.5, 2.0)] {
            let of = |low: f64, high: f64| {
                let estimate = |value| Estimate { value, low: value, high: value, level: 0.95, n: 10, method: "given" };
                let noise = self_check(&Estimate { low, high, ..estimate(1.0) }).noise;
                let verdict = |at| verdict::judge(&estimate(at), verdict::Better::Lower, noise + 1e-9);
                let claims = |v| matches!(v, verdict::Verdict::Faster | verdict::Verdict::Slower);
                assert!(!claims(verdict(low)) && !claims(verdict(high)), "{low} to {high}: {noise}");
                noise
            };
            assert!((of(low, high) - of(1.0 / high, 1.0 / low)).abs() < 1e-9, "{low} to {high}");
        }
    }

    #[test]
    fn invalid_rates_have_no_ratio() {
        let six = [(1.0, 2.0); 6];
        assert_eq!(paired_ratio(&six, 0.95, 1).map(|e| (e.low, e.value, e.high)), Some((0.5, 0.5, 0.5)));
        assert_eq!(paired_ratio(&six[..5], 0.95, 1), None, "too few");
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut pairs = six;
            pairs[3].1 = wrong;
            assert_eq!(paired_ratio(&pairs, 0.95, 1), None, "{wrong}");
        }
    }

    /// Log-normal noise on both arms, a common drift, a true ratio of 0.9 and 20 pairs: the coverage of 0.9 by the
    /// interval must be about its level.
    #[test]
    fn paired_ratio_has_nominal_coverage() {
        let mut random = Random::new(2026);
        // The sum of twelve uniform numbers minus six is close enough to normal.
        let mut normal = move || (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        let (trials, resamples) = (600, 1000);
        let (mut held, mut aa_passed) = (0, 0);
        for trial in 0..trials {
            let mut arm = |scale: f64, drift: f64| scale * (drift + 0.05 * normal()).exp();
            let pairs: Vec<_> =
                (0..20).map(|i| f64::from(i) * 0.02).map(|drift| (arm(0.9, drift), arm(1.0, drift))).collect();
            held += i32::from(resampled_ratio(&pairs, 0.95, trial, resamples).unwrap().holds(0.9));
            let same: Vec<_> = (0..20).map(|_| (arm(1.0, 0.0), arm(1.0, 0.0))).collect();
            aa_passed += i32::from(self_check(&resampled_ratio(&same, 0.95, trial, resamples).unwrap()).passed);
        }
        // 600 trials have a standard error of 0.009.
        let share = |n: i32| f64::from(n) / trials as f64;
        assert!((0.93..=0.975).contains(&share(held)), "{}", share(held));
        assert!((0.93..=0.975).contains(&share(aa_passed)), "{}", share(aa_passed));
    }
}
