//! Command line of `fathom net cc`.

use clap::Args;
use std::ffi::OsString;

/// List this machine's congestion controls, or run a command with one that the kernel lacks.
///
/// Fathom provides bic, htcp and westwood as BPF programs, implemented from their papers. They are registered while the command
/// runs and unregistered afterwards; connections that still use one keep it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom net cc                                        what is available or can be loaded
  sudo fathom net cc --load htcp -- iperf3 -c host -C htcp
  sudo fathom net cc --load fathom_bic -- ./compare    Fathom's own, next to the kernel's bic
  sudo fathom net cc --unload bic                      left by a killed process (before Linux 6.4)

CMD runs as the user who called sudo, and fathom exits with its status.")]
pub struct NetCc {
    /// Provide this congestion control while CMD runs (repeatable); the prefix `fathom_` selects Fathom's even if the kernel has one
    #[arg(long, value_name = "NAME", requires = "command")]
    pub load: Vec<String>,
    /// Unregister a congestion control that was registered through BPF and left behind
    #[arg(long, value_name = "NAME", conflicts_with_all = ["load", "json"])]
    pub unload: Option<String>,
    /// Run CMD as root even under sudo
    #[arg(long, requires = "command")]
    pub as_root: bool,
    /// Print the list as JSON
    #[arg(long, conflicts_with = "load")]
    pub json: bool,
    /// Command to run, with its arguments
    #[arg(last = true, value_name = "CMD", requires = "load")]
    pub command: Vec<OsString>,
}
