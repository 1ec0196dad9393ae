//! Counts the calls of a running process on its files, without root: by ptrace, at each of its system calls.
//!
//! For tests: a process that attaches itself to this one learns how many syncs a piece of it made. Every system call of the process is
//! stopped twice, which takes it some 10 µs each. When this process ends, the other continues as before.
//!
//! **Uncertain:** reads and writes of mapped memory and through io_uring are not seen. Calls on paths (rename, unlink) are counted, but not by
//! kind of file.

use super::{request, wait_for};
use crate::kernel::calls::{NO_ARG, call_of_number, file_argument};
use libc::{c_int, pid_t};
use model::Call;
use std::io;
use std::path::PathBuf;

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
    /// The file, if the call is on a descriptor: its path, or what the kernel calls it (`pipe:[5]`).
    pub file: Option<PathBuf>,
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
    let mut entered: std::collections::HashMap<pid_t, (Call, Option<PathBuf>)> = Default::default();
    loop {
        let (tid, status) = match wait_for(-1) {
            Ok(found) => found,
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(()),
            Err(error) => return Err(error),
        };
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            entered.remove(&tid);
            if tid == pid as pid_t {
                return Ok(());
            }
            continue;
        }
        let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
        let mut resume = (libc::PTRACE_SYSCALL, 0);
        if event == 0 && signal == libc::SIGTRAP | 0x80 {
            match stop_of(tid) {
                Some(SyscallStop::Entry { call, argument }) => {
                    let file = argument.and_then(|fd| std::fs::read_link(format!("/proc/{tid}/fd/{fd}")).ok());
                    entered.insert(tid, (call, file));
                }
                Some(SyscallStop::Exit { result }) => {
                    if let Some((call, file)) = entered.remove(&tid) {
                        report(&ReturnedCall { tid: tid as u32, call, file, result });
                    }
                }
                None => drop(entered.remove(&tid)),
            }
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

enum SyscallStop {
    Entry { call: Call, argument: Option<u64> },
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
    if done < 0 {
        return None;
    }
    // op, arch, instruction and stack pointer; then number and arguments, or the result.
    match info[0] as u8 {
        INFO_ENTRY => {
            let call = call_of_number(info[3])?;
            let argument = file_argument(call, info[3]).filter(|at| *at != NO_ARG);
            Some(SyscallStop::Entry { call, argument: argument.and_then(|at| info.get(4 + usize::from(at)).copied()) })
        }
        INFO_EXIT => Some(SyscallStop::Exit { result: info[3] as i64 }),
        _ => None,
    }
}
