//! Quantiles by linear interpolation between order statistics: type 7 of Hyndman and Fan, "Sample quantiles in
//! statistical packages", The American Statistician 50 (1996), which is also what NumPy and R do by default. With n
//! values the quantile p lies at position (n - 1) p, counted from 0.

/// The quantile `p` (0 to 1) of values in ascending order; `None` if there are none.
pub fn of_sorted(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = p.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (position - below as f64) * (sorted[above] - sorted[below]))
}

/// The quantile `p` (0 to 1) of values in any order; `None` if there are none or one is not finite.
pub fn of_unsorted(values: &[f64], p: f64) -> Option<f64> {
    of_sorted(&crate::sorted(values)?, p)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden: `numpy.quantile(x, [0, .05, .25, .5, .9, .95, 1])`, NumPy 2.4.6.
    #[test]
    fn quantiles_match_numpy() {
        let x = [7.1, 2.3, 9.9, 4.4, 4.4, 1.0, 8.25, 3.5, 6.0, 5.75, 2.0];
        let golden = [(0.0, 1.0), (0.05, 1.5), (0.25, 2.9), (0.5, 4.4), (0.9, 8.25), (0.95, 9.075), (1.0, 9.9)];
        for (p, value) in golden {
            assert!((of_unsorted(&x, p).unwrap() - value).abs() < 1e-12, "p = {p}");
        }
    }

    #[test]
    fn empty_and_invalid_input_has_no_quantile() {
        assert_eq!(of_unsorted(&[], 0.5), None);
        assert_eq!(of_unsorted(&[1.0, f64::NAN], 0.5), None);
        assert_eq!(of_unsorted(&[3.0], 0.99), Some(3.0));
    }
}
