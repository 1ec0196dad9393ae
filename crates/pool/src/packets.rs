//! Packets of a TCP connection, in both directions, as counted by the kernel (`TCP_INFO`).
//!
//! A packet is a segment as transmitted on the link: a buffer that the stack passes down whole and the device segments
//! counts as many. Pure acknowledgements and retransmissions are included, since they use the medium like any other.

use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// Bytes of `struct tcp_info` up to and including `tcpi_segs_in` (include/uapi/linux/tcp.h); every kernel since 4.2 fills them.
const TCP_INFO_BYTES_MIN: usize = 144;

/// A value for each direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PerDirection {
    /// To the nodes.
    pub sent: f64,
    /// From them.
    pub received: f64,
}

/// The counters of a connection since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packets {
    pub sent: u64,
    pub received: u64,
    /// Bytes of data acknowledged by the other end; without headers.
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

impl Packets {
    /// The counters of a socket; `None` if it is not TCP, or is closed.
    pub fn from_socket(socket: impl AsFd) -> Option<Self> {
        Self::from_raw_socket(socket.as_fd().as_raw_fd())
    }

    /// The counters of all current TCP connections of this process: a benchmark of a pool has no others. This examines every open file.
    pub fn from_this_process() -> Self {
        let names = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten().map(|entry| entry.file_name());
        // The descriptor that reads the directory is included, but is not a socket.
        let sockets = names.filter_map(|name| Self::from_raw_socket(name.to_str()?.parse().ok()?));
        sockets.fold(Self::default(), Self::and)
    }

    fn from_raw_socket(socket: RawFd) -> Option<Self> {
        let mut info = [0_u8; 256];
        let mut length = info.len() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `info`, which has them, and rejects anything but a TCP socket.
        let status = unsafe {
            libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut length)
        };
        (status == 0 && length as usize >= TCP_INFO_BYTES_MIN).then(|| Self::from_tcp_info(&info))
    }

    fn from_tcp_info(info: &[u8; 256]) -> Self {
        let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        let long = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&info[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        Self {
            sent_bytes: long(120),
            received_bytes: long(128),
            sent: u64::from(word(136)),
            received: u64::from(word(140)),
        }
    }

    /// The increase since `before`; never negative: a lost connection takes its counters with it.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            received: self.received.saturating_sub(before.received),
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
        }
    }

    /// Packets per second, over this time.
    pub fn per_s(self, seconds: f64) -> PerDirection {
        PerDirection { sent: self.sent as f64 / seconds, received: self.received as f64 / seconds }
    }

    /// Mean bytes of data per packet; 0 without packets.
    pub fn bytes_mean(self) -> PerDirection {
        let mean = |bytes: u64, packets: u64| bytes as f64 / packets.max(1) as f64;
        PerDirection { sent: mean(self.sent_bytes, self.sent), received: mean(self.received_bytes, self.received) }
    }

    /// The sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            received_bytes: self.received_bytes + other.received_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn small_writes_are_counted_as_packets_at_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.set_nodelay(true).unwrap();
        far.set_nodelay(true).unwrap();
        let before = Packets::from_socket(&near).unwrap();
        for _ in 0..100 {
            near.write_all(b"12345").unwrap();
            far.read_exact(&mut [0; 5]).unwrap();
            far.write_all(b"1").unwrap();
            near.read_exact(&mut [0; 1]).unwrap();
        }
        // The kernel may or may not count the handshake's byte at either end: so compare before and after.
        let (near, far) = (Packets::from_socket(&near).unwrap().since(before), Packets::from_socket(&far).unwrap());
        assert_eq!((near.sent_bytes, near.received_bytes, far.received_bytes), (500, 100, 500));
        assert!(near.sent >= 100 && near.received >= 100);
        assert!(far.sent >= 100);
        // At least the two ends of this test; other tests have their own.
        assert!(Packets::from_this_process().sent >= 200);
        assert_eq!(Packets::from_socket(listener).map(|p| p.sent_bytes), Some(0));
        assert_eq!(Packets::from_socket(std::fs::File::open("/dev/null").unwrap()), None);
    }
}
