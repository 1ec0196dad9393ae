//! The effect of a span on a file: whether it writes or reads one, and of which class.
//!
//! A call that reads or writes counts once, as the call; other accesses to the file system (io_uring, splice, a mapped file)
//! count where they enter it.

use crate::rows::{Index, call_of_kind, call_of_span};
use model::table::Span;
use model::{Call, Layer, Relation, SpanKind};
use sqlite::FileClass;

/// How system calls and spans of the file system are linked, by position of span.
pub struct Entries {
    /// Was called by a system call that reads or writes, and is therefore counted with it.
    below_call: Vec<bool>,
    /// Has a span of the file system below it.
    enters: Vec<bool>,
}

/// The effect of one span.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpanEffect {
    /// Whether it enters the file system other than by a call that reads or writes.
    pub enters: bool,
    pub class: Option<FileClass>,
    /// The class if it writes the file.
    pub wrote: Option<FileClass>,
    /// The class if it reads the file.
    pub read: Option<FileClass>,
    /// Whether it is an fsync or fdatasync.
    pub syncs: bool,
    /// Bytes actually read or written.
    pub bytes: u64,
}

impl Entries {
    /// Follows the links from calls.
    pub fn new(index: &Index) -> Self {
        let spans = &index.rows.spans;
        let mut entries = Self { below_call: vec![false; spans.len()], enters: vec![false; spans.len()] };
        for link in index.rows.links.iter().filter(|l| l.relation == Relation::Calls) {
            if let (Some(parent), Some(child)) = (index.span(link.parent), index.span(link.child)) {
                entries.below_call[child] |= spans.layer(parent) == Layer::Syscall
                    && call_of_kind(&spans.kind(parent)).is_some_and(|c| c.reads() || c.writes());
                entries.enters[parent] |= spans.layer(child) == Layer::FileSystem;
            }
        }
        entries
    }

    /// Returns the effect of a span, which is at this position.
    pub fn effect_of(&self, index: &Index, at: usize, span: &Span) -> SpanEffect {
        let call = (span.layer == Layer::Syscall).then(|| call_of_span(span)).flatten();
        let enters = span.layer == Layer::FileSystem && !self.below_call[at];
        // A file without a name may be a pipe: then it counts only if it was seen in the file system.
        let class = index.class_of(span).filter(|_| self.enters[at] || enters || index.path_of(span).is_some());
        SpanEffect {
            enters,
            class,
            wrote: class.filter(|_| call.is_some_and(Call::writes) || enters && span.is(SpanKind::Write)),
            read: class.filter(|_| call.is_some_and(Call::reads) || enters && span.is(SpanKind::Read)),
            syncs: matches!(call, Some(Call::Fsync | Call::Fdatasync)),
            bytes: span.result.map_or(span.bytes, |done| done.try_into().unwrap_or(0)),
        }
    }
}
