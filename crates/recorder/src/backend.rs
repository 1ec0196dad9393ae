//! Which backend records: eBPF where the kernel lets it, else ftrace.

use crate::record::{Recorded, record};
use crate::request::Request;
use crate::{Error, Notice, Notify, Result};
use model::Context;

/// Records through eBPF where the kernel lets it, else through ftrace, and says which and why.
///
/// # Errors
/// As [`record`], where neither records.
pub fn record_by_either(request: &Request, context: &Context, notify: Notify<'_>) -> Result<Recorded> {
    let ebpf = match record(request, context, notify) {
        // It forbids tracefs too (LOCKDOWN_TRACEFS).
        Err(locked @ Error::Capture(capture::Error::Lockdown)) => return Err(locked),
        Err(Error::Capture(refusal)) if refusal.is_refusal() => Error::Capture(refusal),
        done => return done,
    };
    if let Err(ftrace) = capture::ftrace::probe() {
        // Whoever may do nothing at all needs to hear of one reason only.
        if matches!(&ebpf, Error::Capture(capture::Error::NotPermitted { .. })) {
            return Err(ebpf);
        }
        return Err(Error::NoBackend { ebpf: Box::new(ebpf), ftrace: Box::new(ftrace.into()) });
    }
    let why = ebpf.to_string();
    notify(Notice::ByFtrace { why: why.clone() });
    crate::ftrace::record(request, &why, context, notify)
}

/// Records through ftrace, because that was asked for.
///
/// # Errors
/// As [`record`].
pub fn record_by_ftrace(request: &Request, context: &Context, notify: Notify<'_>) -> Result<Recorded> {
    crate::ftrace::record(request, "requested (--backend ftrace)", context, notify)
}
