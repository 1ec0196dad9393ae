//! What the kernel itself reports of a wait: what for, and who ended it.

use model::Wait;

/// What the kernel reported of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Blocked {
    pub wait: Wait,
    /// The process that held the lock, or woke the thread; 0: not known.
    pub tgid: u32,
    /// The operation which that process was in; 0: none that is known.
    pub operation: u64,
    /// The locked file; 0: none.
    pub file: u64,
}

impl Blocked {
    /// One of which only the kind is known.
    pub(crate) fn of(wait: Wait) -> Self {
        Self { wait, tgid: 0, operation: 0, file: 0 }
    }

    /// Whether it explains the wait alone: no I/O under way explains the sleep.
    pub(crate) fn decides(self) -> bool {
        use Wait::{Child, DirtyThrottling, Fcntl, Flock, Futex, KernelLock, Pipe, Poll, Reclaim, Socket, Timer};
        matches!(
            self.wait,
            Fcntl | Flock | Futex | Timer | Poll | Pipe | Socket | Child | Reclaim | DirtyThrottling | KernelLock
        )
    }
}
