//! Controls both ends of a run from this machine: each is this program on a device, managed by its agent. They get a key
//! made for this run only; here it is never stored in a file, on a device only in one that is removed with the agent.
//!
//! The server starts first and reports its address; the client gets that address, and its request ([`RunRequest`]). Its
//! measurement is returned unmodified ([`Handover`]), to be shown and stored. Whatever happens (an end dies, a device is
//! lost, the user interrupts), both ends are then released, and clean up.

use crate::link::{self, RoutedLink};
use crate::measure::{Handover, RunRequest};
use crate::spec::{Spec, Traffic};
use crate::{probe, spec};
use device::remote::{AgentLink, DeviceAddress, Event, Remark, Skew, Unreachable, program};
use model::{Context, Environment};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use wire::Key;

/// How often to check for an interrupt.
const INTERRUPT_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long the server may take until it listens.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a server in a guest may take: an emulated CPU starts a program slowly.
const GUEST_LISTEN_TIMEOUT: Duration = Duration::from_secs(300);
/// How long one end may be silent after the other is gone.
const LONE_END_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum size of a result, bytes: a device must not exhaust the memory here. A run in both directions has the samples of two ends,
/// [`spec::READINGS_MAX`] and [`probe::ACKS_MAX`] of each.
const RESULT_BYTES_MAX: usize = 640 << 20;
const _: () = assert!(
    RESULT_BYTES_MAX
        >= 2 * (spec::READINGS_MAX as usize + probe::ACKS_MAX) * spec::SAMPLE_JSON_BYTES + SAMPLES_REST_BYTES
);
/// What a result has besides samples, among it the receivers' unread bytes.
const SAMPLES_REST_BYTES: usize = 64 << 20;
/// File names in the agents' directories.
const KEY_FILE_NAME: &str = "net.key";
const REQUEST_FILE_NAME: &str = "asked.json";

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
    Fragmented(#[from] FragmentationError),
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
pub struct FragmentationError {
    packet: u32,
    heads: u32,
    mtu: u32,
}

/// Where the server listens.
#[derive(Debug, Clone, Copy)]
pub enum ListenAddress<'a> {
    Address(SocketAddr),
    /// At an interface's address, on a free port.
    Interface(&'a str),
    /// In a guest of the lab, on the port to which a port of this machine forwards; a free one for port 0.
    Forwarded(SocketAddrV4),
}

/// The address of this machine in a guest, in QEMU's user-mode network.
const HOST_ADDRESS_IN_GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

/// Returns a port that is free at the moment.
fn free_port(at: SocketAddrV4) -> std::io::Result<SocketAddrV4> {
    let address = std::net::TcpListener::bind(at)?.local_addr()?;
    Ok(SocketAddrV4::new(*at.ip(), address.port()))
}

/// The server: started by this run, or already running.
#[derive(Debug, Clone, Copy)]
pub enum Server<'a> {
    /// Start it on a device.
    Start(&'a DeviceAddress, ListenAddress<'a>),
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
    Message(String),
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
pub struct RemoteOutcome {
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
pub fn run(job: &Job<'_>, context: &Context, tell: &mut dyn FnMut(Note<'_>)) -> Result<RemoteOutcome, Error> {
    let generated_key = match (&job.key, job.server) {
        (None, Server::Start(..)) => Some(Key::generate()?),
        _ => None,
    };
    let key = job.key.as_ref().or(generated_key.as_ref());
    let (sender, events) = channel();
    let mut connect_agent = |end: End, address: &DeviceAddress| -> Result<AgentLink, Error> {
        let ours = std::env::current_exe().map_err(Error::Program)?;
        let teller = std::cell::RefCell::new(&mut *tell);
        let deploying = |remark: Remark| teller.borrow_mut()(Note::Message(remark.to_string()));
        let deployment = program::deploy(address, &ours, job.binaries, context, &deploying)?;
        let sender = sender.clone();
        let link = AgentLink::open(&deployment, context, move |event| drop(sender.send((end, event))))?;
        if let Some(key) = key {
            link.put(KEY_FILE_NAME, key.to_text().as_bytes())?;
        }
        Ok(link)
    };
    let mut forwarded = None;
    let server = match job.server {
        Server::Start(DeviceAddress::Lab(name), ListenAddress::Forwarded(at)) => {
            let at = free_port(at).map_err(|why| Error::NoForward(at, why))?;
            forwarded = Some(at);
            Some(connect_agent(End::Server, &DeviceAddress::Lab(format!("{name},forward={}:{}", at.ip(), at.port())))?)
        }
        Server::Start(address, _) => Some(connect_agent(End::Server, address)?),
        Server::Stands(_) => None,
    };
    let client = connect_agent(End::Client, job.client)?;
    let mut run =
        RemoteRun { job, context, events, client, server, forwarded, server_stderr: String::new(), lone_since: None };
    let done = run.conduct(key.is_some(), tell);
    run.release(done, tell)
}

/// Checks whether packets of a run fit the link's MTU without fragmentation.
pub fn check_fragmentation(spec: &Spec, to: SocketAddr, mtu: u32) -> Result<(), FragmentationError> {
    let Traffic::Udp { packet_bytes: packet, .. } = spec.traffic else { return Ok(()) };
    // The headers of IP and UDP.
    let heads = if to.is_ipv4() { 28 } else { 48 };
    if packet + heads > mtu { Err(FragmentationError { packet, heads, mtu }) } else { Ok(()) }
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
    server_stderr: String,
    /// Since when one end is gone, and the other silent.
    lone_since: Option<Instant>,
}

impl RemoteRun<'_> {
    fn conduct(&mut self, has_key: bool, tell: &mut dyn FnMut(Note<'_>)) -> Result<RemoteOutcome, Error> {
        let address = match (self.job.server, &self.server) {
            (Server::Start(place, listen), Some(server)) => {
                let mut argv = vec![server.deployment().program.clone()];
                argv.extend(["net", "serve", "--hosted", "--once", "--key", KEY_FILE_NAME].map(String::from));
                argv.extend(match listen {
                    ListenAddress::Forwarded(at) => {
                        let port = self.forwarded.unwrap_or(at).port();
                        ["--listen".into(), SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).to_string()]
                    }
                    ListenAddress::Address(address) => ["--listen".into(), address.to_string()],
                    ListenAddress::Interface(interface) => ["--interface".into(), interface.to_string()],
                });
                server.start(&argv)?;
                let listens = self.await_listening(place)?;
                match (self.forwarded, self.job.client) {
                    (None, _) => listens,
                    // A guest on the same machine uses the same port.
                    (Some(at), DeviceAddress::Lab(_)) if at.ip().is_loopback() => {
                        SocketAddrV4::new(HOST_ADDRESS_IN_GUEST, at.port()).into()
                    }
                    (Some(at), _) => at.into(),
                }
            }
            (Server::Stands(address), _) => address,
            (Server::Start(place, _), None) => return Err(Error::NoServer(place.clone())),
        };
        if let Some(link) = self.job.link {
            check_fragmentation(self.job.spec, address, link.mtu())?;
        }
        let routed_link =
            self.job.link.map(|link| RoutedLink::create(link, address)).transpose().map_err(Error::Link)?;
        let request = RunRequest {
            address,
            key: has_key.then(|| KEY_FILE_NAME.into()),
            interface: self.job.interface.map(String::from),
            spec: self.job.spec.clone(),
            highest: self.job.highest,
            progress: self.job.progress,
        };
        self.client.put(REQUEST_FILE_NAME, &serde_json::to_vec(&request).map_err(std::io::Error::from)?)?;
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
        self.client.start(&[program, "net".into(), "measure".into(), REQUEST_FILE_NAME.into()])?;
        let (status, stdout) = self.follow_client(tell)?;
        let link = routed_link.map(RoutedLink::finish);
        let result = match status {
            0 => Ok(Handover::parse(&stdout).map_err(|why| Error::HandOver(self.job.client.clone(), why))?),
            // A command ended by a signal.
            status => Err(u8::try_from(if status < 0 { 128 - status } else { status }).unwrap_or(1)),
        };
        Ok(RemoteOutcome { client, server, skew, result, link })
    }

    /// The address on which the server listens.
    fn await_listening(&mut self, place: &DeviceAddress) -> Result<SocketAddr, Error> {
        let begun = Instant::now();
        let mut stdout = Vec::new();
        loop {
            match self.events.recv_timeout(INTERRUPT_CHECK_INTERVAL) {
                Ok((_, Event::Gone(why))) => return Err(why.into()),
                Ok((_, Event::Done(Err(why)))) => return Err(Error::Agent(why)),
                Ok((_, Event::Out(bytes))) => stdout.extend(bytes),
                Ok((_, Event::Err(bytes))) => self.server_stderr += &String::from_utf8_lossy(&bytes),
                Ok((_, Event::Exit(_))) => return Err(Error::NoServer(place.clone())),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Lost),
            }
            if let Some(line) = stdout.split_inclusive(|b| *b == b'\n').next().filter(|l| l.ends_with(b"\n")) {
                return String::from_utf8_lossy(line).trim().parse().map_err(Error::NoAddress);
            }
            if self.context.cancelled() {
                return Err(Error::Interrupted);
            }
            let limit = if self.forwarded.is_some() { GUEST_LISTEN_TIMEOUT } else { LISTEN_TIMEOUT };
            if begun.elapsed() > limit {
                return Err(Error::NotListening(limit));
            }
        }
    }

    /// Passes on the client's stderr until it exits; returns its exit status and its result.
    fn follow_client(&mut self, tell: &mut dyn FnMut(Note<'_>)) -> Result<(i32, Vec<u8>), Error> {
        let (mut interrupted, mut stdout) = (false, Vec::new());
        loop {
            if self.context.cancelled() && !interrupted {
                interrupted = true;
                self.client.signal(libc::SIGINT as u8)?;
            }
            if self.lone_since.is_some_and(|since| since.elapsed() > LONE_END_TIMEOUT) {
                return Err(Error::ServerLost);
            }
            match self.events.recv_timeout(INTERRUPT_CHECK_INTERVAL) {
                // The client notices by itself, and reports what it has measured.
                Ok((End::Server, Event::Gone(why))) => {
                    self.server_stderr += &format!("fathom: {why}\n");
                    self.lone_since.get_or_insert_with(Instant::now);
                }
                Ok((End::Server, Event::Exit(_))) => drop(self.lone_since.get_or_insert_with(Instant::now)),
                Ok((End::Server, Event::Err(bytes))) => self.server_stderr += &String::from_utf8_lossy(&bytes),
                Ok((End::Client, Event::Out(bytes))) => {
                    stdout.extend(bytes);
                    if stdout.len() > RESULT_BYTES_MAX {
                        return Err(Error::TooLarge(self.job.client.clone()));
                    }
                    // A long result over a slow connection: the client is not silent.
                    self.lone_since = self.lone_since.map(|_| Instant::now());
                }
                Ok((End::Client, Event::Err(bytes))) => tell(Note::Client(&bytes)),
                Ok((End::Client, Event::Exit(status))) => return Ok((status, stdout)),
                Ok((End::Client, Event::Gone(why))) => return Err(why.into()),
                Ok((_, Event::Done(Err(why)))) => return Err(Error::Agent(why)),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Lost),
            }
        }
    }

    fn release(
        self,
        done: Result<RemoteOutcome, Error>,
        tell: &mut dyn FnMut(Note<'_>),
    ) -> Result<RemoteOutcome, Error> {
        let succeeded = done.as_ref().is_ok_and(|done| match &done.result {
            Ok(handed) => handed.measured.outcome.own.trouble.is_none(),
            Err(status) => *status == 130,
        });
        if let (false, Server::Start(place, _)) = (succeeded, self.job.server) {
            for line in self.server_stderr.lines() {
                tell(Note::Message(format!("{place}: {}", line.trim_start_matches("fathom: "))));
            }
        }
        for link in [Some(self.client), self.server].into_iter().flatten() {
            let place = link.deployment().place.clone();
            if !link.close() {
                tell(Note::Message(Remark::NotCleaned(place).to_string()));
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
            assert_eq!(check_fragmentation(&spec, to, mtu).is_ok(), fits, "{traffic:?} to {to}");
        }
        let why = FragmentationError { packet: 1473, heads: 28, mtu: 1500 }.to_string();
        assert!(why.contains("are 1501 bytes with headers") && why.contains("--packet 1472"), "{why}");
    }
}
