//! Whether the coordinator is woken at once by what a client sends, or when the client has sent what it can.
//!
//! The kernel lets a thread that is woken go before the one that wakes it. With one request under way that is right. A client with many
//! is interrupted after its first few, so that its requests come in small rounds, and each round wakes coordinator, node and client again. A
//! thread of the policy SCHED_BATCH waits until whoever runs has run (at most a slice of its time, and not at all where a processor is
//! idle), and finds the rest there too.
//!
//! So the policy follows the load, one request at a time, without a clock. What is counted here is also by what [`crate::colocation`] judges.

use crate::scheduling::set_patient;
use std::cell::Cell;
use tokio::sync::Notify;

/// So many requests under way are a crowd.
const CROWD: u32 = 16;
/// After so many requests that found none it is gone; more than a crowd takes to gather.
const CALM: u32 = 2 * CROWD;

/// Requests of the thread that it was made for.
#[derive(Debug)]
pub struct Patience {
    set: fn(bool) -> bool,
    under_way: Cell<u32>,
    /// Requests since the last crowd.
    calm: Cell<u32>,
    patient: Cell<bool>,
    /// The kernel has refused, or the user has set it.
    fixed: Cell<bool>,
    entered: Cell<u64>,
    done: Cell<Done>,
    crowd: Notify,
}

/// Requests that ended, and the bytes that they moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    pub requests: u64,
    pub bytes: u64,
}

/// One request, until it is dropped, and its bytes.
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

    /// Whether there is a crowd, or was one a moment ago.
    pub fn is_crowded(&self) -> bool {
        self.patient.get()
    }

    /// Ready when requests of a crowd begin, or when some began since it was last asked: who waits for it is not woken while there are none.
    pub async fn crowded(&self) {
        self.crowd.notified().await;
    }

    /// What has ended since it was made.
    pub fn done(&self) -> Done {
        self.done.get()
    }

    /// A request that moves so many bytes begins.
    pub fn enter(&self, bytes: u64) -> UnderWay<'_> {
        self.under_way.update(|count| count + 1);
        let crowded = self.under_way.get() >= CROWD;
        self.calm.set(if crowded { 0 } else { self.calm.get().saturating_add(1) });
        if crowded != self.patient.get() && (crowded || self.calm.get() > CALM) {
            // Without it, it is slower, and nothing else.
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
        // It counts as a crowd until others come, but nothing is under way.
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
