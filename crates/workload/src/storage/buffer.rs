//! Page-aligned memory, as O_DIRECT requires.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};

/// Alignment: no file system requires more than a page of 4 KiB.
const ALIGNMENT_BYTES: usize = 4096;

/// A buffer of a fixed length.
#[derive(Debug)]
pub(crate) struct Buffer {
    start: *mut u8,
    length: usize,
}

// SAFETY: the memory belongs to the buffer alone.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Creates a buffer of zeros.
    pub(crate) fn new(length: usize) -> Self {
        let layout = Self::layout(length);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        Self { start, length }
    }

    fn layout(length: usize) -> Layout {
        let size = length.max(1).checked_next_multiple_of(ALIGNMENT_BYTES).unwrap_or(usize::MAX);
        // A size beyond the address space is treated like one beyond memory.
        Layout::from_size_align(size, ALIGNMENT_BYTES).unwrap_or_else(|_| handle_alloc_error(Layout::new::<u8>()))
    }

    /// Its address, for the kernel.
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.start
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes of ours, initialised, for as long as self lives.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start, Self::layout(self.length)) };
    }
}
