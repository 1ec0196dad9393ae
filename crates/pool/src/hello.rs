//! The handshake of coordinator and node: one message each, consisting of `FPH1`, a length (u32, little-endian) and that much JSON.
//!
//! A coordinator first **looks**, which changes nothing: it learns the node's identity, size and last pool. When all nodes
//! have replied it **claims** each, with an epoch that is higher than any of theirs. From then on the node serves this
//! connection alone; an earlier claimant's connection is closed, and its requests are completed or dropped before the new
//! one is welcomed, so that no old write can overwrite a newer one. A refusal contains the reason.
//!
//! The welcome to a claim begins a **session**. Additional connections of the same coordinator claim the node with that
//! session's number: they close nothing, and are closed with the session.
//!
//! While requests of an earlier session are still being served, which may take minutes on a slow medium, the node repeats
//! that it has to **wait**. So a coordinator need not guess whether it is slow or gone.

use crate::frame;
use crate::protocol::{Claim, DiskPosition, Loss, StorePosition};
use crate::refusal::Refusal;
use bytes::{Buf, BufMut, BytesMut};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use wire::AuthenticationError::KeyWanted;

const MAGIC: u32 = u32::from_le_bytes(*b"FPH1");
/// The maximum message: room for the names of a store's header, twice, and a sentence. It bounds what a stranger can make us buffer.
const MESSAGE_BYTES_MAX: usize = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the frames that follow.
    pub protocol: u8,
    /// The name of the pool.
    pub pool: String,
    /// `None`: it only looks.
    pub claim: Option<Claim>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Welcome(Box<Welcome>),
    /// Refused, and why: for people, and not for good.
    Refused(String),
    /// Refused for good: another coordinator has claimed the node with a higher epoch; which, for people.
    Fenced(String),
    /// Another answer follows: requests of an earlier session are still being served.
    Wait(Wait),
}

impl From<&Refusal> for Answer {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Fenced { .. } => Self::Fenced(refusal.to_string()),
            other => Self::Refused(other.to_string()),
        }
    }
}

/// The state of a node whose coordinator has to wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// As in a [`frame::Report`].
    pub progress: u64,
}

/// The state of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub node: String,
    /// The pool that it belongs to; empty if it is new.
    pub pool: String,
    /// Its position there.
    pub place: Option<StorePosition>,
    /// The highest epoch that it has served.
    pub epoch: u64,
    /// Bytes of data.
    pub size_bytes: u64,
    /// The maximum number of outstanding requests.
    pub granted: u16,
    /// Changes when the machine restarts: unflushed writes may be lost then.
    pub boot: String,
    /// The session that was claimed or joined; 0 for a look.
    pub session: u64,
    /// Whether another coordinator is connected. A node of an older release does not report it.
    #[serde(default)]
    pub served: bool,
    /// Pool and position are recorded, but whether all nodes of the pool have got that far is unknown: nothing has been written yet.
    #[serde(default)]
    pub reserved: bool,
    /// All of it reads as zeroes, and it is not reserved. A node of an older release does not report it.
    #[serde(default)]
    pub empty: bool,
    /// Acknowledged writes may not be flushed.
    #[serde(default)]
    pub unflushed: bool,
    /// Where acknowledged writes may be lost, and why.
    #[serde(default)]
    pub loss: Loss,
    /// The sequence number of its store's header.
    #[serde(default)]
    pub sequence: u64,
    /// Another one for each process that opens the store.
    #[serde(default)]
    pub instance: String,
    /// Its file or device, for people.
    #[serde(default)]
    pub store: String,
    /// Its place on the disk, if it has been part of one.
    #[serde(default)]
    pub disk: Option<DiskPosition>,
    /// The node has mapped the offered memory: requests over this connection may refer to data in it.
    #[serde(default)]
    pub memory: bool,
    /// Whether its store is on a medium, and so may hold a copy of a mirrored pool. A node of an older release does not report it.
    #[serde(default)]
    pub durable: Option<bool>,
    /// What a coordinator on the same machine may read itself. A node of an older release does not offer it.
    #[serde(default)]
    pub files: Option<crate::store::FilesOffer>,
}

/// Why receiving a message failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the connection failed: {0}")]
    Connection(io::Error),
    /// The other end's trust cannot be established, or is refused.
    #[error(transparent)]
    NotTrusted(#[from] wire::AuthenticationError),
    /// The other end speaks another protocol.
    #[error("the peer does not speak Fathom's pool protocol")]
    Stranger,
    /// The other end closed the connection.
    #[error("the peer closed the connection")]
    Closed,
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.downcast::<wire::AuthenticationError>() {
            Ok(wire::AuthenticationError::Connection(error)) | Err(error) => Self::Connection(error),
            Ok(refused) => Self::NotTrusted(refused),
        }
    }
}

/// Checks that both ends use the same version of frames.
pub fn check_protocol(theirs: u8) -> Result<(), Refusal> {
    if theirs == frame::VERSION { Ok(()) } else { Err(Refusal::Protocol { theirs }) }
}

pub fn put_message<T: Serialize>(out: &mut BytesMut, message: &T) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    if text.len() > MESSAGE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the names are too long for a greeting"));
    }
    out.put_u32_le(MAGIC);
    out.put_u32_le(text.len() as u32);
    out.put_slice(&text);
    Ok(())
}

/// Takes the next message, if it is complete.
pub fn take_message<T: DeserializeOwned>(input: &mut BytesMut) -> Result<Option<T>, Error> {
    let known = input.len().min(4);
    if input[..known] != MAGIC.to_le_bytes()[..known] {
        return Err(Error::Stranger);
    }
    let Some(mut head) = input.first_chunk::<8>().map(|head| &head[4..]) else { return Ok(None) };
    let length = head.get_u32_le() as usize;
    if length > MESSAGE_BYTES_MAX {
        return Err(Error::Stranger);
    }
    if input.len() < 8 + length {
        return Ok(None);
    }
    input.advance(8);
    serde_json::from_slice(&input.split_to(length)).map(Some).map_err(|_| Error::Stranger)
}

/// Sends a message.
pub async fn send<S: AsyncWrite + Unpin, T: Serialize>(stream: &mut S, message: &T) -> Result<(), Error> {
    let mut out = BytesMut::new();
    put_message(&mut out, message)?;
    stream.write_all_buf(&mut out).await?;
    Ok(stream.flush().await?)
}

/// Waits for a message; any bytes after it stay in `input`.
pub async fn receive<S: AsyncRead + Unpin, T: DeserializeOwned>(
    stream: &mut S,
    input: &mut BytesMut,
) -> Result<T, Error> {
    receive_up_to(stream, input, |_| u64::MAX).await
}

/// Waits for a message, and reads nothing that comes after it.
pub async fn receive_alone<S: AsyncRead + Unpin, T: DeserializeOwned>(stream: &mut S) -> Result<T, Error> {
    let missing = |input: &BytesMut| {
        let length = input.first_chunk::<8>().map_or(0, |head| (&head[4..]).get_u32_le());
        (8 + u64::from(length)).saturating_sub(input.len() as u64)
    };
    receive_up_to(stream, &mut BytesMut::new(), missing).await
}

async fn receive_up_to<S: AsyncRead + Unpin, T: DeserializeOwned>(
    stream: &mut S,
    input: &mut BytesMut,
    most: impl Fn(&BytesMut) -> u64,
) -> Result<T, Error> {
    loop {
        match take_message(input) {
            Ok(None) => {}
            Ok(Some(message)) => return Ok(message),
            Err(error) => {
                let KeyWanted = wire::classify_stranger(input) else { return Err(error) };
                return Err(KeyWanted.into());
            }
        }
        let most = most(input);
        if (&mut *stream).take(most).read_buf(input).await? == 0 {
            return Err(Error::Closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_in_any_fragmentation() {
        let place = StorePosition { index: 1, count: 3, stripe_bytes: 65_536, mirror: None };
        let claim = Claim {
            epoch: 7,
            coordinator: "c".into(),
            node: "n".into(),
            size_bytes: 1 << 30,
            place,
            joins: Some(3),
            also: crate::protocol::ClaimExtensions::default(),
        };
        let hello = Hello { protocol: 1, pool: "p".into(), claim: Some(claim) };
        let mut bytes = BytesMut::new();
        put_message(&mut bytes, &hello).expect("it is short");
        bytes.extend_from_slice(b"rest");
        for cut in 1..bytes.len() - 4 {
            assert!(take_message::<Hello>(&mut BytesMut::from(&bytes[..cut])).expect("a beginning").is_none());
        }
        assert_eq!(take_message::<Hello>(&mut bytes).expect("it is whole"), Some(hello));
        assert_eq!(&bytes[..], b"rest");
        for stranger in [&b"GET / HTTP/1.1"[..], b"FPH1\xff\xff\xff\xff", b"FPH1\x02\0\0\0{}"] {
            assert!(matches!(take_message::<Hello>(&mut BytesMut::from(stranger)), Err(Error::Stranger)));
        }
    }
}
