//! Command line of `fathom pool`.

use super::nbd::NbdBench;
use super::one_of;
use super::paper::{PaperBench, PaperNode};
use clap::{ArgAction, Args, Subcommand};
use model::quantity::{bytes, seconds};
use pool::attach::AttachMethod;
use pool::bench::Load;
use pool::config::Layout;
use pool::listener::Endpoint;
use pool::protocol::LossId;
use pool::quantity::{memory, node_timeout, node_wait};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use wire::address;

/// Combine many devices into one random-access disk, served over NBD.
///
/// Each device runs a node, which serves a store (a file, a disk, or memory). A coordinator joins the nodes into one disk and
/// exports it over NBD, for Linux, QEMU, fio, nbdcopy and others. It tunes the number of requests in flight to each node and the
/// number of requests per packet automatically.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Start here:
  fathom pool try                                           measure eight nodes on this machine
  fathom pool keygen pool.key                               generate a key; copy it to every device
  fathom pool node --init --store a.img --size 1G           create a store on each device
  fathom pool node --store a.img --listen 0.0.0.0:7001 --key pool.key
  fathom pool serve --node 192.0.2.11:7001 --node 192.0.2.12:7001 \\
    --nbd unix:/tmp/pool.sock --key pool.key
  nbdinfo 'nbd+unix:///?socket=/tmp/pool.sock'

Nodes and coordinator authenticate each other with the key, and encrypt. Without a key, pass --insecure (twice for addresses other \
than loopback)."
)]
pub struct Pool {
    #[command(subcommand)]
    pub verb: PoolVerb,
}

/// The commands of `pool`, documented at their arguments.
#[derive(Debug, Subcommand)]
pub enum PoolVerb {
    Keygen(PoolKeygen),
    Node(PoolNode),
    Serve(PoolServe),
    Forget(PoolForget),
    Status(PoolStatus),
    Scrub(PoolScrub),
    Attach(PoolAttach),
    Bench(PoolBench),
    Try(PoolTry),
}

/// Generate a shared key for nodes and coordinator.
///
/// The key is the only credential: keep it secret. The file is readable by its owner only, and an existing file is never
/// overwritten. Prints the key's fingerprint, which is not secret; errors about differing keys name both fingerprints.
#[derive(Debug, Args)]
pub struct PoolKeygen {
    /// File to write
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Authentication.
#[derive(Debug, Clone, Default, Args)]
pub struct Trust {
    /// Key shared by nodes and coordinator, for authentication and encryption
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Disable encryption and authentication: given once, on loopback only; given twice, on any address
    #[arg(long, action = ArgAction::Count)]
    pub insecure: u8,
}

/// Run a node, or create its store.
///
/// A store has a checksum for each 4 KiB block: reading a damaged block is an error and never returns wrong data.
#[derive(Debug, Clone, Args)]
#[command(group(clap::ArgGroup::new("medium").required(true).args(["store", "backend", "config"])))]
pub struct PoolNode {
    /// Create the store, then exit unless --listen is given
    #[arg(long, requires = "store")]
    pub init: bool,
    /// File or block device of the store
    #[arg(long, value_name = "FILE|DEV")]
    pub store: Option<PathBuf>,
    /// Keep the store in memory; it is empty at each start
    #[arg(long, value_name = "memory:SIZE", value_parser = memory)]
    pub backend: Option<u64>,
    /// Capacity in bytes (suffixes K, M, G, T) [default for a device: all of it]
    #[arg(long, value_name = "SIZE", value_parser = bytes, requires = "init")]
    pub size: Option<u64>,
    /// Keep the current content of the file or device as the store's data
    #[arg(long, requires = "init")]
    pub import: bool,
    /// Address to listen on for coordinators; port 0 picks a free one, which is printed
    #[arg(long, value_name = "ADDR:PORT", value_parser = address, required_unless_present_any = ["init", "config", "interface"])]
    pub listen: Option<SocketAddr>,
    /// Listen on this network interface's address, such as wlan0, on a free port, which is printed
    #[arg(long, value_name = "NAME", conflicts_with_all = ["listen", "config"])]
    pub interface: Option<String>,
    /// Read options from the [node] section of this TOML file; options on the command line take precedence
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to serve Prometheus metrics on (/metrics), without authentication
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub metrics: Option<SocketAddr>,
    /// Another Fathom process started this one and ends it: do not print how to stop it.
    #[arg(long, hide = true)]
    pub hosted: bool,
    #[command(flatten)]
    pub trust: Trust,
    #[command(flatten)]
    pub at: super::ServiceDevice,
    #[command(flatten)]
    pub paper: PaperNode,
}

/// Remove a store from its pool, so that another pool can use it.
///
/// For a store whose pool was never completed, or whose other nodes are gone. Stop its node first. The data stay in the store and
/// become part of the pool that uses it next.
#[derive(Debug, Args)]
pub struct PoolForget {
    /// File or block device of the store
    #[arg(long, value_name = "FILE|DEV")]
    pub store: PathBuf,
    /// Remove it even if it contains data
    #[arg(long)]
    pub with_data: bool,
}

/// The nodes, and how they are joined.
#[derive(Debug, Clone, Args)]
pub struct Disk {
    /// The pool's name [default: default]; a store belongs to the first pool that used it
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
    /// Layout of the disk [default: concat]; fixed when the pool is created
    #[arg(long, value_parser = one_of(&Layout::FLAG_VALUES))]
    pub layout: Option<Layout>,
    /// Connections to each node, which serves them with up to a thread per CPU [default: 1]; window and batch apply to all of a node's
    /// connections together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(pool::protocol::CONNECTIONS_MAX)))]
    pub connections: Option<u16>,
    /// Time of silence after which requests to a node fail with EIO, at once until it is back [default: 30s]. From 1s to 24h. A node
    /// reports each second, so it is not silent while its medium is busy, however long a flush takes
    #[arg(long, value_name = "TIME", value_parser = node_timeout)]
    pub node_timeout: Option<Duration>,
    #[command(flatten)]
    pub trust: Trust,
}

/// Run the coordinator: join nodes into one disk and export it over NBD.
///
/// A previous coordinator of the nodes is fenced. Nodes that do not answer at the start are waited for (--wait); --degraded serves the
/// others, read-only. Later, requests to an unreachable node wait for --node-timeout (30 s), then fail with EIO; from then on they fail at
/// once until the node is back. The same applies to FLUSH. The node is named on stderr, in `pool status`, and to clients that negotiated
/// structured replies; so are damaged blocks, and a medium that is full or fails.
#[derive(Debug, Clone, Args)]
#[command(group(clap::ArgGroup::new("disk").required(true).args(["node", "backend", "config"])))]
pub struct PoolServe {
    /// Address of a node (repeatable); the order defines the disk and must not change
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub node: Vec<SocketAddr>,
    /// Serve this process's memory, without nodes
    #[arg(long, value_name = "memory:SIZE", value_parser = memory)]
    pub backend: Option<u64>,
    #[command(flatten)]
    pub disk: Disk,
    /// With --layout mirror: copies of each chunk, 2 or 3 [default: 3 from three nodes on]; fixed when the pool is created. Failure groups
    /// are in the file of --config
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=3))]
    pub copies: Option<u32>,
    /// The nodes' failure groups, from the file of --config
    #[arg(skip)]
    pub group: Vec<Option<String>>,
    /// Read options from the [serve] section of this TOML file; options on the command line take precedence
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to listen on for NBD clients
    #[arg(long, value_name = "unix:PATH|tcp:ADDR:PORT", required_unless_present = "config")]
    pub nbd: Option<Endpoint>,
    /// Require NBD clients to use TLS; the directory contains server-cert.pem and server-key.pem, as for nbdkit
    #[arg(long, value_name = "DIR")]
    pub tls: Option<PathBuf>,
    /// Require client certificates signed by the directory's ca-cert.pem
    #[arg(long, requires = "tls")]
    pub verify_clients: bool,
    /// Continue although nodes may have lost acknowledged writes: ID, from `pool status` or the refusal on stderr, stands for exactly the
    /// ranges shown there. They are logged. A later loss has another ID. Without it, writes and flushes are refused
    #[arg(long, value_name = "ID", conflicts_with = "backend")]
    pub accept_loss: Option<LossId>,
    /// How long to wait at the start for nodes that do not answer [default: 2m; with --degraded: 0s]. Up to 24h
    #[arg(long, value_name = "TIME", value_parser = node_wait, conflicts_with = "backend")]
    pub wait: Option<Duration>,
    /// Serve the nodes that answer, read-only, if others do not: requests to the others fail with EIO. To write again, start all nodes and
    /// serve without this option
    #[arg(long, conflicts_with_all = ["backend", "accept_loss"])]
    pub degraded: bool,
    /// Send all data through sockets; by default, large transfers to nodes on this machine use shared memory
    #[arg(long, conflicts_with = "backend")]
    pub no_shared_memory: bool,
    /// Socket for `pool status` [default with unix:PATH: PATH.status]
    #[arg(long, value_name = "PATH", conflicts_with = "backend")]
    pub status: Option<PathBuf>,
    /// Address to serve Prometheus metrics and status on (/metrics, /status), without authentication
    #[arg(long, value_name = "ADDR:PORT", value_parser = address, conflicts_with = "backend")]
    pub metrics: Option<SocketAddr>,
}

/// Show the state of a pool's nodes: window, batch, round-trip time, queues, packets.
///
/// For each node: current window and batch, the time from sending a request to its reply, requests queued at the coordinator and at the
/// node, the node's time in its store; and for the last second, replies, packets and bytes per packet in both directions.
///
/// Exits with 1 unless all nodes serve, no damage and no error of their media is known, and no writes may be lost.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom pool status /tmp/pool.sock             the coordinator that exports this socket
  fathom pool status --watch /tmp/pool.sock     every second
  fathom pool status --json 127.0.0.1:9107      through its --metrics address")]
pub struct PoolStatus {
    /// The coordinator's NBD or status socket, or its --metrics address
    #[arg(value_name = "PATH|ADDR:PORT")]
    pub address: String,
    /// Repeat every second, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
    /// Print JSON, one line each time
    #[arg(long)]
    pub json: bool,
}

/// Read all blocks of a pool's nodes from their media, and compare them with their checksums.
///
/// The nodes do this themselves while the pool serves; no data crosses the network. Prints what is damaged or cannot be read, by node and
/// offset. Exits with 1 if there is anything, or if a node could not be read to its end. Ctrl-C ends only this command: the scrub goes on,
/// and `pool status` shows it.
#[derive(Debug, Args)]
pub struct PoolScrub {
    /// The coordinator's NBD or status socket
    #[arg(value_name = "PATH")]
    pub address: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Attach a pool as a block device of this machine.
///
/// Uses nbdublk, Fathom's own NBD client setup (`kernel`), nbd-client or qemu-nbd: the first one available on this machine and its
/// kernel, or the one given by --with. `kernel` stays in the foreground until Ctrl-C, which detaches the disk; if the coordinator is
/// killed, requests wait until it is back. For the others, prints their command before running it; requests fail if the coordinator is
/// killed.
#[derive(Debug, Args)]
pub struct PoolAttach {
    /// The coordinator's NBD address
    #[arg(value_name = "unix:PATH|tcp:ADDR:PORT")]
    pub nbd: Endpoint,
    /// Device to attach to [default: /dev/nbd0 or /dev/ublkb0]
    #[arg(long, value_name = "DEV")]
    pub device: Option<PathBuf>,
    /// Program that attaches [default: the first available]
    #[arg(long, value_name = "PROGRAM", value_parser = one_of(&AttachMethod::FLAG_VALUES))]
    pub with: Option<AttachMethod>,
    /// Print the commands that attach and detach without running them
    #[arg(long)]
    pub dry_run: bool,
}

/// Window and batch: fixed, or the tuner's.
#[derive(Debug, Args)]
pub struct Control {
    /// Requests in flight to each node [default: chosen by the tuner]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub window: Option<u32>,
    /// Requests per packet (with --window) or per socket write (with --nbd); with --paper, at most per socket write
    #[arg(long, value_name = "N", default_value_t = 1, requires = "sets_batch", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: u32,
}

/// The load.
#[derive(Debug, Args)]
pub struct PoolLoad {
    /// Request size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub block: u32,
    /// Requesters with one request in flight each (default 256; with --nbd 64); with --paper, transfer threads per node
    /// (default 32)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub threads: Option<u32>,
    /// Duration of each measurement; its first quarter is warm-up
    #[arg(long, value_name = "S", default_value = "4", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Duration,
    /// Seed of the random addresses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl PoolLoad {
    /// Checked reads in the coordinator's own process.
    pub fn load(&self, threads: u32) -> Load {
        let (block_bytes, duration, seed) = (self.block, self.duration, self.seed);
        Load { block_bytes, threads, duration, write: false, checked: true, seed }
    }

    /// Requesters.
    pub fn requesters(&self) -> u32 {
        self.threads.unwrap_or(256)
    }

    /// Requests in flight to an NBD server.
    pub fn depth(&self) -> u32 {
        self.threads.unwrap_or(64)
    }

    /// Transfer threads of each of the paper's nodes.
    pub fn transfer_threads(&self) -> u32 {
        self.threads.unwrap_or(32)
    }
}

/// Benchmark a pool from within the coordinator, or any NBD server.
///
/// Sends uniformly random requests in a closed loop. A node has one coordinator at a time, so nodes in use are refused unless
/// --take-over is given; the previous coordinator is then fenced until it is restarted.
///
/// --nodes starts in-memory nodes for the measurement, and --link emulates a network such as Wi-Fi between them. --paper measures the
/// cluster of paper 001, with --at on devices, and --paper-figures reproduces that paper's figures 7 to 12. --nbd measures any NBD
/// server through one connection, with a client light enough that the server is the bottleneck.
#[derive(Debug, Args)]
#[command(
    group(clap::ArgGroup::new("which").required(true).args(["node", "nodes", "at", "paper_figures", "nbd"])),
    group(clap::ArgGroup::new("started").args(["nodes", "at"])),
    group(clap::ArgGroup::new("sets_batch").multiple(true).args(["window", "paper", "nbd"]))
)]
pub struct PoolBench {
    /// Address of a node (repeatable), in the disk's order
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub node: Vec<SocketAddr>,
    #[command(flatten)]
    pub disk: Disk,
    #[command(flatten)]
    pub load: PoolLoad,
    /// Take over nodes that another coordinator is using; its clients' requests then fail
    #[arg(long, requires = "node")]
    pub take_over: bool,
    /// Write instead of read; this overwrites the disk's data
    #[arg(long)]
    pub write: bool,
    /// Read without computing or comparing checksums, to measure their cost
    #[arg(long, conflicts_with = "write")]
    pub no_checksum: bool,
    #[command(flatten)]
    pub control: Control,
    #[command(flatten)]
    pub server: NbdBench,
    #[command(flatten)]
    pub paper: PaperBench,
}

/// Start in-memory nodes on this machine, measure the pool, and stop them.
#[derive(Debug, Args)]
pub struct PoolTry {
    /// Number of nodes, each a process
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: u32,
    /// Bytes per node (suffixes K, M, G)
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = bytes)]
    pub size: u64,
    #[command(flatten)]
    pub load: PoolLoad,
    /// Key for nodes and coordinator; without it, connections are not encrypted
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Also export the disk over NBD, until Ctrl-C
    #[arg(long, value_name = "unix:PATH|tcp:ADDR:PORT")]
    pub nbd: Option<Endpoint>,
}
