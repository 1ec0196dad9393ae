//! Command line of `fathom fix`.

use super::one_of;
use crate::destination::directory_parser;
use clap::Args;
use experiment::fix::remedies::Durability;
use model::quantity::{long_time, percent};
use std::path::PathBuf;
use std::time::Duration;

/// Try the remedies that `fathom explain` suggests for a command, and measure the effect of each.
///
/// Records CMD once, then runs each remedy from its findings as a variant next to the unchanged command, in randomised blocks with an
/// A/A control, as in `fathom bench ab`. Runs never touch the database itself: each gets a fresh copy, whose path replaces {db} in CMD.
/// Persistent settings (WAL, page size) are set in the copy; connection settings are set by a preloaded object when CMD opens the
/// database, which requires SQLite as a shared library. Machine settings are restored at the end, also after Ctrl-C; after a SIGKILL,
/// the next `fathom fix` restores them. Remedies that reduce durability are listed separately, and can be chosen as the best only if
/// --allow permits it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo fathom fix --database app.db -- python3 app.py {db}
  fathom fix --try wal,truncate --database app.db -- ./app {db}      without recording, without root
  sudo fathom fix --system --database app.db -- ./app {db}           also scheduler, governor
  sudo fathom fix --allow last-commits --apply --database app.db -- ./app {db}

Runs CMD as the user who runs fathom: under sudo, as root.

Exit status: 0 success, 1 failure, 2 usage error, 130 interrupted (what was measured is kept).")]
pub struct Fix {
    /// Database that CMD uses; each run gets a fresh copy next to it, whose path replaces {db} in CMD
    #[arg(long, value_name = "FILE")]
    pub database: Option<PathBuf>,
    /// Try these remedies instead of those from the findings (`fathom fix --list` lists them)
    #[arg(long = "try", value_name = "NAME", value_delimiter = ',')]
    pub names: Vec<String>,
    /// List the remedies, with what each sets and what it gives up
    #[arg(long)]
    pub list: bool,
    /// How much durability the best remedy may give up
    #[arg(long, value_name = "CLASS", default_value = "same", value_parser = one_of(&Durability::CHOICES))]
    pub allow: Durability,
    /// Also try machine settings: I/O scheduler, read-ahead and nr_requests of the database's disk, and the CPU governor
    #[arg(long)]
    pub system: bool,
    /// Also try mount options of this file system; nothing else may be using it
    #[arg(long, value_name = "MOUNT")]
    pub scratch: Option<PathBuf>,
    /// Apply the best remedy permanently: to the database and the machine
    #[arg(long)]
    pub apply: bool,
    /// Run this command before each run, untimed; {db} is the copy
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<String>,
    /// Run exactly this many blocks [default: at least 10, then until --precision or --budget is reached]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: Option<u64>,
    /// Start no new block after this time, once ten have run (suffixes s, m, h)
    #[arg(long, value_name = "TIME", value_parser = long_time, default_value = "60s")]
    pub budget: Duration,
    /// Stop when half the width of each ratio's interval is below this percentage
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "2")]
    pub precision: f64,
    /// Seed of the random order [default: random; it is recorded]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Archive to write; an existing one is kept as NAME.fathom.old
    #[arg(short, long, value_name = "B.fathom", default_value = "fix.fathom", value_parser = directory_parser())]
    pub output: PathBuf,
    /// Print no progress, only results, warnings and errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Print JSON (format: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
    /// Command to run, with its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present = "list")]
    pub command: Vec<String>,
}
