//! A child that is traced from the gate to its exec, so that its program can be met before its first instruction.
//!
//! It is traced by the thread that began it, and by nobody else. If the recorder dies meanwhile, the child does too: a command never
//! runs unrecorded behind its user's back. Signals that come before the exec are handed on; a stop by Ctrl-Z lasts until it is ended.

use libc::{c_int, c_void, pid_t};
use std::io;

/// As ptrace takes them: C libraries differ.
#[cfg(target_env = "musl")]
pub(crate) type Request = libc::c_int;
/// See above.
#[cfg(not(target_env = "musl"))]
pub(crate) type Request = libc::c_uint;

/// A process that this thread traces; let go when this is dropped.
pub(super) struct Traced(pid_t);

/// How far a child came.
pub(super) enum Reached {
    /// It is stopped in its new program.
    Exec(Traced),
    /// It ended, with this status.
    Ended(c_int),
    /// It cannot be waited for.
    Lost(io::Error),
}

impl Traced {
    /// From now on; it goes on.
    pub(super) fn begin(pid: pid_t) -> io::Result<Self> {
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;
        ask(libc::PTRACE_SEIZE, pid, options as usize)?;
        Ok(Self(pid))
    }

    /// Waits until it has become its program.
    pub(super) fn reach_exec(self) -> Reached {
        let pid = self.0;
        loop {
            let mut status = 0;
            // SAFETY: waits for a child that this thread traces; the status is valid memory.
            if unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Reached::Lost(error);
            }
            if !libc::WIFSTOPPED(status) {
                // Nobody is left to be let go.
                std::mem::forget(self);
                return Reached::Ended(status);
            }
            let signal = libc::WSTOPSIG(status);
            let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
            // What fails here fails because it was killed, which the next turn is told.
            let _ = match status >> 16 {
                libc::PTRACE_EVENT_EXEC => return Reached::Exec(self),
                libc::PTRACE_EVENT_STOP if stops => ask(libc::PTRACE_LISTEN, pid, 0),
                0 => ask(libc::PTRACE_CONT, pid, signal as usize),
                _ => ask(libc::PTRACE_CONT, pid, 0),
            };
        }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // It is stopped, or was killed.
        let _ = ask(libc::PTRACE_DETACH, self.0, 0);
    }
}

fn ask(request: Request, pid: pid_t, data: usize) -> io::Result<()> {
    // SAFETY: these requests take numbers only.
    let done = unsafe { libc::ptrace(request, pid, std::ptr::null_mut::<c_void>(), data as *mut c_void) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
