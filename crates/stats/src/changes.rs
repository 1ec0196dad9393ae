//! Changes of level in many series at once, where of many without any change some show one all the same.
//!
//! Each series is searched for steps ([`crate::steps`]), of which the gain over dependence on the day before is known, and how often chance
//! has as much where days depend on each other by normal noise. A series whose gain that does not explain is shuffled, by a seed: an order
//! of its values that means nothing shows what these very values gain, whatever their distribution (heavy tails, outliers, equal values).
//! Of the two chances the larger counts (both must be rejected), and of all series that were searched those are taken that stand out
//! ([`crate::fdr`]).
//!
//! **Power** and false alarms are simulated, beside what other methods have: docs/results/fleet-changes.md.
//!
//! **Uncertainty.** Dependent days whose noise has heavy tails have more by chance than either test allows for.

use crate::{fdr, random::Random, steps};

/// Values that a series must have before a change is looked for.
pub const SHORTEST: usize = 10;
/// The part of the taken series that may be there by chance, on average.
const FALSE: f64 = 0.05;
/// Shuffled orders in which a series is searched again: so many for each series that was searched, so that the smallest chance that they can
/// show counts among all of those, and at most so many.
const SHUFFLES: usize = 20;
const MOST_SHUFFLES: usize = 400_000;
/// Orders with a change after which it is clear that chance explains it (Besag and Clifford, "Sequential Monte Carlo p-values",
/// Biometrika 78, 1991).
const ENOUGH: usize = 10;

/// What came of looking.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Series with enough values.
    pub looked_at: usize,
    /// Those whose change would be taken if they were the only one, dependent or not.
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

/// The chance that these values, in an order that means nothing, gain as much by changes; by so many orders at most.
fn by_chance(values: &[f64], gain: f64, most: usize, seed: u64) -> f64 {
    let mut random = Random::new(seed);
    let mut values = values.to_vec();
    let mut again = 0;
    for looked in 1..=most {
        random.shuffle(&mut values);
        again += usize::from(steps::steps(&values).1 >= gain);
        if again == ENOUGH {
            return again as f64 / looked as f64;
        }
    }
    (again + 1) as f64 / (most + 1) as f64
}

/// Looks for changes in every series, and takes those that chance does not explain. The same series give the same changes.
pub fn look(series: &[Vec<f64>]) -> Changes {
    let looked_at = series.iter().filter(|values| values.len() >= SHORTEST).count();
    let most = (1000 + SHUFFLES * looked_at).min(MOST_SHUFFLES);
    // All series count, also those without a change, whose chance is 1.
    let mut chances = Vec::with_capacity(looked_at);
    let mut candidates: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    for (at, values) in series.iter().enumerate().filter(|(_, values)| values.len() >= SHORTEST) {
        let (places, gain) = steps::steps(values);
        let dependent = if places.is_empty() { 1.0 } else { steps::chance(values.len(), gain) };
        // What dependence explains need not be shuffled.
        if dependent > FALSE {
            chances.push(dependent);
            continue;
        }
        candidates.push((at, chances.len(), places));
        chances.push(dependent.max(by_chance(values, gain, most, at as u64)));
    }
    let mut changes = Changes { looked_at, found: candidates.len(), places: vec![Vec::new(); series.len()] };
    let adjusted = fdr::adjust(&chances, FALSE).map(|adjusted| adjusted.adjusted).unwrap_or_default();
    for (at, chance, places) in candidates {
        if adjusted.get(chance).is_some_and(|&adjusted| adjusted <= FALSE) {
            changes.places[at] = places;
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pelt;

    /// With the normal distribution (Box and Muller, Ann. Math. Stat. 29, 1958).
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
        let changes = look(&[level, step, short]);
        assert_eq!(changes, Changes { looked_at: 2, found: 1, places: vec![vec![], vec![17], vec![]] });
        assert_eq!(changes.taken(), 1);
        assert_eq!(look(&[]), Changes::default());
        assert_eq!(look(&[vec![f64::NAN; 30]]).found, 0);
    }

    /// Days that are mostly one of few numbers, in which PELT alone finds something in every third series.
    #[test]
    fn chance_among_many_series_is_not_taken() {
        let mut random = Random::new(1);
        let mut series: Vec<Vec<f64>> =
            (0..200).map(|_| (0..30).map(|_| (random.unit() * 1.4).floor()).collect()).collect();
        series.push((0..30).map(|n| if n < 17 { noise(n) } else { 2.0 + noise(n) }).collect());
        let changes = look(&series);
        let alone = |values: &Vec<f64>| {
            let n = values.len();
            pelt::changepoints(values, pelt::penalty(n), pelt::shortest(n)).is_some_and(|places| !places.is_empty())
        };
        let alone = series.iter().filter(|values| alone(values)).count();
        assert!(alone > 30, "PELT alone finds {alone}");
        assert_eq!(changes.places[200], [17]);
        assert!(changes.taken() <= 3, "{changes:?}");
    }

    /// Series of which each day keeps all or most of the day before, and which change at no day.
    #[test]
    fn drift_is_not_taken_for_steps() {
        for stays in [1.0, 0.9] {
            let mut random = Random::new(2);
            let mut series = |_| {
                let mut at = 0.0;
                let days = std::iter::repeat_with(|| {
                    at = stays * at + normal(&mut random);
                    at
                });
                days.take(40).collect()
            };
            let changes = look(&(0..60).map(&mut series).collect::<Vec<Vec<f64>>>());
            assert!(changes.taken() == 0, "{stays}: {changes:?}");
        }
    }
}
