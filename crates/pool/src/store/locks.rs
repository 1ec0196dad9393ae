//! The locks of a store's blocks, each shared by many blocks.

use super::Store;
use std::ops::Range;
use std::sync::{MutexGuard, PoisonError};

/// The number of locks of a store.
pub(super) const LOCK_COUNT: u64 = 256;
/// The number of consecutive blocks with a common lock. A large request takes a few locks, and two that are neighbours, or
/// given to threads a MiB apart, have none in common.
const LOCK_RUN_BLOCKS: u64 = 16;

/// The locks of a range, held until dropped. Most ranges have one.
pub(super) enum BlockLocks<'s> {
    One(#[expect(dead_code, reason = "held, not read")] MutexGuard<'s, ()>),
    Many(#[expect(dead_code, reason = "held, not read")] Vec<MutexGuard<'s, ()>>),
}

/// The indices of the locks of these blocks, each once.
fn lock_indices(blocks: Range<u64>) -> impl Iterator<Item = usize> {
    let groups = blocks.start / LOCK_RUN_BLOCKS..blocks.end.div_ceil(LOCK_RUN_BLOCKS);
    groups.take(LOCK_COUNT as usize).map(|group| (group % LOCK_COUNT) as usize)
}

impl Store {
    /// Takes the locks of the blocks, in a fixed order so that two ranges never deadlock.
    pub(super) fn lock(&self, blocks: Range<u64>) -> BlockLocks<'_> {
        let lock = |nth: usize| self.locks[nth].lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = lock_indices(blocks.clone());
        if let (Some(one), None) = (wanted.next(), wanted.next()) {
            return BlockLocks::One(lock(one));
        }
        let mut wanted: Vec<usize> = lock_indices(blocks).collect();
        wanted.sort_unstable();
        BlockLocks::Many(wanted.into_iter().map(lock).collect())
    }

    /// The same, if none of them is locked now; does not block.
    pub(super) fn try_lock(&self, blocks: Range<u64>) -> Option<Vec<MutexGuard<'_, ()>>> {
        lock_indices(blocks).map(|nth| self.locks[nth].try_lock().ok()).collect()
    }

    /// Takes the locks of all these ranges, if none of them is locked now.
    pub(super) fn try_lock_all(&self, ranges: impl Iterator<Item = Range<u64>>) -> Option<Vec<MutexGuard<'_, ()>>> {
        let mut wanted = [false; LOCK_COUNT as usize];
        ranges.flat_map(lock_indices).for_each(|nth| wanted[nth] = true);
        let wanted = self.locks.iter().zip(wanted).filter(|(_, wanted)| *wanted);
        wanted.map(|(lock, _)| lock.try_lock().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_blocks_share_a_lock_and_neighbours_do_not() {
        let locks = |first: u64, many: u64| lock_indices(first..first + many).collect::<Vec<_>>();
        for block in [0, 15, 16, 4095, 4096, 1 << 40] {
            assert!(locks(block, 1).len() == 1 && locks(block / 64 * 64, 64).contains(&locks(block, 1)[0]), "{block}");
        }
        // Requests of 256 KiB, as of threads that share a batch.
        let all: Vec<usize> = [0, 64, 256, 512, 1024].into_iter().flat_map(|first| locks(first, 64)).collect();
        assert!(all.len() == 20 && (1..20).all(|nth| !all[..nth].contains(&all[nth])), "{all:?}");
        assert_eq!((locks(8, 16).len(), locks(3, 0).len(), locks(0, 1 << 30).len()), (2, 1, LOCK_COUNT as usize));
    }
}
