//! How late packets left, and whether a result may be believed.
//!
//! An emulated link is a program that must wake at the right time. Each packet has an instant at which it is due; what
//! passes from there until it was handed to the kernel is its lateness, measured for every packet and printed with every
//! result. If one packet in a hundred is later than a twentieth of the delay, the link was not the one asked for, and the
//! result is invalid.
//!
//! Not in it: the time from a packet's entry into the TUN device until the emulator read it. It is measured from outside,
//! as the round trip of a small packet (docs/net-link.md).

use hdrhistogram::Histogram;

/// The share of the delay that the 99th percentile may be late.
pub const TOLERANCE: f64 = 0.05;
/// What is never held against a result, the tolerance of a millisecond: no program wakes to a microsecond.
pub const FLOOR_NS: u64 = 50_000;

/// Lateness of packets, nanoseconds.
#[derive(Debug, Clone)]
pub struct Lateness {
    histogram: Histogram<u64>,
}

impl Default for Lateness {
    fn default() -> Self {
        // Up to a minute, three digits: what is later than that is a minute late.
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order");
        Self { histogram }
    }
}

impl Lateness {
    /// A packet was written at `written` and due at `due`.
    pub fn record(&mut self, due: u64, written: u64) {
        self.histogram.saturating_record(written.saturating_sub(due).max(1));
    }

    /// Packets.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The value that a share `q` (0 to 1) of packets does not exceed, nanoseconds; 0 if there are none.
    pub fn quantile(&self, q: f64) -> u64 {
        if self.histogram.is_empty() { 0 } else { self.histogram.value_at_quantile(q) }
    }

    /// The latest, nanoseconds.
    pub fn max(&self) -> u64 {
        self.histogram.max()
    }

    /// Whether the 99th percentile is within [`TOLERANCE`] of a delay, or within [`FLOOR_NS`] where that is more.
    ///
    /// # Errors
    /// The sentence that says what was found.
    pub fn verdict(&self, delay_ns: u64) -> Result<(), String> {
        let (late, allowed) = (self.quantile(0.99), ((delay_ns as f64 * TOLERANCE) as u64).max(FLOOR_NS));
        if late <= allowed {
            return Ok(());
        }
        let us = |ns: u64| ns as f64 / 1e3;
        Err(format!(
            "one packet in a hundred was more than {:.0} us late, and {:.0} us are allowed at a delay of {} ms",
            us(late),
            us(allowed),
            delay_ns as f64 / 1e6
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_late_packet_in_a_hundred_is_borne_and_two_are_not() {
        let with = |late: usize| {
            let mut lateness = Lateness::default();
            (0..100).for_each(|i| lateness.record(1_000, 1_000 + if i < late { 2_000_000 } else { 20_000 }));
            lateness
        };
        let delay = 16_000_000;
        assert_eq!(with(1).verdict(delay), Ok(()));
        assert!(
            with(2).verdict(delay).unwrap_err().contains("2001 us late, and 800 us"),
            "{:?}",
            with(2).verdict(delay)
        );
        assert_eq!(with(2).verdict(41_000_000), Ok(()));
        assert_eq!((with(2).count(), with(0).quantile(0.5) / 100), (100, 200));
        assert_eq!(Lateness::default().verdict(0), Ok(()));
        assert_eq!(Lateness::default().quantile(0.99), 0);
    }

    #[test]
    fn what_is_early_or_absurdly_late_does_no_harm() {
        let mut lateness = Lateness::default();
        lateness.record(10, 5);
        lateness.record(0, u64::MAX);
        assert_eq!(lateness.count(), 2);
        assert!(lateness.max() >= 60_000_000_000);
    }
}
