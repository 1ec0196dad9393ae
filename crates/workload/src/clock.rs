//! The one clock of a trace.

/// CLOCK_BOOTTIME in nanoseconds: the clock that probes stamp with, so that a workload's own times lie on the same axis.
pub fn now_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours; every Linux since 2.6.39 has this clock.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut t) };
    debug_assert_eq!(result, 0);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The smallest step of that clock, in nanoseconds.
pub fn tick_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as above.
    unsafe { libc::clock_getres(libc::CLOCK_BOOTTIME, &raw mut t) };
    (t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64).max(1)
}
