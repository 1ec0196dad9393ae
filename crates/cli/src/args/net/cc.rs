//! What the user may say to `fathom net cc`.

use clap::Args;
use std::ffi::OsString;

/// List the congestion controls of this machine, or run a command with one that the kernel lacks.
///
/// Fathom supplies bic, htcp and westwood as BPF programs, written from the papers that define them. They are there while they
/// are needed and gone afterwards; connections that still use one keep it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom net cc                                        what is here, can be supplied, or is missing
  sudo fathom net cc --load htcp -- iperf3 -c host -C htcp
  sudo fathom net cc --load fathom_bic -- ./compare    Fathom's own, where the kernel has a bic too
  sudo fathom net cc --unload bic                      what a killed process left (before Linux 6.4)

CMD runs as the user who called sudo, and fathom exits as CMD does.")]
pub struct NetCc {
    /// Have this congestion control while CMD runs (may be repeated); with `fathom_` before it, Fathom's own in any case
    #[arg(long, value_name = "NAME", requires = "command")]
    pub load: Vec<String>,
    /// Take away a congestion control that was registered through BPF and left behind
    #[arg(long, value_name = "NAME", conflicts_with_all = ["load", "json"])]
    pub unload: Option<String>,
    /// Run CMD as root also if sudo was called by another user
    #[arg(long, requires = "command")]
    pub as_root: bool,
    /// The list as JSON
    #[arg(long, conflicts_with = "load")]
    pub json: bool,
    /// The command
    #[arg(last = true, value_name = "CMD", requires = "load")]
    pub command: Vec<OsString>,
}
