//! What the emulator's lateness did to a result. Pure.
//!
//! A packet that left late travelled longer. So a round trip over this link took longer than over the one that was asked for, by the lateness of
//! both ways, and its mean lies between what is known and what is possible ([`super::lateness`]). What that changes:
//!
//! - **Round trips** (and times of transactions): longer by it.
//! - **Rates.** A flow that waits for acknowledgements, by its window or one transaction after another, moves a window in a round trip: its rate is lower by the share that the round trip grew
//!   by. That is the most that lateness takes: where the link's rate or the sender is the limit it takes nothing, since when a packet is due does not depend on how
//!   late the one before it left. Only while the emulator was behind for long may a medium have been idle that had something to send: that share of the time is
//!   added. And what was late at the beginning may count at the end: that gives at most the longest lateness as a share of the time.
//! - **Retransmissions.** From [`TIMEOUT_NS`] on TCP takes a packet for lost, and what follows is another flow. Then there is no bound.
//! - **What found the queue full.** Packets that were read at once after the emulator had not looked find it fuller than they would have: such drops are in doubt.
//!
//! **Uncertainty.** How a congestion control answers to round trips that vary is not in it: one that paces by delay (BBR, Vegas) may do something else altogether.
//!
//! A result counts where that interval is narrow: no wider than the result's own interval, or than [`ALLOWED`] where that is more.

use super::lateness::LatenessBounds;
use super::schedule::{DOWN, UP};
use super::spec::Spec;

/// A rate that may be lowered by this share counts, however well the result is known.
pub const ALLOWED: f64 = 0.05;
/// Linux' TCP_RTO_MIN: no timer of retransmission is shorter than the round trip and this, ns.
pub const TIMEOUT_NS: u64 = 200_000_000;
/// Against a shorter round trip lateness is not weighed, ns: the ends' own work takes some of it, and no program wakes to a microsecond.
const SHORTEST_NS: f64 = 2e6;

/// Why a result over the link does not count.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum TooLate {
    /// TCP took a packet for lost.
    #[error(
        "a packet was up to {:.0} ms late; from {} ms on, TCP treats it as lost",
        *longest_ns as f64 / 1e6, TIMEOUT_NS / 1_000_000
    )]
    TakenForLost {
        /// How late the latest packet was at most, ns.
        longest_ns: u64,
    },
    /// A rate may have been lower than the link's by more than is allowed.
    #[error(
        "packets were late: mean round trips were {:.2} to {:.2} ms longer than {:.2} ms, which may have lowered \
         a rate by {:.1} %, and {}",
        effect.added_ns[0] / 1e6, effect.added_ns[1] / 1e6, effect.round_trip_ns / 1e6, -100.0 * effect.rate[0],
        difference(*own)
    )]
    RateLowered {
        /// What lateness did.
        effect: Effect,
        /// How far the result's own interval reaches to either side, as a share of it.
        own: Option<f64>,
    },
}

/// What the lowering is held against.
fn difference(own: Option<f64>) -> String {
    match own {
        Some(own) if own > ALLOWED => format!("the result's own interval is ± {:.1} %", 100.0 * own),
        _ => format!("{:.0} % are allowed", 100.0 * ALLOWED),
    }
}

/// What lateness did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// The round trip that was asked for, ns: both delays and the sending of a packet; at least [`SHORTEST_NS`].
    pub round_trip_ns: f64,
    /// By which the mean round trip was longer, ns: at least and at most.
    pub added_ns: [f64; 2],
    /// The latest packet at most, ns.
    pub longest_ns: u64,
    /// A rate measured is the link's times 1 + something between these.
    pub rate: [f64; 2],
}

impl Effect {
    /// Of packets up and down, of an emulator that was behind for so long of the time in which packets passed.
    pub fn of(spec: &Spec, late: &[LatenessBounds; 2], stalled_ns: u64, passing_ns: u64) -> Self {
        let full = f64::from(spec.mtu()) * 8e9;
        let sending = [&spec.up, &spec.down].map(|way| {
            let bits = if way.rate_bps > 0 { full / way.rate_bps as f64 } else { 0.0 };
            bits + way.packet_ns as f64
        });
        let asked = spec.up.delay_ns as f64 + spec.down.delay_ns as f64 + sending[0].min(sending[1]);
        let round_trip_ns = asked.max(SHORTEST_NS);
        let sum = |of: fn(&LatenessBounds) -> f64| of(&late[UP]) + of(&late[DOWN]);
        let added_ns = [sum(|l| l.known.mean()), sum(|l| l.most.mean())];
        let longest_ns = late[UP].most.max().max(late[DOWN].most.max());
        let share = |ns: u64| if ns == 0 { 0.0 } else { (ns as f64 / passing_ns.max(1) as f64).min(1.0) };
        let lowered = added_ns[1] / (round_trip_ns + added_ns[1]) + share(stalled_ns);
        let rate = [-lowered.min(1.0), share(late[UP].known.max().max(late[DOWN].known.max()))];
        Self { round_trip_ns, added_ns, longest_ns, rate }
    }

    /// Whether a result counts whose own interval reaches `own` to either side, as a share of it; nothing if it has none.
    ///
    /// # Errors
    /// Why not.
    pub fn verdict(&self, own: Option<f64>) -> Result<(), TooLate> {
        if self.longest_ns >= TIMEOUT_NS {
            return Err(TooLate::TakenForLost { longest_ns: self.longest_ns });
        }
        let own = own.filter(|own| own.is_finite());
        let allowed = own.map_or(ALLOWED, |own| own.max(ALLOWED));
        if -self.rate[0] <= allowed { Ok(()) } else { Err(TooLate::RateLowered { effect: *self, own }) }
    }

    /// In a few words.
    pub fn text(&self) -> String {
        let ms = |ns: f64| ns / 1e6;
        let [low, high] = self.rate.map(|share| 100.0 * share);
        format!(
            "effect on a rate {low:.2} to {high:+.2} %, on a round trip {:+.3} to {:+.3} ms",
            ms(self.added_ns[0]),
            ms(self.added_ns[1])
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::DirectionSpec;
    use super::*;

    fn effect(delay_ms: u64, rate_bps: u64, packets: &[(u64, u64)]) -> Effect {
        let way = DirectionSpec { delay_ns: delay_ms * 1_000_000, rate_bps, ..DirectionSpec::default() };
        let mut late = [LatenessBounds::default(), LatenessBounds::default()];
        for (known, unseen) in packets {
            late.iter_mut().for_each(|l| l.record(0, (*known, *known), *unseen));
        }
        Effect::of(&Spec::both(way), &late, 0, 10_000_000_000)
    }

    #[test]
    fn lateness_lowers_window_limited_rate_per_round_trip() {
        // 8 ms each way, and each packet 0.1 ms late, at most 0.4: a round trip takes 16.2 to 16.8 ms.
        let e = effect(8, 0, &[(100_000, 300_000); 50]);
        assert!((e.added_ns[0] - 2e5).abs() < 1.0 && (e.added_ns[1] - 8e5).abs() < 1.0, "{e:?}");
        assert!((e.rate[0] - (16.0 / 16.8 - 1.0)).abs() < 1e-9 && e.rate[1] < 1e-4, "{e:?}");
        assert_eq!(e.verdict(None), Ok(()));
        assert!(e.text().contains("-4.76 to +0.00 %") && e.text().contains("+0.200 to +0.800 ms"), "{}", e.text());
    }

    #[test]
    fn few_late_packets_are_tolerated() {
        // An older rule refused this: 99th percentile 2 ms late with 400 us allowed. The mean grew by 3 us each way.
        let mut packets = vec![(10_000, 0); 98];
        packets.extend([(2_000_000, 0); 2]);
        let e = effect(8, 0, &packets);
        assert!(e.verdict(None).is_ok() && -e.rate[0] < 0.007, "{e:?}");
    }

    #[test]
    fn effect_is_allowed_within_confidence_interval() {
        let e = effect(4, 0, &[(500_000, 0); 20]);
        assert!((e.rate[0] - (8.0 / 9.0 - 1.0)).abs() < 1e-9);
        let why = e.verdict(None).unwrap_err().to_string();
        assert!(why.contains("1.00 to 1.00 ms") && why.contains("11.1 %") && why.contains("5 % are allowed"), "{why}");
        assert_eq!(e.verdict(Some(0.2)), Ok(()));
        assert!(e.verdict(Some(0.08)).unwrap_err().to_string().contains("± 8.0 %"));
        assert!(e.verdict(Some(f64::NAN)).is_err());
    }

    #[test]
    fn lateness_beyond_rto_is_unbounded() {
        let mut packets = vec![(10_000, 0); 100_000];
        packets.push((10_000, 250_000_000));
        let e = effect(50, 0, &packets);
        assert!(e.verdict(Some(9.0)).unwrap_err().to_string().contains("250 ms late"));
    }

    #[test]
    fn round_trip_includes_serialization_and_has_minimum() {
        // 1500 bytes at 1 Mb/s take 12 ms.
        assert!((effect(1, 1_000_000, &[]).round_trip_ns - 14e6).abs() < 1.0);
        let none = effect(0, 0, &[]);
        assert_eq!((none.round_trip_ns, none.rate, none.verdict(None)), (SHORTEST_NS, [-0.0, 0.0], Ok(())));
        // Behind for a tenth of the time.
        let stalled = Effect::of(&Spec::default(), &Default::default(), 1_000_000_000, 10_000_000_000);
        assert!((stalled.rate[0] + 0.1).abs() < 1e-9 && stalled.verdict(None).is_err());
        // What was allowed without a delay still is: 50 us each way.
        assert_eq!(effect(0, 0, &[(50_000, 0); 9]).verdict(None), Ok(()));
    }
}
