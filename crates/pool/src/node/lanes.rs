//! The threads that serve a store's file, by what a request may wait for.
//!
//! A checkout for those with a full trolley does not hold up those with one item. Writes may wait for the medium to take
//! earlier ones, and flushes wait for all of them; with common threads, four of either would leave none to read. So each of
//! these classes has a limit of threads, beyond which its requests queue; reads have no limit but the runtime's, which has
//! more threads than both limits together.

use super::WORKERS_PER_CLASS;
use crate::frame::WaitClass;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;

type Job = Box<dyn FnOnce() + Send>;

/// The lanes of a node.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    writes: Arc<Lane>,
    syncs: Arc<Lane>,
}

#[derive(Default)]
struct Lane(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    running: usize,
    waiting: VecDeque<Job>,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Lane").field("running", &queue.running).field("waiting", &queue.waiting.len()).finish()
    }
}

impl Lanes {
    /// Runs `job` on a thread of `workers` as soon as its class permits.
    pub fn run(&self, class: WaitClass, workers: &Handle, job: impl FnOnce() + Send + 'static) {
        match class {
            WaitClass::Read => drop(workers.spawn_blocking(job)),
            WaitClass::Write => Lane::run(&self.writes, workers, Box::new(job)),
            WaitClass::Sync => Lane::run(&self.syncs, workers, Box::new(job)),
        }
    }
}

impl Lane {
    fn run(self: &Arc<Self>, workers: &Handle, job: Job) {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.running == WORKERS_PER_CLASS {
            queue.waiting.push_back(job);
            return;
        }
        queue.running += 1;
        drop(queue);
        let mut running = LaneThread(Some(self.clone()));
        // The runtime drops it unstarted only at its end.
        drop(workers.spawn_blocking(move || {
            job();
            while let Some(next) = running.next() {
                next();
            }
        }));
    }
}

/// A thread of a lane, until it finds no more jobs, or a job panics.
struct LaneThread(Option<Arc<Lane>>);

impl LaneThread {
    fn next(&mut self) -> Option<Job> {
        let lane = self.0.take()?;
        let mut queue = lane.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = queue.waiting.pop_front();
        if next.is_none() {
            // With the same lock: a job that comes now finds that this thread has left.
            queue.running -= 1;
            return None;
        }
        drop(queue);
        self.0 = Some(lane);
        next
    }
}

impl Drop for LaneThread {
    fn drop(&mut self) {
        if let Some(lane) = &self.0 {
            lane.0.lock().unwrap_or_else(PoisonError::into_inner).running -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(flavor = "current_thread")]
    async fn reads_run_while_all_writes_and_flushes_wait() {
        let (lanes, workers) = (Lanes::default(), Handle::current());
        let (medium, done) = (Arc::new(Barrier::new(2 * WORKERS_PER_CLASS + 1)), Arc::new(AtomicUsize::new(0)));
        for class in [WaitClass::Write, WaitClass::Sync] {
            for _ in 0..3 * WORKERS_PER_CLASS {
                let (medium, done) = (medium.clone(), done.clone());
                lanes.run(class, &workers, move || {
                    medium.wait();
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
        }
        for round in 0..3 {
            let (sent, read) = tokio::sync::oneshot::channel();
            lanes.run(WaitClass::Read, &workers, move || sent.send(()).unwrap());
            read.await.unwrap();
            assert!(done.load(Ordering::SeqCst) <= 2 * WORKERS_PER_CLASS * round);
            let medium = medium.clone();
            tokio::task::spawn_blocking(move || medium.wait()).await.unwrap();
        }
        while done.load(Ordering::SeqCst) < 6 * WORKERS_PER_CLASS {
            tokio::task::yield_now().await;
        }
        while lanes.writes.0.lock().unwrap().running + lanes.syncs.0.lock().unwrap().running > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn lane_survives_a_job_that_panics() {
        let (lanes, workers) = (Lanes::default(), Handle::current());
        (0..2 * WORKERS_PER_CLASS).for_each(|_| lanes.run(WaitClass::Write, &workers, || panic!("on purpose")));
        while lanes.writes.0.lock().unwrap().running > 0 {
            tokio::task::yield_now().await;
        }
        let (sent, written) = tokio::sync::oneshot::channel();
        lanes.run(WaitClass::Write, &workers, move || sent.send(()).unwrap());
        written.await.unwrap();
    }
}
