//! Why something is not loaded or not attached, and whether the kernel forbids it.

use crate::Error;
use crate::error::chain;
use aya::EbpfError;
use aya::maps::MapError;
use model::Absence;
use std::fs;

const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

/// Why a probe is not attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachError {
    pub why: String,
    /// The same, as one of a few categories.
    pub absence: Absence,
}

impl AttachError {
    /// Creates it from the kernel's error, with all its causes.
    pub fn from_error(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::with_reason(chain(error), error)
    }

    /// Creates it with a different text.
    pub fn with_reason(why: String, error: &(dyn std::error::Error + 'static)) -> Self {
        Self { why, absence: if is_refusal(error) { Absence::NotPermitted } else { Absence::Failed } }
    }
}

impl From<String> for AttachError {
    fn from(why: String) -> Self {
        Self { why, absence: Absence::Failed }
    }
}

impl From<&str> for AttachError {
    fn from(why: &str) -> Self {
        why.to_string().into()
    }
}

/// Returns why programs and their maps were not created.
pub fn load_error(error: &EbpfError) -> Error {
    let what = describe_refusal(error);
    match whose_root() {
        whose if is_refusal(error) => Error::NotPermitted { what: what + whose },
        // Without permissions the loader assumes that the kernel lacks what it tries.
        whose if lacks_capabilities() => {
            Error::NotPermitted { what: format!("it has neither CAP_BPF nor CAP_SYS_ADMIN{whose}") }
        }
        "" => Error::Object(what),
        whose => Error::NotPermitted { what: what + whose },
    }
}

/// Returns the error as a refusal by the kernel, if it was one.
pub fn as_refusal(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    is_refusal(error).then(|| Error::NotPermitted { what: chain(error) + whose_root() })
}

/// Returns what the kernel refused, in words that do not assume knowledge of the programs' maps.
fn describe_refusal(error: &EbpfError) -> String {
    use std::io::ErrorKind::{InvalidInput, OutOfMemory, PermissionDenied};
    let EbpfError::MapError(MapError::CreateError { io_error, .. }) = error else { return chain(error) };
    match io_error.kind() {
        PermissionDenied => "it refuses to create BPF maps".into(),
        OutOfMemory => {
            "not enough memory for the probes' maps and ring buffers (up to 100 MiB): raise the container's memory \
             limit or, before Linux 5.11, the limit of locked memory (`ulimit -l unlimited`)"
                .into()
        }
        InvalidInput => "the kernel lacks a type of BPF map that the probes need; Linux 5.12 and newer have it".into(),
        _ => format!("cannot create the probes' BPF maps: {}", chain(io_error)),
    }
}

/// Whether the chain of causes contains EPERM or EACCES.
pub fn is_refusal(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(e) = next {
        if let Some(io) = e.downcast_ref::<std::io::Error>() {
            return io.kind() == std::io::ErrorKind::PermissionDenied;
        }
        next = e.source();
    }
    false
}

/// Whether this process may not load BPF programs, by its effective capabilities (include/uapi/linux/capability.h).
fn lacks_capabilities() -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    const CAP_BPF: u64 = 1 << 39;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective_capabilities(&status).is_some_and(|capabilities| capabilities & (CAP_SYS_ADMIN | CAP_BPF) == 0)
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Returns what to add if the kernel forbids: root of a user namespace is not the machine's.
fn whose_root() -> &'static str {
    match fs::read_link("/proc/self/ns/user") {
        Ok(users) if users.as_os_str() != INITIAL_USER_NAMESPACE => {
            "; this is a user namespace, whose root may not trace: record from outside"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_capabilities_are_read() {
        assert_eq!(effective_capabilities("CapPrm:\tff\nCapEff:\t000001ffffffffff\n"), Some(0x1ff_ffff_ffff));
        assert_eq!(effective_capabilities("CapEff:\t0000000000000000\n"), Some(0));
        assert_eq!(effective_capabilities("CapEff:\tx\n"), None);
        assert_eq!(effective_capabilities(""), None);
    }
}
