//! The bytes of a store in memory, seen without a system call.
//!
//! Only of memory: a page of a file that cannot be read would be a signal, and no error.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

/// A memory file's bytes, to be read; they are written through the file.
#[derive(Debug)]
pub struct Map {
    begin: NonNull<u8>,
    length: usize,
}

// SAFETY: it only says where the bytes are; who reads them ensures that they are not being written (`Map::slice`).
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `length` bytes of `file`, a memory file that is never made shorter.
    pub fn new(file: &File, length: u64) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let length = usize::try_from(length).map_err(io::Error::other)?;
        // SAFETY: a new mapping at a place that the kernel chooses touches nothing that is there.
        let begin = unsafe { mmap(null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
        let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { begin, length })
    }

    /// The bytes of that range, which must be within the mapping.
    ///
    /// # Safety
    /// Nobody writes them while the slice is there.
    pub unsafe fn slice(&self, range: Range<u64>) -> &[u8] {
        let (begin, end) = (range.start as usize, range.end as usize);
        assert!(begin <= end && end <= self.length, "the range was checked");
        // SAFETY: the range is within the mapping, which lives as long as `self`; the caller sees to the rest.
        unsafe { std::slice::from_raw_parts(self.begin.as_ptr().add(begin), end - begin) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no slice of it outlives `self`. If it cannot be unmapped it stays, unused.
        let _ = unsafe { rustix::mm::munmap(self.begin.as_ptr().cast(), self.length) };
    }
}
