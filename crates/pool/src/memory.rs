//! Checks whether a disk fits into memory: otherwise more could be promised to clients than can be stored.

/// The disk is too large.
#[derive(Debug, thiserror::Error)]
#[error(
    "a disk of {size_bytes} bytes does not fit in memory: this machine has {total_bytes}; use a smaller one, or \
    a --store in a file"
)]
pub struct DiskTooLarge {
    size_bytes: u64,
    total_bytes: u64,
}

/// Checks whether this machine has this much memory, used or not. Where that is unknown, any size is accepted.
pub fn check_fits(size_bytes: u64) -> Result<(), DiskTooLarge> {
    let total_bytes = total_bytes();
    if size_bytes > total_bytes { Err(DiskTooLarge { size_bytes, total_bytes }) } else { Ok(()) }
}

/// This machine's total memory; `u64::MAX` where that is unknown.
pub(crate) fn total_bytes() -> u64 {
    let known = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = known.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    total.map_or(u64::MAX, |kib: u64| kib * 1024)
}
