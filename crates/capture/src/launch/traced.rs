//! A child that is traced from the gate to its exec, so that its program can be met before its first instruction.
//!
//! It is traced by the thread that began it, and by nobody else. If the recorder dies meanwhile, the child does too: a command never
//! runs unrecorded behind its user's back. (What the command starts goes on, unless it is in the middle of being changed.) Signals that come before the exec are handed on; a stop by Ctrl-Z lasts until it is ended.

use libc::{c_int, c_void, pid_t};
use std::io;
use std::time::{Duration, Instant};

/// How long a process may take to its exec, once it was told to go on, and to stop, once it was told to.
const EXEC_WITHIN: Duration = Duration::from_secs(5);
/// How long the kernel may take from closing what an exec closes to the stop.
const STOPS_WITHIN: Duration = Duration::from_millis(100);

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

    /// As [`Traced::begin`], of a process that is not this one's child, and lives on if this one dies before its exec.
    pub(super) fn accompany(pid: pid_t) -> io::Result<Self> {
        ask(libc::PTRACE_SEIZE, pid, libc::PTRACE_O_TRACEEXEC as usize)?;
        Ok(Self(pid))
    }

    /// Waits for its exec, for a limited time, which is short once it `went on`. `None`: it executed nothing, and is let go.
    pub(super) fn exec_of_accompanied(self, mut went_on: impl FnMut() -> bool) -> Option<Self> {
        let pid = self.0;
        let (mut until, mut told) = (Instant::now() + EXEC_WITHIN, false);
        loop {
            let mut status = 0;
            // SAFETY: asks about a process that this thread traces; the status is valid memory.
            match unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | libc::WNOHANG) } {
                0 if Instant::now() < until => {
                    if !told && went_on() {
                        until = until.min(Instant::now() + STOPS_WITHIN);
                    }
                    std::thread::sleep(Duration::from_micros(100));
                    continue;
                }
                0 if !told => {
                    let _ = ask(libc::PTRACE_INTERRUPT, pid, 0);
                    (until, told) = (Instant::now() + EXEC_WITHIN, true);
                    continue;
                }
                n if n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => continue,
                n if n > 0 && libc::WIFSTOPPED(status) => {}
                // It ended; or it does not stop, and is let go when this process ends.
                _ => {
                    std::mem::forget(self);
                    return None;
                }
            }
            let signal = libc::WSTOPSIG(status);
            match status >> 16 {
                libc::PTRACE_EVENT_EXEC => {
                    let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;
                    return ask(libc::PTRACE_SETOPTIONS, pid, options as usize).ok().map(|()| self);
                }
                0 if told => {
                    std::mem::forget(self);
                    let _ = ask(libc::PTRACE_DETACH, pid, signal as usize);
                    return None;
                }
                0 => drop(ask(libc::PTRACE_CONT, pid, signal as usize)),
                // Also of a stop by Ctrl-Z, which lasts.
                _ => return None,
            }
        }
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
