//! When has a cell been measured enough? A pure rule that is evaluated after each block and has no clock.
//!
//! Stop when the interval of every estimate is narrow enough for its target, but never before the least number of blocks; stop at
//! the latest when the budget is spent and these are complete. Checking after each block and stopping at the first narrow
//! interval favours blocks that agree by chance; the least number of blocks keeps that effect small (docs/internals/method.md has
//! the measured coverage). The rule belongs in the report, since it is part of the method.
//!
//! It uses widths only, never verdicts: stopping as soon as a difference shows finds differences everywhere.

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// The relative half-width of an interval at which an estimate is precise, such as 0.02 of a processor's score.
    pub target: f64,
    /// Minimum number of blocks, whatever the intervals are: 10, or 5 for a quick look.
    pub least_blocks: usize,
    /// Number of blocks after which to stop in any case.
    pub most_blocks: usize,
    /// Time in ns after which no block is started that would, at the mean length so far, end later. The least number of
    /// blocks is run even if that takes longer: an interval of fewer is worth little.
    pub budget_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Continue,
    /// Stop: every estimate is precise.
    Precise,
    /// Stop: the budget is spent, and some estimate is not precise.
    Budget,
}

impl Rule {
    /// Returns the next action after `blocks` complete blocks and `elapsed_ns` of time, given the relative half-width
    /// ([`crate::Estimate::precision`]) of each estimate; `None` for one that has no interval yet, which is not precise.
    pub fn signal(&self, blocks: usize, elapsed_ns: u64, half_widths: &[Option<f64>]) -> Signal {
        let precise = half_widths.iter().all(|w| w.is_some_and(|w| w <= self.target));
        if precise && blocks >= self.least_blocks {
            return Signal::Precise;
        }
        let mean_ns = elapsed_ns.checked_div(blocks as u64).unwrap_or(0);
        let spent = blocks >= self.least_blocks && elapsed_ns.saturating_add(mean_ns) > self.budget_ns;
        if blocks >= self.most_blocks || spent {
            return Signal::Budget;
        }
        Signal::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { target: 0.02, least_blocks: 10, most_blocks: 40, budget_ns: 1_000 };

    #[test]
    fn precision_stops_run_after_least_blocks() {
        assert_eq!(RULE.signal(9, 90, &[Some(0.001)]), Signal::Continue);
        assert_eq!(RULE.signal(10, 100, &[Some(0.02)]), Signal::Precise);
        assert_eq!(RULE.signal(10, 100, &[Some(0.001), Some(0.021)]), Signal::Continue, "the worst counts");
        assert_eq!(RULE.signal(10, 100, &[Some(0.001), None]), Signal::Continue);
        assert_eq!(RULE.signal(10, 100, &[Some(f64::NAN)]), Signal::Continue);
        assert_eq!(RULE.signal(40, 100, &[Some(0.001)]), Signal::Precise, "precise at the end is precise");
    }

    #[test]
    fn run_stops_before_budget_is_exceeded() {
        assert_eq!(RULE.signal(40, 100, &[None]), Signal::Budget);
        assert_eq!(RULE.signal(19, 950, &[None]), Signal::Continue, "a block of 50 still fits");
        assert_eq!(RULE.signal(19, 951, &[None]), Signal::Budget);
        assert_eq!(RULE.signal(9, 2_000, &[None]), Signal::Continue, "the least blocks are run all the same");
        assert_eq!(RULE.signal(0, 0, &[]), Signal::Continue);
        assert_eq!(RULE.signal(10, u64::MAX, &[None]), Signal::Budget);
    }
}
