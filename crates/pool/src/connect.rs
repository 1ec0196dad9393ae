//! Connections from a coordinator to a node: over TCP, or over any other byte stream.
//!
//! Link and node only use streams. So encryption is decided where a connection is made or accepted, and tests run the same
//! code on a simulated network.

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

pub trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

pub type ConnectFuture = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>>>>;

/// Opens connections to nodes.
pub type Connect = Rc<dyn Fn(SocketAddr) -> ConnectFuture>;

/// Idle time after which keepalive probes are sent,
const KEEPALIVE_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// the interval between them,
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// and how many may be lost before the connection is closed.
const KEEPALIVE_PROBES_MAX: u32 = 3;

/// Sets the options of all TCP connections of a pool: writes are sent at once, since batching is decided at a higher level;
/// and a peer that vanished silently is detected within about a minute, even without requests. Otherwise a node would
/// regard a coordinator as connected, and a coordinator a node as serving, for ever.
///
/// # Errors
/// The kernel's error; the connection works nevertheless.
pub fn set_tcp_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE_TIMEOUT)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    Ok(sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES_MAX)?)
}

pub fn tcp() -> Connect {
    tcp_with_key(None)
}

/// Connects over TCP; with a key, encrypted and only to nodes that have it too. An error then contains a [`wire::AuthenticationError`].
pub fn tcp_with_key(key: Option<Key>) -> Connect {
    Rc::new(move |address| {
        let key = key.clone();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            set_tcp_options(&stream)?;
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
    async fn keepalive_probes_a_silent_peer() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        set_tcp_options(&stream).unwrap();
        assert!(stream.nodelay().unwrap() && sockopt::socket_keepalive(&stream).unwrap());
        let asked = (sockopt::tcp_keepidle(&stream), sockopt::tcp_keepintvl(&stream), sockopt::tcp_keepcnt(&stream));
        assert_eq!(asked, (Ok(KEEPALIVE_IDLE_TIMEOUT), Ok(KEEPALIVE_INTERVAL), Ok(KEEPALIVE_PROBES_MAX)));
    }
}
