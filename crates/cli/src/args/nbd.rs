//! What the user may say to `fathom pool bench` about an NBD server.

use clap::Args;
use pool::nbd_bench::Uri;

/// An NBD server as it is measured.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "An NBD server")]
pub struct NbdBench {
    /// Measure this server, whoever's it is: nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH
    #[arg(long, value_name = "URI", conflicts_with_all = ["pool", "layout", "key", "insecure", "window", "paper", "size"])]
    pub nbd: Option<Uri>,
    /// Write known bytes to the whole disk first (what it holds is lost), and compare each answer with them
    #[arg(long, requires = "nbd", conflicts_with = "write")]
    pub fill: bool,
    /// The server's process on this machine: its processor time for a request is told beside this client's
    #[arg(long, value_name = "PID", requires = "nbd")]
    pub server_pid: Option<u32>,
}
