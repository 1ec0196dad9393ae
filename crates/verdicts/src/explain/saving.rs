//! What a remedy saves at most. Every saving is made here, from the time that its finding claims and the cap of the leaves that it
//! names, so that none can promise more than the account holds.

/// A saving with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saving {
    ns: u64,
    interval_ns: Option<[u64; 2]>,
}

impl Saving {
    /// The claimed saving, at most `cap_ns`. `relative`: the interval of the claimed time, as factors of it.
    pub fn at_most(cap_ns: u64, claimed_ns: u64, relative: Option<[f64; 2]>) -> Self {
        let ns = claimed_ns.min(cap_ns);
        let end = |factor: f64| ((ns as f64 * factor.max(0.0)) as u64).min(cap_ns);
        let interval_ns = relative.map(|[low, high]| [end(low).min(ns), end(high).max(ns)]);
        Self { ns, interval_ns }
    }

    pub fn ns(self) -> u64 {
        self.ns
    }

    pub fn interval_ns(self) -> Option<[u64; 2]> {
        self.interval_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_end_of_a_saving_exceeds_its_cap(
            cap in any::<u64>(),
            claimed in any::<u64>(),
            relative in prop::option::of([-2.0..9.0_f64, -2.0..9.0_f64]),
        ) {
            let saving = Saving::at_most(cap, claimed, relative);
            prop_assert!(saving.ns() <= cap && saving.ns() <= claimed);
            prop_assert_eq!(saving.interval_ns().is_some(), relative.is_some());
            if let Some([low, high]) = saving.interval_ns() {
                prop_assert!(low <= saving.ns() && saving.ns() <= high && high <= cap);
            }
        }
    }
}
