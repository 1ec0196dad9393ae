//! What an end saw of a run: numbers as they were read, which go back over the control connection. Nothing here is an
//! interpretation; [`crate::estimate`] and [`crate::why`] make those.

use crate::nan;
use crate::spec::Direction;
use crate::tcp_info::TcpSample;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one end saw.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EndReport {
    /// What it sent, by direction; at most one of each.
    pub sent: Vec<Sent>,
    /// What it received.
    pub received: Vec<Received>,
    /// The transactions it asked for.
    pub transactions: Option<Transactions>,
    /// What its machine did meanwhile.
    pub machine: crate::usage::Machine,
    /// CPU time that reading TCP's state took, ns, in whichever thread, and that of the thread that looks after the others.
    pub sampler_cpu_ns: u64,
    /// For how long the thread that looks after the others was ready and did not run, ns: it wants next to nothing, so this tells of the
    /// machine. 0 where the kernel does not count it, and of UDP.
    #[serde(default)]
    pub sampler_wait_ns: u64,
    /// Whose clock its times are of: the kernel's boot_id and the offset of its time namespace. Times of ends that say the same need no translation.
    #[serde(default)]
    pub clock: Option<String>,
    /// Settings of its kernel, such as `net.ipv4.tcp_wmem`.
    pub settings: BTreeMap<String, String>,
    /// Why the run ended before its time, if it did.
    pub trouble: Option<String>,
}

/// A direction at its sending end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Which.
    pub direction: Direction,
    /// When sending began, CLOCK_BOOTTIME of this end.
    pub start_ns: u64,
    /// When counting ended.
    pub end_ns: u64,
    /// Each socket as it was granted.
    pub sockets: Vec<Granted>,
    /// The threads that sent.
    pub threads: crate::usage::Threads,
    /// UDP: what became of the due times.
    pub packets: Option<PacketsSent>,
    /// TCP: the readings in order of time. They travel in frames of their own.
    #[serde(skip)]
    pub samples: Vec<TcpSample>,
    /// TCP, with `--tcp-probe`: what came for each acknowledgement.
    #[serde(skip)]
    pub acks: Vec<TcpSample>,
    /// Acknowledgements that the kernel overwrote before they were read.
    pub acks_lost: u64,
    /// TCP: what the interface had sent in all, whoever's it was, at the start and every 100 ms.
    #[serde(default)]
    pub carried: Vec<InterfaceCount>,
}

/// A direction at its receiving end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Which.
    pub direction: Direction,
    /// When counting began, CLOCK_BOOTTIME of this end.
    pub start_ns: u64,
    /// Ends of the intervals, CLOCK_BOOTTIME of this end.
    pub ends_ns: Vec<u64>,
    /// Bytes that arrived in each, all streams together.
    pub bytes: Vec<u64>,
    /// Bytes of each stream.
    pub streams: Vec<u64>,
    /// Each socket as it was granted.
    pub sockets: Vec<Granted>,
    /// The threads that received.
    pub threads: crate::usage::Threads,
    /// TCP: bytes that lay unread in each socket, and the window that it offered, every 10 ms.
    pub unread: Vec<Unread>,
    /// UDP: what came of the packets.
    pub packets: Option<PacketsReceived>,
    /// TCP: what the interface had received in all, whoever's it was, at the start and every 100 ms.
    #[serde(default)]
    pub carried: Vec<InterfaceCount>,
}

/// A counter of the network interface that a direction's connections go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct InterfaceCount {
    /// When it was read, CLOCK_BOOTTIME of this end.
    pub time_ns: u64,
    /// Bytes of whole packets in this direction since the interface was made.
    pub bytes: u64,
}

impl From<(u64, u64)> for InterfaceCount {
    fn from((time_ns, bytes): (u64, u64)) -> Self {
        Self { time_ns, bytes }
    }
}

impl From<InterfaceCount> for (u64, u64) {
    fn from(c: InterfaceCount) -> Self {
        (c.time_ns, c.bytes)
    }
}

/// One look at a receiving socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64, u64)", into = "(u64, u64, u64, u64)")]
pub struct Unread {
    /// When, CLOCK_BOOTTIME of the receiving end.
    pub time_ns: u64,
    /// The number of the stream.
    pub stream: u64,
    /// Bytes received in order and not read yet.
    pub unread_bytes: u64,
    /// SO_RCVBUF now, as granted or as grown by the kernel.
    pub buffer_bytes: u64,
}

impl From<(u64, u64, u64, u64)> for Unread {
    fn from((time_ns, stream, unread_bytes, buffer_bytes): (u64, u64, u64, u64)) -> Self {
        Self { time_ns, stream, unread_bytes, buffer_bytes }
    }
}

impl From<Unread> for (u64, u64, u64, u64) {
    fn from(u: Unread) -> Self {
        (u.time_ns, u.stream, u.unread_bytes, u.buffer_bytes)
    }
}

/// A socket's settings as the kernel granted them, read back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// Own address and port.
    pub local: String,
    /// The other end's.
    pub peer: String,
    /// SO_SNDBUF at the end of the run, bytes.
    pub send_buffer: u64,
    /// SO_RCVBUF at the end of the run, bytes.
    pub receive_buffer: u64,
    /// TCP: payload of a segment, bytes.
    pub mss: u64,
    /// TCP: the congestion control.
    pub congestion: Option<String>,
    /// SO_COOKIE: the kernel's own name of the socket.
    pub cookie: u64,
}

/// UDP at the sender.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketsSent {
    /// Packets that were due.
    pub due: u64,
    /// Packets that the kernel took.
    pub sent: u64,
    /// Times that it refused one for lack of room (they were sent later).
    pub refused: u64,
    /// How late packets were handed over, us: median, 99th percentile, the latest.
    #[serde(deserialize_with = "nan::read")]
    pub late_us: [f64; 3],
}

/// UDP at the receiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketsReceived {
    /// Different packets that arrived.
    pub received: u64,
    /// Packets that arrived again.
    pub duplicates: u64,
    /// Packets that arrived after one with a later number (RFC 4737).
    pub reordered: u64,
    /// Packets that this machine dropped for want of room in the socket's buffer.
    pub dropped_here: u64,
    /// The highest number seen, plus one; of all flows.
    pub expected: u64,
    /// Smoothed deviation of transit times (RFC 3550, 6.4.1), us; the mean over the flows.
    #[serde(deserialize_with = "nan::read")]
    pub jitter_us: f64,
    /// Of packets chosen evenly: when they arrived (this end's clock), and that less when they were sent (the other's).
    pub transit_ns: Vec<(u64, i64)>,
    /// The packets that are due in a run, in [`BLOCKS`] parts of as many numbers each (the last may be smaller): how many of each arrived. Empty if the
    /// other end is too old to count them.
    #[serde(default)]
    pub blocks: Vec<u64>,
}

/// How many parts a run's loss is reported in, so that bursts of it can be seen.
pub const BLOCKS: u64 = 20;

/// Transactions at the client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Transactions {
    /// When counting began.
    pub start_ns: u64,
    /// Ends of the intervals.
    pub ends_ns: Vec<u64>,
    /// Transactions in each.
    pub counts: Vec<u64>,
    /// Time of a transaction, us: median, 90th, 99th, 99.9th percentile, the longest.
    #[serde(deserialize_with = "nan::read")]
    pub latency_us: [f64; 5],
    /// The threads that asked.
    pub threads: crate::usage::Threads,
}

impl EndReport {
    /// What it sent that way.
    pub fn sent(&self, direction: Direction) -> Option<&Sent> {
        self.sent.iter().find(|s| s.direction == direction)
    }

    /// What it received that way.
    pub fn received(&self, direction: Direction) -> Option<&Received> {
        self.received.iter().find(|r| r.direction == direction)
    }
}
