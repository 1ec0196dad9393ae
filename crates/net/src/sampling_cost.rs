//! The cost of sampling TCP's state, in throughput, measured in one flow: in each pair of intervals one, randomly chosen,
//! is sampled, and each pair yields a ratio. Pure.
//!
//! Consecutive runs with and without sampling differ by far more than the cost of sampling, because the state of a machine
//! changes. Two neighbouring tenths of a second of one flow differ less, and there are hundreds of such pairs a minute.
//! Which of the two comes first is random, so that a drift, or an oscillation in step with the intervals, favours neither.
//!
//! **Uncertainty.** The estimate is the median of the pairs' ratios with its distribution-free confidence interval
//! ([`stats::median`]). Both ends use the same random sequence and start at the same time, except for the transit time of
//! the start message; a sender's sample affects the receiver after the one-way delay. So a part of each interval as long as
//! these two is attributed to the wrong side, and the cost appears smaller by that part: 1 % for each ms. Beyond
//! [`START_DIFFERENCE_NS_MAX`] nothing is reported. An after-effect of a sampled interval on the next one (a shorter
//! queue) is attributed to the wrong side too.

use crate::outcome::ReceivedDirection;
use crate::spec::{SAMPLE_INTERVAL_NS, THROUGHPUT_INTERVAL_NS};
use stats::random::Random;
use stats::{Estimate, median};

/// The maximum difference of the ends' start times, ns.
pub const START_DIFFERENCE_NS_MAX: u64 = 10_000_000;
/// The number of pairs skipped at the beginning, because of slow start.
const SKIPPED_PAIRS: usize = 5;
/// The confidence level of the interval.
const CONFIDENCE_LEVEL: f64 = 0.95;

/// Which intervals are sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledIntervals {
    /// For each pair, whether its first interval is sampled.
    first_is_sampled: Vec<bool>,
}

impl SampledIntervals {
    /// Draws the intervals of a run of this duration.
    pub fn new(seed: u64, duration_ms: u64) -> Self {
        let pairs = duration_ms * 1_000_000 / (2 * THROUGHPUT_INTERVAL_NS) + 1;
        let mut random = Random::new(seed);
        Self { first_is_sampled: (0..pairs).map(|_| random.bits() & 1 == 1).collect() }
    }

    /// Whether this interval is sampled.
    pub fn is_sampled(&self, interval: u64) -> bool {
        let first = usize::try_from(interval / 2).ok().and_then(|pair| self.first_is_sampled.get(pair));
        first.is_none_or(|first| *first == interval.is_multiple_of(2))
    }

    /// Throughput with sampling over throughput without; `None` if there are too few pairs.
    pub fn ratio(&self, received: &ReceivedDirection) -> Option<Estimate> {
        let mut rates = vec![None; self.first_is_sampled.len() * 2];
        let mut begun = received.start_ns;
        for (end, bytes) in received.ends_ns.iter().zip(&received.bytes) {
            let (from, to) = (begun.saturating_sub(received.start_ns), end.saturating_sub(received.start_ns));
            let number = from / THROUGHPUT_INTERVAL_NS;
            // An interval that began or ended late overlaps two.
            let whole = to / THROUGHPUT_INTERVAL_NS == number + 1
                && from % THROUGHPUT_INTERVAL_NS + to % THROUGHPUT_INTERVAL_NS < SAMPLE_INTERVAL_NS;
            if let Some(rate) = usize::try_from(number).ok().and_then(|n| rates.get_mut(n)).filter(|_| whole) {
                *rate = Some(*bytes as f64 / (to - from) as f64);
            }
            begun = *end;
        }
        let ratios: Vec<f64> = rates
            .chunks_exact(2)
            .zip(&self.first_is_sampled)
            .skip(SKIPPED_PAIRS)
            .filter_map(|(pair, first)| {
                let (with, without) = if *first { (pair[0]?, pair[1]?) } else { (pair[1]?, pair[0]?) };
                // No data arrived in a tenth of a second: the machine was stalled.
                (with > 0.0 && without > 0.0).then(|| with / without)
            })
            .collect();
        median::median(&ratios, CONFIDENCE_LEVEL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Direction;

    /// A run whose intervals have received these amounts, in bytes.
    fn received(bytes: Vec<u64>, late: impl Fn(u64) -> u64) -> ReceivedDirection {
        ReceivedDirection {
            direction: Direction::Up,
            start_ns: 7,
            ends_ns: (1..=bytes.len() as u64).map(|n| 7 + n * THROUGHPUT_INTERVAL_NS + late(n)).collect(),
            streams: Vec::new(),
            sockets: Vec::new(),
            threads: Default::default(),
            unread: Vec::new(),
            packets: None,
            carried: Vec::new(),
            bytes,
        }
    }

    #[test]
    fn cost_is_found_despite_drift_and_alternation() {
        let turns = SampledIntervals::new(3, 60_000);
        // 1 % less with sampling; the rate rises tenfold in the run, and every other interval is slower by a tenth.
        let rate = |n: u64| {
            let beat = if n.is_multiple_of(2) { 0.9 } else { 1.0 };
            let cost = if turns.is_sampled(n) { 0.99 } else { 1.0 };
            (1e9 * (1.0 + n as f64 / 60.0) * beat * cost) as u64
        };
        let ratio = turns.ratio(&received((0..600).map(rate).collect(), |_| 0)).unwrap();
        assert_eq!(ratio.n, 295);
        assert!(ratio.holds(0.99), "{ratio:?}");
        // Both kinds come first about equally often.
        let firsts = turns.first_is_sampled.iter().filter(|first| **first).count();
        assert!((100..200).contains(&firsts), "{firsts} of 301");
        assert!((0..300).all(|pair| turns.is_sampled(2 * pair) != turns.is_sampled(2 * pair + 1)));
    }

    #[test]
    fn absent_cost_is_not_reported() {
        let turns = SampledIntervals::new(4, 60_000);
        let mut random = Random::new(9);
        let bytes = (0..600).map(|_| 1_000_000_000 + random.below(200_000_000)).collect();
        let ratio = turns.ratio(&received(bytes, |_| 0)).unwrap();
        assert!(ratio.holds(1.0) && ratio.precision().unwrap() < 0.02, "{ratio:?}");
    }

    #[test]
    fn late_and_empty_intervals_are_excluded() {
        let turns = SampledIntervals::new(1, 6_000);
        let even = |late: fn(u64) -> u64| turns.ratio(&received(vec![1000; 60], late)).map(|r| r.n);
        assert_eq!(even(|_| 0), Some(25));
        // The 41st interval ends late, so that it and the next one overlap.
        assert_eq!(even(|n| if n == 41 { 30_000_000 } else { 0 }), Some(24));
        assert_eq!(turns.ratio(&received(vec![0; 60], |_| 0)), None);
        assert_eq!(turns.ratio(&received(vec![5; 60], |n| u64::MAX / 2 - n)), None);
        assert_eq!(turns.ratio(&received(vec![5; 6], |_| 0)), None);
        assert!(turns.is_sampled(u64::MAX));
    }
}
