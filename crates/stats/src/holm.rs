//! Many comparisons at once: of twenty true "no difference", one comes out at p < 0.05 by luck. Holm's step-down
//! procedure ("A simple sequentially rejective multiple test procedure", Scand. J. Stat. 6, 1979) keeps the chance of *any*
//! false alarm in the family at its level, supposes nothing about how the comparisons depend on each other, and is never
//! weaker than Bonferroni's.

/// The adjusted p values, in the order given: the smallest times k, the next times k - 1, ..., each at least the one
/// before, at most 1. `None` if one is not within 0 to 1.
pub fn adjusted(p: &[f64]) -> Option<Vec<f64>> {
    if !p.iter().all(|p| (0.0..=1.0).contains(p)) {
        return None;
    }
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut result = vec![0.0; p.len()];
    let mut least = 0.0_f64;
    for (rank, at) in order.iter().enumerate() {
        least = least.max(p[*at] * (p.len() - rank) as f64).min(1.0);
        result[*at] = least;
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of R's `p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")`, by hand: 4 x 0.005, 3 x 0.01, 2 x 0.03, and
    /// 0.04 may not be less than 0.06.
    #[test]
    fn a_worked_example() {
        let found = adjusted(&[0.01, 0.04, 0.03, 0.005]).unwrap();
        for (ours, theirs) in found.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((ours - theirs).abs() < 1e-12, "{found:?}");
        }
        assert_eq!(adjusted(&[0.6, 0.9]), Some(vec![1.0, 1.0]));
        assert_eq!(adjusted(&[0.2]), Some(vec![0.2]));
        assert_eq!(adjusted(&[]), Some(vec![]));
        assert_eq!(adjusted(&[0.5, f64::NAN]), None);
        assert_eq!(adjusted(&[1.5]), None);
    }
}
