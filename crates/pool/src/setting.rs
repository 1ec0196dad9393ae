//! When requests to a node are written, and how many may be outstanding.
//!
//! Without load a request is sent at once; under load it pays to collect requests. Two rules decide how many:
//!
//! * a **batch** of a fixed number of requests, as in the paper's cluster. A batch of 1 is natural batching: what has
//!   accumulated since the last write is sent at once;
//! * a number of outstanding **frames**: a write waits until it carries the n-th part of all outstanding and queued
//!   requests. With one frame, all requests made while it is outstanding are sent together when it is answered. So batches
//!   grow with the load and with the round-trip time of a frame, and shrink with them. With the variant **part**, requests
//!   beyond the n-th part are sent too.
//!
//! In any case, a lone request never waits: with nothing outstanding a write is sent at once. Nor does the node hold its
//! replies for longer than requested.

/// The current setting of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    window: u32,
    hold: Hold,
}

/// What a write waits for while requests are outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// This number of requests.
    Batch(u32),
    /// This part of all requests, a third with three frames; and no frame takes more than its part.
    Frames(u32),
    /// This part of all requests; then all queued requests are sent together.
    Part(u32),
}

impl Hold {
    /// No waiting.
    pub const NATURAL_BATCH: Self = Self::Batch(1);
}

impl Setting {
    /// A window and a batch, which is limited to the window.
    pub fn new(window: u32, batch: u32) -> Self {
        Self::with_hold(window, Hold::Batch(batch.min(window)))
    }

    /// A window, and what a write waits for.
    pub fn with_hold(window: u32, hold: Hold) -> Self {
        Self { window: window.max(1), hold }
    }

    /// The maximum number of outstanding requests.
    pub fn window(self) -> u32 {
        self.window
    }

    /// What a write waits for.
    pub fn hold(self) -> Hold {
        self.hold
    }

    /// The number of requests that a write waits for, with `demand` outstanding or queued; and that a reply waits for at the node.
    pub fn batch(self, demand: u32) -> u32 {
        match self.hold {
            Hold::Batch(batch) => batch.max(1),
            Hold::Frames(parts) | Hold::Part(parts) => (demand.min(self.window) / parts.max(1)).max(1),
        }
    }

    /// How many queued requests to write now, with `under_way` outstanding: as many as fit the window, if it is time for a
    /// frame. With nothing outstanding, nothing waits.
    pub fn frame(self, waiting: u32, under_way: u32) -> u32 {
        let room = self.window.saturating_sub(under_way).min(waiting);
        let demand = waiting.saturating_add(under_way);
        if under_way > 0 && room < self.batch(demand) {
            return 0;
        }
        match self.hold {
            // Otherwise the other frames would become smaller, and in the end all requests would be sent together.
            Hold::Frames(frames) => room.min(demand.min(self.window).div_ceil(frames.max(1))),
            Hold::Batch(_) | Hold::Part(_) => room,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_waits_for_a_full_batch() {
        let setting = Setting::new(64, 10);
        assert_eq!(setting.frame(1, 0), 1, "nothing is under way");
        assert_eq!(setting.frame(9, 20), 0);
        assert_eq!(setting.frame(10, 20), 10);
        assert_eq!(setting.frame(100, 55), 0, "the window has no room for so many");
        assert_eq!(setting.frame(0, 0), 0, "there is nothing to write");
        assert_eq!(Setting::with_hold(64, Hold::NATURAL_BATCH).frame(1, 63), 1);
    }

    #[test]
    fn frames_split_work_evenly() {
        let two = Setting::with_hold(1024, Hold::Frames(2));
        assert_eq!((two.frame(1, 0), two.frame(1, 1), two.frame(1, 3), two.frame(29, 31)), (1, 1, 0, 0));
        assert_eq!((two.frame(30, 30), two.frame(60, 0), two.frame(61, 0), two.frame(30, 31)), (30, 30, 31, 30));
        let one = Setting::with_hold(1024, Hold::Frames(1));
        assert_eq!((one.frame(500, 0), one.frame(500, 1)), (500, 0));
        let narrow = Setting::with_hold(16, Hold::Frames(1));
        assert_eq!((narrow.frame(500, 0), narrow.frame(500, 1), narrow.batch(500)), (16, 0, 16));
        let part = Setting::with_hold(1024, Hold::Part(40));
        assert_eq!((part.frame(7, 70), part.frame(7, 80), part.frame(1, 79)), (7, 7, 0));
    }

    #[test]
    fn batch_is_clamped_to_the_window_and_the_window_to_one() {
        assert_eq!(Setting::new(4, 100), Setting::new(4, 4));
        assert_eq!(Setting::new(0, 0), Setting::new(1, 0));
        assert_eq!(Setting::new(0, 0).frame(1, 0), 1);
    }
}
