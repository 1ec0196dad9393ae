//! Student's t: the interval of a mean of few values that are close enough to normal. The distribution functions are from statrs.
//!
//! The values must be independent: means of processes are, iterations of one process are not.

use crate::Estimate;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// P(T <= t) of Student's t with `df` (> 0) degrees of freedom; NaN if `df` or `t` is invalid.
pub fn cdf(t: f64, df: f64) -> f64 {
    if !t.is_finite() {
        return if t.is_nan() { f64::NAN } else { f64::from(u8::from(t > 0.0)) };
    }
    StudentsT::new(0.0, 1.0, df).map_or(f64::NAN, |d| d.cdf(t))
}

/// The quantile `p` (0 to 1, exclusive) of Student's t with `df` (> 0) degrees of freedom; NaN for anything else.
pub fn quantile(p: f64, df: f64) -> f64 {
    if !(p > 0.0 && p < 1.0) {
        return f64::NAN;
    }
    StudentsT::new(0.0, 1.0, df).map_or(f64::NAN, |d| d.inverse_cdf(p))
}

/// P(Z <= z) of the standard normal distribution.
pub fn normal_cdf(z: f64) -> f64 {
    Normal::standard().cdf(z)
}

/// The quantile `p` (0 to 1) of the standard normal distribution; infinite at the ends.
pub fn normal_quantile(p: f64) -> f64 {
    Normal::standard().inverse_cdf(p)
}

/// The mean with its t interval; `None` if there are fewer than two values or one is not finite.
pub fn mean(values: &[f64], level: f64) -> Option<Estimate> {
    let Moments { mean, error, n } = moments(values)?;
    let reach = quantile(0.5 + level / 2.0, n as f64 - 1.0) * error;
    Some(Estimate { value: mean, low: mean - reach, high: mean + reach, level, n, method: "mean, t interval" })
}

/// Mean and standard error of the mean of at least two finite values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moments {
    pub(crate) mean: f64,
    pub(crate) error: f64,
    pub(crate) n: usize,
}

pub(crate) fn moments(values: &[f64]) -> Option<Moments> {
    let n = values.len();
    if n < 2 || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mean = crate::mean(values);
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Some(Moments { mean, error: (squares / (n - 1) as f64 / n as f64).sqrt(), n })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goldens: tables of Student's t, as in every textbook; tests/goldens.rs has SciPy's with more digits.
    #[test]
    fn t_quantiles_match_published_tables() {
        for (p, df, t) in [(0.975, 1.0, 12.706_205), (0.975, 9.0, 2.262_157), (0.975, 29.0, 2.045_230)] {
            assert!((quantile(p, df) / t - 1.0).abs() < 1e-6, "{df}: {}", quantile(p, df));
            assert!((quantile(1.0 - p, df) / -t - 1.0).abs() < 1e-6);
            assert!((cdf(t, df) - p).abs() < 1e-7);
        }
        assert!(quantile(0.0, 9.0).is_nan() && quantile(0.5, 0.0).is_nan() && quantile(0.5, f64::NAN).is_nan());
    }

    #[test]
    fn t_interval_matches_hand_computation() {
        // Mean 3, variance 2.5, standard error sqrt(0.5); t of 4 degrees is 2.776445.
        let e = mean(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95).unwrap();
        assert!((e.value - 3.0).abs() < 1e-12 && (e.high - 3.0 - 2.776_445 * 0.5_f64.sqrt()).abs() < 1e-6, "{e:?}");
        assert!((e.low + e.high - 6.0).abs() < 1e-12);
        assert_eq!(mean(&[1.0], 0.95), None);
        assert_eq!(mean(&[1.0, f64::INFINITY], 0.95), None);
    }
}
