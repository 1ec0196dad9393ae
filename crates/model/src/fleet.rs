//! The columns that are added when rows of several archives are in one table, and the table of the archives themselves.
//!
//! An `id` is unique within its archive only: rows of two tables belong together if both `run` and id agree.

use crate::table::{ColumnInfo, ColumnType, TABLES, TableInfo};

/// Columns that distinguish rows of different archives, in every table.
pub const LEADING_COLUMNS: [ColumnInfo; 3] = [
    ColumnInfo {
        name: "device",
        kind: ColumnType::Text,
        optional: false,
        doc: "The device under test: its name if one was given, or its vendor and model, or `unknown`.",
    },
    ColumnInfo {
        name: "run",
        kind: ColumnType::Text,
        optional: false,
        doc: "The archive, as 16 hexadecimal digits of its log's SHA-256. Ids are unique within a run.",
    },
    ColumnInfo { name: "archive", kind: ColumnType::Text, optional: false, doc: "The archive's name." },
];

/// The day on which the archive was made (UTC), the partition of a fleet. A date, not text: engines that read it from the
/// directory's name make it a date, and a query must mean the same everywhere.
pub const DATE_COLUMN: &str = "date";

/// A row for each archive.
pub const ARCHIVES_TABLE: TableInfo = TableInfo {
    name: "archives",
    doc: "An archive.",
    columns: &[
        ColumnInfo { name: "kind", kind: ColumnType::Text, optional: false, doc: "`trace`, `bench` or `net`." },
        ColumnInfo {
            name: "command",
            kind: ColumnType::Text,
            optional: false,
            doc: "The command, quoted for a shell.",
        },
        ColumnInfo {
            name: "created_unix_ns",
            kind: ColumnType::I64,
            optional: false,
            doc: "When it was made, ns since 1970 by the machine's clock.",
        },
        ColumnInfo {
            name: "boot",
            kind: ColumnType::Text,
            optional: true,
            doc: "The boot whose CLOCK_BOOTTIME the times are of; empty in older archives.",
        },
        ColumnInfo { name: "complete", kind: ColumnType::Bool, optional: false, doc: "Whether it ended normally." },
        ColumnInfo { name: "made_by", kind: ColumnType::Text, optional: false, doc: "The program that made it." },
        ColumnInfo {
            name: "log_bytes",
            kind: ColumnType::I64,
            optional: false,
            doc: "Size of its log; 0 if it has none.",
        },
    ],
};

/// Every table of a fleet.
pub fn tables() -> impl Iterator<Item = &'static TableInfo> {
    TABLES.iter().chain([&ARCHIVES_TABLE])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_columns_hide_no_column_of_a_table() {
        for table in tables() {
            let leading = LEADING_COLUMNS.iter().map(|column| column.name).chain([DATE_COLUMN]);
            for name in leading {
                assert!(table.columns.iter().all(|column| column.name != name), "{}.{name}", table.name);
            }
        }
    }

    #[test]
    fn the_table_of_archives_has_its_own_name() {
        assert!(TABLES.iter().all(|table| table.name != ARCHIVES_TABLE.name));
    }
}
