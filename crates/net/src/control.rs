//! The control protocol between the two ends of a run: frames of JSON, each behind its length (32 bits, big-endian).
//!
//! ```text
//! client                               server
//! Hello {oldest, newest}  ----------->           versions; the first message never changes its form
//!                         <-----------  Welcome {version}   or Skew {oldest, newest}
//! Ping x 20               <---------->  Pong     compares the clocks (see `offset`)
//! Start {spec}            ----------->           requests a run
//!                         <-----------  Ready {token}       or Refused {why}
//! data connections, each announced by the token, to the same address and port
//! Go                      ----------->           both begin
//! (Stop                   ----------->           the user ends the run early)
//!                         <-----------  Samples ..., Report {measurements}
//! Start ... or the end of the connection
//! ```
//!
//! The first eight bytes of a connection determine its purpose: [`CONTROL_MAGIC`], [`DATA_MAGIC`], or the beginning of
//! TLS. So one port suffices for everything. The messages are JSON because people who debug a protocol read them, and
//! because a run sends few messages: while data flows, this connection carries at most a `Stop`.
//!
//! The input is not trusted: a frame has at most [`FRAME_BYTES_MAX`] bytes, its text is JSON of a known message or an
//! error, and a [`Spec`] is checked before it is used.

use crate::outcome::EndReport;
use crate::spec::{Direction, Spec};
use crate::tcp_info::TcpSample;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The versions of the protocol that this program supports, oldest and newest.
/// Version 1: the first. 2: alternating sampling, which an end of version 1 would not recognise and always sample. 3: two
/// more fields in each sample, the name of an end's clock, and the bytes that its interface carried. 4: more fields in each
/// sample.
pub const PROTOCOL_VERSIONS: (u32, u32) = (4, 4);
/// The first bytes of a control connection that is not encrypted.
pub const CONTROL_MAGIC: &[u8; 8] = b"FATHOMct";
/// The first bytes of a data connection; its [`Announcement`] follows.
pub const DATA_MAGIC: &[u8; 8] = b"FATHOMdt";
/// The maximum length of a frame.
pub const FRAME_BYTES_MAX: u32 = 16 << 20;
/// Samples in a frame.
pub const FRAME_SAMPLES_MAX: usize = 10_000;
/// How long the other end may be silent when it has nothing to wait for.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// The token of a run: a client that has it may open data connections.
pub type Token = [u8; 16];

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Message {
    /// The client's first message. No later version may change its format.
    Hello {
        /// The oldest version that the client supports.
        oldest: u32,
        newest: u32,
        /// Name and version of the client, such as `Fathom 0.2.0`.
        program: String,
    },
    Welcome {
        /// The version that both ends use from here on.
        version: u32,
        /// Name and version of the server.
        program: String,
    },
    /// No common version.
    Skew {
        /// The oldest version that the server supports.
        oldest: u32,
        newest: u32,
        /// Name and version of the server.
        program: String,
    },
    /// Request rejected. The connection stays open.
    Refused {
        /// Why, as a sentence.
        why: String,
    },
    /// Requests the time of the other clock.
    Ping {
        /// The client's clock.
        asked_ns: u64,
    },
    /// The response to [`Message::Ping`].
    Pong {
        /// Copied from the ping.
        asked_ns: u64,
        /// When the ping arrived, by the responder's clock.
        came_ns: u64,
        /// When the response was sent.
        left_ns: u64,
    },
    Start {
        spec: Spec,
    },
    /// Open the data connections.
    Ready {
        /// The token in hexadecimal.
        token: String,
    },
    /// All connections are open: begin.
    Go,
    /// End the run now and report; ignored if it is over already.
    Stop,
    /// Samples of a direction's sender, in order.
    Samples {
        direction: Direction,
        /// Whether there is one sample per acknowledgement.
        acks: bool,
        samples: Vec<TcpSample>,
    },
    /// The measurements of this end; the last message of a run.
    Report {
        /// Everything but the samples.
        report: Box<EndReport>,
    },
}

/// What is wrong with a message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// It is not a valid message.
    #[error("an invalid message ({0})")]
    Unreadable(#[source] serde_json::Error),
    /// It cannot be written as JSON.
    #[error(transparent)]
    Unwritable(serde_json::Error),
    /// It does not fit into a frame.
    #[error("a message of {bytes} bytes is too long")]
    TooLong {
        /// Its length, including the length prefix.
        bytes: usize,
    },
}

impl Message {
    /// Parses the message in a frame.
    pub fn parse(frame: &[u8]) -> std::result::Result<Self, MessageError> {
        serde_json::from_slice(frame).map_err(MessageError::Unreadable)
    }

    /// The frame of a message: its length, then its JSON.
    ///
    /// # Errors
    /// The message is too long.
    pub fn frame(&self) -> std::result::Result<Vec<u8>, MessageError> {
        let mut frame = vec![0; 4];
        serde_json::to_writer(&mut frame, self).map_err(MessageError::Unwritable)?;
        let length = u32::try_from(frame.len() - 4).ok().filter(|n| *n <= FRAME_BYTES_MAX);
        let length = length.ok_or(MessageError::TooLong { bytes: frame.len() })?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        Ok(frame)
    }
}

/// What follows [`DATA_MAGIC`] on a data connection, and the first packet of a UDP flow: which run, direction and
/// stream it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    /// The token of the run.
    pub token: Token,
    /// The direction of its data.
    pub direction: Direction,
    /// Its number in that direction.
    pub stream: u16,
}

impl Announcement {
    /// Length on the wire, after [`DATA_MAGIC`].
    pub const ENCODED_BYTES: usize = 19;

    /// The encoded form, including [`DATA_MAGIC`].
    pub fn encoded(&self) -> Vec<u8> {
        let mut bytes = DATA_MAGIC.to_vec();
        bytes.extend(self.token);
        bytes.push(u8::from(self.direction == Direction::Down));
        bytes.extend(self.stream.to_be_bytes());
        bytes
    }

    /// Parses what follows [`DATA_MAGIC`]; `None` if it is invalid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::ENCODED_BYTES] = bytes.get(..Self::ENCODED_BYTES)?.try_into().ok()?;
        let direction = match bytes[16] {
            0 => Direction::Up,
            1 => Direction::Down,
            _ => return None,
        };
        let token = bytes[..16].try_into().ok()?;
        Some(Self { token, direction, stream: u16::from_be_bytes([bytes[17], bytes[18]]) })
    }
}

/// Formats a token as text.
pub fn format_token(token: &Token) -> String {
    token.iter().map(|b| format!("{b:02x}")).collect()
}

pub fn parse_token(text: &str) -> Option<Token> {
    let mut token = Token::default();
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in token.iter_mut().zip((0..32).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(token)
}

/// A byte stream, encrypted or not.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// A control connection.
pub struct Channel {
    stream: Box<dyn Stream>,
    peer: SocketAddr,
    /// Bytes received but not yet parsed, so that a read can be cancelled at any moment.
    received: Vec<u8>,
}

impl Channel {
    /// Creates a channel on a connection whose first eight bytes have been read.
    pub fn new(stream: Box<dyn Stream>, peer: SocketAddr) -> Self {
        Self { stream, peer, received: Vec::new() }
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Error::Broken`], [`Error::Stalled`] if the other end accepts nothing for [`PEER_TIMEOUT`].
    pub async fn send(&mut self, message: &Message, doing: &'static str) -> Result<()> {
        let frame = message.frame().map_err(|why| Error::Protocol(why.to_string(), self.peer))?;
        let sent = async {
            self.stream.write_all(&frame).await?;
            self.stream.flush().await
        };
        match tokio::time::timeout(PEER_TIMEOUT, sent).await {
            Ok(sent) => sent.map_err(|source| Error::Broken { doing, source }),
            Err(_) => Err(Error::Stalled { doing, waited: PEER_TIMEOUT }),
        }
    }

    /// Receives a message, or `None` at the end of the connection. A cancelled call loses nothing.
    ///
    /// # Errors
    /// [`Error::Broken`], [`Error::Protocol`], [`Error::Stalled`] after `timeout`.
    pub async fn receive(&mut self, timeout: Duration, doing: &'static str) -> Result<Option<Message>> {
        match tokio::time::timeout(timeout, self.receive_message(doing)).await {
            Ok(read) => read,
            Err(_) => Err(Error::Stalled { doing, waited: timeout }),
        }
    }

    /// Receives a message; the end of the connection is an error.
    ///
    /// # Errors
    /// As [`Channel::receive`]; an end of the connection is [`Error::Broken`], and [`Message::Refused`] is
    /// [`Error::Refused`].
    pub async fn require(&mut self, timeout: Duration, doing: &'static str) -> Result<Message> {
        match self.receive(timeout, doing).await? {
            Some(Message::Refused { why }) => Err(Error::Refused(why)),
            Some(message) => Ok(message),
            None => Err(Error::Broken { doing, source: std::io::ErrorKind::UnexpectedEof.into() }),
        }
    }

    /// The error for a message that is not valid at this point.
    pub fn unexpected_message(&self, message: &Message, doing: &str) -> Error {
        let text = serde_json::to_value(message).ok().and_then(|v| Some(v.get("is")?.as_str()?.to_string()));
        Error::Protocol(format!("`{}` came while {doing}", text.unwrap_or_default()), self.peer)
    }

    async fn receive_message(&mut self, doing: &'static str) -> Result<Option<Message>> {
        let broken = |source| Error::Broken { doing, source };
        loop {
            if let Some((length, rest)) = self.received.split_first_chunk() {
                let length = u32::from_be_bytes(*length);
                if length > FRAME_BYTES_MAX {
                    return Err(Error::Protocol(format!("a frame of {length} bytes"), self.peer));
                }
                if let Some(frame) = rest.get(..length as usize) {
                    let message = Message::parse(frame).map_err(|why| Error::Protocol(why.to_string(), self.peer));
                    self.received.drain(..4 + length as usize);
                    return message.map(Some);
                }
            }
            // The buffer grows as bytes arrive, so a large length alone allocates no memory.
            if self.stream.read_buf(&mut self.received).await.map_err(broken)? == 0 {
                return match self.received.len() {
                    0 => Ok(None),
                    _ => Err(broken(std::io::ErrorKind::UnexpectedEof.into())),
                };
            }
        }
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// Name and version of this program.
pub fn program_version() -> String {
    format!("Fathom {}", env!("CARGO_PKG_VERSION"))
}

/// The newest version that both ends support.
pub fn newest_common_version(ours: (u32, u32), theirs: (u32, u32)) -> Option<u32> {
    let newest = ours.1.min(theirs.1);
    (newest >= ours.0.max(theirs.0)).then_some(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> SocketAddr {
        "192.0.2.1:1".parse().unwrap()
    }

    #[test]
    fn newest_common_version_is_chosen() {
        assert_eq!(newest_common_version((1, 1), (1, 1)), Some(1));
        assert_eq!(newest_common_version((1, 3), (2, 9)), Some(3));
        assert_eq!(newest_common_version((2, 3), (1, 1)), None);
        assert_eq!(newest_common_version((1, 1), (2, 2)), None);
        assert_eq!(newest_common_version((1, 1), (9, 0)), None);
    }

    #[test]
    fn announcement_round_trips() {
        let a = Announcement { token: [7; 16], direction: Direction::Down, stream: 300 };
        let bytes = a.encoded();
        assert_eq!((&bytes[..8], Announcement::parse(&bytes[8..])), (&DATA_MAGIC[..], Some(a)));
        assert_eq!(Announcement::parse(&bytes[9..]), None);
        let mut wrong = bytes[8..].to_vec();
        wrong[16] = 2;
        assert_eq!(Announcement::parse(&wrong), None);
        assert_eq!(parse_token(&format_token(&a.token)), Some(a.token));
        assert!(
            parse_token("zz").is_none()
                && parse_token(&"ü".repeat(16)).is_none()
                && parse_token(&"g".repeat(32)).is_none()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn eof_truncation_and_stall_have_errors_of_their_own() {
        let doing = "testing";
        let (a, b) = tokio::io::duplex(1 << 16);
        let (mut a, mut b) = (Channel::new(Box::new(a), peer()), Channel::new(Box::new(b), peer()));
        a.send(&Message::Go, doing).await.unwrap();
        a.send(&Message::Refused { why: "no".into() }, doing).await.unwrap();
        assert_eq!(b.receive(PEER_TIMEOUT, doing).await.unwrap(), Some(Message::Go));
        assert!(matches!(b.require(PEER_TIMEOUT, doing).await, Err(Error::Refused(why)) if why == "no"));
        assert!(matches!(b.receive(PEER_TIMEOUT, doing).await, Err(Error::Stalled { .. })));
        drop(a);
        assert_eq!(b.receive(PEER_TIMEOUT, doing).await.unwrap(), None);

        let (mut raw, b) = tokio::io::duplex(1 << 16);
        let mut b = Channel::new(Box::new(b), peer());
        raw.write_all(&[0, 0, 0, 9, b'{']).await.unwrap();
        drop(raw);
        assert!(matches!(b.receive(PEER_TIMEOUT, doing).await, Err(Error::Broken { .. })));

        let (mut raw, b) = tokio::io::duplex(1 << 16);
        let mut b = Channel::new(Box::new(b), peer());
        raw.write_all(b"HTTP/1.1 400 Bad Request\r\n").await.unwrap();
        let error = b.receive(PEER_TIMEOUT, doing).await.unwrap_err().to_string();
        assert!(error.contains("fathom net serve"), "{error}");
    }
}
