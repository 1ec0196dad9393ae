//! How a coordinator reaches a node: over TCP, or over whatever else carries bytes both ways.
//!
//! Link and node know streams only. So encryption is a matter of who connects and who accepts, and tests run the very same
//! code on a network that they simulate.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// A connection that is being made.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>>>>;

/// Makes connections to nodes.
pub type Connect = Rc<dyn Fn(SocketAddr) -> Connecting>;

/// Over TCP. What is written leaves at once: when to write is decided above it.
pub fn tcp() -> Connect {
    Rc::new(|address| {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    })
}
