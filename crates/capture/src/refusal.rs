//! Whether the kernel forbids something, and what it refused, in words.

use crate::Error;
use crate::error::chain;
use aya::EbpfError;
use aya::maps::MapError;
use std::fs;

const MACHINES_USERS: &str = "user:[4026531837]";

/// Why programs and their tables were not made.
pub fn not_loaded(error: &EbpfError) -> Error {
    let what = in_words(error);
    match whose_root() {
        whose if is_refusal(error) => Error::NotPermitted { what: what + whose },
        "" => Error::Object(what),
        // Without rights the loader takes the kernel for one that lacks what it asks for.
        whose => Error::NotPermitted { what: what + whose },
    }
}

/// An error that says that the kernel forbids it, if that is what it was.
pub fn refused(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    is_refusal(error).then(|| Error::NotPermitted { what: chain(error) + whose_root() })
}

/// What the kernel refused, as one who does not know the programs' tables can understand it.
fn in_words(error: &EbpfError) -> String {
    use std::io::ErrorKind::{InvalidInput, OutOfMemory, PermissionDenied};
    let EbpfError::MapError(MapError::CreateError { io_error, .. }) = error else { return chain(error) };
    match io_error.kind() {
        PermissionDenied => "it refuses the tables that probes write into".into(),
        OutOfMemory => {
            "the kernel gives no memory for the probes' tables and rings, which take up to 100 MiB: raise the memory \
                        limit of the container or, before Linux 5.11, of locked memory (`ulimit -l unlimited`)"
                .into()
        }
        InvalidInput => "the kernel lacks a kind of table that the probes need; Linux 5.12 and newer have it".into(),
        _ => format!("the kernel does not make the tables that probes write into: {}", chain(io_error)),
    }
}

/// Whether somewhere in the chain the kernel said EPERM or EACCES.
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

/// What to add where the kernel forbids: root of a user namespace is not the machine's.
fn whose_root() -> &'static str {
    match fs::read_link("/proc/self/ns/user") {
        Ok(users) if users.as_os_str() != MACHINES_USERS => {
            "; this is a user namespace, whose root has no rights to trace the machine: record from outside of it"
        }
        _ => "",
    }
}
