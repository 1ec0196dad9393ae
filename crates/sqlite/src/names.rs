//! Classifies SQLite's files by their names: which of them is the journal, which the database.
//!
//! SQLite finds a journal by its name, so the names are fixed and documented (<https://sqlite.org/tempfiles.html>). A
//! database may have any name; it is recognised by a journal, WAL or shm next to it in the same trace, by an extension in
//! common use (a guess), or by how SQLite reads it ([`crate::reads_database_header`]).

use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// The role of a file for SQLite.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FileClass {
    /// `X-journal`: the old contents of the pages that a transaction changes.
    #[serde(rename = "rollback journal")]
    RollbackJournal,
    /// `X-mjNNNNNNNNN`: joins the journals of a transaction over several databases.
    #[serde(rename = "master journal")]
    MasterJournal,
    /// `X-wal`: the new contents of the pages.
    #[serde(rename = "WAL")]
    Wal,
    /// `X-shm`: the index of the WAL, shared through memory.
    #[serde(rename = "shm")]
    Shm,
    /// The database itself.
    #[serde(rename = "database")]
    Database,
    /// A statement journal, a sorter's or a temporary table's file.
    #[serde(rename = "temporary")]
    Temporary,
    /// Not one of SQLite's.
    #[serde(rename = "other")]
    #[default]
    Other,
}

impl FileClass {
    /// All classes, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::RollbackJournal,
        Self::MasterJournal,
        Self::Wal,
        Self::Database,
        Self::Shm,
        Self::Temporary,
        Self::Other,
    ];

    /// Its name in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::RollbackJournal => "rollback journal",
            Self::MasterJournal => "master journal",
            Self::Wal => "WAL",
            Self::Shm => "shm",
            Self::Database => "database",
            Self::Temporary => "temporary",
            Self::Other => "other",
        }
    }
}

/// What the kernel appends to the name of an open file that was removed.
const DELETED_SUFFIX: &str = " (deleted)";

/// What SQLite appends to a database's name for the files next to it.
const COMPANION_SUFFIXES: [&str; 3] = ["-journal", "-wal", "-shm"];

/// Extensions in common use for SQLite databases.
const DATABASE_EXTENSIONS: [&str; 7] = ["db", "sqlite", "sqlite3", "db3", "s3db", "sl3", "sqlitedb"];

/// Returns the class by the name alone.
pub fn classify_path(path: &str) -> FileClass {
    let path = without_deleted_mark(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    if name.starts_with("etilqs_") {
        FileClass::Temporary
    } else if name.ends_with("-journal") {
        FileClass::RollbackJournal
    } else if name.ends_with("-wal") {
        FileClass::Wal
    } else if name.ends_with("-shm") {
        FileClass::Shm
    } else if name.rsplit_once("-mj").is_some_and(|(_, n)| n.len() == 9 && n.bytes().all(|b| b.is_ascii_hexdigit())) {
        FileClass::MasterJournal
    } else if name.rsplit_once('.').is_some_and(|(_, e)| DATABASE_EXTENSIONS.iter().any(|x| e.eq_ignore_ascii_case(x)))
    {
        FileClass::Database
    } else {
        FileClass::Other
    }
}

/// Returns the path without the kernel's mark for removed files.
pub fn without_deleted_mark(path: &str) -> &str {
    path.strip_suffix(DELETED_SUFFIX).unwrap_or(path)
}

/// Returns the path of the database that a journal, WAL or shm belongs to; any other path unchanged.
pub fn database_of(path: &str) -> &str {
    let path = without_deleted_mark(path);
    COMPANION_SUFFIXES.iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path)
}

/// Does the same for a file of known class: for a transaction over several databases, returns the first.
pub fn database_in(path: &str, class: FileClass) -> &str {
    match class {
        FileClass::MasterJournal => {
            without_deleted_mark(path).rsplit_once("-mj").map_or(path, |(database, _)| database)
        }
        _ => database_of(path),
    }
}

/// The databases identified by their companions' names.
#[derive(Debug, Default)]
pub struct Companions {
    databases: HashSet<String>,
}

impl Companions {
    /// Creates it from all paths of a trace.
    pub fn new<'a>(paths: impl Iterator<Item = &'a str>) -> Self {
        let databases = paths
            .map(without_deleted_mark)
            .filter_map(|path| COMPANION_SUFFIXES.iter().find_map(|end| path.strip_suffix(end)))
            .map(str::to_owned)
            .collect();
        Self { databases }
    }

    /// Returns the class by the name and the names of other files.
    pub fn classify(&self, path: &str) -> FileClass {
        match classify_path(path) {
            FileClass::Other if self.databases.contains(without_deleted_mark(path)) => FileClass::Database,
            class => class,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_determines_class() {
        for (path, expected) in [
            ("/a/test.db-journal", FileClass::RollbackJournal),
            ("/a/test.db-journal (deleted)", FileClass::RollbackJournal),
            ("test.db-wal", FileClass::Wal),
            ("test-shm", FileClass::Shm),
            ("/a/test.db-mj0A1B2C9DE", FileClass::MasterJournal),
            ("/a/test.db-mjolnir", FileClass::Other),
            ("/var/tmp/etilqs_9f3b-journal", FileClass::Temporary),
            ("/a/Thumbs.DB", FileClass::Database),
            ("/a.db/log", FileClass::Other),
            ("", FileClass::Other),
        ] {
            assert_eq!(classify_path(path), expected, "{path}");
        }
    }

    #[test]
    fn file_with_journal_is_database() {
        let paths = ["/a/places", "/a/places-wal", "/b/places"];
        let companions = Companions::new(paths.into_iter());
        assert_eq!(companions.classify("/a/places"), FileClass::Database);
        assert_eq!(companions.classify("/b/places"), FileClass::Other);
        assert_eq!(companions.classify("/a/places-wal"), FileClass::Wal);
    }
}
