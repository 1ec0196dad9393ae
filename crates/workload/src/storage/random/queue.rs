//! A queue of the kernel's that moves blocks, some of them at once: what its kinds have in common.

use std::io::Result;
use std::os::fd::RawFd;

/// One transaction of a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    /// Which buffer, as the caller numbers them.
    pub slot: u64,
    /// Where it begins.
    pub buffer: *mut u8,
    /// How long it is.
    pub length: u32,
    /// Its place in the file.
    pub offset: u64,
    /// Whether it is written.
    pub writes: bool,
}

/// A queue of the kernel's. What is in flight must be waited for before its buffers go; dropping the queue does that.
pub(super) trait Queue {
    /// Starts some, all of one file, with one system call.
    ///
    /// # Safety
    /// Each buffer stays where it is, untouched, until its slot is done or the queue is dropped.
    unsafe fn start(&mut self, file: RawFd, all: &[Transfer]) -> Result<()>;

    /// Waits until at least one is done: slot, and bytes moved or -errno.
    fn wait(&mut self, done: &mut Vec<(u64, i64)>) -> Result<()>;
}
