//! Reads a table, trusting nothing in the file, with a few thousand rows in memory at a time.

use super::bound::ReadLimit;
use super::column::{Column, Sink};
use super::pages;
use super::{Index, table_path};
use crate::error::{Error, IoResultExt, Result};
use crate::versions;
use model::table::{Cell, ColumnInfo, ColumnType, TableInfo};
use parquet::basic::{Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, FileReader, Length, RowGroupReader, SerializedFileReader};
use std::fs::File;
use std::io::{Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Rows taken from a row group at a time.
const BATCH_ROWS: usize = 4096;

/// Hands each row of a table of the archive `dir` to `each`, as cells in the order of `table`.
pub(crate) fn read(dir: &Path, table: &TableInfo, each: &mut dyn FnMut(&[Cell])) -> Result<()> {
    read_into(dir, table, Each::Row(each))
}

/// Hands the columns of a table of the archive `dir` to `sink`.
pub(crate) fn read_columns(dir: &Path, table: &TableInfo, sink: &mut dyn Sink) -> Result<()> {
    read_into(dir, table, Each::Columns(sink))
}

/// Who is handed what is read.
enum Each<'a> {
    Row(&'a mut dyn FnMut(&[Cell])),
    Columns(&'a mut dyn Sink),
}

fn read_into(dir: &Path, table: &TableInfo, each: Each) -> Result<()> {
    let index = Index::read(dir)?;
    let Some(&expected) = index.rows.get(table.name) else { return Ok(()) };
    let path = table_path(dir, table.name);
    let file = open_checked(&index, table.name, &path)?;
    let rows = read_catching_panics(file, &path, table, index.table_version, each)?;
    if rows != expected {
        return Err(Error::damaged_table(&path, format!("it has {rows} rows, but index.json says {expected}")));
    }
    Ok(())
}

/// Opens a table's file, if its content is as written.
///
/// # Errors
/// [`Error::Damaged`] if it is not, [`Error::Io`].
pub(crate) fn open_checked(index: &Index, table: &str, path: &Path) -> Result<File> {
    let mut file = match crate::own_file::open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::damaged_table(path, "the file is missing"));
        }
        other => other.with_action("open", path)?,
    };
    let Some(&expected) = index.sums.get(table) else { return Ok(file) };
    let (mut sum, mut bytes) = (crc32fast::Hasher::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut bytes).with_action("read", path)? {
            0 => break,
            n => sum.update(&bytes[..n]),
        }
    }
    if sum.finalize() != expected {
        return Err(Error::damaged_table(path, "checksum mismatch (index.json has a different one)"));
    }
    file.rewind().with_action("read", path)?;
    Ok(file)
}

/// Hands each row of a Parquet file to `each` and returns how many there were. `path` is for messages; `version` is
/// that of the tables the file belongs to.
///
/// # Errors
/// [`Error::Damaged`] for whatever is wrong with the file; rows before the damage have been handed out then.
pub fn read_file<R: ChunkReader + 'static>(
    source: R,
    path: &Path,
    table: &TableInfo,
    version: u32,
    each: &mut dyn FnMut(&[Cell]),
) -> Result<u64> {
    read_catching_panics(source, path, table, version, Each::Row(each))
}

fn read_catching_panics<R: ChunkReader + 'static>(
    source: R,
    path: &Path,
    table: &TableInfo,
    version: u32,
    each: Each,
) -> Result<u64> {
    // The parquet crate returns errors for most damage, but in places indexes and allocates by numbers from the file; a
    // damaged table must not end the program. Only the state of `each` outlives the unwinding, and its rows are as good
    // as those before any other error.
    let result = catch_unwind(AssertUnwindSafe(|| read_groups(source, path, table, version, each)));
    result.unwrap_or_else(|_| Err(Error::damaged_table(path, "its pages contradict its metadata")))
}

fn read_groups<R: ChunkReader + 'static>(
    source: R,
    path: &Path,
    table: &TableInfo,
    version: u32,
    mut each: Each,
) -> Result<u64> {
    let damaged = |e: ParquetError| Error::damaged_table(path, e);
    let source = Arc::new(source);
    let (bytes, bound) = (source.len(), ReadLimit::for_file_size(source.len()));
    let reader = SerializedFileReader::new(SharedFile(source.clone())).map_err(damaged)?;
    let groups = reader.metadata().row_groups();
    let rows = groups.iter().try_fold(0_u64, |sum, group| Ok(sum.saturating_add(rows_of(group)?))).map_err(damaged)?;
    if bound.is_exceeded_by(rows, table.columns.len()) {
        return Err(Error::damaged_table(path, format!("it claims {rows} rows in {bytes} bytes")));
    }
    let places = column_sources(&reader, path, table, version)?;
    let mut rows = 0;
    for at in 0..reader.num_row_groups() {
        let group = reader.get_row_group(at).map_err(damaged)?;
        let mut held = 0_u64;
        for place in &places {
            if let ColumnSource::File { column, .. } = place {
                let largest = pages::largest_page_bytes(&*source, group.metadata().column(*column)).map_err(damaged)?;
                held = held.saturating_add(largest);
            }
        }
        if bound.is_exceeded_by_texts(held) {
            return Err(Error::damaged_table(path, format!("its pages claim {held} bytes, and the file has {bytes}")));
        }
        rows += read_group(&*group, &places, &mut each).map_err(damaged)?;
        if let Each::Columns(sink) = &mut each {
            sink.group_ends()?;
        }
    }
    Ok(rows)
}

/// A file that is read in two places.
struct SharedFile<R>(Arc<R>);

impl<R: Length> Length for SharedFile<R> {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl<R: ChunkReader> ChunkReader for SharedFile<R> {
    type T = R::T;

    fn get_read(&self, start: u64) -> Result<R::T, ParquetError> {
        self.0.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes, ParquetError> {
        self.0.get_bytes(start, length)
    }
}

/// Where the values of a column come from.
enum ColumnSource {
    /// The file's column of this number. The value `nothing` in it means empty.
    File { column: usize, optional: bool, nothing: Option<Cell> },
    /// The file lacks it, and this is its value.
    Always(Cell),
}

fn column_sources<R: ChunkReader + 'static>(
    reader: &SerializedFileReader<R>,
    path: &Path,
    table: &TableInfo,
    version: u32,
) -> Result<Vec<ColumnSource>> {
    let schema = reader.metadata().file_metadata().schema_descr();
    let place = |wanted: &ColumnInfo| {
        // A nested column's path has several parts, so that it matches no name of ours.
        let found = (0..schema.num_columns()).find(|&i| schema.column(i).path().parts() == [wanted.name]);
        let Some(column) = found else {
            return match versions::missing_column(table.name, wanted.name, version) {
                Some(cell) => Ok(ColumnSource::Always(cell)),
                None if wanted.optional => Ok(ColumnSource::Always(Cell::Empty)),
                None => Err(Error::damaged_table(path, format!("missing column {}", wanted.name))),
            };
        };
        let found = schema.column(column);
        let physical = match wanted.kind {
            ColumnType::I64 => Physical::INT64,
            ColumnType::F64 => Physical::DOUBLE,
            ColumnType::Bool => Physical::BOOLEAN,
            ColumnType::Text => Physical::BYTE_ARRAY,
        };
        let repetition = found.self_type().get_basic_info().repetition();
        if found.physical_type() != physical || repetition == Repetition::REPEATED {
            return Err(Error::damaged_table(path, format!("column {} has an unexpected type", wanted.name)));
        }
        let nothing = versions::former_default(table.name, wanted.name, version);
        Ok(ColumnSource::File { column, optional: repetition == Repetition::OPTIONAL, nothing })
    };
    table.columns.iter().map(place).collect()
}

fn read_group(group: &dyn RowGroupReader, places: &[ColumnSource], each: &mut Each) -> Result<u64, ParquetError> {
    let rows = rows_of(group.metadata())?;
    let mut columns = places
        .iter()
        .map(|place| match place {
            ColumnSource::File { column, optional, nothing } => {
                Column::new(group.get_column_reader(*column)?, *optional, nothing.as_ref()).map(Some)
            }
            ColumnSource::Always(_) => Ok(None),
        })
        .collect::<Result<Vec<_>, ParquetError>>()?;
    let always = |place: &ColumnSource| match place {
        ColumnSource::Always(cell) => cell.clone(),
        ColumnSource::File { .. } => Cell::Empty,
    };
    let mut row: Vec<Cell> = places.iter().map(always).collect();
    let mut done = 0;
    while done < rows {
        let batch = BATCH_ROWS.min(usize::try_from(rows - done).unwrap_or(BATCH_ROWS));
        columns.iter_mut().flatten().try_for_each(|column| column.fill(batch))?;
        match each {
            Each::Row(each) => {
                for _ in 0..batch {
                    for (cell, column) in row.iter_mut().zip(&mut columns) {
                        if let Some(column) = column {
                            *cell = column.next()?;
                        }
                    }
                    each(&row);
                }
            }
            Each::Columns(sink) => {
                for (number, (always, column)) in row.iter().zip(&mut columns).enumerate() {
                    match column {
                        Some(column) => column.drain(batch, number, &mut **sink)?,
                        None => (0..batch).for_each(|_| sink.cell(number, always)),
                    }
                }
            }
        }
        done += batch as u64;
    }
    Ok(rows)
}

fn rows_of(group: &RowGroupMetaData) -> Result<u64, ParquetError> {
    u64::try_from(group.num_rows()).map_err(|_| ParquetError::General("a row group of negative length".into()))
}
