//! The locks of a store's blocks, which many share.

use super::Store;
use std::ops::Range;
use std::sync::{MutexGuard, PoisonError};

/// Blocks whose numbers are equal modulo this have one lock.
pub(super) const LOCKS: u64 = 256;

/// The locks of a range, held until it is dropped. Most ranges are within one block.
pub(super) enum Locked<'s> {
    One(#[expect(dead_code, reason = "held, not looked at")] MutexGuard<'s, ()>),
    Many(#[expect(dead_code, reason = "held, not looked at")] Vec<MutexGuard<'s, ()>>),
}

impl Store {
    /// The locks of the blocks, taken in one order so that two ranges never wait for each other.
    pub(super) fn lock(&self, blocks: Range<u64>) -> Locked<'_> {
        let lock = |stripe: u64| self.locks[stripe as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if blocks.end - blocks.start == 1 {
            return Locked::One(lock(blocks.start % LOCKS));
        }
        let mut stripes: Vec<u64> = blocks.take(LOCKS as usize).map(|block| block % LOCKS).collect();
        stripes.sort_unstable();
        Locked::Many(stripes.into_iter().map(lock).collect())
    }

    /// The same, if nobody has one of them now.
    pub(super) fn try_lock(&self, blocks: Range<u64>) -> Option<Vec<MutexGuard<'_, ()>>> {
        blocks.take(LOCKS as usize).map(|block| self.locks[(block % LOCKS) as usize].try_lock().ok()).collect()
    }

    /// Those of all of these, if nobody has one of them now.
    pub(super) fn try_lock_all(&self, blocks: impl Iterator<Item = u64>) -> Option<Vec<MutexGuard<'_, ()>>> {
        let mut wanted = [false; LOCKS as usize];
        blocks.for_each(|block| wanted[(block % LOCKS) as usize] = true);
        let wanted = self.locks.iter().zip(wanted).filter(|(_, wanted)| *wanted);
        wanted.map(|(lock, _)| lock.try_lock().ok()).collect()
    }
}
