//! What the user may say to `fathom bench`.

use super::results::{BenchCompare, BenchHistory, BenchPlan, BenchShow, ServeHttp, percent};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Measure this device: CPU, storage, SQLite, HTTP; processes in randomised blocks, scores with intervals.
///
/// Every cell (a combination of parameters) is measured in fresh processes, in randomised blocks that run each cell once.
/// A score is an estimate with its interval; results, raw numbers and everything known of the machine go into an archive.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Start here:
  fathom bench list                          the workloads and their parameters
  fathom bench run --quick                   the whole suite in a few minutes, to see that it works
  fathom bench run sqlite                    one workload as in the papers, to narrow intervals
  fathom bench run sqlite -p journal_mode=wal,delete -p synchronous=full,normal --dir /mnt/card
  fathom bench selftest                      how many false alarms the method gives here"
)]
pub struct Bench {
    /// What to do.
    #[command(subcommand)]
    pub verb: BenchVerb,
}

/// What `bench` can do, told at the arguments of each.
#[derive(Debug, Subcommand)]
pub enum BenchVerb {
    List(BenchList),
    Run(BenchRun),
    Show(BenchShow),
    Compare(BenchCompare),
    History(BenchHistory),
    Plan(BenchPlan),
    ServeHttp(ServeHttp),
    Selftest(BenchSelftest),
}

/// List the workloads, their parameters with defaults and possible values, and what they need.
#[derive(Debug, Args)]
pub struct BenchList {
    /// Workloads; all if none is named
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Run workloads or designs, and store what they measured.
///
/// A workload's cells are all combinations of the parameters' values. Blocks are added until each interval is narrow
/// enough or the time is spent. Ctrl-C keeps what was measured; --resume goes on from there.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom bench run --quick                              everything, quick values, 5 processes a cell
  fathom bench run sqlite -p op=insert -p rows=100,10000
  fathom bench run sqlite --dir internal=/data --dir card=/mnt/card
  fathom bench run sqlite --why                         and where the time of each cell goes
  fathom bench run experiments/peers/*.toml             comparisons with a baseline
  fathom bench run --resume bench.fathom                go on after Ctrl-C, a crash or a power cut

Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted (what was measured is kept).")]
pub struct BenchRun {
    /// Workloads by name (`fathom bench list`), or designs by file; the whole suite if none is named
    #[arg(value_name = "WORKLOAD|DESIGN.toml")]
    pub what: Vec<String>,
    /// Values of a parameter, in place of the default (may be given again; WORKLOAD.NAME=… for one workload only)
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUE,…", value_parser = parameter)]
    pub parameters: Vec<(String, Vec<String>)>,
    /// Few processes and small values, to see that it works; marked as quick everywhere
    #[arg(long)]
    pub quick: bool,
    /// So many blocks, whatever the intervals say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: Option<u64>,
    /// Seed of the order, to run in the same one again; by default a new one, which is recorded
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Time for everything, shared out as the workloads' own budgets are (suffixes s, m, h); the least blocks are run all the
    /// same
    #[arg(long, value_name = "TIME", value_parser = super::long)]
    pub budget: Option<Duration>,
    /// End when half the width of each interval is below this, in percent of the estimate
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub precision: Option<f64>,
    /// Record one process of each cell of SQLite and storage, and show where its time goes (needs root)
    #[arg(long)]
    pub why: bool,
    /// Folder on the storage under test, with a name if wanted (may be given again)
    #[arg(long, value_name = "[NAME=]FOLDER")]
    pub dir: Vec<String>,
    /// Do not wait for a hot or busy machine: begin at once, and mark it
    #[arg(long)]
    pub no_wait: bool,
    /// The archive to make; one of that name is kept as NAME.fathom.old
    #[arg(short, long, value_name = "B.fathom", default_value = "bench.fathom")]
    pub output: PathBuf,
    /// No progress, and nothing but results, warnings and errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Print JSON (its contract: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
    /// Write the results as CSV to this file as well (`-`: to stdout, in place of the text)
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the tables as Markdown to this file as well (`-`: to stdout, in place of the text)
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Go on with an interrupted run: same cells, same seed, same order
    #[arg(long, value_name = "B.fathom", conflicts_with_all = [
        "what", "parameters", "quick", "blocks", "seed", "budget", "precision", "why", "dir", "output",
    ])]
    pub resume: Option<PathBuf>,
    /// What the user called it with, for advice.
    #[arg(skip = "bench run")]
    pub verb: &'static str,
}

/// Compare a workload with itself, again and again.
///
/// The first cell of the workload runs under two names in the same blocks. Each comparison is judged like any other; a
/// verdict other than equivalent or inconclusive is a false alarm.
#[derive(Debug, Args)]
pub struct BenchSelftest {
    /// A workload by name or file; by default one that only computes
    #[arg(value_name = "WORKLOAD|DESIGN.toml")]
    pub what: Option<String>,
    /// Comparisons
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub comparisons: u64,
    /// Blocks of each comparison: a process of either name
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=1000))]
    pub blocks: u64,
    /// Seed of the order
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Do not wait for a hot or busy machine: begin at once, and mark it
    #[arg(long)]
    pub no_wait: bool,
    /// The smallest difference that matters, in percent
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent)]
    pub margin: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub(super) fn parameter(text: &str) -> Result<(String, Vec<String>), String> {
    let (name, values) = text.split_once('=').ok_or("give NAME=VALUE, such as -p rows=1000")?;
    let values: Vec<String> = values.split(',').map(ToString::to_string).collect();
    if name.is_empty() || values.iter().any(String::is_empty) {
        return Err("give NAME=VALUE or NAME=VALUE,VALUE".into());
    }
    Ok((name.into(), values))
}
