//! A queue of addresses between threads; consumers take several at once, up to a limit.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<u64>,
    closed: bool,
}

#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    /// A copy of the length in `state`, readable without the lock.
    length: AtomicUsize,
    filled: Condvar,
}

impl Queue {
    /// No thread panics while holding the lock, so the state is consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn put(&self, addresses: &[u64]) {
        let mut state = self.lock();
        state.waiting.extend(addresses);
        self.length.store(state.waiting.len(), Ordering::Relaxed);
        drop(state);
        if addresses.len() == 1 {
            self.filled.notify_one();
        } else {
            self.filled.notify_all();
        }
    }

    /// Takes what there is, up to `most`; waits for at least one if `wait`. Takes nothing after the queue was closed.
    pub fn take(&self, most: usize, wait: bool, taken: &mut Vec<u64>) {
        taken.clear();
        let mut state = self.lock();
        while wait && state.waiting.is_empty() && !state.closed {
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !state.closed {
            let count = most.min(state.waiting.len());
            taken.extend(state.waiting.drain(..count));
            self.length.store(state.waiting.len(), Ordering::Relaxed);
        }
    }

    /// The number of waiting requests.
    pub fn len(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    /// Closes the queue: nothing can be taken any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_returns_up_to_the_limit_in_order() {
        let queue = Queue::default();
        let mut taken = Vec::new();
        queue.put(&[1, 2, 3]);
        queue.take(2, true, &mut taken);
        assert_eq!((&taken[..], queue.len()), (&[1, 2][..], 1));
        queue.take(10, true, &mut taken);
        assert_eq!(taken, [3]);
        queue.take(10, false, &mut taken);
        assert!(taken.is_empty());
    }

    #[test]
    fn waiters_wake_on_requests_and_at_the_end() {
        let queue = Queue::default();
        let total: usize = std::thread::scope(|scope| {
            let taker = || {
                let (mut taken, mut count) = (Vec::new(), 0);
                loop {
                    queue.take(3, true, &mut taken);
                    if taken.is_empty() {
                        return count;
                    }
                    count += taken.len();
                }
            };
            let takers: Vec<_> = (0..4).map(|_| scope.spawn(taker)).collect();
            for nth in 0..1000 {
                queue.put(&[nth]);
            }
            while queue.len() > 0 {
                std::thread::yield_now();
            }
            queue.close();
            takers.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(total, 1000);
    }
}
