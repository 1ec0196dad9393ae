//! Reusable buffers for payloads.
//!
//! A buffer of one MiB that is allocated for each request comes from the kernel and is returned to it, and each of its 256
//! pages causes a fault and is zeroed: with some allocators (musl's) that takes longer than all other work on the data. So
//! buffers are kept when they are no longer needed, up to a limit, and reused without clearing: they contain data of
//! earlier users, and a user must not expose more than it has written.
//!
//! The same applies to the input buffer of a connection: if small payloads were slices of it, it could not be reused until
//! the last of them is released, and every 256 KiB would be new memory. So a small payload is copied into a buffer of
//! exactly its size.
//!
//! Memory shared with another process can be provided for the buffers ([`use_memory`]): then data received from a client
//! can be passed on by its location ([`shared_offset`]).

use bytes::Bytes;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// From this size on data is read directly into its final buffer, and sent without a copy.
pub const LARGE_BYTES: usize = 32 << 10;
/// Buffers of this size and its multiples by powers of two are kept.
const BUFFER_BYTES_MIN: usize = 4 << 10;
/// The number of sizes: up to 2 MiB.
const SIZE_COUNT: usize = 10;
/// Sizes for large data have additional room for the bytes around a payload.
const PAYLOAD_MARGIN_BYTES: usize = 4 << 10;
/// The maximum number of bytes kept, for all sizes together.
const IDLE_BYTES_MAX: usize = 16 << 20;

/// The number of bytes currently kept.
static IDLE_BYTES: AtomicUsize = AtomicUsize::new(0);
static IDLE_BUFFERS: [Mutex<Vec<Box<[u8]>>>; SIZE_COUNT] = [const { Mutex::new(Vec::new()) }; SIZE_COUNT];

/// Bytes of provided memory for each size: the maximum of outstanding requests at a node.
const SHARED_BYTES_PER_SIZE: usize = 16 << 20;
/// The size of the memory for [`use_memory`].
pub const SHARED_MEMORY_BYTES: usize = SIZE_COUNT * SHARED_BYTES_PER_SIZE;
static SHARED_ADDRESS: OnceLock<usize> = OnceLock::new();
static SHARED_BUFFERS: [Mutex<Vec<&'static mut [u8]>>; SIZE_COUNT] = [const { Mutex::new(Vec::new()) }; SIZE_COUNT];

/// Large buffers are taken from `memory` from now on as long as it has any; it can be provided once.
///
/// # Errors
/// The memory itself, if some was provided before.
pub fn use_memory(
    memory: &'static mut [u8; SHARED_MEMORY_BYTES],
) -> Result<(), &'static mut [u8; SHARED_MEMORY_BYTES]> {
    if SHARED_ADDRESS.set(memory.as_ptr().addr()).is_err() {
        return Err(memory);
    }
    for (nth, part) in memory.chunks_exact_mut(SHARED_BYTES_PER_SIZE).enumerate() {
        let mut pieces: Vec<_> = part.chunks_exact_mut(size_class_bytes(nth)).collect();
        // The first buffers are used first, and unused ones are never touched.
        pieces.reverse();
        *SHARED_BUFFERS[nth].lock().unwrap_or_else(PoisonError::into_inner) = pieces;
    }
    Ok(())
}

/// The offset of these bytes in the provided memory; `None` if they are elsewhere.
pub fn shared_offset(bytes: &[u8]) -> Option<usize> {
    let at = bytes.as_ptr().addr().checked_sub(*SHARED_ADDRESS.get()?)?;
    (at + bytes.len() <= SHARED_MEMORY_BYTES).then_some(at)
}

pub(crate) fn has_shared_memory() -> bool {
    SHARED_ADDRESS.get().is_some()
}

#[derive(Debug)]
enum BufferMemory {
    Own(Box<[u8]>),
    Shared(&'static mut [u8]),
}

impl Deref for BufferMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl DerefMut for BufferMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

const fn size_class_bytes(nth: usize) -> usize {
    let bytes = BUFFER_BYTES_MIN << nth;
    if bytes > LARGE_BYTES { bytes + PAYLOAD_MARGIN_BYTES } else { bytes }
}

// Each size is a buffer's whole length in the provided memory, and they ascend: the first that fits is the smallest.
const _: () = {
    let mut nth = 0;
    while nth < SIZE_COUNT {
        assert!(size_class_bytes(nth) <= SHARED_BYTES_PER_SIZE);
        assert!(nth == 0 || size_class_bytes(nth - 1) < size_class_bytes(nth));
        nth += 1;
    }
    assert!(size_class_bytes(0) == BUFFER_BYTES_MIN && size_class_bytes(SIZE_COUNT - 1) > LARGE_BYTES);
};

/// The index of the size, and the size; `None` if such buffers are not kept.
fn size_class(length: usize) -> Option<(usize, usize)> {
    (0..SIZE_COUNT).map(|nth| (nth, size_class_bytes(nth))).find(|(_, size)| length <= *size)
}

/// A buffer to be filled; [`Buffer::into_bytes`] then converts it to [`Bytes`], without a copy.
#[derive(Debug)]
pub struct Buffer {
    memory: BufferMemory,
    length: usize,
}

impl Buffer {
    /// Creates a buffer of `length` bytes with arbitrary content.
    pub fn new(length: usize) -> Self {
        let given = size_class(length)
            .and_then(|(nth, _)| SHARED_BUFFERS[nth].lock().unwrap_or_else(PoisonError::into_inner).pop());
        if let Some(given) = given {
            assert!(given.len() >= length, "a buffer of another size");
            return Self { memory: BufferMemory::Shared(given), length };
        }
        let kept = size_class(length)
            .and_then(|(nth, _)| IDLE_BUFFERS[nth].lock().unwrap_or_else(PoisonError::into_inner).pop());
        if let Some(kept) = &kept {
            let idle_bytes = IDLE_BYTES.fetch_sub(kept.len(), Ordering::Relaxed);
            assert!(
                kept.len() >= length && idle_bytes >= kept.len(),
                "a buffer of another size, or one that was not counted"
            );
        }
        let allocate = || vec![0; size_class(length).map_or(length, |(_, size)| size)].into_boxed_slice();
        Self { memory: BufferMemory::Own(kept.unwrap_or_else(allocate)), length }
    }

    pub fn copy_of(data: &[u8]) -> Bytes {
        let mut buffer = Self::new(data.len());
        buffer.copy_from_slice(data);
        buffer.into_bytes()
    }

    /// Limits the buffer to the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Converts the filled buffer.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.length]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let nothing = BufferMemory::Own(Box::default());
        let bytes = match std::mem::replace(&mut self.memory, nothing) {
            BufferMemory::Own(bytes) => bytes,
            BufferMemory::Shared(bytes) => {
                if let Some((nth, size)) = size_class(bytes.len()) {
                    debug_assert_eq!(size, bytes.len(), "a buffer of another size");
                    SHARED_BUFFERS[nth].lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
                }
                return;
            }
        };
        if let Some((nth, size)) = size_class(bytes.len()).filter(|(_, size)| *size == bytes.len()) {
            // Another thread may keep one at the same time; a slight excess does not matter.
            if IDLE_BYTES.load(Ordering::Relaxed) + size <= IDLE_BYTES_MAX {
                IDLE_BYTES.fetch_add(size, Ordering::Relaxed);
                IDLE_BUFFERS[nth].lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_returns_to_the_pool_with_its_last_reference() {
        for length in [
            1,
            BUFFER_BYTES_MIN,
            BUFFER_BYTES_MIN + 1,
            LARGE_BYTES,
            LARGE_BYTES + 1,
            68 << 10,
            (68 << 10) + 1,
            1 << 20,
            (1 << 20) + 100,
            5 << 20,
        ] {
            let mut buffer = Buffer::new(length);
            assert_eq!(buffer.len(), length);
            buffer.fill(7);
            let shared = buffer.into_bytes();
            let part = shared.slice(length / 2..);
            drop(shared);
            assert!(part.iter().all(|byte| *byte == 7) && part.len() == length - length / 2);
        }
        let (mut one, other) = (Buffer::new(1 << 20), Buffer::new(1 << 20));
        one.fill(1);
        assert!(one.as_ptr() != other.as_ptr());
        one.truncate(3);
        assert_eq!(&one.into_bytes()[..], [1; 3]);
    }

    #[test]
    fn buffers_come_from_shared_memory_and_know_their_offset() {
        // Buffers of other tests are elsewhere.
        let heap = vec![0; 1 << 20];
        assert_eq!(shared_offset(&heap), None);
        let memory = Box::leak(vec![0; SHARED_MEMORY_BYTES].into_boxed_slice());
        let Ok(memory) = <&'static mut [u8; SHARED_MEMORY_BYTES]>::try_from(memory) else { panic!("it has as many") };
        let begin = memory.as_ptr().addr();
        use_memory(memory).expect("it is the first");
        let mut buffers: Vec<Buffer> = (0..40).map(|_| Buffer::new(1 << 20)).collect();
        for (nth, buffer) in buffers.iter_mut().enumerate() {
            buffer.fill(nth as u8);
        }
        let places: Vec<_> = buffers.iter().filter_map(|buffer| shared_offset(buffer)).collect();
        assert!((5..40).contains(&places.len()), "when all is given out others are made: {}", places.len());
        assert!(buffers.iter().enumerate().all(|(nth, buffer)| buffer.iter().all(|byte| *byte == nth as u8)));
        for buffer in buffers {
            let at = shared_offset(&buffer);
            let part = buffer.into_bytes().slice(10..);
            assert_eq!(shared_offset(&part), at.map(|at| at + 10));
            assert!(at.is_none_or(|at| begin + at + 10 == part.as_ptr().addr()));
        }
        assert!(shared_offset(&Buffer::new(1 << 20)).is_some(), "they came back");
    }
}
