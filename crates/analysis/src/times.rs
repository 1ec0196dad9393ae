//! Durations in short: median, 95th percentile and sum, by the project's one definition of a quantile
//! ([`stats::quantile`], type 7), rounded to whole ns.

use crate::contract::Times;

/// The order statistics of durations in ns; sorts them.
pub fn times(ns: &mut [u64]) -> Times {
    ns.sort_unstable();
    let values: Vec<f64> = ns.iter().map(|&x| x as f64).collect();
    let at = |p| stats::quantile::of_sorted(&values, p).map_or(0, |x| x.round() as u64);
    Times { p50: at(0.5), p95: at(0.95), sum: ns.iter().fold(0, |sum, &x| sum.saturating_add(x)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(times(&mut [40, 10, 20, 30]), Times { p50: 25, p95: 39, sum: 100 });
        assert_eq!(times(&mut [7]), Times { p50: 7, p95: 7, sum: 7 });
        assert_eq!(times(&mut []), Times::default());
    }
}
