//! The sums of blocks: in memory for every block, on the medium for those in unmarked regions.
//!
//! While a region is marked its part of the table on the medium is not used, so that a write changes no sum there: that
//! would be a second write for each small one, and a second page to flush. Before the mark is removed its sums are written
//! to the medium; a concurrent write keeps the mark. dm-integrity's bitmap mode does the same.
//!
//! After an unclean shutdown, even of the process alone, the content of marked regions is accepted: their blocks are
//! **unseen**, until they are read, written, or checked before the mark is removed. Until then damage to them is not
//! detected.

use super::{BLOCK_BYTES, FaultKind, Store};
use std::io;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// A block in a marked region with any content. Two real sums have this value with a probability of 1 in 2^64; then nothing is checked.
pub(super) const UNSEEN_SUMS: u64 = 0xffff_fffe_ffff_ffff;
/// Blocks whose sums are read or written at once: the whole table of a large store must not be in memory twice.
const TABLE_PIECE_BLOCKS: usize = 64 << 10;
/// Blocks that are checked together; they have a common lock.
const CHECK_BLOCKS: u64 = 16;
/// Space is reserved for the table only if the free space is this many times as large.
const FREE_SPACE_FACTOR: u64 = 4;

/// A block with exactly one sum.
pub(super) fn settled_pair(sum: u32) -> u64 {
    u64::from(sum) | u64::from(sum) << 32
}

pub(super) fn is_settled(pair: u64) -> bool {
    pair >> 32 == pair & 0xffff_ffff
}

/// Whether a block has exactly one sum, and this content matches it. Where not, only the store can decide.
pub(super) fn is_match(pair: u64, content: &[u8]) -> bool {
    let is_zeroes = || super::is_zero(content);
    is_settled(pair) && if pair == 0 { is_zeroes() } else { pair as u32 == super::checksum(content) }
}

/// A block that may or may not have been changed to one with the sum `now`: its previous sum is known, or it is unseen.
pub(super) fn either_pair(now: u32, before: u64) -> u64 {
    if is_settled(before) { u64::from(now) | before << 32 } else { UNSEEN_SUMS }
}

/// Regions whose sums are on the medium, with their words from before the sums were written.
pub(super) type PreparedRegions = Vec<(usize, u64)>;

impl Store {
    /// The offset of a block's sums on the medium.
    fn table_at(&self, block: usize) -> u64 {
        self.size_bytes + block as u64 * 8
    }

    /// Allocates the space of the table, so that data cannot fill the medium before its sums are written. Without it marks stay longer.
    pub(super) fn reserve_table(&self) {
        use std::os::unix::fs::FileTypeExt as _;
        let (file, bytes) = (self.disk.file(), self.table.len() as u64 * 8);
        let free = rustix::fs::fstatvfs(file).map_or(0, |system| system.f_bavail.saturating_mul(system.f_frsize));
        let is_file = file.metadata().is_ok_and(|data| !data.file_type().is_block_device());
        if is_file && free / FREE_SPACE_FACTOR > bytes {
            // Existing content is kept. Some file systems do not support it.
            let _ = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), self.size_bytes, bytes);
        }
    }

    /// Reads the table of a store that is being opened.
    pub(super) fn load_table(&self) -> io::Result<()> {
        let clean = self.header().clean;
        let mut bytes = vec![0; TABLE_PIECE_BLOCKS * 8];
        for (nth, entries) in self.table.chunks(TABLE_PIECE_BLOCKS).enumerate() {
            let bytes = &mut bytes[..entries.len() * 8];
            self.disk.read(bytes, self.table_at(nth * TABLE_PIECE_BLOCKS))?;
            for (entry, bytes) in entries.iter().zip(bytes.as_chunks::<8>().0) {
                let pair = u64::from_le_bytes(*bytes);
                if !clean && !is_settled(pair) {
                    self.may_have_two_sums.store(true, Ordering::Relaxed);
                }
                entry.store(if clean { settled_pair(pair as u32) } else { pair }, Ordering::Relaxed);
            }
        }
        let Some(regions) = &self.regions else { return Ok(()) };
        for region in self.header().marked.iter() {
            let blocks = self.block_range(&regions.range(region, self.size_bytes));
            self.table[blocks].iter().for_each(|entry| entry.store(UNSEEN_SUMS, Ordering::Relaxed));
        }
        Ok(())
    }

    /// Accepts whatever a marked region contains.
    pub(super) fn forget_sums(&self, range: &Range<u64>) {
        let blocks = self.block_range(range);
        let _guard = self.lock(blocks.start as u64..blocks.end as u64);
        self.table[blocks].iter().for_each(|entry| entry.store(UNSEEN_SUMS, Ordering::Relaxed));
    }

    fn block_range(&self, range: &Range<u64>) -> Range<usize> {
        (range.start / BLOCK_BYTES) as usize..(range.end / BLOCK_BYTES) as usize
    }

    pub(super) fn write_table(&self) -> io::Result<()> {
        self.write_table_of(0..self.table.len())
    }

    fn write_table_of(&self, blocks: Range<usize>) -> io::Result<()> {
        for (nth, entries) in self.table[blocks.clone()].chunks(TABLE_PIECE_BLOCKS).enumerate() {
            let bytes: Vec<u8> = entries.iter().flat_map(|e| e.load(Ordering::Relaxed).to_le_bytes()).collect();
            self.disk.write(&bytes, self.table_at(blocks.start + nth * TABLE_PIECE_BLOCKS))?;
        }
        Ok(())
    }

    /// Removes the marks of regions that were last written before the flush with the number `before`, and flushed; of those
    /// that must be read first, only `look_bytes` are read, and at least one region. False if some of those are left.
    ///
    /// # Errors
    /// The medium's error; then more counts as not flushed than necessary.
    pub(super) fn settle(&self, before: u64, look_bytes: u64) -> io::Result<bool> {
        let _alone = self.settle_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let settled = self.prepare(before, look_bytes).and_then(|(prepared, all)| self.unmark(&prepared).map(|()| all));
        // Nobody waits for it, and its callers try again.
        settled.inspect_err(|error| {
            self.record_failure(FaultKind::Write, 0, 0, error);
        })
    }

    /// Writes the sums of such regions, which are on the medium when this returns. Not called concurrently.
    pub(super) fn prepare(&self, before: u64, look_bytes: u64) -> io::Result<(PreparedRegions, bool)> {
        let Some(regions) = &self.regions else { return Ok((Vec::new(), true)) };
        let (mut prepared, mut looked, mut all) = (Vec::new(), 0, true);
        // The words are read first: a later write changes them.
        for (region, word) in regions.all_covered_before(before) {
            let blocks = self.block_range(&regions.range(region, self.size_bytes));
            let unseen = self.table[blocks.clone()].iter().any(|entry| entry.load(Ordering::Relaxed) == UNSEEN_SUMS);
            if unseen && looked >= look_bytes {
                all = false;
                continue;
            }
            if unseen {
                // An unreadable region keeps its mark, and reading it is an error.
                if self.sum_unseen_blocks(blocks.start as u64..blocks.end as u64).is_err() {
                    continue;
                }
                looked += blocks.len() as u64 * BLOCK_BYTES;
            }
            self.write_table_of(blocks)?;
            prepared.push((region, word));
        }
        if !prepared.is_empty()
            && let Err(error) = self.disk.sync_sums()
        {
            self.check_for_loss();
            return Err(error);
        }
        Ok((prepared, all))
    }

    /// Removes the marks of the regions that were not written since they were prepared.
    pub(super) fn unmark(&self, prepared: &PreparedRegions) -> io::Result<()> {
        let Some(regions) = &self.regions else { return Ok(()) };
        let written = {
            let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
            let gone = regions.unmark(prepared);
            if gone.is_empty() {
                return Ok(());
            }
            self.write_new_header(&mut header, |header| gone.iter().for_each(|region| header.marked.take(*region)))
        };
        self.check_if_suspect();
        written
    }

    /// Computes the sums of the unseen blocks.
    fn sum_unseen_blocks(&self, blocks: Range<u64>) -> io::Result<()> {
        let mut content = vec![0; BLOCK_BYTES as usize];
        for first in blocks.clone().step_by(CHECK_BLOCKS as usize) {
            let some = first..blocks.end.min(first + CHECK_BLOCKS);
            let _guard = self.lock(some.clone());
            for block in some.filter(|block| self.table[*block as usize].load(Ordering::Relaxed) == UNSEEN_SUMS) {
                let offset = block * BLOCK_BYTES;
                // It is reported and counted; the caller only needs to know that it failed.
                self.read_disk(&mut content, offset).map_err(io::Error::other)?;
                self.match_content(block, &content);
            }
        }
        Ok(())
    }
}
