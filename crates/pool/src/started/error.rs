//! Why nodes could not be started or measured.

use std::io;
use std::process::ExitStatus;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A process cannot be started.
    #[error("cannot start {what}")]
    Start { what: &'static str, source: io::Error },
    /// A node exited before it listened, with its messages.
    #[error("a node did not start: {0}")]
    Node(String),
    /// The medium between them cannot be created.
    #[error("the emulated link (omit --link to use loopback)")]
    Medium(#[source] io::Error),
    /// The nodes exceed the addresses of the paper's protocol.
    #[error(transparent)]
    NotAddressable(#[from] crate::paper::coordinator::NotAddressable),
    /// A process failed; the reason is on stderr.
    #[error("{what} failed: {status}")]
    Failed { what: &'static str, status: ExitStatus },
    /// The output of a process is invalid.
    #[error("cannot read the output of {what}")]
    Printed { what: &'static str, source: serde_json::Error },
    /// A node completed no valid computation.
    #[error("{0}")]
    Nothing(&'static str),
}

/// Result with the errors of this module.
pub type Result<T> = std::result::Result<T, Error>;
