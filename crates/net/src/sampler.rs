//! Samples the TCP state of every sending socket, and the unread bytes of every receiving one, every 10 ms.
//!
//! The thread that sends on a socket samples it, between two calls. A separate thread would have to be woken for it, a
//! hundred times a second at each end, which is expensive where the threads that move the data use all CPUs: one stream
//! over loopback lost 3 to 5 % of its throughput in a virtual machine, where even setting a timer each time cost 2 %, and
//! the samples themselves next to nothing. A thread that blocks in the kernel for long, waiting for buffer space, cannot
//! sample. So the thread that waits for the end of the run checks every 50 ms whether a sample is overdue, and from then on
//! takes all overdue samples, until none has been overdue for a while.
//!
//! The unread bytes of a receiver are sampled by that supervising thread only, at each of its checks: the receiving thread
//! has always just emptied its socket when it could sample. It only signals that it is not blocked in the kernel; while it
//! is, the socket is sampled every 10 ms.
//!
//! Samples are due at absolute times, so that a late one does not delay the next. A sample is one getsockopt call (about 1
//! us); every report includes the CPU time of all samples. Where a run would produce more than
//! [`crate::spec::READINGS_MAX`] samples, they are taken less often; their timestamps show when.

use crate::outcome::UnreadSample;
use crate::sampling_cost::SampledIntervals;
use crate::spec::{Readings, Spec, THROUGHPUT_INTERVAL_NS, sampling_interval_ns};
use crate::tcp_info::{self, TcpSample};
use crate::{clock, socket};
use socket2::SockRef;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long a due sample is left to the thread that moves the data.
const INLINE_GRACE_NS: u64 = 2_000_000;
/// The longest time between checks for overdue samples.
const CHECK_INTERVAL_NS_MAX: u64 = 50_000_000;
/// After this many checks without overdue samples, checks become less frequent again.
const CALM_CHECKS_MIN: u32 = 10;

/// When samples are due. Times are ns since the start of the run. Pure.
#[derive(Debug)]
pub struct SamplingPlan {
    interval_ns: u64,
    readings: Readings,
    turns: Option<SampledIntervals>,
}

impl SamplingPlan {
    /// The plan for a run with `sockets` sockets at this end.
    pub fn new(spec: &Spec, sockets: u64) -> Self {
        Self {
            interval_ns: sampling_interval_ns(sockets, spec.duration_ms.saturating_mul(1_000_000)),
            readings: spec.readings,
            turns: match spec.readings {
                Readings::ByTurns { seed, control: false } => Some(SampledIntervals::new(seed, spec.duration_ms)),
                _ => None,
            },
        }
    }

    /// The number of the last due sample, from 1; 0 if none is due now.
    fn due(&self, elapsed: u64) -> u64 {
        let number = elapsed / self.interval_ns;
        if self.has_readings(number * self.interval_ns) { number } else { 0 }
    }

    /// Whether samples are taken in the interval at that time.
    fn has_readings(&self, elapsed: u64) -> bool {
        match &self.turns {
            Some(turns) => turns.is_sampled(elapsed / THROUGHPUT_INTERVAL_NS),
            None => self.readings != Readings::None,
        }
    }

    /// When the next sample may be due.
    fn next(&self, elapsed: u64) -> u64 {
        (elapsed / self.interval_ns + 1) * self.interval_ns
    }

    /// The number of the last overdue sample, and when the next may be overdue.
    fn overdue(&self, elapsed: u64) -> (u64, u64) {
        let before = elapsed.saturating_sub(INLINE_GRACE_NS);
        (self.due(before), self.next(before) + INLINE_GRACE_NS)
    }
}

/// The samples of a socket: TCP state if it sends, unread bytes if it receives.
#[derive(Debug, Default)]
pub struct SocketSamples {
    /// TCP's state.
    pub samples: Vec<TcpSample>,
    /// Bytes in the receive buffer.
    pub unread: Vec<UnreadSample>,
}

impl SocketSamples {
    fn take_sample(&mut self, watched: &WatchedSocket) {
        let (fd, stream) = (watched.stream.as_raw_fd(), u64::from(watched.number));
        if watched.sends {
            // The thread of a broken connection reports the error.
            let sample = tcp_info::read(fd).ok();
            self.samples.extend(sample.map(|sample| TcpSample { time_ns: clock::now_ns(), stream, ..sample }));
        } else {
            self.unread.push(UnreadSample {
                time_ns: clock::now_ns(),
                stream,
                unread_bytes: socket::unread_bytes(fd),
                buffer_bytes: SockRef::from(&watched.stream).recv_buffer_size().unwrap_or(0) as u64,
            });
        }
    }

    /// Merges several sockets, in order of time.
    fn merged(sockets: impl Iterator<Item = Self>) -> Self {
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

/// The samples of one socket, and the number of the last sample that is done or skipped.
#[derive(Debug, Default)]
struct SocketLog {
    last: u64,
    read: SocketSamples,
}

/// The samples of a run at one end. Each is taken once, by the thread that gets to it first.
#[derive(Debug)]
pub struct SampleStore {
    plan: SamplingPlan,
    start_ns: u64,
    sockets: Vec<Mutex<SocketLog>>,
}

/// A sampled socket.
#[derive(Debug, Clone)]
pub struct WatchedSocket {
    /// Its index among the sockets.
    pub index: usize,
    pub stream: Arc<TcpStream>,
    /// The number of the stream in its direction.
    pub number: u16,
    /// Whether this end sends on it.
    pub sends: bool,
}

impl SampleStore {
    /// Creates the state for `sockets` sockets, in a run that began at `start_ns`.
    pub fn new(plan: SamplingPlan, start_ns: u64, sockets: usize) -> Self {
        Self { plan, start_ns, sockets: std::iter::repeat_with(Mutex::default).take(sockets).collect() }
    }

    fn log(&self, watched: &WatchedSocket) -> MutexGuard<'_, SocketLog> {
        self.sockets[watched.index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes sample `number` of a socket unless it was taken. The lock keeps the samples of a socket in order.
    fn sample_once(&self, watched: &WatchedSocket, number: u64) {
        let mut log = self.log(watched);
        if log.last < number {
            log.last = number;
            log.read.take_sample(watched);
        }
    }

    /// Sample `number` is due, and the thread that moves the data is not in the kernel.
    fn between_calls(&self, watched: &WatchedSocket, number: u64) {
        if watched.sends {
            self.sample_once(watched, number);
        } else {
            let mut log = self.log(watched);
            log.last = log.last.max(number);
        }
    }

    /// Sample `number` is overdue, unless the thread that moves the data was active since. Returns whether it is.
    fn overdue(&self, watched: &WatchedSocket, number: u64) -> bool {
        let mut log = self.log(watched);
        let late = log.last < number;
        log.last = log.last.max(number);
        if late || !watched.sends {
            log.read.take_sample(watched);
        }
        late
    }

    /// Bytes acknowledged on a socket that this end sends on, as of the last sample.
    pub fn acknowledged(&self, watched: &WatchedSocket) -> u64 {
        self.log(watched).read.samples.last().map_or(0, |sample| sample.bytes_acked)
    }

    /// Takes all samples of these sockets.
    pub fn take(&self, sockets: &[WatchedSocket]) -> SocketSamples {
        SocketSamples::merged(sockets.iter().map(|watched| std::mem::take(&mut self.log(watched).read)))
    }
}

/// Sampling by the supervising thread.
#[derive(Debug)]
pub struct SamplerControl<'a> {
    watch: &'a SampleStore,
    sockets: Vec<WatchedSocket>,
    /// How many more checks in a row must find nothing overdue before they become infrequent.
    checks_until_calm: u32,
}

impl<'a> SamplerControl<'a> {
    /// Creates the sampler for all sockets.
    pub fn new(watch: &'a SampleStore, sockets: Vec<WatchedSocket>) -> Self {
        Self { watch, sockets, checks_until_calm: 0 }
    }

    /// Waits until `until_ns` at most, and takes the samples overdue by then.
    pub fn wait(&mut self, until_ns: u64) {
        let elapsed = || clock::now_ns() - self.watch.start_ns;
        let next = self.next(elapsed());
        clock::sleep_until(until_ns.min(self.watch.start_ns + next));
        self.check_overdue(elapsed());
    }

    /// When to check next.
    fn next(&self, elapsed: u64) -> u64 {
        let plan = &self.watch.plan;
        if self.checks_until_calm > 0 && plan.has_readings(elapsed) {
            plan.overdue(elapsed).1
        } else {
            elapsed + CHECK_INTERVAL_NS_MAX
        }
    }

    fn check_overdue(&mut self, elapsed: u64) {
        let (number, _) = self.watch.plan.overdue(elapsed);
        // Without samples nothing can be overdue, so the check says nothing.
        if number > 0 {
            let late = self.sockets.iter().filter(|socket| self.watch.overdue(socket, number)).count();
            self.checks_until_calm = if late > 0 { CALM_CHECKS_MIN } else { self.checks_until_calm.saturating_sub(1) };
        }
    }

    /// Takes the final sample of each socket.
    pub fn take_final_samples(&self) {
        if self.watch.plan.readings != Readings::None {
            self.sockets.iter().for_each(|socket| self.watch.sample_once(socket, u64::MAX));
        }
    }
}

/// Sampling by the thread that moves the data.
#[derive(Debug)]
pub struct InlineSampler<'a> {
    watch: &'a SampleStore,
    watched: &'a WatchedSocket,
    next_ns: u64,
    /// CPU time of sampling, ns.
    pub cpu_ns: u64,
}

impl<'a> InlineSampler<'a> {
    /// Creates the sampler of one socket.
    pub fn new(watch: &'a SampleStore, watched: &'a WatchedSocket) -> Self {
        Self { watch, watched, next_ns: watch.start_ns + watch.plan.next(0), cpu_ns: 0 }
    }

    /// Takes a sample if due; called between two system calls.
    pub fn sample_if_due(&mut self) {
        let now_ns = clock::now_ns();
        if now_ns >= self.next_ns {
            let (elapsed, before) = (now_ns - self.watch.start_ns, clock::thread_cpu_ns());
            self.watch.between_calls(self.watched, self.watch.plan.due(elapsed));
            self.next_ns = self.watch.start_ns + self.watch.plan.next(elapsed);
            self.cpu_ns += clock::thread_cpu_ns() - before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(readings: Readings, duration_ms: u64) -> SamplingPlan {
        let traffic = crate::spec::Traffic::Tcp { rate_bps: None };
        let directions = vec![crate::spec::Direction::Up];
        let socket = crate::spec::SocketOptions::default();
        SamplingPlan::new(
            &Spec { traffic, directions, streams: 1, duration_ms, socket, copy: false, probe: false, readings },
            1,
        )
    }

    const NS_PER_MS: u64 = 1_000_000;

    #[test]
    fn readings_are_due_every_10_ms() {
        let plan = plan(Readings::All, 1000);
        assert_eq!([0, 10 * NS_PER_MS - 1, 10 * NS_PER_MS, 25 * NS_PER_MS].map(|at| plan.due(at)), [0, 0, 1, 2]);
        assert_eq!(
            [0, 10 * NS_PER_MS - 1, 10 * NS_PER_MS, 25 * NS_PER_MS].map(|at| plan.next(at)),
            [10, 10, 20, 30].map(|ms| ms * NS_PER_MS)
        );
        let overdue =
            [0, 10 * NS_PER_MS, 12 * NS_PER_MS - 1, 12 * NS_PER_MS, 21 * NS_PER_MS].map(|at| plan.overdue(at));
        assert_eq!(overdue, [(0, 12), (0, 12), (0, 12), (1, 22), (1, 22)].map(|(number, ms)| (number, ms * NS_PER_MS)));
    }

    #[test]
    fn readings_alternate_by_interval_except_in_control_run() {
        let plan_of = |control| plan(Readings::ByTurns { seed: 5, control }, 60_000);
        let (by_turns, control) = (plan_of(false), plan_of(true));
        let turns = SampledIntervals::new(5, 60_000);
        for number in 1..6000 {
            let at = number * 10 * NS_PER_MS;
            let due = if turns.is_sampled(at / THROUGHPUT_INTERVAL_NS) { number } else { 0 };
            assert_eq!(by_turns.due(at), due);
            assert_eq!(control.due(at), number);
            assert_eq!(by_turns.overdue(at + INLINE_GRACE_NS).0, due);
        }
        let none = plan(Readings::None, 1000);
        assert_eq!(none.due(500 * NS_PER_MS), 0);
    }

    fn watched(readings: Readings) -> (SampleStore, [WatchedSocket; 2]) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut &sender, &[0; 1000]).unwrap();
        let sending = WatchedSocket { index: 0, stream: sender.into(), number: 3, sends: true };
        let receiving = WatchedSocket { index: 1, stream: receiver.into(), number: 4, sends: false };
        (SampleStore::new(plan(readings, 3_600_000), clock::now_ns(), 2), [sending, receiving])
    }

    #[test]
    fn each_sample_is_taken_once() {
        let (watch, sockets) = watched(Readings::All);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in (0..1000).flat_map(|n| [n, n]) {
                        sockets.iter().for_each(|socket| watch.sample_once(socket, number));
                    }
                });
            }
        });
        let read = watch.take(&sockets);
        // A sample that a thread is late for is skipped: a later one was taken.
        assert!(read.samples.len() <= 999 && read.unread.len() <= 999, "{read:?}");
        assert!(read.samples.is_sorted_by_key(|s| s.time_ns) && read.unread.is_sorted_by_key(|u| u.time_ns));
        assert!(read.samples.iter().all(|s| s.stream == 3 && s.snd_mss > 0));
        assert!(read.unread.iter().all(|u| u.stream == 4 && u.unread_bytes <= 1000 && u.buffer_bytes > 0));
        sockets.iter().for_each(|socket| watch.sample_once(socket, 999));
        assert_eq!(watch.take(&sockets).samples.len(), 0);
    }

    #[test]
    fn sampler_takes_readings_that_threads_missed() {
        let (watch, sockets) = watched(Readings::All);
        let mut sampler_control = SamplerControl::new(&watch, sockets.to_vec());
        let both = |number| sockets.iter().for_each(|socket| watch.between_calls(socket, number));
        let taken_counts = || {
            let read = watch.take(&sockets);
            (read.samples.len(), read.unread.len())
        };
        // Both threads take the sample that is due at 10 ms.
        both(1);
        sampler_control.check_overdue(21 * NS_PER_MS);
        assert_eq!(
            (taken_counts(), sampler_control.checks_until_calm, sampler_control.next(21 * NS_PER_MS)),
            ((1, 1), 0, 71 * NS_PER_MS)
        );
        // At 50 ms neither thread has been active for long.
        sampler_control.check_overdue(50 * NS_PER_MS);
        assert_eq!(
            (taken_counts(), sampler_control.checks_until_calm, sampler_control.next(50 * NS_PER_MS)),
            ((1, 1), CALM_CHECKS_MIN, 52 * NS_PER_MS)
        );
        // The sender is in the kernel, the receiver is not.
        watch.between_calls(&sockets[1], 5);
        sampler_control.check_overdue(52 * NS_PER_MS);
        assert_eq!((taken_counts(), sampler_control.checks_until_calm), ((1, 1), CALM_CHECKS_MIN));
        // Both are active again.
        for number in 6..6 + u64::from(CALM_CHECKS_MIN) {
            assert!(sampler_control.checks_until_calm > 0);
            both(number);
            sampler_control.check_overdue(number * 10 * NS_PER_MS + INLINE_GRACE_NS);
            assert_eq!(taken_counts(), (1, 1));
        }
        assert_eq!(sampler_control.checks_until_calm, 0);
        sampler_control.take_final_samples();
        assert_eq!(taken_counts(), (1, 1));
        both(1_000_000);
        assert_eq!(taken_counts(), (0, 0), "nothing is read after the end");
    }

    /// The cost of sampling is the difference between intervals, so intervals without samples must have no wake-ups.
    #[test]
    fn intervals_without_readings_have_no_wake_ups() {
        let readings = Readings::ByTurns { seed: 5, control: false };
        let (watch, sockets) = watched(readings);
        let mut sampler_control = SamplerControl::new(&watch, sockets.to_vec());
        let turns = SampledIntervals::new(5, 3_600_000);
        let (mut at, mut waits, mut made) = (0, [0; 2], [0; 2]);
        // Both threads wait in the kernel for a minute.
        while at < 60_000 * NS_PER_MS {
            // The end of an interval wakes the thread too.
            at = sampler_control.next(at).min((at / THROUGHPUT_INTERVAL_NS + 1) * THROUGHPUT_INTERVAL_NS);
            let with = usize::from(turns.is_sampled((at - 1) / THROUGHPUT_INTERVAL_NS));
            sampler_control.check_overdue(at);
            waits[with] += 1;
            made[with] += watch.take(&sockets).samples.len();
        }
        // 300 intervals each: two waits in one without samples; in one with samples, ten of them (the first is overdue at 2
        // ms) and the end.
        assert_eq!((waits[0], made[0]), (600, 0));
        assert!(waits[1] >= 3290 && made[1] >= 2990, "{waits:?} {made:?}");
    }

    #[test]
    fn nothing_is_read_if_readings_are_off() {
        let (watch, sockets) = watched(Readings::None);
        let mut sampler_control = SamplerControl::new(&watch, sockets.to_vec());
        let mut between = InlineSampler::new(&watch, &sockets[0]);
        between.next_ns = 0;
        between.sample_if_due();
        sampler_control.check_overdue(500 * NS_PER_MS);
        sampler_control.take_final_samples();
        let read = watch.take(&sockets);
        assert!(read.samples.is_empty() && read.unread.is_empty(), "{read:?}");
    }
}
