//! A node: serves a coordinator's requests from its store.
//!
//! It takes all requests that have arrived, sorts them by offset, serves them and replies in one write, which is split at
//! 64 KiB of data or 1 ms, so that the first replies do not wait for the last. Requests to memory are served at once, and
//! no frame of their replies contains more of them than the largest frame of requests: if the replies to three frames
//! shared one, the coordinator would get none until the last was ready, send all new requests at once, and the path would
//! be idle meanwhile. A file may block its reader, so a few separate threads serve it; then replies are sent as they become
//! ready, in any order, but in frames of at least the coordinator's batch while more are pending: where packets are scarce
//! they are scarce in both directions. Reads from the page cache, and writes into it, are served at once here too, since a
//! hand-over to a thread costs more: one MiB at a time, so that the first replies are sent before the last data is copied.
//!
//! Concurrent requests are not ordered: a client that needs an order waits for the reply. So requests may be sorted, and a
//! coordinator's connections may be served in parallel, each in its own thread ([`threads`]).
//!
//! The connections of a coordinator form a **session**. A new session ends all earlier ones, and begins when none of their
//! requests is being served any more. A thread that serves a request first counts itself as busy and then checks whether
//! its session is the current one; a new session first becomes the current one and then waits until no request is being
//! served. So no request of an old session starts or continues after the welcome of a new one.

use crate::colocation::Follower;
use crate::connect::Stream;
use crate::frame::{FrameError, Report, Request, WaitClass};
use crate::hello::{self, Answer, Hello, Wait, Welcome};
use crate::protocol::{CONNECTIONS_MAX, Claim};
use crate::refusal::Refusal;
use crate::shm::{self, MappedMemory};
use crate::store::{FaultKind, Settler, Store, WriteBack};
use crate::unique_name::new_name;
use bytes::{Bytes, BytesMut};
use nbd::inbox::Inbox;
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use wire::{Key, NotAdmitted, PendingConnection, PendingConnections};

mod batch;
mod lanes;
mod threads;

use batch::{
    Batch, REPLY_CUT_BYTES, ReplyQueue, ServedReplies, divide_batch, drain_requests, flush_replies, moved_bytes,
    serve_reads_inline, serve_writes_inline, take_flushes, take_turn, write_range,
};
use lanes::Lanes;
use threads::Threads;

/// The maximum time that a reply waits for others in its frame.
const REPLY_HOLD_TIMEOUT: Duration = Duration::from_millis(50);
/// The maximum number of outstanding requests.
const GRANTED_REQUESTS_MAX: u16 = 1024;
/// The maximum data of outstanding requests and their replies: four times what our coordinator has outstanding; it bounds a
/// node's memory for each connection.
const GRANTED_BYTES_MAX: usize = 64 << 20;
/// The timeout of a coordinator's handshake.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of connections before the end of their handshake.
const PENDING_CONNECTIONS_MAX: usize = 256;
/// The kernel blocked writes that took longer than this, and may block those that follow within the second time.
const BLOCKED_WRITE_DURATION: Duration = Duration::from_millis(20);
const BLOCKED_BACKOFF_DURATION: Duration = Duration::from_secs(1);
/// The number of threads that write to a file, and of those that flush it.
pub const WORKERS_PER_CLASS: usize = 4;
/// The threads of a runtime that serves a file with `readers` reads at a time: also the other classes', and one that claims.
pub const fn thread_count(readers: usize) -> usize {
    readers + 2 * WORKERS_PER_CLASS + 1
}
/// The interval of reports, and of requests to wait, where the coordinator wishes none; and the shortest that it may wish.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const REPORT_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Why a coordinator's connection ended.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionEnd {
    /// It broke, or the other end is not a coordinator.
    #[error(transparent)]
    Hello(#[from] hello::Error),
    /// The other end violated the protocol.
    #[error(transparent)]
    Broken(#[from] FrameError),
    #[error("refused a coordinator: {0}")]
    Refused(Refusal),
    /// Another connection replaced it.
    #[error("taken over by another connection of a coordinator")]
    TakenOver,
}

impl From<std::io::Error> for ConnectionEnd {
    fn from(error: std::io::Error) -> Self {
        Self::Hello(error.into())
    }
}

/// Counters of a node since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accepted connections of coordinators.
    pub admitted: u64,
    /// Connections that were refused, or failed.
    pub failed: u64,
    /// Requests answered.
    pub answered: u64,
    /// Frames of replies.
    pub frames_sent: u64,
    /// Bytes of data in these frames.
    pub data_bytes_sent: u64,
    /// Time in the store, summed over all requests.
    pub service: Duration,
    /// Requests queued when the last frame was sent.
    pub queued: u16,
}

#[derive(Debug)]
pub struct Node {
    store: Arc<Store>,
    /// Whether the store is in memory, so that requests never block.
    inline: bool,
    boot: String,
    current_session: Arc<watch::Sender<u64>>,
    /// Held while a session begins.
    session_lock: Arc<Mutex<()>>,
    busy: Arc<Busy>,
    /// Open connections of coordinators.
    open_connections: AtomicUsize,
    /// The runtime whose threads serve the store's file, for all connections.
    workers: OnceLock<Handle>,
    lanes: Lanes,
    counts: Mutex<Counts>,
    /// The key required by [`Node::listen`], if any.
    key: Option<Key>,
    pending: PendingConnections,
}

/// The number of requests being served by threads.
#[derive(Debug, Default)]
struct Busy {
    count: AtomicUsize,
    idle: Notify,
    /// Threads that have finished their requests so far: progress.
    done: AtomicU64,
}

/// Counts as one busy thread until it is dropped.
struct BusyGuard(Arc<Busy>);

impl BusyGuard {
    fn new(busy: &Arc<Busy>) -> Self {
        busy.count.fetch_add(1, Ordering::AcqRel);
        Self(busy.clone())
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.done.fetch_add(1, Ordering::Relaxed);
        self.0.count.fetch_sub(1, Ordering::AcqRel);
        self.0.idle.notify_waiters();
    }
}

/// Counts as one connection until it is dropped.
#[derive(Debug)]
struct OpenGuard<'n>(&'n AtomicUsize);

impl<'n> OpenGuard<'n> {
    fn new(count: &'n AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }

    /// `None` if the maximum is reached. Checked and counted atomically, as several connections may arrive at once.
    fn try_new(count: &'n AtomicUsize) -> Option<Self> {
        let more = |open: usize| (open < usize::from(CONNECTIONS_MAX)).then_some(open + 1);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(|_| Self(count))
    }
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Node {
    /// Creates a node for `store`; `inline` if it is in memory.
    pub fn new(store: Arc<Store>, inline: bool) -> Arc<Self> {
        Self::with_key(store, inline, None)
    }

    /// As [`Node::new`]; with a key [`Node::listen`] encrypts, and accepts only peers that have it too.
    pub fn with_key(store: Arc<Store>, inline: bool, key: Option<Key>) -> Arc<Self> {
        // A late connection to an earlier instance of the node must not match a session of the same number.
        let first = u64::from_str_radix(&new_name(), 16).unwrap_or_default() >> 1;
        Arc::new(Self {
            store,
            inline,
            boot: shm::boot(),
            current_session: Arc::new(watch::Sender::new(first)),
            session_lock: Arc::default(),
            busy: Arc::default(),
            open_connections: AtomicUsize::new(0),
            workers: OnceLock::new(),
            lanes: Lanes::default(),
            counts: Mutex::default(),
            key,
            // Twice the limit: the key exchange comes first.
            pending: PendingConnections::new(PENDING_CONNECTIONS_MAX, 2 * HELLO_TIMEOUT),
        })
    }

    /// Serves all connections, until `until` is ready; `report` receives the reason when a connection ends. Must run in a
    /// `LocalSet`; the threads of its runtime serve the store's file.
    pub async fn listen(self: &Arc<Self>, listener: TcpListener, report: Rc<dyn Fn(String)>, until: impl Future) {
        self.workers.get_or_init(Handle::current);
        let settler = Settler::start(&self.store);
        if let Err(error) = &settler {
            report(format!(
                "cannot start a thread: {error}; after a power failure, more data than necessary will \
                count as lost"
            ));
        }
        let write_back = WriteBack::start(&self.store);
        if let Err(error) = &write_back {
            report(format!("cannot start a thread: {error}; on a slow medium a flush will take longer than necessary"));
        }
        let (log, mut lines) = mpsc::unbounded_channel();
        let losses = log.clone();
        // Without a receiver, the node is ending.
        self.store.observe_losses(move |line| drop(losses.send(line)));
        let (faults, node) = (log.clone(), self.store.header().node);
        // Without a receiver, the node is ending.
        self.store.observe_faults(move |line| drop(faults.send(format!("node {node}: {line}"))));
        let mut threads = Threads::new(self.clone(), log);
        tokio::select! {
            _ = until => {}
            () = self.accept_connections(listener, &mut threads, &report) => {}
            () = async { while let Some(line) = lines.recv().await { report(line); } } => {}
        }
        // No connection is served any more, and running requests finish before the store is closed.
        self.current_session.send_modify(|live| *live += 1);
        threads.end();
        self.wait_until_idle().await;
    }

    async fn accept_connections(&self, listener: TcpListener, threads: &mut Threads, report: &Rc<dyn Fn(String)>) {
        loop {
            let served = match listener.accept().await {
                Ok((stream, _)) => threads.serve(stream),
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                // Too many open files or threads, or the peer has disconnected: all temporary.
                report(format!("cannot accept a connection: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    pub fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Changes when a request was served, or data reached the medium.
    fn progress(&self) -> u64 {
        self.busy.done.load(Ordering::Relaxed) + self.counts().answered + self.store.progress()
    }

    fn current_report(&self, received_bytes: u64) -> Report {
        Report {
            progress: self.progress(),
            received_bytes,
            dirty_bytes: self.store.dirty_bytes(),
            flushing_ms: self.store.flush_duration().map_or(0, |since| (since.as_millis() as u32).max(1)),
            writes_wait: *self.store.writes_wait().borrow(),
            damaged_blocks: self.store.faulty_blocks(FaultKind::Damaged),
            faults: FaultKind::KINDS.into_iter().map(|kind| self.store.faults(kind)).sum(),
            is_full: self.store.faulty_blocks(FaultKind::Full) > 0,
            has_failed: [FaultKind::Read, FaultKind::Write].into_iter().any(|kind| self.store.faulty_blocks(kind) > 0),
        }
    }

    /// The runtime whose threads may block.
    fn workers(&self) -> Handle {
        self.workers.get().cloned().unwrap_or_else(Handle::current)
    }

    fn update_counts(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn count_sent(&self, served: &ServedReplies, waiting: usize) {
        self.update_counts(|counts| {
            counts.answered += served.replies.len() as u64;
            counts.frames_sent += 1;
            counts.data_bytes_sent += served.data_bytes() as u64;
            counts.service += served.time;
            counts.queued = waiting.min(usize::from(u16::MAX)) as u16;
        });
    }

    async fn wait_until_idle(&self) {
        loop {
            let idle = self.busy.idle.notified();
            tokio::pin!(idle);
            // Before the count is read, so that no notification is missed.
            idle.as_mut().enable();
            if self.busy.count.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }

    /// `own` connections of the welcomed peer are already counted as open; `memory`: the offered shared memory was mapped.
    fn welcome(&self, session: u64, own: usize, memory: bool) -> Answer {
        let header = self.store.header();
        Answer::Welcome(Box::new(Welcome {
            loss: header.loss(),
            sequence: self.store.sequence(),
            instance: self.store.instance().into(),
            unflushed: self.store.has_unflushed(),
            empty: !header.reserved && self.store.is_empty(),
            node: header.node,
            pool: header.pool,
            place: header.place,
            epoch: header.epoch,
            size_bytes: self.store.size_bytes(),
            granted: GRANTED_REQUESTS_MAX,
            boot: self.boot.clone(),
            session,
            served: self.open_connections.load(Ordering::Acquire) > own,
            reserved: header.reserved,
            store: self.store.shown_path(),
            disk: header.disk,
            durable: Some(self.store.is_durable()),
            memory,
            // Only to a coordinator that wants to share memory, and can.
            files: self.store.offer().filter(|_| memory),
        }))
    }

    async fn admit_stream(&self, stream: TcpStream, mut connection: PendingConnection) -> Result<(), ConnectionEnd> {
        let greeted = connection.authenticate(async {
            let stream = wire::accept(self.key.as_ref(), stream).await.map_err(hello::Error::from)?;
            self.receive_hello(stream).await
        });
        let (stream, input, hello) = match greeted.await {
            Ok(greeted) => greeted?,
            // It was reported once for all such connections.
            Err(NotAdmitted::Overflow(_)) => return Ok(()),
            Err(NotAdmitted::Slow(_)) => return Err(hello::Error::Closed.into()),
        };
        drop(connection);
        self.serve_greeted(stream, input, hello).await
    }

    /// Serves one connection to its end. The peer must already be authorized.
    ///
    /// # Errors
    /// Why it ended, unless the coordinator closed it.
    pub async fn serve_connection(&self, stream: impl Stream) -> Result<(), ConnectionEnd> {
        let (stream, input, hello) = self.receive_hello(stream).await?;
        self.serve_greeted(stream, input, hello).await
    }

    /// Waits for the peer's hello.
    async fn receive_hello<S: Stream>(&self, mut stream: S) -> Result<(S, BytesMut, Hello), ConnectionEnd> {
        let mut input = BytesMut::new();
        let hello = tokio::time::timeout(HELLO_TIMEOUT, hello::receive::<_, Hello>(&mut stream, &mut input)).await;
        let hello = match hello.unwrap_or(Err(hello::Error::Closed)) {
            Err(wanted @ hello::Error::NotTrusted(wire::AuthenticationError::KeyWanted)) => {
                // The peer may have disconnected.
                let _ = stream.write_all(&wire::KEYLESS_ALERT).await;
                return Err(wanted.into());
            }
            other => other?,
        };
        Ok((stream, input, hello))
    }

    async fn serve_greeted(&self, mut stream: impl Stream, input: BytesMut, hello: Hello) -> Result<(), ConnectionEnd> {
        let interval = report_interval(&hello);
        match self.enter_or_wait(&mut stream, &hello, interval).await? {
            Ok(None) => Ok(hello::send(&mut stream, &self.welcome(0, 0, false)).await?),
            Ok(Some((session, _open))) => {
                let offer = hello.claim.as_ref().and_then(|claim| claim.also.memory.as_ref());
                let memory = offer.and_then(MappedMemory::map_offer).map(Arc::new);
                hello::send(&mut stream, &self.welcome(session.number, 1, memory.is_some())).await?;
                self.update_counts(|counts| counts.admitted += 1);
                let mut live = self.current_session.subscribe();
                tokio::select! {
                    ended = self.serve(stream, input, session, memory, interval) => ended,
                    _ = live.wait_for(|live| *live != session.number) => Err(ConnectionEnd::TakenOver),
                }
            }
            Err(refusal) => {
                hello::send(&mut stream, &Answer::from(&refusal)).await?;
                Err(ConnectionEnd::Refused(refusal))
            }
        }
    }

    /// As [`Node::enter`]; meanwhile asks the coordinator to wait.
    async fn enter_or_wait(
        &self,
        stream: &mut impl Stream,
        hello: &Hello,
        interval: Duration,
    ) -> Result<Result<Option<(Session, OpenGuard<'_>)>, Refusal>, ConnectionEnd> {
        let mut entering = std::pin::pin!(self.enter(hello));
        loop {
            match tokio::time::timeout(interval, &mut entering).await {
                Ok(entered) => return Ok(entered),
                Err(_) => hello::send(stream, &Answer::Wait(Wait { progress: self.progress() })).await?,
            }
        }
    }

    /// Accepts a coordinator, or returns why not. With a claim: also its session, and its count among the open connections.
    async fn enter(&self, hello: &Hello) -> Result<Option<(Session, OpenGuard<'_>)>, Refusal> {
        hello::check_protocol(hello.protocol)?;
        let Some(claim) = &hello.claim else { return Ok(None) };
        let header = self.store.header();
        if claim.node != header.node {
            return Err(Refusal::OtherNode { has: header.node, wanted: claim.node.clone() });
        }
        if claim.size_bytes > self.store.size_bytes() {
            let has = self.store.size_bytes();
            return Err(Refusal::Smaller { has, announced: claim.size_bytes });
        }
        if let Some(number) = claim.joins {
            let begun = (header.epoch, &header.coordinator) == (claim.epoch, &claim.coordinator);
            let live = *self.current_session.borrow() == number;
            if !(begun && live) {
                return Err(Refusal::TakenOver);
            }
            let open = OpenGuard::try_new(&self.open_connections).ok_or(Refusal::TooManyConnections)?;
            return Ok(Some((Session { number, epoch: claim.epoch }, open)));
        }
        if claim.also.reserve {
            let (store, pool, claim) = (self.store.clone(), hello.pool.clone(), claim.clone());
            self.run_blocking(move || store.reserve(&pool, &claim)).await?;
            return Ok(None);
        }
        // Before any wait: an older coordinator that reconnects meanwhile must find the newer one's epoch.
        let number = self.begin_session(&hello.pool, claim).await?;
        self.wait_until_idle().await;
        if *self.current_session.borrow() != number {
            return Err(Refusal::TakenOver);
        }
        // Not limited: it has ended earlier connections, some of which may still be closing.
        Ok(Some((Session { number, epoch: claim.epoch }, OpenGuard::new(&self.open_connections))))
    }

    /// Begins a new session for the claim with the highest epoch.
    async fn begin_session(&self, pool: &str, claim: &Claim) -> Result<u64, Refusal> {
        let (store, live, entrance) = (self.store.clone(), self.current_session.clone(), self.session_lock.clone());
        let (pool, claim) = (pool.to_string(), claim.clone());
        let begin = move || {
            let _one_at_a_time = entrance.lock().unwrap_or_else(PoisonError::into_inner);
            store.claim(&pool, &claim)?;
            let mut number = 0;
            live.send_modify(|live| {
                *live += 1;
                number = *live;
            });
            Ok(number)
        };
        self.run_blocking(begin).await
    }

    /// Does what may wait for the medium, without making other connections wait. It is done to its end, even if nobody
    /// waits for it any more.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        if self.inline {
            return work();
        }
        let done = self.workers().spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(Refusal::Header(error.to_string())))
    }

    /// Serves requests to memory, up to the cut; false if there are none left.
    fn serve_now<I>(&self, number: u64, batch: &mut Batch<I>, served: &mut ServedReplies) -> Result<bool, ConnectionEnd>
    where
        I: ExactSizeIterator<Item = (Request, Bytes)>,
    {
        let _working = BusyGuard::new(&self.busy);
        if *self.current_session.borrow() != number {
            return Err(ConnectionEnd::TakenOver);
        }
        Ok(batch.serve(&self.store, served))
    }

    async fn serve(
        &self,
        stream: impl Stream,
        input: BytesMut,
        session: Session,
        memory: Option<Arc<MappedMemory>>,
        interval: Duration,
    ) -> Result<(), ConnectionEnd> {
        let mut received_bytes = input.len() as u64;
        let mut input = Inbox::new(input.freeze());
        let mut tick = tokio::time::interval(interval);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut writes_wait = self.store.writes_wait();
        let Session { number, epoch } = session;
        let workers = self.workers();
        let (mut reader, mut writer) = tokio::io::split(stream);
        let (ready, mut done) = mpsc::unbounded_channel::<ServedReplies>();
        let mut answers = ReplyQueue::new(epoch);
        // Not yet answered; of these, `held` are served.
        let (mut waiting, mut waiting_bytes, mut wanted) = (0, 0, 1);
        let (mut served, mut held) = (ServedReplies::default(), ServedReplies::default());
        let mut held_since: Option<tokio::time::Instant> = None;
        let mut haste = InlineWriter::default();
        // Not tried yet.
        let mut rest = Vec::new();
        // Waiting for the next flush, which begins when the one in progress has ended.
        let (mut unflushed, mut flushing) = (Vec::new(), false);
        let mut follower = Follower::default();
        loop {
            follower.follow(memory.as_deref().and_then(MappedMemory::suggested_cpu));
            let (batch, most) = drain_requests(&mut input, epoch, &mut wanted)?;
            waiting_bytes += batch.iter().map(|(request, _)| moved_bytes(request)).sum::<usize>();
            if waiting_bytes > GRANTED_BYTES_MAX {
                return Err(FrameError::Invalid("more data in flight than granted").into());
            }
            if self.inline {
                let mut batch =
                    Batch { frame_replies_max: most, memory: memory.clone(), ..Batch::new(batch.into_iter()) };
                while self.serve_now(number, &mut batch, &mut served)? {
                    waiting_bytes -= served.moved_bytes;
                    answers.put(batch.requests.len(), &served);
                    self.count_sent(&served, batch.requests.len());
                    if answers.is_due() {
                        answers.send_all(&mut writer).await?;
                    }
                }
                answers.send_all(&mut writer).await?;
            } else if !(batch.is_empty() && rest.is_empty()) {
                waiting += batch.len();
                rest.extend(batch);
                let mut batch = take_turn(&mut rest);
                let working = BusyGuard::new(&self.busy);
                if *self.current_session.borrow() != number {
                    return Err(ConnectionEnd::TakenOver);
                }
                serve_reads_inline(&self.store, memory.as_deref(), &mut batch, &mut held);
                if self.store.is_calm() {
                    haste.write(&self.store, memory.as_deref(), &mut batch, &mut held);
                }
                if !held.replies.is_empty() {
                    held_since.get_or_insert_with(tokio::time::Instant::now);
                }
                drop(working);
                unflushed.append(&mut held.unflushed);
                take_flushes(&mut batch, &mut unflushed);
                for (class, part) in divide_batch(batch, WORKERS_PER_CLASS) {
                    let (store, ready, working) = (self.store.clone(), ready.clone(), BusyGuard::new(&self.busy));
                    let (live, memory) = (self.current_session.subscribe(), memory.clone());
                    self.lanes.run(class, &workers, move || {
                        store.announce(part.iter().filter_map(|(request, _)| write_range(request)));
                        let mut batch = Batch { memory, ..Batch::new(part.into_iter()) };
                        let wanted = || *live.borrow() == number;
                        let mut served = ServedReplies::default();
                        while wanted() && batch.serve(&store, &mut served) {
                            // Without a receiver, the connection is gone.
                            let _ = ready.send(std::mem::take(&mut served));
                        }
                        drop(working);
                    });
                }
            }
            if !flushing && !unflushed.is_empty() {
                flushing = true;
                let (store, ready, working) = (self.store.clone(), ready.clone(), BusyGuard::new(&self.busy));
                let (live, replies) = (self.current_session.subscribe(), std::mem::take(&mut unflushed));
                self.lanes.run(WaitClass::Sync, &workers, move || {
                    if *live.borrow() == number {
                        // Without a receiver, the connection is gone.
                        let _ = ready.send(flush_replies(&store, replies));
                    }
                    drop(working);
                });
            }
            let answered = !held.replies.is_empty() && held.replies.len() >= wanted.min(waiting);
            tokio::select! {
                biased;
                // Before all else: a node that is busy is not gone.
                () = first_of(tick.tick(), writes_wait.changed(), !self.inline) => {
                    answers.report(&self.current_report(received_bytes));
                    match answers.send_all(&mut writer).await {
                        Err(error) if waiting == 0 && is_closed(&error) => return Ok(()),
                        left => left?,
                    }
                }
                () = std::future::ready(()), if answered => {}
                served = done.recv(), if waiting > held.replies.len() => {
                    let Some(served) = served else { return Ok(()) };
                    flushing &= !served.is_flush;
                    held.append(served);
                    while held.data_bytes() < REPLY_CUT_BYTES && let Ok(more) = done.try_recv() {
                        flushing &= !more.is_flush;
                        held.append(more);
                    }
                    held_since.get_or_insert_with(tokio::time::Instant::now);
                }
                () = sleep_until(held_since.map(|since| since + REPLY_HOLD_TIMEOUT)) => {}
                count = input.read(&mut reader), if waiting < usize::from(GRANTED_REQUESTS_MAX) => {
                    let count = match count {
                        Ok(0) => return Ok(()),
                        Err(error) if waiting == 0 && is_closed(&error) => return Ok(()),
                        count => count?,
                    };
                    received_bytes += count as u64;
                }
                // Lets other connections on this thread run.
                () = tokio::task::yield_now(), if !rest.is_empty() => {}
            }
            // Replies are sent when the coordinator's batch is complete, when no more can join, or when they have waited long enough.
            let full =
                held.replies.len() >= wanted || held.replies.len() == waiting || held.data_bytes() >= REPLY_CUT_BYTES;
            if !held.replies.is_empty()
                && (full || held_since.is_some_and(|since| since.elapsed() >= REPLY_HOLD_TIMEOUT))
            {
                assert!(
                    waiting >= held.replies.len() && waiting_bytes >= held.moved_bytes,
                    "a request is answered twice"
                );
                waiting -= held.replies.len();
                waiting_bytes -= held.moved_bytes;
                answers.put(waiting, &held);
                answers.send_all(&mut writer).await?;
                self.count_sent(&held, waiting);
                (held, held_since) = (ServedReplies::default(), None);
                if !rest.is_empty() {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

/// Whether the coordinator has closed the connection: if it has not read a report yet, that looks like a reset.
fn is_closed(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe)
}

/// Completes with the first; or with the second, if it `counts` and succeeds.
async fn first_of<T, E>(first: impl Future, second: impl Future<Output = Result<T, E>>, counts: bool) {
    tokio::select! {
        biased;
        _ = first => {}
        Ok(_) = second, if counts => {}
    }
}

/// The interval at which a coordinator wants to hear from the node.
fn report_interval(hello: &Hello) -> Duration {
    match hello.claim.as_ref().map_or(0, |claim| claim.also.report_ms) {
        0 => REPORT_INTERVAL,
        wanted => Duration::from_millis(wanted.into()).max(REPORT_INTERVAL_MIN),
    }
}

/// Whether the thread of the connection does writes itself. If the kernel blocked it, other threads do them for a while, so
/// that other requests do not wait for them.
#[derive(Debug, Default)]
struct InlineWriter {
    blocked_at: Option<Instant>,
}

impl InlineWriter {
    /// See [`serve_writes_inline`].
    fn write(
        &mut self,
        store: &Store,
        memory: Option<&MappedMemory>,
        batch: &mut Vec<(Request, Bytes)>,
        served: &mut ServedReplies,
    ) {
        if batch.is_empty() || self.blocked_at.is_some_and(|waited| waited.elapsed() < BLOCKED_BACKOFF_DURATION) {
            return;
        }
        let begin = Instant::now();
        serve_writes_inline(store, memory, batch, served);
        self.blocked_at = (begin.elapsed() > BLOCKED_WRITE_DURATION).then(Instant::now);
    }
}

/// Common to a coordinator's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Session {
    number: u64,
    epoch: u64,
}

/// Never completes without a time.
async fn sleep_until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
