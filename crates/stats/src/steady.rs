//! Does a process reach a steady state, and from which iteration on?
//!
//! A just-in-time compiler makes a process faster while it runs, a filling cache or a hot chip slower. A mean over both
//! states describes neither. So the iterations of a process are cut into segments of one level ([`crate::pelt`]; outliers
//! are left out, see [`crate::outlier`]; on the logarithm if the coefficient of variation exceeds 0.3, since longer times
//! then also vary more), and each segment is compared with the last one. The segments that are equivalent to the last,
//! without a gap, up to the end, are the steady state, if together they contain a quarter of the iterations or more.
//!
//! **Equivalent** means shown to be so: the bootstrap interval (0.95) of the ratio of the two segments' means lies within
//! 1 / (1 + margin) to 1 + margin. Being indistinguishable is not enough, so a short and noisy segment ends the steady state.
//!
//! The classes are those of Barrett et al. (OOPSLA 2017), the equivalence is that of Traini et al. (EMSE 2022):
//!
//! - **flat**: every segment is equivalent to the last;
//! - **warm-up**: some are not, and of those none is faster than the steady state;
//! - **slowdown**: one of those is faster;
//! - **no steady state**: the steady part would be shorter than a quarter.
//!
//! **Uncertainty.** The bootstrap within a segment assumes independent iterations; if neighbours are correlated, its
//! interval is too narrow. A cycle longer than the series looks like a drift. Short cycles are not detected: a change
//! must pay for its penalty of 15 ln n, so two levels that are ten times their noise apart must last about 3 ln n
//! iterations each (25 of 2000); shorter ones are one wide level.

use crate::outlier::{self, Outliers};
use crate::random::Random;
use crate::{crops, pelt, quantile};
use serde::{Serialize, Serializer};

/// The default margin within which two levels count as one: 5 %, as in Traini et al.
pub const EQUIVALENCE_MARGIN: f64 = 0.05;
/// Minimum share of iterations in the steady state.
const STEADY_SHARE_MIN: f64 = 0.25;
/// The coefficient of variation from which on the logarithm is segmented.
const LOGARITHM_VARIATION_MIN: f64 = 0.3;
/// Number of resamples of each segment.
const RESAMPLE_COUNT: usize = 1000;
/// The level of the interval of a ratio of segments.
const CONFIDENCE_LEVEL: f64 = 0.95;

/// The penalty of a changepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Penalty {
    /// The same for every series of a given length: [`pelt::penalty`].
    #[default]
    Fixed,
    /// Derived from the series itself: [`crops::changepoints`].
    Elbow,
}

impl Penalty {
    /// The values of `--penalty`.
    pub const CHOICES: [(&'static str, &'static str, Self); 2] = [
        ("fixed", "15 ln n for every series of n iterations", Self::Fixed),
        (
            "crops",
            "Chosen for each series (CROPS): the elbow over all penalties from 4 ln n up. Finds smaller and shorter changes, and some \
             that are noise",
            Self::Elbow,
        ),
    ];

    /// The name in results: `15 ln n`, or `the elbow of CROPS`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "15 ln n",
            Self::Elbow => "the elbow of CROPS",
        }
    }

    fn changepoints(self, values: &[f64]) -> Option<Vec<usize>> {
        let n = values.len();
        match self {
            Self::Fixed => pelt::changepoints(values, pelt::penalty(n), pelt::segment_values_min(n)),
            Self::Elbow => crops::changepoints(values),
        }
    }
}

/// Behaviour of a process over its iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// One level from the first iteration on.
    Flat,
    /// It became faster, then steady.
    Warmup,
    /// It became slower, then steady.
    Slowdown,
    /// It did not become steady.
    NoSteadyState,
}

impl Class {
    /// Its name in results: `flat`, `warmup`, `slowdown`, `no steady state`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Warmup => "warmup",
            Self::Slowdown => "slowdown",
            Self::NoSteadyState => "no steady state",
        }
    }
}

/// Iterations at one level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// Its first iteration, counted from 0.
    pub start: usize,
    /// The iteration after its last.
    pub end: usize,
    /// Mean time of its iterations without the flagged ones, in the unit of the input.
    pub mean: f64,
    /// Whether its mean was shown to be equivalent to that of the last segment; true for the last one.
    pub matches_last: bool,
}

/// A classified process.
#[derive(Debug, Clone, PartialEq)]
pub struct Classification {
    pub class: Class,
    /// The first steady iteration, counted from 0; `None` without a steady state.
    pub from: Option<usize>,
    /// The segments in order, from 0 to n without gaps.
    pub segments: Vec<Segment>,
    /// The iterations excluded from segmentation.
    pub outliers: Outliers,
}

impl Classification {
    /// The iterations used for an estimate: the steady ones with their outliers, or all if there is no steady state
    /// (which must be reported with the estimate). `times` are those that were classified.
    pub fn part<'a>(&self, times: &'a [f64]) -> &'a [f64] {
        times.get(self.from.unwrap_or(0)..).unwrap_or(times)
    }
}

/// Classifies the iteration times of one process, in order (any unit, all positive). `equivalence` is the margin (> 0) within
/// which two levels are one, such as [`EQUIVALENCE_MARGIN`]; `penalty` is that of a changepoint. `None` if there are
/// fewer than [`outlier::ITERATIONS_MIN`] iterations, one is not positive and finite, or the margin is not.
pub fn classify(times: &[f64], equivalence: f64, penalty: Penalty, seed: u64) -> Option<Classification> {
    let positive = |x: f64| x.is_finite() && x > 0.0;
    if !positive(equivalence) || !times.iter().all(|t| positive(*t)) {
        return None;
    }
    let outliers = outlier::flag_outliers(times)?;
    let mut flags = outliers.flagged.iter().peekable();
    // The remaining iterations, by their index in the series.
    let kept: Vec<usize> = (0..times.len()).filter(|i| flags.next_if_eq(&i).is_none()).collect();
    let values: Vec<f64> = kept.iter().map(|i| times[*i]).collect();
    let n = values.len();
    let mean = crate::mean(&values);
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
    let points = if variance.sqrt() > LOGARITHM_VARIATION_MIN * mean {
        let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
        penalty.changepoints(&logs)?
    } else {
        penalty.changepoints(&values)?
    };
    let edges: Vec<usize> = std::iter::once(0).chain(points).chain([n]).collect();
    let parts: Vec<&[f64]> = edges.windows(2).map(|e| &values[e[0]..e[1]]).collect();
    let as_last = equivalent_to_last(&parts, equivalence, seed)?;
    // A flagged iteration belongs to the segment before it.
    let place = |edge: usize| if edge == 0 { 0 } else { kept.get(edge).map_or(times.len(), |i| *i) };
    let segments: Vec<Segment> = edges
        .windows(2)
        .zip(&parts)
        .zip(as_last)
        .map(|((edge, part), as_last)| Segment {
            start: place(edge[0]),
            end: place(edge[1]),
            mean: crate::mean(part),
            matches_last: as_last,
        })
        .collect();
    let steady = segments.iter().rposition(|s| !s.matches_last).map_or(0, |i| i + 1);
    let from = segments.get(steady)?.start;
    let class = if steady == 0 {
        Class::Flat
    } else if ((times.len() - from) as f64) < STEADY_SHARE_MIN * times.len() as f64 {
        Class::NoSteadyState
    } else {
        let level = weighted_mean(&segments[steady..]);
        let faster = segments[..steady].iter().any(|s| !s.matches_last && s.mean < level);
        if faster { Class::Slowdown } else { Class::Warmup }
    };
    Some(Classification { class, from: (class != Class::NoSteadyState).then_some(from), segments, outliers })
}

/// The mean over segments, weighted by length.
fn weighted_mean(segments: &[Segment]) -> f64 {
    let length = |s: &Segment| (s.end - s.start) as f64;
    segments.iter().map(|s| s.mean * length(s)).sum::<f64>() / segments.iter().map(length).sum::<f64>()
}

/// For each part, whether the interval of the ratio of its mean to that of the last lies within the margin.
fn equivalent_to_last(parts: &[&[f64]], margin: f64, seed: u64) -> Option<Vec<bool>> {
    let mut random = Random::new(seed);
    let mut resampled = |part: &[f64]| -> Vec<f64> {
        let n = part.len() as u64;
        let one = |random: &mut Random| (0..n).map(|_| part[random.below(n) as usize]).sum::<f64>() / n as f64;
        (0..RESAMPLE_COUNT).map(|_| one(&mut random)).collect()
    };
    let (last, before) = parts.split_last()?;
    let of_last = if before.is_empty() { Vec::new() } else { resampled(last) };
    let mut result = Vec::with_capacity(parts.len());
    for part in before {
        let mut ratios: Vec<f64> = resampled(part).iter().zip(&of_last).map(|(a, b)| a / b).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let low = quantile::of_sorted(&ratios, (1.0 - CONFIDENCE_LEVEL) / 2.0)?;
        let high = quantile::of_sorted(&ratios, (1.0 + CONFIDENCE_LEVEL) / 2.0)?;
        result.push(low >= 1.0 / (1.0 + margin) && high <= 1.0 + margin);
    }
    result.push(true);
    Some(result)
}

/// Whether the processes of a cell behave alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// All are of this class.
    Consistent(Class),
    /// They are of several classes: a single number describes none of them.
    Inconsistent,
}

impl Serialize for Consistency {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl Consistency {
    /// The name in results: that of the class, or `inconsistent`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Consistent(class) => class.name(),
            Self::Inconsistent => "inconsistent",
        }
    }
}

/// Whether these processes are of one class; `None` if there is none.
pub fn consistency(classes: &[Class]) -> Option<Consistency> {
    let (first, rest) = classes.split_first()?;
    let same = rest.iter().all(|c| c == first);
    Some(if same { Consistency::Consistent(*first) } else { Consistency::Inconsistent })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::Noise;

    /// This many iterations about each level, with this relative noise.
    fn series(parts: &[(usize, f64)], noise: f64, seed: u64) -> Vec<f64> {
        let mut source = Noise::new(seed);
        let mut around = |level: f64| level * (1.0 + noise * source.normal());
        parts.iter().flat_map(|(n, level)| (0..*n).map(|_| around(*level)).collect::<Vec<_>>()).collect()
    }

    fn class(times: &[f64]) -> (Class, Option<usize>) {
        let s = classify(times, EQUIVALENCE_MARGIN, Penalty::Fixed, 1).unwrap();
        (s.class, s.from)
    }

    /// Whether it is of this class, and steady from about this iteration on.
    fn is_class(times: &[f64], class: Class, from: usize) -> bool {
        let s = classify(times, EQUIVALENCE_MARGIN, Penalty::Fixed, 1).unwrap();
        s.class == class && s.from.is_some_and(|f| f.abs_diff(from) <= 1)
    }

    /// The shapes of Traini's data, each with twenty different noises, as short as native runs and as long as JVM runs.
    #[test]
    fn every_shape_is_classified() {
        for (seed, long) in (0..20).flat_map(|s| [(s, 1), (s, 10)]) {
            let of = |parts: &[(usize, f64)]| {
                let parts: Vec<_> = parts.iter().map(|(n, level)| (n * long, *level)).collect();
                series(&parts, 0.01, seed)
            };
            assert!(is_class(&of(&[(60, 10.0)]), Class::Flat, 0));
            assert!(is_class(&of(&[(10, 16.0), (15, 12.0), (60, 10.0)]), Class::Warmup, 25 * long));
            assert!(is_class(&of(&[(30, 10.0), (40, 11.5)]), Class::Slowdown, 30 * long));
            assert!(
                is_class(&of(&[(10, 16.0), (20, 9.0), (40, 10.0)]), Class::Slowdown, 30 * long),
                "it was faster before"
            );
            let cycle: Vec<_> = (0..6).map(|i| (20, 10.0 + 2.0 * f64::from(i % 2))).collect();
            assert_eq!(class(&of(&cycle)), (Class::NoSteadyState, None));
            let drift: Vec<_> = (0..6).map(|i| (20, 10.0 + f64::from(i))).collect();
            assert_eq!(class(&of(&drift)), (Class::NoSteadyState, None));
        }
    }

    /// The module documentation's statement about short cycles.
    #[test]
    fn only_long_cycles_are_segmented() {
        let cycle =
            |length: usize| (0..2000 / length).map(|i| (length, 10.0 + 2.0 * (i % 2) as f64)).collect::<Vec<_>>();
        assert_eq!(class(&series(&cycle(40), 0.01, 1)).0, Class::NoSteadyState);
        assert_eq!(class(&series(&cycle(10), 0.01, 1)).0, Class::Flat);
    }

    #[test]
    fn change_below_margin_stays_flat() {
        let times = series(&[(200, 10.2), (200, 10.0)], 0.003, 2);
        let s = classify(&times, EQUIVALENCE_MARGIN, Penalty::Fixed, 1).unwrap();
        assert_eq!((s.class, s.from, s.segments.len()), (Class::Flat, Some(0), 2), "{s:?}");
        assert_eq!(
            classify(&times, 0.01, Penalty::Fixed, 1).unwrap().class,
            Class::Warmup,
            "with a margin of 1 % it does"
        );
    }

    /// A staircase of steps of 1.3 times the noise: mostly too small for 15 ln n, but clearly visible.
    #[test]
    fn elbow_detects_smaller_changes() {
        let segments = |penalty: Penalty, seed: u64| {
            let times = series(&[(40, 10.0), (40, 10.13), (40, 10.26)], 0.01, seed);
            classify(&times, EQUIVALENCE_MARGIN, penalty, 1).unwrap().segments.len()
        };
        let all: Vec<_> = (0..20).map(|s| (segments(Penalty::Fixed, s), segments(Penalty::Elbow, s))).collect();
        assert!(all.iter().filter(|(fixed, elbow)| elbow > fixed).count() >= 3, "{all:?}");
    }

    #[test]
    fn spikes_are_flagged_without_ending_steady_state() {
        let mut times = series(&[(400, 10.0)], 0.01, 3);
        let spikes = [37, 111, 205, 290, 371];
        spikes.iter().for_each(|i| times[*i] *= 3.0);
        let s = classify(&times, EQUIVALENCE_MARGIN, Penalty::Fixed, 1).unwrap();
        assert_eq!((s.class, s.segments.len()), (Class::Flat, 1), "{s:?}");
        assert!(spikes.iter().all(|i| s.outliers.flagged.contains(i)), "{s:?}");
        assert_eq!(s.part(&times), times, "the estimate is made of all of them");
        assert!((0.03..0.04).contains(&s.outliers.share_of_time), "5 x 30 of 4,100: {s:?}");
    }

    #[test]
    fn single_cold_iteration_is_warm_up() {
        for n in [30, 300] {
            let mut times = series(&[(n, 10.0)], 0.01, 4);
            times[0] = 50.0;
            let s = classify(&times, EQUIVALENCE_MARGIN, Penalty::Fixed, 1).unwrap();
            assert!(s.class == Class::Warmup && s.from.is_some_and(|f| (1..=5).contains(&f)), "{s:?}");
            assert!(s.part(&times).iter().all(|t| *t < 20.0));
        }
    }

    #[test]
    fn steady_part_covers_last_quarter() {
        assert!(is_class(&series(&[(290, 15.0), (110, 10.0)], 0.01, 5), Class::Warmup, 290));
        assert_eq!(class(&series(&[(310, 15.0), (90, 10.0)], 0.01, 5)), (Class::NoSteadyState, None));
    }

    #[test]
    fn wide_range_is_segmented_by_logarithm() {
        // Levels of 1000 and 10: the noise is a hundred times as wide at the start.
        let s =
            classify(&series(&[(100, 1000.0), (300, 10.0)], 0.05, 6), EQUIVALENCE_MARGIN, Penalty::Fixed, 1).unwrap();
        assert!(s.class == Class::Warmup && s.segments.len() == 2 && s.from == Some(100), "{s:?}");
    }

    #[test]
    fn processes_of_one_class_are_consistent() {
        assert_eq!(consistency(&[Class::Flat; 3]), Some(Consistency::Consistent(Class::Flat)));
        let mixed = consistency(&[Class::Flat, Class::Warmup]).unwrap();
        assert_eq!((mixed, mixed.name()), (Consistency::Inconsistent, "inconsistent"));
        assert_eq!(consistency(&[]), None);
    }

    #[test]
    fn invalid_input_is_refused() {
        let times = series(&[(20, 10.0)], 0.01, 7);
        assert!(classify(&times, EQUIVALENCE_MARGIN, Penalty::Fixed, 1).is_some());
        assert_eq!(classify(&times[..outlier::ITERATIONS_MIN - 1], EQUIVALENCE_MARGIN, Penalty::Fixed, 1), None);
        assert_eq!(classify(&times, 0.0, Penalty::Fixed, 1), None);
        assert_eq!(classify(&times, f64::NAN, Penalty::Fixed, 1), None);
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut times = times.clone();
            times[3] = wrong;
            assert_eq!(classify(&times, EQUIVALENCE_MARGIN, Penalty::Fixed, 1), None, "{wrong}");
        }
    }
}
