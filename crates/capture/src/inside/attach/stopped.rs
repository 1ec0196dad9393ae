//! A process with all threads stopped, and the work that one of them is made to do: system calls and the object's begin function, by a
//! piece of code that then resumes the thread where it was. The jumps are written from here.

use super::super::SQLITE_LIBRARIES_MAX;
use super::super::error::ImplantError;
use super::super::planned::NAMED_FILES_MAX;
use super::memory::{MappedRange, Memory, code_gaps, find_free_range, mapped_ranges};
use super::returns::{RestoreOutcome, Stubs};
use super::threads::{Threads, block_signals, resume_registers, set_registers, signal_mask};
use super::{PAGE_BYTES, RUN_DURATION, STACK_BYTES, read_account, restore_code};
use inside::account::{self, Account};
use inside::image::{Attach, Image};
use inside::layout::{
    ARENA_HEADER_BYTES, CONTROL_BYTES, CONTROLS_AT, LIBRARY_AT, LibraryStatus, PLAN_LIBRARIES, ROOM as CODE_ROOM,
    STATE_AT, STEPS_MASK,
};
use inside::piece::{self, OPENED_FD, ResumeState, Task};
use libc::{pid_t, user_regs_struct};
use std::ops::Range as Span;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum number of mappings removed at a time, so that the list fits.
const UNMAPS_PER_RUN: usize = 12;
/// Offset of a thread's number from the thread pointer: glibc 2.36, musl 1.2.3.
const USUAL_TID_OFFSETS: [u64; 2] = [0x2d0, 0x30];
/// Maximum time for one system call, and for the object's begin function.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
const BEGIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of attempts to find no thread in the way.
const TRIES_MAX: u32 = 20;
const PROTECTIONS: [u64; 2] = [0, (libc::PROT_READ | libc::PROT_WRITE) as u64];
const MAP_ANONYMOUS_FLAGS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
const MAP_FIXED_FLAG: u64 = libc::MAP_FIXED as u64;

/// The process, and a piece of code for its threads.
pub struct StoppedProcess<'a> {
    pid: u32,
    memory: &'a Memory,
    threads: Threads<'a>,
    ranges: Vec<MappedRange>,
    piece: &'a [u8],
}

impl<'a> StoppedProcess<'a> {
    pub fn new(pid: u32, memory: &'a Memory, threads: Threads<'a>, places: &'a Attach) -> Result<Self, ImplantError> {
        let mut process = Self { pid, memory, threads, ranges: Vec::new(), piece: &places.piece };
        process.reread_ranges()?;
        process.clear_gaps()?;
        Ok(process)
    }

    /// Removes the pieces of killed recorders. A piece that a thread is in, or returns to, would continue its work.
    fn clear_gaps(&self) -> Result<(), ImplantError> {
        let rooms = code_gaps(self.pid, self.memory, &self.ranges);
        let within = |at: u64| rooms.iter().any(|room| (room.from..room.to).contains(&at));
        if self.threads.any_holds_word(&self.ranges, within) {
            return Err(ImplantError::Busy("one of its threads is in code of an earlier recording"));
        }
        for room in rooms.iter().filter(|room| room.used > 0 && self.memory.holds_bytes(room.from, self.piece)) {
            self.memory.write(room.from, &vec![0; room.used as usize])?;
        }
        Ok(())
    }

    pub fn reread_ranges(&mut self) -> Result<(), ImplantError> {
        self.ranges = mapped_ranges(self.pid).map_err(ImplantError::NotTraced)?;
        Ok(())
    }

    /// Maps the object; returns its address.
    pub fn load_object(&mut self, object: &Path, image: &Image) -> Result<u64, ImplantError> {
        let size = image.size + STACK_BYTES;
        let base = find_free_range(&self.ranges, size).ok_or(ImplantError::Unsupported("it has no free addresses"))?;
        let path = [object.as_os_str().as_bytes(), &[0]].concat();
        let tasks = |path_at: u64| {
            let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
            let open = [libc::AT_FDCWD as u64, path_at, flags, 0, 0];
            let place = MAP_ANONYMOUS_FLAGS | libc::MAP_FIXED_NOREPLACE as u64;
            let mut all = vec![
                Task::own_call(libc::SYS_openat.cast_unsigned(), open),
                mmap_task([base, size, PROTECTIONS[0], place, u64::MAX, 0]),
            ];
            for s in &image.segments {
                let page = s.address & !(PAGE_BYTES - 1);
                let before = s.address - page;
                let private = libc::MAP_PRIVATE as u64 | MAP_FIXED_FLAG;
                all.push(mmap_task([
                    base + page,
                    before + s.file_size,
                    s.protection,
                    private,
                    OPENED_FD,
                    s.offset - before,
                ]));
                let filled = (s.address + s.file_size).next_multiple_of(PAGE_BYTES);
                if s.address + s.size > filled {
                    let more = s.address + s.size - filled;
                    all.push(mmap_task([
                        base + filled,
                        more,
                        s.protection,
                        MAP_ANONYMOUS_FLAGS | MAP_FIXED_FLAG,
                        u64::MAX,
                        0,
                    ]));
                }
            }
            all.push(mmap_task([
                base + image.size,
                STACK_BYTES,
                PROTECTIONS[1],
                MAP_ANONYMOUS_FLAGS | MAP_FIXED_FLAG,
                u64::MAX,
                0,
            ]));
            all
        };
        let brought = self.run_piece(0, &path, tasks, None).and_then(|()| self.relocate(base, object, image));
        if let Err(why) = brought {
            self.reread_ranges()?;
            if self.ranges.iter().any(|r| r.from == base) {
                let _ = self.unmap(&[(base, size)]);
            }
            return Err(why);
        }
        self.reread_ranges()?;
        Ok(base)
    }

    /// Does the work of a loader.
    fn relocate(&self, base: u64, object: &Path, image: &Image) -> Result<(), ImplantError> {
        for s in &image.segments {
            let end = s.address + s.file_size;
            let rest = end.next_multiple_of(PAGE_BYTES).min(s.address + s.size).saturating_sub(end);
            self.memory.write(base + end, &vec![0; rest as usize])?;
        }
        for (at, word) in image.relocated_words(base, 0) {
            self.memory.write(at, &word.to_le_bytes())?;
        }
        let mut directory = object.parent().map(|f| f.as_os_str().as_bytes().to_vec()).unwrap_or_default();
        directory.push(b'/');
        let (at, bytes) = image.parameters(base, 1, 0, &directory);
        Ok(self.memory.write(at, &bytes)?)
    }

    /// Runs the object's begin function, which prepares the jumps.
    pub fn run_begin(&mut self, base: u64, image: &Image, places: &Attach) -> Result<Account, ImplantError> {
        let thread_at = self.thread_number_at()?;
        let at = base + places.account;
        self.memory.write(at, &Account::initial_bytes(self.pid.into(), thread_at))?;
        let function = Task::Function(base + places.begin);
        let stack = base + image.size + STACK_BYTES;
        self.run_piece(stack, &[], |_| vec![function], Some(at))?;
        self.reread_ranges()?;
        let account =
            read_account(self.memory, at).ok_or(ImplantError::Unsupported("the object's state in it is invalid"))?;
        match account.outcome {
            account::ATTACH_DONE => Ok(account),
            account::ATTACH_BUSY => Err(ImplantError::Busy(account.describe_failure())),
            _ => Err(ImplantError::Unsupported(account.describe_failure())),
        }
    }

    /// Returns the offset from the thread pointer at which the C library keeps a thread's number: the only one that is right
    /// for all threads.
    fn thread_number_at(&self) -> Result<u64, ImplantError> {
        let mut common: Option<Vec<u64>> = None;
        for thread in &self.threads.stopped {
            let pointer = thread.registers.fs_base;
            let block = (1..=4).rev().find_map(|quarter| self.memory.read(pointer, quarter * 1024).ok());
            let block = block.ok_or(ImplantError::Unsupported("one of its threads has no thread pointer"))?;
            let number = thread.tid.to_le_bytes();
            let of_this = block.chunks_exact(4).zip(0u64..).filter(|(word, _)| *word == number).map(|(_, i)| 4 * i);
            common = Some(match common {
                None => of_this.collect(),
                Some(known) => {
                    let of_this: Vec<u64> = of_this.collect();
                    known.into_iter().filter(|at| of_this.contains(at)).collect()
                }
            });
        }
        // The number may occur elsewhere by chance: then the offsets of known C libraries decide.
        let mut usual = USUAL_TID_OFFSETS.into_iter().filter(|at| common.as_ref().is_some_and(|all| all.contains(at)));
        match (common.as_deref(), usual.next(), usual.next()) {
            (Some([at]), ..) => Ok(*at),
            (_, Some(at), None) => Ok(at),
            _ => Err(ImplantError::Unsupported("cannot determine where its C library stores the thread ID")),
        }
    }

    /// Checks that every library that is loaded can be hooked: functions of `--op` and statements are nested, and probed the same way.
    pub fn check_all(&self, account: &Account) -> Result<(), ImplantError> {
        let states = self.memory.read(account.arena + LIBRARY_AT as u64, 4 * PLAN_LIBRARIES)?;
        let states = states.chunks_exact(4).map(|n| u32::from_le_bytes(*n.first_chunk().unwrap_or(&[0; 4])));
        match states.map(LibraryStatus::from_number).find(|status| matches!(status, LibraryStatus::Refused(_))) {
            Some(LibraryStatus::Refused(why)) => Err(ImplantError::Unsupported(why)),
            _ => Ok(()),
        }
    }

    /// Gives the program its own return addresses back: those that stubs stand for.
    pub fn put_back_returns(
        &mut self,
        stubs: &Stubs,
        account: &Account,
        object: (u64, u64),
    ) -> Result<RestoreOutcome, ImplantError> {
        let own: Vec<(u64, u64)> = account.mappings.iter().copied().chain([object]).collect();
        stubs.restore_returns(self.pid, self.memory, &mut self.threads, &self.ranges, &own)
    }

    /// Writes the jumps while no thread is in the overwritten code; returns the libraries' indices in the plan.
    pub fn write_jumps(&mut self, account: &Account) -> Result<Vec<usize>, ImplantError> {
        let in_middle = |at: u64| account.jumps.iter().any(|jump| jump.middle().contains(&at));
        let mut tries = 0;
        while self.threads.any_at(&self.ranges, in_middle) {
            tries += 1;
            if tries == TRIES_MAX {
                return Err(ImplantError::Busy("one of its threads stays where a jump would be written"));
            }
            self.run_briefly()?;
        }
        // The code that a jump was made for may have been unloaded meanwhile.
        let is_there = |jump: &account::Jump| {
            // The first byte may be a breakpoint.
            let from = usize::from(jump.first > 0);
            self.memory.holds_bytes(jump.at + from as u64, &jump.original[from..])
        };
        if !account.jumps.iter().all(is_there) {
            return Err(ImplantError::Busy("its code changed meanwhile"));
        }
        let mut libraries: Vec<usize> = Vec::new();
        for jump in &account.jumps {
            self.memory.write(jump.at, &jump.now)?;
            // Jumps in the C library and the loader do not belong to a probed library.
            let library = jump.library as usize;
            if library < SQLITE_LIBRARIES_MAX + NAMED_FILES_MAX && !libraries.contains(&library) {
                libraries.push(library);
            }
        }
        for library in &libraries {
            self.memory.write(account.arena + (LIBRARY_AT + 4 * library) as u64, &1u32.to_le_bytes())?;
        }
        Ok(libraries)
    }

    /// Lets all threads run briefly.
    fn run_briefly(&mut self) -> Result<(), ImplantError> {
        self.threads.run_and_stop(RUN_DURATION)?;
        self.reread_ranges()
    }

    /// Makes a thread perform tasks, and resume where it was; then it is stopped again. `tasks` receives the address of the text.
    /// `outcome`: the account of the object's begin function, if that is the task.
    fn run_piece(
        &mut self,
        stack: u64,
        text: &[u8],
        tasks: impl Fn(u64) -> Vec<Task>,
        outcome: Option<u64>,
    ) -> Result<(), ImplantError> {
        let size = self.piece.len().next_multiple_of(16) + piece::data_bytes(tasks(0).len(), text);
        // Something else may be there, or a piece that was not removed.
        let rooms = code_gaps(self.pid, self.memory, &self.ranges);
        let at = rooms.iter().find(|room| room.used == 0 && room.to - room.from >= size as u64).map(|room| room.from);
        let at = at.ok_or(ImplantError::Unsupported("there is no room for code after any of its libraries"))?;
        let able = self
            .threads
            .usable_thread(&self.ranges, piece::BELOW_STACK_BYTES)
            .ok_or(ImplantError::Busy("none of its threads can be made to map the object"))?;
        let (tid, mut to) = (able.tid, resume_registers(&able.registers));
        let data_at = at + self.piece.len().next_multiple_of(16) as u64;
        let text_at = at + (size - text.len()) as u64;
        let data = piece::build_data(&resume_state(&to, signal_mask(tid)?), stack, &tasks(text_at), text);
        self.memory.write(at, self.piece)?;
        self.memory.write(data_at, &data)?;
        (to.rip, to.rbx) = (at, data_at);
        // From here on it performs its tasks, and resumes, by itself.
        set_registers(tid, &to)?;
        block_signals(tid)?;
        let code = at..at + self.piece.len() as u64;
        let result = match outcome {
            None => self.follow(tid, &code),
            Some(account) => self.await_outcome(tid, account),
        };
        self.run_until_outside(tid, &code)?;
        self.memory.write(at, &vec![0; size])?;
        result
    }

    /// Steps from system call to system call, until the piece restores the signal mask.
    fn follow(&mut self, tid: pid_t, code: &Span<u64>) -> Result<(), ImplantError> {
        let (mut masks, mut failed) = (0, Ok(()));
        loop {
            let now = self.threads.step_to_call(tid, CALL_TIMEOUT)?;
            if !code.contains(&now.rip) {
                return Err(ImplantError::NotStopped("its thread left the injected code"));
            }
            // At its entry a call has this as its result.
            let result = now.rax.cast_signed();
            let entry = result == -i64::from(libc::ENOSYS);
            masks += u32::from(now.orig_rax.cast_signed() == libc::SYS_rt_sigprocmask);
            if !entry && (-4095..0).contains(&result) && failed.is_ok() {
                failed = Err(ImplantError::System(std::io::Error::from_raw_os_error(-result as i32)));
            }
            // The entry and the end of the first one, and the entry of the last.
            if masks == 3 {
                // The number of remaining tasks.
                let all_done = now.r13 == 0;
                return if failed.is_ok() && !all_done {
                    Err(ImplantError::NotStopped("its thread did not complete the injected code"))
                } else {
                    failed
                };
            }
        }
    }

    fn await_outcome(&mut self, tid: pid_t, account: u64) -> Result<(), ImplantError> {
        let memory = self.memory;
        self.threads.run_until(tid, BEGIN_TIMEOUT, || memory.read_word(account + 24) != Some(0))?;
        if memory.read_word(account + 24) == Some(0) {
            return Err(ImplantError::NotStopped("its thread did not finish initialising the object in time"));
        }
        Ok(())
    }

    /// Lets a thread run until it has left the piece.
    fn run_until_outside(&mut self, tid: pid_t, code: &Span<u64>) -> Result<(), ImplantError> {
        let (until, mut run) = (Instant::now() + CALL_TIMEOUT, RUN_DURATION / 100);
        loop {
            let Some(thread) = self.threads.stopped.iter().find(|t| t.tid == tid) else { return Ok(()) };
            // A thread is also inside if a signal handler interrupted it there.
            let inside = |at: u64| code.contains(&at);
            if !inside(thread.registers.rip) && !self.threads.any_at(&self.ranges, inside) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(ImplantError::NotStopped("its thread did not leave the injected code in time"));
            }
            // Longer each time: on a busy machine a short time may end before the thread has run at all.
            self.threads.run_until(tid, run, || false)?;
            run = (2 * run).min(RUN_DURATION);
        }
    }

    fn unmap(&mut self, all: &[(u64, u64)]) -> Result<(), ImplantError> {
        for some in all.chunks(UNMAPS_PER_RUN) {
            let call =
                |(at, size): &(u64, u64)| Task::own_call(libc::SYS_munmap.cast_unsigned(), [*at, *size, 0, 0, 0]);
            self.run_piece(0, &[], |_| some.iter().map(call).collect(), None)?;
            self.reread_ranges()?;
        }
        Ok(())
    }

    /// Unmaps everything that the object mapped, and the object. No thread may be in it.
    pub fn unmap_all(&mut self, base: u64, size: u64, account: u64) {
        let account = read_account(self.memory, account).unwrap_or_default();
        let mut all = account.mappings;
        // An empty one is not a mapping; the kernel would refuse it.
        all.retain(|(_, size)| *size > 0);
        all.push((base, size));
        let _ = self.unmap(&all);
    }

    /// Reverts an unfinished attachment: the code, and the object if no thread is in it.
    pub fn revert(&mut self, base: u64, size: u64, places: &Attach) {
        let at = base + places.account;
        let account = read_account(self.memory, at).unwrap_or_default();
        restore_code(self.memory, &account, true);
        if self.reread_ranges().is_ok() && account.untold == 0 && !self.is_used(&account, base, size) {
            self.unmap_all(base, size, at);
        }
    }

    /// Whether a thread is in the object, or returns to it.
    pub fn is_used(&self, account: &Account, base: u64, size: u64) -> bool {
        // The other mappings hold only data: a thread that works on them is in the object's code.
        let rooms = account.mappings.iter().copied().filter(|(_, size)| *size == CODE_ROOM);
        let code: Vec<(u64, u64)> = rooms.chain([(base, size)]).collect();
        let steps = self.memory.read(account.arena, ARENA_HEADER_BYTES).is_ok_and(|header| {
            header[CONTROLS_AT..].chunks_exact(CONTROL_BYTES).any(|control| {
                let state = control[STATE_AT..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                state & STEPS_MASK != 0
            })
        });
        let within = |at: u64| code.iter().any(|(from, size)| at >= *from && at - from < *size);
        let threads = &self.threads;
        steps
            || account.preparing != 0
            || threads.any_at(&self.ranges, within)
            || threads.any_calls(&self.ranges, within)
    }
}

fn mmap_task(a: [u64; 6]) -> Task {
    Task::Call(libc::SYS_mmap.cast_unsigned(), a)
}

fn resume_state(r: &user_regs_struct, mask: u64) -> ResumeState {
    let registers =
        [r.r15, r.r14, r.r13, r.r12, r.r11, r.r10, r.r9, r.r8, r.rbp, r.rdi, r.rsi, r.rdx, r.rcx, r.rax, r.rbx];
    ResumeState { ip: r.rip, flags: r.eflags, registers, mask }
}
