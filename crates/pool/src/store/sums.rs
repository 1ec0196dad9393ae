//! The sums of blocks: in memory of every block, on the medium of those in regions without a mark.
//!
//! While a region is marked its part of the table on the medium is not read, so that a write changes no sum there: that would be a second
//! write for each small one, and a second page to be flushed. Before the mark is taken away its sums are written, and on the medium; a
//! write that comes meanwhile keeps the mark. dm-integrity's bitmap mode does the same.
//!
//! After an unclean end, also of the process alone, what marked regions hold counts: their blocks are **unseen**, until one is read, written,
//! or checked by whoever takes the mark away. Until then damage to it is not found.

use super::{BLOCK_BYTES, Store};
use std::io;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Of a block in a marked region: whatever it holds. Two sums that a block has by chance in one of 2^64 cases; then nothing is checked.
pub(super) const UNSEEN: u64 = 0xffff_fffe_ffff_ffff;
/// Blocks whose sums are read or written at once: of a large store the whole table must not be in memory twice.
const TABLE_PIECE: usize = 64 << 10;
/// Blocks that are checked together; they have one lock.
const LOOK_BLOCKS: u64 = 16;
/// Free space must be so many times what the table lacks before it is taken for it.
const ROOM: u64 = 4;

/// Nothing else counts.
pub(super) fn settled(sum: u32) -> u64 {
    u64::from(sum) | u64::from(sum) << 32
}

pub(super) fn is_settled(pair: u64) -> bool {
    pair >> 32 == pair & 0xffff_ffff
}

/// Of a block that was to become one with the sum `now`, and may have: what it was before is one, or is not known.
pub(super) fn either(now: u32, before: u64) -> u64 {
    if is_settled(before) { u64::from(now) | before << 32 } else { UNSEEN }
}

/// A region whose sums are on the medium, and the word that it had before they were written.
pub(super) type Prepared = Vec<(usize, u64)>;

impl Store {
    /// Where a block's sums stand on the medium.
    fn table_at(&self, block: usize) -> u64 {
        self.size_bytes + block as u64 * 8
    }

    /// Takes the space for the table, so that data cannot fill the medium before their sums are written. Without it marks stay longer.
    pub(super) fn reserve_table(&self) {
        use std::os::unix::fs::FileTypeExt as _;
        let (file, bytes) = (self.disk.file(), self.table.len() as u64 * 8);
        let free = rustix::fs::fstatvfs(file).map_or(0, |system| system.f_bavail.saturating_mul(system.f_frsize));
        let is_file = file.metadata().is_ok_and(|data| !data.file_type().is_block_device());
        if is_file && free / ROOM > bytes {
            // What is there stays. Not all file systems can.
            let _ = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), self.size_bytes, bytes);
        }
    }

    /// Reads the table of a store that was just opened.
    pub(super) fn load_table(&self) -> io::Result<()> {
        let clean = self.header().clean;
        let mut bytes = vec![0; TABLE_PIECE * 8];
        for (nth, entries) in self.table.chunks(TABLE_PIECE).enumerate() {
            let bytes = &mut bytes[..entries.len() * 8];
            self.disk.read(bytes, self.table_at(nth * TABLE_PIECE))?;
            for (entry, bytes) in entries.iter().zip(bytes.as_chunks::<8>().0) {
                let pair = u64::from_le_bytes(*bytes);
                if !clean && !is_settled(pair) {
                    self.doubtful.store(true, Ordering::Relaxed);
                }
                entry.store(if clean { settled(pair as u32) } else { pair }, Ordering::Relaxed);
            }
        }
        let Some(regions) = &self.regions else { return Ok(()) };
        for region in self.header().marked.iter() {
            let blocks = self.blocks(&regions.range(region, self.size_bytes));
            self.table[blocks].iter().for_each(|entry| entry.store(UNSEEN, Ordering::Relaxed));
        }
        Ok(())
    }

    fn blocks(&self, range: &Range<u64>) -> Range<usize> {
        (range.start / BLOCK_BYTES) as usize..(range.end / BLOCK_BYTES) as usize
    }

    pub(super) fn write_table(&self) -> io::Result<()> {
        self.write_table_of(0..self.table.len())
    }

    fn write_table_of(&self, blocks: Range<usize>) -> io::Result<()> {
        for (nth, entries) in self.table[blocks.clone()].chunks(TABLE_PIECE).enumerate() {
            let bytes: Vec<u8> = entries.iter().flat_map(|e| e.load(Ordering::Relaxed).to_le_bytes()).collect();
            self.disk.write(&bytes, self.table_at(blocks.start + nth * TABLE_PIECE))?;
        }
        Ok(())
    }

    /// Marks are taken from regions that were last written before the flush with the number `before`, and flushed; of those that must be read
    /// first, only so many bytes' are, and one region's at least. False if some are left for that.
    ///
    /// # Errors
    /// The medium's error; then only more counts as not flushed than must.
    pub(super) fn settle(&self, before: u64, look_bytes: u64) -> io::Result<bool> {
        let _alone = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        let (prepared, all) = self.prepare(before, look_bytes)?;
        self.unmark(&prepared)?;
        Ok(all)
    }

    /// Writes the sums of such regions. They are on the medium when this returns. Called by one at a time.
    pub(super) fn prepare(&self, before: u64, look_bytes: u64) -> io::Result<(Prepared, bool)> {
        let Some(regions) = &self.regions else { return Ok((Vec::new(), true)) };
        let (mut prepared, mut looked, mut all) = (Vec::new(), 0, true);
        // The words come first: who writes since changes his.
        for (region, word) in regions.all_covered_before(before) {
            let blocks = self.blocks(&regions.range(region, self.size_bytes));
            let unseen = self.table[blocks.clone()].iter().any(|entry| entry.load(Ordering::Relaxed) == UNSEEN);
            if unseen && looked >= look_bytes {
                all = false;
                continue;
            }
            if unseen {
                // What cannot be read keeps its mark, and is an error when it is asked for.
                if self.look_at(blocks.start as u64..blocks.end as u64).is_err() {
                    continue;
                }
                looked += blocks.len() as u64 * BLOCK_BYTES;
            }
            self.write_table_of(blocks)?;
            prepared.push((region, word));
        }
        if !prepared.is_empty() {
            self.disk.sync_apart()?;
        }
        Ok((prepared, all))
    }

    /// Takes the marks from those that were not written since they were prepared.
    pub(super) fn unmark(&self, prepared: &Prepared) -> io::Result<()> {
        let Some(regions) = &self.regions else { return Ok(()) };
        let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = regions.unmark(prepared);
        if gone.is_empty() {
            return Ok(());
        }
        self.put_header(&mut header, |header| gone.iter().for_each(|region| header.marked.take(*region)))
    }

    /// Sums those of the blocks that are unseen.
    fn look_at(&self, blocks: Range<u64>) -> io::Result<()> {
        let mut content = vec![0; BLOCK_BYTES as usize];
        for first in blocks.clone().step_by(LOOK_BLOCKS as usize) {
            let some = first..blocks.end.min(first + LOOK_BLOCKS);
            let _guard = self.lock(some.clone());
            for block in some.filter(|block| self.table[*block as usize].load(Ordering::Relaxed) == UNSEEN) {
                self.disk.read(&mut content, block * BLOCK_BYTES)?;
                self.known(block, &content);
            }
        }
        Ok(())
    }
}
