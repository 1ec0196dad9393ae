//! Reads every sending socket's TCP state, and what lies unread in every receiving one, every 10 ms.
//!
//! It runs in the thread that waits for the end of a run anyway, at absolute times, so that a late reading does not move
//! the next. A reading is one getsockopt (about 1 us); the CPU time of all is part of every report.
//! Where a run would bring more than [`MOST`] readings, they are taken more rarely; their times say when.

use crate::outcome::{SAMPLE_NS, Unread};
use crate::tcp_info::{self, TcpSample};
use crate::{clock, socket};
use socket2::SockRef;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// The most readings of a run at one end: 100 MB on the wire as JSON.
pub const MOST: u64 = 500_000;

/// How far apart readings are, in ns, for so many sockets over so long a run.
pub fn every_ns(sockets: u64, duration_ns: u64) -> u64 {
    let fits = sockets.saturating_mul(duration_ns) / MOST;
    SAMPLE_NS.max(fits.next_multiple_of(SAMPLE_NS))
}

/// The sending sockets of a direction.
#[derive(Debug, Default)]
pub struct Sender {
    /// The readings so far.
    pub samples: Vec<TcpSample>,
}

impl Sender {
    /// Reads each socket once.
    pub fn read(&mut self, sockets: &[(u16, BorrowedFd<'_>)]) {
        for (stream, fd) in sockets {
            // A connection that broke is told by its thread.
            if let Ok(sample) = tcp_info::read(fd.as_raw_fd()) {
                self.samples.push(TcpSample { time_ns: clock::now_ns(), stream: u64::from(*stream), ..sample });
            }
        }
    }
}

/// The receiving sockets of a direction.
#[derive(Debug, Default)]
pub struct Receiver {
    /// The readings so far.
    pub unread: Vec<Unread>,
}

impl Receiver {
    /// Looks at each socket once.
    pub fn read(&mut self, sockets: &[(u16, BorrowedFd<'_>)]) {
        for (stream, fd) in sockets {
            self.unread.push(Unread {
                time_ns: clock::now_ns(),
                stream: u64::from(*stream),
                unread_bytes: socket::unread(fd.as_raw_fd()),
                buffer_bytes: SockRef::from(fd).recv_buffer_size().unwrap_or(0) as u64,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_of_many_streams_is_read_more_rarely() {
        assert_eq!(every_ns(1, 10_000_000_000), SAMPLE_NS);
        assert_eq!(every_ns(8, 600_000_000_000), SAMPLE_NS);
        let long = every_ns(128, 3_600_000_000_000);
        assert!(long > SAMPLE_NS && 128 * 3_600_000_000_000 / long <= MOST && long.is_multiple_of(SAMPLE_NS));
    }
}
