//! Progress of long work: a line on a terminal, nothing in a pipe.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A line of progress.
pub struct Progress {
    shown: bool,
    last: Option<Instant>,
}

impl Default for Progress {
    fn default() -> Self {
        Self { shown: std::io::stderr().is_terminal(), last: None }
    }
}

impl Progress {
    /// Shows that `done` of `total` steps of `what` are done.
    pub fn step(&mut self, what: &str, done: usize, total: usize) {
        let due = self.last.is_none_or(|last| last.elapsed() > Duration::from_millis(200));
        if self.shown && due {
            self.last = Some(Instant::now());
            // Errors of a closed terminal are ignored.
            let _ = write!(std::io::stderr(), "\r\x1b[K{what} {done}/{total}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown && self.last.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
