//! Reads blocks from the medium, and compares them with their checksums: a scrub finds damage before a client does.
//!
//! What the page cache has would hide damage of the medium, so its clean pages are dropped first. A dirty page is newer than
//! the medium, and is compared itself.

use super::{BLOCK_BYTES, Store};
use crate::frame::{BadBlock, Status};

/// Blocks that are read together; they have a common lock, which no request has to wait for longer.
const PIECE_BLOCKS: u64 = 16;

impl Store {
    /// Verifies all blocks of the range: appends the [`BadBlock`]s to `out`, and returns their CRC-32C.
    pub fn verify(&self, offset: u64, length: u32, out: &mut Vec<u8>) -> Result<u32, Status> {
        self.check_range(offset, u64::from(length))?;
        let begin = out.len();
        let (first, end) = (offset / BLOCK_BYTES, (offset + u64::from(length)).div_ceil(BLOCK_BYTES));
        let mut content = vec![0; (PIECE_BLOCKS * BLOCK_BYTES) as usize];
        let mut at = first;
        while at < end {
            let next = end.min((at / PIECE_BLOCKS + 1) * PIECE_BLOCKS);
            let bytes = (next - at) * BLOCK_BYTES;
            let piece = &mut content[..bytes as usize];
            let _guard = self.lock(at..next);
            self.disk.drop_cached(at * BLOCK_BYTES, bytes);
            // If it cannot be read as a whole, each block is tried.
            let is_read = self.disk.read(piece, at * BLOCK_BYTES).is_ok();
            for (block, content) in (at..next).zip(piece.chunks_exact_mut(BLOCK_BYTES as usize)) {
                let offset = block * BLOCK_BYTES;
                if !is_read && self.read_disk(content, offset).is_err() {
                    BadBlock { offset, is_unreadable: true }.put(out);
                } else if self.match_content(block, content) {
                    self.record_success(block..block + 1);
                } else {
                    self.record_damage(block);
                    BadBlock { offset, is_unreadable: false }.put(out);
                }
            }
            at = next;
        }
        Ok(crc32c::crc32c(&out[begin..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::FaultKind;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn damaged_blocks_are_found_and_no_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("store");
        let store = Store::format(&path, Some(4 << 20), "n".into(), false).expect("a store");
        store.write(4096, &vec![7; 1 << 20], true).expect("it has room");
        let all = |store: &Store| {
            let mut out = b"before".to_vec();
            let sum = store.verify(0, 4 << 20, &mut out).expect("it is there");
            assert_eq!(sum, crc32c::crc32c(&out[6..]));
            BadBlock::parse_all(&out[6..]).expect("whole entries").iter().map(|bad| bad.offset).collect::<Vec<u64>>()
        };
        assert_eq!((all(&store), store.faults(FaultKind::Damaged)), (vec![], 0));
        // Written data, its first and last block, and a hole.
        let bad = [4096, 17 * 4096, 1 << 20, 3 << 20];
        let file = std::fs::File::options().read(true).write(true).open(&path).expect("a file");
        bad.iter().for_each(|offset| file.write_all_at(&[1], *offset).expect("it has room"));
        assert_eq!((all(&store), store.faulty_blocks(FaultKind::Damaged)), (bad.to_vec(), 4));
        // It was transient.
        file.write_all_at(&[7], 17 * 4096).expect("it has room");
        store.write(4096, &[1; 4096], false).expect("it has room");
        store.trim(3 << 20, 4096, false).expect("it is there");
        assert_eq!((all(&store), store.faulty_blocks(FaultKind::Damaged)), (vec![1 << 20], 1));
        assert_eq!(store.verify(4 << 20, 1, &mut Vec::new()), Err(Status::Range));
    }

    #[test]
    fn memory_is_verified_too() {
        let store = Store::memory(1 << 20, "n".into()).expect("memory");
        store.write(5000, &[1; 9000], false).expect("memory");
        let mut out = Vec::new();
        store.verify(0, 1 << 20, &mut out).expect("it is there");
        assert!(out.is_empty());
    }
}
