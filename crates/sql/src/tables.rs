//! A table of many archives as one: the Parquet files that hold its rows, each with the values that identify them.
//!
//! A file of an archive has neither device nor run; they are attached to its rows while it is read, as values that cost nothing and
//! by which whole files can be skipped. A file of a fleet has all of them except the date. An archive without such a table adds no
//! rows.

use anyhow::Result;
use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{Result as Answer, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::DataFusionError;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use model::table::{ColumnInfo, ColumnType, TableInfo};
use object_store::path::Path;
use std::fmt;
use std::sync::Arc;

/// The Arrow type of a column.
pub fn arrow_type(kind: ColumnType) -> DataType {
    match kind {
        ColumnType::I64 => DataType::Int64,
        ColumnType::F64 => DataType::Float64,
        ColumnType::Bool => DataType::Boolean,
        ColumnType::Text => DataType::Utf8View,
    }
}

fn field(column: &ColumnInfo) -> Field {
    Field::new(column.name, arrow_type(column.kind), column.optional)
}

/// Fields of the columns that identify rows, in the order in which users see them: device, run, date, archive.
fn leading_fields() -> Vec<Field> {
    let mut fields: Vec<Field> = fleet::LEADING_COLUMNS.iter().map(field).collect();
    fields.insert(2, Field::new(fleet::DATE_COLUMN, DataType::Date32, false));
    fields
}

/// The schema of a table as users see it.
pub fn schema(table: &TableInfo) -> Schema {
    Schema::new(leading_fields().into_iter().chain(table.columns.iter().map(field)).collect::<Vec<_>>())
}

/// One file with rows of a table.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where it is in its store.
    pub location: Path,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its rows.
    pub rows: u64,
    /// Values of the columns that are not in the file, in the table's order.
    pub values: Vec<ScalarValue>,
}

/// The source of a table's files; called when a query reads the table, so that a file is checked only if it is needed.
pub trait Parts: Send + Sync {
    /// The files.
    ///
    /// # Errors
    /// A file differs from what was written.
    fn parts(&self) -> Result<Vec<Part>>;
}

/// A table over files.
pub struct FilesTable {
    schema: SchemaRef,
    files: TableSchema,
    /// The index of each column of `schema` in `files`.
    places: Vec<usize>,
    store: ObjectStoreUrl,
    parts: Box<dyn Parts>,
}

impl fmt::Debug for FilesTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilesTable").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl FilesTable {
    /// Creates the table of these files; `attached` names the columns that are not in them.
    pub fn new(table: &TableInfo, attached: &[&str], store: ObjectStoreUrl, parts: Box<dyn Parts>) -> Self {
        let schema = Arc::new(schema(table));
        let (outside, inside): (Vec<_>, Vec<_>) =
            schema.fields().iter().cloned().partition(|field| attached.contains(&field.name().as_str()));
        let files = TableSchema::builder(Arc::new(Schema::new(inside))).with_table_partition_cols(outside).build();
        let place = |field: &Arc<Field>| files.table_schema().index_of(field.name()).unwrap_or(0);
        let places = schema.fields().iter().map(place).collect();
        Self { schema, files, places, store, parts }
    }
}

#[async_trait]
impl TableProvider for FilesTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Answer<Arc<dyn ExecutionPlan>> {
        let parts = tokio::task::block_in_place(|| self.parts.parts());
        let parts = parts.map_err(|error| DataFusionError::External(error.into()))?;
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let wanted = projection.unwrap_or(&all);
        if parts.is_empty() {
            return Ok(Arc::new(EmptyExec::new(Arc::new(self.schema.project(wanted)?))));
        }
        // The planner pushes filters down to the files.
        let source = ParquetSource::new(self.files.clone());
        let rows: u64 = parts.iter().map(|part| part.rows).sum();
        let mut statistics = Statistics::new_unknown(self.files.table_schema());
        // The counts of an index are a hint for the order of joins, not a result.
        statistics.num_rows = Precision::Inexact(usize::try_from(rows).unwrap_or(usize::MAX));
        statistics.total_byte_size = Precision::Inexact(parts.iter().map(|part| part.bytes as usize).sum());
        let config = FileScanConfigBuilder::new(self.store.clone(), Arc::new(source))
            .with_file_groups(file_groups(parts, state.config().target_partitions()))
            .with_statistics(statistics)
            .with_projection_indices(Some(wanted.iter().map(|&i| self.places[i]).collect()))?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

/// Distributes files to this many readers, with about as many bytes each; the order of the files is kept within a
/// group.
fn file_groups(parts: Vec<Part>, readers: usize) -> Vec<FileGroup> {
    let whole: u64 = parts.iter().map(|part| part.bytes.max(1)).sum();
    let share = whole.div_ceil(readers.max(1) as u64).max(1);
    let mut groups: Vec<Vec<PartitionedFile>> = vec![Vec::new()];
    let mut filled = 0;
    for part in parts {
        if filled >= share {
            groups.push(Vec::new());
            filled = 0;
        }
        filled += part.bytes.max(1);
        let mut file = PartitionedFile::new("", part.bytes).with_partition_values(part.values);
        // As it is, without encoding it again.
        file.object_meta.location = part.location;
        if let Some(group) = groups.last_mut() {
            group.push(file);
        }
    }
    groups.into_iter().map(FileGroup::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_divided_evenly_and_in_order() {
        let part = |n: u64| Part { location: Path::from(n.to_string()), bytes: 10, rows: 1, values: vec![] };
        let shared = file_groups((0..10).map(part).collect(), 3);
        let sizes: Vec<usize> = shared.iter().map(FileGroup::len).collect();
        assert_eq!(sizes, [4, 4, 2]);
        assert_eq!(file_groups(vec![part(1)], 8).len(), 1);
    }

    #[test]
    fn every_table_begins_with_the_same_four_columns() {
        for table in fleet::tables() {
            let schema = schema(table);
            let names: Vec<&str> = schema.fields().iter().take(4).map(|field| field.name().as_str()).collect();
            assert_eq!(names, ["device", "run", "date", "archive"], "{}", table.name);
        }
    }
}
