//! Stops all threads of a process, by ptrace, and resumes them transparently.
//!
//! They are seized, so that the kernel lets them go if the recorder dies. A stop interrupts a blocking system call: the kernel
//! restarts most of them by itself, and those that would fail with EINTR are set back here, unless a signal is the reason.

use super::memory::{MappedRange, Memory};
use crate::inside::error::ImplantError;
use crate::launch::Request;
use libc::{c_void, pid_t, user_regs_struct};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// How long threads may take to stop. One that waits for a child of vfork, or in the kernel for a device, does not stop.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// Time after which to check whether a thread that does not stop has ended.
const END_CHECK_DELAY: Duration = Duration::from_millis(10);
/// The code segment of 64-bit programs.
const USER_CS: u64 = 0x33;
const NO_CALL: u64 = u64::MAX;
const PTRACE_GETSIGMASK: Request = 0x420a;
const PTRACE_SETSIGMASK: Request = 0x420b;
/// Vector registers and what else the processor's XSAVE writes.
const NT_X86_XSTATE: usize = 0x202;
const PTRACE_GET_RSEQ_CONFIGURATION: Request = 0x420f;
/// How much of a stack is searched. Threads' stacks are 8 MiB.
const STACK_BYTES_MAX: u64 = 8 << 20;

/// Words from the start of a signal frame to the interrupted instruction (struct rt_sigframe).
const SIGNAL_FRAME_WORDS: usize = 22;
/// Maximum size of the vDSO's stack frames.
const VDSO_FRAMES_BYTES_MAX: u64 = 1024;

/// System calls that fail with EINTR where others are restarted (signal(7)): none of these has taken effect then.
const EINTR_CALLS: [i64; 20] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
];
/// The kernel's internal errors for calls that it restarts.
const RESTART_ERRORS: std::ops::RangeInclusive<i64> = -514..=-512;
const ERESTART_RESTARTBLOCK: i64 = -516;

/// A stopped thread.
pub struct StoppedThread {
    pub tid: pid_t,
    /// A signal to be delivered when it resumes.
    signal: i32,
    /// The process is stopped (SIGSTOP), and must stay so.
    group_stopped: bool,
    /// It is at the entry or the end of a system call.
    at_call: bool,
    pub registers: user_regs_struct,
}

/// Threads that were told to stop and have not yet: they can be released only after they have.
#[derive(Debug, Default)]
pub struct StuckThreads(Vec<(u32, pid_t)>);

impl StuckThreads {
    /// Releases those that have stopped meanwhile. Must be called again while it is not empty.
    pub fn release_stopped(&mut self) {
        self.0.retain(|(pid, tid)| match poll_thread(*tid) {
            StopProgress::NotYet => true,
            StopProgress::Ended => false,
            StopProgress::Stopped(mut held) => {
                if let Ok(memory) = Memory::for_process(*pid) {
                    let _ = undo_interruption(*pid, &mut held, &memory);
                }
                held.detach();
                false
            }
        });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl StoppedThread {
    fn detach(&self) {
        // If this fails, the thread was killed.
        let _ = ptrace(libc::PTRACE_DETACH, self.tid, 0, self.signal as usize as *mut c_void);
    }
}

/// All threads of a process, stopped. They resume when this is dropped.
pub struct Threads<'a> {
    pid: u32,
    memory: &'a Memory,
    stuck: &'a mut StuckThreads,
    pub stopped: Vec<StoppedThread>,
}

impl Drop for Threads<'_> {
    fn drop(&mut self) {
        self.stopped.drain(..).for_each(|thread| thread.detach());
    }
}

/// The state of a thread that was told to stop.
enum StopProgress {
    NotYet,
    Stopped(Box<StoppedThread>),
    Ended,
}

impl<'a> Threads<'a> {
    /// # Errors
    /// Not all can be stopped; then all resume, those in `stuck` when they have stopped.
    pub fn stop(pid: u32, memory: &'a Memory, stuck: &'a mut StuckThreads) -> Result<Self, ImplantError> {
        let mut all = Self { pid, memory, stuck, stopped: Vec::new() };
        // Those that are still traced.
        let (own, others) = all.stuck.0.drain(..).partition(|(of, _)| *of == pid);
        all.stuck.0 = others;
        let own: Vec<(u32, pid_t)> = own;
        let mut pending: Vec<(pid_t, Instant)> = own.into_iter().map(|(_, tid)| (tid, Instant::now())).collect();
        let result = all.stop_within(&mut pending);
        all.stuck.0.extend(pending.into_iter().map(|(tid, _)| (pid, tid)));
        all.stuck.release_stopped();
        result.map(|()| all)
    }

    fn stop_within(&mut self, pending: &mut Vec<(pid_t, Instant)>) -> Result<(), ImplantError> {
        let began = Instant::now();
        let mut ended: Vec<pid_t> = Vec::new();
        loop {
            let mut changed = false;
            for tid in thread_ids(self.pid)? {
                let known = self.stopped.iter().any(|t| t.tid == tid) || pending.iter().any(|(t, _)| *t == tid);
                if known || ended.contains(&tid) {
                    continue;
                }
                changed = true;
                match seize(tid) {
                    Ok(()) => pending.push((tid, Instant::now())),
                    Err(_) if has_ended(self.pid, tid) => ended.push(tid),
                    // It is about to end.
                    Err(_) if began.elapsed() < STOP_TIMEOUT => {}
                    Err(e) => return Err(ImplantError::NotTraced(e)),
                }
            }
            let mut i = 0;
            while let Some((tid, since)) = pending.get(i).copied() {
                match poll_thread(tid) {
                    StopProgress::NotYet if since.elapsed() > END_CHECK_DELAY && has_ended(self.pid, tid) => {
                        ended.push(tid)
                    }
                    StopProgress::NotYet => {
                        i += 1;
                        continue;
                    }
                    StopProgress::Stopped(mut held) => {
                        let unusual = undo_interruption(self.pid, &mut held, self.memory);
                        self.stopped.push(*held);
                        pending.swap_remove(i);
                        unusual?;
                        changed = true;
                        continue;
                    }
                    StopProgress::Ended => ended.push(tid),
                }
                changed = true;
                pending.swap_remove(i);
            }
            if !changed && pending.is_empty() {
                break;
            }
            if began.elapsed() > STOP_TIMEOUT {
                return Err(ImplantError::Busy("one of its threads does not stop"));
            }
            if !changed {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
        if self.stopped.is_empty() { Err(ImplantError::Unsupported("it has ended")) } else { Ok(()) }
    }

    /// Lets all run briefly, and stops them again.
    pub fn run_and_stop(&mut self, run: Duration) -> Result<(), ImplantError> {
        self.stopped.drain(..).for_each(|thread| thread.detach());
        std::thread::sleep(run);
        let mut asked = Vec::new();
        let result = self.stop_within(&mut asked);
        self.stuck.0.extend(asked.into_iter().map(|(tid, _)| (self.pid, tid)));
        result
    }

    /// Returns a thread that can be made to execute code: it can resume from where it is, and has room on its stack.
    pub fn usable_thread(&self, ranges: &[MappedRange], room: u64) -> Option<&StoppedThread> {
        let fits = |t: &&StoppedThread| {
            let (sp, ip) = (t.registers.rsp, t.registers.rip);
            let of = |at: u64| ranges.iter().find(move |r| r.contains(at));
            let stack = of(sp).is_some_and(|r| r.writable && r.from + room <= sp);
            // A uprobe's instruction is executed elsewhere; a signal is about to be delivered.
            let code = of(ip).is_some_and(|r| r.executable && !r.name.starts_with('['));
            stack && code && t.signal == 0 && !in_rseq(t.tid, self.memory)
        };
        let restarts = |t: &&StoppedThread| {
            t.registers.orig_rax.cast_signed() >= 0 && ERESTART_RESTARTBLOCK == t.registers.rax.cast_signed()
        };
        // The first thread lives longest; one that ends meanwhile is useless.
        let first = |t: &&StoppedThread| t.tid.unsigned_abs() == self.pid;
        let (late, early): (Vec<&StoppedThread>, Vec<&StoppedThread>) =
            self.stopped.iter().filter(fits).partition(restarts);
        let all: Vec<&StoppedThread> = early.into_iter().chain(late).collect();
        all.iter().copied().find(first).or_else(|| all.first().copied())
    }

    /// Whether a thread is at such an address, or returns to one from a signal handler, whose frame is on the stack.
    pub fn any_at(&self, ranges: &[MappedRange], wanted: impl Fn(u64) -> bool) -> bool {
        self.stopped.iter().any(|t| {
            // A handler that is about to return has already popped the start of its frame.
            let from = (t.registers.rsp & !7).wrapping_sub(8);
            let returns = |words: Vec<u64>| {
                let behind = words.iter().zip(words.iter().skip(SIGNAL_FRAME_WORDS));
                behind.into_iter().any(|(restorer, ip)| wanted(*ip) && self.is_signal_restorer(*restorer))
            };
            wanted(t.registers.rip) || self.stack_words(ranges, from, STACK_BYTES_MAX).is_none_or(returns)
        })
    }

    /// Whether a thread is at such an address, or has such a word on its stack.
    pub fn any_holds_word(&self, ranges: &[MappedRange], wanted: impl Fn(u64) -> bool) -> bool {
        self.stopped.iter().any(|t| {
            let words = self.stack_words(ranges, t.registers.rsp & !7, STACK_BYTES_MAX);
            wanted(t.registers.rip) || words.is_none_or(|words| words.into_iter().any(&wanted))
        })
    }

    /// Whether a thread executes vDSO code called from such an address.
    pub fn any_calls(&self, ranges: &[MappedRange], wanted: impl Fn(u64) -> bool) -> bool {
        let in_vdso = |at: u64| ranges.iter().any(|r| r.contains(at) && r.name == "[vdso]");
        let mut calling = self.stopped.iter().filter(|t| in_vdso(t.registers.rip));
        calling.any(|t| {
            let words = self.stack_words(ranges, t.registers.rsp & !7, VDSO_FRAMES_BYTES_MAX);
            words.is_none_or(|words| words.into_iter().any(&wanted))
        })
    }

    /// Returns the words on a thread's stack; `None`: it cannot be read.
    pub fn stack(&self, ranges: &[MappedRange], thread: &StoppedThread) -> Option<Vec<u64>> {
        self.stack_words(ranges, thread.registers.rsp & !7, STACK_BYTES_MAX)
    }

    /// Returns the words of a stack from an address on; `None`: it cannot be read.
    fn stack_words(&self, ranges: &[MappedRange], from: u64, most: u64) -> Option<Vec<u64>> {
        let end = ranges.iter().find(|r| r.contains(from))?.to.min(from + most);
        let bytes = self.memory.read(from, (end - from) as usize).ok()?;
        Some(bytes.chunks_exact(8).map(|w| u64::from_le_bytes(*w.first_chunk().unwrap_or(&[0; 8]))).collect())
    }

    /// Whether this is what a signal handler returns to: `mov $15, %eax` of any width, `syscall`.
    fn is_signal_restorer(&self, restorer: u64) -> bool {
        const RESTORER_WIDE: &[u8] = &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
        self.memory.holds_bytes(restorer, RESTORER_WIDE)
            || self.memory.holds_bytes(restorer, &[0xb8, 15, 0, 0, 0, 0x0f, 0x05])
    }

    /// Lets a thread run to its next system call, or to the end of that.
    pub fn step_to_call(&mut self, tid: pid_t, within: Duration) -> Result<user_regs_struct, ImplantError> {
        let thread = self.release(tid)?;
        let go = |signal: i32| ptrace(libc::PTRACE_SYSCALL, tid, 0, signal as usize as *mut c_void);
        go(thread.signal)?;
        let until = Instant::now() + within;
        loop {
            match poll_thread(tid) {
                StopProgress::NotYet if Instant::now() > until => {
                    let _ = ptrace(libc::PTRACE_INTERRUPT, tid, 0, std::ptr::null_mut());
                    self.stuck.0.push((self.pid, tid));
                    return Err(ImplantError::NotStopped("a thread did not reach its next system call in time"));
                }
                StopProgress::NotYet => std::thread::yield_now(),
                StopProgress::Stopped(held) if held.at_call => {
                    let registers = held.registers;
                    self.stopped.push(*held);
                    return Ok(registers);
                }
                // All signals are blocked except those that cannot be.
                StopProgress::Stopped(held) => go(held.signal)?,
                StopProgress::Ended => return Err(ImplantError::NotStopped("it has ended")),
            }
        }
    }

    /// Lets a thread run until `done`, and stops it there.
    pub fn run_until(&mut self, tid: pid_t, within: Duration, done: impl Fn() -> bool) -> Result<(), ImplantError> {
        let thread = self.release(tid)?;
        let go = |signal: i32| ptrace(libc::PTRACE_CONT, tid, 0, signal as usize as *mut c_void);
        go(thread.signal)?;
        let (until, mut asked) = (Instant::now() + within, None);
        loop {
            if asked.is_none() && (done() || Instant::now() > until) {
                let _ = ptrace(libc::PTRACE_INTERRUPT, tid, 0, std::ptr::null_mut());
                asked = Some(Instant::now());
            }
            match (poll_thread(tid), asked) {
                (StopProgress::NotYet, Some(since)) if since.elapsed() > STOP_TIMEOUT => {
                    self.stuck.0.push((self.pid, tid));
                    return Err(ImplantError::NotStopped("a thread does not stop again"));
                }
                (StopProgress::NotYet, None) => std::thread::sleep(Duration::from_micros(20)),
                (StopProgress::NotYet, Some(_)) => std::thread::yield_now(),
                (StopProgress::Stopped(held), None) => go(held.signal)?,
                (StopProgress::Stopped(mut held), Some(_)) => {
                    let unusual = undo_interruption(self.pid, &mut held, self.memory);
                    self.stopped.push(*held);
                    return unusual;
                }
                // It is no longer held.
                (StopProgress::Ended, _) => return Ok(()),
            }
        }
    }

    /// Takes a thread that is to resume, whose stops are waited for from now on.
    fn release(&mut self, tid: pid_t) -> Result<StoppedThread, ImplantError> {
        let i = self.stopped.iter().position(|t| t.tid == tid).ok_or(ImplantError::NotStopped("a thread has ended"))?;
        Ok(self.stopped.swap_remove(i))
    }
}

/// Does what has to be done at once, so that the thread does not notice the stop if this process dies.
fn undo_interruption(pid: u32, held: &mut StoppedThread, memory: &Memory) -> Result<(), ImplantError> {
    let r = &mut held.registers;
    if r.cs != USER_CS {
        return Err(ImplantError::Unsupported("it runs 32-bit code"));
    }
    let interrupted = r.rax.cast_signed() == -i64::from(libc::EINTR) && EINTR_CALLS.contains(&r.orig_rax.cast_signed());
    let at_call = || memory.holds_bytes(r.rip.wrapping_sub(2), &[0x0f, 0x05]);
    if interrupted && held.signal == 0 && at_call() && !has_pending_signal(pid, held.tid) {
        (r.rip, r.rax, r.orig_rax) = (r.rip - 2, r.orig_rax, NO_CALL);
        set_registers(held.tid, r)?;
    }
    if held.group_stopped { Err(ImplantError::Unsupported("it is stopped (SIGSTOP)")) } else { Ok(()) }
}

/// Returns the registers with which a thread resumes elsewhere: restarts an interrupted call, since the kernel restarts it only for a
/// thread that resumes where it stopped.
pub fn resume_registers(r: &user_regs_struct) -> user_regs_struct {
    let mut to = *r;
    to.orig_rax = NO_CALL;
    if r.orig_rax.cast_signed() < 0 {
        return to;
    }
    let result = r.rax.cast_signed();
    if RESTART_ERRORS.contains(&result) {
        (to.rip, to.rax) = (r.rip - 2, r.orig_rax);
    } else if result == ERESTART_RESTARTBLOCK {
        (to.rip, to.rax) = (r.rip - 2, libc::SYS_restart_syscall.cast_unsigned());
    }
    to
}

/// Makes a stopped thread resume elsewhere, by one request.
pub fn set_registers(tid: pid_t, registers: &user_regs_struct) -> io::Result<()> {
    let mut all = *registers;
    ptrace(libc::PTRACE_SETREGS, tid, 0, (&raw mut all).cast())
}

fn registers(tid: pid_t) -> io::Result<user_regs_struct> {
    // SAFETY: a structure of numbers, for which zero is valid.
    let mut all: user_regs_struct = unsafe { std::mem::zeroed() };
    ptrace(libc::PTRACE_GETREGS, tid, 0, (&raw mut all).cast())?;
    Ok(all)
}

/// Returns the vector registers of a stopped thread.
pub fn vector_registers(tid: pid_t) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0u8; 1 << 14];
    let mut room = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    ptrace(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, (&raw mut room).cast())?;
    bytes.truncate(room.iov_len);
    Ok(bytes)
}

/// Sets the vector registers of a stopped thread to what they were, with changes.
pub fn set_vector_registers(tid: pid_t, bytes: &mut [u8]) -> io::Result<()> {
    let mut all = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    ptrace(libc::PTRACE_SETREGSET, tid, NT_X86_XSTATE, (&raw mut all).cast())
}

/// Returns the signals that a stopped thread blocks.
pub fn signal_mask(tid: pid_t) -> io::Result<u64> {
    let mut mask = 0u64;
    ptrace(PTRACE_GETSIGMASK, tid, 8, (&raw mut mask).cast())?;
    Ok(mask)
}

pub fn block_signals(tid: pid_t) -> io::Result<()> {
    let mut mask = u64::MAX;
    ptrace(PTRACE_SETSIGMASK, tid, 8, (&raw mut mask).cast())
}

/// Whether it is in a restartable sequence (rseq), or that is not known.
fn in_rseq(tid: pid_t, memory: &Memory) -> bool {
    // struct ptrace_rseq_configuration: the area's address, its size, a signature, flags.
    let mut about = [0u64; 3];
    if ptrace(PTRACE_GET_RSEQ_CONFIGURATION, tid, 24, (&raw mut about).cast()).is_err() {
        return true;
    }
    about[0] != 0 && memory.read_word(about[0] + 8) != Some(0)
}

fn ptrace(request: Request, tid: pid_t, address: usize, data: *mut c_void) -> io::Result<()> {
    // SAFETY: every request in this file reads or writes what `data` points to, which the caller holds, or nothing.
    let done = unsafe { libc::ptrace(request, tid, address as *mut c_void, data) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn seize(tid: pid_t) -> io::Result<()> {
    ptrace(libc::PTRACE_SEIZE, tid, 0, libc::PTRACE_O_TRACESYSGOOD as usize as *mut c_void)?;
    // It may have ended, which is detected later.
    let _ = ptrace(libc::PTRACE_INTERRUPT, tid, 0, std::ptr::null_mut());
    Ok(())
}

fn poll_thread(tid: pid_t) -> StopProgress {
    let mut status = 0;
    // SAFETY: waits for a thread that this one traces; the status is valid memory.
    let found = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
    if found == 0 || found < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
        return StopProgress::NotYet;
    }
    if found < 0 || !libc::WIFSTOPPED(status) {
        return StopProgress::Ended;
    }
    // It was killed at this moment.
    let Ok(registers) = registers(tid) else { return StopProgress::NotYet };
    let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
    let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
    // A signal that is about to be delivered; a system call's stop has a bit of its own in it.
    let at_call = event == 0 && signal & 0x80 != 0;
    let to_deliver = if event == 0 && !at_call { signal } else { 0 };
    StopProgress::Stopped(Box::new(StoppedThread {
        tid,
        signal: to_deliver,
        group_stopped: event != 0 && stops,
        at_call,
        registers,
    }))
}

fn thread_ids(pid: u32) -> Result<Vec<pid_t>, ImplantError> {
    let ended = |_| ImplantError::Unsupported("it has ended");
    let all = fs::read_dir(format!("/proc/{pid}/task")).map_err(ended)?;
    Ok(all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Returns the letter of a thread's state.
pub fn thread_state(pid: u32, tid: pid_t) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

fn has_ended(pid: u32, tid: pid_t) -> bool {
    matches!(thread_state(pid, tid), None | Some('Z' | 'X'))
}

/// Whether a signal is pending for a thread that does not block it.
fn has_pending_signal(pid: u32, tid: pid_t) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")) else { return true };
    let field = |name: &str| {
        let of = |line: &str| u64::from_str_radix(line.strip_prefix(name)?.trim(), 16).ok();
        status.lines().find_map(of)
    };
    match (field("SigPnd:"), field("ShdPnd:"), field("SigBlk:")) {
        (Some(own), Some(shared), Some(blocked)) => (own | shared) & !blocked != 0,
        _ => true,
    }
}
