//! A command on a device, as seen from here: three streams, and a process that can be waited for and killed. Behind them is a process of
//! this machine (`sh`, `ip netns exec`, `ssh`) or a connection to the adb server.

use std::io::{Read, Write};
use std::process::Child;
use std::time::Duration;

/// A command that was started.
pub(super) struct Pipe {
    /// Its input; dropping it ends it.
    pub to: Box<dyn Write + Send>,
    /// Its output.
    pub from: Box<dyn Read + Send>,
    /// Its complaints, and those of the transport.
    pub complaints: Box<dyn Read + Send>,
    /// How it is.
    pub life: Box<dyn Life>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// By itself, or by a signal (128 and its number).
    Exit(i32),
    /// The transport broke: why.
    Lost(Broke),
}

/// Why a command, or what leads to it, is no more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broke {
    /// The connection to the device ended, or failed so.
    #[error("the connection to the device broke{}", .0.as_ref().map_or_else(String::new, |why| format!(": {why}")))]
    Connection(Option<String>),
    /// The command ended with this status.
    #[error("exit status {0}")]
    Status(i32),
    /// Something else.
    #[error("{0}")]
    Other(String),
}

impl Broke {
    /// An error of the connection.
    pub fn by(error: &std::io::Error) -> Self {
        Self::Connection(Some(error.to_string()))
    }
}

/// A command's life.
pub(super) trait Life: Send {
    /// Waits for its end, at most `limit`.
    fn wait(&mut self, limit: Duration) -> Option<Ending>;
    /// Ends it, or at least the connection to it.
    fn kill(&mut self);
}

impl Life for Child {
    fn wait(&mut self, limit: Duration) -> Option<Ending> {
        let status = match child::wait_timeout(self, limit) {
            Ok(None) => return None,
            Ok(Some(status)) => status,
            Err(error) => return Some(Ending::Lost(Broke::Other(error.to_string()))),
        };
        Some(Ending::Exit(child::shell_status(status)))
    }

    fn kill(&mut self) {
        let _ = Child::kill(self);
        let _ = Child::wait(self);
    }
}
