//! Bulk over TCP. The sender hands the kernel the same block again and again; the receiver lets the kernel throw the bytes
//! away (MSG_TRUNC, tcp(7)) unless they are to be copied as an application would. Bytes are counted where they arrive.
//!
//! The receiver's clock ends the run: when its time is over it resets its connections. The sender counts until its own
//! time is over and goes on sending until that reset arrives, so that the last interval is as full as the others.

use super::{Connection, Course, Ends, Live, Side};
use crate::outcome::{EndReport, Granted, INTERVAL_NS, Received, Sent};
use crate::probe::Probe;
use crate::sampler;
use crate::spec::{Direction, Readings, Spec};
use crate::turns::Turns;
use crate::usage::{Thread, Threads};
use crate::{clock, socket};
use socket2::SockRef;
use std::io::{Error, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes handed to the kernel at once: they stay in the cache of a processor's core.
const BLOCK: usize = 256 << 10;
/// Bytes taken from it at once.
const GULP: usize = 1 << 20;
/// How often an application that holds itself back writes what is due.
const BURST_NS: u64 = 10_000_000;
/// How long after its time a sender waits for the receiver's reset.
const GRACE: Duration = Duration::from_secs(2);

/// A counter that shares no cache line with another.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU64);

/// One direction at this end.
struct Way {
    direction: Direction,
    sends: bool,
    streams: Vec<(u16, Arc<TcpStream>)>,
    counters: Arc<Vec<Counter>>,
    sender: sampler::Sender,
    receiver: sampler::Receiver,
    ends_ns: Vec<u64>,
    totals: Vec<u64>,
    probe: Option<Probe>,
}

impl Way {
    fn new(direction: Direction, side: Side, connections: &mut Vec<Connection>) -> Self {
        let (own, others) = connections.drain(..).partition(|c: &Connection| c.announcement.direction == direction);
        *connections = others;
        let streams: Vec<_> = own.into_iter().map(|c| (c.announcement.stream, Arc::new(c.stream))).collect();
        Self {
            direction,
            sends: side.sends(direction),
            counters: Arc::new(streams.iter().map(|_| Counter::default()).collect()),
            streams,
            sender: sampler::Sender::default(),
            receiver: sampler::Receiver::default(),
            ends_ns: Vec::new(),
            totals: Vec::new(),
            probe: None,
        }
    }

    fn look(&mut self, interval: bool, read: bool) {
        let sockets: Vec<_> = self.streams.iter().map(|(n, s)| (*n, s.as_fd())).collect();
        match self.sends {
            _ if !read => {}
            true => self.sender.read(&sockets),
            false => self.receiver.read(&sockets),
        }
        if let Some(probe) = &mut self.probe {
            probe.drain();
        }
        if interval && !self.sends {
            self.ends_ns.push(clock::now_ns());
            self.totals.push(self.counters.iter().map(|c| c.0.load(Ordering::Relaxed)).sum());
        }
    }

    /// What the receiver has of it, as far as this end knows.
    fn arrived(&self) -> u64 {
        if !self.sends {
            return self.counters.iter().map(|c| c.0.load(Ordering::Relaxed)).sum();
        }
        // The last reading of each stream.
        self.sender.samples.iter().rev().take(self.streams.len()).map(|s| s.bytes_acked).sum()
    }

    fn granted(&self) -> Vec<Granted> {
        self.streams.iter().map(|(_, s)| socket::granted(&SockRef::from(&**s), true)).collect()
    }
}

pub fn run(
    spec: &Spec,
    side: Side,
    rate: Option<u64>,
    (mut connections, probes): (Vec<Connection>, Vec<(Direction, Probe)>),
    stop: &AtomicBool,
    live: &Live,
) -> EndReport {
    let mut ways: Vec<Way> = spec.directions.iter().map(|d| Way::new(*d, side, &mut connections)).collect();
    let block = super::noise(BLOCK);
    let mut report = EndReport::default();
    for (direction, probe) in probes {
        if let Some(way) = ways.iter_mut().find(|way| way.direction == direction) {
            way.probe = Some(probe);
        }
    }
    let course = Course::new(spec, stop, live);
    std::thread::scope(|scope| {
        let (course, block) = (&course, &block[..]);
        let mut threads: Vec<Vec<_>> = Vec::new();
        for way in &ways {
            let of_way = way.streams.iter().enumerate().map(|(at, (number, stream))| {
                let (stream, counters, sends) = (stream.clone(), way.counters.clone(), way.sends);
                let number = *number;
                scope.spawn(move || {
                    let before = Thread::now();
                    let ended = match sends {
                        true => send(&stream, block, rate, course),
                        false => receive(&stream, spec.copy, &counters[at].0),
                    };
                    let trouble = course.ended(number, &ended, if sends { Ends::There } else { Ends::Here });
                    (Thread::now().since(before), trouble)
                })
            });
            threads.push(of_way.collect());
        }
        let sockets = ways.iter().map(|w| w.streams.len() as u64).sum();
        let often = sampler::every_ns(sockets, spec.duration_ms * 1_000_000);
        let turns = match spec.readings {
            Readings::ByTurns { seed } => Some(Turns::new(seed, spec.duration_ms)),
            _ => None,
        };
        // Whether an interval has readings, by the time since the start at which it began.
        let reads = |elapsed: u64| match (&turns, spec.readings) {
            (Some(turns), _) => turns.reads(elapsed / INTERVAL_NS),
            (None, readings) => readings == Readings::All,
        };
        let before = Thread::now();
        let mut next = course.start_ns + INTERVAL_NS;
        course.follow(
            |elapsed| if !reads(elapsed) || often > INTERVAL_NS && turns.is_some() { INTERVAL_NS } else { often },
            |at| {
                let read = reads((at - course.start_ns).saturating_sub(1));
                // Where intervals are compared, one with readings ends when its thread runs, as one without does, and not a step later.
                let at = if turns.is_some() { at.max(clock::now_ns()).min(course.end_ns) } else { at };
                let interval = at >= next || at == course.end_ns || course.cut_short();
                if interval {
                    next = at + INTERVAL_NS - (at - course.start_ns) % INTERVAL_NS;
                }
                for way in &mut ways {
                    way.look(interval, read);
                    live.set(way.direction, way.arrived());
                }
            },
        );
        let used = Thread::now().since(before);
        (report.sampler_cpu_ns, report.sampler_wait_ns) = (used.cpu_ns, used.wait_ns);
        let granted: Vec<Vec<Granted>> = ways.iter().map(Way::granted).collect();
        let mut joined: Vec<Threads> = vec![Threads::default(); ways.len()];
        // Receivers first: the other end's senders wait for their resets, as ours wait for the other's.
        for sends in [false, true] {
            for (at, way) in ways.iter_mut().enumerate().filter(|(_, w)| w.sends == sends) {
                let deadline = clock::now_ns() + GRACE.as_nanos() as u64;
                let handles = std::mem::take(&mut threads[at]);
                while sends && !course.cut_short() && clock::now_ns() < deadline {
                    if handles.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                for (_, stream) in &way.streams {
                    // It may be gone already. No linger: what is still in flight is to be thrown away.
                    let _ = SockRef::from(&**stream).set_linger(Some(Duration::ZERO));
                    let _ = stream.shutdown(Shutdown::Both);
                }
                for handle in handles {
                    let (used, trouble) = handle.join().unwrap_or_default();
                    joined[at].add(used);
                    report.trouble = report.trouble.take().or(trouble);
                }
                way.streams.clear();
            }
        }
        report.trouble = report.trouble.take().or_else(|| course.stood_still());
        let end_ns = clock::now_ns().min(course.end_ns);
        for ((way, sockets), threads) in ways.into_iter().zip(granted).zip(joined) {
            if way.sends {
                let (acks, acks_lost) = way.probe.map_or_else(Default::default, Probe::finish);
                report.sent.push(Sent {
                    direction: way.direction,
                    start_ns: course.start_ns,
                    end_ns,
                    sockets,
                    threads,
                    packets: None,
                    samples: way.sender.samples,
                    acks,
                    acks_lost,
                });
            } else {
                let before = std::iter::once(0).chain(way.totals.iter().copied());
                report.received.push(Received {
                    direction: way.direction,
                    start_ns: course.start_ns,
                    ends_ns: way.ends_ns,
                    bytes: way.totals.iter().zip(before).map(|(now, then)| now - then).collect(),
                    streams: way.counters.iter().map(|c| c.0.load(Ordering::Relaxed)).collect(),
                    sockets,
                    threads,
                    unread: way.receiver.unread,
                    packets: None,
                });
            }
        }
    });
    report
}

/// Sends until the connection ends; says how it did.
fn send(stream: &TcpStream, block: &[u8], rate: Option<u64>, course: &Course<'_>) -> String {
    let mut sent = 0_u64;
    loop {
        let mut wanted = block.len();
        if let Some(rate) = rate {
            let elapsed = clock::now_ns() - course.start_ns;
            let due = (u128::from(rate) * u128::from(elapsed) / 8_000_000_000) as u64;
            wanted = usize::try_from(due.saturating_sub(sent)).unwrap_or(usize::MAX).min(block.len());
            if wanted == 0 {
                if course.is_over() || course.cut_short() {
                    return "done".into();
                }
                clock::sleep_until(course.start_ns + (elapsed / BURST_NS + 1) * BURST_NS);
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

/// Receives until the connection ends; says how it did.
fn receive(stream: &TcpStream, copy: bool, counter: &AtomicU64) -> String {
    let mut room = vec![0_u8; GULP];
    let flags = if copy { 0 } else { libc::MSG_TRUNC };
    loop {
        // SAFETY: the pointer and the length are those of a buffer of ours; with MSG_TRUNC nothing is written to it.
        let n = unsafe { libc::recv(stream.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), flags) };
        match n {
            0 => return "the other end closed it".into(),
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
