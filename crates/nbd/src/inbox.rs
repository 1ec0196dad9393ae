//! A peer's bytes on their way in, read to where they stay: a client's requests, a coordinator's and a node's frames.
//!
//! What has come is read into a buffer that is used again ([`Buffer`]), and a payload is a slice of it: it is not copied. A buffer is
//! read into once, and comes back when the last of its payloads is done with. So it should be about as large as what comes at once: the
//! last reads suggest. Of one that was filled by less than half the payloads are copied, so that what is kept for a peer is at most twice what it
//! has under way.
//!
//! The end of a buffer is as a rule the begin of a message, which is copied to the front of the next buffer. A large payload that is expected
//! ([`Inbox::expect`]) is read into a buffer of exactly its length.

use crate::buffer::{Buffer, place};
use bytes::{Buf as _, Bytes};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes that are read at once: at least, and at most.
const LEAST_BYTES: usize = 32 << 10;
const MOST_BYTES: usize = 256 << 10;
/// Where a large message is likely to follow: a few heads'.
const HEAD_ROOM: usize = 512;

/// A payload that is read to where it stays.
#[derive(Debug)]
struct Large {
    buffer: Buffer,
    filled: usize,
}

impl Large {
    fn is_whole(&self) -> bool {
        self.filled == self.buffer.len()
    }
}

/// Bytes that came and were not taken yet.
#[derive(Debug)]
pub struct Inbox {
    bytes: Bytes,
    /// Slices of it may be kept.
    dense: bool,
    /// Bytes to read at once.
    room: usize,
    large: Option<Large>,
    /// The last message was large, and so the next one may be: of what is read now, much would have to be moved.
    after_large: bool,
}

impl Inbox {
    /// With what has come already.
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, dense: false, room: LEAST_BYTES, large: None, after_large: false }
    }

    /// What came, but for a large payload.
    pub fn front(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets so many of [`Inbox::front`], which has as many.
    pub fn skip(&mut self, length: usize) {
        self.bytes.advance(length);
    }

    /// Takes so many of [`Inbox::front`], which has as many, to be kept.
    pub fn split(&mut self, length: usize) -> Bytes {
        let payload = self.bytes.split_to(length);
        if self.dense || length == 0 { payload } else { Buffer::copy_of(&payload) }
    }

    /// The next `length` bytes are one payload: those that are there are taken, and the rest will be read behind them.
    pub fn expect(&mut self, length: usize) {
        let mut buffer = Buffer::new(length);
        let filled = self.bytes.len().min(length);
        buffer[..filled].copy_from_slice(&self.bytes.split_to(filled));
        self.large = Some(Large { buffer, filled });
        self.after_large = true;
    }

    /// Whether a payload is expected that has not come whole.
    pub fn expects(&self) -> bool {
        self.large.as_ref().is_some_and(|large| !large.is_whole())
    }

    /// The payload that was expected, if it is whole.
    pub fn take(&mut self) -> Option<Bytes> {
        self.large.take_if(|large| large.is_whole()).map(|large| large.buffer.share())
    }

    /// Whether nothing has come that was not taken.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.large.is_none()
    }

    /// Reads what has come; how much it was, 0 if nothing comes any more.
    ///
    /// # Errors
    /// The connection's error.
    pub fn poll_read<R: AsyncRead + Unpin>(&mut self, reader: &mut R, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Some(large) = self.large.as_mut().filter(|large| !large.is_whole()) {
            let count = ready!(poll_into(reader, &mut large.buffer[large.filled..], cx))?;
            large.filled += count;
            return Poll::Ready(Ok(count));
        }
        let before = self.bytes.len();
        let whole = match self.room {
            _ if self.after_large => before + HEAD_ROOM,
            room if before > room / 2 => before + room,
            room => room,
        };
        // Not kept while nothing comes: an idle peer needs none.
        let mut buffer = Buffer::new(whole);
        let count = ready!(poll_into(reader, &mut buffer[before..], cx))?;
        if !self.after_large {
            let filled = before + count;
            // It shrinks by halves: a pause must not make it small at once.
            let next = if filled == whole { 2 * whole } else { filled.max(self.room / 2) };
            self.room = next.clamp(LEAST_BYTES, MOST_BYTES).next_power_of_two();
        }
        // What is small follows in the usual way.
        self.after_large = false;
        buffer[..before].copy_from_slice(&self.bytes);
        buffer.truncate(before + count);
        self.bytes = buffer.share();
        self.dense = before + count >= whole / 2 && is_best(&self.bytes);
        Poll::Ready(Ok(count))
    }

    /// [`Inbox::poll_read`], to be waited for; it may be given up at any time.
    ///
    /// # Errors
    /// The connection's error.
    pub async fn read<R: AsyncRead + Unpin>(&mut self, reader: &mut R) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(reader, cx)).await
    }
}

/// Whether a copy would stand nowhere better: where memory is shared with others and has run out for this size, it has not for all.
fn is_best(bytes: &[u8]) -> bool {
    crate::buffer::is_given() == place(bytes).is_some()
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
                if let Some(message) = inbox.take() {
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
                        inbox.expect(length);
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
    async fn small_part_of_large_buffer_is_copied() {
        let (mut writer, mut reader) = tokio::io::duplex(1 << 20);
        let mut inbox = Inbox::new(Bytes::new());
        for (length, within) in [(4096, false), (LEAST_BYTES, true), (100, false)] {
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
