//! The files of SQLite by their names: which of them is the journal, which the database.
//!
//! SQLite finds a journal by its name, so the names are fixed and documented (<https://sqlite.org/tempfiles.html>). They are
//! here and not in `analysis`, because the linker goes by them too where a program's SQLite has no names of its own.

use serde::{Deserialize, Serialize};

/// What a file is to SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// None of SQLite's.
    #[serde(rename = "other")]
    Other,
}

impl FileClass {
    /// All, in the order in which they are shown.
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
const DELETED: &str = " (deleted)";

/// What SQLite appends to a database's name for the files beside it.
pub const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];

/// Extensions in common use for SQLite databases.
const EXTENSIONS: [&str; 7] = ["db", "sqlite", "sqlite3", "db3", "s3db", "sl3", "sqlitedb"];

/// The class that the name alone tells.
pub fn class(path: &str) -> FileClass {
    let path = without_mark(path);
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
    } else if name.rsplit_once('.').is_some_and(|(_, e)| EXTENSIONS.iter().any(|x| e.eq_ignore_ascii_case(x))) {
        FileClass::Database
    } else {
        FileClass::Other
    }
}

/// The path without the kernel's mark of a removed file.
pub fn without_mark(path: &str) -> &str {
    path.strip_suffix(DELETED).unwrap_or(path)
}

/// The path of the database that a journal, WAL or shm belongs to; any other path as it is.
pub fn database_of(path: &str) -> &str {
    let path = without_mark(path);
    COMPANIONS.iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path)
}

/// Whether a read of `bytes` at `offset` is one that SQLite makes of a database's header.
pub fn reads_database_header(offset: u64, bytes: u64) -> bool {
    (offset, bytes) == (24, 16) || (offset, bytes) == (0, 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_classes() {
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
            assert_eq!(class(path), expected, "{path}");
        }
    }
}
