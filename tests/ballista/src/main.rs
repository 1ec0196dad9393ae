//! Runs the shipped questions on Ballista: a scheduler and two executors, each a process of its own, and a client.
//!
//!     ballista-engine FLEET TABLES.json QUESTION.sql...
//!
//! Prints a line of JSON per question (its file, names of columns, rows), as tests/programs/questions.py does for DuckDB and Spark,
//! then one with the number of files of intermediate rows that each executor wrote. The texts run as they are: the engine gets only
//! the locations of the tables. For tests; everything listens on loopback and ends with this process.

use anyhow::{Context, Result, bail, ensure};
use ballista::prelude::{SessionConfigExt as _, SessionContextExt as _};
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::start_server;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Date32Type, Float64Type, Int64Type, UInt64Type};
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Planners recurse; compiled without optimisation they need more than a thread's 2 MiB.
const STACK: usize = 64 << 20;

fn main() -> Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().thread_stack_size(STACK).build()?;
    // Runs on one of its threads, and not on the main thread, whose stack size is the system's.
    runtime.block_on(async { tokio::spawn(role()).await? })
}

async fn role() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["scheduler", port] => scheduler(port.parse()?).await,
        ["executor", scheduler, flight, grpc, directory] => {
            executor(scheduler.parse()?, flight.parse()?, grpc.parse()?, directory).await
        }
        [fleet, tables, ref questions @ ..] => ask(Path::new(fleet), Path::new(tables), questions).await,
        _ => bail!("usage: ballista-engine FLEET TABLES.json QUESTION.sql..."),
    }
}

/// Ends this process when its parent is gone, which is detected by the end of the input.
fn end_with_parent() {
    std::thread::spawn(|| {
        BufReader::new(std::io::stdin()).lines().for_each(drop);
        std::process::exit(0);
    });
}

async fn scheduler(port: u16) -> Result<()> {
    end_with_parent();
    let config = SchedulerConfig::default().with_hostname("127.0.0.1").with_port(port);
    let cluster = BallistaCluster::new_from_config(&config).await?;
    Ok(start_server(cluster, ([127, 0, 0, 1], port).into(), Arc::new(config)).await?)
}

async fn executor(scheduler: u16, flight: u16, grpc: u16, directory: &str) -> Result<()> {
    end_with_parent();
    let config = ExecutorProcessConfig {
        external_host: Some("127.0.0.1".into()),
        port: flight,
        grpc_port: grpc,
        scheduler_host: "127.0.0.1".into(),
        scheduler_port: scheduler,
        scheduler_connect_timeout_seconds: 60,
        vcores: 1,
        work_dir: Some(directory.into()),
        ..ExecutorProcessConfig::default()
    };
    Ok(start_executor_process(Arc::new(config)).await?)
}

/// A process that ends with this one.
struct Role(Child);

impl Role {
    fn start(words: &[&str]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(words).env("RUST_MIN_STACK", STACK.to_string()).stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Self(command.spawn().context("starting a role")?))
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that was free a moment ago.
fn port() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string())
}

async fn answers(port: &str) -> Result<()> {
    let begun = Instant::now();
    while tokio::net::TcpStream::connect(format!("127.0.0.1:{port}")).await.is_err() {
        ensure!(begun.elapsed() < Duration::from_secs(120), "nothing listens on port {port}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn ask(fleet: &Path, tables: &Path, questions: &[&str]) -> Result<()> {
    let work = std::env::temp_dir().join(format!("ballista-engine.{}", std::process::id()));
    let directories = ["a", "b"].map(|name| work.join(name));
    directories.iter().try_for_each(std::fs::create_dir_all)?;
    let asked = ask_them(fleet, tables, questions, &directories).await;
    std::fs::remove_dir_all(&work)?;
    asked
}

async fn ask_them(fleet: &Path, tables: &Path, questions: &[&str], directories: &[std::path::PathBuf; 2]) -> Result<()> {
    let at = port()?;
    let _scheduler = Role::start(&["scheduler", &at])?;
    answers(&at).await?;
    let mut executors = Vec::new();
    for directory in directories {
        let (flight, grpc) = (port()?, port()?);
        let directory = directory.to_str().context("the temporary directory's name is text")?;
        executors.push(Role::start(&["executor", &at, &flight, &grpc, directory])?);
        answers(&flight).await?;
    }
    let config = SessionConfig::new_with_ballista().with_target_partitions(4);
    let state = SessionStateBuilder::new().with_config(config).with_default_features().build();
    let context = SessionContext::remote_with_state(&format!("df://127.0.0.1:{at}"), state).await?;
    register(&context, fleet, tables).await?;
    for question in questions {
        let sql = std::fs::read_to_string(question).with_context(|| (*question).to_string())?;
        let frame = context.sql(&sql).await.with_context(|| (*question).to_string())?;
        let columns: Vec<String> = frame.schema().fields().iter().map(|field| field.name().clone()).collect();
        let batches = frame.collect().await.with_context(|| (*question).to_string())?;
        let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| cells(batch, row)));
        let rows = rows.collect::<Result<Vec<_>>>()?;
        println!("{}", json!({"question": question, "columns": columns, "rows": rows}));
    }
    let wrote: Vec<usize> = directories.iter().map(|directory| files(directory)).collect();
    println!("{}", json!({ "executors": wrote }));
    Ok(())
}

async fn register(context: &SessionContext, fleet: &Path, tables: &Path) -> Result<()> {
    let declared: Value = serde_json::from_slice(&std::fs::read(tables)?)?;
    for (name, columns) in declared["tables"].as_object().context("tables")? {
        let directory = fleet.join(name);
        if directory.is_dir() {
            let options = ParquetReadOptions::default().table_partition_cols(vec![("date".into(), DataType::Date32)]);
            context.register_parquet(name, format!("{}/", directory.display()), options).await?;
            continue;
        }
        let leading = declared["leading"].as_array().into_iter().flatten();
        let mut nothing = Vec::new();
        for column in leading.chain(columns.as_array().into_iter().flatten()) {
            let kind = match column["type"].as_str() {
                Some("i64") => "BIGINT",
                Some("f64") => "DOUBLE",
                Some("bool") => "BOOLEAN",
                _ => "VARCHAR",
            };
            nothing.push(format!("CAST(NULL AS {kind}) AS \"{}\"", column["name"].as_str().unwrap_or_default()));
        }
        nothing.push("CAST(NULL AS DATE) AS \"date\"".into());
        context.sql(&format!("CREATE VIEW {name} AS SELECT {} WHERE false", nothing.join(", "))).await?;
    }
    Ok(())
}

fn cells(batch: &RecordBatch, row: usize) -> Result<Vec<Value>> {
    batch.columns().iter().map(|column| cell(column, row)).collect()
}

fn cell(column: &Arc<dyn Array>, row: usize) -> Result<Value> {
    if column.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into(),
        DataType::Boolean => column.as_boolean().value(row).into(),
        DataType::Date32 => {
            let day = column.as_primitive::<Date32Type>().value_as_date(row);
            day.context("a date")?.to_string().into()
        }
        DataType::Utf8 => column.as_string::<i32>().value(row).into(),
        DataType::Utf8View => column.as_string_view().value(row).into(),
        DataType::Null => Value::Null,
        other => bail!("a column of type {other}"),
    })
}

/// Files below a directory.
fn files(directory: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries.flatten().map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
}
