//! The clocks: records are stamped with CLOCK_BOOTTIME; some of the kernel's own stamps are CLOCK_MONOTONIC.
//!
//! Probes read the kernel's own clocks. A process in a time namespace (time_namespaces(7)) reads them with an offset, which is subtracted
//! here.

use std::sync::OnceLock;

/// Reads a clock, in ns.
fn read_clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for a timespec; the clocks used here always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the kernel's current CLOCK_BOOTTIME, in ns: the clock of the probes' stamps.
pub fn boot_ns() -> u64 {
    to_kernel_ns(read_clock_ns(libc::CLOCK_BOOTTIME))
}

/// Converts a time that a process in this time namespace read from its own CLOCK_BOOTTIME to the kernel's.
pub fn to_kernel_ns(boot_ns: u64) -> u64 {
    boot_ns.saturating_add_signed(-namespace_offsets().1)
}

/// Returns what the time namespace adds to CLOCK_MONOTONIC and to CLOCK_BOOTTIME, in ns.
fn namespace_offsets() -> (i64, i64) {
    static NAMESPACE_OFFSETS: OnceLock<(i64, i64)> = OnceLock::new();
    *NAMESPACE_OFFSETS
        .get_or_init(|| parse_offsets(&std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default()))
}

/// Parses the text of `/proc/PID/timens_offsets`: one line per clock, with seconds and nanoseconds. Kernels before 5.6 have neither the
/// file nor the namespaces.
fn parse_offsets(text: &str) -> (i64, i64) {
    let of = |clock: &str, number: &str| {
        let fields = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut fields = fields.filter(|f| f.len() == 3 && (f[0] == clock || f[0] == number));
        let ns = |f: Vec<&str>| Some(f[1].parse::<i64>().ok()? * 1_000_000_000 + f[2].parse::<i64>().ok()?);
        fields.next().and_then(ns).unwrap_or(0)
    };
    (of("monotonic", "1"), of("boottime", "7"))
}

/// Returns CLOCK_BOOTTIME minus CLOCK_MONOTONIC, in ns: the time the machine was suspended. Valid until it is suspended
/// again.
pub fn boot_offset_ns() -> u64 {
    // The clocks are read one after the other; of several tries the closest pair is used.
    (0..8)
        .map(|_| {
            let monotonic = || read_clock_ns(libc::CLOCK_MONOTONIC).saturating_add_signed(-namespace_offsets().0);
            let before = monotonic();
            let boot = boot_ns();
            let after = monotonic();
            (after - before, boot.saturating_sub(before + (after - before) / 2))
        })
        .min()
        // A difference below the resolution of the two readings is not a suspension.
        .map_or(0, |(width, offset)| if offset <= width { 0 } else { offset })
}

/// Returns the CPU time that this process has used so far, in ns.
pub fn process_cpu_ns() -> u64 {
    read_clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

#[cfg(test)]
mod tests {
    #[test]
    fn time_namespace_offsets_are_parsed_in_both_forms() {
        let names = "monotonic           50000         0\nboottime           -100     1\n";
        assert_eq!(super::parse_offsets(names), (50_000_000_000_000, -99_999_999_999));
        assert_eq!(super::parse_offsets("1          2         3\n7          0         0\n"), (2_000_000_003, 0));
        assert_eq!(super::parse_offsets(""), (0, 0));
    }
}
