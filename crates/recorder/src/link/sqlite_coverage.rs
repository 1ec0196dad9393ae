//! Whether SQLite's statements were seen; and if not, the evidence that a process uses SQLite all the same.

use model::table::{Coverage, File, Operation, Process, Shape, Span};
use model::{Absence, Layer, ShapeKind};
use sqlite::FileClass;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The evidence in the rows.
#[derive(Debug, Default)]
pub struct SqliteCoverage {
    /// Shapes that are statements (true) or inferred transactions.
    shapes: HashMap<u64, bool>,
    /// Files with names like SQLite's: whether each is a database, and the path of its database.
    files: HashMap<u64, (bool, String)>,
    /// Databases with a companion file that only SQLite has, and files read the way SQLite reads a database's header: a name such as x.db
    /// is also used by Berkeley DB.
    with_companion: HashSet<String>,
    header_read: HashSet<u64>,
    /// The processes that used these files.
    used: BTreeSet<(u32, u64)>,
    /// Processes that executed statements; those for which transactions were inferred.
    with_statements: HashSet<u32>,
    inferred: HashSet<u32>,
    /// Names of the processes that were to be recorded.
    tracked: BTreeMap<u32, String>,
}

impl SqliteCoverage {
    pub fn operation(&mut self, row: &Operation) {
        match self.shapes.get(&row.shape) {
            Some(true) => drop(self.with_statements.insert(row.tgid)),
            Some(false) => drop(self.inferred.insert(row.tgid)),
            None => {}
        }
    }

    pub fn shape(&mut self, row: &Shape) {
        let statement = row.is(ShapeKind::Statement);
        if statement || row.is(ShapeKind::Transaction) {
            self.shapes.insert(row.id, statement);
        }
    }

    pub fn span(&mut self, row: &Span) {
        let Some(file) = row.file.filter(|file| row.layer == Layer::Syscall && self.files.contains_key(file)) else {
            return;
        };
        self.used.insert((row.tgid, file));
        if row.offset.is_some_and(|offset| sqlite::reads_database_header(offset, row.bytes)) {
            self.header_read.insert(file);
        }
    }

    /// Whether the process used one of SQLite's files.
    fn is_user(&self, tgid: u32) -> bool {
        let mut used = self.used.range((tgid, 0)..=(tgid, u64::MAX));
        used.any(|(_, file)| {
            let (is_database, path) = &self.files[file];
            !is_database || self.header_read.contains(file) || self.with_companion.contains(path)
        })
    }

    pub fn file(&mut self, row: &File) {
        let Some(path) = row.path.as_deref() else { return };
        let class = sqlite::classify_path(path);
        let database = sqlite::database_in(path, class);
        if matches!(class, FileClass::RollbackJournal | FileClass::Wal | FileClass::Shm) {
            self.with_companion.insert(database.into());
        }
        if class != FileClass::Other {
            self.files.insert(row.id, (class == FileClass::Database, database.into()));
        }
    }

    pub fn process(&mut self, row: &Process) {
        if row.tracked {
            self.tracked.insert(row.tgid, row.name.clone());
        }
    }

    /// Returns what was not seen in the database layer, and what replaces it.
    pub fn rows(&self) -> Vec<Coverage> {
        let mut rows = BTreeMap::new();
        for (tgid, name) in self.tracked.iter().filter(|(tgid, _)| !self.with_statements.contains(tgid)) {
            let name = if name.is_empty() { format!("process {tgid}") } else { name.clone() };
            let how = if self.inferred.contains(tgid) {
                format!("no SQLite was found in {name}: its transactions are inferred from its files")
            } else if self.is_user(*tgid) {
                format!(
                    "no SQLite was found in {name}, though it uses files named like SQLite's: its statements are not \
                     recorded"
                )
            } else {
                continue;
            };
            rows.insert(name, how);
        }
        if rows.is_empty() && self.with_statements.is_empty() {
            let how = "no SQLite: no statement, and no file that is used like SQLite's";
            rows.insert("sqlite".into(), how.into());
        }
        rows.into_iter().map(|(probe, how)| Coverage::absent(Layer::Database, probe, Absence::NoSqlite, how)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS_ID: u32 = 7;

    /// Returns the coverage for a process that reads (offset, bytes) from files with these names.
    fn coverage_text(files: &[(&str, u64, u64)]) -> String {
        let mut seen = SqliteCoverage::default();
        seen.process(&Process { tgid: PROCESS_ID, name: "app".into(), parent: None, tracked: true });
        for (id, (path, ..)) in (1..).zip(files) {
            seen.file(&File { id, dev: 1, ino: id, path: Some((*path).into()), start_ns: 0 });
        }
        for (id, (_, offset, bytes)) in (1..).zip(files).filter(|(_, (.., bytes))| *bytes > 0) {
            seen.span(&Span {
                id,
                layer: Layer::Syscall,
                kind: "pread64".into(),
                start_ns: 1,
                end_ns: Some(2),
                tgid: PROCESS_ID,
                tid: PROCESS_ID,
                operation: None,
                file: Some(id),
                offset: Some(*offset),
                disk: None,
                sector: None,
                bytes: *bytes,
                result: None,
                number: None,
                cache_added: None,
                flags: "".into(),
            });
        }
        seen.rows().into_iter().map(|row| row.how).collect()
    }

    /// Berkeley DB, gdbm and many others use such names, too.
    #[test]
    fn name_of_a_database_alone_is_no_use_of_sqlite() {
        let none = "no file that is used like SQLite's";
        let used = "no SQLite was found in app";
        for (files, expected) in [
            (&[("/d/aliases.db", 0, 4096)][..], none),
            (&[("/d/notes.txt", 0, 100)], none),
            (&[("/d/a.db", 24, 16)], used),
            (&[("/d/a.db", 0, 100)], used),
            (&[("/d/a.db", 4096, 4096), ("/d/a.db-wal", 0, 0)], used),
            (&[("/d/a.db", 4096, 4096), ("/d/b.db-wal", 0, 0)], none),
            (&[("/d/a.db-journal", 0, 512)], used),
        ] {
            assert!(coverage_text(files).contains(expected), "{files:?}: {}", coverage_text(files));
        }
    }
}
