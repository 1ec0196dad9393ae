//! Bytes on their way in: small messages side by side in one buffer, a large one straight into a buffer of its own.
//!
//! What comes is read into one buffer, as much as there is, and messages are taken from its front. When a message says that it
//! is large, [`Intake::expect`] moves what has come of it into a buffer of its length, and the rest is read to where it stays: the
//! socket's copy is the only one.

use crate::buffer::Buffer;
use bytes::{BufMut as _, Bytes, BytesMut};
use std::future::Future as _;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

/// Bytes that are read at once where a large message is likely to follow: a few heads'.
const HEAD_ROOM: usize = 512;

/// A message that is read to where it stays.
#[derive(Debug)]
struct Large {
    buffer: Buffer,
    filled: usize,
}

/// Bytes that came and were not taken yet.
#[derive(Debug, Default)]
pub struct Intake {
    /// What came, but for a large message.
    pub small: BytesMut,
    large: Option<Large>,
    /// The last message was large, and so the next one may be: of what is read now, much would have to be moved.
    after_large: bool,
}

impl Intake {
    /// With what has come already.
    pub fn new(small: BytesMut) -> Self {
        Self { small, ..Self::default() }
    }

    /// The next `length` bytes are one message: those that are there are taken, and the rest will be read behind them.
    pub fn expect(&mut self, length: usize) {
        let mut buffer = Buffer::new(length);
        let filled = self.small.len().min(length);
        buffer[..filled].copy_from_slice(&self.small.split_to(filled));
        self.large = Some(Large { buffer, filled });
        self.after_large = true;
    }

    /// Whether a message is expected that has not come whole.
    pub fn expects(&self) -> bool {
        self.large.as_ref().is_some_and(|large| large.filled < large.buffer.len())
    }

    /// The message that was expected, if it is whole.
    pub fn take(&mut self) -> Option<Bytes> {
        self.large.take_if(|large| large.filled == large.buffer.len()).map(|large| large.buffer.share())
    }

    /// Whether nothing has come that was not taken.
    pub fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_none()
    }

    /// Reads what has come, if there is room for `room` bytes of small messages; how much it was, 0 if nothing comes any more.
    ///
    /// # Errors
    /// What the connection said.
    pub fn poll_read<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut R,
        room: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Some(Large { buffer, filled }) = self.large.as_mut().filter(|large| large.filled < large.buffer.len()) {
            let mut rest = ReadBuf::new(&mut buffer[*filled..]);
            ready!(Pin::new(reader).poll_read(cx, &mut rest))?;
            let count = rest.filled().len();
            *filled += count;
            return Poll::Ready(Ok(count));
        }
        if self.small.capacity() - self.small.len() < room / 4 {
            self.small.reserve(room);
        }
        let room = if self.after_large { HEAD_ROOM } else { usize::MAX };
        let count = ready!(pin!(reader.read_buf(&mut (&mut self.small).limit(room))).poll(cx))?;
        // What is small follows in the usual way.
        self.after_large = false;
        Poll::Ready(Ok(count))
    }

    /// [`Intake::poll_read`], to be waited for; it may be given up at any time.
    ///
    /// # Errors
    /// What the connection said.
    pub async fn read<R: AsyncRead + Unpin>(&mut self, reader: &mut R, room: usize) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_read(reader, room, cx)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of a length (four bytes) and so many bytes, however the stream is cut.
    #[tokio::test]
    async fn large_and_small_messages_come_out_in_order_and_whole() {
        let lengths = [3_usize, 100_000, 0, 70_000, 70_000, 5, 300_000, 1];
        let mut all = Vec::new();
        for (nth, length) in lengths.iter().enumerate() {
            all.extend((*length as u32).to_be_bytes());
            all.extend((0..*length).map(|at| (at * 7 + nth) as u8));
        }
        for piece in [37, 4096, 65_536, 1 << 20] {
            // A reader that gives so many bytes at a time.
            let (mut writer, mut reader) = tokio::io::duplex(piece);
            let sent = all.clone();
            tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut writer, &sent).await });
            let (mut intake, mut came) = (Intake::default(), Vec::new());
            let mut wanted = None;
            while came.len() < lengths.len() {
                if let Some(message) = intake.take() {
                    came.push(message);
                    wanted = None;
                    continue;
                }
                if wanted.is_none() && !intake.expects() && intake.small.len() >= 4 {
                    let head = intake.small.split_to(4);
                    wanted = Some(u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize);
                    if wanted > Some(1000) {
                        intake.expect(wanted.unwrap_or_default());
                    }
                    continue;
                }
                if let Some(length) = wanted.filter(|length| !intake.expects() && intake.small.len() >= *length) {
                    came.push(intake.small.split_to(length).freeze());
                    wanted = None;
                    continue;
                }
                assert!(intake.read(&mut reader, 64 << 10).await.expect("it comes") > 0);
            }
            for (nth, (length, message)) in lengths.iter().zip(&came).enumerate() {
                assert!(message.len() == *length, "{piece}: message {nth} has {} bytes", message.len());
                assert!(message.iter().enumerate().all(|(at, byte)| *byte == (at * 7 + nth) as u8));
            }
            assert!(intake.is_empty());
        }
    }
}
