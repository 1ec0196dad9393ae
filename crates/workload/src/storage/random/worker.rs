//! The work of a thread: its share of each iteration, with its own file, buffers and stream of offsets.
//!
//! Threads live as long as the run and synchronise before and after each iteration. Each records its own start and end,
//! so that synchronisation is not part of the time. A thread that failed keeps synchronising with the others, so that
//! none waits for ever, and the run ends with its error.
//!
//! A single thread is not created: the caller does the work. In a process of two threads the kernel increments and decrements
//! a reference to the file around every call (fdget, in fs/file.c, omits this while the table is not shared), which is some
//! percent of a read from memory.

use super::super::buffer::Buffer;
use super::super::io_error::{self, on};
use super::super::pattern::{Pattern, Template};
use super::super::state::{State, open};
use super::engine::{self, Engine};
use super::queue::{Queue, Transfer};
use crate::marks::{Series, Writer};
use crate::{Error, check_cancelled, clock};
use hdrhistogram::Histogram;
use model::Context;
use stats::random::Random;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Most written offsets that each thread keeps for reading back.
const OFFSETS_KEPT_MAX: usize = 1024;
/// Every this many-th read is checked completely, since checking 4 KiB takes half a microsecond: a third of a read from
/// memory.
pub(super) const WHOLE_CHECK_STRIDE: u64 = 64;
/// The same if edges are not checked either: 16 bytes of a different offset each time take some nanoseconds, and a read
/// from memory takes a thousand.
pub(super) const SAMPLED_CHECK_STRIDE: u64 = 256;
/// How often a thread checks whether it is to stop: a power of two.
const CANCEL_CHECK_STRIDE: u64 = 256;
/// The longest latency with a bucket of its own, ns.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Parameters common to all threads.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub path: &'a Path,
    pub writes: bool,
    pub state: State,
    pub engine: Engine,
    pub depth: usize,
    pub block: usize,
    /// An offset is a multiple of this, below `places`.
    pub align: u64,
    pub places: u64,
    pub seed: u64,
    /// The pattern that is read or written.
    pub pattern: Pattern,
    /// Transactions submitted to the kernel at once.
    pub batch: usize,
    /// How reads are checked.
    pub verify: Verify,
    /// Every this many-th latency is measured.
    pub latency_stride: u64,
}

/// How the blocks that were read are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verify {
    /// Every byte of all blocks.
    Whole,
    /// The first and last 8 bytes of all blocks, every byte of every [`WHOLE_CHECK_STRIDE`]th.
    Edges,
    /// Every byte of every [`SAMPLED_CHECK_STRIDE`]th block.
    Sampled,
}

impl Verify {
    /// Returns the one of that name.
    pub(super) fn parse(name: &str) -> Self {
        match name {
            "whole" => Self::Whole,
            "sampled" => Self::Sampled,
            _ => Self::Edges,
        }
    }
}

/// The work of a thread in the iterations that count.
#[derive(Debug)]
pub(super) struct ThreadResult {
    /// Latencies in ns.
    pub latencies: Histogram<u64>,
    /// Offsets of some writes.
    pub sampled: Vec<u64>,
}

/// A histogram of three digits.
pub(super) fn histogram() -> Result<Histogram<u64>, Error> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
        .map_err(|e| Error::Failed(format!("cannot create a histogram: {e}")))
}

/// Where threads and their controller synchronise.
#[derive(Debug, Default)]
struct Board {
    /// Iterations begun.
    round: u64,
    /// Transactions per thread in it, and whether it counts.
    order: (u64, bool),
    /// Threads that have finished it.
    done: u64,
    begin: u64,
    end: u64,
    failure: Option<Error>,
    stop: bool,
}

/// Threads that wait for work.
#[derive(Debug)]
struct Team {
    threads: u64,
    board: Mutex<Board>,
    changed: Condvar,
}

impl Team {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, board: MutexGuard<'a, Board>) -> MutexGuard<'a, Board> {
        self.changed.wait(board).unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every thread do `each` transactions. Returns the first one's start and the last one's end, CLOCK_BOOTTIME.
    fn run(&self, each: u64, counts: bool) -> Result<(u64, u64), Error> {
        let mut board = self.board();
        *board = Board { round: board.round + 1, order: (each, counts), begin: u64::MAX, ..Board::default() };
        self.changed.notify_all();
        while board.done < self.threads {
            board = self.wait(board);
        }
        match board.failure.take() {
            Some(error) => Err(error),
            None => Ok((board.begin, board.end)),
        }
    }

    /// Waits for the round after `seen`; `None` if there is none.
    fn next_round(&self, seen: u64) -> Option<(u64, u64, bool)> {
        let mut board = self.board();
        while board.round == seen && !board.stop {
            board = self.wait(board);
        }
        (!board.stop).then_some((board.round, board.order.0, board.order.1))
    }

    fn report_round(&self, times: Result<(u64, u64), Error>) {
        let mut board = self.board();
        board.done += 1;
        match times {
            Ok((begin, end)) => {
                board.begin = board.begin.min(begin);
                board.end = board.end.max(end);
            }
            // A wrong result matters more than the other threads' errors.
            Err(error @ Error::Wrong(_)) => board.failure = Some(error),
            Err(error) => drop(board.failure.get_or_insert(error)),
        }
        self.changed.notify_all();
    }

    fn stop(&self) {
        self.board().stop = true;
        self.changed.notify_all();
    }
}

/// Makes the threads work: transactions of each, and whether they count; returns the first one's start and the last one's end,
/// CLOCK_BOOTTIME.
pub(super) type RunRound<'a> = dyn FnMut(u64, bool) -> Result<(u64, u64), Error> + 'a;

/// Starts the threads, lets `drive` control them, and returns their results.
pub(super) fn run_threads(
    threads: u64,
    plan: &Plan<'_>,
    context: &Context,
    drive: impl FnOnce(&mut RunRound<'_>) -> Result<(), Error>,
) -> Result<Vec<ThreadResult>, Error> {
    let marks = Writer::from_environment();
    if threads == 1 {
        let mut worker = Worker::new(0, plan, context, marks.as_ref())?;
        drive(&mut |each, counts| worker.run_share(each, counts))?;
        return Ok(vec![worker.part]);
    }
    let team = Team { threads, board: Mutex::default(), changed: Condvar::new() };
    std::thread::scope(|scope| {
        let mut handles = Vec::new();
        let mut result = Ok(());
        for nth in 0..threads {
            let (team, marks) = (&team, marks.as_ref());
            // Enough for the work and the marks: 4096 threads must not reserve 8 MiB each.
            let thread = std::thread::Builder::new().stack_size(256 << 10);
            match thread.spawn_scoped(scope, move || run_worker(nth, team, plan, context, marks)) {
                Ok(handle) => handles.push(handle),
                Err(e) => {
                    result = Err(Error::Failed(format!(
                        "cannot start thread {} of {threads}: {e}; use fewer (--threads), or raise the limit (ulimit \
                         -u)",
                        nth + 1
                    )));
                    break;
                }
            }
        }
        let result = result.and_then(|()| drive(&mut |each, counts| team.run(each, counts)));
        team.stop();
        let parts: Vec<_> = handles.into_iter().map(|handle| handle.join()).collect();
        result?;
        parts
            .into_iter()
            .map(|part| part.unwrap_or_else(|_| Err(Error::Failed("a thread of the load panicked".into()))))
            .collect()
    })
}

fn run_worker(
    nth: u64,
    team: &Team,
    plan: &Plan<'_>,
    context: &Context,
    marks: Option<&Writer>,
) -> Result<ThreadResult, Error> {
    let mut worker = Worker::new(nth, plan, context, marks);
    let mut seen = 0;
    while let Some((round, each, counts)) = team.next_round(seen) {
        seen = round;
        team.report_round(match &mut worker {
            Ok(worker) => worker.run_share(each, counts),
            // Reported once; the run ends with it.
            Err(_) => Err(std::mem::replace(&mut worker, Err(Error::Interrupted)).err().unwrap_or(Error::Interrupted)),
        });
    }
    worker.map(|worker| worker.part)
}

/// The random stream of a thread. Those of neighbouring threads are unrelated: the state is filled by SplitMix64.
fn thread_random(nth: u64, seed: u64) -> Random {
    Random::new(seed.wrapping_add(nth.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// The first offsets of a thread.
#[cfg(test)]
pub(super) fn first_offsets(nth: u64, plan: &Plan<'_>, n: usize) -> Vec<u64> {
    let mut random = thread_random(nth, plan.seed);
    (0..n).map(|_| random.below(plan.places) * plan.align).collect()
}

struct Worker<'a> {
    plan: &'a Plan<'a>,
    context: &'a Context,
    file: File,
    random: Random,
    /// Dropped, together with requests in flight, before the buffers that the kernel writes to.
    queue: Option<Box<dyn Queue>>,
    buffers: Vec<Buffer>,
    template: Option<Template>,
    series: Option<Series<'a>>,
    part: ThreadResult,
    /// Every this many-th written offset is kept; doubled when there are too many.
    stride: u64,
    written: u64,
    read: u64,
}

impl<'a> Worker<'a> {
    fn new(nth: u64, plan: &'a Plan<'a>, context: &'a Context, marks: Option<&'a Writer>) -> Result<Self, Error> {
        let mut options = plan.state.open_options();
        options.read(!plan.writes).write(plan.writes);
        let queue = match plan.engine {
            Engine::Psync => None,
            engine => Some(engine::create_queue(engine, plan.depth).map_err(|e| Error::Failed(e.to_string()))?),
        };
        let name = if plan.writes { "random write" } else { "random read" };
        Ok(Self {
            plan,
            context,
            file: open(&options, plan.state, plan.path)?,
            random: thread_random(nth, plan.seed),
            queue,
            buffers: (0..plan.depth).map(|_| Buffer::new(plan.block)).collect(),
            template: plan.writes.then(|| Template::new(plan.pattern, plan.block)),
            series: marks.map(|writer| Series::new(Some(writer), name)),
            part: ThreadResult { latencies: histogram()?, sampled: Vec::new() },
            stride: 1,
            written: 0,
            read: 0,
        })
    }

    /// Does `n` transactions; returns their start and end.
    fn run_share(&mut self, n: u64, counts: bool) -> Result<(u64, u64), Error> {
        let begin = clock::now_ns();
        match self.queue {
            None => self.run_calls(n, counts)?,
            Some(_) => self.run_queued(n, counts)?,
        }
        if self.plan.state == State::Synced {
            self.file.sync_data().map_err(on("sync", self.plan.path))?;
        }
        Ok((begin, clock::now_ns()))
    }

    fn place(&mut self) -> u64 {
        self.random.below(self.plan.places) * self.plan.align
    }

    /// Runs transactions one after the other.
    fn run_calls(&mut self, n: u64, counts: bool) -> Result<(), Error> {
        for nth in 0..n {
            // Checked for every request that waits for a disk, so that an interruption takes effect at once.
            if self.plan.latency_stride == 1 || nth.is_multiple_of(CANCEL_CHECK_STRIDE) {
                check_cancelled(self.context)?;
            }
            let place = self.place();
            let timed = nth.is_multiple_of(self.plan.latency_stride);
            let mut series = self.series.take();
            let (moved, start, end) = match &mut series {
                Some(series) => series.around(|| self.move_block(place)),
                None if timed => {
                    let start = clock::now_ns();
                    (self.move_block(place), start, clock::now_ns())
                }
                None => (self.move_block(place), 0, 0),
            };
            self.series = series;
            self.check(moved, place, 0)?;
            if counts && timed {
                self.part.latencies.saturating_record(end - start);
            }
        }
        Ok(())
    }

    fn move_block(&mut self, place: u64) -> std::io::Result<usize> {
        match &mut self.template {
            Some(template) => {
                let n = self.file.write_at(template.at(place), place)?;
                if self.plan.state == State::Each {
                    self.file.sync_data()?;
                }
                Ok(n)
            }
            None => self.file.read_at(&mut self.buffers[0], place),
        }
    }

    /// Runs transactions with some in flight.
    fn run_queued(&mut self, n: u64, counts: bool) -> Result<(), Error> {
        let plan = self.plan;
        let doing = if plan.writes { "write" } else { "read" };
        let mut free: Vec<usize> = (0..plan.depth).collect();
        let mut flights = vec![(0, 0); plan.depth];
        let (mut batch, mut done) = (Vec::with_capacity(plan.depth), Vec::with_capacity(plan.depth));
        let mut left = n;
        while left > 0 || free.len() < plan.depth {
            check_cancelled(self.context)?;
            batch.clear();
            while let Some(slot) = free.pop_if(|_| left > 0) {
                left -= 1;
                let place = self.place();
                if let Some(template) = &mut self.template {
                    self.buffers[slot].copy_from_slice(template.at(place));
                }
                flights[slot] = (place, clock::now_ns());
                let (buffer, length) = (self.buffers[slot].start(), plan.block as u32);
                batch.push(Transfer { slot: slot as u64, buffer, length, offset: place, writes: plan.writes });
            }
            let Some(queue) = &mut self.queue else { return Ok(()) };
            for some in batch.chunks(plan.batch) {
                // SAFETY: a free slot is not touched by us from here until its completion; the buffers outlive the
                // queue.
                unsafe { queue.start(self.file.as_raw_fd(), some) }.map_err(on(doing, plan.path))?;
            }
            queue.wait(&mut done).map_err(on(doing, plan.path))?;
            let now = clock::now_ns();
            for (slot, result) in done.drain(..) {
                let slot = slot as usize;
                let (place, start) = flights[slot];
                let moved = usize::try_from(result).map_err(|_| std::io::Error::from_raw_os_error(-result as i32));
                self.check(moved, place, slot)?;
                if counts {
                    self.part.latencies.saturating_record(now - start);
                }
                free.push(slot);
            }
        }
        Ok(())
    }

    /// Checks a transaction: the whole block was transferred, with the right bytes.
    fn check(&mut self, moved: std::io::Result<usize>, place: u64, slot: usize) -> Result<(), Error> {
        let plan = self.plan;
        let doing = if plan.writes { "write" } else { "read" };
        let moved = moved.map_err(|e| match e.raw_os_error() {
            Some(libc::EINVAL) if plan.state == State::Direct => Error::Failed(format!(
                "O_DIRECT does not support blocks of {} bytes aligned to {} here: {e} (--block, --align)",
                plan.block, plan.align
            )),
            _ => io_error::failed(doing, plan.path, &e),
        })?;
        if moved < plan.block {
            return Err(io_error::short_transfer(doing, plan.path, place, moved, plan.block));
        }
        if plan.writes {
            self.sample_offset(place);
            return Ok(());
        }
        let block = &self.buffers[slot];
        self.read += 1;
        let wrong = match plan.verify {
            Verify::Sampled if !self.read.is_multiple_of(SAMPLED_CHECK_STRIDE) => None,
            Verify::Edges if !self.read.is_multiple_of(WHOLE_CHECK_STRIDE) => plan.pattern.wrong_edge(place, block),
            _ => plan.pattern.wrong(place, block),
        };
        wrong.map_or(Ok(()), |at| Err(io_error::wrong_byte(plan.path, at)))
    }

    /// Remembers some of the written offsets, spread evenly over all of them.
    fn sample_offset(&mut self, place: u64) {
        if self.written.is_multiple_of(self.stride) {
            self.part.sampled.push(place);
            if self.part.sampled.len() == OFFSETS_KEPT_MAX {
                let mut nth = 0;
                self.part.sampled.retain(|_| {
                    nth += 1;
                    nth % 2 == 1
                });
                self.stride *= 2;
            }
        }
        self.written += 1;
    }
}
