//! The paper's coordinator, and its measurement of itself.
//!
//! As in the paper, requests are issued by the coordinator's own process. The paper does not state how many are queued;
//! here there are always enough, so that no transfer thread lacks work and the cluster itself is measured: the issuing
//! thread puts a large number of uniformly random addresses into the main queue whenever a node's queue has run low and the
//! main queue is empty. So queueing is not part of a latency: it runs from a request's write to the arrival of its reply.
//!
//! The paper does not state either whether a transfer thread waits for its replies before its next write. It does here,
//! since the paper hides latency by having more threads; [`Load::ahead`] permits several outstanding writes per connection.

use super::queue::Queue;
use super::{SPACE_BYTES_MAX, encode_address, pattern};
use crate::bench::{Figures, Latency};
use crate::packets::Packets;
use hdrhistogram::Histogram;
use stats::random::Random;
use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A node without any data for this long is regarded as failed.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length of a queue, however slow its node: at the limit issuing stops, and the slowest node determines the
/// rate, as it must with uniform addresses.
const QUEUE_LENGTH_MAX: usize = 1 << 20;
/// The limits of the bytes of replies read at once.
const ANSWER_BYTES_MIN: usize = 64;
const ANSWER_BYTES_MAX: usize = 1 << 16;

#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Transfer threads per node.
    pub threads: u32,
    /// The maximum number of requests per write.
    pub batch: u32,
    /// The maximum of outstanding writes of a transfer thread: 1 waits for the replies before the next write.
    pub ahead: u32,
    /// The total time, including the warm-up in the first quarter.
    pub duration: Duration,
    /// Bytes of each node's file.
    pub node_bytes: u64,
    /// Whether the nodes were filled with [`pattern`], so that every reply is checked.
    pub check: bool,
    /// The seed of the addresses.
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurement {
    /// The same results as of our own pool; `window` is the mean number of outstanding requests at a node.
    pub figures: Figures,
    /// The number of replies that were checked.
    pub checked: u64,
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Invalid(String),
    #[error("node {0}: {1}")]
    Node(SocketAddr, #[source] io::Error),
    #[error("interrupted")]
    Cancelled,
}

/// The shared state of the threads.
struct SharedState {
    load: Load,
    main: Queue,
    nodes: Vec<Queue>,
    /// Whether a node's queue has run low, or the run is over.
    is_low: Mutex<bool>,
    low_changed: Condvar,
    is_over: AtomicBool,
    counting: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

impl Load {
    /// The length below which a node's queue has run low: twice the requests of all its threads, if the queue permits.
    fn low_mark(&self) -> usize {
        let outstanding = self.outstanding_requests().saturating_mul(self.threads as usize);
        outstanding.saturating_mul(2).min(QUEUE_LENGTH_MAX)
    }

    /// The bytes of replies read at once: those of all outstanding writes, within limits.
    fn answer_bytes(&self) -> usize {
        self.outstanding_requests().clamp(ANSWER_BYTES_MIN, ANSWER_BYTES_MAX)
    }

    /// The maximum of outstanding requests of a transfer thread.
    fn outstanding_requests(&self) -> usize {
        (self.batch as usize).saturating_mul(self.ahead as usize)
    }
}

impl SharedState {
    fn set_low(&self) {
        *lock(&self.is_low) = true;
        self.low_changed.notify_one();
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.main.close();
        self.nodes.iter().for_each(Queue::close);
        self.set_low();
    }

    fn fail(&self, failure: Failure) {
        lock(&self.failure).get_or_insert(failure);
        self.end();
    }
}

/// Locks a mutex; no thread panics while holding it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connection and counters of one transfer thread.
struct Transfer {
    node: usize,
    address: SocketAddr,
    stream: TcpStream,
    answered: AtomicU64,
    writes: AtomicU64,
}

/// Runs the load on the nodes, in the order of the space; `cancelled` is polled ten times a second.
pub fn run(nodes: &[SocketAddr], load: Load, cancelled: &dyn Fn() -> bool) -> Result<Measurement, Failure> {
    check_load(nodes, &load)?;
    let mut transfers = Vec::new();
    for (node, address) in nodes.iter().enumerate() {
        for _ in 0..load.threads {
            let stream = connect(*address).map_err(|error| Failure::Node(*address, error))?;
            let (answered, writes) = (AtomicU64::new(0), AtomicU64::new(0));
            transfers.push(Transfer { node, address: *address, stream, answered, writes });
        }
    }
    let shared = SharedState {
        load,
        main: Queue::default(),
        nodes: nodes.iter().map(|_| Queue::default()).collect(),
        is_low: Mutex::new(true),
        low_changed: Condvar::new(),
        is_over: AtomicBool::new(false),
        counting: AtomicBool::new(false),
        failure: Mutex::new(None),
    };
    let mut latency_ns = histogram();
    let mut checked = 0;
    let (mut before, mut after, mut seconds) = (CounterSum::default(), CounterSum::default(), 0.0);
    std::thread::scope(|scope| {
        scope.spawn(|| issue_requests(&shared));
        scope.spawn(|| dispatch_requests(&shared));
        let threads: Vec<_> = transfers.iter().map(|t| scope.spawn(|| run_transfer(t, &shared))).collect();
        let begun = Instant::now();
        sleep_until(begun + load.duration / 4, &shared, cancelled);
        before = CounterSum::from_transfers(&transfers);
        let first = Instant::now();
        shared.counting.store(true, Ordering::Relaxed);
        sleep_until(begun + load.duration, &shared, cancelled);
        shared.counting.store(false, Ordering::Relaxed);
        after = CounterSum::from_transfers(&transfers);
        seconds = first.elapsed().as_secs_f64();
        shared.end();
        for thread in threads {
            if let Ok(tally) = thread.join() {
                // Both histograms have the same bounds.
                let _ = latency_ns.add(tally.latency_ns);
                checked += tally.checked;
            }
        }
    });
    if let Some(failure) = lock(&shared.failure).take() {
        return Err(failure);
    }
    if after.answered == before.answered {
        return Err(Failure::Invalid(format!("no request was answered in {seconds:.1} s")));
    }
    let rate = |of: fn(&CounterSum) -> u64| (of(&after) - of(&before)) as f64 / seconds;
    let us = |quantile| latency_ns.value_at_quantile(quantile) as f64 / 1000.0;
    let packets = after.packets.since(before.packets);
    let ops_per_s = rate(|s| s.answered);
    let figures = Figures {
        ops_per_s,
        latency_us: Latency { p50: us(0.5), p99: us(0.99) },
        // Little's law: outstanding requests = rate x time.
        window: ops_per_s * latency_ns.mean() / 1e9 / nodes.len() as f64,
        batch_mean: ops_per_s / rate(|s| s.writes),
        packets_per_s: packets.per_s(seconds),
        packet_bytes_mean: packets.bytes_mean(),
        failed: 0,
    };
    Ok(Measurement { figures, checked })
}

/// The cluster's space exceeds the addresses of the paper's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{nodes} nodes of {each} bytes are more than the {SPACE_BYTES_MAX} that 5 bytes can address")]
pub struct NotAddressable {
    pub nodes: u64,
    /// Bytes of each.
    pub each: u64,
}

/// Checks whether this many nodes of this size can be addressed by the paper's protocol.
pub fn check_addressable(nodes: u64, each: u64) -> Result<(), NotAddressable> {
    match each.checked_mul(nodes) {
        Some(whole) if whole <= SPACE_BYTES_MAX => Ok(()),
        _ => Err(NotAddressable { nodes, each }),
    }
}

fn check_load(nodes: &[SocketAddr], load: &Load) -> Result<(), Failure> {
    let wrong = if nodes.is_empty() {
        Some("no nodes".into())
    } else if load.threads == 0 || load.batch == 0 || load.ahead == 0 || load.node_bytes == 0 {
        Some("threads, batch, writes ahead and the nodes' bytes must not be 0".into())
    } else {
        check_addressable(nodes.len() as u64, load.node_bytes).err().map(|why| why.to_string())
    };
    wrong.map_or(Ok(()), |wrong| Err(Failure::Invalid(wrong)))
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(15))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
    stream.set_write_timeout(Some(SILENCE_TIMEOUT))?;
    Ok(stream)
}

fn histogram() -> Histogram<u64> {
    // The bounds are valid, so this cannot fail; an auto-resizing histogram would do as well.
    Histogram::new_with_bounds(1, 60_000_000_000, 3)
        .unwrap_or_else(|_| Histogram::new(3).unwrap_or_else(|_| unreachable!()))
}

fn sleep_until(end: Instant, shared: &SharedState, cancelled: &dyn Fn() -> bool) {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || shared.is_over.load(Ordering::Acquire) {
            return;
        }
        if cancelled() {
            return shared.fail(Failure::Cancelled);
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// Issues requests for the whole space.
fn issue_requests(shared: &SharedState) {
    let space = shared.load.node_bytes * shared.nodes.len() as u64;
    let mut random = Random::new(shared.load.seed);
    let lot = (shared.load.low_mark() * shared.nodes.len()).max(64);
    let mut addresses = Vec::with_capacity(lot);
    loop {
        let mut low = lock(&shared.is_low);
        while !*low && !shared.is_over.load(Ordering::Acquire) {
            low = shared.low_changed.wait(low).unwrap_or_else(PoisonError::into_inner);
        }
        *low = false;
        drop(low);
        if shared.is_over.load(Ordering::Acquire) {
            return;
        }
        if shared.nodes.iter().any(|queue| queue.len() > QUEUE_LENGTH_MAX) {
            std::thread::sleep(Duration::from_millis(1));
            shared.set_low();
            continue;
        }
        addresses.clear();
        addresses.extend(std::iter::repeat_with(|| random.below(space)).take(lot));
        shared.main.put(&addresses);
    }
}

/// The main thread: moves addresses from the main queue to the nodes' queues.
fn dispatch_requests(shared: &SharedState) {
    let mut requests = Vec::new();
    let mut sorted: Vec<Vec<u64>> = shared.nodes.iter().map(|_| Vec::new()).collect();
    loop {
        shared.main.take(usize::MAX, true, &mut requests);
        if requests.is_empty() {
            return;
        }
        for address in requests.drain(..) {
            sorted[(address / shared.load.node_bytes) as usize].push(address);
        }
        for (queue, addresses) in shared.nodes.iter().zip(&mut sorted) {
            queue.put(addresses);
            addresses.clear();
        }
        // Some nodes may have got too few of them.
        if shared.nodes.iter().any(|queue| queue.len() < shared.load.low_mark()) {
            shared.set_low();
        }
    }
}

struct Tally {
    latency_ns: Histogram<u64>,
    checked: u64,
}

fn run_transfer(own: &Transfer, shared: &SharedState) -> Tally {
    let mut tally = Tally { latency_ns: histogram(), checked: 0 };
    if let Err(error) = exchange_requests(own, shared, &mut tally) {
        let error = match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::other(format!("no answer for {} s", SILENCE_TIMEOUT.as_secs())),
            _ => error,
        };
        shared.fail(Failure::Node(own.address, error));
    }
    tally
}

fn exchange_requests(own: &Transfer, shared: &SharedState, tally: &mut Tally) -> io::Result<()> {
    let Load { batch, ahead, node_bytes, check, .. } = shared.load;
    let (queue, first) = (&shared.nodes[own.node], own.node as u64 * node_bytes);
    let mut stream = &own.stream;
    let (mut taken, mut out) = (Vec::new(), Vec::new());
    let mut answers = vec![0; shared.load.answer_bytes()];
    // Incomplete writes: their time, and the number of missing replies. And the expected bytes, if they are checked.
    let (mut under_way, mut expected) = (VecDeque::<(Instant, u64)>::new(), VecDeque::<u8>::new());
    loop {
        while under_way.len() < ahead as usize {
            queue.take(batch as usize, under_way.is_empty(), &mut taken);
            if taken.is_empty() {
                break;
            }
            if queue.len() < shared.load.low_mark() && shared.main.len() == 0 {
                shared.set_low();
            }
            out.clear();
            out.extend(taken.iter().flat_map(|address| encode_address(address - first)));
            if check {
                expected.extend(taken.iter().map(|address| pattern(*address)));
            }
            under_way.push_back((Instant::now(), taken.len() as u64));
            stream.write_all(&out)?;
            own.writes.fetch_add(1, Ordering::Relaxed);
        }
        if under_way.is_empty() {
            return Ok(());
        }
        let count = stream.read(&mut answers)?;
        if count == 0 {
            return Err(io::Error::other("it closed the connection; its own log has the reason"));
        }
        let now = Instant::now();
        for answer in answers[..count].iter().filter(|_| check) {
            if expected.pop_front() != Some(*answer) {
                return Err(io::Error::other("wrong data at an address"));
            }
            tally.checked += 1;
        }
        own.answered.fetch_add(count as u64, Ordering::Relaxed);
        let counting = shared.counting.load(Ordering::Relaxed);
        let mut left = count as u64;
        while left > 0 {
            let Some((written, missing)) = under_way.front_mut() else {
                return Err(io::Error::other("more answers than requests"));
            };
            let these = left.min(*missing);
            if counting {
                tally.latency_ns.saturating_record_n((now - *written).as_nanos() as u64, these);
            }
            left -= these;
            *missing -= these;
            if *missing == 0 {
                under_way.pop_front();
            }
        }
    }
}

/// The counters of all transfer threads so far.
#[derive(Default)]
struct CounterSum {
    answered: u64,
    writes: u64,
    packets: Packets,
}

impl CounterSum {
    fn from_transfers(transfers: &[Transfer]) -> Self {
        let mut sum = Self::default();
        for one in transfers {
            sum.answered += one.answered.load(Ordering::Relaxed);
            sum.writes += one.writes.load(Ordering::Relaxed);
            sum.packets = sum.packets.and(Packets::from_socket(&one.stream).unwrap_or_default());
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::node::PaperNode;
    use std::net::TcpListener;

    const NODE_BYTES: u64 = 10_000;

    /// Starts nodes in threads of this process; with `wrong` the last one serves bytes of another offset.
    fn nodes(count: u64, threads: u32, wrong: u64) -> Vec<SocketAddr> {
        let start = |nth: u64| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let first = nth * NODE_BYTES + if nth == count - 1 { wrong } else { 0 };
            let node = PaperNode::memory(NODE_BYTES, Some(first), true, None).unwrap();
            std::thread::spawn(move || {
                std::thread::scope(|scope| {
                    for _ in 0..threads {
                        let (stream, _) = listener.accept().unwrap();
                        let node = &node;
                        scope.spawn(move || drop(node.serve(&stream)));
                    }
                });
            });
            address
        };
        (0..count).map(start).collect()
    }

    fn load(threads: u32, batch: u32, ahead: u32) -> Load {
        let duration = Duration::from_millis(400);
        Load { threads, batch, ahead, duration, node_bytes: NODE_BYTES, check: true, seed: 1 }
    }

    #[test]
    fn answers_match_addresses_and_batches_keep_their_limit() {
        for (batch, ahead) in [(1, 1), (10, 1), (100, 1), (10, 4)] {
            let measured = run(&nodes(3, 2, 0), load(2, batch, ahead), &|| false).unwrap();
            let Figures { ops_per_s, batch_mean, packets_per_s, packet_bytes_mean, window, .. } = measured.figures;
            assert!(measured.checked as f64 >= ops_per_s * 0.25, "{measured:?}");
            assert!(batch_mean <= f64::from(batch) * 1.1 && (batch == 1 || batch_mean > 1.0), "{measured:?}");
            assert!(window <= f64::from(2 * batch * ahead) * 1.1, "{measured:?}");
            // 5 bytes per request, at least a packet per write.
            let sent = packets_per_s.sent * packet_bytes_mean.sent;
            assert!((sent / (5.0 * ops_per_s) - 1.0).abs() < 0.1, "{measured:?}");
        }
    }

    #[test]
    fn queue_of_any_load_is_bounded() {
        for each in [1, 1 << 11, 1 << 16, u32::MAX] {
            let load = load(each, each, each);
            assert!((2..=QUEUE_LENGTH_MAX).contains(&load.low_mark()), "{each}");
            assert!((64..=ANSWER_BYTES_MAX).contains(&load.answer_bytes()), "{each}");
        }
        assert_eq!((load(2, 10, 4).low_mark(), load(2, 100, 4).answer_bytes()), (160, 400));
    }

    #[test]
    fn wrong_data_closed_node_and_oversized_load_are_errors() {
        let failure = run(&nodes(2, 1, 1), load(1, 10, 1), &|| false).unwrap_err();
        assert!(failure.to_string().contains("wrong data"), "{failure}");
        let closed = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        assert!(matches!(run(&[closed], load(1, 1, 1), &|| false), Err(Failure::Node(..))));
        assert!(matches!(run(&[], load(1, 1, 1), &|| false), Err(Failure::Invalid(_))));
        let large = Load { node_bytes: SPACE_BYTES_MAX, ..load(1, 1, 1) };
        assert!(run(&[closed, closed], large, &|| false).unwrap_err().to_string().contains("5 bytes can address"));
        assert!(matches!(run(&nodes(1, 1, 0), load(1, 1, 1), &|| true), Err(Failure::Cancelled)));
    }
}
