//! What is asked of a node, and how it stands with it: no socket, no task, and no clock but the times that it is given.
//!
//! A bank with several counters and one queue: whoever comes waits in the one queue, goes to the counter with the fewest before it, and
//! is served there to the end. The queue, the window and the tags are the node's; a connection has only what was sent over
//! it. So several connections never have more under way than one would have, and their frames are no smaller.
//!
//! When one connection breaks, all are given up, and what was not answered goes back into the queue. A request that was asked
//! over a connection that is lost may still be on its way to the node; asked again over another, it could overtake its first copy,
//! and land on what was written since. The node lets a coordinator in anew only when nothing of the old connections can land.
//!
//! Whoever asked may go away before the answer, as a client does that is cut off, and comes back to ask for the same again.
//! What he asked is dropped if it has not left. If it has, whatever touches its range waits until the node has answered it: else
//! it could land, late, on what was answered since.

use super::{Counts, Failure, Why};
use crate::frame::{self, Broken, Frame, Head, Operation, Reply, Request, Status, Stretch};
use crate::hello::Welcome;
use crate::setting::{Hold, Setting};
use crate::shm::Extent;
use crate::tuner::Tuner;
use bytes::Bytes;
use nbd::buffer::{Buffer, LARGE_BYTES};
use nbd::outbox::Outbox;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A connection on which nothing is received for so long, while answers are due, is given up; or for as long as a request may take,
/// if that is less.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
/// Data in a frame after which it is closed.
const FRAME_BYTES: usize = 1 << 20;
/// Data go through shared memory from here on: two copies through a socket's buffers cost more than an entry of the frame.
const WORTH_A_PLACE_BYTES: usize = 2 << 10;
/// Data asked for or sent, and not answered.
const UNDER_WAY_BYTES: usize = 16 << 20;
/// The same where they are in memory that both share: no way has to be filled, and more would be in no cache any more when it is
/// used next.
const SHARED_BYTES: usize = 4 << 20;

/// Who decides on window and batch.
#[derive(Debug, Clone)]
pub enum Control {
    /// The user.
    Fixed(Setting),
    /// The tuner.
    Tuned,
}

/// The same for all links of a coordinator, which have one tuner.
#[derive(Debug, Clone)]
pub struct Pace {
    by: By,
    /// The clock of them all.
    begin: Instant,
    /// One of the nodes may have lost what it had answered.
    doubtful: Rc<Cell<bool>>,
}

#[derive(Debug, Clone)]
enum By {
    Fixed(Setting),
    Tuned(Rc<RefCell<Tuner>>),
}

impl Pace {
    /// For so many nodes.
    pub fn new(control: &Control, nodes: usize) -> Self {
        let by = match control {
            Control::Fixed(setting) => By::Fixed(*setting),
            Control::Tuned => By::Tuned(Rc::new(RefCell::new(Tuner::new(nodes)))),
        };
        Self { by, begin: Instant::now(), doubtful: Rc::default() }
    }

    /// Whether one of the nodes may have lost what it had answered: no write and no flush may succeed then.
    pub fn is_doubtful(&self) -> bool {
        self.doubtful.get()
    }

    fn setting(&self, window: u32) -> Setting {
        match &self.by {
            By::Fixed(setting) => Setting::holding(setting.window().min(window), setting.hold()),
            By::Tuned(tuner) => Setting::holding(window, tuner.borrow().hold()),
        }
    }

    /// A frame of `node` brought so many answers by `now`; `left` requests are under way or wait.
    fn answered(&self, node: u32, now: Instant, answers: u32, left: u32) {
        if let By::Tuned(tuner) = &self.by {
            let now_ns = now.saturating_duration_since(self.begin).as_nanos() as u64;
            tuner.borrow_mut().answered(node as usize, now_ns, answers, left);
        }
    }
}

/// Why a connection is of no more use, although it carries bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Tardy {
    #[error("no data received for {} s", .0.as_secs_f64())]
    Silence(Duration),
    #[error("a request was unanswered for {} s", .0.as_secs_f64())]
    Late(Duration),
}

/// Data of a request. Most have one part, which takes no extra memory.
pub type Parts = SmallVec<[Bytes; 1]>;

#[derive(Debug)]
struct Job {
    /// Higher than that of all before it.
    number: u64,
    request: Request,
    /// In parts.
    data: Parts,
    /// Where in shared memory the data are, or shall be, as the frame says it; nothing if the frame carries them.
    places: Option<Bytes>,
    /// Where the node puts the answer.
    into: Option<Buffer>,
    since: Instant,
    /// When it left, the last time, and over which connection.
    sent: Instant,
    over: usize,
    /// For a flush: the writes that were answered when it was asked.
    covers: u64,
    reply: oneshot::Sender<Result<Bytes, Failure>>,
}

impl Job {
    fn is_large(&self) -> bool {
        self.bytes() >= LARGE_BYTES
    }

    /// Has its data in shared memory from now on, if they are there or can be.
    fn share(&mut self) {
        match self.request.operation {
            Operation::Read if self.bytes() < WORTH_A_PLACE_BYTES || self.request.unchecked => {}
            Operation::Read => {
                let buffer = Buffer::new(self.request.length as usize);
                self.places = Extent::of([&buffer[..]]);
                self.into = self.places.as_ref().map(|_| buffer);
            }
            Operation::Write if self.bytes() < WORTH_A_PLACE_BYTES => {}
            Operation::Write => self.places = Extent::of(self.data.iter().map(|part| &part[..])),
            Operation::Flush | Operation::Trim | Operation::Map => {}
        }
        self.request.places = self.places.as_deref().map_or(0, Extent::count);
    }

    /// Its connection is lost: what the node may still use of it, if it is memory that both share.
    fn unshare(&mut self) -> Option<InUse> {
        self.places.take()?;
        self.request.places = 0;
        Some(InUse { _data: self.data.clone(), _into: self.into.take() })
    }

    fn bytes(&self) -> usize {
        match self.request.operation {
            Operation::Read | Operation::Write => self.request.length as usize,
            Operation::Flush | Operation::Trim | Operation::Map => 0,
        }
    }
}

/// Memory that a node may still read or write.
#[derive(Debug)]
struct InUse {
    _data: Parts,
    _into: Option<Buffer>,
}

/// A change whose asker went away.
#[derive(Debug, Clone, Copy)]
struct Orphan {
    number: u64,
    offset: u64,
    length: u32,
}

impl Orphan {
    fn touches(&self, job: &Job) -> bool {
        let (one, other) = (self.offset, job.request.offset);
        let within = |from: u64, to: u64, length: u32| to >= from && to - from < u64::from(length);
        job.number > self.number
            && job.request.length > 0
            && (within(one, other, self.length) || within(other, one, job.request.length))
    }
}

/// One of the node's connections.
#[derive(Debug, Clone, Copy)]
struct Connection {
    /// The node has welcomed it.
    open: bool,
    /// What it was given is written, so that it may be given more.
    free: bool,
    under_way: usize,
    received: Instant,
    sequence: u64,
    /// Both ends see the same memory.
    memory: bool,
}

/// What does not change of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub address: SocketAddr,
    /// Among those of its coordinator.
    pub place: u32,
    pub epoch: u64,
    /// A request that finds no answer fails after this time.
    pub timeout: Duration,
}

#[derive(Debug)]
pub(super) struct State {
    pace: Pace,
    node: Known,
    granted: usize,
    pending: VecDeque<Job>,
    orphans: Vec<Orphan>,
    jobs: u64,
    /// Under way, by tag.
    tags: Vec<Option<Job>>,
    free: Vec<u16>,
    bytes: usize,
    connections: Vec<Connection>,
    boot: String,
    /// Writes answered, and those of them that a flush covers.
    written: u64,
    flushed: u64,
    /// Where what it had answered may be lost.
    pub lost: Vec<(u64, u64)>,
    counts: Counts,
    /// Since when it has answered nothing, if there is no connection.
    silent_since: Option<Instant>,
    /// Why there is no connection now.
    pub trouble: Option<String>,
    pub ended: Option<Failure>,
    /// Of the frame that is made: kept for its room.
    requests: Vec<Request>,
    /// Of connections that broke. When the node lets us in anew nothing of them goes on.
    in_use: Vec<InUse>,
}

impl Drop for State {
    /// The node may be busy with it for as long as it likes, and no answer will come: so its memory is not used again.
    fn drop(&mut self) {
        let under_way = self.tags.iter_mut().flatten().filter_map(Job::unshare);
        self.in_use.drain(..).chain(under_way).for_each(std::mem::forget);
    }
}

impl State {
    /// Of a node that was claimed and has welcomed us; none of the `connections` is open yet.
    pub fn new(pace: Pace, node: Known, welcome: &Welcome, connections: usize) -> Self {
        let granted = usize::from(welcome.granted).clamp(1, frame::MAX_COUNT);
        let connection =
            Connection { open: false, free: true, under_way: 0, received: Instant::now(), sequence: 0, memory: false };
        Self {
            pace,
            node,
            granted,
            pending: VecDeque::new(),
            orphans: Vec::new(),
            jobs: 0,
            tags: (0..granted).map(|_| None).collect(),
            free: (0..granted as u16).rev().collect(),
            bytes: 0,
            connections: vec![connection; connections.max(1)],
            boot: welcome.boot.clone(),
            // What it answered to those before us counts as one that is not flushed.
            written: u64::from(welcome.unflushed),
            flushed: 0,
            lost: Vec::new(),
            counts: Counts::default(),
            silent_since: None,
            trouble: None,
            ended: None,
            requests: Vec::new(),
            in_use: Vec::new(),
        }
    }

    /// A request joins the queue. Its answer comes through `reply`; its number, and which connection it is worth waking, are
    /// returned.
    pub fn put(
        &mut self,
        request: Request,
        data: Parts,
        now: Instant,
        reply: oneshot::Sender<Result<Bytes, Failure>>,
    ) -> (u64, Option<usize>) {
        self.jobs += 1;
        let number = self.jobs;
        let away = self.is_away(now).then(|| self.too_late());
        let lost = (!self.lost.is_empty() && !request.reads()).then_some(Failure::Lost);
        if let Some(failure) = self.ended.clone().or(lost).or(away) {
            // Whoever asked may be gone.
            let _ = reply.send(Err(failure));
            return (number, None);
        }
        let covers = self.written;
        self.pending.push_back(Job {
            number,
            request,
            data,
            places: None,
            into: None,
            since: now,
            sent: now,
            over: 0,
            covers,
            reply,
        });
        (number, self.next())
    }

    /// Whoever asked for that went away, before he was answered.
    pub fn abandon(&mut self, number: u64, request: &Request) {
        if matches!(request.operation, Operation::Write | Operation::Trim) && self.ended.is_none() {
            self.orphans.push(Orphan { number, offset: request.offset, length: request.length });
        }
    }

    /// A request is answered, or dropped.
    fn settled(&mut self, number: u64) {
        self.orphans.retain(|orphan| orphan.number != number);
    }

    /// Counts, with what is in force now.
    pub fn counts(&self) -> Counts {
        let (setting, waiting, under_way) = (self.setting(), self.pending.len() as u32, self.under_way() as u32);
        Counts {
            window: setting.window(),
            batch: setting.batch(waiting + under_way),
            waiting,
            under_way,
            connections: self.connections.iter().filter(|connection| connection.open).count() as u32,
            ..self.counts
        }
    }

    fn setting(&self) -> Setting {
        self.pace.setting(self.granted as u32)
    }

    fn under_way(&self) -> usize {
        self.granted - self.free.len()
    }

    /// How many requests should leave now.
    fn room(&self) -> usize {
        if self.pending.front().is_some_and(Job::is_large) {
            // It fills packets alone: nothing is gained if it waits for others, and the way would lie empty meanwhile.
            let natural = Setting::holding(self.setting().window(), Hold::NATURAL);
            return natural.frame(self.pending.len() as u32, self.under_way() as u32) as usize;
        }
        self.setting().frame(self.pending.len() as u32, self.under_way() as u32) as usize
    }

    /// The connection whose turn it is: of those that can take a frame, the one with the fewest requests under way.
    fn next(&self) -> Option<usize> {
        let can = self.connections.iter().enumerate().filter(|(_, connection)| connection.open && connection.free);
        can.min_by_key(|(nth, connection)| (connection.under_way, *nth)).map(|(nth, _)| nth)
    }

    /// The node has welcomed a connection; nothing is under way over it.
    pub fn opened(&mut self, nth: usize, now: Instant, memory: bool) {
        self.connections[nth] = Connection { open: true, free: true, under_way: 0, received: now, sequence: 0, memory };
    }

    /// Whether all that it has answered is flushed.
    pub fn all_flushed(&self) -> bool {
        self.flushed >= self.written
    }

    /// It may have lost what it had answered: what is to change it, or to make that durable, fails from now on.
    pub fn doubt(&mut self, welcome: &Welcome) {
        if welcome.lost.is_empty() {
            return;
        }
        self.lost.clone_from(&welcome.lost);
        self.pace.doubtful.set(true);
        for job in std::mem::take(&mut self.pending) {
            if job.request.reads() {
                self.pending.push_back(job);
            } else if job.reply.send(Err(Failure::Lost)).is_err() {
                self.settled(job.number);
            }
        }
    }

    /// Whether it can be asked again: it is still the machine that it was, or nothing was lost, or it says itself what may be.
    pub fn reopened(&mut self, welcome: &Welcome) -> bool {
        if self.boot != welcome.boot && !self.all_flushed() && welcome.lost.is_empty() {
            return false;
        }
        self.boot.clone_from(&welcome.boot);
        self.doubt(welcome);
        (self.trouble, self.silent_since) = (None, None);
        self.in_use.clear();
        self.counts.reconnected += 1;
        true
    }

    /// What the connection was given is written; makes its next frame, if it is its turn and time for one. Another connection
    /// that should be woken is returned.
    pub fn fill(&mut self, nth: usize, now: Instant, out: &mut Outbox) -> Option<usize> {
        self.connections[nth].free = true;
        if self.next() == Some(nth) {
            let mut before = usize::MAX;
            // Within a machine nothing is gained by a write for each frame that is ready; on a way that carries packets they shall come apart.
            while out.len() != before
                && (before == usize::MAX || (self.connections[nth].memory && out.len() < FRAME_BYTES))
            {
                before = out.len();
                self.frame(nth, now, out);
            }
            self.connections[nth].free = out.is_empty();
        }
        self.next().filter(|next| *next != nth && self.room() > 0)
    }

    fn frame(&mut self, nth: usize, now: Instant, out: &mut Outbox) {
        let (under_way, waiting, room) = (self.under_way(), self.pending.len(), self.room());
        let (mut frame_bytes, mut large) = (0, false);
        let most = if self.connections[nth].memory { SHARED_BYTES } else { UNDER_WAY_BYTES };
        while self.requests.len() < room && frame_bytes < FRAME_BYTES {
            while let Some(job) = self.pending.pop_front_if(|job| job.reply.is_closed()) {
                self.settled(job.number);
            }
            let Some(job) = self.pending.front() else { break };
            if self.orphans.iter().any(|orphan| orphan.touches(job)) {
                break;
            }
            let bytes = job.bytes();
            if self.bytes > 0 && self.bytes + bytes > most {
                break;
            }
            let (Some(tag), Some(mut job)) = (self.free.pop(), self.pending.pop_front()) else { break };
            (job.request.tag, job.sent, job.over) = (tag, now, nth);
            if self.connections[nth].memory {
                job.share();
            }
            self.bytes += bytes;
            frame_bytes += job.data.iter().map(Bytes::len).sum::<usize>();
            large |= job.is_large();
            self.requests.push(job.request);
            self.tags[usize::from(tag)] = Some(job);
        }
        if self.requests.is_empty() {
            return;
        }
        let batch = if large { 1 } else { self.setting().batch((waiting + under_way) as u32) };
        let granted = u16::try_from(batch).unwrap_or(u16::MAX);
        let connection = &mut self.connections[nth];
        if connection.under_way == 0 {
            connection.received = now;
        }
        let head = Head { epoch: self.node.epoch, sequence: connection.sequence, granted, ..Head::default() };
        let before = out.len();
        let of = |tag: u16| match &self.tags[usize::from(tag)] {
            Some(Job { places: Some(places), .. }) => std::slice::from_ref(places),
            Some(job) => &job.data[..],
            None => &[],
        };
        frame::put_requests(out, &head, &self.requests, |nth| of(self.requests[nth].tag));
        connection.sequence += 1;
        connection.under_way += self.requests.len();
        self.counts.frames_sent += 1;
        self.counts.bytes_sent += (out.len() - before) as u64;
        self.counts.requests_sent += self.requests.len() as u64;
        self.requests.clear();
    }

    /// So many bytes came over a connection.
    pub fn received(&mut self, nth: usize, now: Instant, bytes: usize) {
        self.connections[nth].received = now;
        self.counts.bytes_received += bytes as u64;
    }

    /// A frame came over a connection.
    pub fn answered(&mut self, nth: usize, frame: Frame, now: Instant) -> Result<(), Broken> {
        let Frame::Replies(head, replies) = frame else { return Err(Broken::Sense("a node sent a request")) };
        self.counts.frames_received += 1;
        self.counts.queued = head.queued;
        self.counts.service_us = head.service_us;
        let (mut left, mut answers) = (now, 0);
        for (reply, data) in replies {
            let slot = self.tags.get_mut(usize::from(reply.tag)).and_then(Option::as_mut).filter(|job| job.over == nth);
            let job = slot.ok_or(Broken::Sense("an answer without a request"))?;
            let data = match job.into.take_if(|into| reply.placed && into.len() == reply.length as usize) {
                Some(into) => into.share(),
                None => data,
            };
            let result = judge(&job.request, &reply, data)?;
            let Some(job) = self.tags[usize::from(reply.tag)].take() else { continue };
            self.free.push(reply.tag);
            self.connections[nth].under_way -= 1;
            left = job.sent;
            self.bytes -= job.bytes();
            self.counts.answered += 1;
            if result.is_ok() && job.places.is_some() {
                let (to, from) = &mut self.counts.placed;
                *(if reply.placed { from } else { to }) += u64::from(job.request.length);
            }
            if result.is_ok() {
                match job.request.operation {
                    Operation::Flush => self.flushed = self.flushed.max(job.covers),
                    Operation::Write | Operation::Trim if !job.request.durable => self.written += 1,
                    _ => {}
                }
            }
            answers += 1;
            if job.reply.send(result.map_err(|status| Failure::Node(self.node.address, status))).is_err() {
                self.settled(job.number);
            }
        }
        self.pace.answered(self.node.place, now, answers, (self.under_way() + self.pending.len()) as u32);
        let took_us = now.saturating_duration_since(left).as_nanos() as f64 / 1000.0;
        let rtt_us = &mut self.counts.rtt_us;
        *rtt_us = if *rtt_us == 0.0 { took_us } else { *rtt_us + (took_us - *rtt_us) / 8.0 };
        Ok(())
    }

    /// Whether a connection has kept us waiting too long. Requests that wait their turn are nothing to worry about.
    pub fn tardy(&self, nth: usize, now: Instant) -> Option<Tardy> {
        let (connection, timeout) = (&self.connections[nth], self.node.timeout);
        let silence = SILENCE.min(timeout);
        if connection.under_way > 0 && now.saturating_duration_since(connection.received) > silence {
            return Some(Tardy::Silence(silence));
        }
        let late = |job: &Job| job.over == nth && now.saturating_duration_since(job.sent) > timeout;
        self.tags.iter().flatten().any(late).then_some(Tardy::Late(timeout))
    }

    /// No connection is open any more: what is under way is to be asked anew, the oldest first.
    pub fn ask_again(&mut self, now: Instant) {
        let mut jobs: Vec<Job> = self.tags.iter_mut().filter_map(Option::take).collect();
        // The oldest unanswered request dates since when it is silent.
        let first = jobs.iter().map(|job| job.sent).min().unwrap_or(now);
        self.silent_since.get_or_insert(first);
        jobs.sort_by_key(|job| std::cmp::Reverse(job.number));
        for mut job in jobs {
            self.in_use.extend(job.unshare());
            self.free.push(job.request.tag);
            self.pending.push_front(job);
        }
        // Nothing of them can land any more.
        self.pending.retain(|job| !job.reply.is_closed());
        self.orphans.clear();
        self.bytes = 0;
        for connection in &mut self.connections {
            (connection.open, connection.under_way) = (false, 0);
        }
        self.expire(now);
    }

    /// Whether it has answered nothing for so long that it is not waited for.
    pub fn is_away(&self, now: Instant) -> bool {
        self.silent_since.is_some_and(|since| now.saturating_duration_since(since) > self.node.timeout)
    }

    /// When [`State::expire`] next has something to do, if there is no connection: the oldest request has waited too long, or the node is away,
    /// from when on what is asked fails at once.
    pub fn expires(&self, now: Instant) -> Option<Instant> {
        // One more than may be waited.
        let late = self.node.timeout + Duration::from_millis(1);
        let oldest = self.pending.front().map(|job| job.since + late);
        // What is past is nothing to wait for, but for requests that are there.
        let away = self.silent_since.map(|since| since + late).filter(|at| *at > now || oldest.is_some());
        oldest.into_iter().chain(away).min()
    }

    /// A request that finds no answer fails after this time.
    pub fn timeout(&self) -> Duration {
        self.node.timeout
    }

    fn too_late(&self) -> Failure {
        let why = Why(self.trouble.as_deref().map(Rc::from));
        Failure::Deadline(self.node.address, self.node.timeout, why)
    }

    /// Fails what waits too long; nothing is under way then.
    pub fn expire(&mut self, now: Instant) {
        let away = self.is_away(now);
        let late = |job: &Job, timeout| now.saturating_duration_since(job.since) > timeout;
        while self.pending.front().is_some_and(|job| away || late(job, self.node.timeout)) {
            let Some(job) = self.pending.pop_front() else { return };
            if job.reply.send(Err(self.too_late())).is_err() {
                self.settled(job.number);
            }
        }
    }

    /// Nothing can be asked any more.
    pub fn end(&mut self, failure: Failure, now: Instant) {
        for job in self.pending.drain(..) {
            // Whoever asked may be gone.
            let _ = job.reply.send(Err(failure.clone()));
        }
        self.orphans.clear();
        self.ended = Some(failure);
        self.pace.answered(self.node.place, now, 0, 0);
    }
}

/// What the answer says; data that do not match their checksum were damaged on the way.
fn judge(request: &Request, reply: &Reply, data: Bytes) -> Result<Result<Bytes, Status>, Broken> {
    if reply.status != Status::Done {
        return Ok(Err(reply.status));
    }
    let fits = match request.operation {
        Operation::Read => data.len() == request.length as usize,
        Operation::Map => Stretch::take_all(&data, request.length).is_some(),
        Operation::Write | Operation::Flush | Operation::Trim => data.is_empty(),
    };
    if !fits {
        return Err(Broken::Sense("an answer has a different length than requested"));
    }
    // What was put into memory went over no wire.
    if !data.is_empty() && !request.unchecked && !reply.placed && crc32c::crc32c(&data) != reply.checksum {
        return Err(Broken::Checksum);
    }
    Ok(Ok(data))
}

#[cfg(test)]
mod tests;
