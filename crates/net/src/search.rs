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
pub const TRIAL_RATIO_MAX: f64 = 1.03;
/// The final ratio of the lowest failed to the highest passed run.
const RUN_RATIO_MAX: f64 = 1.06;
/// The maximum number of trials.
const TRIALS_MAX: u32 = 60;
/// The maximum number of runs.
const RUNS_MAX: u32 = 8;
/// The next run is at the rate that the path carried in the last, minus this share.
const RATE_MARGIN_SHARE: f64 = 0.005;

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
    passed_trial_bps: Option<f64>,
    /// The lowest rate whose trials failed.
    failed_trial: Option<(f64, TrialVerdict)>,
    /// The highest rate that a run sustained.
    sustained_bps: Option<f64>,
    /// The lowest rate above it that a run did not sustain.
    failed_run: Option<(f64, TrialVerdict)>,
    next: f64,
    /// Whether the last trial failed and is repeated.
    is_repeating: bool,
    limits: (f64, f64),
    trials: u32,
    runs: u32,
}

impl Search {
    /// Starts a search at `first` bit/s, within `limits`.
    pub fn new(first: u64, limits: (u64, u64)) -> Self {
        let limits = (limits.0 as f64, limits.1 as f64);
        let next = (first as f64).clamp(limits.0, limits.1);
        Self {
            passed_trial_bps: None,
            failed_trial: None,
            sustained_bps: None,
            failed_run: None,
            next,
            is_repeating: false,
            limits,
            trials: 0,
            runs: 0,
        }
    }

    /// The next step; `None` if the search is over.
    pub fn next(&self) -> Option<Step> {
        let close =
            matches!((self.passed_trial_bps, self.failed_trial), (Some(p), Some((f, _))) if f / p <= TRIAL_RATIO_MAX);
        let at_limit = self.passed_trial_bps.is_some_and(|p| p >= self.limits.1)
            || self.failed_trial.is_some_and(|(f, _)| f <= self.limits.0);
        if self.runs == 0 && !close && !at_limit && self.trials < TRIALS_MAX {
            return Some(Step::Trial(self.next as u64));
        }
        let passed = self.passed_trial_bps?;
        let rate = match (self.sustained_bps, self.failed_run) {
            (None, None) => passed,
            (None, Some(_)) => self.next,
            (Some(held), Some((broke, _))) if broke / held > RUN_RATIO_MAX => (held * broke).sqrt(),
            (Some(_), _) => return None,
        };
        (self.runs < RUNS_MAX && rate >= self.limits.0).then_some(Step::Run(rate as u64))
    }

    /// Records the outcome of the trial requested by [`next`](Self::next).
    pub fn record_trial(&mut self, trial: TrialVerdict) {
        self.trials += 1;
        self.is_repeating = trial != TrialVerdict::Passed && !self.is_repeating;
        if self.is_repeating {
            return;
        }
        match trial {
            TrialVerdict::Passed => self.passed_trial_bps = Some(self.next),
            lossy => self.failed_trial = Some((self.next, lossy)),
        }
        self.next = match (self.passed_trial_bps, self.failed_trial) {
            (Some(p), Some((f, _))) => (p * f).sqrt(),
            (Some(p), None) => (p * 2.0).min(self.limits.1),
            (None, Some((f, _))) => (f / 4.0).max(self.limits.0),
            (None, None) => self.next,
        };
    }

    /// Records the outcome of the run requested by [`next`](Self::next); returns whether it is the best so far.
    pub fn record_run(&mut self, run: &RateCheck) -> bool {
        let Some(Step::Run(rate)) = self.next() else { return false };
        self.runs += 1;
        let rate = rate as f64;
        if run.run_verdict == TrialVerdict::Passed {
            self.sustained_bps = Some(rate);
            return true;
        }
        self.failed_run = Some((rate, run.run_verdict));
        self.next = rate * (1.0 - run.excess() - RATE_MARGIN_SHARE).clamp(0.5, 1.0 - 3.0 * RATE_MARGIN_SHARE);
        false
    }

    /// The highest rate that a run sustained, bit/s; `None` if none did.
    pub fn highest_sustained_bps(&self) -> Option<u64> {
        self.sustained_bps.map(|rate| rate as u64)
    }

    /// The lowest rate above it that failed, and why; `None` if there is none.
    pub fn lowest_failed(&self) -> Option<(u64, TrialVerdict)> {
        let known = [self.failed_run, self.failed_trial].into_iter().flatten();
        let above = known.filter(|(rate, _)| self.sustained_bps.is_none_or(|held| *rate > held));
        above.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(rate, why)| (rate as u64, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate_check::LOSS_SHARE_MAX;
    use proptest::prelude::*;

    /// A run over a path with a given rate, a queue of a given length in s, and a share of random loss.
    fn run_over_path(path: (f64, f64, f64), rate: f64, seconds: f64) -> RateCheck {
        let (carries, queue_s, share) = path;
        let excess = (1.0 - carries / rate).max(0.0);
        let queued = excess.min(queue_s / seconds);
        let loss = (excess - queued).max(share);
        let judged =
            |loss: f64| if loss + queued > LOSS_SHARE_MAX { TrialVerdict::Lossy } else { TrialVerdict::Passed };
        RateCheck {
            loss,
            loss_upper: loss * 1.2 + 0.0005,
            queued,
            burst_packets: 1.0,
            trial_verdict: judged(loss),
            run_verdict: judged(loss * 1.2 + 0.0005),
        }
    }

    fn finish_search(first: u64, mut path: impl FnMut(Step) -> (f64, f64, f64)) -> Search {
        let mut search = Search::new(first, (10_000, 1_000_000_000_000));
        while let Some(step) = search.next() {
            match step {
                Step::Trial(rate) => search.record_trial(run_over_path(path(step), rate as f64, 1.0).trial_verdict),
                Step::Run(rate) => {
                    search.record_run(&run_over_path(path(step), rate as f64, 10.0));
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
            let search = finish_search(first, |_| (carries, queue_s, 0.0));
            let held = search.highest_sustained_bps().unwrap() as f64;
            prop_assert!(held * (1.0 - LOSS_SHARE_MAX) <= carries && held * 1.05 + 2.0 >= carries, "{held} of {carries}");
            prop_assert!(search.trials < TRIALS_MAX && search.runs <= RUNS_MAX);
            let (broke, _) = search.lowest_failed().unwrap();
            prop_assert!(broke as f64 > held && broke as f64 >= carries);
        }

        /// A single failed trial does not affect the result.
        #[test]
        fn trial_that_fails_by_chance_is_repeated(carries in 1e6_f64..1e10, which in 1_u32..12) {
            let mut count = 0;
            let search = finish_search(10_000_000, |_| {
                count += 1;
                if count == which { (1.0, 0.0, 0.0) } else { (carries, 0.01, 0.0) }
            });
            if search.runs == 1 {
                prop_assert!(search.highest_sustained_bps().unwrap() as f64 * 1.05 >= carries);
            }
        }
    }

    #[test]
    fn rate_falls_if_path_carries_less_in_long_runs() {
        // A token bucket with saved tokens: 30 Mb/s for a second, 20 in the long run.
        let search = finish_search(10_000_000, |step| match step {
            Step::Trial(_) => (30e6, 0.0, 0.0),
            Step::Run(_) => (20e6, 0.0, 0.0),
        });
        let held = search.highest_sustained_bps().unwrap();
        assert!((19_000_000..=20_200_000).contains(&held), "{held}");
        // One run during which the machine stalled does not halve the rate.
        let mut runs = 0;
        let search = finish_search(10_000_000, |step| {
            runs += u32::from(matches!(step, Step::Run(_)));
            if runs == 1 && matches!(step, Step::Run(_)) { (10e6, 0.0, 0.0) } else { (30e6, 0.0, 0.0) }
        });
        assert!(search.highest_sustained_bps().unwrap() > 26_000_000, "{search:?}");
    }

    #[test]
    fn path_with_constant_loss_has_no_rate() {
        for lost in [0.009, 0.02] {
            let search = finish_search(10_000_000, |_| (30e6, 0.0, lost));
            assert_eq!(search.highest_sustained_bps(), None);
            assert!(search.lowest_failed().is_some());
        }
        assert_eq!(finish_search(1_000_000, |_| (1.0, 0.0, 0.0)).highest_sustained_bps(), None);
        assert_eq!(
            finish_search(1_000_000, |_| (f64::INFINITY, 0.0, 0.0)).highest_sustained_bps(),
            Some(1_000_000_000_000)
        );
    }
}
