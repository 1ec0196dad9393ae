//! Writes that came together, done together, if nothing has to be waited for.
//!
//! Each is of whole blocks, in regions that are marked, of which nobody else has one; so all that is left to do is to put sums and
//! data into the page cache. The sums of all go first, in one step, and then the data of each: as in a single write of many blocks, a process that is killed
//! in between leaves blocks that match one of their two sums. (The kernel may still make who writes wait, when too much is dirty: it says so to
//! nobody beforehand, see [`crate::node`].)

use super::{BLOCK_BYTES, Status, Store, checksum, is_settled, settled, status};
use std::sync::atomic::Ordering;

impl Store {
    /// Writes those, which are in the order of their offsets, and tells what became of each; none was written if something has to be
    /// waited for, or is not as said above.
    pub fn write_at_hand(&self, writes: &[(u64, &[u8])]) -> Option<Vec<Result<(), Status>>> {
        let regions = self.regions.as_ref().filter(|_| self.flash.is_none())?;
        let mut end = 0;
        for (offset, data) in writes {
            let length = data.len() as u64;
            let is_whole = length > 0 && (offset | length).is_multiple_of(BLOCK_BYTES);
            if !is_whole || *offset < end || self.within(*offset, length).is_err() {
                return None;
            }
            end = offset + length;
        }
        let entered: Vec<_> = writes.iter().map(|(offset, data)| regions.enter(*offset, data.len() as u64)).collect();
        if entered.iter().any(|entered| entered.unmarked().is_some()) {
            return None;
        }
        let blocks = |(offset, data): &(u64, &[u8])| offset / BLOCK_BYTES..(offset + data.len() as u64) / BLOCK_BYTES;
        let _guards = self.try_lock_all(writes.iter().map(blocks))?;
        let mut pairs = Vec::with_capacity(writes.len());
        for write in writes {
            for (block, content) in blocks(write).zip(write.1.chunks_exact(BLOCK_BYTES as usize)) {
                let before = self.table[block as usize].load(Ordering::Relaxed);
                if !is_settled(before) {
                    return None;
                }
                pairs.push((block as usize, u64::from(checksum(content)) | before << 32));
            }
        }
        let summed = self.disk.write_pairs(&pairs, |block| self.table_at(block));
        let mut pairs = pairs.into_iter();
        let results = writes.iter().map(|write| {
            let put = match &summed {
                Ok(()) => self.disk.write(write.1, write.0).map_err(|e| status(&e)),
                Err(error) => Err(status(error)),
            };
            if put.is_err() {
                self.doubtful.store(true, Ordering::Release);
            }
            for (block, pair) in pairs.by_ref().take(write.1.len() / BLOCK_BYTES as usize) {
                // What failed may have been done in part.
                let counts = if put.is_ok() { settled(pair as u32) } else { pair };
                self.table[block].store(counts, Ordering::Relaxed);
            }
            put
        });
        Some(results.collect())
    }
}
