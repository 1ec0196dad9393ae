//! Whether data of a client wakes the coordinator at once, or only when the client has sent all that it can.
//!
//! The kernel lets a thread that is woken preempt the one that wakes it. With one outstanding request that is right. A
//! client with many is interrupted after its first few, so that its requests arrive in small rounds, and each round wakes
//! coordinator, node and client again. A thread with the policy SCHED_BATCH waits until the current thread has run (at most
//! a slice of its time, and not at all where a CPU is idle), and then finds the rest of the requests too.
//!
//! So the policy follows the load, updated at each request, without a clock. [`crate::colocation`] uses the same counters.

use crate::scheduling::set_batch_policy;
use std::cell::Cell;
use tokio::sync::Notify;

/// The number of outstanding requests that counts as a crowd.
const CROWD_REQUESTS_MIN: u32 = 16;
/// A crowd is over after this many requests without one; more than a crowd takes to gather.
const CALM_REQUESTS: u32 = 2 * CROWD_REQUESTS_MIN;

/// The requests of the thread that it was created for.
#[derive(Debug)]
pub struct LoadMonitor {
    set_policy: fn(bool) -> bool,
    under_way: Cell<u32>,
    /// Requests since the last crowd.
    calm_requests: Cell<u32>,
    is_patient: Cell<bool>,
    /// Whether the kernel has refused, or the user has set the policy.
    is_fixed: Cell<bool>,
    entered: Cell<u64>,
    completed: Cell<CompletedRequests>,
    crowd_began: Notify,
}

/// Completed requests, and the bytes that they moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompletedRequests {
    pub requests: u64,
    pub bytes: u64,
}

/// One outstanding request, until it is dropped, and its bytes.
#[derive(Debug)]
pub struct RequestGuard<'p>(&'p LoadMonitor, u64);

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.0.under_way.update(|count| count - 1);
        self.0.completed.update(|done| CompletedRequests { requests: done.requests + 1, bytes: done.bytes + self.1 });
    }
}

impl Default for LoadMonitor {
    fn default() -> Self {
        Self::new(set_batch_policy)
    }
}

impl LoadMonitor {
    pub(crate) fn new(set: fn(bool) -> bool) -> Self {
        let (under_way, calm, patient) = (Cell::new(0), Cell::new(0), Cell::new(false));
        let (fixed, entered, done, crowd) = (Cell::new(false), Cell::new(0), Cell::default(), Notify::new());
        Self {
            set_policy: set,
            under_way,
            calm_requests: calm,
            is_patient: patient,
            is_fixed: fixed,
            entered,
            completed: done,
            crowd_began: crowd,
        }
    }

    /// Whether there is a crowd, or was one recently.
    pub fn is_crowded(&self) -> bool {
        self.is_patient.get()
    }

    /// Completes when requests of a crowd begin, or if some have begun since the last call: a waiting task is not woken
    /// while there are none.
    pub async fn wait_for_crowd(&self) {
        self.crowd_began.notified().await;
    }

    /// All requests completed so far.
    pub fn completed(&self) -> CompletedRequests {
        self.completed.get()
    }

    /// Begins a request that moves `bytes`.
    pub fn begin_request(&self, bytes: u64) -> RequestGuard<'_> {
        self.under_way.update(|count| count + 1);
        let crowded = self.under_way.get() >= CROWD_REQUESTS_MIN;
        self.calm_requests.set(if crowded { 0 } else { self.calm_requests.get().saturating_add(1) });
        if crowded != self.is_patient.get() && (crowded || self.calm_requests.get() > CALM_REQUESTS) {
            // A failure only makes it slower.
            let fixed = self.is_fixed.get() || !(self.set_policy)(crowded);
            self.is_fixed.set(fixed);
            self.is_patient.set(crowded);
        }
        self.entered.update(|count| count + 1);
        if crowded && self.entered.get().is_multiple_of(CROWD_REQUESTS_MIN.into()) {
            self.crowd_began.notify_one();
        }
        RequestGuard(self, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::task::{Context, Waker};

    thread_local! {
        static CALLS: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
    }

    fn record(patient: bool) -> bool {
        CALLS.with_borrow_mut(|calls| calls.push(patient));
        true
    }

    #[test]
    fn policy_follows_the_number_of_requests() {
        let patience = LoadMonitor::new(record);
        for _ in 0..1000 {
            let _few: Vec<_> = (1..CROWD_REQUESTS_MIN).map(|_| patience.begin_request(1)).collect();
        }
        assert!(CALLS.take().is_empty());
        // Repeated bursts count as one crowd.
        for _ in 0..1000 {
            let _many: Vec<_> = (0..64).map(|_| patience.begin_request(1)).collect();
        }
        assert_eq!(CALLS.take(), [true]);
        (0..1000).for_each(|_| drop(patience.begin_request(1)));
        assert_eq!(CALLS.take(), [false]);
        assert_eq!(patience.under_way.get(), 0);
    }

    #[test]
    fn nobody_is_woken_after_the_crowd_has_left() {
        let patience = LoadMonitor::new(|_| true);
        let is_ready = || {
            let mut crowded = std::pin::pin!(patience.wait_for_crowd());
            crowded.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        (0..1000).for_each(|_| drop(patience.begin_request(1)));
        assert!(!is_ready());
        drop((0..64).map(|_| patience.begin_request(1)).collect::<Vec<_>>());
        // It counts as a crowd until others come, but nothing is outstanding.
        assert!(patience.is_crowded() && is_ready() && !is_ready());
    }

    #[test]
    fn refused_policy_is_not_retried() {
        let patience = LoadMonitor::new(|patient| !record(patient));
        for _ in 0..100 {
            let _many: Vec<_> = (0..64).map(|_| patience.begin_request(1)).collect();
        }
        (0..1000).for_each(|_| drop(patience.begin_request(1)));
        assert_eq!(CALLS.take(), [true]);
    }
}
