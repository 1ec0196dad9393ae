//! How a coordinator reaches a node: over TCP, or over whatever else carries bytes both ways.
//!
//! Link and node know streams only. So encryption is a matter of who connects and who accepts, and tests run the very same
//! code on a network that they simulate.

use rustix::net::sockopt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use wire::Key;

/// Bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// A connection that is being made.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>>>>;

/// Makes connections to nodes.
pub type Connect = Rc<dyn Fn(SocketAddr) -> Connecting>;

/// After so long without a word the other end is asked whether it is there,
const SILENT: Duration = Duration::from_secs(30);
/// and again after so long,
const AGAIN: Duration = Duration::from_secs(10);
/// so many times, before the connection is given up.
const TIMES: u32 = 3;

/// What all TCP connections of a pool have: what is written leaves at once, for when to write is decided above it; and an end
/// that vanished without a word is missed within about a minute, although nothing is asked of it. Else a node would count a coordinator as
/// connected, and a coordinator a node as serving, for ever.
///
/// # Errors
/// The kernel's error; the connection works all the same.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENT)?;
    sockopt::set_tcp_keepintvl(stream, AGAIN)?;
    Ok(sockopt::set_tcp_keepcnt(stream, TIMES)?)
}

/// Over TCP.
pub fn tcp() -> Connect {
    tcp_with(None)
}

/// Over TCP, and with a key encrypted and only to nodes that have it too. An error then carries a [`wire::Refused`].
pub fn tcp_with(key: Option<Key>) -> Connect {
    Rc::new(move |address| {
        let key = key.clone();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            prepare(&stream)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn keepalive_probes_silent_peer() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        prepare(&stream).unwrap();
        assert!(stream.nodelay().unwrap() && sockopt::socket_keepalive(&stream).unwrap());
        let asked = (sockopt::tcp_keepidle(&stream), sockopt::tcp_keepintvl(&stream), sockopt::tcp_keepcnt(&stream));
        assert_eq!(asked, (Ok(SILENT), Ok(AGAIN), Ok(TIMES)));
    }
}
