//! What is tuned for a node: the window and the batch, and when a write leaves.
//!
//! The **window** is how many requests are under way at once. Too few, and the node idles while answers travel; too many, and
//! they only wait. The **batch** is how many requests a write waits for. A lift leaves at once when nobody is on the stairs;
//! when a crowd comes, it pays to let it fill. Natural batching (write what has piled up since the last write; a batch of 1)
//! never waits and is right most of the time. On a link that is bound by packets it is not: replies trickle in one by one,
//! each sets one request free, and each of those burns a packet upwards.

/// A window and a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    window: f64,
    batch: f64,
}

impl Setting {
    /// The fewest under way with which both ends can be busy, and no waiting.
    pub const LEAST: Self = Self { window: 2.0, batch: 1.0 };

    /// A setting; the batch is at most the window.
    pub fn new(window: u32, batch: u32) -> Self {
        Self { window: f64::from(window.max(1)), batch: f64::from(batch.clamp(1, window.max(1))) }
    }

    /// Requests that may be under way.
    pub fn window(self) -> u32 {
        self.window.round() as u32
    }

    /// Requests that a write waits for.
    pub fn batch(self) -> u32 {
        self.batch.round() as u32
    }

    /// Both multiplied, kept within what makes sense and `ceiling`.
    pub fn scaled(self, window: f64, batch: f64, ceiling: u32) -> Self {
        let window = (self.window * window).clamp(Self::LEAST.window, f64::from(ceiling).max(Self::LEAST.window));
        Self { window, batch: (self.batch * batch).clamp(1.0, window) }
    }

    /// Whether `pending` requests are to be written now, with `under_way` unanswered. Nothing waits where waiting cannot
    /// help: with nothing under way, or while the window has room, for then it is the load that is small.
    pub fn write_now(self, pending: u32, under_way: u32) -> bool {
        pending > 0 && (under_way == 0 || pending >= self.batch() || pending + under_way < self.window())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_window_makes_anything_wait() {
        let setting = Setting::new(64, 10);
        assert!(setting.write_now(1, 0), "nothing is under way");
        assert!(setting.write_now(3, 20), "the window has room");
        assert!(!setting.write_now(9, 55));
        assert!(setting.write_now(10, 54));
        assert!(!setting.write_now(0, 0), "there is nothing to write");
    }

    #[test]
    fn no_batch_is_larger_than_its_window() {
        assert_eq!(Setting::new(4, 100), Setting::new(4, 4));
        assert_eq!(Setting::new(64, 64).scaled(0.25, 1.0, 1024), Setting::new(16, 16));
        assert_eq!(Setting::LEAST.scaled(0.1, 0.1, 1024), Setting::LEAST);
        assert_eq!(Setting::new(64, 1).scaled(100.0, 1.0, 128).window(), 128);
    }
}
