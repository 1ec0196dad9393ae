//! Computes a throughput and its confidence interval from the bytes of each interval. Pure.
//!
//! A connection begins slowly. So the series of a run is split where its level changes (PELT), and the estimate covers the
//! part from the first change after which no level is more than one twentieth below the last level. If that leaves less
//! than half of the run, there is no steady part and the estimate covers the whole run. The mean of the whole run is always
//! reported too. Neighbouring intervals are correlated, so the confidence interval is that of batch means
//! ([`stats::batch`]). Before all that the series is resampled to steps of equal length ([`resample_evenly`]), so that
//! the estimate and its confidence interval weight everything by its duration.
//!
//! **Uncertainty.** The confidence interval is that of the mean of this run. Another run on the same path may differ by
//! more; repetitions (`fathom net sweep`) show by how much.

use crate::outcome::{ReceivedDirection, SentDirection};
use crate::spec::{THROUGHPUT_INTERVAL_NS, Traffic};
use stats::{batch, pelt, quantile};

/// A level that is lower than the last by more than this share belongs to the slow start.
const LEVEL_SHORTFALL_MAX: f64 = 0.05;
/// The minimum share of the run that a steady part covers.
const STEADY_SHARE_MIN: f64 = 0.5;
/// A rate above the requested one by more than this factor is not that of the path but of data that had been held back.
const CATCH_UP_RATIO_MIN: f64 = 1.01;
/// The confidence level of intervals.
const CONFIDENCE_LEVEL: f64 = 0.95;

/// The throughput of a direction, in bit/s counted at the receiver, or transactions per second.
#[derive(Debug, Clone, PartialEq)]
pub struct Throughput {
    /// Of the steady part; without a confidence interval if it has fewer than two intervals.
    pub steady: f64,
    /// Its confidence interval at 0.95.
    pub ci95: Option<(f64, f64)>,
    /// Of the whole run.
    pub whole: f64,
    /// When the steady part begins, s after the start.
    pub steady_from_s: f64,
    /// Whether there is a steady part; if not, `steady` is the whole run.
    pub is_steady: bool,
    /// The correlation of neighbouring batches, -1 to 1 ([`batch::alike`]); above 0.6 the confidence interval is too narrow.
    pub batch_correlation: f64,
    /// Each interval: its end in s after the start, and the rate in it.
    pub intervals: Vec<(f64, f64)>,
}

/// The throughput of the amounts in intervals. `unit` is the value of one unit: 8 for bytes and bits. `None` if no time has passed.
pub fn throughput(start_ns: u64, ends_ns: &[u64], amounts: &[u64], unit: f64) -> Option<Throughput> {
    throughput_split_by(start_ns, ends_ns, amounts, unit, steady_from)
}

/// As [`throughput`], with a steady part that begins where `steady_from` returns.
fn throughput_split_by(
    start_ns: u64,
    ends_ns: &[u64],
    amounts: &[u64],
    unit: f64,
    steady_from: impl Fn(&[f64]) -> Option<usize>,
) -> Option<Throughput> {
    let mut before = start_ns;
    let mut intervals = Vec::new();
    let mut seconds = Vec::new();
    for (end, amount) in ends_ns.iter().zip(amounts) {
        let duration_s = end.checked_sub(before).filter(|ns| *ns > 0)? as f64 / 1e9;
        intervals.push(((end - start_ns) as f64 / 1e9, *amount as f64 * unit / duration_s));
        seconds.push(duration_s);
        before = *end;
    }
    let total = intervals.last()?.0;
    // The other end's counters are not trusted: their sum may overflow a counter.
    let whole = amounts.iter().take(intervals.len()).map(|n| *n as f64).sum::<f64>() * unit / total;
    let (step, rates) = resample_evenly(&intervals, &seconds)?;
    let from = steady_from(&rates);
    let part = &rates[from.unwrap_or(0)..];
    let mean = part.iter().sum::<f64>() / part.len() as f64;
    // The confidence interval of the steps of equal length, centred on the mean.
    let half = batch::mean(part, CONFIDENCE_LEVEL).map(|e| (e.high - e.low) / 2.0);
    Some(Throughput {
        steady: mean,
        // A throughput is never negative.
        ci95: half.map(|half| ((mean - half).max(0.0), mean + half)),
        whole,
        steady_from_s: from.unwrap_or(0) as f64 * step,
        is_steady: from.is_some(),
        batch_correlation: batch::lag1_correlation(part),
        intervals,
    })
}

/// Resamples the series to steps of equal length: returns that length in s, and the rate in each step. Intervals vary in
/// length with scheduling: one that began late is short, and a burst in it yields a rate a thousand times too high. With
/// steps of equal length everything is weighted by its duration. There are no more steps than intervals.
fn resample_evenly(intervals: &[(f64, f64)], seconds: &[f64]) -> Option<(f64, Vec<f64>)> {
    let (total, typical) = (intervals.last()?.0, quantile::of_sorted(&sorted(seconds), 0.5)?);
    let count = ((total / typical).round() as usize).clamp(1, intervals.len());
    let step = total / count as f64;
    let mut amounts = vec![0.0; count];
    let mut from = 0.0;
    for (end, rate) in intervals {
        // The steps that the interval overlaps; rounding may put the last end after the last step.
        let (first, last) = ((from / step) as usize, (end / step) as usize);
        for (at, amount) in amounts.iter_mut().enumerate().take(last + 1).skip(first.min(count - 1)) {
            let (begin, over) = (at as f64 * step, (at + 1) as f64 * step);
            *amount += rate * (end.min(over) - f64::max(from, begin)).max(0.0);
        }
        from = *end;
    }
    Some((step, amounts.into_iter().map(|amount| amount / step).collect()))
}

/// The throughput of received bytes, in bit/s.
pub fn received_throughput(received: &ReceivedDirection) -> Option<Throughput> {
    throughput(received.start_ns, &received.ends_ns, &received.bytes, 8.0)
}

/// The throughput of a direction, in bit/s. UDP has no slow start: where its sender was late, a slow beginning is lost
/// time, and afterwards the sender catches up, faster than the requested rate. Then the whole run is the estimate.
pub fn direction_throughput(
    traffic: Traffic,
    sent: &SentDirection,
    received: &ReceivedDirection,
) -> Option<Throughput> {
    let found = self::received_throughput(received)?;
    let (Traffic::Udp { rate_bps, .. }, Some(packets)) = (traffic, &sent.packets) else { return Some(found) };
    let late = packets.late_us[1] * 1e3 > THROUGHPUT_INTERVAL_NS as f64;
    if found.steady_from_s > 0.0 && (late || found.steady > rate_bps as f64 * CATCH_UP_RATIO_MIN) {
        return throughput_split_by(received.start_ns, &received.ends_ns, &received.bytes, 8.0, |_| None);
    }
    Some(found)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The first interval of the steady part; `None` if there is none.
fn steady_from(rates: &[f64]) -> Option<usize> {
    let n = rates.len();
    let changes = pelt::changepoints(rates, pelt::penalty(n), pelt::segment_values_min(n)).unwrap_or_default();
    let starts: Vec<usize> = std::iter::once(0).chain(changes).collect();
    let mean = |at: usize| {
        let part = &rates[starts[at]..starts.get(at + 1).copied().unwrap_or(n)];
        part.iter().sum::<f64>() / part.len().max(1) as f64
    };
    let last = mean(starts.len() - 1);
    let mut from = 0;
    for at in 0..starts.len() {
        if mean(at) < last * (1.0 - LEVEL_SHORTFALL_MAX) {
            from = starts.get(at + 1).copied().unwrap_or(n);
        }
    }
    // A dip late in the run is no slow start: then there is no steady part.
    ((n - from) as f64 >= n as f64 * STEADY_SHARE_MIN).then_some(from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::PacketsSent;
    use crate::spec::Direction;
    use proptest::prelude::*;

    fn throughput_of_rates(rates: &[u64]) -> Throughput {
        let ends: Vec<u64> = (1..=rates.len() as u64).map(|i| 7 + i * 100_000_000).collect();
        throughput(7, &ends, rates, 8.0).unwrap()
    }

    #[test]
    fn steady_rate_excludes_slow_start() {
        let rates: Vec<u64> = (0..100).map(|i| if i < 20 { 100 + i } else { 1000 + i % 3 }).collect();
        let t = throughput_of_rates(&rates);
        assert!((t.steady / 80_080.0 - 1.0).abs() < 1e-3, "{t:?}");
        assert!(t.is_steady && (t.steady_from_s - 2.0).abs() < 1e-9);
        assert!(t.whole < 67_000.0 && t.whole > 65_000.0, "{}", t.whole);
        let (low, high) = t.ci95.unwrap();
        assert!(low <= t.steady && t.steady <= high && high - low < 200.0);
    }

    #[test]
    fn dip_at_the_end_leaves_no_steady_part() {
        let rates: Vec<u64> = (0..100).map(|i| if (70..80).contains(&i) { 10 } else { 1000 + i % 5 }).collect();
        let t = throughput_of_rates(&rates);
        assert!(!t.is_steady && t.steady == throughput_of_rates(&rates).steady, "{t:?}");
        assert!((t.steady / t.whole - 1.0).abs() < 1e-9);
    }

    proptest! {
        /// A sampler that is late, by up to an interval, ends one interval late and makes the next one short; and some
        /// bytes are counted a moment early. The path carries 0.9 to 1.1 of a rate all the time, so the confidence interval
        /// must be of that size.
        #[test]
        fn late_sample_does_not_widen_interval(
            course in proptest::collection::vec((0.9_f64..1.1, 0.0_f64..0.999, proptest::bool::weighted(0.1), 0.0_f64..0.2), 20..80),
        ) {
            let (mut ends, mut amounts, mut true_total, mut counted) = (Vec::new(), Vec::new(), 0.0, 0.0);
            let mut before = 0_u64;
            for (at, (rate, late, is_late, burst)) in course.iter().enumerate() {
                let end = (at as u64 + 1) * 100_000_000 + if *is_late { (late * 1e8) as u64 } else { 0 };
                true_total += rate * (end - before) as f64 / 1e2;
                let delivered = true_total + burst * 1e6;
                let amount = f64::max(delivered - counted, 0.0).round();
                counted += amount;
                ends.push(end);
                amounts.push(amount as u64);
                before = end;
            }
            let t = throughput(0, &ends, &amounts, 1.0).unwrap();
            let (low, high) = t.ci95.unwrap();
            prop_assert!(low <= t.steady && t.steady <= high);
            prop_assert!(low > 0.7e7 && high < 1.3e7, "{low} to {high} around {}", t.steady);
            prop_assert!((t.steady / t.whole - 1.0).abs() < 0.1, "{} of {}", t.steady, t.whole);
        }

        #[test]
        fn resampled_steps_keep_total_bytes(
            course in proptest::collection::vec((1_u64..300_000_000, 0_u64..10_000_000), 1..60),
        ) {
            let mut end = 0;
            let ends: Vec<u64> = course.iter().map(|(long, _)| { end += long; end }).collect();
            let amounts: Vec<u64> = course.iter().map(|c| c.1).collect();
            let t = throughput(0, &ends, &amounts, 1.0).unwrap();
            let seconds: Vec<f64> = course.iter().map(|c| c.0 as f64 / 1e9).collect();
            let (step, rates) = resample_evenly(&t.intervals, &seconds).unwrap();
            let sum: f64 = rates.iter().map(|r| r * step).sum();
            let all = amounts.iter().sum::<u64>() as f64;
            prop_assert!((sum - all).abs() <= 1e-6 * all.max(1.0), "{sum} of {all}");
            prop_assert!(rates.len() <= course.len() && rates.iter().all(|r| r.is_finite() && *r >= 0.0));
        }
    }

    #[test]
    fn catch_up_burst_is_not_steady() {
        // Requested 3.6 Gb/s for 2 s: 0.8 s at 1.1 Gb/s, then 1.2 s at 4.4.
        let bytes: Vec<u64> = (0..20).map(|i| if i < 8 { 13_750_000 } else { 55_000_000 + i % 3 * 1000 }).collect();
        let of = |late_us: f64, asked: u64, bytes: &[u64]| {
            let packets = PacketsSent { late_us: [late_us / 2.0, late_us, late_us], ..PacketsSent::default() };
            let sent = SentDirection {
                direction: Direction::Up,
                start_ns: 0,
                end_ns: 2_000_000_000,
                sockets: Vec::new(),
                threads: Default::default(),
                packets: Some(packets),
                samples: Vec::new(),
                acks: Vec::new(),
                acks_lost: 0,
                carried: Vec::new(),
            };
            let received = ReceivedDirection {
                direction: Direction::Up,
                start_ns: 0,
                ends_ns: (1..=20).map(|i| i * 100_000_000).collect(),
                bytes: bytes.to_vec(),
                streams: Vec::new(),
                sockets: Vec::new(),
                threads: Default::default(),
                unread: Vec::new(),
                packets: None,
                carried: Vec::new(),
            };
            super::direction_throughput(Traffic::Udp { rate_bps: asked, packet_bytes: 1400 }, &sent, &received).unwrap()
        };
        for t in
            [of(460_000.0, 3_600_000_000, &bytes), of(50.0, 3_600_000_000, &bytes), of(460_000.0, u64::MAX, &bytes)]
        {
            assert!(!t.is_steady && (t.steady / t.whole - 1.0).abs() < 1e-9 && t.steady < 3.6e9, "{t:?}");
            assert!(t.ci95.is_some_and(|(low, high)| low < t.whole && t.whole < high));
        }
        // The time until the first packet arrives, here 275 ms, does not lower the rate.
        let late_start: Vec<u64> = (0..20).map(|i| if i < 3 { 0 } else { 450_000_000 / 10 + i % 2 }).collect();
        let t = of(50.0, 3_600_000_000, &late_start);
        assert!(t.is_steady && (t.steady / 3.6e9 - 1.0).abs() < 1e-6, "{t:?}");
    }

    #[test]
    fn single_sample_has_no_confidence_interval() {
        // Intervals are weighted by their length.
        let t = throughput(0, &[100, 400], &[100, 900], 1e-9).unwrap();
        assert!((t.steady - 2.5).abs() < 1e-9 && (t.whole - 2.5).abs() < 1e-9, "{t:?}");
        let t = throughput_of_rates(&[5]);
        assert_eq!((t.ci95, t.steady), (None, 400.0));
        assert_eq!(throughput(5, &[], &[], 8.0), None);
        let most = throughput(0, &[1, 2], &[u64::MAX, u64::MAX], 1.0).unwrap();
        assert!((most.whole / (u64::MAX as f64 * 1e9) - 1.0).abs() < 1e-9, "{most:?}");
        assert_eq!(throughput(5, &[4], &[1], 8.0), None);
        assert_eq!(throughput(5, &[5], &[1], 8.0), None);
    }
}
