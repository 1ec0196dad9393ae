//! Command line of `fathom check`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Compare a command's I/O with a recorded contract: a regression test for CI.
///
/// Times vary with the machine; counts do not. System calls, syncs and bytes by kind of file are compared exactly, per SQL statement; flushes
/// and write commands of the device with a tolerance. A difference must appear in three runs. Without permission to use BPF, calls are
/// counted by ptrace: without statements and the device; a contract that needs them is then compared by the calls and bytes of
/// /proc/PID/io, with a notice.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  sudo fathom check record --prepare 'rm -f t.db' -- python3 app.py t.db
  sudo fathom check                                  run it again, and compare
  sudo fathom check io.toml --json -- python3 app.py t.db
  sudo fathom check --sarif io.sarif --junit io.xml --markdown io.md

Exit status: 0 as recorded, 1 a difference or failure, 2 usage error."
)]
pub struct Check {
    #[command(subcommand)]
    pub verb: Option<CheckVerb>,
    /// Contract to compare with
    #[arg(value_name = "FILE", default_value = "fathom-check.toml")]
    pub file: PathBuf,
    /// Run this command before each run [default: the contract's]
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<String>,
    /// Do not trace, even if it is permitted
    #[arg(long)]
    pub no_trace: bool,
    /// Do not run the command once more, stopped at its calls, to find the lines of a difference
    #[arg(long)]
    pub no_lines: bool,
    /// Write the result as SARIF 2.1.0, for code hosts; `-` for stdout
    #[arg(long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
    /// Write the result as JUnit's XML, for CI systems; `-` for stdout
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write the result as a comment for the change, in Markdown; `-` for stdout
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Keep the last run's recording, for `fathom report`
    #[arg(long, value_name = "T.fathom", conflicts_with = "no_trace")]
    pub keep: Option<PathBuf>,
    /// Print JSON (format: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
    /// Command to run, with its arguments [default: the contract's]
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// The commands of `check`.
#[derive(Debug, Subcommand)]
pub enum CheckVerb {
    Record(CheckRecord),
    #[command(hide = true)]
    Calls(CheckCalls),
    #[command(hide = true)]
    Attach(CheckAttach),
}

/// Count the calls of a running process, for a test in it: `attach` and `count` are its words on standard input.
#[derive(Debug, Args)]
pub struct CheckAttach {
    /// The process
    #[arg(value_name = "PID")]
    pub pid: u32,
}

/// Run a command, stopped at its calls, and write where it makes them.
#[derive(Debug, Args)]
pub struct CheckCalls {
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Name of a system call (repeatable)
    #[arg(long = "call", value_name = "NAME", required_unless_present = "count")]
    pub calls: Vec<String>,
    /// Write the counts of all calls on files instead
    #[arg(long, conflicts_with = "calls")]
    pub count: bool,
    /// Command to run, with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Run a command several times, and write the counts that the runs have in common to a file.
///
/// Counts that differ between the runs are stored as ranges. Commit the file, and record again after an intended change.
#[derive(Debug, Args)]
pub struct CheckRecord {
    /// File to write; `-` for stdout
    #[arg(short, long, value_name = "FILE", default_value = "fathom-check.toml")]
    pub output: PathBuf,
    /// Number of runs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=100))]
    pub runs: u64,
    /// Run this command before each run, so that each run finds the same files
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<String>,
    /// Do not trace, even if it is permitted
    #[arg(long)]
    pub no_trace: bool,
    /// Command to run, with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}
