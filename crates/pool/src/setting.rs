//! When a write to a node leaves, and how much may be under way.
//!
//! A lift leaves at once when nobody is on the stairs; when a crowd comes, it pays to let it fill. Two rules say how full:
//!
//! * a **batch** of so many requests, as the paper's cluster has it. A batch of 1 is natural batching: what has piled up since
//!   the last write leaves at once;
//! * so many **frames** under way: a write waits until it carries the n-th part of all that is unanswered or waits. With one
//!   frame, everything that is asked while it is under way leaves together when it is answered. So batches grow by themselves
//!   with the load and with the time that a frame takes, and shrink with them.
//!
//! Whichever it is, a lone request never waits: with nothing under way a write leaves at once. Nor does the node hold its
//! answers for more than it has been asked for.

/// What is in force for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    window: u32,
    hold: Hold,
}

/// What a write waits for while others are unanswered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// So many requests.
    Batch(u32),
    /// This part of all requests: a third with three frames.
    Frames(u32),
}

impl Hold {
    /// Nothing.
    pub const NATURAL: Self = Self::Batch(1);
}

impl Setting {
    /// A window and a batch, which is at most the window.
    pub fn new(window: u32, batch: u32) -> Self {
        Self::holding(window, Hold::Batch(batch.min(window)))
    }

    /// A window, and what a write waits for.
    pub fn holding(window: u32, hold: Hold) -> Self {
        Self { window: window.max(1), hold }
    }

    /// Requests that may be under way.
    pub fn window(self) -> u32 {
        self.window
    }

    /// What a write waits for.
    pub fn hold(self) -> Hold {
        self.hold
    }

    /// Requests that a write waits for, when `demand` of them are under way or wait; and that an answer waits for at the node.
    pub fn batch(self, demand: u32) -> u32 {
        match self.hold {
            Hold::Batch(batch) => batch.max(1),
            Hold::Frames(frames) => (demand.min(self.window) / frames.max(1)).max(1),
        }
    }

    /// Whether what waits is to be written now, as far as the window has room for it, with `under_way` unanswered. Nothing
    /// waits with nothing under way.
    pub fn write_now(self, waiting: u32, under_way: u32) -> bool {
        let room = self.window.saturating_sub(under_way).min(waiting);
        room > 0 && (under_way == 0 || room >= self.batch(waiting + under_way))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_waits_for_its_batch() {
        let setting = Setting::new(64, 10);
        assert!(setting.write_now(1, 0), "nothing is under way");
        assert!(!setting.write_now(9, 20));
        assert!(setting.write_now(10, 20));
        assert!(!setting.write_now(100, 55), "the window has no room for so many");
        assert!(!setting.write_now(0, 0), "there is nothing to write");
        assert!(Setting::holding(64, Hold::NATURAL).write_now(1, 63));
    }

    #[test]
    fn frames_share_what_is_to_be_done() {
        let two = Setting::holding(1024, Hold::Frames(2));
        assert!(two.write_now(1, 0) && two.write_now(1, 1) && !two.write_now(1, 3));
        assert!(two.write_now(30, 30) && !two.write_now(29, 31));
        let one = Setting::holding(1024, Hold::Frames(1));
        assert!(one.write_now(500, 0) && !one.write_now(500, 1));
        let narrow = Setting::holding(16, Hold::Frames(1));
        assert!(narrow.write_now(500, 0) && !narrow.write_now(500, 1) && narrow.batch(500) == 16);
    }

    #[test]
    fn no_batch_is_larger_than_its_window_and_none_is_nothing() {
        assert_eq!(Setting::new(4, 100), Setting::new(4, 4));
        assert_eq!(Setting::new(0, 0), Setting::new(1, 0));
        assert!(Setting::new(0, 0).write_now(1, 0));
    }
}
