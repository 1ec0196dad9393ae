//! How late packets left: the known lateness of each, and its upper bound.
//!
//! An emulated link is a program that must wake at the right time. Each packet has a due time; the time from there until it
//! is passed to the kernel is **known** lateness. The duration of the kernel's write is added to the **upper bound**, since
//! the packet may arrive at its beginning or at its end. The arrival of a packet is uncertain too: it entered the TUN
//! device some time before the emulator read it. So the emulator records the earliest possible arrival of each packet
//! ([`super::arrival`]), and the time between that and the moment from which its delay was counted is added to the upper
//! bound too. The true lateness is between the two, for each packet and so for their mean.

use hdrhistogram::Histogram;

/// A distribution of packet times, nanoseconds.
#[derive(Debug, Clone)]
pub struct Lateness {
    histogram: Histogram<u64>,
    sum_ns: u128,
}

/// The largest value that is distinguished: anything later than a minute counts as a minute.
const LATENESS_NS_MAX: u64 = 60_000_000_000;

impl Default for Lateness {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENESS_NS_MAX, 3).expect("the bounds are in order");
        Self { histogram, sum_ns: 0 }
    }
}

impl Lateness {
    /// Records a packet's lateness, ns.
    pub fn record(&mut self, late_ns: u64) {
        let late_ns = late_ns.clamp(1, LATENESS_NS_MAX);
        self.histogram.saturating_record(late_ns);
        self.sum_ns += u128::from(late_ns);
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The value that a share `q` (0 to 1) of packets does not exceed, nanoseconds; 0 if there are none.
    pub fn quantile(&self, q: f64) -> u64 {
        if self.histogram.is_empty() { 0 } else { self.histogram.value_at_quantile(q) }
    }

    /// The mean, nanoseconds; 0 if there are none.
    pub fn mean(&self) -> f64 {
        self.sum_ns as f64 / self.count().max(1) as f64
    }

    /// The latest, nanoseconds.
    pub fn max(&self) -> u64 {
        self.histogram.max()
    }

    pub fn merged(mut self, other: &Self) -> Self {
        // Both have the same bounds.
        let _ = self.histogram.add(&other.histogram);
        self.sum_ns += other.sum_ns;
        self
    }
}

/// The packets of one direction.
#[derive(Debug, Clone, Default)]
pub struct LatenessBounds {
    /// Known lateness of each packet.
    pub known: Lateness,
    /// Upper bound of its lateness.
    pub upper: Lateness,
}

impl LatenessBounds {
    /// Records a packet that was due at `due` and written between `begun` and `done`; it may have waited for `unseen_ns`
    /// before its delay was counted.
    pub fn record(&mut self, due: u64, (begun, done): (u64, u64), unseen_ns: u64) {
        self.known.record(begun.saturating_sub(due));
        self.upper.record(done.saturating_sub(due).saturating_add(unseen_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_maximum_lateness_have_exact_means() {
        let mut late = LatenessBounds::default();
        (0..100).for_each(|i| {
            let at = 1_000 + if i < 2 { 2_000_000 } else { 20_000 };
            late.record(1_000, (at, at + 2_000), 3_000);
        });
        assert!((late.known.mean() - (2.0 * 2e6 + 98.0 * 2e4) / 100.0).abs() < 1e-6);
        assert!((late.upper.mean() - late.known.mean() - 5_000.0).abs() < 1e-6);
        assert!(late.known.quantile(0.5) / 100 == 200 && late.known.quantile(0.99) / 1000 == 2000, "{late:?}");
        let both = late.known.clone().merged(&late.known);
        assert_eq!((both.count(), both.mean()), (200, late.known.mean()));
        assert_eq!((Lateness::default().quantile(0.99), Lateness::default().mean()), (0, 0.0));
    }

    #[test]
    fn extreme_lateness_values_are_handled() {
        let mut late = LatenessBounds::default();
        late.record(10, (5, 6), 0);
        late.record(0, (u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(late.known.count(), 2);
        assert!(late.upper.max() >= LATENESS_NS_MAX && late.upper.mean() <= LATENESS_NS_MAX as f64);
    }
}
