//! What the user may say to `fathom net trial` and `fathom net sweep`.

use super::Way;
use super::link::Link;
use crate::args::BenchRun;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// One run over an emulated link, as a replicate of a benchmark: JSON lines on stdout.
///
/// Makes the link, serves on one end and asks on the other, and adds how late the link's packets were. If they were too late,
/// the run is not verified, and fails.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom net trial --delay 8ms --rate 10mbit --cc reno --direction down
  fathom net trial --preset wifi-g --udp iperf2

The client's end of the link asks; up is from there to the end that serves. What the lines mean: docs/guide/designs.md.")]
pub struct NetTrial {
    /// What the link is like.
    #[command(flatten)]
    pub link: Link,
    /// How long to count
    #[arg(long, value_name = "S", default_value = "5", value_parser = super::super::seconds)]
    pub duration: Duration,
    /// Which way data goes
    #[arg(long, value_enum, default_value_t = Way::Down)]
    pub direction: Way,
    /// Connections each way
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub streams: u16,
    /// Congestion control of both ends; bic, htcp and westwood are supplied where the kernel lacks them (needs root)
    #[arg(long, value_name = "NAME")]
    pub cc: Option<String>,
    /// SO_SNDBUF of both ends, or auto: as the kernel has it
    #[arg(long, value_name = "BYTES")]
    pub sndbuf: Option<String>,
    /// SO_RCVBUF of both ends, or auto
    #[arg(long, value_name = "BYTES")]
    pub rcvbuf: Option<String>,
    /// UDP: iperf2 (1 Mb/s, what iperf 2 sends if nobody says more), auto (the highest rate with at most 1 % loss), or a rate
    #[arg(long, value_name = "RATE")]
    pub udp: Option<String>,
    /// Requests of a byte and responses of a byte
    #[arg(long, conflicts_with = "udp")]
    pub transactions: bool,
}

/// Throughput over emulated links: delay, congestion control, buffer, direction and loss as a design.
///
/// Every cell is run in fresh links, in randomised blocks, until its interval is narrow or the time is spent; an interrupted
/// sweep goes on with --resume. What a design is: docs/guide/designs.md.
#[derive(Debug, Args)]
#[command(after_help = "\
Designs of its own:
  net-delay          delay 0 to 32 ms x congestion control x direction (002, figures 5 and 6)
  net-loss           loss x congestion control (what 002 still had to do)
  net-wlan           Wi-Fi and Bluetooth, TCP and UDP, both ways (002, chapter 4)
  net-devices        between devices: -p from=adb:A,adb:B -p to=ssh:S -p interface=wlan0
  net-delay-devices  the same, with this machine as the router that delays: x delay x loss
  net-readings       what Fathom's own readings of TCP's state cost here, over loopback

Examples:
  sudo fathom net sweep --quick
  sudo fathom net sweep net-delay -p cc=reno,cubic -p delay_ms=0,16,64
  sudo fathom net sweep net-loss --blocks 10 -o loss.fathom
  fathom report loss.fathom
  sudo fathom net sweep --resume net.fathom")]
pub struct NetSweep {
    /// Designs by name or file; net-delay if none is named
    #[arg(value_name = "NAME|DESIGN.toml")]
    pub what: Vec<String>,
    /// Values of a factor, in place of the default (may be given again)
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUE,…", value_parser = crate::args::bench::parameter)]
    pub parameters: Vec<(String, Vec<String>)>,
    /// Few blocks and values, to see that it works; marked as quick everywhere
    #[arg(long)]
    pub quick: bool,
    /// So many blocks, whatever the intervals say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: Option<u64>,
    /// Seed of the order
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Time for everything (suffixes s, m, h); the least blocks are run all the same
    #[arg(long, value_name = "TIME", value_parser = super::super::long)]
    pub budget: Option<Duration>,
    /// Do not wait for a hot or busy machine: begin at once, and mark it
    #[arg(long)]
    pub no_wait: bool,
    /// The archive to make; one of that name is kept as NAME.fathom.old
    #[arg(short, long, value_name = "N.fathom", default_value = "net.fathom")]
    pub output: PathBuf,
    /// Print JSON (its contract: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
    /// Write the tables as Markdown to this file as well
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Go on with an interrupted sweep: same cells, same seed, same order
    #[arg(long, value_name = "N.fathom", conflicts_with_all = [
        "what", "parameters", "quick", "blocks", "seed", "budget", "output",
    ])]
    pub resume: Option<PathBuf>,
}

impl NetSweep {
    /// As the benchmark's runner takes it.
    pub fn as_bench(&self) -> BenchRun {
        let what = match self.what.is_empty() && self.resume.is_none() {
            true => vec!["net-delay".to_string()],
            false => self.what.clone(),
        };
        BenchRun {
            what,
            parameters: self.parameters.clone(),
            quick: self.quick,
            blocks: self.blocks,
            seed: self.seed,
            budget: self.budget,
            precision: None,
            why: false,
            dir: Vec::new(),
            no_wait: self.no_wait,
            output: self.output.clone(),
            quiet: false,
            json: self.json,
            csv: None,
            markdown: self.markdown.clone(),
            resume: self.resume.clone(),
            verb: "net sweep",
        }
    }
}
