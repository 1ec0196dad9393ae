//! Summaries of durations: median, 95th and 99th percentile, maximum and sum, by the project's one definition of a quantile
//! ([`stats::quantile`], type 7), rounded to whole ns.

use crate::contract::{Bin, Times};
use std::collections::BTreeMap;

/// Returns the percentiles of durations in ns; sorts the durations.
pub fn times(ns: &mut [u64]) -> Times {
    ns.sort_unstable();
    let values: Vec<f64> = ns.iter().map(|&x| x as f64).collect();
    let at = |p| stats::quantile::of_sorted(&values, p).map_or(0, |x| x.round() as u64);
    Times {
        p50: at(0.5),
        p95: at(0.95),
        p99: at(0.99),
        max: ns.last().copied().unwrap_or(0),
        sum: ns.iter().fold(0, |sum, &x| sum.saturating_add(x)),
    }
}

/// Counts the durations in each bin, without empty bins. Bins are a quarter of an octave wide, from 2^(i/4) ns on; the first begins at 0.
pub fn distribution(ns: &[u64]) -> Vec<Bin> {
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for &x in ns {
        let octaves = if x < 2 { 0 } else { x.ilog2() * 4 };
        // Find the quarter of the octave by the bins' own borders.
        let bin = (octaves..octaves + 4).rev().find(|&bin| bin_start(bin) <= x).unwrap_or(0);
        *counts.entry(bin).or_default() += 1;
    }
    let from = |bin| if bin == 0 { 0 } else { bin_start(bin) };
    counts.into_iter().map(|(bin, count)| Bin { from_ns: from(bin), to_ns: bin_start(bin + 1), count }).collect()
}

/// The counts of all bins from the first to the last, with the empty ones between them.
pub fn with_empty(bins: &[Bin]) -> Vec<u64> {
    let mut counts: Vec<u64> = Vec::new();
    let mut at = 0;
    for bin in bins {
        let place = |i: &u32| (if *i == 0 { 0 } else { bin_start(*i) }, bin_start(i + 1)) == (bin.from_ns, bin.to_ns);
        let Some(place) = (at..BIN_COUNT).find(place) else { continue };
        let empty = if counts.is_empty() { 0 } else { place - at };
        counts.extend((0..empty).map(|_| 0));
        counts.push(bin.count);
        at = place + 1;
    }
    counts
}

/// Number of bins: as many as durations of 64 bits need.
const BIN_COUNT: u32 = 64 * 4;

/// 2^(bin/4), rounded up.
fn bin_start(bin: u32) -> u64 {
    2_f64.powf(f64::from(bin) / 4.0).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(times(&mut [40, 10, 20, 30]), Times { p50: 25, p95: 39, p99: 40, max: 40, sum: 100 });
        assert_eq!(times(&mut [7]), Times { p50: 7, p95: 7, p99: 7, max: 7, sum: 7 });
        assert_eq!(times(&mut []), Times::default());
    }

    #[test]
    fn bins_hold_every_duration_once() {
        let ns: Vec<u64> = (0..3000).chain((0..64).map(|i| 1 << i)).chain((2..64).map(|i| (1 << i) - 1)).collect();
        let bins = distribution(&ns);
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), ns.len() as u64);
        for bin in &bins {
            assert!(bin.from_ns < bin.to_ns, "{bin:?}");
            let within = ns.iter().filter(|&&x| (bin.from_ns..bin.to_ns).contains(&x)).count();
            assert_eq!(within as u64, bin.count, "{bin:?}");
        }
        assert!(bins.windows(2).all(|two| two[0].to_ns <= two[1].from_ns));
    }

    #[test]
    fn empty_bins_keep_their_place() {
        // 1 ms and 64 ms are six octaves of four bins apart.
        let counts = with_empty(&distribution(&[1 << 20, 1 << 20, 1 << 26]));
        assert_eq!((counts.len(), counts[0], counts[24], counts.iter().sum::<u64>()), (25, 2, 1, 3));
        let ns: Vec<u64> = (0..64).map(|i| 1 << i).collect();
        assert_eq!(with_empty(&distribution(&ns)).iter().sum::<u64>(), 64);
        assert_eq!(with_empty(&[]), [0_u64; 0]);
    }
}
