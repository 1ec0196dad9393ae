//! Options of `fathom pool` for the cluster of paper 001.

use super::device::device;
use super::one_of;
use crate::destination::directory_parser;
use ::device::remote::DeviceAddress;
use ::lab::medium::Kind;
use clap::{Args, ValueEnum};
use model::quantity::{bytes, long_time};
use pool::flash::Speed;
use std::path::PathBuf;
use std::time::Duration;

/// A node that behaves like one of the paper's tablets.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "As in paper 001")]
pub struct PaperNode {
    /// Act as one of the paper's nodes: 5-byte addresses in, 1-byte replies out, one process per connection, a plain file
    #[arg(long, conflicts_with_all = ["init", "key"])]
    pub paper: bool,
    /// Fill memory with a pattern that starts at this address, so that `pool bench --paper` can check replies
    #[arg(long, value_name = "ADDRESS", requires_all = ["paper", "backend"])]
    pub first: Option<u64>,
    /// Reply without reading, with whatever is in the buffer
    #[arg(long, requires = "paper", conflicts_with = "flash")]
    pub no_io: bool,
    /// Emulate flash: this many reads in parallel, of this duration each (the paper's tablets: servers=4,service_ms=1.9)
    #[arg(long, value_name = "servers=N,service_ms=MS")]
    pub flash: Option<Speed>,
}

/// The paper's cluster, its load, and nodes that are started for the purpose.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "As in paper 001")]
pub struct PaperBench {
    /// Measure the paper's cluster, or (`load`) this pool with as many requests in flight as the paper's threads and batch imply
    #[arg(
        long, value_enum, value_name = "cluster|load", num_args = 0..=1, require_equals = true,
        default_missing_value = "cluster"
    )]
    pub paper: Option<Paper>,
    /// Start this many in-memory nodes on this machine, and stop them afterwards
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: Option<u32>,
    /// Start one of the paper's nodes on each of these devices, separated by `+`, and stop them afterwards: adb:SERIAL,
    /// ssh:[USER@]HOST[:PORT], netns:NAME, local. Traffic is not encrypted
    #[arg(long, value_name = "DEVICE[+DEVICE…]", value_delimiter = '+', value_parser = device, requires = "paper")]
    pub at: Vec<DeviceAddress>,
    /// Use only the first N of the devices
    #[arg(long = "use", value_name = "N", requires = "at", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub use_first: Option<u16>,
    /// Network interface of the devices that their nodes listen on [default: wlan0; lo for local]
    #[arg(long, value_name = "NAME", requires = "at")]
    pub interface: Option<String>,
    /// Fathom's binary for devices of another architecture (repeatable)
    #[arg(long, value_name = "FILE", requires = "at")]
    pub binary: Vec<PathBuf>,
    /// Bytes per node, including nodes that --paper connects to (suffixes K, M, G)
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = bytes)]
    pub size: u64,
    /// Emulate flash in the nodes (the paper's tablets: servers=4,service_ms=1.9)
    #[arg(long, value_name = "servers=N,service_ms=MS", requires = "started")]
    pub flash: Option<Speed>,
    /// Let the paper's nodes reply without reading, to measure only the network
    #[arg(long, requires_all = ["started", "paper"], conflicts_with = "flash")]
    pub no_io: bool,
    /// Emulated network between coordinator and nodes: one half-duplex medium for all, like Wi-Fi, or a link per node
    #[arg(long, value_name = "shared|per-node", requires = "nodes", value_parser = one_of(&Kind::CHOICES))]
    pub link: Option<Kind>,
    /// Packets per second on the medium (or on each link, in each direction), regardless of size
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub packets_per_s: u32,
    /// Queue length of the medium in packets; further packets are dropped
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub queue_packets: u32,
    /// Unanswered writes per transfer thread; 1 means each write waits for the replies to the previous one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub ahead: u32,
    /// Verify every reply; each node must have been started with --first set to the total bytes of the nodes before it
    #[arg(long, requires = "paper")]
    pub check: bool,
    /// Print samples as JSON lines, as a replicate of a design does (docs/guide/designs.md)
    #[arg(long, conflicts_with = "json")]
    pub lines: bool,
    /// Run a compute kernel on every node's CPU, alone and during reads, to measure how much each slows the other
    #[arg(long, requires = "nodes", conflicts_with_all = ["paper", "lines", "write"])]
    pub compute: bool,
    /// Reproduce the paper's figures 7 to 12 with the paper's cluster, then with this pool, and store them in an archive
    #[arg(long, conflicts_with_all = ["paper", "nodes", "node", "nbd", "compute", "lines", "write", "window"])]
    pub paper_figures: bool,
    /// Smoke test: fewer nodes, threads and blocks; results are marked as quick
    #[arg(long, requires = "paper_figures")]
    pub quick: bool,
    /// Time budget for the figures (suffixes s, m, h); the minimum number of blocks always runs
    #[arg(long, value_name = "TIME", value_parser = long_time, requires = "paper_figures")]
    pub budget: Option<Duration>,
    /// Archive for the figures; an existing one is kept as NAME.fathom.old
    #[arg(short, long, value_name = "P.fathom", default_value = "pool.fathom", requires = "paper_figures", value_parser = directory_parser())]
    pub output: PathBuf,
}

/// What of the paper is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Paper {
    /// The paper's cluster.
    Cluster,
    /// The paper's load, on this pool.
    Load,
}
