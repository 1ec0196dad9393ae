//! Child processes: waits for their exit with a timeout, and ensures that none outlives its parent.
//!
//! The standard library waits for ever or not at all, so every caller with a timeout would have to poll. Linux reports the
//! exit of a process through a descriptor (pidfd_open(2), since Linux 5.3) that becomes readable. On older kernels, as on
//! many phones, and in sandboxes that deny the call, the child is polled with short sleeps.

use std::io::{Error, Read, Result};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// The polling interval on kernels without process descriptors.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The maximum delay for noticing a signal that arrives just before a wait.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Waits for the exit of `child`, at most for `timeout`; `None`: it is still running. A signal to this process ends the
/// wait early, so that the caller can react to Ctrl-C.
///
/// # Errors
/// The child was already waited for elsewhere.
pub fn wait_timeout(child: &mut Child, timeout: Duration) -> Result<Option<ExitStatus>> {
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    match open_pidfd(child.id()) {
        Some(descriptor) => {
            wait_readable(&descriptor, timeout)?;
            child.try_wait()
        }
        None => poll_until_exit(child, timeout),
    }
}

/// Waits like [`wait_timeout`], and sends SIGKILL after the timeout: `None`.
///
/// # Errors
/// As [`wait_timeout`].
pub fn wait_or_kill(child: &mut Child, timeout: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match wait_timeout(child, left)? {
            Some(status) => return Ok(Some(status)),
            None if left.is_zero() => {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            // The wait was interrupted by a signal.
            None => {}
        }
    }
}

/// Waits for the exit of `child`. Once an end is requested it has `grace` to exit by itself, since Ctrl-C on a
/// terminal reaches it, too; then SIGTERM is sent.
///
/// # Errors
/// As [`wait_timeout`].
pub fn wait_or_terminate(child: &mut Child, end_requested: impl Fn() -> bool, grace: Duration) -> Result<ExitStatus> {
    let mut requested_at = None;
    loop {
        // A signal ends the wait early. One that arrives between `end_requested` and the wait is only noticed after it:
        // so the wait is short.
        if let Some(status) = wait_timeout(child, SIGNAL_CHECK_INTERVAL)? {
            return Ok(status);
        }
        if end_requested() && requested_at.get_or_insert_with(Instant::now).elapsed() > grace {
            // SAFETY: two integers; the child was not waited for, so the number still belongs to it.
            unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
            return child.wait();
        }
    }
}

/// Time between SIGTERM and SIGKILL for the processes of [`output`].
const SIGKILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes kept of each output of [`output`]: its end.
const OUTPUT_TAIL_BYTES: usize = 1 << 20;

/// Runs a command to its end and returns its output; `None` if an end was requested before: its process group then gets
/// SIGTERM, and SIGKILL if that does not help. The terminal's Ctrl-C does not reach the group, so that only the caller
/// decides.
///
/// # Errors
/// The command cannot be started.
pub fn output(command: &mut Command, end_requested: impl Fn() -> bool) -> Result<Option<Output>> {
    let mut child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let group = -libc::pid_t::try_from(child.id()).unwrap_or(libc::pid_t::MAX);
    // SAFETY: two integers. The child was not waited for where this is called, so the group still belongs to it.
    let signal = |signal| unsafe { libc::kill(group, signal) };
    let (stdout, stderr) = (read_tail(child.stdout.take()), read_tail(child.stderr.take()));
    let mut requested_at = None;
    let status = loop {
        if let Some(status) = wait_timeout(&mut child, SIGNAL_CHECK_INTERVAL)? {
            break status;
        }
        if !end_requested() {
            continue;
        }
        match requested_at {
            None => {
                requested_at = Some(Instant::now());
                signal(libc::SIGTERM);
            }
            Some(since) if since.elapsed() > SIGKILL_TIMEOUT => {
                signal(libc::SIGKILL);
            }
            Some(_) => {}
        }
    };
    // A process that it left behind may hold the pipes open: its output is not awaited after a request.
    if requested_at.is_some() || end_requested() {
        return Ok(None);
    }
    let read = |end: std::thread::JoinHandle<Vec<u8>>| end.join().unwrap_or_default();
    Ok(Some(Output { status, stdout: read(stdout), stderr: read(stderr) }))
}

/// Reads a pipe in a thread of its own; returns its last [`OUTPUT_TAIL_BYTES`] bytes.
fn read_tail<P: Read + Send + 'static>(pipe: Option<P>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let (mut all, mut part) = (Vec::new(), vec![0; 1 << 16]);
        let Some(mut pipe) = pipe else { return all };
        loop {
            match pipe.read(&mut part) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(n) => all.extend_from_slice(&part[..n]),
            }
            // Seldom, since the rest is moved.
            if all.len() > 2 * OUTPUT_TAIL_BYTES {
                all.drain(..all.len() - OUTPUT_TAIL_BYTES);
            }
        }
        all.drain(..all.len().saturating_sub(OUTPUT_TAIL_BYTES));
        all
    })
}

/// Waits until the child with this number has exited, at most for `timeout`, or a signal arrives. Its parent must still
/// fetch its status.
pub fn wait_pid(pid: u32, timeout: Duration) -> Result<()> {
    match open_pidfd(pid) {
        Some(descriptor) => wait_readable(&descriptor, timeout),
        None => {
            std::thread::sleep(POLL_INTERVAL.min(timeout));
            Ok(())
        }
    }
}

/// A process started by another process. Its number may be reused; this still refers to the same process.
#[derive(Debug)]
pub struct ForeignProcess(OwnedFd);

impl ForeignProcess {
    /// `None` if there is no such process, or the kernel has no process descriptors.
    pub fn from_pid(pid: u32) -> Option<Self> {
        open_pidfd(pid).map(Self)
    }

    /// Whether it has exited; its parent may not have fetched its status yet.
    pub fn has_ended(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which lives until the call returns.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }
}

/// The exit status as in a shell: 128 plus the signal's number for a process that was killed.
pub fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// The exit status, or the negated number of the signal that killed the process: unlike in a shell, one is not taken for the other.
pub fn signed_status(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| -signal)).unwrap_or(127)
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes a word for a shell where that changes its meaning, so that a line is easy to read.
pub fn quoted_if_needed(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { quoted(word) }
}

/// Opens a descriptor of the process, where the kernel supports it.
fn open_pidfd(pid: u32) -> Option<OwnedFd> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    // SAFETY: two integers. The number of a child that was not waited for still belongs to it.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel just created it, and it has no other owner.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until the descriptor is readable, the timeout expires or a signal arrives.
fn wait_readable(descriptor: &OwnedFd, timeout: Duration) -> Result<()> {
    let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // Rounded up: less than a millisecond would not wait.
    let ms = i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
    // SAFETY: one structure, which lives until the call returns.
    match unsafe { libc::poll(&raw mut poll, 1, ms) } {
        -1 => match Error::last_os_error() {
            error if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        },
        _ => Ok(()),
    }
}

fn poll_until_exit(child: &mut Child, timeout: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match child.try_wait()? {
            None if !left.is_zero() => std::thread::sleep(POLL_INTERVAL.min(left)),
            ended => return Ok(ended),
        }
    }
}

/// Makes the kernel kill the process when the thread that starts it ends, for whatever reason.
pub fn kill_with_parent(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec there is only a system call without pointers.
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
    fn exit_is_reported_with_its_status() {
        let mut child = sh("exit 3");
        let status = wait_or_kill(&mut child, Duration::from_secs(60)).unwrap();
        assert_eq!(status.and_then(|s| s.code()), Some(3));
        // A second call succeeds too, as with the standard library.
        assert_eq!(wait_timeout(&mut child, Duration::ZERO).unwrap().and_then(|s| s.code()), Some(3));
    }

    #[test]
    fn child_that_ignores_request_is_terminated() {
        let mut child = sh("exec sleep 600");
        let status = wait_or_terminate(&mut child, || true, Duration::from_millis(1)).unwrap();
        assert_eq!((shell_status(status), signed_status(status)), (128 + libc::SIGTERM, -libc::SIGTERM));
        let mut child = sh("exit 3");
        let status = wait_or_terminate(&mut child, || false, Duration::ZERO).unwrap();
        assert_eq!((shell_status(status), signed_status(status)), (3, 3));
    }

    #[test]
    fn quoted_words_survive_the_shell() {
        for word in
            ["a", "", "a b", "it's", "$x;`y`", "$(touch x)", "ä", "-o", "data=ordered", "^has_journal", "*", "~", "#"]
        {
            for line in [quoted(word), quoted_if_needed(word)] {
                let out = Command::new("sh").args(["-c", &format!("printf %s {line}")]).output().unwrap();
                assert_eq!(String::from_utf8_lossy(&out.stdout), word, "{line}");
            }
        }
        assert_eq!([quoted_if_needed("data=ordered"), quoted_if_needed("a b")], ["data=ordered", "'a b'"]);
    }

    #[test]
    fn output_ends_with_its_group_on_request() {
        let run = |line: &str, asked: bool| output(Command::new("sh").args(["-c", line]), || asked).unwrap();
        let done = run("echo out; echo err >&2; exit 3", false).unwrap();
        assert_eq!((done.status.code(), &done.stdout[..], &done.stderr[..]), (Some(3), &b"out\n"[..], &b"err\n"[..]));
        let flood = run("head -c 5000000 /dev/zero; echo end", false).unwrap().stdout;
        assert!(flood.len() == OUTPUT_TAIL_BYTES && flood.ends_with(b"end\n"), "{}", flood.len());
        let directory = std::env::temp_dir().join(format!("fathom-child-{}", std::process::id()));
        let line = format!("sleep 600 & echo $! > {}; wait", directory.display());
        let begun = || std::fs::read_to_string(&directory).is_ok_and(|text| text.ends_with('\n'));
        assert!(output(Command::new("sh").args(["-c", &line]), begun).unwrap().is_none());
        let pid: u32 = std::fs::read_to_string(&directory).unwrap().trim().parse().unwrap();
        std::fs::remove_file(&directory).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        let alive = |stat: String| !stat.contains(") Z");
        while state().is_some_and(alive) {
            assert!(Instant::now() < deadline, "the shell's own child is still running");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    #[test]
    fn exit_of_a_child_is_awaited_by_pid() {
        let mut child = sh("exit 0");
        wait_pid(child.id(), Duration::from_secs(60)).unwrap();
        // On a kernel without process descriptors this only waits a moment.
        assert_eq!(wait_or_kill(&mut child, Duration::from_secs(60)).unwrap().and_then(|s| s.code()), Some(0));
    }

    #[test]
    fn child_past_the_timeout_is_left_or_killed() {
        let mut child = sh("exec sleep 600");
        assert_eq!(wait_timeout(&mut child, Duration::from_millis(1)).unwrap(), None);
        assert_eq!(poll_until_exit(&mut child, Duration::from_millis(1)).unwrap(), None);
        assert_eq!(wait_or_kill(&mut child, Duration::from_millis(1)).unwrap(), None);
        let killed = wait_timeout(&mut child, Duration::ZERO).unwrap().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed), Some(libc::SIGKILL));
    }

    #[test]
    fn child_is_polled_without_process_descriptors() {
        let mut child = sh("exit 4");
        assert_eq!(poll_until_exit(&mut child, Duration::from_secs(60)).unwrap().and_then(|s| s.code()), Some(4));
    }
}
