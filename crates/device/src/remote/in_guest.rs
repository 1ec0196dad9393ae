//! A service in a guest of the lab, which lives as long as its command does: so it is in the foreground, and an end that is asked for ends
//! both.

use model::Context;
use model::text::ShownPath as _;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often the guest is checked for its end.
const LOOK: Duration = Duration::from_millis(100);

/// Why there is no guest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoGuest {
    /// The folder that it shares.
    #[error("cannot create a folder: {0}")]
    Folder(io::Error),
    /// A file for it.
    #[error("cannot write {}: {}", .0.shown(), .1)]
    File(PathBuf, io::Error),
    /// The process.
    #[error("cannot start fathom lab exec: {0}")]
    Start(io::Error),
    /// Nobody knows how it is.
    #[error("cannot wait for fathom lab exec: {0}")]
    Wait(io::Error),
}

/// Boots the guest `name` and runs this program there with `words`, `files` being in its folder; its exit status.
///
/// # Errors
/// It cannot be started.
pub fn serve(name: &str, files: &[(String, Vec<u8>)], words: &[String], context: &Context) -> Result<u8, NoGuest> {
    // The guest's /share; only this user may enter it.
    let share = tempfile::tempdir().map_err(NoGuest::Folder)?;
    for (name, bytes) in files {
        let file = share.path().join(name);
        std::fs::write(&file, bytes).map_err(|e| NoGuest::File(file, e))?;
    }
    let mut guest = Command::new(std::env::current_exe().map_err(NoGuest::Start)?);
    guest.args(["lab", "exec", name, "-o"]).arg(share.path());
    guest.args(["--", "sh", "-c", "cd /share && exec fathom \"$@\"", "fathom"]).args(words);
    // Signals are ours to hand on: the folder goes when the guest has ended.
    guest.process_group(0).stdin(Stdio::null());
    let mut guest = child::end_with_us(&mut guest).spawn().map_err(NoGuest::Start)?;
    let mut stopping = false;
    let status = loop {
        if let Some(status) = child::wait_timeout(&mut guest, LOOK).map_err(NoGuest::Wait)? {
            break status;
        }
        if context.cancelled() && !stopping {
            stopping = true;
            // SAFETY: a signal to a child of ours that has not been waited for.
            unsafe { libc::kill(guest.id() as libc::pid_t, libc::SIGTERM) };
        }
    };
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
