//! Writes of a few bytes at many places of a file, in two system calls.
//!
//! Each write of a block changes eight bytes of the table of sums, and a `pwrite` of them takes a quarter of what the block itself takes. Here
//! the table is mapped, and the kernel copies into the mapping what it reads from a memory file, to as many places as there are (`preadv`). A plain store would
//! do the same without the kernel; but where the medium is full or cannot be read, that is a signal, and this is an error.
//!
//! What is in the mapping is what is in the page cache: it is there when the process is killed, and fdatasync writes it.

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::preadv;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, PoisonError};

/// The kernel takes as many places at once (UIO_MAXIOV).
const MOST: usize = 1024;

/// A part of a file.
#[derive(Debug)]
pub(super) struct Scatter {
    /// The mapping, which begins at this byte of the file.
    begin: NonNull<u8>,
    at: u64,
    length: usize,
    part: Range<u64>,
    /// What is to be written passes through it, for one who writes at a time.
    source: Mutex<File>,
}

// SAFETY: it only says where the bytes are; nobody reads or writes them but the kernel.
unsafe impl Send for Scatter {}
// SAFETY: as above.
unsafe impl Sync for Scatter {}

impl Scatter {
    /// Of that part, which the file has.
    ///
    /// # Errors
    /// The file cannot be mapped: not all file systems can, and there may be no room for it.
    pub fn new(file: &File, part: Range<u64>) -> io::Result<Self> {
        let at = part.start - part.start % page_size() as u64;
        let length = usize::try_from(part.end - at).map_err(io::Error::other)?;
        let source = File::from(memfd_create("fathom-pool-sums", MemfdFlags::CLOEXEC)?);
        // SAFETY: a new mapping at a place that the kernel chooses touches nothing that is there.
        let begin =
            unsafe { mmap(null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, at)? };
        let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { begin, at, length, part, source: Mutex::new(source) })
    }

    /// Puts eight bytes at each place; false if not all could be put, and then some may be.
    pub fn put(&self, words: &[(u64, [u8; 8])]) -> bool {
        words.chunks(MOST).all(|words| self.put_some(words).unwrap_or(false))
    }

    fn put_some(&self, words: &[(u64, [u8; 8])]) -> io::Result<bool> {
        let mut places = Vec::with_capacity(words.len());
        let mut bytes = Vec::with_capacity(words.len() * 8);
        for (at, word) in words {
            if !(self.part.contains(at) && at + 8 <= self.part.end) {
                return Ok(false);
            }
            let offset = (at - self.at) as usize;
            debug_assert!(offset + 8 <= self.length);
            // SAFETY: it is within the mapping, and nobody but the kernel uses the slice, which copes with a page that it cannot have.
            places.push(IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(self.begin.as_ptr().add(offset), 8) }));
            bytes.extend(word);
        }
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        source.write_all_at(&bytes, 0)?;
        Ok(preadv(&*source, &mut places, 0)? == bytes.len())
    }
}

impl Drop for Scatter {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no slice of it outlives a call. If it cannot be unmapped it stays, unused.
        let _ = unsafe { munmap(self.begin.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_words_change_only_their_place() {
        let file = tempfile::tempfile().expect("a file");
        let (before, part) = (vec![1; 100_000], 4096..90_000_u64);
        file.write_all_at(&before, 0).expect("it has room");
        let scatter = Scatter::new(&file, part.clone()).expect("it can be mapped");
        let places = (0..3000).map(|nth| 4096 + nth * 8 * 7919 % (part.end - part.start - 8) / 8 * 8);
        let words: Vec<(u64, [u8; 8])> = places.map(|at| (at, (at * 31).to_le_bytes())).collect();
        assert!(scatter.put(&words));
        let mut expected = before;
        for (at, word) in &words {
            expected[*at as usize..*at as usize + 8].copy_from_slice(word);
        }
        let mut now = vec![0; expected.len()];
        file.read_exact_at(&mut now, 0).expect("it is there");
        assert!(now == expected);
        for outside in [0, 4088, 89_996, 90_000, u64::MAX - 3] {
            assert!(!scatter.put(&[(outside, [9; 8])]), "{outside}");
        }
    }

    #[test]
    fn missing_page_is_error_not_sigbus() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1 << 20).expect("it has room");
        let scatter = Scatter::new(&file, 0..1 << 20).expect("it can be mapped");
        assert!(scatter.put(&[(8, [1; 8]), ((1 << 20) - 8, [2; 8])]));
        file.set_len(4096).expect("it is cut");
        assert!(!scatter.put(&[(16, [1; 8]), ((1 << 20) - 8, [2; 8])]));
        assert!(scatter.put(&[(16, [3; 8])]));
    }
}
