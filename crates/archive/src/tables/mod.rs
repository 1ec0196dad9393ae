//! `tables/`: the rows, one Parquet file per table, so that DuckDB, pandas or Spark read them without Fathom.
//!
//! The schema of each file is that of [`model::table`], and nothing in this crate refers to a table by name: a new column
//! takes one line there and none here. Integers are INT64, texts are UTF-8, all files are compressed with ZSTD and divided
//! into row groups of 64 Ki rows, which is also what a writer holds in memory. Tables of versions 1 and 2 were compressed
//! with Snappy and declared their numbers unsigned; they can be read as well.
//!
//! The tables of 10,000 INSERTs take 29 MB with ZSTD and 46 MB with Snappy (as with LZ4), and linking them 2.9 s of CPU time
//! instead of 2.4; and Spark's Snappy does not start where a musl library is installed, as it is wherever Fathom is built.
//!
//! Readers match columns by name. A missing column is empty if it is optional, has the value that its absence meant in
//! an older version if [`crate::versions`] defines one, and is an error otherwise; a column that is not requested is
//! skipped.

mod bound;
mod column;
mod pages;
mod read;
mod source;
mod write;

pub(crate) use bound::ReadLimit;
pub(crate) use column::Sink;
pub use read::read_file;
pub(crate) use read::{open_checked, read, read_columns};
pub use source::LogState;
pub(crate) use source::{cut_log, damaged_log_error as damaged_log, log_of};
pub use write::TablesWriter;
pub(crate) use write::rewrite;

use crate::error::{Error, IoResultExt, Result};
use model::table::{ColumnType, TableInfo};
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows of a row group.
const GROUP_ROWS: usize = 64 << 10;

/// `tables/index.json`: which tables exist. Archives of older versions have only those with rows; without the index a deleted file
/// would look like a table that never had a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// [`model::table::TABLE_VERSION`] of the writer.
    pub table_version: u32,
    /// Who wrote it.
    pub made_by: String,
    /// Rows of each table.
    pub rows: BTreeMap<String, u64>,
    /// CRC-32 of each table's file: a Parquet page has no checksum, and a flipped bit in it would be a wrong number.
    /// Older archives have none.
    #[serde(default)]
    pub sums: BTreeMap<String, u32>,
    /// The log that they were made from; older archives do not name it, and some have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogState>,
}

impl Index {
    /// Its path in an archive.
    pub fn path(dir: &Path) -> PathBuf {
        tables_directory(dir).join("index.json")
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`Error::NotLinked`] if there is none, [`Error::Damaged`], [`Error::Newer`].
    pub fn read(dir: &Path) -> Result<Self> {
        let path = Self::path(dir);
        let bytes = match crate::own_file::read(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(Error::NotLinked { path: dir.into() }),
            other => other.with_action("read", &path)?,
        };
        let index: Self = serde_json::from_slice(&bytes).map_err(|e| Error::damaged_table(&path, e))?;
        crate::versions::check_version(
            &path,
            "set of tables",
            index.table_version,
            model::table::TABLE_VERSION,
            &index.made_by,
        )?;
        Ok(index)
    }
}

fn tables_directory(dir: &Path) -> PathBuf {
    dir.join("tables")
}

/// The path of a table's file in an archive.
pub fn table_path(dir: &Path, table: &str) -> PathBuf {
    tables_directory(dir).join(format!("{table}.parquet"))
}

/// Removes the tables, and the leftovers of an interrupted writer.
pub(crate) fn remove_tables(dir: &Path) -> Result<()> {
    for name in ["tables", "tables.tmp", "tables.old"] {
        let path = dir.join(name);
        match std::fs::remove_dir_all(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).with_action("remove", &path),
            _ => {}
        }
    }
    Ok(())
}

/// A table's schema in Parquet.
fn parquet_schema(table: &TableInfo) -> Result<TypePtr, ParquetError> {
    let fields = table.columns.iter().map(|column| {
        let (physical, logical) = match column.kind {
            ColumnType::I64 => (Physical::INT64, Some(LogicalType::integer(64, true))),
            ColumnType::F64 => (Physical::DOUBLE, None),
            ColumnType::Bool => (Physical::BOOLEAN, None),
            ColumnType::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let repetition = if column.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        Type::primitive_type_builder(column.name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .with_converted_type(ConvertedType::NONE)
            .build()
            .map(Arc::new)
    });
    let fields = fields.collect::<Result<_, _>>()?;
    Type::group_type_builder(table.name).with_fields(fields).build().map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::table::TABLES;
    use parquet::basic::IntType;

    /// Engines disagree on arithmetic with unsigned integers.
    #[test]
    fn no_table_column_is_unsigned() {
        for table in TABLES {
            for field in parquet_schema(table).unwrap().get_fields() {
                let logical = field.get_basic_info().logical_type_ref();
                let signed = match logical {
                    Some(LogicalType::Integer(IntType { bit_width: 64, is_signed })) => *is_signed,
                    other => matches!(other, None | Some(LogicalType::String)),
                };
                assert!(signed, "{}.{} is {logical:?}", table.name, field.name());
            }
        }
    }
}
