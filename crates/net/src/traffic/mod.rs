//! Sends and receives the traffic: threads with blocking sockets, one per connection, so that there is no layer between the
//! program and the kernel. Their measurements are an [`EndReport`](crate::outcome::EndReport).

mod order;
pub mod packet;
mod tcp;
mod transactions;
mod udp;

use crate::control::Announcement;
use crate::outcome::EndReport;
use crate::probe::{Probe, ProbeError};
use crate::spec::{Direction, Spec, THROUGHPUT_INTERVAL_NS, Traffic};
use crate::{clock, socket, usage};
use socket2::SockRef;
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The sockets of a run.
#[derive(Debug)]
pub enum Carrier {
    Tcp {
        /// One connection per stream and direction.
        connections: Vec<Connection>,
        /// One probe for each direction that this end sends, with `--tcp-probe`.
        probes: Vec<(Direction, Probe)>,
    },
    /// UDP: a socket connected to that of the other end.
    Udp {
        /// The socket, [prepared](prepare_socket).
        socket: UdpSocket,
        /// The run's identifier in its packets.
        run: u64,
    },
}

impl Carrier {
    /// Prepares TCP connections, including all slow setup, so that both ends begin at the same time. Blocks: the kernel may
    /// take seconds to set up its tracing.
    pub fn tcp(spec: &Spec, side: Role, connections: Vec<Connection>) -> Result<Self, ProbeError> {
        let probe = |direction: &Direction| {
            let own = connections.iter().filter(|c| c.announcement.direction == *direction);
            let cookies = own.map(|c| socket::granted_settings(&SockRef::from(&c.stream), true).cookie).collect();
            Ok((*direction, Probe::start(cookies)?))
        };
        let sent = spec.directions.iter().filter(|d| spec.probe && side.sends(**d));
        let probes = sent.map(probe).collect::<Result<_, ProbeError>>()?;
        Ok(Self::Tcp { connections, probes })
    }
}

/// A data connection and its role in the run.
#[derive(Debug)]
pub struct Connection {
    /// Its direction and stream.
    pub announcement: Announcement,
    /// The connection, blocking.
    pub stream: TcpStream,
}

pub use udp::prepare_socket;

/// Which end this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The end that requested the run.
    Client,
    Server,
}

impl Role {
    /// Whether this end sends in this direction.
    pub fn sends(self, direction: Direction) -> bool {
        (self == Self::Client) == (direction == Direction::Up)
    }
}

/// The amount transferred so far, for progress output: bytes per direction, or transactions. At the receiving end the bytes
/// that arrived; at the sending end those acknowledged according to TCP, or passed to the kernel for UDP.
#[derive(Debug, Default)]
pub struct LiveCounters {
    up: AtomicU64,
    down: AtomicU64,
    under_way: AtomicBool,
}

impl LiveCounters {
    /// Whether data still flows: an interval that extends past the end of the run yields no rate.
    pub fn is_running(&self) -> bool {
        self.under_way.load(Ordering::Relaxed)
    }

    /// The amount in a direction, since the beginning of the current run.
    pub fn amount(&self, direction: Direction) -> u64 {
        self.counter(direction).load(Ordering::Relaxed)
    }

    fn counter(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    fn set(&self, direction: Direction, amount: u64) {
        self.counter(direction).store(amount, Ordering::Relaxed);
    }
}

/// Runs one end from now until its time is over, or until `stop` is set. Blocks.
pub fn run(spec: &Spec, side: Role, carrier: Carrier, stop: &AtomicBool, live: &LiveCounters) -> EndReport {
    live.set(Direction::Up, 0);
    live.set(Direction::Down, 0);
    live.under_way.store(true, Ordering::Relaxed);
    let before = usage::CpuSnapshot::now();
    clock::request_exact_timers();
    let mut report = match (spec.traffic, carrier) {
        (Traffic::Transactions { request_bytes, response_bytes }, Carrier::Tcp { connections, .. }) => {
            transactions::run(spec, side, (request_bytes as usize, response_bytes as usize), connections, stop, live)
        }
        (Traffic::Udp { rate_bps, packet_bytes }, Carrier::Udp { socket, run }) => {
            udp::run(spec, side, (rate_bps, packet_bytes), (&socket, run), stop, live)
        }
        (Traffic::Tcp { rate_bps }, Carrier::Tcp { connections, probes }) => {
            tcp::run(spec, side, rate_bps, (connections, probes), stop, live)
        }
        _ => EndReport { trouble: Some("the carrier does not fit the traffic".into()), ..EndReport::default() },
    };
    report.machine = usage::CpuSnapshot::now().since(&before);
    report.settings = socket::kernel_settings();
    report.clock = clock::name();
    report
}

/// The time of a run at one end, divided into intervals.
struct RunClock<'a> {
    start_ns: u64,
    end_ns: u64,
    stop: &'a AtomicBool,
    live: &'a LiveCounters,
    /// Set by a thread whose connection broke.
    broken: AtomicBool,
    /// Set when the time is over: a connection that breaks now has ended normally.
    over: AtomicBool,
    /// How long this end neither ran nor waited for a CPU when an interval ended, ns.
    suspended_ns: AtomicU64,
}

/// Which end's clock ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimingEnd {
    /// This end's.
    Local,
    /// The other's.
    Remote,
}

/// A wake-up that is later than this without waiting for a CPU means that the process or machine was suspended.
const SUSPENSION_NS_MIN: u64 = 1_000_000_000;

/// The maximum delay of an interrupt.
const INTERRUPT_DELAY_NS_MAX: u64 = 50_000_000;

impl<'a> RunClock<'a> {
    fn new(spec: &Spec, stop: &'a AtomicBool, live: &'a LiveCounters) -> Self {
        let start_ns = clock::now_ns();
        Self {
            start_ns,
            end_ns: start_ns + spec.duration_ms * 1_000_000,
            stop,
            live,
            broken: AtomicBool::new(false),
            over: AtomicBool::new(false),
            suspended_ns: AtomicU64::new(0),
        }
    }

    /// Calls `each` at the end of every interval until the time is over, a connection has broken, or the run is
    /// interrupted. The last interval may be half as long again, so that no partial one follows; an interval that was slept
    /// through is skipped, so that none is shortened by a late predecessor. `wait` waits until a given time at most,
    /// between two intervals.
    fn run_intervals(&self, mut wait: impl FnMut(u64), mut each: impl FnMut()) {
        let mut waited = (clock::now_ns(), usage::ThreadUsage::now().wait_ns);
        loop {
            let elapsed = clock::now_ns() - self.start_ns;
            let mut at = self.start_ns + (elapsed / THROUGHPUT_INTERVAL_NS + 1) * THROUGHPUT_INTERVAL_NS;
            if at + THROUGHPUT_INTERVAL_NS / 2 > self.end_ns {
                at = self.end_ns;
            }
            while clock::now_ns() < at && !self.is_interrupted() {
                wait(at.min(clock::now_ns() + INTERRUPT_DELAY_NS_MAX));
            }
            let now = clock::now_ns();
            let late = now.saturating_sub(at);
            if late > SUSPENSION_NS_MIN || now - waited.0 > THROUGHPUT_INTERVAL_NS {
                let before = std::mem::replace(&mut waited, (now, usage::ThreadUsage::now().wait_ns));
                // A thread waiting for a CPU is starved; that is a valid result, and `why` reports it.
                if late > SUSPENSION_NS_MIN && waited.1.saturating_sub(before.1) < late / 2 {
                    self.suspended_ns.fetch_add(late, Ordering::Relaxed);
                }
            }
            each();
            if at == self.end_ns || self.is_interrupted() {
                break;
            }
        }
        self.over.store(true, Ordering::Release);
        self.live.under_way.store(false, Ordering::Relaxed);
    }

    /// Why the measurement does not reflect the path, if this end was suspended.
    fn suspension_text(&self) -> Option<String> {
        let ns = self.suspended_ns.load(Ordering::Relaxed);
        (ns > 0).then(|| {
            format!(
                "Fathom was suspended for {:.1} s of the run (stopped, frozen, or the machine slept); measure again",
                ns as f64 / 1e9
            )
        })
    }

    fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.broken.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// A connection ended. That is an error unless the time is over. If the other end's clock ends it, that clock may have
    /// started earlier, so shortly before the end is accepted. If this end's clock ends it, no earlier end is accepted.
    fn connection_error(&self, stream: u16, why: &str, by: TimingEnd) -> Option<String> {
        let now = clock::now_ns();
        let near = match by {
            TimingEnd::Local => 0,
            TimingEnd::Remote => ((self.end_ns - self.start_ns) / 2).clamp(200_000_000, 3_000_000_000),
        };
        if self.is_over() || self.stop.load(Ordering::Relaxed) || now + near >= self.end_ns {
            return None;
        }
        self.broken.store(true, Ordering::Relaxed);
        let after = (now - self.start_ns) as f64 / 1e9;
        Some(crate::Error::Data { stream, after, why: why.into() }.to_string())
    }
}

/// Bytes to send: random, since some links compress.
fn random_bytes(bytes: usize) -> Vec<u8> {
    let mut random = stats::random::Random::new(1);
    let mut noise: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| random.bits().to_le_bytes()).collect();
    noise.truncate(bytes);
    noise
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SocketOptions;

    #[test]
    fn early_end_is_an_error_at_the_timing_end() {
        let spec = Spec {
            traffic: Traffic::Tcp { rate_bps: None },
            directions: vec![Direction::Up],
            streams: 1,
            duration_ms: 10_000,
            socket: SocketOptions::default(),
            copy: false,
            probe: false,
            readings: crate::spec::Readings::All,
        };
        let (stop, live) = (AtomicBool::new(false), LiveCounters::default());
        let at = |gone_ms: u64, by: TimingEnd| {
            let mut course = RunClock::new(&spec, &stop, &live);
            (course.start_ns, course.end_ns) =
                (course.start_ns - gone_ms * 1_000_000, course.end_ns - gone_ms * 1_000_000);
            course.connection_error(3, "reset", by)
        };
        for by in [TimingEnd::Local, TimingEnd::Remote] {
            let said = at(2000, by).unwrap_or_default();
            assert!(said.contains("data connection 3 ended 2.0 s after the start: reset"), "{said}");
            assert_eq!(at(10_001, by), None);
        }
        // A second before the end: a sender's receiver may have started a second earlier, a receiver uses its own clock.
        assert_eq!(at(9000, TimingEnd::Remote), None);
        assert!(at(9000, TimingEnd::Local).is_some());
        stop.store(true, Ordering::Relaxed);
        assert_eq!(at(2000, TimingEnd::Local), None, "somebody wanted an end");
    }
}
