//! Numerics: estimates with intervals. Pure and seeded: the same numbers and seed give the same answer anywhere.
//!
//! One file per method. docs/internals/method.md describes the whole procedure, with the reason for each step; in order of use:
//!
//! - one process: [`outlier`], [`pelt`] (or [`crops`], which chooses its penalty) and [`steady`] determine from which iteration
//!   on its times are meaningful;
//! - one cell: [`cells`] computes an estimate from its processes, [`stop`] decides when there are enough, [`plan`] the
//!   optimal numbers;
//! - two cells: [`cells`] again for the ratio, by [`within`] where they ran in blocks and by [`rank`] where they did not, [`verdict`]
//!   for what it means;
//! - a suite: [`fdr`] for many verdicts at once, [`geomean`] for one number;
//! - all of it tested on the noise that machines produce: [`simulation`];
//! - an autocorrelated series within one process: [`batch`]; two of them, aligned place by place: [`stretches`];
//! - a level that changes, in many series at once: [`changes`];
//! - a share, or a count of rare events: [`proportion`];
//! - one value per replicate: [`median`] (distribution-free interval), [`ratio`] (arms measured in pairs; the A/A check);
//! - foundations: [`quantile`], [`bootstrap`], [`student`], and [`random`], the generator shared by all, which also
//!   shuffles a design.
//!
//! Input is `f64`; a value that is not a finite number is an error of the caller and yields `None`, never a number.

pub mod batch;
pub mod bootstrap;
pub mod cells;
pub mod changes;
pub mod crops;
pub mod fdr;
pub mod geomean;
pub mod median;
pub mod outlier;
pub mod pelt;
pub mod plan;
pub mod proportion;
pub mod quantile;
pub mod random;
pub mod rank;
pub mod ratio;
pub mod simulation;
pub mod steady;
pub mod steps;
pub mod stop;
pub mod stretches;
pub mod student;
pub mod verdict;
pub mod within;

/// A value with its interval, in the unit of the input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The coverage of such intervals, for example 0.95.
    pub level: f64,
    /// Number of values it is computed from.
    pub n: usize,
    /// The method, in words for a table's footnote.
    pub method: &'static str,
}

impl Estimate {
    /// Whether `x` is inside the interval.
    pub fn holds(&self, x: f64) -> bool {
        self.low <= x && x <= self.high
    }

    /// Half the interval's width relative to the estimate: 0.02 is +- 2 %. `None` if the estimate is 0.
    pub fn precision(&self) -> Option<f64> {
        Some((self.high - self.low) / 2.0 / self.value.abs()).filter(|w| w.is_finite())
    }
}

/// The arithmetic mean; NaN for an empty slice.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The values in ascending order; `None` if there is none or one is not finite.
fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}
