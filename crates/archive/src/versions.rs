//! Which versions of each part of an archive this program reads, with a line of history each, and how an older one is
//! brought up to date.
//!
//! There are three, because they change independently: the directory, the records of the log, the tables. Raising one
//! means: add a line here, define in `ADDED_COLUMNS` the value of a new column in an old file, and keep an archive of the
//! previous version in `tests/archives/`, where a test opens every one of them.
//!
//! A column that is optional, or that no reader requests, needs no new version: readers match columns by name.

use crate::error::{Error, Result};
use model::table::Cell;
use std::path::Path;

/// One version of a part.
#[derive(Debug, Clone, Copy)]
pub struct Version {
    pub number: u32,
    /// The change it introduced.
    pub what: &'static str,
}

/// The directory: `meta.json` and which files are where.
pub const DIRECTORY_VERSIONS: &[Version] =
    &[Version { number: 1, what: "meta.json, events.log, tables/ with index.json" }];

/// The chunks of `events.log`. The records in them have a version of their own, [`model::event::EVENT_VERSION`].
pub const LOG_VERSIONS: &[Version] = &[Version { number: 1, what: "chunks of 64-byte headers and LZ4 payloads" }];

/// A required column that older tables lack, and the value that it would have had.
struct AddedColumn {
    table: &'static str,
    column: &'static str,
    /// The table version that introduced it.
    version: u32,
    was: fn() -> Cell,
}

/// Version 2 of the tables gave each cell its design; archives of version 1 distinguish designs only by the cells'
/// order, and are read as if they had one design.
const ADDED_COLUMNS: &[AddedColumn] =
    &[AddedColumn { table: "cells", column: "design", version: 2, was: || Cell::I64(0) }];

/// A value that older tables have in place of an empty cell.
struct FormerDefault {
    table: &'static str,
    column: &'static str,
    /// The table version that leaves it empty.
    version: u32,
    was: fn() -> Cell,
}

/// Version 3 of the tables made their whole numbers signed, and left out the sector of a request that flushes: the kernel
/// gives it 2^64 - 1.
const FORMER_DEFAULTS: &[FormerDefault] =
    &[FormerDefault { table: "spans", column: "sector", version: 3, was: || Cell::I64(-1) }];

/// The newest version of a part.
pub fn newest(history: &[Version]) -> u32 {
    history.iter().map(|v| v.number).max().unwrap_or(0)
}

/// Rejects versions newer than this program, and version 0, which never existed.
///
/// # Errors
/// [`Error::Newer`] with the Fathom that is needed; [`Error::Damaged`] for version 0.
pub fn check_version(path: &Path, what: &'static str, found: u32, newest: u32, made_by: &str) -> Result<()> {
    match found {
        0 => Err(Error::Damaged {
            path: path.into(),
            why: format!("its {what} has version 0, which never existed"),
            remedy: "Record again, or repair the file manually".into(),
        }),
        _ if found > newest => Err(Error::Newer { path: path.into(), what, found, newest, made_by: made_by.into() }),
        _ => Ok(()),
    }
}

/// Returns the value of a required column that a table of an older version lacks; `None` if that version had the
/// column, so that its absence is damage.
pub fn missing_column(table: &str, column: &str, version: u32) -> Option<Cell> {
    find_default(ADDED_COLUMNS, table, column, version)
}

/// Returns the value that meant an empty cell in a column of an older version's tables; `None` if there is no such
/// value.
pub fn former_default(table: &str, column: &str, version: u32) -> Option<Cell> {
    FORMER_DEFAULTS.iter().find(|n| n.table == table && n.column == column && version < n.version).map(|n| (n.was)())
}

fn find_default(added: &[AddedColumn], table: &str, column: &str, version: u32) -> Option<Cell> {
    added.iter().find(|a| a.table == table && a.column == column && version < a.version).map(|a| (a.was)())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_added_column_has_a_default_only_in_older_tables() {
        let added = [AddedColumn { table: "spans", column: "colour", version: 3, was: || Cell::I64(7) }];
        assert_eq!(find_default(&added, "spans", "colour", 2), Some(Cell::I64(7)));
        assert_eq!(find_default(&added, "spans", "colour", 3), None);
        assert_eq!(find_default(&added, "links", "colour", 2), None);
    }

    #[test]
    fn versions_are_strictly_increasing() {
        for history in [DIRECTORY_VERSIONS, LOG_VERSIONS] {
            assert!(history.windows(2).all(|w| w[0].number < w[1].number));
        }
    }
}
