//! The client: threads with connections, each of which takes the next request of the schedule when it is free.
//!
//! A thread with one connection blocks in its socket: two system calls per transaction. A thread with several uses epoll
//! to find those that are ready; edge-triggered events are enough, since every step continues until the socket would
//! block, so that nothing is ever registered twice. Measured against wrk in experiments/peers/http.toml.

use super::connection::{Connection, POLL_INTERVAL, Plan, Step};
use super::failure::ClientError;
use super::schedule::Schedule;
use crate::clock;
use hdrhistogram::Histogram;
use model::Context;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Barrier;
use std::time::Duration;

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// From the intended (open loop) or actual (closed loop) time of sending until the response was complete, ns.
    pub latency: Histogram<u64>,
    /// How late the client itself sent requests that were due, ns; empty in the closed loop.
    pub late: Histogram<u64>,
    /// Bytes received, including heads.
    pub received: u64,
    /// Connections opened to replace those that the server closed.
    pub reopened: u64,
    /// When the last response was complete.
    pub end_ns: u64,
}

impl Outcome {
    fn new() -> Result<Self, ClientError> {
        // Three significant digits: at most 0.1 % off. It grows as needed.
        let histogram = || Histogram::new(3);
        Ok(Self { latency: histogram()?, late: histogram()?, received: 0, reopened: 0, end_ns: 0 })
    }
}

/// Runs `schedule` on `connections` connections in `threads` threads.
///
/// # Errors
/// The client itself failed (threads, descriptors). Failures of the server are in the schedule's counts.
pub fn run(
    plan: &Plan,
    schedule: &Schedule,
    connections: usize,
    threads: usize,
    context: &Context,
) -> Result<Outcome, ClientError> {
    let barrier = Barrier::new(threads);
    let results: Vec<Result<Outcome, ClientError>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|nth| {
                let mine = connections / threads + usize::from(nth < connections % threads);
                let barrier = &barrier;
                scope.spawn(move || Worker::new(plan, schedule, mine).and_then(|w| w.run(barrier, context)))
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap_or(Err(ClientError::Panicked))).collect()
    });
    let mut all = Outcome::new()?;
    for result in results {
        let one = result?;
        all.latency.add(&one.latency)?;
        all.late.add(&one.late)?;
        all.received += one.received;
        all.reopened += one.reopened;
        all.end_ns = all.end_ns.max(one.end_ns);
    }
    Ok(all)
}

struct Worker<'a> {
    plan: &'a Plan,
    schedule: &'a Schedule,
    connections: Vec<Connection>,
    free: VecDeque<usize>,
    /// Whether a request is in flight on each.
    busy: Vec<bool>,
    /// The request taken and not yet due, and whether it was waited for.
    next: Option<(u64, bool)>,
    /// Whether the schedule is exhausted.
    exhausted: bool,
    epoll: OwnedFd,
    outcome: Outcome,
}

impl<'a> Worker<'a> {
    fn new(plan: &'a Plan, schedule: &'a Schedule, connections: usize) -> Result<Self, ClientError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
        Ok(Self {
            plan,
            schedule,
            connections: (0..connections).map(|_| Connection::new()).collect(),
            free: (0..connections).collect(),
            busy: vec![false; connections],
            next: None,
            exhausted: false,
            epoll,
            outcome: Outcome::new()?,
        })
    }

    fn run(mut self, barrier: &Barrier, context: &Context) -> Result<Outcome, ClientError> {
        // Without this the kernel may wake us 50 us late, to save power.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        // Connections are opened before the clock starts, unless opening them is part of each transaction.
        if self.plan.keep_alive {
            for at in 0..self.connections.len() {
                match self.connections[at].open(self.plan, true) {
                    Ok(()) => self.register(at)?,
                    Err(why) => self.schedule.failed(why),
                }
            }
        }
        if barrier.wait().is_leader() {
            self.schedule.start(clock::now_ns());
        }
        barrier.wait();
        let mut checked_ns = clock::now_ns();
        let mut ready: Vec<Event> = Vec::with_capacity(256);
        loop {
            let now = clock::now_ns();
            if now.saturating_sub(checked_ns) >= POLL_INTERVAL.as_nanos() as u64 {
                checked_ns = now;
                if context.cancelled() {
                    self.schedule.stop();
                }
                self.fail_late_requests(now);
            }
            self.send(now)?;
            if self.exhausted && self.free.len() == self.connections.len() {
                self.outcome.received = self.connections.iter().map(|c| c.received).sum();
                self.outcome.reopened = self.connections.iter().map(|c| c.reopened).sum();
                return Ok(self.outcome);
            }
            self.wait(&mut ready)?;
            for event in ready.drain(..) {
                let at = event.data.u64() as usize;
                // A connection without a request does not notice that the server closed it: the next request will.
                if self.busy[at] {
                    let step = self.connections[at].advance(self.plan);
                    self.handle_step(at, step)?;
                }
            }
        }
    }

    /// Sends due requests on free connections.
    fn send(&mut self, mut now: u64) -> Result<(), ClientError> {
        while let Some(&at) = self.free.front() {
            if self.next.is_none() && !self.exhausted {
                self.next = self.schedule.take(now).map(|due| (due, false));
                self.exhausted = self.next.is_none();
            }
            let Some((due, waited)) = self.next else { return Ok(()) };
            if due > now {
                // The end of the run does not wait for a request that is due in a minute.
                if self.schedule.stopped() {
                    (self.next, self.exhausted) = (None, true);
                } else {
                    self.next = Some((due, true));
                }
                return Ok(());
            }
            if waited {
                record(&mut self.outcome.late, now - due);
            }
            self.next = None;
            self.free.pop_front();
            self.busy[at] = true;
            let begun = if self.schedule.is_open() { due } else { now };
            let step = self.connections[at].begin_request(self.plan, begun, now);
            self.handle_step(at, step)?;
            now = clock::now_ns();
            // One blocking exchange at a time; the caller checks for an end in between.
            if self.plan.blocking {
                return Ok(());
            }
        }
        Ok(())
    }

    fn handle_step(&mut self, at: usize, step: Step) -> Result<(), ClientError> {
        self.register(at)?;
        match step {
            Step::Waiting => return Ok(()),
            Step::Done => {
                let now = clock::now_ns();
                record(&mut self.outcome.latency, now.saturating_sub(self.connections[at].begun_ns));
                self.outcome.end_ns = now;
                self.schedule.succeeded(now);
            }
            Step::Failed(why) => self.schedule.failed(why),
        }
        self.release(at);
        Ok(())
    }

    fn register(&mut self, at: usize) -> Result<(), ClientError> {
        if self.plan.blocking {
            return Ok(());
        }
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        match self.connections[at].take_fresh() {
            Some(socket) => epoll::add(&self.epoll, socket, EventData::new_u64(at as u64), flags)
                .map_err(|e| std::io::Error::from(e).into()),
            None => Ok(()),
        }
    }

    /// Waits until a connection is ready, a request is due, or it is time for a check.
    fn wait(&mut self, ready: &mut Vec<Event>) -> Result<(), ClientError> {
        let most = POLL_INTERVAL.as_nanos() as u64;
        // A due time wakes us only if a connection is free.
        let ns = match self.next.filter(|_| !self.free.is_empty()) {
            Some((due, _)) => due.saturating_sub(clock::now_ns()).min(most),
            None => most,
        };
        if self.plan.blocking {
            // There is one connection. If it is busy, it is tried again, and waits in its socket.
            if self.free.is_empty() {
                let step = self.connections[0].advance(self.plan);
                self.handle_step(0, step)?;
            } else if self.next.is_some() {
                std::thread::sleep(Duration::from_nanos(ns));
            }
            return Ok(());
        }
        // epoll's own timeout is in milliseconds on older kernels.
        if ns < most {
            let limit = Timespec { tv_sec: 0, tv_nsec: ns as _ };
            let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
            match poll(&mut fds, Some(&limit)) {
                Ok(0) | Err(Errno::INTR) => return Ok(()),
                Ok(_) => {}
                Err(e) => return Err(std::io::Error::from(e).into()),
            }
        }
        let limit = Timespec { tv_sec: 0, tv_nsec: most as _ };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(ready), Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(std::io::Error::from(e).into()),
        }
    }

    fn fail_late_requests(&mut self, now: u64) {
        for at in 0..self.connections.len() {
            if self.busy[at] && self.connections[at].deadline_ns <= now {
                let why = self.connections[at].give_up(self.plan);
                self.schedule.failed(why);
                self.release(at);
            }
        }
    }

    fn release(&mut self, at: usize) {
        self.busy[at] = false;
        self.free.push_back(at);
    }
}

/// A histogram that can grow accepts every value; it fails only without memory to grow.
fn record(histogram: &mut Histogram<u64>, ns: u64) {
    if histogram.record(ns).is_err() {
        histogram.saturating_record(ns);
    }
}
