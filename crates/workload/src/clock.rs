//! The one clock of a trace, and this process's CPU time.

/// CLOCK_BOOTTIME in nanoseconds: the clock of the probes' time stamps, so that a workload's own times are on the same
/// axis.
pub fn now_ns() -> u64 {
    read_clock(libc::CLOCK_BOOTTIME)
}

/// CPU time of this process so far, including its time in the kernel, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    read_clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours; every Linux since 2.6.39 has these clocks.
    let result = unsafe { libc::clock_gettime(clock, &raw mut t) };
    debug_assert_eq!(result, 0);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The smallest step of that clock, in nanoseconds.
pub fn resolution_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as above.
    unsafe { libc::clock_getres(libc::CLOCK_BOOTTIME, &raw mut t) };
    (t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64).max(1)
}
