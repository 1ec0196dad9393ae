//! Options of `fathom pool bench` for an NBD server.

use clap::Args;
use pool::nbd_bench::Uri;

/// How an NBD server is measured.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "An NBD server")]
pub struct NbdBench {
    /// Measure this NBD server: nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH
    #[arg(long, value_name = "URI", conflicts_with_all = ["pool", "layout", "key", "insecure", "window", "paper", "size"])]
    pub nbd: Option<Uri>,
    /// First fill the disk with a known pattern (this overwrites its data), then verify each reply
    #[arg(long, requires = "nbd", conflicts_with = "write")]
    pub fill: bool,
    /// Process ID of the server on this machine, to report its CPU time per request next to this client's
    #[arg(long, value_name = "PID", requires = "nbd")]
    pub server_pid: Option<u32>,
}
