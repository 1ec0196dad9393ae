//! A queue of the kernel's that transfers blocks, several at a time: the interface of its kinds.

use std::io::Result;
use std::os::fd::RawFd;

/// One transaction of a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    /// The index of its buffer, as the caller numbers them.
    pub slot: u64,
    pub buffer: *mut u8,
    pub length: u32,
    /// Its offset in the file.
    pub offset: u64,
    /// Whether it is a write.
    pub writes: bool,
}

/// A queue of the kernel's. Requests in flight must be waited for before their buffers are freed; dropping the queue
/// does that.
pub(super) trait Queue {
    /// Starts some requests, all for one file, with one system call.
    ///
    /// # Safety
    /// Each buffer stays where it is, untouched, until its slot is done or the queue is dropped.
    unsafe fn start(&mut self, file: RawFd, all: &[Transfer]) -> Result<()>;

    /// Waits until at least one is done: slot, and bytes moved or -errno.
    fn wait(&mut self, done: &mut Vec<(u64, i64)>) -> Result<()>;
}
