//! Runs the statements, iteration by iteration.

use super::android::Android;
use super::contents::{Contents, RowTexts, text_of, verify};
use super::files::Files;
use super::shell::Shell;
use super::timing::{LATENCY_STRIDE, Latencies, Timing, write_rate};
use super::{EngineChoice, Op, Parameters, failed};
use crate::marks::Writer;
use crate::storage::{Account, Directory, Lines};
use crate::{Error, check_cancelled};
use model::Context;
use rusqlite::{Connection, Statement, params};
use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;

pub(super) struct Load<'a> {
    pub(super) parameters: &'a Parameters,
    pub(super) context: &'a Context,
    pub(super) marks: Option<Writer>,
}

impl Load<'_> {
    /// Runs all iterations; returns the lines to be written.
    pub(super) fn run(&self) -> Result<Vec<u8>, Error> {
        let p = self.parameters;
        if p.op == Op::Demo {
            return self.demo();
        }
        // A silent run does not read the disk's statistics: they would not be shown.
        let place = if p.silent { None } else { Some(Directory::new(&p.dir)?) };
        let counters = || place.as_ref().and_then(Directory::counters);
        let mut head = Lines::default();
        place.iter().for_each(|place| place.marks(&mut head));
        let (unit, amount) = if p.op == Op::Select { ("scan", p.scans) } else { ("row", p.rows) };
        head.work(unit, amount);
        let (journal, sync) = (p.journal_mode, p.synchronous);
        head.mark("settings", format!("journal_mode {journal}, synchronous {sync}, page_size {}", p.page_size));
        let (mut lines, mut latencies) = (Vec::new(), Latencies::new()?);
        let mut account = Account::default();
        let framework = self.start_framework()?;
        let mut database = Database::new(self, framework.as_ref())?;
        for nth in 0..p.warmup.saturating_add(p.iterations) {
            if nth > 0 && p.op != Op::Select {
                database = Database::new(self, framework.as_ref())?;
            }
            if p.op == Op::Select && p.cold {
                database = database.reopen_cold(self)?;
            }
            let before = counters();
            let (begin, end) = match &mut database.engine {
                Engine::Bundled(connection) => self.run_iteration(connection, &mut latencies, &mut lines)?,
                Engine::System(shell) => write_process_rate(&mut lines, p.op.name(), shell.run(p, self.context)?)?,
                Engine::Android(android) => write_process_rate(&mut lines, p.op.name(), android.borrow_mut().run()?)?,
            };
            if nth < p.warmup {
                lines.clear();
                latencies = Latencies::new()?;
                continue;
            }
            account.add(before, counters(), 0);
            head.iteration(begin, end - begin);
        }
        head.mark("sqlite", database.version()?);
        if p.per_transaction > 1 && !p.each && matches!(p.engine, EngineChoice::Bundled) {
            head.mark("latency", format!("of every {LATENCY_STRIDE}th statement"));
        }
        let by = self.check(database)?;
        if let Some(android) = framework.and_then(Rc::into_inner) {
            head.mark("mode", android.into_inner().end()?);
        }
        account.append_to(p.op != Op::Select, &mut head);
        latencies.append_to(&mut lines)?;
        writeln!(lines, "{}", serde_json::json!({"verified": true, "by": by}))?;
        Ok([head.bytes(), &lines].concat())
    }

    /// Android's framework, if it executes the statements.
    fn start_framework(&self) -> Result<Option<SharedAndroid>, Error> {
        match &self.parameters.engine {
            EngineChoice::Android(framework) => {
                let android = Android::start(framework, self.parameters, self.context)?;
                Ok(Some(Rc::new(RefCell::new(android))))
            }
            _ => Ok(None),
        }
    }

    /// INSERTs, followed by scans.
    fn demo(&self) -> Result<Vec<u8>, Error> {
        let p = self.parameters;
        let (mut lines, mut latencies) = (Vec::new(), Latencies::new()?);
        let mut database = Database::new(self, None)?;
        if let Engine::Bundled(connection) = &database.engine {
            self.insert(connection, &mut latencies, &mut lines)?;
        }
        if p.cold {
            database = database.reopen_cold(self)?;
        }
        if let Engine::Bundled(connection) = &database.engine {
            self.select(connection, &mut latencies, &mut lines)?;
        }
        let by = self.check(database)?;
        writeln!(lines, "{}", serde_json::json!({"verified": true, "by": by}))?;
        Ok(lines)
    }

    /// Closes the database and checks it through a separate connection: always the bundled engine's, so that the
    /// system's engine is checked by another one.
    fn check(&self, database: Database) -> Result<String, Error> {
        let p = self.parameters;
        let files = database.close()?;
        let (rows, raised) = match p.op {
            Op::Update => (p.rows, 1),
            Op::Delete => (0, 0),
            _ => (p.rows, 0),
        };
        verify(&files.connect(p)?, rows, raised)
    }

    fn run_iteration(
        &self,
        connection: &Connection,
        latencies: &mut Latencies,
        lines: &mut Vec<u8>,
    ) -> Result<(u64, u64), Error> {
        match self.parameters.op {
            Op::Insert => self.insert(connection, latencies, lines),
            Op::Select => self.select(connection, latencies, lines),
            Op::Update => {
                let sql = "UPDATE t SET n = n + 1 WHERE rowid = ?1";
                self.each_row(connection, "UPDATE", sql, |s, n| s.execute([n as i64]), latencies, lines)
            }
            _ => {
                let sql = "DELETE FROM t WHERE rowid = ?1";
                self.each_row(connection, "DELETE", sql, |s, n| s.execute([n as i64]), latencies, lines)
            }
        }
    }

    fn insert(
        &self,
        connection: &Connection,
        latencies: &mut Latencies,
        lines: &mut Vec<u8>,
    ) -> Result<(u64, u64), Error> {
        let sql = "INSERT INTO t VALUES (?1, ?2)";
        let mut texts = RowTexts::new();
        let execute = |s: &mut Statement<'_>, n| s.execute(params![n as i64, texts.for_row(n)]);
        self.each_row(connection, "INSERT", sql, execute, latencies, lines)
    }

    /// Executes `sql` once for every row, in transactions of the requested size, and writes the times.
    fn each_row(
        &self,
        connection: &Connection,
        name: &str,
        sql: &str,
        mut execute: impl FnMut(&mut Statement<'_>, u64) -> rusqlite::Result<usize>,
        latencies: &mut Latencies,
        lines: &mut Vec<u8>,
    ) -> Result<(u64, u64), Error> {
        let p = self.parameters;
        let failed = failed(name);
        let mut statement = connection.prepare(sql).map_err(&failed)?;
        let grouped = p.per_transaction > 1;
        let mut timing = Timing::new(self.marks.as_ref(), name, p.rows, grouped, p.each);
        for n in 1..=p.rows {
            check_cancelled(self.context)?;
            if grouped && (n - 1).is_multiple_of(p.per_transaction) {
                connection.execute_batch("BEGIN").map_err(&failed)?;
            }
            let changed = timing.time_statement(latencies, || execute(&mut statement, n)).map_err(&failed)?;
            if changed != 1 {
                return Err(Error::Wrong(format!(
                    "{name} {n} changed {} instead of one",
                    model::counted(changed, "row")
                )));
            }
            if grouped && (n.is_multiple_of(p.per_transaction) || n == p.rows) {
                connection.execute_batch("COMMIT").map_err(&failed)?;
            }
            if n.is_multiple_of(64) {
                self.context.progress(name, n, p.rows);
            }
        }
        Ok(timing.finish(lines)?)
    }

    fn select(
        &self,
        connection: &Connection,
        latencies: &mut Latencies,
        lines: &mut Vec<u8>,
    ) -> Result<(u64, u64), Error> {
        let p = self.parameters;
        let failed = failed("SELECT");
        let mut statement = connection.prepare("SELECT * FROM t").map_err(&failed)?;
        let expected = Contents::expected(p.rows);
        let mut timing = Timing::new(self.marks.as_ref(), "SELECT", p.scans, false, p.each);
        for n in 1..=p.scans {
            check_cancelled(self.context)?;
            let found = timing.time_statement(latencies, || Contents::scan(&mut statement)).map_err(&failed)?;
            if found != expected {
                return Err(Error::Wrong(format!("scan {n} found {found:?} instead of {expected:?}")));
            }
            if n.is_multiple_of(64) {
                self.context.progress("SELECT", n, p.scans);
            }
        }
        Ok(timing.finish(lines)?)
    }
}

/// Writes the rate of another process's work: start, end and number of statements.
fn write_process_rate(
    lines: &mut Vec<u8>,
    op: &str,
    (begin, end, executed): (u64, u64, u64),
) -> Result<(u64, u64), Error> {
    write_rate(lines, op, executed, begin, end)?;
    Ok((begin, end))
}

/// One process for all iterations.
type SharedAndroid = Rc<RefCell<Android>>;

enum Engine {
    Bundled(Connection),
    System(Shell),
    Android(SharedAndroid),
}

/// A database with its engine, ready for the load. The engine is dropped before the files.
struct Database {
    engine: Engine,
    files: Files,
}

impl Database {
    /// Creates a new one with the table, filled if the operation needs rows.
    fn new(load: &Load<'_>, framework: Option<&SharedAndroid>) -> Result<Self, Error> {
        let p = load.parameters;
        let database = Self::open(Files::new(&p.dir)?, p, framework.cloned())?;
        let fill = matches!(p.op, Op::Select | Op::Update | Op::Delete);
        let create = "CREATE TABLE t (n INTEGER, s TEXT);";
        match database.engine {
            Engine::Bundled(mut connection) => {
                connection.execute(create, []).map_err(failed("create the table"))?;
                if fill {
                    self::insert_rows(&mut connection, p.rows).map_err(failed("fill the table"))?;
                }
                Ok(Self { engine: Engine::Bundled(connection), files: database.files })
            }
            Engine::System(mut shell) => {
                shell.query(create)?;
                if fill {
                    shell.query("BEGIN;")?;
                    // In portions, so that the pipe never holds more than the shell reads.
                    for first in (1..=p.rows).step_by(100) {
                        let last = (first + 99).min(p.rows);
                        let row = |n| format!("INSERT INTO t VALUES ({n}, '{}');\n", text_of(n));
                        shell.query(&(first..=last).map(row).collect::<String>())?;
                    }
                    shell.query("COMMIT;")?;
                }
                Ok(Self { engine: Engine::System(shell), files: database.files })
            }
            Engine::Android(android) => {
                android.borrow_mut().execute("create")?;
                if fill {
                    android.borrow_mut().execute("fill")?;
                }
                Ok(Self { engine: Engine::Android(android), files: database.files })
            }
        }
    }

    fn open(files: Files, p: &Parameters, framework: Option<SharedAndroid>) -> Result<Self, Error> {
        let engine = match (framework, &p.engine) {
            (Some(android), _) => {
                android.borrow_mut().open(&files, p)?;
                Engine::Android(android)
            }
            (None, EngineChoice::System) => Engine::System(Shell::new(&files, p)?),
            (None, _) => Engine::Bundled(files.connect(p)?),
        };
        Ok(Self { engine, files })
    }

    fn version(&mut self) -> Result<String, Error> {
        match &mut self.engine {
            Engine::System(shell) => shell.version(),
            Engine::Android(android) => android.borrow_mut().version(),
            Engine::Bundled(connection) => {
                let sql = "SELECT sqlite_version() || ' (' || sqlite_source_id() || ')'";
                let version: String = connection.query_row(sql, [], |row| row.get(0)).map_err(failed(sql))?;
                Ok(format!("{version}, bundled: each statement prepared once"))
            }
        }
    }

    /// Ends the engine, which checkpoints a WAL into the database.
    fn close(self) -> Result<Files, Error> {
        match self.engine {
            Engine::Bundled(connection) => connection.close().map_err(|(_, e)| failed("close the database")(e))?,
            Engine::System(shell) => shell.close()?,
            Engine::Android(android) => drop(android.borrow_mut().execute("close")?),
        }
        Ok(self.files)
    }

    /// Reopened: closing discarded SQLite's own cache, and here the kernel's is evicted.
    fn reopen_cold(self, load: &Load<'_>) -> Result<Self, Error> {
        let framework = match &self.engine {
            Engine::Android(android) => Some(android.clone()),
            _ => None,
        };
        let files = self.close()?;
        files.evict()?;
        Self::open(files, load.parameters, framework)
    }
}

/// Inserts rows in one transaction, not timed.
fn insert_rows(connection: &mut Connection, rows: u64) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare("INSERT INTO t VALUES (?1, ?2)")?;
        for n in 1..=rows {
            insert.execute(params![n as i64, text_of(n)])?;
        }
    }
    transaction.commit()
}
