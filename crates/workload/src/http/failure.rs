//! Why a request of the client failed, and what can be done about it.

use super::response::Malformed;
use rustix::io::Errno;
use std::net::SocketAddr;

/// What was tried on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// To connect.
    Connect,
    /// To send the request.
    Send,
    /// To receive the response.
    Receive,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect to",
            Self::Send => "send to",
            Self::Receive => "receive from",
        })
    }
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The kernel's answer.
    #[error("cannot {at} {address}: {}{}", std::io::Error::from(*errno), advice(*address, *errno))]
    System {
        /// What was tried.
        at: Step,
        /// The server.
        address: SocketAddr,
        /// What the kernel said.
        errno: Errno,
    },
    /// What came is no response.
    #[error("{address}: {why}")]
    Malformed {
        /// The server.
        address: SocketAddr,
        /// Why not.
        why: Malformed,
    },
    /// The response has another status than the expected one.
    #[error("{address} answered with status {found} instead of {expected} (--status)")]
    Status {
        /// The server.
        address: SocketAddr,
        /// The status that came.
        found: u16,
        /// The one that must come.
        expected: u16,
    },
    /// The body is not the first response's.
    #[error("{address} answered with a different body ({found} bytes) than at first ({expected} bytes)")]
    Body {
        /// The server.
        address: SocketAddr,
        /// Bytes that came.
        found: usize,
        /// Bytes of the first body.
        expected: usize,
    },
    /// The first body is too large to keep.
    #[error("{address}: the body is larger than {most} bytes")]
    LargeBody {
        /// The server.
        address: SocketAddr,
        /// The largest that is kept.
        most: usize,
    },
    /// No whole response in time.
    #[error(
        "no complete response from {address} within {timeout_ms} ms ({received} bytes received); --timeout-ms sets the limit"
    )]
    Late {
        /// The server.
        address: SocketAddr,
        /// The limit.
        timeout_ms: u64,
        /// Bytes that had come.
        received: u64,
    },
}

/// What can be done about an error of the system.
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

/// Why the client itself could not work; what the server did is a [`Failure`].
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A histogram could not be made.
    #[error("cannot make a histogram: {0}")]
    Histogram(#[from] hdrhistogram::CreationError),
    /// Histograms of threads could not be added.
    #[error("cannot add histograms: {0}")]
    Addition(#[from] hdrhistogram::AdditionError),
    /// epoll refused.
    #[error("cannot wait for the network: {0}")]
    Epoll(#[from] std::io::Error),
    /// A thread panicked.
    #[error("a thread of the client panicked")]
    Panicked,
}

impl From<ClientError> for crate::Error {
    fn from(error: ClientError) -> Self {
        Self::Failed(error.to_string())
    }
}
