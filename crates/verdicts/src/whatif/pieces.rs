//! The time of an operation as a sequence of pieces: what its thread did or waited for, each with the system call it was in.

use crate::diff::phase::Phases;
use analysis::rows::Index;
use model::Reason;

/// A piece of an operation's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece {
    pub start_ns: u64,
    /// Length.
    pub ns: u64,
    /// What the thread did or waited for.
    pub reason: Reason,
    /// The span in which it ran or for which it waited.
    pub span: Option<u64>,
    /// The system call it was in, by position of its span.
    pub call: Option<u32>,
}

impl Piece {
    /// Whether the thread slept.
    pub fn slept(&self) -> bool {
        !matches!(self.reason, Reason::Cpu | Reason::RunQueue)
    }
}

/// Returns the pieces of every operation, by its position, in order.
pub fn pieces(index: &Index, phases: &Phases) -> Vec<Vec<Piece>> {
    let rows = index.rows;
    let mut all: Vec<Vec<Piece>> = vec![Vec::new(); rows.operations.len()];
    for slice in &rows.slices {
        let Some(at) = index.operation(slice.operation) else { continue };
        let operation = &rows.operations.at(at);
        let call = phases.call_of_thread((operation.tgid, operation.tid), slice.start_ns);
        all[at].push(Piece {
            start_ns: slice.start_ns,
            ns: slice.end_ns.saturating_sub(slice.start_ns),
            reason: slice.reason,
            span: slice.span,
            call: call.map(|call| call as u32),
        });
    }
    all.iter_mut().for_each(|pieces| pieces.sort_by_key(|piece| piece.start_ns));
    all
}
