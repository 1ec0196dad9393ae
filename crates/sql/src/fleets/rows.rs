//! Writes rows of many archives to files, one per table: buffered as columns, written as row groups, in bounded memory.

use super::store::Store;
use crate::output::array;
use crate::tables::arrow_type;
use anyhow::{Result, anyhow};
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_writer::ArrowWriterOptions;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::metadata::KeyValue;
use datafusion::parquet::file::properties::WriterProperties;
use fleet::commits::{self, DataFile};
use model::table::{Cell, ColumnInfo, TABLE_VERSION, TableInfo};
use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _};
use std::sync::Arc;
use tempfile::NamedTempFile;

/// Rows buffered as cells.
const BUFFERED_ROWS_MAX: usize = 8192;

/// Rows of a row group.
const GROUP_ROWS: usize = 128 << 10;

/// A table as stored in a fleet: with the columns that identify rows of several archives, except for the date, which is in the
/// path.
pub fn in_fleet(table: &TableInfo) -> TableInfo {
    use std::sync::{Mutex, PoisonError};
    static KNOWN_COLUMNS: Mutex<BTreeMap<&str, &[ColumnInfo]>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN_COLUMNS.lock().unwrap_or_else(PoisonError::into_inner);
    // Each of a few tables once, so that nothing is leaked twice.
    let columns = *known
        .entry(table.name)
        .or_insert_with(|| Vec::leak(fleet::LEADING_COLUMNS.iter().chain(table.columns).copied().collect::<Vec<_>>()));
    TableInfo { name: table.name, doc: table.doc, columns }
}

struct File {
    info: TableInfo,
    schema: Arc<Schema>,
    out: ArrowWriter<std::fs::File>,
    file: NamedTempFile,
    buffered: Vec<Vec<Cell>>,
    rows: u64,
}

impl File {
    fn create(store: &Store, info: TableInfo) -> Result<Self> {
        let field = |column: &ColumnInfo| Field::new(column.name, arrow_type(column.kind), column.optional);
        let schema = Arc::new(Schema::new(info.columns.iter().map(field).collect::<Vec<_>>()));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_created_by(made_by())
            .set_key_value_metadata(Some(vec![
                KeyValue::new("fathom.table".into(), info.name.to_string()),
                KeyValue::new("fathom.table_version".into(), TABLE_VERSION.to_string()),
            ]))
            .build();
        let file = store.temporary()?;
        // Without Arrow's own schema: texts are plain UTF-8 to every engine, and views only to this one.
        let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
        let out = ArrowWriter::try_new_with_options(file.reopen()?, schema.clone(), options);
        let out = out.map_err(|error| write_error(info.name, error))?;
        Ok(Self { info, schema, out, file, buffered: Vec::new(), rows: 0 })
    }

    fn push(&mut self, row: Vec<Cell>) -> Result<()> {
        self.buffered.push(row);
        self.rows += 1;
        if self.buffered.len() >= BUFFERED_ROWS_MAX { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.buffered);
        let column =
            |(at, column): (usize, &ColumnInfo)| -> ArrayRef { array(column.kind, rows.iter().map(|row| &row[at])) };
        let columns = self.info.columns.iter().enumerate().map(column).collect();
        let batch = RecordBatch::try_new(self.schema.clone(), columns)?;
        self.out.write(&batch).map_err(|error| write_error(self.info.name, error))
    }

    /// Bytes written, and those pending.
    fn bytes(&self) -> u64 {
        (self.out.bytes_written() + self.out.in_progress_size()) as u64
    }
}

/// The error that rows of a table cannot be written, with the message of the cause.
fn write_error(table: &str, error: ParquetError) -> anyhow::Error {
    let why = match error {
        ParquetError::External(why) => anyhow!(why),
        other => other.into(),
    };
    why.context(format!("writing rows of {table}"))
}

/// Files of one day that are being filled.
pub struct Files {
    store: Store,
    date: String,
    open: BTreeMap<&'static str, File>,
}

impl Files {
    /// Creates an empty set of files.
    pub fn new(store: &Store, date: &str) -> Self {
        Self { store: store.clone(), date: date.into(), open: BTreeMap::new() }
    }

    /// Adds a row, with the leading columns, to its table.
    pub fn push(&mut self, table: &'static TableInfo, row: Vec<Cell>) -> Result<()> {
        if !self.open.contains_key(table.name) {
            self.open.insert(table.name, File::create(&self.store, in_fleet(table))?);
        }
        match self.open.get_mut(table.name) {
            Some(file) => file.push(row),
            None => Ok(()),
        }
    }

    /// Size of the largest file.
    pub fn largest(&self) -> u64 {
        self.open.values().map(File::bytes).max().unwrap_or(0)
    }

    /// Completes the files and moves them into place, where no commit names them yet.
    pub async fn finish(self) -> Result<Vec<DataFile>> {
        let mut whole = Vec::new();
        for (table, mut file) in self.open {
            file.flush()?;
            file.out.close().map_err(|error| write_error(table, error))?;
            let bytes = file.file.as_file().metadata()?.len();
            let sum = checksum(file.file.as_file_mut())?;
            let path = format!("{}/part-{}.parquet", commits::data_directory(table, &self.date), unique_name());
            self.store.put_file(file.file, &path).await?;
            whole.push(DataFile {
                path,
                table: table.into(),
                date: self.date.clone(),
                rows: file.rows,
                bytes,
                table_version: TABLE_VERSION,
                sum,
            });
        }
        Ok(whole)
    }
}

/// CRC-32 of a file, which is rewound first.
pub fn checksum(file: &mut std::fs::File) -> Result<u32> {
    file.rewind()?;
    let (mut sum, mut bytes) = (crc32fast::Hasher::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut bytes)? {
            0 => break,
            n => sum.update(&bytes[..n]),
        }
    }
    file.rewind()?;
    Ok(sum.finalize())
}

/// A unique name: 128 random bits.
pub fn unique_name() -> String {
    let mut bytes = [0; 16];
    let read =
        std::fs::File::open("/dev/urandom").and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    if read.is_err() {
        // Without it: the process and the time.
        let now = archive::unix_now_ns().to_le_bytes();
        bytes[..8].copy_from_slice(&now);
        bytes[8..12].copy_from_slice(&std::process::id().to_le_bytes());
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of this program.
pub fn made_by() -> String {
    format!("Fathom {}", env!("CARGO_PKG_VERSION"))
}
