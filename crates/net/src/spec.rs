//! What is asked for: the traffic of one run, as it goes over the control connection. Nothing of it is believed before
//! [`Spec::check`] has seen it.

pub use crate::spec_error::SpecError;
use serde::{Deserialize, Serialize};

/// Bytes of the header of a packet ([`crate::traffic`]).
pub const PACKET_HEADER: usize = 32;
/// The most streams a direction may have; each has a thread at either end.
pub const MAX_STREAMS: u16 = 128;
/// The longest run, in milliseconds.
pub const MAX_DURATION_MS: u64 = 3_600_000;
/// The largest packet of UDP: what IPv4 leaves of 65,535 bytes.
pub const MAX_PACKET: u32 = 65_507;
/// The smallest: it holds its header.
pub const MIN_PACKET: u32 = PACKET_HEADER as u32;
/// The largest request or response.
pub const MAX_MESSAGE: u32 = 1 << 20;
/// The highest rate that can be asked for, in bit/s.
pub const MAX_RATE: u64 = 1_000_000_000_000;

/// How long an interval of throughput is, in nanoseconds.
pub const INTERVAL_NS: u64 = 100_000_000;
/// How often a sending end's TCP is read, in nanoseconds.
pub const SAMPLE_NS: u64 = 10_000_000;
/// The most readings of a run at one end: 100 MB on the wire as JSON.
pub const MAX_READINGS: u64 = 500_000;

/// How far apart readings are, in ns, for so many sockets over so long a run.
pub fn readings_every_ns(sockets: u64, duration_ns: u64) -> u64 {
    let fits = sockets.saturating_mul(duration_ns) / MAX_READINGS;
    SAMPLE_NS.max(fits.next_multiple_of(SAMPLE_NS))
}

/// Which way data goes, seen from the client.
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

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// As much as TCP takes, or so many bit/s of a stream written in bursts every 10 ms.
    Tcp {
        /// Bit/s of each stream, if the application is to hold itself back.
        rate_bps: Option<u64>,
    },
    /// Packets at absolute due times.
    Udp {
        /// Bit/s of payload, all streams together.
        rate_bps: u64,
        /// Payload of a packet, in bytes.
        packet_bytes: u32,
    },
    /// Over TCP: a request, its response, the next request.
    Transactions {
        /// Bytes of a request.
        request_bytes: u32,
        /// Bytes of a response.
        response_bytes: u32,
    },
}

/// What is set on each socket; what is left out stays as the kernel has it.
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

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// What is sent.
    pub traffic: Traffic,
    /// Which ways.
    pub directions: Vec<Direction>,
    /// Connections (TCP) or flows (UDP) each way.
    pub streams: u16,
    /// How long data is counted.
    pub duration_ms: u64,
    /// Of every socket.
    pub socket: SocketOptions,
    /// Whether a receiver takes the bytes into memory, as an application does, or lets the kernel throw them away.
    pub copy: bool,
    /// Whether sending ends record every acknowledgement ([`crate::probe`]).
    pub probe: bool,
    /// When TCP's state is read.
    #[serde(default, skip_serializing_if = "Readings::is_all")]
    pub readings: Readings,
}

/// When TCP's state is read. Only with all readings is it known what limited a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readings {
    /// Every 10 ms.
    #[default]
    All,
    /// Never.
    None,
    /// In some intervals and not in others, by lot ([`crate::turns`]), to see what reading it costs.
    ByTurns {
        /// Of the lots.
        seed: u64,
        /// Whether the others have them too: then the ratio tells what the method finds where there is nothing to find.
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
    /// Whether both ends can do this.
    ///
    /// # Errors
    /// Which part cannot be, and what can.
    pub fn check(&self) -> Result<(), SpecError> {
        let within = |what, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(SpecError::OutOfRange { what, value, least, most }),
        };
        within("the number of streams", self.streams.into(), 1, MAX_STREAMS.into())?;
        within("the duration in ms", self.duration_ms, 100, MAX_DURATION_MS)?;
        match self.directions[..] {
            [_] => (),
            [a, b] if a != b => (),
            _ => return Err(SpecError::Direction),
        }
        match self.traffic {
            Traffic::Tcp { rate_bps } => {
                rate_bps.map_or(Ok(()), |rate| within("the rate in bit/s", rate, 1000, MAX_RATE))?;
            }
            Traffic::Udp { rate_bps, packet_bytes } => {
                within("the rate in bit/s", rate_bps, 1000, MAX_RATE)?;
                within("the number of flows of UDP", self.streams.into(), 1, 1)?;
                within("the size of a packet in bytes", packet_bytes.into(), MIN_PACKET.into(), MAX_PACKET.into())?;
            }
            Traffic::Transactions { request_bytes, response_bytes } => {
                within("the size of a request in bytes", request_bytes.into(), 1, MAX_MESSAGE.into())?;
                within("the size of a response in bytes", response_bytes.into(), 1, MAX_MESSAGE.into())?;
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
            && readings_every_ns(self.streams.into(), self.duration_ms.saturating_mul(1_000_000)) > SAMPLE_NS
        {
            return Err(SpecError::SampledTooRarely);
        }
        let name = self.socket.congestion.as_deref();
        if name.is_some_and(|n| n.is_empty() || n.len() > 15 || !n.bytes().all(|b| b.is_ascii_graphic())) {
            return Err(SpecError::CongestionName);
        }
        Ok(())
    }

    /// Whether data goes that way.
    pub fn goes(&self, direction: Direction) -> bool {
        self.directions.contains(&direction)
    }

    /// Whether it is one connection a stream, which the kernel's TCP can be asked about.
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
        assert_eq!(readings_every_ns(1, 10_000_000_000), SAMPLE_NS);
        assert_eq!(readings_every_ns(8, 600_000_000_000), SAMPLE_NS);
        let long = readings_every_ns(128, 3_600_000_000_000);
        assert!(long > SAMPLE_NS && 128 * 3_600_000_000_000 / long <= MAX_READINGS && long.is_multiple_of(SAMPLE_NS));
    }
}
