//! Android devices through the local adb server, which has the USB and network connections, the keys and the pairing of its user. It is
//! spoken to in its own protocol (adb's OVERVIEW.TXT, SERVICES.TXT, SYNC.TXT and shell_service.h describe it), so that exit statuses,
//! both outputs and every refusal arrive as they are, and no text of a command for people is parsed.
//!
//! | file | what |
//! |---|---|
//! | [`wire`] | the framing, over anything that can be read or written |
//! | `server` | sockets: what the server is asked, and how it is started |
//! | `shell` | a command on a device, as three streams and an end |
//! | `sync` | files to and from a device |

#[cfg(test)]
mod scripted;
pub(super) mod server;
pub(super) mod shell;
mod sync;
pub mod wire;

pub use server::{AdbServer, Failure, Tracker};
pub use sync::{AdbFile, AdbSync};
