//! Whether data of a client wakes the coordinator at once, or only when the client has sent all that it can.
//!
//! The kernel lets a thread that is woken preempt the one that wakes it. With one outstanding request that is right. A
//! client with many is interrupted after its first few, so that its requests arrive in small rounds, and each round wakes
//! coordinator, node and client again. A thread with the policy SCHED_BATCH waits until the current thread has run (at most
//! a slice of its time, and not at all where a CPU is idle), and then finds the rest of the requests too.
//!
//! So the policy follows the load, updated at each request, without a clock. [`crate::colocation`] uses the same counters.

use crate::scheduling::set_patient;
use std::cell::Cell;
use tokio::sync::Notify;

/// The number of outstanding requests that counts as a crowd.
const CROWD: u32 = 16;
/// A crowd is over after this many requests without one; more than a crowd takes to gather.
const CALM: u32 = 2 * CROWD;

/// The requests of the thread that it was created for.
#[derive(Debug)]
pub struct Patience {
    set: fn(bool) -> bool,
    under_way: Cell<u32>,
    /// Requests since the last crowd.
    calm: Cell<u32>,
    patient: Cell<bool>,
    /// Whether the kernel has refused, or the user has set the policy.
    fixed: Cell<bool>,
    entered: Cell<u64>,
    done: Cell<Done>,
    crowd: Notify,
}

/// Completed requests, and the bytes that they moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    pub requests: u64,
    pub bytes: u64,
}

/// One outstanding request, until it is dropped, and its bytes.
#[derive(Debug)]
pub struct UnderWay<'p>(&'p Patience, u64);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.update(|count| count - 1);
        self.0.done.update(|done| Done { requests: done.requests + 1, bytes: done.bytes + self.1 });
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::new(set_patient)
    }
}

impl Patience {
    pub(crate) fn new(set: fn(bool) -> bool) -> Self {
        let (under_way, calm, patient) = (Cell::new(0), Cell::new(0), Cell::new(false));
        let (fixed, entered, done, crowd) = (Cell::new(false), Cell::new(0), Cell::default(), Notify::new());
        Self { set, under_way, calm, patient, fixed, entered, done, crowd }
    }

    /// Whether there is a crowd, or was one recently.
    pub fn is_crowded(&self) -> bool {
        self.patient.get()
    }

    /// Completes when requests of a crowd begin, or if some have begun since the last call: a waiting task is not woken
    /// while there are none.
    pub async fn crowded(&self) {
        self.crowd.notified().await;
    }

    /// All requests completed so far.
    pub fn done(&self) -> Done {
        self.done.get()
    }

    /// Begins a request that moves `bytes`.
    pub fn enter(&self, bytes: u64) -> UnderWay<'_> {
        self.under_way.update(|count| count + 1);
        let crowded = self.under_way.get() >= CROWD;
        self.calm.set(if crowded { 0 } else { self.calm.get().saturating_add(1) });
        if crowded != self.patient.get() && (crowded || self.calm.get() > CALM) {
            // A failure only makes it slower.
            let fixed = self.fixed.get() || !(self.set)(crowded);
            self.fixed.set(fixed);
            self.patient.set(crowded);
        }
        self.entered.update(|count| count + 1);
        if crowded && self.entered.get().is_multiple_of(CROWD.into()) {
            self.crowd.notify_one();
        }
        UnderWay(self, bytes)
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
    fn policy_follows_crowd_size() {
        let patience = Patience::new(record);
        for _ in 0..1000 {
            let _few: Vec<_> = (1..CROWD).map(|_| patience.enter(1)).collect();
        }
        assert!(CALLS.take().is_empty());
        // Repeated bursts count as one crowd.
        for _ in 0..1000 {
            let _many: Vec<_> = (0..64).map(|_| patience.enter(1)).collect();
        }
        assert_eq!(CALLS.take(), [true]);
        (0..1000).for_each(|_| drop(patience.enter(1)));
        assert_eq!(CALLS.take(), [false]);
        assert_eq!(patience.under_way.get(), 0);
    }

    #[test]
    fn nobody_is_woken_after_crowd_stopped() {
        let patience = Patience::new(|_| true);
        let is_ready = || {
            let mut crowded = std::pin::pin!(patience.crowded());
            crowded.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        (0..1000).for_each(|_| drop(patience.enter(1)));
        assert!(!is_ready());
        drop((0..64).map(|_| patience.enter(1)).collect::<Vec<_>>());
        // It counts as a crowd until others come, but nothing is outstanding.
        assert!(patience.is_crowded() && is_ready() && !is_ready());
    }

    #[test]
    fn refused_policy_is_not_retried() {
        let patience = Patience::new(|patient| !record(patient));
        for _ in 0..100 {
            let _many: Vec<_> = (0..64).map(|_| patience.enter(1)).collect();
        }
        (0..1000).for_each(|_| drop(patience.enter(1)));
        assert_eq!(CALLS.take(), [true]);
    }
}
