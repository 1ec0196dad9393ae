//! Flush coalescing: one flush at a time, shared by all waiters.
//!
//! The kernel reports a lost write once, to the first fsync; a concurrent second one would succeed. So flushes are
//! serialised. One flush covers every write that was answered before it began: all callers that requested a flush before it
//! began get its result.

use crate::frame::Status;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Default)]
pub struct Flushes {
    begun_count: AtomicU64,
    /// The number of the last flush that succeeded.
    last_success: Mutex<u64>,
    /// Whether acknowledged data may be lost, so that a flush that succeeded would promise too much.
    failed: AtomicBool,
}

impl Flushes {
    /// Everything written before is on the medium when this returns: by `sync`, or by a concurrent flush that began since.
    ///
    /// # Errors
    /// The result of `sync`; and [`Status::Lost`] once it has failed.
    pub fn flush(&self, sync: impl FnOnce() -> Result<(), Status>) -> Result<(), Status> {
        let before = self.begun_count.load(Ordering::SeqCst);
        let mut done = self.last_success.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has_failed() {
            return Err(Status::Lost);
        }
        if *done > before {
            return Ok(());
        }
        let this = self.begun_count.fetch_add(1, Ordering::SeqCst) + 1;
        let synced = sync();
        if synced.is_ok() {
            *done = this;
        }
        synced
    }

    /// Runs `work` while nothing else is flushed.
    pub fn run_exclusively(&self, work: impl FnOnce()) {
        let _done = self.last_success.lock().unwrap_or_else(PoisonError::into_inner);
        work();
    }

    /// Whether flushes fail because data may be lost.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Sets whether flushes fail from now on.
    pub fn set_failed(&self, failed: bool) {
        self.failed.store(failed, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flush_waits_for_a_sync_that_started_after_it() {
        const THREAD_COUNT: u64 = 4;
        const ROUND_COUNT: u64 = 2000;
        let (flushes, written, synced) = (Flushes::default(), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREAD_COUNT {
                scope.spawn(|| {
                    for _ in 0..ROUND_COUNT {
                        let mine = written.fetch_add(1, Ordering::SeqCst) + 1;
                        let flushed = flushes.flush(|| {
                            let all = written.load(Ordering::SeqCst);
                            std::thread::yield_now();
                            synced.store(all, Ordering::SeqCst);
                            Ok(())
                        });
                        assert_eq!(flushed, Ok(()));
                        assert!(synced.load(Ordering::SeqCst) >= mine);
                    }
                });
            }
        });
    }

    /// Those that wait while one fails sync by themselves: what it did not make durable may be theirs.
    #[test]
    fn flush_that_failed_is_shared_by_nobody() {
        let flushes = Flushes::default();
        std::thread::scope(|scope| {
            let mut waiting = Vec::new();
            flushes.run_exclusively(|| {
                let fails = || scope.spawn(|| flushes.flush(|| Err(Status::Io)));
                waiting = (0..4).map(|_| fails()).collect();
                // A fixed wait: until all of them have come; whoever comes later shares nothing in any case.
                std::thread::sleep(std::time::Duration::from_millis(100));
            });
            for flush in waiting {
                assert_eq!(flush.join().expect("a flush"), Err(Status::Io));
            }
        });
    }

    #[test]
    fn flushes_fail_after_a_loss_until_reset() {
        let flushes = Flushes::default();
        assert_eq!(flushes.flush(|| Ok(())), Ok(()));
        assert_eq!(flushes.flush(|| Err(Status::Io)), Err(Status::Io));
        assert_eq!(flushes.flush(|| Ok(())), Ok(()), "nothing was lost");
        flushes.set_failed(true);
        assert_eq!(flushes.flush(|| Ok(())), Err(Status::Lost));
        flushes.set_failed(false);
        assert_eq!(flushes.flush(|| Ok(())), Ok(()));
    }
}
