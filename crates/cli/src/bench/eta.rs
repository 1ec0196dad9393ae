//! How far a run is, and when it will be done: what is left of the design that runs goes on as fast as what is done of
//! it, and the designs after it take what their budgets allow.

use crate::progress;
use model::Context;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Where a run of several designs is.
#[derive(Debug, Clone)]
pub struct Eta {
    /// What each design may take.
    budgets: Vec<Duration>,
    current: usize,
    begun: Duration,
}

impl Eta {
    pub fn new(budgets: Vec<Duration>) -> Self {
        Self { budgets, current: 0, begun: Duration::ZERO }
    }

    /// The design `at` begins, at this time since the run began.
    pub fn begin(&mut self, at: usize, now: Duration) {
        (self.current, self.begun) = (at, now);
    }

    /// The time left, when `done` of `total` processes of the current design have ended.
    pub fn left(&self, now: Duration, done: u64, total: u64) -> Duration {
        let budget = self.budgets.get(self.current).copied().unwrap_or_default();
        let elapsed = now.saturating_sub(self.begun);
        let left = match done {
            0 => budget.saturating_sub(elapsed),
            // Measured speed, but never beyond what the budget allows.
            _ => elapsed.mul_f64(total.saturating_sub(done) as f64 / done as f64).min(budget.saturating_sub(elapsed)),
        };
        left + self.budgets.iter().skip(self.current + 1).sum::<Duration>()
    }
}

/// A context that draws a bar with what runs now, processes done and in all, and the finishing time; and the handle by
/// which it is told which design runs.
pub fn context(quiet: bool, eta: Eta) -> (Context, Arc<Mutex<Eta>>) {
    let inner = progress::context(quiet);
    let eta = Arc::new(Mutex::new(eta));
    let (shared, begun) = (eta.clone(), Instant::now());
    let context = Context::new(Arc::new(move |what: &str, done, total| {
        if what.is_empty() || total == 0 {
            return inner.progress(what, done, total);
        }
        let now = begun.elapsed();
        // A poisoned lock only means that some thread panicked; the estimate is as good as before.
        let left = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner).left(now, done, total);
        let end = clock_in(left).map_or(String::new(), |time| format!(", until {time}"));
        let said = format!("{what} ({}/{total}), {} left{end}", done + 1, span(left));
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        inner.progress(&said, ms(now), ms(now + left).max(1));
    }));
    (context, eta)
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
    let seconds = libc::time_t::try_from(then.as_secs()).ok()?;
    // SAFETY: a tm may be all zeroes.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values of ours.
    let filled = unsafe { libc::localtime_r(&raw const seconds, &raw mut parts) };
    (!filled.is_null()).then(|| format!("{:02}:{:02}", parts.tm_hour, parts.tm_min))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_what_is_done_and_the_budgets_to_come() {
        let s = Duration::from_secs;
        let mut eta = Eta::new(vec![s(100), s(60), s(40)]);
        assert_eq!(eta.left(s(0), 0, 10), s(200));
        // Half done in 20 s: 20 s more, then the other two.
        assert_eq!(eta.left(s(20), 5, 10), s(120));
        // Slower than its budget allows: it will be stopped.
        assert_eq!(eta.left(s(90), 1, 10), s(110));
        eta.begin(2, s(130));
        assert_eq!(eta.left(s(140), 10, 20), s(10));
        assert_eq!(eta.left(s(500), 10, 20), s(0));
    }

    #[test]
    fn spans_are_short() {
        assert_eq!([59, 150, 9000].map(|s| span(Duration::from_secs(s))), ["59 s", "3 min", "2.5 h"]);
    }
}
