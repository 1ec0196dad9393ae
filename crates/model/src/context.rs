//! Passed to long-running work: whether to stop, and where to report progress. Drawn only by `cli`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Signals within this time count as the same one: `timeout` sends it to the program and to its group.
pub const SAME_SIGNAL_WINDOW: Duration = Duration::from_millis(500);

/// Receives progress: the current activity, how much of it is done, and the total (0 = unknown).
pub type Progress = Arc<dyn Fn(&str, u64, u64) + Send + Sync>;

/// Passed down through every long call.
#[derive(Clone)]
pub struct Context {
    cancel: Arc<AtomicBool>,
    progress: Progress,
}

impl Context {
    /// Creates a context that reports to `progress`.
    pub fn new(progress: Progress) -> Self {
        Self { cancel: Arc::default(), progress }
    }

    /// Creates a context without a receiver.
    pub fn silent() -> Self {
        Self::new(Arc::new(|_, _, _| {}))
    }

    /// Returns the flag that ends the work; safe to set from a signal handler.
    pub fn cancel_flag(&self) -> Arc<AtomicBool> {
        self.cancel.clone()
    }

    /// Whether the end was requested. What was measured until then is kept.
    pub fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Reports progress.
    pub fn progress(&self, what: &str, done: u64, total: u64) {
        (self.progress)(what, done, total);
    }

    /// Clears the progress line, so that something else can be printed.
    pub fn clear_progress(&self) {
        self.progress("", 0, 0);
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("cancelled", &self.cancelled()).finish_non_exhaustive()
    }
}
