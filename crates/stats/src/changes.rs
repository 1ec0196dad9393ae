//! Changes of level in many series at once, where some of many series without a change seem to have one.
//!
//! Each series is searched for steps ([`crate::steps`]), whose gain relative to dependence on the previous day is known, as is
//! the probability of such a gain by chance if days depend on each other with normal noise. A series whose gain this does not
//! explain is shuffled, by a seed: for each of several fractions that a day may keep of the previous day, the remaining noise is
//! brought into random orders, and the days are rebuilt from it. These show the gain of this very noise, whatever its
//! distribution (heavy tails, outliers, equal values). The largest of all p values counts (all must be rejected), and of all
//! searched series those that are significant are taken ([`crate::fdr`]).
//!
//! **Power** and false alarms are simulated, and compared with other methods: docs/results/fleet-changes.md.
//!
//! **Uncertainty.** The larger the fraction that a day keeps, the more a jump in its noise looks like a step, and a jump that is
//! kept completely is one: no order of the noise distinguishes the two. So [`KEPT_FRACTIONS`] ends at 0.8, where a jump
//! is halved in three days. Series that keep more of the previous day, with heavy-tailed noise, have more false changes
//! than allowed; shuffling them, too, would lose most steps of days that depend on each other.

use crate::{fdr, random::Random, steps};

/// Minimum number of values of a series for which a change is searched.
pub const SERIES_VALUES_MIN: usize = 10;
/// The average fraction of taken series that may be due to chance.
const FALSE_SHARE_MAX: f64 = 0.05;
/// The fractions of the previous day by which noise is shuffled; the largest leaves the fewest series to the others.
const KEPT_FRACTIONS: [f64; 3] = [0.8, 0.5, 0.0];
/// Shuffled orders for recognising a series that chance explains, plus those for each searched series, shared by the series that
/// it does not explain: enough for the smallest possible p value to be significant, even if half of those prove to be chance. At
/// most this many.
const SHUFFLE_COUNT: usize = 1000;
const SHUFFLES_PER_SERIES: usize = 40;
const SHUFFLES_MAX: usize = 400_000;
/// Number of orders with a change after which chance is accepted as the explanation (Besag and Clifford, "Sequential Monte
/// Carlo p-values", Biometrika 78, 1991).
const CHANCE_ORDERS_MIN: usize = 10;

/// The result of the search.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Series with enough values.
    pub searched: usize,
    /// Series whose change would be taken if they were the only one.
    pub found: usize,
    /// For each series, the places where a new level begins; none where chance explains them.
    pub places: Vec<Vec<usize>>,
}

impl Changes {
    /// Series with changes that chance does not explain.
    pub fn taken(&self) -> usize {
        self.places.iter().filter(|places| !places.is_empty()).count()
    }
}

/// The probability that these values gain as much by changes if their noise is in random order, where each day keeps a fraction
/// of the previous day; from at most `most` orders.
fn order_p_value(values: &[f64], kept: f64, gain: f64, most: usize, random: &mut Random) -> f64 {
    let mut noise: Vec<f64> = values.windows(2).map(|pair| pair[1] - kept * pair[0]).collect();
    let mut values = values.to_vec();
    let mut again = 0;
    for looked in 1..=most {
        random.shuffle(&mut noise);
        for (t, noise) in noise.iter().enumerate() {
            values[t + 1] = kept * values[t] + noise;
        }
        again += usize::from(steps::find_steps(&values).1 >= gain);
        if again == CHANCE_ORDERS_MIN {
            return again as f64 / looked as f64;
        }
    }
    (again + 1) as f64 / (most + 1) as f64
}

/// A series that dependence with normal noise does not explain.
struct Candidate {
    /// Its index among all series, and among those that were searched.
    at: usize,
    search_index: usize,
    places: Vec<usize>,
    gain: f64,
    dependence_p: f64,
}

impl Candidate {
    /// Returns the largest of its p values, from this many orders; once one explains it, the others are skipped.
    fn p_value(&self, values: &[f64], most: usize) -> f64 {
        let mut random = Random::new(self.at as u64);
        let mut largest = self.dependence_p;
        for kept in KEPT_FRACTIONS {
            largest = largest.max(order_p_value(values, kept, self.gain, most, &mut random));
            if largest > FALSE_SHARE_MAX {
                break;
            }
        }
        largest
    }
}

/// Searches every series for changes, and takes those that chance does not explain. The same series give the same changes.
pub fn find(series: &[Vec<f64>]) -> Changes {
    // All series count, including those without a change, whose p value is 1.
    let mut chances = Vec::new();
    let mut candidates = Vec::new();
    for (at, values) in series.iter().enumerate().filter(|(_, values)| values.len() >= SERIES_VALUES_MIN) {
        let (places, gain) = steps::find_steps(values);
        let dependent = if places.is_empty() { 1.0 } else { steps::chance_probability(values.len(), gain) };
        // A series explained by dependence need not be shuffled.
        if dependent <= FALSE_SHARE_MAX {
            candidates.push(Candidate { at, search_index: chances.len(), places, gain, dependence_p: dependent });
        }
        chances.push(dependent);
    }
    let mut changes = Changes { searched: chances.len(), found: 0, places: vec![Vec::new(); series.len()] };
    candidates.retain(|candidate| {
        chances[candidate.search_index] = candidate.p_value(&series[candidate.at], SHUFFLE_COUNT);
        chances[candidate.search_index] <= FALSE_SHARE_MAX
    });
    changes.found = candidates.len();
    let most = (SHUFFLE_COUNT + SHUFFLES_PER_SERIES * changes.searched / changes.found.max(1)).min(SHUFFLES_MAX);
    for candidate in &candidates {
        chances[candidate.search_index] = candidate.p_value(&series[candidate.at], most);
    }
    let adjusted = fdr::adjust(&chances, FALSE_SHARE_MAX).map(|adjusted| adjusted.p_values).unwrap_or_default();
    for candidate in candidates {
        if adjusted.get(candidate.search_index).is_some_and(|&adjusted| adjusted <= FALSE_SHARE_MAX) {
            changes.places[candidate.at] = candidate.places;
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pelt;

    /// A normally distributed number (Box and Muller, Ann. Math. Stat. 29, 1958).
    fn normal(random: &mut Random) -> f64 {
        let (radius, angle) = (random.unit().max(f64::MIN_POSITIVE), random.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    fn noise(n: u64) -> f64 {
        1.0 + ((n * 7919) % 997) as f64 / 30_000.0
    }

    #[test]
    fn step_is_found_where_it_is_and_level_series_has_none() {
        let level: Vec<f64> = (0..30).map(noise).collect();
        let step: Vec<f64> = (0..30).map(|n| if n < 17 { noise(n) } else { 2.0 + noise(n) }).collect();
        let short = step[15..20].to_vec();
        let changes = find(&[level, step, short]);
        assert_eq!(changes, Changes { searched: 2, found: 1, places: vec![vec![], vec![17], vec![]] });
        assert_eq!(changes.taken(), 1);
        assert_eq!(find(&[]), Changes::default());
        assert_eq!(find(&[vec![f64::NAN; 30]]).found, 0);
    }

    /// Days with mostly one of few values, in which PELT alone finds something in every third series.
    #[test]
    fn chance_among_many_series_is_not_taken() {
        let mut random = Random::new(1);
        let mut series: Vec<Vec<f64>> =
            (0..200).map(|_| (0..30).map(|_| (random.unit() * 1.4).floor()).collect()).collect();
        series.push((0..30).map(|n| if n < 17 { noise(n) } else { 2.0 + noise(n) }).collect());
        let changes = find(&series);
        let alone = |values: &Vec<f64>| {
            let n = values.len();
            pelt::changepoints(values, pelt::penalty(n), pelt::segment_values_min(n))
                .is_some_and(|places| !places.is_empty())
        };
        let alone = series.iter().filter(|values| alone(values)).count();
        assert!(alone > 30, "PELT alone finds {alone}");
        assert_eq!(changes.places[200], [17]);
        assert!(changes.taken() <= 3, "{changes:?}");
    }

    /// Series without a change, in which each day keeps a fraction of the previous day, with this noise.
    fn level(seed: u64, kept: f64, noise: impl Fn(&mut Random) -> f64) -> Vec<Vec<f64>> {
        let mut random = Random::new(seed);
        let mut series = |_| {
            let mut at = noise(&mut random);
            let days = std::iter::repeat_with(|| {
                at = kept * at + noise(&mut random);
                at
            });
            days.take(40).collect()
        };
        (0..60).map(&mut series).collect()
    }

    #[test]
    fn drift_is_not_taken_for_steps() {
        for kept in [1.0, 0.9] {
            let changes = find(&level(2, kept, normal));
            assert!(changes.taken() == 0, "{kept}: {changes:?}");
        }
    }

    /// One large day in twenty, of which the next days keep a fraction.
    #[test]
    fn jumps_that_fade_are_not_taken_for_steps() {
        let jumps = |random: &mut Random| normal(random) * if random.unit() < 0.05 { 12.0 } else { 1.0 };
        for kept in [0.8, 0.65, 0.5, 0.2] {
            let series = level(5, kept, jumps);
            let changes = find(&series);
            let dependent =
                |values: &&Vec<f64>| steps::chance_probability(values.len(), steps::find_steps(values).1) <= 0.01;
            let explained = series.iter().filter(dependent).count();
            assert!(kept < 0.8 || explained > 3, "normal noise explains all but {explained}");
            assert!(changes.taken() == 0, "{kept}: {changes:?}");
        }
    }

    /// Steps are distinguished from jumps, even where days depend on each other.
    #[test]
    fn steps_of_dependent_days_are_taken() {
        for kept in [0.0, 0.8] {
            let mut series = level(9, kept, normal);
            series.iter_mut().take(10).for_each(|values| values[20..].iter_mut().for_each(|value| *value += 12.0));
            let changes = find(&series);
            assert!(changes.places[..10].iter().all(|places| places == &[20]), "{kept}: {changes:?}");
            // One in twenty may be chance.
            assert!(changes.taken() <= 12, "{kept}: {changes:?}");
        }
    }
}
