//! Sizes, times and shares as written on a command line or in a file: one set of parsers for all crates. Invalid text is refused with the
//! expected form.

use std::fmt;
use std::time::Duration;

/// The values of an option with few choices: the name of each, its line of help, and its meaning.
pub type Choices<T, const N: usize> = [(&'static str, &'static str, T); N];

/// Why a text is not such a quantity; as text, the expected form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityError {
    /// Not a size in bytes.
    NoBytes,
    /// Too few bytes to hold anything.
    FewBytes,
    /// More bytes than a file can have.
    ManyBytes,
    /// Not a number of seconds.
    NoSeconds,
    /// Not a moment.
    NoMoment,
    /// Not a time with a suffix.
    NoTime,
    /// A time that is not positive.
    NotPositive,
    /// A time out of range.
    Endless,
    /// Not a percentage.
    NoPercent,
    /// A percentage of nothing or everything.
    PercentRange,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoBytes => "expected a size in bytes, such as 500M or 2G",
            Self::FewBytes => "must be at least 64K",
            Self::ManyBytes => "must be at most 4194304T",
            Self::NoSeconds => "expected seconds, such as 10 or 0.5",
            Self::NoMoment => "expected seconds, such as 0 or 12.5",
            Self::NoTime => "expected a time, such as 90s, 5m or 1h",
            Self::NotPositive => "must be more than 0 seconds",
            Self::Endless => "out of range: expected seconds, such as 10 or 0.5",
            Self::NoPercent => "give percent, such as 2",
            Self::PercentRange => "give more than 0 and less than 100 percent",
        })
    }
}

impl std::error::Error for QuantityError {}

type Result<T> = std::result::Result<T, QuantityError>;

/// Parses the size in bytes of a file to be created, with suffixes K, M, G and T for powers of 1024. Less than 64K cannot
/// hold any event.
pub fn bytes(text: &str) -> Result<u64> {
    /// No file is larger, including a store's checksums.
    const BYTES_MAX: u64 = 1 << 62;
    const BYTES_MIN: u64 = 64 << 10;
    let upper = text.to_ascii_uppercase();
    let upper = upper.trim_end_matches('B').trim_end_matches('I');
    let (digits, shift) = match upper.chars().last() {
        Some('K') => (&upper[..upper.len() - 1], 10),
        Some('M') => (&upper[..upper.len() - 1], 20),
        Some('G') => (&upper[..upper.len() - 1], 30),
        Some('T') => (&upper[..upper.len() - 1], 40),
        _ => (upper, 0),
    };
    let number: u64 = digits.parse().map_err(|_| QuantityError::NoBytes)?;
    match number.checked_mul(1 << shift).filter(|bytes| *bytes <= BYTES_MAX) {
        None => Err(QuantityError::ManyBytes),
        Some(bytes) if bytes < BYTES_MIN => Err(QuantityError::FewBytes),
        Some(bytes) => Ok(bytes),
    }
}

/// Parses seconds, more than zero.
pub fn seconds(text: &str) -> Result<Duration> {
    parse_time(text, 1.0).ok_or(QuantityError::NoSeconds)?
}

/// Parses seconds from a begin, including zero.
pub fn moment(text: &str) -> Result<Duration> {
    let seconds = text.trim_end_matches('s').parse().ok();
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or(QuantityError::NoMoment)
}

/// Parses a time with a suffix s, m or h; without one, in seconds.
pub fn long_time(text: &str) -> Result<Duration> {
    let size = match text.chars().last() {
        Some('m') => 60.0,
        Some('h') => 3600.0,
        _ => 1.0,
    };
    parse_time(text.trim_end_matches(['m', 'h']), size).ok_or(QuantityError::NoTime)?
}

fn parse_time(text: &str, size: f64) -> Option<Result<Duration>> {
    let value: f64 = text.trim_end_matches('s').parse().ok()?;
    Some(positive_duration(value * size))
}

fn positive_duration(value: f64) -> Result<Duration> {
    if value <= 0.0 {
        return Err(QuantityError::NotPositive);
    }
    let duration = Duration::try_from_secs_f64(value).ok().filter(|duration| !duration.is_zero());
    duration.ok_or(QuantityError::Endless)
}

/// Parses percent, as a fraction.
pub fn percent(text: &str) -> Result<f64> {
    let value: f64 = text.trim_end_matches('%').parse().map_err(|_| QuantityError::NoPercent)?;
    if value > 0.0 && value < 100.0 { Ok(value / 100.0) } else { Err(QuantityError::PercentRange) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_take_suffixes() {
        assert_eq!(bytes("2G"), Ok(2 << 30));
        assert_eq!(bytes("500KiB"), Ok(500 << 10));
        assert_eq!(bytes("4194304T"), Ok(1 << 62));
        assert_eq!(bytes("63K"), Err(QuantityError::FewBytes));
        for more in ["4194305T", "99999999999T", "18446744073709551615"] {
            assert_eq!(bytes(more), Err(QuantityError::ManyBytes), "{more}");
        }
        assert!(bytes("0").is_err() && bytes("99999999T").is_err() && bytes("many").is_err() && bytes("").is_err());
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for (text, expected) in
            [("-1", "more than 0"), ("0", "more than 0"), ("nan", "such as 10"), ("1e99", "such as 10")]
        {
            assert!(seconds(text).is_err_and(|why| why.to_string().contains(expected)), "{text}: {:?}", seconds(text));
        }
        let minutes = |text| long_time(text).map(|d| d.as_secs_f64() / 60.0);
        assert_eq!(
            (minutes("90"), minutes("90s"), minutes("5m"), minutes("1h")),
            (Ok(1.5), Ok(1.5), Ok(5.0), Ok(60.0))
        );
        assert!(long_time("m").is_err() && long_time("5x").is_err() && long_time("0").is_err());
        assert_eq!((moment("0"), moment("12.5s")), (Ok(Duration::ZERO), Ok(Duration::from_millis(12_500))));
        assert!(moment("-1").is_err() && moment("nan").is_err());
    }

    #[test]
    fn percent_is_more_than_0_and_less_than_100() {
        assert_eq!((percent("2"), percent("50%")), (Ok(0.02), Ok(0.5)));
        for bad in ["0", "100", "-1", "nan", "x", ""] {
            assert!(percent(bad).is_err(), "{bad}");
        }
    }
}
