//! Thousands of simulated experiments with known true values: how often does the method find them?
//!
//! The noise is not only normal. [`SHAPES`] are the effects of machines on processes: tails, disturbances, drifts, steps, modes.
//! Each is scaled so that its middle half of processes is about as wide as that of the typical noise (normal, 1.5 % between
//! processes), or as wide as its level says. Everything is seeded, so that every run is the same. The tests in
//! `simulation/tests.rs` verify the method's guarantees with few trials, its module `long` with thousands, and the example
//! `coverage` writes the figures of docs/results/coverage.md:
//!
//! ```sh
//! cargo run --release --package stats --example coverage > docs/results/coverage.md
//! ```

use crate::cells::{Cell, Pairing, ratio, typical_process};
use crate::random::Random;
use crate::verdict::{self, Better, Verdict};
use crate::{fdr, quantile};

/// The level of every interval.
const CONFIDENCE_LEVEL: f64 = 0.95;
/// Default number of blocks of a benchmark: the fewest that detect a difference of 3 % four times out of five for every shape.
pub const BLOCKS_DEFAULT: usize = 16;

/// A source of noise of several distributions.
#[derive(Debug, Clone)]
pub struct Noise(pub Random);

impl Noise {
    /// Creates the source of a seed.
    pub fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// Standard normal (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.0.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.0.unit()).cos()
    }
}

/// The effect of a machine on processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// 1.5 % between processes.
    Normal,
    /// A tail of slow processes, log-normal.
    Lognormal,
    /// A tail so heavy that it has no variance (Pareto, exponent 1.5).
    Pareto,
    /// 7 % of processes are one to two times slower.
    Disturbed,
    /// One process of one of the two cells takes 11 times as long.
    OneOutlier,
    /// The machine becomes 10 % slower from the first block to the last.
    Drift,
    /// At some moment of the run, possibly within a block, it becomes 10 % slower.
    Step,
    /// Two out of five processes are in a mode that is 4 % slower.
    Modes,
    /// Neighbouring iterations of a process are correlated (0.9).
    Correlated,
    /// Exponential waiting, as skewed as queueing times.
    Waiting,
}

pub const SHAPES: [Shape; 10] = [
    Shape::Normal,
    Shape::Lognormal,
    Shape::Pareto,
    Shape::Disturbed,
    Shape::OneOutlier,
    Shape::Drift,
    Shape::Step,
    Shape::Modes,
    Shape::Correlated,
    Shape::Waiting,
];

impl Shape {
    /// The description, for a table.
    pub fn about(self) -> &'static str {
        match self {
            Self::Normal => "normal, 1.5 % between processes",
            Self::Lognormal => "log-normal tail (1.2 % x e^z)",
            Self::Pareto => "Pareto tail, exponent 1.5 (no variance)",
            Self::Disturbed => "normal, and 7 % of processes one to two times slower",
            Self::OneOutlier => "normal, and one process 11 times slower",
            Self::Drift => "normal, and a drift of 10 % over the run",
            Self::Step => "normal, and a step of 10 % somewhere in the run",
            Self::Modes => "two modes 4 % apart (3 : 2), 0.7 % within",
            Self::Correlated => "iterations alike (lag 1: 0.9), 0.8 % between processes",
            Self::Waiting => "exponential waiting of 1.5 %",
        }
    }

    /// Whether the machine differs between the start and the end of the run.
    pub fn changes_over_time(self) -> bool {
        matches!(self, Self::Drift | Self::Step)
    }

    /// The time of a process that begins at `at` (0 to 1) of a run whose step, if any, is at `step`.
    fn process_time(self, at: f64, step: f64, noise: &mut Noise) -> f64 {
        let usual = |noise: &mut Noise| 1.0 + 0.015 * noise.normal();
        match self {
            Self::Normal | Self::OneOutlier => usual(noise),
            Self::Lognormal => 1.0 + 0.012 * noise.normal().exp(),
            Self::Pareto => 1.0 + 0.01 * ((1.0 - noise.0.unit()).powf(-1.0 / 1.5) - 1.0),
            Self::Disturbed => {
                let slower = if noise.0.unit() < 0.07 { 1.0 + noise.0.unit() } else { 1.0 };
                usual(noise) * slower
            }
            Self::Drift => usual(noise) * (1.0 + 0.1 * at),
            Self::Step => usual(noise) * if at > step { 1.1 } else { 1.0 },
            Self::Modes => (1.0 + 0.007 * noise.normal()) * if noise.0.unit() < 0.4 { 1.04 } else { 1.0 },
            Self::Correlated => {
                let level = 1.0 + 0.008 * noise.normal();
                let mut away = noise.normal();
                let iterations = (0..30).map(|_| {
                    away = 0.9 * away + (1.0 - 0.81_f64).sqrt() * noise.normal();
                    level * (1.0 + 0.015 * away)
                });
                iterations.sum::<f64>() / 30.0
            }
            Self::Waiting => 1.0 - 0.015 * (1.0 - noise.0.unit()).ln(),
        }
    }
}

/// The times of the processes of two cells, block by block, with the true values.
#[derive(Debug, Clone)]
pub struct PairedTimes {
    /// Times of the first cell, whose processes take `ratio` times as long.
    pub a: Vec<f64>,
    /// Times of the second cell.
    pub b: Vec<f64>,
    step: f64,
}

/// Simulates a run of this many blocks, in each of which the order of the cells is random.
pub fn simulate_run(shape: Shape, blocks: usize, ratio: f64, noise: &mut Noise) -> PairedTimes {
    let step = noise.0.unit();
    let (mut a, mut b) = (Vec::with_capacity(blocks), Vec::with_capacity(blocks));
    for block in 0..blocks {
        let a_first = noise.0.below(2) == 0;
        let at = |first: bool| (block as f64 + if first { 0.0 } else { 0.5 }) / blocks as f64;
        a.push(ratio * shape.process_time(at(a_first), step, noise));
        b.push(shape.process_time(at(!a_first), step, noise));
    }
    if shape == Shape::OneOutlier {
        let hit = noise.0.below(blocks as u64) as usize;
        let of = if noise.0.below(2) == 0 { &mut a } else { &mut b };
        of[hit] *= 11.0;
    }
    PairedTimes { a, b, step }
}

/// The median time of the processes of `shape`; for a machine that changes, over all moments of a run with the step at the same
/// place as in this run.
fn true_median(shape: Shape, step: f64) -> f64 {
    const TRUTH_PROCESSES: usize = 40_001;
    let mut noise = Noise::new(20_26);
    let times: Vec<f64> =
        (0..TRUTH_PROCESSES).map(|i| shape.process_time(i as f64 / TRUTH_PROCESSES as f64, step, &mut noise)).collect();
    quantile::of_unsorted(&times, 0.5).unwrap_or(f64::NAN)
}

/// How often guarantees were met, as shares of the trials.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coverage {
    /// The cell's interval contained the median of its processes.
    pub cell: f64,
    /// The interval of the ratio contained the true value (3 % in both directions, and none).
    pub ratio: f64,
    /// Something was called faster or slower than itself.
    pub alarms: f64,
    /// A difference of 3 % was detected, with the right sign.
    pub power: f64,
    /// It was detected with the wrong sign.
    pub wrong: f64,
    /// A bound of an interval was outside the measured values.
    pub beyond: f64,
}

/// Simulates one shape: runs of `blocks` blocks, compared by `pairing`, with a margin of 2 %.
pub fn coverage(shape: Shape, blocks: usize, pairing: Pairing, trials: u64, seed: u64) -> Coverage {
    let steady = true_median(shape, 1.0);
    let mut hits = [0_u64; 6];
    for trial in 0..trials {
        let mut noise = Noise::new(seed ^ (trial + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for (of, truly) in [(0, 1.0), (1, 1.03), (2, 1.0 / 1.03)] {
            let mut run = simulate_run(shape, blocks, truly, &mut noise);
            if pairing == Pairing::Unpaired {
                // Another run of the same machine.
                run.b = self::simulate_run(shape, blocks, 1.0, &mut noise).b;
            }
            let (Some(a), Some(b)) = (cell_of_times(&run.a), cell_of_times(&run.b)) else { continue };
            if of == 0 {
                let center = if shape == Shape::Step { true_median(shape, run.step) } else { steady };
                let found = typical_process(&a, CONFIDENCE_LEVEL);
                hits[0] += u64::from(found.is_some_and(|e| e.holds(center)));
                let (least, most) = min_and_max(&run.a);
                hits[5] += u64::from(found.is_some_and(|e| e.low < least || e.high > most));
            }
            let Some(found) = ratio(&a, &b, pairing, CONFIDENCE_LEVEL) else { continue };
            let e = found.ratio;
            hits[1] += u64::from(e.low <= truly * (1.0 + 1e-12) && e.high >= truly * (1.0 - 1e-12));
            let ((a_least, a_most), (b_least, b_most)) = (min_and_max(&run.a), min_and_max(&run.b));
            let slack = 1.0 + 1e-9;
            hits[5] += u64::from(e.low < a_least / b_most / slack || e.high > a_most / b_least * slack);
            let right = [None, Some(Verdict::Slower), Some(Verdict::Faster)][of];
            let adjusted = verdict::judge(&e, Better::Lower, verdict::MARGIN_DEFAULT);
            if matches!(adjusted, Verdict::Faster | Verdict::Slower) {
                hits[match right {
                    None => 2,
                    Some(right) if right == adjusted => 3,
                    Some(_) => 4,
                }] += 1;
            }
        }
    }
    let share = |at: usize, of: u64| hits[at] as f64 / (trials * of) as f64;
    Coverage {
        cell: share(0, 1),
        ratio: share(1, 3),
        alarms: share(2, 1),
        power: share(3, 2),
        wrong: share(4, 2),
        beyond: share(5, 4),
    }
}

fn cell_of_times(times: &[f64]) -> Option<Cell> {
    Cell::new(&times.iter().map(|t| [*t]).collect::<Vec<_>>())
}

fn min_and_max(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::MAX, f64::MIN), |(l, m), v| (l.min(*v), m.max(*v)))
}

/// The errors for a suite of many cells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SuiteErrors {
    /// The mean share of false ones among the differences reported.
    pub false_share: f64,
    /// The share of true differences that were reported.
    pub power: f64,
    /// The same by Holm's procedure.
    pub power_of_holm: f64,
    /// The mean share of intervals, among those of the differences reported and at their adjusted level, that miss the true value.
    pub missed: f64,
}

/// Simulates a suite of `cells`, `differ` of which differ by 3 %, alternating in direction. With `pairing` by blocks, all are
/// compared with one base that ran in the same blocks, so that they depend on each other.
pub fn simulate_suite(
    shape: Shape,
    (cells, differ): (usize, usize),
    blocks: usize,
    pairing: Pairing,
    trials: u64,
    seed: u64,
) -> SuiteErrors {
    let (mut false_share, mut missed, mut told_true, mut holm_true) = (0.0, 0.0, 0_usize, 0_usize);
    for trial in 0..trials {
        let mut noise = Noise::new(seed ^ (trial + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let base = simulate_run(shape, blocks, 1.0, &mut noise).b;
        let truths: Vec<f64> = (0..cells)
            .map(|i| {
                if i >= differ {
                    1.0
                } else if i % 2 == 0 {
                    1.03
                } else {
                    1.0 / 1.03
                }
            })
            .collect();
        let arms: Vec<(Cell, Cell)> = truths
            .iter()
            .filter_map(|truly| {
                let own = simulate_run(shape, blocks, *truly, &mut noise);
                let other = if pairing == Pairing::Blocks { &base } else { &own.b };
                cell_of_times(&own.a).zip(cell_of_times(other))
            })
            .collect();
        let found: Vec<_> = arms.iter().filter_map(|(a, b)| ratio(a, b, pairing, CONFIDENCE_LEVEL)).collect();
        let p: Vec<f64> = found.iter().map(|c| c.p).collect();
        let Some(adjusted) = fdr::adjust(&p, 0.05) else { continue };
        let holm = holm_adjusted(&p);
        let picked: Vec<usize> = (0..found.len()).filter(|i| adjusted.p_values[*i] <= 0.05).collect();
        let is_true = |i: &usize| (found[*i].ratio.value > 1.0) == (truths[*i] > 1.0) && truths[*i] != 1.0;
        let right = picked.iter().filter(|i| is_true(i)).count();
        told_true += right;
        holm_true += (0..found.len()).filter(|i| holm[*i] <= 0.05 && is_true(i)).count();
        if !picked.is_empty() {
            false_share += (picked.len() - right) as f64 / picked.len() as f64;
            let level = adjusted.level.unwrap_or(CONFIDENCE_LEVEL);
            let misses = picked.iter().filter(|i| {
                let again = ratio(&arms[**i].0, &arms[**i].1, pairing, level);
                again.is_none_or(|c| {
                    c.ratio.low > truths[**i] * (1.0 + 1e-12) || c.ratio.high < truths[**i] * (1.0 - 1e-12)
                })
            });
            missed += misses.count() as f64 / picked.len() as f64;
        }
    }
    let all = (trials as usize * differ).max(1) as f64;
    SuiteErrors {
        false_share: false_share / trials as f64,
        power: told_true as f64 / all,
        power_of_holm: holm_true as f64 / all,
        missed: missed / trials as f64,
    }
}

/// Holm's adjusted p values, for comparison: no false one at all, with a probability of 0.95.
fn holm_adjusted(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![0.0; p.len()];
    let mut least = 0.0_f64;
    for (rank, at) in order.iter().enumerate() {
        least = least.max(p[*at] * (p.len() - rank) as f64).min(1.0);
        adjusted[*at] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests;
