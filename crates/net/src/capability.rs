//! What this process may do, according to /proc; the kernel makes the final decision.

pub const CAP_NET_ADMIN: u64 = 1 << 12;
pub const CAP_SYS_ADMIN: u64 = 1 << 21;
pub const CAP_PERFMON: u64 = 1 << 38;
pub const CAP_BPF: u64 = 1 << 39;

/// The effective capabilities of this process, as a set of bits; none if they cannot be read.
pub fn effective() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    held.unwrap_or(0)
}
