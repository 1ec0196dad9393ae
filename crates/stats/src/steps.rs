//! How much better steps explain a series than the dependence of each value on the previous one.
//!
//! Values are x_t = level_t + u_t with u_t = k u_(t-1) + e_t: the next value keeps a fraction k of the deviation of a value from
//! its level, from none (independent noise) to all (a random walk). [`crate::pelt`] proposes where levels begin. For each k,
//! x_t - k x_(t-1) is regressed on a constant, and on a constant and a step; with R0 and R1 as the least sums of squares over all k,
//! without and with the step, its gain is (n - 1) ln (R0 / R1). The best place is taken, its step is subtracted, and so on, while
//! that gains more than a penalty.
//!
//! Since each side chooses its own k, a step for independent noise is drift for a walk, so the gain by chance hardly depends on
//! how dependent days are, unlike that of PELT alone. [`chance_probability`] is the largest over k, simulated. (The
//! likelihood is that of Chakar, Lebarbier, Lévy-Leduc and Robin, "A robust approach for estimating change-points in
//! the mean of an AR(1) process", Bernoulli 23, 2017, and of Romano, Rigaill, Runge and Fearnhead, JASA 117, 2022; they
//! estimate the places of many changes, while here one series is to be distinguished from chance.)
//!
//! **Uncertainty.** The noise e is normal in [`CHANCE_GAINS`]. Dependent days with heavy tails have larger gains by
//! chance, since one large e that days keep is a decaying step: docs/results/fleet-changes.md shows how much larger,
//! and [`crate::changes`] handles it.

use crate::pelt::{Sums, standardised};

/// The fractions k that are tried.
const KEPT_FRACTIONS: [f64; 11] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
/// The fewest values of a level.
const LEVEL_VALUES_MIN: usize = 5;
/// The penalty of a place, in units of ln n: for PELT, which only proposes, and for every step after the first.
const PLACE_PENALTY: f64 = 3.0;
/// Maximum number of steps of a series.
const STEPS_MAX: usize = 8;
/// The smallest variance that is distinguished from none, in units of the series' variance.
const VARIANCE_FLOOR: f64 = 1e-11;

/// A step of a series.
#[derive(Debug, PartialEq)]
struct Step {
    at: usize,
    height: f64,
    /// The least sums of squares without and with the step.
    without: f64,
    with: f64,
}

/// Finds the step at one of these places that explains most.
fn best_step(values: &[f64], places: &[usize]) -> Option<Step> {
    let n = values.len();
    let count = (n - 1) as f64;
    let least = VARIANCE_FLOOR * n as f64;
    let (mut without, mut found) = (f64::INFINITY, None::<Step>);
    let mut after = vec![0.0; n + 1];
    for kept in KEPT_FRACTIONS {
        let (lost, mut squares) = (1.0 - kept, 0.0);
        for t in (1..n).rev() {
            let noise = values[t] - kept * values[t - 1];
            squares += noise * noise;
            after[t] = after[t + 1] + noise;
        }
        let sum = after[1];
        let level = squares - sum * sum / count;
        without = f64::min(without, level.max(least));
        for &at in places {
            // A step of height 1 is 1 at its place and 1 - k after it.
            let rest = (n - 1 - at) as f64;
            let (own_sum, own_squares) = (1.0 + lost * rest, 1.0 + lost * lost * rest);
            let product = after[at] - after[at + 1] + lost * after[at + 1];
            let own = own_squares - own_sum * own_sum / count;
            let common = product - own_sum * sum / count;
            let with = (level - common * common / own).max(least);
            if found.as_ref().is_none_or(|found| with < found.with) {
                found = Some(Step { at, height: common / own, without: 0.0, with });
            }
        }
    }
    found.map(|step| Step { without, ..step })
}

/// Returns where new levels begin, and their gain; none, and 0, if nothing gains or a value is not finite.
pub(crate) fn find_steps(values: &[f64]) -> (Vec<usize>, f64) {
    let n = values.len();
    let none = (Vec::new(), 0.0);
    let (Some(mut rest), Some(sums)) = (standardised(values), Sums::new(values)) else { return none };
    if n < 2 * LEVEL_VALUES_MIN {
        return none;
    }
    let penalty = PLACE_PENALTY * (n as f64).ln();
    let mut places = sums.cheapest_changepoints(penalty, LEVEL_VALUES_MIN);
    let (mut chosen, mut taken, mut null) = (Vec::new(), none, None);
    for stage in 0..STEPS_MAX {
        let Some(step) = best_step(&rest, &places) else { break };
        let null = *null.get_or_insert(step.without.ln());
        let gain = (n - 1) as f64 * (null - step.with.ln()) - penalty * stage as f64;
        rest[step.at..].iter_mut().for_each(|value| *value -= step.height);
        places.retain(|&place| place != step.at);
        chosen.push(step.at);
        if gain > taken.1 {
            taken = (chosen.clone(), gain);
        }
    }
    taken.0.sort_unstable();
    taken
}

/// The probability that a series without a change has at least this gain, for the worst fraction of dependence between days.
pub(crate) fn chance_probability(n: usize, gain: f64) -> f64 {
    // Gains for each probability, interpolated between the lengths below and above.
    let upper = CHANCE_GAINS.partition_point(|(length, _)| *length < n).min(CHANCE_GAINS.len() - 1);
    let (lower, upper) = (&CHANCE_GAINS[upper.saturating_sub(1)], &CHANCE_GAINS[upper]);
    let ln = |length: usize| (length as f64).ln();
    let wide = ln(upper.0) - ln(lower.0);
    // Beyond the longest length they are extrapolated.
    let part = if wide > 0.0 { ((ln(n) - ln(lower.0)) / wide).max(0.0) } else { 1.0 };
    let at = |chance: usize| lower.1[chance] * (1.0 - part) + upper.1[chance] * part;
    if gain < at(0) {
        return 1.0;
    }
    // For chi-squared tails the logarithm falls linearly, or faster: extrapolate beyond the last gain.
    let last = CHANCE_PROBABILITIES.len() - 1;
    let next = (1..last).find(|&next| gain < at(next)).unwrap_or(last);
    let slope = (CHANCE_PROBABILITIES[next].ln() - CHANCE_PROBABILITIES[next - 1].ln()) / (at(next) - at(next - 1));
    (CHANCE_PROBABILITIES[next - 1].ln() + slope * (gain - at(next - 1))).exp()
}

/// The probabilities of [`CHANCE_GAINS`].
const CHANCE_PROBABILITIES: [f64; 5] = [0.1, 0.03, 0.01, 0.003, 0.001];

/// Lengths, and the gains that series of this length have with each probability of [`CHANCE_PROBABILITIES`]: the
/// largest of k = 0, 0.5, 0.8, 0.9,
/// 0.95, 1. Made by `cargo run --release -p stats --example false_alarms -- chances`.
const CHANCE_GAINS: [(usize, [f64; 5]); 9] = [
    (10, [5.3, 9.0, 12.3, 15.8, 18.8]),
    (12, [8.0, 11.6, 14.6, 17.8, 20.7]),
    (15, [9.5, 13.0, 15.9, 18.9, 21.4]),
    (20, [10.5, 14.0, 17.0, 20.2, 23.1]),
    (30, [11.0, 14.5, 17.3, 20.6, 23.3]),
    (45, [11.2, 14.6, 17.4, 20.7, 23.7]),
    (70, [11.4, 14.5, 17.4, 20.6, 23.3]),
    (120, [12.1, 15.1, 18.0, 20.8, 23.5]),
    (200, [13.4, 16.5, 19.2, 22.6, 25.0]),
];

/// The gain of a series, for simulating [`CHANCE_GAINS`].
#[doc(hidden)]
pub fn series_gain(values: &[f64]) -> f64 {
    find_steps(values).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// The sum of squares of `y` that remains after regression on these columns, by elimination.
    fn residual_squares(y: &[f64], columns: &[Vec<f64>]) -> f64 {
        let mut all: Vec<Vec<f64>> = columns.to_vec();
        let mut y = y.to_vec();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        for at in 0..all.len() {
            let column = all[at].clone();
            let own = dot(&column, &column);
            for other in all[at + 1..].iter_mut().chain([&mut y]) {
                let part = dot(other, &column) / own;
                other.iter_mut().zip(&column).for_each(|(value, one)| *value -= part * one);
            }
        }
        dot(&y, &y)
    }

    #[test]
    fn best_step_is_that_of_a_plain_regression() {
        let mut random = Random::new(7);
        for n in [10, 17, 40] {
            let values: Vec<f64> = (0..n).map(|t| random.unit() + if t < n / 2 { 0.0 } else { 0.7 }).collect();
            let places: Vec<usize> = (LEVEL_VALUES_MIN..=n - LEVEL_VALUES_MIN).collect();
            let step = best_step(&values, &places).unwrap();
            let (mut without, mut with) = (f64::INFINITY, (f64::INFINITY, 0));
            for kept in KEPT_FRACTIONS {
                let noise: Vec<f64> = (1..n).map(|t| values[t] - kept * values[t - 1]).collect();
                let level = vec![1.0; n - 1];
                without = without.min(residual_squares(&noise, std::slice::from_ref(&level)));
                for &at in &places {
                    let up = |t: usize| if t >= at { 1.0 } else { 0.0 };
                    let column = (1..n).map(|t| up(t) - kept * up(t - 1)).collect();
                    let squares = residual_squares(&noise, &[level.clone(), column]);
                    with = if squares < with.0 { (squares, at) } else { with };
                }
            }
            assert_eq!(step.at, with.1);
            assert!((step.without - without).abs() < 1e-9 && (step.with - with.0).abs() < 1e-9, "{step:?}");
        }
    }

    #[test]
    fn levels_up_and_down_are_found_and_scale_is_ignored() {
        let mut random = Random::new(3);
        let level = |t: usize| if (20..40).contains(&t) { 9.0 } else { 3.0 };
        let values: Vec<f64> = (0..60).map(|t| level(t) + random.unit()).collect();
        let (places, gain) = find_steps(&values);
        assert_eq!(places, [20, 40]);
        assert!(chance_probability(60, gain) < 1e-6, "{gain}");
        let scaled: Vec<f64> = values.iter().map(|value| value * 1e-9 - 5.0).collect();
        assert_eq!(find_steps(&scaled).0, places);
        assert_eq!(find_steps(&[1.0; 30]), (vec![], 0.0));
        assert_eq!(find_steps(&[f64::NAN; 30]), (vec![], 0.0));
        assert_eq!(find_steps(&values[..9]), (vec![], 0.0));
    }

    #[test]
    fn chance_falls_with_gain_and_meets_table() {
        for (n, gains) in CHANCE_GAINS {
            for (of, gain) in CHANCE_PROBABILITIES.iter().zip(gains) {
                let found = chance_probability(n, gain);
                assert!((found / of - 1.0).abs() < 1e-9, "{n} {gain}: {found}");
            }
        }
        for n in [10, 11, 25, 100, 365, 5000] {
            let all: Vec<f64> = (0..120).map(|gain| chance_probability(n, f64::from(gain))).collect();
            assert!(all.windows(2).all(|pair| pair[0] >= pair[1]), "{n}: {all:?}");
            assert!(all[0] == 1.0 && all[119] < 1e-9, "{n}: {all:?}");
        }
    }
}
