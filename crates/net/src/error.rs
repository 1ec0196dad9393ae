//! What can go wrong between two ends, in messages with a remedy.

use std::net::SocketAddr;
use std::time::Duration;

/// Why a run could not be made, or not be finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody could be reached.
    #[error("cannot reach {address}: {source}{}", hint(source))]
    Unreachable {
        /// Whom.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}{}", hint(source))]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The other end ended the connection, or it broke.
    #[error("the connection to the other end broke while {doing}: {source}")]
    Broken {
        /// What was going on.
        doing: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The other end does not answer.
    #[error(
        "no message from the other end for {} s while {doing}; it stalled or died, or the network is down",
        waited.as_secs()
    )]
    Stalled {
        /// What was going on.
        doing: &'static str,
        /// How long was waited.
        waited: Duration,
    },
    /// The ends have no key in common.
    #[error("{0}")]
    Key(wire::Refused),
    /// A key cannot be read.
    #[error(transparent)]
    KeyFile(#[from] wire::KeyError),
    /// It speaks other versions of the protocol.
    #[error(
        "the other end ({program}) speaks versions {} to {} of the protocol, this one {} to {}; use the same Fathom on both",
        theirs.0, theirs.1, ours.0, ours.1
    )]
    Version {
        /// Its oldest and newest version.
        theirs: (u32, u32),
        /// Ours.
        ours: (u32, u32),
        /// What it calls itself.
        program: String,
    },
    /// The other end refuses.
    #[error("the other end refused: {0}")]
    Refused(String),
    /// Its message makes no sense.
    #[error("the other end does not speak Fathom's protocol: {0}; is {1} the address of `fathom net serve`?")]
    Protocol(String, SocketAddr),
    /// What is asked for cannot be.
    #[error(transparent)]
    Spec(#[from] crate::spec::SpecError),
    /// Acknowledgements cannot be recorded.
    #[error(transparent)]
    Probe(#[from] crate::probe::ProbeError),
    /// Whoever can reach the address could use it.
    #[error(
        "{0} is not a loopback address, so a key is required: make one with `fathom pool keygen FILE`, \
         copy it to both ends, and give --key FILE (without a key, listen on 127.0.0.1 or ::1)"
    )]
    NeedsKey(SocketAddr),
    /// No interface of this machine can be sent from by that name.
    #[error("{0}")]
    Interface(String),
    /// A connection came that is none of this server's.
    #[error("{0}")]
    Stranger(&'static str),
    /// UDP takes one run at a time.
    #[error(
        "the server's UDP port {port} is in use by another UDP run or another program; wait, or serve on another port"
    )]
    UdpBusy {
        /// The port.
        port: u16,
    },
    /// Packets of UDP do not arrive.
    #[error("{0}")]
    NoUdp(String),
    /// A part of the run panicked or was cancelled.
    #[error("{doing}{source}")]
    Task {
        /// What it was, if the text of its end does not say enough.
        doing: &'static str,
        /// How it ended.
        source: tokio::task::JoinError,
    },
    /// A socket did not take a setting.
    #[error("cannot set {what}: {source}{remedy}")]
    Setting {
        /// Which.
        what: String,
        /// Why.
        source: std::io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// This end has no such congestion control, and could not be given one.
    #[error("cannot use the congestion control: {0}")]
    Congestion(#[source] crate::cc::Error),
    /// A connection that carries data ended too early.
    #[error("data connection {stream} ended {after:.1} s after the start: {why}")]
    Data {
        /// Its number.
        stream: u16,
        /// Seconds.
        after: f64,
        /// Why.
        why: String,
    },
    /// A search came to nothing.
    #[error("{0}")]
    Search(String),
    /// What was measured could not be handed from process to process.
    #[error("the result cannot be handed over: {0}")]
    HandOver(#[source] serde_json::Error),
    /// Somebody asked for an end.
    #[error("interrupted")]
    Interrupted,
    /// Anything else.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What.
        doing: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

impl Error {
    /// Whether whoever asked for a run can ask for another one that works; anything else ends the session.
    pub(crate) fn is_askers(&self) -> bool {
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

/// The result of what may go wrong here.
pub type Result<T> = std::result::Result<T, Error>;

/// Says what was being done.
pub(crate) trait Doing<T> {
    fn doing(self, what: &'static str) -> Result<T>;
}

impl From<tokio::task::JoinError> for Error {
    fn from(source: tokio::task::JoinError) -> Self {
        Self::Task { doing: "", source }
    }
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, what: &'static str) -> Result<T> {
        self.map_err(|source| Error::Io { doing: what, source })
    }
}
