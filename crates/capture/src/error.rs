//! Why nothing can be recorded, and what to do about it.

/// An error that ends a recording, or prevents it from beginning. A problem that leaves only one layer blind is not an
/// error: it is listed in the coverage.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not let the caller load BPF programs.
    #[error(
        "the kernel does not permit this user to trace ({what}): run as root (sudo), or give the program CAP_BPF and \
         CAP_PERFMON, and CAP_SYS_ADMIN if the kernel requires it for uprobes (`setcap \
         cap_bpf,cap_perfmon,cap_sys_admin+ep`)"
    )]
    NotPermitted { what: String },
    /// Lockdown forbids reading the kernel's memory.
    #[error(
        "kernel lockdown is in `confidentiality` mode, which forbids tracing even to root: boot with \
         `lockdown=integrity`, or disable Secure Boot"
    )]
    Lockdown,
    /// The kernel does not describe its types.
    #[error(
        "cannot read {path} ({source}): this kernel has no BTF type information (CONFIG_DEBUG_INFO_BTF), which the \
         probes need; kernels of Debian, Fedora, Ubuntu and Android 13 have it"
    )]
    NoBtf { path: &'static str, source: std::io::Error },
    #[error("cannot parse the kernel's type information (BTF): {0}")]
    Btf(String),
    /// The programs could not be loaded at all.
    #[error("the probes cannot be loaded: {0}")]
    Object(String),
    /// No probe on system calls, operations or disks could be attached.
    #[error("no probe could be attached; first error: {0}")]
    Blind(String),
    #[error("no such process: {0}")]
    NoProcess(u32),
    /// Fathom runs in a PID namespace and cannot learn the numbers that its processes have outside.
    #[error(
        "this is a PID namespace (a container), and the global process IDs, which the probes report, cannot be \
         determined: {why}. Record from outside the container with --pid or --comm"
    )]
    Namespace { why: String },
    /// A table shared with the kernel could not be read or written.
    #[error("{what}: {why}")]
    Table { what: &'static str, why: String },
}

impl Error {
    /// Whether nothing can be traced here at all, regardless of the request: the kernel or missing permissions prevent it.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::NotPermitted { .. } | Self::Lockdown | Self::NoBtf { .. } => true,
            Self::Btf(_) | Self::Object(_) | Self::Blind(_) | Self::Namespace { .. } => true,
            Self::NoProcess(_) | Self::Table { .. } => false,
        }
    }

    pub(crate) fn table(what: &'static str, why: impl std::fmt::Display) -> Self {
        Self::Table { what, why: why.to_string() }
    }
}

/// Returns all messages of an error's chain on one line, without errno numbers.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(e) = next {
        let more = e.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = e.source();
    }
    without_errno(&text)
}

/// Returns a system error message without its number, which `strerror` has already put into words.
pub(crate) fn without_errno(text: &str) -> String {
    let Some((before, rest)) = text.split_once(" (os error ") else { return text.into() };
    match rest.split_once(')') {
        Some((number, after)) if number.parse::<i32>().is_ok() => before.to_owned() + &without_errno(after),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_messages_omit_errno() {
        let io = std::io::Error::from_raw_os_error(libc::EPERM);
        assert_eq!(chain(&io), "Operation not permitted");
        assert_eq!(without_errno("a: No such file (os error 2): b (os error -5), c"), "a: No such file: b, c");
        assert_eq!(without_errno("an (os error of another) is left"), "an (os error of another) is left");
    }
}
