//! Concurrent futures in reusable slots.
//!
//! A connection starts and ends a task for each request. With a collection that allocates memory for each
//! (`FuturesUnordered`) the 600 bytes per task were the main cost of a server with small writes: some allocators (musl's)
//! map and unmap pages alternately under that load. Here a completed task leaves its slot, with its memory and its waker,
//! to the next one.

use futures_util::task::AtomicWaker;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

pub(crate) struct Tasks<F> {
    slots: Vec<Slot<F>>,
    free: Vec<usize>,
    /// Slots to be polled.
    poll_queue: VecDeque<usize>,
    wake_queue: Arc<WakeQueue>,
}

struct Slot<F> {
    future: Pin<Box<Option<F>>>,
    slot_waker: Arc<SlotWaker>,
    waker: Waker,
}

/// Slots that were woken, and the task to wake.
#[derive(Default)]
struct WakeQueue {
    slots: Mutex<VecDeque<usize>>,
    task: AtomicWaker,
}

/// Wakes one slot.
struct SlotWaker {
    slot: usize,
    /// Whether it is already among the woken slots, or about to be polled.
    is_queued: AtomicBool,
    wake_queue: Arc<WakeQueue>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.wake_queue.slots.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.slot);
            self.wake_queue.task.wake();
        }
    }
}

impl<F: Future> Tasks<F> {
    pub fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), poll_queue: VecDeque::new(), wake_queue: Arc::default() }
    }

    /// The number of running futures.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a future. It is first polled by the next [`Tasks::poll_next`].
    pub fn push(&mut self, future: F) {
        let nth = self.free.pop().unwrap_or_else(|| {
            let place = self.slots.len();
            let wakeup = Arc::new(SlotWaker {
                slot: place,
                is_queued: AtomicBool::new(false),
                wake_queue: self.wake_queue.clone(),
            });
            self.slots.push(Slot { future: Box::pin(None), waker: wakeup.clone().into(), slot_waker: wakeup });
            place
        });
        let place = &mut self.slots[nth];
        assert!(place.future.is_none(), "the slot of a running task is free");
        place.future.set(Some(future));
        // A slot that was already woken for its previous future is still to be polled.
        if !place.slot_waker.is_queued.swap(true, Ordering::AcqRel) {
            self.poll_queue.push_back(nth);
        }
    }

    /// The output of a completed future; pending if none has completed, or there are none.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        // Before the woken slots are polled, so that no wake-up is missed.
        self.wake_queue.task.register(cx.waker());
        // A future that continuously wakes itself must not starve everything else.
        for _ in 0..=2 * self.len() {
            if self.poll_queue.is_empty() {
                std::mem::swap(
                    &mut self.poll_queue,
                    &mut self.wake_queue.slots.lock().unwrap_or_else(PoisonError::into_inner),
                );
            }
            let Some(nth) = self.poll_queue.pop_front() else { return Poll::Pending };
            let place = &mut self.slots[nth];
            // Before it runs: a wake-up during the poll counts.
            place.slot_waker.is_queued.store(false, Ordering::Release);
            let Some(future) = place.future.as_mut().as_pin_mut() else { continue };
            if let Poll::Ready(output) = future.poll(&mut Context::from_waker(&place.waker)) {
                place.future.set(None);
                self.free.push(nth);
                assert!(self.free.len() <= self.slots.len(), "a slot is free twice");
                return Poll::Ready(output);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::sync::oneshot;

    async fn next<F: Future>(tasks: &mut Tasks<F>) -> F::Output {
        poll_fn(|cx| tasks.poll_next(cx)).await
    }

    fn pending<F: Future>(tasks: &mut Tasks<F>) -> bool {
        tasks.poll_next(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn tasks_end_once_and_slots_are_reused() {
        let mut tasks = Tasks::new();
        for round in 0..50_u64 {
            let mut senders = Vec::new();
            for nth in 0..20 {
                let (sender, receiver) = oneshot::channel::<u64>();
                tasks.push(receiver);
                senders.push((nth, sender));
            }
            assert!(pending(&mut tasks) && tasks.len() == 20);
            // Some are completed by another thread, in another order.
            let there = std::thread::spawn(move || {
                for (nth, sender) in senders.into_iter().rev() {
                    sender.send(round * 100 + nth).expect("a receiver waits");
                }
            });
            let mut ended = Vec::new();
            for _ in 0..20 {
                ended.push(next(&mut tasks).await.expect("it was sent"));
            }
            there.join().expect("it sends");
            ended.sort_unstable();
            assert_eq!(ended, (0..20).map(|nth| round * 100 + nth).collect::<Vec<_>>());
            assert!(tasks.is_empty() && pending(&mut tasks));
        }
        assert_eq!(tasks.slots.len(), 20);
    }

    #[tokio::test]
    async fn late_wake_does_not_affect_the_new_task_in_a_slot() {
        let mut tasks: Tasks<Pin<Box<dyn Future<Output = u32>>>> = Tasks::new();
        let kept = std::rc::Rc::new(std::cell::Cell::new(None));
        let own = kept.clone();
        tasks.push(Box::pin(poll_fn(move |cx| {
            own.set(Some(cx.waker().clone()));
            Poll::Ready(1)
        })));
        assert_eq!(next(&mut tasks).await, 1);
        let (sender, receiver) = oneshot::channel();
        let late = kept.take().expect("it ran");
        // Woken while the slot is empty, and again while another task has it.
        late.wake_by_ref();
        tasks.push(Box::pin(async move { receiver.await.expect("it is sent") }));
        assert!(pending(&mut tasks));
        late.wake();
        assert!(pending(&mut tasks));
        sender.send(2).expect("it waits");
        assert_eq!(next(&mut tasks).await, 2);
    }

    #[test]
    fn self_waking_task_yields_to_others() {
        let mut tasks: Tasks<Pin<Box<dyn Future<Output = ()>>>> = Tasks::new();
        tasks.push(Box::pin(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        })));
        tasks.push(Box::pin(async {}));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(tasks.poll_next(&mut cx).is_ready());
        assert!(tasks.poll_next(&mut cx).is_pending(), "it comes back");
    }
}
