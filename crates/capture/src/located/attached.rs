//! Counts the calls on files of a command, or of a running process, without root: by ptrace.
//!
//! A running process is for tests: one that attaches itself to this one learns how many syncs a piece of it made. Each of its system calls
//! stops it twice, which takes some 10 µs. When this process ends, the other continues as before.
//!
//! **Uncertain:** reads and writes of mapped memory and through io_uring are not seen, nor calls on paths but for unlink and rename.

use super::memory::Stopped;
use super::{Next, Stop, request, wait_for};
use crate::kernel::calls::{NO_ARG, call_of_number, file_argument};
use libc::{c_int, pid_t};
use model::Call;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

const TRACE_OPTIONS: c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC;

/// A call that returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnedCall {
    pub tid: u32,
    pub call: Call,
    /// The file: its path, or what the kernel calls it (`pipe:[5]`).
    pub file: Option<PathBuf>,
    pub is_directory: bool,
    /// Its result: bytes, if it reads or writes.
    pub result: i64,
}

/// Attaches to a process with its threads, and reports each of its calls on files until it ends. `attached` is called once all threads are.
///
/// # Errors
/// It is not permitted.
pub fn count(pid: u32, attached: &mut dyn FnMut(), report: &mut dyn FnMut(&ReturnedCall)) -> io::Result<()> {
    let mut waiting = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let Some(tid) = entry?.file_name().to_str().and_then(|name| name.parse::<pid_t>().ok()) else { continue };
        match request(libc::PTRACE_SEIZE, tid, TRACE_OPTIONS as usize) {
            // It ended meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) && tid != pid as pid_t => continue,
            other => other?,
        }
        request(libc::PTRACE_INTERRUPT, tid, 0)?;
        waiting.push(tid);
    }
    let mut calls = PendingCalls::default();
    loop {
        let (tid, status) = match wait_for(-1) {
            Ok(found) => found,
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(()),
            Err(error) => return Err(error),
        };
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            calls.forget(tid);
            if tid == pid as pid_t {
                return Ok(());
            }
            continue;
        }
        let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
        let mut resume = (libc::PTRACE_SYSCALL, 0);
        if event == 0 && signal == libc::SIGTRAP | 0x80 {
            calls.stop(tid).iter().for_each(&mut *report);
        } else if event == libc::PTRACE_EVENT_STOP {
            if [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal) {
                resume = (libc::PTRACE_LISTEN, 0);
            }
            if let Some(at) = waiting.iter().position(|known| *known == tid) {
                waiting.swap_remove(at);
                if waiting.is_empty() {
                    attached();
                }
            }
        } else if event == 0 {
            resume.1 = signal as usize;
        }
        // A failure means that it was killed meanwhile, which the next wait tells.
        let _ = request(resume.0, tid, resume.1);
    }
}

/// Runs a command to its end, and reports each of its calls on files. Only those stop it.
///
/// # Errors
/// It cannot be started or traced.
pub fn count_command(command: Command, report: &mut dyn FnMut(&ReturnedCall)) -> io::Result<ExitStatus> {
    let mut calls = PendingCalls::default();
    let wanted: Vec<Call> =
        Call::ALL.iter().copied().filter(|call| !matches!(call, Call::Lseek | Call::Mmap)).collect();
    super::run(command, &wanted, &mut |_, stop| {
        match stop {
            Stop::Entry(tid) => calls.enter(tid),
            Stop::Exit(tid) => calls.stop(tid).iter().for_each(&mut *report),
        }
        Ok(Next::Return)
    })
}

/// Calls that have not returned.
#[derive(Default)]
struct PendingCalls(HashMap<pid_t, (Call, Option<PathBuf>)>);

impl PendingCalls {
    fn forget(&mut self, tid: pid_t) {
        self.0.remove(&tid);
    }

    /// A thread is stopped at the beginning of a call.
    fn enter(&mut self, tid: pid_t) {
        self.0.remove(&tid);
        let Ok(stopped) = Stopped::read(tid) else { return };
        let Some(call) = call_of_number(stopped.number) else { return };
        let argument = file_argument(call, stopped.number).filter(|at| *at != NO_ARG);
        let file = match argument.and_then(|at| stopped.arguments.get(usize::from(at))) {
            Some(descriptor) => path_of(tid, *descriptor),
            None => named_file(&stopped),
        };
        self.0.insert(tid, (call, file));
    }

    /// A thread is stopped at the beginning or the end of a call; returns the call that has ended.
    fn stop(&mut self, tid: pid_t) -> Option<ReturnedCall> {
        match stop_of(tid) {
            Some(SyscallStop::Entry) => self.enter(tid),
            Some(SyscallStop::Exit { result }) => {
                let (call, mut file) = self.0.remove(&tid)?;
                if call == Call::Open {
                    file = u64::try_from(result).ok().and_then(|descriptor| path_of(tid, descriptor));
                }
                let is_directory = file.as_ref().is_some_and(|path| {
                    std::fs::metadata(format!("/proc/{tid}/root{}", path.to_string_lossy()))
                        .is_ok_and(|about| about.is_dir())
                });
                return Some(ReturnedCall { tid: tid as u32, call, file, is_directory, result });
            }
            None => self.forget(tid),
        }
        None
    }
}

fn path_of(tid: pid_t, descriptor: u64) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{tid}/fd/{}", descriptor as u32)).ok()
}

/// The file that a call names by a path: those that take it away, and those that rename it.
fn named_file(stopped: &Stopped) -> Option<PathBuf> {
    let number = libc::c_long::try_from(stopped.number).ok()?;
    let (directory, path) = match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink | libc::SYS_rename => (None, 0),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_renameat => (Some(0), 1),
        libc::SYS_unlinkat | libc::SYS_renameat2 => (Some(0), 1),
        _ => return None,
    };
    let path = PathBuf::from(stopped.c_path(stopped.arguments[path])?);
    let directory = directory.map(|at: usize| stopped.arguments[at] as u32 as i32);
    let below = match directory {
        Some(descriptor) if descriptor >= 0 => format!("/proc/{}/fd/{descriptor}", stopped.pid),
        _ => format!("/proc/{}/cwd", stopped.pid),
    };
    if path.is_absolute() { Some(path) } else { Some(std::fs::read_link(below).ok()?.join(path)) }
}

enum SyscallStop {
    Entry,
    Exit { result: i64 },
}

/// `PTRACE_GET_SYSCALL_INFO` and its answer (ptrace(2)), Linux 5.3.
const GET_SYSCALL_INFO: crate::launch::Request = 0x420e;
const INFO_ENTRY: u8 = 1;
const INFO_EXIT: u8 = 2;
const INFO_WORDS: usize = 11;

fn stop_of(tid: pid_t) -> Option<SyscallStop> {
    let mut info = [0_u64; INFO_WORDS];
    // SAFETY: the kernel writes at most as many bytes as it is told there is room for.
    let done = unsafe {
        libc::ptrace(
            GET_SYSCALL_INFO,
            tid,
            size_of_val(&info) as *mut libc::c_void,
            info.as_mut_ptr().cast::<libc::c_void>(),
        )
    };
    // What stopped, the architecture, instruction and stack pointer; then the result.
    match info[0] as u8 {
        _ if done < 0 => None,
        INFO_ENTRY => Some(SyscallStop::Entry),
        INFO_EXIT => Some(SyscallStop::Exit { result: info[3] as i64 }),
        _ => None,
    }
}
