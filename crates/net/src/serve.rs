//! The server: one TCP port for control and data, and for a UDP run the UDP port with the same number on the same address.
//! It opens no other ports.
//!
//! Each connection is a task on one thread; the traffic of a run has its own threads. Several runs may be in progress at
//! once, as when two devices behind one access point are measured together; of UDP, one at a time.

use crate::control::{
    self, Announcement, CONTROL, Channel, DATA, Message, PATIENCE, SAMPLES_IN_FRAME, Token, VERSIONS,
};
use crate::error::Doing as _;
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
const MOST_RUNS: usize = 16;
/// The maximum number of connections not yet identified and authenticated.
const VISITORS: usize = 256;
/// The time that a connection has to identify and authenticate itself.
const MEETING: Duration = Duration::from_secs(30);
/// How long the client may idle between runs.
const IDLE: Duration = Duration::from_secs(60);

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
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    fn new(cell: &'a Cell<usize>) -> Self {
        cell.set(cell.get() + 1);
        Self(cell)
    }
}

impl Drop for Counted<'_> {
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
            pending: wire::PendingConnections::new(VISITORS, MEETING),
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
                () = tokio::time::sleep(IDLE), if once => match self.sessions.get() {
                    0 => return,
                    _ => continue,
                },
            };
            match accepted {
                Ok((stream, peer)) => {
                    let (server, gone, visitor) = (self.clone(), gone.clone(), self.pending.add());
                    if let Some(crowd) = visitor.overflow() {
                        (self.report)(crowd);
                    }
                    tokio::task::spawn_local(async move {
                        match server.meet(stream, peer, visitor).await {
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
    async fn meet(
        self: &Rc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        mut visitor: wire::PendingConnection,
    ) -> Result<bool> {
        let met = match visitor.authenticate(self.let_in(stream, peer)).await {
            Ok(met) => met?,
            // It was reported once for all such connections.
            Err(wire::NotAdmitted::Overflow(_)) => return Ok(false),
            Err(wire::NotAdmitted::Slow(waited)) => {
                return Err(Error::Stalled { doing: "identifying the connection", waited });
            }
        };
        drop(visitor);
        match met {
            Visitor::Gone => Ok(false),
            Visitor::Data(run, connection) => {
                // The run may have ended.
                let _ = run.send(connection);
                Ok(false)
            }
            Visitor::Client(channel, local, _session) => self.session(*channel, local).await.map(|()| true),
        }
    }

    /// Identifies and authenticates a connection.
    async fn let_in(&self, mut stream: TcpStream, peer: SocketAddr) -> Result<Visitor<'_>> {
        let doing = "waiting for its first message";
        let mut first = [0; 8];
        let met = tokio::time::timeout(PATIENCE, async {
            // Peeked, so that TLS reads its own first bytes; one byte distinguishes TLS from our protocol.
            while stream.peek(&mut first).await? < 8 && first[0] == b'F' {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            std::io::Result::Ok(())
        });
        met.await.map_err(|_| Error::Stalled { doing, waited: PATIENCE })?.doing("read its first message")?;
        if &first == DATA {
            return self.take_data(stream).await;
        }
        // A message is one packet, and must not wait for another.
        let _ = stream.set_nodelay(true);
        let local = stream.local_addr().doing("read the address")?;
        let plain = &first == CONTROL;
        if plain {
            stream.read_exact(&mut first).await.doing("read its first message")?;
        } else if self.key.is_none() {
            use tokio::io::AsyncWriteExt as _;
            let refused = wire::stranger(&first);
            if matches!(refused, wire::Refused::KeyWanted) {
                // The peer may have closed the connection.
                let _ = stream.write_all(&wire::KEYLESS).await;
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
        let theirs = hello(&mut channel).await?;
        if self.sessions.get() >= MOST_RUNS {
            let why = format!("{MOST_RUNS} other runs are in progress; try again later");
            channel.send(&Message::Refused { why }, "refusing").await?;
            return Ok(Visitor::Gone);
        }
        let session = Counted::new(&self.sessions);
        agree(&mut channel, theirs).await?;
        Ok(Visitor::Client(Box::new(channel), local, session))
    }

    async fn take_data(&self, mut stream: TcpStream) -> Result<Visitor<'_>> {
        let mut words = [0; 8 + Announcement::LENGTH];
        let read = tokio::time::timeout(PATIENCE, stream.read_exact(&mut words)).await;
        read.map_err(|_| Error::Stalled { doing: "reading an announcement", waited: PATIENCE })?
            .doing("read an announcement")?;
        let known = Announcement::parse(&words[8..])
            .and_then(|a| self.runs.borrow().get(&a.token).cloned().map(|run| (a, run)));
        let Some((announcement, run)) = known else {
            return Err(Error::Stranger("a data connection does not belong to any current run"));
        };
        let stream = stream.into_std().doing("take over a connection")?;
        stream.set_nonblocking(false).doing("take over a connection")?;
        Ok(Visitor::Data(run, Connection { announcement, stream }))
    }

    async fn session(&self, mut channel: Channel, local: SocketAddr) -> Result<()> {
        while let Some(message) = channel.next(IDLE, "waiting for its request").await? {
            match message {
                Message::Ping { asked_ns } => pong(&mut channel, asked_ns).await?,
                Message::Start { spec } => {
                    if let Err(why) = spec.check() {
                        channel.send(&Message::Refused { why: why.to_string() }, "refusing").await?;
                        continue;
                    }
                    self.run(&mut channel, local, spec).await?;
                }
                // The run was over before the message arrived.
                Message::Stop => {}
                other => return Err(channel.unexpected(&other, "waiting for its request")),
            }
        }
        Ok(())
    }

    async fn run(&self, channel: &mut Channel, local: SocketAddr, spec: Spec) -> Result<()> {
        let token = fresh_token()?;
        let ready = async {
            let (spec, supplied) = supply(&spec, Role::Server)?;
            Ok((self.gather(channel, local, &spec, token).await?, supplied))
        };
        let (carrier, _supplied) = match ready.await {
            Ok(ready) => ready,
            // The client can correct such a request; the session continues.
            Err(error) if Error::is_askers(&error) => {
                return channel.send(&Message::Refused { why: error.to_string() }, "refusing").await;
            }
            Err(error) => return Err(error),
        };
        (self.report)(format!("{}: {}", channel.peer(), describe(&spec)));
        let report = drive(channel, &spec, Role::Server, carrier, &Watch::default()).await?;
        give(channel, report).await
    }

    /// Collects the connections of a run until it can begin.
    async fn gather(&self, channel: &mut Channel, local: SocketAddr, spec: &Spec, token: Token) -> Result<Carrier> {
        let ready = Message::Ready { token: control::token_text(&token) };
        if spec.probe && spec.directions.iter().any(|d| Role::Server.sends(*d)) {
            crate::probe::possible()?;
        }
        if !spec.is_tcp() {
            let at = SocketAddr::new(local.ip(), self.address.port());
            let socket = bind_udp(at, spec)?;
            traffic::prepare(&socket, spec.socket.receive_buffer.is_none()).doing("prepare the UDP socket")?;
            let run = packet::run_of(&token);
            channel.send(&ready, "preparing the run").await?;
            let go = Arc::new(AtomicBool::new(false));
            let meeting = tokio::task::spawn_blocking({
                let (token, go) = (token, go.clone());
                move || answer_announcements(&socket, &token, &go).map(|()| socket)
            });
            let began = expect_go(channel).await;
            go.store(true, Ordering::Relaxed);
            let socket = meeting.await??;
            began?;
            return Ok(Carrier::Udp { socket, run });
        }
        let (bring, mut brought) = mpsc::unbounded_channel();
        self.runs.borrow_mut().insert(token, bring);
        let _forget = Unregister { runs: &self.runs, token };
        channel.send(&ready, "preparing the run").await?;
        let wanted = usize::from(spec.streams) * spec.directions.len();
        let mut connections: Vec<Connection> = Vec::with_capacity(wanted);
        let all = async {
            while connections.len() < wanted {
                let Some(c) = brought.recv().await else { break };
                let place = |c: &Connection| (c.announcement.direction, c.announcement.stream);
                let fits = spec.goes(c.announcement.direction) && c.announcement.stream < spec.streams;
                if fits && !connections.iter().any(|other| place(other) == place(&c)) {
                    connections.push(c);
                }
            }
        };
        let doing = "waiting for its data connections";
        tokio::time::timeout(PATIENCE, all).await.map_err(|_| Error::Stalled { doing, waited: PATIENCE })?;
        connections.sort_by_key(|c| (c.announcement.direction.name(), c.announcement.stream));
        for c in &connections {
            // Only options of an established connection: the segment size has already been negotiated.
            let options = crate::spec::SocketOptions { mss: None, ..spec.socket.clone() };
            socket::set(&SockRef::from(&c.stream), &options, true)?;
        }
        let carrier = made_ready(spec, Role::Server, connections).await?;
        // All connections are open: this tells the client that it may begin.
        channel.send(&ready, "preparing the run").await?;
        expect_go(channel).await?;
        Ok(carrier)
    }
}

/// The type of an identified connection.
enum Visitor<'s> {
    /// Already answered, or closed.
    Gone,
    /// A data connection of a run.
    Data(mpsc::UnboundedSender<Connection>, Connection),
    /// A client that will request runs.
    Client(Box<Channel>, SocketAddr, Counted<'s>),
}

const AGREEING: &str = "agreeing on a version";

/// Receives the versions that the other end supports, and its program name.
async fn hello(channel: &mut Channel) -> Result<((u32, u32), String)> {
    match channel.expect(PATIENCE, AGREEING).await? {
        Message::Hello { oldest, newest, program } => Ok(((oldest, newest), program)),
        other => Err(channel.unexpected(&other, AGREEING)),
    }
}

async fn agree(channel: &mut Channel, (theirs, program): ((u32, u32), String)) -> Result<()> {
    if let Some(version) = control::common(VERSIONS, theirs) {
        return channel.send(&Message::Welcome { version, program: control::program() }, AGREEING).await;
    }
    let (oldest, newest) = VERSIONS;
    channel.send(&Message::Skew { oldest, newest, program: control::program() }, AGREEING).await?;
    Err(Error::Version { theirs, ours: VERSIONS, program })
}

/// Calls [`Carrier::tcp`] without blocking the runtime.
pub(crate) async fn made_ready(spec: &Spec, side: Role, connections: Vec<Connection>) -> Result<Carrier> {
    let spec = spec.clone();
    let made = tokio::task::spawn_blocking(move || Carrier::tcp(&spec, side, connections));
    Ok(made.await??)
}

/// Removes a run from the list on drop.
struct Unregister<'a> {
    runs: &'a RefCell<HashMap<Token, mpsc::UnboundedSender<Connection>>>,
    token: Token,
}

impl Drop for Unregister<'_> {
    fn drop(&mut self) {
        self.runs.borrow_mut().remove(&self.token);
    }
}

async fn expect_go(channel: &mut Channel) -> Result<()> {
    let doing = "waiting for the start";
    loop {
        match channel.expect(PATIENCE, doing).await? {
            Message::Go => return Ok(()),
            Message::Ping { asked_ns } => pong(channel, asked_ns).await?,
            other => return Err(channel.unexpected(&other, doing)),
        }
    }
}

async fn pong(channel: &mut Channel, asked_ns: u64) -> Result<()> {
    let came_ns = clock::now_ns();
    channel.send(&Message::Pong { asked_ns, came_ns, left_ns: clock::now_ns() }, "synchronising clocks").await
}

/// Makes the congestion control of the run available at this end: the kernel's, or Fathom's own for as long as the second
/// result is kept. An end that only receives needs none, so it is removed from the spec.
pub(crate) fn supply(spec: &Spec, side: Role) -> Result<(Spec, Option<cc::Registered>)> {
    let mut spec = spec.clone();
    if !spec.is_tcp() {
        return Ok((spec, None));
    }
    // Both ends of a transaction send.
    let sends = matches!(spec.traffic, Traffic::Transactions { .. }) || spec.directions.iter().any(|d| side.sends(*d));
    let name = spec.socket.congestion.take().filter(|_| sends);
    let supplied = name.as_deref().map(cc::ensure).transpose().map_err(Error::Congestion)?.flatten();
    spec.socket.congestion = name;
    Ok((spec, supplied))
}

/// Runs an end's traffic in threads, and serves the control connection meanwhile. If that connection ends, so does the run.
/// The watch can interrupt the client's run, which then notifies the other end.
pub(crate) async fn drive(
    channel: &mut Channel,
    spec: &Spec,
    side: Role,
    carrier: Carrier,
    watch: &Watch,
) -> Result<EndReport> {
    let stop = Arc::new(AtomicBool::new(false));
    // Also set when this future is dropped, since threads do not notice that.
    let _guard = StopOnDrop(stop.clone());
    let mut traffic = tokio::task::spawn_blocking({
        let (spec, stop, live) = (spec.clone(), stop.clone(), watch.live.clone());
        move || traffic::run(&spec, side, carrier, &stop, &live)
    });
    let longest = Duration::from_millis(spec.duration_ms) + IDLE;
    let ended = |source| Error::Task { doing: "the test failed: ", source };
    if side == Role::Client {
        // The client has nothing to receive before its own traffic is done.
        while !watch.interrupted.load(Ordering::Relaxed) {
            tokio::select! {
                report = &mut traffic => return report.map_err(ended),
                () = tokio::time::sleep(LOOK) => (),
            }
        }
        channel.send(&Message::Stop, "ending the run").await?;
        stop.store(true, Ordering::Relaxed);
        return traffic.await.map_err(ended);
    }
    let mut next = Box::pin(channel.next(longest, "running"));
    let report = tokio::select! {
        report = &mut traffic => report.map_err(ended)?,
        message = &mut next => match message {
            Ok(Some(Message::Stop)) => {
                stop.store(true, Ordering::Relaxed);
                (&mut traffic).await.map_err(ended)?
            }
            Ok(Some(other)) => {
                drop(next);
                return Err(channel.unexpected(&other, "running"));
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
pub(crate) struct Watch {
    pub interrupted: Arc<AtomicBool>,
    pub live: Arc<traffic::LiveCounters>,
}

/// How often to check for an interrupt.
const LOOK: Duration = Duration::from_millis(50);

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends a report, its samples first.
async fn give(channel: &mut Channel, mut report: EndReport) -> Result<()> {
    let doing = "sending the results";
    for sent in &mut report.sent {
        for (acks, samples) in [(false, std::mem::take(&mut sent.samples)), (true, std::mem::take(&mut sent.acks))] {
            for part in samples.chunks(SAMPLES_IN_FRAME) {
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
    socket::set(&SockRef::from(&socket), &spec.socket, false)?;
    Ok(socket)
}

/// Echoes announcements to their sender until the run begins; the first determines the peer.
fn answer_announcements(socket: &std::net::UdpSocket, token: &Token, go: &AtomicBool) -> Result<()> {
    let mut room = [0; 64];
    let mut known = false;
    let deadline = clock::now_ns() + 2 * PATIENCE.as_nanos() as u64;
    while !go.load(Ordering::Relaxed) && clock::now_ns() < deadline {
        // Peeked: any other packet may be the first of the run, to be received by its thread.
        let Ok((length, from)) = socket.peek_from(&mut room) else { continue };
        let words = room.get(..length).and_then(|w| w.strip_prefix(&DATA[..])).and_then(Announcement::parse);
        if words.is_some_and(|a| a.token == *token) {
            if !known {
                socket.connect(from).doing("connect the UDP socket")?;
                known = true;
            }
            let _ = socket.recv(&mut room);
            // If it is lost, the other end repeats its request.
            let _ = socket.send(&room[..length]);
        } else if known {
            return Ok(());
        } else {
            // A packet of a stranger.
            let _ = socket.recv(&mut room);
        }
    }
    if known { Ok(()) } else { Err(Error::NoUdp("no packet of the UDP run arrived".into())) }
}

fn fresh_token() -> Result<Token> {
    use std::io::Read as _;
    let mut token = Token::default();
    std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut token)).doing("draw a token")?;
    Ok(token)
}

fn describe(spec: &Spec) -> String {
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
