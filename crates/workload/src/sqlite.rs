//! SQLite as the papers measured it: a table of an integer and a string of 100 bytes, 1,000 INSERTs each in a
//! transaction of its own, then scans of the whole table by `SELECT * FROM t` (paper 000, section 4.5.3).
//!
//! What is timed is the loop of statements and nothing else: the database is made, and filled where the operation needs
//! rows, before it. The statement is prepared once and executed again and again. Each execution stands inside a mark
//! (see [`crate::marks`]), the App(start) and App(end) of paper 000, section 5.2. Afterwards the contents are checked
//! through a connection of its own, so that a fast result is also a right one.
//!
//! The files (database, rollback journal, WAL, shared memory) are the workload's own, under a name of its process, and
//! are removed when it ends, fails or is cancelled.

use crate::marks::{Series, Writer};
use crate::options::{Options, Spec};
use crate::{Error, clock, sample};
use model::Context;
use rusqlite::{Connection, Statement, params};
use std::io::Write;
use std::path::{Path, PathBuf};

const ABOUT: &str = "SQLite on a new database: the table t (an integer, a string of 100 bytes) of paper 000, 4.5.3.";

const SPECS: &[Spec] = &[
    Spec { name: "op", default: "insert", help: "insert, select, update, delete, or demo (insert, then select)" },
    Spec { name: "rows", default: "1000", help: "rows of the table" },
    Spec { name: "scans", default: "10", help: "full scans, for select and demo (the paper: 10000)" },
    Spec { name: "per-transaction", default: "1", help: "statements in a transaction; 1 is autocommit" },
    Spec { name: "journal-mode", default: "delete", help: "delete, truncate, persist, memory, wal or off" },
    Spec { name: "synchronous", default: "full", help: "off, normal, full or extra" },
    Spec { name: "page-size", default: "4096", help: "bytes, a power of two from 512 to 65536" },
    Spec { name: "cache", default: "warm", help: "warm, or cold: the first scan finds the file in no cache" },
    Spec { name: "samples", default: "total", help: "total (a rate), each (every latency as well), or none (no line)" },
    Spec { name: "dir", default: ".", help: "folder in which the database is made" },
];

const JOURNAL_MODES: &[&str] = &["delete", "truncate", "persist", "memory", "wal", "off"];
const SYNCHRONOUS: &[&str] = &["off", "normal", "full", "extra"];

#[derive(Debug, Clone)]
struct Parameters {
    op: &'static str,
    rows: u64,
    scans: u64,
    per_transaction: u64,
    journal_mode: &'static str,
    synchronous: &'static str,
    page_size: u32,
    cold: bool,
    each: bool,
    silent: bool,
    dir: PathBuf,
}

impl Parameters {
    fn parse(words: &[String]) -> Result<Self, Error> {
        let options = Options::parse(ABOUT, SPECS, words)?;
        let page_size: u32 = options.get("page-size")?;
        if !page_size.is_power_of_two() || !(512..=65536).contains(&page_size) {
            return Err(Error::Usage("--page-size must be a power of two from 512 to 65536".into()));
        }
        let per_transaction = options.get("per-transaction")?;
        if per_transaction == 0 {
            return Err(Error::Usage("--per-transaction must be at least 1 (autocommit)".into()));
        }
        let rows: u64 = options.get("rows")?;
        if rows == 0 || i64::try_from(rows).is_err() {
            return Err(Error::Usage("--rows must be at least 1".into()));
        }
        let samples = options.one_of("samples", &["total", "each", "none"])?;
        Ok(Self {
            op: options.one_of("op", &["insert", "select", "update", "delete", "demo"])?,
            rows,
            scans: options.get("scans")?,
            per_transaction,
            journal_mode: options.one_of("journal-mode", JOURNAL_MODES)?,
            synchronous: options.one_of("synchronous", SYNCHRONOUS)?,
            page_size,
            cold: options.one_of("cache", &["warm", "cold"])? == "cold",
            each: samples == "each",
            silent: samples == "none",
            dir: options.text("dir").into(),
        })
    }
}

/// Runs the workload with `words` as its options and writes its lines, if any are asked for, to `out` at its end.
///
/// # Errors
/// See [`Error`]; the files are removed in any case.
pub fn run(words: &[String], context: &Context, out: &mut dyn Write) -> Result<(), Error> {
    let parameters = Parameters::parse(words)?;
    let files = Files::new(&parameters.dir)?;
    let lines = Load { parameters: &parameters, files: &files, context, marks: Writer::from_environment() }.run()?;
    drop(files);
    // Only now, so that a slow reader of our output cannot disturb what is timed.
    if !parameters.silent {
        out.write_all(&lines)?;
    }
    out.flush()?;
    Ok(())
}

/// The database's files, removed when dropped.
#[derive(Debug)]
struct Files {
    database: PathBuf,
}

impl Files {
    /// A name in `dir` that nobody has.
    fn new(dir: &Path) -> Result<Self, Error> {
        let name = format!("fathom-workload-{}-{}.db", std::process::id(), clock::now_ns());
        let database = dir.join(name);
        // Made here and not by SQLite, so that an unwritable folder is told in our words, and so that an existing file
        // of that name is never taken for ours and removed.
        std::fs::File::create_new(&database).map_err(|e| {
            Error::Failed(format!("cannot make a database in {}: {e} (--dir names another folder)", dir.display()))
        })?;
        Ok(Self { database })
    }

    fn connect(&self, parameters: &Parameters) -> Result<Connection, Error> {
        let connection = Connection::open(&self.database).map_err(failed("open the database"))?;
        let pragma = |name: &str, value: &str| {
            connection.pragma_update(None, name, value).map_err(failed(&format!("set PRAGMA {name} = {value}")))
        };
        pragma("page_size", &parameters.page_size.to_string())?;
        pragma("synchronous", parameters.synchronous)?;
        let mode: String = connection
            .query_row(&format!("PRAGMA journal_mode = {}", parameters.journal_mode), [], |row| row.get(0))
            .map_err(failed("set PRAGMA journal_mode"))?;
        // SQLite answers with the mode it kept when it cannot have the new one (WAL needs shared memory).
        if mode != parameters.journal_mode {
            let wanted = parameters.journal_mode;
            return Err(Error::Failed(format!("SQLite refused journal mode {wanted} here and stays with {mode}")));
        }
        Ok(connection)
    }

    /// Takes the database out of the kernel's page cache. Its pages are clean, since its last transaction was synced
    /// (with `--synchronous off` it is synced here).
    fn evict(&self) -> Result<(), Error> {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::open(&self.database)?;
        file.sync_all()?;
        // SAFETY: the descriptor is open for the call's duration.
        match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
            0 => Ok(()),
            error => Err(std::io::Error::from_raw_os_error(error).into()),
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let mut name = self.database.clone().into_os_string();
            name.push(suffix);
            let _ = std::fs::remove_file(name);
        }
    }
}

fn failed(what: &str) -> impl Fn(rusqlite::Error) -> Error + '_ {
    move |error| Error::Failed(format!("cannot {what}: {error}"))
}

/// The string of row `n`: 100 bytes, different in every row so that nothing compresses or deduplicates it away.
fn text_of(n: u64) -> String {
    format!("{n:0>10}{:x<90}", "abcdefghijklmnopqrstuvwxyz ")
}

/// What a full scan of the table must find.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    rows: u64,
    sum: i128,
    bytes: u64,
}

impl Contents {
    /// Of the rows 1 to `rows`, each integer raised by `raised`.
    fn expected(rows: u64, raised: u64) -> Self {
        let n = i128::from(rows);
        Self { rows, sum: n * (n + 1) / 2 + n * i128::from(raised), bytes: rows * 100 }
    }

    fn scan(statement: &mut Statement<'_>) -> rusqlite::Result<Self> {
        let mut found = Self { rows: 0, sum: 0, bytes: 0 };
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            found.rows += 1;
            found.sum += i128::from(row.get::<_, i64>(0)?);
            found.bytes += row.get_ref(1)?.as_str()?.len() as u64;
        }
        Ok(found)
    }
}

struct Load<'a> {
    parameters: &'a Parameters,
    files: &'a Files,
    context: &'a Context,
    marks: Option<Writer>,
}

impl Load<'_> {
    fn run(&self) -> Result<Vec<u8>, Error> {
        let p = self.parameters;
        let mut lines = Vec::new();
        let mut connection = self.files.connect(p)?;
        connection.execute("CREATE TABLE t (n INTEGER, s TEXT)", []).map_err(failed("create the table"))?;
        if matches!(p.op, "select" | "update" | "delete") {
            self.fill(&mut connection)?;
        }
        let mut left = Contents::expected(p.rows, 0);
        match p.op {
            "insert" => self.insert(&connection, &mut lines)?,
            "select" => self.select(connection, &mut lines)?,
            "demo" => {
                self.insert(&connection, &mut lines)?;
                self.select(connection, &mut lines)?;
            }
            "update" => {
                let sql = "UPDATE t SET n = n + 1 WHERE rowid = ?1";
                self.each_row(&connection, "UPDATE", sql, |s, n| s.execute([n as i64]), &mut lines)?;
                left = Contents::expected(p.rows, 1);
            }
            _ => {
                let sql = "DELETE FROM t WHERE rowid = ?1";
                self.each_row(&connection, "DELETE", sql, |s, n| s.execute([n as i64]), &mut lines)?;
                left = Contents::expected(0, 0);
            }
        }
        self.verify(&left, &mut lines)?;
        Ok(lines)
    }

    /// Rows in one transaction, not timed.
    fn fill(&self, connection: &mut Connection) -> Result<(), Error> {
        let mut fill = || -> rusqlite::Result<()> {
            let transaction = connection.transaction()?;
            {
                let mut insert = transaction.prepare("INSERT INTO t VALUES (?1, ?2)")?;
                for n in 1..=self.parameters.rows {
                    insert.execute(params![n as i64, text_of(n)])?;
                }
            }
            transaction.commit()
        };
        fill().map_err(failed("fill the table"))
    }

    fn insert(&self, connection: &Connection, lines: &mut Vec<u8>) -> Result<(), Error> {
        let sql = "INSERT INTO t VALUES (?1, ?2)";
        self.each_row(connection, "INSERT", sql, |s, n| s.execute(params![n as i64, text_of(n)]), lines)
    }

    /// Executes `sql` once for every row, in transactions of the size asked for, and writes what it took.
    fn each_row(
        &self,
        connection: &Connection,
        name: &str,
        sql: &str,
        execute: impl Fn(&mut Statement<'_>, u64) -> rusqlite::Result<usize>,
        lines: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let p = self.parameters;
        let failed = failed(name);
        let mut statement = connection.prepare(sql).map_err(&failed)?;
        let grouped = p.per_transaction > 1;
        let mut timing = Timing::new(self.marks.as_ref(), name, p.rows, p.each);
        for n in 1..=p.rows {
            if self.context.cancelled() {
                return Err(Error::Interrupted);
            }
            if grouped && (n - 1).is_multiple_of(p.per_transaction) {
                connection.execute_batch("BEGIN").map_err(&failed)?;
            }
            let changed = timing.around(|| execute(&mut statement, n)).map_err(&failed)?;
            if changed != 1 {
                return Err(Error::Failed(format!("{name} {n} changed {changed} rows in place of one")));
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

    fn select(&self, mut connection: Connection, lines: &mut Vec<u8>) -> Result<(), Error> {
        let p = self.parameters;
        if p.cold {
            // Closing throws SQLite's own cache away (and brings a WAL back into the database); then the kernel's.
            connection.close().map_err(|(_, e)| failed("close the database")(e))?;
            self.files.evict()?;
            connection = self.files.connect(p)?;
        }
        let failed = failed("SELECT");
        let mut statement = connection.prepare("SELECT * FROM t").map_err(&failed)?;
        let expected = Contents::expected(p.rows, 0);
        let mut timing = Timing::new(self.marks.as_ref(), "SELECT", p.scans, p.each);
        for n in 1..=p.scans {
            if self.context.cancelled() {
                return Err(Error::Interrupted);
            }
            let found = timing.around(|| Contents::scan(&mut statement)).map_err(&failed)?;
            if found != expected {
                return Err(Error::Failed(format!("scan {n} found {found:?} in place of {expected:?}")));
            }
            if n.is_multiple_of(64) {
                self.context.progress("SELECT", n, p.scans);
            }
        }
        Ok(timing.finish(lines)?)
    }

    fn verify(&self, expected: &Contents, lines: &mut Vec<u8>) -> Result<(), Error> {
        let failed = failed("check the contents");
        let connection = self.files.connect(self.parameters).map_err(|e| Error::Failed(e.to_string()))?;
        let sql = "SELECT count(*), coalesce(sum(n), 0), coalesce(sum(length(s)), 0) FROM t";
        let found = connection
            .query_row(sql, [], |row| {
                let (rows, sum, bytes): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(Contents { rows: rows as u64, sum: sum.into(), bytes: bytes as u64 })
            })
            .map_err(&failed)?;
        if found != *expected {
            return Err(Error::Failed(format!("the table holds {found:?} in place of {expected:?}")));
        }
        let line = serde_json::json!({"verified": true, "by": "count(*) and sum match"});
        Ok(writeln!(lines, "{line}")?)
    }
}

/// Times of one kind of statement.
struct Timing<'a> {
    series: Series<'a>,
    name: String,
    begin: u64,
    begin_cpu: u64,
    executed: u64,
    /// (end, latency) of each, if asked for; room is made before the loop.
    each: Option<Vec<(u64, u64)>>,
}

impl<'a> Timing<'a> {
    fn new(marks: Option<&'a Writer>, name: &str, expected: u64, each: bool) -> Self {
        let room = usize::try_from(expected.min(1 << 24)).unwrap_or_default();
        Self {
            series: Series::new(marks, name),
            name: name.to_ascii_lowercase(),
            each: each.then(|| Vec::with_capacity(room)),
            executed: 0,
            begin_cpu: clock::process_cpu_ns(),
            begin: clock::now_ns(),
        }
    }

    fn around<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (result, start, end) = self.series.around(work);
        self.executed += 1;
        if let Some(each) = &mut self.each {
            each.push((end, end - start));
        }
        result
    }

    /// Writes the rate, from before the first to after the last with whatever lay between them, the CPU time that one
    /// took of this process (what others did for it is not in it), and each latency.
    fn finish(self, lines: &mut Vec<u8>) -> std::io::Result<()> {
        let end = clock::now_ns();
        let cpu = clock::process_cpu_ns() - self.begin_cpu;
        for (t, latency) in self.each.iter().flatten() {
            sample(lines, &format!("{}.latency", self.name), "ns", *t, *latency as f64)?;
        }
        if self.executed > 0 {
            let rate = self.executed as f64 * 1e9 / (end - self.begin).max(1) as f64;
            sample(lines, &format!("{}.rate", self.name), "1/s", end, rate)?;
            sample(lines, &format!("{}.cpu", self.name), "ns", end, cpu as f64 / self.executed as f64)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("fathom-sqlite-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn files(&self) -> usize {
            std::fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn run_in(folder: &Folder, words: &[&str], context: &Context) -> Result<Vec<serde_json::Value>, Error> {
        let mut words: Vec<String> = words.iter().map(ToString::to_string).collect();
        words.extend(["--dir".into(), folder.0.to_str().unwrap().into()]);
        let mut out = Vec::new();
        run(&words, context, &mut out)?;
        Ok(out.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect())
    }

    #[test]
    fn every_operation_in_every_mode_verifies_itself_and_leaves_nothing() {
        let folder = Folder::new("modes");
        for op in ["insert", "select", "update", "delete", "demo"] {
            for mode in JOURNAL_MODES {
                let words = ["--op", op, "--rows", "5", "--scans=3", "--journal-mode", mode, "--cache=cold"];
                let lines = run_in(&folder, &words, &Context::silent()).unwrap();
                assert_eq!(lines.last().unwrap()["verified"], true, "{op} {mode}");
                let metric = if op == "demo" { "insert.rate".into() } else { format!("{op}.rate") };
                assert!(lines[0]["metric"] == metric.as_str() && lines[0]["v"].as_f64().unwrap() > 0.0, "{lines:?}");
                assert_eq!(folder.files(), 0, "{op} {mode}");
            }
        }
    }

    #[test]
    fn each_execution_can_be_had_and_lies_within_the_run() {
        let folder = Folder::new("each");
        let before = clock::now_ns();
        let words = ["--op=demo", "--rows=25", "--scans=4", "--samples=each", "--per-transaction=10"];
        let lines = run_in(&folder, &words, &Context::silent()).unwrap();
        let of = |metric: &str| lines.iter().filter(|l| l["metric"] == metric).collect::<Vec<_>>();
        assert_eq!((of("insert.latency").len(), of("select.latency").len()), (25, 4));
        let times: Vec<u64> = of("insert.latency").iter().map(|l| l["t"].as_u64().unwrap()).collect();
        assert!(times[0] > before && times.is_sorted() && times[24] < clock::now_ns());
    }

    #[test]
    fn without_samples_a_run_says_nothing_unless_it_fails() {
        let folder = Folder::new("none");
        let lines = run_in(&folder, &["--op=demo", "--rows=5", "--scans=2", "--samples=none"], &Context::silent());
        assert_eq!(lines.unwrap(), Vec::<serde_json::Value>::new());
        let nowhere = ["--samples=none", "--dir=/nonexistent"].map(String::from);
        assert!(matches!(run(&nowhere, &Context::silent(), &mut Vec::new()), Err(Error::Failed(_))));
    }

    #[test]
    fn a_cancelled_run_leaves_nothing() {
        let folder = Folder::new("cancel");
        let flag = std::sync::Arc::new(std::sync::OnceLock::new());
        let context = Context::new({
            let flag: std::sync::Arc<std::sync::OnceLock<std::sync::Arc<std::sync::atomic::AtomicBool>>> = flag.clone();
            // Cancelled by the first word of progress, hence in the middle.
            std::sync::Arc::new(move |_: &str, _, _| {
                if let Some(flag) = flag.get() {
                    flag.store(true, Ordering::Relaxed);
                }
            })
        });
        flag.set(context.cancel_flag()).unwrap();
        let result = run_in(&folder, &["--rows=100000", "--journal-mode=wal", "--synchronous=off"], &context);
        assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
        assert_eq!(folder.files(), 0);
    }

    #[test]
    fn a_wrong_content_is_found() {
        let folder = Folder::new("wrong");
        let parameters = Parameters::parse(&["--dir".into(), folder.0.to_str().unwrap().into()]).unwrap();
        let files = Files::new(&folder.0).unwrap();
        let connection = files.connect(&parameters).unwrap();
        connection.execute_batch("CREATE TABLE t (n INTEGER, s TEXT); INSERT INTO t VALUES (1, 'short')").unwrap();
        let load = Load { parameters: &parameters, files: &files, context: &Context::silent(), marks: None };
        let result = load.verify(&Contents::expected(1, 0), &mut Vec::new());
        assert!(matches!(result, Err(Error::Failed(text)) if text.contains("bytes: 5")));
    }

    #[test]
    fn the_string_has_100_bytes() {
        assert!([0, 1, 999, 9_999_999_999].iter().all(|n| text_of(*n).len() == 100));
    }

    #[test]
    fn mistakes_are_told_before_anything_is_made() {
        for words in [
            &["--journal-mode=fast"][..],
            &["--page-size=1000"],
            &["--rows=0"],
            &["--per-transaction=0"],
            &["--op=vacuum"],
            &["--samples=some"],
        ] {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            assert!(matches!(run(&words, &Context::silent(), &mut Vec::new()), Err(Error::Usage(_))), "{words:?}");
        }
        let nowhere: Vec<String> = ["--dir=/nonexistent".into()].into();
        let result = run(&nowhere, &Context::silent(), &mut Vec::new());
        assert!(matches!(result, Err(Error::Failed(text)) if text.contains("/nonexistent")));
    }
}
