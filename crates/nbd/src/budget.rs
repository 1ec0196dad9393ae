//! Memory that connections share: a bound for all of them together.
//!
//! Each connection holds its unsent replies and the data of its requests. A client that never reads keeps what it holds, so
//! a common pot that is used up would block all others; equal parts would be small for the few that are busy. Here a
//! connection may hold as much as is still free, as a switch does with the queues of its ports (Choudhury and Hahne's
//! dynamic thresholds): few get much, the total is bounded, and something is always left. In addition, it may always hold
//! a small amount, so that clients that never read cannot stop one that does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a connection may hold in any case.
const CONNECTION_BYTES_MIN: usize = 1 << 20;

/// A bound for several connections.
#[derive(Debug, Clone)]
pub struct Budget {
    limit_bytes: usize,
    held_bytes: Arc<AtomicUsize>,
}

impl Budget {
    /// Allows this many bytes together, and at least 1 MiB to each connection.
    pub fn new(bytes: usize) -> Self {
        Self { limit_bytes: bytes, held_bytes: Arc::default() }
    }

    /// Bytes that are held now.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn share(&self) -> Share {
        Share { budget: self.clone(), held_bytes: 0 }
    }
}

/// What one connection holds.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Budget,
    held_bytes: usize,
}

impl Share {
    /// It holds this much now. Returns whether it may take more.
    pub fn hold(&mut self, bytes: usize) -> bool {
        let before = std::mem::replace(&mut self.held_bytes, bytes);
        // Only a sum: nothing else is ordered by it.
        if bytes > before {
            self.budget.held_bytes.fetch_add(bytes - before, Ordering::Relaxed);
        } else if bytes < before {
            let all = self.budget.held_bytes.fetch_sub(before - bytes, Ordering::Relaxed);
            assert!(all >= before, "the sum of all connections is less than one of them");
        }
        bytes < CONNECTION_BYTES_MIN.max(self.budget.limit_bytes.saturating_sub(self.budget.held_bytes()))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many bytes as it may, in requests of 64 KiB.
    fn fill(share: &mut Share) -> usize {
        let mut bytes = 0;
        while share.hold(bytes) {
            bytes += 64 << 10;
        }
        bytes
    }

    #[test]
    fn clients_that_never_read_share_bound_and_leave_room() {
        let budget = Budget::new(256 << 20);
        let mut all: Vec<Share> = (0..256).map(|_| budget.share()).collect();
        let held: Vec<usize> = all.iter_mut().map(fill).collect();
        assert!(held[0] > 100 << 20, "one alone gets much");
        assert!(held.iter().all(|bytes| *bytes >= CONNECTION_BYTES_MIN));
        assert!(
            budget.held_bytes() <= (256 << 20) + 256 * (CONNECTION_BYTES_MIN + (64 << 10)),
            "{}",
            budget.held_bytes()
        );
        drop(all);
        assert_eq!(budget.held_bytes(), 0);
    }
}
