//! Writes all tables of an archive at once: into `tables.tmp`, which becomes `tables` only when every file is complete
//! and on disk.

use super::{GROUP_ROWS, Index, LogState, parquet_schema, tables_directory};
use crate::error::{Error, IoResultExt, Result};
use crate::meta::replace_file;
use model::table::{Cell, ColumnInfo, ColumnType, Row, TABLE_VERSION, TABLES, TableInfo};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn unfinished_directory(dir: &Path) -> PathBuf {
    dir.join("tables.tmp")
}

/// Writes the tables of an archive. Dropped before [`TablesWriter::finish`], it leaves the old tables as they were.
pub struct TablesWriter {
    dir: PathBuf,
    tmp: PathBuf,
    tables: BTreeMap<&'static str, Table>,
    log: Option<LogState>,
    finished: bool,
}

impl TablesWriter {
    /// Lists all files that an unfinished writer may have in the archive `dir`, and last their directory: for a process that is ended
    /// by a signal and drops nothing.
    pub fn leftover_paths(dir: &Path) -> Vec<PathBuf> {
        let tmp = unfinished_directory(dir);
        let tables = TABLES.iter().map(|table| format!("{}.parquet", table.name));
        let index = ["index.json", "index.json.tmp"].map(String::from);
        tables.chain(index).map(|name| tmp.join(name)).chain([tmp.clone()]).collect()
    }

    /// Begins new tables in the archive `dir`, of its log as it is now.
    pub fn create(dir: &Path) -> Result<Self> {
        let tmp = unfinished_directory(dir);
        match fs::remove_dir_all(&tmp) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).with_action("remove", &tmp),
            _ => {}
        }
        fs::create_dir(&tmp).with_action("create the directory", &tmp)?;
        let mut writer = Self { dir: dir.into(), tmp, tables: BTreeMap::new(), log: None, finished: false };
        writer.log = LogState::from_archive(dir)?;
        Ok(writer)
    }

    /// Appends a row to its table.
    ///
    /// # Errors
    /// [`Error::Io`], such as for a full disk.
    pub fn push<T: Row>(&mut self, row: &T) -> Result<()> {
        self.table(T::TABLE)?.push(row.cells())
    }

    fn table(&mut self, info: TableInfo) -> Result<&mut Table> {
        Ok(match self.tables.entry(info.name) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(new) => {
                let path = self.tmp.join(format!("{}.parquet", info.name));
                new.insert(Table::create(path, info)?)
            }
        })
    }

    /// Completes the tables, each of which exists if only without rows, and replaces the old ones.
    ///
    /// # Errors
    /// [`Error::Io`]; the old tables are still there then.
    pub fn finish(mut self) -> Result<()> {
        // A query of a table that an engine does not find fails, where one of no rows has an answer.
        for info in TABLES {
            self.table(*info)?;
        }
        let (mut rows, mut sums) = (BTreeMap::new(), BTreeMap::new());
        for (name, table) in std::mem::take(&mut self.tables) {
            let (count, sum) = table.finish()?;
            rows.insert(name.to_string(), count);
            sums.insert(name.to_string(), sum);
        }
        let made_by = format!("Fathom {}", env!("CARGO_PKG_VERSION"));
        let index = Index { table_version: TABLE_VERSION, made_by, rows, sums, log: self.log };
        let path = self.tmp.join("index.json");
        let bytes = serde_json::to_vec_pretty(&index).map_err(std::io::Error::from).with_action("write", &path)?;
        replace_file(&path, &bytes)?;
        let (place, old) = (tables_directory(&self.dir), self.dir.join("tables.old"));
        match fs::remove_dir_all(&old) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).with_action("remove", &old),
            _ => {}
        }
        // Between these two renames an archive has no tables, which does no harm: they are made again from the log.
        if place.exists() {
            fs::rename(&place, &old).with_action("move away", &place)?;
        }
        fs::rename(&self.tmp, &place).with_action("put in place", &self.tmp)?;
        self.finished = true;
        if old.exists() {
            fs::remove_dir_all(&old).with_action("remove", &old)?;
        }
        File::open(&self.dir).and_then(|d| d.sync_all()).with_action("sync", &self.dir)
    }
}

/// Writes a table of the archive `dir` into another file, as this version writes it.
pub(crate) fn rewrite(dir: &Path, table: &TableInfo, path: &Path) -> Result<()> {
    let mut out = Table::create(path.into(), *table)?;
    let mut written = Ok(());
    super::read(dir, table, &mut |cells| {
        // The reader cannot be stopped; further rows are ignored.
        if written.is_ok() {
            written = out.push(cells.to_vec());
        }
    })?;
    written.and_then(|()| out.finish()).map(drop)
}

impl Drop for TablesWriter {
    fn drop(&mut self) {
        if !self.finished {
            // An error cannot be reported here; the next writer removes the directory, too.
            let _ = fs::remove_dir_all(&self.tmp);
        }
    }
}

/// The values of one column in Parquet's form: those that are present, and which rows have one.
struct Buffer {
    values: Values,
    present: Option<Vec<i16>>,
}

enum Values {
    Int(Vec<i64>),
    Double(Vec<f64>),
    Bool(Vec<bool>),
    /// A few texts are written often (kinds, flags, names): each is stored once.
    Text(Vec<ByteArray>, HashMap<String, ByteArray>),
}

/// A file, and the checksum of what was written to it.
struct ChecksummedFile {
    file: File,
    sum: crc32fast::Hasher,
}

impl Write for ChecksummedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

struct Table {
    path: PathBuf,
    info: TableInfo,
    file: SerializedFileWriter<ChecksummedFile>,
    columns: Vec<Buffer>,
    buffered: usize,
    rows: u64,
}

impl Table {
    fn create(path: PathBuf, info: TableInfo) -> Result<Self> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(format!("Fathom {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(vec![
                KeyValue::new("fathom.table".into(), info.name.to_string()),
                KeyValue::new("fathom.table_version".into(), TABLE_VERSION.to_string()),
            ]))
            .build();
        let file = File::create(&path).with_action("create", &path)?;
        let file = ChecksummedFile { file, sum: crc32fast::Hasher::new() };
        let file = parquet_schema(&info)
            .and_then(|schema| SerializedFileWriter::new(file, schema, Arc::new(properties)))
            .map_err(|e| write_error(&path, e))?;
        let columns = info.columns.iter().map(Buffer::new).collect();
        Ok(Self { path, info, file, columns, buffered: 0, rows: 0 })
    }

    fn push(&mut self, cells: Vec<Cell>) -> Result<()> {
        for (buffer, cell) in self.columns.iter_mut().zip(cells) {
            buffer.push(cell);
        }
        self.buffered += 1;
        self.rows += 1;
        if self.buffered >= GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        if self.buffered > 0 {
            let columns = &mut self.columns;
            let written = self.file.next_row_group().and_then(|mut group| {
                columns.iter_mut().try_for_each(|column| column.flush(&mut group))?;
                group.close().map(drop)
            });
            written.map_err(|e| write_error(&self.path, e))?;
            self.buffered = 0;
        }
        Ok(())
    }

    /// Returns the number of rows, and the checksum of the file.
    fn finish(mut self) -> Result<(u64, u32)> {
        self.flush()?;
        debug_assert_eq!(self.columns.len(), self.info.columns.len());
        // Not `into_inner`, which reports a full disk as text only.
        self.file.finish().map_err(|e| write_error(&self.path, e))?;
        let ChecksummedFile { file, sum } = self.file.inner();
        file.sync_all().with_action("sync", &self.path)?;
        Ok((self.rows, sum.clone().finalize()))
    }
}

impl Buffer {
    fn new(column: &ColumnInfo) -> Self {
        let values = match column.kind {
            ColumnType::I64 => Values::Int(Vec::new()),
            ColumnType::F64 => Values::Double(Vec::new()),
            ColumnType::Bool => Values::Bool(Vec::new()),
            ColumnType::Text => Values::Text(Vec::new(), HashMap::new()),
        };
        Self { values, present: column.optional.then(Vec::new) }
    }

    fn push(&mut self, cell: Cell) {
        if let Some(present) = &mut self.present {
            present.push(i16::from(cell != Cell::Empty));
        }
        match (&mut self.values, cell) {
            (Values::Int(all), Cell::I64(x)) => all.push(x),
            (Values::Double(all), Cell::F64(x)) => all.push(x),
            (Values::Bool(all), Cell::Bool(x)) => all.push(x),
            (Values::Text(all, known), Cell::Text(x)) => {
                let text = known.get(&*x).cloned().unwrap_or_else(|| {
                    let text = ByteArray::from(&*x);
                    // Texts that do not recur (paths, SQL) must not fill the memory.
                    if known.len() < 4096 {
                        known.insert(x.into_owned(), text.clone());
                    }
                    text
                });
                all.push(text);
            }
            // `Row::cells` comes from the same declaration as the columns, so this is an empty cell.
            _ => {}
        }
    }

    fn flush(&mut self, group: &mut SerializedRowGroupWriter<'_, ChecksummedFile>) -> Result<(), ParquetError> {
        let present = self.present.as_deref();
        match &mut self.values {
            Values::Int(all) => write_column::<Int64Type>(group, all, present),
            Values::Double(all) => write_column::<DoubleType>(group, all, present),
            Values::Bool(all) => write_column::<BoolType>(group, all, present),
            Values::Text(all, known) => {
                known.clear();
                write_column::<ByteArrayType>(group, all, present)
            }
        }?;
        if let Some(present) = &mut self.present {
            present.clear();
        }
        Ok(())
    }
}

fn write_column<D: DataType>(
    group: &mut SerializedRowGroupWriter<'_, ChecksummedFile>,
    all: &mut Vec<D::T>,
    present: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("fewer columns in the schema than in a row".into());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<D>().write_batch(all, present, None)?;
    column.close()?;
    all.clear();
    Ok(())
}

fn write_error(path: &Path, error: ParquetError) -> Error {
    let source = match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(io) => *io,
            Err(other) => std::io::Error::other(other),
        },
        other => std::io::Error::other(other),
    };
    Error::Io { action: "write", path: path.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::table::MarkRow;

    #[test]
    fn a_full_disk_is_reported_for_any_table_size() {
        for rows in [1, 100, 20_000] {
            let mut table = Table::create("/dev/full".into(), MarkRow::TABLE).unwrap();
            // Texts that do not compress.
            let text = |n: u64| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let row = |n| MarkRow { replicate: Some(n), name: "mode".into(), text: text(n) };
            let written = (0..rows).try_for_each(|n| table.push(row(n).cells())).and_then(|()| table.finish());
            let Err(Error::Io { source, .. }) = written else { panic!("{rows} rows: no error of the disk") };
            assert_eq!(source.kind(), io::ErrorKind::StorageFull, "{rows} rows: {source}");
        }
    }
}
