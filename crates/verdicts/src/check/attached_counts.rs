//! Counts of calls that were seen without a recording (ptrace), by the same names and rules as a contract's.
//!
//! **What differs from a recording's counts.** There are no statements and no commands of the device. A file's kind follows from its name
//! alone, so that a database is one only if it is named like one. A source that the program changes after it has read it is left out. What is
//! read and written through io_uring is not seen, nor directories that are made. A recording does not know the file of a rename.

use super::count_name::{CountName, FileKind};
use super::observe::{SOURCE_EXTENSIONS, SectionCounts, is_own_file};
use model::Call;
use sqlite::FileClass;
use std::collections::HashSet;

/// A call that returned.
#[derive(Debug, Clone, Copy)]
pub struct SeenCall<'a> {
    pub call: Call,
    /// The path of its file, or what the kernel calls it (`pipe:[5]`).
    pub file: Option<&'a str>,
    pub is_directory: bool,
    /// Bytes, if it reads or writes; negative if it failed.
    pub result: i64,
}

/// The counts of a process, or of a command with its children.
#[derive(Debug, Clone, Default)]
pub struct CallCounts {
    pub counts: SectionCounts,
    /// Files that were opened since a command began; those that were open before are not its own. `None` for a process that ran before.
    opened: Option<HashSet<String>>,
    /// The file that the command executes.
    executed: Option<String>,
}

impl CallCounts {
    /// Counts of a command, from its beginning.
    pub fn of_command(program: &str) -> Self {
        let executed = Some(program.trim_start_matches("./").to_string()).filter(|word| !word.is_empty());
        Self { opened: Some(HashSet::new()), executed, ..Self::default() }
    }

    pub fn add(&mut self, seen: SeenCall) {
        let SeenCall { call, file, is_directory, result } = seen;
        // A recording does not count the opening of directories.
        if matches!(call, Call::Lseek | Call::Mmap) || result < 0 || call == Call::Open && is_directory {
            return;
        }
        let kind = match file {
            Some(path) if call.changes() || !self.is_source(path) => match kind_of(path, is_directory) {
                Some(kind) => Some(kind),
                None => return,
            },
            Some(_) => return,
            None if matches!(call, Call::Sync | Call::IoUringEnter) => None,
            None => return,
        };
        if let (Some(path), Some(opened)) = (file, &mut self.opened) {
            if call == Call::Open {
                opened.insert(path.into());
            } else if kind == Some(FileKind::File) && !call.changes() && !opened.contains(path) {
                return;
            }
        }
        let name = CountName::Call(call, kind).to_string();
        if let Some(path) = file {
            self.counts.examples.entry(name.clone()).or_insert_with(|| path.into());
        }
        *self.counts.calls.entry(name).or_default() += 1;
        let bytes = match (call.reads(), call.writes()) {
            (true, _) => CountName::BytesRead(kind),
            (_, true) => CountName::BytesWritten(kind),
            _ => return,
        };
        if result > 0 {
            *self.counts.calls.entry(bytes.to_string()).or_default() += result.unsigned_abs();
        }
    }

    /// What an interpreter reads as its program.
    fn is_source(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        let named = name.rsplit_once('.').is_some_and(|(_, end)| SOURCE_EXTENSIONS.contains(&end));
        let is =
            |word: &String| path.strip_suffix(word.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
        named || self.executed.as_ref().is_some_and(is)
    }
}

fn kind_of(path: &str, is_directory: bool) -> Option<FileKind> {
    match sqlite::classify_path(path) {
        FileClass::Other if !is_own_file(path) => None,
        FileClass::Other if is_directory => Some(FileKind::Directory),
        FileClass::Other => Some(FileKind::File),
        class => Some(FileKind::Sqlite(class)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attached_calls_have_the_names_of_a_contract() {
        let mut found = CallCounts::default();
        let mut add = |call: Call, file: &str, result: i64| {
            found.add(SeenCall { call, file: Some(file), is_directory: file.ends_with("/dir"), result });
        };
        add(Call::Pwrite64, "/home/a/t.db-wal", 4120);
        add(Call::Pwrite64, "/home/a/t.db-wal", 4096);
        add(Call::Fdatasync, "/home/a/t.db", 0);
        add(Call::Fsync, "/home/a/notes.txt", 0);
        add(Call::Fsync, "/home/a/notes.txt", -5);
        add(Call::Fsync, "/home/a/dir", 0);
        add(Call::Write, "pipe:[7]", 3);
        add(Call::Read, "/usr/lib/locale/x", 3);
        add(Call::Read, "/home/a/app.py", 300);
        add(Call::Rename, "/home/a/app.py", 0);
        let expected = [
            ("bytes written WAL", 8216),
            ("fdatasync database", 1),
            ("fsync directory", 1),
            ("fsync file", 1),
            ("pwrite64 WAL", 2),
            ("rename file", 1),
        ];
        assert_eq!(found.counts.calls, expected.map(|(name, n)| (name.to_string(), n)).into());
    }

    #[test]
    fn files_open_before_a_command_are_not_its_own() {
        let mut found = CallCounts::of_command("./app");
        let write = |file| SeenCall { call: Call::Write, file: Some(file), is_directory: false, result: 5 };
        found.add(write("/home/a/output"));
        found.add(SeenCall { call: Call::Open, result: 3, ..write("/home/a/own") });
        found.add(write("/home/a/own"));
        let calls: Vec<_> = found.counts.calls.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        assert_eq!(calls, [("bytes written file", 5), ("open file", 1), ("write file", 1)]);
    }
}
