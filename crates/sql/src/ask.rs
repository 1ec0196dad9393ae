//! `fathom sql`: the archives, the statement, and the destination of the result.

use crate::engine::{Engine, Settings};
use crate::errors;
use crate::fleets::log::Fleet;
use crate::open::{self, Archives};
use crate::output::{self, Format, OutputError, print};
use crate::shell;
use crate::stop::{Scratch, until_stopped};
use anyhow::{Context as _, Result, anyhow, bail};
use fleet::args::Sql;
use fleet::questions::{QUESTIONS, Question};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;

/// The request of a command line.
struct Request {
    places: Vec<String>,
    sql: Option<String>,
}

/// Words that a statement begins with.
const FIRST_WORDS: [&str; 8] = ["select", "with", "explain", "show", "describe", "values", "table", "desc"];

/// Whether a word is a statement and not a path: nothing of that name exists, and it looks like one.
fn is_sql(word: &str) -> bool {
    if word.contains("://") || Path::new(word).exists() {
        return false;
    }
    let first =
        word.trim_start_matches(|c: char| c.is_whitespace() || c == '(').split(|c: char| !c.is_alphabetic()).next();
    let known = first.is_some_and(|first| FIRST_WORDS.contains(&first.to_lowercase().as_str()));
    // A recording's name may contain spaces, and be misspelt.
    let named = word.ends_with(".fathom") || word.ends_with(".fathom/");
    known || word.contains(char::is_whitespace) && !named || word.starts_with("--")
}

fn parse_request(args: &Sql) -> Result<Request> {
    let mut places = args.words.clone();
    let mut sql = args.query.clone();
    if sql.is_none() && places.last().is_some_and(|last| is_sql(last)) {
        sql = places.pop();
    }
    if let Some(file) = &args.file {
        if sql.is_some() {
            bail!("SQL is given twice: as an argument and by --file");
        }
        sql = Some(std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?);
    }
    if let Some(wanted) = &args.example {
        if sql.is_some() {
            bail!("SQL is given twice: as an argument and by --example");
        }
        let question =
            Question::find(wanted).ok_or_else(|| anyhow!("no such example: {wanted}; --examples lists them"))?;
        sql = Some(question.statement());
    }
    Ok(Request { places, sql })
}

fn output_format(args: &Sql) -> Result<Format> {
    let by_name = args.output.as_ref().and_then(|path| match path.extension()?.to_str()? {
        "csv" => Some(Format::Csv),
        "json" => Some(Format::Json),
        "parquet" => Some(Format::Parquet),
        _ => None,
    });
    let format = args.format.or(by_name).unwrap_or(Format::Table);
    if format == Format::Parquet && args.output.is_none() {
        bail!("Parquet is written to a file: give its name with -o");
    }
    Ok(format)
}

/// `fathom sql`.
pub fn run(args: &Sql) -> Result<()> {
    let request = parse_request(args)?;
    let format = output_format(args)?;
    if args.examples && request.places.is_empty() {
        return print_list();
    }
    if request.places.is_empty() {
        bail!("no archive given: `fathom sql T.fathom \"SELECT …\"`");
    }
    let threads = args.threads.map_or(0, usize::from);
    let settings = Settings { memory_bytes: usize::try_from(args.memory).unwrap_or(usize::MAX), threads };
    let (runtime, scratch) = (runtime(threads)?, Scratch::default());
    let done = run_statements(args, request, format, settings, &runtime, &scratch);
    scratch.remove();
    // Work that does not notice the stop is not waited for.
    runtime.shutdown_background();
    done
}

fn run_statements(
    args: &Sql,
    request: Request,
    format: Format,
    settings: Settings,
    runtime: &Runtime,
    scratch: &Scratch,
) -> Result<()> {
    let (places, read_only, older) = (request.places, args.read_only, scratch.clone());
    let opened = until_stopped(runtime, move || async move { open(&places, read_only, settings, &older).await })?;
    let opened = opened.unwrap_or_else(|| Err(anyhow!("stopped while opening archives")))?;
    let engine = &opened.engine;
    if args.examples {
        return QUESTIONS.iter().try_for_each(|question| {
            print(&format!("{} {}\n", question.name, question.words()))?;
            write_answer(engine, runtime, &question.statement(), format, None)?;
            print("\n")
        });
    }
    let sql = match request.sql {
        Some(sql) => sql,
        None if std::io::stdin().is_terminal() => return shell::run(engine, runtime, &opened.greeting),
        None => {
            let mut sql = String::new();
            std::io::stdin().read_to_string(&mut sql).context("reading SQL from stdin")?;
            sql
        }
    };
    let (mut statements, rest) = shell::statements(&sql);
    if !rest.is_empty() {
        statements.push(rest);
    }
    if statements.is_empty() {
        bail!("no SQL to run");
    }
    if statements.len() > 1 && (args.output.is_some() || format != Format::Table) {
        bail!(
            "{} statements make {} results, but only one can be written; give one statement",
            statements.len(),
            statements.len()
        );
    }
    statements.iter().try_for_each(|statement| {
        let planned = if args.explain { explain_statement(statement) } else { statement.clone() };
        write_answer(engine, runtime, &planned, format, args.output.as_deref())
    })
}

/// The statement that shows how a statement would be run: EXPLAIN has a line of its own, so that positions in the statement's
/// own lines do not change.
fn explain_statement(statement: &str) -> String {
    format!("{EXPLAIN}{statement}")
}

/// Precedes a statement.
const EXPLAIN: &str = "EXPLAIN\n";

/// Threads for the engine; 0: as many as there are CPUs.
pub fn runtime(threads: usize) -> Result<Runtime> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // Plans are recursive.
    builder.worker_threads(if threads > 0 { threads } else { cpus }).thread_stack_size(256 << 20).enable_all();
    Ok(builder.build()?)
}

/// An engine over the named archives or fleet, and a line that describes them.
pub struct OpenedEngine {
    /// The engine.
    pub engine: Engine,
    /// Describes the archives or the fleet.
    pub greeting: String,
}

/// Opens the archives or the fleet that these words name.
pub async fn open(places: &[String], read_only: bool, settings: Settings, scratch: &Scratch) -> Result<OpenedEngine> {
    if let [place] = places
        && (place.contains("://") || open::is_fleet(Path::new(place)))
    {
        let fleet = Fleet::open(place).await?;
        let greeting = format!("A fleet of {}.", model::counted(fleet.state.runs.len(), "archive"));
        return Ok(OpenedEngine { engine: Engine::over_fleet(&fleet, settings)?, greeting });
    }
    if let Some(place) = places.iter().find(|place| place.contains("://") || open::is_fleet(Path::new(place))) {
        bail!("{place} is a fleet: give one fleet, or archives");
    }
    let dirs: Vec<PathBuf> = places.iter().map(PathBuf::from).collect();
    let archives = Archives::open(&open::archives(&dirs, !read_only)?, read_only, scratch)?;
    let greeting = format!("{}.", model::counted(archives.all().len(), "archive"));
    Ok(OpenedEngine { engine: Engine::over(&archives, settings)?, greeting })
}

fn print_list() -> Result<()> {
    QUESTIONS.iter().try_for_each(|question| print(&format!("-- {}\n{}\n", question.name, question.sql)))
}

/// Writes the result of one statement.
fn write_answer(engine: &Engine, runtime: &Runtime, sql: &str, format: Format, output: Option<&Path>) -> Result<()> {
    let output = output.filter(|path| !output::is_stdout(path));
    let (engine, statement, path) = (engine.clone(), sql.to_string(), output.map(Path::to_path_buf));
    let place = output.map_or_else(|| "standard output".into(), |path| path.display().to_string());
    let answered = until_stopped(runtime, move || async move {
        let (_, rows) = engine.run(&statement).await.map_err(OutputError::Query)?;
        match path {
            Some(path) => output::whole_file(&path, async |out| output::write(rows, format, out).await).await,
            None => output::write(rows, format, &mut std::io::BufWriter::new(std::io::stdout())).await,
        }
    });
    match answered? {
        Some(Ok(_)) => Ok(()),
        Some(Err(OutputError::Query(error))) => Err(anyhow!("{}", errors::explain(&error, sql))),
        Some(Err(OutputError::Output(error))) => Err(error.context(format!("cannot write the result to {place}"))),
        None => Err(anyhow!("stopped before the result was complete")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_is_distinguished_from_a_path() {
        for sql in [
            "SELECT 1",
            "select",
            "  WITH x AS (SELECT 1) SELECT 1",
            "(SELECT 1)",
            "EXPLAIN SELECT 1",
            "-- why\nSELECT 1",
        ] {
            assert!(is_sql(sql), "{sql}");
        }
        for path in ["trace.fathom", "/tmp", "s3://bucket/select me", "src", "my trace.fathom"] {
            assert!(!is_sql(path), "{path}");
        }
    }
}
