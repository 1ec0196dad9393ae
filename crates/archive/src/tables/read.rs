//! Reads a table, trusting nothing in the file, with a few thousand rows in memory at a time.

use super::{Index, file};
use crate::error::{Error, Result, Tried};
use crate::versions;
use model::table::{Cell, ColumnInfo, ColumnType, TableInfo};
use parquet::basic::{Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, RowGroupReader, SerializedFileReader};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Rows taken from a row group at a time.
const BATCH: usize = 4096;

/// Hands each row of a table of the archive `dir` to `each`, as cells in the order of `table`.
pub(crate) fn read(dir: &Path, table: &TableInfo, each: &mut dyn FnMut(&[Cell])) -> Result<()> {
    let index = Index::read(dir)?;
    let Some(&expected) = index.rows.get(table.name) else { return Ok(()) };
    let path = file(dir, table.name);
    let file = sound(&index, table.name, &path)?;
    let rows = read_file(file, &path, table, index.table_version, each)?;
    if rows != expected {
        return Err(Error::damaged_table(&path, format!("it has {rows} rows, but index.json says {expected}")));
    }
    Ok(())
}

/// Opens a table's file, if its content is as written.
///
/// # Errors
/// [`Error::Damaged`] if it is not, [`Error::Io`].
pub(crate) fn sound(index: &Index, table: &str, path: &Path) -> Result<File> {
    let mut file = match crate::own_file::open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::damaged_table(path, "the file is missing"));
        }
        other => other.tried("open", path)?,
    };
    let Some(&expected) = index.sums.get(table) else { return Ok(file) };
    let (mut sum, mut bytes) = (crc32fast::Hasher::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut bytes).tried("read", path)? {
            0 => break,
            n => sum.update(&bytes[..n]),
        }
    }
    if sum.finalize() != expected {
        return Err(Error::damaged_table(path, "checksum mismatch (index.json has a different one)"));
    }
    file.rewind().tried("read", path)?;
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
    each: &mut dyn FnMut(&[Cell]),
) -> Result<u64> {
    let damaged = |e: ParquetError| Error::damaged_table(path, e);
    let reader = SerializedFileReader::new(source).map_err(damaged)?;
    let places = places(&reader, path, table, version)?;
    let mut rows = 0;
    for at in 0..reader.num_row_groups() {
        let group = reader.get_row_group(at).map_err(damaged)?;
        rows += read_group(&*group, &places, each).map_err(damaged)?;
    }
    Ok(rows)
}

/// Where the values of a column come from.
enum ColumnSource {
    /// The file's column of this number. The value `nothing` in it means empty.
    File { column: usize, optional: bool, nothing: Option<Cell> },
    /// The file lacks it, and this is its value.
    Always(Cell),
}

fn places<R: ChunkReader + 'static>(
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
        let nothing = versions::meant_nothing(table.name, wanted.name, version);
        Ok(ColumnSource::File { column, optional: repetition == Repetition::OPTIONAL, nothing })
    };
    table.columns.iter().map(place).collect()
}

fn read_group(
    group: &dyn RowGroupReader,
    places: &[ColumnSource],
    each: &mut dyn FnMut(&[Cell]),
) -> Result<u64, ParquetError> {
    let rows = u64::try_from(group.metadata().num_rows())
        .map_err(|_| ParquetError::General("a row group of negative length".into()))?;
    let mut columns = places
        .iter()
        .map(|place| match place {
            ColumnSource::File { column, optional, nothing } => {
                let reader = Box::new(group.get_column_reader(*column)?);
                Ok(Column::File { reader, optional: *optional, nothing: nothing.as_ref(), cells: Vec::new() })
            }
            ColumnSource::Always(cell) => Ok(Column::Always(cell)),
        })
        .collect::<Result<Vec<_>, ParquetError>>()?;
    let mut done = 0;
    let mut row = vec![Cell::Empty; columns.len()];
    while done < rows {
        let batch = BATCH.min(usize::try_from(rows - done).unwrap_or(BATCH));
        columns.iter_mut().try_for_each(|column| column.fill(batch))?;
        for at in 0..batch {
            for (cell, column) in row.iter_mut().zip(&mut columns) {
                *cell = match column {
                    Column::File { cells, .. } => std::mem::replace(&mut cells[at], Cell::Empty),
                    Column::Always(cell) => cell.clone(),
                };
            }
            each(&row);
        }
        done += batch as u64;
    }
    Ok(rows)
}

/// Short texts that were read before. Most columns of text hold few words (a layer, a call's name, a request's flags), and
/// otherwise a span would take more memory for its words than for all its numbers.
struct Words(BTreeSet<&'static str>);

/// They are kept for the life of the program, so there must not be many: 32 KiB at most.
const MOST_WORDS: usize = 1024;
const LONGEST_WORD: usize = 32;

static WORDS: Mutex<Words> = Mutex::new(Words(BTreeSet::new()));

impl Words {
    fn get(&mut self, text: &str) -> Cow<'static, str> {
        if let Some(&word) = self.0.get(text) {
            return Cow::Borrowed(word);
        }
        if text.len() > LONGEST_WORD || self.0.len() >= MOST_WORDS {
            return Cow::Owned(text.to_owned());
        }
        let word: &'static str = Box::leak(text.to_owned().into_boxed_str());
        self.0.insert(word);
        Cow::Borrowed(word)
    }
}

enum Column<'a> {
    File { reader: Box<ColumnReader>, optional: bool, nothing: Option<&'a Cell>, cells: Vec<Cell> },
    Always(&'a Cell),
}

impl Column<'_> {
    /// Reads exactly `rows` cells.
    fn fill(&mut self, rows: usize) -> Result<(), ParquetError> {
        let Column::File { reader, optional, nothing, cells } = self else { return Ok(()) };
        cells.clear();
        let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut **reader {
            ColumnReader::Int64ColumnReader(r) => take(r, rows, *optional, cells, |x| Ok(Cell::I64(*x))),
            ColumnReader::DoubleColumnReader(r) => take(r, rows, *optional, cells, |x| Ok(Cell::F64(*x))),
            ColumnReader::BoolColumnReader(r) => take(r, rows, *optional, cells, |x| Ok(Cell::Bool(*x))),
            ColumnReader::ByteArrayColumnReader(r) => take(r, rows, *optional, cells, |x: &ByteArray| {
                let text = std::str::from_utf8(x.data()).map_err(|e| ParquetError::General(e.to_string()))?;
                Ok(Cell::Text(words.get(text)))
            }),
            _ => Err(ParquetError::General("a column chunk has a different type than its column".into())),
        }?;
        if let Some(nothing) = nothing {
            cells.iter_mut().filter(|cell| *cell == *nothing).for_each(|cell| *cell = Cell::Empty);
        }
        Ok(())
    }
}

fn take<D: DataType>(
    reader: &mut ColumnReaderImpl<D>,
    rows: usize,
    optional: bool,
    cells: &mut Vec<Cell>,
    mut cell: impl FnMut(&D::T) -> Result<Cell, ParquetError>,
) -> Result<(), ParquetError> {
    let (mut present, mut values) = (Vec::new(), Vec::new());
    let mut records = 0;
    while records < rows {
        let (more, _, _) = reader.read_records(rows - records, optional.then_some(&mut present), None, &mut values)?;
        if more == 0 {
            return Err(ParquetError::EOF(format!("a column ends {} rows too early", rows - records)));
        }
        records += more;
    }
    let mut values = values.iter();
    let short = || ParquetError::EOF("a column has fewer values than rows".into());
    for at in 0..rows {
        let there = !optional || *present.get(at).ok_or_else(short)? > 0;
        cells.push(if there { cell(values.next().ok_or_else(short)?)? } else { Cell::Empty });
    }
    Ok(())
}
