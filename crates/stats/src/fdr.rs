//! Many comparisons at once: of twenty true "no difference", one comes out at p < 0.05 by luck.
//!
//! To rule out *any* false alarm among 160 cells (Holm's procedure, which was used here before) costs most of the true ones: it
//! left 3 of 38. Readers of a list of differences want to know how much of the list is false. Benjamini and Hochberg's procedure
//! keeps the expected share of false ones among those reported, the **false discovery rate**, at its level ("Controlling the
//! false discovery rate", J. R. Stat. Soc. B 57, 1995). A list of one is then as reliable as a single test.
//!
//! **Uncertainty.** It holds for independent comparisons and for those that depend on each other positively, like cells that
//! share blocks or a base (Benjamini and Yekutieli, Ann. Stat. 29, 2001); for arbitrary dependence the rate is at most the level
//! times 1 + 1/2 + ... + 1/k. `simulation` tests both kinds.
//!
//! **Intervals after selection.** A difference that is reported because it is large was also selected for its noise, and its
//! interval of 0.95 contains the true value less often than that. Of R differences reported of k, intervals of 1 - R / k x 0.05
//! miss the true value in one of twenty again, on average over the list (false coverage rate: Benjamini and Yekutieli, JASA 100,
//! 2005): [`Adjustment::level`].

/// The adjusted result of many comparisons.
#[derive(Debug, Clone, PartialEq)]
pub struct Adjustment {
    /// The adjusted p values, in the order given: those below the rate are reported.
    pub p_values: Vec<f64>,
    /// The level at which intervals of the reported ones have the nominal coverage; `None` if none is reported.
    pub level: Option<f64>,
}

/// Adjusts `p` values so that those whose adjusted value is at most `rate` (0.05) are false in at most that share, on average. `None`
/// if one is not within 0 to 1.
pub fn adjust(p: &[f64], rate: f64) -> Option<Adjustment> {
    if !p.iter().all(|p| (0.0..=1.0).contains(p)) {
        return None;
    }
    let k = p.len() as f64;
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
    let mut adjusted = vec![0.0; p.len()];
    let mut most = 1.0_f64;
    for (larger, at) in order.iter().enumerate() {
        most = most.min(p[*at] * k / (p.len() - larger) as f64);
        adjusted[*at] = most;
    }
    let many = adjusted.iter().filter(|a| **a <= rate).count();
    let level = (many > 0).then(|| 1.0 - many as f64 / k * rate);
    Some(Adjustment { p_values: adjusted, level })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R: `p.adjust(c(0.01, 0.04, 0.03, 0.005), "BH")` is 0.02 0.04 0.04 0.02.
    #[test]
    fn benjamini_hochberg_matches_r() {
        let found = adjust(&[0.01, 0.04, 0.03, 0.005], 0.05).unwrap();
        for (ours, theirs) in found.p_values.iter().zip([0.02, 0.04, 0.04, 0.02]) {
            assert!((ours - theirs).abs() < 1e-12, "{found:?}");
        }
        assert_eq!(found.level, Some(0.95), "all are reported: none was selected");
        let one = adjust(&[0.001, 0.9, 0.8, 0.7], 0.05).unwrap();
        assert!(one.level.is_some_and(|level| (level - 0.9875).abs() < 1e-12), "{one:?}");
        assert_eq!(adjust(&[0.6, 0.9], 0.05).unwrap(), Adjustment { p_values: vec![0.9, 0.9], level: None });
        assert_eq!(adjust(&[0.2], 0.05).unwrap().p_values, [0.2]);
        assert_eq!(adjust(&[], 0.05).unwrap().p_values, [0.0; 0]);
        assert_eq!(adjust(&[0.5, f64::NAN], 0.05), None);
        assert_eq!(adjust(&[1.5], 0.05), None);
    }
}
