//! The kernel's state of a TCP connection: `struct tcp_info`, read by offset.
//!
//! The structure only ever grows at its end (include/uapi/linux/tcp.h), and getsockopt returns the size that this kernel
//! has. So each field is read at its fixed offset, and a field beyond the returned length is 0: unknown, never another
//! field's bytes. Values are raw: windows in segments, times in microseconds, rates in bytes per second.
//!
//! **Uncertainty.** The sender's TCP keeps the counters `busy_us`, `rwnd_limited_us` and `sndbuf_limited_us` in jiffies
//! (net/ipv4/tcp_output.c, tcp_chrono_start), so differences over 10 ms are coarse and sums are accurate. `srtt_us` is
//! smoothed over eight samples.

use serde::{Deserialize, Serialize};
use std::os::fd::RawFd;

/// Larger than any kernel's structure so far (6.18: 280 bytes).
pub const TCP_INFO_BYTES_MAX: usize = 512;
/// Numbers of `SO_MEMINFO` (enum of include/uapi/linux/sock_diag.h), which follow the structure here.
pub const MEMINFO_NUMBERS: usize = 9;
/// Bytes of both: a sample is parsed from one buffer.
pub const SAMPLE_BYTES_MAX: usize = TCP_INFO_BYTES_MAX + 4 * MEMINFO_NUMBERS;

/// A row of another number of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a sample has {COLUMNS} values, not {found}")]
pub struct ColumnsError {
    found: usize,
}

macro_rules! fields {
    ($( $(#[doc = $doc:literal])+ $name:ident: $ty:ty = $offset:literal, $unit:literal; )*) => {
        /// One sample of a connection at its sending end.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(try_from = "Row", into = "Row")]
        pub struct TcpSample {
            /// The time, CLOCK_BOOTTIME of the sending end.
            pub time_ns: u64,
            /// The number of the stream in its direction.
            pub stream: u64,
            $( $(#[doc = $doc])+ pub $name: u64, )*
        }

        /// The names of the fields after `time_ns` and `stream`, with their units.
        pub const FIELDS: &[(&str, &str)] = &[$( (stringify!($name), $unit) ),*];

        const COLUMNS: usize = 2 + [$( $offset ),*].len();
        type Row = Vec<u64>;

        impl TcpSample {
            /// The values in the order of [`FIELDS`].
            pub fn values(&self) -> impl Iterator<Item = u64> {
                [$( self.$name ),*].into_iter()
            }

            /// Parses the structure returned by the kernel.
            pub fn parse(bytes: &[u8]) -> Self {
                Self {
                    time_ns: 0,
                    stream: 0,
                    $( $name: at(bytes, $offset, size_of::<$ty>()), )*
                }
            }
        }

        impl TryFrom<Row> for TcpSample {
            type Error = ColumnsError;

            fn try_from(row: Row) -> Result<Self, ColumnsError> {
                let found = row.len();
                let row: [u64; COLUMNS] = row.try_into().map_err(|_| ColumnsError { found })?;
                let [time_ns, stream, $( $name ),*] = row;
                Ok(Self { time_ns, stream, $( $name ),* })
            }
        }

        impl From<TcpSample> for Row {
            fn from(s: TcpSample) -> Self {
                vec![s.time_ns, s.stream, $( s.$name ),*]
            }
        }
    };
}

fields! {
    /// State of the congestion control: 0 open, 1 disorder, 2 window reduced, 3 recovery, 4 loss.
    ca_state: u8 = 1, "state";
    /// Bit 0: the delivery rate was limited by the application.
    app_limited: u8 = 7, "flag";
    /// Retransmission timeout, us.
    rto_us: u32 = 8, "us";
    /// Payload of a segment, bytes.
    snd_mss: u32 = 16, "byte";
    /// Segments in flight.
    unacked: u32 = 24, "segment";
    /// Of those in flight, segments that the receiver has though one before them is missing.
    sacked: u32 = 28, "segment";
    /// Segments thought lost.
    lost: u32 = 32, "segment";
    /// Largest packet of the path, bytes.
    pmtu: u32 = 60, "byte";
    /// Smoothed round-trip time, us.
    srtt_us: u32 = 68, "us";
    /// Its mean deviation, us.
    rttvar_us: u32 = 72, "us";
    /// Slow-start threshold, segments.
    ssthresh: u32 = 76, "segment";
    /// Congestion window, segments.
    cwnd: u32 = 80, "segment";
    /// Segments sent again so far.
    total_retrans: u32 = 100, "segment";
    /// Pacing rate, bytes/s.
    pacing_rate: u64 = 104, "byte/s";
    /// Bytes acknowledged so far.
    bytes_acked: u64 = 120, "byte";
    /// Segments with data sent so far.
    data_segs_out: u32 = 156, "segment";
    /// Bytes written but not yet sent.
    notsent_bytes: u32 = 144, "byte";
    /// Least round-trip time of the last minutes, us.
    min_rtt_us: u32 = 148, "us";
    /// Delivery rate, bytes/s.
    delivery_rate: u64 = 160, "byte/s";
    /// Time with data outstanding, us.
    busy_us: u64 = 168, "us";
    /// Of that, time in which the receiver's window held it back, us.
    rwnd_limited_us: u64 = 176, "us";
    /// Of that, time in which the send buffer was full of data in flight, us.
    sndbuf_limited_us: u64 = 184, "us";
    /// Segments delivered so far, those that came out of order included (Linux 4.18 and later).
    delivered: u32 = 192, "segment";
    /// Bytes sent so far, again or not.
    bytes_sent: u64 = 200, "byte";
    /// Of those, sent again.
    bytes_retrans: u64 = 208, "byte";
    /// The receiver's window, bytes (Linux 5.4 and later).
    snd_wnd: u32 = 228, "byte";
    /// Timeouts since the last progress.
    retransmits: u8 = 2, "timeout";
    /// Probes of a closed window since the last answer.
    probes: u8 = 3, "probe";
    /// Doublings of the retransmission timeout since the last progress.
    backoff: u8 = 4, "doubling";
    /// Of the delivered segments, those whose acknowledgement echoed congestion (ECE; Linux 4.18 and later).
    delivered_ce: u32 = 196, "segment";
    /// Duplicates that the receiver reported (DSACK): they were sent again without need.
    dsack_dups: u32 = 216, "segment";
    /// Times at which packets were found to be reordered.
    reord_seen: u32 = 220, "event";
    /// Segments received out of order.
    rcv_ooopack: u32 = 224, "segment";
    /// Retransmission timeouts so far (Linux 6.7 and later).
    total_rto: u16 = 240, "timeout";
    /// Options of the handshake: TCPI_OPT_SACK 2, TCPI_OPT_WSCALE 4, TCPI_OPT_ECN 8, ...
    options: u8 = 5, "flags";
    /// Segments sent again and not acknowledged.
    retrans: u32 = 36, "segment";
    /// Time since the last acknowledgement, ms.
    last_ack_ms: u32 = 56, "ms";
    /// Upper bound of the pacing rate, bytes/s; all ones without one.
    max_pacing_rate: u64 = 112, "byte/s";
    /// Bytes received so far.
    bytes_received: u64 = 128, "byte";
    /// Segments received so far.
    segs_in: u32 = 140, "segment";
    /// The receiver's estimate of the round trip, us.
    rcv_rtt_us: u32 = 92, "us";
    /// The window that this end offers, bytes (Linux 6.2 and later).
    rcv_wnd: u32 = 232, "byte";
    /// Memory of received data, bytes (SO_MEMINFO, Linux 4.12 and later; so are the next).
    rmem_alloc: u32 = 512, "byte";
    /// Its limit, bytes.
    rcvbuf: u32 = 516, "byte";
    /// Memory of data handed to this machine's queue discipline or driver and not yet sent, bytes.
    wmem_alloc: u32 = 520, "byte";
    /// Limit of the send buffer, bytes.
    sndbuf: u32 = 524, "byte";
    /// Memory of written data that is not acknowledged, bytes.
    wmem_queued: u32 = 532, "byte";
}

/// The first fields are stored in an archive with every sample, the next where they are not 0, and the rest, which serve the
/// account only, not at all.
pub const FIELDS_ALWAYS_STORED: usize = 26;
pub const FIELDS_STORED: usize = FIELDS_ALWAYS_STORED + 8;

/// Handshake option: window scaling (TCPI_OPT_WSCALE).
pub const OPTION_WSCALE: u64 = 4;
/// Handshake option: the flow may be marked instead of dropped (TCPI_OPT_ECN).
pub const OPTION_ECN: u64 = 8;

impl TcpSample {
    /// Bytes in flight.
    pub fn in_flight_bytes(&self) -> u64 {
        self.unacked.saturating_mul(self.snd_mss)
    }

    /// The shortest round trip, us, once one was measured (tcp_min_rtt; net/ipv4/tcp_input.c).
    pub fn known_min_rtt_us(&self) -> Option<u64> {
        (1..u64::from(u32::MAX)).contains(&self.min_rtt_us).then_some(self.min_rtt_us)
    }

    /// The connection at its birth: the same state, and nothing counted yet.
    pub fn at_birth(self, time_ns: u64) -> Self {
        Self {
            time_ns,
            total_retrans: 0,
            bytes_acked: 0,
            data_segs_out: 0,
            busy_us: 0,
            rwnd_limited_us: 0,
            sndbuf_limited_us: 0,
            delivered: 0,
            bytes_sent: 0,
            bytes_retrans: 0,
            delivered_ce: 0,
            dsack_dups: 0,
            reord_seen: 0,
            rcv_ooopack: 0,
            total_rto: 0,
            bytes_received: 0,
            segs_in: 0,
            ..self
        }
    }

    /// Segments in the network by the sender's estimate (`tcp_packets_in_flight` of include/net/tcp.h).
    pub fn segments_in_network(&self) -> u64 {
        (self.unacked + self.retrans).saturating_sub(self.sacked + self.lost)
    }
}

fn at(bytes: &[u8], offset: usize, size: usize) -> u64 {
    let Some(field) = bytes.get(offset..offset + size) else { return 0 };
    let mut wide = [0; 8];
    // The structure is in native byte order; both of our targets are little-endian.
    wide[..size].copy_from_slice(field);
    u64::from_le_bytes(wide)
}

/// Samples a connection's state; the caller fills in `time_ns` and `stream`.
///
/// # Errors
/// The error of getsockopt, such as for a socket that is not TCP.
pub fn read(fd: RawFd) -> std::io::Result<TcpSample> {
    let mut bytes = [0_u8; SAMPLE_BYTES_MAX];
    let (info, memory) = bytes.split_at_mut(TCP_INFO_BYTES_MAX);
    option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info)?;
    // A kernel without it leaves zeros: unknown.
    let _ = option(fd, libc::SOL_SOCKET, SO_MEMINFO, memory);
    Ok(TcpSample::parse(&bytes))
}

/// include/uapi/asm-generic/socket.h
const SO_MEMINFO: libc::c_int = 55;

fn option(fd: RawFd, level: libc::c_int, name: libc::c_int, into: &mut [u8]) -> std::io::Result<()> {
    let mut length = into.len() as libc::socklen_t;
    // SAFETY: the buffer is ours and `length` is its size; the kernel writes no more than that.
    let failed = unsafe { libc::getsockopt(fd, level, name, into.as_mut_ptr().cast(), &raw mut length) };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_beyond_end_is_zero() {
        let mut bytes = [0_u8; 232];
        bytes[80..84].copy_from_slice(&10_u32.to_le_bytes());
        bytes[228..232].copy_from_slice(&65_536_u32.to_le_bytes());
        let whole = TcpSample::parse(&bytes);
        assert_eq!((whole.cwnd, whole.snd_wnd), (10, 65_536));
        for length in 0..232 {
            let cut = TcpSample::parse(&bytes[..length]);
            assert_eq!(cut.snd_wnd, 0);
            assert_eq!(cut.cwnd, if length >= 84 { 10 } else { 0 });
        }
    }

    #[test]
    fn row_survives_wire_round_trip() {
        let sample = TcpSample { time_ns: 5, stream: 1, cwnd: 10, snd_wnd: 7, ..TcpSample::default() };
        let text = serde_json::to_string(&sample).unwrap();
        assert_eq!(serde_json::from_str::<TcpSample>(&text).unwrap(), sample);
        assert_eq!(text.matches(',').count() + 1, COLUMNS);
        assert!(serde_json::from_str::<TcpSample>("[1,2]").is_err());
    }

    #[test]
    fn tcp_info_of_running_kernel_is_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = read(std::os::fd::AsRawFd::as_raw_fd(&stream)).unwrap();
        // RFC 6928's initial window is ten segments; segments on loopback are large.
        assert!(info.cwnd == 10 && info.snd_mss > 1000 && info.snd_wnd > 1000, "{info:?}");
        assert!(info.sndbuf > 4000 && info.rcvbuf > 4000, "{info:?}");
    }
}
