//! A command on a device, as used by the host: three streams, and a process that can be waited for and killed. It is
//! implemented by a process of this machine (`sh`, `ip netns exec`, `ssh`) or a connection to the adb server.

use std::io::{Read, Write};
use std::process::Child;
use std::time::Duration;

pub(super) struct Pipe {
    /// Its input; dropping it closes it.
    pub to: Box<dyn Write + Send>,
    pub from: Box<dyn Read + Send>,
    /// Its error output, and that of the transport.
    pub complaints: Box<dyn Read + Send>,
    /// Its process.
    pub life: Box<dyn Life>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// It exited, or was killed by a signal (128 plus its number).
    Exit(i32),
    /// The transport broke, and why.
    Lost(LossCause),
}

/// Why a command, or the connection to it, has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LossCause {
    /// The connection to the device ended, or failed with this error.
    #[error("the connection to the device broke{}", .0.as_ref().map_or_else(String::new, |why| format!(": {why}")))]
    Connection(Option<String>),
    /// The command exited with this status.
    #[error("exit status {0}")]
    Status(i32),
    #[error("{0}")]
    Other(String),
}

impl LossCause {
    /// Converts an error of the connection.
    pub fn from_error(error: &std::io::Error) -> Self {
        Self::Connection(Some(error.to_string()))
    }
}

/// The process of a command.
pub(super) trait Life: Send {
    /// Waits for its exit, at most `limit`.
    fn wait(&mut self, limit: Duration) -> Option<Ending>;
    /// Kills it, or at least closes the connection to it.
    fn kill(&mut self);
}

impl Life for Child {
    fn wait(&mut self, limit: Duration) -> Option<Ending> {
        let status = match child::wait_timeout(self, limit) {
            Ok(None) => return None,
            Ok(Some(status)) => status,
            Err(error) => return Some(Ending::Lost(LossCause::Other(error.to_string()))),
        };
        Some(Ending::Exit(child::shell_status(status)))
    }

    fn kill(&mut self) {
        let _ = Child::kill(self);
        let _ = Child::wait(self);
    }
}
