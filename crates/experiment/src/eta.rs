//! Progress of a run, and its estimated end: the rest of the current design proceeds at its speed so far, and the
//! designs after it take what their budgets allow.
//!
//! A design that stops by precision has a minimum number of blocks and no maximum: how many are added is not known in advance. So
//! its remaining time is a range, from the end of the minimum to the end of its budget. The finishing time is that of the range's
//! end, and marked as approximate: waits for a quiet machine, a later design whose minimum exceeds its budget, and the making of
//! tables come on top, and cannot be predicted.

use crate::Design;
use std::time::Duration;

/// Estimated time of a comparison, which has no budget, before any of it is done.
const COMPARISON_DURATION_ESTIMATE: Duration = Duration::from_secs(600);
/// More time than any run gets.
const RUN_DURATION_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);
/// What is known about a design before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub budget: Duration,
    /// How that limits the design.
    pub limit: Limit,
}

/// How a budget limits a design.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The time is a guess: the full number of processes is run.
    None,
    /// Nothing is started that would end after it.
    Strict,
    /// At least this many processes are run regardless, and more until it is spent.
    Beyond(u64),
}

impl Part {
    /// Returns what is known about a design.
    pub fn from_design(design: &Design) -> Self {
        let least = design.warmup.saturating_add(design.blocks).saturating_mul(design.cells.len() as u64);
        match &design.plan {
            None => Self { budget: COMPARISON_DURATION_ESTIMATE, limit: Limit::None },
            // An explicit number of blocks has no time limit.
            Some(plan) if plan.exactly && plan.budget > RUN_DURATION_MAX => {
                Self { budget: COMPARISON_DURATION_ESTIMATE, limit: Limit::None }
            }
            Some(plan) if plan.exactly => Self { budget: plan.budget, limit: Limit::Strict },
            Some(plan) => Self { budget: plan.budget, limit: Limit::Beyond(least) },
        }
    }
}

/// Progress of a run of several designs.
#[derive(Debug, Clone)]
pub struct Eta {
    parts: Vec<Part>,
    current: usize,
    current_start: Duration,
}

impl Eta {
    /// Starts a run of these designs.
    pub fn new(parts: Vec<Part>) -> Self {
        Self { parts, current: 0, current_start: Duration::ZERO }
    }

    /// Marks the start of the design `at`, at this time since the run began.
    pub fn begin(&mut self, at: usize, now: Duration) {
        (self.current, self.current_start) = (at, now);
    }

    /// Returns the minimum and the maximum time left, when `done` of `total` processes of the current design have ended;
    /// `None` if that cannot be known yet.
    pub fn remaining(&self, now: Duration, done: u64, total: u64) -> Option<(Duration, Duration)> {
        let part = self.parts.get(self.current)?;
        let elapsed = now.saturating_sub(self.current_start);
        let rest = part.budget.saturating_sub(elapsed);
        let at_this_speed = |total: u64| {
            let seconds = elapsed.as_secs_f64() * total.saturating_sub(done) as f64 / done.max(1) as f64;
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        };
        let (least, most) = match part.limit {
            Limit::None if done == 0 => return None,
            Limit::Strict if done == 0 => (rest, rest),
            Limit::None => (at_this_speed(total), at_this_speed(total)),
            Limit::Strict => (at_this_speed(total).min(rest), at_this_speed(total).min(rest)),
            Limit::Beyond(_) if done == 0 => (Duration::ZERO, rest),
            // The minimum is run even if it exceeds the budget; beyond it, a started block is completed.
            Limit::Beyond(processes) => {
                let least = at_this_speed(processes.max(if done < processes { 0 } else { total }));
                (least, least.max(rest))
            }
        };
        assert!(least <= most, "at least {least:?}, at most {most:?}");
        let later = self.parts.get(self.current + 1..).unwrap_or_default().iter().map(|p| p.budget);
        let later = later.fold(Duration::ZERO, Duration::saturating_add);
        Some((least.saturating_add(later), most.saturating_add(later)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn strict(budget: u64) -> Part {
        Part { budget: s(budget), limit: Limit::Strict }
    }

    #[test]
    fn eta_follows_progress_and_remaining_budgets() {
        let one = |left: Option<(Duration, Duration)>| {
            let (least, most) = left.unwrap();
            assert_eq!(least, most);
            least
        };
        let mut eta = Eta::new(vec![strict(100), strict(60), strict(40)]);
        assert_eq!(one(eta.remaining(s(0), 0, 10)), s(200));
        // Half done in 20 s: 20 s more, then the other two.
        assert_eq!(one(eta.remaining(s(20), 5, 10)), s(120));
        // Slower than its budget allows: it will be stopped.
        assert_eq!(one(eta.remaining(s(90), 1, 10)), s(110));
        eta.begin(2, s(130));
        assert_eq!(one(eta.remaining(s(140), 10, 20)), s(10));
        assert_eq!(one(eta.remaining(s(500), 10, 20)), s(0));
        // An estimate does not end a comparison.
        let eta = Eta::new(vec![Part { budget: s(10), limit: Limit::None }]);
        assert_eq!(one(eta.remaining(s(20), 5, 10)), s(20));
        assert_eq!(eta.remaining(s(20), 0, 10), None);
    }

    #[test]
    fn absurd_numbers_of_processes_have_an_eta() {
        for limit in [Limit::None, Limit::Strict, Limit::Beyond(u64::MAX)] {
            let part = Part { budget: Duration::MAX, limit };
            let (least, most) = Eta::new(vec![part; 3]).remaining(s(20), 1, u64::MAX).unwrap();
            assert!(least <= most && most == Duration::MAX, "{limit:?}: {least:?}");
        }
    }

    #[test]
    fn optional_blocks_make_the_eta_a_range() {
        let eta = Eta::new(vec![Part { budget: s(100), limit: Limit::Beyond(10) }]);
        assert_eq!(eta.remaining(s(0), 0, 10), Some((s(0), s(100))));
        assert_eq!(eta.remaining(s(20), 5, 10), Some((s(20), s(80))));
        // The minimum number of blocks is run even over budget.
        assert_eq!(eta.remaining(s(90), 5, 10), Some((s(90), s(90))));
        // Beyond it, the current block is completed.
        assert_eq!(eta.remaining(s(60), 12, 14), Some((s(10), s(40))));
    }
}
