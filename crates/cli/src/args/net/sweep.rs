//! Command line of `fathom net trial` and `fathom net sweep`.

use super::link::LinkOptions;
use crate::args::{BenchRun, ResultFiles, Sweep, one_of};
use crate::destination::directory_parser;
use ::net::quantity::{BufferSize, Directions, UdpRate};
use clap::Args;
use model::quantity::seconds;
use std::path::PathBuf;
use std::time::Duration;

/// Run once over an emulated link, as a replicate of a benchmark, and print JSON lines.
///
/// Creates the link, runs a server at one end and a client at the other, and reports the emulator's lateness. If packets were delivered
/// too late, the run is invalid and fails.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom net trial --delay 8ms --rate 10mbit --cc reno --direction down
  fathom net trial --preset wifi-g --udp iperf2

Up is from the client to the server. The lines are described in docs/guide/designs.md.")]
pub struct NetTrial {
    #[command(flatten)]
    pub link: LinkOptions,
    /// Duration of the measurement
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    pub duration: Duration,
    /// Direction of the data
    #[arg(long, default_value = "down", value_parser = one_of(&Directions::CHOICES))]
    pub direction: Directions,
    /// Connections in each direction
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub streams: u16,
    /// Congestion control of both ends; bic, htcp and westwood are provided where the kernel lacks them (needs root)
    #[arg(long, value_name = "NAME")]
    pub cc: Option<String>,
    /// SO_SNDBUF of both ends, or auto for the kernel's autotuning
    #[arg(long, value_name = "BYTES")]
    pub sndbuf: Option<BufferSize>,
    /// SO_RCVBUF of both ends, or auto
    #[arg(long, value_name = "BYTES")]
    pub rcvbuf: Option<BufferSize>,
    /// UDP: iperf2 (1 Mb/s, iperf 2's default), auto (the highest rate with at most 1 % loss), or a rate
    #[arg(long, value_name = "RATE")]
    pub udp: Option<UdpRate>,
    /// Exchange requests and responses of one byte each
    #[arg(long, conflicts_with = "udp")]
    pub transactions: bool,
}

/// Benchmark throughput over emulated links: delay, congestion control, buffers, direction and loss as factors of a design.
///
/// Each replicate gets a new link. Blocks are randomised and added until each cell's interval is narrow enough or the time budget
/// is spent; --resume continues an interrupted sweep. Designs: docs/guide/designs.md.
#[derive(Debug, Args)]
#[command(after_help = "\
Built-in designs:
  net-delay          delay 0 to 32 ms x congestion control x direction (paper 002, figures 5 and 6)
  net-loss           loss x congestion control (future work of paper 002)
  net-wlan           Wi-Fi and Bluetooth, TCP and UDP, both directions (paper 002, chapter 4)
  net-devices        between devices: -p from=adb:A,adb:B -p to=ssh:S -p interface=wlan0
  net-delay-devices  the same with this machine as a router that emulates a link: x delay x loss
  net-readings       cost of sampling TCP_INFO on this machine, over loopback

Examples:
  sudo fathom net sweep --quick
  sudo fathom net sweep net-delay -p cc=reno,cubic -p delay_ms=0,16,64
  sudo fathom net sweep net-loss --blocks 10 -o loss.fathom
  fathom report loss.fathom
  sudo fathom net sweep --resume net.fathom")]
pub struct NetSweep {
    /// Designs by name or file [default: net-delay]
    #[arg(value_name = "NAME|DESIGN.toml")]
    pub what: Vec<String>,
    #[command(flatten)]
    pub sweep: Sweep,
    /// Archive to write; an existing one is kept as NAME.fathom.old
    #[arg(short, long, value_name = "N.fathom", default_value = "net.fathom", value_parser = directory_parser())]
    pub output: PathBuf,
    /// Also write the tables as Markdown to this file (`-`: to stdout, instead of the text)
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Resume an interrupted sweep with the same cells, seed and order
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
            sweep: self.sweep.clone(),
            output: self.output.clone(),
            files: ResultFiles { markdown: self.markdown.clone(), ..ResultFiles::default() },
            resume: self.resume.clone(),
            verb: "net sweep",
            ..BenchRun::default()
        }
    }
}
