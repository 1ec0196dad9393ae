//! A child that is traced from the gate to its exec, so that its program can be met before its first instruction.
//!
//! It is traced by the thread that began tracing it, and by no other. If the recorder dies meanwhile, the child does too: a command never
//! runs unrecorded behind its user's back. (What the command starts continues, unless it is in the middle of being changed.) Signals that
//! arrive before the exec are passed on; a stop by Ctrl-Z lasts until it is ended.

use libc::{c_int, c_void, pid_t};
use std::io;
use std::time::{Duration, Instant};

/// How long a process may take to its exec, once it was told to continue.
const EXEC_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the kernel may take from closing close-on-exec descriptors to the stop.
const STOP_TIMEOUT: Duration = Duration::from_millis(50);

/// The type of ptrace requests, which differs between C libraries.
#[cfg(target_env = "musl")]
pub(crate) type Request = libc::c_int;
#[cfg(not(target_env = "musl"))]
pub(crate) type Request = libc::c_uint;

/// A process that this thread traces; released when this is dropped.
#[derive(Debug)]
pub(super) struct TracedProcess(pid_t);

/// How far a child got.
pub(super) enum ExecProgress {
    /// It is stopped in its new program.
    Exec(TracedProcess),
    /// It ended, with this status.
    Ended(c_int),
    /// It cannot be waited for.
    Lost(io::Error),
}

/// The outcome for an accompanied process.
pub(super) enum ExecOutcome {
    /// It is stopped in its new program, and dies with this process.
    Exec(TracedProcess),
    /// It ended, or was released.
    Ended,
    /// It continued without an exec.
    Lingers(LingeringProcess),
}

/// A process that was told to stop, to be detached then.
#[derive(Debug)]
pub struct LingeringProcess(TracedProcess);

impl LingeringProcess {
    /// Releases it if it has stopped; otherwise must be called again.
    pub fn release_if_stopped(self) -> Option<Self> {
        match self.0.state() {
            TraceState::Running => return Some(self),
            TraceState::Stopped(status) => {
                let signal = if status >> 16 == 0 { libc::WSTOPSIG(status) } else { 0 };
                let _ = ptrace(libc::PTRACE_DETACH, self.0.0, signal as usize);
            }
            TraceState::Ended => {}
        }
        std::mem::forget(self.0);
        None
    }
}

enum TraceState {
    Running,
    Stopped(c_int),
    Ended,
}

/// Whether a child, or a traced process, has ended. Does not consume its status.
pub(super) fn has_ended(pid: pid_t) -> bool {
    has_exited(pid, libc::WNOHANG).unwrap_or(false)
}

/// Waits until a child has ended, without consuming its status.
pub(super) fn await_end(pid: pid_t) -> io::Result<()> {
    while !has_exited(pid, 0)? {
        // It is stopped, and another thread, which traces it, is about to notice.
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn has_exited(pid: pid_t, options: c_int) -> io::Result<bool> {
    // SAFETY: a structure of numbers, for which zero is valid; it lives until the call returns.
    let (done, about) = unsafe {
        let mut about: libc::siginfo_t = std::mem::zeroed();
        let options = options | libc::WEXITED | libc::WNOWAIT | libc::__WALL;
        (libc::waitid(libc::P_PID, pid.unsigned_abs(), &raw mut about, options), about)
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // Stops of traced processes are reported too.
    Ok([libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED].contains(&about.si_code))
}

impl TracedProcess {
    /// Starts tracing; the process continues.
    pub(super) fn seize(pid: pid_t) -> io::Result<Self> {
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;
        ptrace(libc::PTRACE_SEIZE, pid, options as usize)?;
        Ok(Self(pid))
    }

    /// Like [`TracedProcess::seize`], for a process that is not a child of this one and survives if this one dies before its exec.
    pub(super) fn seize_unrelated(pid: pid_t) -> io::Result<Self> {
        ptrace(libc::PTRACE_SEIZE, pid, libc::PTRACE_O_TRACEEXEC as usize)?;
        Ok(Self(pid))
    }

    /// Waits for its exec, for a limited time, which is short once it `went_on`.
    ///
    /// It may have continued without an exec, and cannot be stopped while it waits for a child of vfork, which may be waiting for
    /// this process: so this does not wait for it.
    pub(super) fn wait_for_exec(self, mut went_on: impl FnMut() -> bool) -> ExecOutcome {
        let mut until = Instant::now() + EXEC_TIMEOUT;
        let mut asked = false;
        loop {
            match self.state() {
                TraceState::Running if Instant::now() < until => {
                    if !asked && went_on() {
                        (until, asked) = (until.min(Instant::now() + STOP_TIMEOUT), true);
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
                TraceState::Running => {
                    let _ = ptrace(libc::PTRACE_INTERRUPT, self.0, 0);
                    return ExecOutcome::Lingers(LingeringProcess(self));
                }
                TraceState::Stopped(status) if status >> 16 == libc::PTRACE_EVENT_EXEC => {
                    let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;
                    let _ = ptrace(libc::PTRACE_SETOPTIONS, self.0, options as usize);
                    return ExecOutcome::Exec(self);
                }
                TraceState::Stopped(status) if status >> 16 == 0 => {
                    let _ = ptrace(libc::PTRACE_CONT, self.0, libc::WSTOPSIG(status) as usize);
                }
                // Stopped by Ctrl-Z, which lasts.
                TraceState::Stopped(_) => return ExecOutcome::Ended,
                TraceState::Ended => {
                    std::mem::forget(self);
                    return ExecOutcome::Ended;
                }
            }
        }
    }

    fn state(&self) -> TraceState {
        let pid = self.0;
        // The command's own status belongs to its waiter; that of others goes to the parent once the tracer has it.
        if has_ended(pid) && is_child(pid) {
            return TraceState::Ended;
        }
        let mut status = 0;
        // SAFETY: waits for a process that this thread traces; the status is valid memory.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | libc::WNOHANG) } {
            0 => TraceState::Running,
            n if n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => TraceState::Running,
            n if n > 0 && libc::WIFSTOPPED(status) => TraceState::Stopped(status),
            _ => TraceState::Ended,
        }
    }

    /// Waits until it has executed its program.
    pub(super) fn reach_exec(self) -> ExecProgress {
        let pid = self.0;
        loop {
            let mut status = 0;
            // SAFETY: waits for a child that this thread traces; the status is valid memory.
            if unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return ExecProgress::Lost(error);
            }
            if !libc::WIFSTOPPED(status) {
                // There is nothing left to release.
                std::mem::forget(self);
                return ExecProgress::Ended(status);
            }
            let signal = libc::WSTOPSIG(status);
            let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
            // A failure here means that it was killed, which the next iteration sees.
            let _ = match status >> 16 {
                libc::PTRACE_EVENT_EXEC => return ExecProgress::Exec(self),
                libc::PTRACE_EVENT_STOP if stops => ptrace(libc::PTRACE_LISTEN, pid, 0),
                0 => ptrace(libc::PTRACE_CONT, pid, signal as usize),
                _ => ptrace(libc::PTRACE_CONT, pid, 0),
            };
        }
    }
}

/// Whether a process is a child of this one, and not only traced by it.
pub(super) fn is_child(pid: pid_t) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
    parent == Some(std::process::id())
}

impl Drop for TracedProcess {
    fn drop(&mut self) {
        // It is stopped, or was killed.
        let _ = ptrace(libc::PTRACE_DETACH, self.0, 0);
    }
}

pub(super) fn ptrace(request: Request, pid: pid_t, data: usize) -> io::Result<()> {
    // SAFETY: these requests take numbers only.
    let done = unsafe { libc::ptrace(request, pid, std::ptr::null_mut::<c_void>(), data as *mut c_void) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the kernel's message for the event in which a process is stopped.
pub(super) fn event_message(pid: pid_t) -> io::Result<u64> {
    let mut number: libc::c_ulong = 0;
    // SAFETY: the number lives until the call returns.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, std::ptr::null_mut::<c_void>(), &raw mut number) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(number) }
}
