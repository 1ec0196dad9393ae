//! Android devices through the local adb server, which has the user's USB and network connections, keys and pairing. It is
//! accessed with its own protocol (described by adb's OVERVIEW.TXT, SERVICES.TXT, SYNC.TXT and shell_service.h), so that
//! exit statuses, both outputs and every error arrive unmodified, and no human-readable output is parsed.
//!
//! | file | what |
//! |---|---|
//! | [`wire`] | the framing, over anything that can be read or written |
//! | `server` | sockets: requests to the server, and starting it |
//! | `shell` | a command on a device, as three streams and an exit status |
//! | `sync` | files to and from a device |

#[cfg(test)]
mod scripted;
pub(super) mod server;
pub(super) mod shell;
mod sync;
pub mod wire;

pub use server::{AdbServer, Failure, Tracker};
pub use sync::{AdbFile, AdbSync};
