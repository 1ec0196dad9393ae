//! The bytes of a store in memory, accessed without a system call.
//!
//! For memory only: an unreadable page of a file would raise a signal instead of an error.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

/// A read-only mapping of a memory file; it is written through the file.
#[derive(Debug)]
pub struct Map {
    begin: NonNull<u8>,
    length: usize,
}

// SAFETY: it is only an address; readers ensure that the bytes are not being written (`Map::slice`).
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `length` bytes of `file`, a memory file that never shrinks.
    pub fn new(file: &File, length: u64) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let length = usize::try_from(length).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address chosen by the kernel touches nothing that is in use.
        let begin = unsafe { mmap(null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
        let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { begin, length })
    }

    /// The bytes of that range, which must be within the mapping.
    ///
    /// # Safety
    /// The bytes must not be written while the slice exists.
    pub unsafe fn slice(&self, range: Range<u64>) -> &[u8] {
        let (begin, end) = (range.start as usize, range.end as usize);
        assert!(begin <= end && end <= self.length, "the range was checked");
        // SAFETY: the range is within the mapping, which lives as long as `self`; the caller guarantees that it is not written.
        unsafe { std::slice::from_raw_parts(self.begin.as_ptr().add(begin), end - begin) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no slice of it outlives `self`. If it cannot be unmapped it stays, unused.
        let _ = unsafe { rustix::mm::munmap(self.begin.as_ptr().cast(), self.length) };
    }
}
