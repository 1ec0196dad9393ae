//! The coordinator's end of the connections to one node.
//!
//! Requests queue here; the window limits how many are outstanding, and the tuner decides how many are batched into a
//! write. Replies arrive in any order and are matched by tag; data that does not match its store checksum counts as a
//! broken connection.
//!
//! Silence is a failure, slowness is not. A node reports each second, whatever its medium does. When a connection breaks,
//! or nothing is received over it for 10 s, or nothing of what was sent arrives for that long, all are reopened, and
//! unanswered requests are sent again. A node that has not been heard for [`Options::node_timeout`] is **away**: requests to
//! it fail, at once until it accepts a connection again; attempts continue all the while. A node that is heard may take any
//! time for a request, as long as it makes progress: a request fails only when the node has reported none for
//! [`STALL_TIMEOUT`], as with a medium that answers no more.
//!
//! The first connection claims the node; a **further** one names the session of the first, and ends with it. A flush may
//! use any connection: it covers all replies of the node.
//!
//! A node that refuses is also retried, less often: another node may have its address for a moment, or a store that does
//! not know our claim. One condition cannot be resolved by retrying, and ends the link for good: another coordinator has
//! taken over.
//!
//! A node that may have lost acknowledged writes says so in its welcome; reads are served then, all else fails. A failed
//! flush is remembered here too, as long as this process lives: the node may have been unable to store it.

use crate::connect::{Connect, Stream};
use crate::frame::{self, FrameError, Operation, Report, Request, Status};
use crate::hello::{self, Answer, Hello, Wait, Welcome};
use crate::protocol::{CONNECTIONS_MAX, Claim, ClaimExtensions, Loss, LossId};
use bytes::Bytes;
use futures_util::future::{try_join, try_join_all};
use nbd::inbox::Inbox;
use nbd::outbox::Outbox;
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

mod faults;
mod liveness;
mod state;

pub use faults::{ErrorCounts, error_names};
pub use state::{Control, Pace, Parts};

use faults::{FaultLog, NodeFault};
use liveness::{LivenessError, report_ms};
use state::{NodeProperties, State};

/// The default time after which requests to a node that is not heard fail.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time after which a request fails at a node that is heard and makes no progress. Longer than the kernel takes to give
/// up a medium: SCSI and MMC retry a command of 30 s, or a flush of 60 s, a few times.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(600);
/// The timeout for connecting, and for each message of the handshake.
const GREETING_TIMEOUT: Duration = Duration::from_secs(15);
/// The pause between two attempts.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// The pause between two attempts of a further connection, which is optional; and at a node that refuses, and logs each attempt.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The node replied with an error.
    #[error("node {0}: {1}{2}")]
    Node(SocketAddr, Status, FaultOffset),
    /// The node cannot be used any more.
    #[error("{0}")]
    Ended(Rc<str>),
    /// It is unreachable, or does not accept us; with the reason, if known.
    #[error("node {0}: no answer for {secs} s{2}", secs = .1.as_secs_f64())]
    Deadline(SocketAddr, Duration, LastError),
    /// It reports, but its medium makes no progress.
    #[error("node {0}: its medium has made no progress for {secs} s", secs = .1.as_secs_f64())]
    Stalled(SocketAddr, Duration),
    /// The pool is served without some of its nodes.
    #[error("the pool is degraded, and read-only: some of its nodes are missing")]
    Degraded,
    /// A node may have lost acknowledged writes, and the user has not accepted that.
    #[error(
        "a node may have lost acknowledged writes; the coordinator's log has the ranges, and --accept-loss continues"
    )]
    Lost,
}

/// The last error; appended to a message that it explains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastError(Option<Rc<str>>);

impl std::fmt::Display for LastError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.as_ref().map_or(Ok(()), |why| write!(f, " ({why})"))
    }
}

/// The offset in a node's store where a fault is, if it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultOffset(pub Option<u64>);

impl std::fmt::Display for FaultOffset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |at| write!(f, ", at offset {at} of its store"))
    }
}

/// How nodes are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Connections to each node: at least one, and at most [`CONNECTIONS_MAX`].
    pub connections: u16,
    /// Requests to a node that has not been heard for this time fail.
    pub node_timeout: Duration,
    /// Continue although nodes may have lost acknowledged writes before they were joined, if exactly this may be lost; otherwise writes
    /// and flushes are refused.
    pub accept_loss: Option<LossId>,
    /// How long to wait for nodes that do not answer when a pool is assembled.
    pub wait: Duration,
    /// Serve the nodes that are there, read-only, if others do not answer.
    pub degraded: bool,
    /// Use shared memory, where available, for large data of nodes on this machine.
    pub shared_memory: bool,
    /// Reopen connections that break, and send again what was not answered. Otherwise the link ends with them.
    pub reopens: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 1,
            node_timeout: NODE_TIMEOUT,
            accept_loss: None,
            wait: Duration::ZERO,
            degraded: false,
            shared_memory: false,
            reopens: true,
        }
    }
}

/// Why a node was not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// There is no connection, or the other end is not a node.
    #[error(transparent)]
    Unreachable(#[from] hello::Error),
    /// It took too long.
    #[error("no answer for {} s", GREETING_TIMEOUT.as_secs())]
    Silent,
    #[error("refused: {0}")]
    Refused(String),
    /// It refused for good: another coordinator has claimed it with a higher epoch.
    #[error("refused: {0}")]
    Fenced(String),
}

/// Counters of a link since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Requests answered.
    pub answered: u64,
    /// Frames of requests sent, and the requests in them.
    pub frames_sent: u64,
    /// Requests sent, including those sent again.
    pub requests_sent: u64,
    /// Frames of replies.
    pub frames_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Bytes of data transferred through shared memory instead of frames, to the node and from it.
    pub shared_memory_bytes: (u64, u64),
    /// How often the connections broke and were reopened.
    pub reconnected: u64,
    /// Time from sending a request to its reply, smoothed: each frame counts an eighth.
    pub rtt_us: f64,
    /// Requests queued here.
    pub waiting: u32,
    /// Requests sent and not answered.
    pub under_way: u32,
    /// Requests queued at the node, according to its last reply.
    pub queued: u16,
    /// Mean time in its store, in the last reply.
    pub service_us: u32,
    /// Requests that failed at the node, by kind.
    pub errors: ErrorCounts,
    pub report: Report,
    pub window: u32,
    pub batch: u32,
    pub connections: u32,
}

/// The state of the connection to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Connected.
    Serving,
    /// Connected; some requests fail, as something is wrong with its medium: what.
    Failing(String),
    /// Reconnecting, and requests wait; with the reason why the last connection or attempt ended.
    Connecting(String),
    /// Reconnecting, and requests fail meanwhile; with the reason why the last connection or attempt ended.
    Away(String),
    /// It will not be used again, and why.
    Ended(String),
    /// It did not answer when the pool was assembled, and the pool is served without it: why.
    Missing(String),
}

/// One node. It runs as a task of the `LocalSet` in which it was created, and ends when it is dropped.
#[derive(Debug)]
pub struct NodeLink {
    inner: Rc<Inner>,
    task: tokio::task::AbortHandle,
}

impl Drop for NodeLink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Inner {
    connect: Connect,
    address: SocketAddr,
    hello: Hello,
    store: String,
    fault_log: RefCell<FaultLog>,
    state: RefCell<State>,
    /// One for each connection.
    wakes: Vec<Notify>,
    report: Rc<dyn Fn(String)>,
    /// Why it is missing, if it is.
    missing: Option<String>,
    reopens: bool,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("address", &self.address).field("state", &self.state).finish_non_exhaustive()
    }
}

/// Why a connection is unusable.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error(transparent)]
    Hello(#[from] hello::Error),
    #[error(transparent)]
    Broken(#[from] FrameError),
    #[error(transparent)]
    NotAlive(#[from] LivenessError),
    /// Its welcome has the ranges.
    #[error("a flush failed")]
    FlushFailed,
}

/// Connects and performs the handshake.
pub async fn greet(
    connect: &Connect,
    address: SocketAddr,
    hello: &Hello,
) -> Result<(Box<dyn Stream>, Welcome), JoinError> {
    greet_patiently(connect, address, hello, |_| {}).await
}

/// As [`greet`]; `waits` is called each time the node asks to wait.
async fn greet_patiently(
    connect: &Connect,
    address: SocketAddr,
    hello: &Hello,
    mut waits: impl FnMut(Wait),
) -> Result<(Box<dyn Stream>, Welcome), JoinError> {
    let opened = async {
        let mut stream = connect(address).await?;
        hello::send(&mut stream, hello).await?;
        Ok::<_, hello::Error>(stream)
    };
    let mut stream = tokio::time::timeout(GREETING_TIMEOUT, opened).await.map_err(|_| JoinError::Silent)??;
    loop {
        let answer = tokio::time::timeout(GREETING_TIMEOUT, hello::receive_alone(&mut stream)).await;
        match answer.map_err(|_| JoinError::Silent)?? {
            Answer::Welcome(welcome) => return Ok((stream, *welcome)),
            Answer::Refused(reason) => return Err(JoinError::Refused(reason)),
            Answer::Fenced(reason) => return Err(JoinError::Fenced(reason)),
            Answer::Wait(wait) => waits(wait),
        }
    }
}

impl NodeLink {
    /// Claims the node for `pool`; `report` receives problems.
    pub async fn join(
        connect: &Connect,
        address: SocketAddr,
        pool: &str,
        claim: Claim,
        options: &Options,
        pace: &Pace,
        report: Rc<dyn Fn(String)>,
    ) -> Result<Self, JoinError> {
        let connections = usize::from(options.connections.clamp(1, CONNECTIONS_MAX));
        let node =
            NodeProperties { address, place: claim.place.index, epoch: claim.epoch, timeout: options.node_timeout };
        let claim =
            Claim { also: ClaimExtensions { report_ms: report_ms(options.node_timeout), ..claim.also }, ..claim };
        let mut hello = Hello { protocol: frame::VERSION, pool: pool.into(), claim: Some(claim) };
        let mut told = false;
        let waits = |_| {
            if !std::mem::replace(&mut told, true) {
                report(format!("node {address}: waiting until it has served the requests of an earlier coordinator"));
            }
        };
        let (stream, welcome) = greet_patiently(connect, address, &hello, waits).await?;
        // Losses accepted now must not count as accepted if data is lost again.
        hello.claim.iter_mut().for_each(|claim| {
            let ClaimExtensions { memory, report_ms, .. } = std::mem::take(&mut claim.also);
            claim.also = ClaimExtensions { memory, report_ms, again: true, ..ClaimExtensions::default() };
        });
        let mut state = State::new(pace.clone(), node, &welcome, connections);
        state.record_loss(&welcome.loss);
        let state = RefCell::new(state);
        let wakes = (0..connections).map(|_| Notify::new()).collect();
        let (connect, store, told) = (connect.clone(), welcome.store.clone(), RefCell::default());
        let (missing, reopens) = (None, options.reopens);
        let inner =
            Rc::new(Inner { connect, address, hello, store, fault_log: told, state, wakes, report, missing, reopens });
        let task = tokio::task::spawn_local(inner.clone().run(stream, welcome)).abort_handle();
        Ok(Self { inner, task })
    }

    /// A node that did not answer, in a pool that is served without it: all requests fail.
    pub fn missing(
        connect: &Connect,
        address: SocketAddr,
        pool: &str,
        place: u32,
        why: &JoinError,
        pace: &Pace,
        report: Rc<dyn Fn(String)>,
    ) -> Self {
        let node = NodeProperties { address, place, epoch: 0, timeout: NODE_TIMEOUT };
        let mut state = State::new(pace.clone(), node, &Welcome::default(), 1);
        let why = why.to_string();
        let failure = format!("node {address} is missing, the pool is degraded: {why}");
        state.end(Failure::Ended(failure.into()), Instant::now());
        let hello = Hello { protocol: frame::VERSION, pool: pool.into(), claim: None };
        let (connect, store, told) = (connect.clone(), String::new(), RefCell::default());
        let (state, wakes, missing) = (RefCell::new(state), vec![Notify::new()], Some(why));
        let reopens = true;
        let inner =
            Rc::new(Inner { connect, address, hello, store, fault_log: told, state, wakes, report, missing, reopens });
        Self { inner, task: tokio::task::spawn_local(async {}).abort_handle() }
    }

    /// Sends a request; `length` is at most [`frame::DATA_BYTES_MAX`] except for a trim. A read returns its data, all else nothing.
    pub async fn ask(
        &self,
        operation: Operation,
        offset: u64,
        length: u32,
        data: Bytes,
        durable: bool,
    ) -> Result<Bytes, Failure> {
        let data = Some(data).filter(|data| !data.is_empty()).into_iter().collect();
        self.send_request(
            Request { operation, durable, unchecked: false, extent_count: 0, tag: 0, length, offset },
            data,
        )
        .await
    }

    /// Writes data in several parts, together at most [`frame::DATA_BYTES_MAX`].
    pub async fn write_parts(&self, offset: u64, parts: Parts, durable: bool) -> Result<Bytes, Failure> {
        let length = parts.iter().map(Bytes::len).sum::<usize>() as u32;
        let operation = Operation::Write;
        self.send_request(
            Request { operation, durable, unchecked: false, extent_count: 0, tag: 0, length, offset },
            parts,
        )
        .await
    }

    /// Reads without checksums; see [`Request::unchecked`].
    pub async fn read_unchecked(&self, offset: u64, length: u32) -> Result<Bytes, Failure> {
        let (operation, durable) = (Operation::Read, false);
        self.send_request(
            Request { operation, durable, unchecked: true, extent_count: 0, tag: 0, length, offset },
            Parts::new(),
        )
        .await
    }

    /// Whether [`NodeLink::read_direct`] may succeed.
    pub(crate) fn is_direct(&self) -> bool {
        self.inner.state.borrow().is_direct()
    }

    /// Reads without asking the node, if it is on this machine and the page cache has the data. Otherwise false, and the
    /// content of `to` is arbitrary.
    pub(crate) fn read_direct(&self, offset: u64, to: &mut [u8]) -> bool {
        self.inner.state.borrow_mut().read_direct(offset, to)
    }

    async fn send_request(&self, request: Request, data: Parts) -> Result<Bytes, Failure> {
        let (reply, answer) = oneshot::channel();
        let (number, next) = self.inner.state.borrow_mut().queue_request(request, data, Instant::now(), reply);
        self.inner.wake(next);
        let mut asked = PendingRequest { inner: &self.inner, number, request, answer };
        let gone = || Err(Failure::Ended("the connection to the node was lost".into()));
        (&mut asked.answer).await.unwrap_or_else(|_| gone())
    }

    pub fn counts(&self) -> Counts {
        self.inner.state.borrow().counts()
    }

    /// The state of the connection.
    pub fn health(&self) -> Health {
        let state = self.inner.state.borrow();
        if let Some(why) = &self.inner.missing {
            return Health::Missing(why.clone());
        }
        match (&state.ended, &state.trouble) {
            (Some(failure), _) => Health::Ended(failure.to_string()),
            (None, Some(why)) if state.is_away(Instant::now()) => Health::Away(why.clone()),
            (None, Some(why)) => Health::Connecting(why.clone()),
            (None, None) => medium_trouble(&state.counts().report).map_or(Health::Serving, Health::Failing),
        }
    }

    /// Its file or device there, for people.
    pub fn store(&self) -> &str {
        &self.inner.store
    }

    /// Whether shared memory was offered to the node, which means that it is on this machine.
    pub(crate) fn is_on_this_machine(&self) -> bool {
        self.claim().is_some_and(|claim| claim.also.memory.is_some())
    }

    pub fn claim(&self) -> Option<&Claim> {
        self.inner.hello.claim.as_ref()
    }

    /// Whether everything that the node has acknowledged is flushed.
    pub fn all_flushed(&self) -> bool {
        self.inner.state.borrow().all_flushed()
    }

    /// Why there is no connection now.
    pub fn trouble(&self) -> LastError {
        LastError(self.inner.state.borrow().trouble.as_deref().map(Rc::from))
    }

    /// Where the node may have lost acknowledged writes, in its store.
    pub fn loss(&self) -> Loss {
        self.inner.state.borrow().loss.clone()
    }

    /// The pool for which the node was claimed.
    pub fn pool(&self) -> &str {
        &self.inner.hello.pool
    }

    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }
}

struct PendingRequest<'l> {
    inner: &'l Inner,
    number: u64,
    request: Request,
    answer: oneshot::Receiver<Result<Bytes, Failure>>,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        // The reply may have arrived too late for the caller.
        if !self.answer.is_terminated() && self.answer.is_empty() {
            self.inner.state.borrow_mut().abandon(self.number, &self.request);
        }
    }
}

impl Inner {
    async fn run(self: Rc<Self>, stream: Box<dyn Stream>, welcome: Welcome) {
        let mut next = (stream, welcome);
        loop {
            let Err(cut) = self.run_connections(next.0, &next.1).await;
            if !self.reopens {
                let mut state = self.state.borrow_mut();
                state.requeue_all(Instant::now());
                return state.end(Failure::Ended(cut.to_string().into()), Instant::now());
            }
            (self.report)(format!("node {}: {cut}; reconnecting", self.address));
            {
                let mut state = self.state.borrow_mut();
                state.trouble = Some(cut.to_string());
                state.requeue_all(Instant::now());
            }
            next = match self.reconnect().await {
                Ok(welcomed) => welcomed,
                Err(reason) => return self.end(&reason),
            };
        }
    }

    fn report_faults(&self, faults: Vec<NodeFault>) {
        let node = self.hello.claim.as_ref().map_or("", |claim| &claim.node);
        for fault in faults {
            if let Some(line) = self.fault_log.borrow_mut().line(&fault, &self.store, std::time::Instant::now()) {
                (self.report)(format!("node {} ({node}): {line}", self.address));
            }
        }
    }

    fn wake(&self, connection: Option<usize>) {
        if let Some(nth) = connection {
            self.wakes[nth].notify_one();
        }
    }

    /// Retries until it succeeds or cannot, and fails requests that wait too long. Also returns the welcome.
    ///
    /// # Errors
    /// Another coordinator has taken over: its refusal.
    async fn reconnect(&self) -> Result<(Box<dyn Stream>, Welcome), String> {
        let (mut reported, mut refused) = (false, None);
        let mut expire = || {
            let (now, mut state) = (Instant::now(), self.state.borrow_mut());
            state.expire(now);
            if !reported && state.is_away(now) {
                reported = true;
                let (address, seconds) = (self.address, state.timeout().as_secs_f64());
                (self.report)(format!(
                    "node {address}: no answer for {seconds} s; requests to it fail at once until it is back"
                ));
            }
        };
        loop {
            // Only we know whether all acknowledged writes that the node may have lost were flushed.
            let (flushed, flush_failed, (sequence, instance)) = {
                let state = self.state.borrow();
                (state.all_flushed(), state.has_unrecorded_failure(), state.sequence())
            };
            let claim = self.hello.claim.clone();
            let claim = claim.map(|claim| Claim {
                also: ClaimExtensions { flushed, flush_failed, sequence, instance, ..claim.also },
                ..claim
            });
            let hello = Hello { claim, ..self.hello.clone() };
            let waits = |wait: Wait| self.state.borrow_mut().record_wait(wait.progress, Instant::now());
            let greeting = greet_patiently(&self.connect, self.address, &hello, waits);
            match self.run_expiring(greeting, &mut expire).await {
                Ok((stream, welcome)) => {
                    // After the node has opened its disk: from now on it gets the notices that nobody has got.
                    let witness = self.state.borrow_mut().take_witness(&welcome);
                    if let Some(witness) = witness {
                        let checked = tokio::task::spawn_blocking(move || witness.check());
                        if let Ok(Err(error)) = self.run_expiring(checked, &mut expire).await {
                            self.record_unseen_loss(&error);
                            continue;
                        }
                    }
                    let before = self.state.borrow().loss.clone();
                    self.state.borrow_mut().record_reopen(&welcome, Instant::now());
                    if !welcome.loss.ranges.is_empty() && welcome.loss != before {
                        (self.report)(format!(
                            "node {}: acknowledged writes may be lost: {}; writes and flushes are refused",
                            self.address,
                            welcome.loss.why()
                        ));
                    }
                    if reported {
                        (self.report)(format!("node {}: it is back", self.address));
                    }
                    return Ok((stream, welcome));
                }
                Err(JoinError::Fenced(reason)) => return Err(reason),
                Err(why) => {
                    let refuses = matches!(why, JoinError::Refused(_));
                    let why = why.to_string();
                    if refuses && refused.as_ref() != Some(&why) {
                        (self.report)(format!("node {}: {why}; retrying", self.address));
                        refused = Some(why.clone());
                    }
                    self.state.borrow_mut().trouble = Some(why);
                    let pause = tokio::time::sleep(if refuses { REFUSED_PAUSE } else { RECONNECT_PAUSE });
                    self.run_expiring(pause, &mut expire).await;
                }
            }
        }
    }

    /// The node's process that has ended may have been notified of a lost write, and not have recorded it.
    fn record_unseen_loss(&self, error: &std::io::Error) {
        (self.report)(format!("node {}: the kernel lost a write of its process that has ended: {error}", self.address));
        let mut state = self.state.borrow_mut();
        state.fail_flush();
        // The next claim tells the node, and its welcome has the ranges.
        state.take_loss_query();
    }

    /// Runs `work`, and calls `expire` whenever a request has waited too long meanwhile.
    async fn run_expiring<T>(&self, work: impl Future<Output = T>, expire: &mut impl FnMut()) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            let expires = self.state.borrow().next_expiry(Instant::now());
            let expired = async {
                match expires {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                done = &mut work => return done,
                () = expired => expire(),
            }
        }
    }

    fn end(&self, reason: &str) {
        let reason = format!("node {}: {reason}", self.address);
        (self.report)(format!("{reason}; requests to it fail from now on"));
        self.state.borrow_mut().end(Failure::Ended(reason.into()), Instant::now());
    }

    /// Runs all connections, until one of them breaks.
    async fn run_connections(&self, first: Box<dyn Stream>, welcome: &Welcome) -> Result<Infallible, ConnectionError> {
        self.state.borrow_mut().attach_files(welcome);
        let further = (1..self.wakes.len()).map(|nth| self.run_further_connection(nth, welcome.session));
        try_join(self.run_connection(0, first, welcome.memory), try_join_all(further)).await.map(|(never, _)| never)
    }

    /// Runs a further connection of a session. While it cannot be opened, the others do its work.
    async fn run_further_connection(&self, nth: usize, session: u64) -> Result<Infallible, ConnectionError> {
        let claim = self.hello.claim.clone().map(|claim| Claim { joins: Some(session), ..claim });
        let hello = Hello { claim, ..self.hello.clone() };
        let mut reported = false;
        loop {
            match greet(&self.connect, self.address, &hello).await {
                Ok((stream, welcome)) => return self.run_connection(nth, stream, welcome.memory).await,
                Err(why) if !reported => {
                    let (of, address) = (self.wakes.len(), self.address);
                    (self.report)(format!("node {address}: connection {} of {of}: {why}; retrying", nth + 1));
                    reported = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(REFUSED_PAUSE).await;
        }
    }

    async fn run_connection(
        &self,
        nth: usize,
        stream: Box<dyn Stream>,
        memory: bool,
    ) -> Result<Infallible, ConnectionError> {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let (mut out, mut input) = (Outbox::default(), Inbox::new(Bytes::new()));
        let mut tick = tokio::time::interval(self.state.borrow().check_interval());
        let mut unsent = false;
        self.state.borrow_mut().set_open(nth, Instant::now(), memory);
        loop {
            if out.is_empty() {
                let another = self.state.borrow_mut().fill(nth, Instant::now(), &mut out);
                self.wake(another);
            }
            tokio::select! {
                biased;
                sent = push_output(&mut writer, &mut out, &mut unsent), if !out.is_empty() || unsent => {
                    sent.map_err(hello::Error::from)?;
                }
                count = input.read(&mut reader) => {
                    let count = count.map_err(hello::Error::from)?;
                    if count == 0 {
                        return Err(hello::Error::Closed.into());
                    }
                    let now = Instant::now();
                    let mut state = self.state.borrow_mut();
                    state.record_receive(nth, now, count);
                    while !input.is_empty() && let Some(frame) = frame::take_from_inbox(&mut input)? {
                        state.process_frame(nth, frame, now)?;
                    }
                    if state.has_faults() {
                        self.report_faults(state.take_faults());
                    }
                    if state.take_loss_query() {
                        return Err(ConnectionError::FlushFailed);
                    }
                }
                () = self.wakes[nth].notified(), if out.is_empty() => {}
                _ = tick.tick() => {
                    if let Some(tardy) = self.state.borrow().liveness_error(nth, Instant::now()) {
                        return Err(tardy.into());
                    }
                }
            }
        }
    }
}

/// What is wrong with a node's medium, according to its report.
fn medium_trouble(report: &Report) -> Option<String> {
    let damaged = (report.damaged_blocks > 0).then(|| model::counted(report.damaged_blocks as usize, "damaged block"));
    let full = report.is_full.then(|| "its medium is full".to_string());
    let failed = report.has_failed.then(|| "its medium failed".to_string());
    let all: Vec<String> = damaged.into_iter().chain(full).chain(failed).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Writes a part of `out`; and when all of it is written, flushes what an encrypted stream holds back. `unsent`: it may
/// hold back data. Can be cancelled at any time and called again.
async fn push_output(
    writer: &mut (impl AsyncWrite + Unpin),
    out: &mut Outbox,
    unsent: &mut bool,
) -> std::io::Result<()> {
    if !out.is_empty() {
        *unsent = true;
        poll_fn(|cx| out.poll_write(writer, cx)).await?;
    }
    if out.is_empty() {
        writer.flush().await?;
        *unsent = false;
    }
    Ok(())
}
