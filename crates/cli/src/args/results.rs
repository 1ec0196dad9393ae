//! Command line of those commands of `fathom bench` that read results, and of the HTTP server.

use super::one_of;
use crate::destination::directory_parser;
use clap::Args;
use model::quantity::percent;
use scores::Penalty;
use scores::measure::quantity::{parameter, setting, slower};
use stats::verdict::Better;
use std::path::PathBuf;

/// Compare two benchmarks cell by cell, two devices, or the values of one parameter within one benchmark.
///
/// Cells match if their workload and all their parameters are equal. For each, prints the ratio B / A of the scores with its
/// confidence interval and a verdict: faster, slower, equivalent (within the margin), inconclusive, or disturbed (other
/// processes interfered with more than a quarter of the replicates). The margin is 2 %, or the difference of an A/A comparison
/// on this machine if that is larger. The false discovery rate of faster and slower is at most 5 % (Benjamini-Hochberg). Cells
/// whose commands, units, metrics or directions differ are listed but not compared.
///
/// If A and B are devices, both are measured at the same time with the same cells. The first also runs with the second's SQLite
/// settings, one factor at a time, which shows how much of the ratio is due to them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom bench compare monday.fathom tuesday.fathom
  fathom bench compare phone.fathom pc.fathom --markdown phone-pc.md
  fathom bench compare old.fathom new.fathom --fail-on slower:5    fail if a cell is over 5 % slower
  fathom bench compare bench.fathom --by mode                      each mode against the first
  fathom bench compare bench.fathom --by mode=int                  each mode against int
  fathom bench compare pc.fathom phone.fathom --by mode=jvm-tiered,art-jit
  fathom bench compare host adb:R58M1             measure both; the effect of SQLite's settings

Exit status: 0 success; 1 failure, nothing could be compared, or with --fail-on a cell is slower or could not be compared; 2 usage \
error.")]
pub struct BenchCompare {
    /// The baseline: an archive, or a device to measure (`host`, `adb:SERIAL`, `ssh:HOST`)
    #[arg(value_name = "A.fathom")]
    pub a: PathBuf,
    /// The candidate
    #[arg(value_name = "B.fathom", required_unless_present = "by")]
    pub b: Option<PathBuf>,
    /// Compare the values of a parameter: within A, each against the first or against VALUE; across two archives, A's cells with the
    /// first value against B's with the second (NAME=VALUE,VALUE)
    #[arg(long, value_name = "NAME[=VALUE[,VALUE]]")]
    pub by: Option<String>,
    /// Exit with status 1 if a cell is slower (by more than PERCENT), or if a cell of both archives could not be compared
    #[arg(long, value_name = "slower[:PERCENT]", value_parser = slower)]
    pub fail_on: Option<f64>,
    /// Direction of scores whose archive does not record it (written by an older version)
    #[arg(long, value_name = "WAY", value_parser = one_of(&Better::CHOICES))]
    pub better: Option<Better>,
    /// Compare cells even if their commands differ, such as two builds of a program; a note shows the difference
    #[arg(long)]
    pub other_commands: bool,
    /// Penalty of a change point in the steady-state analysis (docs/internals/method.md)
    #[arg(long, default_value = "fixed", value_parser = one_of(&Penalty::CHOICES))]
    pub penalty: Penalty,
    /// Include disturbed replicates, for workloads whose own processes cause the interference
    #[arg(long)]
    pub even_disturbed: bool,
    /// Print JSON (format: docs/guide/comparing.md)
    #[arg(long)]
    pub json: bool,
    /// Also write the tables as Markdown to this file (`-`: to stdout, instead of the text)
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    #[command(flatten)]
    pub measure: MeasureBoth,
}

/// What is measured where A or B are devices.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Two devices (if A and B are devices, such as `host` and `adb:SERIAL`)")]
pub struct MeasureBoth {
    /// Workload to run on both (repeatable) [default: sqlite]
    #[arg(long = "run", value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// Set the values of a parameter (repeatable), as for `bench run`
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUE,…", value_parser = parameter)]
    pub parameters: Vec<(String, Vec<String>)>,
    /// SQLite settings on A [default: SQLite's own, journal_mode=delete,synchronous=full; on Android, those of its framework]
    #[arg(long, value_name = "NAME=VALUE,…", value_delimiter = ',', value_parser = setting)]
    pub a_settings: Vec<(String, String)>,
    /// SQLite settings on B, likewise
    #[arg(long, value_name = "NAME=VALUE,…", value_delimiter = ',', value_parser = setting)]
    pub b_settings: Vec<(String, String)>,
    /// Also record INSERTs on each device, in its own journal mode, and compare what an INSERT does: counts, phases, where its time
    /// goes (needs root on both)
    #[arg(long)]
    pub trace: bool,
    /// Smoke test: few processes, small values; results are marked as quick
    #[arg(long)]
    pub quick: bool,
    /// Run exactly this many blocks on each device
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: Option<u64>,
    /// Start at once even if a device is hot or busy; the results are marked
    #[arg(long)]
    pub no_wait: bool,
    /// Fathom's binary for devices of another architecture (repeatable)
    #[arg(long, value_name = "FILE")]
    pub binary: Vec<PathBuf>,
    /// Directory for an archive of each device [default: compare]
    #[arg(short, long, value_name = "DIR", value_parser = directory_parser())]
    pub output: Option<PathBuf>,
}

/// Show results over time, with changes to the machine.
///
/// Each result is compared with the previous one of the same cell.
#[derive(Debug, Args)]
pub struct BenchHistory {
    /// Archives, or directories of archives
    #[arg(value_name = "DIR|B.fathom", required = true)]
    pub paths: Vec<PathBuf>,
    /// Include disturbed replicates
    #[arg(long)]
    pub even_disturbed: bool,
    /// Print JSON (format: docs/guide/comparing.md)
    #[arg(long)]
    pub json: bool,
}

/// Estimate how many replicates a given precision needs.
///
/// Uses the variance within and between a benchmark's replicates. Gives the number for an interval of a given width, and for detecting
/// a difference of a given size. With five replicates the variance is known only to a factor of about 1.7, so this is a rough estimate.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom bench plan bench.fathom                    intervals of 2 %, differences of 3 %
  fathom bench plan pilot.fathom --precision 1 --difference 2
  fathom bench run sqlite --blocks 24               then run that many")]
pub struct BenchPlan {
    /// The archive
    #[arg(value_name = "B.fathom")]
    pub archive: PathBuf,
    /// Half the width of each cell's confidence interval, in percent
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent)]
    pub precision: f64,
    /// Difference between two cells to detect with 90 % power, in percent
    #[arg(long, value_name = "PERCENT", default_value = "3", value_parser = percent)]
    pub difference: f64,
    /// Print JSON (format: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
}

/// Files that results go into besides.
#[derive(Debug, Clone, Default, Args)]
pub struct ResultFiles {
    /// Also write the results as CSV to this file (`-`: to stdout, instead of the text)
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also write the tables as Markdown to this file (`-`: to stdout, instead of the text)
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Whether a page has them already: nothing is printed.
    #[arg(skip)]
    pub silent: bool,
}

/// Show the results of a benchmark.
#[derive(Debug, Args)]
pub struct BenchShow {
    /// The archive
    #[arg(value_name = "B.fathom")]
    pub archive: PathBuf,
    /// Penalty of a change point in the steady-state analysis (docs/internals/method.md)
    #[arg(long, default_value = "fixed", value_parser = one_of(&Penalty::CHOICES))]
    pub penalty: Penalty,
    /// Print JSON (format: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub files: ResultFiles,
}

/// Run an HTTP server for the workload `http` on another machine.
///
/// No authentication and no TLS: use it on a test network only. Ctrl-C stops it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom bench serve-http --listen 0.0.0.0:8080             on the server
  fathom bench run http -p target=http://192.0.2.1:8080/    on the device under test")]
pub struct ServeHttp {
    /// Address to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    pub listen: String,
    /// Size of each response's body, in bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub bytes: usize,
    /// Number of server threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
}
