//! When an execution checkpoints a WAL: the single definition, used for its cost (`explain`) and for its removal (`whatif`).

use crate::diff::phase::{FileRole, Phase, Phases, wal_databases};
use analysis::rows::Index;
use model::{Call, Layer};
use sqlite::FileClass;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Yields the system calls within operations in order of start time: position, operation, call, kind.
pub fn calls_in_operations<'a>(
    index: &'a Index<'a>,
    phases: &'a Phases<'a>,
) -> impl Iterator<Item = (usize, usize, Call, FileRole)> + 'a {
    let spans = &index.rows.spans;
    let mut all: Vec<usize> = (0..spans.len()).filter(|&at| spans.layer(at) == Layer::Syscall).collect();
    all.sort_by_key(|&at| spans.start_ns(at));
    all.into_iter().filter_map(move |at| match phases.of_call(at) {
        Phase::In(call, kind) => Some((at, index.operation_of(&spans.at(at))?, call, kind)),
        Phase::Outside | Phase::Tracer => None,
    })
}

/// Size of a WAL's header in bytes; the header is written separately.
const WAL_HEADER_BYTES: u64 = 32;

/// Whether a call syncs one file.
pub fn is_sync(call: Call) -> bool {
    matches!(call, Call::Fsync | Call::Fdatasync)
}

/// Returns, by position of the execution, the time in which it writes a WAL's pages into its database: from the first read of the
/// WAL, or the preceding sync of the WAL, to the last write or sync of the database. That sync belongs to the checkpoint only if
/// the execution has more of them than executions of its statement without a checkpoint.
///
/// A commit after a checkpoint restarts the WAL: it writes the header and syncs it before its frames (walFrames in SQLite's
/// wal.c), with `synchronous=NORMAL` the only sync of a commit. That cost is caused by the checkpoint too, and is a separate
/// window of that execution.
pub fn checkpoint_windows(index: &Index, phases: &Phases) -> BTreeMap<usize, Vec<(u64, u64)>> {
    let wal = wal_databases(index);
    #[derive(Default)]
    struct ExecutionCalls {
        syncs: Vec<u64>,
        first_read: Option<u64>,
        write_back: Option<(u64, u64)>,
    }
    let mut seen: BTreeMap<usize, ExecutionCalls> = BTreeMap::new();
    let mut written_back: HashSet<&str> = HashSet::new();
    // For each execution that wrote a WAL header: its next sync of the WAL.
    let mut anew: HashMap<usize, u64> = HashMap::new();
    let mut all: BTreeMap<usize, Vec<(u64, u64)>> = BTreeMap::new();
    for (at, operation, call, kind) in calls_in_operations(index, phases) {
        let span = &index.rows.spans.at(at);
        let end = span.end_ns.unwrap_or(span.start_ns);
        let back =
            kind == FileRole::Of(FileClass::Database) && index.path_of(span).is_some_and(|path| wal.contains(path));
        let own = seen.entry(operation).or_default();
        let path = index.path_of(span);
        if back && call.writes() {
            written_back.extend(path);
        }
        if kind == FileRole::Of(FileClass::Wal) {
            let database = path.and_then(|path| path.strip_suffix("-wal"));
            let header = call.writes() && span.offset == Some(0) && span.bytes == WAL_HEADER_BYTES;
            if header && database.is_some_and(|path| written_back.contains(path)) {
                anew.insert(operation, span.start_ns);
            } else if let Some(since) = anew.remove(&operation).filter(|_| is_sync(call)) {
                all.entry(operation).or_default().push((since, end));
            }
        }
        match call {
            call if kind == FileRole::Of(FileClass::Wal) && is_sync(call) && own.write_back.is_none() => {
                own.syncs.push(span.start_ns);
            }
            call if kind == FileRole::Of(FileClass::Wal) && call.writes() => own.first_read = None,
            call if kind == FileRole::Of(FileClass::Wal) && call.reads() && own.write_back.is_none() => {
                own.first_read = own.first_read.or(Some(span.start_ns));
            }
            call if back && (call.writes() || is_sync(call) && own.write_back.is_some()) => {
                let since = own.write_back.map_or(span.start_ns, |(since, _)| since);
                own.write_back = Some((since, end));
            }
            _ => {}
        }
    }
    let mut usual: HashMap<usize, usize> = HashMap::new();
    for (operation, own) in seen.iter().filter(|(_, own)| own.write_back.is_none()) {
        if let Some(shape) = index.shape(*operation) {
            let least = usual.entry(shape).or_insert(usize::MAX);
            *least = (*least).min(own.syncs.len());
        }
    }
    let window = |(operation, own): (usize, ExecutionCalls)| {
        let (since, until) = own.write_back?;
        let usual = index.shape(operation).and_then(|shape| usual.get(&shape)).copied().unwrap_or(1);
        let read = own.first_read.unwrap_or(since);
        let sync = own.syncs.last().copied().filter(|_| own.syncs.len() > usual).unwrap_or(since);
        Some((operation, (since.min(read).min(sync), until)))
    };
    for (operation, window) in seen.into_iter().filter_map(window) {
        all.entry(operation).or_default().push(window);
    }
    all
}
