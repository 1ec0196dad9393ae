//! One number for a suite: the geometric mean of its workloads' ratios. It alone does not depend on which of the two is
//! the base (Fleming and Wallace, "How not to lie with statistics: the correct way to summarize benchmark results", CACM
//! 29, 1986).
//!
//! Its interval covers how precisely *these* workloads were measured: the distances of the bounds of each workload's interval
//! ([`crate::cells::ratio`]) are combined like independent errors, in squares, separately below and above. It does not apply to
//! workloads that are not in the suite, since the suite is no random sample.
//!
//! **Uncertainty.** Disturbances common to all workloads of a block are not included.

use crate::Estimate;
use crate::cells::Comparison;

/// The geometric mean of these ratios, with its interval; `None` if there is none, or one is not positive.
pub fn ratios(each: &[Comparison]) -> Option<Estimate> {
    let k = each.len() as f64;
    let first = each.first()?.ratio;
    if !each.iter().all(|c| c.ratio.low > 0.0 && c.ratio.high.is_finite()) {
        return None;
    }
    let log = each.iter().map(|c| c.ratio.value.ln()).sum::<f64>() / k;
    let reach = |end: fn(&Estimate) -> f64| {
        each.iter().map(|c| (end(&c.ratio) / c.ratio.value).ln().powi(2)).sum::<f64>().sqrt() / k
    };
    let (low, high) = (log - reach(|r| r.low), log + reach(|r| r.high));
    let n = each.iter().map(|c| c.ratio.n).min()?;
    let method = "geometric mean of ratios, their intervals as independent errors";
    Some(Estimate { value: log.exp(), low: low.exp(), high: high.exp(), level: first.level, n, method })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(low: f64, value: f64, high: f64) -> Comparison {
        Comparison { ratio: Estimate { value, low, high, level: 0.95, n: 10, method: "given" }, p: 0.5 }
    }

    #[test]
    fn ratio_and_its_inverse_average_to_one() {
        let all = ratios(&[ratio(1.9, 2.0, 2.1), ratio(0.45, 0.5, 0.55)]).unwrap();
        assert!((all.value - 1.0).abs() < 1e-12 && all.holds(1.0), "{all:?}");
        assert_eq!(ratios(&[]), None);
        assert_eq!(ratios(&[ratio(0.0, 1.0, 2.0)]), None);
    }

    #[test]
    fn four_workloads_halve_interval() {
        let one = ratio(1.4, 1.5, 1.7);
        let mean = ratios(&[one]).unwrap();
        assert!((mean.low - 1.4).abs() < 1e-12 && (mean.high - 1.7).abs() < 1e-12);
        let four = ratios(&[one; 4]).unwrap();
        assert!(((mean.high / 1.5).ln() / (four.high / 1.5).ln() - 2.0).abs() < 1e-9, "{four:?}");
    }
}
