//! Buffers for large data, used again and again.
//!
//! A buffer of a MiB that is allocated for each request comes from the kernel and goes back to it, and each of its 256 pages is a
//! fault and is zeroed: with some allocators (musl's) that takes longer than everything else that is done with the data. So large
//! buffers are kept when they are no longer needed, up to a limit, and handed out again as they are: what is in them is what
//! somebody has left there, and whoever has one shows no more of it than he has put there.

use bytes::Bytes;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Smaller ones are not worth it.
pub const LARGE_BYTES: usize = 32 << 10;
/// The sizes that are kept are this and its multiples by powers of two, each with room for what stands around a payload.
const FIRST_BYTES: usize = 64 << 10;
/// The room.
const AROUND_BYTES: usize = 4 << 10;
/// So many sizes: to 2 MiB.
const SIZES: usize = 6;
/// Bytes that are kept, of all sizes together.
const KEPT_BYTES: usize = 16 << 20;

/// What is kept has so many.
static BYTES: AtomicUsize = AtomicUsize::new(0);
static KEPT: [Mutex<Vec<Box<[u8]>>>; SIZES] = [const { Mutex::new(Vec::new()) }; SIZES];

/// The size's number, and the size; None if such ones are not kept.
fn size(length: usize) -> Option<(usize, usize)> {
    (0..SIZES).map(|nth| (nth, (FIRST_BYTES << nth) + AROUND_BYTES)).find(|(_, size)| length <= *size)
}

/// Bytes to be filled; then [`Buffer::share`] makes [`Bytes`] of them, without a copy.
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    length: usize,
}

impl Buffer {
    /// So many bytes, of any content.
    pub fn new(length: usize) -> Self {
        let kept = size(length).and_then(|(nth, _)| KEPT[nth].lock().unwrap_or_else(PoisonError::into_inner).pop());
        if let Some(kept) = &kept {
            BYTES.fetch_sub(kept.len(), Ordering::Relaxed);
        }
        let made = || vec![0; size(length).map_or(length, |(_, size)| size)].into_boxed_slice();
        Self { bytes: kept.unwrap_or_else(made), length }
    }

    /// No more than the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Ends the filling.
    pub fn share(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if let Some((nth, size)) = size(bytes.len()).filter(|(_, size)| *size == bytes.len()) {
            // Somebody else may be about to keep one too; it does not matter if that is one too many.
            if BYTES.load(Ordering::Relaxed) + size <= KEPT_BYTES {
                BYTES.fetch_add(size, Ordering::Relaxed);
                KEPT[nth].lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_is_what_was_filled_in_and_a_buffer_comes_back_when_the_last_has_gone() {
        for length in [1, FIRST_BYTES, FIRST_BYTES + AROUND_BYTES + 1, 1 << 20, (1 << 20) + 100, 5 << 20] {
            let mut buffer = Buffer::new(length);
            assert_eq!(buffer.len(), length);
            buffer.fill(7);
            let shared = buffer.share();
            let part = shared.slice(length / 2..);
            drop(shared);
            assert!(part.iter().all(|byte| *byte == 7) && part.len() == length - length / 2);
        }
        let (mut one, other) = (Buffer::new(1 << 20), Buffer::new(1 << 20));
        one.fill(1);
        assert!(one.as_ptr() != other.as_ptr());
        one.truncate(3);
        assert_eq!(&one.share()[..], [1; 3]);
    }
}
