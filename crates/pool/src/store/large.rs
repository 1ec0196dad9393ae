//! Large reads: directly into a buffer that is sent without copying, and every byte is summed once.
//!
//! A read returns a CRC-32C of its data, and its blocks have separate sums. The sum of two concatenated pieces is that of
//! the first, shifted by as many zero bytes as the second has, xor that of the second (CRC is linear); the shift by a block
//! is a table. So the sum of whole blocks is almost free once theirs are computed.

use super::{BLOCK_BYTES, Status, Store};
use bytes::Bytes;
use nbd::buffer::Buffer;
use std::sync::LazyLock;

/// How a CRC changes by a block of zeroes appended, by its four bytes.
static BLOCK_SHIFT_TABLE: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
    let shifted =
        |byte: usize, value: usize| crc32c::crc32c_combine((value as u32) << (8 * byte), 0, BLOCK_BYTES as usize);
    std::array::from_fn(|byte| std::array::from_fn(|value| shifted(byte, value)))
});

/// The sum of data with the sum `before`, followed by a block with the sum `block`.
fn append_block_sum(before: u32, block: u32) -> u32 {
    let bytes = before.to_le_bytes();
    let shift = &*BLOCK_SHIFT_TABLE;
    block ^ (0..4).map(|nth| shift[nth][usize::from(bytes[nth])]).fold(0, |sum, part| sum ^ part)
}

impl Store {
    /// Reads the range and its CRC-32C like [`Store::read`], into a new buffer.
    ///
    /// # Errors
    /// [`Status`]: `Range`, `Io`, or `Damaged` if a block does not match its sum.
    pub fn read_shared(&self, offset: u64, length: u32) -> Result<(Bytes, u32), Status> {
        self.check_range(offset, u64::from(length))?;
        if let Some(flash) = &self.flash {
            flash.read();
        }
        let (first, end) = (offset / BLOCK_BYTES, (offset + u64::from(length)).div_ceil(BLOCK_BYTES));
        let mut buffer = Buffer::new(((end - first) * BLOCK_BYTES) as usize);
        let sum = self.read_blocks(first, &mut buffer)?;
        let whole = buffer.into_bytes();
        if whole.len() == length as usize {
            return Ok((whole, sum));
        }
        let skip = (offset - first * BLOCK_BYTES) as usize;
        let data = whole.slice(skip..skip + length as usize);
        let sum = crc32c::crc32c(&data);
        Ok((data, sum))
    }

    /// Reads the range into a buffer of the caller.
    ///
    /// # Errors
    /// As [`Store::read_shared`]; the content of `to` is invalid then.
    pub fn read_into(&self, offset: u64, to: &mut [u8]) -> Result<(), Status> {
        if offset.is_multiple_of(BLOCK_BYTES) && (to.len() as u64).is_multiple_of(BLOCK_BYTES) {
            self.check_range(offset, to.len() as u64)?;
            if let Some(flash) = &self.flash {
                flash.read();
            }
            return self.read_blocks(offset / BLOCK_BYTES, to).map(drop);
        }
        let length = u32::try_from(to.len()).map_err(|_| Status::Range)?;
        to.copy_from_slice(&self.read_shared(offset, length)?.0);
        Ok(())
    }

    /// Reads whole blocks, which must be within the store, and returns their CRC-32C.
    fn read_blocks(&self, first: u64, to: &mut [u8]) -> Result<u32, Status> {
        let end = first + to.len() as u64 / BLOCK_BYTES;
        let _guard = self.lock(first..end);
        if let Some(map) = &self.map {
            // SAFETY: blocks change only under their locks, which are held.
            to.copy_from_slice(unsafe { map.slice(first * BLOCK_BYTES..end * BLOCK_BYTES) });
        } else {
            self.read_disk(to, first * BLOCK_BYTES)?;
        }
        self.sum_blocks(first, to).map_err(|block| self.record_damage(block))
    }

    /// Verifies whole blocks that were read, and returns their CRC-32C, or the first block that does not match. The caller
    /// holds their locks.
    fn sum_blocks(&self, first: u64, contents: &[u8]) -> Result<u32, u64> {
        let mut sum = 0;
        for (block, content) in (first..).zip(contents.chunks_exact(BLOCK_BYTES as usize)) {
            let own = crate::checksum::crc32c(content);
            if !self.match_sum(block, content, own.max(1)) {
                return Err(block);
            }
            sum = append_block_sum(sum, own);
        }
        Ok(sum)
    }

    /// As [`Store::read_into`], if neither the medium nor another request blocks; otherwise false, and the content of `to`
    /// is invalid. Errors are left to the blocking variant.
    pub fn read_nonblocking(&self, offset: u64, to: &mut [u8]) -> bool {
        let is_waited_for = self.flash.is_some() || self.map.is_some();
        if is_waited_for || self.check_range(offset, to.len() as u64).is_err() {
            return false;
        }
        if (offset | to.len() as u64).is_multiple_of(BLOCK_BYTES) {
            return self.read_blocks_nonblocking(offset / BLOCK_BYTES, to).is_some();
        }
        let (mut read, length) = (Vec::new(), u32::try_from(to.len()).unwrap_or(0));
        let is_read = self.append_nonblocking(offset, length, &mut read).is_some();
        if is_read {
            to.copy_from_slice(&read);
        }
        is_read
    }

    /// As [`Store::read`], under the same conditions: `None` if it would block, or fails, and then `out` is unchanged.
    pub fn append_nonblocking(&self, offset: u64, length: u32, out: &mut Vec<u8>) -> Option<u32> {
        let is_waited_for = self.flash.is_some() || self.map.is_some();
        if is_waited_for || length == 0 || self.check_range(offset, u64::from(length)).is_err() {
            return None;
        }
        let (first, end) = (offset / BLOCK_BYTES, (offset + u64::from(length)).div_ceil(BLOCK_BYTES));
        let (begin, skip) = (out.len(), (offset - first * BLOCK_BYTES) as usize);
        out.resize(begin + ((end - first) * BLOCK_BYTES) as usize, 0);
        let Some(sum) = self.read_blocks_nonblocking(first, &mut out[begin..]) else {
            out.truncate(begin);
            return None;
        };
        if out.len() - begin == length as usize {
            return Some(sum);
        }
        out.copy_within(begin + skip..begin + skip + length as usize, begin);
        out.truncate(begin + length as usize);
        Some(crc32c::crc32c(&out[begin..]))
    }

    /// Reads whole blocks within the store, and returns their CRC-32C.
    fn read_blocks_nonblocking(&self, first: u64, to: &mut [u8]) -> Option<u32> {
        let _guards = self.try_lock(first..first + to.len() as u64 / BLOCK_BYTES)?;
        if self.disk.read_nonblocking(to, first * BLOCK_BYTES) { self.sum_blocks(first, to).ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonblocking_read_matches_read_or_leaves_the_output() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("store");
        let store = Store::format(&path, Some(1 << 20), "n".into(), false).expect("a store");
        let data: Vec<u8> = (0..300_000_u32).map(|at| (at * 7 / 3) as u8).collect();
        store.write(5000, &data, false).expect("it has room");
        for (offset, length) in [(0, 4096), (4095, 2), (8192, 4096), (5000, 1), (299_000, 20_000), (700_000, 512)] {
            let (mut plain, mut at_hand) = (b"before".to_vec(), b"before".to_vec());
            let sum = store.read(offset, length, &mut plain).expect("it is there");
            assert_eq!(store.append_nonblocking(offset, length, &mut at_hand), Some(sum), "{length} bytes at {offset}");
            assert!(plain == at_hand, "{length} bytes at {offset}");
            let mut there = vec![0; length as usize];
            assert!(store.read_nonblocking(offset, &mut there) && there == plain[6..], "{length} bytes at {offset}");
        }
        let refused = |offset, length| {
            let mut out = b"before".to_vec();
            assert_eq!(store.append_nonblocking(offset, length, &mut out), None, "{length} bytes at {offset}");
            assert_eq!(out, b"before");
            assert!(!store.read_nonblocking(offset, &mut vec![0; length as usize]));
        };
        refused(1 << 20, 1);
        refused(u64::MAX, 2);
        {
            let _held = store.lock(2..3);
            refused(8192, 512);
        }
        let file = std::fs::File::options().write(true).open(&path).expect("a file");
        std::os::unix::fs::FileExt::write_all_at(&file, &[1], 9000).expect("it has room");
        refused(8192, 512);
    }

    #[test]
    fn large_read_matches_a_small_read() {
        let store = Store::memory(1 << 20, "n".into()).expect("memory");
        let data: Vec<u8> = (0..300_000_u32).map(|at| (at * 7 / 3) as u8).collect();
        store.write(5000, &data, false).expect("memory");
        for (offset, length) in
            [(0, 1 << 20), (4096, 65_536), (4095, 65_538), (8192, 4096), (5000, 1), (700_000, 100_000)]
        {
            let mut plain = Vec::new();
            let sum = store.read(offset, length, &mut plain).expect("it is there");
            let (shared, same) = store.read_shared(offset, length).expect("it is there");
            assert!(shared == plain && sum == same, "{length} bytes at {offset}");
            let mut there = vec![1; length as usize];
            store.read_into(offset, &mut there).expect("it is there");
            assert!(there == plain, "{length} bytes at {offset}");
        }
        assert_eq!(store.read_shared((1 << 20) - 1, 2).expect_err("it ends there"), Status::Range);
    }
}
