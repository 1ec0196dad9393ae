//! The loads of benchmarks: each has stated parameters and a checked result, and reports its numbers as lines of JSON.
//!
//! A workload is a replicate's process, or a part of one: [`run`] takes arguments as from a command line and writes to
//! the caller's output. The lines are the contract between the load and the program that measures it (peers in other
//! languages write them too):
//!
//! ```json
//! {"metric":"insert.rate","unit":"1/s","t":1234,"v":57.1}
//! {"verified":true,"by":"count(*) and sum match"}
//! ```
//!
//! `t` is CLOCK_BOOTTIME in nanoseconds, when the number was measured; `v` is the value.

pub mod art;
pub mod clock;
pub mod command;
pub mod cpu;
pub mod draw;
pub mod http;
mod jvm;
pub mod marks;
mod options;
mod process_io;
pub mod robolectric;
mod spin;
pub mod sqlite;
mod storage;
mod unproven;
pub mod variant;

pub use unproven::UnprovenMode;

use model::Context;
use std::io::Write;

/// Why a workload ended without a result.
#[derive(Debug)]
pub enum Error {
    /// The arguments make no sense; the text names the wrong one and what is expected. Exit status 2.
    Usage(String),
    /// `--help` was among the arguments: the text to print. Exit status 0.
    Help(String),
    /// It was cancelled; everything that it had made is removed.
    Interrupted,
    /// It ran, and its result is wrong; the text has the finding. Exit status 1.
    Wrong(String),
    /// Something failed; the text states what, on what, and the remedy. Exit status 1.
    Failed(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Usage(text) | Self::Help(text) | Self::Wrong(text) | Self::Failed(text) => f.write_str(text),
            Self::Interrupted => f.write_str("interrupted; the workload's files were removed"),
        }
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Fails once an end was requested.
fn check_cancelled(context: &Context) -> Result<(), Error> {
    if context.cancelled() { Err(Error::Interrupted) } else { Ok(()) }
}

/// The workloads' names, with what each does.
pub const WORKLOAD_NAMES: &[(&str, &str)] = &[
    ("http", "GETs of one byte, in a closed loop or at a constant rate"),
    ("seq", "one file, written or read sequentially, like dd"),
    ("file", "many files, each written or read completely"),
    ("random", "reads or writes of small blocks at random offsets in a large file"),
    ("linpack", "a dense system of equations, in C, Rust or Java"),
    ("scimark", "SciMark 2's kernels, in C, Rust or Java"),
    ("himeno", "Jacobi's method on a grid, in C, Rust or Java"),
    ("draw", "rectangles, lines or circles on an image, in Java"),
    ("sqlite", "INSERTs, SELECTs, UPDATEs or DELETEs on a new database"),
    ("demo", "INSERTs, then full scans of a new database: sqlite --op demo"),
    ("command", "any command: its time, resource usage, reads and writes"),
    ("variant", "prepares a variant of `fathom fix`"),
    ("spin", "arithmetic only, for testing the method"),
];

/// All of [`WORKLOAD_NAMES`], one per line.
pub fn list() -> String {
    let lines: Vec<String> = WORKLOAD_NAMES.iter().map(|(name, what)| format!("  {name:<8} {what}")).collect();
    format!("Workloads:\n{}", lines.join("\n"))
}

/// Runs the workload named by the first word with the remaining words as arguments.
pub fn run(words: &[String], context: &Context, out: &mut dyn Write) -> Result<(), Error> {
    let result = run_named(words, context, out);
    if let Err(Error::Wrong(found)) = &result {
        writeln!(out, "{}", serde_json::json!({"verified": false, "by": found}))?;
    }
    result
}

fn run_named(words: &[String], context: &Context, out: &mut dyn Write) -> Result<(), Error> {
    match words.split_first() {
        Some((name, rest)) if name == "http" => http::run(rest, context, out),
        Some((name, rest)) if name == "seq" => storage::seq::run(rest, context, out),
        Some((name, rest)) if name == "file" => storage::file::run(rest, context, out),
        Some((name, rest)) if name == "random" => storage::random::run(rest, context, out),
        Some((name, rest)) if name == "linpack" => cpu::run("linpack", rest, context, out),
        Some((name, rest)) if name == "scimark" => cpu::run("scimark", rest, context, out),
        Some((name, rest)) if name == "himeno" => cpu::run("himeno", rest, context, out),
        Some((name, rest)) if name == "draw" => draw::run(rest, context, out),
        Some((name, rest)) if name == "sqlite" => sqlite::run(rest, context, out),
        Some((name, rest)) if name == "command" => command::run(rest, context, out),
        Some((name, rest)) if name == "variant" => variant::run(rest),
        Some((name, rest)) if name == "spin" => spin::run(rest, context, out),
        // A name of its own, because it is what people will first run under `record`.
        Some((name, rest)) if name == "demo" => {
            let words: Vec<String> = ["--op".into(), "demo".into()].into_iter().chain(rest.iter().cloned()).collect();
            sqlite::run(&words, context, out)
        }
        _ => {
            let unknown = words.first().map_or(String::new(), |name| format!("unknown workload {name:?}; "));
            Err(Error::Usage(format!("{unknown}expected one of:\n{}", list())))
        }
    }
}

/// The version of the SQLite that the workloads run, such as `3.50.4`.
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}

fn write_sample(out: &mut dyn Write, metric: &str, unit: &str, time_ns: u64, value: f64) -> std::io::Result<()> {
    writeln!(out, "{}", serde_json::json!({"metric": metric, "unit": unit, "t": time_ns, "v": value}))
}
