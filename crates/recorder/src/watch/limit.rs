//! From which duration on an operation is slow: a fixed time, or a quantile of the operations so far.

use std::fmt;
use std::str::FromStr;

/// The value of `--slow`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Slow {
    /// At least this long, ns.
    Time(u64),
    /// In the slowest part: 0.99 is the slowest hundredth.
    Quantile(f64),
}

/// A text is neither a time nor a quantile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a time with its unit (5ms, 200us, 1.5s) or a percentile (p99, p99.9)")]
pub struct InvalidSlow;

impl FromStr for Slow {
    type Err = InvalidSlow;

    fn from_str(text: &str) -> Result<Self, InvalidSlow> {
        if let Some(percent) = text.strip_prefix('p') {
            let percent: f64 = percent.parse().map_err(|_| InvalidSlow)?;
            return if percent > 0.0 && percent < 100.0 {
                Ok(Self::Quantile(percent / 100.0))
            } else {
                Err(InvalidSlow)
            };
        }
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit_ns = match &text[digits.len()..] {
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return Err(InvalidSlow),
        };
        let number: f64 = digits.parse().map_err(|_| InvalidSlow)?;
        let ns = number * unit_ns;
        // More than a month is a mistake.
        if (1000.0..3e15).contains(&ns) { Ok(Self::Time(ns as u64)) } else { Err(InvalidSlow) }
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(ns) if *ns >= 1_000_000_000 => write!(f, "{}s", *ns as f64 / 1e9),
            Self::Time(ns) if *ns >= 1_000_000 => write!(f, "{}ms", *ns as f64 / 1e6),
            Self::Time(ns) => write!(f, "{}us", *ns as f64 / 1e3),
            Self::Quantile(q) => write!(f, "p{}", (q * 1e5).round() / 1e3),
        }
    }
}

/// Number of operations before a quantile is known.
pub const SAMPLES_MIN: u64 = 1000;
/// Number of operations after which older ones count half.
const HALF_LIFE_SAMPLES: u64 = 100_000;
/// Buckets per power of two: a bucket is at most 1/16 wide.
const PARTS: u64 = 16;
const BUCKETS: usize = 64 * PARTS as usize;

/// Durations of operations so far, of which older ones count less: HdrHistogram's buckets, with four bits.
#[derive(Debug)]
struct Histogram {
    counts: Vec<u64>,
    total: u64,
    since_halved: u64,
}

fn bucket(ns: u64) -> usize {
    let power = ns.max(PARTS).ilog2();
    let part = (ns >> (power - PARTS.ilog2())) & (PARTS - 1);
    (u64::from(power) * PARTS + part) as usize
}

/// The shortest duration that lies above a bucket, ns.
fn above(bucket: usize) -> u64 {
    let (power, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    ((u128::from(PARTS + part + 1) << power) >> PARTS.ilog2()).try_into().unwrap_or(u64::MAX)
}

impl Histogram {
    fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, since_halved: 0 }
    }

    fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.since_halved += 1;
        if self.since_halved >= HALF_LIFE_SAMPLES {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
            self.since_halved = 0;
        }
    }

    fn quantile(&self, q: f64) -> Option<u64> {
        let rank = (self.total as f64 * q).ceil() as u64;
        let mut below = 0;
        let bucket = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        });
        bucket.filter(|_| self.total >= SAMPLES_MIN).map(above)
    }
}

/// Number of operations after which a quantile is determined again.
const UPDATE_SAMPLES: u64 = 256;

#[derive(Debug)]
pub struct Limit {
    slow: Slow,
    histogram: Option<Histogram>,
    current_ns: Option<u64>,
    since_update: u64,
}

impl Limit {
    pub fn new(slow: Slow) -> Self {
        match slow {
            Slow::Time(ns) => Self { slow, histogram: None, current_ns: Some(ns), since_update: 0 },
            Slow::Quantile(_) => Self { slow, histogram: Some(Histogram::new()), current_ns: None, since_update: 0 },
        }
    }

    /// The duration from which on an operation is slow, ns; `None` while a quantile is not known.
    pub fn current_ns(&self) -> Option<u64> {
        self.current_ns
    }

    /// Learns the duration of an operation, after it was judged.
    pub fn learn(&mut self, duration_ns: u64) {
        let (Some(histogram), Slow::Quantile(q)) = (&mut self.histogram, self.slow) else { return };
        histogram.add(duration_ns);
        self.since_update += 1;
        if self.since_update >= UPDATE_SAMPLES {
            self.since_update = 0;
            self.current_ns = histogram.quantile(q);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_is_a_time_or_a_percentile() {
        for (text, slow) in [
            ("5ms", Slow::Time(5_000_000)),
            ("1.5s", Slow::Time(1_500_000_000)),
            ("200us", Slow::Time(200_000)),
            ("p99", Slow::Quantile(0.99)),
        ] {
            let parsed: Slow = text.parse().unwrap();
            assert_eq!(parsed, slow);
            assert_eq!(parsed.to_string(), text);
        }
        for text in ["5", "ms", "p100", "p0", "p", "-1ms", "NaNms", "0ms", "9e99s", ""] {
            assert_eq!(text.parse::<Slow>(), Err(InvalidSlow), "{text}");
        }
    }

    #[test]
    fn every_duration_is_in_a_bucket_below_its_end() {
        let durations =
            (0..64).flat_map(|power| [0, 1, 7, 13].map(|part| (1u64 << power).saturating_add(part << (power / 2))));
        for ns in durations.chain([0, u64::MAX]) {
            let end = above(bucket(ns));
            assert!(ns < end || ns == u64::MAX, "{ns} {end}");
            assert!(ns < PARTS || end as f64 <= ns as f64 * (1.0 + 1.01 / PARTS as f64), "{ns} {end}");
        }
    }

    #[test]
    fn quantile_is_known_after_enough_operations_and_follows_them() {
        let mut limit = Limit::new(Slow::Quantile(0.99));
        for n in 0..SAMPLES_MIN / 2 {
            limit.learn(1000 + n);
        }
        assert_eq!(limit.current_ns(), None);
        (0..2000).for_each(|n| limit.learn(if n % 50 == 0 { 5_000_000 } else { 1000 }));
        assert!(limit.current_ns().is_some_and(|ns| ns > 4_900_000), "2 % are slow: {limit:?}");
        (0..HALF_LIFE_SAMPLES * 4).for_each(|_| limit.learn(1000));
        assert!(limit.current_ns().is_some_and(|ns| ns < 1200));
    }
}
