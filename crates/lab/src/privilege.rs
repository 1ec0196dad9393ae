//! Whether this process may do what records a kernel and makes disks: root alone is not it, for a container's root has a handful of
//! capabilities.

use std::path::Path;

/// What making disks and mounts takes.
const ADMIN: (&str, u32) = ("CAP_SYS_ADMIN", 21);

/// What loading programs, tracing with them, and making networks takes besides.
const ALL: [(&str, u32); 4] = [ADMIN, ("CAP_NET_ADMIN", 12), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];

/// # Errors
/// What is missing, as a test's reason to be skipped.
pub fn full() -> Result<(), String> {
    missing(&status(), &ALL)
}

/// The same for disks and mounts alone.
///
/// # Errors
/// What is missing, as a sentence without its subject.
pub fn mounts() -> Result<(), String> {
    missing(&status(), &[ADMIN])
}

/// All of it, and a kernel that can be recorded.
///
/// # Errors
/// What is missing, as a test's reason to be skipped.
pub fn live_kernel() -> Result<(), String> {
    full()?;
    match Path::new("/sys/kernel/btf/vmlinux").exists() {
        true => Ok(()),
        false => Err("the kernel has no BTF".into()),
    }
}

fn status() -> String {
    std::fs::read_to_string("/proc/self/status").unwrap_or_default()
}

fn missing(status: &str, needed: &[(&str, u32)]) -> Result<(), String> {
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next());
    let uid = field("Uid:").unwrap_or("?");
    if uid != "0" {
        return Err(format!("needs root (runs as uid {uid})"));
    }
    let held = field("CapEff:").and_then(|held| u64::from_str_radix(held, 16).ok()).unwrap_or(0);
    let names: Vec<&str> = needed.iter().filter(|(_, bit)| held & (1 << bit) == 0).map(|(name, _)| *name).collect();
    match names.as_slice() {
        [] => Ok(()),
        names => Err(format!("needs {}, which this root lacks (a container's?)", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_containers_root_is_no_root() {
        let status =
            |uid: u32, held: &str| missing(&format!("Name:\tx\nUid:\t{uid}\t0\t0\t0\nCapEff:\t{held}\n"), &ALL);
        assert_eq!(status(0, "000001ffffffffff"), Ok(()));
        assert!(status(1000, "0000000000000000").is_err_and(|why| why.contains("uid 1000")));
        // Docker's default.
        assert!(
            status(0, "00000000a80425fb").is_err_and(|why| why.contains("CAP_SYS_ADMIN") && why.contains("CAP_BPF"))
        );
    }
}
