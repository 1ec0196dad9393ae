//! Whether a UDP run sustained its rate: at most a given share of its packets was lost or still queued at the end. Pure.
//!
//! A packet in a growing queue is a packet that the path did not carry: a deep queue only postpones the loss. So the growth
//! of the queue counts as loss: the increase of the minimum transit time in the last tenth over that of the whole run, as a
//! share of the run's duration. The minimum, because a busy machine or a radio delays some packets but not all of them.
//!
//! **Loss** has an upper bound at [`CONFIDENCE_LEVEL`], the greatest of three: the Clopper-Pearson bound, which assumes
//! independent packets; the t bound of the mean over the run's blocks, for clustered loss; and, where less than half of
//! the blocks had any loss, the loss times the upper bound of the number of such blocks over their actual number
//! (Poisson).
//!
//! **Uncertainty.** A kind of burst that did not occur in the run is not covered by its bound. In simulations
//! (Gilbert-Elliott model, 30,000 packets, the loss at 0.5 %) the bound covers the true loss in 97 % of runs with
//! independent losses, 89 % with bursts of 10 packets, which are 15 in a run, and 65 % with bursts of 100, of which one run
//! in four has none. A queue that was already full before the run began does not grow. Clock drift of 200 ppm adds 0.02 %
//! of queue, or hides it.

use crate::outcome::{PacketsReceived, PacketsSent};
use serde::{Deserialize, Serialize};
use stats::{proportion, student};

/// The share of packets that may be lost or still queued.
pub const LOSS_SHARE_MAX: f64 = 0.01;
/// The confidence of the bound.
pub const CONFIDENCE_LEVEL: f64 = 0.95;
/// The share of due packets that a sender may fail to send in a trial, and in a confirming run.
const UNSENT_SHARE_MAX: [f64; 2] = [0.01, 0.001];
/// The minimum number of transit times for detecting a queue.
const TRANSITS_MIN: usize = 20;
/// More packets sent back to back than this are a burst.
pub const BACK_TO_BACK_PACKETS_MAX: f64 = 8.0;
/// The minimum number of packets to bound the loss at [`LOSS_SHARE_MAX`]: with none lost 299 suffice, with one in 200
/// lost this many are needed.
pub const PACKETS_MIN: u64 = 1000;

/// The verdict of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrialVerdict {
    /// The loss was low enough.
    Passed,
    /// Too many packets were lost on the path, or a queue grew.
    Lossy,
    /// Too many packets were lost, mostly in the receiver's own socket.
    Dropped,
    /// The sender did not reach the rate.
    Short,
}

/// How a run performed at its rate. Shares are of the packets sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateCheck {
    pub loss: f64,
    /// Upper bound of `loss`, at [`CONFIDENCE_LEVEL`].
    pub loss_upper: f64,
    /// The share still queued at the end.
    pub queued: f64,
    /// The number of packets due at once at the 99th percentile of lateness: a sender without enough CPU time sends them
    /// back to back, and a short queue drops such bursts although the path carries the rate.
    pub burst_packets: f64,
    /// The verdict from the observed loss: for a short trial.
    pub trial_verdict: TrialVerdict,
    /// The verdict from the upper bound: for a confirming run.
    pub run_verdict: TrialVerdict,
}

impl RateCheck {
    /// Evaluates a run of `wall_ns`.
    pub fn from_counts(sent: &PacketsSent, received: &PacketsReceived, wall_ns: u64) -> Self {
        let lost = sent.sent.saturating_sub(received.received);
        let loss = lost as f64 / sent.sent.max(1) as f64;
        let loss_upper = loss_upper_bound(sent.sent, lost, &block_losses(sent, received));
        let queued = queued_share(&received.transit_ns, wall_ns);
        let burst = sent.late_us[1].max(0.0) * 1e3 * sent.due as f64 / wall_ns.max(1) as f64;
        let judge = |share: f64, unsent: f64| {
            let reached_rate = sent.sent as f64 >= (1.0 - unsent) * sent.due as f64;
            if share + queued > LOSS_SHARE_MAX {
                if loss > LOSS_SHARE_MAX && received.dropped_here.saturating_mul(2) >= lost {
                    TrialVerdict::Dropped
                } else {
                    // A sender that falls behind and then catches up exceeds the requested rate, and causes loss.
                    TrialVerdict::Lossy
                }
            } else if reached_rate {
                TrialVerdict::Passed
            } else {
                TrialVerdict::Short
            }
        };
        Self {
            loss,
            loss_upper,
            queued,
            burst_packets: burst,
            trial_verdict: judge(loss, UNSENT_SHARE_MAX[0]),
            run_verdict: judge(loss_upper, UNSENT_SHARE_MAX[1]),
        }
    }

    /// The share of the sent packets that the path did not carry.
    pub fn excess(&self) -> f64 {
        (self.loss + self.queued).min(1.0)
    }
}

/// The lost share of each block of sent sequence numbers.
fn block_losses(sent: &PacketsSent, received: &PacketsReceived) -> Vec<f64> {
    let count = received.blocks.len() as u64;
    if count == 0 {
        return Vec::new();
    }
    let size = sent.due.div_ceil(count).max(1);
    let counted = received.blocks.iter().zip(0_u64..).filter_map(|(came, at)| {
        let size = sent.sent.saturating_sub(at.saturating_mul(size)).min(size);
        // The last block may be partial.
        (size > 0).then(|| 1.0 - (*came as f64 / size as f64).min(1.0))
    });
    counted.collect()
}

/// Upper bound of the lost share, at [`CONFIDENCE_LEVEL`].
fn loss_upper_bound(sent: u64, lost: u64, blocks: &[f64]) -> f64 {
    let independent = proportion::upper_bound(lost, sent, CONFIDENCE_LEVEL);
    let mean = lost as f64 / sent.max(1) as f64;
    let clustered = student::mean(blocks, 2.0 * CONFIDENCE_LEVEL - 1.0).map_or(0.0, |e| mean + (e.high - e.value));
    let lossy = blocks.iter().filter(|share| **share > 0.0).count();
    let bursts = if lossy > 0 && 2 * lossy < blocks.len() {
        mean * proportion::upper_count_bound(lossy as u64, CONFIDENCE_LEVEL) / lossy as f64
    } else {
        0.0
    };
    independent.max(clustered).max(bursts).min(1.0)
}

/// The share of the sent packets that was still queued at the end.
fn queued_share(transits: &[(u64, i64)], wall_ns: u64) -> f64 {
    if transits.len() < TRANSITS_MIN || wall_ns == 0 {
        return 0.0;
    }
    let least = |part: &[(u64, i64)]| part.iter().map(|t| t.1).min().unwrap_or(0);
    let growth = least(&transits[transits.len() - transits.len() / 10..]).saturating_sub(least(transits));
    // This is the growth after nine tenths of the run.
    growth.max(0) as f64 / (0.9 * wall_ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::LOSS_BLOCK_COUNT;

    const WALL_NS: u64 = 2_000_000_000;

    /// A run of `n` packets that loses those for which `lost` is true, with a `delay` as a function of the elapsed share.
    fn run(n: u64, lost: impl Fn(u64) -> bool, delay: impl Fn(f64) -> i64) -> (PacketsSent, PacketsReceived) {
        let sent = PacketsSent { due: n, sent: n, refused: 0, late_us: [10.0, 100.0, 1000.0] };
        let mut received = PacketsReceived { blocks: vec![0; LOSS_BLOCK_COUNT as usize], ..PacketsReceived::default() };
        for number in (0..n).filter(|number| !lost(*number)) {
            received.received += 1;
            received.blocks[(number / n.div_ceil(LOSS_BLOCK_COUNT)) as usize] += 1;
            received.transit_ns.push((number, delay(number as f64 / n as f64)));
        }
        (sent, received)
    }

    fn check(run: &(PacketsSent, PacketsReceived)) -> RateCheck {
        RateCheck::from_counts(&run.0, &run.1, WALL_NS)
    }

    #[test]
    fn queued_packets_count_as_lost() {
        // 3 % too fast, with a queue that holds the excess: nothing is lost in 2 s, and 60 ms of data are queued.
        let deep = check(&run(5000, |_| false, |at| (at * 60e6) as i64));
        assert_eq!((deep.loss, deep.run_verdict, deep.trial_verdict), (0.0, TrialVerdict::Lossy, TrialVerdict::Lossy));
        assert!((deep.queued - 0.03).abs() < 0.001, "{deep:?}");
        // A queue that is full from the beginning drops the excess; a delay of some packets, or before the last part, is not a queue.
        let waits = check(&run(5000, |_| false, |at| if at > 0.5 && at < 0.95 { 200_000_000 } else { 0 }));
        assert_eq!((waits.queued, waits.run_verdict), (0.0, TrialVerdict::Passed));
        let ahead = check(&run(5000, |_| false, |_| -7_200_000_000_000));
        assert_eq!(ahead.run_verdict, TrialVerdict::Passed);
    }

    #[test]
    fn loss_bound_widens_for_bursts_and_few_packets() {
        // 0.5 % independent loss, 0.5 % in one burst, and no loss among few packets.
        let even = check(&run(20_000, |n| n % 200 == 7, |_| 0));
        assert!(even.run_verdict == TrialVerdict::Passed && even.loss_upper < 0.0062, "{even:?}");
        let burst = check(&run(20_000, |n| (5000..5100).contains(&n), |_| 0));
        assert!(
            burst.trial_verdict == TrialVerdict::Passed
                && burst.run_verdict == TrialVerdict::Lossy
                && burst.loss_upper > 0.01,
            "{burst:?}"
        );
        let few = check(&run(100, |_| false, |_| 0));
        assert_eq!((few.trial_verdict, few.run_verdict), (TrialVerdict::Passed, TrialVerdict::Lossy));
        assert_eq!(check(&run(PACKETS_MIN, |n| n % 200 == 7, |_| 0)).trial_verdict, TrialVerdict::Passed);
        assert_eq!(check(&run(PACKETS_MIN, |_| false, |_| 0)).run_verdict, TrialVerdict::Passed);
        // For an end that does not count blocks, losses are assumed independent.
        let mut old = run(20_000, |n| (5000..5100).contains(&n), |_| 0);
        old.1.blocks.clear();
        assert!(check(&old).loss_upper < 0.0062);
    }

    #[test]
    fn cpu_limits_of_sender_and_receiver_are_distinguished() {
        let mut short = run(20_000, |_| false, |_| 0);
        short.0.due = 20_100;
        assert_eq!(
            (check(&short).trial_verdict, check(&short).run_verdict),
            (TrialVerdict::Passed, TrialVerdict::Short)
        );
        let mut dropped = run(20_000, |n| n % 20 == 0, |_| 0);
        dropped.1.dropped_here = 900;
        assert_eq!(check(&dropped).run_verdict, TrialVerdict::Dropped);
    }

    #[test]
    fn sender_bursts_are_reported() {
        // 5,000 packets in 2 s, one in a hundred of them 20 ms late.
        let mut late = run(5000, |n| n % 50 == 0, |_| 0);
        late.0.late_us = [100.0, 20_000.0, 30_000.0];
        assert!(
            (check(&late).burst_packets - 50.0).abs() < 1e-9 && check(&late).burst_packets > BACK_TO_BACK_PACKETS_MAX
        );
        assert!(check(&run(5000, |_| false, |_| 0)).burst_packets < BACK_TO_BACK_PACKETS_MAX);
    }

    #[test]
    fn invalid_reports_do_not_panic() {
        let sent = PacketsSent { due: u64::MAX, sent: 3, ..PacketsSent::default() };
        let received = PacketsReceived {
            received: u64::MAX,
            blocks: vec![u64::MAX; 7],
            transit_ns: [(0, i64::MIN), (1, i64::MAX)].repeat(20),
            ..PacketsReceived::default()
        };
        let held = RateCheck::from_counts(&sent, &received, WALL_NS);
        assert!(held.loss == 0.0 && held.excess() <= 1.0 && held.loss_upper.is_finite());
        assert_eq!(
            RateCheck::from_counts(&PacketsSent::default(), &PacketsReceived::default(), 0).run_verdict,
            TrialVerdict::Lossy
        );
    }
}
