//! Flush coalescing: one flush at a time, shared by all waiters.
//!
//! The kernel reports a lost write once, to the first fsync; a concurrent second one would succeed. So flushes are
//! serialised. One flush covers every write that was answered before it began: all callers that requested a flush before it
//! began get its result.

use crate::frame::Status;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Default)]
pub struct Flushes {
    begun: AtomicU64,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// The number of the last flush that succeeded.
    done: u64,
    /// Whether a flush failed: later ones would succeed without the lost data.
    failed: bool,
}

impl Flushes {
    /// Everything written before is on the medium when this returns: by `sync`, or by a concurrent flush that began since.
    ///
    /// # Errors
    /// The result of `sync`; and after a failure, always [`Status::Io`].
    pub fn flush(&self, sync: impl FnOnce() -> Result<(), Status>) -> Result<(), Status> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.failed {
            return Err(Status::Io);
        }
        if last.done > before {
            return Ok(());
        }
        let this = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let synced = sync();
        match synced {
            Ok(()) => last.done = this,
            Err(_) => last.failed = true,
        }
        synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flush_waits_for_sync_that_started_after_it() {
        const THREADS: u64 = 4;
        const ROUNDS: u64 = 2000;
        let (flushes, written, synced) = (Flushes::default(), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
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

    #[test]
    fn flushes_fail_after_failed_sync() {
        let flushes = Flushes::default();
        assert_eq!(flushes.flush(|| Ok(())), Ok(()));
        assert_eq!(flushes.flush(|| Err(Status::Full)), Err(Status::Full));
        assert_eq!(flushes.flush(|| Ok(())), Err(Status::Io));
    }
}
