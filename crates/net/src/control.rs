//! The control protocol between the two ends of a run: frames of JSON, each behind its length (32 bits, big-endian).
//!
//! ```text
//! client                               server
//! Hello {oldest, newest}  ----------->           versions; the first message never changes its form
//!                         <-----------  Welcome {version}   or Refused {why}
//! Ping x 20               <---------->  Pong     what the other clock says (see `offset`)
//! Start {spec}            ----------->           what is wanted
//!                         <-----------  Ready {token}       or Refused {why}
//! data connections, each announced by the token, to the same address and port
//! Go                      ----------->           both begin
//! (Stop                   ----------->           the user wants an end now)
//!                         <-----------  Samples ..., Report {what it saw}
//! Start ... or the end of the connection
//! ```
//!
//! A connection says in its first eight bytes what it is for: [`CONTROL`], [`DATA`], or the beginning of TLS. So one port
//! does for everything. JSON, because reports are read by people who look into a protocol, and because a run sends few
//! messages: nothing goes over it while data flows but the exchange of clocks of a UDP run.
//!
//! Nothing of what comes is trusted: a frame is at most [`MAX_FRAME`] long, its text is JSON of a known message or an
//! error, and a [`Spec`] is checked before it is acted upon.

use crate::outcome::EndReport;
use crate::spec::{Direction, Spec};
use crate::tcp_info::TcpSample;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The versions of the protocol that this program speaks, oldest and newest.
/// Version 1: the first. 2: readings by turns, which an end of version 1 would not know and read always. 3: two more
/// figures in each reading, whose clock an end's times are of, and what its interface carried.
pub const VERSIONS: (u32, u32) = (3, 3);
/// The first bytes of a control connection that is not encrypted.
pub const CONTROL: &[u8; 8] = b"FATHOMct";
/// The first bytes of a connection that carries data; its [`Announcement`] follows.
pub const DATA: &[u8; 8] = b"FATHOMdt";
/// No frame is longer.
pub const MAX_FRAME: u32 = 16 << 20;
/// Readings in a frame.
pub const SAMPLES_IN_FRAME: usize = 10_000;
/// How long the other end may be silent when it has nothing to wait for.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A run's token: who knows it may bring data.
pub type Token = [u8; 16];

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Message {
    /// The first words of the client. No later version may change them.
    Hello {
        /// The oldest version it speaks.
        oldest: u32,
        /// The newest.
        newest: u32,
        /// What it is, such as `Fathom 0.2.0`.
        program: String,
    },
    /// The answer.
    Welcome {
        /// The version that both speak from here on.
        version: u32,
        /// What it is.
        program: String,
    },
    /// No common version.
    Skew {
        /// The oldest version that the server speaks.
        oldest: u32,
        /// The newest.
        newest: u32,
        /// What it is.
        program: String,
    },
    /// No, and why. The connection stays.
    Refused {
        /// A sentence.
        why: String,
    },
    /// Asks for the time of the other clock.
    Ping {
        /// The client's clock.
        asked_ns: u64,
    },
    /// This.
    Pong {
        /// As it came.
        asked_ns: u64,
        /// When it came, by the answerer's clock.
        came_ns: u64,
        /// When the answer left.
        left_ns: u64,
    },
    /// A run is wanted.
    Start {
        /// What.
        spec: Spec,
    },
    /// Bring the data connections.
    Ready {
        /// Hexadecimal.
        token: String,
    },
    /// All are there: begin.
    Go,
    /// End the run now and report; ignored if it is over already.
    Stop,
    /// Readings of a direction's sender, in order.
    Samples {
        /// Which.
        direction: Direction,
        /// Whether they are those of each acknowledgement.
        acks: bool,
        /// The readings.
        samples: Vec<TcpSample>,
    },
    /// What this end saw; the last message of a run.
    Report {
        /// All but the readings.
        report: Box<EndReport>,
    },
}

/// What is wrong with a message, in a few words.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// It is none.
    #[error("a message that cannot be read ({0})")]
    Unreadable(#[source] serde_json::Error),
    /// It has no text.
    #[error(transparent)]
    Unwritable(serde_json::Error),
    /// It fits no frame.
    #[error("a message of {bytes} bytes is too long")]
    TooLong {
        /// Its length with that of its frame.
        bytes: usize,
    },
}

impl Message {
    /// The message in a frame.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(frame: &[u8]) -> std::result::Result<Self, MessageError> {
        serde_json::from_slice(frame).map_err(MessageError::Unreadable)
    }

    /// The frame of a message: its length, then its text.
    ///
    /// # Errors
    /// That it is too long.
    pub fn frame(&self) -> std::result::Result<Vec<u8>, MessageError> {
        let mut frame = vec![0; 4];
        serde_json::to_writer(&mut frame, self).map_err(MessageError::Unwritable)?;
        let length = u32::try_from(frame.len() - 4).ok().filter(|n| *n <= MAX_FRAME);
        let length = length.ok_or(MessageError::TooLong { bytes: frame.len() })?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        Ok(frame)
    }
}

/// What a data connection says behind [`DATA`], and a flow of UDP in its first packet: which run and which place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    /// The run's.
    pub token: Token,
    /// Which way its data goes.
    pub direction: Direction,
    /// Its number in that direction.
    pub stream: u16,
}

impl Announcement {
    /// Its length on the wire, behind [`DATA`].
    pub const LENGTH: usize = 19;

    /// As it goes over the wire, [`DATA`] included.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = DATA.to_vec();
        bytes.extend(self.token);
        bytes.push(u8::from(self.direction == Direction::Down));
        bytes.extend(self.stream.to_be_bytes());
        bytes
    }

    /// What stands behind [`DATA`]; `None` if it is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LENGTH] = bytes.get(..Self::LENGTH)?.try_into().ok()?;
        let direction = match bytes[16] {
            0 => Direction::Up,
            1 => Direction::Down,
            _ => return None,
        };
        let token = bytes[..16].try_into().ok()?;
        Some(Self { token, direction, stream: u16::from_be_bytes([bytes[17], bytes[18]]) })
    }
}

/// A token as text.
pub fn token_text(token: &Token) -> String {
    token.iter().map(|b| format!("{b:02x}")).collect()
}

/// A token from its text.
pub fn token_of(text: &str) -> Option<Token> {
    let mut token = Token::default();
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in token.iter_mut().zip((0..32).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(token)
}

/// A connection that bytes go through, encrypted or not.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// A control connection.
pub struct Channel {
    stream: Box<dyn Stream>,
    peer: SocketAddr,
    /// What has come and is not read yet, so that a wait can be given up at any moment.
    come: Vec<u8>,
}

impl Channel {
    /// Over a connection whose first eight bytes are done with.
    pub fn new(stream: Box<dyn Stream>, peer: SocketAddr) -> Self {
        Self { stream, peer, come: Vec::new() }
    }

    /// Whom it goes to.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sends.
    ///
    /// # Errors
    /// [`Error::Broken`], [`Error::Stalled`] if the other end takes nothing for [`PATIENCE`].
    pub async fn send(&mut self, message: &Message, doing: &'static str) -> Result<()> {
        let frame = message.frame().map_err(|why| Error::Protocol(why.to_string(), self.peer))?;
        let sent = async {
            self.stream.write_all(&frame).await?;
            self.stream.flush().await
        };
        match tokio::time::timeout(PATIENCE, sent).await {
            Ok(sent) => sent.map_err(|source| Error::Broken { doing, source }),
            Err(_) => Err(Error::Stalled { doing, waited: PATIENCE }),
        }
    }

    /// Receives, or `None` at the end of the connection. If it is given up half-way, nothing is lost.
    ///
    /// # Errors
    /// [`Error::Broken`], [`Error::Protocol`], [`Error::Stalled`] after `patience`.
    pub async fn next(&mut self, patience: Duration, doing: &'static str) -> Result<Option<Message>> {
        match tokio::time::timeout(patience, self.read(doing)).await {
            Ok(read) => read,
            Err(_) => Err(Error::Stalled { doing, waited: patience }),
        }
    }

    /// Receives a message that must come.
    ///
    /// # Errors
    /// As [`Channel::next`]; an end of the connection is [`Error::Broken`], and [`Message::Refused`] is
    /// [`Error::Refused`].
    pub async fn expect(&mut self, patience: Duration, doing: &'static str) -> Result<Message> {
        match self.next(patience, doing).await? {
            Some(Message::Refused { why }) => Err(Error::Refused(why)),
            Some(message) => Ok(message),
            None => Err(Error::Broken { doing, source: std::io::ErrorKind::UnexpectedEof.into() }),
        }
    }

    /// The error for a message that does not belong here.
    pub fn unexpected(&self, message: &Message, doing: &str) -> Error {
        let text = serde_json::to_value(message).ok().and_then(|v| Some(v.get("is")?.as_str()?.to_string()));
        Error::Protocol(format!("`{}` came while {doing}", text.unwrap_or_default()), self.peer)
    }

    async fn read(&mut self, doing: &'static str) -> Result<Option<Message>> {
        let broken = |source| Error::Broken { doing, source };
        loop {
            if let Some((length, rest)) = self.come.split_first_chunk() {
                let length = u32::from_be_bytes(*length);
                if length > MAX_FRAME {
                    return Err(Error::Protocol(format!("a frame of {length} bytes"), self.peer));
                }
                if let Some(frame) = rest.get(..length as usize) {
                    let message = Message::parse(frame).map_err(|why| Error::Protocol(why.to_string(), self.peer));
                    self.come.drain(..4 + length as usize);
                    return message.map(Some);
                }
            }
            // It grows as bytes come, so that a length alone takes no memory.
            if self.stream.read_buf(&mut self.come).await.map_err(broken)? == 0 {
                return match self.come.len() {
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

/// What this program calls itself.
pub fn program() -> String {
    format!("Fathom {}", env!("CARGO_PKG_VERSION"))
}

/// The version that ranges have in common: the newest that both speak.
pub fn common(ours: (u32, u32), theirs: (u32, u32)) -> Option<u32> {
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
        assert_eq!(common((1, 1), (1, 1)), Some(1));
        assert_eq!(common((1, 3), (2, 9)), Some(3));
        assert_eq!(common((2, 3), (1, 1)), None);
        assert_eq!(common((1, 1), (2, 2)), None);
        assert_eq!(common((1, 1), (9, 0)), None);
    }

    #[test]
    fn announcement_round_trips() {
        let a = Announcement { token: [7; 16], direction: Direction::Down, stream: 300 };
        let bytes = a.bytes();
        assert_eq!((&bytes[..8], Announcement::parse(&bytes[8..])), (&DATA[..], Some(a)));
        assert_eq!(Announcement::parse(&bytes[9..]), None);
        let mut wrong = bytes[8..].to_vec();
        wrong[16] = 2;
        assert_eq!(Announcement::parse(&wrong), None);
        assert_eq!(token_of(&token_text(&a.token)), Some(a.token));
        assert!(token_of("zz").is_none() && token_of(&"ü".repeat(16)).is_none() && token_of(&"g".repeat(32)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn eof_truncation_and_stall_of_channel_have_own_errors() {
        let doing = "testing";
        let (a, b) = tokio::io::duplex(1 << 16);
        let (mut a, mut b) = (Channel::new(Box::new(a), peer()), Channel::new(Box::new(b), peer()));
        a.send(&Message::Go, doing).await.unwrap();
        a.send(&Message::Refused { why: "no".into() }, doing).await.unwrap();
        assert_eq!(b.next(PATIENCE, doing).await.unwrap(), Some(Message::Go));
        assert!(matches!(b.expect(PATIENCE, doing).await, Err(Error::Refused(why)) if why == "no"));
        assert!(matches!(b.next(PATIENCE, doing).await, Err(Error::Stalled { .. })));
        drop(a);
        assert_eq!(b.next(PATIENCE, doing).await.unwrap(), None);

        let (mut raw, b) = tokio::io::duplex(1 << 16);
        let mut b = Channel::new(Box::new(b), peer());
        raw.write_all(&[0, 0, 0, 9, b'{']).await.unwrap();
        drop(raw);
        assert!(matches!(b.next(PATIENCE, doing).await, Err(Error::Broken { .. })));

        let (mut raw, b) = tokio::io::duplex(1 << 16);
        let mut b = Channel::new(Box::new(b), peer());
        raw.write_all(b"HTTP/1.1 400 Bad Request\r\n").await.unwrap();
        let error = b.next(PATIENCE, doing).await.unwrap_err().to_string();
        assert!(error.contains("fathom net serve"), "{error}");
    }
}
