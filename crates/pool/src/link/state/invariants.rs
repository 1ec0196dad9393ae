//! What holds for a link's state between any two of its steps; checked after each of them in debug builds, and so by the
//! crate's simulations.

use super::State;
use crate::frame::WaitClass;

impl State {
    /// Panics if the state contradicts itself: a request that is counted twice, or nowhere, holds the window for ever.
    pub(super) fn check_invariants(&self) {
        self.check_tags();
        self.check_counts();
        assert!(self.flushed_writes <= self.answered_writes, "a flush covers writes that were not answered");
        for (nth, orphan) in self.orphans.iter().enumerate() {
            let is_first = self.orphans[..nth].iter().all(|other| other.number != orphan.number);
            assert!(is_first, "the request {} was abandoned twice", orphan.number);
            assert!(orphan.number <= self.last_number, "the request {} was never queued", orphan.number);
        }
        let may_change = self.loss.ranges.is_empty();
        assert!(may_change || self.pending.iter().all(|job| job.request.is_read_only()), "a change waits after a loss");
        assert!(self.requests.is_empty(), "a frame was built and not sent");
        assert!(self.ended.is_none() || self.pending.is_empty(), "requests wait for a node that is not used any more");
    }

    /// A tag is free, or of one request.
    fn check_tags(&self) {
        assert_eq!(self.tags.len(), self.granted);
        let mut is_free = vec![false; self.granted];
        for tag in &self.free_tags {
            let was_free = std::mem::replace(&mut is_free[usize::from(*tag)], true);
            assert!(!was_free, "the tag {tag} is free twice");
        }
        for (tag, (job, is_free)) in self.tags.iter().zip(is_free).enumerate() {
            assert!(job.is_none() == is_free, "the tag {tag} is free and used, or neither");
            assert!(job.as_ref().is_none_or(|job| usize::from(job.request.tag) == tag), "the tag {tag} is another's");
        }
    }

    /// What is counted is what is outstanding.
    fn check_counts(&self) {
        let outstanding = || self.tags.iter().flatten();
        for class in [WaitClass::Read, WaitClass::Write, WaitClass::Sync] {
            let of_class = || outstanding().filter(|job| job.class() == class);
            let counted = self.in_flight[class as usize];
            let (requests, bytes) = (of_class().count(), of_class().map(|job| job.bytes()).sum::<usize>());
            assert_eq!((counted.requests, counted.bytes), (requests, bytes), "{class:?}");
        }
        for (nth, connection) in self.connections.iter().enumerate() {
            assert_eq!(connection.in_flight, outstanding().filter(|job| job.connection == nth).count());
            assert!(connection.is_open || connection.in_flight == 0, "a closed connection has requests");
        }
        assert!(outstanding().all(|job| job.connection < self.connections.len()));
    }
}
