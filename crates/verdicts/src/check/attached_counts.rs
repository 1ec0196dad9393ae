//! Counts of calls that were seen without a recording, by the same names as a contract's. A file's kind follows from its name alone.

use super::count_name::{CountName, FileKind};
use super::observe::is_own_file;
use model::Call;
use sqlite::FileClass;
use std::collections::BTreeMap;

/// Adds a call that returned `result`, on a file if it is on a descriptor.
pub fn add(counts: &mut BTreeMap<String, u64>, call: Call, file: Option<&str>, result: i64) {
    if matches!(call, Call::Lseek | Call::Mmap) || result < 0 {
        return;
    }
    let on_descriptor = call.reads() || call.writes() || call.syncs() && call != Call::Sync;
    let kind = match file {
        Some(path) if is_own_file(path) => Some(kind_of(path)),
        // A pipe, a terminal, or a file of the system.
        Some(_) => return,
        None if on_descriptor => return,
        None => None,
    };
    *counts.entry(CountName::Call(call, kind).to_string()).or_default() += 1;
    let bytes = match (call.reads(), call.writes()) {
        (true, _) => CountName::BytesRead(kind),
        (_, true) => CountName::BytesWritten(kind),
        _ => return,
    };
    *counts.entry(bytes.to_string()).or_default() += result.unsigned_abs();
}

fn kind_of(path: &str) -> FileKind {
    match sqlite::classify_path(path) {
        FileClass::Other => FileKind::File,
        class => FileKind::Sqlite(class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attached_calls_have_the_names_of_a_contract() {
        let mut counts = BTreeMap::new();
        add(&mut counts, Call::Pwrite64, Some("/home/a/t.db-wal"), 4120);
        add(&mut counts, Call::Pwrite64, Some("/home/a/t.db-wal"), 4096);
        add(&mut counts, Call::Fdatasync, Some("/home/a/t.db"), 0);
        add(&mut counts, Call::Fsync, Some("/home/a/notes.txt"), 0);
        add(&mut counts, Call::Fsync, Some("/home/a/notes.txt"), -5);
        add(&mut counts, Call::Write, Some("pipe:[7]"), 3);
        add(&mut counts, Call::Read, Some("/usr/lib/locale/x"), 3);
        add(&mut counts, Call::Rename, None, 0);
        let expected = [
            ("bytes written WAL", 8216),
            ("fdatasync database", 1),
            ("fsync file", 1),
            ("pwrite64 WAL", 2),
            ("rename", 1),
        ];
        assert_eq!(counts, expected.map(|(name, n)| (name.to_string(), n)).into());
    }
}
