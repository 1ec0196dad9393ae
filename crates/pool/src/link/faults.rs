//! Errors that a node answers, as its coordinator counts and reports them.

use crate::frame::{Operation, Status};
use crate::store::{FaultKind, LineLimit};
use std::collections::BTreeSet;
use std::time::Instant;

/// The maximum number of places that are remembered; beyond it, places are reported again.
const REPORTED_PLACES_MAX: usize = 4096;

/// The kind of an error that a node answers: a kind of fault, or a request that it does not accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// A fault of its medium.
    Fault(FaultKind),
    /// All else.
    Other,
}

/// Numbers of errors, by kind: those of [`FaultKind`] in their order, then all others.
pub type ErrorCounts = [u64; FaultKind::KINDS.len() + 1];

/// The names of the kinds, in the order of [`ErrorCounts`].
pub fn error_names() -> [&'static str; FaultKind::KINDS.len() + 1] {
    let mut names = ["other"; FaultKind::KINDS.len() + 1];
    FaultKind::KINDS.into_iter().for_each(|kind| names[kind as usize] = kind.name());
    names
}

/// A request that failed at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeFault {
    pub operation: Operation,
    pub status: Status,
    /// The range of the request in its store.
    pub offset: u64,
    pub length: u32,
    /// The place of the fault there, if the node knows it.
    pub at: Option<u64>,
}

impl NodeFault {
    pub fn kind(&self) -> ErrorKind {
        let medium = match self.operation {
            Operation::Read | Operation::Map | Operation::Verify => FaultKind::Read,
            Operation::Write | Operation::Trim => FaultKind::Write,
            Operation::Flush => FaultKind::Flush,
        };
        match self.status {
            Status::Damaged => ErrorKind::Fault(FaultKind::Damaged),
            Status::Full => ErrorKind::Fault(FaultKind::Full),
            Status::Io => ErrorKind::Fault(medium),
            Status::Lost => ErrorKind::Fault(FaultKind::Flush),
            Status::Range | Status::Done => ErrorKind::Other,
        }
    }

    /// Its index in [`ErrorCounts`].
    pub fn index(&self) -> usize {
        match self.kind() {
            ErrorKind::Fault(kind) => kind as usize,
            ErrorKind::Other => FaultKind::KINDS.len(),
        }
    }
}

/// Reports each fault once.
#[derive(Debug, Default)]
pub(super) struct FaultLog {
    places: BTreeSet<(usize, u64)>,
    limit: LineLimit,
}

impl FaultLog {
    /// A line about a fault of the store `store`, unless it was reported already or there are too many.
    pub fn line(&mut self, fault: &NodeFault, store: &str, now: Instant) -> Option<String> {
        let offset = fault.at.unwrap_or(fault.offset);
        if self.places.len() >= REPORTED_PLACES_MAX {
            self.places.clear();
        }
        if !self.places.insert((fault.index(), offset)) {
            return None;
        }
        let left_out = self.limit.permits(now)?;
        let operation = match fault.operation {
            Operation::Read => "a read",
            Operation::Write => "a write",
            Operation::Flush => "a flush",
            Operation::Trim => "a trim",
            Operation::Map => "a map request",
            Operation::Verify => "a request to verify",
        };
        let (status, length, from) = (fault.status, fault.length, fault.offset);
        let range = if length > 0 { format!(" of {length} bytes at offset {from}") } else { String::new() };
        let place = fault.at.map(|at| format!(", at offset {at}")).unwrap_or_default();
        let more = if left_out > 0 { format!("; {left_out} more faults were not printed") } else { String::new() };
        Some(format!("store {store}: {operation}{range} failed: {status}{place}{more}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_FAULT: NodeFault = NodeFault {
        operation: Operation::Read,
        status: Status::Damaged,
        offset: 8192,
        length: 65_536,
        at: Some(20_480),
    };

    #[test]
    fn every_error_has_a_kind() {
        let names = error_names();
        let of = |operation, status| names[NodeFault { operation, status, ..READ_FAULT }.index()];
        use Operation::{Flush, Map, Read, Trim, Write};
        assert_eq!(
            [Read, Write, Flush, Trim, Map].map(|o| of(o, Status::Io)),
            ["read", "write", "flush", "write", "read"]
        );
        let other = [Status::Damaged, Status::Full, Status::Range];
        assert_eq!(other.map(|status| of(Write, status)), ["damaged", "full", "other"]);
    }

    #[test]
    fn fault_is_reported_once_with_its_place() {
        let (mut told, now) = (FaultLog::default(), Instant::now());
        let line = told.line(&READ_FAULT, "/dev/sdx", now).expect("the first");
        assert_eq!(
            line,
            "store /dev/sdx: a read of 65536 bytes at offset 8192 failed: a block of the node is damaged, at offset 20480"
        );
        assert_eq!(told.line(&NodeFault { offset: 0, ..READ_FAULT }, "/dev/sdx", now), None, "the same block");
        let flush = NodeFault { operation: Operation::Flush, status: Status::Io, offset: 0, length: 0, at: None };
        let line = told.line(&flush, "/dev/sdx", now).expect("another");
        assert_eq!(line, "store /dev/sdx: a flush failed: the node's medium failed");
        let many =
            (0..1000).filter_map(|at| told.line(&NodeFault { at: Some(at << 20), ..READ_FAULT }, "x", now)).count();
        assert!(many < 100, "{many} lines at once");
    }
}
