//! Command line of `fathom bench`.

use super::ab::BenchAb;
use super::results::{BenchCompare, BenchHistory, BenchPlan, BenchShow, ServeHttp};
use crate::destination::directory_parser;
use clap::{Args, Subcommand};
use model::quantity::{long_time, percent};
use scores::measure::quantity::parameter;
use std::path::PathBuf;
use std::time::Duration;

/// Benchmark CPU, storage, SQLite and HTTP: fresh processes in randomised blocks, scores with confidence intervals.
///
/// Each cell (a combination of parameters) runs in fresh processes, in randomised blocks that run each cell once. Scores with their
/// intervals, raw samples and the known facts about the machine are stored in an archive.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Start here:
  fathom bench list                          the workloads and their parameters
  fathom bench run --quick                   smoke test of the whole suite, in a few minutes
  fathom bench run sqlite                    one workload, until its intervals are narrow
  fathom bench run sqlite -p journal_mode=wal,delete -p synchronous=full,normal --dir /mnt/card
  fathom bench ab -- './old' './new'         any two commands, with a control
  fathom bench selftest                      the method's false-positive rate on this machine"
)]
pub struct Bench {
    #[command(subcommand)]
    pub verb: BenchVerb,
}

/// The commands of `bench`, documented at their arguments.
#[derive(Debug, Subcommand)]
pub enum BenchVerb {
    List(BenchList),
    Run(BenchRun),
    Ab(BenchAb),
    Show(BenchShow),
    Compare(BenchCompare),
    History(BenchHistory),
    Plan(BenchPlan),
    ServeHttp(ServeHttp),
    Selftest(BenchSelftest),
}

/// List the workloads: their parameters with defaults and possible values, and their requirements.
#[derive(Debug, Args)]
pub struct BenchList {
    /// Workloads [default: all]
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How designs are run, by `bench run` and `net sweep`.
#[derive(Debug, Clone, Default, Args)]
pub struct Sweep {
    /// Set the values of a parameter (repeatable; WORKLOAD.NAME=… for one workload only)
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUE,…", value_parser = parameter)]
    pub parameters: Vec<(String, Vec<String>)>,
    /// Smoke test: few processes, small values; results are marked as quick
    #[arg(long)]
    pub quick: bool,
    /// Run exactly this many blocks, however wide the intervals are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: Option<u64>,
    /// Seed of the randomised order [default: random; it is recorded]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Total time, divided in proportion to the workloads' own budgets (suffixes s, m, h); the minimum number of blocks always runs
    #[arg(long, value_name = "TIME", value_parser = long_time)]
    pub budget: Option<Duration>,
    /// Start at once even if the machine is hot or busy; the results are marked
    #[arg(long)]
    pub no_wait: bool,
    /// Print JSON (format: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
}

/// Run workloads or designs, and store the results in an archive.
///
/// A workload's cells are all combinations of its parameters' values. Blocks are added until each interval is narrow
/// enough or the time budget is spent. Ctrl-C keeps what was measured; --resume continues from there.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  fathom bench run --quick                              smoke test: small values, few processes
  fathom bench run sqlite -p op=insert -p rows=100,10000
  fathom bench run sqlite --dir internal=/data --dir card=/mnt/card
  fathom bench run sqlite --why                         also record where each cell's time goes
  fathom bench run experiments/peers/*.toml             comparisons with a baseline
  fathom bench run --resume bench.fathom                continue after Ctrl-C or a crash
  fathom bench run sqlite --device adb:R58              on a phone; its archive comes back

Exit status: 0 success, 1 failure, 2 usage error, 130 interrupted (what was measured is kept).")]
pub struct BenchRun {
    /// Workloads by name (`fathom bench list`), or designs by file [default: the whole suite]
    #[arg(value_name = "WORKLOAD|DESIGN.toml")]
    pub what: Vec<String>,
    #[command(flatten)]
    pub sweep: Sweep,
    /// Stop when half the width of each interval is below this percentage of the estimate
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub precision: Option<f64>,
    /// Also record one process of each SQLite and storage cell, and show where its time goes (needs root)
    #[arg(long)]
    pub why: bool,
    /// Directory on the storage under test, optionally named (repeatable)
    #[arg(long, value_name = "[NAME=]DIR")]
    pub dir: Vec<String>,
    /// Like --dir, for this machine if it is one of several devices [default: those of --dir]
    #[arg(long, value_name = "[NAME=]DIR", requires = "device")]
    pub dir_here: Vec<String>,
    /// Archive to write; an existing one is kept as NAME.fathom.old
    #[arg(short, long, value_name = "B.fathom", default_value = "bench.fathom", value_parser = directory_parser())]
    pub output: PathBuf,
    /// Print no progress, only results, warnings and errors
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub files: super::ResultFiles,
    /// Resume an interrupted run with the same cells, seed and order
    #[arg(long, value_name = "B.fathom", conflicts_with_all = [
        "what", "parameters", "quick", "blocks", "seed", "budget", "precision", "why", "dir", "output",
    ])]
    pub resume: Option<PathBuf>,
    /// Set Android's fixed-performance mode for the run, and reset it afterwards (Android 11 or newer, where the vendor supports it)
    #[arg(long)]
    pub fixed_performance: bool,
    #[command(flatten)]
    pub devices: super::Devices,
    /// Run on one device after another, as needed if they share a power supply, cooling or a network. By default, devices run at the
    /// same time, except for this machine and its guests, which take turns
    #[arg(long, requires = "device")]
    pub in_turn: bool,
    /// Copy this file to the device for the modes art-* (java/dex builds it)
    #[arg(long, value_name = "FILE", requires = "device")]
    pub dex_jar: Option<PathBuf>,
    /// The command the user typed, for advice.
    #[arg(skip = "bench run")]
    pub verb: &'static str,
}

/// Measure the method's false-positive rate with A/A comparisons.
///
/// The first cell of the workload runs under two names in the same blocks, and each comparison is judged like any other: a
/// verdict of faster or slower is a false positive.
#[derive(Debug, Args)]
pub struct BenchSelftest {
    /// A workload by name or file [default: a compute-only workload]
    #[arg(value_name = "WORKLOAD|DESIGN.toml")]
    pub what: Option<String>,
    /// Number of comparisons
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub comparisons: u64,
    // Fewer have no interval, and so no verdict.
    /// Blocks per comparison, of two processes each
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(5..=1000))]
    pub blocks: u64,
    /// Seed of the randomised order
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Start at once even if the machine is hot or busy; the results are marked
    #[arg(long)]
    pub no_wait: bool,
    /// The smallest difference that matters, in percent
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent)]
    pub margin: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
