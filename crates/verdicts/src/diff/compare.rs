//! Turns two series into differences with intervals and a verdict. Pure arithmetic on sums of stretches.
//!
//! **The verdict.** A machine that is busy for a minute makes everything in one recording slower, and nothing within that
//! recording shows it: on the machine where this was written, two recordings of the very same INSERTs took 12.4 and 15.4 ms each,
//! each with a narrow interval. What such a minute does not change is *the work done*. So a verdict of faster or slower requires
//! three things:
//!
//! 1. the interval of the ratio of the times excludes 1, and the ratio itself is beyond the margin ([`stats::verdict`]);
//! 2. the time of phases that **did different work** (other numbers of calls, bytes, bios, flushes, rows) differs in the same
//!    direction, and its interval excludes 0;
//! 3. that time alone makes one slower than the other by more than the margin.
//!
//! Times that differ although all the work is the same are *inconclusive*: one recording of each cannot distinguish a slower
//! device from a busier machine. `fathom bench` can, with fresh processes in random order.

use super::basis::Basis;
use super::contract::{Contribution, CountDifference, Delta, Medians, Times};
use super::phase::Phase;
use super::series::{CountKey, Part, Place, Statement, Sums, Work};
use model::{Layer, Reason};
use stats::stretches::{Draws, STRETCH_COUNT, resample_sum, stretch_index};
use stats::verdict::{Better, MARGIN_DEFAULT, Verdict, judge};
use stats::{Estimate, quantile};
use std::collections::{BTreeMap, BTreeSet};

/// Confidence level of the intervals.
const CONFIDENCE_LEVEL: f64 = 0.95;
/// The seed of all draws: the same recordings give the same intervals.
const DRAWS_SEED: u64 = 2026;
/// Relative difference, with respect to the larger count, from which on counts differ: flushes and bios of equal runs
/// vary by some percent.
const COUNT_DIFFERENCE_MIN: f64 = 0.1;

/// Bootstrap draws for every number of stretches that has an interval.
pub struct DrawsByCount(Vec<Option<Draws>>);

impl Default for DrawsByCount {
    fn default() -> Self {
        Self((0..=STRETCH_COUNT).map(|n| Draws::new(n, DRAWS_SEED)).collect())
    }
}

/// A part of both recordings, restricted to the stretches with executions in both.
pub struct PairedParts<'a> {
    parts: [&'a Part; 2],
    used: Vec<usize>,
    draws: Option<&'a Draws>,
}

/// The verdict on the times of two parts, with the difference broken down.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// The reason for it.
    pub why: String,
    pub times: Times,
    /// The difference of phases that did different work.
    pub different_work: Option<Delta>,
    /// The difference by phase and layer; with shares only if the verdict is faster or slower.
    pub contributions: Vec<Contribution>,
    pub phases: Vec<Contribution>,
    pub layers: Vec<Contribution>,
}

fn bounds(estimate: &Estimate) -> [f64; 2] {
    [estimate.low, estimate.high]
}

impl<'a> PairedParts<'a> {
    /// Pairs two parts.
    pub fn new(a: &'a Part, b: &'a Part, lots: &'a DrawsByCount) -> Self {
        let used: Vec<usize> = (0..STRETCH_COUNT).filter(|&i| a.executions[i] > 0.0 && b.executions[i] > 0.0).collect();
        let draws = lots.0.get(used.len()).and_then(Option::as_ref);
        Self { parts: [a, b], used, draws }
    }

    fn values(&self, sums: Option<&Sums>) -> Sums {
        self.used.iter().map(|&i| sums.map_or(0.0, |sums| sums[i])).collect()
    }

    /// Returns B minus A of two sums, with its interval.
    fn delta(&self, a: Option<&Sums>, b: Option<&Sums>) -> (f64, Option<[f64; 2]>) {
        let difference: Sums = self.values(b).iter().zip(self.values(a)).map(|(b, a)| b - a).collect();
        let value: f64 = difference.iter().sum();
        if difference.iter().all(|d| *d == 0.0) {
            return (0.0, self.draws.map(|_| [0.0, 0.0]));
        }
        (
            value,
            self.draws
                .and_then(|draws| draws.estimate(CONFIDENCE_LEVEL, |t| resample_sum(t, &difference)))
                .as_ref()
                .map(bounds),
        )
    }

    /// The same per execution.
    fn delta_each(&self, a: Option<&Sums>, b: Option<&Sums>) -> (f64, Option<[f64; 2]>) {
        let difference: Sums = self.values(b).iter().zip(self.values(a)).map(|(b, a)| b - a).collect();
        let executions = self.values(Some(&self.parts[0].executions));
        let all: f64 = executions.iter().sum();
        if difference.iter().all(|d| *d == 0.0) {
            return (0.0, self.draws.map(|_| [0.0, 0.0]));
        }
        let estimate = self.draws.and_then(|d| {
            d.estimate(CONFIDENCE_LEVEL, |t| resample_sum(t, &difference) / resample_sum(t, &executions))
        });
        (difference.iter().sum::<f64>() / all.max(1.0), estimate.as_ref().map(bounds))
    }

    fn ratio(&self) -> Option<Estimate> {
        let [a, b] = self.parts.map(|part| self.values(Some(&part.latency_ns)));
        self.draws?.estimate(CONFIDENCE_LEVEL, |t| resample_sum(t, &b) / resample_sum(t, &a))
    }

    fn times(&self) -> Times {
        let [a, b] = self.parts.map(|part| part.latency_ns.iter().sum::<f64>());
        let (delta_ns, interval) = self.delta(Some(&self.parts[0].latency_ns), Some(&self.parts[1].latency_ns));
        let ratio = self.ratio();
        Times {
            a: a as u64,
            b: b as u64,
            delta_ns,
            interval,
            ratio: Some(b / a).filter(|r| r.is_finite()),
            ratio_interval: ratio.as_ref().map(bounds),
        }
    }

    /// Whether two sums differ by more than chance, and by more than the band.
    fn differ(&self, a: Option<&Sums>, b: Option<&Sums>) -> bool {
        let total = |sums: Option<&Sums>| self.values(sums).iter().sum::<f64>();
        let (x, y) = (total(a), total(b));
        let (_, interval) = self.delta(a, b);
        (y - x).abs() > COUNT_DIFFERENCE_MIN * x.max(y) && interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
    }

    /// Returns the phases that did different work.
    fn differing_phases(&self) -> BTreeSet<Phase> {
        let [a, b] = self.parts.map(|part| &part.work);
        let keys: BTreeSet<&(Phase, Work)> = a.keys().chain(b.keys()).collect();
        keys.into_iter().filter(|key| self.differ(a.get(key), b.get(key))).map(|(phase, _)| *phase).collect()
    }

    /// Returns the times of both, grouped by a property of their places.
    fn grouped<K: Ord + Copy>(&self, key: impl Fn(&Place) -> Option<K>) -> BTreeMap<K, [Sums; 2]> {
        let mut groups: BTreeMap<K, [Sums; 2]> = BTreeMap::new();
        for (side, part) in self.parts.iter().enumerate() {
            for (place, sums) in &part.times {
                let Some(key) = key(place) else { continue };
                let group = groups.entry(key).or_insert_with(|| [vec![0.0; STRETCH_COUNT], vec![0.0; STRETCH_COUNT]]);
                group[side].iter_mut().zip(sums).for_each(|(to, x)| *to += x);
            }
        }
        groups
    }

    /// Judges the times and breaks down the difference.
    pub fn judge_times(&self, basis: &Basis) -> Judgement {
        let times = self.times();
        let different = self.differing_phases();
        let moved = self.grouped(|place| different.contains(&place.phase).then_some(()));
        let (delta_ns, interval) = self.delta(moved.get(&()).map(|g| &g[0]), moved.get(&()).map(|g| &g[1]));
        let different_work = interval.map(|interval| Delta { delta_ns, interval });
        let (verdict, why) = basis.verdict(self.verdict(&times, different_work.as_ref()));
        let decided = matches!(verdict, Verdict::Faster | Verdict::Slower);
        let share = |delta: f64| Some(delta / times.delta_ns).filter(|share| decided && share.is_finite());
        let row = |phase: Option<Phase>, layer: Option<(Layer, Reason)>, [a, b]: &[Sums; 2]| {
            let (delta_ns, interval) = self.delta(Some(a), Some(b));
            Contribution {
                phase: phase.map(|phase| phase.to_string()),
                layer: layer.map(|(layer, _)| layer),
                reason: layer.map(|(_, reason)| reason),
                a_ns: self.values(Some(a)).iter().sum(),
                b_ns: self.values(Some(b)).iter().sum(),
                delta_ns,
                interval,
                share: share(delta_ns),
                different_work: phase.map(|phase| different.contains(&phase)),
            }
        };
        // The largest contributions to the difference first; those in the opposite direction last.
        let way = if times.delta_ns < 0.0 { -1.0 } else { 1.0 };
        let sorted = |mut rows: Vec<Contribution>| {
            rows.sort_by(|p, q| (way * q.delta_ns).total_cmp(&(way * p.delta_ns)));
            rows
        };
        let places = self.grouped(|place| Some(*place));
        let phases = self.grouped(|place| Some(place.phase));
        let layers = self.grouped(|place| Some(place.layer));
        Judgement {
            verdict,
            why,
            contributions: sorted(places.iter().map(|(p, sums)| row(Some(p.phase), p.layer, sums)).collect()),
            phases: sorted(phases.iter().map(|(phase, sums)| row(Some(*phase), None, sums)).collect()),
            layers: sorted(layers.iter().map(|(layer, sums)| row(None, *layer, sums)).collect()),
            times,
            different_work,
        }
    }

    fn verdict(&self, times: &Times, different: Option<&Delta>) -> (Verdict, String) {
        let inconclusive = |why: &str| (Verdict::Inconclusive, why.to_owned());
        let Some(ratio) = self.ratio() else {
            return inconclusive("too few executions for an interval: fewer than six of any statement");
        };
        let verdict = judge(&ratio, Better::Lower, MARGIN_DEFAULT);
        match verdict {
            Verdict::Equivalent => return (verdict, "the times differ by no more than the margin".into()),
            Verdict::Inconclusive | Verdict::Disturbed => {
                return inconclusive("the times vary too much to distinguish the difference from chance");
            }
            Verdict::Faster | Verdict::Slower => {}
        }
        let moved = different.filter(|delta| {
            let same_way = delta.delta_ns * times.delta_ns > 0.0;
            let [low, high] = delta.interval;
            let alone = delta.delta_ns.abs() > MARGIN_DEFAULT * times.a.min(times.b) as f64;
            same_way && alone && (low > 0.0 || high < 0.0)
        });
        match moved {
            Some(_) => {
                (verdict, "phases that did different work account for it, or for a part beyond the margin".into())
            }
            None => inconclusive(
                "the times differ, but not in phases that did different work: with one recording of each, a slower device or program \
                 cannot be distinguished from a busier machine",
            ),
        }
    }

    /// Returns the counts of both, from the application down.
    pub fn counts(&self) -> Vec<CountDifference> {
        let [a, b] = self.parts.map(|part| &part.counts);
        let [all_a, all_b] = self.parts.map(|part| part.executions.iter().sum::<f64>().max(1.0));
        let keys: BTreeSet<&CountKey> = a.keys().chain(b.keys()).collect();
        let count = |key: &CountKey| {
            let (x, y) = (a.get(key), b.get(key));
            let mean = |sums: Option<&Sums>, all: f64| sums.map_or(0.0, |sums| sums.iter().sum::<f64>() / all);
            let (delta, interval) = self.delta_each(x, y);
            CountDifference {
                layer: key.layer,
                name: key.name.into(),
                unit: key.unit,
                file: key.file.map(|kind| kind.name().to_owned()).filter(|name| !name.is_empty()),
                a: mean(x, all_a),
                b: mean(y, all_b),
                delta,
                interval,
                differs: self.differ(x, y),
            }
        };
        keys.into_iter().map(count).collect()
    }
}

/// Computes the medians of the latencies. The interval of their ratio is computed from stretches: the median of the ratios of
/// their medians, in logarithms, so that it is the reciprocal if both are swapped.
pub fn medians(a: &Statement, b: &Statement, lots: &DrawsByCount) -> Medians {
    let median = |latencies: &[u64]| {
        let values: Vec<f64> = latencies.iter().map(|&ns| ns as f64).collect();
        quantile::of_unsorted(&values, 0.5)
    };
    let count = a.latencies.len().min(b.latencies.len());
    let stretches = count.min(STRETCH_COUNT);
    let mut ratios = Vec::with_capacity(stretches);
    let mut from = 0;
    for s in 0..stretches {
        let to = (from..count).find(|&place| stretch_index(place, count, stretches) > s).unwrap_or(count);
        let [x, y] = [a, b].map(|side| median(&side.latencies[from..to]).unwrap_or(0.0).max(1.0).ln());
        ratios.push(y - x);
        from = to;
    }
    let middle = |times: &[u32]| {
        let mut values: Vec<f64> =
            ratios.iter().zip(times).flat_map(|(r, n)| std::iter::repeat_n(*r, *n as usize)).collect();
        values.sort_unstable_by(f64::total_cmp);
        quantile::of_sorted(&values, 0.5).unwrap_or(f64::NAN)
    };
    let estimate =
        lots.0.get(stretches).and_then(Option::as_ref).and_then(|draws| draws.estimate(CONFIDENCE_LEVEL, middle));
    let whole = |latencies: &[u64]| median(latencies).map_or(0, |ns| ns.round() as u64);
    Medians {
        a: whole(&a.latencies),
        b: whole(&b.latencies),
        ratio: estimate.map(|e| e.value.exp()),
        ratio_interval: estimate.map(|e| [e.low.exp(), e.high.exp()]),
    }
}
