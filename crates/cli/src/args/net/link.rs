//! Command line of `fathom net link`, and the options of the emulated links that other commands make.

use crate::args::one_of;
use ::net::link::Spec;
use ::net::link::loss::LossModel;
use ::net::link::spec::{self, Gso, Pair, QuantityError, SpecError, UnknownPreset};
use clap::{Args, Parser};
use std::ffi::OsString;
use std::str::FromStr;

/// Emulate a link between two network namespaces: delay, rate, loss, jitter, queue.
///
/// Client and server are network namespaces. All IP packets between them pass through the emulator, which holds each until it is
/// due and records how late it was delivered. A result is marked
/// invalid if lateness may have lowered a rate by more than 5 %, or if a packet was 200 ms late (docs/guide/net-link.md).
///
/// CMD runs in the client's namespace. Without CMD, prints how to run a command in either, and waits for Ctrl-C. At the end,
/// processes still running inside are killed, and both namespaces are removed, even after a crash.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom net link --delay 8ms -- ping -c 3 198.18.0.2
  fathom net link --delay 16ms --rate 50mbit --loss 1% --queue 100
  fathom net link --delay 16ms --rate 5mbit/50mbit --json \\
    -- sh -c '$FATHOM_LINK_ENTER_SERVER iperf3 -s -1 & sleep 1; iperf3 -c $FATHOM_LINK_SERVER'
  fathom net link --preset wifi-g

CMD's environment contains the addresses (FATHOM_LINK_CLIENT and FATHOM_LINK_SERVER; for IPv6, FATHOM_LINK_CLIENT6 and \
FATHOM_LINK_SERVER6), and FATHOM_LINK_ENTER_SERVER, a prefix that runs a command in the server's namespace. Exits with CMD's \
status. With --json, statistics go to stdout and CMD's output to stderr.

Needs root or user namespaces, iproute2, and /dev/net/tun.")]
pub struct NetLink {
    #[command(flatten)]
    pub link: LinkOptions,
    /// Print JSON (format: docs/guide/net-link.md)
    #[arg(long)]
    pub json: bool,
    /// Program to run in the client's namespace, with its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Properties of a link.
#[derive(Debug, Args, Default)]
pub struct LinkOptions {
    /// Start from a named link; the options below override it
    #[arg(long, value_name = "NAME", value_parser = preset)]
    pub preset: Option<Spec>,
    /// One-way delay, such as 8ms or 500us; this and the following options also accept UP/DOWN, such as 8ms/20ms
    #[arg(long, value_name = "TIME", value_parser = pair(spec::parse_time_ns))]
    pub delay: Option<Pair<u64>>,
    /// Bits per second, such as 50mbit
    #[arg(long, value_name = "RATE", value_parser = pair(spec::parse_rate))]
    pub rate: Option<Pair<u64>>,
    /// Fixed time per packet, in addition to its transmission time at --rate, such as 165us
    #[arg(long, value_name = "TIME", value_parser = pair(spec::parse_time_ns))]
    pub packet_cost: Option<Pair<u64>>,
    /// Share of packets lost, such as 1%, or in bursts: burst:WORSEN,RECOVER
    #[arg(long, value_name = "LOSS", value_parser = pair(LossModel::parse))]
    pub loss: Option<Pair<LossModel>>,
    /// Vary the delay by up to this much, either way
    #[arg(long, value_name = "TIME", value_parser = pair(spec::parse_time_ns))]
    pub jitter: Option<Pair<u64>>,
    /// Let jitter reorder packets
    #[arg(long)]
    pub reorder: bool,
    /// Queue length in packets [default: 1000]
    #[arg(long, value_name = "N", value_parser = pair(spec::parse_count))]
    pub queue: Option<Pair<u64>>,
    /// Queue length in bytes [default: unlimited]
    #[arg(long, value_name = "BYTES", value_parser = pair(spec::parse_count))]
    pub queue_bytes: Option<Pair<u64>>,
    /// Let both directions take turns on one shared medium
    #[arg(long)]
    pub half_duplex: bool,
    /// Maximum packet size [default: 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1280..=65535))]
    pub mtu: Option<u32>,
    /// Segmentation offload: pass packets of up to 64 KiB unsegmented
    #[arg(long, default_value = "auto", value_parser = one_of(&Gso::CHOICES))]
    pub gso: Gso,
    /// Seed of loss and jitter
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl LinkOptions {
    /// The link, checked.
    ///
    /// # Errors
    /// Why the link is not possible.
    pub fn spec(&self) -> Result<Spec, SpecError> {
        let mut spec = self.preset.unwrap_or_default();
        let (up, down) = (&mut spec.up, &mut spec.down);
        for (given, field) in [
            (self.delay, (&mut up.delay_ns, &mut down.delay_ns)),
            (self.rate, (&mut up.rate_bps, &mut down.rate_bps)),
            (self.packet_cost, (&mut up.packet_ns, &mut down.packet_ns)),
            (self.jitter, (&mut up.jitter_ns, &mut down.jitter_ns)),
            (self.queue, (&mut up.queue_packets, &mut down.queue_packets)),
            (self.queue_bytes, (&mut up.queue_bytes, &mut down.queue_bytes)),
        ] {
            if let Some(Pair(for_up, for_down)) = given {
                (*field.0, *field.1) = (for_up, for_down);
            }
        }
        if let Some(Pair(for_up, for_down)) = self.loss {
            (up.loss, down.loss) = (for_up, for_down);
        }
        (up.reorder, down.reorder) = (self.reorder, self.reorder);
        spec.half_duplex |= self.half_duplex;
        spec.mtu = self.mtu.unwrap_or(spec.mtu);
        spec.gso = self.gso;
        spec.seed = self.seed;
        spec.check()?;
        Ok(spec)
    }
}

/// A link in one word: what `fathom net link` takes, with commas between, such as `delay=16ms,loss=1%,half-duplex`.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkArgument {
    /// As it was given.
    pub text: String,
    /// What it means.
    pub spec: Spec,
}

/// For the parser of its words.
#[derive(Debug, Parser)]
struct LinkParser {
    #[command(flatten)]
    link: LinkOptions,
}

impl FromStr for LinkArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = vec!["link".to_string()];
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match words.last_mut() {
                // The chances of bursts have commas between them.
                Some(before) if part.starts_with(|c: char| c.is_ascii_digit()) && before.contains('=') => {
                    *before += &format!(",{part}");
                }
                _ => words.push(format!("--{part}")),
            }
        }
        let link = LinkParser::try_parse_from(&words).map_err(|error| {
            let said = error.to_string();
            let said = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
            format!(
                "{said}; `fathom net link --help` lists the options, here separated by commas: \
                delay=16ms,rate=20mbit,loss=1%"
            )
        })?;
        let spec = link.link.spec().map_err(|why| why.to_string())?;
        Ok(Self { text: text.into(), spec })
    }
}

/// [`spec::parse_pair`], for clap.
fn pair<T: Copy + 'static>(
    one: fn(&str) -> Result<T, QuantityError>,
) -> impl Fn(&str) -> Result<Pair<T>, QuantityError> + Clone + Send + Sync + 'static {
    move |text: &str| spec::parse_pair(text, one)
}

fn preset(name: &str) -> Result<Spec, UnknownPreset> {
    Spec::preset(name).ok_or(UnknownPreset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(words: &[&str]) -> Result<Spec, String> {
        let words = std::iter::once("link").chain(words.iter().copied());
        LinkParser::try_parse_from(words).map_err(|e| e.to_string())?.link.spec().map_err(|e| e.to_string())
    }

    #[test]
    fn option_takes_one_value_or_one_for_each_direction() {
        let s = spec(&["--delay", "8ms/20ms", "--rate=50mbit/s", "--loss=1%/0", "--queue-bytes", "64K"]).unwrap();
        assert_eq!((s.up.delay_ns, s.down.delay_ns), (8_000_000, 20_000_000));
        assert_eq!((s.up.rate_bps, s.down.rate_bps), (50_000_000, 50_000_000));
        assert_eq!((s.up.loss, s.down.loss), (LossModel::Each(0.01), LossModel::None));
        assert_eq!((s.up.queue_bytes, s.up.queue_packets), (65_536, 1000));
    }

    #[test]
    fn options_override_the_preset() {
        let plain = spec(&["--preset", "wifi-g"]).unwrap();
        let changed = spec(&["--preset=wifi-g", "--delay=16ms"]).unwrap();
        assert!(plain.half_duplex && changed.half_duplex);
        assert_eq!((changed.up.rate_bps, changed.up.delay_ns), (plain.up.rate_bps, 16_000_000));
        assert!(spec(&["--preset", "avian"]).unwrap_err().contains("satellite"));
    }

    #[test]
    fn comma_separated_options_give_the_same_link() {
        let one = |text: &str| text.parse::<LinkArgument>();
        let whole = one("preset=lte,delay=8ms/20ms,loss=burst:0.01,0.3,0.5/0,queue=50,half-duplex,seed=7").unwrap();
        let words = [
            "--preset=lte",
            "--delay=8ms/20ms",
            "--loss=burst:0.01,0.3,0.5/0",
            "--queue=50",
            "--half-duplex",
            "--seed=7",
        ];
        assert_eq!(whole.spec, spec(&words).unwrap());
        assert_eq!(one("").unwrap().spec, spec(&[]).unwrap());
        for (bad, word) in
            [("dealy=8ms", "dealy"), ("delay=x", "delay"), ("8ms", "8ms"), ("jitter=5ms", "--delay"), ("help", "help")]
        {
            let why = one(bad).unwrap_err();
            assert!(why.contains(word) && !why.contains('\n'), "{bad}: {why}");
        }
    }

    #[test]
    fn impossible_links_are_refused() {
        assert!(spec(&["--jitter", "5ms"]).unwrap_err().contains("--delay"));
        assert!(spec(&["--loss", "2"]).is_err() && spec(&["--rate", "fast"]).is_err());
        assert!(spec(&["--mtu", "100"]).is_err());
    }
}
