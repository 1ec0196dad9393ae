//! The client: connects, agrees on a version, opens the data connections, takes part in the traffic, and collects the
//! measurements of both ends.

use crate::control::{
    self, Announcement, CONTROL_MAGIC, Channel, DATA_MAGIC, Message, PEER_TIMEOUT, PROTOCOL_VERSIONS, Token,
};
use crate::error::OperationContext as _;
use crate::offset::{self, Exchange};
use crate::outcome::EndReport;
use crate::rate_check::TrialVerdict;
use crate::spec::{Direction, READINGS_MAX, Spec};
use crate::traffic::{self, Carrier, Connection, Role, packet};
use crate::{Error, Result, clock, probe, serve, socket};
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

/// The number of clock exchanges before and after a run.
const CLOCK_EXCHANGE_COUNT: usize = 20;

/// A connection to a server.
#[derive(Debug)]
pub struct Session {
    channel: Channel,
    address: SocketAddr,
    interface: Option<String>,
    /// Name and version of the other end.
    pub program: String,
    exchanges: Vec<Exchange>,
    watch: serve::RunHandle,
}

/// The result of a run: the measurements of both ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub spec: Spec,
    /// The client's report.
    pub own: EndReport,
    /// The server's report.
    pub other: EndReport,
    /// The relation of both clocks.
    pub clock: Option<offset::ClockOffset>,
    /// For UDP at the highest rate of a search: what stopped the search.
    pub searched: Option<TrialVerdict>,
}

impl Outcome {
    /// The sender's measurements of a direction.
    pub fn sent(&self, direction: Direction) -> Option<&crate::outcome::SentDirection> {
        self.sender(direction).sent(direction)
    }

    /// The receiver's measurements of a direction.
    pub fn received(&self, direction: Direction) -> Option<&crate::outcome::ReceivedDirection> {
        self.receiver(direction).received(direction)
    }

    /// The end that sends in a direction.
    pub fn sender(&self, direction: Direction) -> &EndReport {
        if Role::Client.sends(direction) { &self.own } else { &self.other }
    }

    /// The end that receives in a direction.
    pub fn receiver(&self, direction: Direction) -> &EndReport {
        if Role::Client.sends(direction) { &self.other } else { &self.own }
    }
}

impl Session {
    /// Connects to a server. Must run in a tokio runtime.
    ///
    /// # Errors
    /// The variants of [`Error`] for connections, keys and versions.
    pub async fn connect(address: SocketAddr, key: Option<&wire::Key>, interface: Option<&str>) -> Result<Self> {
        let socket = socket::create(address, &Default::default(), interface, false)?;
        socket.set_nonblocking(true).doing("prepare the control connection")?;
        let socket = tokio::net::TcpSocket::from_std_stream(socket.into());
        let unreachable = |source| Error::Unreachable { address, source };
        let stream = match tokio::time::timeout(PEER_TIMEOUT, socket.connect(address)).await {
            Ok(connected) => connected.map_err(unreachable)?,
            Err(_) => return Err(unreachable(std::io::ErrorKind::TimedOut.into())),
        };
        // A message is one packet, and must not wait for another.
        let _ = stream.set_nodelay(true);
        let mut stream = wire::connect(key, stream).await.map_err(Error::Key)?;
        stream.write_all(CONTROL_MAGIC).await.doing("identify the connection")?;
        let mut channel = Channel::new(Box::new(stream), address);
        let doing = "agreeing on a version (is that the address of `fathom net serve`?)";
        let (oldest, newest) = PROTOCOL_VERSIONS;
        channel.send(&Message::Hello { oldest, newest, program: control::program_version() }, doing).await?;
        let program = match channel.require(PEER_TIMEOUT, doing).await? {
            Message::Welcome { version, program } if (oldest..=newest).contains(&version) => program,
            Message::Skew { oldest, newest, program } => {
                return Err(Error::Version { theirs: (oldest, newest), ours: PROTOCOL_VERSIONS, program });
            }
            other => return Err(channel.unexpected_message(&other, doing)),
        };
        let interface = interface.map(str::to_string);
        Ok(Self { channel, address, interface, program, exchanges: Vec::new(), watch: serve::RunHandle::default() })
    }

    /// Once this is set, the current run ends at both ends and keeps its measurements, and no other starts.
    pub fn interrupter(&self) -> Arc<AtomicBool> {
        self.watch.interrupted.clone()
    }

    /// The amount transferred so far in the current run, as measured by this end.
    pub fn live(&self) -> Arc<traffic::LiveCounters> {
        self.watch.live.clone()
    }

    /// Runs `spec`.
    ///
    /// # Errors
    /// [`Error::Refused`] if the server rejects it; any failure during the run.
    pub async fn run(&mut self, spec: &Spec) -> Result<Outcome> {
        spec.check()?;
        if self.watch.interrupted.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let (own_spec, _supplied) = serve::supply_congestion_control(spec, Role::Client)?;
        if spec.probe && spec.directions.iter().any(|d| Role::Client.sends(*d)) {
            crate::probe::check_support()?;
        }
        self.exchanges.clear();
        self.exchange_clocks(CLOCK_EXCHANGE_COUNT).await?;
        self.channel.send(&Message::Start { spec: spec.clone() }, "requesting a run").await?;
        let token = self.receive_token("requesting a run").await?;
        let carrier = if spec.is_tcp() {
            let connections = self.connect_data(&own_spec, token).await?;
            self.receive_token("waiting for all data connections").await?;
            serve::prepare_carrier(spec, Role::Client, connections).await?
        } else {
            self.connect_udp(spec, token).await?
        };
        self.channel.send(&Message::Go, "beginning").await?;
        let mut own = serve::drive_traffic(&mut self.channel, spec, Role::Client, carrier, &self.watch).await?;
        let other = self.collect_report(spec).await?;
        self.exchange_clocks(CLOCK_EXCHANGE_COUNT).await?;
        let clock = offset::relate_clocks(own.clock.as_deref().zip(other.clock.as_deref()), &self.exchanges);
        own.trouble = own.trouble.or_else(|| other.trouble.as_ref().map(|t| format!("at the other end: {t}")));
        if self.watch.interrupted.load(Ordering::Relaxed) {
            // The end that was notified last saw its connections break, as intended.
            own.trouble = None;
        }
        Ok(Outcome { spec: spec.clone(), own, other, clock, searched: None })
    }

    async fn receive_token(&mut self, doing: &'static str) -> Result<Token> {
        match self.channel.require(PEER_TIMEOUT, doing).await? {
            Message::Ready { token } => {
                control::parse_token(&token).ok_or_else(|| Error::Protocol("an invalid token".into(), self.address))
            }
            other => Err(self.channel.unexpected_message(&other, doing)),
        }
    }

    async fn exchange_clocks(&mut self, times: usize) -> Result<()> {
        let doing = "comparing clocks";
        for _ in 0..times {
            self.channel.send(&Message::Ping { asked_ns: clock::now_ns() }, doing).await?;
            match self.channel.require(PEER_TIMEOUT, doing).await? {
                Message::Pong { asked_ns, came_ns, left_ns } => {
                    self.exchanges.push(Exchange {
                        sent_ns: asked_ns,
                        arrived_ns: came_ns,
                        answered_ns: left_ns,
                        returned_ns: clock::now_ns(),
                    });
                }
                other => return Err(self.channel.unexpected_message(&other, doing)),
            }
        }
        Ok(())
    }

    async fn connect_data(&self, spec: &Spec, token: Token) -> Result<Vec<Connection>> {
        let mut connections = Vec::new();
        for direction in &spec.directions {
            for stream in 0..spec.streams {
                let announcement = Announcement { token, direction: *direction, stream };
                let socket = socket::create(self.address, &spec.socket, self.interface.as_deref(), false)?;
                let address = self.address;
                // Connecting takes a round trip; it must not block a single-threaded runtime.
                let connected = tokio::task::spawn_blocking(move || {
                    socket.connect_timeout(&address.into(), PEER_TIMEOUT)?;
                    let mut stream: std::net::TcpStream = socket.into();
                    stream.write_all(&announcement.encoded())?;
                    Ok(stream)
                });
                let connected = connected.await?;
                let stream = connected.map_err(|source| Error::Unreachable { address, source })?;
                connections.push(Connection { announcement, stream });
            }
        }
        Ok(connections)
    }

    async fn connect_udp(&self, spec: &Spec, token: Token) -> Result<Carrier> {
        let address = self.address;
        let socket = socket::create(address, &spec.socket, self.interface.as_deref(), true)?;
        let own_buffer = spec.socket.receive_buffer.is_none();
        let met = tokio::task::spawn_blocking(move || {
            socket.connect(&address.into()).map_err(|source| Error::Unreachable { address, source })?;
            let socket: std::net::UdpSocket = socket.into();
            socket.set_read_timeout(Some(Duration::from_millis(20))).doing("prepare the UDP socket")?;
            let announcement = Announcement { token, direction: Direction::Up, stream: 0 }.encoded();
            debug_assert_eq!(&announcement[..8], DATA_MAGIC);
            let mut buffer = [0; 64];
            let deadline = clock::now_ns() + PEER_TIMEOUT.as_nanos() as u64;
            while clock::now_ns() < deadline {
                // A lost or rejected packet is sent again.
                let _ = socket.send(&announcement);
                if socket.recv(&mut buffer).is_ok_and(|n| buffer.get(..n) == Some(&announcement[..])) {
                    traffic::prepare_socket(&socket, own_buffer).doing("prepare the UDP socket")?;
                    return Ok(Carrier::Udp { socket, run: packet::run_id(&token) });
                }
            }
            Err(Error::NoUdp(format!(
                "TCP reaches {address}, but no UDP packet returned within {} s: a firewall may block UDP",
                PEER_TIMEOUT.as_secs()
            )))
        });
        met.await?
    }

    /// Receives the report of the other end.
    async fn collect_report(&mut self, spec: &Spec) -> Result<EndReport> {
        let doing = "waiting for the other end's results";
        let (mut samples, mut acks) = (Vec::new(), Vec::new());
        loop {
            match self.channel.require(PEER_TIMEOUT + Duration::from_secs(5), doing).await? {
                Message::Samples { direction, acks: of_acks, samples: part } if spec.has_direction(direction) => {
                    let (to, most) = if of_acks {
                        (&mut acks, probe::ACKS_MAX)
                    } else {
                        // With a margin for a run that ends late.
                        (&mut samples, 2 * READINGS_MAX as usize)
                    };
                    if to.len() + part.len() > most {
                        return Err(Error::Protocol("more samples than a run can have".into(), self.address));
                    }
                    to.extend(part);
                }
                Message::Report { report } => {
                    let mut report = *report;
                    // The other end sends in at most one direction.
                    if let Some(sent) = report.sent.first_mut() {
                        (sent.samples, sent.acks) = (samples, acks);
                    }
                    return Ok(report);
                }
                other => return Err(self.channel.unexpected_message(&other, doing)),
            }
        }
    }
}
