//! Command line of `fathom bench ab`.

use crate::destination::directory_parser;
use clap::Args;
use model::quantity::{long_time, percent};
use scores::measure::quantity::slower;
use std::path::PathBuf;
use std::time::Duration;

/// Compare the run times of commands, in randomised blocks with an A/A control.
///
/// Each block runs every command once, in random order, and the first one twice: the difference between its two runs is this machine's
/// noise. The ratio of each command to the first is computed pair by pair within blocks, with an interval and a verdict. Also shown:
/// minimum and maximum, user and system time, and read and write calls (/proc/PID/io).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom bench ab -- 'gzip -k -f big' 'zstd -q -f big'
  fathom bench ab --prepare 'rm -f t.db' -- './app-old t.db' './app t.db'
  fathom bench ab --param N 1..8 -- 'make -B -j{N}'      one cell per value
  fathom bench ab --git main..HEAD --build make -- './app input'
  fathom bench ab --fail-on slower:5 --json -- './old' './new'

A command of plain words and quotes is executed directly, any other by /bin/sh -c, whose startup
time is then included. The commands' output is discarded.

Exit status: 0 success, 1 failure or a verdict of --fail-on, 2 usage error, 130 interrupted (what was measured is kept).")]
pub struct BenchAb {
    /// Run this command before each timed run (through a shell if it needs one)
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<String>,
    /// Warm-up blocks, which do not count
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..1000))]
    pub warmup: u64,
    /// Run exactly this many blocks [default: at least 10, then until --precision or --budget is reached]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: Option<u64>,
    /// Start no new block after this time, once ten have run (suffixes s, m, h)
    #[arg(long, value_name = "TIME", value_parser = long_time, default_value = "30s")]
    pub budget: Duration,
    /// Stop when half the width of each ratio's interval is below this percentage
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1")]
    pub precision: f64,
    /// Seed of the random order [default: random; it is recorded]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Replace {NAME} in the commands with each of these values: FROM..TO, FROM..TO..STEP or A,B,C (repeatable)
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUES"], allow_hyphen_values = true, action = clap::ArgAction::Append)]
    pub param: Vec<String>,
    /// Compare two commits: CMD runs in a worktree of each, which is removed afterwards
    #[arg(long, value_name = "BASE..HEAD")]
    pub git: Option<String>,
    /// Build each worktree with this command first
    #[arg(long, value_name = "COMMAND", requires = "git")]
    pub build: Option<String>,
    /// Exit with status 1 if a command is slower than the first (by more than PERCENT)
    #[arg(long, value_name = "slower[:PERCENT]", value_parser = slower)]
    pub fail_on: Option<f64>,
    /// Archive to write; an existing one is kept as NAME.fathom.old
    #[arg(short, long, value_name = "B.fathom", default_value = "ab.fathom", value_parser = directory_parser())]
    pub output: PathBuf,
    /// Print no progress, only results, warnings and errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Print JSON (format: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
    /// The commands, each as one word in quotes; the first is the baseline
    #[arg(last = true, required = true, value_name = "CMD")]
    pub commands: Vec<String>,
}
