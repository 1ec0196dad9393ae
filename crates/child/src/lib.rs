//! Child processes: how their end is waited for with a time limit, and that none outlives whoever started it.
//!
//! The standard library waits for ever or not at all, so every room that has a time limit would sleep and look again. Linux says when a
//! process ends: a descriptor of it (pidfd_open(2), since Linux 5.3) becomes readable. Older kernels, as many phones have, and sandboxes
//! that refuse the call are asked again after short sleeps.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long a kernel without descriptors of processes is left alone between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// How long a signal may go unnoticed that comes just before a wait.
const BETWEEN_SIGNALS: Duration = Duration::from_millis(50);

/// Waits for the end of `child`, at most `limit`; `None`: it still runs. A signal to this process ends the wait early, so that whoever
/// hears Ctrl-C can act on it.
///
/// # Errors
/// It was waited for by somebody else.
pub fn wait_timeout(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    match descriptor(child.id()) {
        Some(descriptor) => {
            readable(&descriptor, limit)?;
            child.try_wait()
        }
        None => looking(child, limit),
    }
}

/// Waits as [`wait_timeout`] does, and ends it where that is not enough: SIGKILL, `None`.
///
/// # Errors
/// As [`wait_timeout`].
pub fn wait_or_kill(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match wait_timeout(child, left)? {
            Some(status) => return Ok(Some(status)),
            None if left.is_zero() => {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            // A signal came.
            None => {}
        }
    }
}

/// Waits for the end of `child`. Once somebody asked for an end (`asked`) it has `grace` to end by itself, since Ctrl-C on a terminal
/// reaches it, too; then SIGTERM tells it.
///
/// # Errors
/// As [`wait_timeout`].
pub fn wait_or_terminate(child: &mut Child, asked: impl Fn() -> bool, grace: Duration) -> Result<ExitStatus> {
    let mut asked_at = None;
    loop {
        // A signal ends the wait early. One that comes between `asked` and the wait is only seen after it: so the wait is short.
        if let Some(status) = wait_timeout(child, BETWEEN_SIGNALS)? {
            return Ok(status);
        }
        if asked() && asked_at.get_or_insert_with(Instant::now).elapsed() > grace {
            // SAFETY: two integers; the child was not waited for, so the number is its.
            unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
            return child.wait();
        }
    }
}

/// Waits until the child of this number has ended, at most `limit`, or a signal comes. Its status is for whoever started it to fetch.
///
/// # Errors
/// The system refuses to wait.
pub fn wait_pid(pid: u32, limit: Duration) -> Result<()> {
    match descriptor(pid) {
        Some(descriptor) => readable(&descriptor, limit),
        None => {
            std::thread::sleep(LOOK.min(limit));
            Ok(())
        }
    }
}

/// A process that somebody else started. Its number may become another's; this stays its own.
#[derive(Debug)]
pub struct Other(OwnedFd);

impl Other {
    /// None if there is no such process, or the kernel has no descriptors of processes.
    pub fn of(pid: u32) -> Option<Self> {
        descriptor(pid).map(Self)
    }

    /// Whether it has ended; whoever started it may not have fetched its status yet.
    pub fn has_ended(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which lives until the call returns.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }
}

/// A status as a shell says it: 128 and the signal's number for a process that was killed.
pub fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// A descriptor of the process, where the kernel has such.
fn descriptor(pid: u32) -> Option<OwnedFd> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    // SAFETY: two integers. The number of a child that was not waited for is its own.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel just made it, and nobody else has it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until the descriptor is readable, the time is over or a signal comes.
fn readable(descriptor: &OwnedFd, limit: Duration) -> Result<()> {
    let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // Rounded up: a wait of less than a millisecond is none.
    let ms = i32::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
    // SAFETY: one structure, which lives until the call returns.
    match unsafe { libc::poll(&raw mut poll, 1, ms) } {
        -1 => match Error::last_os_error() {
            error if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        },
        _ => Ok(()),
    }
}

fn looking(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match child.try_wait()? {
            None if !left.is_zero() => std::thread::sleep(LOOK.min(left)),
            ended => return Ok(ended),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(line: &str) -> Child {
        Command::new("sh").args(["-c", line]).spawn().unwrap()
    }

    #[test]
    fn end_is_reported_with_status() {
        let mut child = sh("exit 3");
        let status = wait_or_kill(&mut child, Duration::from_secs(60)).unwrap();
        assert_eq!(status.and_then(|s| s.code()), Some(3));
        // And again, as the standard library does.
        assert_eq!(wait_timeout(&mut child, Duration::ZERO).unwrap().and_then(|s| s.code()), Some(3));
    }

    #[test]
    fn child_that_ignores_request_is_terminated() {
        let mut child = sh("exec sleep 600");
        let status = wait_or_terminate(&mut child, || true, Duration::from_millis(1)).unwrap();
        assert_eq!(shell_status(status), 128 + libc::SIGTERM);
        let mut child = sh("exit 3");
        let status = wait_or_terminate(&mut child, || false, Duration::ZERO).unwrap();
        assert_eq!(shell_status(status), 3);
    }

    #[test]
    fn end_of_child_is_awaited_by_number() {
        let mut child = sh("exit 0");
        wait_pid(child.id(), Duration::from_secs(60)).unwrap();
        // A kernel without descriptors waits a moment only.
        assert_eq!(wait_or_kill(&mut child, Duration::from_secs(60)).unwrap().and_then(|s| s.code()), Some(0));
    }

    #[test]
    fn child_beyond_limit_is_left_or_killed() {
        let mut child = sh("exec sleep 600");
        assert_eq!(wait_timeout(&mut child, Duration::from_millis(1)).unwrap(), None);
        assert_eq!(looking(&mut child, Duration::from_millis(1)).unwrap(), None);
        assert_eq!(wait_or_kill(&mut child, Duration::from_millis(1)).unwrap(), None);
        let killed = wait_timeout(&mut child, Duration::ZERO).unwrap().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed), Some(libc::SIGKILL));
    }

    #[test]
    fn kernel_without_descriptors_is_asked_again() {
        let mut child = sh("exit 4");
        assert_eq!(looking(&mut child, Duration::from_secs(60)).unwrap().and_then(|s| s.code()), Some(4));
    }
}
