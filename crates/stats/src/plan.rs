//! How many iterations, processes and sessions are worth their time? Kalibera and Jones, "Rigorous benchmarking in
//! reasonable time" (ISMM 2013).
//!
//! Each level of repetition adds its own variance: iterations differ within a process, processes within a session. From
//! a pilot the components are estimated one by one, and from the cost of one more repetition at each level follows how
//! often to repeat at which level: often where repetitions are cheap and vary much.
//!
//! With S_i^2 the mean variance, between the repetitions of level i, of the means of everything below, and r_i
//! repetitions at level i: T_1^2 = S_1^2 and T_i^2 = S_i^2 - S_(i-1)^2 / r_(i-1). (The first printing of the paper has
//! T_(i-1)^2 in the last term; its authors' own code corrects that.) The most precise use of time is
//! r_i = sqrt(c_(i+1) / c_i x T_i^2 / T_(i+1)^2), rounded up; only the highest level is left to the precision wanted.
//!
//! **Uncertainty.** A component estimated from r values is known to a factor of about 1 +- sqrt(2 / (r - 1)): from a pilot
//! of three blocks it is a hint, not a measurement.

use crate::student;

/// The variance components of a pilot for each level, the lowest (iterations) first.
#[derive(Debug, Clone, PartialEq)]
pub struct Components {
    /// The grand mean, in the unit of the input.
    pub mean: f64,
    /// T_i^2, the variance that level i adds, in the unit squared; negative estimates are 0.
    pub own: Vec<f64>,
    /// S_i^2, the variance between the means at level i, in the unit squared.
    pub total: Vec<f64>,
}

/// The components of a balanced pilot. `values` in order, the lowest level running fastest; `counts` the repetitions at
/// each level, lowest first, such as [iterations, processes] or [iterations, processes, sessions], at least 2 each.
/// `None` if they do not fit together or a value is not finite.
pub fn components(values: &[f64], counts: &[usize]) -> Option<Components> {
    let size = counts.iter().try_fold(1_usize, |product, r| product.checked_mul(*r))?;
    if counts.is_empty() || counts.iter().any(|r| *r < 2) || values.len() != size {
        return None;
    }
    if values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mut means = values.to_vec();
    let (mut own, mut total) = (Vec::new(), Vec::new());
    let mut below = 0.0;
    for r in counts {
        let groups: Vec<_> = means.chunks(*r).map(student::moments).collect::<Option<_>>()?;
        // The squared error times n is the variance.
        let s = groups.iter().map(|g| g.error * g.error * *r as f64).sum::<f64>() / groups.len() as f64;
        own.push((s - below).max(0.0));
        total.push(s);
        below = s / *r as f64;
        means = groups.iter().map(|g| g.mean).collect();
    }
    Some(Components { mean: means[0], own, total })
}

/// The maximum number of repetitions ever recommended.
const REPETITIONS_MAX: f64 = 1e6;

impl Components {
    /// The best number of repetitions at each level but the highest, lowest first, at least 1. `costs[i]` is the time that
    /// one more repetition of level i takes besides those below it (of a process: to start it and to warm it up), in any
    /// one unit. `None` if there are not as many as levels, or one is not positive.
    pub fn repetitions(&self, costs: &[f64]) -> Option<Vec<usize>> {
        if costs.len() != self.own.len() || !costs.iter().all(|c| c.is_finite() && *c > 0.0) {
            return None;
        }
        let level = |i: usize| {
            let ratio = costs[i + 1] / costs[i] * self.own[i] / self.own[i + 1];
            // Without variance here, once is enough; without variance above, as often as allowed.
            if self.own[i] == 0.0 { 1 } else { ratio.sqrt().min(REPETITIONS_MAX).ceil().max(1.0) as usize }
        };
        Some((0..costs.len() - 1).map(level).collect())
    }

    /// The relative half-width of the t interval of the mean to expect from so many repetitions at each level, lowest
    /// first; `None` if there are not as many as levels, one is 0, the highest is below 2, or the mean is 0.
    pub fn half_width(&self, repetitions: &[usize], level: f64) -> Option<f64> {
        let top = *repetitions.last()?;
        if repetitions.len() != self.own.len() || repetitions.contains(&0) || top < 2 || self.mean == 0.0 {
            return None;
        }
        let mut variance = 0.0;
        let mut product = 1.0;
        for (own, r) in self.own.iter().zip(repetitions).rev() {
            product *= *r as f64;
            variance += own / product;
        }
        Some(student::quantile(0.5 + level / 2.0, top as f64 - 1.0) * variance.sqrt() / self.mean.abs())
    }

    /// The fewest repetitions at the highest level (at least 2, at most `most`) with which that half-width is at most
    /// `target`, given the lower levels' repetitions; `None` if even `most` do not do.
    pub fn needed(&self, lower: &[usize], target: f64, level: f64, most: usize) -> Option<usize> {
        (2..=most).find(|top| self.half_width(&[lower, &[*top]].concat(), level).is_some_and(|w| w <= target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes of three iterations: 1 2 3 and 5 6 7. S_1^2 = 1; the means are 2 and 6, so S_2^2 = 8 and
    /// T_2^2 = 8 - 1/3.
    #[test]
    fn two_level_variance_matches_hand_computation() {
        let c = components(&[1.0, 2.0, 3.0, 5.0, 6.0, 7.0], &[3, 2]).unwrap();
        assert_eq!((c.mean, c.own[0]), (4.0, 1.0));
        assert!((c.own[1] - (8.0 - 1.0 / 3.0)).abs() < 1e-12);
        assert!((c.total[1] - 8.0).abs() < 1e-12);
        // sqrt(100 x 1 / 7.67) = 3.6.
        assert_eq!(c.repetitions(&[1.0, 100.0]), Some(vec![4]));
        // With the pilot's own counts the variance of the mean is S_2^2 / 2 = 4.
        let w = c.half_width(&[3, 2], 0.95).unwrap();
        assert!((w - 12.706_205 * 2.0 / 4.0).abs() < 1e-4, "{w}");
    }

    #[test]
    fn three_level_variance_components_are_recovered() {
        let mut random = crate::random::Random::new(8);
        // Uniform noise of variance s^2.
        let mut noise = |s: f64| s * 12_f64.sqrt() * (random.unit() - 0.5);
        let mut values = Vec::new();
        for _ in 0..200 {
            let session = noise(3.0);
            for _ in 0..20 {
                let process = noise(2.0);
                values.extend((0..10).map(|_| 100.0 + session + process + noise(1.0)));
            }
        }
        let c = components(&values, &[10, 20, 200]).unwrap();
        for (own, truth) in c.own.iter().zip([1.0, 4.0, 9.0]) {
            assert!((own / truth - 1.0).abs() < 0.2, "{c:?}");
        }
        let top = c.needed(&[1, 1], 0.02, 0.95, 100).unwrap();
        assert!(
            c.half_width(&[1, 1, top], 0.95).unwrap() <= 0.02 && c.half_width(&[1, 1, top - 1], 0.95).unwrap() > 0.02
        );
        assert_eq!(c.needed(&[1, 1], 1e-9, 0.95, 100), None);
    }

    #[test]
    fn level_without_variance_is_not_repeated() {
        let c = components(&[1.0, 1.0, 2.0, 2.0], &[2, 2]).unwrap();
        assert_eq!(c.repetitions(&[1.0, 1.0]), Some(vec![1]));
        let c = components(&[1.0, 2.0, 1.0, 2.0], &[2, 2]).unwrap();
        assert_eq!(c.own[1], 0.0);
        assert_eq!(c.repetitions(&[1.0, 1.0]), Some(vec![1_000_000]), "only iterations differ");
    }

    #[test]
    fn invalid_input_is_refused() {
        assert_eq!(components(&[], &[]), None);
        assert_eq!(components(&[1.0, 2.0], &[2, 1]), None);
        assert_eq!(components(&[1.0, 2.0, 3.0], &[2, 2]), None);
        assert_eq!(components(&[1.0, f64::NAN, 3.0, 4.0], &[2, 2]), None);
        assert_eq!(components(&[1.0], &[usize::MAX, usize::MAX]), None);
        let c = components(&[1.0, 1.5, 2.0, 2.5], &[2, 2]).unwrap();
        assert_eq!(c.repetitions(&[1.0]), None);
        assert_eq!(c.repetitions(&[1.0, 0.0]), None);
        assert_eq!(c.half_width(&[1, 1], 0.95), None);
    }
}
