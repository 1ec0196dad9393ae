//! Is one faster than the other? Four answers, since "not shown to be different" is not "shown to be the same":
//!
//! - **equivalent**: the whole interval of the ratio is within the margin, and within [`EQUIVALENT_MARGIN_MAX`];
//! - **faster** or **slower**: the interval excludes 1, and the ratio itself is beyond the margin;
//! - **inconclusive**: neither. More processes may decide it.
//!
//! "Faster" means that the direction is certain and that the measured difference is one that matters; the minimum difference is
//! the interval's near bound, which may be within the margin ([`is_surely_beyond`] tests for that). Requiring the whole interval
//! to be beyond the margin costs power: a true 3 % is three times as far from 1 as from a margin of 2 %.
//!
//! The margin is symmetric in the ratio, from 1 / (1 + margin) to 1 + margin, so that A against B and B against A mirror each other.

use crate::Estimate;
use serde::Serialize;

/// The default smallest difference that matters.
pub const MARGIN_DEFAULT: f64 = 0.02;

/// The widest margin within which two things may be called the same. A machine whose noise is larger cannot show a difference,
/// but that does not make anything equal: 0.747 (0.574 to 1.299) on a machine with a noise of 78 % is no equivalence.
pub const EQUIVALENT_MARGIN_MAX: f64 = 0.10;

/// The direction of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Times, bytes moved.
    Lower,
    /// Rates, scores.
    Higher,
}

impl Better {
    /// The values of `--better`.
    pub const CHOICES: [(&'static str, &'static str, Self); 2] = [
        ("higher", "Higher is better, such as rates", Self::Higher),
        ("lower", "Lower is better, such as times", Self::Lower),
    ];

    /// Returns the direction of that name, as archives have it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::CHOICES.into_iter().find(|(known, ..)| *known == name).map(|(.., better)| better)
    }
}

/// The meaning of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The first is better.
    Faster,
    /// The first is worse.
    Slower,
    /// They differ by no more than the margin.
    Equivalent,
    /// It cannot be decided.
    Inconclusive,
    /// Too many processes were disturbed while they were measured for any other verdict. Never derived from ratios alone.
    Disturbed,
}

impl Verdict {
    /// Its name in results: `faster`, `slower`, `equivalent`, `inconclusive`, `disturbed`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Equivalent => "equivalent",
            Self::Inconclusive => "inconclusive",
            Self::Disturbed => "disturbed",
        }
    }

    /// Returns the verdict when it is one of many comparisons: a difference whose adjusted p value ([`crate::fdr`])
    /// is above `alpha` (0.05) is inconclusive. The other two claim no difference and stay.
    pub fn among_many(self, adjusted_p: f64, alpha: f64) -> Self {
        match self {
            Self::Faster | Self::Slower if adjusted_p.is_nan() || adjusted_p > alpha => Self::Inconclusive,
            verdict => verdict,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The margin to use: 2 %, or the machine's noise in a comparison with itself ([`crate::ratio::SelfCheck::noise`]) if that is larger.
pub fn margin(noise: Option<f64>) -> f64 {
    noise.filter(|n| n.is_finite()).map_or(MARGIN_DEFAULT, |n| n.max(MARGIN_DEFAULT))
}

/// Judges the ratio first / second of a metric whose direction is `better`. `margin` (> 0) is relative: 0.02 is 2 %.
pub fn judge(ratio: &Estimate, better: Better, margin: f64) -> Verdict {
    let (down, up) = (1.0 / (1.0 + margin), 1.0 + margin);
    let same = 1.0 + margin.min(EQUIVALENT_MARGIN_MAX);
    if ratio.low >= 1.0 / same && ratio.high <= same {
        Verdict::Equivalent
    } else if ratio.low > 1.0 && ratio.value > up {
        if better == Better::Higher { Verdict::Faster } else { Verdict::Slower }
    } else if ratio.high < 1.0 && ratio.value < down {
        if better == Better::Lower { Verdict::Faster } else { Verdict::Slower }
    } else {
        Verdict::Inconclusive
    }
}

/// Whether the whole interval is beyond the margin, on either side: then the difference exceeds the margin not only in the
/// estimate, but with the interval's confidence.
pub fn is_surely_beyond(ratio: &Estimate, margin: f64) -> bool {
    ratio.low > 1.0 + margin || ratio.high < 1.0 / (1.0 + margin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(low: f64, value: f64, high: f64) -> Estimate {
        Estimate { value, low, high, level: 0.95, n: 10, method: "given" }
    }

    #[test]
    fn verdict_follows_interval_and_margin() {
        let of = |low, value, high| judge(&ratio(low, value, high), Better::Lower, 0.02);
        assert_eq!(of(1.01, 1.03, 1.05), Verdict::Slower);
        assert_eq!(of(0.95, 0.97, 0.99), Verdict::Faster);
        assert_eq!(of(0.99, 1.0, 1.01), Verdict::Equivalent);
        assert_eq!(of(1.005, 1.01, 1.015), Verdict::Equivalent, "sure, and too small to matter");
        assert_eq!(
            of(1.001, 1.015, 1.03),
            Verdict::Inconclusive,
            "sure, and as far as was measured too small to matter"
        );
        assert_eq!(of(1.001, 1.025, 1.05), Verdict::Slower, "sure, and larger than the margin as far as was measured");
        // A rate of 0.985 is not 2 % lower, however far its interval reaches.
        assert_eq!(judge(&ratio(0.972, 0.985, 0.996), Better::Higher, 0.02), Verdict::Inconclusive);
        assert_eq!(judge(&ratio(0.972, 0.979, 0.986), Better::Higher, 0.022), Verdict::Inconclusive);
        assert!(is_surely_beyond(&ratio(1.03, 1.04, 1.05), 0.02) && is_surely_beyond(&ratio(0.95, 0.96, 0.97), 0.02));
        assert!(!is_surely_beyond(&ratio(1.01, 1.04, 1.05), 0.02) && !is_surely_beyond(&ratio(0.95, 0.96, 0.99), 0.02));
        assert_eq!(of(0.99, 1.03, 1.07), Verdict::Inconclusive);
        assert_eq!(of(0.9, 1.0, 1.1), Verdict::Inconclusive);
        assert_eq!(judge(&ratio(1.01, 1.03, 1.05), Better::Higher, 0.02), Verdict::Faster);
        assert_eq!(judge(&ratio(0.95, 0.97, 0.99), Better::Higher, 0.02), Verdict::Slower);
        assert_eq!(judge(&ratio(1.01, 1.03, 1.05), Better::Lower, 0.06), Verdict::Equivalent);
        assert_eq!(
            judge(&ratio(0.574, 0.747, 1.299), Better::Lower, 0.78),
            Verdict::Inconclusive,
            "noise equals nothing"
        );
        assert_eq!(judge(&ratio(0.95, 1.0, 1.05), Better::Lower, 0.78), Verdict::Equivalent);
        assert_eq!(judge(&ratio(f64::NAN, f64::NAN, f64::NAN), Better::Lower, 0.02), Verdict::Inconclusive);
    }

    #[test]
    fn verdicts_are_written_by_name() {
        use Verdict::{Disturbed, Equivalent, Faster, Inconclusive, Slower};
        for verdict in [Faster, Slower, Equivalent, Inconclusive, Disturbed] {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.name());
            assert_eq!(format!("{verdict:<13}|"), format!("{:<13}|", verdict.name()));
        }
    }

    #[test]
    fn margin_is_at_least_machine_noise() {
        assert_eq!(margin(None), 0.02);
        assert_eq!(margin(Some(0.01)), 0.02);
        assert_eq!(margin(Some(0.07)), 0.07);
        assert_eq!(margin(Some(f64::NAN)), 0.02);
    }

    #[test]
    fn verdict_among_many_needs_stronger_evidence() {
        assert_eq!(Verdict::Slower.among_many(0.04, 0.05), Verdict::Slower);
        assert_eq!(Verdict::Slower.among_many(0.2, 0.05), Verdict::Inconclusive);
        assert_eq!(Verdict::Faster.among_many(f64::NAN, 0.05), Verdict::Inconclusive);
        assert_eq!(Verdict::Equivalent.among_many(0.2, 0.05), Verdict::Equivalent);
    }
}
