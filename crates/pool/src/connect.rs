//! How a coordinator reaches a node: over TCP, or over whatever else carries bytes both ways.
//!
//! Link and node know streams only. So encryption is a matter of who connects and who accepts, and tests run the very same
//! code on a network that they simulate.

use bytes::BytesMut;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use wire::Key;

/// Bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// A connection that is being made.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>>>>;

/// Makes connections to nodes.
pub type Connect = Rc<dyn Fn(SocketAddr) -> Connecting>;

/// Over TCP. What is written leaves at once: when to write is decided above it.
pub fn tcp() -> Connect {
    tcp_with(None)
}

/// Over TCP, and with a key encrypted and only to nodes that have it too. An error then carries a [`wire::Refused`].
pub fn tcp_with(key: Option<Key>) -> Connect {
    Rc::new(move |address| {
        let key = key.clone();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            match key {
                None => Ok(Box::new(stream) as Box<dyn Stream>),
                Some(key) => match wire::connect(Some(&key), stream).await {
                    Ok(stream) => Ok(Box::new(stream) as Box<dyn Stream>),
                    Err(refused) => Err(io::Error::other(refused)),
                },
            }
        })
    })
}

/// Room for what comes: one read of the socket should take all that is there.
const ROOM_BYTES: usize = 64 << 10;

/// Reads what has come behind `input`; 0 if nothing comes any more.
///
/// # Errors
/// What the connection said.
pub async fn read_more(reader: &mut (impl AsyncRead + Unpin), input: &mut BytesMut) -> io::Result<usize> {
    if input.capacity() - input.len() < ROOM_BYTES / 2 {
        input.reserve(ROOM_BYTES);
    }
    reader.read_buf(input).await
}
