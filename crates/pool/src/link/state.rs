//! The state of a node's link: pending requests, connections and counters; no socket, no task, and no clock except the times passed in.
//!
//! The model is a bank with several counters and one queue: a request waits in the one queue, goes to the counter with the
//! fewest requests, and stays there until it is served. The queue, the window and the tags belong to the node; a connection
//! only has the requests sent over it. So several connections never have more requests outstanding than one would have, and
//! their frames are no smaller.
//!
//! When one connection breaks, all are closed, and unanswered requests return to the queue. A request sent over a lost
//! connection may still be on its way to the node; sent again over another, it could overtake its first copy, which would
//! then overwrite newer data. The node accepts a coordinator again only when no request of the old connections can still be
//! executed.
//!
//! A request that waits for the medium (a flush, or a write that the node holds back) does not count as outstanding when the
//! next frame is due, and reads overtake writes that have no room: so no read waits for the medium because of another's
//! request.
//!
//! A requester may disappear before the reply, as when a client is disconnected, and return to repeat the request. Its
//! request is dropped if it has not been sent. If it has, any request that touches its range waits until the node has
//! replied to it: otherwise it could be executed late, and overwrite data acknowledged since.

use super::faults::NodeFault;
use super::liveness::{Liveness, LivenessError, Path, report_ms};
use super::{Counts, Failure, FaultOffset, LastError};
use crate::frame::{self, Frame, FrameError, FrameHeader, Operation, Report, Request, Status, WaitClass};
use crate::hello::Welcome;
use crate::protocol::{Loss, LossCause};
use crate::setting::{Hold, Setting};
use crate::store::{DirectReader, Witness};
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

#[cfg(any(test, debug_assertions))]
mod invariants;
mod job;
mod orphan;
mod reply;

use orphan::Orphan;
use reply::check_reply;

/// Data in a frame after which the frame is complete.
const FRAME_DATA_BYTES_MAX: usize = 1 << 20;
/// The minimum size of data for shared memory: two copies through a socket's buffers cost more than an entry of the frame.
const SHARED_DATA_BYTES_MIN: usize = 2 << 10;
/// The maximum of data requested, and the maximum of data sent, that is not answered.
const IN_FLIGHT_BYTES_MAX: usize = 16 << 20;
/// The same for shared memory: there is no path to fill, and more would no longer be in any cache when it is used next.
const SHARED_IN_FLIGHT_BYTES_MAX: usize = 4 << 20;

/// While data is not in the page cache, this many reads in a row are not tried there: a try that fails costs about a microsecond.
const SKIPPED_READS_MAX: u32 = 16;

/// What determines window and batch.
#[derive(Debug, Clone)]
pub enum Control {
    Fixed(Setting),
    Tuned,
}

/// The maximum number of faults kept until they are reported, which happens after each read of a socket.
const UNREPORTED_FAULTS_MAX: usize = 64;

/// Shared by all links of a coordinator, which have one tuner.
#[derive(Debug, Clone)]
pub struct Pace {
    control: PaceControl,
    /// The common reference of times.
    begin: Instant,
    /// Whether a node may have lost acknowledged writes.
    doubtful: Rc<Cell<bool>>,
}

#[derive(Debug, Clone)]
enum PaceControl {
    Fixed(Setting),
    Tuned(Rc<RefCell<Tuner>>),
}

impl Pace {
    /// Creates the pace for this number of nodes.
    pub fn new(control: &Control, nodes: usize) -> Self {
        let by = match control {
            Control::Fixed(setting) => PaceControl::Fixed(*setting),
            Control::Tuned => PaceControl::Tuned(Rc::new(RefCell::new(Tuner::new(nodes)))),
        };
        Self { control: by, begin: Instant::now(), doubtful: Rc::default() }
    }

    /// Whether a node may have lost acknowledged writes: no write and no flush may succeed then.
    pub fn is_doubtful(&self) -> bool {
        self.doubtful.get()
    }

    fn setting(&self, window: u32) -> Setting {
        match &self.control {
            PaceControl::Fixed(setting) => Setting::with_hold(setting.window().min(window), setting.hold()),
            PaceControl::Tuned(tuner) => Setting::with_hold(window, tuner.borrow().hold()),
        }
    }

    /// A frame of `node` contained `answers` replies at `now`; `left` requests are outstanding or queued.
    fn record_answers(&self, node: u32, now: Instant, answers: u32, left: u32) {
        if let PaceControl::Tuned(tuner) = &self.control {
            let now_ns = now.saturating_duration_since(self.begin).as_nanos() as u64;
            tuner.borrow_mut().record_answers(node as usize, now_ns, answers, left);
        }
    }
}

/// The data of a request. Most have one part, which takes no extra memory.
pub type Parts = SmallVec<[Bytes; 1]>;

#[derive(Debug)]
struct Job {
    number: u64,
    request: Request,
    /// The data, in parts.
    data: Parts,
    /// The ranges of shared memory with the data, or for it, in frame format; `None` if the frame carries the data.
    extents: Option<Bytes>,
    /// The buffer for the node's reply.
    reply_buffer: Option<Buffer>,
    /// When and over which connection it was last sent.
    sent_at: Instant,
    connection: usize,
    /// For a flush, or what is durable before it is answered: the number of writes answered when it was requested.
    covered_writes: u64,
    reply: oneshot::Sender<Result<Bytes, Failure>>,
}

/// Memory that a node may still read or write.
#[derive(Debug)]
struct MemoryInUse {
    _data: Parts,
    _into: Option<Buffer>,
}

/// One of the node's connections.
#[derive(Debug, Clone, Copy)]
struct Connection {
    /// Whether the node has welcomed it.
    is_open: bool,
    /// Whether its last frame is written, so that it can take another.
    can_send: bool,
    in_flight: usize,
    path: Path,
    sequence: u64,
    /// Whether both ends share memory.
    shares_memory: bool,
}

impl Connection {
    fn new(open: bool, now: Instant, memory: bool) -> Self {
        Self { is_open: open, can_send: true, in_flight: 0, path: Path::new(now), sequence: 0, shares_memory: memory }
    }
}

/// The constant properties of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeProperties {
    pub address: SocketAddr,
    /// Its index among the coordinator's nodes.
    pub place: u32,
    pub epoch: u64,
    /// The time after which requests fail if it is not heard.
    pub timeout: Duration,
}

/// Outstanding requests and their bytes, by [`WaitClass`].
#[derive(Debug, Clone, Copy, Default)]
struct InFlight {
    requests: usize,
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct State {
    pace: Pace,
    node: NodeProperties,
    granted: usize,
    pending: VecDeque<Job>,
    orphans: Vec<Orphan>,
    last_number: u64,
    /// Outstanding requests, by tag.
    tags: Vec<Option<Job>>,
    free_tags: Vec<u16>,
    in_flight: [InFlight; 3],
    connections: Vec<Connection>,
    size_bytes: u64,
    boot: String,
    /// Writes answered, and those of them covered by a flush.
    answered_writes: u64,
    flushed_writes: u64,
    /// Whether writes that the node acknowledged to earlier coordinators may not be flushed.
    inherits_unflushed: bool,
    /// The highest sequence number of the store's header that the node has sent, and the last process that sent one.
    sequence: u64,
    instance: String,
    /// Whether a flush failed, and whether the store may not have recorded that: only the process that has ended may know.
    flush_failed: bool,
    is_unrecorded: bool,
    /// Whether the connections must be reopened, to learn from the node what is lost.
    must_ask_for_loss: bool,
    /// Where acknowledged writes may be lost.
    pub loss: Loss,
    counts: Counts,
    /// To be reported.
    faults: Vec<NodeFault>,
    liveness: Liveness,
    /// Why there is no connection now.
    pub trouble: Option<String>,
    pub ended: Option<Failure>,
    /// The entries of the frame being built: kept to reuse the allocation.
    requests: Vec<Request>,
    /// Memory of broken connections. When the node accepts us again it no longer uses it.
    memory_in_use: Vec<MemoryInUse>,
    /// The node's files, while it is connected, if it is on this machine.
    direct: Option<DirectReader>,
    witness: Option<Witness>,
    /// How many of the next reads are not tried there, as the last one failed; and how many it will be if one fails again.
    skipped_reads: (u32, u32),
}

impl Drop for State {
    /// The node may use the memory for any length of time, and no reply will arrive: so the memory is leaked.
    fn drop(&mut self) {
        let under_way = self.tags.iter_mut().flatten().filter_map(Job::take_shared_memory);
        self.memory_in_use.drain(..).chain(under_way).for_each(std::mem::forget);
    }
}

impl State {
    /// The state of a node that was claimed and has welcomed us; none of the `connections` is open yet.
    pub fn new(pace: Pace, node: NodeProperties, welcome: &Welcome, connections: usize) -> Self {
        let granted = usize::from(welcome.granted).clamp(1, frame::ENTRIES_MAX);
        let now = Instant::now();
        let connection = Connection::new(false, now, false);
        Self {
            pace,
            node,
            granted,
            pending: VecDeque::new(),
            orphans: Vec::new(),
            last_number: 0,
            tags: (0..granted).map(|_| None).collect(),
            free_tags: (0..granted as u16).rev().collect(),
            in_flight: [InFlight::default(); 3],
            connections: vec![connection; connections.max(1)],
            size_bytes: welcome.size_bytes,
            boot: welcome.boot.clone(),
            answered_writes: 0,
            flushed_writes: 0,
            inherits_unflushed: welcome.unflushed,
            sequence: welcome.sequence,
            instance: welcome.instance.clone(),
            flush_failed: false,
            is_unrecorded: false,
            must_ask_for_loss: false,
            loss: Loss::default(),
            counts: Counts::default(),
            faults: Vec::new(),
            liveness: Liveness::new(node.timeout, now),
            trouble: None,
            ended: None,
            requests: Vec::new(),
            memory_in_use: Vec::new(),
            direct: None,
            witness: None,
            skipped_reads: (0, 0),
        }
    }

    /// Adds a request to the queue. Its reply is sent to `reply`; returns its number, and the connection to wake.
    pub fn queue_request(
        &mut self,
        request: Request,
        data: Parts,
        now: Instant,
        reply: oneshot::Sender<Result<Bytes, Failure>>,
    ) -> (u64, Option<usize>) {
        self.last_number += 1;
        let number = self.last_number;
        let away = (self.is_away(now) || self.liveness.is_stalled()).then(|| self.timeout_failure());
        let lost = (!self.loss.ranges.is_empty() && !request.is_read_only()).then_some(Failure::Lost);
        if let Some(failure) = self.ended.clone().or(lost).or(away) {
            // The requester may be gone.
            let _ = reply.send(Err(failure));
            return (number, None);
        }
        let data_bytes: usize = data.iter().map(Bytes::len).sum();
        let expected_bytes = if request.operation == Operation::Write { request.length as usize } else { 0 };
        assert!(data_bytes == expected_bytes && data_bytes <= frame::DATA_BYTES_MAX, "{data_bytes} bytes: {request:?}");
        let covers = self.answered_writes;
        self.pending.push_back(Job {
            number,
            request,
            data,
            extents: None,
            reply_buffer: None,
            sent_at: now,
            connection: 0,
            covered_writes: covers,
            reply,
        });
        (number, self.next_connection())
    }

    /// The requester of this request is gone, before it was answered.
    pub fn abandon(&mut self, number: u64, request: &Request) {
        if matches!(request.operation, Operation::Write | Operation::Trim) && self.ended.is_none() {
            debug_assert!(self.orphans.iter().all(|orphan| orphan.number != number), "it was abandoned before");
            self.orphans.push(Orphan { number, offset: request.offset, length: request.length });
        }
    }

    /// A request is answered, or dropped.
    fn remove_orphan(&mut self, number: u64) {
        self.orphans.retain(|orphan| orphan.number != number);
    }

    /// The counters, with the current settings.
    pub fn counts(&self) -> Counts {
        let (setting, waiting, under_way) = (self.setting(), self.pending.len() as u32, self.in_flight_count() as u32);
        Counts {
            window: setting.window(),
            batch: setting.batch(waiting + under_way),
            waiting,
            under_way,
            connections: self.connections.iter().filter(|connection| connection.is_open).count() as u32,
            ..self.counts
        }
    }

    fn setting(&self) -> Setting {
        self.pace.setting(self.granted as u32)
    }

    fn in_flight_count(&self) -> usize {
        self.granted - self.free_tags.len()
    }

    /// Outstanding requests that the path and the node's memory are busy with: the others wait for its medium, however
    /// long that takes, and must not hold back the next frame.
    fn paced_count(&self) -> usize {
        let held = if self.counts.report.writes_wait { self.in_flight[WaitClass::Write as usize].requests } else { 0 };
        self.in_flight_count() - self.in_flight[WaitClass::Sync as usize].requests - held
    }

    /// How many requests to send now.
    fn frame_room(&self) -> usize {
        let (waiting, paced) = (self.pending.len() as u32, self.paced_count() as u32);
        let setting = if self.pending.front().is_some_and(Job::is_large) {
            // It fills packets alone: waiting for others has no benefit, and the path would be idle meanwhile.
            Setting::with_hold(self.setting().window(), Hold::NATURAL_BATCH)
        } else {
            self.setting()
        };
        (setting.frame(waiting, paced) as usize).min(self.window_left())
    }

    /// How many more requests the window permits.
    fn window_left(&self) -> usize {
        (self.setting().window() as usize).saturating_sub(self.in_flight_count()).min(self.free_tags.len())
    }

    /// The next request to send, if it has room: the first one, or if that is a write without room, the first read.
    fn next_job(&self, most: usize) -> Option<usize> {
        let fits = |job: &Job| {
            let class = job.class();
            let out = self.in_flight[class as usize];
            // Where writes wait for the medium, some of the window is left to reads.
            let room =
                !self.counts.report.writes_wait || class == WaitClass::Read || self.window_left() > self.granted / 4;
            room && (out.bytes == 0 || out.bytes + job.bytes() <= most)
        };
        let front = self.pending.front()?;
        let nth = match front.class() {
            WaitClass::Write if !fits(front) => self.pending.iter().position(|job| job.class() == WaitClass::Read)?,
            _ => 0,
        };
        fits(&self.pending[nth]).then_some(nth)
    }

    /// The connection to use next: of those that can take a frame, the one with the fewest outstanding requests.
    fn next_connection(&self) -> Option<usize> {
        let can =
            self.connections.iter().enumerate().filter(|(_, connection)| connection.is_open && connection.can_send);
        can.min_by_key(|(nth, connection)| (connection.in_flight, *nth)).map(|(nth, _)| nth)
    }

    /// The node has welcomed a connection; nothing is outstanding on it.
    pub fn set_open(&mut self, nth: usize, now: Instant, memory: bool) {
        assert!(self.connections[nth].in_flight == 0, "requests of a lost connection were not requeued");
        assert!(self.memory_in_use.is_empty(), "the node may still use memory of the last connections");
        self.connections[nth] = Connection::new(true, now, memory);
    }

    /// The node's files may be read, until the connections break.
    pub fn attach_files(&mut self, welcome: &Welcome) {
        self.direct = welcome.files.as_ref().and_then(DirectReader::attach);
        self.skipped_reads = (0, 0);
    }

    /// The witness of whether the previous process was notified of a lost write. Returned once.
    pub fn take_witness(&mut self, welcome: &Welcome) -> Option<Witness> {
        self.witness.take().filter(|_| self.instance != welcome.instance)
    }

    /// Whether the node's files may be read.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Reads from the node's file, if the page cache has the data; otherwise false.
    pub fn read_direct(&mut self, offset: u64, to: &mut [u8]) -> bool {
        let Some(direct) = &self.direct else { return false };
        if let Some(left) = self.skipped_reads.0.checked_sub(1) {
            self.skipped_reads.0 = left;
            return false;
        }
        if !direct.read(offset, to) {
            let next = (2 * self.skipped_reads.1).clamp(1, SKIPPED_READS_MAX);
            self.skipped_reads = (next - 1, next);
            return false;
        }
        self.skipped_reads = (0, 0);
        self.counts.answered += 1;
        self.counts.shared_memory_bytes.1 += to.len() as u64;
        true
    }

    /// Whether all acknowledged writes are flushed.
    pub fn all_flushed(&self) -> bool {
        self.flushed_writes >= self.answered_writes && !self.inherits_unflushed && !self.flush_failed
    }

    /// The highest sequence number of the store's header that the node has sent, and the last process that sent one.
    pub fn sequence(&self) -> (u64, String) {
        (self.sequence, self.instance.clone())
    }

    /// Whether the node's next claim must have it record that a flush failed.
    pub fn has_unrecorded_failure(&self) -> bool {
        self.is_unrecorded
    }

    /// Whether the connections must be reopened now, to learn from the node what is lost. True once.
    pub fn take_loss_query(&mut self) -> bool {
        std::mem::take(&mut self.must_ask_for_loss)
    }

    /// The node may have lost acknowledged writes: writes and flushes fail from now on.
    pub fn record_loss(&mut self, loss: &Loss) {
        if loss.ranges.is_empty() {
            return;
        }
        self.loss.clone_from(loss);
        self.pace.doubtful.set(true);
        self.refuse_changes();
    }

    /// Fails the writes and flushes in the queue.
    fn refuse_changes(&mut self) {
        for job in std::mem::take(&mut self.pending) {
            if job.request.is_read_only() {
                self.pending.push_back(job);
            } else if job.reply.send(Err(Failure::Lost)).is_err() {
                self.remove_orphan(job.number);
            }
        }
    }

    /// A flush failed at the node. It knows which ranges that concerns; until it has sent them, or if it cannot, it is all of them.
    pub fn fail_flush(&mut self) {
        self.is_unrecorded = true;
        if self.flush_failed {
            return;
        }
        (self.flush_failed, self.must_ask_for_loss) = (true, true);
        if self.loss.ranges.is_empty() {
            let (ranges, causes) = (vec![(0, self.size_bytes)], vec![LossCause::FlushFailed]);
            self.record_loss(&Loss { ranges, causes, id: String::new() });
        }
    }

    /// The node can be used again. It knows what its medium may have lost, unless the medium lost its header too.
    pub fn record_reopen(&mut self, welcome: &Welcome, now: Instant) {
        let restarted = self.boot != welcome.boot;
        if restarted && self.flushed_writes < self.answered_writes && welcome.loss.ranges.is_empty() {
            let (ranges, causes) = (vec![(0, self.size_bytes)], vec![LossCause::MachineRestarted]);
            self.record_loss(&Loss { ranges, causes, id: String::new() });
        }
        self.is_unrecorded &= !welcome.loss.causes.contains(&LossCause::FlushFailed);
        self.inherits_unflushed &= welcome.unflushed;
        self.sequence = self.sequence.max(welcome.sequence);
        self.instance.clone_from(&welcome.instance);
        self.boot.clone_from(&welcome.boot);
        self.record_loss(&welcome.loss);
        self.liveness.record_reopen(now);
        self.trouble = None;
        assert!(self.in_flight_count() == 0, "a request is outstanding, and its memory is given up");
        self.memory_in_use.clear();
        self.counts.reconnected += 1;
    }

    /// The connection's last frame is written; builds its next frame, if it is this connection's turn and time to send.
    /// Returns another connection to wake.
    pub fn fill(&mut self, nth: usize, now: Instant, out: &mut Outbox) -> Option<usize> {
        self.connections[nth].can_send = true;
        if self.next_connection() == Some(nth) {
            let mut before = usize::MAX;
            // On the same machine a write for each ready frame has no benefit; on a path with packets the frames should
            // arrive separately.
            while out.len() != before
                && (before == usize::MAX || (self.connections[nth].shares_memory && out.len() < FRAME_DATA_BYTES_MAX))
            {
                before = out.len();
                self.build_frame(nth, now, out);
            }
            self.connections[nth].can_send = out.is_empty();
        }
        #[cfg(debug_assertions)]
        self.check_invariants();
        self.next_connection().filter(|next| *next != nth && self.frame_room() > 0)
    }

    fn build_frame(&mut self, nth: usize, now: Instant, out: &mut Outbox) {
        let (paced, waiting, room) = (self.paced_count(), self.pending.len(), self.frame_room());
        let (mut frame_bytes, mut large) = (0, false);
        let most = if self.connections[nth].shares_memory { SHARED_IN_FLIGHT_BYTES_MAX } else { IN_FLIGHT_BYTES_MAX };
        while self.requests.len() < room && frame_bytes < FRAME_DATA_BYTES_MAX {
            while let Some(job) = self.pending.pop_front_if(|job| job.reply.is_closed()) {
                self.remove_orphan(job.number);
            }
            let Some(next) = self.next_job(most) else { break };
            if self.orphans.iter().any(|orphan| orphan.touches(&self.pending[next])) || self.free_tags.is_empty() {
                break;
            }
            let (Some(mut job), Some(tag)) = (self.pending.remove(next), self.free_tags.pop()) else { break };
            (job.request.tag, job.sent_at, job.connection) = (tag, now, nth);
            if self.connections[nth].shares_memory {
                job.move_to_shared_memory();
            }
            if self.in_flight_count() == 1 {
                self.liveness.record_progress(now);
            }
            let out = &mut self.in_flight[job.class() as usize];
            (out.requests, out.bytes) = (out.requests + 1, out.bytes + job.bytes());
            frame_bytes += job.data.iter().map(Bytes::len).sum::<usize>();
            large |= job.is_large();
            self.requests.push(job.request);
            let before = self.tags[usize::from(tag)].replace(job);
            assert!(before.is_none(), "the tag {tag} was free and used");
        }
        if self.requests.is_empty() {
            return;
        }
        let batch = if large { 1 } else { self.setting().batch((waiting + paced) as u32) };
        let granted = u16::try_from(batch).unwrap_or(u16::MAX);
        let connection = &mut self.connections[nth];
        let head =
            FrameHeader { epoch: self.node.epoch, sequence: connection.sequence, granted, ..FrameHeader::default() };
        let before = out.len();
        let of = |tag: u16| match &self.tags[usize::from(tag)] {
            Some(Job { extents: Some(places), .. }) => std::slice::from_ref(places),
            Some(job) => &job.data[..],
            None => &[],
        };
        frame::put_requests(out, &head, &self.requests, |nth| of(self.requests[nth].tag));
        connection.sequence += 1;
        connection.in_flight += self.requests.len();
        connection.path.record_send(out.len() - before, now);
        self.counts.frames_sent += 1;
        self.counts.bytes_sent += (out.len() - before) as u64;
        self.counts.requests_sent += self.requests.len() as u64;
        self.requests.clear();
    }

    /// Records bytes received on a connection.
    pub fn record_receive(&mut self, nth: usize, now: Instant, bytes: usize) {
        self.connections[nth].path.record_receive(now);
        self.liveness.record_heard(now);
        self.counts.bytes_received += bytes as u64;
    }

    /// Processes a frame received on a connection.
    pub fn process_frame(&mut self, nth: usize, frame: Frame, now: Instant) -> Result<(), FrameError> {
        let (head, replies) = match frame {
            Frame::Replies(head, replies) => (head, replies),
            Frame::Report(_, report) => {
                self.record_report(nth, report, now);
                return Ok(());
            }
            Frame::Requests(..) => return Err(FrameError::Invalid("a node sent a request")),
        };
        self.connections[nth].path.record_answer(now);
        self.liveness.record_progress(now);
        self.counts.frames_received += 1;
        self.counts.queued = head.queued;
        self.counts.service_us = head.service_us;
        let (mut left, mut answers) = (now, 0);
        for (reply, data) in replies {
            let slot =
                self.tags.get_mut(usize::from(reply.tag)).and_then(Option::as_mut).filter(|job| job.connection == nth);
            let job = slot.ok_or(FrameError::Invalid("an answer without a request"))?;
            let data = match job.reply_buffer.take_if(|into| reply.placed && into.len() == reply.length as usize) {
                Some(into) => into.into_bytes(),
                None => data,
            };
            let result = check_reply(&job.request, &reply, data)?;
            let (operation, offset, length) = (job.request.operation, job.request.offset, job.request.length);
            let Some(job) = self.tags[usize::from(reply.tag)].take() else { continue };
            self.free_tags.push(reply.tag);
            let out = &mut self.in_flight[job.class() as usize];
            let is_counted = out.requests > 0 && out.bytes >= job.bytes() && self.connections[nth].in_flight > 0;
            assert!(is_counted && self.free_tags.len() <= self.granted, "an answered request was not outstanding");
            self.connections[nth].in_flight -= 1;
            left = job.sent_at;
            (out.requests, out.bytes) = (out.requests - 1, out.bytes - job.bytes());
            self.counts.answered += 1;
            if result.is_ok() && job.extents.is_some() {
                let (to, from) = &mut self.counts.shared_memory_bytes;
                *(if reply.placed { from } else { to }) += u64::from(job.request.length);
            }
            if result.is_ok() && job.request.operation == Operation::Flush {
                // The next number that has this lower half; a late answer has an earlier one.
                let ahead = reply.checksum.wrapping_sub(self.sequence as u32);
                self.sequence += if ahead < 1 << 31 { u64::from(ahead) } else { 0 };
            }
            if matches!(result, Err((Status::Lost, _))) {
                self.fail_flush();
            }
            if result.is_ok() {
                match job.request.operation {
                    Operation::Flush | Operation::Write | Operation::Trim
                        if job.request.durable || job.request.operation == Operation::Flush =>
                    {
                        // The node flushes everything that it has acknowledged.
                        self.flushed_writes = self.flushed_writes.max(job.covered_writes);
                        self.inherits_unflushed = false;
                    }
                    Operation::Write | Operation::Trim => self.answered_writes += 1,
                    _ => {}
                }
            }
            answers += 1;
            if let Err((status, at)) = &result {
                let fault = NodeFault { operation, status: *status, offset, length, at: *at };
                self.counts.errors[fault.index()] += 1;
                if self.faults.len() < UNREPORTED_FAULTS_MAX {
                    self.faults.push(fault);
                }
            }
            if job
                .reply
                .send(result.map_err(|(status, at)| Failure::Node(self.node.address, status, FaultOffset(at))))
                .is_err()
            {
                self.remove_orphan(job.number);
            }
        }
        self.pace.record_answers(self.node.place, now, answers, (self.in_flight_count() + self.pending.len()) as u32);
        let took_us = now.saturating_duration_since(left).as_nanos() as f64 / 1000.0;
        let rtt_us = &mut self.counts.rtt_us;
        *rtt_us = if *rtt_us == 0.0 { took_us } else { *rtt_us + (took_us - *rtt_us) / 8.0 };
        #[cfg(debug_assertions)]
        self.check_invariants();
        Ok(())
    }

    fn record_report(&mut self, nth: usize, report: Report, now: Instant) {
        self.connections[nth].path.record_arrival(report.received_bytes, now);
        self.liveness.update_progress(report.progress, now);
        self.counts.report = report;
    }

    /// The node asks to wait for its welcome.
    pub fn record_wait(&mut self, progress: u64, now: Instant) {
        self.liveness.record_wait(progress, now);
        self.expire(now);
    }

    /// Whether there are faults to report.
    pub fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    /// The faults since the last call.
    pub fn take_faults(&mut self) -> Vec<NodeFault> {
        std::mem::take(&mut self.faults)
    }

    /// Whether a connection has been silent for too long, or the node has made no progress. Requests in the queue do not
    /// count.
    pub fn liveness_error(&self, nth: usize, now: Instant) -> Option<LivenessError> {
        let has_stalled = self.in_flight_count() > 0 && self.liveness.has_stalled(now);
        let stalled = has_stalled.then(|| LivenessError::Stalled(self.liveness.stall_timeout()));
        self.connections[nth].path.liveness_error(self.node.timeout, now).or(stalled)
    }

    /// How often to check that.
    pub fn check_interval(&self) -> Duration {
        Duration::from_millis(report_ms(self.node.timeout).into())
    }

    /// All connections are closed: requeues outstanding requests, the oldest first.
    pub fn requeue_all(&mut self, now: Instant) {
        let mut jobs: Vec<Job> = self.tags.iter_mut().filter_map(Option::take).collect();
        self.witness = self.direct.take().and_then(DirectReader::into_witness).or(self.witness.take());
        self.liveness.record_cut(jobs.is_empty(), now);
        jobs.sort_by_key(|job| std::cmp::Reverse(job.number));
        for mut job in jobs {
            self.memory_in_use.extend(job.take_shared_memory());
            self.free_tags.push(job.request.tag);
            self.pending.push_front(job);
        }
        // No request of the old connections can be executed any more.
        self.pending.retain(|job| !job.reply.is_closed());
        self.orphans.clear();
        if !self.loss.ranges.is_empty() {
            self.refuse_changes();
        }
        self.in_flight = Default::default();
        for connection in &mut self.connections {
            (connection.is_open, connection.in_flight) = (false, 0);
        }
        assert!(self.in_flight_count() == 0, "a request was neither requeued nor answered");
        self.expire(now);
        #[cfg(debug_assertions)]
        self.check_invariants();
    }

    /// Whether the node has been silent for so long that requests do not wait for it.
    pub fn is_away(&self, now: Instant) -> bool {
        self.liveness.is_away(now)
    }

    /// When [`State::expire`] next has something to do, if there is no connection: when the node counts as away, after which
    /// requests fail at once.
    pub fn next_expiry(&self, now: Instant) -> Option<Instant> {
        let away = self.liveness.away_at();
        // A time in the past matters only if requests are queued.
        (away > now || !self.pending.is_empty()).then_some(away)
    }

    /// The time after which requests fail if the node is not heard.
    pub fn timeout(&self) -> Duration {
        self.node.timeout
    }

    fn timeout_failure(&self) -> Failure {
        if self.liveness.is_stalled() {
            return Failure::Stalled(self.node.address, self.liveness.stall_timeout());
        }
        let why = LastError(self.trouble.as_deref().map(Rc::from));
        Failure::Deadline(self.node.address, self.node.timeout, why)
    }

    /// Fails all requests, if the node has not been heard for too long, or has stalled; nothing is outstanding then.
    pub fn expire(&mut self, now: Instant) {
        if !(self.is_away(now) || self.liveness.is_stalled()) {
            return;
        }
        for job in std::mem::take(&mut self.pending) {
            if job.reply.send(Err(self.timeout_failure())).is_err() {
                self.remove_orphan(job.number);
            }
        }
    }

    /// Fails all requests, now and later.
    pub fn end(&mut self, failure: Failure, now: Instant) {
        for job in self.pending.drain(..) {
            // The requester may be gone.
            let _ = job.reply.send(Err(failure.clone()));
        }
        self.orphans.clear();
        self.direct = None;
        self.ended = Some(failure);
        self.pace.record_answers(self.node.place, now, 0, 0);
    }
}

#[cfg(test)]
mod tests;
