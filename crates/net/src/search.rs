//! The highest UDP rate that a run sustained. Pure: it takes the outcome of each trial and each run
//! ([`crate::rate_check`]), and returns the next step.
//!
//! **Trials** are short. The rate doubles from the first one until a trial fails; then the interval is bisected, on a
//! logarithmic scale, until its ends lie within [`TRIAL_RATIO_MAX`]. A failed trial is repeated once before it counts,
//! since one burst of loss, or one moment in which a busy machine was stalled, makes a short trial fail.
//!
//! **Runs** are of full length, and only they count. The first is at the highest rate of the trials; a failed run shows
//! what the path carried, and the next is a little below that. If a run succeeds far below a failed one, runs in between
//! follow. The result is the highest rate that a run sustained; if none did there is no result.
//!
//! **Uncertainty.** The verdict of each run is right with the probability [`crate::rate_check::CONFIDENCE_LEVEL`], and
//! one of several runs may pass by chance; on a path with a varying rate the result is that at the time of its run.

use crate::rate_check::{RateCheck, TrialVerdict};

/// The final ratio of the lowest failed to the highest passed trial.
pub const CLOSE: f64 = 1.03;
/// The final ratio of the lowest failed to the highest passed run.
const RUNS_CLOSE: f64 = 1.06;
/// The maximum number of trials.
const MOST_TRIALS: u32 = 60;
/// The maximum number of runs.
const MOST_RUNS: u32 = 8;
/// The next run is at the rate that the path carried in the last, minus this share.
const BELOW: f64 = 0.005;

/// The next step, at a rate in bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A short trial.
    Trial(u64),
    /// A full run, to confirm the rate.
    Run(u64),
}

/// A search in progress.
#[derive(Debug, Clone)]
pub struct Search {
    /// The highest rate whose trial passed, bit/s.
    passed: Option<f64>,
    /// The lowest rate whose trials failed.
    failed: Option<(f64, TrialVerdict)>,
    /// The highest rate that a run sustained.
    held: Option<f64>,
    /// The lowest rate above it that a run did not sustain.
    broke: Option<(f64, TrialVerdict)>,
    next: f64,
    /// Whether the last trial failed and is repeated.
    again: bool,
    limits: (f64, f64),
    trials: u32,
    runs: u32,
}

impl Search {
    /// Starts a search at `first` bit/s, within `limits`.
    pub fn new(first: u64, limits: (u64, u64)) -> Self {
        let limits = (limits.0 as f64, limits.1 as f64);
        let next = (first as f64).clamp(limits.0, limits.1);
        Self { passed: None, failed: None, held: None, broke: None, next, again: false, limits, trials: 0, runs: 0 }
    }

    /// The next step; `None` if the search is over.
    pub fn next(&self) -> Option<Step> {
        let close = matches!((self.passed, self.failed), (Some(p), Some((f, _))) if f / p <= CLOSE);
        let at_limit =
            self.passed.is_some_and(|p| p >= self.limits.1) || self.failed.is_some_and(|(f, _)| f <= self.limits.0);
        if self.runs == 0 && !close && !at_limit && self.trials < MOST_TRIALS {
            return Some(Step::Trial(self.next as u64));
        }
        let passed = self.passed?;
        let rate = match (self.held, self.broke) {
            (None, None) => passed,
            (None, Some(_)) => self.next,
            (Some(held), Some((broke, _))) if broke / held > RUNS_CLOSE => (held * broke).sqrt(),
            (Some(_), _) => return None,
        };
        (self.runs < MOST_RUNS && rate >= self.limits.0).then_some(Step::Run(rate as u64))
    }

    /// Records the outcome of the trial requested by [`next`](Self::next).
    pub fn tried(&mut self, trial: TrialVerdict) {
        self.trials += 1;
        self.again = trial != TrialVerdict::Passed && !self.again;
        if self.again {
            return;
        }
        match trial {
            TrialVerdict::Passed => self.passed = Some(self.next),
            lossy => self.failed = Some((self.next, lossy)),
        }
        self.next = match (self.passed, self.failed) {
            (Some(p), Some((f, _))) => (p * f).sqrt(),
            (Some(p), None) => (p * 2.0).min(self.limits.1),
            (None, Some((f, _))) => (f / 4.0).max(self.limits.0),
            (None, None) => self.next,
        };
    }

    /// Records the outcome of the run requested by [`next`](Self::next); returns whether it is the best so far.
    pub fn ran(&mut self, run: &RateCheck) -> bool {
        let Some(Step::Run(rate)) = self.next() else { return false };
        self.runs += 1;
        let rate = rate as f64;
        if run.surely == TrialVerdict::Passed {
            self.held = Some(rate);
            return true;
        }
        self.broke = Some((rate, run.surely));
        self.next = rate * (1.0 - run.excess() - BELOW).clamp(0.5, 1.0 - 3.0 * BELOW);
        false
    }

    /// The highest rate that a run sustained, bit/s; `None` if none did.
    pub fn held(&self) -> Option<u64> {
        self.held.map(|rate| rate as u64)
    }

    /// The lowest rate above it that failed, and why; `None` if there is none.
    pub fn broke(&self) -> Option<(u64, TrialVerdict)> {
        let known = [self.broke, self.failed].into_iter().flatten();
        let above = known.filter(|(rate, _)| self.held.is_none_or(|held| *rate > held));
        above.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(rate, why)| (rate as u64, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate_check::MOST;
    use proptest::prelude::*;

    /// A run over a path with a given rate, a queue of a given length in s, and a share of random loss.
    fn over(path: (f64, f64, f64), rate: f64, seconds: f64) -> RateCheck {
        let (carries, queue_s, share) = path;
        let excess = (1.0 - carries / rate).max(0.0);
        let queued = excess.min(queue_s / seconds);
        let loss = (excess - queued).max(share);
        let judged = |loss: f64| if loss + queued > MOST { TrialVerdict::Lossy } else { TrialVerdict::Passed };
        RateCheck {
            loss,
            loss_upper: loss * 1.2 + 0.0005,
            queued,
            burst: 1.0,
            likely: judged(loss),
            surely: judged(loss * 1.2 + 0.0005),
        }
    }

    fn found(first: u64, mut path: impl FnMut(Step) -> (f64, f64, f64)) -> Search {
        let mut search = Search::new(first, (10_000, 1_000_000_000_000));
        while let Some(step) = search.next() {
            match step {
                Step::Trial(rate) => search.tried(over(path(step), rate as f64, 1.0).likely),
                Step::Run(rate) => {
                    search.ran(&over(path(step), rate as f64, 10.0));
                }
            }
        }
        search
    }

    proptest! {
        /// With any queue the result passes and is close to the path's rate.
        #[test]
        fn search_converges_from_any_start(
            first in 10_000_u64..100_000_000_000, carries in 20_000.0_f64..1e11, queue_s in 0.0_f64..3.0,
        ) {
            let search = found(first, |_| (carries, queue_s, 0.0));
            let held = search.held().unwrap() as f64;
            prop_assert!(held * (1.0 - MOST) <= carries && held * 1.05 + 2.0 >= carries, "{held} of {carries}");
            prop_assert!(search.trials < MOST_TRIALS && search.runs <= MOST_RUNS);
            let (broke, _) = search.broke().unwrap();
            prop_assert!(broke as f64 > held && broke as f64 >= carries);
        }

        /// A single failed trial does not affect the result.
        #[test]
        fn randomly_failed_trial_is_repeated(carries in 1e6_f64..1e10, which in 1_u32..12) {
            let mut count = 0;
            let search = found(10_000_000, |_| {
                count += 1;
                if count == which { (1.0, 0.0, 0.0) } else { (carries, 0.01, 0.0) }
            });
            if search.runs == 1 {
                prop_assert!(search.held().unwrap() as f64 * 1.05 >= carries);
            }
        }
    }

    #[test]
    fn rate_falls_if_path_carries_less_in_long_runs() {
        // A token bucket with saved tokens: 30 Mb/s for a second, 20 in the long run.
        let search = found(10_000_000, |step| match step {
            Step::Trial(_) => (30e6, 0.0, 0.0),
            Step::Run(_) => (20e6, 0.0, 0.0),
        });
        let held = search.held().unwrap();
        assert!((19_000_000..=20_200_000).contains(&held), "{held}");
        // One run during which the machine stalled does not halve the rate.
        let mut runs = 0;
        let search = found(10_000_000, |step| {
            runs += u32::from(matches!(step, Step::Run(_)));
            if runs == 1 && matches!(step, Step::Run(_)) { (10e6, 0.0, 0.0) } else { (30e6, 0.0, 0.0) }
        });
        assert!(search.held().unwrap() > 26_000_000, "{search:?}");
    }

    #[test]
    fn path_with_constant_loss_has_no_rate() {
        for lost in [0.009, 0.02] {
            let search = found(10_000_000, |_| (30e6, 0.0, lost));
            assert_eq!(search.held(), None);
            assert!(search.broke().is_some());
        }
        assert_eq!(found(1_000_000, |_| (1.0, 0.0, 0.0)).held(), None);
        assert_eq!(found(1_000_000, |_| (f64::INFINITY, 0.0, 0.0)).held(), Some(1_000_000_000_000));
    }
}
