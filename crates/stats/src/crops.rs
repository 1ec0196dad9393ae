//! Every segmentation that is the cheapest for some penalty of an interval, and the one beyond which more changepoints no
//! longer pay: CROPS (Haynes, Eckley and Fearnhead, "Computationally efficient changepoint detection for a range of
//! penalties", JCGS 26, 2017) with [`crate::pelt`], and Kneedle's elbow (Satopaa et al., "Finding a 'kneedle' in a
//! haystack", 2011), as Traini et al. (EMSE 2022) choose the penalty of a series.
//!
//! The cheapest cost is, over the penalty, the lower envelope of straight lines: a segmentation with k changepoints and cost Q
//! is the line Q + k penalty. Two neighbours on the envelope change places where their lines cross. So: find the cheapest at
//! both ends; search where their lines cross; if something is cheaper there, it is between the two, and both halves are
//! searched in the same way; if not, nothing is between them. Each search finds a segmentation or settles a place, hence there
//! are at most twice as many searches as segmentations.
//!
//! **The elbow.** Number of changepoints over the logarithm of the penalty, each segmentation at the least penalty for which it
//! is the cheapest, both axes scaled to 0 to 1: it falls steeply while changepoints of the noise are given up, and slowly where
//! only real ones are left. The elbow is the segmentation farthest below the straight line between the ends. If none is below,
//! there is no elbow. (Traini et al. take the penalty itself. Penalties span orders of magnitude: on that axis a large change
//! hides a moderate one, which a tenth of its penalty would remove, among the noise.)
//!
//! **Uncertainty.** An elbow is a visual heuristic, not a test. In a series without a change it still finds one, among changes
//! that are all noise; callers must judge the resulting segments, as [`crate::steady`] does by their means. Where
//! segmentations have the same cost at one penalty only, rounding decides which of them is reported there; they are on the
//! envelope by a point, and are not listed.

use crate::pelt::Sums;

/// Relative difference below which two costs are equal: the rounding error of sums over a series.
const COST_ROUNDING: f64 = 1e-10;
/// The fewest values of a segment. Small penalties pay for a segment of two values that happen to be equal, whose cost
/// is bounded only by the floor of its variance.
pub const SEGMENT_VALUES_MIN: usize = 5;

/// A segmentation and the penalties for which none is cheaper.
#[derive(Debug, Clone, PartialEq)]
pub struct Segmentation {
    /// Where new segments start, ascending, without 0 and n.
    pub changepoints: Vec<usize>,
    /// The sum of the segments' costs, without penalties. Scaled as in [`crate::pelt`]: only differences are meaningful.
    pub cost: f64,
    /// The least penalty for which it is the cheapest.
    pub from: f64,
    /// The greatest.
    pub to: f64,
}

/// The interval of penalties that Traini et al. use: 4 ln n to 100,000 ln n.
pub fn penalty_interval(n: usize) -> (f64, f64) {
    let ln = (n.max(2) as f64).ln();
    (4.0 * ln, 1e5 * ln)
}

/// The cheapest segmentations of a series for all penalties from `low` to `high`, most changepoints first; their intervals
/// follow each other without a gap. `None` if a value is not finite, the interval is not (0 <= low <= high), or there are
/// fewer than `shortest` values (at least 2).
pub fn segmentations(values: &[f64], low: f64, high: f64, shortest: usize) -> Option<Vec<Segmentation>> {
    let shortest = shortest.max(2);
    if values.len() < shortest || !(0.0 <= low && low <= high && high.is_finite()) {
        return None;
    }
    let sums = Sums::new(values)?;
    let cheapest = |penalty: f64| {
        let changepoints = sums.cheapest_changepoints(penalty, shortest);
        Segmentation { cost: sums.total_cost(&changepoints), changepoints, from: low, to: high }
    };
    let (most, least) = (cheapest(low), cheapest(high));
    if most.changepoints.len() <= least.changepoints.len() {
        return Some(vec![most]);
    }
    let mut found = vec![most];
    // Segmentations known to be on the envelope, the next one last.
    let mut ahead = vec![least];
    while let Some(right) = ahead.pop() {
        let left = found.last_mut()?;
        // Where lines nearly coincide, rounding may put it before the place where `left` begins.
        let crossing = crossing(left, &right).clamp(left.from, high);
        let between = cheapest(crossing);
        let (new, old) = (penalised_cost(&between, crossing), penalised_cost(left, crossing));
        let fewer = between.changepoints.len() < left.changepoints.len();
        let more = between.changepoints.len() > right.changepoints.len();
        if fewer && more && new < old - COST_ROUNDING * (1.0 + old.abs()) {
            ahead.extend([right, between]);
        } else {
            left.to = crossing;
            found.push(Segmentation { from: crossing, ..right });
        }
    }
    debug_assert!(found[0].from == low && found.last().is_some_and(|last| last.to == high));
    debug_assert!(found.windows(2).all(|s| {
        s[0].to == s[1].from && s[0].from <= s[0].to && s[0].changepoints.len() > s[1].changepoints.len()
    }));
    Some(found)
}

/// Where the lines of two segmentations cross; `left` has more changepoints.
fn crossing(left: &Segmentation, right: &Segmentation) -> f64 {
    assert!(left.changepoints.len() > right.changepoints.len());
    (right.cost - left.cost) / (left.changepoints.len() - right.changepoints.len()) as f64
}

/// The cost with its penalties.
fn penalised_cost(segmentation: &Segmentation, penalty: f64) -> f64 {
    segmentation.cost + penalty * segmentation.changepoints.len() as f64
}

/// The elbow among segmentations as [`segmentations`] gives them for penalties above 0; `None` if none stands out, as of fewer
/// than three.
pub fn elbow(all: &[Segmentation]) -> Option<&Segmentation> {
    let (first, last) = (all.first()?, all.last()?);
    let number = |s: &Segmentation| s.changepoints.len() as f64;
    let below = |s: &Segmentation| {
        let x = (s.from / first.from).ln() / (last.from / first.from).ln();
        let y = (number(s) - number(last)) / (number(first) - number(last));
        1.0 - x - y
    };
    // The ends are on the line, and are not elbows. Among equals, prefer the one with fewer changepoints.
    all.iter().filter(|s| below(s) > 0.0).max_by(|a, b| below(a).total_cmp(&below(b)))
}

/// The changepoints of a series at the elbow of its penalties ([`penalty_interval`], segments of at least
/// [`SEGMENT_VALUES_MIN`] values); those of the penalty [`crate::pelt::penalty`] if there is no elbow. `None` as
/// [`segmentations`].
pub fn changepoints(values: &[f64]) -> Option<Vec<usize>> {
    let (low, high) = penalty_interval(values.len());
    let all = segmentations(values, low, high, SEGMENT_VALUES_MIN)?;
    if let Some(elbow) = elbow(&all) {
        return Some(elbow.changepoints.clone());
    }
    let usual = crate::pelt::penalty(values.len());
    all.into_iter().find(|s| usual <= s.to).map(|s| s.changepoints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::Noise;
    use proptest::prelude::*;

    /// The least cost of each number of changepoints, by trying every place of the last one.
    fn by_number(values: &[f64], shortest: usize) -> Vec<f64> {
        let sums = Sums::new(values).unwrap();
        let n = values.len();
        let mut rows =
            vec![(0..=n).map(|end| if end < shortest { f64::INFINITY } else { sums.cost(0, end) }).collect()];
        for _ in 1..n / shortest {
            let last: &Vec<f64> = rows.last().unwrap();
            let best = |end: usize| {
                let starts = shortest..=end.saturating_sub(shortest);
                starts.map(|start| last[start] + sums.cost(start, end)).fold(f64::INFINITY, f64::min)
            };
            let row = (0..=n).map(best).collect();
            rows.push(row);
        }
        rows.iter().map(|row| row[n]).collect()
    }

    fn check(values: &[f64], low: f64, high: f64, shortest: usize) -> Result<(), TestCaseError> {
        let found = segmentations(values, low, high, shortest).unwrap();
        let costs = by_number(values, shortest);
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-8 * (1.0 + b.abs());
        // Each is the best of its number, valid, and they cover the interval in order.
        for s in &found {
            prop_assert!(near(s.cost, costs[s.changepoints.len()]), "{s:?} {costs:?}");
            let edges: Vec<usize> = [0].into_iter().chain(s.changepoints.clone()).chain([values.len()]).collect();
            prop_assert!(edges.windows(2).all(|e| e[1] - e[0] >= shortest));
            prop_assert!(s.from <= s.to);
        }
        prop_assert_eq!((found[0].from, found.last().unwrap().to), (low, high));
        prop_assert!(found.windows(2).all(|s| s[0].to == s[1].from));
        prop_assert!(found.windows(2).all(|s| s[0].changepoints.len() > s[1].changepoints.len()));
        // Each is the cheapest over its interval, hence at both ends, and in the middle alone.
        let envelope =
            |penalty: f64| costs.iter().enumerate().map(|(k, c)| c + penalty * k as f64).fold(f64::INFINITY, f64::min);
        for s in &found {
            prop_assert!(
                near(penalised_cost(s, s.from), envelope(s.from)) && near(penalised_cost(s, s.to), envelope(s.to)),
                "{s:?} {costs:?}"
            );
        }
        // None is missing: every segmentation that is clearly cheapest at some penalty is listed.
        for step in 0..=200 {
            let penalty = low + (high - low) * f64::from(step) / 200.0;
            let mut at: Vec<(f64, usize)> =
                costs.iter().enumerate().map(|(k, c)| (c + penalty * k as f64, k)).collect();
            at.sort_by(|a, b| a.0.total_cmp(&b.0));
            if at.len() > 1 && at[1].0 - at[0].0 > 1e-6 * (1.0 + at[0].0.abs()) {
                prop_assert!(found.iter().any(|s| s.changepoints.len() == at[0].1), "{penalty}: {at:?} {found:?}");
            }
        }
        Ok(())
    }

    proptest! {
        /// Exactly the lower envelope of the best segmentations of each number of changepoints.
        #[test]
        fn crops_finds_exactly_optimal_segmentations(
            values in prop::collection::vec(prop_oneof![0.0..1.0, 0.0..10.0, 20.0..21.0], 5..50),
            low in 0.0..20.0,
            width in 0.0..200.0,
            shortest in 2_usize..5,
        ) {
            check(&values, low, low + width, shortest)?;
        }
    }

    fn series(parts: &[(usize, f64)], seed: u64) -> Vec<f64> {
        let mut noise = Noise::new(seed);
        let mut around = |level: f64| level * (1.0 + 0.01 * noise.normal());
        parts.iter().flat_map(|(n, level)| (0..*n).map(|_| around(*level)).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn elbow_finds_real_changes() {
        for seed in 0..20 {
            let values = series(&[(60, 16.0), (80, 12.0), (200, 10.0)], seed);
            let found = changepoints(&values).unwrap();
            let near = |place: usize| found.iter().any(|f| f.abs_diff(place) <= 1);
            assert!(near(60) && near(140) && found.len() <= 5, "{found:?}");
        }
    }

    #[test]
    fn fixed_penalty_applies_without_elbow() {
        // Constant: one segmentation; two clear levels: with one change or none.
        assert_eq!(changepoints(&[3.0; 40]), Some(vec![]));
        let two: Vec<f64> = (0..40).map(|i| if i < 20 { f64::from(i % 2) } else { 100.0 + f64::from(i % 2) }).collect();
        assert_eq!(changepoints(&two), Some(vec![20]));
    }

    #[test]
    fn elbow_is_corner_of_penalty_curve() {
        let one = |number: usize, from: f64| Segmentation {
            changepoints: (1..=number).collect(),
            cost: 0.0,
            from,
            to: f64::INFINITY,
        };
        let all = [one(12, 20.0), one(8, 25.0), one(2, 30.0), one(1, 900.0), one(0, 2000.0)];
        assert_eq!(elbow(&all).unwrap().changepoints.len(), 2);
        assert_eq!(elbow(&all[3..]), None);
        assert_eq!(elbow(&[]), None);
    }

    #[test]
    fn invalid_input_is_refused() {
        assert_eq!(segmentations(&[1.0, f64::NAN, 2.0], 1.0, 2.0, 2), None);
        assert_eq!(segmentations(&[1.0, 2.0, 3.0], 2.0, 1.0, 2), None);
        assert_eq!(segmentations(&[1.0, 2.0, 3.0], -1.0, 1.0, 2), None);
        assert_eq!(segmentations(&[1.0, 2.0, 3.0], 0.0, f64::INFINITY, 2), None);
        assert_eq!(segmentations(&[1.0], 0.0, 1.0, 2), None);
        assert_eq!(changepoints(&[]), None);
    }
}
