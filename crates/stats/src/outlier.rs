//! Which iterations of a process stand out from their neighbours: a timer interrupt, a garbage collection.
//!
//! An iteration is flagged if it lies outside the median of a window around it by more than three times the distance
//! from the window's 1st to its 99th percentile. The window holds min(200, n / 3) iterations and slides with the
//! iteration; at the ends of the series it stops sliding. After Barrett et al., "Virtual machine warmup blows hot and
//! cold" (OOPSLA 2017), with the percentiles of Traini et al., "Towards effective assessment of steady state
//! performance in Java software" (EMSE 2022).
//!
//! Two things differ from theirs, so that short series work too:
//!
//! - **An iteration does not count in its own percentiles.** In a window of fewer than 68 the 99th percentile is so close
//!   to the maximum that no single value could ever be flagged.
//! - **The start is no outlier.** If the first iterations are flagged without a gap, they are a cold start, and
//!   segmentation must see them.
//!
//! A flag means: exclude this when looking for changes of level. It never means: delete this. The time was spent, and an
//! estimate without it would promise what no user gets. So flags come with the share of time that they took. Two outliers
//! within a small window may mask each other.

use crate::quantile;

/// Maximum number of iterations in a window.
const WINDOW_ITERATIONS_MAX: usize = 200;
/// Maximum distance of an iteration from the median, as a multiple of the distance of the percentiles.
const DISTANCE_RATIO_MAX: f64 = 3.0;
/// The fewest iterations that can be judged: a window of five.
pub const ITERATIONS_MIN: usize = 15;

/// The outliers of a series.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outliers {
    /// Which iterations are flagged, counted from 0, ascending.
    pub flagged: Vec<usize>,
    /// Their share (0 to 1) of the sum of all times.
    pub share_of_time: f64,
}

impl Outliers {
    pub fn count(&self) -> usize {
        self.flagged.len()
    }
}

/// Flags the outliers of a series of iteration times (any unit); `None` if there are fewer than [`ITERATIONS_MIN`] or
/// one is not finite.
pub fn flag_outliers(times: &[f64]) -> Option<Outliers> {
    let n = times.len();
    if n < ITERATIONS_MIN || times.iter().any(|t| !t.is_finite()) {
        return None;
    }
    let width = WINDOW_ITERATIONS_MAX.min(n / 3);
    let mut start = 0;
    let mut window = crate::sorted(&times[..width])?;
    let mut others = Vec::with_capacity(width);
    let mut flagged = Vec::new();
    for (i, time) in times.iter().enumerate() {
        let wanted = i.saturating_sub(width / 2).min(n - width);
        while start < wanted {
            replace_in_window(&mut window, times[start], times[start + width]);
            start += 1;
        }
        let median = quantile::of_sorted(&window, 0.5)?;
        others.clear();
        // The window contains the iteration itself, which does not count among the others.
        assert!(window.len() == width && (start..start + width).contains(&i));
        let own = position(&window, *time);
        assert!(window[own].total_cmp(time).is_eq());
        others.extend(window[..own].iter().chain(&window[own + 1..]));
        let spread = quantile::of_sorted(&others, 0.99)? - quantile::of_sorted(&others, 0.01)?;
        if (time - median).abs() > DISTANCE_RATIO_MAX * spread {
            flagged.push(i);
        }
    }
    let cold = flagged.iter().zip(0..).take_while(|(flag, i)| **flag == *i).count();
    flagged.drain(..cold);
    debug_assert!(flagged.is_sorted());
    let total: f64 = times.iter().sum();
    let taken: f64 = flagged.iter().map(|i| times[*i]).sum();
    Some(Outliers { flagged, share_of_time: if total > 0.0 { taken / total } else { 0.0 } })
}

/// The position of a value in the sorted window.
fn position(window: &[f64], value: f64) -> usize {
    window.partition_point(|v| v.total_cmp(&value).is_lt())
}

/// Removes one value from the sorted window and inserts another.
fn replace_in_window(window: &mut Vec<f64>, out: f64, into: f64) {
    let removed = window.remove(position(window, out));
    assert!(removed.total_cmp(&out).is_eq());
    window.insert(position(window, into), into);
    debug_assert!(window.is_sorted());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 with a ripple of 0, 1, 2.
    fn ripple(n: usize) -> Vec<f64> {
        (0..n).map(|i| 100.0 + (i * 7 % 3) as f64).collect()
    }

    #[test]
    fn spike_is_flagged_at_any_length() {
        for n in [ITERATIONS_MIN, 30, 100, 300, 2000] {
            let mut times = ripple(n);
            let at = n / 2;
            times[at] = 150.0;
            let found = flag_outliers(&times).unwrap();
            assert_eq!(found.flagged, [at], "n = {n}");
            assert!((found.share_of_time - 150.0 / times.iter().sum::<f64>()).abs() < 1e-12);
            times[at] = 50.0;
            assert_eq!(flag_outliers(&times).unwrap().flagged, [at], "also below, n = {n}");
        }
    }

    #[test]
    fn step_is_no_outlier() {
        for n in [30, 300] {
            let mut times = ripple(n);
            times[n / 2..].iter_mut().for_each(|t| *t += 50.0);
            assert_eq!(flag_outliers(&times).unwrap().count(), 0, "n = {n}");
        }
    }

    #[test]
    fn cold_start_is_no_outlier() {
        let mut times = ripple(300);
        times[0] = 900.0;
        assert_eq!(flag_outliers(&times).unwrap().count(), 0);
        times[2] = 900.0;
        assert_eq!(flag_outliers(&times).unwrap().flagged, [2], "but what comes after a normal iteration is");
    }

    /// The literal definition: sort every window from scratch.
    #[test]
    fn sliding_window_matches_definition() {
        let mut random = crate::random::Random::new(5);
        let times: Vec<f64> =
            (0..157).map(|_| if random.below(20) == 0 { 30.0 } else { 1.0 } + random.unit()).collect();
        let (n, width) = (157_usize, 52_usize);
        let mut expected: Vec<usize> = (0_usize..n)
            .filter(|i| {
                let start = i.saturating_sub(width / 2).min(n - width);
                let window = &times[start..start + width];
                let others: Vec<f64> = (start..start + width).filter(|j| j != i).map(|j| times[j]).collect();
                let spread =
                    quantile::of_unsorted(&others, 0.99).unwrap() - quantile::of_unsorted(&others, 0.01).unwrap();
                (times[*i] - quantile::of_unsorted(window, 0.5).unwrap()).abs() > 3.0 * spread
            })
            .collect();
        while expected.first().is_some_and(|f| *f == 0) {
            expected.remove(0);
        }
        assert_eq!(flag_outliers(&times).unwrap().flagged, expected);
    }

    #[test]
    fn invalid_input_is_refused() {
        assert_eq!(flag_outliers(&ripple(ITERATIONS_MIN - 1)), None);
        let mut times = ripple(20);
        times[3] = f64::NAN;
        assert_eq!(flag_outliers(&times), None);
        assert_eq!(flag_outliers(&[0.0; 20]).unwrap(), Outliers::default());
    }
}
