//! One number for a suite: the geometric mean of its workloads' ratios. It alone does not depend on which of the two is
//! the base (Fleming and Wallace, "How not to lie with statistics: the correct way to summarize benchmark results", CACM
//! 29, 1986).
//!
//! Its interval says how well *these* workloads were measured: each workload's ratio is redrawn by the hierarchical
//! bootstrap ([`crate::hierarchy`]) and the resamples are averaged and studentised together. It says nothing about
//! workloads that are not in the suite, since nobody drew the suite by lot.

use crate::hierarchy::{Arms, Cell, Comparison, Pairing, Pivot, STUDENTISED_FROM};
use crate::{Estimate, bootstrap, student};

/// The geometric mean of the ratios first / second of each workload's two cells, with its interval, and the p value of no
/// difference over all; `None` if there is no workload or one has no ratio ([`crate::hierarchy::ratio`]).
pub fn ratios(workloads: &[(Cell, Cell)], pairing: Pairing, level: f64, seed: u64) -> Option<Comparison> {
    let k = workloads.len() as f64;
    let arms: Vec<Arms> = workloads.iter().map(|(a, b)| Arms::new(a, b, pairing)).collect::<Option<_>>()?;
    let each: Vec<_> = arms.iter().map(Arms::at).collect::<Option<Vec<_>>>()?;
    let n = workloads.iter().map(|(a, b)| a.processes().min(b.processes())).min()?;
    let log = each.iter().map(|e| e.log).sum::<f64>() / k;
    let error = each.iter().map(|e| e.error * e.error).sum::<f64>().sqrt() / k;
    let (low, high, p, method) = if n < STUDENTISED_FROM {
        // Welch and Satterthwaite's degrees of freedom of a sum of many.
        let fourth: f64 = each.iter().map(|e| e.error.powi(4) / e.df).sum();
        let df = if fourth > 0.0 { (error * k).powi(4) / fourth } else { each.iter().map(|e| e.df).sum() };
        let (reach, p) = student::reach_and_p(log, error, df, level);
        (log - reach, log + reach, p, "geometric mean of ratios, t interval of its logarithm")
    } else {
        let mut sums = vec![(0.0, 0.0); bootstrap::RESAMPLES];
        for (i, arm) in arms.iter().enumerate() {
            // A stream of its own for each workload: their errors must not go together.
            let draws = arm.draws(bootstrap::RESAMPLES, seed.wrapping_add(i as u64));
            for (sum, draw) in sums.iter_mut().zip(draws) {
                *sum = (sum.0 + draw.0 / k, sum.1 + (draw.1 / k).powi(2));
            }
        }
        sums.iter_mut().for_each(|s| s.1 = s.1.sqrt());
        let pivot = Pivot::new(log, error, &sums)?;
        let (low, high) = pivot.interval(level)?;
        (low, high, pivot.p(0.0), "geometric mean of ratios, studentised hierarchical bootstrap of its logarithm")
    };
    let ratio = Estimate { value: log.exp(), low: low.exp(), high: high.exp(), level, n, method };
    (ratio.low.is_finite() && ratio.high.is_finite()).then_some(Comparison { ratio, p })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hierarchy;

    fn cell(level: f64, wobble: f64) -> Cell {
        let process = |i: usize| vec![level * (1.0 + wobble * ((i * 7 % 10) as f64 - 4.5)); 3];
        Cell::new(&(0..10).map(process).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn twice_as_fast_and_half_as_fast_are_equal() {
        let suite = [(cell(2.0, 0.001), cell(1.0, 0.001)), (cell(1.0, 0.001), cell(2.0, 0.001))];
        for pairing in [Pairing::Unpaired, Pairing::Blocks] {
            let all = ratios(&suite, pairing, 0.95, 1).unwrap();
            assert!((all.ratio.value - 1.0).abs() < 1e-12, "{all:?}");
            assert!(all.ratio.holds(1.0));
        }
        assert_eq!(ratios(&[], Pairing::Unpaired, 0.95, 1), None);
    }

    #[test]
    fn one_workload_is_its_own_mean_and_more_are_surer() {
        let one = [(cell(1.5, 0.004), cell(1.0, 0.004))];
        let alone = hierarchy::ratio(&one[0].0, &one[0].1, Pairing::Unpaired, 0.95, 7).unwrap();
        let mean = ratios(&one, Pairing::Unpaired, 0.95, 7).unwrap();
        assert!((alone.ratio.low / mean.ratio.low - 1.0).abs() < 1e-9 && (alone.p - mean.p).abs() < 1e-9);
        let four = ratios(&[&one[..], &one, &one, &one].concat(), Pairing::Unpaired, 0.95, 7).unwrap();
        let width = |c: &Comparison| (c.ratio.high / c.ratio.low).ln();
        let gain = width(&mean) / width(&four);
        assert!((1.8..2.4).contains(&gain), "sqrt(4) and lighter tails: {gain}");
    }
}
