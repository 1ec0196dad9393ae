//! What the user may say to `fathom net`.

mod cc;
mod link;
mod sweep;

pub use cc::NetCc;
pub use link::NetLink;
pub use sweep::{NetSweep, NetTrial, TrialWay};

use clap::{Args, Subcommand};

/// What a link gives, and what held it back.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Net {
    /// What to do.
    #[command(subcommand)]
    pub verb: NetVerb,
}

/// What `net` can do.
#[derive(Debug, Subcommand)]
pub enum NetVerb {
    /// List the congestion controls of this machine, or run a command with one that the kernel lacks
    Cc(NetCc),
    /// Make an emulated link between two network namespaces: delay, rate, loss, jitter, queue
    Link(NetLink),
    /// Throughput over emulated links: delay, congestion control, buffer, direction and loss as a design
    Sweep(NetSweep),
    /// One run over an emulated link, as a replicate of a benchmark
    Trial(NetTrial),
}
