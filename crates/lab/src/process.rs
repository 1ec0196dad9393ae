//! Processes that do not outlive whoever started them.

use std::io::Error;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The kernel ends the process when the thread that starts it ends, by whatever signal.
pub fn end_with_us(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only a system call without pointers.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(Error::last_os_error()),
        })
    }
}
