//! How the emulator's lateness affected a result. Pure.
//!
//! A packet that left late travelled longer. So a round trip over this link took longer than over the requested one, by the
//! lateness of both directions, and its mean lies between the known and the possible lateness ([`super::lateness`]). The
//! consequences:
//!
//! - **Round trips** (and transaction times): longer by the lateness.
//! - **Rates.** A flow that waits for acknowledgements, because of its window or between transactions, transfers one window
//!   per round trip: its rate falls by the share by which the round trip grew. That is the maximum effect: where the link's
//!   rate or the sender is the limit lateness has no effect, since the due time of a packet does not depend on how late the
//!   previous one left. Only while the emulator was behind for long may a medium have been idle although packets waited:
//!   that share of the time is added. And data that was late at the beginning may be counted at the end: that adds at most
//!   the maximum lateness as a share of the time.
//! - **Retransmissions.** From [`TIMEOUT_NS`] on TCP treats a packet as lost, and the flow changes. Then there is no bound.
//! - **Queue drops.** Packets that are read in one batch after the emulator had not polled find the queue fuller than
//!   otherwise: such drops are uncertain.
//!
//! **Uncertainty.** It does not cover how a congestion control responds to varying round trips: a delay-based one (BBR,
//! Vegas) may behave differently.
//!
//! A result is valid where that interval is narrow: no wider than the result's own confidence interval, or than
//! [`RATE_SHORTFALL_MAX`] where that is wider.

use super::lateness::LatenessBounds;
use super::schedule::{DOWN, UP};
use super::spec::Spec;

/// A rate that may be lower by this share is valid, however narrow its own confidence interval is.
pub const RATE_SHORTFALL_MAX: f64 = 0.05;
/// Linux' TCP_RTO_MIN: a retransmission timeout is never shorter than the round trip plus this, ns.
pub const TIMEOUT_NS: u64 = 200_000_000;
/// Lateness is not compared to a shorter round trip than this, ns: the ends themselves take some time, and no program wakes
/// to a microsecond.
const ROUND_TRIP_NS_MIN: f64 = 2e6;

/// Why a result over the link is not valid.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum LatenessError {
    /// TCP may have treated a packet as lost.
    #[error(
        "a packet was up to {:.0} ms late; from {} ms on, TCP treats it as lost",
        *longest_ns as f64 / 1e6, TIMEOUT_NS / 1_000_000
    )]
    PastRetransmissionTimeout {
        /// Upper bound of the lateness of the latest packet, ns.
        longest_ns: u64,
    },
    /// Lateness may have lowered a rate by more than is allowed.
    #[error(
        "packets were late: mean round trips were {:.2} to {:.2} ms longer than {:.2} ms, which may have lowered \
         a rate by {:.1} %, and {}",
        effect.added_ns[0] / 1e6, effect.added_ns[1] / 1e6, effect.round_trip_ns / 1e6, -100.0 * effect.rate[0],
        difference(*own)
    )]
    RateLowered {
        /// The effect of the lateness.
        effect: Effect,
        /// Half-width of the result's own confidence interval, as a share of the result.
        own: Option<f64>,
    },
}

/// The limit that the effect is compared to.
fn difference(own: Option<f64>) -> String {
    match own {
        Some(own) if own > RATE_SHORTFALL_MAX => format!("the result's own interval is ± {:.1} %", 100.0 * own),
        _ => format!("{:.0} % are allowed", 100.0 * RATE_SHORTFALL_MAX),
    }
}

/// The effect of lateness.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// The requested round trip, ns: both delays and the transmission of a packet; at least [`ROUND_TRIP_NS_MIN`].
    pub round_trip_ns: f64,
    /// Increase of the mean round trip, ns: at least and at most.
    pub added_ns: [f64; 2],
    /// Upper bound of the lateness of the latest packet, ns.
    pub longest_ns: u64,
    /// A measured rate is that of the requested link times 1 + a value between these.
    pub rate: [f64; 2],
}

impl Effect {
    /// The effect for packets up and down, of an emulator that was behind for `stalled_ns` of the `passing_ns` in which packets passed.
    pub fn from_lateness(spec: &Spec, late: &[LatenessBounds; 2], stalled_ns: u64, passing_ns: u64) -> Self {
        let full = f64::from(spec.mtu()) * 8e9;
        let sending = [&spec.up, &spec.down].map(|way| {
            let bits = if way.rate_bps > 0 { full / way.rate_bps as f64 } else { 0.0 };
            bits + way.packet_ns as f64
        });
        let requested_ns = spec.up.delay_ns as f64 + spec.down.delay_ns as f64 + sending[0].min(sending[1]);
        let round_trip_ns = requested_ns.max(ROUND_TRIP_NS_MIN);
        let sum = |of: fn(&LatenessBounds) -> f64| of(&late[UP]) + of(&late[DOWN]);
        let added_ns = [sum(|l| l.known.mean()), sum(|l| l.upper.mean())];
        let longest_ns = late[UP].upper.max().max(late[DOWN].upper.max());
        let share = |ns: u64| if ns == 0 { 0.0 } else { (ns as f64 / passing_ns.max(1) as f64).min(1.0) };
        let lowered = added_ns[1] / (round_trip_ns + added_ns[1]) + share(stalled_ns);
        let rate = [-lowered.min(1.0), share(late[UP].known.max().max(late[DOWN].known.max()))];
        Self { round_trip_ns, added_ns, longest_ns, rate }
    }

    /// Whether a result is valid. `own` is the half-width of its own confidence interval, as a share of the result; `None`
    /// if it has none.
    pub fn verdict(&self, own: Option<f64>) -> Result<(), LatenessError> {
        if self.longest_ns >= TIMEOUT_NS {
            return Err(LatenessError::PastRetransmissionTimeout { longest_ns: self.longest_ns });
        }
        let own = own.filter(|own| own.is_finite());
        let allowed = own.map_or(RATE_SHORTFALL_MAX, |own| own.max(RATE_SHORTFALL_MAX));
        if -self.rate[0] <= allowed { Ok(()) } else { Err(LatenessError::RateLowered { effect: *self, own }) }
    }

    /// A short summary.
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
        Effect::from_lateness(&Spec::symmetric(way), &late, 0, 10_000_000_000)
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
        assert_eq!((none.round_trip_ns, none.rate, none.verdict(None)), (ROUND_TRIP_NS_MIN, [-0.0, 0.0], Ok(())));
        // Behind for a tenth of the time.
        let stalled = Effect::from_lateness(&Spec::default(), &Default::default(), 1_000_000_000, 10_000_000_000);
        assert!((stalled.rate[0] + 0.1).abs() < 1e-9 && stalled.verdict(None).is_err());
        // The lateness allowed without a delay: 50 us each way.
        assert_eq!(effect(0, 0, &[(50_000, 0); 9]).verdict(None), Ok(()));
    }
}
