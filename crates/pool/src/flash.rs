//! A simulated store as slow as flash: several servers, each of which takes a fixed time per read.
//!
//! Paper 001's tablets read 2,100 small blocks per second, and had reached that with 4 threads. Four servers of 1.9 ms each
//! behave the same: one reader gets 526 per second, four get 2,105, and a fifth only waits. A token bucket of 2,100 per
//! second does not: it would serve a single reader as fast as four.
//!
//! There are no counters to reset and no timers. The time at which each server becomes free is stored; a read takes the
//! server that becomes free first, begins when both are ready, and ends a service time later. The reader sleeps until that
//! absolute time, so the error of one sleep does not add to the next. As all reads take the same time, the server that
//! becomes free first is always the next in turn: the servers are used round robin, without a lock.
//!
//! The servers are in memory shared with processes created by `fork`, since all processes of a node read one flash.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute};
use rustix::time::clock_gettime;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// An upper bound of the channels of a flash.
const SERVERS_MAX: usize = 1024;

/// The speed of a flash.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Concurrent reads.
    pub servers: usize,
    /// Time per read.
    pub service_ms: f64,
}

impl Speed {
    /// The tablets of paper 001: 2,100 reads a second, reached with 4 threads.
    pub const PAPER: Self = Self { servers: 4, service_ms: 1.9 };

    /// The total rate of `readers` that each issue the next read as soon as one completes.
    pub fn reads_per_s(self, readers: usize) -> f64 {
        readers.min(self.servers) as f64 * 1000.0 / self.service_ms
    }

    fn service_ns(self) -> u64 {
        (self.service_ms * 1e6).round() as u64
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "servers={},service_ms={}", self.servers, self.service_ms)
    }
}

/// Why a text is not a speed of a flash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpeedError {
    #[error("expected servers=N,service_ms=MS, such as {}, not {text:?}", Speed::PAPER)]
    Form { text: String },
    /// The number of servers is out of range.
    #[error("a flash has 1 to {SERVERS_MAX} servers")]
    Servers,
    /// The service time is out of range.
    #[error("a read takes 0.001 to 60000 ms")]
    Service,
}

impl FromStr for Speed {
    type Err = SpeedError;

    fn from_str(text: &str) -> Result<Self, SpeedError> {
        let usage = || SpeedError::Form { text: text.into() };
        let (mut servers, mut service_ms) = (None, None);
        for part in text.split(',') {
            match part.split_once('=').ok_or_else(usage)? {
                ("servers", value) => servers = value.parse().ok(),
                ("service_ms", value) => service_ms = value.parse().ok(),
                _ => return Err(usage()),
            }
        }
        let speed = Self { servers: servers.ok_or_else(usage)?, service_ms: service_ms.ok_or_else(usage)? };
        if speed.servers == 0 || speed.servers > SERVERS_MAX {
            return Err(SpeedError::Servers);
        }
        // More than a minute per read is a mistake; no clock supports less than a microsecond.
        if !(0.001..=60_000.0).contains(&speed.service_ms) {
            return Err(SpeedError::Service);
        }
        Ok(speed)
    }
}

/// One flash. Threads and forked processes that share it compete for its servers.
#[derive(Debug, Clone, Copy)]
pub struct Flash {
    service_ns: u64,
    /// The number of reads so far; then for each server the time when it becomes free.
    words: &'static [AtomicU64],
}

impl Flash {
    /// Creates an idle flash. Its few words of memory are never freed.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(speed: Speed) -> io::Result<Self> {
        let count = speed.servers + 1;
        let bytes = count * size_of::<AtomicU64>();
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is in use.
        let memory = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
        }?;
        // SAFETY: the mapping is page-aligned, has `bytes` bytes, all zero, which is a valid AtomicU64 each, and is never
        // unmapped. It is only ever reached through atomics.
        let words = unsafe { std::slice::from_raw_parts(memory.cast::<AtomicU64>().cast_const(), count) };
        Ok(Self { service_ns: speed.service_ns(), words })
    }

    /// Takes a server at `now_ns`, on any clock common to all users of the flash; returns when the read is done.
    pub fn take_server(&self, now_ns: u64) -> u64 {
        let turn = self.words[0].fetch_add(1, Ordering::Relaxed);
        let servers = &self.words[1..];
        let free = &servers[(turn % servers.len() as u64) as usize];
        let done = |free: u64| free.max(now_ns) + self.service_ns;
        let before = free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| Some(done(free)));
        // It always succeeds: the closure never returns `None`.
        done(before.unwrap_or_else(|free| free))
    }

    /// Waits for the duration of a read that starts now.
    pub fn read(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let done = self.take_server(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64);
        let until = Timespec { tv_sec: (done / 1_000_000_000) as i64, tv_nsec: (done % 1_000_000_000) as _ };
        // A signal may end the sleep too early.
        while clock_nanosleep_absolute(ClockId::Monotonic, &until).is_err() {}
    }
}

/// Makes this thread, and those that it creates, wake at the requested time rather than up to 50 us later, the kernel's
/// default slack. If the call fails, reads are that much slower.
pub fn reduce_timer_slack() {
    // SAFETY: it takes integers only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_usize) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    const NS_PER_MS: f64 = 1e6;

    /// Counts the reads that `readers` finish by `end_ns` in a closed loop on a simulated clock.
    fn closed_loop(speed: Speed, readers: usize, end_ns: u64) -> u64 {
        let flash = Flash::new(speed).expect("there is memory");
        let mut asking: BinaryHeap<Reverse<u64>> = std::iter::repeat_n(Reverse(0), readers).collect();
        let mut finished = 0;
        while let Some(Reverse(now)) = asking.pop().filter(|next| next.0 < end_ns) {
            let done = flash.take_server(now);
            finished += u64::from(done <= end_ns);
            asking.push(Reverse(done));
        }
        finished
    }

    #[test]
    fn paper_flash_saturates_at_four_readers() {
        // 19 s are 10,000 service times: each busy server finishes exactly that many reads.
        let end_ns = (19_000.0 * NS_PER_MS) as u64;
        for readers in [1, 2, 3, 4, 5, 8, 32] {
            assert_eq!(closed_loop(Speed::PAPER, readers, end_ns), readers.min(4) as u64 * 10_000, "{readers} readers");
        }
        assert!((Speed::PAPER.reads_per_s(32) - 2105.26).abs() < 0.01);
        assert!((Speed::PAPER.reads_per_s(1) - 526.32).abs() < 0.01);
    }

    #[test]
    fn flash_model_is_not_a_token_bucket() {
        let flash = Flash::new(Speed { servers: 2, service_ms: 10.0 }).expect("there is memory");
        let ms = |ms: u64| ms * 1_000_000;
        // Idle for a second, and yet the third of three simultaneous reads waits for the first.
        let done: Vec<u64> = (0..3).map(|_| flash.take_server(ms(1000))).collect();
        assert_eq!(done, [ms(1010), ms(1010), ms(1020)]);
    }

    proptest! {
        /// Round robin finishes every read at the same time as a queue that picks the earliest free server.
        #[test]
        fn round_robin_equals_the_earliest_free_server(
            servers in 1_usize..9,
            gaps in proptest::collection::vec(0_u64..4_000_000, 1..200),
        ) {
            let flash = Flash::new(Speed { servers, service_ms: 1.9 }).expect("there is memory");
            let (mut free, mut now) = (vec![0_u64; servers], 0);
            for gap in gaps {
                now += gap;
                let first = free.iter_mut().min().expect("there is a server");
                *first = (*first).max(now) + 1_900_000;
                prop_assert_eq!(flash.take_server(now), *first);
            }
        }
    }

    #[test]
    fn speed_round_trips_through_text() {
        assert_eq!("servers=4,service_ms=1.9".parse(), Ok(Speed::PAPER));
        assert_eq!(Speed::PAPER.to_string().parse(), Ok(Speed::PAPER));
        for wrong in
            ["", "4", "servers=4", "servers=0,service_ms=1", "servers=4,service_ms=nan", "servers=4,service_ms=-1"]
        {
            assert!(wrong.parse::<Speed>().is_err(), "{wrong}");
        }
    }
}
