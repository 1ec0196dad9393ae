//! What the user may say to `fathom net`.

mod cc;
mod link;

pub use cc::NetCc;
pub use link::NetLink;

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
}
