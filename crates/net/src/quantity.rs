//! Rates, buffer sizes and directions on the command line.

use crate::spec::Direction;
use model::quantity::Choices;
use std::fmt;
use std::str::FromStr;

/// Why a text is not a valid quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityError {
    Rate,
    Buffer,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rate => "expected bit/s from 1k to 1000G, such as 50M",
            Self::Buffer => "expected bytes up to 1024M, such as 256K",
        })
    }
}

impl std::error::Error for QuantityError {}

/// Default payload of a UDP packet, bytes.
pub const UDP_PACKET_BYTES: u32 = 1400;
/// iperf 2's UDP defaults: bits per second, bytes per packet.
pub const IPERF2_RATE_BPS: u64 = 1_000_000;
/// See [`IPERF2_RATE`].
pub const IPERF2_PACKET_BYTES: u32 = 1470;

/// The rate to send at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// A fixed rate in bit/s.
    Fixed(u64),
    /// The highest rate with little loss.
    Auto,
}

impl FromStr for Rate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text == "auto" { Ok(Self::Auto) } else { parse_bps(text).map(Self::Fixed) }
    }
}

/// The send rate of UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UdpRate {
    /// As iperf 2 does by default.
    Iperf2,
    Requested(Rate),
}

impl FromStr for UdpRate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text == "iperf2" { Ok(Self::Iperf2) } else { text.parse().map(Self::Requested) }
    }
}

/// The size of a socket buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferSize {
    /// Tuned by the kernel.
    Auto,
    Fixed(u32),
}

impl BufferSize {
    /// The size to set, if any.
    pub fn bytes(self) -> Option<u32> {
        match self {
            Self::Auto => None,
            Self::Fixed(bytes) => Some(bytes),
        }
    }
}

impl FromStr for BufferSize {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text == "auto" { Ok(Self::Auto) } else { parse_buffer_bytes(text).map(Self::Fixed) }
    }
}

/// The directions in which data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directions(pub &'static [Direction]);

impl Directions {
    /// The values of `--direction`.
    pub const CHOICES: Choices<Self, 3> = [
        ("up", "To the server", Self(&[Direction::Up])),
        ("down", "From the server", Self(&[Direction::Down])),
        ("both", "Both at once", Self(&[Direction::Up, Direction::Down])),
    ];
}

/// Parses bits per second, with suffixes k, M and G of powers of 1000.
pub fn parse_bps(text: &str) -> Result<u64, QuantityError> {
    let (digits, factor) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 1e3),
        Some('m' | 'M') => (&text[..text.len() - 1], 1e6),
        Some('g' | 'G') => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    let value = digits.parse::<f64>().map_or(f64::NAN, |v| v * factor);
    let bps = value.round();
    if (1000.0..=1e12).contains(&bps) { Ok(bps as u64) } else { Err(QuantityError::Rate) }
}

/// Parses bytes of a buffer, with suffixes K and M of powers of 1024.
pub fn parse_buffer_bytes(text: &str) -> Result<u32, QuantityError> {
    let (digits, shift) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 10),
        Some('m' | 'M') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let bytes = digits.parse::<u32>().ok().and_then(|n| n.checked_mul(1 << shift));
    bytes.filter(|b| (1..=1 << 30).contains(b)).ok_or(QuantityError::Buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_scale_by_1000_and_buffers_by_1024() {
        assert_eq!(
            ("50M".parse(), "1.5g".parse(), "auto".parse()),
            (Ok(Rate::Fixed(50_000_000)), Ok(Rate::Fixed(1_500_000_000)), Ok(Rate::Auto))
        );
        assert_eq!(
            (parse_buffer_bytes("256K"), parse_buffer_bytes("1M"), parse_buffer_bytes("99")),
            (Ok(262_144), Ok(1_048_576), Ok(99))
        );
        for bad in ["", "M", "-1M", "nan", "inf", "1e40G", "10", "ü"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
        assert!(
            parse_buffer_bytes("9999M").is_err()
                && parse_buffer_bytes("").is_err()
                && parse_buffer_bytes("-5").is_err()
                && parse_buffer_bytes("0").is_err()
        );
        assert_eq!("iperf2".parse(), Ok(UdpRate::Iperf2));
        assert_eq!(("auto".parse(), "1K".parse()), (Ok(BufferSize::Auto), Ok(BufferSize::Fixed(1024))));
    }
}
