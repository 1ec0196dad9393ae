//! The state of a pool and a node, for `pool status` and for Prometheus.
//!
//! A coordinator samples its links once a second and keeps the rates of the last second, so that queries are answered at
//! once. Packets are those on the network, as counted by the kernel for each connection, including pure acknowledgements;
//! bytes are those in the packets, without their headers and, in an encrypted pool, in encrypted form.

use crate::http::Pages;
use crate::link::{Counts, Health, NodeLink, error_names};
use crate::mirror::{MirrorDisk, MirrorNode};
use crate::node::Node;
use crate::packets::{Packets, PerDirection};
use crate::protocol::LossCause;
use crate::scrub::{Scrub, Scrubber};
use crate::store::FaultKind;
use crate::volume::Volume;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The default status socket of a coordinator whose NBD clients connect at `front`.
pub fn default_socket(front: &Path) -> PathBuf {
    let mut name = front.as_os_str().to_owned();
    name.push(".status");
    name.into()
}

/// The version of the JSON.
const FORMAT_VERSION: u32 = 1;

/// The state of a pool, as seen by its coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of the format. A coordinator of an older release does not report it.
    #[serde(default)]
    pub version: u32,
    pub pool: String,
    pub epoch: u64,
    /// Bytes of the disk.
    pub size_bytes: u64,
    /// Bytes of a stripe; 0: concatenated.
    pub stripe_bytes: u64,
    /// Time since the coordinator joined the nodes.
    pub uptime_s: f64,
    /// Why the last flush failed, with the node's address; `None` if it did not. A coordinator of an older release does not report it.
    #[serde(default)]
    pub flush_failed: Option<String>,
    /// Where on the disk acknowledged writes may be lost, so that writes and flushes are refused: offset and length; with
    /// stripes, a range includes bytes of other nodes. A coordinator of an older release does not report it.
    #[serde(default)]
    pub may_be_lost: Vec<(u64, u64)>,
    /// What `pool serve --accept-loss` takes to accept exactly that; `None` if nothing may be lost.
    #[serde(default)]
    pub loss_id: Option<String>,
    /// Whether the pool is served without some of its nodes, and so read-only.
    #[serde(default)]
    pub degraded: bool,
    /// The current scrub, or the last one since the coordinator joined the nodes.
    #[serde(default)]
    pub scrub: Option<Scrub>,
    /// The copies, if the pool is mirrored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorStatus>,
    /// In the disk's order.
    pub nodes: Vec<NodeStatus>,
}

/// The state of a mirrored pool's copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorStatus {
    /// Of each chunk.
    pub copies: u32,
    /// Copies that have everything acknowledged and flushed on their media: of the data that has the fewest.
    pub durable_copies: u32,
    /// Why requests wait: nodes that are needed; `None` if they do not.
    pub waiting: Option<String>,
    /// In the disk's order.
    pub nodes: Vec<MirrorNodeStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorNodeStatus {
    pub address: String,
    /// Whether requests go on without it, or it is being resynced.
    pub is_out: bool,
    pub is_connected: bool,
    /// Its flushes take long, and are not waited for.
    pub is_slow: bool,
    /// Bytes of regions that it lacks, or may not have on its medium; 0 once its copies are whole.
    pub lacks_bytes: u64,
}

/// The state of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// The node serves requests.
    Serving,
    /// It serves requests, and some fail, as something is wrong with its medium.
    Failing,
    /// Requests wait until it is connected.
    Connecting,
    /// Requests fail until it is back.
    Away,
    /// Requests fail for good.
    Ended,
    /// It did not answer when the pool was assembled: the pool is degraded.
    Missing,
}

impl NodeState {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Failing => "failing",
            Self::Connecting => "connecting",
            Self::Away => "away",
            Self::Ended => "ended",
            Self::Missing => "missing",
        }
    }
}

/// The state of one node. Rates are of the last second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub address: String,
    pub node: String,
    /// Its file or device there.
    #[serde(default)]
    pub store: String,
    pub state: NodeState,
    /// Why it is not serving.
    pub why: Option<String>,
    /// Where on the disk it may have lost acknowledged writes: offset and length.
    #[serde(default)]
    pub may_be_lost: Vec<(u64, u64)>,
    #[serde(default)]
    pub loss_causes: Vec<LossCause>,
    /// Bytes of its store.
    pub size_bytes: u64,
    /// The epoch of its current session.
    pub epoch: u64,
    /// The maximum number of outstanding requests.
    pub window: u32,
    /// The number of requests that a write waits for.
    pub batch: u32,
    /// Time from sending a request to its reply, smoothed.
    pub rtt_us: f64,
    /// Requests queued in the coordinator.
    pub waiting: u32,
    /// Requests sent and not answered.
    pub under_way: u32,
    /// Requests queued at the node, according to its last reply.
    pub queued: u16,
    /// Mean time in its store, in the last reply.
    pub service_us: u32,
    /// Bytes written there, and not known to be on its medium, in its last report.
    #[serde(default)]
    pub dirty_bytes: u64,
    /// How long its current flush has been running; `None` if there is none.
    #[serde(default)]
    pub flushing_s: Option<f64>,
    /// Whether writes wait for its medium.
    #[serde(default)]
    pub writes_wait: bool,
    /// Replies per second.
    pub ops_per_s: f64,
    /// Packets per second.
    pub packets_per_s: PerDirection,
    /// Mean bytes of data per packet.
    pub packet_bytes_mean: PerDirection,
    /// Requests since the coordinator joined it.
    pub requests: u64,
    /// Frames since then.
    pub frames: Sums,
    /// Bytes of frames since then.
    pub bytes: Sums,
    /// Bytes of data transferred through shared memory instead of frames since then.
    #[serde(default)]
    pub shared_memory_bytes: Sums,
    /// How often the connections broke and were reopened.
    pub reconnected: u64,
    pub connections: u32,
    /// Requests that failed at the node since the coordinator joined it, by kind.
    #[serde(default)]
    pub errors: BTreeMap<String, u64>,
    /// Blocks of its store that do not match their checksums, as far as it knows.
    #[serde(default)]
    pub damaged_blocks: u64,
    /// Faults of its medium since the node began, of which some may have failed no request.
    #[serde(default)]
    pub medium_faults: u64,
}

/// A count for each direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// To the node.
    pub sent: u64,
    /// From it.
    pub received: u64,
}

/// A sample of a link's counters.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    counts: Counts,
    packets: Packets,
}

#[derive(Debug)]
pub struct Watch {
    volume: Rc<Volume>,
    scrubber: Scrubber,
    begin: Instant,
    last_samples: RefCell<LastSamples>,
}

#[derive(Debug)]
struct LastSamples {
    at: Instant,
    samples: Vec<Sample>,
    /// The rates of the last second: replies and packets.
    rates: Vec<(f64, Packets, f64)>,
}

impl Watch {
    /// Takes the first sample.
    pub fn new(volume: Rc<Volume>) -> Self {
        let looks = take_samples(&volume);
        let rates = vec![(0.0, Packets::default(), 1.0); looks.len()];
        let now = Instant::now();
        Self {
            volume,
            scrubber: Scrubber::default(),
            begin: now,
            last_samples: RefCell::new(LastSamples { at: now, samples: looks, rates }),
        }
    }

    /// Samples once a second, without end.
    pub async fn run(&self) {
        loop {
            tokio::time::sleep(SAMPLE_INTERVAL).await;
            let (now, looks) = (Instant::now(), take_samples(&self.volume));
            let mut seen = self.last_samples.borrow_mut();
            let seconds = (now - seen.at).as_secs_f64().max(1e-9);
            let rate = |(new, old): (&Sample, &Sample)| {
                let answered = new.counts.answered.saturating_sub(old.counts.answered) as f64 / seconds;
                (answered, new.packets.since(old.packets), seconds)
            };
            let rates = looks.iter().zip(&seen.samples).map(rate).collect();
            *seen = LastSamples { at: now, samples: looks, rates };
        }
    }

    pub fn status(&self) -> Status {
        let seen = self.last_samples.borrow();
        let links = self.volume.links();
        let first = links.first();
        let place = links.iter().find_map(NodeLink::claim).map(|claim| (claim.epoch, claim.place.stripe_bytes));
        Status {
            version: FORMAT_VERSION,
            pool: first.map(NodeLink::pool).unwrap_or_default().into(),
            epoch: place.unwrap_or_default().0,
            size_bytes: self.volume.size_bytes(),
            stripe_bytes: place.unwrap_or_default().1,
            uptime_s: self.begin.elapsed().as_secs_f64(),
            flush_failed: self.volume.flush_failure(),
            may_be_lost: self.volume.lost_ranges().into_iter().map(|(_, begin, bytes)| (begin, bytes)).collect(),
            scrub: self.scrubber.state(),
            degraded: !self.volume.missing().is_empty(),
            loss_id: self.volume.loss_id().map(|id| id.to_string()),
            mirror: None,
            nodes: links
                .iter()
                .zip(&seen.rates)
                .enumerate()
                .map(|(nth, (link, rates))| NodeStatus {
                    may_be_lost: self.volume.lost_ranges_of(nth),
                    ..node_status(link, *rates)
                })
                .collect(),
        }
    }
}

fn node_status(link: &NodeLink, (ops_per_s, packets, seconds): (f64, Packets, f64)) -> NodeStatus {
    let (counts, claim) = (link.counts(), link.claim());
    let (state, why) = match link.health() {
        Health::Serving => (NodeState::Serving, None),
        Health::Failing(why) => (NodeState::Failing, Some(why)),
        Health::Connecting(why) => (NodeState::Connecting, Some(why)),
        Health::Away(why) => (NodeState::Away, Some(why)),
        Health::Ended(why) => (NodeState::Ended, Some(why)),
        Health::Missing(why) => (NodeState::Missing, Some(why)),
    };
    NodeStatus {
        address: link.address().to_string(),
        node: claim.map(|claim| claim.node.clone()).unwrap_or_default(),
        store: link.store().into(),
        state,
        why,
        may_be_lost: Vec::new(),
        loss_causes: link.loss().causes,
        size_bytes: claim.map_or(0, |claim| claim.size_bytes),
        epoch: claim.map_or(0, |claim| claim.epoch),
        window: counts.window,
        batch: counts.batch,
        rtt_us: counts.rtt_us,
        waiting: counts.waiting,
        under_way: counts.under_way,
        queued: counts.queued,
        service_us: counts.service_us,
        dirty_bytes: counts.report.dirty_bytes,
        flushing_s: Some(counts.report.flushing_ms).filter(|ms| *ms > 0).map(|ms| f64::from(ms) / 1000.0),
        writes_wait: counts.report.writes_wait,
        ops_per_s,
        packets_per_s: packets.per_s(seconds),
        packet_bytes_mean: packets.bytes_mean(),
        requests: counts.answered,
        frames: Sums { sent: counts.frames_sent, received: counts.frames_received },
        bytes: Sums { sent: counts.bytes_sent, received: counts.bytes_received },
        shared_memory_bytes: Sums { sent: counts.shared_memory_bytes.0, received: counts.shared_memory_bytes.1 },
        reconnected: counts.reconnected,
        connections: counts.connections,
        errors: error_names().into_iter().map(String::from).zip(counts.errors).collect(),
        damaged_blocks: counts.report.damaged_blocks,
        medium_faults: counts.report.faults,
    }
}

fn take_samples(volume: &Volume) -> Vec<Sample> {
    let mut packets = packets_by_peer();
    let look = |link: &NodeLink| {
        let packets = packets.remove(&link.address()).unwrap_or_default();
        Sample { counts: link.counts(), packets }
    };
    volume.links().iter().map(look).collect()
}

/// The packet counters of this process's connections, by the address of the other end.
fn packets_by_peer() -> HashMap<SocketAddr, Packets> {
    let mut found = HashMap::<SocketAddr, Packets>::new();
    for entry in std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // SAFETY: it is open, for it was just listed, and connections are opened and closed by this thread only. If another
        // thread closed it, the two calls below would fail, and nothing else is done with it.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let peer = rustix::net::getpeername(file).ok().flatten();
        if let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok())
            && let Some(packets) = Packets::from_socket(file)
        {
            let sum = found.entry(peer).or_default();
            *sum = sum.and(packets);
        }
    }
    found
}

/// Metrics in Prometheus' text format.
#[derive(Debug, Default)]
struct Metrics(String);

impl Metrics {
    /// One metric with all its samples.
    fn put(&mut self, name: &str, kind: &str, help: &str, samples: impl IntoIterator<Item = (String, f64)>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP fathom_pool_{name} {help}\n# TYPE fathom_pool_{name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(self.0, "fathom_pool_{name}{labels} {value}");
        }
    }
}

/// `{a="1",b="2"}`.
fn labels(pairs: &[(&str, &str)]) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

impl Status {
    /// Whether all nodes serve, without anything wrong that is known.
    pub fn is_healthy(&self) -> bool {
        let all_serve = self.nodes.iter().all(|node| node.state == NodeState::Serving);
        let is_whole = |node: &MirrorNodeStatus| !node.is_out && node.lacks_bytes == 0;
        let all_whole = self.mirror.iter().all(|mirror| mirror.nodes.iter().all(is_whole));
        all_serve && all_whole && self.may_be_lost.is_empty() && self.flush_failed.is_none()
    }

    /// Metrics in Prometheus' text format.
    pub fn prometheus(&self) -> String {
        let mut metrics = Metrics::default();
        let pool = labels(&[("pool", &self.pool)]);
        metrics.put("size_bytes", "gauge", "Bytes of the disk.", [(pool.clone(), self.size_bytes as f64)]);
        metrics.put("epoch", "gauge", "The coordinator's epoch.", [(pool.clone(), self.epoch as f64)]);
        let degraded = f64::from(u8::from(self.degraded));
        let help = "1 if the pool is served without some of its nodes, read-only.";
        metrics.put("degraded", "gauge", help, [(pool.clone(), degraded)]);
        let failed = f64::from(u8::from(self.flush_failed.is_some()));
        let lost: u64 = self.may_be_lost.iter().map(|(_, bytes)| bytes).sum();
        let help = "Bytes of the disk where acknowledged writes may be lost.";
        metrics.put("may_be_lost_bytes", "gauge", help, [(pool.clone(), lost as f64)]);
        metrics.put("flush_failed", "gauge", "1 if the last flush failed.", [(pool, failed)]);
        let errors = self.nodes.iter().flat_map(|n| {
            n.errors.iter().map(|(kind, count)| {
                let pairs = [("pool", &self.pool), ("node", &n.node), ("address", &n.address), ("kind", kind)];
                (labels(&pairs.map(|(name, value)| (name, value.as_str()))), *count as f64)
            })
        });
        let help = "Requests that failed at the node, by kind.";
        metrics.put("node_errors_total", "counter", help, errors.collect::<Vec<_>>());
        let mut of_nodes = |name: &str, kind: &str, help: &str, value: &dyn Fn(&NodeStatus) -> f64| {
            let sample = |n: &NodeStatus| {
                (labels(&[("pool", &self.pool), ("node", &n.node), ("address", &n.address)]), value(n))
            };
            metrics.put(name, kind, help, self.nodes.iter().map(sample));
        };
        of_nodes("node_up", "gauge", "1 if the node is connected.", &|n| {
            f64::from(u8::from(matches!(n.state, NodeState::Serving | NodeState::Failing)))
        });
        of_nodes("node_size_bytes", "gauge", "Bytes of the node's store.", &|n| n.size_bytes as f64);
        of_nodes("node_window", "gauge", "Limit of requests in flight (window).", &|n| f64::from(n.window));
        of_nodes("node_batch", "gauge", "Requests per socket write (batch).", &|n| f64::from(n.batch));
        of_nodes("node_rtt_seconds", "gauge", "Smoothed time from sending a request to its answer.", &|n| {
            n.rtt_us / 1e6
        });
        of_nodes("node_waiting", "gauge", "Requests queued in the coordinator.", &|n| f64::from(n.waiting));
        of_nodes("node_under_way", "gauge", "Requests in flight.", &|n| f64::from(n.under_way));
        of_nodes(
            "node_damaged_blocks",
            "gauge",
            "Blocks that do not match their checksums, as far as is known.",
            &|n| n.damaged_blocks as f64,
        );
        of_nodes("node_medium_faults_total", "counter", "Faults of the node's medium since the node began.", &|n| {
            n.medium_faults as f64
        });
        of_nodes("node_dirty_bytes", "gauge", "Bytes written to the node and not on its medium.", &|n| {
            n.dirty_bytes as f64
        });
        of_nodes(
            "node_flush_running_seconds",
            "gauge",
            "Duration of the node's current flush so far; 0: none.",
            &|n| n.flushing_s.unwrap_or(0.0),
        );
        of_nodes("node_queued", "gauge", "Requests queued at the node at its last answer.", &|n| f64::from(n.queued));
        of_nodes("node_service_seconds", "gauge", "Mean time in the node's store, from its last answer.", &|n| {
            f64::from(n.service_us) / 1e6
        });
        of_nodes("node_requests_total", "counter", "Requests answered.", &|n| n.requests as f64);
        of_nodes("node_frames_sent_total", "counter", "Frames of requests.", &|n| n.frames.sent as f64);
        of_nodes("node_frames_received_total", "counter", "Frames of answers.", &|n| n.frames.received as f64);
        of_nodes("node_sent_bytes_total", "counter", "Bytes of frames to the node.", &|n| n.bytes.sent as f64);
        of_nodes(
            "node_shared_memory_sent_bytes_total",
            "counter",
            "Bytes of data to the node through shared memory.",
            &|n| n.shared_memory_bytes.sent as f64,
        );
        of_nodes(
            "node_shared_memory_received_bytes_total",
            "counter",
            "Bytes of data from the node through shared \
            memory.",
            &|n| n.shared_memory_bytes.received as f64,
        );
        of_nodes("node_received_bytes_total", "counter", "Bytes of frames from the node.", &|n| {
            n.bytes.received as f64
        });
        of_nodes("node_reconnections_total", "counter", "Reconnects.", &|n| n.reconnected as f64);
        of_nodes("node_connections", "gauge", "Open connections.", &|n| f64::from(n.connections));
        of_nodes("node_packets_sent_per_second", "gauge", "Packets to the node in the last second.", &|n| {
            n.packets_per_s.sent
        });
        of_nodes("node_packets_received_per_second", "gauge", "Packets from the node in the last second.", &|n| {
            n.packets_per_s.received
        });
        of_nodes("node_packet_sent_bytes_mean", "gauge", "Mean bytes of data in a packet to the node.", &|n| {
            n.packet_bytes_mean.sent
        });
        of_nodes("node_packet_received_bytes_mean", "gauge", "Mean bytes of data in a packet from the node.", &|n| {
            n.packet_bytes_mean.received
        });
        metrics.0
    }
}

/// A node's own metrics in Prometheus' text format.
fn node_metrics(node: &Node) -> String {
    let (header, counts) = (node.store().header(), node.counts());
    let own = labels(&[("node", &header.node), ("pool", &header.pool)]);
    let mut metrics = Metrics::default();
    let mut put =
        |name: &str, kind: &str, help: &str, value: f64| metrics.put(name, kind, help, [(own.clone(), value)]);
    put("store_size_bytes", "gauge", "Bytes of the store.", node.store().size_bytes() as f64);
    put("store_epoch", "gauge", "The highest epoch served.", header.epoch as f64);
    put("store_coordinators_total", "counter", "Connections of coordinators accepted.", counts.admitted as f64);
    put("store_connections_failed_total", "counter", "Connections refused or broken.", counts.failed as f64);
    put("store_requests_total", "counter", "Requests answered.", counts.answered as f64);
    put("store_frames_sent_total", "counter", "Frames of answers.", counts.frames_sent as f64);
    put("store_data_sent_bytes_total", "counter", "Bytes of data in answers.", counts.data_bytes_sent as f64);
    put("store_service_seconds_total", "counter", "Time in the store.", counts.service.as_secs_f64());
    let damaged = node.store().faulty_blocks(FaultKind::Damaged) as f64;
    put("store_damaged_blocks", "gauge", "Blocks that do not match their checksums, as far as is known.", damaged);
    put("store_dirty_bytes", "gauge", "Bytes written and not on the medium.", node.store().dirty_bytes() as f64);
    let flushing = node.store().flush_duration().map_or(0.0, |since| since.as_secs_f64());
    put("store_flush_running_seconds", "gauge", "Duration of the current flush so far; 0: none.", flushing);
    put("store_queued", "gauge", "Requests queued when the last answer was sent.", f64::from(counts.queued));
    let faults = FaultKind::KINDS.map(|kind| {
        let of_kind = labels(&[("node", &header.node), ("pool", &header.pool), ("kind", kind.name())]);
        (of_kind, node.store().faults(kind) as f64)
    });
    metrics.put("store_faults_total", "counter", "Faults of the medium, by kind.", faults);
    metrics.0
}

/// The pages of a mirrored pool. Rates are not sampled.
#[derive(Debug)]
pub struct MirrorWatch {
    disk: Rc<MirrorDisk>,
    scrubber: Scrubber,
    begin: Instant,
}

impl MirrorWatch {
    pub fn new(disk: Rc<MirrorDisk>) -> Self {
        Self { disk, scrubber: Scrubber::default(), begin: Instant::now() }
    }

    pub fn status(&self) -> Status {
        let (states, links) = (self.disk.nodes(), self.disk.links());
        let nodes = states.iter().zip(&links).map(|(state, link)| match link {
            Some(link) => node_status(link, (0.0, Packets::default(), 1.0)),
            None => NodeStatus::absent(state.address.to_string()),
        });
        let copies = |node: &MirrorNode| MirrorNodeStatus {
            address: node.address.to_string(),
            is_out: node.is_out,
            is_connected: node.is_connected,
            is_slow: node.is_slow,
            lacks_bytes: node.lacks_bytes,
        };
        Status {
            version: FORMAT_VERSION,
            pool: self.disk.pool().into(),
            epoch: self.disk.epoch(),
            size_bytes: nbd::Export::info(&*self.disk).size_bytes,
            stripe_bytes: 0,
            uptime_s: self.begin.elapsed().as_secs_f64(),
            flush_failed: None,
            may_be_lost: Vec::new(),
            loss_id: None,
            degraded: false,
            scrub: self.scrubber.state(),
            mirror: Some(MirrorStatus {
                copies: self.disk.copies() as u32,
                durable_copies: self.disk.durable_copies(),
                waiting: self.disk.unusable_reason(),
                nodes: states.iter().map(copies).collect(),
            }),
            nodes: nodes.collect(),
        }
    }
}

impl NodeStatus {
    /// A node that is not connected.
    fn absent(address: String) -> Self {
        Self {
            address,
            node: String::new(),
            store: String::new(),
            state: NodeState::Away,
            why: None,
            may_be_lost: Vec::new(),
            loss_causes: Vec::new(),
            size_bytes: 0,
            epoch: 0,
            window: 0,
            batch: 0,
            rtt_us: 0.0,
            waiting: 0,
            under_way: 0,
            queued: 0,
            service_us: 0,
            dirty_bytes: 0,
            flushing_s: None,
            writes_wait: false,
            ops_per_s: 0.0,
            packets_per_s: Packets::default().bytes_mean(),
            packet_bytes_mean: Packets::default().bytes_mean(),
            requests: 0,
            frames: Sums::default(),
            bytes: Sums::default(),
            shared_memory_bytes: Sums::default(),
            reconnected: 0,
            connections: 0,
            errors: BTreeMap::new(),
            damaged_blocks: 0,
            medium_faults: 0,
        }
    }
}

impl Pages for MirrorWatch {
    fn metrics(&self) -> String {
        self.status().prometheus()
    }

    fn status(&self) -> Option<String> {
        serde_json::to_string(&Self::status(self)).ok()
    }

    fn scrub(&self) -> bool {
        self.scrubber.start(&self.disk);
        true
    }
}

impl Pages for Watch {
    fn metrics(&self) -> String {
        self.status().prometheus()
    }

    fn status(&self) -> Option<String> {
        serde_json::to_string(&Self::status(self)).ok()
    }

    fn scrub(&self) -> bool {
        self.scrubber.start(&self.volume);
        true
    }
}

impl Pages for Arc<Node> {
    fn metrics(&self) -> String {
        node_metrics(self)
    }

    fn status(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_metrics() {
        assert_eq!(labels(&[("pool", "a\"b\\c\nd"), ("x", "")]), r#"{pool="a\"b\\c\nd",x=""}"#);
    }
}
