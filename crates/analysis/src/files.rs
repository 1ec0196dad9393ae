//! What the recorded processes did to each file, in operations and outside: their calls, which add up to the calls of the recording, and
//! the pages that they read or dirtied through mappings, without a call.
//!
//! *Uncertainty*: what reads a file for another (sendfile's source) is known by the pages that it adds to the page cache only.

use crate::contract::{CallTotal, FileUse};
use crate::rows::{Index, Rows, call_of_span};
use model::table::Span;
use model::{Layer, SpanKind};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

/// The sums of each file, by its position, and of each call.
#[derive(Debug)]
pub struct FileSums {
    files: Vec<FileUse>,
    calls: BTreeMap<String, CallTotal>,
    recorded: HashSet<u32>,
}

impl FileSums {
    /// Creates empty ones.
    pub fn new(index: &Index) -> Self {
        let rows = index.rows;
        let file = |at: usize| FileUse {
            path: rows.files[at].path.clone(),
            class: index.classes[at],
            dev: model::Dev(rows.files[at].dev).to_string(),
            ino: rows.files[at].ino,
            ..FileUse::default()
        };
        Self {
            files: (0..rows.files.len()).map(file).collect(),
            calls: BTreeMap::new(),
            recorded: recorded_processes(rows),
        }
    }

    /// Adds a span, if a recorded process or an operation made it.
    pub fn add(&mut self, index: &Index, span: &Span) {
        if span.operation.is_none() && !self.recorded.contains(&span.tgid) {
            return;
        }
        let outside = span.operation.is_none();
        let file = span.file.and_then(|id| index.file(id)).map(|at| &mut self.files[at]);
        if span.layer == Layer::FileSystem {
            let Some(file) = file else { return };
            let sum = if span.is(SpanKind::MappedWrite) {
                &mut file.mapped_bytes_written
            } else if span.is(SpanKind::MappedRead) {
                &mut file.mapped_bytes_read
            } else {
                return;
            };
            *sum = sum.saturating_add(span.bytes);
            return;
        }
        let Some(call) = call_of_span(span).filter(|_| span.layer == Layer::Syscall) else { return };
        let moves = call.reads() || call.writes() || call.copies();
        let bytes = span.result.map_or(span.bytes, |done| done.try_into().unwrap_or(0));
        let bytes = if moves { bytes } else { 0 };
        if !self.calls.contains_key(call.name()) {
            self.calls.insert(call.name().into(), CallTotal::default());
        }
        if let Some(total) = self.calls.get_mut(call.name()) {
            total.count += 1;
            total.outside += u64::from(outside);
            total.without_file += u64::from(moves && file.is_none());
            total.bytes = total.bytes.saturating_add(bytes);
        }
        let Some(file) = file.filter(|_| moves) else { return };
        let (times, sum, times_outside) = if call.reads() {
            (&mut file.reads, &mut file.bytes_read, &mut file.reads_outside)
        } else {
            (&mut file.writes, &mut file.bytes_written, &mut file.writes_outside)
        };
        *times += 1;
        *sum = sum.saturating_add(bytes);
        *times_outside += u64::from(outside);
    }

    /// Returns the files that were used, and all calls.
    pub fn finish(self) -> (Vec<FileUse>, BTreeMap<String, CallTotal>) {
        let used = |f: &FileUse| f.reads > 0 || f.writes > 0 || f.mapped_bytes_read > 0 || f.mapped_bytes_written > 0;
        let mut files: Vec<FileUse> = self.files.into_iter().filter(used).collect();
        files.sort_by_key(|f| (f.class, Reverse(f.moved())));
        (files, self.calls)
    }
}

/// The recorded processes. Where none is known (archives of other tools), those with calls.
fn recorded_processes(rows: &Rows) -> HashSet<u32> {
    let tracked: HashSet<u32> = rows.processes.iter().filter(|p| p.tracked).map(|p| p.tgid).collect();
    if !tracked.is_empty() {
        return tracked;
    }
    rows.spans.of_layer(Layer::Syscall).map(|(_, s)| s.tgid).collect()
}
