//! Where a command makes its system calls: the function and the line of the source, at every call of the kinds that are asked for.
//!
//! The stacks of a recording ([`crate::stacks`]) are a sample of long sleeps, taken by the kernel, which cannot read what an interpreter
//! keeps. Here every call counts, and the program may be slow: so it is stopped at each (ptrace), by a filter in the kernel (seccomp) that
//! stops at no other call, and its memory is read while it stands still. No root is needed.
//!
//! | file | purpose |
//! |---|---|
//! | this one | the stops |
//! | [`attached`] | counts calls, of a command or of a running process |
//! | `filter` | the calls at which the kernel stops |
//! | `memory` | registers and memory of a stopped thread |
//! | `native` | functions of compiled code, with lines where the file has debugging information |
//! | `python` | functions and lines of CPython |
//!
//! **Uncertain:** programs that cannot run under ptrace, or that trace others, fail. What the command leaves running is ended with it, since
//! the filter would refuse its calls without a tracer. Without root, set-user-ID programs keep the caller's identity.

pub mod attached;
mod filter;
mod memory;
mod native;
mod python;

use crate::launch::Request;
use libc::{c_int, pid_t};
use memory::Stopped;
use model::Call;
use model::place::{Frame, LocatedCall};
use native::NativeStacks;
use python::Interpreters;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};

const TRACE_OPTIONS: c_int = libc::PTRACE_O_TRACESECCOMP
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_EXITKILL;

/// Runs a command to its end, and reports each of its calls of these kinds.
///
/// # Errors
/// It cannot be started or traced.
pub fn locate(
    command: Command,
    calls: &[Call],
    report: &mut dyn FnMut(LocatedCall) -> io::Result<()>,
) -> io::Result<ExitStatus> {
    run(command, calls, &mut |tracer, stop| {
        if let Stop::Entry(pid) = stop
            && let Some(call) = tracer.located(pid, calls)
        {
            report(call)?;
        }
        Ok(Next::Continue)
    })
}

/// Where a thread is stopped in a call.
enum Stop {
    Entry(pid_t),
    Exit(pid_t),
}

/// Where it is stopped next.
enum Next {
    /// At its next call.
    Continue,
    /// When this call returns.
    Return,
}

type OnStop<'a> = &'a mut dyn FnMut(&mut Tracer, Stop) -> io::Result<Next>;

fn run(mut command: Command, calls: &[Call], on_stop: OnStop) -> io::Result<ExitStatus> {
    let filter = filter::Filter::new(calls);
    // SAFETY: between fork and exec only system calls are made, with memory prepared before.
    let child = unsafe { command.pre_exec(move || filter.install_traced()).spawn()? };
    let child = child.id() as pid_t;
    let mut tracer = Tracer {
        child,
        known: HashSet::new(),
        groups: HashMap::new(),
        native: NativeStacks::default(),
        python: Interpreters::default(),
    };
    // The first stop is that after its exec.
    let status = wait_for(child)?;
    if !libc::WIFSTOPPED(status.1) {
        return Ok(ExitStatus::from_raw(status.1));
    }
    request(libc::PTRACE_SETOPTIONS, child, TRACE_OPTIONS as usize)?;
    tracer.known.insert(child);
    request(libc::PTRACE_CONT, child, 0)?;
    tracer.follow(on_stop)
}

struct Tracer {
    child: pid_t,
    /// Threads that have stopped once: the first stop of a new one is no signal for it.
    known: HashSet<pid_t>,
    /// Processes by their threads.
    groups: HashMap<pid_t, u32>,
    native: NativeStacks,
    python: Interpreters,
}

impl Tracer {
    fn follow(&mut self, on_stop: OnStop) -> io::Result<ExitStatus> {
        loop {
            let (pid, status) = wait_for(-1)?;
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                self.known.remove(&pid);
                self.groups.remove(&pid);
                if pid == self.child {
                    return Ok(ExitStatus::from_raw(status));
                }
                continue;
            }
            let mut resume = (libc::PTRACE_CONT, 0);
            match status >> 16 {
                libc::PTRACE_EVENT_SECCOMP => {
                    if let Next::Return = on_stop(self, Stop::Entry(pid))? {
                        resume.0 = libc::PTRACE_SYSCALL;
                    }
                }
                libc::PTRACE_EVENT_EXEC => {
                    let group = self.group_of(pid);
                    self.python.forget(group);
                }
                0 => match libc::WSTOPSIG(status) {
                    signal if signal == libc::SIGTRAP | 0x80 => {
                        on_stop(self, Stop::Exit(pid))?;
                    }
                    libc::SIGSTOP if self.known.insert(pid) => {}
                    signal => resume.1 = signal as usize,
                },
                _ => {}
            }
            self.known.insert(pid);
            // A failure means that it was killed meanwhile, which the next wait tells.
            let _ = request(resume.0, pid, resume.1);
        }
    }

    fn group_of(&mut self, pid: pid_t) -> u32 {
        let read = || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
        };
        if let Some(known) = self.groups.get(&pid) {
            return *known;
        }
        let group = read().unwrap_or(pid as u32);
        self.groups.insert(pid, group);
        group
    }

    fn located(&mut self, pid: pid_t, calls: &[Call]) -> Option<LocatedCall> {
        let stopped = Stopped::read(pid).ok()?;
        let call = crate::kernel::calls::call_of_number(stopped.number)?;
        let tgid = self.group_of(pid);
        calls.contains(&call).then(|| LocatedCall {
            time_ns: crate::boot_ns(),
            tgid,
            tid: pid as u32,
            call: call.name().into(),
            frames: self.frames(tgid, &stopped),
        })
    }

    /// The functions of the interpreter, if the thread runs one: its own are those of every script.
    fn frames(&mut self, tgid: u32, stopped: &Stopped) -> Vec<Frame> {
        let interpreted = self.python.frames(tgid, stopped);
        if interpreted.is_empty() { self.native.frames(tgid, stopped) } else { interpreted }
    }
}

fn wait_for(pid: pid_t) -> io::Result<(pid_t, c_int)> {
    loop {
        let mut status = 0;
        // SAFETY: the status lives until the call returns.
        let found = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        if found >= 0 {
            return Ok((found, status));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn request(request: Request, pid: pid_t, data: usize) -> io::Result<()> {
    // SAFETY: these requests take numbers only.
    let done = unsafe { libc::ptrace(request, pid, std::ptr::null_mut::<libc::c_void>(), data as *mut libc::c_void) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
