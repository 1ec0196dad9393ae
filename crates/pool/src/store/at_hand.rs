//! Concurrent writes that are done together, if none of them can block.
//!
//! Each consists of whole blocks, in marked regions, none of which is locked; so the data only has to be copied to the page
//! cache. (The kernel may still block the writer when too much is dirty: this cannot be detected in advance, see
//! [`crate::node`].)

use super::{BLOCK_BYTES, FaultKind, Status, Store, UNSEEN_SUMS, checksum, is_settled};
use std::ops::Range;
use std::sync::atomic::Ordering;

impl Store {
    /// Does these writes, which are sorted by offset, and returns the result of each; writes nothing if any of them could
    /// block, or does not meet the conditions above.
    pub fn write_nonblocking(&self, writes: &[(u64, &[u8])]) -> Option<Vec<Result<(), Status>>> {
        let regions = self.regions.as_ref().filter(|_| self.flash.is_none())?;
        let mut end = 0;
        for (offset, data) in writes {
            let length = data.len() as u64;
            let is_whole = length > 0 && (offset | length).is_multiple_of(BLOCK_BYTES);
            if !is_whole || *offset < end || self.check_range(*offset, length).is_err() {
                return None;
            }
            end = offset + length;
        }
        let entered: Vec<_> =
            writes.iter().map(|(offset, data)| regions.begin_write(*offset, data.len() as u64)).collect();
        if entered.iter().any(|entered| entered.unmarked().is_some()) {
            return None;
        }
        let blocks = |(offset, data): &(u64, &[u8])| offset / BLOCK_BYTES..(offset + data.len() as u64) / BLOCK_BYTES;
        let _guards = self.try_lock_all(writes.iter().map(blocks))?;
        let is_open = |pair: u64| is_settled(pair) || pair == UNSEEN_SUMS;
        let mut all = writes.iter().flat_map(|write| &self.table[as_indices(&blocks(write))]);
        if !all.all(|entry| is_open(entry.load(Ordering::Relaxed))) {
            return None;
        }
        let mut sums = Vec::new();
        let results = writes.iter().map(|write| {
            let sum = |piece: &[u8], sums: &mut Vec<u32>| {
                sums.extend(piece.chunks_exact(BLOCK_BYTES as usize).map(checksum));
            };
            sums.clear();
            let put = self.disk.write_after(write.1, write.0, |piece| sum(piece, &mut sums));
            if put.is_err() {
                sums.clear();
                sum(write.1, &mut sums);
            }
            self.record_sums(write.0 / BLOCK_BYTES, &sums, put.is_ok());
            put.map_err(|e| self.record_failure(FaultKind::Write, write.0, write.1.len() as u64, &e))
        });
        Some(results.collect())
    }
}

fn as_indices(blocks: &Range<u64>) -> Range<usize> {
    blocks.start as usize..blocks.end as usize
}
