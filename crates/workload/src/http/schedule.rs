//! Which request is sent when and on which connection: the only state shared by the client's threads.
//!
//! Requests are numbered; a free connection takes the next number. In a **closed loop** that request is due at once. In an
//! **open loop** (a rate) it is due at `start + number / rate`, whatever happened to earlier ones: when all connections
//! are busy the request waits, and its latency still counts from when it was due. So a stall of the server shows in every
//! request that would have been sent meanwhile, and not only in one (coordinated omission).
//!
//! Every `inner` successes make an iteration; it ends when the last of them ends. The iterations of a run follow each
//! other without a gap, so their times add up to the run's.

use super::failure::Failure;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopAt {
    /// This many requests were sent.
    Requests(u64),
    /// A request would begin this many nanoseconds after the start, or later.
    Elapsed(u64),
}

/// A run's requests.
#[derive(Debug)]
pub struct Schedule {
    /// Requests per second; 0 is the closed loop.
    rate: f64,
    until: StopAt,
    inner: u64,
    start_ns: AtomicU64,
    next: AtomicU64,
    done: AtomicU64,
    errors: AtomicU64,
    max_errors: u64,
    stop: AtomicBool,
    first_error: Mutex<Option<Failure>>,
    ends: Mutex<Vec<(u64, u64)>>,
}

impl Schedule {
    /// Creates a run of iterations of `inner` requests, which ends early after more than `max_errors` errors.
    pub fn new(rate: f64, until: StopAt, inner: u64, max_errors: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            rate,
            until,
            inner: inner.max(1),
            start_ns: zero(),
            next: zero(),
            done: zero(),
            errors: zero(),
            max_errors,
            stop: AtomicBool::new(false),
            first_error: Mutex::new(None),
            ends: Mutex::new(Vec::new()),
        }
    }

    /// Starts the run; before that, nothing may be taken.
    pub fn start(&self, now_ns: u64) {
        self.start_ns.store(now_ns, Ordering::Release);
    }

    /// When it began.
    pub fn started_ns(&self) -> u64 {
        self.start_ns.load(Ordering::Acquire)
    }

    /// Whether it is an open loop.
    pub fn is_open(&self) -> bool {
        self.rate > 0.0
    }

    /// Takes the next request and returns its due time (`now_ns` in the closed loop); none if there are no more.
    pub fn take(&self, now_ns: u64) -> Option<u64> {
        if self.stopped() {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let start = self.started_ns();
        let due = if self.is_open() { start + (number as f64 * 1e9 / self.rate) as u64 } else { now_ns };
        match self.until {
            StopAt::Requests(most) => (number < most).then_some(due),
            StopAt::Elapsed(ns) => (due < start.saturating_add(ns)).then_some(due),
        }
    }

    /// A request succeeded at `now_ns`.
    pub fn succeeded(&self, now_ns: u64) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(self.inner) {
            lock(&self.ends).push((done / self.inner, now_ns));
        }
    }

    /// A request failed; too many end the run.
    pub fn failed(&self, why: Failure) {
        lock(&self.first_error).get_or_insert(why);
        if self.errors.fetch_add(1, Ordering::Relaxed) >= self.max_errors {
            self.stop();
        }
    }

    /// Ends the run: requests in flight are awaited, no new ones are sent.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it was ended early.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Successes, errors, and the first error.
    pub fn counts(&self) -> (u64, u64, Option<Failure>) {
        (self.done.load(Ordering::Relaxed), self.errors.load(Ordering::Relaxed), lock(&self.first_error).clone())
    }

    /// The complete iterations: start and end.
    pub fn iterations(&self) -> Vec<(u64, u64)> {
        let mut ends = lock(&self.ends).clone();
        ends.sort_unstable();
        let mut begin = self.started_ns();
        let mut iterations = Vec::with_capacity(ends.len());
        for (_, end) in ends {
            // Two threads may count in a different order than they read the clock, by nanoseconds.
            let end = end.max(begin);
            iterations.push((begin, end));
            begin = end;
        }
        iterations
    }
}

/// A panic of another thread, which the scope reports, does not invalidate the data.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(found: u16) -> Failure {
        let address = std::net::SocketAddr::from(([192, 0, 2, 1], 80));
        Failure::Status { address, found, expected: 200 }
    }

    #[test]
    fn open_loop_keeps_due_times_when_late() {
        let schedule = Schedule::new(1000.0, StopAt::Requests(4), 2, 0);
        schedule.start(5_000_000_000);
        let due: Vec<_> = (0..5).map(|_| schedule.take(9_000_000_000)).collect();
        assert_eq!(due, [Some(5_000_000_000), Some(5_001_000_000), Some(5_002_000_000), Some(5_003_000_000), None]);
    }

    #[test]
    fn closed_loop_is_due_at_once_until_duration_ends() {
        let schedule = Schedule::new(0.0, StopAt::Elapsed(100), 1, 0);
        schedule.start(1000);
        assert_eq!([1000, 1099, 1100].map(|now| schedule.take(now)), [Some(1000), Some(1099), None]);
    }

    #[test]
    fn iterations_follow_each_other_without_gaps() {
        let schedule = Schedule::new(0.0, StopAt::Requests(9), 2, 0);
        schedule.start(100);
        [110, 120, 150, 140, 200].into_iter().for_each(|now| schedule.succeeded(now));
        assert_eq!(schedule.iterations(), [(100, 120), (120, 140)]);
        assert_eq!(schedule.counts(), (5, 0, None));
    }

    #[test]
    fn run_ends_above_error_limit_and_reports_first_error() {
        let schedule = Schedule::new(0.0, StopAt::Requests(9), 1, 1);
        schedule.failed(failure(500));
        assert!(schedule.take(0).is_some());
        schedule.failed(failure(501));
        assert!(schedule.take(0).is_none() && schedule.stopped());
        assert_eq!(schedule.counts(), (0, 2, Some(failure(500))));
    }
}
