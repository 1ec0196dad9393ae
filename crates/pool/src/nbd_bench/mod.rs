//! A closed-loop benchmark for any NBD server: a fixed number of outstanding requests over one connection, at uniformly random offsets.
//!
//! It measures the limits of a server, so its own cost is low: all requests that may be sent leave in one write, all
//! replies that have arrived are taken with one read, and data stays where the kernel put it. It uses no runtime and no
//! thread. Its remaining cost is reported in addition to the server's ([`Figures::client_ns`], [`Figures::server_ns`]): on
//! few CPUs a rate is that of the slower of the two, but a server's own time per request is not.
//!
//! Every reply must belong to an outstanding request, so that none is counted twice; the data is compared with what was
//! written before if the disk was filled. The first quarter of the time is a warm-up.

mod processor;
mod session;
mod uri;

pub use uri::{ServerAddress, Uri, UriError, escape_path};

use crate::bench::Latency;
use hdrhistogram::Histogram;
use nbd::wire::command;
use processor::CpuTime;
use serde::{Deserialize, Serialize};
pub(crate) use session::Session;
pub(crate) use session::Socket;
pub use session::Stream;
use session::put_request;
use stats::random::Random;
use std::io;
use std::time::{Duration, Instant};

/// A reply without its data.
const REPLY_HEADER_BYTES: usize = 16;
/// Bytes read from the socket at once, unless a reply is longer.
const SOCKET_READ_BYTES: usize = 512 << 10;
/// Bytes of each write that fills the disk.
const FILL_WRITE_BYTES: u32 = 1 << 20;
/// Outstanding writes while the disk is filled.
const FILL_DEPTH: usize = 8;
/// A slot number has 16 bits of a cookie.
const DEPTH_MAX: u32 = 1 << 16;
/// The connection is closed after this long without data from the server.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Bytes of a request; its offset is a multiple of this.
    pub block_bytes: u32,
    /// Outstanding requests.
    pub depth: u32,
    /// The number of requests to collect per write, at most [`Load::depth`]; with 1 each request is sent as soon as possible.
    pub batch: u32,
    /// The total time, including the warm-up.
    pub duration: Duration,
    /// Writes instead of reads; the data on the disk is lost.
    pub write: bool,
    /// Write a known pattern to the whole disk first; the data on it is lost.
    pub fill: bool,
    /// Compare the data of reads with the pattern.
    pub compare: bool,
    /// The seed of the offsets.
    pub seed: u64,
    /// The process whose CPU time is reported, with its children and all their threads.
    pub server: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Replies per second.
    pub ops_per_s: f64,
    /// From the write of the request to the read of its reply.
    pub latency_ns: Latency,
    /// Mean number of requests per write.
    pub requests_per_write: f64,
    /// Mean number of replies per read of the socket.
    pub replies_per_read: f64,
    /// CPU time of this client per request.
    pub client_ns: f64,
    /// CPU time of the server per request, if requested.
    pub server_ns: Option<f64>,
    /// Replies compared with the pattern.
    pub compared: u64,
    /// Requests that failed at the server.
    pub failed: u64,
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection could not be opened, or broke.
    #[error("the connection to {place} failed: {error}")]
    Connection { place: String, error: io::Error },
    /// The server does not behave as required.
    #[error("{place} {what}")]
    Server { place: String, what: String },
    /// The requested load is invalid.
    #[error("{0}")]
    Load(String),
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    cookie: u64,
    offset: u64,
    sent_at: Instant,
}

/// Runs the load.
pub fn run(place: &Uri, load: &Load) -> Result<Figures, Error> {
    measure_session(Session::open(place)?, load)
}

/// Runs the load over a stream of the caller, with alternating reads and writes.
pub fn run_over(stream: Box<dyn Stream>, place: &Uri, load: &Load) -> Result<Figures, Error> {
    measure_session(Session::from_stream(stream, place)?, load)
}

fn measure_session(mut session: Session, load: &Load) -> Result<Figures, Error> {
    if load.depth > DEPTH_MAX {
        return Err(Error::Load(format!("at most {DEPTH_MAX} requests can be in flight")));
    }
    let places = session.size_bytes() / u64::from(load.block_bytes.max(1));
    if places == 0 || load.block_bytes == 0 {
        return Err(Error::Load(format!(
            "a block of {} bytes is larger than the disk of {}",
            load.block_bytes,
            session.size_bytes()
        )));
    }
    if load.fill && !load.block_bytes.is_multiple_of(8) {
        return Err(Error::Load("verified blocks must be a multiple of 8 bytes".into()));
    }
    if load.fill {
        fill_disk(&mut session, load.seed)?;
    }
    let spent = load.server.map(CpuTime::for_process).transpose().map_err(|why| Error::Load(why.to_string()))?;
    let figures = LoadLoop::new(&mut session, load, places)?.run(spent.as_ref())?;
    session.disconnect();
    Ok(figures)
}

/// The eight bytes at each offset of a filled disk: unique, and determined by the offset.
fn pattern_word(place: u64, seed: u64) -> u64 {
    (place / 8) ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn put_pattern(out: &mut Vec<u8>, offset: u64, length: u32, seed: u64) {
    (0..u64::from(length) / 8).for_each(|at| out.extend(pattern_word(offset + 8 * at, seed).to_le_bytes()));
    // A disk that ends within a word has zeroes there.
    out.resize(out.len() + length as usize % 8, 0);
}

/// Whether data is that of [`put_pattern`].
fn is_pattern(data: &[u8], offset: u64, seed: u64) -> bool {
    let (words, rest) = data.as_chunks::<8>();
    let differs = words
        .iter()
        .zip(0_u64..)
        .fold(0, |differs, (bytes, at)| differs | (u64::from_le_bytes(*bytes) ^ pattern_word(offset + 8 * at, seed)));
    differs == 0 && rest.iter().all(|byte| *byte == 0)
}

/// Writes every block of the disk once.
fn fill_disk(session: &mut Session, seed: u64) -> Result<(), Error> {
    let size = session.size_bytes();
    let (mut asked, count) = (0_u64, size.div_ceil(u64::from(FILL_WRITE_BYTES)));
    let (mut out, mut in_flight) = (Vec::new(), Vec::with_capacity(FILL_DEPTH));
    while asked < count || !in_flight.is_empty() {
        while asked < count && in_flight.len() < FILL_DEPTH {
            let offset = asked * u64::from(FILL_WRITE_BYTES);
            let length = (size - offset).min(u64::from(FILL_WRITE_BYTES)) as u32;
            out.clear();
            put_request(&mut out, command::WRITE, asked, offset, length);
            put_pattern(&mut out, offset, length, seed);
            session.send(&out)?;
            in_flight.push(asked);
            asked += 1;
        }
        let (error, cookie) = session.reply()?;
        let Some(nth) = in_flight.iter().position(|sent| *sent == cookie) else {
            return Err(not_in_flight(session, cookie));
        };
        in_flight.swap_remove(nth);
        if error != 0 {
            return Err(session.protocol_error(format!("failed a write while filling the disk: error {error}")));
        }
    }
    Ok(())
}

/// The error for a reply to a request that was answered before, or never sent.
fn not_in_flight(session: &Session, cookie: u64) -> Error {
    session.protocol_error(format!("answered the request {cookie:#x}, which is not in flight"))
}

struct LoadLoop<'a> {
    session: &'a mut Session,
    load: &'a Load,
    block_count: u64,
    random: Random,
    slots: Vec<Option<Slot>>,
    /// Slots without an outstanding request.
    free: Vec<usize>,
    next: u64,
    out: Vec<u8>,
    payload: Vec<u8>,
    /// Received and not yet processed: `input[begin..end]`.
    input: Vec<u8>,
    begin: usize,
    end: usize,
    tally: Tally,
}

/// Counters of the whole run; the latencies exclude the warm-up.
struct Tally {
    latency_ns: Histogram<u64>,
    answered: u64,
    failed: u64,
    compared: u64,
    sent: u64,
    writes: u64,
    reads: u64,
}

impl<'a> LoadLoop<'a> {
    fn new(session: &'a mut Session, load: &'a Load, places: u64) -> Result<Self, Error> {
        let latency_ns = Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(|e| Error::Load(e.to_string()))?;
        let depth = load.depth.max(1) as usize;
        let payload = if load.write { vec![0x5a; load.block_bytes as usize] } else { Vec::new() };
        let longest = if load.write { REPLY_HEADER_BYTES } else { REPLY_HEADER_BYTES + load.block_bytes as usize };
        Ok(Self {
            session,
            load,
            block_count: places,
            random: Random::new(load.seed),
            slots: vec![None; depth],
            free: (0..depth).collect(),
            next: 0,
            out: Vec::new(),
            payload,
            input: vec![0; SOCKET_READ_BYTES.max(2 * longest)],
            begin: 0,
            end: 0,
            tally: Tally { latency_ns, answered: 0, failed: 0, compared: 0, sent: 0, writes: 0, reads: 0 },
        })
    }

    fn run(mut self, server: Option<&CpuTime>) -> Result<Figures, Error> {
        let (start, batch) = (Instant::now(), self.load.batch.min(self.load.depth).max(1) as usize);
        let (begin, end) = (start + self.load.duration / 4, start + self.load.duration);
        let mut first = None;
        let mut now = start;
        while now < end {
            if first.is_none() && now >= begin {
                self.tally.latency_ns.reset();
                first = Some(Snapshot::from_counters(&self.tally, server)?);
            }
            if self.free.len() >= batch {
                self.send_requests()?;
            }
            now = self.receive_replies()?;
        }
        let last = Snapshot::from_counters(&self.tally, server)?;
        // Otherwise a server that fell silent here would look like one that answers everything.
        while self.free.len() < self.slots.len() {
            self.receive_replies()?;
        }
        let Some(first) = first.filter(|first| last.answered > first.answered) else {
            return Err(self.session.protocol_error("answered no request in the measured time".into()));
        };
        let since = |of: fn(&Snapshot) -> u64| (of(&last) - of(&first)) as f64;
        let each = |nanoseconds: u64| nanoseconds as f64 / since(|s| s.answered);
        let server_ns = first.server_ns.zip(last.server_ns).map(|(first, last)| last.saturating_sub(first));
        if server_ns == Some(0) {
            let why = "the process of --server-pid and its children used no CPU time while requests were answered";
            return Err(Error::Load(format!("{why}; is it the server?")));
        }
        Ok(Figures {
            ops_per_s: since(|s| s.answered) / (last.at - first.at).as_secs_f64(),
            latency_ns: Latency {
                p50: self.tally.latency_ns.value_at_quantile(0.5) as f64,
                p99: self.tally.latency_ns.value_at_quantile(0.99) as f64,
            },
            requests_per_write: since(|s| s.sent) / since(|s| s.writes),
            replies_per_read: since(|s| s.answered) / since(|s| s.reads),
            client_ns: each(last.client_ns - first.client_ns),
            server_ns: server_ns.map(each),
            compared: self.tally.compared,
            failed: self.tally.failed,
        })
    }

    /// Sends all requests that may be sent, in one write.
    fn send_requests(&mut self) -> Result<(), Error> {
        self.out.clear();
        let command = if self.load.write { command::WRITE } else { command::READ };
        let asked = Instant::now();
        self.tally.sent += self.free.len() as u64;
        for slot in self.free.drain(..) {
            let offset = self.random.below(self.block_count) * u64::from(self.load.block_bytes);
            // The slot, and a sequence number: the cookie of a duplicate reply does not match.
            let cookie = self.next << 16 | slot as u64;
            self.next += 1;
            self.slots[slot] = Some(Slot { cookie, offset, sent_at: asked });
            put_request(&mut self.out, command, cookie, offset, self.load.block_bytes);
            self.out.extend_from_slice(&self.payload);
        }
        self.tally.writes += 1;
        self.session.send(&self.out)
    }

    /// Receives replies with one read; returns when that was.
    fn receive_replies(&mut self) -> Result<Instant, Error> {
        if self.input.len() - self.end < self.input.len() / 2 {
            self.input.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        let count = self.session.stream().read(&mut self.input[self.end..]);
        self.end += match count {
            Ok(0) => return Err(self.session.protocol_error("ended the connection".into())),
            Ok(count) => count,
            Err(error) => return Err(self.session.connection_error(error)),
        };
        self.tally.reads += 1;
        let now = Instant::now();
        while self.process_reply(now)? {}
        Ok(now)
    }

    /// Processes one reply, if it is complete.
    fn process_reply(&mut self, now: Instant) -> Result<bool, Error> {
        let input = &self.input[self.begin..self.end];
        let Some((head, data)) = input.split_first_chunk::<REPLY_HEADER_BYTES>() else { return Ok(false) };
        let Some((error, cookie)) = session::parse_reply(head) else {
            return Err(self.session.protocol_error("sent an invalid reply".into()));
        };
        let slot = (cookie & 0xffff) as usize;
        let Some(asked) = self.slots.get(slot).copied().flatten().filter(|asked| asked.cookie == cookie) else {
            return Err(not_in_flight(self.session, cookie));
        };
        let length = if self.load.write || error != 0 { 0 } else { self.load.block_bytes as usize };
        let Some(data) = data.get(..length) else { return Ok(false) };
        if error != 0 {
            self.tally.failed += 1;
        } else if self.load.compare && !self.load.write {
            if !is_pattern(data, asked.offset, self.load.seed) {
                return Err(self.session.protocol_error(format!("returned wrong data at {}", asked.offset)));
            }
            self.tally.compared += 1;
        }
        self.begin += REPLY_HEADER_BYTES + length;
        self.slots[slot] = None;
        self.free.push(slot);
        self.tally.answered += u64::from(error == 0);
        self.tally.latency_ns.saturating_record((now - asked.sent_at).as_nanos() as u64);
        Ok(true)
    }
}

/// The state of the counters.
struct Snapshot {
    at: Instant,
    answered: u64,
    sent: u64,
    writes: u64,
    reads: u64,
    client_ns: u64,
    server_ns: Option<u64>,
}

impl Snapshot {
    fn from_counters(tally: &Tally, server: Option<&CpuTime>) -> Result<Self, Error> {
        let Tally { answered, sent, writes, reads, .. } = *tally;
        let server_ns = server.map(CpuTime::now_ns).transpose().map_err(|why| Error::Load(why.to_string()))?;
        Ok(Self { at: Instant::now(), answered, sent, writes, reads, client_ns: processor::own_ns(), server_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nbd::wire::{self, handshake, info, option, reply};
    use std::io::{Read, Write};

    /// A server that sends all its bytes whatever it is asked.
    struct ScriptedServer(io::Cursor<Vec<u8>>);

    impl Read for ScriptedServer {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.0.read(to)
        }
    }

    impl Write for ScriptedServer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A session with a disk of this size, whose server then answers the requests with these cookies.
    fn scripted_session(size_bytes: u64, cookies: &[u64]) -> Session {
        let mut script = [wire::GREETING_MAGIC.to_be_bytes(), wire::OPTION_MAGIC.to_be_bytes()].concat();
        script.extend(handshake::FIXED_NEWSTYLE.to_be_bytes());
        let export = [&info::EXPORT.to_be_bytes()[..], &size_bytes.to_be_bytes(), &[0, 0]].concat();
        for (kind, data) in [(reply::INFO, &export[..]), (reply::ACK, &[])] {
            script.extend(wire::OPTION_REPLY_MAGIC.to_be_bytes());
            [option::GO, kind, data.len() as u32].into_iter().for_each(|word| script.extend(word.to_be_bytes()));
            script.extend(data);
        }
        for cookie in cookies {
            script.extend(u64::from(wire::SIMPLE_REPLY_MAGIC).rotate_left(32).to_be_bytes());
            script.extend(cookie.to_be_bytes());
        }
        let place = Uri { export: String::new(), server: ServerAddress::Unix("nowhere".into()) };
        Session::from_stream(Box::new(ScriptedServer(io::Cursor::new(script))), &place).expect("a server")
    }

    #[test]
    fn each_fill_write_needs_a_reply_of_its_own() {
        let fill = |cookies: &[u64]| fill_disk(&mut scripted_session(3 << 20, cookies), 7);
        assert!(fill(&[2, 0, 1]).is_ok());
        for wrong in [&[0, 0, 1][..], &[0, 1, 1], &[0, 1, 3]] {
            let why = fill(wrong).expect_err("a write has no reply").to_string();
            assert!(why.contains("not in flight"), "{wrong:?}: {why}");
        }
        assert!(fill(&[0, 1]).is_err(), "it closed the connection");
    }

    #[test]
    fn pattern_differs_by_offset_and_seed() {
        let mut data = Vec::new();
        put_pattern(&mut data, 4096, 4100, 7);
        assert_eq!(data.len(), 4100);
        assert!(is_pattern(&data, 4096, 7));
        assert!(!is_pattern(&data, 4104, 7) && !is_pattern(&data, 4096, 8));
        data[4000] ^= 1;
        assert!(!is_pattern(&data, 4096, 7));
    }
}
