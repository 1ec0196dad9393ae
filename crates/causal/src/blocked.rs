//! What the kernel itself reports about a wait: what for, and who ended it.

use model::Wait;

/// What the kernel reported about a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelWait {
    pub wait: Wait,
    /// The process that held the lock, or woke the thread; 0: not known.
    pub tgid: u32,
    /// The operation that this process was in; 0: none known.
    pub operation: u64,
    /// The locked file; 0: none.
    pub file: u64,
}

impl KernelWait {
    /// Creates one of which only the kind is known.
    pub(crate) fn from_wait(wait: Wait) -> Self {
        Self { wait, tgid: 0, operation: 0, file: 0 }
    }

    /// Whether it alone explains the wait, so that I/O in flight does not.
    pub(crate) fn decides(self) -> bool {
        use Wait::{Child, DirtyThrottling, Fcntl, Flock, Futex, KernelLock, Pipe, Poll, Reclaim, Socket, Timer};
        matches!(
            self.wait,
            Fcntl | Flock | Futex | Timer | Poll | Pipe | Socket | Child | Reclaim | DirtyThrottling | KernelLock
        )
    }
}
