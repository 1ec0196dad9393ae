//! What reading TCP's state costs in throughput, from one flow: intervals with readings and intervals without are drawn by lot, two
//! and two, and each pair gives a ratio. Pure.
//!
//! Runs with and without readings, one after the other, differ by far more than readings cost, for a machine is never the same twice. Two
//! neighbouring tenths of a second of one flow differ less, and there are hundreds of such pairs a minute. Which of the two comes first is drawn,
//! so that what drifts, or swings to the beat of the intervals, favours neither.
//!
//! **Uncertainty.** The estimate is the median of the pairs' ratios with its distribution-free interval ([`stats::median`]). Both ends
//! draw the same lots and begin at the same time but for the message that tells them to; a sender's reading takes effect at the receiver after
//! the way there. So a part of each interval that is as long as these two counts for the wrong side, and the cost looks smaller by that
//! part: 1 % for each ms. Beyond [`APART_NS`] nothing is reported. What an interval with readings leaves to the next (a shorter queue) counts for the wrong
//! side too.

use crate::outcome::Received;
use crate::spec::{INTERVAL_NS, SAMPLE_NS};
use stats::random::Random;
use stats::{Estimate, median};

/// Further apart the ends may not begin, ns.
pub const APART_NS: u64 = 10_000_000;
/// Pairs at the beginning that are left out: the slow start.
const BEGINNING: usize = 5;
/// The level of the interval.
const LEVEL: f64 = 0.95;

/// Which intervals have readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turns {
    /// Of each pair, whether it is the first.
    first: Vec<bool>,
}

impl Turns {
    /// For a run of that length.
    pub fn new(seed: u64, duration_ms: u64) -> Self {
        let pairs = duration_ms * 1_000_000 / (2 * INTERVAL_NS) + 1;
        let mut random = Random::new(seed);
        Self { first: (0..pairs).map(|_| random.bits() & 1 == 1).collect() }
    }

    /// Whether the interval of this number has readings.
    pub fn reads(&self, interval: u64) -> bool {
        let first = usize::try_from(interval / 2).ok().and_then(|pair| self.first.get(pair));
        first.is_none_or(|first| *first == interval.is_multiple_of(2))
    }

    /// Throughput with readings over throughput without; `None` if there are too few pairs.
    pub fn ratio(&self, received: &Received) -> Option<Estimate> {
        let mut rates = vec![None; self.first.len() * 2];
        let mut begun = received.start_ns;
        for (end, bytes) in received.ends_ns.iter().zip(&received.bytes) {
            let (from, to) = (begun.saturating_sub(received.start_ns), end.saturating_sub(received.start_ns));
            let number = from / INTERVAL_NS;
            // One that began or ended late has parts of two.
            let whole = to / INTERVAL_NS == number + 1 && from % INTERVAL_NS + to % INTERVAL_NS < SAMPLE_NS;
            if let Some(rate) = usize::try_from(number).ok().and_then(|n| rates.get_mut(n)).filter(|_| whole) {
                *rate = Some(*bytes as f64 / (to - from) as f64);
            }
            begun = *end;
        }
        let ratios: Vec<f64> = rates
            .chunks_exact(2)
            .zip(&self.first)
            .skip(BEGINNING)
            .filter_map(|(pair, first)| {
                let (with, without) = if *first { (pair[0]?, pair[1]?) } else { (pair[1]?, pair[0]?) };
                // Nothing came in a tenth of a second: the machine was elsewhere.
                (with > 0.0 && without > 0.0).then(|| with / without)
            })
            .collect();
        median::median(&ratios, LEVEL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Direction;

    /// A run whose intervals have these rates, in bytes.
    fn received(bytes: Vec<u64>, late: impl Fn(u64) -> u64) -> Received {
        Received {
            direction: Direction::Up,
            start_ns: 7,
            ends_ns: (1..=bytes.len() as u64).map(|n| 7 + n * INTERVAL_NS + late(n)).collect(),
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
        let turns = Turns::new(3, 60_000);
        // 1 % less with readings; the rate rises tenfold in the run, and every other interval is slower by a tenth.
        let rate = |n: u64| {
            let beat = if n.is_multiple_of(2) { 0.9 } else { 1.0 };
            let cost = if turns.reads(n) { 0.99 } else { 1.0 };
            (1e9 * (1.0 + n as f64 / 60.0) * beat * cost) as u64
        };
        let ratio = turns.ratio(&received((0..600).map(rate).collect(), |_| 0)).unwrap();
        assert_eq!(ratio.n, 295);
        assert!(ratio.holds(0.99), "{ratio:?}");
        // Both kinds come first about as often.
        let firsts = turns.first.iter().filter(|first| **first).count();
        assert!((100..200).contains(&firsts), "{firsts} of 301");
        assert!((0..300).all(|pair| turns.reads(2 * pair) != turns.reads(2 * pair + 1)));
    }

    #[test]
    fn absent_cost_is_not_reported() {
        let turns = Turns::new(4, 60_000);
        let mut random = Random::new(9);
        let bytes = (0..600).map(|_| 1_000_000_000 + random.below(200_000_000)).collect();
        let ratio = turns.ratio(&received(bytes, |_| 0)).unwrap();
        assert!(ratio.holds(1.0) && ratio.precision().unwrap() < 0.02, "{ratio:?}");
    }

    #[test]
    fn late_and_empty_intervals_are_excluded() {
        let turns = Turns::new(1, 6_000);
        let even = |late: fn(u64) -> u64| turns.ratio(&received(vec![1000; 60], late)).map(|r| r.n);
        assert_eq!(even(|_| 0), Some(25));
        // The 41st ends late, so that it and the next one overlap.
        assert_eq!(even(|n| if n == 41 { 30_000_000 } else { 0 }), Some(24));
        assert_eq!(turns.ratio(&received(vec![0; 60], |_| 0)), None);
        assert_eq!(turns.ratio(&received(vec![5; 60], |n| u64::MAX / 2 - n)), None);
        assert_eq!(turns.ratio(&received(vec![5; 6], |_| 0)), None);
        assert!(turns.reads(u64::MAX));
    }
}
