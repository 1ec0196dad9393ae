//! A limit to what is allocated at once: a reader that exceeds it believes a number of the file.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// More than any input of ours can justify at once.
const ALLOCATION_BYTES_MAX: usize = 1 << 30;

/// The input being tried, for the message when memory is refused, which ends the program.
pub static CURRENT_INPUT: AtomicU64 = AtomicU64::new(0);

/// The system's memory, up to the limit. A program makes it its `#[global_allocator]`.
#[derive(Debug, Clone, Copy)]
pub struct LimitedAllocator;

// SAFETY: it passes everything on to the system's allocator, or refuses, which the contract allows.
unsafe impl GlobalAlloc for LimitedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > ALLOCATION_BYTES_MAX {
            // Standard error is not buffered, so that this takes no memory.
            let _ = writeln!(
                std::io::stderr(),
                "{} bytes were requested at once, in input {}",
                layout.size(),
                CURRENT_INPUT.load(Ordering::Relaxed)
            );
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` above, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}
