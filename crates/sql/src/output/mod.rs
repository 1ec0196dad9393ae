//! A result as text or file: a table to read, CSV, JSON and Parquet for programs.
//!
//! Rows are written as they come, so that a result may be larger than memory. Texts come from traced programs and are thus
//! untrusted: in a table they cannot control the terminal, in CSV they are not formulas.

mod csv;
mod json;
mod plan;
mod table;

use anyhow::{Context as _, Result};
use datafusion::arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;
pub use fleet::args::Format;
use futures_util::StreamExt;
use model::table::{Cell, ColumnType};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Prints a text on standard output, at once.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
}

/// Takes the rows of a result, some at a time.
trait Sink {
    /// Some rows.
    fn rows(&mut self, rows: &RecordBatch) -> Result<()>;
    /// Ends the output.
    fn finish(&mut self) -> Result<()>;
}

struct ParquetFile<W: Write + Send>(Option<ArrowWriter<W>>);

impl<W: Write + Send> Sink for ParquetFile<W> {
    fn rows(&mut self, rows: &RecordBatch) -> Result<()> {
        if let Some(out) = &mut self.0 {
            out.write(rows)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(out) = self.0.take() {
            out.close()?;
        }
        Ok(())
    }
}

/// Why there is no result.
#[derive(Debug)]
pub enum OutputError {
    /// The query failed.
    Query(DataFusionError),
    /// Its rows could not be written.
    Output(anyhow::Error),
}

impl From<OutputError> for anyhow::Error {
    fn from(failed: OutputError) -> Self {
        match failed {
            OutputError::Query(error) => error.into(),
            OutputError::Output(error) => error,
        }
    }
}

/// Writes a result; returns the number of its rows.
///
/// # Errors
/// The query fails while it runs, or the rows cannot be written.
pub async fn write(
    mut rows: SendableRecordBatchStream,
    format: Format,
    out: &mut (dyn Write + Send),
) -> Result<u64, OutputError> {
    let schema = rows.schema();
    let mut sink = make_sink(schema, format, out).map_err(OutputError::Output)?;
    let mut count = 0;
    while let Some(batch) = rows.next().await {
        let batch = batch.map_err(OutputError::Query)?;
        count += batch.num_rows() as u64;
        sink.rows(&batch).map_err(OutputError::Output)?;
    }
    sink.finish().map_err(OutputError::Output)?;
    Ok(count)
}

fn make_sink<'a>(schema: SchemaRef, format: Format, out: &'a mut (dyn Write + Send)) -> Result<Box<dyn Sink + 'a>> {
    Ok(match format {
        Format::Table if plan::Plan::is(&schema) => Box::new(plan::Plan::new(out)),
        Format::Table => Box::new(table::Table::new(schema, out)),
        Format::Csv => Box::new(csv::Csv::new(schema, out)?),
        Format::Json => Box::new(json::Json::new(schema, out)?),
        Format::Parquet => {
            let properties =
                WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
            Box::new(ParquetFile(Some(ArrowWriter::try_new(out, schema, Some(properties))?)))
        }
    })
}

/// Whether a name stands for standard output, as for every verb of `fathom`. A file of that name is `./-`.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes a file atomically: under another name until `fill` has succeeded, and then replaces an existing one. A target that is not a
/// file, such as a pipe or /dev/null, is written to directly, and so is standard output.
///
/// # Errors
/// Those of `fill`, and the file cannot be written; an existing file stays then.
pub async fn whole_file<T>(
    path: &Path,
    fill: impl AsyncFnOnce(&mut (dyn Write + Send)) -> Result<T, OutputError>,
) -> Result<T, OutputError> {
    let failed = |error: std::io::Error| {
        OutputError::Output(anyhow::Error::new(error).context(format!("writing {}", path.display())))
    };
    if is_stdout(path) {
        let mut out = std::io::BufWriter::new(std::io::stdout());
        let filled = fill(&mut out).await?;
        out.flush().map_err(failed)?;
        return Ok(filled);
    }
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if std::fs::metadata(&target).is_ok_and(|about| !about.is_file()) {
        let mut out = std::io::BufWriter::new(std::fs::File::options().write(true).open(&target).map_err(failed)?);
        let filled = fill(&mut out).await?;
        out.flush().map_err(failed)?;
        return Ok(filled);
    }
    let directory = target.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let file = tempfile::Builder::new()
        .prefix(&format!(".{name}."))
        .suffix(".tmp")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .tempfile_in(directory)
        .map_err(failed)?;
    let mut out = std::io::BufWriter::new(file);
    let filled = fill(&mut out).await?;
    let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(&target).map_err(|error| failed(error.error))?;
    Ok(filled)
}

/// Values of a column as an array of the engine. A cell of another type is empty.
pub fn array<'a>(kind: ColumnType, cells: impl Iterator<Item = &'a Cell>) -> ArrayRef {
    match kind {
        ColumnType::I64 => Arc::new(Int64Array::from_iter(cells.map(|cell| match cell {
            Cell::I64(x) => Some(*x),
            _ => None,
        }))),
        ColumnType::F64 => Arc::new(Float64Array::from_iter(cells.map(|cell| match cell {
            Cell::F64(x) => Some(*x),
            _ => None,
        }))),
        ColumnType::Bool => Arc::new(BooleanArray::from_iter(cells.map(|cell| match cell {
            Cell::Bool(x) => Some(*x),
            _ => None,
        }))),
        ColumnType::Text => Arc::new(StringViewArray::from_iter(cells.map(|cell| match cell {
            Cell::Text(x) => Some(&**x),
            _ => None,
        }))),
    }
}

/// A value of a column as text; empty if there is none.
fn text(column: &ArrayRef, row: usize) -> Result<String> {
    if column.is_null(row) {
        return Ok(String::new());
    }
    // By default a value that cannot be formatted becomes the text of an error, indistinguishable from a result.
    let strict = FormatOptions::new().with_display_error(false);
    let shown = ArrayFormatter::try_new(column, &strict).and_then(|one| one.value(row).try_to_string());
    shown.context("a value cannot be shown")
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::TimestampSecondArray;

    #[test]
    fn value_without_text_is_an_error() {
        let column: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0, i64::MAX]));
        assert_eq!(text(&column, 0).unwrap(), "1970-01-01T00:00:00");
        assert!(text(&column, 1).is_err());
    }
}
