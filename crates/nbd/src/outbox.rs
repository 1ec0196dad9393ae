//! Replies to be sent: small ones are collected in one buffer, large data is not copied, and all is sent in one vectored write.
//!
//! A socket write costs more than a hundred small replies; so replies are collected here while there are requests to read,
//! and sent together.

use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;

/// Data of at least this size is not copied: a separate slice in the write is cheaper.
pub const OWN_SLICE_BYTES_MIN: usize = 16 << 10;
/// The maximum number of slices in a write.
const SLICES_MAX: usize = 32;
/// A buffer that grew larger is freed when it is empty.
const IDLE_TAIL_BYTES_MAX: usize = 1 << 20;

/// Bytes to be sent, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The first bytes to send.
    chunks: VecDeque<Bytes>,
    chunk_bytes: usize,
    /// The last bytes to send; replies are appended here.
    tail: BytesMut,
}

impl Outbox {
    /// The buffer to append replies to.
    pub fn tail(&mut self) -> &mut BytesMut {
        &mut self.tail
    }

    pub fn put(&mut self, data: Bytes) {
        if data.len() < OWN_SLICE_BYTES_MIN {
            self.tail.extend_from_slice(&data);
            return;
        }
        let before = self.tail.split().freeze();
        for chunk in [before, data].into_iter().filter(|c| !c.is_empty()) {
            self.chunk_bytes += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    /// The number of bytes to send.
    pub fn len(&self) -> usize {
        self.chunk_bytes + self.tail.len()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Passes the next slices to `write`, and drops as many bytes as it has written.
    pub fn send<T>(&mut self, write: impl FnOnce(&[IoSlice<'_>]) -> T, taken: impl FnOnce(&T) -> usize) -> T {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (mut count, mut offered_bytes) = (0, 0);
        let tail = (self.chunks.len() < SLICES_MAX).then_some(&self.tail[..]);
        for (slice, bytes) in slices.iter_mut().zip(self.chunks.iter().map(|c| &c[..]).chain(tail)) {
            *slice = IoSlice::new(bytes);
            count += 1;
            offered_bytes += bytes.len();
        }
        let result = write(&slices[..count]);
        let sent_bytes = taken(&result);
        assert!(sent_bytes <= offered_bytes, "{sent_bytes} of {offered_bytes} bytes were written");
        self.drop_sent(sent_bytes);
        result
    }

    /// Writes what can be written now; returns the number of bytes, or pending.
    pub fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        writer: &mut W,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let taken = |polled: &Poll<io::Result<usize>>| match polled {
            Poll::Ready(Ok(count)) => *count,
            _ => 0,
        };
        match self.send(|slices| Pin::new(writer).poll_write_vectored(cx, slices), taken) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            other => other,
        }
    }

    fn drop_sent(&mut self, mut count: usize) {
        while let Some(first) = self.chunks.front_mut().filter(|_| count > 0) {
            let now = count.min(first.len());
            first.advance(now);
            count -= now;
            self.chunk_bytes -= now;
            if first.is_empty() {
                self.chunks.pop_front();
            }
        }
        debug_assert_eq!(self.chunk_bytes, self.chunks.iter().map(Bytes::len).sum::<usize>());
        if count < self.tail.len() {
            self.tail.advance(count);
        } else if self.tail.capacity() > IDLE_TAIL_BYTES_MAX {
            self.tail = BytesMut::new();
        } else {
            self.tail.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// All bytes are sent exactly once and in order, however short each write is.
        #[test]
        fn bytes_leave_in_order(sizes in proptest::collection::vec(0_usize..40_000, 1..60), takes in proptest::collection::vec(1_usize..50_000, 1..9)) {
            let mut outbox = Outbox::default();
            let mut expected = Vec::new();
            for (nth, size) in sizes.iter().enumerate() {
                let data: Vec<u8> = (0..*size).map(|at| (at + nth) as u8).collect();
                expected.extend_from_slice(&data);
                outbox.put(data.into());
            }
            proptest::prop_assert_eq!(outbox.len(), expected.len());
            let mut sent = Vec::new();
            for take in takes.iter().cycle() {
                if outbox.is_empty() {
                    break;
                }
                outbox.send(
                    |slices| {
                        let all: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).take(*take).collect();
                        sent.extend_from_slice(&all);
                        all.len()
                    },
                    |count| *count,
                );
            }
            proptest::prop_assert!(sent == expected);
        }
    }
}
