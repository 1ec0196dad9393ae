//! The engine: a read-only session over archives or a fleet.
//!
//! A query's text is untrusted. So statements that define, write or set anything are refused after planning, where no
//! spelling can hide them; no path in a query is taken for a file (`url_table` is off); and the only files that the session's
//! store reaches by name are those that the tables list. A hostile query can still use time and memory: it can be
//! interrupted, and its memory is limited.

use crate::fleets::log::Fleet;
use crate::open::{ATTACHED_COLUMNS, Archives};
use crate::ordinals;
use crate::scratch::{HeldDirectory, Purpose};
use crate::tables::{FilesTable, schema};
use anyhow::{Context as _, Result};
use datafusion::arrow::array::{ArrayRef, Date32Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{DataFrame, SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Visit as _, Visitor};
use model::table::{Cell, TABLES};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The settings of a session.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// What queries may hold in memory before they use files in the temporary directory.
    pub memory_bytes: usize,
    /// Threads that a query may use; 0: as many as there are CPUs.
    pub threads: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { memory_bytes: 1 << 30, threads: 0 }
    }
}

/// Bytes of the longest statement: its syntax tree is dropped recursively, and may be half as deep as the statement is
/// long.
const STATEMENT_BYTES_MAX: usize = 256 << 10;

/// The deepest nesting of expressions: in a chain such as `1 + 1 + …` each is nested in the next. Planning time grows with the third
/// power of the depth, a second or two at this one.
const EXPRESSION_DEPTH_MAX: usize = 1000;

/// Measures the nesting depth of expressions.
#[derive(Default)]
struct Depth(usize);

impl Visitor for Depth {
    type Break = ();

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.0 += 1;
        if self.0 > EXPRESSION_DEPTH_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.0 -= 1;
        ControlFlow::Continue(())
    }
}

fn too_deep(statement: &Statement) -> bool {
    match statement {
        Statement::Statement(statement) => statement.visit(&mut Depth::default()).is_break(),
        Statement::Explain(explain) => too_deep(&explain.statement),
        // These are refused for other reasons.
        _ => false,
    }
}

/// Names a statement that does more than read, if planning it may fail earlier for another reason.
fn writes(statement: &Statement) -> Option<&'static str> {
    match statement {
        Statement::CopyTo(_) => Some("COPY"),
        Statement::CreateExternalTable(_) => Some("CREATE EXTERNAL TABLE"),
        Statement::Reset(_) => Some("RESET"),
        Statement::Explain(explain) => writes(&explain.statement),
        Statement::Statement(_) => None,
    }
}

/// A session; a clone shares it.
#[derive(Clone)]
pub struct Engine {
    context: SessionContext,
    /// Where queries spill.
    _spill: Option<Arc<HeldDirectory>>,
}

impl Engine {
    /// A session without tables.
    pub fn new(settings: Settings) -> Result<Self> {
        let mut config =
            SessionConfig::new().with_information_schema(true).with_default_catalog_and_schema("fathom", "public");
        if settings.threads > 0 {
            config = config.with_target_partitions(settings.threads);
        }
        config.options_mut().sql_parser.collect_spans = true;
        let pool = Arc::new(FairSpillPool::new(settings.memory_bytes));
        let mut runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
        // If this directory cannot be created, the engine makes its own when a query spills, and then reports why it
        // cannot.
        let spill = HeldDirectory::new(Purpose::Query).ok().map(Arc::new);
        if let Some(spill) = &spill {
            runtime = runtime.with_temp_file_path(spill.path());
        }
        let runtime = runtime.build_arc().context("setting up the engine")?;
        let mut context = SessionContext::new_with_config_rt(config, runtime);
        crate::exact::register(&mut context)?;
        Ok(Self { context, _spill: spill })
    }

    /// The session itself, for adding tables.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// A session over archives.
    pub fn over(archives: &Archives, settings: Settings) -> Result<Self> {
        let engine = Self::new(settings)?;
        for table in TABLES {
            let store = ObjectStoreUrl::local_filesystem();
            let files = FilesTable::new(table, &ATTACHED_COLUMNS, store, archives.table(table.name));
            engine.context.register_table(table.name, Arc::new(files))?;
        }
        let batch = archives_table(archives)?;
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
        engine.context.register_table(fleet::ARCHIVES_TABLE.name, Arc::new(table))?;
        Ok(engine)
    }

    /// A session over a fleet.
    pub fn over_fleet(fleet: &Fleet, settings: Settings) -> Result<Self> {
        let engine = Self::new(settings)?;
        let (url, store) = fleet.store.for_engine()?;
        if fleet.store.directory().is_none() {
            engine.context.register_object_store(url.as_ref(), store);
        }
        for table in fleet::tables() {
            let files = FilesTable::new(table, &[fleet::DATE_COLUMN], url.clone(), fleet.table(table.name));
            engine.context.register_table(table.name, Arc::new(files))?;
        }
        Ok(engine)
    }

    /// Plans one statement, which may only read.
    ///
    /// # Errors
    /// It is not SQL, names something that does not exist, or would do more than read.
    pub async fn plan(&self, sql: &str) -> Result<DataFrame, DataFusionError> {
        if sql.len() > STATEMENT_BYTES_MAX {
            return Err(DataFusionError::Plan(format!(
                "the statement has {} bytes, but {STATEMENT_BYTES_MAX} is the limit: one that is as deep as it is long would exhaust the stack",
                sql.len()
            )));
        }
        let state = self.context.state();
        let mut statement = state.sql_to_statement(sql, &state.config().options().sql_parser.dialect)?;
        if let Some(what) = writes(&statement) {
            return Err(DataFusionError::Plan(format!("only queries can be run, and this is {what}")));
        }
        if too_deep(&statement) {
            return Err(DataFusionError::Plan(format!(
                "an expression has more than {EXPRESSION_DEPTH_MAX} others nested in it: for many alternatives use a list (`x IN (…)`), for many \
                 terms a table (`VALUES`)"
            )));
        }
        ordinals::replace(&mut statement, &|name| state.aggregate_functions().contains_key(name));
        let reads = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        let plan = state.statement_to_plan(statement).await?;
        reads.verify_plan(&plan)?;
        if plan.schema().fields().is_empty() {
            // `FROM spans`, which in other engines means all columns.
            return Err(DataFusionError::Plan("the query selects no column; begin it with SELECT".into()));
        }
        self.context.execute_logical_plan(plan).await
    }

    /// Plans and starts one statement.
    ///
    /// # Errors
    /// As [`Engine::plan`]; errors while it runs come with the rows.
    pub async fn run(&self, sql: &str) -> Result<(SchemaRef, SendableRecordBatchStream), DataFusionError> {
        let rows = self.plan(sql).await?.execute_stream().await?;
        Ok((rows.schema(), rows))
    }

    /// Every table with its columns, as a query may name them.
    pub async fn names(&self) -> Vec<(String, Vec<String>)> {
        let mut names = Vec::new();
        let schema = self.context.catalog("fathom").and_then(|catalog| catalog.schema("public"));
        let Some(schema) = schema else { return names };
        for table in schema.table_names() {
            let Ok(Some(found)) = schema.table(&table).await else { continue };
            names.push((table, found.schema().fields().iter().map(|field| field.name().clone()).collect()));
        }
        names.sort();
        names
    }
}

/// A row for each archive.
fn archives_table(archives: &Archives) -> Result<RecordBatch> {
    let rows: Vec<Vec<Cell>> =
        archives.all().iter().map(|one| fleet::row::archives_row(one.archive.meta(), &one.identity)).collect();
    let identities = || archives.all().iter().map(|one| &one.identity);
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(StringViewArray::from_iter_values(identities().map(|one| &one.device))),
        Arc::new(StringViewArray::from_iter_values(identities().map(|one| &one.run))),
        Arc::new(Date32Array::from_iter_values(identities().map(|one| one.day))),
        Arc::new(StringViewArray::from_iter_values(identities().map(|one| &one.archive))),
    ];
    columns.extend((0..fleet::ARCHIVES_TABLE.columns.len()).map(|at| array(rows.iter().map(|row| &row[at]), at)));
    Ok(RecordBatch::try_new(Arc::new(schema(&fleet::ARCHIVES_TABLE)), columns)?)
}

fn array<'a>(cells: impl Iterator<Item = &'a Cell>, column: usize) -> ArrayRef {
    crate::output::array(fleet::ARCHIVES_TABLE.columns[column].kind, cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_expression_is_refused_before_planning() {
        std::thread::Builder::new().stack_size(crate::stop::STACK_BYTES).spawn(deep).unwrap().join().unwrap();
    }

    fn deep() {
        let runtime = crate::ask::runtime(1).unwrap();
        let planned = |sql: String| {
            runtime.block_on(async { Engine::new(Settings::default()).unwrap().plan(&sql).await.map(drop) })
        };
        let chain = |terms: usize| vec!["1"; terms].join("+");
        assert!(planned(format!("SELECT {}", chain(500))).is_ok());
        // Next to each other they are not deep.
        assert!(planned(format!("SELECT {0} AS a, {0} AS b, {0} AS c", chain(400))).is_ok());
        for sql in [
            format!("SELECT {}", chain(2_000)),
            format!("SELECT {}", chain(100_000)),
            format!("EXPLAIN SELECT {}", chain(2_000)),
            format!("SELECT * FROM (SELECT 1 AS x) WHERE x = (SELECT {})", chain(2_000)),
            format!("WITH a AS (SELECT {} AS x) SELECT x FROM a", vec!["'a'"; 2_000].join("||")),
        ] {
            let message = planned(sql).unwrap_err().to_string();
            assert!(message.contains("1000"), "{message}");
        }
        assert!(planned(format!("SELECT '{}'", "x".repeat(300 << 10))).unwrap_err().to_string().contains("bytes"));
    }

    #[test]
    fn query_without_columns_is_refused() {
        let runtime = crate::ask::runtime(1).unwrap();
        let sql = "FROM (VALUES (1)) AS t(x)";
        let planned = runtime.block_on(async { Engine::new(Settings::default()).unwrap().plan(sql).await.map(drop) });
        assert!(planned.unwrap_err().to_string().contains("no column"));
    }

    #[test]
    fn statement_that_writes_is_refused_as_such() {
        let runtime = crate::ask::runtime(1).unwrap();
        for sql in [
            "COPY (SELECT 1) TO '/tmp/x'",
            "EXPLAIN COPY (SELECT 1) TO '/tmp/x'",
            "CREATE EXTERNAL TABLE p STORED AS CSV LOCATION '/etc/passwd'",
            "RESET datafusion.execution.batch_size",
        ] {
            let planned =
                runtime.block_on(async { Engine::new(Settings::default()).unwrap().plan(sql).await.map(drop) });
            let message = planned.unwrap_err().to_string();
            assert!(message.contains("only queries can be run"), "{sql}: {message}");
        }
    }
}
