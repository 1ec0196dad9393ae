//! Why a request of the client failed, and the remedy.

use super::response::MalformedResponse;
use rustix::io::Errno;
use std::net::SocketAddr;

/// An operation on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketOperation {
    Connect,
    Send,
    Receive,
}

impl std::fmt::Display for SocketOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect to",
            Self::Send => "send to",
            Self::Receive => "receive from",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// An error of the kernel.
    #[error("cannot {at} {address}: {}{}", std::io::Error::from(*errno), advice(*address, *errno))]
    System {
        /// The operation that failed.
        at: SocketOperation,
        address: SocketAddr,
        errno: Errno,
    },
    /// The received bytes are not a response.
    #[error("{address}: {why}")]
    Malformed { address: SocketAddr, why: MalformedResponse },
    /// The response has an unexpected status.
    #[error("{address} answered with status {found} instead of {expected} (--status)")]
    Status { address: SocketAddr, found: u16, expected: u16 },
    /// The body differs from that of the first response.
    #[error("{address} answered with a different body ({found} bytes) than at first ({expected} bytes)")]
    Body {
        address: SocketAddr,
        /// Bytes received.
        found: usize,
        /// Bytes of the first body.
        expected: usize,
    },
    /// The first body is too large to keep.
    #[error("{address}: the body is larger than {most} bytes")]
    LargeBody {
        address: SocketAddr,
        /// The largest that is kept.
        most: usize,
    },
    /// No complete response in time.
    #[error(
        "no complete response from {address} within {timeout_ms} ms ({received} bytes received); --timeout-ms sets the limit"
    )]
    Late {
        address: SocketAddr,
        timeout_ms: u64,
        /// Bytes received so far.
        received: u64,
    },
}

/// The remedy for an error of the system.
fn advice(address: SocketAddr, errno: Errno) -> String {
    match errno {
        Errno::CONNREFUSED => {
            format!(": no server is listening; start one with `fathom bench serve-http --listen {address}`")
        }
        Errno::ADDRNOTAVAIL => {
            ": out of local ports (TIME_WAIT); use --keep-alive on, a --rate, or fewer requests".into()
        }
        Errno::MFILE => ": too many open files; raise `ulimit -n` or use fewer --connections".into(),
        _ => String::new(),
    }
}

/// Why the client itself failed; failures of the server are a [`Failure`].
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A histogram could not be made.
    #[error("cannot make a histogram: {0}")]
    Histogram(#[from] hdrhistogram::CreationError),
    /// Histograms of threads could not be added.
    #[error("cannot add histograms: {0}")]
    Addition(#[from] hdrhistogram::AdditionError),
    #[error("cannot wait for the network: {0}")]
    Epoll(#[from] std::io::Error),
    #[error("a thread of the client panicked")]
    Panicked,
}

impl From<ClientError> for crate::Error {
    fn from(error: ClientError) -> Self {
        Self::Failed(error.to_string())
    }
}
