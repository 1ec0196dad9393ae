//! Changes of level in many series at once, where of many without any change some show one all the same.
//!
//! Each series is searched for steps ([`crate::steps`]), of which the gain over dependence on the day before is known, and how often chance
//! has as much where days depend on each other by normal noise. A series whose gain that does not explain is shuffled, by a seed: for each of
//! some parts that a day may keep of the day before, the noise that this part leaves is brought into orders that mean nothing, and the days are
//! made of it again. They show what this very noise gains, whatever its distribution (heavy tails, outliers, equal values). Of all chances the
//! largest counts (all must be rejected), and of all series that were searched those are taken that stand out ([`crate::fdr`]).
//!
//! **Power** and false alarms are simulated, beside what other methods have: docs/results/fleet-changes.md.
//!
//! **Uncertainty.** The more a day keeps, the more a jump of its noise is like a step, and a jump that a day keeps whole is one: no order of
//! the noise tells the two apart. So [`KEPT`] ends at 0.8, where a jump is halved in three days. Series that keep more of the day before, with
//! noise of heavy tails, have more by chance than is allowed; shuffling them, too, would lose most steps of days that depend on each other.

use crate::{fdr, random::Random, steps};

/// Values that a series must have before a change is looked for.
pub const SHORTEST: usize = 10;
/// The part of the taken series that may be there by chance, on average.
const FALSE: f64 = 0.05;
/// The parts of the day before by which noise is shuffled; the largest leaves the fewest series to the others.
const KEPT: [f64; 3] = [0.8, 0.5, 0.0];
/// Shuffled orders that tell a series that chance explains, and those in addition for each series that was searched, shared by those that it
/// does not explain: so many that the smallest chance that they can show counts, also if half of those prove to be chance. At most so many.
const SHUFFLES: usize = 1000;
const MORE_SHUFFLES: usize = 40;
const MOST_SHUFFLES: usize = 400_000;
/// Orders with a change after which it is clear that chance explains it (Besag and Clifford, "Sequential Monte Carlo p-values",
/// Biometrika 78, 1991).
const ENOUGH: usize = 10;

/// What came of looking.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Series with enough values.
    pub looked_at: usize,
    /// Those whose change would be taken if they were the only one.
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

/// The chance that these values gain as much by changes if their noise comes in an order that means nothing, where each day keeps a part of
/// the day before; by so many orders at most.
fn by_order(values: &[f64], kept: f64, gain: f64, most: usize, random: &mut Random) -> f64 {
    let mut noise: Vec<f64> = values.windows(2).map(|pair| pair[1] - kept * pair[0]).collect();
    let mut values = values.to_vec();
    let mut again = 0;
    for looked in 1..=most {
        random.shuffle(&mut noise);
        for (t, noise) in noise.iter().enumerate() {
            values[t + 1] = kept * values[t] + noise;
        }
        again += usize::from(steps::steps(&values).1 >= gain);
        if again == ENOUGH {
            return again as f64 / looked as f64;
        }
    }
    (again + 1) as f64 / (most + 1) as f64
}

/// A series that dependence by normal noise does not explain.
struct Candidate {
    /// Which of all series, and which of those that were searched.
    at: usize,
    searched: usize,
    places: Vec<usize>,
    gain: f64,
    dependent: f64,
}

impl Candidate {
    /// The largest of its chances, by so many orders; once one explains it, the others are left out.
    fn chance(&self, values: &[f64], most: usize) -> f64 {
        let mut random = Random::new(self.at as u64);
        let mut largest = self.dependent;
        for kept in KEPT {
            largest = largest.max(by_order(values, kept, self.gain, most, &mut random));
            if largest > FALSE {
                break;
            }
        }
        largest
    }
}

/// Looks for changes in every series, and takes those that chance does not explain. The same series give the same changes.
pub fn look(series: &[Vec<f64>]) -> Changes {
    // All series count, also those without a change, whose chance is 1.
    let mut chances = Vec::new();
    let mut candidates = Vec::new();
    for (at, values) in series.iter().enumerate().filter(|(_, values)| values.len() >= SHORTEST) {
        let (places, gain) = steps::steps(values);
        let dependent = if places.is_empty() { 1.0 } else { steps::chance(values.len(), gain) };
        // What dependence explains need not be shuffled.
        if dependent <= FALSE {
            candidates.push(Candidate { at, searched: chances.len(), places, gain, dependent });
        }
        chances.push(dependent);
    }
    let mut changes = Changes { looked_at: chances.len(), found: 0, places: vec![Vec::new(); series.len()] };
    candidates.retain(|candidate| {
        chances[candidate.searched] = candidate.chance(&series[candidate.at], SHUFFLES);
        chances[candidate.searched] <= FALSE
    });
    changes.found = candidates.len();
    let most = (SHUFFLES + MORE_SHUFFLES * changes.looked_at / changes.found.max(1)).min(MOST_SHUFFLES);
    for candidate in &candidates {
        chances[candidate.searched] = candidate.chance(&series[candidate.at], most);
    }
    let adjusted = fdr::adjust(&chances, FALSE).map(|adjusted| adjusted.adjusted).unwrap_or_default();
    for candidate in candidates {
        if adjusted.get(candidate.searched).is_some_and(|&adjusted| adjusted <= FALSE) {
            changes.places[candidate.at] = candidate.places;
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

    /// Series that change at no day, of which each day keeps a part of the day before, with such noise.
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
            let changes = look(&level(2, kept, normal));
            assert!(changes.taken() == 0, "{kept}: {changes:?}");
        }
    }

    /// One large day in twenty, that the next days keep a part of.
    #[test]
    fn jumps_that_fade_are_not_taken_for_steps() {
        let jumps = |random: &mut Random| normal(random) * if random.unit() < 0.05 { 12.0 } else { 1.0 };
        for kept in [0.8, 0.65, 0.5, 0.2] {
            let series = level(5, kept, jumps);
            let changes = look(&series);
            let dependent = |values: &&Vec<f64>| steps::chance(values.len(), steps::steps(values).1) <= 0.01;
            let explained = series.iter().filter(dependent).count();
            assert!(kept < 0.8 || explained > 3, "normal noise explains all but {explained}");
            assert!(changes.taken() == 0, "{kept}: {changes:?}");
        }
    }

    /// Steps are told from jumps, also where days depend on each other.
    #[test]
    fn steps_of_dependent_days_are_taken() {
        for kept in [0.0, 0.8] {
            let mut series = level(9, kept, normal);
            series.iter_mut().take(10).for_each(|values| values[20..].iter_mut().for_each(|value| *value += 12.0));
            let changes = look(&series);
            assert!(changes.places[..10].iter().all(|places| places == &[20]), "{kept}: {changes:?}");
            // One in twenty may be chance.
            assert!(changes.taken() <= 12, "{kept}: {changes:?}");
        }
    }
}
