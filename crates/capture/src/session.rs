//! A recording, from start to finish.
//!
//! One thread owns it and calls [`Session::wait`] and [`Session::drain`] in turn. Draining on a timer instead of a wake-up
//! for each record is what makes tracing cheap: the rings hold seconds of a busy machine.

use crate::inside::asks::PendingQuestion;
use crate::inside::error::InsideError;
use crate::inside::pace::PollPace;
use crate::kernel::clock::{boot_ns, boot_offset_ns, process_cpu_ns};
use crate::kernel::types::KernelTypes;
use crate::kernel::{calls, compat, symbols};
use crate::loss::LossWatch;
use crate::multi::MultiUprobes;
use crate::price::{self, Activity, PriceSampler, ProgramInfo, program_info};
use crate::request::{Function, Request, Scope};
use crate::rings::{Order, RingLayout, Rings};
use crate::sqlite::SqliteSymbols;
use crate::stacks::{self, Stacks};
use crate::trap::{self, FirstInstruction};
use crate::uprobes::Uprobes;
use crate::{Error, Inside, error, namespace, probes, refusal, tasks};
use aya::maps::{Array, HashMap, Map, MapData, RingBuf};
use aya::{Btf, Ebpf, EbpfLoader};
use model::Event;
use model::table::Coverage;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) static BPF_OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/fathom.bpf.o"));

/// Size of a task's slot; as in `common.h`.
const SLOT_SIZE: usize = 1000;
/// A slot begins with its tgid (4 bytes) and its standing (2 bytes).
const STANDING_OFFSET: usize = 4;

/// Returns the process of a slot, if it is to be recorded.
fn tracked_process(slot: &[u8; SLOT_SIZE]) -> Option<u32> {
    let standing = u16::from_ne_bytes(*slot.get(STANDING_OFFSET..)?.first_chunk()?);
    let tgid = u32::from_ne_bytes(*slot.first_chunk()?);
    (standing & model::event::flags::TRACKED != 0).then_some(tgid)
}

/// Maximum duration of a drain.
const DRAIN_DURATION_MAX: Duration = Duration::from_secs(2);

/// How long the end of a recording waits for a task that was preempted while it wrote a record. One that is throttled or of the lowest
/// priority may not run for seconds.
const PREEMPTED_TASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time that records stay in the rings.
const DRAIN_INTERVAL: Duration = Duration::from_secs(1);
/// How full a ring gets at most, out of 1, unless records come faster than any machine makes them.
const DRAIN_FILL_RATIO: f64 = 0.25;

/// Size of an unused ring: a page.
const UNUSED_RING_BYTES: u32 = 4096;

/// How often programs are queried for runs they missed.
const PROGRAM_QUERY_INTERVAL: Duration = Duration::from_secs(1);

pub struct Session {
    rings: Rings,
    wakeups: RingBuf<MapData>,
    drained_at: Instant,
    tasks: HashMap<MapData, u32, [u8; SLOT_SIZE]>,
    loss: LossWatch,
    price: PriceSampler,
    /// The cost of the two traps of a probed function, if it could be measured.
    traps: BTreeMap<FirstInstruction, Vec<f64>>,
    uprobes: Uprobes,
    /// Stacks of long sleeps, if requested.
    stacks: Option<Stacks>,
    /// Probes inside the command's processes.
    inside: Option<Inside>,
    inside_pace: PollPace,
    coverage: Vec<Coverage>,
    /// Programs that are loaded, by name. One that is attached in two ways appears twice.
    programs: Vec<(String, RawFd)>,
    programs_queried_at: Instant,
    /// Probes of file systems that are not mounted yet.
    unmounted: probes::UnmountedFileSystems,
    types: Btf,
    /// Becomes ready when something is mounted.
    mounts: Option<File>,
    /// Records made in user space that the next drain passes on.
    pending: Vec<Event>,
    started_ns: u64,
    cpu_before_ns: u64,
    drained: u64,
    /// Last, so that users of its programs are dropped before it.
    ebpf: Ebpf,
}

#[derive(Debug, Clone)]
pub struct FinishedRecording {
    /// What could be seen, at which cost, and what could not.
    pub coverage: Vec<Coverage>,
    /// Number of records that were passed on.
    pub records: u64,
    /// Records lost, as far as they could be counted; each is in a `loss` record too.
    pub lost: u64,
    /// Begin and end, CLOCK_BOOTTIME.
    pub window_ns: (u64, u64),
    /// CPU time of this process meanwhile, in ns. The probes' cost to others is in the coverage.
    pub cpu_ns: u64,
    /// How long the kernel counted and timed the programs' runs, in ns: the time to which the `hits` of the coverage refer.
    pub counted_ns: u64,
    /// What being recorded costs a program per activity, in ns.
    pub costs: Vec<(Activity, trap::Price)>,
    /// How the budget for stacks was kept; `None`: none were requested.
    pub stacks: Option<stacks::Budget>,
    /// Since when all sleeps of recorded threads were recorded, as the command may mark intervals, CLOCK_BOOTTIME in ns; `None`: it did
    /// not map the memory for marks.
    pub marks_from_ns: Option<u64>,
}

impl Session {
    /// Loads and attaches the probes. When it returns, everything in scope is being recorded.
    ///
    /// # Errors
    /// If nothing can be recorded at all. Problems that only leave a layer blind are in the coverage.
    pub fn start(request: &Request) -> Result<Self, Error> {
        check_lockdown()?;
        namespace::determine_namespace()?;
        let types = KernelTypes::read(BPF_OBJECT)?;
        let (possible, running) = cpu_counts()?;
        let shape = RingLayout::new(possible, running, random_salt());
        let mut ebpf = load_programs(request, &types, shape)?;
        let multi = MultiUprobes::open(BPF_OBJECT, &ebpf, &types.for_fields).ok();
        let rings = Rings::new(shape, array_fd(&ebpf, "ring_controls")?, array_fd(&ebpf, "ring_memory")?)?;
        let stacks = take_stacks(&mut ebpf, request)?;
        let mut session = Self {
            rings,
            wakeups: take_map(&mut ebpf, "wakeups", RingBuf::try_from)?,
            drained_at: Instant::now(),
            tasks: take_map(&mut ebpf, "tasks", HashMap::try_from)?,
            loss: LossWatch::new(),
            price: PriceSampler::new(false),
            traps: BTreeMap::new(),
            uprobes: Uprobes::new(multi),
            stacks,
            inside: None,
            inside_pace: PollPace::default(),
            coverage: Vec::new(),
            programs: Vec::new(),
            programs_queried_at: Instant::now(),
            unmounted: probes::UnmountedFileSystems::new(),
            types: types.vmlinux,
            mounts: File::open("/proc/self/mounts").ok(),
            pending: Vec::new(),
            started_ns: boot_ns(),
            cpu_before_ns: process_cpu_ns(),
            drained: 0,
            ebpf,
        };
        let before = match &request.scope {
            Scope::Pids(pids) => pids.clone(),
            Scope::Comm(comm) => tasks::processes_named(comm),
            Scope::All | Scope::Command => Vec::new(),
        };
        if !request.functions_later {
            session.attach_functions(&request.functions);
        }
        let (rows, forbidden) = probes::attach_all(&mut session.ebpf, &session.types, &request.without);
        if !rows.iter().any(|r| r.attached) {
            let how = rows.first().map_or_else(String::new, |r| r.how.clone());
            // With CAP_BPF alone the maps are created and every program is refused.
            return Err(if forbidden { Error::NotPermitted { what: how } } else { Error::Blind(how) });
        }
        session.cover(rows);
        session.cover(session.stacks_coverage());
        session.find_programs();
        session.look_for_file_systems();
        if let Scope::Pids(pids) = &request.scope
            && request.inside
        {
            crate::inside::mark_expected(&mut session.ebpf, pids)?;
        }
        // After fork is probed, so that a thread created meanwhile is followed either way.
        for tgid in before {
            match session.track(tgid) {
                // If found by name, it may have ended while the probes were attached.
                Err(Error::NoProcess(_)) if matches!(request.scope, Scope::Comm(_)) => {}
                tracked => tracked?,
            }
        }
        for begin in [FirstInstruction::Emulated, FirstInstruction::Stepped] {
            if request.price && session.uprobes.attach_trap(&mut session.ebpf, begin) {
                trap::measure_batches(begin, session.traps.entry(begin).or_default());
            }
        }
        session.find_programs();
        session.started_ns = boot_ns();
        session.price = PriceSampler::new(request.price);
        Ok(session)
    }

    /// Records a child of this process, given its number, from now on. Otherwise like [`Session::track`].
    pub fn track_child(&mut self, pid: u32) -> Result<(), Error> {
        self.track(namespace::proc_pid_of_child(pid))
    }

    /// Records a process in `/proc` from now on, with all its threads and its descendants. Its name and open files are reported
    /// by the next drain.
    ///
    /// # Errors
    /// If there is no such process, or no room for it.
    pub fn track(&mut self, pid: u32) -> Result<(), Error> {
        let tgid = namespace::outside_pid(pid).ok_or(Error::NoProcess(pid))?;
        let mut slot = [0; SLOT_SIZE];
        slot[..STANDING_OFFSET].copy_from_slice(&tgid.to_ne_bytes());
        slot[STANDING_OFFSET..STANDING_OFFSET + 2].copy_from_slice(&model::event::flags::TRACKED.to_ne_bytes());
        let mut known: Vec<u32> = Vec::new();
        // A thread may begin while the list is read; its creator may not have been followed yet then. Repeats until nothing
        // is new.
        loop {
            let new: Vec<u32> = tasks::threads(pid).into_iter().filter(|t| !known.contains(t)).collect();
            if new.is_empty() {
                break;
            }
            for thread in namespace::threads(pid, &new) {
                self.tasks
                    .insert(thread.outside.1, slot, 0)
                    .map_err(|e| Error::table("cannot track a task", error::chain(&e)))?;
                self.pending.extend(tasks::inner_numbers(thread));
            }
            known.extend(new);
        }
        if known.is_empty() {
            return Err(Error::NoProcess(pid));
        }
        self.pending.extend(tasks::describe_process(pid));
        Ok(())
    }

    /// Records the statements of the SQLite in a file, for every process in scope that uses it. A file that is already
    /// probed is left alone. What could not be attached is in the coverage; returns whether the steps are seen.
    pub fn attach_sqlite(&mut self, path: &Path, symbols: &SqliteSymbols) -> bool {
        let inside = self.inside.as_ref().and_then(|inside| inside.library(path));
        let Some(attached) = self.uprobes.attach_sqlite(&mut self.ebpf, path, symbols, inside) else { return true };
        self.cover(attached.rows);
        self.find_programs();
        attached.sees_steps
    }

    /// Makes the executions of these functions operations, by uprobes.
    pub fn attach_functions(&mut self, functions: &[Function]) {
        let rows = self.uprobes.attach_functions(&mut self.ebpf, functions);
        self.cover(rows);
        self.find_programs();
    }

    /// Connects the kernel side to what is probed inside.
    ///
    /// # Errors
    /// The reason; the object then does nothing, and uprobes are to be attached.
    pub fn probe_inside(&mut self, mut inside: Inside) -> Result<(), InsideError> {
        let attached = inside.attach(&mut self.ebpf, &mut self.uprobes);
        if attached.is_err() {
            inside.clear_expected();
        }
        // Kept either way: the command's environment names its file.
        self.inside = Some(inside);
        self.find_programs();
        attached
    }

    /// Returns what is probed inside.
    pub fn inside(&mut self) -> Option<&mut Inside> {
        self.inside.as_mut()
    }

    /// Returns the questions of recorded processes about files before these run; each process waits for its answer.
    pub fn questions(&mut self) -> Vec<PendingQuestion> {
        let asks = self.inside.as_mut().map(Inside::questions).unwrap_or_default();
        asks.into_iter().filter(|ask| self.is_tracked(ask.tid)).collect()
    }

    fn is_tracked(&self, tid: u32) -> bool {
        self.tasks.get(&tid, 0).is_ok_and(|slot| tracked_process(&slot).is_some())
    }

    /// Returns the processes that are being recorded, by their numbers in `/proc`. Excludes those that have ended, waited for
    /// or not.
    pub fn tracked(&self) -> Vec<u32> {
        let all: BTreeSet<u32> = self.tasks.iter().flatten().filter_map(|(_, slot)| tracked_process(&slot)).collect();
        all.into_iter().filter_map(namespace::in_proc).collect()
    }

    pub fn cover(&mut self, rows: impl IntoIterator<Item = Coverage>) {
        self.coverage.extend(rows);
    }

    /// Attaches the probes of file systems that were mounted since.
    fn look_for_file_systems(&mut self) {
        let rows = self.unmounted.attach_mounted(&mut self.ebpf, &self.types);
        if !rows.is_empty() {
            self.cover(rows);
            self.find_programs();
        }
    }

    /// Returns the coverage of stacks: they are stacks of sleeps, and without sleeps there are none.
    fn stacks_coverage(&self) -> Option<Coverage> {
        let attached = |probe: &str| self.coverage.iter().any(|row| row.probe == probe && row.attached);
        match &self.stacks {
            None => Some(stacks::coverage_absent("not requested")),
            Some(_) if ["sched_switch", "sched_waking", "sys_exit"].into_iter().all(attached) => {
                Some(stacks::coverage_attached())
            }
            Some(_) => Some(stacks::coverage_absent("sched_switch, sched_waking and sys_exit are needed")),
        }
    }

    fn watch_resets(&mut self) {
        let rows = self.uprobes.watch_resets(&mut self.ebpf);
        self.coverage.retain(|old| rows.iter().all(|row| row.probe != old.probe));
        self.cover(rows);
        self.find_programs();
    }

    /// Waits for `at_most`, or until the kernel side requests attention, which it does when a program maps code (its SQLite may be worth
    /// a probe), or a process asks ([`Session::questions`]). Returns whether it is time to drain: the kernel side requested it, a ring fills,
    /// or the last drain was a second ago. The less often it drains, the less it disturbs the traced
    /// program.
    pub fn wait(&mut self, at_most: Duration) -> bool {
        let poll = |fd, events| libc::pollfd { fd, events, revents: 0 };
        // Negative descriptors are ignored.
        let mounts = self.mounts.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let mut polls = vec![poll(self.wakeups.as_raw_fd(), libc::POLLIN), poll(mounts, libc::POLLPRI)];
        let asks = self.inside.as_ref().map(Inside::descriptors).unwrap_or_default();
        polls.extend(asks.into_iter().map(|fd| poll(fd, libc::POLLIN)));
        let at_most = if self.inside.is_some() { at_most.min(self.inside_pace.poll_interval()) } else { at_most };
        let at_most = self.price.window_remaining().map_or(at_most, |rest| rest.min(at_most));
        // Rounded up, so that a remainder of less than 1 ms does not become busy waiting.
        let timeout = i32::try_from(at_most.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        // SAFETY: they live until the call returns.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout) };
        let woken = polls[0].revents != 0;
        if polls[1].revents != 0 {
            self.look_for_file_systems();
        }
        self.price.tick();
        let inside = self
            .inside
            .as_mut()
            .is_some_and(|inside| self.inside_pace.note_fill(Duration::from_nanos(boot_ns()), inside.fill_ratio()));
        woken || self.drained_at.elapsed() >= DRAIN_INTERVAL || self.rings.fill_ratio() >= DRAIN_FILL_RATIO || inside
    }

    /// Passes on every available record, oldest first within a CPU; returns how many. The bytes are a header and a body as
    /// in `model::event`, valid until the sink returns.
    pub fn drain(&mut self, sink: &mut dyn FnMut(&[u8])) -> usize {
        self.drain_in(Order::Kept, sink)
    }

    fn drain_in(&mut self, order: Order, sink: &mut dyn FnMut(&[u8])) -> usize {
        while self.wakeups.next().is_some() {}
        if !self.uprobes.watches_resets() && self.rings.reset_wanted() {
            self.watch_resets();
        }
        self.drained_at = Instant::now();
        let began_ns = boot_ns();
        // The names of a process's open files, among others, must be known before its calls: a drain that comes late, as on a busy
        // machine, has more of them than the linker sorts.
        let mut user_events = std::mem::take(&mut self.pending);
        user_events.extend(self.inside.as_mut().map(Inside::collect).unwrap_or_default());
        user_events.sort_by_key(|event| event.header.time_ns);
        let mut user_events = EventMerger::new(user_events);
        self.inside_pace.note_emptied();
        let drained = self.rings.drain(DRAIN_DURATION_MAX, order, &mut |record| {
            user_events.pass_on_until(record_time_ns(record), sink);
            sink(record);
        });
        // What is newer waits for the records before it, which are still in a ring: for the linker, an event means that those
        // older by its horizon have arrived.
        let until_ns = drained.until_ns.map_or(began_ns, |until_ns| until_ns.min(began_ns));
        user_events.pass_on_until(until_ns, sink);
        let mut count = drained.count + user_events.count;
        self.pending.extend(user_events.events);
        self.pending.extend(self.loss.losses_since_last(&self.rings.counters()));
        self.pending.extend(self.stacks.iter_mut().flat_map(Stacks::collect));
        if self.programs_queried_at.elapsed() >= PROGRAM_QUERY_INTERVAL {
            self.programs_queried_at = Instant::now();
            self.pending.extend(self.loss.missed_runs(&self.programs));
            // Mounts in other mount namespaces are not announced.
            self.look_for_file_systems();
        }
        count += self.pass_on_pending(until_ns, sink);
        self.price.tick();
        self.drained += count as u64;
        count
    }

    /// Passes on those of our own events up to a time.
    fn pass_on_pending(&mut self, until_ns: u64, sink: &mut dyn FnMut(&[u8])) -> usize {
        let mut bytes = Vec::new();
        let due = self.pending.extract_if(.., |event| event.header.time_ns <= until_ns);
        due.map(|event| {
            bytes.clear();
            event.encode(&mut bytes);
            sink(&bytes);
        })
        .count()
    }

    /// Returns what could be seen so far. [`Session::finish`] adds the costs.
    pub fn coverage(&self) -> &[Coverage] {
        &self.coverage
    }

    /// Passes on what is left and detaches the probes. For that the kernel waits until no CPU can be inside one (before
    /// Linux 6.6 one after the other), so it continues in the background; what arrives meanwhile is dropped.
    pub fn finish(mut self, sink: &mut dyn FnMut(&[u8])) -> FinishedRecording {
        let end_ns = boot_ns();
        self.pending.extend(self.loss.missed_runs(&self.programs));
        let mut prices: BTreeMap<&str, ProgramInfo> = BTreeMap::new();
        for (name, fd) in &self.programs {
            if let Some(info) = program_info(*fd) {
                *prices.entry(name).or_default() += info;
            }
        }
        let traps = self.traps.iter_mut().filter_map(|(begin, batches)| {
            trap::measure_batches(*begin, batches);
            Some((*begin, trap::price_of_batches(batches)?))
        });
        let mut costs = price::costs(&traps.collect(), self.uprobes.begins(), &prices);
        // Calls of SQLite and functions of hooked processes have no traps, whose cost would be subtracted from theirs.
        if self.inside.as_ref().is_some_and(Inside::is_used) {
            costs.retain(|(activity, _)| !activity.is_function_call());
        }
        let counted = self.price.counted_duration();
        for row in self.coverage.iter_mut().filter(|r| r.attached) {
            let program = self.uprobes.program_of(&row.probe).unwrap_or(&row.probe);
            let Some(info) = prices.get(program) else { continue };
            row.hits = (counted > Duration::ZERO).then_some(info.run_count);
            row.misses = Some(info.recursion_misses);
            row.price_ns = (info.run_count > 0).then(|| info.run_time_ns as f64 / info.run_count as f64);
        }
        self.drain_recorded(end_ns, sink);
        // Stacks that get their names only now are stored too.
        let stacks = self.stacks.take().map(|mut stacks| stacks.finish());
        let (rest, stacks) = stacks.map_or((Vec::new(), None), |(rest, budget)| (rest, Some(budget)));
        self.pending.extend(rest);
        self.drained += self.pass_on_pending(u64::MAX, sink) as u64;
        let lost_inside = self.inside.as_ref().map_or(0, Inside::lost);
        if let Some(inside) = self.inside.as_mut().filter(|inside| inside.is_used() && !self.traps.is_empty()) {
            costs.extend(inside.costs());
        }
        let tracked = self.tracked();
        if let Some(mut inside) = self.inside.take() {
            inside.close();
            inside.remove_attached(&tracked);
        }
        let rows = self.unmounted.rows();
        self.cover(rows);
        let finished = FinishedRecording {
            coverage: std::mem::take(&mut self.coverage),
            records: self.drained,
            lost: self.loss.lost() + lost_inside,
            window_ns: (self.started_ns, end_ns),
            cpu_ns: process_cpu_ns() - self.cpu_before_ns,
            counted_ns: u64::try_from(counted.as_nanos()).unwrap_or(u64::MAX),
            costs,
            stacks,
            marks_from_ns: self.marks_from_ns(),
        };
        std::thread::spawn(move || self.detach());
        finished
    }

    fn marks_from_ns(&self) -> Option<u64> {
        let times: Array<_, u64> = self.ebpf.map("marks_from").and_then(|map| map.try_into().ok())?;
        times.get(&0, 0).ok().filter(|at_ns| *at_ns > 0)
    }

    /// Passes on everything recorded until now. A drain has a time limit, storing the records may have lacked CPU time, and a task may
    /// have been preempted while it wrote a record: until it runs again, nothing behind that record is available.
    fn drain_recorded(&mut self, end_ns: u64, sink: &mut dyn FnMut(&[u8])) {
        let heads = self.rings.heads();
        let (mut unread, mut progressed) = (self.rings.unread(&heads), Instant::now());
        let mut order = Order::Kept;
        loop {
            self.drain_in(order, sink);
            let left = self.rings.unread(&heads);
            if left.iter().all(|bytes| *bytes == 0) {
                return;
            }
            if left != unread {
                (unread, progressed) = (left, Instant::now());
            } else if order == Order::Kept && progressed.elapsed() > PREEMPTED_TASK_TIMEOUT {
                order = Order::GivenUp;
            } else if order == Order::GivenUp {
                self.pending.extend(self.loss.unread_losses(&left, (self.started_ns, end_ns)));
                return;
            } else {
                // Nothing reports that a task completed its record.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Detaches the probes, by dropping their links.
    fn detach(mut self) {
        self.uprobes.detach();
        unload_programs(&mut self.ebpf);
    }

    fn find_programs(&mut self) {
        self.programs = self
            .ebpf
            .programs()
            .filter_map(|(name, program)| Some((name.to_string(), probes::program_fd(program)?)))
            .chain(self.uprobes.programs())
            .collect();
    }
}

/// Records made outside the kernel, by the recorder and in processes that are probed inside, being merged with the kernel side's.
struct EventMerger {
    events: std::iter::Peekable<std::vec::IntoIter<Event>>,
    bytes: Vec<u8>,
    count: usize,
}

impl EventMerger {
    fn new(events: Vec<Event>) -> Self {
        Self { events: events.into_iter().peekable(), bytes: Vec::new(), count: 0 }
    }

    /// Passes on those up to a time.
    fn pass_on_until(&mut self, until_ns: u64, sink: &mut dyn FnMut(&[u8])) {
        while let Some(event) = self.events.next_if(|event| event.header.time_ns <= until_ns) {
            self.bytes.clear();
            event.encode(&mut self.bytes);
            sink(&self.bytes);
            self.count += 1;
        }
    }
}

/// Returns when a record was made, with which its header begins.
fn record_time_ns(record: &[u8]) -> u64 {
    record.first_chunk().map_or(0, |time| u64::from_ne_bytes(*time))
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("drained", &self.drained).finish_non_exhaustive()
    }
}

fn unload_programs(ebpf: &mut Ebpf) {
    use aya::programs::Program;
    for (_, program) in ebpf.programs_mut() {
        // Unloading a program drops its links. One that was never loaded has none.
        let _ = match program {
            Program::BtfTracePoint(p) => p.unload(),
            Program::RawTracePoint(p) => p.unload(),
            Program::UProbe(p) => p.unload(),
            _ => Ok(()),
        };
    }
}

pub(crate) fn load_programs(request: &Request, types: &KernelTypes, rings: RingLayout) -> Result<Ebpf, Error> {
    let everyone: u32 = match (&request.scope, request.also_all) {
        (Scope::All, _) => 2,
        (_, true) => 1,
        (_, false) => 0,
    };
    let mut comm = [0u8; 16];
    if let Scope::Comm(name) = &request.scope {
        let name = tasks::cut_comm(name).as_bytes();
        comm[..name.len()].copy_from_slice(name);
    }
    let stacks = request.stacks && !request.hollow;
    let (call_shapes, compat_shapes, compat_wait_calls) = (calls::table(), compat::table(), compat::waits());
    let (wait_calls, functions) = (calls::waits(), symbols::KernelFunctions::read());
    let (offset, tracer) = (boot_offset_ns(), namespace::tracer());
    let (marks_ino, marks_dev) = request.marks.map_or((0, 0), |(ino, dev)| (ino, dev.0));
    let (direct, dsync) = (libc::O_DIRECT as u32, libc::O_DSYNC as u32);
    EbpfLoader::new()
        .btf(Some(&types.for_fields))
        .map_max_entries("stacks", if stacks { stacks::RING_BYTES } else { UNUSED_RING_BYTES })
        .map_max_entries("ring_controls", rings.cpus)
        .map_max_entries("ring_memory", rings.rings * rings.chunks)
        .override_global("hollow", &u32::from(request.hollow), true)
        .override_global("stacks_a_window", &(if stacks { stacks::STACKS_PER_WINDOW } else { 0 }), true)
        .override_global("stacks_from_ns", &stacks::SLEEP_NS_MIN, true)
        .override_global("ring_count", &rings.rings, true)
        .override_global("ring_chunks", &rings.chunks, true)
        .override_global("ring_salt", &rings.salt, true)
        .override_global("boot_offset_ns", &offset, true)
        .override_global("tracer_tgid", &tracer, true)
        .override_global("everyone", &everyone, true)
        .override_global("idle_sleeps", &u32::from(request.scope != Scope::All), true)
        .override_global("wanted_comm", &comm, true)
        .override_global("call_shapes", &call_shapes, true)
        .override_global("compat_shapes", &compat_shapes, true)
        .override_global("end_functions", &functions.ends.0, true)
        .override_global("end_classes", &functions.ends.1, true)
        .override_global("log_block_end", &functions.log_block_end, true)
        .override_global("wait_calls", &wait_calls, true)
        .override_global("compat_wait_calls", &compat_wait_calls, true)
        .override_global("wait_from", &functions.waits.0, true)
        .override_global("wait_to", &functions.waits.1, true)
        .override_global("wait_what", &functions.waits.2, true)
        .override_global("open_direct", &direct, true)
        .override_global("open_dsync", &dsync, true)
        .override_global("with_object", &u32::from(request.inside), true)
        .override_global("marks_ino", &marks_ino, true)
        .override_global("marks_dev", &marks_dev, true)
        .override_global("pwritev2_number", &(libc::SYS_pwritev2 as u32), true)
        .override_global("compat_pwritev2_number", &compat::PWRITEV2_NUMBER, true)
        .load(BPF_OBJECT)
        .map_err(|e| refusal::load_error(&e))
}

fn take_map<T, E: std::fmt::Display>(
    ebpf: &mut Ebpf,
    name: &'static str,
    make: impl FnOnce(Map) -> Result<T, E>,
) -> Result<T, Error> {
    let map = ebpf.take_map(name).ok_or_else(|| missing_map(name))?;
    make(map).map_err(|e| Error::Object(format!("one of their BPF maps ({name}) has an unexpected type: {e}")))
}

/// Takes the ring for stacks, and their counters.
fn take_stacks(ebpf: &mut Ebpf, request: &Request) -> Result<Option<Stacks>, Error> {
    if !request.stacks || request.hollow {
        return Ok(None);
    }
    let ring = take_map(ebpf, "stacks", RingBuf::try_from)?;
    Ok(Some(Stacks::new(ring, take_map(ebpf, "stack_states", Array::try_from)?)))
}

fn array_fd<'a>(ebpf: &'a Ebpf, name: &'static str) -> Result<BorrowedFd<'a>, Error> {
    match ebpf.map(name) {
        Some(Map::Array(data)) => Ok(data.fd().as_fd()),
        _ => Err(missing_map(name)),
    }
}

fn missing_map(name: &str) -> Error {
    Error::Object(format!("this build is damaged: it lacks one of their BPF maps ({name})"))
}

/// Returns the number of possible CPUs, and of running ones.
fn cpu_counts() -> Result<(u32, u32), Error> {
    let unknown =
        |(file, e)| Error::table("cannot determine the number of CPUs", error::without_errno(&format!("{file}: {e}")));
    let running = aya::util::online_cpus().map_err(unknown)?.len();
    Ok((aya::util::nr_cpus().map_err(unknown)? as u32, running as u32))
}

/// Returns a number that no other process knows.
fn random_salt() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// Refuses the mode `confidentiality`, in which every read of kernel memory silently yields zeroes: better no trace than
/// that.
fn check_lockdown() -> Result<(), Error> {
    match std::fs::read_to_string("/sys/kernel/security/lockdown") {
        Ok(text) if text.contains("[confidentiality]") => Err(Error::Lockdown),
        _ => Ok(()),
    }
}
