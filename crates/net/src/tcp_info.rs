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
const TCP_INFO_BYTES_MAX: usize = 512;

macro_rules! fields {
    ($( $(#[doc = $doc:literal])+ $name:ident: $ty:ty = $offset:literal, $unit:literal; )*) => {
        /// One sample of a connection at its sending end.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(from = "Row", into = "Row")]
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
        type Row = [u64; COLUMNS];

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

        impl From<Row> for TcpSample {
            fn from([time_ns, stream, $( $name ),*]: Row) -> Self {
                Self { time_ns, stream, $( $name ),* }
            }
        }

        impl From<TcpSample> for Row {
            fn from(s: TcpSample) -> Self {
                [s.time_ns, s.stream, $( s.$name ),*]
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
}

impl TcpSample {
    /// Bytes in flight.
    pub fn in_flight_bytes(&self) -> u64 {
        self.unacked.saturating_mul(self.snd_mss)
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
    let mut bytes = [0_u8; TCP_INFO_BYTES_MAX];
    let mut length = TCP_INFO_BYTES_MAX as libc::socklen_t;
    // SAFETY: the buffer is ours and `length` is its size; the kernel writes no more than that.
    let failed =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, bytes.as_mut_ptr().cast(), &raw mut length) };
    if failed != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(TcpSample::parse(&bytes[..(length as usize).min(TCP_INFO_BYTES_MAX)]))
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
    }
}
