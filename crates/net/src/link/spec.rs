//! The parameters of a link, per direction, and the named presets.
//!
//! The presets are simple models with round numbers, not recordings: a cost per packet, a rate, a delay, and whether both
//! directions share the medium. docs/guide/net-link.md explains the numbers.

use super::loss::LossModel;
pub use super::spec_error::{QuantityError, SpecError};
use model::quantity::Choices;

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DirectionSpec {
    /// Time from the end of transmission to the arrival, nanoseconds.
    pub delay_ns: u64,
    /// Bits of IP packets per second; 0: no limit.
    pub rate_bps: u64,
    /// Time on the medium per packet besides its bits, nanoseconds: preambles, gaps, acknowledgements.
    pub packet_ns: u64,
    /// The delay varies by up to this much in either direction, uniformly distributed, nanoseconds.
    pub jitter_ns: u64,
    /// Whether jitter may change the order of packets.
    pub reorder: bool,
    /// Which packets are lost. A lost packet was transmitted: it occupied the medium.
    pub loss: LossModel,
    /// The maximum number of packets in the queue, besides the one being sent.
    pub queue_packets: u64,
    /// The maximum number of bytes in the queue; 0: no limit.
    pub queue_bytes: u64,
}

impl Default for DirectionSpec {
    fn default() -> Self {
        Self {
            delay_ns: 0,
            rate_bps: 0,
            packet_ns: 0,
            jitter_ns: 0,
            reorder: false,
            loss: LossModel::None,
            queue_packets: 1000,
            queue_bytes: 0,
        }
    }
}

impl DirectionSpec {
    /// How long `packets` packets of `bytes` bytes in total occupy the medium, nanoseconds.
    pub fn medium_time_ns(&self, bytes: u64, packets: u32) -> u64 {
        let bits = u128::from(bytes) * 8_000_000_000;
        let sending = bits.checked_div(u128::from(self.rate_bps)).unwrap_or(0);
        u64::try_from(sending).unwrap_or(u64::MAX).saturating_add(self.packet_ns.saturating_mul(u64::from(packets)))
    }

    /// Whether sending takes time.
    pub fn takes_time(&self) -> bool {
        self.rate_bps > 0 || self.packet_ns > 0
    }
}

/// Whether packets larger than the link's MTU may pass through the emulator in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gso {
    /// Where it affects nothing but speed: no loss, no rate or cost, no jitter.
    #[default]
    Auto,
    /// Always: fast, but a burst of up to 64 KiB arrives at one instant.
    On,
    /// Never: each packet separately, as on a wire.
    Off,
}

impl Gso {
    /// The values of `--gso`.
    pub const CHOICES: Choices<Self, 3> = [
        ("auto", "Where it affects only the emulator's speed", Self::Auto),
        ("on", "Always", Self::On),
        ("off", "Never", Self::Off),
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spec {
    /// From the client to the server.
    pub up: DirectionSpec,
    /// From the server to the client.
    pub down: DirectionSpec,
    /// One medium for both directions, as on Wi-Fi: one packet at a time, alternating while both directions have packets.
    pub half_duplex: bool,
    /// Largest IP packet, bytes; 0 stands for 1500.
    pub mtu: u32,
    pub gso: Gso,
    /// The seed of loss and jitter.
    pub seed: u64,
}

/// The names accepted by [`Spec::preset`].
pub const PRESETS: &[(&str, &str)] = &[
    ("wifi-g", "802.11g: 54 Mb/s, 165 us a packet, one medium"),
    ("wifi-n", "802.11n, one stream of 65 Mb/s, 20 us a packet when aggregated, one medium"),
    ("bluetooth-edr", "Bluetooth 2.1+EDR, 3-DH5: 2.18 Mb/s, 1.25 ms a packet, one medium, 5 ms"),
    ("lte", "LTE: 50 Mb/s down, 20 up, 20 ms with 4 ms of jitter, a deep queue"),
    ("satellite", "geostationary: 20 Mb/s down, 3 up, 275 ms"),
];

impl Spec {
    /// Uses the same parameters in both directions.
    pub fn symmetric(way: DirectionSpec) -> Self {
        Self { up: way, down: way, ..Self::default() }
    }

    /// The preset of this name.
    pub fn preset(name: &str) -> Option<Self> {
        let way = DirectionSpec::default();
        let shared = |way: DirectionSpec| Self { half_duplex: true, ..Self::symmetric(way) };
        Some(match name {
            "wifi-g" => shared(DirectionSpec { rate_bps: 54_000_000, packet_ns: 165_000, delay_ns: 500_000, ..way }),
            "wifi-n" => shared(DirectionSpec { rate_bps: 65_000_000, packet_ns: 20_000, delay_ns: 500_000, ..way }),
            "bluetooth-edr" => {
                let slow = DirectionSpec { rate_bps: 2_178_000, packet_ns: 1_250_000, delay_ns: 5_000_000, ..way };
                shared(DirectionSpec { queue_packets: 50, ..slow })
            }
            "lte" => {
                let way = DirectionSpec { delay_ns: 20_000_000, jitter_ns: 4_000_000, ..way };
                Self {
                    up: DirectionSpec { rate_bps: 20_000_000, ..way },
                    down: DirectionSpec { rate_bps: 50_000_000, ..way },
                    ..Self::default()
                }
            }
            "satellite" => {
                let way = DirectionSpec { delay_ns: 275_000_000, ..way };
                Self {
                    up: DirectionSpec { rate_bps: 3_000_000, ..way },
                    down: DirectionSpec { rate_bps: 20_000_000, ..way },
                    ..Self::default()
                }
            }
            _ => return None,
        })
    }

    /// Largest IP packet, bytes.
    pub fn mtu(&self) -> u32 {
        if self.mtu == 0 { 1500 } else { self.mtu }
    }

    /// Whether packets larger than the link's MTU pass in one piece.
    pub fn large_packets(&self) -> bool {
        let plain = |w: &DirectionSpec| !w.takes_time() && w.loss == LossModel::None && w.jitter_ns == 0;
        match self.gso {
            Gso::On => true,
            Gso::Off => false,
            Gso::Auto => plain(&self.up) && plain(&self.down),
        }
    }

    /// Checks whether the link is possible.
    pub fn check(&self) -> Result<(), SpecError> {
        for way in [&self.up, &self.down] {
            if self.gso == Gso::On && way.loss != LossModel::None {
                return Err(SpecError::LossWithGso);
            }
            if way.jitter_ns > way.delay_ns {
                return Err(SpecError::Jitter);
            }
            if way.delay_ns > 60_000_000_000 || way.packet_ns > 60_000_000_000 {
                return Err(SpecError::Delay);
            }
            if way.rate_bps > 0 && way.rate_bps < 1_000 {
                return Err(SpecError::Rate);
            }
            if way.queue_packets == 0 {
                return Err(SpecError::Queue);
            }
        }
        // IPv6 requires at least 1280.
        if !(1280..=65_535).contains(&self.mtu()) {
            return Err(SpecError::Mtu(self.mtu()));
        }
        Ok(())
    }
}

/// Parses bits per second: `50mbit`, `1.5gbit`, `64kbit`, `1000` (bits); `0` or `none` is no limit.
pub fn parse_rate(text: &str) -> Result<u64, QuantityError> {
    let lower = text.trim().to_ascii_lowercase();
    if lower == "none" {
        return Ok(0);
    }
    let number = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '/');
    let scale = match lower[number.len()..].trim_end_matches("/s").trim_end_matches("ps") {
        "" | "bit" | "b" => 1.0,
        "k" | "kbit" | "kb" => 1e3,
        "m" | "mbit" | "mb" => 1e6,
        "g" | "gbit" | "gb" => 1e9,
        _ => return Err(QuantityError::Rate(text.into())),
    };
    let value = number.parse::<f64>().ok().map(|v| v * scale).filter(|v| (0.0..=1e12).contains(v));
    value.map(|v| v.round() as u64).ok_or_else(|| QuantityError::RateRange(text.into()))
}

/// Parses a time: `8ms`, `500us`, `1.5s`, `0`. Any other number without a unit is rejected: elsewhere it would mean
/// seconds, in `tc` microseconds.
pub fn parse_time_ns(text: &str) -> Result<u64, QuantityError> {
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[number.len()..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        // Zero needs no unit.
        "" if number.parse() == Ok(0.0) => 0.0,
        "" if number.parse::<f64>().is_ok() => return Err(QuantityError::NoUnit(text.into())),
        "s" => 1e9,
        _ => return Err(QuantityError::Time(text.into())),
    };
    let value = number.parse::<f64>().ok().map(|v| v * scale).filter(|v| (0.0..=6e10).contains(v));
    value.map(|v| v.round() as u64).ok_or_else(|| QuantityError::TimeRange(text.into()))
}

/// Parses a number with an optional binary suffix: `100`, `64K`, `1M`.
pub fn parse_count(text: &str) -> Result<u64, QuantityError> {
    let text = text.trim();
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        _ => (text, 0),
    };
    let number = digits.parse::<u32>().map(|n| u64::from(n) << shift);
    number.map_err(|_| QuantityError::Count(text.into()))
}

/// The name of a preset that does not exist; the message lists those that do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown preset; expected one of{}", PRESETS.iter().map(|(name, about)| format!("\n  {name}: {about}")).collect::<String>())]
pub struct UnknownPreset;

/// A value for both directions, or `UP/DOWN`: from the client to the server, and back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair<T>(pub T, pub T);

/// Parses a pair, each value with `one`.
pub fn parse_pair<T: Copy>(text: &str, one: fn(&str) -> Result<T, QuantityError>) -> Result<Pair<T>, QuantityError> {
    match text.split_once('/') {
        // `50mbit/s` is one rate.
        Some((up, down)) if down != "s" => Ok(Pair(one(up)?, one(down)?)),
        _ => one(text).map(|value| Pair(value, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_are_parsed() {
        assert_eq!(parse_rate("50mbit"), Ok(50_000_000));
        assert_eq!(parse_rate("1.5Gbit/s"), Ok(1_500_000_000));
        assert_eq!(parse_rate("64kbps"), Ok(64_000));
        assert_eq!((parse_rate("0"), parse_rate("none")), (Ok(0), Ok(0)));
        assert_eq!(parse_time_ns("8ms"), Ok(8_000_000));
        assert_eq!((parse_time_ns("0"), parse_time_ns("0.0"), parse_time_ns("0.3s")), (Ok(0), Ok(0), Ok(300_000_000)));
        assert_eq!(parse_time_ns("500us"), Ok(500_000));
        assert_eq!((parse_count("100"), parse_count("64K")), (Ok(100), Ok(65_536)));
        assert_eq!(parse_time_ns("8").unwrap_err().to_string(), "8 has no unit; expected 8ms, 8us or 8s");
        for wrong in ["", "x", "-1ms", "1h", "nan", "1e99s"] {
            assert!(
                parse_time_ns(wrong).is_err() && parse_rate(wrong).is_err() && parse_count(wrong).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn pair_sets_both_directions() {
        assert_eq!(parse_pair("8ms/20ms", parse_time_ns), Ok(Pair(8_000_000, 20_000_000)));
        assert_eq!(parse_pair("50mbit/s", parse_rate), Ok(Pair(50_000_000, 50_000_000)));
        assert!(parse_pair("8ms/", parse_time_ns).is_err() && parse_pair("1/2/3", parse_count).is_err());
        assert!(UnknownPreset.to_string().contains("satellite"));
    }

    #[test]
    fn presets_are_valid() {
        for (name, _) in PRESETS {
            let spec = Spec::preset(name).unwrap();
            assert_eq!(spec.check(), Ok(()), "{name}");
            assert!(!spec.large_packets(), "{name}: bursts of 64 KiB are no link's");
        }
        assert_eq!(Spec::preset("avian"), None);
    }

    #[test]
    fn gso_is_used_only_if_it_changes_nothing() {
        let delay = Spec::symmetric(DirectionSpec { delay_ns: 1_000_000, ..DirectionSpec::default() });
        assert!(delay.large_packets());
        assert!(!Spec { gso: Gso::Off, ..delay }.large_packets());
        let rate = Spec::symmetric(DirectionSpec { rate_bps: 1_000_000, ..DirectionSpec::default() });
        assert!(!rate.large_packets() && Spec { gso: Gso::On, ..rate }.large_packets());
        let loss = Spec::symmetric(DirectionSpec { loss: LossModel::Each(0.1), ..DirectionSpec::default() });
        assert!(!loss.large_packets());
        assert!(Spec { gso: Gso::On, ..loss }.check().is_err());
    }

    #[test]
    fn impossible_links_are_refused_with_reason() {
        let bad = |way: DirectionSpec| Spec::symmetric(way).check().unwrap_err();
        assert_eq!(bad(DirectionSpec { jitter_ns: 2, delay_ns: 1, ..DirectionSpec::default() }), SpecError::Jitter);
        assert_eq!(bad(DirectionSpec { queue_packets: 0, ..DirectionSpec::default() }), SpecError::Queue);
        assert_eq!(bad(DirectionSpec { rate_bps: 1, ..DirectionSpec::default() }), SpecError::Rate);
        assert_eq!(Spec { mtu: 100, ..Spec::default() }.check(), Err(SpecError::Mtu(100)));
    }
}
