//! Selection of the backend: eBPF where the kernel permits it, else ftrace.

use crate::record::{RecordResult, record, record_since, run_attached, run_untraced};
use crate::request::Request;
use crate::{Error, Notice, Notify, Result};
use model::Context;
use model::quantity::Choices;

/// The source of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// eBPF if permitted, else ftrace.
    Auto,
    /// eBPF programs.
    Ebpf,
    /// The kernel's trace buffers.
    Ftrace,
    /// The eBPF probes with programs that return at once.
    Attached,
    /// Nothing is attached.
    None,
}

impl Backend {
    /// The values of `--backend`.
    pub const CHOICES: Choices<Self, 5> = [
        ("auto", "eBPF if permitted, otherwise ftrace (with a notice)", Self::Auto),
        ("ebpf", "eBPF programs on tracepoints and function entries", Self::Ebpf),
        (
            "ftrace",
            "The kernel's trace buffers (tracefs), in separate instances; events are linked by disk, sector and time",
            Self::Ftrace,
        ),
        ("attached", "The eBPF probes with programs that return at once: the cost of attaching alone", Self::Attached),
        ("none", "Nothing is attached", Self::None),
    ];

    /// Whether it writes an archive.
    pub fn writes(self) -> bool {
        !matches!(self, Self::None | Self::Attached)
    }
}

/// Records through this backend; one that [writes](Backend::writes) nothing runs the command in the same way.
pub fn record_by(backend: Backend, request: &Request, context: &Context, notify: Notify<'_>) -> Result<RecordResult> {
    match backend {
        Backend::None => run_untraced(request, context, notify),
        Backend::Attached => run_attached(request, context, notify),
        // ftrace has none of the probes that are left out.
        Backend::Auto if request.without.is_empty() => record_by_either(request, context, notify),
        Backend::Auto => record(request, context, notify),
        Backend::Ebpf => record_since("requested (--backend ebpf)", request, context, notify),
        Backend::Ftrace => crate::ftrace::record(request, "requested (--backend ftrace)", context, notify),
    }
}

/// Records through eBPF where the kernel permits it, else through ftrace, with a notice of the reason.
fn record_by_either(request: &Request, context: &Context, notify: Notify<'_>) -> Result<RecordResult> {
    let ebpf = match record(request, context, notify) {
        // Lockdown forbids tracefs too (LOCKDOWN_TRACEFS).
        Err(locked @ Error::Capture(capture::Error::Lockdown)) => return Err(locked),
        Err(Error::Capture(refusal)) if refusal.is_refusal() => Error::Capture(refusal),
        done => return done,
    };
    if let Err(ftrace) = capture::ftrace::writable_tracefs() {
        // A user without any permission needs only one reason.
        if matches!(&ebpf, Error::Capture(capture::Error::NotPermitted { .. })) {
            return Err(ebpf);
        }
        return Err(Error::NoBackend { ebpf: Box::new(ebpf), ftrace: Box::new(ftrace.into()) });
    }
    let why = ebpf.to_string();
    notify(Notice::ByFtrace { why: why.clone() });
    crate::ftrace::record(request, &why, context, notify)
}
