//! Command line of `fathom net watch`.

use clap::Args;
use model::quantity::{long_time, seconds};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Watch any program's TCP flows, without traffic of its own: rate, windows, round trip, and what held each flow.
///
/// The kernel's sockets are sampled (sock_diag, as `ss -ti` does); no flow is changed. The time of each flow is divided completely: the
/// program wrote nothing, the receiver did not read, send buffer, receive window, congestion window (start, after loss, after an ECN
/// mark), recovery, pacing, the link at its rate, a policer or shallow queue, an outage, a black hole by size, lost acknowledgements,
/// reordering; what the evidence does not support is unknown. A receiver is told what can be known at its end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo fathom net watch                                   every flow of this network namespace
  fathom net watch -- curl -O https://example.org/file    a command's and its children's sockets
  sudo fathom net watch --port 5432 --duration 60         PostgreSQL, for a minute
  sudo fathom net watch --pid 4242 --json > flows.jsonl   a process and its children, as JSON lines
  sudo fathom net watch --interface eth0 --every 0.5
  sudo fathom net watch --cgroup /sys/fs/cgroup/system.slice/nginx.service

Conditions of different kinds must all hold; of one kind, any. Without root (CAP_NET_ADMIN) only the user's own sockets are \
watched, and flows that are shorter than the sampling period are not seen; the output says so. With it, the kernel's last message of \
each socket counts them. Ctrl-C ends the watch and prints the accounts. With CMD, fathom prints to stderr (--json: CMD's \
stdout goes to stderr) and exits with its status.")]
pub struct NetWatch {
    /// Flows of this process and of its children (repeatable)
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Vec<u32>,
    /// Flows with this port at either end (repeatable)
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Vec<u16>,
    /// Flows of this cgroup (a directory of cgroup v2) and of those below it
    #[arg(long, value_name = "DIR")]
    pub cgroup: Option<PathBuf>,
    /// Flows from an address of this network interface
    #[arg(long, value_name = "IF")]
    pub interface: Option<String>,
    /// Print each active flow this often
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub every: Duration,
    /// Sample this often; less often where that would use more than 1 % of a core
    #[arg(long, value_name = "S", default_value = "0.1", value_parser = seconds)]
    pub sample: Duration,
    /// Watch for this long (suffixes s, m, h) [default: until Ctrl-C, or until the process or CMD ends]
    #[arg(long, value_name = "TIME", value_parser = long_time)]
    pub duration: Option<Duration>,
    /// Print JSON lines: a start, intervals, each flow's account, an end
    #[arg(long)]
    pub json: bool,
    /// Run CMD as root even under sudo
    #[arg(long, requires = "command")]
    pub as_root: bool,
    /// Command to run and to watch, with its arguments
    #[arg(last = true, value_name = "CMD", conflicts_with = "pid")]
    pub command: Vec<OsString>,
}
