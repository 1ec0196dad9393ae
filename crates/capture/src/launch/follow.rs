//! Follows the command's processes while they run programs that can neither load the object nor ask about what they execute: a statically
//! linked shell, such as busybox. So the programs that they execute are met before their first instruction.
//!
//! Uses ptrace, for forks and execs only, in a separate thread: a process is traced by one thread, and that thread has to wait for it. A
//! process that executes a program with a loader, or one into which the object was loaded, is released: it asks by itself. So is a
//! process that starts a thread, since no shell does, and since signals, which programs with threads may receive in large numbers, stop
//! traced processes. If the recorder dies, the kernel releases them all.

use super::traced::{event_message, ptrace};
use crate::inside::error::ImplantError;
use libc::{c_int, pid_t};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::Duration;

const TRACE_OPTIONS: c_int = libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXIT;

/// Interval of polling while the command's status waits for its waiter.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Loads the object into a process that the calling thread traces.
type Implant = Box<dyn Fn(u32) -> Result<(), ImplantError> + Send>;

/// Follows a command's processes. When this is dropped, each is released at its next fork, exec or end.
#[derive(Debug)]
pub struct Follower {
    met: Receiver<ExecStop>,
    wake: PipeReader,
    thread: std::thread::JoinHandle<()>,
}

/// A process that is stopped before the first instruction of a program. If dropped without an answer, it is released.
#[derive(Debug)]
pub struct ExecStop {
    pub pid: u32,
    verdict: SyncSender<Verdict>,
    outcome: Receiver<Result<(), ImplantError>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Implant,
    Follow,
}

impl ExecStop {
    /// Returns its program: a path by which it can be opened from here, with its device and inode.
    pub fn program(&self) -> Option<(PathBuf, (u64, u64))> {
        let exe = PathBuf::from(format!("/proc/{}/exe", self.pid));
        let of = |path: &PathBuf| fs::metadata(path).ok().map(|about| (about.dev(), about.ino()));
        let identity = of(&exe)?;
        let named = fs::read_link(&exe).ok()?;
        let below = PathBuf::from(format!("/proc/{}/root", self.pid)).join(named.strip_prefix("/").unwrap_or(&named));
        let path = [named, below].into_iter().find(|path| of(path) == Some(identity))?;
        Some((path, identity))
    }

    /// Loads the object into the program, and releases it.
    ///
    /// # Errors
    /// The reason for a failure; it runs either way.
    pub fn implant(self) -> Result<(), ImplantError> {
        let ended = ImplantError::NotStopped("it ended before its first instruction");
        let _ = self.verdict.send(Verdict::Implant);
        self.outcome.recv().unwrap_or(Err(ended))
    }

    /// Continues following it: it is another program that cannot ask.
    pub fn follow(self) {
        let _ = self.verdict.send(Verdict::Follow);
    }
}

impl Follower {
    /// Follows a process that waits at the gate.
    pub(super) fn begin(pid: pid_t, implant: Implant) -> io::Result<Self> {
        let (wake, waker) = io::pipe()?;
        let (tell, met) = channel();
        let (began, begun) = sync_channel(1);
        let work = move || {
            let traced = ptrace(libc::PTRACE_SEIZE, pid, TRACE_OPTIONS as usize);
            let go_on = traced.is_ok();
            if began.send(traced).is_ok() && go_on {
                let (followed, unwanted) = (BTreeSet::from([pid]), BTreeSet::new());
                Tracer { command: pid, followed, unwanted, command_ended: false, tell, waker, implant }.run();
            }
        };
        let thread = std::thread::Builder::new().name("follower".into()).spawn(work)?;
        begun.recv().map_err(io::Error::other)??;
        Ok(Self { met, wake, thread })
    }

    /// Returns the descriptor that becomes readable when a process is met.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// Whether no process is followed any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Returns the next one; `None`: there is none now.
    pub(crate) fn next_exec(&mut self) -> Option<ExecStop> {
        let met = self.met.try_recv();
        match met {
            Ok(met) => {
                // One byte for each.
                let _ = self.wake.read(&mut [0]);
                Some(met)
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }
}

/// The tracing thread.
struct Tracer {
    command: pid_t,
    followed: BTreeSet<pid_t>,
    /// Threads, which are to be released when they stop.
    unwanted: BTreeSet<pid_t>,
    /// Its status waits for its waiter, and would be found again and again.
    command_ended: bool,
    tell: Sender<ExecStop>,
    waker: PipeWriter,
    implant: Implant,
}

impl Tracer {
    fn run(mut self) {
        while let Some(change) = self.next_change() {
            match change {
                ProcessChange::Ended(pid) => {
                    self.followed.remove(&pid);
                    self.unwanted.remove(&pid);
                }
                ProcessChange::Stopped(pid, stop) if self.unwanted.contains(&pid) => {
                    self.release(pid, stop.signal_to_deliver())
                }
                ProcessChange::Stopped(pid, stop) => {
                    self.followed.insert(pid);
                    self.handle_stop(pid, stop);
                }
            }
        }
    }

    /// Returns what happened to one of them; `None`: none is left.
    fn next_change(&mut self) -> Option<ProcessChange> {
        while !(self.followed.is_empty() && self.unwanted.is_empty()) {
            let found = if self.command_ended {
                std::thread::sleep(POLL_INTERVAL);
                let all = self.followed.iter().chain(&self.unwanted);
                all.copied().find_map(|pid| {
                    wait_for_change(libc::P_PID, pid, EXITED_OR_STOPPED | libc::WNOHANG | libc::WNOWAIT)
                })
            } else {
                // Since at least one is left, waiting cannot block forever.
                Some(wait_for_change(libc::P_ALL, 0, EXITED_OR_STOPPED | libc::WNOWAIT)?)
            };
            // One may have been killed since: then it is found again. Waiting only for stops leaves the command's end to its waiter.
            match found {
                Some(ProcessChange::Ended(pid)) if pid == self.command => {
                    self.command_ended = true;
                    self.followed.remove(&pid);
                    self.unwanted.remove(&pid);
                }
                Some(ProcessChange::Ended(pid)) => {
                    wait_for_change(libc::P_PID, pid, libc::WEXITED | libc::WNOHANG);
                    return found;
                }
                Some(ProcessChange::Stopped(pid, _)) => {
                    if let Some(stopped) = wait_for_change(libc::P_PID, pid, libc::WSTOPPED | libc::WNOHANG) {
                        return Some(stopped);
                    }
                }
                None => {}
            }
        }
        None
    }

    fn handle_stop(&mut self, pid: pid_t, stop: PtraceStop) {
        let PtraceStop { event, signal } = stop;
        let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
        // A failure here means that it was killed, which is handled as its end.
        let _ = match event {
            libc::PTRACE_EVENT_EXEC => return self.handle_exec(pid),
            libc::PTRACE_EVENT_EXIT => return self.release(pid, 0),
            libc::PTRACE_EVENT_CLONE => {
                if let Some(thread) = created_process(pid) {
                    self.followed.remove(&thread);
                    self.unwanted.insert(thread);
                    let _ = ptrace(libc::PTRACE_INTERRUPT, thread, 0);
                }
                return self.release(pid, 0);
            }
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                self.followed.extend(created_process(pid));
                ptrace(libc::PTRACE_CONT, pid, 0)
            }
            libc::PTRACE_EVENT_STOP if stops => ptrace(libc::PTRACE_LISTEN, pid, 0),
            _ => ptrace(libc::PTRACE_CONT, pid, stop.signal_to_deliver() as usize),
        };
    }

    fn handle_exec(&mut self, pid: pid_t) {
        let (verdict, decided) = sync_channel(1);
        let (tell_outcome, outcome) = sync_channel(1);
        let sent = self.tell.send(ExecStop { pid: pid.unsigned_abs(), verdict, outcome }).is_ok();
        let sent = sent && self.waker.write_all(&[0]).is_ok();
        match decided.recv() {
            Ok(Verdict::Follow) if sent => {
                let _ = ptrace(libc::PTRACE_CONT, pid, 0);
                return;
            }
            Ok(Verdict::Implant) => {
                // While being changed, it must not be left alone.
                let killed_with_us = libc::PTRACE_O_EXITKILL | TRACE_OPTIONS;
                let _ = ptrace(libc::PTRACE_SETOPTIONS, pid, killed_with_us as usize);
                let _ = tell_outcome.send((self.implant)(pid.unsigned_abs()));
            }
            _ => {}
        }
        self.release(pid, 0);
    }

    fn release(&mut self, pid: pid_t, signal: c_int) {
        self.followed.remove(&pid);
        self.unwanted.remove(&pid);
        let _ = ptrace(libc::PTRACE_DETACH, pid, signal as usize);
    }
}

/// A stop of a traced process.
#[derive(Debug, Clone, Copy)]
struct PtraceStop {
    /// `PTRACE_EVENT_…`; 0: a signal is about to be delivered.
    event: c_int,
    signal: c_int,
}

impl PtraceStop {
    fn signal_to_deliver(self) -> c_int {
        if self.event == 0 { self.signal } else { 0 }
    }
}

enum ProcessChange {
    Stopped(pid_t, PtraceStop),
    Ended(pid_t),
}

/// Returns the process created by the fork or clone in which a process is stopped.
fn created_process(pid: pid_t) -> Option<pid_t> {
    event_message(pid).ok().and_then(|number| pid_t::try_from(number).ok())
}

const EXITED_OR_STOPPED: c_int = libc::WEXITED | libc::WSTOPPED;

/// Returns what happened to that process, or to any, of those that this thread traces.
fn wait_for_change(which: libc::idtype_t, pid: pid_t, options: c_int) -> Option<ProcessChange> {
    loop {
        // SAFETY: a structure of numbers, for which zero is valid; it lives until the call returns.
        let (done, about) = unsafe {
            let mut about: libc::siginfo_t = std::mem::zeroed();
            let options = options | libc::__WALL | libc::__WNOTHREAD;
            (libc::waitid(which, pid.unsigned_abs(), &raw mut about, options), about)
        };
        if done < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            continue;
        }
        // SAFETY: the call has filled in a change of a process, or left zeros.
        let (found, status) = unsafe { (about.si_pid(), about.si_status()) };
        if done < 0 || found == 0 {
            return None;
        }
        let has_ended = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED].contains(&about.si_code);
        let stop = PtraceStop { event: status >> 8, signal: status & 0xff };
        return Some(if has_ended { ProcessChange::Ended(found) } else { ProcessChange::Stopped(found, stop) });
    }
}
