//! Command line of `fathom net`.

mod cc;
mod link;
mod sweep;
mod watch;

use crate::destination::directory_parser;
pub use cc::NetCc;
pub use link::{LinkArgument, NetLink};
pub use sweep::{NetSweep, NetTrial};
pub use watch::NetWatch;

use super::one_of;
use ::net::quantity::{Directions, Rate, UDP_PACKET_BYTES, parse_bps, parse_buffer_bytes};
use clap::{Args, Subcommand, ValueEnum};
use device::remote::DeviceAddress;
use model::quantity::seconds;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use wire::address;

/// What is compared to measure the cost of readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReadingsCost {
    /// Tenths of a second with sampling against tenths without
    Turns,
    /// A/A control: sampling in all of them, so that the true difference is zero
    Control,
}

/// Measure a network path: TCP and UDP throughput, latency, one-way delay, and what limited a transfer.
///
/// `net serve` runs at one end, `net run` at the other. TCP_INFO of the sender is sampled every 10 ms. Each run reports what
/// limited it (application, receive window, send buffer, congestion window, loss, link rate, policer, queue, competing traffic,
/// round trips or CPU) and which setting would change that.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Start here:
  fathom net serve --listen 127.0.0.1:7100 &
  fathom net run 127.0.0.1:7100                             TCP to the server, for ten seconds
  fathom net run 127.0.0.1:7100 --direction down --streams 8
  fathom net run 127.0.0.1:7100 --udp --rate auto           the highest rate with at most 1 % loss
  sudo fathom net watch --port 443                          any program's flows: what holds them

Between machines both ends need the same key:
  fathom pool keygen net.key                                then copy it to the other end
  fathom net serve --listen 0.0.0.0:7100 --key net.key
  fathom net run 192.0.2.7:7100 --key net.key"
)]
pub struct Net {
    #[command(subcommand)]
    pub verb: NetVerb,
}

/// The commands of `net`, documented at their arguments.
#[derive(Debug, Subcommand)]
pub enum NetVerb {
    Serve(NetServe),
    Run(Box<NetRun>),
    Watch(NetWatch),
    Measure(NetMeasure),
    Cc(NetCc),
    Link(NetLink),
    Sweep(NetSweep),
    Trial(NetTrial),
}

/// Run the server that `net run` connects to, on one port.
///
/// Control and data share the TCP port: control connections are authenticated and encrypted with the key, data connections are
/// admitted by a run's random token and not encrypted. A UDP run uses the UDP port of the same number for its duration. No other
/// port is opened.
#[derive(Debug, Args)]
pub struct NetServe {
    /// Address to listen on; port 0 picks a free one, which is printed
    #[arg(long, value_name = "ADDR:PORT", value_parser = address, required_unless_present = "interface")]
    pub listen: Option<SocketAddr>,
    /// Listen on this network interface's address and a free port; both are printed
    #[arg(long, value_name = "IF", conflicts_with = "listen")]
    pub interface: Option<String>,
    /// Admit only clients with this key; required on any address but loopback
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Exit when the first client disconnects, or if none connects within a minute
    #[arg(long)]
    pub once: bool,
    /// Another Fathom process started this one and ends it: do not print how to stop it.
    #[arg(long, hide = true)]
    pub hosted: bool,
    #[command(flatten)]
    pub at: super::ServiceDevice,
}

/// Measure the path to a server and back.
///
/// Throughput is counted at the receiver every 0.1 s; the estimate omits slow start and has a 95 % confidence interval. With -o,
/// every interval and every sample of TCP_INFO are stored in an archive.
#[derive(Debug, Args)]
#[command(
    after_help = "\
Examples:
  fathom net run 127.0.0.1:7100 --duration 30 --cc reno --sndbuf 256K
  fathom net run 127.0.0.1:7100 --udp --preset iperf2       1 Mb/s, as iperf 2 by default
  fathom net run 127.0.0.1:7100 --transactions              one-byte request, one-byte response
  fathom net run 127.0.0.1:7100 --json -o run.fathom

Start both ends from here, with a key made for the run:
  fathom net run --to ssh:server --interface eth0           this machine's eth0 to the server's
  fathom net run --from adb:R58M1 --to adb:R58M2 --interface wlan0 --json -o wifi.fathom
  fathom net run --from adb:R58M1 --to adb:R58M2 --interface bt-pan
  fathom net run --from adb --interface wlan0 --to local --to-interface eth0
  fathom net run 192.0.2.7:7100 --from ssh:me@one:2222 --to ssh:two
  fathom net run --to lab:virtio-ext4                       this machine to a virtual machine on it
  sudo fathom net run --from netns:a --to netns:b --interface eth0 --link delay=16ms,loss=1%

A device is local, ssh:[USER@]HOST[:PORT] (`ssh` must work without a password), adb:SERIAL (as in `adb devices`; adb if there is \
only one), netns:NAME (as in `ip netns`), or lab:SCENARIO[,KEY=VALUE…] (a virtual machine on this one, \
booted for the run). Fathom copies itself to each device once. Only commands and results go through ssh or adb; \
test data goes directly from one end to the other.",
    group(clap::ArgGroup::new("traffic").args(["tcp", "udp", "transactions"]))
)]
pub struct NetRun {
    /// Address of the server; not needed with --to and --interface
    #[arg(value_name = "ADDR:PORT", value_parser = address, required_unless_present = "to")]
    pub address: Option<SocketAddr>,
    /// The server's key
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Duration of the measurement
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Duration,
    /// Use only this network interface
    #[arg(long, value_name = "IF")]
    pub interface: Option<String>,
    /// Connections in each direction
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub streams: u16,
    /// Direction of the data; up is to the server
    #[arg(long, default_value = "up", value_parser = one_of(&Directions::CHOICES))]
    pub direction: Directions,
    /// Send TCP data at full speed, or at --rate per stream (the default)
    #[arg(long)]
    pub tcp: bool,
    /// Send UDP packets at --rate
    #[arg(long)]
    pub udp: bool,
    /// Exchange requests and responses over TCP, one in flight per stream
    #[arg(long, conflicts_with_all = ["direction", "rate", "preset"])]
    pub transactions: bool,
    /// Bit/s (suffixes k, M, G: powers of 1000), or `auto` (UDP): the highest rate at which a whole run loses at most 1 % (95 %
    /// confidence bound)
    #[arg(long, value_name = "R")]
    pub rate: Option<Rate>,
    /// Another tool's defaults; iperf2: UDP at 1 Mb/s in packets of 1470 bytes
    #[arg(long, value_enum, requires = "udp", conflicts_with = "rate")]
    pub preset: Option<Preset>,
    /// UDP payload per packet, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = UDP_PACKET_BYTES, requires = "udp", conflicts_with = "preset")]
    pub packet: u32,
    /// Size of a request
    #[arg(long, value_name = "BYTES", default_value_t = 1, requires = "transactions")]
    pub request: u32,
    /// Size of a response
    #[arg(long, value_name = "BYTES", default_value_t = 1, requires = "transactions")]
    pub response: u32,
    /// SO_SNDBUF of both ends (suffixes K, M: powers of 1024); the kernel doubles it
    #[arg(long, value_name = "BYTES", value_parser = parse_buffer_bytes)]
    pub sndbuf: Option<u32>,
    /// SO_RCVBUF of both ends
    #[arg(long, value_name = "BYTES", value_parser = parse_buffer_bytes)]
    pub rcvbuf: Option<u32>,
    /// Maximum segment size (TCP_MAXSEG)
    #[arg(long, value_name = "BYTES")]
    pub mss: Option<u32>,
    /// Congestion control of the sender, such as cubic, reno or bbr
    #[arg(long, value_name = "NAME")]
    pub cc: Option<String>,
    /// Set TCP_NODELAY (always set with --transactions)
    #[arg(long)]
    pub nodelay: bool,
    /// Maximum pacing rate of a socket (SO_MAX_PACING_RATE), bit/s
    #[arg(long, value_name = "R", value_parser = parse_bps)]
    pub pacing: Option<u64>,
    /// Copy received data to user space, as an application does; by default the kernel discards it (MSG_TRUNC)
    #[arg(long)]
    pub copy: bool,
    /// Record every acknowledgement at the sender (tcp:tcp_probe); needs root there
    #[arg(long)]
    pub tcp_probe: bool,
    /// Do not sample TCP_INFO, to measure what sampling costs; the run then has no verdict on what limited it
    #[arg(long, conflicts_with_all = ["udp", "transactions", "tcp_probe", "readings"])]
    pub no_readings: bool,
    /// Measure what sampling TCP_INFO costs on this machine: sample in randomly chosen tenths of a second, and compare the
    /// throughput with the others; one direction, 30 s or more
    #[arg(
        long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "turns",
        conflicts_with_all = ["udp", "transactions", "rate", "tcp_probe", "readings", "no_readings"]
    )]
    pub readings_cost: Option<ReadingsCost>,
    /// Print JSON (format: docs/guide/net.md)
    #[arg(long)]
    pub json: bool,
    /// Print samples as JSON lines, as a benchmark's replicate does
    #[arg(long, conflicts_with = "json")]
    pub lines: bool,
    /// With --lines, also print each sample of the sender's congestion window and round-trip time
    #[arg(long, requires = "lines")]
    pub readings: bool,
    /// Archive for all samples; an existing one is kept as NAME.fathom.old
    #[arg(short, long, value_name = "RUN.fathom", value_parser = directory_parser())]
    pub output: Option<PathBuf>,
    /// Run the client on this device
    #[arg(long, value_name = "DEVICE", default_value = "local", value_parser = super::device::device)]
    pub from: DeviceAddress,
    /// Run the server on this device, for the duration of the run
    #[arg(long, value_name = "DEVICE", value_parser = super::device::device)]
    pub to: Option<DeviceAddress>,
    /// Network interface of the server, if named differently from the client's
    #[arg(long, value_name = "IF", requires = "to", conflicts_with = "address")]
    pub to_interface: Option<String>,
    /// Route the traffic between both devices through an emulated link on this machine: the options of `fathom net link`, separated by
    /// commas, such as delay=16ms,rate=20mbit,loss=1%
    #[arg(long, value_name = "LINK")]
    pub link: Option<LinkArgument>,
    /// Fathom's binary for devices of another architecture (repeatable)
    #[arg(long, value_name = "FILE")]
    pub binary: Vec<PathBuf>,
}

/// Run a measurement for another Fathom process, and return the result to it
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct NetMeasure {
    /// The request
    #[arg(value_name = "FILE")]
    pub asked: PathBuf,
}

/// Other tools' defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// iperf 2's default for UDP.
    Iperf2,
}
