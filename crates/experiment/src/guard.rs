//! A process must not outlive its runner: a guard between the two ends everything that the process started.
//!
//! A runner that is killed by SIGKILL, or by the OOM killer, cannot end anything. What it was running then continues: a load that
//! fills the next measurement's disk, a forgotten background process. PR_SET_PDEATHSIG reaches only the child, and a process
//! group only those that stayed in it. So each command gets a guard: a process that is forked before it, is its parent, and
//! adopts all orphans below (PR_SET_CHILD_SUBREAPER), including daemons. The guard holds the read end of a pipe whose write end
//! the runner holds; it waits for the command or the closing of that pipe, whichever comes first, then ends all remaining
//! processes, generation by generation, and ends as the command ended. Processes still in the command's group are killed at once.
//! Those that left it get SIGTERM, and are killed after [`TERM_TIMEOUT_MS`]: a process that holds a disk or a namespace ignores that
//! signal and needs the time to take it down. While the command runs, the guard sleeps: it causes no wakeups and no cost.
//!
//! The guard is forked but not executed: a replicate does not start later because of it, and it works in any program. So it makes
//! only async-signal-safe calls. It changes its name (`ps` and `pkill -f` show `fathom-guard`), so that killing the runner by
//! name does not kill it too; if it is killed nevertheless, PR_SET_PDEATHSIG still kills the command.
//!
//! Not covered: processes in another PID namespace follow its rules (the end of its first process ends them), and a process that
//! SIGKILL does not end, because it waits in a driver, is left after [`GUARD_TIMEOUT_MS`].

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

/// The guard's name in process lists.
const GUARD_NAME: &[u8] = b"fathom-guard\0";
/// How long processes that left the group have to end by themselves.
const TERM_TIMEOUT_MS: u32 = 10_000;
/// How often they are signalled.
const TERM_INTERVAL_MS: u32 = 100;
/// How long the guard tries in total.
const GUARD_TIMEOUT_MS: u32 = 2 * TERM_TIMEOUT_MS;
/// Pause between two scans for remaining processes.
const SCAN_INTERVAL_MS: u32 = 2;

/// The runner's ends of the guard's pipes: the guarded processes are ended when this is dropped.
#[derive(Debug)]
pub struct GuardHandle {
    pipe: OwnedFd,
    reply: OwnedFd,
}

impl GuardHandle {
    /// Makes the guard end all remaining processes. The result yields, once the guard has ended, the scheduler's counts for the command.
    pub fn release(self) -> GuardReply {
        drop(self.pipe);
        GuardReply(self.reply)
    }
}

/// What the guard reports at its end.
#[derive(Debug)]
pub struct GuardReply(OwnedFd);

/// The scheduler's counts for a command's first thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerTimes {
    /// Time it ran, ns.
    pub ran_ns: u64,
    /// Time it was ready to run and waited for a processor, ns.
    pub waited_ns: u64,
}

impl GuardReply {
    /// Returns what the guard reported, if the kernel counts it.
    pub fn read(self) -> Option<SchedulerTimes> {
        let mut text = [0_u8; 128];
        // SAFETY: a descriptor of ours, which does not block, and a buffer of ours.
        let got = unsafe { libc::read(self.0.as_raw_fd(), text.as_mut_ptr().cast(), text.len()) };
        let text = std::str::from_utf8(text.get(..usize::try_from(got).ok()?)?).ok()?;
        let mut numbers = text.split_whitespace().map(|w| w.parse().ok());
        Some(SchedulerTimes { ran_ns: numbers.next()??, waited_ns: numbers.next()?? })
    }
}

/// Creates a pipe: its read and write end.
fn pipe() -> io::Result<[OwnedFd; 2]> {
    let mut ends = [0; 2];
    // SAFETY: pipe2 writes two descriptors into an array of ours. Neither end ever blocks: the guard polls.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave these to us alone.
    Ok(ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Makes `command`, when it is spawned, run under a guard, in a process group of its own that the guard leads. Its `Child` is the
/// guard, which ends as the command ends: with its status, or by its signal.
pub fn guard(command: &mut Command) -> io::Result<GuardHandle> {
    let [read, write] = pipe()?;
    let [reply_read, reply_write] = pipe()?;
    let words = *command_line_range();
    command.process_group(0);
    // SAFETY: between fork and exec only async-signal-safe calls are made (see `fork_command`). The guard's ends live as long as the closure,
    // hence as the command.
    unsafe {
        command.pre_exec(move || fork_command([read.as_raw_fd(), reply_write.as_raw_fd()], words));
    }
    Ok(GuardHandle { pipe: write, reply: reply_read })
}

/// Returns the address range of this process's command line in memory, which `ps` shows.
fn command_line_range() -> &'static Option<(usize, usize)> {
    static COMMAND_LINE_RANGE: OnceLock<Option<(usize, usize)>> = OnceLock::new();
    COMMAND_LINE_RANGE.get_or_init(|| {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // proc(5): the fields after the name, which may contain anything; arg_start is the 48th of all, arg_end the 49th.
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
        let number = |nth: usize| fields.get(nth - 3)?.parse::<usize>().ok();
        let (start, end) = (number(48)?, number(49)?);
        // Without permission to read them they are 0.
        (start > 0 && end > start && end - start < 1 << 21).then_some((start, end))
    })
}

/// In the forked child: forks the command. Returns only in the command's process.
fn fork_command(pipes: [RawFd; 2], words: Option<(usize, usize)>) -> io::Result<()> {
    // SAFETY: async-signal-safe calls on our own process. The second fork is the bare system call: a C library's own would run handlers
    // that may wait for a lock that another thread of the runner held. Without CLONE_VM all arguments but the flags may be 0.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        let guard = libc::getpid();
        match libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
                // The guard may have died before that call.
                if libc::getppid() != guard {
                    libc::_exit(1);
                }
                // A shell starts background commands with SIGINT ignored, which would be inherited; we end commands by it.
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            }
            command => watch(pipes, command as libc::pid_t, words),
        }
    }
}

/// The guard's main loop.
fn watch([pipe, tells]: [RawFd; 2], command: libc::pid_t, words: Option<(usize, usize)>) -> ! {
    // SAFETY: async-signal-safe calls on our own process, with pointers to values of ours. The words' memory is this process's own copy,
    // mapped and writable since the program began, and it is not read any more.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::prctl(libc::PR_SET_NAME, GUARD_NAME.as_ptr(), 0, 0, 0);
        if let Some((start, end)) = words {
            let at = start as *mut u8;
            std::ptr::write_bytes(at, 0, end - start);
            std::ptr::copy_nonoverlapping(GUARD_NAME.as_ptr(), at, GUARD_NAME.len().min(end - start));
        }
        close_all_except([pipe, tells]);
        let mut wanted: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut wanted);
        libc::sigaddset(&raw mut wanted, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const wanted, std::ptr::null_mut());
        let ended = libc::signalfd(-1, &raw const wanted, libc::SFD_NONBLOCK);
        let mut status = None;
        let mut alone = false;
        while status.is_none() && !alone {
            send_scheduler_times(tells, command);
            status = reap(command, libc::WNOHANG).0;
            if status.is_some() {
                break;
            }
            let watched = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut both = [watched(pipe), watched(ended)];
            // Without a signalfd (poll skips a negative one) it checks every 10 ms.
            libc::poll(both.as_mut_ptr(), 2, if ended < 0 { 10 } else { -1 });
            alone = both[0].revents != 0;
            if ended >= 0 {
                let mut drained = [0_u8; 512];
                while libc::read(ended, drained.as_mut_ptr().cast(), drained.len()) > 0 {}
            }
        }
        let left = end_all(command);
        end_as(status.or(left))
    }
}

/// If the command has ended, sends the scheduler's counts for it: the kernel keeps them until its status is reaped.
///
/// # Safety
/// Async-signal-safe.
unsafe fn send_scheduler_times(to: RawFd, command: libc::pid_t) {
    // SAFETY: structures and buffers of ours; the path ends with a zero.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        if libc::waitid(libc::P_PID, command as libc::id_t, &raw mut info, options) != 0 || info.si_pid() == 0 {
            return;
        }
        let mut path = [0_u8; 32];
        let digits = write_number(command, &mut path[6..18]);
        path[..6].copy_from_slice(b"/proc/");
        path[6 + digits..16 + digits].copy_from_slice(b"/schedstat");
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        let mut text = [0_u8; 128];
        let got = libc::read(file, text.as_mut_ptr().cast(), text.len());
        if let Ok(got @ 1..) = usize::try_from(got) {
            libc::write(to, text.as_ptr().cast(), got);
        }
        libc::close(file);
    }
}

/// Writes a number in decimal digits, and returns how many there are.
fn write_number(number: libc::pid_t, into: &mut [u8]) -> usize {
    let (mut rest, mut digits) = (number.max(0), 0);
    while digits < into.len() {
        into[digits] = b'0' + (rest % 10) as u8;
        digits += 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    into[..digits].reverse();
    digits
}

/// Closes every descriptor except two: a copy of the runner's pipes would keep a reader waiting, and a copy of its locks would hold them.
///
/// # Safety
/// The process must not use any of them again.
unsafe fn close_all_except(mut kept: [RawFd; 2]) {
    kept.sort_unstable();
    let [low, high] = kept.map(|fd| fd as libc::c_uint);
    // SAFETY: the caller's.
    unsafe {
        let gaps = [(0, low.wrapping_sub(1)), (low + 1, high.wrapping_sub(1)), (high + 1, libc::c_uint::MAX)];
        let closed = |(from, to): &(libc::c_uint, libc::c_uint)| {
            (*from > *to || *to == libc::c_uint::MAX && *from == 0)
                || libc::syscall(libc::SYS_close_range, *from, *to, 0) == 0
        };
        if gaps.iter().all(closed) {
            return;
        }
        // Kernels before 5.9.
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        for fd in 0..limit.rlim_cur.min(1 << 20) as RawFd {
            if !kept.contains(&fd) {
                libc::close(fd);
            }
        }
    }
}

/// Reaps those that have ended: returns the command's status, if it is among them, and whether any child is left.
///
/// # Safety
/// Async-signal-safe; it reaps every child of the process.
unsafe fn reap(command: libc::pid_t, options: libc::c_int) -> (Option<libc::c_int>, bool) {
    let mut found = None;
    loop {
        let mut status = 0;
        // SAFETY: waitpid writes into a value of ours.
        match unsafe { libc::waitpid(-1, &raw mut status, options) } {
            0 => return (found, true),
            pid if pid < 0 => return (found, false),
            pid if pid == command => found = Some(status),
            _ => {}
        }
    }
}

/// Ends every descendant, child by child: children of ended processes become children of this process in turn. Returns the
/// command's status if it was among them.
///
/// # Safety
/// Async-signal-safe; it ends every descendant of the process.
unsafe fn end_all(command: libc::pid_t) -> Option<libc::c_int> {
    let mut status = None;
    for ms in (0..GUARD_TIMEOUT_MS).step_by(SCAN_INTERVAL_MS as usize) {
        // SAFETY: as above.
        unsafe {
            let (ended, some) = reap(command, libc::WNOHANG);
            status = status.or(ended);
            if !some {
                break;
            }
            let outside = match ms {
                TERM_TIMEOUT_MS.. => Some(libc::SIGKILL),
                _ => ms.is_multiple_of(TERM_INTERVAL_MS).then_some(libc::SIGTERM),
            };
            signal_children(outside);
            let pause = libc::timespec { tv_sec: 0, tv_nsec: (SCAN_INTERVAL_MS * 1_000_000) as _ };
            libc::nanosleep(&raw const pause, std::ptr::null_mut());
        }
    }
    status
}

/// Sends SIGKILL to every child of this process that is in its group, and the signal `outside` to the others. They are found in
/// /proc: not all kernels list a process's children.
///
/// # Safety
/// Async-signal-safe.
unsafe fn signal_children(outside: Option<libc::c_int>) {
    // SAFETY: bare system calls into buffers of ours; an entry's bounds are checked before it is read.
    unsafe {
        let me = libc::getpid();
        let proc = libc::open(c"/proc".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
        if proc < 0 {
            return;
        }
        let mut entries = [0_u8; 8192];
        loop {
            let got = libc::syscall(libc::SYS_getdents64, proc, entries.as_mut_ptr(), entries.len());
            let Ok(got @ 1..) = usize::try_from(got) else { break };
            let mut at = 0;
            // struct linux_dirent64: 8 bytes inode, 8 offset, 2 length, 1 type, then the name with its zero.
            while let Some(entry) = entries.get(at..got).filter(|rest| rest.len() > 19) {
                let length = usize::from(u16::from_ne_bytes([entry[16], entry[17]]));
                let name = entry.get(19..length.max(19)).unwrap_or_default();
                if let Some(pid) = parse_pid(name)
                    && let Some((parent, group)) = parent_and_group(proc, name)
                    && parent == me
                    && let Some(signal) = if group == me { Some(libc::SIGKILL) } else { outside }
                {
                    libc::kill(pid, signal);
                }
                if length == 0 {
                    break;
                }
                at += length;
            }
        }
        libc::close(proc);
    }
}

/// Parses the number in a name that ends with a zero byte.
fn parse_pid(name: &[u8]) -> Option<libc::pid_t> {
    let digits = name.split(|b| *b == 0).next().filter(|digits| !digits.is_empty())?;
    digits.iter().try_fold(0, |n: libc::pid_t, digit| match digit {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(libc::pid_t::from(digit - b'0')),
        _ => None,
    })
}

/// Returns the parent and the group of the process with that name in /proc.
///
/// # Safety
/// Async-signal-safe.
unsafe fn parent_and_group(proc: RawFd, name: &[u8]) -> Option<(libc::pid_t, libc::pid_t)> {
    let digits = name.iter().position(|b| *b == 0).filter(|n| *n <= 12)?;
    let mut path = [0_u8; 24];
    path[..digits].copy_from_slice(&name[..digits]);
    path[digits..digits + 5].copy_from_slice(b"/stat");
    let mut stat = [0_u8; 256];
    // SAFETY: a path that ends with a zero, a buffer of ours.
    let got = unsafe {
        let file = libc::openat(proc, path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let got = libc::read(file, stat.as_mut_ptr().cast(), stat.len());
        libc::close(file);
        usize::try_from(got).ok()?
    };
    parse_parent_and_group(&stat[..got])
}

/// Parses the fourth and fifth field of a line of /proc/PID/stat, after the name, which may contain anything but ends with the
/// last bracket.
fn parse_parent_and_group(stat: &[u8]) -> Option<(libc::pid_t, libc::pid_t)> {
    let behind = &stat[stat.iter().rposition(|b| *b == b')')? + 1..];
    let mut fields = behind.split(|b| *b == b' ').skip(2).map(|field| {
        let mut with_end = [0_u8; 12];
        with_end.get_mut(..field.len())?.copy_from_slice(field);
        parse_pid(&with_end)
    });
    Some((fields.next()??, fields.next()??))
}

/// Ends this process in the same way as another ended.
///
/// # Safety
/// Async-signal-safe; does not return.
unsafe fn end_as(status: Option<libc::c_int>) -> ! {
    // SAFETY: async-signal-safe calls on our own process.
    unsafe {
        match status {
            Some(status) if libc::WIFEXITED(status) => libc::_exit(libc::WEXITSTATUS(status)),
            Some(status) if libc::WIFSIGNALED(status) => {
                let signal = libc::WTERMSIG(status);
                // The memory is the runner's: it must not be dumped because of what the command did.
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
            _ => {}
        }
        libc::_exit(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_and_group_are_parsed_after_any_comm() {
        assert_eq!(parse_parent_and_group(b"12 (a) b) R 345 12 12 0"), Some((345, 12)));
        assert_eq!(parse_parent_and_group(b"12 (x) S 1 1 1"), Some((1, 1)));
        for nonsense in [&b""[..], b"12 (x", b"12 (x) R", b"12 (x) R 1", b"12 (x) R y 1", b"1 (x) R 99999999999999 1"] {
            assert_eq!(parse_parent_and_group(nonsense), None);
        }
        assert_eq!(
            (parse_pid(b"42\0"), parse_pid(b"self\0"), parse_pid(b"\0"), parse_pid(b"4x\0")),
            (Some(42), None, None, None)
        );
    }

    /// Whether a process with that ID runs.
    fn is_running(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    }

    fn wait_until(condition: impl Fn() -> bool) -> bool {
        (0..1500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            condition()
        })
    }

    /// A command with a child that stays in the group, a daemon that leaves it, and a keeper that has something to take down.
    fn spawn_family() -> (std::process::Child, GuardHandle, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let script = "sleep 1000 & echo $! >child
            setsid sh -c 'echo $$ >daemon.new; mv daemon.new daemon; sleep 1000 & wait' &
            setsid sh -c \"trap '' TERM; echo \\$\\$ >keeper.new; mv keeper.new keeper; while [ ! -e go ]; do sleep 0.02; done; : >taken-down\" &
            while [ ! -e keeper ] || [ ! -e daemon ]; do sleep 0.02; done
            echo $$ >command.new; mv command.new command; sleep 1000";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).current_dir(&directory);
        let handle = guard(&mut command).unwrap();
        let child = command.spawn().unwrap();
        assert!(wait_until(|| directory.path().join("command").exists()));
        (child, handle, directory)
    }

    #[test]
    fn guard_kills_all_processes_if_the_runner_dies() {
        let (mut child, handle, directory) = spawn_family();
        let pid = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap().trim().to_string();
        let shown = std::fs::read_to_string(format!("/proc/{}/cmdline", child.id())).unwrap();
        assert!(shown.starts_with("fathom-guard\0") && !shown.contains("experiment"), "{shown:?}");
        // As the kernel does whenever the runner ends.
        drop(handle);
        assert!(wait_until(|| ["command", "child", "daemon"].iter().all(|name| !is_running(&pid(name)))));
        assert!(is_running(&pid("keeper")));
        std::fs::write(directory.path().join("go"), "").unwrap();
        assert!(wait_until(|| !is_running(&pid("keeper"))) && directory.path().join("taken-down").exists());
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }

    #[test]
    fn scheduler_times_of_the_command_are_reported() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done"]);
        let handle = guard(&mut command).unwrap();
        let mut child = command.spawn().unwrap();
        let status = child.wait().unwrap();
        let drained = handle.release().read().unwrap();
        assert!(status.success() && drained.ran_ns > 1_000_000 && drained.ran_ns < 60_000_000_000, "{drained:?}");
        let mut digits = [0; 12];
        assert_eq!((write_number(40_312, &mut digits), &digits[..5]), (5, &b"40312"[..]));
        assert_eq!((write_number(0, &mut digits), digits[0]), (1, b'0'));
    }

    #[test]
    fn killed_guard_kills_the_command() {
        let (mut child, _handle, directory) = spawn_family();
        let pid = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap().trim().to_string();
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = wait_until(|| !is_running(&pid("command")));
        std::fs::write(directory.path().join("go"), "").unwrap();
        // End what the guard did not: all of its group, and its daemon's, which leads one of its own. Whatever waits for the
        // test's output waits for them too.
        for leader in [child.id() as i32, pid("daemon").parse::<i32>().unwrap()] {
            // SAFETY: processes that this test made.
            unsafe { libc::kill(-leader, libc::SIGTERM) };
        }
        assert!(wait_until(|| !is_running(&pid("child"))));
        assert!(gone && wait_until(|| directory.path().join("taken-down").exists()));
    }
}
