//! A common clock for what was measured on several devices at once: that of the host that conducted the run. The times of an
//! archive are its device's CLOCK_BOOTTIME; in addition the archive has the offset of that clock from the host's, measured when
//! the run began and when it ended, each to within half the fastest round trip. Between both readings clocks drift steadily
//! enough that linear interpolation is right to within their errors; before the first and after the last reading the nearer one
//! is used, and the drift up to there is unknown.

use model::{Environment, Fact};

/// A reading of a device's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// When, ns of the device's CLOCK_BOOTTIME.
    pub at_ns: u64,
    /// Offset from the host's clock; positive if the device is ahead.
    pub ahead_ns: i64,
    /// Bound of the error.
    pub error_ns: u64,
}

/// The offset of a device's clock from its host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostClock {
    /// Boot ID of the host.
    pub boot: String,
    /// Reading when the run began.
    pub first: ClockReading,
    /// Reading when it ended, if the device was still reachable.
    pub last: Option<ClockReading>,
}

/// The names of a reading's facts.
const FIRST_READING_FACTS: [&str; 3] = ["clock.read_at", "clock.ahead", "clock.error"];
const LAST_READING_FACTS: [&str; 3] = ["clock.read_at_last", "clock.ahead_last", "clock.error_last"];
const HOST_BOOT_FACT: &str = "clock.host_boot";
/// Source of these facts.
const FACTS_SOURCE: &str = "exchanges of the host that conducted the run";

impl HostClock {
    /// Returns the readings as facts of an archive.
    pub fn facts(&self) -> Environment {
        let mut facts = Environment::new();
        let mut add = |name: &str, value: String, unit: Option<&str>| {
            let unit = unit.map(Into::into);
            let fact =
                Fact { value: Some(value), unknown: None, unit, source: FACTS_SOURCE.into(), varies: "run".into() };
            facts.insert(name.into(), fact);
        };
        add(HOST_BOOT_FACT, self.boot.clone(), None);
        for (names, reading) in [(FIRST_READING_FACTS, Some(self.first)), (LAST_READING_FACTS, self.last)] {
            let Some(reading) = reading else { continue };
            let values = [reading.at_ns.to_string(), reading.ahead_ns.to_string(), reading.error_ns.to_string()];
            names.iter().zip(values).for_each(|(name, value)| add(name, value, Some("ns")));
        }
        facts
    }

    /// Returns the clock of an archive, if another machine conducted its run.
    pub fn from_facts(facts: &Environment) -> Option<Self> {
        let text = |name: &str| facts.get(name)?.value.as_deref();
        let reading = |[at, ahead, error]: [&str; 3]| {
            Some(ClockReading {
                at_ns: text(at)?.parse().ok()?,
                ahead_ns: text(ahead)?.parse().ok()?,
                error_ns: text(error)?.parse().ok()?,
            })
        };
        Some(Self {
            boot: text(HOST_BOOT_FACT)?.into(),
            first: reading(FIRST_READING_FACTS)?,
            last: reading(LAST_READING_FACTS),
        })
    }

    /// Returns the offset of the device's clock at a time of the device, and the bound of its error, ns.
    pub fn ahead_at(&self, device_ns: u64) -> (i64, u64) {
        let first = self.first;
        let Some(last) = self.last.filter(|last| last.at_ns > first.at_ns && device_ns > first.at_ns) else {
            return (first.ahead_ns, first.error_ns);
        };
        if device_ns >= last.at_ns {
            return (last.ahead_ns, last.error_ns);
        }
        let part = (device_ns - first.at_ns) as f64 / (last.at_ns - first.at_ns) as f64;
        let drift = last.ahead_ns.wrapping_sub(first.ahead_ns) as f64;
        (first.ahead_ns.wrapping_add((drift * part) as i64), first.error_ns.max(last.error_ns))
    }

    /// Converts a time of the device to the host's clock.
    pub fn on_host(&self, device_ns: u64) -> u64 {
        device_ns.saturating_add_signed(self.ahead_at(device_ns).0.saturating_neg())
    }

    /// Describes the offset in a sentence.
    pub fn describe(&self, device: &str) -> String {
        let drift = match self.last {
            Some(last) => {
                let drift = last.ahead_ns.wrapping_sub(self.first.ahead_ns);
                let within = last.error_ns.saturating_add(self.first.error_ns);
                format!("; it moved by {:.3} ms until the end, to within {:.3} ms", to_ms(drift), to_ms(within as i64))
            }
            None => String::new(),
        };
        format!(
            "{device}'s clock was {:.6} s ahead of this machine's, to within {:.3} ms{drift}",
            self.first.ahead_ns as f64 / 1e9,
            to_ms(self.first.error_ns as i64)
        )
    }
}

fn to_ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(last: Option<ClockReading>) -> HostClock {
        HostClock { boot: "b".into(), first: ClockReading { at_ns: 1000, ahead_ns: 500, error_ns: 3 }, last }
    }

    #[test]
    fn facts_give_the_same_clock_back() {
        for last in [None, Some(ClockReading { at_ns: 3000, ahead_ns: -7, error_ns: 9 })] {
            assert_eq!(HostClock::from_facts(&clock(last).facts()), Some(clock(last)));
        }
        assert_eq!(HostClock::from_facts(&Environment::new()), None);
        let mut broken = clock(None).facts();
        broken.get_mut("clock.ahead").unwrap().value = Some("much".into());
        assert_eq!(HostClock::from_facts(&broken), None);
    }

    #[test]
    fn times_between_readings_follow_the_drift() {
        let drifting = clock(Some(ClockReading { at_ns: 2000, ahead_ns: 700, error_ns: 5 }));
        assert_eq!(drifting.ahead_at(1000), (500, 3));
        assert_eq!(drifting.ahead_at(1500), (600, 5));
        assert_eq!(drifting.ahead_at(9000), (700, 5));
        assert_eq!(drifting.on_host(1500), 900);
        assert_eq!(clock(None).on_host(1500), 1000);
        // A clock that is behind, and a device that reports absurd values.
        let behind = HostClock { first: ClockReading { at_ns: 0, ahead_ns: -50, error_ns: 1 }, ..clock(None) };
        assert_eq!(behind.on_host(10), 60);
        let lying =
            HostClock { first: ClockReading { at_ns: 0, ahead_ns: i64::MIN, error_ns: u64::MAX }, ..clock(None) };
        assert_eq!(lying.on_host(5), 5 + i64::MAX as u64);
        assert!(lying.describe("x").contains("ahead"));
    }
}
