//! Writes that came together, done together, if nothing has to be waited for.
//!
//! Each is of whole blocks, in regions that are marked, none of which is locked; so all that is left to do is to put the data into the
//! page cache. (The kernel may still make who writes wait, when too much is dirty: it does not announce that, see [`crate::node`].)

use super::{BLOCK_BYTES, Status, Store, UNSEEN, checksum, is_settled, status};
use std::ops::Range;
use std::sync::atomic::Ordering;

impl Store {
    /// Writes those, which are in the order of their offsets, and returns what became of each; none was written if something has to be
    /// waited for, or is not as described above.
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
        let is_open = |pair: u64| is_settled(pair) || pair == UNSEEN;
        let mut all = writes.iter().flat_map(|write| &self.table[as_places(&blocks(write))]);
        if !all.all(|entry| is_open(entry.load(Ordering::Relaxed))) {
            return None;
        }
        let mut sums = Vec::new();
        let results = writes.iter().map(|write| {
            // Each separately: the data are then in the processor's cache when they are copied.
            sums.clear();
            sums.extend(write.1.chunks_exact(BLOCK_BYTES as usize).map(checksum));
            let put = self.disk.write(write.1, write.0);
            self.have(write.0 / BLOCK_BYTES, &sums, put.is_ok());
            put.map_err(|e| status(&e))
        });
        Some(results.collect())
    }
}

fn as_places(blocks: &Range<u64>) -> Range<usize> {
    blocks.start as usize..blocks.end as usize
}
