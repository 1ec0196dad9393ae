//! The activity of an operation while its time passed: in which system call, on which kind of file.
//!
//! Layers show where time went, but not what for. A thread that syncs sleeps, and when it is woken it waits for a CPU: on a busy
//! machine most of the cost of a second fsync is time in the run queue. So each slice of time is attributed to the system call in
//! which its thread was, and to the kind of file of that call.

use analysis::rows::{Index, call_of_kind};
use model::table::{File, Operation};
use model::{Call, Layer};
use sqlite::{FileClass, database_of};
use std::collections::{HashMap, HashSet};
use std::fmt;

/// The role of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileRole {
    /// One of SQLite's files, or another file.
    Of(FileClass),
    Directory,
    /// The call had no file, or it is not known.
    Unknown,
}

impl FileRole {
    /// Yields all kinds.
    pub fn all() -> impl Iterator<Item = Self> {
        FileClass::ALL.into_iter().map(Self::Of).chain([Self::Directory, Self::Unknown])
    }

    /// Its name in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Of(class) => class.name(),
            Self::Directory => "directory",
            Self::Unknown => "",
        }
    }
}

/// The activity of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// In this system call, on this kind of file.
    In(Call, FileRole),
    /// In no system call.
    Outside,
    /// In the recording itself.
    Tracer,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In(call, FileRole::Unknown) => f.write_str(call.name()),
            Self::In(call, kind) => write!(f, "{} {}", call.name(), kind.name()),
            Self::Outside => f.write_str("outside system calls"),
            Self::Tracer => f.write_str("tracer"),
        }
    }
}

/// The calls of a recording, and the kinds of its files.
pub struct Phases<'a> {
    index: &'a Index<'a>,
    kinds: Vec<FileRole>,
    /// Calls of each thread in order of start time, as positions.
    threads: HashMap<(u32, u32), Vec<(u64, u32)>>,
}

impl<'a> Phases<'a> {
    /// Indexes the rows in one pass.
    pub fn new(index: &'a Index<'a>) -> Self {
        let spans = &index.rows.spans;
        let mut threads: HashMap<(u32, u32), Vec<(u64, u32)>> = HashMap::new();
        for at in (0..spans.len()).filter(|&at| spans.layer(at) == Layer::Syscall) {
            let calls = threads.entry((spans.tgid(at), spans.tid(at))).or_default();
            calls.push((spans.start_ns(at), at as u32));
        }
        threads.values_mut().for_each(|calls| calls.sort_unstable());
        Self { kinds: file_roles(index), threads, index }
    }

    /// Returns the kind of a span's file.
    pub fn kind(&self, file: Option<u64>) -> FileRole {
        file.and_then(|id| self.index.file(id)).map_or(FileRole::Unknown, |at| self.kinds[at])
    }

    /// Returns the phase of a span in the layer of system calls.
    pub fn of_call(&self, at: usize) -> Phase {
        let spans = &self.index.rows.spans;
        call_of_kind(&spans.kind(at)).map_or(Phase::Outside, |call| Phase::In(call, self.kind(spans.file(at))))
    }

    /// Returns the phase of the thread of an operation at a time.
    pub fn phase_at(&self, operation: &Operation, time_ns: u64) -> Phase {
        self.of_thread((operation.tgid, operation.tid), time_ns)
    }

    /// Returns the phase of a thread at a time.
    pub fn of_thread(&self, thread: (u32, u32), time_ns: u64) -> Phase {
        self.call_of_thread(thread, time_ns).map_or(Phase::Outside, |at| self.of_call(at))
    }

    /// Returns the system call in which a thread was, by position of its span.
    pub fn call_of_thread(&self, thread: (u32, u32), time_ns: u64) -> Option<usize> {
        let spans = &self.index.rows.spans;
        let calls = self.threads.get(&thread)?;
        let next = calls.partition_point(|&(start_ns, _)| start_ns <= time_ns);
        let before = calls.get(next.checked_sub(1)?)?.1 as usize;
        // A call whose end was not seen ends with the start of the next one.
        spans.end_ns(before).is_none_or(|end| time_ns < end).then_some(before)
    }
}

/// Returns the kind of each file. No record states that a file is a directory: it is one if a file lies below its path; or, if
/// its path is unknown because it was opened in a way that is not recorded, if it was synced, but never read or written, and is
/// on the databases' file system.
fn file_roles(index: &Index) -> Vec<FileRole> {
    let rows = index.rows;
    let parents: HashSet<&str> =
        rows.files.iter().filter_map(|f| f.path.as_deref()?.rsplit_once('/')).map(|(directory, _)| directory).collect();
    let mut data: HashSet<u64> = HashSet::new();
    let mut synced: HashSet<u64> = HashSet::new();
    let spans = &rows.spans;
    for at in (0..spans.len()).filter(|&at| spans.layer(at) == Layer::Syscall) {
        let (Some(file), Some(call)) = (spans.file(at), call_of_kind(&spans.kind(at))) else { continue };
        if matches!(call, Call::Fsync | Call::Fdatasync) {
            synced.insert(file)
        } else {
            data.insert(file)
        };
    }
    let homes: HashSet<u32> =
        rows.files.iter().zip(&index.classes).filter(|(_, c)| **c == FileClass::Database).map(|(f, _)| f.dev).collect();
    let kind = |(file, class): (&File, &FileClass)| match &file.path {
        Some(path) if parents.contains(path.as_str()) => FileRole::Directory,
        None if synced.contains(&file.id) && !data.contains(&file.id) && homes.contains(&file.dev) => {
            FileRole::Directory
        }
        _ => FileRole::Of(*class),
    };
    rows.files.iter().zip(&index.classes).map(kind).collect()
}

/// Returns the paths of the databases whose WAL was recorded.
pub fn wal_databases<'a>(index: &Index<'a>) -> HashSet<&'a str> {
    let rows = index.rows;
    let wal = rows.files.iter().zip(&index.classes).filter(|(_, class)| **class == FileClass::Wal);
    wal.filter_map(|(file, _)| file.path.as_deref().map(database_of)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::small_trace;

    #[test]
    fn time_is_attributed_to_the_call_of_its_thread() {
        let rows = small_trace::rows();
        let index = Index::new(&rows);
        let phases = Phases::new(&index);
        let insert = &rows.operations.at(1);
        let at = |us: u64| phases.phase_at(insert, 1_000_000_000 + us * 1000).to_string();
        assert_eq!(at(15), "outside system calls");
        assert_eq!(at(22), "pwrite64 rollback journal");
        assert_eq!(at(100), "fdatasync rollback journal");
        assert_eq!(at(300), "outside system calls", "a call's end is not in it");
        assert_eq!(at(500), "fdatasync database");
    }

    #[test]
    fn a_synced_file_without_path_and_data_is_a_directory() {
        let mut rows = small_trace::rows();
        // The sync of the journal's directory, which SQLite opens in a way that is not recorded.
        rows.files.push(File { id: 9, dev: 1, ino: 2, path: None, start_ns: 0 });
        rows.files.push(File { id: 10, dev: 1, ino: 3, path: Some("/mnt".into()), start_ns: 0 });
        for span in rows.spans.edit().iter_mut().filter(|s| s.id == 25) {
            span.file = Some(9);
        }
        let index = Index::new(&rows);
        let phases = Phases::new(&index);
        assert_eq!(phases.kind(Some(9)), FileRole::Directory);
        assert_eq!(phases.kind(Some(10)), FileRole::Directory);
        assert_eq!(phases.kind(Some(1)), FileRole::Of(FileClass::RollbackJournal));
        assert_eq!(phases.kind(Some(4)), FileRole::Of(FileClass::Other), "it is written");
        assert_eq!(phases.kind(None), FileRole::Unknown);
    }
}
