//! Self-test of the method: the same command under two names, compared again and again. Every difference found is a
//! false positive, and their share is the actual false-positive rate of the method on this machine.

use model::counted;
use serde::Serialize;
use stats::cells::{self, Cell, Pairing};
use stats::verdict::{self, Better, Verdict};

/// How often the same command under two names seemed to differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SelfTest {
    /// Number of comparisons.
    pub comparisons: usize,
    /// Those whose verdict was faster or slower.
    pub alarms: usize,
    /// Their share.
    pub rate: f64,
    /// The interval of 0.95 of that share (Wilson).
    pub ci95: [f64; 2],
    /// Comparisons whose interval excluded 1, however small the difference: at a level of 0.95 one in twenty should.
    pub misses: usize,
    /// Their share.
    pub miss_rate: f64,
    /// Its interval.
    pub miss_ci95: [f64; 2],
    /// The median distance from 1 that an interval reaches: with this many blocks, smaller differences cannot be distinguished from none.
    pub noise: f64,
}

/// Compares the two arms of each group: pairs of processes that ran in the same block, each with its valid values.
/// `margin` is the smallest difference that matters. `None` if no group can be compared.
pub fn self_test(groups: &[Vec<(Vec<f64>, Vec<f64>)>], margin: f64) -> Option<SelfTest> {
    let (mut comparisons, mut alarms, mut misses, mut reach) = (0, 0, 0, Vec::new());
    for group in groups {
        let (a, b): (Vec<&Vec<f64>>, Vec<&Vec<f64>>) = group.iter().map(|(a, b)| (a, b)).unzip();
        let ratio = |a, b| cells::ratio(&a, &b, Pairing::Blocks, super::CONFIDENCE_LEVEL);
        let Some(comparison) = Cell::new(&a).zip(Cell::new(&b)).and_then(|(a, b)| ratio(a, b)) else { continue };
        comparisons += 1;
        let verdict = verdict::judge(&comparison.ratio, Better::Lower, margin);
        alarms += usize::from(matches!(verdict, Verdict::Faster | Verdict::Slower));
        misses += usize::from(!comparison.ratio.holds(1.0));
        reach.push(stats::ratio::distance_from_one(&comparison.ratio));
    }
    let noise = stats::quantile::of_unsorted(&reach, 0.5)?;
    let rate = |hits: usize| hits as f64 / comparisons as f64;
    Some(SelfTest {
        comparisons,
        alarms,
        rate: rate(alarms),
        ci95: wilson_interval(alarms, comparisons),
        misses,
        miss_rate: rate(misses),
        miss_ci95: wilson_interval(misses, comparisons),
        noise,
    })
}

/// The interval of 0.95 of a share (Wilson, JASA 22, 1927): unlike the textbook interval, it is valid for shares near 0.
fn wilson_interval(hits: usize, n: usize) -> [f64; 2] {
    const Z: f64 = 1.959_963_984_540_054;
    let (n, share) = (n as f64, hits as f64 / n as f64);
    let middle = share + Z * Z / (2.0 * n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    [middle - half, middle + half].map(|end| (end / (1.0 + Z * Z / n)).clamp(0.0, 1.0))
}

/// Formats the result for people: for the workload `name`, with `blocks` blocks per comparison.
pub fn text(done: &SelfTest, name: &str, blocks: u64, margin: f64, seed: u64) -> String {
    let percent = |x: f64| format!("{:.1} %", x * 100.0);
    let [low, high] = done.ci95;
    let [miss_low, miss_high] = done.miss_ci95;
    let blocks = counted(blocks as usize, "block");
    format!(
        "{}: the same command under two names, {} of {}\n\x20 false positives  {} of {}: {}  [{}, {}]  (verdicts of \
         faster or slower; margin {})\n\x20 intervals that exclude 1  {} of {}: {}  [{}, {}]  (nominal: 5 %)\n\x20 \
         minimum detectable difference {} in {} (median over the comparisons)\n\x20 95 % Wilson intervals; seed {}\n",
        name,
        counted(done.comparisons, "comparison"),
        blocks,
        done.alarms,
        done.comparisons,
        percent(done.rate),
        percent(low),
        percent(high),
        percent(margin),
        done.misses,
        done.comparisons,
        percent(done.miss_rate),
        percent(miss_low),
        percent(miss_high),
        percent(done.noise),
        blocks,
        seed
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::random::Random;

    /// Golden: `scipy.stats.binomtest(k, n).proportion_ci(method="wilson")`.
    #[test]
    fn shares_have_the_wilson_interval() {
        for (hits, n, low, high) in
            [(1, 20, 0.008_881_4, 0.236_131_2), (0, 20, 0.0, 0.161_125_2), (5, 100, 0.021_543_7, 0.111_750_5)]
        {
            let [l, h] = wilson_interval(hits, n);
            assert!((l - low).abs() < 1e-6 && (h - high).abs() < 1e-6, "{hits}/{n}: {l} {h}");
        }
    }

    /// Groups of ten pairs; the second arm's times are `factor` times the first's, both with 1 % noise.
    fn groups(count: usize, factor: f64) -> Vec<Vec<(Vec<f64>, Vec<f64>)>> {
        let mut random = Random::new(7);
        let mut process = |factor: f64| {
            let level = factor * (1.0 + 0.02 * (random.unit() - 0.5));
            (0..20).map(|_| level * (1.0 + 0.002 * (random.unit() - 0.5))).collect::<Vec<f64>>()
        };
        (0..count).map(|_| (0..10).map(|_| (process(1.0), process(factor))).collect()).collect()
    }

    #[test]
    fn a_self_test_detects_a_difference_and_has_no_false_positive() {
        let same = self_test(&groups(60, 1.0), 0.02).unwrap();
        assert_eq!((same.comparisons, same.alarms), (60, 0));
        assert!(same.miss_ci95[0] <= 0.05 && same.noise > 0.0 && same.noise < 0.02, "{same:?}");
        let other = self_test(&groups(20, 1.1), 0.02).unwrap();
        assert_eq!((other.alarms, other.misses), (20, 20));
        assert_eq!(self_test(&[], 0.02), None);
    }
}
