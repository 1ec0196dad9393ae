//! Why nodes could not be started or measured.

use std::io;
use std::process::ExitStatus;

/// Why not.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A process cannot be started.
    #[error("cannot start {what}")]
    Start {
        /// Which.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A node ended before it listened, with its messages.
    #[error("a node did not start: {0}")]
    Node(String),
    /// The medium between them cannot be made.
    #[error("the emulated link (omit --link to use loopback)")]
    Medium(#[source] io::Error),
    /// More bytes than the paper's protocol has addresses for.
    #[error(transparent)]
    NotAddressable(#[from] crate::paper::coordinator::NotAddressable),
    /// A process failed; the reason is on stderr.
    #[error("{what} failed: {status}")]
    Failed {
        /// Which.
        what: &'static str,
        /// How it ended.
        status: ExitStatus,
    },
    /// What a process printed is something else.
    #[error("what {what} printed cannot be read")]
    Printed {
        /// Which.
        what: &'static str,
        /// Why not.
        source: serde_json::Error,
    },
    /// A node computed nothing that counts.
    #[error("{0}")]
    Nothing(&'static str),
}

/// The result of what may go wrong here.
pub type Result<T> = std::result::Result<T, Error>;
