//! From bytes in intervals to a throughput with an interval. Pure.
//!
//! A connection begins slowly. So the series of a run is cut where its level changes (PELT), and the estimate is that of
//! the stretch from the first change after which nothing is slower any more than one twentieth below the last level; if
//! that leaves less than half of the run, there is no steady part and the whole run is the estimate. The mean of the whole
//! run is given too, always. Neighbouring intervals are alike, so the interval is that of batch means
//! ([`stats::batch`]).
//!
//! **Uncertainty.** The interval says how well the mean of this run is known. Another run on the same path may differ by
//! more; that is for repetitions (`fathom net sweep`) to show.

use crate::outcome::Received;
use stats::{batch, pelt, quantile};

/// A level that is lower than the last by more than this share belongs to the beginning.
const LOWER: f64 = 0.05;
/// The share of the run that the steady part must have.
const SHARE: f64 = 0.5;
/// The level of intervals.
const LEVEL: f64 = 0.95;

/// The throughput of a direction, in bit/s counted at the receiver, or transactions per second.
#[derive(Debug, Clone, PartialEq)]
pub struct Throughput {
    /// Of the steady part; without an interval if there are fewer than two intervals in it.
    pub steady: f64,
    /// Its interval at 0.95.
    pub ci95: Option<(f64, f64)>,
    /// Of the whole run.
    pub whole: f64,
    /// When the steady part begins, s after the start.
    pub steady_from_s: f64,
    /// Whether there is a steady part; if not, `steady` is the whole run.
    pub is_steady: bool,
    /// How much neighbouring stretches are still alike, -1 to 1 ([`batch::alike`]); above 0.6 the interval is too narrow.
    pub alike: f64,
    /// Each interval: its end in s after the start, and the rate in it.
    pub intervals: Vec<(f64, f64)>,
}

/// The throughput that amounts in intervals show: `unit` is what one of them counts, 8 for bytes and bits. `None` if no
/// time has passed.
pub fn throughput(start_ns: u64, ends_ns: &[u64], amounts: &[u64], unit: f64) -> Option<Throughput> {
    let mut before = start_ns;
    let mut intervals = Vec::new();
    let mut seconds = Vec::new();
    for (end, amount) in ends_ns.iter().zip(amounts) {
        let long = end.checked_sub(before).filter(|ns| *ns > 0)? as f64 / 1e9;
        intervals.push(((end - start_ns) as f64 / 1e9, *amount as f64 * unit / long));
        seconds.push(long);
        before = *end;
    }
    let total = intervals.last()?.0;
    let whole = amounts.iter().take(intervals.len()).sum::<u64>() as f64 * unit / total;
    // A last interval that was cut short says little, and would weigh as much as a whole one.
    let typical = quantile::of_sorted(&sorted(&seconds), 0.5)?;
    let mut rates: Vec<f64> = intervals.iter().map(|i| i.1).collect();
    if rates.len() > 2 && seconds.last().is_some_and(|s| *s < typical * 0.5) {
        rates.pop();
    }
    let from = steady_from(&rates);
    let part = &rates[from.unwrap_or(0)..];
    // Intervals are as long as the machine let them be, so the mean is that of all bytes over all time.
    let time: f64 = seconds.iter().skip(from.unwrap_or(0)).take(part.len()).sum();
    let sum: f64 = part.iter().zip(seconds.iter().skip(from.unwrap_or(0))).map(|(r, s)| r * s).sum();
    let (steady, half) = (sum / time, batch::mean(part, LEVEL).map(|e| (e.high - e.low) / 2.0));
    let steady_from_s = match from {
        Some(from) if from > 0 => intervals.get(from - 1).map_or(0.0, |i| i.0),
        _ => 0.0,
    };
    Some(Throughput {
        steady,
        // Less than nothing never arrives.
        ci95: half.map(|half| ((steady - half).max(0.0), steady + half)),
        whole,
        steady_from_s,
        is_steady: from.is_some(),
        alike: batch::alike(part),
        intervals,
    })
}

/// That of what was received, in bit/s.
pub fn received(received: &Received) -> Option<Throughput> {
    throughput(received.start_ns, &received.ends_ns, &received.bytes, 8.0)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The first interval of the steady part; `None` if there is none.
fn steady_from(rates: &[f64]) -> Option<usize> {
    let n = rates.len();
    let changes = pelt::changepoints(rates, pelt::penalty(n), pelt::shortest(n)).unwrap_or_default();
    let starts: Vec<usize> = std::iter::once(0).chain(changes).collect();
    let mean = |at: usize| {
        let part = &rates[starts[at]..starts.get(at + 1).copied().unwrap_or(n)];
        part.iter().sum::<f64>() / part.len().max(1) as f64
    };
    let last = mean(starts.len() - 1);
    let mut from = 0;
    for at in 0..starts.len() {
        if mean(at) < last * (1.0 - LOWER) {
            from = starts.get(at + 1).copied().unwrap_or(n);
        }
    }
    // A dip late in the run is no beginning: then nothing is steady.
    ((n - from) as f64 >= n as f64 * SHARE).then_some(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rates: &[u64]) -> Throughput {
        let ends: Vec<u64> = (1..=rates.len() as u64).map(|i| 7 + i * 100_000_000).collect();
        throughput(7, &ends, rates, 8.0).unwrap()
    }

    #[test]
    fn the_beginning_is_left_out_and_the_whole_is_told_too() {
        let rates: Vec<u64> = (0..100).map(|i| if i < 20 { 100 + i } else { 1000 + i % 3 }).collect();
        let t = of(&rates);
        assert!((t.steady / 80_080.0 - 1.0).abs() < 1e-3, "{t:?}");
        assert!(t.is_steady && (t.steady_from_s - 2.0).abs() < 1e-9);
        assert!(t.whole < 67_000.0 && t.whole > 65_000.0, "{}", t.whole);
        let (low, high) = t.ci95.unwrap();
        assert!(low <= t.steady && t.steady <= high && high - low < 200.0);
    }

    #[test]
    fn a_dip_at_the_end_leaves_no_steady_part() {
        let rates: Vec<u64> = (0..100).map(|i| if (70..80).contains(&i) { 10 } else { 1000 + i % 5 }).collect();
        let t = of(&rates);
        assert!(!t.is_steady && t.steady == of(&rates).steady, "{t:?}");
        assert!((t.steady / t.whole - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_run_of_one_interval_has_no_interval_of_confidence() {
        // A long interval weighs as much as it is long.
        let t = throughput(0, &[100, 400], &[100, 900], 1e-9).unwrap();
        assert!((t.steady - 2.5).abs() < 1e-9 && (t.whole - 2.5).abs() < 1e-9, "{t:?}");
        let t = of(&[5]);
        assert_eq!((t.ci95, t.steady), (None, 400.0));
        assert_eq!(throughput(5, &[], &[], 8.0), None);
        assert_eq!(throughput(5, &[4], &[1], 8.0), None);
        assert_eq!(throughput(5, &[5], &[1], 8.0), None);
    }
}
