//! Received bytes, read directly into their final buffers: a client's requests, and frames of a coordinator and a node.
//!
//! Input is read into a reusable buffer ([`Buffer`]), and a payload is a slice of it: it is not copied. A buffer is read
//! into once, and is reused when the last of its payloads is released. So it should be about as large as the data of one
//! read: the last reads determine its size. If less than half of it was filled, payloads are copied, so that the memory
//! kept for a peer is at most twice its outstanding data.
//!
//! The end of a buffer usually contains the beginning of a message, which is copied to the front of the next buffer. An
//! expected large payload ([`Inbox::expect_payload`]) is read into a buffer of exactly its length.

use crate::buffer::{Buffer, shared_offset};
use bytes::{Buf as _, Bytes};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes read at once: minimum, and maximum.
const READ_BYTES_MIN: usize = 32 << 10;
const READ_BYTES_MAX: usize = 256 << 10;
/// The read size when a large message is likely to follow: a few headers.
const HEADER_READ_BYTES: usize = 512;

/// A payload that is read into its own buffer.
#[derive(Debug)]
struct LargePayload {
    buffer: Buffer,
    filled: usize,
}

impl LargePayload {
    fn is_complete(&self) -> bool {
        self.filled == self.buffer.len()
    }
}

/// Received bytes that were not taken yet.
#[derive(Debug)]
pub struct Inbox {
    bytes: Bytes,
    /// Whether slices of it may be kept.
    dense: bool,
    /// The size of the next read.
    read_bytes: usize,
    large: Option<LargePayload>,
    /// Whether the last message was large, so that the next one may be: much of a longer read would have to be copied.
    after_large: bool,
}

impl Inbox {
    /// Creates an inbox with bytes that were already received.
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, dense: false, read_bytes: READ_BYTES_MIN, large: None, after_large: false }
    }

    /// The received bytes, without a large payload.
    pub fn front(&self) -> &[u8] {
        &self.bytes
    }

    /// Skips `length` bytes of [`Inbox::front`], which must have that many.
    pub fn skip(&mut self, length: usize) {
        self.bytes.advance(length);
    }

    /// Takes `length` bytes of [`Inbox::front`], which must have that many, to be kept.
    pub fn split(&mut self, length: usize) -> Bytes {
        let payload = self.bytes.split_to(length);
        if self.dense || length == 0 { payload } else { Buffer::copy_of(&payload) }
    }

    /// Expects a payload of the next `length` bytes: available ones are taken, and the rest is read after them.
    pub fn expect_payload(&mut self, length: usize) {
        let mut buffer = Buffer::new(length);
        let filled = self.bytes.len().min(length);
        buffer[..filled].copy_from_slice(&self.bytes.split_to(filled));
        self.large = Some(LargePayload { buffer, filled });
        self.after_large = true;
    }

    /// Whether an expected payload is incomplete.
    pub fn expects_payload(&self) -> bool {
        self.large.as_ref().is_some_and(|large| !large.is_complete())
    }

    /// The expected payload, if it is complete.
    pub fn take_payload(&mut self) -> Option<Bytes> {
        self.large.take_if(|large| large.is_complete()).map(|large| large.buffer.into_bytes())
    }

    /// Whether there are no bytes left to take.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.large.is_none()
    }

    /// Reads available bytes; returns their number, 0 at the end of the stream.
    pub fn poll_read<R: AsyncRead + Unpin>(&mut self, reader: &mut R, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Some(large) = self.large.as_mut().filter(|large| !large.is_complete()) {
            let count = ready!(poll_into(reader, &mut large.buffer[large.filled..], cx))?;
            large.filled += count;
            return Poll::Ready(Ok(count));
        }
        let before = self.bytes.len();
        let capacity = match self.read_bytes {
            _ if self.after_large => before + HEADER_READ_BYTES,
            room if before > room / 2 => before + room,
            room => room,
        };
        // Not kept while waiting: an idle peer needs no buffer.
        let mut buffer = Buffer::new(capacity);
        let count = ready!(poll_into(reader, &mut buffer[before..], cx))?;
        if !self.after_large {
            let filled = before + count;
            // The size decreases by halves, so that a single pause does not make it minimal.
            let next = if filled == capacity { 2 * capacity } else { filled.max(self.read_bytes / 2) };
            self.read_bytes = next.clamp(READ_BYTES_MIN, READ_BYTES_MAX).next_power_of_two();
        }
        // Small messages follow in the usual way.
        self.after_large = false;
        buffer[..before].copy_from_slice(&self.bytes);
        buffer.truncate(before + count);
        self.bytes = buffer.into_bytes();
        self.dense = before + count >= capacity / 2 && is_well_placed(&self.bytes);
        Poll::Ready(Ok(count))
    }

    /// [`Inbox::poll_read`] as a future; it may be cancelled at any time.
    pub async fn read<R: AsyncRead + Unpin>(&mut self, reader: &mut R) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(reader, cx)).await
    }
}

/// Whether a copy would not improve the location: where shared memory is used but has run out for this size, a copy may fit
/// another size.
fn is_well_placed(bytes: &[u8]) -> bool {
    crate::buffer::has_shared_memory() == shared_offset(bytes).is_some()
}

fn poll_into<R: AsyncRead + Unpin>(reader: &mut R, to: &mut [u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    let mut to = ReadBuf::new(to);
    ready!(Pin::new(reader).poll_read(cx, &mut to))?;
    Poll::Ready(Ok(to.filled().len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Length-prefixed messages (four bytes) in any fragmentation.
    #[tokio::test]
    async fn messages_stay_whole_and_in_order() {
        let lengths = [3_usize, 100_000, 0, 70_000, 70_000, 5, 300_000, 1];
        let lengths: Vec<usize> = lengths.into_iter().chain([4096; 300]).chain([100_000, 7]).collect();
        let mut all = Vec::new();
        for (nth, length) in lengths.iter().enumerate() {
            all.extend((*length as u32).to_be_bytes());
            all.extend((0..*length).map(|at| (at * 7 + nth) as u8));
        }
        for piece in [37, 4096, 65_536, 1 << 20] {
            // A reader that returns `piece` bytes at a time.
            let (mut writer, mut reader) = tokio::io::duplex(piece);
            let sent = all.clone();
            tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut writer, &sent).await });
            // The first bytes arrived earlier.
            let mut first = [0; 2];
            tokio::io::AsyncReadExt::read_exact(&mut reader, &mut first).await.expect("it comes");
            let (mut inbox, mut came) = (Inbox::new(Bytes::copy_from_slice(&first)), Vec::new());
            let mut wanted = None;
            while came.len() < lengths.len() {
                if let Some(message) = inbox.take_payload() {
                    came.push(message);
                    wanted = None;
                    continue;
                }
                if wanted.is_none()
                    && inbox.large.is_none()
                    && let Some(head) = inbox.front().first_chunk()
                {
                    let length = u32::from_be_bytes(*head) as usize;
                    inbox.skip(4);
                    wanted = Some(length);
                    if length > 10_000 {
                        inbox.expect_payload(length);
                    }
                    continue;
                }
                if let Some(length) = wanted.filter(|length| inbox.large.is_none() && inbox.front().len() >= *length) {
                    came.push(inbox.split(length));
                    wanted = None;
                    continue;
                }
                let read = inbox.read(&mut reader).await.expect("it comes");
                assert!(read > 0, "message {}", came.len());
            }
            for (nth, (length, message)) in lengths.iter().zip(&came).enumerate() {
                assert!(message.len() == *length, "{piece}: message {nth} has {} bytes", message.len());
                assert!(message.iter().enumerate().all(|(at, byte)| *byte == (at * 7 + nth) as u8));
            }
            assert!(inbox.is_empty());
        }
    }

    #[tokio::test]
    async fn small_part_of_a_large_buffer_is_copied() {
        let (mut writer, mut reader) = tokio::io::duplex(1 << 20);
        let mut inbox = Inbox::new(Bytes::new());
        for (length, within) in [(4096, false), (READ_BYTES_MIN, true), (100, false)] {
            tokio::io::AsyncWriteExt::write_all(&mut writer, &vec![7; length]).await.expect("it has room");
            let read = inbox.read(&mut reader).await.expect("it comes");
            assert_eq!(read, length);
            let stands = inbox.front().as_ptr();
            let kept = inbox.split(length);
            assert_eq!(kept.as_ptr() == stands, within, "{length} bytes");
            assert!(kept.iter().all(|byte| *byte == 7));
        }
    }
}
