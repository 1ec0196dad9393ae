//! Where threads with long sleeps were: the functions of the kernel and of the program.
//!
//! The kernel side (`bpf/stacks.h`) selects the longest sleeps under a budget and provides the kernel's functions and a copy of the
//! program's stack. Here a separate thread resolves them to names while the program still exists, so that an archive needs neither its
//! files nor this kernel. The copies are dropped.
//!
//! | file | purpose |
//! |---|---|
//! | this one | the ring, the budget, the thread |
//! | `raw` | the contents of the ring |
//! | `maps` | where a process has code |
//! | `code` | a file's functions and unwind information |
//! | `section` | a piece of such a file |
//! | `endless` | unwind information that is not evaluated |
//! | `program` | from the copy of a stack to functions |
//! | `kernel` | the kernel's functions |
//! | `names` | names as in the source |
//! | `chains` | records |

mod chains;
pub(crate) mod code;
mod endless;
mod kernel;
mod maps;
mod names;
pub(crate) mod program;
pub(crate) mod raw;
mod section;

use aya::maps::{Array, MapData, RingBuf};
use chains::Chains;
use kernel::KernelNames;
use model::event::chain_end;
use model::table::Coverage;
use model::{Absence, Event, Layer};
use program::{Place, Programs};
use raw::{CallStack, ProgramPart, RingItem, Sleep};
use std::collections::HashMap;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

/// Number of stacks in a window of 100 ms (`STACK_WINDOW` in `stacks.h`).
pub const STACKS_PER_WINDOW: u32 = 10;
/// Windows in a second.
const WINDOWS_PER_SECOND: u32 = 10;
/// Shorter sleeps are never considered: a stack costs its thread a few microseconds.
pub const SLEEP_NS_MIN: u64 = 100_000;
/// Size of the ring in bytes: what the budget allows in two seconds.
pub const RING_BYTES: u32 = 4 << 20;
/// Maximum number of sleeps of a thread that is still in its call, and how long they wait for its end.
const WAITING_SLEEPS_MAX: usize = 64;
const WAIT_NS_MAX: u64 = 10_000_000_000;

/// How often the ring is checked without a wake-up, in ms.
const POLL_INTERVAL_MS: libc::c_int = 500;

/// Number of words of the kernel side's state; as in `stacks.h`.
const STATE_WORDS: usize = 8;

/// How the budget was kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budget {
    /// Maximum number of stacks per second.
    pub a_second: u64,
    /// Shorter sleeps were not considered.
    pub from_ns: u64,
    /// Stacks that were taken.
    pub taken: u64,
    /// Longer sleeps for which no stack was taken.
    pub skipped: u64,
    /// The longest of those.
    pub longest_skipped_ns: u64,
    /// Stacks for which there was no room.
    pub no_room: u64,
}

/// The name of stacks in the coverage.
const COVERAGE_NAME: &str = "stacks";

/// Returns the coverage if none are taken.
pub fn coverage_absent(why: &str) -> Coverage {
    Coverage::absent(Layer::RunQueue, COVERAGE_NAME, Absence::Failed, why)
}

/// Returns the coverage if stacks are taken.
pub fn coverage_attached() -> Coverage {
    let how = format!(
        "of sleeps from {} us, at most {} a second, the longest first",
        SLEEP_NS_MIN / 1000,
        STACKS_PER_WINDOW * WINDOWS_PER_SECOND
    );
    Coverage::attached(Layer::RunQueue, COVERAGE_NAME, how)
}

/// Stacks being processed.
pub struct Stacks {
    state: Array<MapData, [u64; STATE_WORDS]>,
    from: Receiver<Event>,
    /// Closed when no more will come.
    open: Option<PipeWriter>,
    worker: Option<JoinHandle<()>>,
}

impl Stacks {
    /// Starts taking them from the kernel side's ring, in a separate thread: a process that has slept may end a moment later, and the
    /// thread that drains the other rings may be busy.
    pub fn new(mut ring: RingBuf<MapData>, state: Array<MapData, [u64; STATE_WORDS]>) -> Self {
        let (outgoing, from) = channel();
        // Without it the thread would not be notified of the end.
        let (end, open) = io::pipe().ok().unzip();
        let work = move || {
            let (mut naming, mut told) = (Resolver::default(), Vec::new());
            let mut last = end.is_none();
            loop {
                while let Some(item) = ring.next() {
                    if let Some(raw) = RingItem::parse(&item) {
                        naming.handle(raw, &mut told);
                    }
                }
                if last {
                    naming.report_abandoned(u64::MAX, &mut told);
                }
                naming.report_named(last, &mut told);
                told.drain(..).for_each(|event| drop(outgoing.send(event)));
                if last {
                    return;
                }
                last = wait_for(ring.as_raw_fd(), end.as_ref());
            }
        };
        let worker = std::thread::Builder::new().name("stacks".into()).spawn(work).ok();
        Self { state, from, open, worker }
    }

    /// Returns the stacks that have names by now.
    pub fn collect(&mut self) -> Vec<Event> {
        self.from.try_iter().collect()
    }

    /// Returns all that is left, and how the budget was kept.
    pub fn finish(&mut self) -> (Vec<Event>, Budget) {
        self.open = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
        let [_, _, taken, skipped, no_room, longest_skipped_ns, ..] = self.state.get(&0, 0).unwrap_or_default();
        let a_second = u64::from(STACKS_PER_WINDOW * WINDOWS_PER_SECOND);
        (self.collect(), Budget { a_second, from_ns: SLEEP_NS_MIN, taken, skipped, longest_skipped_ns, no_room })
    }
}

/// Waits until the kernel side requests attention, it is time to check, or no more will come; returns whether the latter is
/// true.
fn wait_for(ring: RawFd, end: Option<&PipeReader>) -> bool {
    let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // Negative descriptors are ignored.
    let mut polls = [poll(ring), poll(end.map_or(-1, AsRawFd::as_raw_fd))];
    // SAFETY: they live until the call returns.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, POLL_INTERVAL_MS) };
    polls[1].revents != 0
}

impl std::fmt::Debug for Stacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stacks").finish_non_exhaustive()
    }
}

/// The kernel's names: reading its 200,000 lines takes a tenth of a second, during which a program that slept may end. So a separate
/// thread reads them, and stacks that need them wait for it.
#[derive(Default)]
enum KernelNamesState {
    #[default]
    Unread,
    Reading(JoinHandle<KernelNames>),
    Read(KernelNames),
}

impl KernelNamesState {
    /// Returns the names, if they are available by now; `wait`: waits for them.
    fn names(&mut self, wait: bool) -> Option<&mut KernelNames> {
        *self = match std::mem::take(self) {
            Self::Unread if !wait => {
                let thread = std::thread::Builder::new().name("kernel names".into()).spawn(KernelNames::read);
                thread.map_or_else(|_| Self::Read(KernelNames::read()), Self::Reading)
            }
            Self::Unread => Self::Read(KernelNames::read()),
            Self::Reading(thread) if wait || thread.is_finished() => Self::Read(thread.join().unwrap_or_default()),
            other => other,
        };
        if let Self::Read(names) = self { Some(names) } else { None }
    }
}

/// Sleeps of one call, with the program's functions and why they end.
type UnnamedSleeps = (Vec<Sleep>, Vec<Place>, u16);

/// Resolves addresses to names.
#[derive(Default)]
struct Resolver {
    kernel: KernelNamesState,
    /// Stacks that wait for the kernel's names.
    unnamed: Vec<UnnamedSleeps>,
    programs: Programs,
    chains: Chains,
    /// Sleeps of threads that have not left their system call yet.
    waiting: HashMap<u32, Vec<Sleep>>,
    newest_ns: u64,
}

impl Resolver {
    fn handle(&mut self, raw: RingItem, tell: &mut Vec<Event>) {
        match raw {
            RingItem::Moved { tgid, parent } => {
                if let Some(parent) = parent {
                    self.programs.note_fork(tgid, parent);
                } else {
                    self.programs.read_process(tgid);
                }
            }
            RingItem::Asleep(asleep) => {
                self.handle_sleep(asleep, tell);
                self.report_abandoned(self.newest_ns.saturating_sub(WAIT_NS_MAX), tell);
            }
            RingItem::OfCall(call) => {
                if !self.programs.knows(call.thread.0) {
                    self.programs.read_process(call.thread.0);
                }
                self.handle_stack(&call, tell);
            }
        }
    }

    fn handle_sleep(&mut self, asleep: Sleep, tell: &mut Vec<Event>) {
        self.newest_ns = self.newest_ns.max(asleep.slept_ns.1);
        let ended = match asleep.program_part {
            ProgramPart::Later => {
                let waiting = self.waiting.entry(asleep.thread.1).or_default();
                if waiting.last().is_some_and(|last| last.thread != asleep.thread)
                    || waiting.len() >= WAITING_SLEEPS_MAX
                {
                    let old = std::mem::take(waiting);
                    self.queue_report(&old, &[], chain_end::NOT_TAKEN, tell);
                }
                self.waiting.entry(asleep.thread.1).or_default().push(asleep);
                return;
            }
            ProgramPart::PageFault => chain_end::PAGE_FAULT,
            ProgramPart::Foreign => chain_end::NOT_64_BIT,
        };
        if !self.programs.knows(asleep.thread.0) {
            self.programs.read_process(asleep.thread.0);
        }
        let place = self.programs.function_at(asleep.thread.0, asleep.at.ip).filter(|_| ended == chain_end::PAGE_FAULT);
        let places: Vec<Place> = place.into_iter().collect();
        self.queue_report(&[asleep], &places, ended, tell);
    }

    fn handle_stack(&mut self, call: &CallStack, tell: &mut Vec<Event>) {
        self.newest_ns = self.newest_ns.max(call.time_ns);
        let waiting = self.waiting.remove(&call.thread.1).unwrap_or_default();
        if waiting.is_empty() {
            return;
        }
        // Files, registers and stacks are untrusted, and the unwinder is third-party code.
        let unwound = catch_unwind(AssertUnwindSafe(|| self.programs.unwind(call)));
        let (places, ended) = unwound.unwrap_or((Vec::new(), chain_end::NO_CALLER));
        self.queue_report(&waiting, &places, ended, tell);
    }

    fn queue_report(&mut self, asleep: &[Sleep], places: &[Place], ended: u16, tell: &mut Vec<Event>) {
        if !asleep.is_empty() {
            self.unnamed.push((asleep.to_vec(), places.to_vec(), ended));
            self.report_named(false, tell);
        }
    }

    /// Reports what has waited for the kernel's names, if these are available; `wait`: waits for them.
    fn report_named(&mut self, wait: bool, tell: &mut Vec<Event>) {
        if self.unnamed.is_empty() {
            return;
        }
        let Some(names) = self.kernel.names(wait) else { return };
        for (asleep, places, ended) in self.unnamed.drain(..) {
            for one in &asleep {
                let time_ns = one.slept_ns.1;
                let in_kernel: Vec<Place> = one.kernel.iter().map(|address| place_in_kernel(names, *address)).collect();
                let kernel = if in_kernel.is_empty() {
                    0
                } else {
                    self.chains.number_of(&in_kernel, chain_end::WHOLE, time_ns, tell)
                };
                let program = self.chains.number_of(&places, ended, time_ns, tell);
                tell.push(chains::stack_event(one, kernel, program));
            }
        }
    }

    /// Reports sleeps that ended before a time and whose program's part did not arrive.
    fn report_abandoned(&mut self, before_ns: u64, tell: &mut Vec<Event>) {
        let old = |asleep: &[Sleep]| asleep.last().is_none_or(|last| last.slept_ns.1 < before_ns);
        let mut tids: Vec<u32> = self.waiting.iter().filter(|(_, all)| old(all)).map(|(tid, _)| *tid).collect();
        tids.sort_unstable();
        for tid in tids {
            let all = self.waiting.remove(&tid).unwrap_or_default();
            self.queue_report(&all, &[], chain_end::NOT_TAKEN, tell);
        }
    }
}

fn place_in_kernel(names: &mut KernelNames, address: u64) -> Place {
    match names.find(address) {
        Some(found) => Place {
            function: Some((names::clean_text(found.name), found.offset)),
            file: format!("[{}]", found.module),
            offset: found.offset,
            build_id: String::new(),
        },
        None => Place { function: None, file: "[kernel]".into(), offset: address, build_id: String::new() },
    }
}

/// The code that parses untrusted bytes, for fuzzing: it treats this process as the one that slept.
#[derive(Default)]
pub struct FuzzTrial(Resolver);

impl FuzzTrial {
    /// Parses these bytes as contents of the ring, as `/proc/PID/maps`, as `/proc/kallsyms` and as a symbol.
    pub fn read(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        maps::Maps::parse(&text);
        KernelNames::parse(text.to_string()).find(0xffff_ffff_8100_0123);
        drop(names::demangle(&text));
        let own = std::process::id();
        if !self.0.programs.knows(own) {
            self.0.programs.read_process(own);
        }
        match RingItem::parse(bytes) {
            Some(RingItem::OfCall(call)) => drop(self.0.programs.unwind(&CallStack { thread: (own, 1), ..call })),
            Some(RingItem::Asleep(asleep)) => drop(self.0.programs.function_at(own, asleep.at.ip)),
            Some(RingItem::Moved { .. }) | None => {}
        }
    }

    /// Reads a file as code.
    pub fn read_file(file: std::fs::File) {
        if let Some(code) = code::CodeFile::read(file) {
            for address in [0, 0x1000, 0x1139, 0x40_1000, u64::MAX] {
                drop((code.function(address), code.is_outermost(address), code.follows_call(address)));
                code.address_of(address);
            }
        }
    }
}

#[cfg(test)]
mod tests;
