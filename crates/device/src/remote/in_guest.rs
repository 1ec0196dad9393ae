//! A service in a guest of the lab, which lives as long as its command: it runs in the foreground, and an interrupt ends both.

use model::Context;
use model::text::ShownPath as _;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often to check whether the guest has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Why the guest did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestError {
    /// Its shared directory cannot be created.
    #[error("cannot create a directory: {0}")]
    Directory(io::Error),
    /// A file for it cannot be written.
    #[error("cannot write {}: {}", .0.shown(), .1)]
    File(PathBuf, io::Error),
    /// The process cannot be started.
    #[error("cannot start fathom lab exec: {0}")]
    Start(io::Error),
    /// The process cannot be waited for.
    #[error("cannot wait for fathom lab exec: {0}")]
    Wait(io::Error),
}

/// Boots the guest `name` and runs this program there with `words`, and with `files` in its directory; returns its exit status.
///
/// # Errors
/// It cannot be started.
pub fn serve(name: &str, files: &[(String, Vec<u8>)], words: &[String], context: &Context) -> Result<u8, GuestError> {
    // The guest's /share; accessible only to this user.
    let share = tempfile::tempdir().map_err(GuestError::Directory)?;
    for (name, bytes) in files {
        let file = share.path().join(name);
        std::fs::write(&file, bytes).map_err(|e| GuestError::File(file, e))?;
    }
    let mut guest = Command::new(std::env::current_exe().map_err(GuestError::Start)?);
    guest.args(["lab", "exec", name, "-o"]).arg(share.path());
    guest.args(["--", "sh", "-c", "cd /share && exec fathom \"$@\"", "fathom"]).args(words);
    // Signals are forwarded by this process: the directory is removed when the guest has exited.
    guest.process_group(0).stdin(Stdio::null());
    let mut guest = child::kill_with_parent(&mut guest).spawn().map_err(GuestError::Start)?;
    let mut stopping = false;
    let status = loop {
        if let Some(status) = child::wait_timeout(&mut guest, POLL_INTERVAL).map_err(GuestError::Wait)? {
            break status;
        }
        if context.cancelled() && !stopping {
            stopping = true;
            // SAFETY: a signal to a child of this process that has not been waited for.
            unsafe { libc::kill(guest.id() as libc::pid_t, libc::SIGTERM) };
        }
    };
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
