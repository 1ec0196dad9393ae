//! Counts what a piece of a test asks of files: syncs, calls, bytes. Needs the program `fathom` in PATH (or FATHOM), Linux 5.3, and no root.
//!
//! ```no_run
//! # fn save() {}
//! let counts = fathom_test::counting(|| save());
//! assert!(counts.fsyncs() <= 1, "{counts:?}");
//! ```
//!
//! Counts are of the calling thread alone, since `cargo test` runs tests side by side; `counting_all` counts the process.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Counts by kind of file, by the names of `fathom check`: `fdatasync WAL`, `bytes written file`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<String, u64>);

/// Why calls cannot be counted here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotCounted(pub String);

impl std::fmt::Display for NotCounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotCounted {}

impl Counts {
    /// Calls of these names, on any kind of file.
    pub fn calls(&self, names: &[&str]) -> u64 {
        let is = |kind: &str| names.contains(&kind.split(' ').next().unwrap_or(kind));
        self.0.iter().filter(|(kind, _)| is(kind)).map(|(_, n)| n).sum()
    }

    /// Calls that wait for the medium.
    pub fn fsyncs(&self) -> u64 {
        self.calls(&["fsync", "fdatasync", "sync_file_range", "sync", "msync"])
    }

    /// Bytes that calls wrote to files.
    pub fn bytes_written(&self) -> u64 {
        self.0.iter().filter(|(kind, _)| kind.starts_with("bytes written")).map(|(_, n)| n).sum()
    }

    fn less(mut self, before: &Self) -> Self {
        for (kind, n) in &mut self.0 {
            *n -= before.0.get(kind).copied().unwrap_or(0).min(*n);
        }
        self.0.retain(|_, n| *n > 0);
        self
    }
}

/// Counts what the calling thread asks of files while `work` runs.
///
/// # Panics
/// The calls cannot be counted here: [`try_counting`] returns that as an error.
pub fn counting<T>(work: impl FnOnce() -> T) -> Counts {
    match try_counting(work) {
        Ok((counts, _)) => counts,
        Err(why) => panic!("{why}"),
    }
}

/// The same, with the result of `work`.
///
/// # Errors
/// The program is missing, or may not attach to this process.
pub fn try_counting<T>(work: impl FnOnce() -> T) -> Result<(Counts, T), NotCounted> {
    // SAFETY: takes nothing, and cannot fail.
    count_around(&format!("count {}", unsafe { gettid() }), work)
}

/// Counts the whole process: other threads, and children.
///
/// # Errors
/// As [`try_counting`].
pub fn counting_all<T>(work: impl FnOnce() -> T) -> Result<(Counts, T), NotCounted> {
    count_around("count", work)
}

fn count_around<T>(question: &str, work: impl FnOnce() -> T) -> Result<(Counts, T), NotCounted> {
    let before = ask(question)?;
    let made = work();
    Ok((ask(question)?.less(&before), made))
}

struct Counter {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

extern "C" {
    fn prctl(option: i32, ...) -> i32;
    fn gettid() -> i32;
}

/// prctl(2): who may attach where only ancestors may (Yama).
const PR_SET_PTRACER: i32 = 0x5961_6d61;

fn ask(question: &str) -> Result<Counts, NotCounted> {
    static COUNTER: OnceLock<Mutex<Result<Counter, NotCounted>>> = OnceLock::new();
    let counter = COUNTER.get_or_init(|| Mutex::new(Counter::start()));
    let mut counter = counter.lock().unwrap_or_else(PoisonError::into_inner);
    let counter = counter.as_mut().map_err(|why| why.clone())?;
    counter.ask(question).map(|line| parse(&line))
}

impl Counter {
    fn start() -> Result<Self, NotCounted> {
        let program = std::env::var_os("FATHOM").unwrap_or_else(|| "fathom".into());
        let mut command = Command::new(&program);
        command.args(["check", "attach", &std::process::id().to_string()]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| NotCounted(format!("{}: {error}", program.to_string_lossy())))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(NotCounted("no pipes".into()));
        };
        // SAFETY: takes numbers only.
        unsafe { prctl(PR_SET_PTRACER, u64::from(child.id()), 0_u64, 0_u64, 0_u64) };
        let mut counter = Self { child, input, output: BufReader::new(output) };
        counter.ask("attach")?;
        Ok(counter)
    }

    fn ask(&mut self, question: &str) -> Result<String, NotCounted> {
        let mut line = String::new();
        let asked = writeln!(self.input, "{question}").and_then(|()| self.output.read_line(&mut line));
        match asked {
            Ok(n) if n > 0 => Ok(line),
            _ => {
                let _ = self.child.wait();
                Err(NotCounted("the program `fathom` cannot attach to this process; it says why on stderr".into()))
            }
        }
    }
}

/// Parses the line's one object of numbers: its names contain no escapes.
fn parse(line: &str) -> Counts {
    let body = line.split_once("\"counts\":{").map_or("", |(_, rest)| rest.split('}').next().unwrap_or(""));
    let pair = |text: &str| {
        let (name, n) = text.rsplit_once(':')?;
        Some((name.trim().trim_matches('"').to_string(), n.trim().parse().ok()?))
    };
    Counts(body.split(',').filter_map(pair).collect())
}
