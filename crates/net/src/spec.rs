//! The requested traffic of one run, as sent over the control connection. It is untrusted until [`Spec::check`] accepts it.

pub use crate::spec_error::SpecError;
use serde::{Deserialize, Serialize};

/// Bytes of a packet's header ([`crate::traffic`]).
pub const PACKET_HEADER_BYTES: usize = 32;
/// The maximum number of streams per direction; each has a thread at either end.
pub const STREAMS_MAX: u16 = 128;
/// The longest run, in milliseconds.
pub const DURATION_MS_MAX: u64 = 3_600_000;
/// The largest payload of a UDP packet: what IPv4 leaves of 65,535 bytes.
pub const PACKET_BYTES_MAX: u32 = 65_507;
/// The smallest payload of a UDP packet: the header alone.
pub const PACKET_BYTES_MIN: u32 = PACKET_HEADER_BYTES as u32;
/// The largest request or response.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// The highest rate that can be requested, in bit/s.
pub const RATE_BPS_MAX: u64 = 1_000_000_000_000;

/// The length of a throughput interval, in nanoseconds.
pub const THROUGHPUT_INTERVAL_NS: u64 = 100_000_000;
/// The sampling interval of a sender's TCP state, in nanoseconds.
pub const SAMPLE_INTERVAL_NS: u64 = 10_000_000;
/// The maximum number of samples of a run at one end: 100 MB on the wire as JSON.
pub const READINGS_MAX: u64 = 500_000;
/// The mean size of samples and acknowledgements as JSON, generously.
pub const SAMPLE_JSON_BYTES: usize = 200;

/// The sampling interval, in ns, for this number of sockets and duration.
pub fn sampling_interval_ns(sockets: u64, duration_ns: u64) -> u64 {
    let fits = sockets.saturating_mul(duration_ns) / READINGS_MAX;
    SAMPLE_INTERVAL_NS.max(fits.next_multiple_of(SAMPLE_INTERVAL_NS))
}

/// The direction of data, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

impl Direction {
    /// `up` or `down`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// The traffic to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// As much as TCP accepts, or a given rate per stream, written in bursts every 10 ms.
    Tcp {
        /// Bit/s of each stream, if the application limits its rate.
        rate_bps: Option<u64>,
    },
    /// Packets at absolute send times.
    Udp {
        /// Bit/s of payload, all streams together.
        rate_bps: u64,
        /// Payload of a packet, in bytes.
        packet_bytes: u32,
    },
    /// Over TCP: a request, its response, the next request, and so on.
    Transactions {
        /// Bytes of a request.
        request_bytes: u32,
        /// Bytes of a response.
        response_bytes: u32,
    },
}

/// Options of each socket; omitted ones keep the kernel's defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketOptions {
    /// SO_SNDBUF, bytes (the kernel grants twice this).
    pub send_buffer: Option<u32>,
    /// SO_RCVBUF, bytes (the kernel grants twice this).
    pub receive_buffer: Option<u32>,
    /// TCP_MAXSEG, bytes.
    pub mss: Option<u32>,
    /// TCP_CONGESTION.
    pub congestion: Option<String>,
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// SO_MAX_PACING_RATE, bit/s.
    pub pacing_bps: Option<u64>,
}

/// A requested run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The traffic to send.
    pub traffic: Traffic,
    /// One, or both in any order.
    pub directions: Vec<Direction>,
    /// Connections (TCP) or flows (UDP) per direction.
    pub streams: u16,
    /// The measured time, without connecting and waiting for the last packets.
    pub duration_ms: u64,
    /// The options of every socket.
    pub socket: SocketOptions,
    /// Whether a receiver copies the bytes to memory, as an application does, or lets the kernel discard them.
    pub copy: bool,
    /// Whether sending ends record every acknowledgement ([`crate::probe`]).
    pub probe: bool,
    /// When TCP's state is sampled.
    #[serde(default, skip_serializing_if = "Readings::is_all")]
    pub readings: Readings,
}

/// When TCP's state is sampled. What limited a run is only known with [`Readings::All`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readings {
    /// Every 10 ms.
    #[default]
    All,
    None,
    /// In randomly chosen intervals ([`crate::sampling_cost`]), to measure the cost of sampling.
    ByTurns {
        /// The seed of the choice.
        seed: u64,
        /// Whether the other intervals are sampled too: the measured ratio then shows the method's result without any effect.
        #[serde(default)]
        control: bool,
    },
}

impl Readings {
    fn is_all(&self) -> bool {
        *self == Self::All
    }
}

impl Spec {
    /// Checks whether both ends can run this.
    ///
    /// # Errors
    /// The invalid part, and its valid range.
    pub fn check(&self) -> Result<(), SpecError> {
        let within = |what, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(SpecError::OutOfRange { what, value, least, most })
            }
        };
        within("the number of streams", self.streams.into(), 1, STREAMS_MAX.into())?;
        within("the duration in ms", self.duration_ms, 100, DURATION_MS_MAX)?;
        match self.directions[..] {
            [_] => (),
            [a, b] if a != b => (),
            _ => return Err(SpecError::Direction),
        }
        match self.traffic {
            Traffic::Tcp { rate_bps } => {
                rate_bps.map_or(Ok(()), |rate| within("the rate in bit/s", rate, 1000, RATE_BPS_MAX))?;
            }
            Traffic::Udp { rate_bps, packet_bytes } => {
                within("the rate in bit/s", rate_bps, 1000, RATE_BPS_MAX)?;
                within("the number of flows of UDP", self.streams.into(), 1, 1)?;
                within(
                    "the size of a packet in bytes",
                    packet_bytes.into(),
                    PACKET_BYTES_MIN.into(),
                    PACKET_BYTES_MAX.into(),
                )?;
            }
            Traffic::Transactions { request_bytes, response_bytes } => {
                within("the size of a request in bytes", request_bytes.into(), 1, MESSAGE_BYTES_MAX.into())?;
                within("the size of a response in bytes", response_bytes.into(), 1, MESSAGE_BYTES_MAX.into())?;
                if self.directions != [Direction::Up] {
                    return Err(SpecError::RequestsGoUp);
                }
            }
        }
        if self.probe && !matches!(self.traffic, Traffic::Tcp { .. }) {
            return Err(SpecError::ProbeNeedsTcp);
        }
        if matches!(self.readings, Readings::ByTurns { .. })
            && (self.directions.len() > 1 || self.traffic != Traffic::Tcp { rate_bps: None })
        {
            return Err(SpecError::CostNeedsTcp);
        }
        if matches!(self.readings, Readings::ByTurns { .. })
            && sampling_interval_ns(self.streams.into(), self.duration_ms.saturating_mul(1_000_000))
                > SAMPLE_INTERVAL_NS
        {
            return Err(SpecError::SampledTooRarely);
        }
        let name = self.socket.congestion.as_deref();
        if name.is_some_and(|n| n.is_empty() || n.len() > 15 || !n.bytes().all(|b| b.is_ascii_graphic())) {
            return Err(SpecError::CongestionName);
        }
        Ok(())
    }

    /// Whether data flows in this direction.
    pub fn has_direction(&self, direction: Direction) -> bool {
        self.directions.contains(&direction)
    }

    /// Whether each stream is a TCP connection, whose state the kernel reports.
    pub fn is_tcp(&self) -> bool {
        !matches!(self.traffic, Traffic::Udp { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Spec {
        Spec {
            traffic: Traffic::Tcp { rate_bps: None },
            directions: vec![Direction::Up],
            streams: 1,
            duration_ms: 1000,
            socket: SocketOptions::default(),
            copy: false,
            probe: false,
            readings: Readings::All,
        }
    }

    #[test]
    fn invalid_run_error_names_valid_range() {
        assert_eq!(spec().check(), Ok(()));
        let bad = |change: fn(&mut Spec), part: &str| {
            let mut s = spec();
            change(&mut s);
            let why = s.check().unwrap_err().to_string();
            assert!(why.contains(part), "{why}");
        };
        bad(|s| s.streams = 0, "1 to 128");
        bad(|s| s.duration_ms = u64::MAX, "100 to 3600000");
        bad(|s| s.directions = vec![Direction::Up, Direction::Up], "up, down or both");
        bad(|s| s.directions.clear(), "up, down or both");
        bad(|s| s.traffic = Traffic::Udp { rate_bps: 0, packet_bytes: 1400 }, "rate");
        bad(|s| s.traffic = Traffic::Udp { rate_bps: 1000, packet_bytes: 3 }, "packet");
        bad(|s| s.traffic = Traffic::Transactions { request_bytes: 0, response_bytes: 1 }, "request");
        bad(|s| s.socket.congestion = Some("a\0b".into()), "congestion");
    }

    #[test]
    fn long_runs_of_many_streams_are_sampled_less_often() {
        assert_eq!(sampling_interval_ns(1, 10_000_000_000), SAMPLE_INTERVAL_NS);
        assert_eq!(sampling_interval_ns(8, 600_000_000_000), SAMPLE_INTERVAL_NS);
        let long = sampling_interval_ns(128, 3_600_000_000_000);
        assert!(
            long > SAMPLE_INTERVAL_NS
                && 128 * 3_600_000_000_000 / long <= READINGS_MAX
                && long.is_multiple_of(SAMPLE_INTERVAL_NS)
        );
    }
}
