//! Whether this process may record a kernel and create disks. Being root is not enough, since a container's root has only a few
//! capabilities.

use std::path::Path;

/// The capability for creating disks and mounts.
const SYS_ADMIN: (&str, u32) = ("CAP_SYS_ADMIN", 21);

/// The capabilities for loading programs, tracing with them, and creating networks as well.
const FULL_CAPABILITIES: [(&str, u32); 4] = [SYS_ADMIN, ("CAP_NET_ADMIN", 12), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];

/// The missing privilege: a test's reason to be skipped, as a sentence without its subject.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MissingPrivilege {
    /// It is not root.
    #[error("needs root (runs as uid {uid})")]
    Root {
        /// The user it runs as, if known.
        uid: String,
    },
    /// It is root, without these capabilities.
    #[error("needs {}, missing from this root's capabilities (a container?)", .0.join(", "))]
    Capabilities(Vec<&'static str>),
    /// The kernel's types are not known.
    #[error("the kernel has no BTF")]
    Btf,
}

/// All capabilities for recording, and for creating disks and networks.
///
/// # Errors
/// The missing privilege.
pub fn full() -> Result<(), MissingPrivilege> {
    missing(&status(), &FULL_CAPABILITIES)
}

/// The same for disks and mounts only.
///
/// # Errors
/// The missing privilege.
pub fn mounts() -> Result<(), MissingPrivilege> {
    missing(&status(), &[SYS_ADMIN])
}

/// All capabilities, and a kernel that can be recorded.
///
/// # Errors
/// The missing privilege.
pub fn live_kernel() -> Result<(), MissingPrivilege> {
    full()?;
    if Path::new("/sys/kernel/btf/vmlinux").exists() { Ok(()) } else { Err(MissingPrivilege::Btf) }
}

fn status() -> String {
    std::fs::read_to_string("/proc/self/status").unwrap_or_default()
}

fn missing(status: &str, needed: &[(&'static str, u32)]) -> Result<(), MissingPrivilege> {
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next());
    let uid = field("Uid:").unwrap_or("?");
    if uid != "0" {
        return Err(MissingPrivilege::Root { uid: uid.into() });
    }
    let held = field("CapEff:").and_then(|held| u64::from_str_radix(held, 16).ok()).unwrap_or(0);
    let names: Vec<_> = needed.iter().filter(|(_, bit)| held & (1 << bit) == 0).map(|(name, _)| *name).collect();
    if names.is_empty() { Ok(()) } else { Err(MissingPrivilege::Capabilities(names)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_a_container_lacks_capabilities() {
        let status = |uid: u32, held: &str| {
            missing(&format!("Name:\tx\nUid:\t{uid}\t0\t0\t0\nCapEff:\t{held}\n"), &FULL_CAPABILITIES)
        };
        assert_eq!(status(0, "000001ffffffffff"), Ok(()));
        assert_eq!(status(1000, "0000000000000000"), Err(MissingPrivilege::Root { uid: "1000".into() }));
        // Docker's default.
        let docker = status(0, "00000000a80425fb").unwrap_err();
        assert_eq!(docker, MissingPrivilege::Capabilities(FULL_CAPABILITIES.map(|(name, _)| name).into()));
        let words = "needs CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF, missing from this root's capabilities (a container?)";
        assert_eq!(docker.to_string(), words);
    }
}
