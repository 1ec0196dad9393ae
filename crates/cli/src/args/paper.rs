//! What the user may say to `fathom pool` about the cluster of paper 001.

use super::{bytes, long};
use clap::{Args, ValueEnum};
use pool::flash::Speed;
use std::path::PathBuf;
use std::time::Duration;

/// A node that behaves like one of the paper's tablets.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "As in paper 001")]
pub struct PaperNode {
    /// Be a node of the paper: 5-byte addresses in, 1-byte answers out, a process for each connection, the file as it is
    #[arg(long, conflicts_with_all = ["init", "key"])]
    pub paper: bool,
    /// Fill memory with a pattern, of which this is the first address: `pool bench --paper` checks answers by it
    #[arg(long, value_name = "ADDRESS", requires_all = ["paper", "backend"])]
    pub first: Option<u64>,
    /// Read nothing: as many bytes are answered, with whatever is in the buffer
    #[arg(long, requires = "paper", conflicts_with = "flash")]
    pub no_io: bool,
    /// Be as slow as flash: so many reads at once, each of that time (the paper's tablets: servers=4,service_ms=1.9)
    #[arg(long, value_name = "servers=N,service_ms=MS")]
    pub flash: Option<Speed>,
}

/// The paper's cluster, its load, and nodes that are started for the purpose.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "As in paper 001")]
pub struct PaperBench {
    /// Measure the paper's own cluster, or (`load`) today's pool with as many requests at once as the paper's threads and batch
    #[arg(
        long, value_enum, value_name = "cluster|load", num_args = 0..=1, require_equals = true,
        default_missing_value = "cluster"
    )]
    pub paper: Option<Paper>,
    /// Start so many nodes in memory on this machine, and end them afterwards
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: Option<u32>,
    /// Bytes of each node, of those too that the paper's coordinator finds (suffixes K, M, G)
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = bytes)]
    pub size: u64,
    /// Nodes as slow as flash (the paper's tablets: servers=4,service_ms=1.9)
    #[arg(long, value_name = "servers=N,service_ms=MS", requires = "nodes")]
    pub flash: Option<Speed>,
    /// The paper's nodes read nothing: only the network is measured
    #[arg(long, requires_all = ["nodes", "paper"], conflicts_with = "flash")]
    pub no_io: bool,
    /// Between coordinator and nodes: one half-duplex medium for all, as Wi-Fi is, or a link for each node
    #[arg(long, value_enum, value_name = "shared|per-node", requires = "nodes")]
    pub link: Option<Between>,
    /// Packets a second that the medium (or each link, each way) carries, however small they are
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub packets_per_s: u32,
    /// Packets that wait for the medium; further ones are lost
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub queue_packets: u32,
    /// Writes of a transfer thread that may be unanswered; 1: it waits for the answers before the next write
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub ahead: u32,
    /// The nodes were given --first, each the bytes before it: check every answer
    #[arg(long, requires = "paper")]
    pub check: bool,
    /// Print what was measured as lines, as a design's replicate does (docs/guide/designs.md)
    #[arg(long, conflicts_with = "json")]
    pub lines: bool,
    /// Run a kernel on every node's processor, alone and during reads, and see what each costs the other
    #[arg(long, requires = "nodes", conflicts_with_all = ["paper", "lines", "write"])]
    pub compute: bool,
    /// Remake the paper's figures 7 to 12 by the paper's cluster, then by today's pool, into an archive
    #[arg(long, conflicts_with_all = ["paper", "nodes", "node", "nbd", "compute", "lines", "write", "window"])]
    pub paper_figures: bool,
    /// Fewer nodes, threads and blocks, to see that it works; marked as quick everywhere
    #[arg(long, requires = "paper_figures")]
    pub quick: bool,
    /// Time for the figures (suffixes s, m, h); the least blocks are run all the same
    #[arg(long, value_name = "TIME", value_parser = long, requires = "paper_figures")]
    pub budget: Option<Duration>,
    /// The archive of the figures; one of that name is kept as NAME.fathom.old
    #[arg(short, long, value_name = "P.fathom", default_value = "pool.fathom", requires = "paper_figures")]
    pub output: PathBuf,
}

/// What of the paper is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Paper {
    /// Its cluster.
    Cluster,
    /// Its load, by today's pool.
    Load,
}

/// What is between coordinator and nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Between {
    /// One medium for all nodes and both directions.
    Shared,
    /// A link for each node.
    PerNode,
}
