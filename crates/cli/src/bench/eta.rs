//! How far a run is, and when it will be done: what is left of the design that runs goes on as fast as what is done of
//! it, and the designs after it take what their budgets allow.
//!
//! A design that stops by precision has a least number of blocks and no greatest: how many are added nobody knows before.
//! So its time left is a range, from the end of the least blocks to the end of its budget. The finishing
//! time is that of the range's end, and is said to be about that: waits for a quiet machine, a design to come whose least blocks overdraw its budget, and
//! the making of tables come on top, and nobody knows them before.

use crate::progress;
use experiment::Design;
use model::Context;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a comparison is reckoned to take, which has no budget, before anything of it is done.
const COMPARISON: Duration = Duration::from_secs(600);
/// More than anybody gives a run.
const BOUNDLESS: Duration = Duration::from_secs(10 * 365 * 86_400);
/// How often a line is printed where no bar can be drawn.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What is known of a design before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// What it is reckoned to take.
    pub budget: Duration,
    /// How that limits it.
    pub limit: Limit,
}

/// How a budget limits a design.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// It is a guess: as many processes are run as there shall be.
    None,
    /// Nothing is begun that would end after it.
    Strict,
    /// At least so many processes are run whatever it says, and more until it is spent.
    Beyond(u64),
}

impl Part {
    pub fn of(design: &Design) -> Self {
        let least = (design.warmup + design.blocks) * design.cells.len() as u64;
        match &design.plan {
            None => Self { budget: COMPARISON, limit: Limit::None },
            // Who names a number of blocks gives them all the time there is.
            Some(plan) if plan.exactly && plan.budget > BOUNDLESS => Self { budget: COMPARISON, limit: Limit::None },
            Some(plan) if plan.exactly => Self { budget: plan.budget, limit: Limit::Strict },
            Some(plan) => Self { budget: plan.budget, limit: Limit::Beyond(least) },
        }
    }
}

/// Where a run of several designs is.
#[derive(Debug, Clone)]
pub struct Eta {
    parts: Vec<Part>,
    current: usize,
    begun: Duration,
}

impl Eta {
    pub fn new(parts: Vec<Part>) -> Self {
        Self { parts, current: 0, begun: Duration::ZERO }
    }

    /// The design `at` begins, at this time since the run began.
    pub fn begin(&mut self, at: usize, now: Duration) {
        (self.current, self.begun) = (at, now);
    }

    /// The least and the most time left, when `done` of `total` processes of the current design have ended; nothing if that
    /// cannot be known yet.
    pub fn left(&self, now: Duration, done: u64, total: u64) -> Option<(Duration, Duration)> {
        let part = self.parts.get(self.current)?;
        let elapsed = now.saturating_sub(self.begun);
        let rest = part.budget.saturating_sub(elapsed);
        let at_this_speed = |total: u64| elapsed.mul_f64(total.saturating_sub(done) as f64 / done.max(1) as f64);
        let (least, most) = match part.limit {
            Limit::None if done == 0 => return None,
            Limit::Strict if done == 0 => (rest, rest),
            Limit::None => (at_this_speed(total), at_this_speed(total)),
            Limit::Strict => (at_this_speed(total).min(rest), at_this_speed(total).min(rest)),
            Limit::Beyond(_) if done == 0 => (Duration::ZERO, rest),
            // The least is run though it overdraws the budget; beyond it a block is ended that was begun.
            Limit::Beyond(processes) => {
                let least = at_this_speed(processes.max(if done < processes { 0 } else { total }));
                (least, least.max(rest))
            }
        };
        let later: Duration = self.parts.get(self.current + 1..).unwrap_or_default().iter().map(|p| p.budget).sum();
        Some((least + later, most + later))
    }
}

/// A context that shows what runs now, how much of it is done and the finishing time: as a bar on a terminal, else as a line
/// every ten seconds. And the handle by which it is told which design runs.
pub fn context(quiet: bool, eta: Eta) -> (Context, Arc<Mutex<Eta>>) {
    let inner = progress::context(quiet);
    let eta = Arc::new(Mutex::new(eta));
    let (shared, begun) = (eta.clone(), Instant::now());
    let lines = (!quiet && !std::io::stderr().is_terminal()).then(|| Mutex::new(Lines::default()));
    let context = Context::new(Arc::new(move |what: &str, done, total| {
        if what.is_empty() || total == 0 {
            return inner.progress(what, done, total);
        }
        let now = begun.elapsed();
        // A poisoned lock only means that some thread panicked; the estimate is as good as before.
        let left = shared.lock().unwrap_or_else(PoisonError::into_inner).left(now, done, total);
        let said = format!("{what} ({}/{total}){}", done + 1, left.map_or(String::new(), told));
        if let Some(lines) = &lines
            && lines.lock().unwrap_or_else(PoisonError::into_inner).due(now, done)
        {
            eprintln!("fathom: {said}");
        }
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        match left {
            Some((_, most)) => inner.progress(&said, ms(now), ms(now + most).max(1)),
            None => inner.progress(&said, done, total),
        }
    }));
    (context, eta)
}

/// When a line was printed last, and how much was done when it was last told.
#[derive(Debug, Default)]
struct Lines {
    last: Option<Duration>,
    done: u64,
}

impl Lines {
    /// Whether one is due now: at a design's begin, and after a while.
    fn due(&mut self, now: Duration, done: u64) -> bool {
        let begins = done < self.done;
        self.done = done;
        let due = begins || self.last.is_none_or(|last| now.saturating_sub(last) >= LINE_EVERY);
        if due {
            self.last = Some(now);
        }
        due
    }
}

/// The time left, and by when.
fn told((least, most): (Duration, Duration)) -> String {
    let end = clock_in(most).map_or(String::new(), |time| format!(", until about {time}"));
    let or_before = if least == most || end.is_empty() { "" } else { " or before" };
    format!(", {} left{end}{or_before}", range(least, most))
}

/// A time that is known within bounds.
fn range(least: Duration, most: Duration) -> String {
    match (span(least), span(most)) {
        (a, b) if a == b => a,
        (_, b) if least.is_zero() => format!("up to {b}"),
        (a, b) => format!("{a} to {b}"),
    }
}

/// A time as people say it.
fn span(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..100 => format!("{s} s"),
        s @ 100..6000 => format!("{} min", (s + 30) / 60),
        s => format!("{:.1} h", s as f64 / 3600.0),
    }
}

/// The hour and minute, here, after `left`.
fn clock_in(left: Duration) -> Option<String> {
    let then = std::time::SystemTime::now().checked_add(left)?.duration_since(std::time::UNIX_EPOCH).ok()?;
    // The kind of number that the C library has; musl's is about to change.
    let seconds = then.as_secs().try_into().ok()?;
    // SAFETY: a tm may be all zeroes.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values of ours.
    let filled = unsafe { libc::localtime_r(&raw const seconds, &raw mut parts) };
    (!filled.is_null()).then(|| format!("{:02}:{:02}", parts.tm_hour, parts.tm_min))
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
    fn what_is_left_follows_what_is_done_and_the_budgets_to_come() {
        let one = |left: Option<(Duration, Duration)>| {
            let (least, most) = left.unwrap();
            assert_eq!(least, most);
            least
        };
        let mut eta = Eta::new(vec![strict(100), strict(60), strict(40)]);
        assert_eq!(one(eta.left(s(0), 0, 10)), s(200));
        // Half done in 20 s: 20 s more, then the other two.
        assert_eq!(one(eta.left(s(20), 5, 10)), s(120));
        // Slower than its budget allows: it will be stopped.
        assert_eq!(one(eta.left(s(90), 1, 10)), s(110));
        eta.begin(2, s(130));
        assert_eq!(one(eta.left(s(140), 10, 20)), s(10));
        assert_eq!(one(eta.left(s(500), 10, 20)), s(0));
        // A guess does not end a comparison.
        let eta = Eta::new(vec![Part { budget: s(10), limit: Limit::None }]);
        assert_eq!(one(eta.left(s(20), 5, 10)), s(20));
        assert_eq!(eta.left(s(20), 0, 10), None);
    }

    #[test]
    fn blocks_that_may_be_added_make_it_a_range() {
        let eta = Eta::new(vec![Part { budget: s(100), limit: Limit::Beyond(10) }]);
        assert_eq!(eta.left(s(0), 0, 10), Some((s(0), s(100))));
        assert_eq!(eta.left(s(20), 5, 10), Some((s(20), s(80))));
        // The least is run though it overdraws the budget.
        assert_eq!(eta.left(s(90), 5, 10), Some((s(90), s(90))));
        // Beyond it, the block that runs is ended.
        assert_eq!(eta.left(s(60), 12, 14), Some((s(10), s(40))));
        assert_eq!(range(s(20), s(600)), "20 s to 10 min");
        assert_eq!(range(s(0), s(90)), "up to 90 s");
        assert_eq!(range(s(30), s(30)), "30 s");
    }

    #[test]
    fn without_a_terminal_a_line_comes_at_a_begin_and_every_ten_seconds() {
        let mut lines = Lines::default();
        // The first process waits for the machine, then one a second ends.
        assert_eq!((0..5).filter(|t| lines.due(s(*t), 0)).collect::<Vec<_>>(), [0]);
        assert_eq!((5..32).filter(|t| lines.due(s(*t), *t)).collect::<Vec<_>>(), [10, 20, 30]);
        assert!(lines.due(s(33), 0), "the next design begins");
        assert!(!lines.due(s(34), 0), "and waits for the machine");
    }

    /// What comes on top of the blocks nobody knows before.
    #[test]
    fn a_finishing_time_is_about_that() {
        for (least, most) in [(s(20), s(600)), (s(0), s(90)), (s(30), s(30))] {
            let said = told((least, most));
            assert!(
                said.contains("left, until about ") && !said.contains("at the latest") && !said.contains("at most"),
                "{said}"
            );
            assert_eq!(said.ends_with(" or before"), least != most, "{said}");
        }
    }

    #[test]
    fn spans_are_short() {
        assert_eq!([59, 150, 9000].map(|t| span(s(t))), ["59 s", "3 min", "2.5 h"]);
    }
}
