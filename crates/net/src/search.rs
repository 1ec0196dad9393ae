//! The highest rate of UDP at which at most a given share of packets is lost. Pure: it is told how each trial went, and
//! says which rate to try next.
//!
//! From the first rate it doubles until a trial fails, then halves the interval, on a logarithmic scale, until its ends lie
//! within [`CLOSE`]. A trial fails if it loses too much, or if its sender could not keep the rate; the search ends with
//! the highest rate that passed, and says which of the two stopped it.
//!
//! **Uncertainty.** Loss is random, and a trial is short: each rate is tried once, so that one burst of loss can end the
//! search early. The caller runs the answer again for the whole duration and reports what that lost.

/// How close the two ends of the search come.
pub const CLOSE: f64 = 1.03;
/// No more trials than this.
const MOST: u32 = 40;

/// How a trial went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// Little enough was lost.
    Passed,
    /// Too much was lost on the way, or a queue grew.
    Lossy,
    /// Too much was lost, mostly by the receiver's own socket.
    Dropped,
    /// The sender did not keep the rate.
    Short,
}

/// A search under way.
#[derive(Debug, Clone)]
pub struct Search {
    /// The highest rate that passed, bit/s.
    passed: Option<f64>,
    /// The lowest that failed.
    failed: Option<(f64, Trial)>,
    next: f64,
    limits: (f64, f64),
    trials: u32,
}

impl Search {
    /// From `first` bit/s on, within `limits`.
    pub fn new(first: u64, limits: (u64, u64)) -> Self {
        let limits = (limits.0 as f64, limits.1 as f64);
        Self { passed: None, failed: None, next: (first as f64).clamp(limits.0, limits.1), limits, trials: 0 }
    }

    /// The rate to try, bit/s; `None` if the search is over.
    pub fn next(&self) -> Option<u64> {
        let close = matches!((self.passed, self.failed), (Some(p), Some((f, _))) if f / p <= CLOSE);
        let at_limit =
            self.passed.is_some_and(|p| p >= self.limits.1) || self.failed.is_some_and(|(f, _)| f <= self.limits.0);
        (!close && !at_limit && self.trials < MOST).then_some(self.next as u64)
    }

    /// How that trial went.
    pub fn tell(&mut self, trial: Trial) {
        self.trials += 1;
        match trial {
            Trial::Passed => self.passed = Some(self.next),
            lossy => self.failed = Some((self.next, lossy)),
        }
        self.next = match (self.passed, self.failed) {
            (Some(p), Some((f, _))) => (p * f).sqrt(),
            (Some(p), None) => (p * 2.0).min(self.limits.1),
            (None, Some((f, _))) => (f / 4.0).max(self.limits.0),
            (None, None) => self.next,
        };
    }

    /// The highest rate that passed, bit/s; `None` if none did.
    pub fn best(&self) -> Option<u64> {
        self.passed.map(|p| p as u64)
    }

    /// What stopped it from going higher; `None` if nothing did.
    pub fn stopped_by(&self) -> Option<Trial> {
        self.failed.map(|(_, why)| why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(first: u64, limit: f64) -> (Option<u64>, u32) {
        let mut search = Search::new(first, (10_000, 1_000_000_000_000));
        while let Some(rate) = search.next() {
            search.tell(if rate as f64 <= limit { Trial::Passed } else { Trial::Lossy });
        }
        (search.best(), search.trials)
    }

    proptest! {
        #[test]
        fn it_comes_close_from_anywhere(first in 10_000_u64..100_000_000_000, limit in 20_000.0_f64..1e11) {
            let (best, trials) = found(first, limit);
            let best = best.unwrap() as f64;
            prop_assert!(best <= limit && best * CLOSE * 1.001 + 2.0 >= limit, "{best} of {limit}");
            prop_assert!(trials < MOST);
        }
    }

    #[test]
    fn nothing_passes_or_everything_does() {
        assert_eq!(found(1_000_000, 0.0).0, None);
        assert_eq!(found(1_000_000, f64::INFINITY).0, Some(1_000_000_000_000));
    }
}
