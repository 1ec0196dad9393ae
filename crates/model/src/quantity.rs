//! Sizes, times and shares as people write them on a command line or in a file: the one set of readers for all rooms. What cannot be read
//! is refused with what would be understood.

use std::fmt;
use std::time::Duration;

/// The values of an option that has few: the name of each, its line of help, and what it means.
pub type Choices<T, const N: usize> = [(&'static str, &'static str, T); N];

/// Why a text is no such number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityError {
    /// Of bytes.
    NoBytes,
    /// Bytes that hold nothing.
    FewBytes,
    /// More bytes than a file has.
    ManyBytes,
    /// Of seconds.
    NoSeconds,
    /// Of a moment.
    NoMoment,
    /// Of a time with a suffix.
    NoTime,
    /// A time that is none.
    NotPositive,
    /// A time beyond all times.
    Endless,
    /// Of percent.
    NoPercent,
    /// Percent that are nothing or all.
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

/// Bytes of a file that is to be made, with suffixes K, M, G and T of powers of 1024. Less than 64K holds no event at all.
///
/// # Errors
/// What would be understood.
pub fn bytes(text: &str) -> Result<u64> {
    /// No file is larger, a store's checksums included.
    const MOST: u64 = 1 << 62;
    const LEAST: u64 = 64 << 10;
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
    match number.checked_mul(1 << shift).filter(|bytes| *bytes <= MOST) {
        None => Err(QuantityError::ManyBytes),
        Some(bytes) if bytes < LEAST => Err(QuantityError::FewBytes),
        Some(bytes) => Ok(bytes),
    }
}

/// Seconds, more than none.
///
/// # Errors
/// What would be understood.
pub fn seconds(text: &str) -> Result<Duration> {
    time(text, 1.0).ok_or(QuantityError::NoSeconds)?
}

/// Seconds from a begin: none is a moment too.
///
/// # Errors
/// What would be understood.
pub fn moment(text: &str) -> Result<Duration> {
    let seconds = text.trim_end_matches('s').parse().ok();
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or(QuantityError::NoMoment)
}

/// A time with a suffix s, m or h; without one it is in seconds.
///
/// # Errors
/// What would be understood.
pub fn long_time(text: &str) -> Result<Duration> {
    let size = match text.chars().last() {
        Some('m') => 60.0,
        Some('h') => 3600.0,
        _ => 1.0,
    };
    time(text.trim_end_matches(['m', 'h']), size).ok_or(QuantityError::NoTime)?
}

fn time(text: &str, size: f64) -> Option<Result<Duration>> {
    let value: f64 = text.trim_end_matches('s').parse().ok()?;
    Some(positive(value * size))
}

fn positive(value: f64) -> Result<Duration> {
    if value <= 0.0 {
        return Err(QuantityError::NotPositive);
    }
    let duration = Duration::try_from_secs_f64(value).ok().filter(|duration| !duration.is_zero());
    duration.ok_or(QuantityError::Endless)
}

/// Percent, as a fraction.
///
/// # Errors
/// What would be understood.
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
    fn percent_is_between_none_and_all() {
        assert_eq!((percent("2"), percent("50%")), (Ok(0.02), Ok(0.5)));
        for bad in ["0", "100", "-1", "nan", "x", ""] {
            assert!(percent(bad).is_err(), "{bad}");
        }
    }
}
