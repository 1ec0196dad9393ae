//! Reads every sending socket's TCP state, and what lies unread in every receiving one, every 10 ms.
//!
//! The thread that moves a socket's data reads it, between two calls. Another one would have to be woken for it, a hundred times a second at each end, and that
//! is dear where the threads that move the data fill the processors: one stream over loopback lost 3 to 5 % of its throughput in a virtual machine, where
//! even setting a timer each time cost 2 %, and the readings themselves next to nothing. A thread that is in the kernel for long, because it waits for room or for data,
//! cannot read. So the thread that waits for the end of the run looks now and then whether some reading is overdue, and from then on makes what is overdue
//! every time, until for a while nothing was. The first of those readings come up to [`OVERSIGHT_NS`] late.
//!
//! Readings are due at absolute times, so that a late one does not move the next. One is a getsockopt (about 1 us); the CPU time
//! of all is part of every report. Where a run would bring more than [`MOST`] readings, they are taken more rarely; their times say when.

use crate::outcome::{INTERVAL_NS, SAMPLE_NS, Unread};
use crate::spec::{Readings, Spec};
use crate::tcp_info::{self, TcpSample};
use crate::turns::Turns;
use crate::{clock, socket};
use socket2::SockRef;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most readings of a run at one end: 100 MB on the wire as JSON.
pub const MOST: u64 = 500_000;

/// For how long a reading that is due is left to the thread that moves the data.
const GRACE_NS: u64 = 2_000_000;
/// How often it is looked at the latest whether one is overdue.
pub const OVERSIGHT_NS: u64 = 50_000_000;
/// After so many times that none was, it is looked at less often again.
const CALM: u32 = 10;

/// How far apart readings are, in ns, for so many sockets over so long a run.
pub fn every_ns(sockets: u64, duration_ns: u64) -> u64 {
    let fits = sockets.saturating_mul(duration_ns) / MOST;
    SAMPLE_NS.max(fits.next_multiple_of(SAMPLE_NS))
}

/// When readings are due. Times are ns since the start of the run. Pure.
#[derive(Debug)]
pub struct Plan {
    every_ns: u64,
    readings: Readings,
    turns: Option<Turns>,
}

impl Plan {
    /// For a run with so many sockets at this end.
    pub fn new(spec: &Spec, sockets: u64) -> Self {
        Self {
            every_ns: every_ns(sockets, spec.duration_ms.saturating_mul(1_000_000)),
            readings: spec.readings,
            turns: match spec.readings {
                Readings::ByTurns { seed, control: false } => Some(Turns::new(seed, spec.duration_ms)),
                _ => None,
            },
        }
    }

    /// The number of the reading that was due last, from 1; 0 if none is to be made now.
    pub fn due(&self, elapsed: u64) -> u64 {
        let number = elapsed / self.every_ns;
        let reads = match &self.turns {
            Some(turns) => turns.reads(number * self.every_ns / INTERVAL_NS),
            None => self.readings != Readings::None,
        };
        if reads { number } else { 0 }
    }

    /// When the next may be due.
    pub fn next(&self, elapsed: u64) -> u64 {
        (elapsed / self.every_ns + 1) * self.every_ns
    }

    /// The number of the reading that was overdue last, and when the next may be.
    fn overdue(&self, elapsed: u64) -> (u64, u64) {
        let before = elapsed.saturating_sub(GRACE_NS);
        (self.due(before), self.next(before) + GRACE_NS)
    }
}

/// What was read of a socket: of a sending one samples, of a receiving one what lay unread.
#[derive(Debug, Default)]
pub struct Read {
    /// TCP's state.
    pub samples: Vec<TcpSample>,
    /// Bytes in the receive buffer.
    pub unread: Vec<Unread>,
}

impl Read {
    /// Of several sockets, in order of time.
    pub fn of(sockets: impl Iterator<Item = Self>) -> Self {
        let mut all = Self::default();
        for socket in sockets {
            all.samples.extend(socket.samples);
            all.unread.extend(socket.unread);
        }
        all.samples.sort_by_key(|sample| sample.time_ns);
        all.unread.sort_by_key(|look| look.time_ns);
        all
    }
}

/// One socket's readings.
#[derive(Debug, Default)]
struct Socket {
    /// The number of the last one.
    last: AtomicU64,
    read: Mutex<Read>,
}

impl Socket {
    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The readings of a run at one end. Each is made once, by whoever comes to it first.
#[derive(Debug)]
pub struct Watch {
    plan: Plan,
    start_ns: u64,
    sockets: Vec<Socket>,
}

/// A socket of those that are watched.
#[derive(Debug, Clone)]
pub struct Watched {
    /// Its place among them.
    pub place: usize,
    /// The connection.
    pub stream: Arc<TcpStream>,
    /// The number of the stream in its direction.
    pub number: u16,
    /// Whether this end sends on it.
    pub sends: bool,
}

impl Watch {
    /// Of so many sockets, in a run that began then.
    pub fn new(plan: Plan, start_ns: u64, sockets: usize) -> Self {
        Self { plan, start_ns, sockets: std::iter::repeat_with(Socket::default).take(sockets).collect() }
    }

    /// Makes that reading of a socket unless it has been made.
    fn look(&self, watched: &Watched, number: u64) {
        let socket = &self.sockets[watched.place];
        if socket.last.fetch_max(number, Ordering::AcqRel) >= number {
            return;
        }
        let (fd, stream) = (watched.stream.as_raw_fd(), u64::from(watched.number));
        if watched.sends {
            // A connection that broke is told by its thread.
            if let Ok(sample) = tcp_info::read(fd) {
                let sample = TcpSample { time_ns: clock::now_ns(), stream, ..sample };
                socket.read().samples.push(sample);
            }
        } else {
            let look = Unread {
                time_ns: clock::now_ns(),
                stream,
                unread_bytes: socket::unread(fd),
                buffer_bytes: SockRef::from(&watched.stream).recv_buffer_size().unwrap_or(0) as u64,
            };
            socket.read().unread.push(look);
        }
    }

    /// Of a socket on which this end sends: how much has arrived, as far as was read.
    pub fn acknowledged(&self, watched: &Watched) -> u64 {
        self.sockets[watched.place].read().samples.last().map_or(0, |sample| sample.bytes_acked)
    }

    /// All readings of these.
    pub fn take(&self, sockets: &[Watched]) -> Read {
        Read::of(sockets.iter().map(|watched| std::mem::take(&mut *self.sockets[watched.place].read())))
    }
}

/// Readings by the thread that moves nothing: of what is overdue.
#[derive(Debug)]
pub struct Oversight<'a> {
    watch: &'a Watch,
    sockets: Vec<Watched>,
    /// How many more times in a row nothing must be overdue until it is looked at rarely.
    alert: u32,
}

impl<'a> Oversight<'a> {
    /// Of all sockets.
    pub fn new(watch: &'a Watch, sockets: Vec<Watched>) -> Self {
        Self { watch, sockets, alert: 0 }
    }

    /// Waits until that time, or less, and makes what is overdue by then.
    pub fn wait(&mut self, until_ns: u64) {
        let elapsed = || clock::now_ns() - self.watch.start_ns;
        let before = elapsed();
        let next = if self.alert > 0 { self.watch.plan.overdue(before).1 } else { before + OVERSIGHT_NS };
        clock::sleep_until(until_ns.min(self.watch.start_ns + next));
        self.look(elapsed());
    }

    fn look(&mut self, elapsed: u64) {
        let (number, _) = self.watch.plan.overdue(elapsed);
        let late = |socket: &&Watched| self.watch.sockets[socket.place].last.load(Ordering::Relaxed) < number;
        let found = self.sockets.iter().filter(late).map(|socket| self.watch.look(socket, number)).count();
        self.alert = if found > 0 { CALM } else { self.alert.saturating_sub(1) };
    }

    /// Reads all of them once more, and for the last time.
    pub fn end(&self) {
        for socket in &self.sockets {
            self.watch.look(socket, u64::MAX);
        }
    }
}

/// Readings by the thread that moves the data.
#[derive(Debug)]
pub struct Between<'a> {
    watch: &'a Watch,
    watched: &'a Watched,
    next_ns: u64,
    /// CPU time that they took, ns.
    pub cpu_ns: u64,
}

impl<'a> Between<'a> {
    /// Of one socket.
    pub fn new(watch: &'a Watch, watched: &'a Watched) -> Self {
        Self { watch, watched, next_ns: watch.start_ns + watch.plan.next(0), cpu_ns: 0 }
    }

    /// Makes what is due; to be called between two calls.
    pub fn calls(&mut self) {
        let now_ns = clock::now_ns();
        if now_ns >= self.next_ns {
            let (elapsed, before) = (now_ns - self.watch.start_ns, clock::thread_cpu_ns());
            self.watch.look(self.watched, self.watch.plan.due(elapsed));
            self.next_ns = self.watch.start_ns + self.watch.plan.next(elapsed);
            self.cpu_ns += clock::thread_cpu_ns() - before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_of_many_streams_is_read_more_rarely() {
        assert_eq!(every_ns(1, 10_000_000_000), SAMPLE_NS);
        assert_eq!(every_ns(8, 600_000_000_000), SAMPLE_NS);
        let long = every_ns(128, 3_600_000_000_000);
        assert!(long > SAMPLE_NS && 128 * 3_600_000_000_000 / long <= MOST && long.is_multiple_of(SAMPLE_NS));
    }

    fn plan(readings: Readings, duration_ms: u64) -> Plan {
        let traffic = crate::spec::Traffic::Tcp { rate_bps: None };
        let directions = vec![crate::spec::Direction::Up];
        let socket = crate::spec::SocketOptions::default();
        Plan::new(
            &Spec { traffic, directions, streams: 1, duration_ms, socket, copy: false, probe: false, readings },
            1,
        )
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_reading_is_due_every_ten_milliseconds_and_overdue_a_moment_later() {
        let plan = plan(Readings::All, 1000);
        assert_eq!([0, 10 * MS - 1, 10 * MS, 25 * MS].map(|at| plan.due(at)), [0, 0, 1, 2]);
        assert_eq!([0, 10 * MS - 1, 10 * MS, 25 * MS].map(|at| plan.next(at)), [10, 10, 20, 30].map(|ms| ms * MS));
        let overdue = [0, 10 * MS, 12 * MS - 1, 12 * MS, 21 * MS].map(|at| plan.overdue(at));
        assert_eq!(overdue, [(0, 12), (0, 12), (0, 12), (1, 22), (1, 22)].map(|(number, ms)| (number, ms * MS)));
    }

    #[test]
    fn only_the_intervals_whose_turn_it_is_have_readings_and_those_of_a_control_all_have() {
        let plan_of = |control| plan(Readings::ByTurns { seed: 5, control }, 60_000);
        let (by_turns, control) = (plan_of(false), plan_of(true));
        let turns = Turns::new(5, 60_000);
        for number in 1..6000 {
            let at = number * 10 * MS;
            let due = if turns.reads(at / INTERVAL_NS) { number } else { 0 };
            assert_eq!(by_turns.due(at), due);
            assert_eq!(control.due(at), number);
            assert_eq!(by_turns.overdue(at + GRACE_NS).0, due);
        }
        let none = plan(Readings::None, 1000);
        assert_eq!(none.due(500 * MS), 0);
    }

    fn watched() -> (Watch, [Watched; 2]) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut &sender, &[0; 1000]).unwrap();
        let sending = Watched { place: 0, stream: sender.into(), number: 3, sends: true };
        let receiving = Watched { place: 1, stream: receiver.into(), number: 4, sends: false };
        (Watch::new(plan(Readings::All, 3_600_000), clock::now_ns(), 2), [sending, receiving])
    }

    #[test]
    fn each_reading_is_made_once_whoever_comes_first() {
        let (watch, sockets) = watched();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in (0..1000).flat_map(|n| [n, n]) {
                        sockets.iter().for_each(|socket| watch.look(socket, number));
                    }
                });
            }
        });
        let read = watch.take(&sockets);
        // A reading that somebody was late for is left out: a later one has been made.
        assert!((2..=999).contains(&read.samples.len()) && (2..=999).contains(&read.unread.len()), "{read:?}");
        assert!(read.samples.iter().all(|s| s.stream == 3 && s.snd_mss > 0));
        assert!(read.unread.iter().all(|u| u.stream == 4 && u.unread_bytes <= 1000 && u.buffer_bytes > 0));
    }

    #[test]
    fn what_a_thread_cannot_read_is_read_for_it() {
        let (watch, sockets) = watched();
        let mut oversight = Oversight::new(&watch, sockets.to_vec());
        let last = || [0, 1].map(|place| watch.sockets[place].last.load(Ordering::Relaxed));
        // Both read by themselves what is due at 10 ms; at 50 ms nobody has for long.
        sockets.iter().for_each(|socket| watch.look(socket, 1));
        oversight.look(21 * MS);
        assert_eq!((last(), oversight.alert), ([1, 1], 0));
        oversight.look(50 * MS);
        assert_eq!((last(), oversight.alert), ([4, 4], CALM));
        // One is in the kernel, the other reads.
        watch.look(&sockets[1], 5);
        oversight.look(52 * MS);
        assert_eq!((last(), oversight.alert), ([5, 5], CALM));
        let read = watch.take(&sockets);
        assert_eq!((read.samples.len(), read.unread.len()), (3, 3));
        // Both read again.
        for number in 6..6 + u64::from(CALM) {
            assert!(oversight.alert > 0);
            sockets.iter().for_each(|socket| watch.look(socket, number));
            oversight.look(number * 10 * MS + GRACE_NS);
        }
        assert_eq!(oversight.alert, 0);
        oversight.end();
        oversight.look(3_600_000 * MS);
        assert_eq!((last(), oversight.alert), ([u64::MAX; 2], 0), "nothing is read after the end");
    }
}
