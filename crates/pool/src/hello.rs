//! What coordinator and node say first: one message each, `FPH1`, its length (u32, little-endian) and that much JSON.
//!
//! A coordinator first **looks**, which changes nothing: who is it, how large, whose was it last? When all nodes have answered
//! it **claims** each, with an epoch that is higher than any of theirs. From then on the node serves this connection alone;
//! one that claimed it before is ended, and what it asked for is done or dropped before the new one is welcomed, so that no
//! old write can land on a newer one. A refusal says why.
//!
//! The welcome to a claim begins a **session**. A further connection of the same coordinator claims the node with that session's
//! number: it ends nothing, and is ended with the session.

use crate::frame;
use crate::protocol::{Claim, StorePosition};
use crate::refusal::Refusal;
use bytes::{Buf, BufMut, BytesMut};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use wire::Refused::KeyWanted;

const MAGIC: u32 = u32::from_le_bytes(*b"FPH1");
/// The longest message: names that a store's header has room for, twice, and a sentence. It is what a stranger can make us keep.
const MAX_BYTES: usize = 16 << 10;

/// From the coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Of the frames that follow.
    pub protocol: u8,
    /// Its name.
    pub pool: String,
    /// None: it only looks.
    pub claim: Option<Claim>,
}

/// From the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Go on.
    Welcome(Welcome),
    /// Why not.
    Refused(String),
}

/// What the node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Its name.
    pub node: String,
    /// The pool that it belongs to; empty if it is new.
    pub pool: String,
    /// Its place there.
    pub place: Option<StorePosition>,
    /// The highest epoch that it has served.
    pub epoch: u64,
    /// Bytes of data.
    pub size_bytes: u64,
    /// Requests that may be under way.
    pub granted: u16,
    /// Changes when the machine starts anew: what was not flushed may be gone then.
    pub boot: String,
    /// The session that was claimed or joined; 0 if the other end only looks.
    pub session: u64,
    /// Whether a coordinator is connected now, besides the other end. A node of an older release does not say.
    #[serde(default)]
    pub served: bool,
    /// Pool and place are put down, and whether all its nodes have got that far is not known: nothing was written yet.
    #[serde(default)]
    pub reserved: bool,
    /// A pool's coordinator has claimed it, and all of it reads as zeroes. A node of an older release does not say.
    #[serde(default)]
    pub empty: bool,
    /// What it has answered may not be flushed.
    #[serde(default)]
    pub unflushed: bool,
    /// Where answered writes may be lost, since its machine was started anew before they were flushed: first byte and bytes.
    #[serde(default)]
    pub lost: Vec<(u64, u64)>,
    /// It has found the memory that was offered: requests over this connection may say where in it their data are.
    #[serde(default)]
    pub memory: bool,
}

/// Why there is no message.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection broke.
    #[error("the connection failed: {0}")]
    Connection(io::Error),
    /// It is not known whether the other end may be trusted, or it is known that it may not.
    #[error(transparent)]
    NotTrusted(#[from] wire::Refused),
    /// The other end is something else.
    #[error("the peer does not speak Fathom's pool protocol")]
    Stranger,
    /// It is gone.
    #[error("the peer closed the connection")]
    Closed,
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.downcast::<wire::Refused>() {
            Ok(wire::Refused::Connection(error)) | Err(error) => Self::Connection(error),
            Ok(refused) => Self::NotTrusted(refused),
        }
    }
}

/// Whether both speak the same frames.
///
/// # Errors
/// [`Refusal::Protocol`].
pub fn same_protocol(theirs: u8) -> Result<(), Refusal> {
    if theirs == frame::VERSION { Ok(()) } else { Err(Refusal::Protocol { theirs }) }
}

/// Appends a message.
pub fn put<T: Serialize>(out: &mut BytesMut, message: &T) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    if text.len() > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the names are too long for a greeting"));
    }
    out.put_u32_le(MAGIC);
    out.put_u32_le(text.len() as u32);
    out.put_slice(&text);
    Ok(())
}

/// Takes the next message, if it is there whole.
///
/// # Errors
/// [`Error::Stranger`].
pub fn take<T: DeserializeOwned>(input: &mut BytesMut) -> Result<Option<T>, Error> {
    let known = input.len().min(4);
    if input[..known] != MAGIC.to_le_bytes()[..known] {
        return Err(Error::Stranger);
    }
    let Some(mut head) = input.first_chunk::<8>().map(|head| &head[4..]) else { return Ok(None) };
    let length = head.get_u32_le() as usize;
    if length > MAX_BYTES {
        return Err(Error::Stranger);
    }
    if input.len() < 8 + length {
        return Ok(None);
    }
    input.advance(8);
    serde_json::from_slice(&input.split_to(length)).map(Some).map_err(|_| Error::Stranger)
}

/// Sends a message.
///
/// # Errors
/// The connection's error.
pub async fn send<S: AsyncWrite + Unpin, T: Serialize>(stream: &mut S, message: &T) -> Result<(), Error> {
    let mut out = BytesMut::new();
    put(&mut out, message)?;
    stream.write_all_buf(&mut out).await?;
    Ok(stream.flush().await?)
}

/// Waits for a message; what came after it stays in `input`.
///
/// # Errors
/// [`Error`].
pub async fn receive<S: AsyncRead + Unpin, T: DeserializeOwned>(
    stream: &mut S,
    input: &mut BytesMut,
) -> Result<T, Error> {
    loop {
        match take(input) {
            Ok(None) => {}
            Ok(Some(message)) => return Ok(message),
            Err(error) => {
                let KeyWanted = wire::stranger(input) else { return Err(error) };
                return Err(KeyWanted.into());
            }
        }
        if stream.read_buf(input).await? == 0 {
            return Err(Error::Closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_in_any_fragments() {
        let place = StorePosition { index: 1, count: 3, stripe_bytes: 65_536 };
        let claim = Claim {
            epoch: 7,
            coordinator: "c".into(),
            node: "n".into(),
            size_bytes: 1 << 30,
            place,
            joins: Some(3),
            also: crate::protocol::Also::default(),
        };
        let hello = Hello { protocol: 1, pool: "p".into(), claim: Some(claim) };
        let mut bytes = BytesMut::new();
        put(&mut bytes, &hello).expect("it is short");
        bytes.extend_from_slice(b"rest");
        for cut in 1..bytes.len() - 4 {
            assert!(take::<Hello>(&mut BytesMut::from(&bytes[..cut])).expect("a beginning").is_none());
        }
        assert_eq!(take::<Hello>(&mut bytes).expect("it is whole"), Some(hello));
        assert_eq!(&bytes[..], b"rest");
        for stranger in [&b"GET / HTTP/1.1"[..], b"FPH1\xff\xff\xff\xff", b"FPH1\x02\0\0\0{}"] {
            assert!(matches!(take::<Hello>(&mut BytesMut::from(stranger)), Err(Error::Stranger)));
        }
    }
}
