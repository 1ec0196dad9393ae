//! SQLite as in the papers: a table of an integer and a string of 100 bytes, 1,000 INSERTs each in a transaction of its
//! own, then scans of the whole table by `SELECT * FROM t` (paper 000, section 4.5.3).
//!
//! Only the loop of statements is timed: the database is created, and filled if the operation needs rows, before it.
//! The statement is prepared once and executed repeatedly. Each execution is inside a mark (see [`crate::marks`]), the
//! App(start) and App(end) of paper 000, section 5.2. Afterwards every row is compared with its expected content and
//! the file is checked (PRAGMA integrity_check), through a separate connection, so that a fast result is also a correct
//! one.
//!
//! An iteration is all of the rows, in a new database each time; or all of the scans, of the same one. Sync policy and
//! journal mode change these numbers a thousandfold, far more than devices do: they are options, and are stated with the
//! result.
//!
//! The engine is the one bundled with Fathom, the system's own ([`shell`]), or the one of Android's apps ([`android`]).
//!
//! The files (database, rollback journal, WAL, shared memory) are the workload's own, under a name unique to its
//! process, and are removed when it ends, fails or is cancelled.

mod android;
mod contents;
mod files;
mod load;
mod shell;
#[cfg(test)]
mod tests;
mod timing;

use self::android::Framework;
use crate::marks::Writer;
use crate::options::{Options, Spec};
use crate::{Error, art, robolectric};
use model::Context;
use std::io::Write;
use std::path::PathBuf;

const HELP_SUMMARY: &str =
    "SQLite on a new database: the table t (an integer, a string of 100 bytes) of paper 000, 4.5.3.";

const OPTION_SPECS: &[Spec] = &[
    Spec { name: "op", default: "insert", help: "insert, select, update, delete, or demo (insert, then select)" },
    Spec { name: "rows", default: "1000", help: "rows of the table" },
    Spec { name: "scans", default: "10", help: "number of full scans, for select and demo (the paper: 10000)" },
    Spec { name: "per-transaction", default: "1", help: "statements per transaction; 1 is autocommit" },
    Spec { name: "journal-mode", default: "delete", help: "delete, truncate, persist, memory, wal or off" },
    Spec { name: "synchronous", default: "full", help: "off, normal, full or extra" },
    Spec { name: "page-size", default: "4096", help: "bytes, a power of two from 512 to 65536" },
    Spec {
        name: "cache",
        default: "warm",
        help: "warm, or cold: the file is evicted from the page cache before the \
        first scan",
    },
    Spec { name: "samples", default: "total", help: "total (a rate), each (every latency as well), or none (no line)" },
    Spec { name: "iterations", default: "1", help: "timed iterations" },
    Spec { name: "warmup", default: "0", help: "untimed iterations before" },
    Spec {
        name: "engine",
        default: "bundled",
        help: "bundled; system: the installed program sqlite3, statements as text; android: android.database on a device; \
               robolectric: android.database on this host",
    },
    Spec {
        name: "art",
        default: "",
        help: "path of the Android runtime, for android [app_process64 or app_process on PATH]",
    },
    art::DEX_JAR_OPTION,
    Spec { name: "java", default: "java", help: "path of java, for robolectric" },
    robolectric::DIRECTORY_OPTION,
    Spec { name: "dir", default: ".", help: "directory for the database" },
];

const JOURNAL_MODES: &[&str] = &["delete", "truncate", "persist", "memory", "wal", "off"];
const SYNCHRONOUS_LEVELS: &[&str] = &["off", "normal", "full", "extra"];

/// The engine that executes the statements.
#[derive(Debug, Clone)]
enum EngineChoice {
    Bundled,
    System,
    Android(Framework),
}

/// The operation of the statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Insert,
    Select,
    Update,
    Delete,
    /// INSERTs, followed by scans.
    Demo,
}

impl Op {
    const NAMES: [(&'static str, Self); 5] = [
        ("insert", Self::Insert),
        ("select", Self::Select),
        ("update", Self::Update),
        ("delete", Self::Delete),
        ("demo", Self::Demo),
    ];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, op)| *op == self).map_or("", |(name, _)| name)
    }
}

#[derive(Debug, Clone)]
struct Parameters {
    op: Op,
    rows: u64,
    scans: u64,
    per_transaction: u64,
    journal_mode: &'static str,
    synchronous: &'static str,
    page_size: u32,
    cold: bool,
    each: bool,
    silent: bool,
    iterations: u64,
    warmup: u64,
    engine: EngineChoice,
    dir: PathBuf,
}

impl Parameters {
    /// An estimate of the most bytes of the database and its journal: a row is an integer and 100 bytes, with SQLite's
    /// own overhead 128 in full pages. A rollback journal holds the previous content, at most all of it; a WAL grows to
    /// 1,000 pages, or until the end of a transaction.
    fn needed_bytes(&self) -> u64 {
        let table = self.rows.saturating_mul(if self.page_size < 1024 { 160 } else { 130 }).saturating_add(64 << 10);
        let journal = match self.journal_mode {
            "memory" | "off" => 0,
            "wal" => (1000 * (u64::from(self.page_size) + 24)).saturating_add(table),
            _ if self.op == Op::Insert => 64 << 10,
            _ => table,
        };
        table.saturating_add(journal)
    }

    fn parse(words: &[String]) -> Result<Self, Error> {
        let options = Options::parse(HELP_SUMMARY, OPTION_SPECS, words)?;
        let iterations = match options.get("iterations")? {
            0 => return Err(Error::Usage("--iterations must be at least 1".into())),
            n => n,
        };
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
        let name = options.one_of("op", &Op::NAMES.map(|(name, _)| name))?;
        let op = Op::NAMES.iter().find(|(known, _)| *known == name).map_or(Op::Insert, |(_, op)| *op);
        let samples = options.one_of("samples", &["total", "each", "none"])?;
        let (dex_jar, directory) = (options.text("dex-jar").into(), options.text("robolectric").into());
        let name = options.one_of("engine", &["bundled", "system", "android", robolectric::MODE])?;
        let engine = match name {
            "bundled" => EngineChoice::Bundled,
            "system" => EngineChoice::System,
            "android" => EngineChoice::Android(Framework::Art(options.text("art").into(), dex_jar)),
            _ => EngineChoice::Android(Framework::Robolectric(options.text("java").into(), directory)),
        };
        if name != "bundled" && (op == Op::Demo || samples == "each") {
            return Err(Error::Usage(format!(
                "--engine {name} supports neither --op demo nor --samples each: it cannot time single statements"
            )));
        }
        let warmup: u64 = options.get("warmup")?;
        if op == Op::Demo && warmup > 0 {
            return Err(Error::Usage("--op demo does not support --warmup".into()));
        }
        Ok(Self {
            op,
            rows,
            scans: options.get("scans")?,
            per_transaction,
            journal_mode: options.one_of("journal-mode", JOURNAL_MODES)?,
            synchronous: options.one_of("synchronous", SYNCHRONOUS_LEVELS)?,
            page_size,
            cold: options.one_of("cache", &["warm", "cold"])? == "cold",
            each: samples == "each",
            silent: samples == "none",
            iterations,
            warmup,
            engine,
            dir: options.text("dir").into(),
        })
    }
}

/// Runs the workload with `words` as its options and writes its lines, if requested, to `out` at its end.
///
/// # Errors
/// See [`Error`]; the files are removed in any case.
pub fn run(words: &[String], context: &Context, out: &mut dyn Write) -> Result<(), Error> {
    let parameters = Parameters::parse(words)?;
    crate::storage::check_free_space(&parameters.dir, parameters.needed_bytes(), "--rows")?;
    let lines = load::Load { parameters: &parameters, context, marks: Writer::from_environment() }.run()?;
    // Only now, so that a slow reader of our output cannot disturb the timed part.
    if !parameters.silent {
        out.write_all(&lines)?;
    }
    out.flush()?;
    Ok(())
}

fn failed(what: &str) -> impl Fn(rusqlite::Error) -> Error + '_ {
    move |error| {
        let advice = match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => {
                "; free some space, choose another directory (--dir) or fewer --rows"
            }
            _ => "",
        };
        Error::Failed(format!("cannot {what}: {error}{advice}"))
    }
}
