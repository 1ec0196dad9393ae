//! Does a process reach a steady state, and from which iteration on?
//!
//! A just-in-time compiler makes a process faster while it runs, a filling cache or a hot chip slower. A mean over both
//! states describes neither. So the iterations of a process are cut into segments of one level ([`crate::pelt`]; outliers
//! are left out, see [`crate::outlier`]; on the logarithm if the coefficient of variation exceeds 0.3, since long times
//! then also spread more), and each segment is compared with the last one. The segments that are equivalent to the last,
//! without a gap, up to the end, are the steady state, if together they hold a quarter of the iterations or more.
//!
//! **Equivalent** means shown to be so: the bootstrap interval (0.95) of the ratio of the two segments' means lies within
//! 1 / (1 + margin) to 1 + margin. Not being told apart is not enough, so a short and noisy segment ends the steady state.
//!
//! The classes are those of Barrett et al. (OOPSLA 2017), the equivalence is that of Traini et al. (EMSE 2022):
//!
//! - **flat**: every segment is equivalent to the last;
//! - **warm-up**: some are not, and of those none is faster than the steady state;
//! - **slowdown**: one of those is faster;
//! - **no steady state**: the steady part would be shorter than a quarter.
//!
//! **Uncertainty.** The bootstrap within a segment supposes independent iterations; where neighbours are alike, it
//! believes too much. A cycle longer than the series looks like a drift, one within ± the margin like nothing.

use crate::outlier::{self, Outliers};
use crate::random::Random;
use crate::{pelt, quantile};

/// The margin within which two levels count as one, if nobody says otherwise: 5 %, as in Traini et al.
pub const EQUIVALENCE: f64 = 0.05;
/// The share of the iterations that the steady state must hold.
const SHARE: f64 = 0.25;
/// The coefficient of variation from which on the logarithm is segmented.
const SKEWED: f64 = 0.3;
/// Resamples of each segment.
const RESAMPLES: usize = 1000;
/// The level of the interval of a ratio of segments.
const LEVEL: f64 = 0.95;

/// What a process did over its iterations.
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
    /// Whether its mean was shown to be that of the last segment; the last is.
    pub as_last: bool,
}

/// A process, classified.
#[derive(Debug, Clone, PartialEq)]
pub struct Steady {
    /// What it did.
    pub class: Class,
    /// The first steady iteration, counted from 0; `None` without a steady state.
    pub from: Option<usize>,
    /// The segments in order, from 0 to n without gaps.
    pub segments: Vec<Segment>,
    /// The iterations that segmentation left out.
    pub outliers: Outliers,
}

impl Steady {
    /// The iterations that an estimate is made of: the steady ones with their outliers, or all if there is no steady
    /// state (then say so beside the estimate). `times` are those that were classified.
    pub fn part<'a>(&self, times: &'a [f64]) -> &'a [f64] {
        times.get(self.from.unwrap_or(0)..).unwrap_or(times)
    }
}

/// Classifies the iteration times of one process, in their order (any unit, all positive). `equivalence` is the margin
/// (> 0) within which two levels are one, such as [`EQUIVALENCE`]. `None` if there are fewer than [`outlier::LEAST`]
/// iterations, one is not positive and finite, or the margin is not.
pub fn classify(times: &[f64], equivalence: f64, seed: u64) -> Option<Steady> {
    let positive = |x: f64| x.is_finite() && x > 0.0;
    if !positive(equivalence) || !times.iter().all(|t| positive(*t)) {
        return None;
    }
    let outliers = outlier::flag(times)?;
    let mut flags = outliers.flagged.iter().peekable();
    // The iterations that are looked at, by their place in the series.
    let kept: Vec<usize> = (0..times.len()).filter(|i| flags.next_if_eq(&i).is_none()).collect();
    let values: Vec<f64> = kept.iter().map(|i| times[*i]).collect();
    let n = values.len();
    let mean = crate::mean(&values);
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
    let points = if variance.sqrt() > SKEWED * mean {
        let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
        pelt::changepoints(&logs, pelt::penalty(n), pelt::shortest(n))?
    } else {
        pelt::changepoints(&values, pelt::penalty(n), pelt::shortest(n))?
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
            as_last,
        })
        .collect();
    let steady = segments.iter().rposition(|s| !s.as_last).map_or(0, |i| i + 1);
    let from = segments.get(steady)?.start;
    let class = if steady == 0 {
        Class::Flat
    } else if ((times.len() - from) as f64) < SHARE * times.len() as f64 {
        Class::NoSteadyState
    } else {
        let level = level(&segments[steady..]);
        let faster = segments[..steady].iter().any(|s| !s.as_last && s.mean < level);
        if faster { Class::Slowdown } else { Class::Warmup }
    };
    Some(Steady { class, from: (class != Class::NoSteadyState).then_some(from), segments, outliers })
}

/// The mean over segments, each by its length.
fn level(segments: &[Segment]) -> f64 {
    let length = |s: &Segment| (s.end - s.start) as f64;
    segments.iter().map(|s| s.mean * length(s)).sum::<f64>() / segments.iter().map(length).sum::<f64>()
}

/// For each part, whether the interval of the ratio of its mean to that of the last lies within the margin.
fn equivalent_to_last(parts: &[&[f64]], margin: f64, seed: u64) -> Option<Vec<bool>> {
    let mut random = Random::new(seed);
    let mut resampled = |part: &[f64]| -> Vec<f64> {
        let n = part.len() as u64;
        let one = |random: &mut Random| (0..n).map(|_| part[random.below(n) as usize]).sum::<f64>() / n as f64;
        (0..RESAMPLES).map(|_| one(&mut random)).collect()
    };
    let (last, before) = parts.split_last()?;
    let of_last = if before.is_empty() { Vec::new() } else { resampled(last) };
    let mut result = Vec::with_capacity(parts.len());
    for part in before {
        let mut ratios: Vec<f64> = resampled(part).iter().zip(&of_last).map(|(a, b)| a / b).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let low = quantile::of_sorted(&ratios, (1.0 - LEVEL) / 2.0)?;
        let high = quantile::of_sorted(&ratios, (1.0 + LEVEL) / 2.0)?;
        result.push(low >= 1.0 / (1.0 + margin) && high <= 1.0 + margin);
    }
    result.push(true);
    Some(result)
}

/// Whether the processes of a cell do the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// All are of this class.
    Consistent(Class),
    /// They are of several classes: one number for all of them describes none.
    Inconsistent,
}

impl Consistency {
    /// Its name in results: that of the class, or `inconsistent`.
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
