//! The clocks: records are stamped with CLOCK_BOOTTIME, some of the kernel's own stamps are CLOCK_MONOTONIC.

/// Reads a clock, in ns.
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for a timespec; the clocks used here always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CLOCK_BOOTTIME now, in ns.
pub fn boot_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// CLOCK_BOOTTIME less CLOCK_MONOTONIC, in ns: the time the machine was suspended. Right until it is suspended again.
pub fn boot_offset_ns() -> u64 {
    // The two are read one after the other; of several tries the closest pair is taken.
    (0..8)
        .map(|_| {
            let before = read(libc::CLOCK_MONOTONIC);
            let boot = read(libc::CLOCK_BOOTTIME);
            let after = read(libc::CLOCK_MONOTONIC);
            (after - before, boot.saturating_sub(before + (after - before) / 2))
        })
        .min()
        // Less than the two readings can be told apart is no suspension.
        .map_or(0, |(width, offset)| if offset <= width { 0 } else { offset })
}

/// CPU time that this process has used so far, in ns.
pub fn process_cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}
