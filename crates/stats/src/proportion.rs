//! Bounds of a share from a sample: the exact ones of Clopper and Pearson (Biometrika 26, 1934); and the upper bound of a count of
//! Poisson events (Garwood, Biometrika 28, 1936).
//!
//! **Uncertainty.** Both require that one event does not make the next one likelier. Where events come in bursts, count bursts,
//! or use the mean of batches ([`crate::batch`]).

use statrs::distribution::{Beta, ContinuousCDF, Gamma};

/// The upper bound of a one-sided interval at `level` for the share of which `events` of `n` is a sample; 1 if nothing is known.
pub fn upper_bound(events: u64, n: u64, level: f64) -> f64 {
    if events >= n || !(level > 0.0 && level < 1.0) {
        return 1.0;
    }
    Beta::new(events as f64 + 1.0, (n - events) as f64).map_or(1.0, |beta| beta.inverse_cdf(level))
}

/// The lower bound of a one-sided interval at `level` for that share; 0 if nothing is known.
pub fn lower_bound(events: u64, n: u64, level: f64) -> f64 {
    1.0 - upper_bound(n.saturating_sub(events), n, level)
}

/// The upper bound of a one-sided interval at `level` for the expectation of a count; infinite for an invalid level.
pub fn upper_count_bound(events: u64, level: f64) -> f64 {
    if !(level > 0.0 && level < 1.0) {
        return f64::INFINITY;
    }
    Gamma::new(events as f64 + 1.0, 1.0).map_or(f64::INFINITY, |gamma| gamma.inverse_cdf(level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_bounds_match_published_tables() {
        // None of n: 1 - 0.05^(1/n). Of 10, 2: 0.5069 at 0.95 (Clopper and Pearson). Counts: 2.996, 4.744, 16.96 (Garwood).
        assert!((upper_bound(0, 300, 0.95) - (1.0 - 0.05_f64.powf(1.0 / 300.0))).abs() < 1e-9);
        assert!((upper_bound(2, 10, 0.95) - 0.5069).abs() < 1e-4, "{}", upper_bound(2, 10, 0.95));
        for (events, end) in [(0, 2.9957), (1, 4.7439), (10, 16.9622)] {
            assert!(
                (upper_count_bound(events, 0.95) - end).abs() < 1e-3,
                "{events}: {}",
                upper_count_bound(events, 0.95)
            );
        }
    }

    #[test]
    fn lower_bounds_match_published_tables() {
        // Of 10, 3 at 0.975: 0.0667; all of n: 0.05^(1/n) at 0.95 (Clopper and Pearson).
        assert!((lower_bound(3, 10, 0.975) - 0.0667).abs() < 1e-4, "{}", lower_bound(3, 10, 0.975));
        assert!((lower_bound(20, 20, 0.95) - 0.05_f64.powf(1.0 / 20.0)).abs() < 1e-9);
        assert_eq!((lower_bound(0, 10, 0.95), lower_bound(0, 0, 0.95), lower_bound(3, 10, 1.0)), (0.0, 0.0, 0.0));
    }

    #[test]
    fn zero_trials_give_widest_interval() {
        assert_eq!(
            (upper_bound(0, 0, 0.95), upper_bound(5, 5, 0.95), upper_bound(9, 5, 0.95), upper_bound(1, 9, 1.0)),
            (1.0, 1.0, 1.0, 1.0)
        );
        assert_eq!(upper_count_bound(3, 0.0), f64::INFINITY);
    }
}
