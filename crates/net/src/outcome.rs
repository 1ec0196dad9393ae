//! The measurements of one end: raw numbers, which are returned over the control connection. [`crate::estimate`] and
//! [`crate::why`] interpret them.

use crate::nan;
use crate::spec::Direction;
use crate::tcp_info::TcpSample;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The measurements of one end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EndReport {
    /// The directions that it sent; at most one of each.
    pub sent: Vec<SentDirection>,
    /// The directions that it received.
    pub received: Vec<ReceivedDirection>,
    /// The transactions that it made as the client.
    pub transactions: Option<Transactions>,
    /// What its machine did during the run.
    pub machine: crate::usage::MachineUsage,
    /// CPU time for reading TCP's state, ns, in any thread, plus that of the supervising thread.
    pub sampler_cpu_ns: u64,
    /// How long the supervising thread was runnable but did not run, ns: it needs almost no CPU time, so this reflects the
    /// load of the machine. 0 where the kernel does not count it, and for UDP.
    #[serde(default)]
    pub sampler_wait_ns: u64,
    /// The clock of its timestamps: the kernel's boot_id and the offset of its time namespace. Times of ends with the same
    /// name need no conversion.
    #[serde(default)]
    pub clock: Option<String>,
    /// Settings of its kernel, such as `net.ipv4.tcp_wmem`.
    pub settings: BTreeMap<String, String>,
    /// Why the run ended early, if it did.
    pub trouble: Option<String>,
}

/// A direction at its sending end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SentDirection {
    pub direction: Direction,
    /// When sending began, CLOCK_BOOTTIME of this end.
    pub start_ns: u64,
    /// When counting ended.
    pub end_ns: u64,
    /// The settings granted to each socket.
    pub sockets: Vec<SocketSettings>,
    /// The threads that sent.
    pub threads: crate::usage::ThreadTotals,
    /// UDP: packet counts.
    pub packets: Option<PacketsSent>,
    /// TCP: the samples in order of time. They have frames of their own on the wire.
    #[serde(skip)]
    pub samples: Vec<TcpSample>,
    /// TCP, with `--tcp-probe`: one sample per acknowledgement.
    #[serde(skip)]
    pub acks: Vec<TcpSample>,
    /// Acknowledgements that the kernel overwrote before they were read.
    pub acks_lost: u64,
    /// TCP: total bytes sent by the interface, for all processes, at the start and every 100 ms.
    #[serde(default)]
    pub carried: Vec<InterfaceCount>,
}

/// A direction at its receiving end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceivedDirection {
    pub direction: Direction,
    /// When counting began, CLOCK_BOOTTIME of this end.
    pub start_ns: u64,
    /// Ends of the intervals, CLOCK_BOOTTIME of this end.
    pub ends_ns: Vec<u64>,
    /// Bytes received in each interval, all streams together.
    pub bytes: Vec<u64>,
    /// Bytes of each stream.
    pub streams: Vec<u64>,
    /// The settings granted to each socket.
    pub sockets: Vec<SocketSettings>,
    /// The threads that received.
    pub threads: crate::usage::ThreadTotals,
    /// TCP: unread bytes in each socket, and the size of its buffer, every 10 ms.
    pub unread: Vec<UnreadSample>,
    /// UDP: packet counts.
    pub packets: Option<PacketsReceived>,
    /// TCP: total bytes received by the interface, for all processes, at the start and every 100 ms.
    #[serde(default)]
    pub carried: Vec<InterfaceCount>,
}

/// A counter of the network interface that a direction's connections go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct InterfaceCount {
    /// The time of the sample, CLOCK_BOOTTIME of this end.
    pub time_ns: u64,
    /// Bytes in packets of this direction since the interface was created.
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

/// One sample of a receiving socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64, u64)", into = "(u64, u64, u64, u64)")]
pub struct UnreadSample {
    /// The time, CLOCK_BOOTTIME of the receiving end.
    pub time_ns: u64,
    /// The number of the stream.
    pub stream: u64,
    /// Bytes received in order and not read yet.
    pub unread_bytes: u64,
    /// SO_RCVBUF at this moment, as granted or as grown by the kernel.
    pub buffer_bytes: u64,
}

impl From<(u64, u64, u64, u64)> for UnreadSample {
    fn from((time_ns, stream, unread_bytes, buffer_bytes): (u64, u64, u64, u64)) -> Self {
        Self { time_ns, stream, unread_bytes, buffer_bytes }
    }
}

impl From<UnreadSample> for (u64, u64, u64, u64) {
    fn from(u: UnreadSample) -> Self {
        (u.time_ns, u.stream, u.unread_bytes, u.buffer_bytes)
    }
}

/// A socket's settings as the kernel granted them, read back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketSettings {
    /// Own address and port.
    pub local: String,
    /// Address and port of the other end.
    pub peer: String,
    /// SO_SNDBUF at the end of the run, bytes.
    pub send_buffer: u64,
    /// SO_RCVBUF at the end of the run, bytes.
    pub receive_buffer: u64,
    /// TCP: payload of a segment, bytes.
    pub mss: u64,
    /// TCP: the congestion control.
    pub congestion: Option<String>,
    /// SO_COOKIE: the kernel's identifier of the socket.
    pub cookie: u64,
}

/// UDP at the sender.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketsSent {
    /// Packets that were due.
    pub due: u64,
    /// Packets that the kernel accepted.
    pub sent: u64,
    /// How often the kernel rejected a packet for lack of buffer space (it was sent later).
    pub refused: u64,
    /// How late packets were passed to the kernel, us: median, 99th percentile, maximum.
    #[serde(deserialize_with = "nan::read")]
    pub late_us: [f64; 3],
}

/// UDP at the receiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketsReceived {
    /// Distinct packets that arrived.
    pub received: u64,
    /// Packets that arrived more than once.
    pub duplicates: u64,
    /// Packets that arrived after one with a higher number (RFC 4737).
    pub reordered: u64,
    /// Packets that this machine dropped because the socket's buffer was full.
    pub dropped_here: u64,
    /// The highest sequence number seen, plus one, over all flows.
    pub expected: u64,
    /// Smoothed deviation of transit times (RFC 3550, 6.4.1), us; the mean over the flows.
    #[serde(deserialize_with = "nan::read")]
    pub jitter_us: f64,
    /// A uniform sample of packets: the arrival time (this end's clock), and the arrival time minus the send time (the
    /// other end's clock).
    pub transit_ns: Vec<(u64, i64)>,
    /// Packets received in each of [`LOSS_BLOCK_COUNT`] blocks of equally many sequence numbers of the run's due
    /// packets (the last may be smaller). Empty if the other end is too old to count them.
    #[serde(default)]
    pub blocks: Vec<u64>,
}

/// The number of blocks for which loss is reported, so that bursts are visible.
pub const LOSS_BLOCK_COUNT: u64 = 20;

/// Transactions at the client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Transactions {
    /// When counting began.
    pub start_ns: u64,
    /// Ends of the intervals.
    pub ends_ns: Vec<u64>,
    /// Transactions in each interval.
    pub counts: Vec<u64>,
    /// Latency of a transaction, us: median, 90th, 99th, 99.9th percentile, maximum.
    #[serde(deserialize_with = "nan::read")]
    pub latency_us: [f64; 5],
    pub threads: crate::usage::ThreadTotals,
}

impl EndReport {
    /// What it sent in this direction.
    pub fn sent(&self, direction: Direction) -> Option<&SentDirection> {
        self.sent.iter().find(|s| s.direction == direction)
    }

    /// What it received in this direction.
    pub fn received(&self, direction: Direction) -> Option<&ReceivedDirection> {
        self.received.iter().find(|r| r.direction == direction)
    }
}
