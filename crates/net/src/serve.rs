//! The server: one TCP port for control and data, and for a UDP run the UDP port with the same number on the same address.
//! It opens no other ports.
//!
//! Each connection is a task on one thread; the traffic of a run has its own threads. Several runs may be in progress at
//! once, as when two devices behind one access point are measured together; of UDP, one at a time.

use crate::control::{
    self, Announcement, CONTROL_MAGIC, Channel, DATA_MAGIC, FRAME_SAMPLES_MAX, Message, PEER_TIMEOUT,
    PROTOCOL_VERSIONS, Token,
};
use crate::error::OperationContext as _;
use crate::outcome::EndReport;
use crate::spec::{Spec, Traffic};
use crate::traffic::{self, Carrier, Connection, Role, packet};
use crate::{Error, Result, cc, clock, socket};
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// The maximum number of control connections; more are rejected.
const SESSIONS_MAX: usize = 16;
/// The maximum number of connections not yet identified and authenticated.
const PENDING_CONNECTIONS_MAX: usize = 256;
/// The time that a connection has to identify and authenticate itself.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the client may idle between runs.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Receives a line for each started run and each error.
pub type Reporter = Rc<dyn Fn(String)>;

pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    key: Option<wire::Key>,
    report: Reporter,
    runs: RefCell<HashMap<Token, mpsc::UnboundedSender<Connection>>>,
    sessions: Cell<usize>,
    pending: wire::PendingConnections,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A counter's guard: increments it, and decrements it when dropped.
struct CountGuard<'a>(&'a Cell<usize>);

impl<'a> CountGuard<'a> {
    fn new(cell: &'a Cell<usize>) -> Self {
        cell.set(cell.get() + 1);
        Self(cell)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Server {
    /// Listens on `address`. Without a key, only a loopback address is allowed.
    ///
    /// # Errors
    /// [`Error::Listen`], or [`Error::NeedsKey`].
    pub async fn listen(address: SocketAddr, key: Option<wire::Key>, report: Reporter) -> Result<Rc<Self>> {
        if key.is_none() && !address.ip().is_loopback() {
            return Err(Error::NeedsKey(address));
        }
        let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
        let address = listener.local_addr().doing("read the address")?;
        Ok(Rc::new(Self {
            listener,
            address,
            key,
            report,
            runs: RefCell::default(),
            sessions: Cell::new(0),
            pending: wire::PendingConnections::new(PENDING_CONNECTIONS_MAX, AUTHENTICATION_TIMEOUT),
        }))
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections. Must run in a `LocalSet`. If `once`, returns after the first client has disconnected, or if none
    /// has connected within [`IDLE_TIMEOUT`]; otherwise never.
    pub async fn serve(self: &Rc<Self>, once: bool) {
        let (gone, mut first) = mpsc::unbounded_channel();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = first.recv() => return,
                () = tokio::time::sleep(IDLE_TIMEOUT), if once => match self.sessions.get() {
                    0 => return,
                    _ => continue,
                },
            };
            match accepted {
                Ok((stream, peer)) => {
                    let (server, gone, visitor) = (self.clone(), gone.clone(), self.pending.add());
                    if let Some(crowd) = visitor.overflow_message() {
                        (self.report)(crowd);
                    }
                    tokio::task::spawn_local(async move {
                        match server.serve_connection(stream, peer, visitor).await {
                            Ok(asked) if asked && once => drop(gone.send(())),
                            Ok(_) => (),
                            Err(error) => {
                                (server.report)(format!("{peer}: {error}"));
                                // A peer that never made a request does not end the service.
                            }
                        }
                    });
                }
                Err(error) => {
                    (self.report)(format!("cannot accept a connection: {error}"));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Serves a connection; returns whether it was a client that made a request and has disconnected.
    async fn serve_connection(
        self: &Rc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        mut visitor: wire::PendingConnection,
    ) -> Result<bool> {
        let met = match visitor.authenticate(self.identify(stream, peer)).await {
            Ok(met) => met?,
            // It was reported once for all such connections.
            Err(wire::NotAdmitted::Overflow(_)) => return Ok(false),
            Err(wire::NotAdmitted::Slow(waited)) => {
                return Err(Error::Stalled { doing: "identifying the connection", waited });
            }
        };
        drop(visitor);
        match met {
            IdentifiedConnection::Closed => Ok(false),
            IdentifiedConnection::Data(run, connection) => {
                // The run may have ended.
                let _ = run.send(connection);
                Ok(false)
            }
            IdentifiedConnection::Client(channel, local, _session) => {
                self.serve_session(*channel, local).await.map(|()| true)
            }
        }
    }

    /// Identifies and authenticates a connection.
    async fn identify(&self, mut stream: TcpStream, peer: SocketAddr) -> Result<IdentifiedConnection<'_>> {
        let doing = "waiting for its first message";
        let mut first = [0; 8];
        let met = tokio::time::timeout(PEER_TIMEOUT, async {
            // Peeked, so that TLS reads its own first bytes; one byte distinguishes TLS from our protocol.
            while stream.peek(&mut first).await? < 8 && first[0] == b'F' {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            std::io::Result::Ok(())
        });
        met.await.map_err(|_| Error::Stalled { doing, waited: PEER_TIMEOUT })?.doing("read its first message")?;
        if &first == DATA_MAGIC {
            return self.accept_data(stream).await;
        }
        // A message is one packet, and must not wait for another.
        let _ = stream.set_nodelay(true);
        let local = stream.local_addr().doing("read the address")?;
        let plain = &first == CONTROL_MAGIC;
        if plain {
            stream.read_exact(&mut first).await.doing("read its first message")?;
        } else if self.key.is_none() {
            use tokio::io::AsyncWriteExt as _;
            let refused = wire::classify_stranger(&first);
            if matches!(refused, wire::AuthenticationError::KeyWanted) {
                // The peer may have closed the connection.
                let _ = stream.write_all(&wire::KEYLESS_ALERT).await;
            }
            return Err(Error::Key(refused));
        }
        let mut channel = match (&self.key, plain) {
            (Some(key), false) => {
                let mut stream = wire::accept(Some(key), stream).await.map_err(Error::Key)?;
                stream.read_exact(&mut first).await.doing("read its first message")?;
                Channel::new(Box::new(stream), peer)
            }
            _ => Channel::new(Box::new(stream), peer),
        };
        if plain && self.key.is_some() {
            let why = "the server has a key; give the same key file with --key".to_string();
            channel.send(&Message::Refused { why }, "refusing").await?;
            return Err(Error::Stranger("it connected without a key"));
        }
        let theirs = receive_hello(&mut channel).await?;
        if self.sessions.get() >= SESSIONS_MAX {
            let why = format!("{SESSIONS_MAX} other runs are in progress; try again later");
            channel.send(&Message::Refused { why }, "refusing").await?;
            return Ok(IdentifiedConnection::Closed);
        }
        let session = CountGuard::new(&self.sessions);
        agree_on_version(&mut channel, theirs).await?;
        Ok(IdentifiedConnection::Client(Box::new(channel), local, session))
    }

    async fn accept_data(&self, mut stream: TcpStream) -> Result<IdentifiedConnection<'_>> {
        let mut encoded = [0; 8 + Announcement::ENCODED_BYTES];
        let read = tokio::time::timeout(PEER_TIMEOUT, stream.read_exact(&mut encoded)).await;
        read.map_err(|_| Error::Stalled { doing: "reading an announcement", waited: PEER_TIMEOUT })?
            .doing("read an announcement")?;
        let known = Announcement::parse(&encoded[8..])
            .and_then(|a| self.runs.borrow().get(&a.token).cloned().map(|run| (a, run)));
        let Some((announcement, run)) = known else {
            return Err(Error::Stranger("a data connection does not belong to any current run"));
        };
        let stream = stream.into_std().doing("take over a connection")?;
        stream.set_nonblocking(false).doing("take over a connection")?;
        Ok(IdentifiedConnection::Data(run, Connection { announcement, stream }))
    }

    async fn serve_session(&self, mut channel: Channel, local: SocketAddr) -> Result<()> {
        while let Some(message) = channel.receive(IDLE_TIMEOUT, "waiting for its request").await? {
            match message {
                Message::Ping { asked_ns } => answer_ping(&mut channel, asked_ns).await?,
                Message::Start { spec } => {
                    if let Err(why) = spec.check() {
                        channel.send(&Message::Refused { why: why.to_string() }, "refusing").await?;
                        continue;
                    }
                    self.serve_run(&mut channel, local, spec).await?;
                }
                // The run was over before the message arrived.
                Message::Stop => {}
                other => return Err(channel.unexpected_message(&other, "waiting for its request")),
            }
        }
        Ok(())
    }

    async fn serve_run(&self, channel: &mut Channel, local: SocketAddr, spec: Spec) -> Result<()> {
        let token = random_token()?;
        let ready = async {
            let (spec, supplied) = supply_congestion_control(&spec, Role::Server)?;
            Ok((self.gather_connections(channel, local, &spec, token).await?, supplied))
        };
        let (carrier, _supplied) = match ready.await {
            Ok(ready) => ready,
            // The client can correct such a request; the session continues.
            Err(error) if Error::is_recoverable(&error) => {
                return channel.send(&Message::Refused { why: error.to_string() }, "refusing").await;
            }
            Err(error) => return Err(error),
        };
        (self.report)(format!("{}: {}", channel.peer(), describe_run(&spec)));
        let report = drive_traffic(channel, &spec, Role::Server, carrier, &RunHandle::default()).await?;
        send_report(channel, report).await
    }

    /// Collects the connections of a run until it can begin.
    async fn gather_connections(
        &self,
        channel: &mut Channel,
        local: SocketAddr,
        spec: &Spec,
        token: Token,
    ) -> Result<Carrier> {
        let ready = Message::Ready { token: control::format_token(&token) };
        if spec.probe && spec.directions.iter().any(|d| Role::Server.sends(*d)) {
            crate::probe::check_support()?;
        }
        if !spec.is_tcp() {
            let at = SocketAddr::new(local.ip(), self.address.port());
            let socket = bind_udp(at, spec)?;
            traffic::prepare_socket(&socket, spec.socket.receive_buffer.is_none()).doing("prepare the UDP socket")?;
            let run = packet::run_id(&token);
            channel.send(&ready, "preparing the run").await?;
            let go = Arc::new(AtomicBool::new(false));
            let meeting = tokio::task::spawn_blocking({
                let (token, go) = (token, go.clone());
                move || answer_announcements(&socket, &token, &go).map(|()| socket)
            });
            let began = await_go(channel).await;
            go.store(true, Ordering::Relaxed);
            let socket = meeting.await??;
            began?;
            return Ok(Carrier::Udp { socket, run });
        }
        let (connection_sender, mut connection_receiver) = mpsc::unbounded_channel();
        self.runs.borrow_mut().insert(token, connection_sender);
        let _forget = UnregisterOnDrop { runs: &self.runs, token };
        channel.send(&ready, "preparing the run").await?;
        let wanted = usize::from(spec.streams) * spec.directions.len();
        let mut connections: Vec<Connection> = Vec::with_capacity(wanted);
        let all = async {
            while connections.len() < wanted {
                let Some(c) = connection_receiver.recv().await else { break };
                let place = |c: &Connection| (c.announcement.direction, c.announcement.stream);
                let fits = spec.has_direction(c.announcement.direction) && c.announcement.stream < spec.streams;
                if fits && !connections.iter().any(|other| place(other) == place(&c)) {
                    connections.push(c);
                }
            }
        };
        let doing = "waiting for its data connections";
        tokio::time::timeout(PEER_TIMEOUT, all).await.map_err(|_| Error::Stalled { doing, waited: PEER_TIMEOUT })?;
        connections.sort_by_key(|c| (c.announcement.direction.name(), c.announcement.stream));
        for c in &connections {
            // Only options of an established connection: the segment size has already been negotiated.
            let options = crate::spec::SocketOptions { mss: None, ..spec.socket.clone() };
            socket::set_options(&SockRef::from(&c.stream), &options, true)?;
        }
        let carrier = prepare_carrier(spec, Role::Server, connections).await?;
        // All connections are open: this tells the client that it may begin.
        channel.send(&ready, "preparing the run").await?;
        await_go(channel).await?;
        Ok(carrier)
    }
}

/// The type of an identified connection.
enum IdentifiedConnection<'s> {
    /// Already answered, or closed.
    Closed,
    /// A data connection of a run.
    Data(mpsc::UnboundedSender<Connection>, Connection),
    /// A client that will request runs.
    Client(Box<Channel>, SocketAddr, CountGuard<'s>),
}

const VERSION_STEP: &str = "agreeing on a version";

/// Receives the versions that the other end supports, and its program name.
async fn receive_hello(channel: &mut Channel) -> Result<((u32, u32), String)> {
    match channel.require(PEER_TIMEOUT, VERSION_STEP).await? {
        Message::Hello { oldest, newest, program } => Ok(((oldest, newest), program)),
        other => Err(channel.unexpected_message(&other, VERSION_STEP)),
    }
}

async fn agree_on_version(channel: &mut Channel, (theirs, program): ((u32, u32), String)) -> Result<()> {
    if let Some(version) = control::newest_common_version(PROTOCOL_VERSIONS, theirs) {
        return channel.send(&Message::Welcome { version, program: control::program_version() }, VERSION_STEP).await;
    }
    let (oldest, newest) = PROTOCOL_VERSIONS;
    channel.send(&Message::Skew { oldest, newest, program: control::program_version() }, VERSION_STEP).await?;
    Err(Error::Version { theirs, ours: PROTOCOL_VERSIONS, program })
}

/// Calls [`Carrier::tcp`] without blocking the runtime.
pub(crate) async fn prepare_carrier(spec: &Spec, side: Role, connections: Vec<Connection>) -> Result<Carrier> {
    let spec = spec.clone();
    let task = tokio::task::spawn_blocking(move || Carrier::tcp(&spec, side, connections));
    Ok(task.await??)
}

/// Removes a run from the list on drop.
struct UnregisterOnDrop<'a> {
    runs: &'a RefCell<HashMap<Token, mpsc::UnboundedSender<Connection>>>,
    token: Token,
}

impl Drop for UnregisterOnDrop<'_> {
    fn drop(&mut self) {
        self.runs.borrow_mut().remove(&self.token);
    }
}

async fn await_go(channel: &mut Channel) -> Result<()> {
    let doing = "waiting for the start";
    loop {
        match channel.require(PEER_TIMEOUT, doing).await? {
            Message::Go => return Ok(()),
            Message::Ping { asked_ns } => answer_ping(channel, asked_ns).await?,
            other => return Err(channel.unexpected_message(&other, doing)),
        }
    }
}

async fn answer_ping(channel: &mut Channel, asked_ns: u64) -> Result<()> {
    let came_ns = clock::now_ns();
    channel.send(&Message::Pong { asked_ns, came_ns, left_ns: clock::now_ns() }, "synchronising clocks").await
}

/// Makes the congestion control of the run available at this end: the kernel's, or Fathom's own for as long as the second
/// result is kept. An end that only receives needs none, so it is removed from the spec.
pub(crate) fn supply_congestion_control(spec: &Spec, side: Role) -> Result<(Spec, Option<cc::Registration>)> {
    let mut spec = spec.clone();
    if !spec.is_tcp() {
        return Ok((spec, None));
    }
    // Both ends of a transaction send.
    let sends = matches!(spec.traffic, Traffic::Transactions { .. }) || spec.directions.iter().any(|d| side.sends(*d));
    let name = spec.socket.congestion.take().filter(|_| sends);
    let supplied = name.as_deref().map(cc::ensure_available).transpose().map_err(Error::Congestion)?.flatten();
    spec.socket.congestion = name;
    Ok((spec, supplied))
}

/// Runs an end's traffic in threads, and serves the control connection meanwhile. If that connection ends, so does the run.
/// The watch can interrupt the client's run, which then notifies the other end.
pub(crate) async fn drive_traffic(
    channel: &mut Channel,
    spec: &Spec,
    side: Role,
    carrier: Carrier,
    watch: &RunHandle,
) -> Result<EndReport> {
    let stop = Arc::new(AtomicBool::new(false));
    // Also set when this future is dropped, since threads do not notice that.
    let _guard = StopOnDrop(stop.clone());
    let mut traffic = tokio::task::spawn_blocking({
        let (spec, stop, live) = (spec.clone(), stop.clone(), watch.live.clone());
        move || traffic::run(&spec, side, carrier, &stop, &live)
    });
    let longest = Duration::from_millis(spec.duration_ms) + IDLE_TIMEOUT;
    let ended = |source| Error::Task { doing: "the test failed: ", source };
    if side == Role::Client {
        // The client has nothing to receive before its own traffic is done.
        while !watch.interrupted.load(Ordering::Relaxed) {
            tokio::select! {
                report = &mut traffic => return report.map_err(ended),
                () = tokio::time::sleep(INTERRUPT_CHECK_INTERVAL) => (),
            }
        }
        channel.send(&Message::Stop, "ending the run").await?;
        stop.store(true, Ordering::Relaxed);
        return traffic.await.map_err(ended);
    }
    let mut next = Box::pin(channel.receive(longest, "running"));
    let report = tokio::select! {
        report = &mut traffic => report.map_err(ended)?,
        message = &mut next => match message {
            Ok(Some(Message::Stop)) => {
                stop.store(true, Ordering::Relaxed);
                (&mut traffic).await.map_err(ended)?
            }
            Ok(Some(other)) => {
                drop(next);
                return Err(channel.unexpected_message(&other, "running"));
            }
            Ok(None) => return Err(Error::Broken { doing: "running", source: std::io::ErrorKind::UnexpectedEof.into() }),
            Err(error) => return Err(error),
        },
    };
    drop(next);
    Ok(report)
}

/// Lets the caller observe and interrupt a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunHandle {
    pub interrupted: Arc<AtomicBool>,
    pub live: Arc<traffic::LiveCounters>,
}

/// How often to check for an interrupt.
const INTERRUPT_CHECK_INTERVAL: Duration = Duration::from_millis(50);

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends a report, its samples first.
async fn send_report(channel: &mut Channel, mut report: EndReport) -> Result<()> {
    let doing = "sending the results";
    for sent in &mut report.sent {
        for (acks, samples) in [(false, std::mem::take(&mut sent.samples)), (true, std::mem::take(&mut sent.acks))] {
            for part in samples.chunks(FRAME_SAMPLES_MAX) {
                let message = Message::Samples { direction: sent.direction, acks, samples: part.to_vec() };
                channel.send(&message, doing).await?;
            }
        }
    }
    channel.send(&Message::Report { report: Box::new(report) }, doing).await
}

fn bind_udp(at: SocketAddr, spec: &Spec) -> Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind(at).map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => Error::UdpBusy { port: at.port() },
        _ => Error::Listen { address: at, source },
    })?;
    socket::set_options(&SockRef::from(&socket), &spec.socket, false)?;
    Ok(socket)
}

/// Echoes announcements to their sender until the run begins; the first determines the peer.
fn answer_announcements(socket: &std::net::UdpSocket, token: &Token, go: &AtomicBool) -> Result<()> {
    let mut buffer = [0; 64];
    let mut known = false;
    let deadline = clock::now_ns() + 2 * PEER_TIMEOUT.as_nanos() as u64;
    while !go.load(Ordering::Relaxed) && clock::now_ns() < deadline {
        // Peeked: any other packet may be the first of the run, to be received by its thread.
        let Ok((length, from)) = socket.peek_from(&mut buffer) else { continue };
        let announcement =
            buffer.get(..length).and_then(|w| w.strip_prefix(&DATA_MAGIC[..])).and_then(Announcement::parse);
        if announcement.is_some_and(|a| a.token == *token) {
            if !known {
                socket.connect(from).doing("connect the UDP socket")?;
                known = true;
            }
            let _ = socket.recv(&mut buffer);
            // If it is lost, the other end repeats its request.
            let _ = socket.send(&buffer[..length]);
        } else if known {
            return Ok(());
        } else {
            // A packet of a stranger.
            let _ = socket.recv(&mut buffer);
        }
    }
    if known { Ok(()) } else { Err(Error::NoUdp("no packet of the UDP run arrived".into())) }
}

fn random_token() -> Result<Token> {
    use std::io::Read as _;
    let mut token = Token::default();
    std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut token)).doing("draw a token")?;
    Ok(token)
}

fn describe_run(spec: &Spec) -> String {
    use crate::spec::Traffic as T;
    let what = match spec.traffic {
        T::Tcp { .. } => "TCP".into(),
        T::Udp { rate_bps, .. } => format!("UDP at {rate_bps} bit/s"),
        T::Transactions { request_bytes, response_bytes } => {
            format!("transactions of {request_bytes} and {response_bytes} bytes")
        }
    };
    let ways: Vec<&str> = spec.directions.iter().map(|d| d.name()).collect();
    format!("{what}, {} stream(s) {}, {} ms", spec.streams, ways.join(" and "), spec.duration_ms)
}
