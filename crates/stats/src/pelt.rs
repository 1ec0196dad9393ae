//! Where a series changes its level or its spread: PELT (Killick, Fearnhead and Eckley, "Optimal detection of
//! changepoints with a linear computational cost", JASA 107, 2012) with the cost of a normal distribution whose mean and
//! variance are unknown.
//!
//! The cost of a segment of m values with variance v (mean square deviation) is m (ln 2 pi + ln v + 1), twice its
//! negative log-likelihood. A segmentation costs the sum of its segments' costs and a penalty for each changepoint. PELT
//! finds the cheapest segmentation exactly: F(t) = min over s of F(s) + C(s, t) + penalty, and it discards every s for
//! which F(s) + C(s, t) > F(t), since no later end can make up for that. An s is discarded only when t itself may start a
//! segment, which is one shortest segment later; without this delay the result is not always optimal.
//!
//! **Numerics.** The values are centred and scaled to variance 1 first, so that sums of squares lose no precision to a
//! large mean; that shifts every segmentation's cost by the same constant. [`VARIANCE_FLOOR`] is *added* to a segment's
//! variance, so that equal values have a finite cost. (Taking the larger of the two instead, as some do, breaks the
//! inequality on which pruning is based.)
//!
//! **Uncertainty.** The model assumes that values within a segment are independent and normal. Iteration times are neither:
//! a slow drift becomes a staircase, heavy tails become short segments. So a changepoint is not yet a finding; see
//! [`crate::steady`] for how they are used.

/// Added to a segment's variance, in units of the series' variance.
const VARIANCE_FLOOR: f64 = 1e-11;

/// The penalty of a changepoint in a series of `n` values: 15 ln n, Barrett's choice.
pub fn penalty(n: usize) -> f64 {
    15.0 * (n.max(1) as f64).ln()
}

/// The fewest values of a segment: 2, the fewest that have a variance; 5 in a series of fewer than 200, where two values
/// that happen to be equal have too much weight.
pub fn segment_values_min(n: usize) -> usize {
    if n < 200 { 5 } else { 2 }
}

/// The changepoints of a series: the places where a new segment starts, ascending, without 0 and n. `None` if a value is
/// not finite, the penalty is negative or not finite, or there are fewer than two values or than `shortest` (at least 2).
///
/// Takes time in n² at worst (without any change), in n if changes come regularly.
pub fn changepoints(values: &[f64], penalty: f64, shortest: usize) -> Option<Vec<usize>> {
    let shortest = shortest.max(2);
    if values.len() < shortest || !(penalty >= 0.0 && penalty.is_finite()) {
        return None;
    }
    Some(Sums::new(values)?.cheapest_changepoints(penalty, shortest))
}

/// Sums of the first i values and of their squares, after centring and scaling.
pub(crate) struct Sums {
    values: Vec<f64>,
    squares: Vec<f64>,
}

/// The values with mean 0 and variance 1, or all 0 (but for rounding); `None` if one is not finite.
pub(crate) fn standardised(values: &[f64]) -> Option<Vec<f64>> {
    if values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    // Halving and a first scaling prevent overflow for the largest f64 values.
    let largest = values.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    let first = if largest > 0.0 { largest } else { 1.0 };
    let small: Vec<f64> = values.iter().map(|v| v / first).collect();
    let mean = crate::mean(&small);
    let variance = small.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / small.len() as f64;
    // A series that varies only by rounding is constant.
    let scale = if variance.sqrt() > 1e-14 { variance.sqrt() } else { 1.0 };
    Some(small.into_iter().map(|v| (v - mean) / scale).collect())
}

impl Sums {
    pub(crate) fn new(values: &[f64]) -> Option<Self> {
        let mut sums = Self { values: vec![0.0], squares: vec![0.0] };
        let (mut sum, mut square) = (0.0, 0.0);
        for y in standardised(values)? {
            sum += y;
            square += y * y;
            sums.values.push(sum);
            sums.squares.push(square);
        }
        Some(sums)
    }

    /// The changepoints of the cheapest segmentation; `shortest` is at least 2 and at most the number of values.
    pub(crate) fn cheapest_changepoints(&self, penalty: f64, shortest: usize) -> Vec<usize> {
        let n = self.values.len() - 1;
        assert!(shortest >= 2 && shortest <= n);
        // best[t]: the least cost of the first t values, less one penalty, and where its last segment starts.
        let mut best = vec![(f64::INFINITY, 0_usize); n + 1];
        best[0] = (-penalty, 0);
        // A start, and the first end for which it is pruned.
        let mut starts: Vec<(usize, usize)> = vec![(0, usize::MAX)];
        for end in shortest..=n {
            if end >= 2 * shortest {
                starts.push((end - shortest, usize::MAX));
            }
            starts.retain(|(_, until)| end < *until);
            let least = starts
                .iter()
                .map(|(start, _)| (best[*start].0 + self.cost(*start, end) + penalty, *start))
                .min_by(|a, b| a.0.total_cmp(&b.0));
            // The last start is not pruned before the next one is added, so there is always one.
            debug_assert!(least.is_some_and(|(cost, _)| cost.is_finite()));
            let Some(least) = least else { continue };
            best[end] = least;
            for (start, until) in &mut starts {
                if *until == usize::MAX && best[*start].0 + self.cost(*start, end) > least.0 {
                    *until = end + shortest;
                }
            }
        }
        let mut found = Vec::new();
        let mut at = best[n].1;
        while at > 0 {
            found.push(at);
            assert!(best[at].1 < at);
            at = best[at].1;
        }
        found.reverse();
        debug_assert!(
            [&[0], &found[..], &[n]].concat().windows(2).all(|ends| ends[1] - ends[0] >= shortest),
            "{found:?} of {n}"
        );
        found
    }

    /// The cost of a segmentation without its penalties.
    pub(crate) fn total_cost(&self, changepoints: &[usize]) -> f64 {
        let ends = changepoints.iter().copied().chain([self.values.len() - 1]);
        let mut start = 0;
        ends.map(|end| self.cost(std::mem::replace(&mut start, end), end)).sum()
    }

    /// The cost of the values from `start` (inclusive) to `end` (exclusive).
    pub(crate) fn cost(&self, start: usize, end: usize) -> f64 {
        debug_assert!(start < end);
        let m = (end - start) as f64;
        let sum = self.values[end] - self.values[start];
        let square = self.squares[end] - self.squares[start];
        let variance = ((square - sum * sum / m) / m).max(0.0);
        m * (std::f64::consts::TAU.ln() + (variance + VARIANCE_FLOOR).ln() + 1.0)
    }
}

/// The cheapest segmentation by dynamic programming, without pruning.
#[cfg(test)]
fn optimal_unpruned(values: &[f64], penalty: f64, shortest: usize) -> (Vec<usize>, f64) {
    let sums = Sums::new(values).unwrap();
    let n = values.len();
    let mut best = vec![(f64::INFINITY, 0_usize); n + 1];
    best[0] = (-penalty, 0);
    for end in shortest..=n {
        for start in (0..=end - shortest).filter(|s| *s == 0 || *s >= shortest) {
            let cost = best[start].0 + sums.cost(start, end) + penalty;
            if cost < best[end].0 {
                best[end] = (cost, start);
            }
        }
    }
    let (mut found, mut at) = (Vec::new(), best[n].1);
    while at > 0 {
        found.insert(0, at);
        at = best[at].1;
    }
    (found, best[n].0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use proptest::prelude::*;

    fn total(values: &[f64], points: &[usize], penalty: f64) -> f64 {
        Sums::new(values).unwrap().total_cost(points) + penalty * points.len() as f64
    }

    proptest! {
        /// Optimal partitioning without pruning finds nothing cheaper, and the same if there is one cheapest.
        #[test]
        fn pelt_equals_unpruned_partitioning(
            values in prop::collection::vec(prop_oneof![0.0..1.0, 0.0..10.0, Just(5.0)], 5..60),
            penalty in 0.0..20.0,
            shortest in 2_usize..5,
        ) {
            let found = changepoints(&values, penalty, shortest).unwrap();
            let (_, cost) = optimal_unpruned(&values, penalty, shortest);
            let ours = total(&values, &found, penalty);
            prop_assert!((ours - cost).abs() <= 1e-9 * (1.0 + cost.abs()), "{ours} {cost}");
            let mut edges = vec![0];
            edges.extend(&found);
            edges.push(values.len());
            prop_assert!(edges.windows(2).all(|e| e[1] - e[0] >= shortest));
        }

        /// Neither the unit nor an offset moves a changepoint.
        #[test]
        fn changepoints_ignore_scale_and_offset(seed in 0_u64..1000, power in -9_i32..9, offset in -1e3..1e3_f64) {
            let values = steps(seed, &[(40, 10.0, 1.0), (30, 20.0, 1.0), (50, 20.0, 6.0)]);
            let found = changepoints(&values, 30.0, 2).unwrap();
            let scaled: Vec<f64> = values.iter().map(|v| (v + offset) * 10_f64.powi(power)).collect();
            prop_assert_eq!(found, changepoints(&scaled, 30.0, 2).unwrap());
        }
    }

    /// Uniform noise of a given half-width about a level, for this many values each.
    fn steps(seed: u64, parts: &[(usize, f64, f64)]) -> Vec<f64> {
        let mut random = Random::new(seed);
        let mut noise = |level: f64, width: f64| level + width * (2.0 * random.unit() - 1.0);
        parts.iter().flat_map(|(n, level, width)| (0..*n).map(|_| noise(*level, *width)).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn changes_of_mean_and_variance_are_found() {
        let values = steps(1, &[(300, 10.0, 1.0), (200, 14.0, 1.0), (500, 14.0, 0.1)]);
        // A value that could belong to either side may be assigned to the wrong one.
        let found = changepoints(&values, penalty(1000), 2).unwrap();
        assert!(matches!(found[..], [a, b] if a.abs_diff(300) <= 2 && b.abs_diff(500) <= 2), "{found:?}");
        assert_eq!(changepoints(&steps(2, &[(1000, 10.0, 1.0)]), penalty(1000), 2), Some(vec![]));
    }

    #[test]
    fn large_mean_does_not_hide_changes() {
        // Steps of 2 ns on a level of 10^12 ns.
        let values = steps(3, &[(100, 1e12, 1.0), (100, 1e12 + 4.0, 1.0)]);
        assert_eq!(changepoints(&values, penalty(200), 2), Some(vec![100]));
    }

    #[test]
    fn constant_series_has_no_changepoint() {
        assert_eq!(changepoints(&[0.1; 50], penalty(50), 5), Some(vec![]));
        assert_eq!(changepoints(&[0.0; 50], penalty(50), 5), Some(vec![]));
    }

    #[test]
    fn invalid_input_is_refused() {
        assert_eq!(changepoints(&[], 1.0, 2), None);
        assert_eq!(changepoints(&[1.0], 1.0, 0), None);
        assert_eq!(changepoints(&[1.0, f64::NAN, 2.0], 1.0, 2), None);
        assert_eq!(changepoints(&[1.0, 2.0, 3.0], -1.0, 2), None);
        assert_eq!(changepoints(&[f64::MAX, f64::MIN, f64::MAX, f64::MIN], 1.0, 2), Some(vec![]));
    }
}
