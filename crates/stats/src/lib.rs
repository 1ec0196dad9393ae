//! Numerics: estimates with intervals. Pure and seeded: the same numbers and seed give the same answer anywhere.
//!
//! A file a method: [`quantile`], [`median`] (distribution-free interval), [`bootstrap`], [`ratio`] (two arms measured
//! in pairs, and the A/A check), [`random`] (the generator all of them share, also used to shuffle a design).
//!
//! Input is `f64`; a value that is no finite number is a mistake of the caller's and yields `None`, never a number.

pub mod bootstrap;
pub mod median;
pub mod quantile;
pub mod random;
pub mod ratio;

/// A value with the interval that holds it, in the unit of the input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// How often an interval made like this holds the true value, such as 0.95.
    pub level: f64,
    /// Values it was made of.
    pub n: usize,
    /// How, in words for a table's foot.
    pub method: &'static str,
}

impl Estimate {
    /// Whether `x` is inside the interval.
    pub fn holds(&self, x: f64) -> bool {
        self.low <= x && x <= self.high
    }
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
