//! Finds the highest UDP rate that a run sustains ([`crate::search`] selects the rates to try): trials, then full runs
//! until one sustains its rate; that run is the result. If none does, the last run is the result, marked as not valid.

use crate::rate_check::{
    BACK_TO_BACK_PACKETS_MAX, CONFIDENCE_LEVEL, LOSS_SHARE_MAX, PACKETS_MIN, RateCheck, TrialVerdict,
};
use crate::run::{Outcome, Session};
use crate::search::{Search, Step};
use crate::spec::{RATE_BPS_MAX, Spec, Traffic};
use crate::{Error, Result, nan};
use model::text::rate;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The initial rate of a search, bit/s.
pub const INITIAL_RATE_BPS: u64 = 10_000_000;
/// The duration of a trial.
const TRIAL_DURATION: Duration = Duration::from_secs(1);
/// A run with too few packets for a verdict is extended, up to this duration.
const RUN_DURATION_MAX: Duration = Duration::from_secs(60);

/// The result of a search, as written to JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// The highest rate that a run sustained, bit/s.
    pub rate_bps: Option<u64>,
    /// The trials, in order.
    pub trials: Vec<TrialRow>,
    /// The runs, in order.
    pub runs: Vec<TrialRow>,
    /// The search as text, printed before the result.
    pub text: String,
    /// The precision of the search; `None` if it was not completed.
    #[serde(flatten)]
    pub bounds: Option<Bounds>,
}

/// A trial or a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TrialRow {
    /// Bit/s.
    pub rate_bps: u64,
    /// How long it was.
    pub seconds: f64,
    /// See [`RateCheck`].
    pub loss: f64,
    /// See [`RateCheck`].
    pub loss_upper: f64,
    /// See [`RateCheck`].
    pub queued: f64,
    /// See [`RateCheck`].
    #[serde(deserialize_with = "nan::read")]
    pub burst_packets: f64,
    /// Whether it sustained its rate.
    pub passed: bool,
}

/// The precision of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Upper bound of the share of packets lost or still queued at the rate found.
    pub lost_or_queued_upper: Option<f64>,
    /// The confidence of that bound.
    pub confidence: f64,
    /// The lowest rate that was not sustained.
    pub lowest_failed_bps: Option<u64>,
    /// Why that rate failed.
    pub stopped_by: String,
}

/// Searches, and reports each step. If interrupted, returns the highest rate that a run has sustained so far; if there is
/// none, returns the last run, which is not valid.
pub async fn find_highest_rate(
    session: &mut Session,
    spec: &Spec,
    tell: &mut dyn FnMut(String),
) -> Result<(Outcome, SearchResult)> {
    let Traffic::Udp { packet_bytes, .. } = spec.traffic else {
        return Err(Error::Search("--rate auto is for UDP".into()));
    };
    let interrupter = session.interrupter();
    let at = |rate_bps: u64, duration: Duration| Spec {
        traffic: Traffic::Udp { rate_bps, packet_bytes },
        duration_ms: duration.as_millis() as u64,
        ..spec.clone()
    };
    let mut search = Search::new(INITIAL_RATE_BPS, (10_000, RATE_BPS_MAX));
    let (mut trials, mut runs) = (Vec::new(), Vec::new());
    let (mut best, mut last, mut bursts) = (None, None, 0.0_f64);
    while let Some(step) = search.next() {
        let spec = match step {
            Step::Trial(rate) => at(rate, TRIAL_DURATION),
            Step::Run(rate) => {
                at(rate, sufficient_duration(rate, packet_bytes, Duration::from_millis(spec.duration_ms)))
            }
        };
        let mut outcome = session.run(&spec).await?;
        let Some(check) = check_rate(&outcome) else {
            return Err(Error::Search(format!("a run at {} had no result", step_rate(step))));
        };
        let ended_early = outcome.own.trouble.is_some();
        // The bursts of the last rate that was not sustained.
        if check.run_verdict != TrialVerdict::Passed {
            bursts = check.burst_packets;
        }
        tell(describe_step(step, &spec, &check));
        match step {
            Step::Trial(_) => trials.push(trial_row(step, &spec, &check, check.trial_verdict)),
            Step::Run(_) => runs.push(trial_row(step, &spec, &check, check.run_verdict)),
        }
        if interrupter.load(Ordering::Relaxed) || ended_early {
            if best.is_some() {
                break;
            }
            outcome
                .own
                .trouble
                .get_or_insert_with(|| "the search was interrupted before any run sustained its rate".into());
            let text = "the search was not completed; its last run:".into();
            return Ok((outcome, SearchResult { rate_bps: None, trials, runs, text, bounds: None }));
        }
        match step {
            Step::Trial(_) => search.record_trial(check.trial_verdict),
            Step::Run(_) if search.record_run(&check) => {
                outcome.searched = Some(TrialVerdict::Passed);
                best = Some((outcome, check));
                continue;
            }
            Step::Run(_) => (),
        }
        last = Some(outcome);
    }
    let (lowest_failed_bps, stopped_by) = search.lowest_failed().unzip();
    let stopped_by = stopped_by.unwrap_or(TrialVerdict::Passed);
    let stopped = if bursts > BACK_TO_BACK_PACKETS_MAX && stopped_by == TrialVerdict::Lossy {
        format!(
            "{}, and the sender was short of CPU time: it sent bursts of {bursts:.0} packets and more, which a short \
             queue drops; on a quieter machine the rate may be higher",
            stop_reason(stopped_by)
        )
    } else {
        stop_reason(stopped_by).to_string()
    };
    let tries = format!("{} trials of {} s, {} runs", trials.len(), TRIAL_DURATION.as_secs(), runs.len());
    let (outcome, text, upper) = match best {
        Some((mut outcome, held)) => {
            outcome.searched = Some(stopped_by);
            let text = format!(
                "highest rate with at most {:.0} % loss: {} ({:.2} % lost, {:.2} % still queued at the end; together \
                 at most {:.2} %, {:.0} % confidence)\n  {}{stopped} ({tries}); the run at this rate:",
                100.0 * LOSS_SHARE_MAX,
                rate(search.highest_sustained_bps().unwrap_or_default() as f64),
                100.0 * held.loss,
                100.0 * held.queued,
                100.0 * (held.loss_upper + held.queued),
                100.0 * CONFIDENCE_LEVEL,
                lowest_failed_bps.map_or_else(String::new, |bps| format!("at {} ", rate(bps as f64))),
            );
            (outcome, text, Some(held.loss_upper + held.queued))
        }
        None => {
            let mut outcome = last.ok_or_else(|| Error::Search("no rate was tried".into()))?;
            let why = format!(
                "no rate was sustained: down to {}, more than {:.0} % was lost or still queued, or a run of this \
                 length cannot exclude it ({tries}); give a longer --duration, or check whether the path loses \
                 packets at any rate",
                rate(lowest_failed_bps.unwrap_or_default() as f64),
                100.0 * LOSS_SHARE_MAX
            );
            outcome.own.trouble.get_or_insert(why);
            (outcome, "no rate was sustained; the last run:".to_string(), None)
        }
    };
    let bounds =
        Bounds { lost_or_queued_upper: upper, confidence: CONFIDENCE_LEVEL, lowest_failed_bps, stopped_by: stopped };
    Ok((outcome, SearchResult { rate_bps: search.highest_sustained_bps(), trials, runs, text, bounds: Some(bounds) }))
}

/// Describes a step as text, during the search.
fn describe_step(step: Step, spec: &Spec, check: &RateCheck) -> String {
    let (what, judgement) = match step {
        Step::Trial(_) => ("trial", check.trial_verdict),
        Step::Run(_) => ("run", check.run_verdict),
    };
    let row = match judgement {
        TrialVerdict::Passed => "held".to_string(),
        TrialVerdict::Short => "the sender did not reach it".into(),
        TrialVerdict::Lossy | TrialVerdict::Dropped => {
            format!("not sustained ({:.2} % lost, {:.2} % still queued)", 100.0 * check.loss, 100.0 * check.queued)
        }
    };
    format!("{what} of {:.1} s at {}: {row}", spec.duration_ms as f64 / 1e3, step_rate(step))
}

fn step_rate(step: Step) -> String {
    let (Step::Trial(bps) | Step::Run(bps)) = step;
    rate(bps as f64)
}

/// The requested duration, or longer until enough packets are due.
fn sufficient_duration(rate_bps: u64, packet_bytes: u32, requested: Duration) -> Duration {
    let enough = Duration::from_secs_f64((PACKETS_MIN * u64::from(packet_bytes) * 8) as f64 / rate_bps.max(1) as f64);
    requested.max(enough.min(RUN_DURATION_MAX))
}

fn check_rate(outcome: &Outcome) -> Option<RateCheck> {
    let direction = *outcome.spec.directions.first()?;
    let (sent, received) = (outcome.sent(direction)?.packets.as_ref()?, outcome.received(direction)?.packets.as_ref()?);
    Some(RateCheck::from_counts(sent, received, outcome.spec.duration_ms * 1_000_000))
}

fn trial_row(step: Step, spec: &Spec, check: &RateCheck, judgement: TrialVerdict) -> TrialRow {
    let (Step::Trial(rate_bps) | Step::Run(rate_bps)) = step;
    TrialRow {
        rate_bps,
        seconds: spec.duration_ms as f64 / 1e3,
        loss: check.loss,
        loss_upper: check.loss_upper,
        queued: check.queued,
        burst_packets: check.burst_packets,
        passed: judgement == TrialVerdict::Passed,
    }
}

fn stop_reason(trial: TrialVerdict) -> &'static str {
    match trial {
        TrialVerdict::Short => "the sender's CPU is saturated",
        TrialVerdict::Dropped => "the receiver's own socket dropped more than 1 %",
        TrialVerdict::Lossy => "more was lost or still queued",
        TrialVerdict::Passed => "this is the highest rate that can be requested",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_length_grows_as_rate_falls() {
        let s = Duration::from_secs;
        assert_eq!(sufficient_duration(100_000_000, 1200, s(3)), s(3));
        assert_eq!(sufficient_duration(1_000_000, 1250, s(3)), s(10));
        assert_eq!(sufficient_duration(10_000, 1250, s(3)), RUN_DURATION_MAX);
        assert_eq!(sufficient_duration(10_000, 1250, s(90)), s(90));
    }
}
