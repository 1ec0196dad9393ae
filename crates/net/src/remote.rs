//! Controls both ends of a run from this machine: each is this program on a device, managed by its agent. They get a key
//! made for this run only; here it is never stored in a file, on a device only in one that is removed with the agent.
//!
//! The server starts first and reports its address; the client gets that address, and its request ([`RunRequest`]). Its
//! measurement is returned unmodified ([`Handover`]), to be shown and stored. Whatever happens (an end dies, a device is
//! lost, the user interrupts), both ends are then released, and clean up.

use crate::link::{self, RoutedLink};
use crate::measure::{Handover, RunRequest};
use crate::spec::{Spec, Traffic};
use device::remote::{AgentLink, DeviceAddress, Event, Remark, Skew, Unreachable, program};
use model::{Context, Environment};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use wire::Key;

/// How often to check for an interrupt.
const LOOK: Duration = Duration::from_millis(100);
/// How long the server may take until it listens.
const READY: Duration = Duration::from_secs(30);
/// How long a server in a guest may take: an emulated CPU starts a program slowly.
const READY_IN_GUEST: Duration = Duration::from_secs(300);
/// How long one end may be silent after the other is gone.
const ALONE: Duration = Duration::from_secs(20);
/// The maximum size of a result, bytes: a device must not exhaust the memory here.
const MOST: usize = 4 << 30;
/// File names in the agents' directories.
const KEY: &str = "net.key";
const ASKED: &str = "asked.json";

/// Why a run between devices failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device, or the connection to it, failed.
    #[error(transparent)]
    Device(#[from] Unreachable),
    /// Creating a key failed.
    #[error(transparent)]
    Key(#[from] wire::KeyError),
    /// This program's own file was not found.
    #[error("cannot find Fathom's own binary: {0}")]
    Program(std::io::Error),
    /// The connection to an agent failed.
    #[error("cannot reach the agent on a device: {0}")]
    Pipe(#[from] std::io::Error),
    /// The link is not possible, or this machine does not permit it.
    #[error("{0}")]
    Link(std::io::Error),
    /// An agent could not do what was requested.
    #[error("{0}")]
    Agent(String),
    /// Listening on the port to forward to the server failed.
    #[error("cannot listen on {0} to forward to the guest: {1}")]
    NoForward(SocketAddrV4, std::io::Error),
    /// The server exited before it listened.
    #[error("{0} cannot run the server")]
    NoServer(DeviceAddress),
    /// The server listens, but its output is not an address.
    #[error("the server did not report its address: {0}")]
    NoAddress(std::net::AddrParseError),
    /// The server takes too long to listen.
    #[error("the server is not listening after {} s", .0.as_secs())]
    NotListening(Duration),
    /// Packets would bypass the link.
    #[error(transparent)]
    Fragmented(#[from] Fragmented),
    /// The server was lost; a client without it is useless.
    #[error("the server was lost; the client continues")]
    ServerLost,
    /// Both ends are gone.
    #[error("both ends were lost")]
    Lost,
    /// The client's output is not a result.
    #[error("on {0}: {1}")]
    HandOver(DeviceAddress, crate::Error),
    /// The result is too large.
    #[error("{0} sent a result that is too large")]
    TooLarge(DeviceAddress),
    /// The user interrupted before there was a result.
    #[error("interrupted; nothing was stored")]
    Interrupted,
}

/// Packets are fragmented, and only the first fragment has ports: the rules that route a run through the link do not match the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "packets of {packet} bytes are {} bytes with headers, over the link's MTU of {mtu}: they would be fragmented and \
     bypass the link; give --packet {} or less, or a link with a larger mtu",
    packet + heads, mtu.saturating_sub(*heads)
)]
pub struct Fragmented {
    packet: u32,
    heads: u32,
    mtu: u32,
}

/// Where the server listens.
#[derive(Debug, Clone, Copy)]
pub enum Listen<'a> {
    At(SocketAddr),
    /// At an interface's address, on a free port.
    On(&'a str),
    /// In a guest of the lab, on the port to which a port of this machine forwards; a free one for port 0.
    Forwarded(SocketAddrV4),
}

/// The address of this machine in a guest, in QEMU's user-mode network.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

/// Returns a port that is free at the moment.
fn free(at: SocketAddrV4) -> std::io::Result<SocketAddrV4> {
    let address = std::net::TcpListener::bind(at)?.local_addr()?;
    Ok(SocketAddrV4::new(*at.ip(), address.port()))
}

/// The server: started by this run, or already running.
#[derive(Debug, Clone, Copy)]
pub enum Server<'a> {
    /// Start it on a device.
    Start(&'a DeviceAddress, Listen<'a>),
    Stands(SocketAddr),
}

/// A run between devices.
#[derive(Debug)]
pub struct Job<'a> {
    /// Where the client runs.
    pub client: &'a DeviceAddress,
    /// Where the server is.
    pub server: Server<'a>,
    /// The server's key. A server started by this run gets a new key if there is none.
    pub key: Option<Key>,
    /// This program's binaries for devices of other architectures.
    pub binaries: &'a [PathBuf],
    /// The emulated link between the ends, on this machine.
    pub link: Option<&'a link::Spec>,
    pub spec: &'a Spec,
    /// See [`RunRequest`].
    pub interface: Option<&'a str>,
    /// See [`RunRequest`].
    pub highest: bool,
    /// See [`RunRequest`].
    pub progress: bool,
}

/// Progress of a run.
#[derive(Debug)]
pub enum Note<'a> {
    /// A sentence of this machine.
    Said(String),
    /// A piece of the client's stderr.
    Client(&'a [u8]),
}

/// An end of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    pub name: String,
    pub facts: Environment,
}

/// The outcome of a run between devices.
#[derive(Debug)]
pub struct Conducted {
    pub client: Endpoint,
    /// The server, if this run started it.
    pub server: Option<Endpoint>,
    /// The relation of the client's clock to this machine's, if it has its own.
    pub skew: Option<Skew>,
    /// The client's result, or its exit status if it failed; the client has printed the reason.
    pub result: Result<Handover, u8>,
    /// What the link did.
    pub link: Option<link::Outcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Client,
    Server,
}

/// Controls a run until `context` is cancelled. Then, and at the end of the run, the client reports its measurement.
///
/// # Errors
/// A device, an end or the link failed before there was a result.
pub fn run(job: &Job<'_>, context: &Context, tell: &mut dyn FnMut(Note<'_>)) -> Result<Conducted, Error> {
    let made = match (&job.key, job.server) {
        (None, Server::Start(..)) => Some(Key::generate()?),
        _ => None,
    };
    let key = job.key.as_ref().or(made.as_ref());
    let (sender, events) = channel();
    let mut reach = |end: End, address: &DeviceAddress| -> Result<AgentLink, Error> {
        let ours = std::env::current_exe().map_err(Error::Program)?;
        let said = std::cell::RefCell::new(&mut *tell);
        let deploying = |remark: Remark| said.borrow_mut()(Note::Said(remark.to_string()));
        let deployment = program::put(address, &ours, job.binaries, context, &deploying)?;
        let sender = sender.clone();
        let link = AgentLink::open(&deployment, context, move |event| drop(sender.send((end, event))))?;
        if let Some(key) = key {
            link.put(KEY, key.to_text().as_bytes())?;
        }
        Ok(link)
    };
    let mut forwarded = None;
    let server = match job.server {
        Server::Start(DeviceAddress::Lab(name), Listen::Forwarded(at)) => {
            let at = free(at).map_err(|why| Error::NoForward(at, why))?;
            forwarded = Some(at);
            Some(reach(End::Server, &DeviceAddress::Lab(format!("{name},forward={}:{}", at.ip(), at.port())))?)
        }
        Server::Start(address, _) => Some(reach(End::Server, address)?),
        Server::Stands(_) => None,
    };
    let client = reach(End::Client, job.client)?;
    let mut run = RemoteRun { job, context, events, client, server, forwarded, complaints: String::new(), left: None };
    let done = run.conduct(key.is_some(), tell);
    run.end(done, tell)
}

/// Checks whether packets of a run fit the link's MTU without fragmentation.
pub fn in_one_piece(spec: &Spec, to: SocketAddr, mtu: u32) -> Result<(), Fragmented> {
    let Traffic::Udp { packet_bytes: packet, .. } = spec.traffic else { return Ok(()) };
    // The headers of IP and UDP.
    let heads = if to.is_ipv4() { 28 } else { 48 };
    if packet + heads > mtu { Err(Fragmented { packet, heads, mtu }) } else { Ok(()) }
}

struct RemoteRun<'a> {
    job: &'a Job<'a>,
    context: &'a Context,
    events: Receiver<(End, Event)>,
    client: AgentLink,
    server: Option<AgentLink>,
    /// This machine's port that forwards to the server's.
    forwarded: Option<SocketAddrV4>,
    /// The server's output; shown if something fails.
    complaints: String,
    /// Since when one end is gone, and the other silent.
    left: Option<Instant>,
}

impl RemoteRun<'_> {
    fn conduct(&mut self, key: bool, tell: &mut dyn FnMut(Note<'_>)) -> Result<Conducted, Error> {
        let address = match (self.job.server, &self.server) {
            (Server::Start(place, listen), Some(server)) => {
                let mut argv = vec![server.deployment().program.clone()];
                argv.extend(["net", "serve", "--hosted", "--once", "--key", KEY].map(String::from));
                argv.extend(match listen {
                    Listen::Forwarded(at) => {
                        let port = self.forwarded.unwrap_or(at).port();
                        ["--listen".into(), SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).to_string()]
                    }
                    Listen::At(address) => ["--listen".into(), address.to_string()],
                    Listen::On(interface) => ["--interface".into(), interface.to_string()],
                });
                server.start(&argv)?;
                let listens = self.ready(place)?;
                match (self.forwarded, self.job.client) {
                    (None, _) => listens,
                    // A guest on the same machine uses the same port.
                    (Some(at), DeviceAddress::Lab(_)) if at.ip().is_loopback() => {
                        SocketAddrV4::new(HOST, at.port()).into()
                    }
                    (Some(at), _) => at.into(),
                }
            }
            (Server::Stands(address), _) => address,
            (Server::Start(place, _), None) => return Err(Error::NoServer(place.clone())),
        };
        if let Some(link) = self.job.link {
            in_one_piece(self.job.spec, address, link.mtu())?;
        }
        let between = self.job.link.map(|link| RoutedLink::create(link, address)).transpose().map_err(Error::Link)?;
        let asked = RunRequest {
            address,
            key: key.then(|| KEY.into()),
            interface: self.job.interface.map(String::from),
            spec: self.job.spec.clone(),
            highest: self.job.highest,
            progress: self.job.progress,
        };
        self.client.put(ASKED, &serde_json::to_vec(&asked).map_err(std::io::Error::from)?)?;
        let one = |link: &AgentLink| Endpoint {
            name: link.deployment().place.to_string(),
            facts: device::collect(link, None),
        };
        let (client, server) = (one(&self.client), self.server.as_ref().map(one));
        // Other clients share this machine's clock.
        let own_clock =
            matches!(self.job.client, DeviceAddress::Ssh(..) | DeviceAddress::Adb(_) | DeviceAddress::Lab(_));
        let skew = if own_clock { self.client.skew() } else { None };
        let program = self.client.deployment().program.clone();
        self.client.start(&[program, "net".into(), "measure".into(), ASKED.into()])?;
        let (status, said) = self.follow(tell)?;
        let link = between.map(RoutedLink::finish);
        let result = match status {
            0 => Ok(Handover::parse(&said).map_err(|why| Error::HandOver(self.job.client.clone(), why))?),
            // A command ended by a signal.
            status => Err(u8::try_from(if status < 0 { 128 - status } else { status }).unwrap_or(1)),
        };
        Ok(Conducted { client, server, skew, result, link })
    }

    /// The address on which the server listens.
    fn ready(&mut self, place: &DeviceAddress) -> Result<SocketAddr, Error> {
        let begun = Instant::now();
        let mut said = Vec::new();
        loop {
            match self.events.recv_timeout(LOOK) {
                Ok((_, Event::Gone(why))) => return Err(why.into()),
                Ok((_, Event::Done(Err(why)))) => return Err(Error::Agent(why)),
                Ok((_, Event::Out(bytes))) => said.extend(bytes),
                Ok((_, Event::Err(bytes))) => self.complaints += &String::from_utf8_lossy(&bytes),
                Ok((_, Event::Exit(_))) => return Err(Error::NoServer(place.clone())),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Lost),
            }
            if let Some(line) = said.split_inclusive(|b| *b == b'\n').next().filter(|l| l.ends_with(b"\n")) {
                return String::from_utf8_lossy(line).trim().parse().map_err(Error::NoAddress);
            }
            if self.context.cancelled() {
                return Err(Error::Interrupted);
            }
            let limit = if self.forwarded.is_some() { READY_IN_GUEST } else { READY };
            if begun.elapsed() > limit {
                return Err(Error::NotListening(limit));
            }
        }
    }

    /// Passes on the client's stderr until it exits; returns its exit status and its result.
    fn follow(&mut self, tell: &mut dyn FnMut(Note<'_>)) -> Result<(i32, Vec<u8>), Error> {
        let (mut deploying, mut said) = (false, Vec::new());
        loop {
            if self.context.cancelled() && !deploying {
                deploying = true;
                self.client.signal(libc::SIGINT as u8)?;
            }
            if self.left.is_some_and(|since| since.elapsed() > ALONE) {
                return Err(Error::ServerLost);
            }
            match self.events.recv_timeout(LOOK) {
                // The client notices by itself, and reports what it has measured.
                Ok((End::Server, Event::Gone(why))) => {
                    self.complaints += &format!("fathom: {why}\n");
                    self.left.get_or_insert_with(Instant::now);
                }
                Ok((End::Server, Event::Exit(_))) => drop(self.left.get_or_insert_with(Instant::now)),
                Ok((End::Server, Event::Err(bytes))) => self.complaints += &String::from_utf8_lossy(&bytes),
                Ok((End::Client, Event::Out(bytes))) => {
                    said.extend(bytes);
                    if said.len() > MOST {
                        return Err(Error::TooLarge(self.job.client.clone()));
                    }
                    // A long result over a slow connection: the client is not silent.
                    self.left = self.left.map(|_| Instant::now());
                }
                Ok((End::Client, Event::Err(bytes))) => tell(Note::Client(&bytes)),
                Ok((End::Client, Event::Exit(status))) => return Ok((status, said)),
                Ok((End::Client, Event::Gone(why))) => return Err(why.into()),
                Ok((_, Event::Done(Err(why)))) => return Err(Error::Agent(why)),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Lost),
            }
        }
    }

    fn end(self, done: Result<Conducted, Error>, tell: &mut dyn FnMut(Note<'_>)) -> Result<Conducted, Error> {
        let well = done.as_ref().is_ok_and(|done| match &done.result {
            Ok(handed) => handed.measured.outcome.own.trouble.is_none(),
            Err(status) => *status == 130,
        });
        if let (false, Server::Start(place, _)) = (well, self.job.server) {
            for line in self.complaints.lines() {
                tell(Note::Said(format!("{place}: {}", line.trim_start_matches("fathom: "))));
            }
        }
        for link in [Some(self.client), self.server].into_iter().flatten() {
            let place = link.deployment().place.clone();
            if !link.close() {
                tell(Note::Said(Remark::NotCleaned(place).to_string()));
            }
        }
        if done.is_err() && self.context.cancelled() { Err(Error::Interrupted) } else { done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Direction, Readings, SocketOptions};

    #[test]
    fn packets_that_would_be_fragmented_are_refused() {
        let (v4, v6) = ("192.0.2.7:7100".parse().unwrap(), "[2001:db8::7]:7100".parse().unwrap());
        let udp = |packet_bytes| Traffic::Udp { rate_bps: 1_000_000, packet_bytes };
        for (traffic, to, mtu, fits) in [
            (udp(1472), v4, 1500, true),
            (udp(1473), v4, 1500, false),
            (udp(1400), v4, 1280, false),
            (udp(1470), v4, 1500, true),
            (udp(1470), v6, 1500, false),
            (Traffic::Tcp { rate_bps: None }, v4, 1280, true),
        ] {
            let spec = Spec {
                traffic,
                directions: vec![Direction::Up],
                streams: 1,
                duration_ms: 1000,
                socket: SocketOptions::default(),
                copy: false,
                probe: false,
                readings: Readings::All,
            };
            assert_eq!(in_one_piece(&spec, to, mtu).is_ok(), fits, "{traffic:?} to {to}");
        }
        let why = Fragmented { packet: 1473, heads: 28, mtu: 1500 }.to_string();
        assert!(why.contains("are 1501 bytes with headers") && why.contains("--packet 1472"), "{why}");
    }
}
