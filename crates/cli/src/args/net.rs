//! What the user may say to `fathom net`.

mod cc;
mod link;
mod sweep;

pub use cc::NetCc;
pub use link::{InOneWord, NetLink};
pub use sweep::{NetSweep, NetTrial};

use super::seconds;
use clap::{Args, Subcommand, ValueEnum};
use device::reach::DeviceAddress;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

/// What is compared to tell what readings cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Cost {
    /// Some tenths of a second with readings, others without
    Turns,
    /// All with readings: what is found where there is nothing to find
    Control,
}

/// Measure a link: TCP, UDP, one-way delay, and what held a transfer back.
///
/// One end serves, the other asks. The sending end's TCP is read every 10 ms, whichever end it is, and each run ends with
/// what limited it: application, receive window, send buffer, congestion, link rate, policer, shallow buffer, competing
/// traffic, round trips or CPU, and the setting that would change it.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Start here:
  fathom net serve --listen 127.0.0.1:7100 &
  fathom net run 127.0.0.1:7100                             TCP to the other end, for ten seconds
  fathom net run 127.0.0.1:7100 --direction down --streams 8
  fathom net run 127.0.0.1:7100 --udp --rate auto           the highest rate with at most 1 % lost

Between machines both ends need the same key:
  fathom pool keygen net.key                                and copy it to the other end
  fathom net serve --listen 0.0.0.0:7100 --key net.key
  fathom net run 192.0.2.7:7100 --key net.key"
)]
pub struct Net {
    /// What to do.
    #[command(subcommand)]
    pub verb: NetVerb,
}

/// What `net` can do, told at the arguments of each.
#[derive(Debug, Subcommand)]
pub enum NetVerb {
    Serve(NetServe),
    Run(Box<NetRun>),
    Cc(NetCc),
    Link(NetLink),
    Sweep(NetSweep),
    Trial(NetTrial),
}

/// Wait for runs, on one port.
///
/// All goes through the one TCP port: control, which a key authenticates and encrypts, and data, which a run's random token
/// lets in. A run of UDP uses the UDP port of that number on the same address while it lasts. Nothing else is opened.
#[derive(Debug, Args)]
pub struct NetServe {
    /// Where; port 0 takes a free one, which is printed
    #[arg(long, value_name = "ADDR:PORT", value_parser = address, required_unless_present = "interface")]
    pub listen: Option<SocketAddr>,
    /// On the address that this network interface has, and a free port, both of which are printed
    #[arg(long, value_name = "IF", conflicts_with = "listen")]
    pub interface: Option<String>,
    /// Let in only those who have this key too; needed on any address but loopback
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// End when the first asker has gone, or when none has come for a minute
    #[arg(long)]
    pub once: bool,
}

/// Measure the way to an end that serves, and back.
///
/// Throughput is counted at the receiver every 0.1 s; the estimate leaves out the slow start and has an interval of 95 %. The
/// archive of -o keeps every interval and every reading of TCP.
#[derive(Debug, Args)]
#[command(
    after_help = "\
Examples:
  fathom net run 127.0.0.1:7100 --duration 30 --cc reno --sndbuf 256K
  fathom net run 127.0.0.1:7100 --udp --preset iperf2       1 Mb/s, as iperf 2 by default
  fathom net run 127.0.0.1:7100 --transactions              a byte there, a byte back
  fathom net run 127.0.0.1:7100 --json -o run.fathom

Both ends, started from here, with a key of the run's own:
  fathom net run --to ssh:server --interface eth0           this machine's eth0 to the server's
  fathom net run --from adb:R58M1 --to adb:R58M2 --interface wlan0 --json -o wifi.fathom
  fathom net run --from adb:R58M1 --to adb:R58M2 --interface bt-pan
  fathom net run --from adb --interface wlan0 --to local --to-interface eth0
  fathom net run 192.0.2.7:7100 --from ssh:me@one:2222 --to ssh:two
  sudo fathom net run --from netns:a --to netns:b --interface eth0 --link delay=16ms,loss=1%

A device is local, ssh:[USER@]HOST[:PORT] (as `ssh` gets in without a password), adb:SERIAL (as `adb devices` lists it; adb if \
there is one), or netns:NAME (as `ip netns` lists it). Fathom is put there once. The way to a device carries orders and results; \
data goes directly from one end to the other.",
    group(clap::ArgGroup::new("traffic").args(["tcp", "udp", "transactions"]))
)]
pub struct NetRun {
    /// The end that serves; with --to it may be left out, and --interface tells
    #[arg(value_name = "ADDR:PORT", value_parser = address, required_unless_present = "to")]
    pub address: Option<SocketAddr>,
    /// The key of the end that serves
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// How long to count
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Duration,
    /// Go through this network interface only
    #[arg(long, value_name = "IF")]
    pub interface: Option<String>,
    /// Connections each way
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub streams: u16,
    /// Which way: up is to the end that serves
    #[arg(long, value_enum, default_value_t = Way::Up)]
    pub direction: Way,
    /// As much as TCP takes, or --rate a stream (this is what is done if nothing is said)
    #[arg(long)]
    pub tcp: bool,
    /// Packets of UDP at --rate
    #[arg(long)]
    pub udp: bool,
    /// Requests and responses over TCP, one under way a stream
    #[arg(long, conflicts_with_all = ["direction", "rate", "preset"])]
    pub transactions: bool,
    /// Bit/s (suffixes k, M, G: thousands), or `auto` (UDP): the highest that a whole run holds with at most 1 % lost, by a bound of 95 % confidence
    #[arg(long, value_name = "R", value_parser = rate)]
    pub rate: Option<Rate>,
    /// A known setting; iperf2: UDP at 1 Mb/s in packets of 1470 bytes, what iperf 2 sends if nobody says more
    #[arg(long, value_enum, requires = "udp", conflicts_with = "rate")]
    pub preset: Option<Preset>,
    /// Payload of a packet of UDP, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1400, requires = "udp", conflicts_with = "preset")]
    pub packet: u32,
    /// Bytes of a request
    #[arg(long, value_name = "BYTES", default_value_t = 1, requires = "transactions")]
    pub request: u32,
    /// Bytes of a response
    #[arg(long, value_name = "BYTES", default_value_t = 1, requires = "transactions")]
    pub response: u32,
    /// SO_SNDBUF of both ends (suffixes K, M: of 1024); the kernel grants twice this
    #[arg(long, value_name = "BYTES", value_parser = buffer)]
    pub sndbuf: Option<u32>,
    /// SO_RCVBUF of both ends
    #[arg(long, value_name = "BYTES", value_parser = buffer)]
    pub rcvbuf: Option<u32>,
    /// Largest segment
    #[arg(long, value_name = "BYTES")]
    pub mss: Option<u32>,
    /// Congestion control of whoever sends, such as cubic, reno or bbr
    #[arg(long, value_name = "NAME")]
    pub cc: Option<String>,
    /// Do not hold back small segments (always so with --transactions)
    #[arg(long)]
    pub nodelay: bool,
    /// Let packets of a socket go at no more than this, bit/s
    #[arg(long, value_name = "R", value_parser = plain_rate)]
    pub pacing: Option<u64>,
    /// Copy what arrives into memory, as an application does; otherwise the kernel throws it away
    #[arg(long)]
    pub copy: bool,
    /// Record every acknowledgement at the sending end (tcp:tcp_probe), which needs root there
    #[arg(long)]
    pub tcp_probe: bool,
    /// Do not read TCP's state, to see what reading it costs; nothing then tells what held the run back
    #[arg(long, conflicts_with_all = ["udp", "transactions", "tcp_probe", "readings"])]
    pub no_readings: bool,
    /// Tell what reading TCP's state costs here: read it in some tenths of a second and not in others, by lot, and compare their
    /// throughput; one direction, 30 s or more
    #[arg(
        long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "turns",
        conflicts_with_all = ["udp", "transactions", "rate", "tcp_probe", "readings", "no_readings"]
    )]
    pub readings_cost: Option<Cost>,
    /// Print JSON (its contract: docs/guide/net.md)
    #[arg(long)]
    pub json: bool,
    /// Print samples as JSON lines, as a benchmark's replicate does
    #[arg(long, conflicts_with = "json")]
    pub lines: bool,
    /// With --lines: each reading of the sender's congestion window and round-trip time too
    #[arg(long, requires = "lines")]
    pub readings: bool,
    /// Keep all samples in this archive; one of that name is kept as NAME.fathom.old
    #[arg(short, long, value_name = "RUN.fathom")]
    pub output: Option<PathBuf>,
    /// The end that asks runs on this device
    #[arg(long, value_name = "DEVICE", default_value = "local")]
    pub from: DeviceAddress,
    /// The end that serves runs on this device, and ends with the run
    #[arg(long, value_name = "DEVICE")]
    pub to: Option<DeviceAddress>,
    /// The end that serves listens on the address of this interface, if it is not called as at the other end
    #[arg(long, value_name = "IF", requires = "to", conflicts_with = "address")]
    pub to_interface: Option<String>,
    /// Lead the way between both devices through an emulated link on this machine, which is the router between them: the words of
    /// `fathom net link` with commas between, such as delay=16ms,rate=20mbit,loss=1%
    #[arg(long, value_name = "LINK")]
    pub link: Option<InOneWord>,
    /// The program for devices with another processor than this machine's (may be given again)
    #[arg(long, value_name = "FILE")]
    pub binary: Vec<PathBuf>,
    /// What the machine that started both ends knows of them
    #[arg(long, value_name = "FILE", hide = true)]
    pub ends: Option<PathBuf>,
}

/// Which ways data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// To the end that serves.
    Up,
    /// From the end that serves.
    Down,
    /// Both at once.
    Both,
}

/// A rate that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// This, in bit/s.
    Of(u64),
    /// The highest that loses little.
    Auto,
}

/// What iperf 2 sends by UDP if nobody says more: bits a second, bytes a packet.
pub const IPERF2_RATE: u64 = 1_000_000;
/// See [`IPERF2_RATE`].
pub const IPERF2_PACKET: u32 = 1470;

/// Settings that others made known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// iperf 2's default for UDP.
    Iperf2,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let mut found =
        text.to_socket_addrs().map_err(|e| format!("{e}; give ADDRESS:PORT, such as 192.0.2.7:7100 or [::1]:7100"))?;
    found.next().ok_or_else(|| "the name has no address".into())
}

fn rate(text: &str) -> Result<Rate, String> {
    if text == "auto" { Ok(Rate::Auto) } else { plain_rate(text).map(Rate::Of) }
}

fn plain_rate(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 1e3),
        Some('m' | 'M') => (&text[..text.len() - 1], 1e6),
        Some('g' | 'G') => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    let value = digits.parse::<f64>().map_or(f64::NAN, |v| v * factor);
    let bps = value.round();
    if (1000.0..=1e12).contains(&bps) { Ok(bps as u64) } else { Err("give bit/s from 1k to 1000G, such as 50M".into()) }
}

fn buffer(text: &str) -> Result<u32, String> {
    let (digits, shift) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 10),
        Some('m' | 'M') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let bytes = digits.parse::<u32>().ok().and_then(|n| n.checked_mul(1 << shift));
    bytes.filter(|b| (1..=1 << 30).contains(b)).ok_or_else(|| "give bytes up to 1024M, such as 256K".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_thousands_and_buffers_are_of_1024() {
        assert_eq!(
            (rate("50M"), rate("1.5g"), rate("auto")),
            (Ok(Rate::Of(50_000_000)), Ok(Rate::Of(1_500_000_000)), Ok(Rate::Auto))
        );
        assert_eq!((buffer("256K"), buffer("1M"), buffer("99")), (Ok(262_144), Ok(1_048_576), Ok(99)));
        for bad in ["", "M", "-1M", "nan", "inf", "1e40G", "10", "ü"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        assert!(buffer("9999M").is_err() && buffer("").is_err() && buffer("-5").is_err() && buffer("0").is_err());
        assert!(address("[::1]:7100").is_ok() && address("::1").is_err());
    }
}
