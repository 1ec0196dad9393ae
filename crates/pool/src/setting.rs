//! When a write to a node leaves, and how much may be under way.
//!
//! Without load a write is sent at once; under load it pays to let requests gather. Two rules decide how many:
//!
//! * a **batch** of so many requests, as the paper's cluster has it. A batch of 1 is natural batching: what has piled up since
//!   the last write leaves at once;
//! * so many **frames** under way: a write waits until it carries the n-th part of all that is unanswered or waits. With one
//!   frame, everything that is asked while it is under way leaves together when it is answered. So batches grow
//!   with the load and with the time that a frame takes, and shrink with them. Of a small n-th **part**, what has gathered
//!   beyond it leaves too.
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
    /// This part of all requests, a third with three frames; and no frame takes more than its part.
    Frames(u32),
    /// This part of all requests; then all that wait leave together.
    Part(u32),
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
            Hold::Frames(parts) | Hold::Part(parts) => (demand.min(self.window) / parts.max(1)).max(1),
        }
    }

    /// How many of those that wait are to be written now, with `under_way` unanswered: as many as the window has room for, if it
    /// is time for a frame. Nothing waits with nothing under way.
    pub fn frame(self, waiting: u32, under_way: u32) -> u32 {
        let room = self.window.saturating_sub(under_way).min(waiting);
        let demand = waiting.saturating_add(under_way);
        if under_way > 0 && room < self.batch(demand) {
            return 0;
        }
        match self.hold {
            // Were it more, the others would be less, and in the end all would leave together.
            Hold::Frames(frames) => room.min(demand.min(self.window).div_ceil(frames.max(1))),
            Hold::Batch(_) | Hold::Part(_) => room,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_waits_for_full_batch() {
        let setting = Setting::new(64, 10);
        assert_eq!(setting.frame(1, 0), 1, "nothing is under way");
        assert_eq!(setting.frame(9, 20), 0);
        assert_eq!(setting.frame(10, 20), 10);
        assert_eq!(setting.frame(100, 55), 0, "the window has no room for so many");
        assert_eq!(setting.frame(0, 0), 0, "there is nothing to write");
        assert_eq!(Setting::holding(64, Hold::NATURAL).frame(1, 63), 1);
    }

    #[test]
    fn frames_split_work_evenly() {
        let two = Setting::holding(1024, Hold::Frames(2));
        assert_eq!((two.frame(1, 0), two.frame(1, 1), two.frame(1, 3), two.frame(29, 31)), (1, 1, 0, 0));
        assert_eq!((two.frame(30, 30), two.frame(60, 0), two.frame(61, 0), two.frame(30, 31)), (30, 30, 31, 30));
        let one = Setting::holding(1024, Hold::Frames(1));
        assert_eq!((one.frame(500, 0), one.frame(500, 1)), (500, 0));
        let narrow = Setting::holding(16, Hold::Frames(1));
        assert_eq!((narrow.frame(500, 0), narrow.frame(500, 1), narrow.batch(500)), (16, 0, 16));
        let part = Setting::holding(1024, Hold::Part(40));
        assert_eq!((part.frame(7, 70), part.frame(7, 80), part.frame(1, 79)), (7, 7, 0));
    }

    #[test]
    fn batch_is_clamped_to_window_and_window_to_one() {
        assert_eq!(Setting::new(4, 100), Setting::new(4, 4));
        assert_eq!(Setting::new(0, 0), Setting::new(1, 0));
        assert_eq!(Setting::new(0, 0).frame(1, 0), 1);
    }
}
