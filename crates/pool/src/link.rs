//! The coordinator's end of one node's connection.
//!
//! Requests queue here; as many as the window allows are under way, and the tuner decides how many a write waits for. Answers
//! come in any order and are matched by tag; data that do not match the checksum that the store gave them count as a broken
//! connection. When it breaks, or nothing is heard of the node for 10 s, a new one is made, and what was not answered is
//! asked again. What finds no answer for 30 s fails.
//!
//! Two things cannot be mended by asking again, and end the link for good: the node refuses (another coordinator has taken
//! over, or it is another node now), or its machine was started anew while writes were answered and not flushed.

use crate::connect::{Connect, Stream, read_more};
use crate::frame::{self, Broken, Frame, Head, Operation, Reply, Request, Status, Stretch};
use crate::hello::{self, Answer, Claim, Hello, Welcome};
use crate::setting::Setting;
use crate::tuner::Tuner;
use bytes::{Bytes, BytesMut};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// A request that finds no answer fails after this time.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// A connection on which nothing is heard for so long, while answers are due, is given up.
const SILENCE: Duration = Duration::from_secs(10);
/// Connecting and greeting.
const GREETING: Duration = Duration::from_secs(15);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Data in a frame after which it is closed.
const FRAME_BYTES: usize = 1 << 20;
/// Data asked for or sent, and not answered.
const UNDER_WAY_BYTES: usize = 16 << 20;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The node said so.
    #[error(transparent)]
    Node(#[from] Status),
    /// The node cannot be used any more.
    #[error("{0}")]
    Ended(Rc<str>),
    /// It cannot be reached.
    #[error("the node gave no answer for {} s", DEADLINE.as_secs())]
    Deadline,
}

/// Why a node was not joined.
#[derive(Debug, thiserror::Error)]
pub enum NotJoined {
    /// No connection, or the other end is no node.
    #[error(transparent)]
    Unreachable(#[from] hello::Error),
    /// It took too long.
    #[error("it gave no answer for {} s", GREETING.as_secs())]
    Silent,
    /// It said no.
    #[error("it refuses: {0}")]
    Refused(String),
}

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
        Self { by, begin: Instant::now() }
    }

    fn setting(&self, window: u32) -> Setting {
        match &self.by {
            By::Fixed(setting) => Setting::holding(setting.window().min(window), setting.hold()),
            By::Tuned(tuner) => Setting::holding(window, tuner.borrow().hold()),
        }
    }

    /// A frame of `node` brought so many answers; `left` requests are under way or wait.
    fn answered(&self, node: u32, answers: u32, left: u32) {
        if let By::Tuned(tuner) = &self.by {
            tuner.borrow_mut().answered(node as usize, self.begin.elapsed().as_nanos() as u64, answers, left);
        }
    }
}

/// What went over a link since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Requests answered.
    pub answered: u64,
    /// Frames of requests sent, and the requests in them.
    pub frames_sent: u64,
    /// Requests sent, those asked again included.
    pub requests_sent: u64,
    /// Frames of replies.
    pub frames_received: u64,
    /// Bytes of frames, both ways.
    pub bytes_sent: u64,
    /// As above.
    pub bytes_received: u64,
    /// Connections made after the first.
    pub reconnected: u64,
    /// From when a request left to its answer, smoothed: each frame counts an eighth.
    pub rtt_us: f64,
    /// Requests that wait here for their turn.
    pub waiting: u32,
    /// Requests sent and not answered.
    pub under_way: u32,
    /// Requests that waited at the node when it last answered.
    pub queued: u16,
    /// Mean time in its store, in the last answer.
    pub service_us: u32,
    /// In force now.
    pub window: u32,
    /// In force now.
    pub batch: u32,
}

/// How it stands with a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Connected.
    Serving,
    /// A new connection is tried; why the last one or the last attempt ended.
    Connecting(String),
    /// It will not be used again; why.
    Ended(String),
}

#[derive(Debug)]
struct Job {
    request: Request,
    data: Bytes,
    since: Instant,
    /// When it left, the last time; nanoseconds since the link began.
    sent_ns: u64,
    /// For a flush: the writes that were answered when it was asked.
    covers: u64,
    reply: oneshot::Sender<Result<Bytes, Failure>>,
}

impl Job {
    fn bytes(&self) -> usize {
        match self.request.operation {
            Operation::Read | Operation::Write => self.request.length as usize,
            Operation::Flush | Operation::Trim | Operation::Map => 0,
        }
    }
}

#[derive(Debug)]
struct State {
    pace: Pace,
    /// The node's place among those of its coordinator.
    place: u32,
    granted: usize,
    pending: VecDeque<Job>,
    /// Under way, by tag.
    tags: Vec<Option<Job>>,
    free: Vec<u16>,
    bytes: usize,
    heard: Instant,
    sequence: u64,
    boot: String,
    /// Writes answered, and those of them that a flush covers.
    written: u64,
    flushed: u64,
    counts: Counts,
    /// Why there is no connection now.
    trouble: Option<String>,
    ended: Option<Failure>,
    /// Of the frame that is made: kept for its room.
    requests: Vec<Request>,
    parts: Vec<Bytes>,
}

/// One node. It works as a task of the `LocalSet` in which it was made, and ends when it is dropped.
#[derive(Debug)]
pub struct Link {
    inner: Rc<Inner>,
    task: tokio::task::AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Inner {
    connect: Connect,
    address: SocketAddr,
    hello: Hello,
    begin: Instant,
    state: RefCell<State>,
    wake: Notify,
    report: Rc<dyn Fn(String)>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("address", &self.address).field("state", &self.state).finish_non_exhaustive()
    }
}

/// Why a connection is of no more use.
#[derive(Debug, thiserror::Error)]
enum Cut {
    #[error(transparent)]
    Hello(#[from] hello::Error),
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error("nothing was heard for {} s", SILENCE.as_secs())]
    Silence,
    #[error("a request was not answered for {} s", DEADLINE.as_secs())]
    Late,
}

/// Connects and says hello.
///
/// # Errors
/// [`NotJoined`].
pub async fn greet(
    connect: &Connect,
    address: SocketAddr,
    hello: &Hello,
) -> Result<(Box<dyn Stream>, Welcome), NotJoined> {
    let greeting = async {
        let mut stream = connect(address).await.map_err(hello::Error::from)?;
        hello::send(&mut stream, hello).await?;
        // It says nothing more until it is asked.
        match hello::receive(&mut stream, &mut BytesMut::new()).await? {
            Answer::Welcome(welcome) => Ok((stream, welcome)),
            Answer::Refused(reason) => Err(NotJoined::Refused(reason)),
        }
    };
    tokio::time::timeout(GREETING, greeting).await.unwrap_or(Err(NotJoined::Silent))
}

impl Link {
    /// Claims the node for `pool`; `report` is told of trouble.
    ///
    /// # Errors
    /// [`NotJoined`].
    pub async fn join(
        connect: &Connect,
        address: SocketAddr,
        pool: &str,
        claim: Claim,
        pace: &Pace,
        report: Rc<dyn Fn(String)>,
    ) -> Result<Self, NotJoined> {
        let hello = Hello { protocol: frame::VERSION, pool: pool.into(), claim: Some(claim) };
        let (stream, welcome) = greet(connect, address, &hello).await?;
        let granted = usize::from(welcome.granted).clamp(1, frame::MAX_COUNT);
        let place = hello.claim.as_ref().map_or(0, |claim| claim.place.index);
        let now = Instant::now();
        let state = State {
            pace: pace.clone(),
            place,
            granted,
            pending: VecDeque::new(),
            tags: (0..granted).map(|_| None).collect(),
            free: (0..granted as u16).rev().collect(),
            bytes: 0,
            heard: now,
            sequence: 0,
            boot: welcome.boot,
            written: 0,
            flushed: 0,
            counts: Counts::default(),
            trouble: None,
            ended: None,
            requests: Vec::new(),
            parts: Vec::new(),
        };
        let state = RefCell::new(state);
        let inner =
            Rc::new(Inner { connect: connect.clone(), address, hello, begin: now, state, wake: Notify::new(), report });
        let task = tokio::task::spawn_local(inner.clone().run(stream)).abort_handle();
        Ok(Self { inner, task })
    }

    /// Asks the node; `length` is at most [`frame::MAX_DATA_BYTES`] but for a trim. A read gives its data, all else nothing.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn ask(
        &self,
        operation: Operation,
        offset: u64,
        length: u32,
        data: Bytes,
        durable: bool,
    ) -> Result<Bytes, Failure> {
        self.put(Request { operation, durable, unchecked: false, tag: 0, length, offset }, data).await
    }

    /// Reads without checksums; see [`Request::unchecked`].
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn read_unchecked(&self, offset: u64, length: u32) -> Result<Bytes, Failure> {
        let (operation, durable) = (Operation::Read, false);
        self.put(Request { operation, durable, unchecked: true, tag: 0, length, offset }, Bytes::new()).await
    }

    async fn put(&self, request: Request, data: Bytes) -> Result<Bytes, Failure> {
        let (reply, answer) = oneshot::channel();
        {
            let mut state = self.inner.state.borrow_mut();
            if let Some(failure) = &state.ended {
                return Err(failure.clone());
            }
            let covers = state.written;
            state.pending.push_back(Job { request, data, since: Instant::now(), sent_ns: 0, covers, reply });
        }
        self.inner.wake.notify_one();
        answer.await.unwrap_or(Err(Failure::Deadline))
    }

    /// What went over it.
    pub fn counts(&self) -> Counts {
        let state = self.inner.state.borrow();
        let setting = state.setting();
        let (waiting, under_way) = (state.pending.len() as u32, state.under_way() as u32);
        Counts {
            window: setting.window(),
            batch: setting.batch(waiting + under_way),
            waiting,
            under_way,
            ..state.counts
        }
    }

    /// How it stands with the node.
    pub fn health(&self) -> Health {
        let state = self.inner.state.borrow();
        match (&state.ended, &state.trouble) {
            (Some(failure), _) => Health::Ended(failure.to_string()),
            (None, Some(why)) => Health::Connecting(why.clone()),
            (None, None) => Health::Serving,
        }
    }

    /// What was claimed.
    pub fn claim(&self) -> Option<&Claim> {
        self.inner.hello.claim.as_ref()
    }

    /// For which pool.
    pub fn pool(&self) -> &str {
        &self.inner.hello.pool
    }

    /// Where the node is.
    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }
}

impl Inner {
    async fn run(self: Rc<Self>, stream: Box<dyn Stream>) {
        let mut next = Some(stream);
        loop {
            let stream = match next.take() {
                Some(stream) => stream,
                None => match self.reconnect().await {
                    Ok(stream) => stream,
                    Err(reason) => return self.end(reason),
                },
            };
            let Err(cut) = self.session(stream).await;
            (self.report)(format!("node {}: {cut}; connecting again", self.address));
            let mut state = self.state.borrow_mut();
            state.trouble = Some(cut.to_string());
            state.ask_again();
        }
    }

    /// Tries until it succeeds or cannot, and lets fail what waits too long.
    async fn reconnect(&self) -> Result<Box<dyn Stream>, String> {
        loop {
            let attempt = greet(&self.connect, self.address, &self.hello);
            tokio::pin!(attempt);
            let greeted = loop {
                tokio::select! {
                    greeted = &mut attempt => break greeted,
                    () = tokio::time::sleep(PAUSE) => self.state.borrow_mut().expire(),
                }
            };
            match greeted {
                Ok((stream, welcome)) => {
                    let mut state = self.state.borrow_mut();
                    if state.boot != welcome.boot && state.flushed < state.written {
                        return Err("its machine was started anew, and writes that were not flushed may be lost".into());
                    }
                    state.boot = welcome.boot;
                    state.trouble = None;
                    state.counts.reconnected += 1;
                    return Ok(stream);
                }
                Err(NotJoined::Refused(reason)) => return Err(reason),
                Err(why @ (NotJoined::Unreachable(_) | NotJoined::Silent)) => {
                    self.state.borrow_mut().trouble = Some(why.to_string());
                    tokio::time::sleep(PAUSE).await;
                    self.state.borrow_mut().expire();
                }
            }
        }
    }

    /// Nothing can be asked any more.
    fn end(&self, reason: String) {
        let reason = format!("node {}: {reason}", self.address);
        (self.report)(format!("{reason}; requests to it fail from now on"));
        let failure = Failure::Ended(reason.into());
        let mut state = self.state.borrow_mut();
        state.ended = Some(failure.clone());
        for job in state.pending.drain(..) {
            // Whoever asked may be gone.
            let _ = job.reply.send(Err(failure.clone()));
        }
        state.pace.answered(state.place, 0, 0);
    }

    async fn session(&self, stream: Box<dyn Stream>) -> Result<std::convert::Infallible, Cut> {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let (mut out, mut input) = (BytesMut::new(), BytesMut::with_capacity(FRAME_BYTES / 4));
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        let mut unsent = false;
        let epoch = self.hello.claim.as_ref().map_or(0, |claim| claim.epoch);
        self.state.borrow_mut().heard = Instant::now();
        loop {
            if out.is_empty() {
                self.state.borrow_mut().fill(epoch, self.begin, &mut out);
            }
            tokio::select! {
                biased;
                sent = push(&mut writer, &mut out, &mut unsent), if !out.is_empty() || unsent => {
                    sent.map_err(hello::Error::from)?;
                }
                count = read_more(&mut reader, &mut input) => {
                    let count = count.map_err(hello::Error::from)?;
                    if count == 0 {
                        return Err(hello::Error::Closed.into());
                    }
                    let now = Instant::now();
                    let mut state = self.state.borrow_mut();
                    state.heard = now;
                    state.counts.bytes_received += count as u64;
                    while !input.is_empty() && let Some(frame) = frame::take(&mut input)? {
                        state.answered(frame, (now - self.begin).as_nanos() as u64)?;
                    }
                }
                () = self.wake.notified(), if out.is_empty() => {}
                _ = tick.tick() => {
                    let state = self.state.borrow();
                    if state.under_way() > 0 && state.heard.elapsed() > SILENCE {
                        return Err(Cut::Silence);
                    }
                    // Those that wait their turn are nothing to worry about.
                    let late_ns = self.begin.elapsed().saturating_sub(DEADLINE).as_nanos() as u64;
                    if state.tags.iter().flatten().any(|job| job.sent_ns < late_ns) {
                        return Err(Cut::Late);
                    }
                }
            }
        }
    }
}

impl State {
    fn setting(&self) -> Setting {
        self.pace.setting(self.granted as u32)
    }

    fn under_way(&self) -> usize {
        self.granted - self.free.len()
    }

    /// Makes the next frame, if it is time for one.
    fn fill(&mut self, epoch: u64, begin: Instant, out: &mut BytesMut) {
        let (setting, under_way, waiting) = (self.setting(), self.under_way(), self.pending.len());
        let room = setting.frame(waiting as u32, under_way as u32) as usize;
        if room == 0 {
            return;
        }
        if under_way == 0 {
            self.heard = Instant::now();
        }
        let (mut frame_bytes, sent_ns) = (0, begin.elapsed().as_nanos() as u64);
        while self.requests.len() < room && frame_bytes < FRAME_BYTES {
            let Some(bytes) = self.pending.front().map(Job::bytes) else { break };
            if self.bytes > 0 && self.bytes + bytes > UNDER_WAY_BYTES {
                break;
            }
            let (Some(tag), Some(mut job)) = (self.free.pop(), self.pending.pop_front()) else { break };
            (job.request.tag, job.sent_ns) = (tag, sent_ns);
            self.bytes += bytes;
            frame_bytes += job.data.len();
            self.requests.push(job.request);
            self.parts.push(job.data.clone());
            self.tags[usize::from(tag)] = Some(job);
        }
        if self.requests.is_empty() {
            return;
        }
        let granted = u16::try_from(setting.batch((waiting + under_way) as u32)).unwrap_or(u16::MAX);
        let head = Head { epoch, sequence: self.sequence, granted, ..Head::default() };
        frame::put_requests(out, &head, &self.requests, |nth| &self.parts[nth]);
        self.sequence += 1;
        self.counts.frames_sent += 1;
        self.counts.bytes_sent += out.len() as u64;
        self.counts.requests_sent += self.requests.len() as u64;
        self.requests.clear();
        self.parts.clear();
    }

    fn answered(&mut self, frame: Frame, now_ns: u64) -> Result<(), Broken> {
        let Frame::Replies(head, replies) = frame else { return Err(Broken::Sense("a node asks for nothing")) };
        self.counts.frames_received += 1;
        self.counts.queued = head.queued;
        self.counts.service_us = head.service_us;
        let (mut left_ns, mut answers) = (now_ns, 0);
        for (reply, data) in replies {
            let slot = self.tags.get(usize::from(reply.tag)).and_then(Option::as_ref);
            let job = slot.ok_or(Broken::Sense("an answer to what was not asked"))?;
            let result = judge(&job.request, &reply, data)?;
            let Some(job) = self.tags[usize::from(reply.tag)].take() else { continue };
            self.free.push(reply.tag);
            left_ns = job.sent_ns;
            self.bytes -= job.bytes();
            self.counts.answered += 1;
            if result.is_ok() {
                match job.request.operation {
                    Operation::Flush => self.flushed = self.flushed.max(job.covers),
                    Operation::Write | Operation::Trim if !job.request.durable => self.written += 1,
                    _ => {}
                }
            }
            answers += 1;
            // Whoever asked may be gone.
            let _ = job.reply.send(result.map_err(Failure::Node));
        }
        self.pace.answered(self.place, answers, (self.under_way() + self.pending.len()) as u32);
        let took_us = now_ns.saturating_sub(left_ns) as f64 / 1000.0;
        let rtt_us = &mut self.counts.rtt_us;
        *rtt_us = if *rtt_us == 0.0 { took_us } else { *rtt_us + (took_us - *rtt_us) / 8.0 };
        Ok(())
    }

    /// What is under way is to be asked anew, the oldest first.
    fn ask_again(&mut self) {
        let mut jobs: Vec<Job> = self.tags.iter_mut().filter_map(Option::take).collect();
        jobs.sort_by_key(|job| std::cmp::Reverse(job.since));
        for job in jobs {
            self.free.push(job.request.tag);
            self.pending.push_front(job);
        }
        (self.bytes, self.sequence) = (0, 0);
        self.expire();
    }

    /// Fails what waits too long; nothing is under way then.
    fn expire(&mut self) {
        while self.pending.front().is_some_and(|job| job.since.elapsed() > DEADLINE) {
            let Some(job) = self.pending.pop_front() else { return };
            // Whoever asked may be gone.
            let _ = job.reply.send(Err(Failure::Deadline));
        }
    }
}

/// Writes a part of `out`; and when all of it is written, what an encrypted stream keeps back. `unsent`: it may keep back some.
/// It may be given up at any time and called again.
async fn push(writer: &mut (impl AsyncWrite + Unpin), out: &mut BytesMut, unsent: &mut bool) -> std::io::Result<()> {
    if !out.is_empty() {
        *unsent = true;
        writer.write_buf(out).await?;
    }
    if out.is_empty() {
        writer.flush().await?;
        *unsent = false;
    }
    Ok(())
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
        return Err(Broken::Sense("an answer has another length than was asked"));
    }
    if !data.is_empty() && !request.unchecked && crc32c::crc32c(&data) != reply.checksum {
        return Err(Broken::Checksum);
    }
    Ok(Ok(data))
}
