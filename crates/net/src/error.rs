//! Errors between two ends, with messages that suggest a remedy.

use std::net::SocketAddr;
use std::time::Duration;

/// Why a run could not start or finish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server is unreachable.
    #[error("cannot reach {address}: {source}{}", hint(source))]
    Unreachable { address: SocketAddr, source: std::io::Error },
    /// Listening on the address failed.
    #[error("cannot listen on {address}: {source}{}", hint(source))]
    Listen { address: SocketAddr, source: std::io::Error },
    /// The other end ended the connection, or it broke.
    #[error("the connection to the other end broke while {doing}: {source}")]
    Broken {
        /// The step in progress.
        doing: &'static str,
        source: std::io::Error,
    },
    /// The other end does not respond.
    #[error(
        "no message from the other end for {} s while {doing}; it stalled or died, or the network is down",
        waited.as_secs()
    )]
    Stalled {
        /// The step in progress.
        doing: &'static str,
        /// How long this end waited.
        waited: Duration,
    },
    /// The ends have no key in common.
    #[error("{0}")]
    Key(wire::AuthenticationError),
    /// A key file cannot be read.
    #[error(transparent)]
    KeyFile(#[from] wire::KeyError),
    /// The other end uses other versions of the protocol.
    #[error(
        "the other end ({program}) speaks versions {} to {} of the protocol, this one {} to {}; use the same Fathom on both",
        theirs.0, theirs.1, ours.0, ours.1
    )]
    Version {
        /// Its oldest and newest version.
        theirs: (u32, u32),
        ours: (u32, u32),
        /// Name and version of the other end.
        program: String,
    },
    /// The other end rejected the request.
    #[error("the other end refused: {0}")]
    Refused(String),
    /// A message of the other end is invalid.
    #[error("the other end does not speak Fathom's protocol: {0}; is {1} the address of `fathom net serve`?")]
    Protocol(String, SocketAddr),
    /// The requested run is not possible.
    #[error(transparent)]
    Spec(#[from] crate::spec::SpecError),
    /// Acknowledgements cannot be recorded.
    #[error(transparent)]
    Probe(#[from] crate::probe::ProbeError),
    /// Without a key, anyone who can reach the address could use the server.
    #[error(
        "{0} is not a loopback address, so a key is required: make one with `fathom pool keygen FILE`, \
         copy it to both ends, and give --key FILE (without a key, listen on 127.0.0.1 or ::1)"
    )]
    NeedsKey(SocketAddr),
    /// This machine has no such interface to send from.
    #[error("{0}")]
    Interface(String),
    /// An incoming connection does not belong to this server.
    #[error("{0}")]
    Stranger(&'static str),
    /// UDP supports one run at a time.
    #[error(
        "the server's UDP port {port} is in use by another UDP run or another program; wait, or serve on another port"
    )]
    UdpBusy { port: u16 },
    /// UDP packets do not arrive.
    #[error("{0}")]
    NoUdp(String),
    /// A part of the run panicked or was cancelled.
    #[error("{doing}{source}")]
    Task {
        /// The failed part, if the source's text does not name it.
        doing: &'static str,
        source: tokio::task::JoinError,
    },
    /// Setting a socket option failed.
    #[error("cannot set {what}: {source}{remedy}")]
    Setting {
        what: String,
        source: std::io::Error,
        /// How to fix it.
        remedy: &'static str,
    },
    /// This end has no such congestion control, and it could not be provided.
    #[error("cannot use the congestion control: {0}")]
    Congestion(#[source] crate::cc::Error),
    /// A data connection ended too early.
    #[error("data connection {stream} ended {after:.1} s after the start: {why}")]
    Data {
        stream: u16,
        /// Seconds after the start.
        after: f64,
        why: String,
    },
    /// A search found nothing.
    #[error("{0}")]
    Search(String),
    /// The result could not be passed between processes.
    #[error("the result cannot be passed between processes: {0}")]
    HandOver(#[source] serde_json::Error),
    /// The user interrupted the run.
    #[error("interrupted")]
    Interrupted,
    #[error("cannot {doing}: {source}")]
    Io { doing: &'static str, source: std::io::Error },
}

impl Error {
    /// Whether the client can recover by requesting another run; any other error ends the session.
    pub(crate) fn is_recoverable(&self) -> bool {
        use Error as E;
        matches!(self, E::Setting { .. } | E::Listen { .. } | E::Congestion(_) | E::Spec(_) | E::Probe(_))
            || matches!(self, E::UdpBusy { .. } | E::NoUdp(_) | E::Task { .. })
    }
}

fn hint(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind as K;
    match error.kind() {
        K::ConnectionRefused => "; start `fathom net serve --listen ADDR` there first, or check the port",
        K::AddrInUse => "; another program uses this port: stop it, or choose another port",
        K::AddrNotAvailable => "; this machine has no such address: `ip address` lists its addresses",
        K::PermissionDenied => "; ports below 1024 need root: choose a higher one, or check the firewall",
        K::TimedOut | K::HostUnreachable | K::NetworkUnreachable => "; check the address, the route and the firewall",
        _ => "",
    }
}

/// Result with the errors of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds the failed operation to an error.
pub(crate) trait OperationContext<T> {
    fn doing(self, what: &'static str) -> Result<T>;
}

impl From<tokio::task::JoinError> for Error {
    fn from(source: tokio::task::JoinError) -> Self {
        Self::Task { doing: "", source }
    }
}

impl<T> OperationContext<T> for std::io::Result<T> {
    fn doing(self, what: &'static str) -> Result<T> {
        self.map_err(|source| Error::Io { doing: what, source })
    }
}
