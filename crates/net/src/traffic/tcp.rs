//! Bulk transfer over TCP. The sender writes the same block again and again; the receiver lets the kernel discard the bytes
//! (MSG_TRUNC, tcp(7)) unless they are to be copied as an application would. Bytes are counted where they arrive.
//!
//! The receiver's clock ends the run: when its time is over it resets its connections. The sender counts until its own time
//! is over and continues sending until that reset arrives, so that the last interval is as full as the others.

use super::{Connection, LiveCounters, Role, RunClock, TimingEnd};
use crate::outcome::{EndReport, InterfaceCount, ReceivedDirection, SentDirection, SocketSettings};
use crate::probe::Probe;
use crate::sampler::{InlineSampler, SampleStore, SamplerControl, SamplingPlan, SocketSamples, WatchedSocket};
use crate::spec::{Direction, Spec};
use crate::usage::{ThreadTotals, ThreadUsage};
use crate::{clock, interface, socket};
use socket2::SockRef;
use std::io::{Error, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes per write: they fit a CPU core's cache.
const WRITE_BYTES: usize = 256 << 10;
/// Bytes per read.
const READ_BYTES: usize = 1 << 20;
/// How often a rate-limited application writes the bytes that are due.
const BURST_INTERVAL_NS: u64 = 10_000_000;
/// How long after its time a sender waits for the receiver's reset.
const RESET_TIMEOUT: Duration = Duration::from_secs(2);

/// A counter on its own cache line.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU64);

/// The state of one direction at this end.
struct DirectionState {
    direction: Direction,
    sends: bool,
    sockets: Vec<WatchedSocket>,
    counters: Arc<Vec<Counter>>,
    ends_ns: Vec<u64>,
    totals: Vec<u64>,
    probe: Option<Probe>,
    read: SocketSamples,
    /// The interface that its connections use.
    interface: Option<String>,
    carried: Vec<InterfaceCount>,
}

impl DirectionState {
    /// Takes the connections of this direction from all; their sockets have sampler indices from `first` on.
    fn new(direction: Direction, side: Role, connections: &mut Vec<Connection>, first: usize) -> Self {
        let (own, others) = connections.drain(..).partition(|c: &Connection| c.announcement.direction == direction);
        *connections = others;
        let sends = side.sends(direction);
        let watched = |(place, c): (usize, Connection)| WatchedSocket {
            index: place,
            stream: Arc::new(c.stream),
            number: c.announcement.stream,
            sends,
        };
        let sockets: Vec<_> = (first..).zip(own).map(watched).collect();
        let local = sockets.first().and_then(|s| s.stream.local_addr().ok());
        Self {
            direction,
            sends,
            counters: Arc::new(sockets.iter().map(|_| Counter::default()).collect()),
            sockets,
            ends_ns: Vec::new(),
            totals: Vec::new(),
            probe: None,
            read: SocketSamples::default(),
            interface: local.and_then(|local| interface::name_by_address(local.ip())),
            carried: Vec::new(),
        }
    }

    /// Samples the byte counter of the interface.
    fn sample_interface(&mut self) {
        let counted = self.interface.as_deref().and_then(interface::byte_counters);
        let bytes = counted.map(|(received, sent)| if self.sends { sent } else { received });
        self.carried.extend(bytes.map(|bytes| InterfaceCount { time_ns: clock::now_ns(), bytes }));
    }

    /// Called at the end of an interval.
    fn end_interval(&mut self) {
        self.sample_interface();
        if !self.sends {
            self.ends_ns.push(clock::now_ns());
            self.totals.push(self.received_bytes());
        }
        if let Some(probe) = &mut self.probe {
            probe.drain();
        }
    }

    /// Bytes that the receiver has, as far as this end knows.
    fn arrived_bytes(&self, watch: &SampleStore) -> u64 {
        if self.sends { self.sockets.iter().map(|s| watch.acknowledged(s)).sum() } else { self.received_bytes() }
    }

    fn received_bytes(&self) -> u64 {
        self.counters.iter().map(|c| c.0.load(Ordering::Relaxed)).sum()
    }

    fn granted_settings(&self) -> Vec<SocketSettings> {
        self.sockets.iter().map(|s| socket::granted_settings(&SockRef::from(&*s.stream), true)).collect()
    }
}

pub fn run(
    spec: &Spec,
    side: Role,
    rate: Option<u64>,
    (mut connections, probes): (Vec<Connection>, Vec<(Direction, Probe)>),
    stop: &AtomicBool,
    live: &LiveCounters,
) -> EndReport {
    let mut ways: Vec<DirectionState> = Vec::new();
    for direction in &spec.directions {
        let first = ways.iter().map(|way| way.sockets.len()).sum();
        ways.push(DirectionState::new(*direction, side, &mut connections, first));
    }
    let block = super::random_bytes(WRITE_BYTES);
    let mut report = EndReport::default();
    for (direction, probe) in probes {
        if let Some(way) = ways.iter_mut().find(|way| way.direction == direction) {
            way.probe = Some(probe);
        }
    }
    ways.iter_mut().for_each(DirectionState::sample_interface);
    let course = RunClock::new(spec, stop, live);
    let sockets: Vec<WatchedSocket> = ways.iter().flat_map(|way| way.sockets.clone()).collect();
    let watch = SampleStore::new(SamplingPlan::new(spec, sockets.len() as u64), course.start_ns, sockets.len());
    std::thread::scope(|scope| {
        let (course, watch, block) = (&course, &watch, &block[..]);
        let mut threads: Vec<Vec<_>> = Vec::new();
        for way in &ways {
            let of_way = way.sockets.iter().enumerate().map(|(at, socket)| {
                let (socket, counters) = (socket.clone(), way.counters.clone());
                scope.spawn(move || {
                    let before = ThreadUsage::now();
                    let mut sampler = InlineSampler::new(watch, &socket);
                    let mut paused_ns = 0;
                    let (ended, by) = if socket.sends {
                        (
                            send_until_end(&socket.stream, block, rate, course, &mut sampler, &mut paused_ns),
                            TimingEnd::Remote,
                        )
                    } else {
                        (receive_until_end(&socket.stream, spec.copy, &counters[at].0, &mut sampler), TimingEnd::Local)
                    };
                    let trouble = course.connection_error(socket.number, &ended, by);
                    (ThreadUsage { paused_ns, ..ThreadUsage::now().since(before) }, sampler.cpu_ns, trouble)
                })
            });
            threads.push(of_way.collect());
        }
        let before = ThreadUsage::now();
        let mut sampler_control = SamplerControl::new(watch, sockets);
        course.run_intervals(
            |until| sampler_control.wait(until),
            || {
                for way in &mut ways {
                    way.end_interval();
                    live.set(way.direction, way.arrived_bytes(watch));
                }
            },
        );
        let used = ThreadUsage::now().since(before);
        report.sampler_cpu_ns = used.cpu_ns;
        report.sampler_wait_ns = used.wait_ns;
        sampler_control.take_final_samples();
        drop(sampler_control);
        let granted: Vec<Vec<SocketSettings>> = ways.iter().map(DirectionState::granted_settings).collect();
        let mut joined: Vec<ThreadTotals> = vec![ThreadTotals::default(); ways.len()];
        // Receivers first: the other end's senders wait for their resets, just as our senders wait for the other end's.
        for sends in [false, true] {
            for (at, way) in ways.iter_mut().enumerate().filter(|(_, w)| w.sends == sends) {
                let deadline = clock::now_ns() + RESET_TIMEOUT.as_nanos() as u64;
                let handles = std::mem::take(&mut threads[at]);
                while sends && !course.is_interrupted() && clock::now_ns() < deadline {
                    if handles.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                for socket in &way.sockets {
                    // The connection may be gone already. No linger: data in flight is discarded.
                    let _ = SockRef::from(&*socket.stream).set_linger(Some(Duration::ZERO));
                    let _ = socket.stream.shutdown(Shutdown::Both);
                }
                for handle in handles {
                    let (used, readings_cpu_ns, trouble) = handle.join().unwrap_or_default();
                    joined[at].add(used);
                    report.sampler_cpu_ns += readings_cpu_ns;
                    report.trouble = report.trouble.take().or(trouble);
                }
                way.read = watch.take(&way.sockets);
                // Closing the last descriptor of a connection resets it.
                way.sockets.clear();
            }
        }
        report.trouble = report.trouble.take().or_else(|| course.suspension_text());
        let end_ns = clock::now_ns().min(course.end_ns);
        for ((way, sockets), threads) in ways.into_iter().zip(granted).zip(joined) {
            if way.sends {
                let (acks, acks_lost) = way.probe.map_or_else(Default::default, Probe::finish);
                report.sent.push(SentDirection {
                    direction: way.direction,
                    start_ns: course.start_ns,
                    end_ns,
                    sockets,
                    threads,
                    packets: None,
                    samples: way.read.samples,
                    acks,
                    acks_lost,
                    carried: way.carried,
                });
            } else {
                let before = std::iter::once(0).chain(way.totals.iter().copied());
                report.received.push(ReceivedDirection {
                    direction: way.direction,
                    start_ns: course.start_ns,
                    ends_ns: way.ends_ns,
                    bytes: way.totals.iter().zip(before).map(|(now, then)| now - then).collect(),
                    streams: way.counters.iter().map(|c| c.0.load(Ordering::Relaxed)).collect(),
                    sockets,
                    threads,
                    unread: way.read.unread,
                    packets: None,
                    carried: way.carried,
                });
            }
        }
    });
    report
}

/// The bytes that a rate-limited application has to write by `elapsed_ns` since the start: those of every burst that has
/// begun. Between two bursts nothing becomes due, so that a fast machine does not write byte after byte instead of
/// sleeping.
fn due_bytes(rate_bps: u64, elapsed_ns: u64) -> u64 {
    let bursts = u128::from(elapsed_ns / BURST_INTERVAL_NS + 1);
    (bursts * u128::from(BURST_INTERVAL_NS) * u128::from(rate_bps) / 8_000_000_000) as u64
}

/// Sends until the connection ends; returns how it ended, and adds the time it slept with nothing to write to `paused_ns`.
fn send_until_end(
    stream: &TcpStream,
    block: &[u8],
    rate: Option<u64>,
    course: &RunClock<'_>,
    sampler: &mut InlineSampler<'_>,
    paused_ns: &mut u64,
) -> String {
    let mut sent = 0_u64;
    loop {
        sampler.sample_if_due();
        let mut wanted = block.len();
        if let Some(rate) = rate {
            let now_ns = clock::now_ns();
            let elapsed = now_ns - course.start_ns;
            wanted =
                usize::try_from(due_bytes(rate, elapsed).saturating_sub(sent)).unwrap_or(usize::MAX).min(block.len());
            if wanted == 0 {
                // Until the other end resets the connection its time is not over: it began later.
                if course.is_interrupted() || course.is_over() && socket::has_ended(stream.as_raw_fd()) {
                    return "done".into();
                }
                let next_ns = course.start_ns + (elapsed / BURST_INTERVAL_NS + 1) * BURST_INTERVAL_NS;
                clock::sleep_until(next_ns);
                // The delay of the wake-up does not count as a pause.
                *paused_ns += next_ns.min(clock::now_ns()) - now_ns;
                continue;
            }
        }
        // SAFETY: the pointer and the length are those of a slice that outlives the call.
        let n = unsafe { libc::send(stream.as_raw_fd(), block.as_ptr().cast(), wanted, libc::MSG_NOSIGNAL) };
        if n < 0 {
            let error = Error::last_os_error();
            if error.kind() != ErrorKind::Interrupted {
                return error.to_string();
            }
            continue;
        }
        sent += n as u64;
    }
}

/// Receives until the connection ends; returns how it ended.
fn receive_until_end(stream: &TcpStream, copy: bool, counter: &AtomicU64, sampler: &mut InlineSampler<'_>) -> String {
    let mut buffer = vec![0_u8; READ_BYTES];
    let flags = if copy { 0 } else { libc::MSG_TRUNC };
    loop {
        sampler.sample_if_due();
        // SAFETY: the pointer and the length are those of a buffer of ours; with MSG_TRUNC nothing is written to it.
        let n = unsafe { libc::recv(stream.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags) };
        match n {
            0 => return "closed by the other end".into(),
            1.. => {
                counter.fetch_add(n as u64, Ordering::Relaxed);
            }
            _ => {
                let error = Error::last_os_error();
                if error.kind() != ErrorKind::Interrupted {
                    return error.to_string();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Announcement;
    use crate::spec::{Readings, SocketOptions, Traffic};
    use std::io::Read as _;
    use std::net::TcpListener;
    use std::time::Instant;

    #[test]
    fn due_bytes_grow_only_at_bursts() {
        let rate = 10_000_000;
        // 12,500 bytes every 10 ms, of which the first are due at once.
        assert_eq!(
            [0, 1, BURST_INTERVAL_NS - 1, BURST_INTERVAL_NS, 99 * BURST_INTERVAL_NS + 5].map(|at| due_bytes(rate, at)),
            [12_500, 12_500, 12_500, 25_000, 1_250_000]
        );
        assert_eq!((due_bytes(1000, 0), due_bytes(1, 0), due_bytes(1, 8_000_000_000)), (1, 0, 1));
        assert!(due_bytes(crate::spec::RATE_BPS_MAX, 3_600_000_000_000) < u64::MAX / 2);
    }

    /// A receiver's clock may start later than its sender's; it must still get a whole run.
    #[test]
    fn sender_continues_until_receiver_resets_connection() {
        for rate_bps in [None, Some(10_000_000), Some(1)] {
            let spec = Spec {
                traffic: Traffic::Tcp { rate_bps },
                directions: vec![Direction::Up],
                streams: 1,
                duration_ms: 100,
                socket: SocketOptions::default(),
                copy: false,
                probe: false,
                readings: Readings::All,
            };
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut receiver, _) = listener.accept().unwrap();
            let connections = vec![Connection {
                announcement: Announcement { token: [0; 16], direction: Direction::Up, stream: 0 },
                stream,
            }];
            let (stop, live) = (AtomicBool::new(false), LiveCounters::default());
            std::thread::scope(|scope| {
                let sender =
                    scope.spawn(|| run(&spec, Role::Client, rate_bps, (connections, Vec::new()), &stop, &live));
                receiver.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
                let (begun, mut buffer) = (Instant::now(), vec![0; READ_BYTES]);
                while begun.elapsed() < Duration::from_millis(400) {
                    match receiver.read(&mut buffer) {
                        Ok(0) => panic!("{rate_bps:?}: closed after {:?}", begun.elapsed()),
                        Ok(_) => {}
                        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{rate_bps:?}"),
                    }
                }
                SockRef::from(&receiver).set_linger(Some(Duration::ZERO)).unwrap();
                drop(receiver);
                let report = sender.join().unwrap();
                assert_eq!(report.trouble, None);
                // Counting ended on time nevertheless.
                let sent = &report.sent[0];
                assert_eq!(sent.end_ns - sent.start_ns, 100_000_000);
                assert!(sent.samples.is_sorted_by_key(|sample| sample.time_ns) && !sent.samples.is_empty());
            });
        }
    }
}
