//! The clocks: one for all timestamps of a run, one for the CPU time of a thread.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// CLOCK_BOOTTIME in nanoseconds: the clock of recordings, so that a run and a recording of it share one time axis.
pub fn now_ns() -> u64 {
    read_clock(libc::CLOCK_BOOTTIME)
}

/// Identifies the clock of [`now_ns`]: the boot of the kernel and the offset of this time namespace; `None` if unknown.
pub fn name() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // A kernel without time namespaces has no such file, and no offset.
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let offset = offsets.lines().find_map(|line| line.strip_prefix("boottime")).unwrap_or("0 0");
    let offset: Vec<&str> = offset.split_whitespace().collect();
    (!boot.trim().is_empty()).then(|| format!("{} {}", boot.trim(), offset.join(" ")))
}

/// CLOCK_REALTIME in nanoseconds: to translate the kernel's time stamps of packets, and to date a run.
pub fn unix_ns() -> u64 {
    read_clock(libc::CLOCK_REALTIME)
}

/// One moment on two clocks of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// [`now_ns`].
    pub boot_ns: u64,
    /// Nanoseconds since 1970.
    pub unix_ns: u64,
}

impl Moment {
    pub fn now() -> Self {
        Self { boot_ns: now_ns(), unix_ns: unix_ns() }
    }

    /// Converts `boot_ns`, at or before this moment, to ns since 1970.
    pub fn unix_ns_at(self, boot_ns: u64) -> u64 {
        self.unix_ns.saturating_sub(self.boot_ns.saturating_sub(boot_ns))
    }
}

/// CPU time of the calling thread so far, including the kernel's work on its behalf, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Sleeps until `at_ns` of [`now_ns`]; returns at once if that has passed. A signal may end it early.
pub fn sleep_until(at_ns: u64) {
    // clock_nanosleep supports CLOCK_BOOTTIME, and with an absolute time the delays of successive wake-ups do not add up.
    let at = libc::timespec { tv_sec: (at_ns / 1_000_000_000) as _, tv_nsec: (at_ns % 1_000_000_000) as _ };
    // SAFETY: the request is a timespec of ours, and no remainder is requested.
    let failed = unsafe {
        libc::clock_nanosleep(libc::CLOCK_BOOTTIME, libc::TIMER_ABSTIME, &raw const at, std::ptr::null_mut())
    };
    if failed != 0 && failed != libc::EINTR {
        std::thread::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns())));
    }
}

/// Requests the highest timer precision for this thread (timers are 50 us late otherwise).
pub fn request_exact_timers() {
    // SAFETY: PR_SET_TIMERSLACK takes a number and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours; every Linux since 2.6.39 has these clocks.
    let result = unsafe { libc::clock_gettime(clock, &raw mut t) };
    debug_assert_eq!(result, 0);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
