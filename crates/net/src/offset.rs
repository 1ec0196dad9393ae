//! The relation of two machines' clocks: their offset, and its drift.
//!
//! In each exchange a request leaves at t0, arrives at t1 and is answered at t2 by the other clock, and the response
//! arrives at t3. If both directions take equally long, the other clock is ahead by ((t1 - t0) + (t2 - t3)) / 2 (RFC 5905,
//! section 8). A queue in one direction breaks that assumption, so only the fastest exchanges count: of each group of
//! neighbours, those within a quarter of the minimum round trip (a minimum filter). Where these span
//! [`DRIFT_SPAN_NS_MIN`] or more, a straight line through them gives the drift; otherwise the drift is taken to be
//! zero.
//!
//! Two ends with the same clock name (network namespaces of one machine) need none of that: their times are compared
//! directly, unless the exchanges show that a virtual machine was copied together with its clock's name.
//!
//! **Uncertainty.** The only certain bound is that the offset is wrong by less than half the minimum round trip; a path
//! that takes longer in one direction than in the other shifts both one-way delays by half the difference, and no
//! measurement over the same path can detect it.

use crate::nan;
use serde::{Deserialize, Serialize};

/// One request and its response. `sent_ns` and `returned_ns` are by our clock, the other two by the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// When the request was sent.
    pub sent_ns: u64,
    /// When it arrived.
    pub arrived_ns: u64,
    /// When the response was sent.
    pub answered_ns: u64,
    /// When it arrived.
    pub returned_ns: u64,
}

impl Exchange {
    /// The time spent in transit, both directions, ns.
    fn round_trip(&self) -> i128 {
        let d = |a: u64, b: u64| i128::from(a) - i128::from(b);
        d(self.returned_ns, self.sent_ns) - d(self.answered_ns, self.arrived_ns)
    }

    /// How far the other clock is ahead, ns.
    fn offset(&self) -> i128 {
        let d = |a: u64, b: u64| i128::from(a) - i128::from(b);
        (d(self.arrived_ns, self.sent_ns) + d(self.answered_ns, self.returned_ns)) / 2
    }
}

/// Exchanges further apart than this, ns, reveal a drift: 1 us of error over 2 s is half a millionth.
const DRIFT_SPAN_NS_MIN: u64 = 2_000_000_000;
/// Upper bound of the drift between clocks of working machines.
const DRIFT_MAX: f64 = 500e-6;

/// The relation of the other clock to ours.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Our time at which `ahead_ns` holds.
    pub at_ns: u64,
    /// How far the other clock was ahead then, ns.
    #[serde(deserialize_with = "nan::read")]
    pub ahead_ns: f64,
    /// The change of the offset per unit of time, as a fraction.
    #[serde(deserialize_with = "nan::read")]
    pub drift: f64,
    /// Upper bound of the offset error, ns: half the minimum round trip, or 0 if both ends read one clock.
    #[serde(deserialize_with = "nan::read")]
    pub error_ns: f64,
}

impl ClockOffset {
    /// How far the other clock is ahead at our time `our_ns`, ns.
    pub fn ahead_at(&self, our_ns: u64) -> f64 {
        self.ahead_ns + self.drift * (our_ns as f64 - self.at_ns as f64)
    }

    /// Converts a time of the other clock to ours.
    pub fn to_ours(&self, their_ns: u64) -> u64 {
        // The drift over the offset itself is far below the error.
        let guess = their_ns as f64 - self.ahead_ns;
        let ahead = self.ahead_at(guess.max(0.0) as u64);
        (i128::from(their_ns) - ahead as i128).clamp(0, u64::MAX.into()) as u64
    }
}

/// The relation of both ends' clocks, given their names if both have one: identical if the names match and the exchanges do
/// not contradict it, otherwise the estimate from the exchanges.
pub fn relate_clocks(names: Option<(&str, &str)>, exchanges: &[Exchange]) -> Option<ClockOffset> {
    let shown = estimate_offset(exchanges)?;
    let same = names.is_some_and(|(own, other)| own == other);
    // The fastest exchanges bound the offset by half their round trip, which wake-up latency may lengthen.
    let fits = shown.ahead_ns.abs() <= shown.error_ns * 1.25 + 20_000.0;
    Some(if same && fits {
        ClockOffset { at_ns: shown.at_ns, ahead_ns: 0.0, drift: 0.0, error_ns: 0.0 }
    } else {
        shown
    })
}

/// The relation estimated from the exchanges; `None` if there are none, or if their times contradict each other.
pub fn estimate_offset(exchanges: &[Exchange]) -> Option<ClockOffset> {
    let sane = |e: &&Exchange| e.returned_ns >= e.sent_ns && e.answered_ns >= e.arrived_ns && e.round_trip() >= 0;
    let mut all: Vec<&Exchange> = exchanges.iter().filter(sane).collect();
    all.sort_by_key(|e| e.sent_ns);
    let least = all.iter().map(|e| e.round_trip()).min()?;
    // 20 us allow for wake-up latency, however fast the path is.
    let quick: Vec<&Exchange> = all.into_iter().filter(|e| e.round_trip() <= least + least / 4 + 20_000).collect();
    let (first, last) = (quick.first()?, quick.last()?);
    let at_ns = first.sent_ns + (last.sent_ns - first.sent_ns) / 2;
    let base = first.offset();
    let points: Vec<(f64, f64)> = quick
        .iter()
        .map(|e| ((i128::from(e.sent_ns) - i128::from(at_ns)) as f64, (e.offset() - base) as f64))
        .collect();
    let n = points.len() as f64;
    let (mx, my) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let xx: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let xy: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    let wide = last.sent_ns - first.sent_ns >= DRIFT_SPAN_NS_MIN && xx > 0.0;
    let drift = if wide { (xy / xx).clamp(-DRIFT_MAX, DRIFT_MAX) } else { 0.0 };
    Some(ClockOffset { at_ns, ahead_ns: base as f64 + my - drift * mx, drift, error_ns: least as f64 / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::random::Random;

    /// Exchanges over paths of 1 ms with queues, with a clock that is ahead and drifts.
    fn exchanges(ahead: i64, drift: f64, seconds: u64) -> Vec<Exchange> {
        let mut random = Random::new(7);
        let mut queue = move || if random.unit() < 0.5 { 0 } else { random.below(3_000_000) };
        (0..seconds * 20)
            .map(|i| {
                let asked = 5_000_000_000 + i * 50_000_000;
                let theirs = |t: u64| (t as i64 + ahead + (t as f64 * drift) as i64) as u64;
                let heard = asked + 1_000_000 + queue();
                let left = heard + 10_000;
                let back = left + 1_000_000 + queue();
                Exchange { sent_ns: asked, arrived_ns: theirs(heard), answered_ns: theirs(left), returned_ns: back }
            })
            .collect()
    }

    #[test]
    fn offset_and_drift_are_found_despite_queueing() {
        for (ahead, drift) in [(0, 0.0), (4_000_000_000_i64, 50e-6), (-3_000_000_000, -20e-6)] {
            let clock = estimate_offset(&exchanges(ahead, drift, 10)).unwrap();
            assert!((clock.drift - drift).abs() < 3e-6, "{clock:?}");
            for t in [5_000_000_000_u64, 10_000_000_000, 15_000_000_000] {
                let truth = ahead as f64 + t as f64 * drift;
                assert!((clock.ahead_at(t) - truth).abs() < 30_000.0, "{clock:?} at {t}: {truth}");
                let theirs = (t as f64 + truth) as u64;
                assert!(clock.to_ours(theirs).abs_diff(t) < 30_000);
            }
            assert!((1_000_000.0..1_020_000.0).contains(&clock.error_ns), "{clock:?}");
        }
    }

    #[test]
    fn shared_clock_is_used_unless_exchanges_contradict_it() {
        // 8 ms there and 20 ms back: according to the exchanges alone the other clock is 6 ms behind.
        let one = |ahead: u64| Exchange {
            sent_ns: 1_000_000_000,
            arrived_ns: 1_008_000_000 + ahead,
            answered_ns: 1_008_010_000 + ahead,
            returned_ns: 1_028_010_000,
        };
        assert_eq!(relate_clocks(Some(("a 0 0", "b 0 0")), &[one(0)]).unwrap().ahead_ns, -6e6);
        assert_eq!(relate_clocks(None, &[one(0)]).unwrap().ahead_ns, -6e6);
        let same = relate_clocks(Some(("a 0 0", "a 0 0")), &[one(0)]).unwrap();
        assert_eq!((same.ahead_ns, same.drift, same.error_ns, same.to_ours(77)), (0.0, 0.0, 0.0, 77));
        // Two copies of a virtual machine were started an hour apart.
        let copy = relate_clocks(Some(("a 0 0", "a 0 0")), &[one(3_600_000_000_000)]).unwrap();
        assert!(copy.ahead_ns > 3.5e12 && copy.error_ns > 0.0, "{copy:?}");
        assert_eq!(relate_clocks(Some(("a", "a")), &[]), None);
    }

    #[test]
    fn time_until_the_answer_is_no_part_of_the_round_trip() {
        // The first was answered late over the fast path, the second at once over a slow way there.
        let late =
            Exchange { sent_ns: 1_000_000, arrived_ns: 2_000_000, answered_ns: 9_000_000, returned_ns: 10_000_000 };
        let slow =
            Exchange { sent_ns: 20_000_000, arrived_ns: 25_000_000, answered_ns: 25_000_000, returned_ns: 26_000_000 };
        let clock = estimate_offset(&[late, slow]).unwrap();
        assert_eq!((clock.ahead_ns, clock.error_ns), (0.0, 1_000_000.0));
    }

    #[test]
    fn short_exchange_series_has_no_drift() {
        assert_eq!(estimate_offset(&exchanges(5, 50e-6, 1)).unwrap().drift, 0.0);
        assert_eq!(estimate_offset(&[]), None);
        let wrong = Exchange { sent_ns: 9, arrived_ns: u64::MAX, answered_ns: 0, returned_ns: 1 };
        assert_eq!(estimate_offset(&[wrong]), None);
    }
}
