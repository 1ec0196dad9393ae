//! Command line of `fathom diff` and `fathom explain`.

use clap::Args;
use scores::measure::quantity::slower;
use std::path::PathBuf;

/// Compare two recordings statement by statement, and show where the difference lies.
///
/// Executions are aligned by statement and ordinal: the n-th INSERT of A with the n-th of B. For each statement and for all together,
/// prints what one recording did and the other did not (system calls by kind of file, bios, flushes, a sync of the directory, a WAL
/// checkpoint), the ratio B / A of the times with its interval, and how much of the difference each phase and layer accounts for.
/// Statements that only one recording has are listed. With one recording per side, the verdict is slower or faster only if different
/// work accounts for it: a slower device cannot be distinguished from a busier machine. With several per side (at least 4 and 4, or 3
/// and 5; best recorded alternately) the times decide, relative to the variation among recordings of one side.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom diff before.fathom after.fathom
  fathom diff delete.fathom wal.fathom --json
  fathom diff baseline.fathom new.fathom --fail-on slower:10   fail if over 10 % slower
  fathom diff before.fathom after.fathom -o diff.html          both timelines on a page
  fathom diff old?.fathom --with new?.fathom                   four or more per side: times decide

Exit status: 0 success; 1 failure, or with --fail-on a statement (or all together) is slower or the verdict is withheld; 2 usage error.")]
pub struct Diff {
    /// The baseline and the candidate; with --with, all recordings of the baseline
    #[arg(value_name = "A.fathom", required = true, num_args = 1..)]
    pub recordings: Vec<PathBuf>,
    /// All recordings of the candidate
    #[arg(long, value_name = "B.fathom", num_args = 1..)]
    pub with: Vec<PathBuf>,
    /// Exit with status 1 if B is slower (by more than PERCENT), or if the recordings do not allow a verdict
    #[arg(long, value_name = "slower[:PERCENT]", value_parser = slower)]
    pub fail_on: Option<f64>,
    /// Also write a page with the difference and both timelines, one above the other (`-`: to stdout, instead of the text)
    #[arg(short, long, value_name = "x.html")]
    pub output: Option<PathBuf>,
    /// Print JSON (format: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
}

/// Explain what makes the statements of a recording slow.
///
/// Each finding has a code, a claim with its numbers, its share of the statement's time with its interval, an upper bound of what the
/// remedy saves, and the spans that show it. Findings overlap: the second flush of a commit may also wait behind another program's.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom explain trace.fathom
  fathom explain trace.fathom --json

The codes are described in docs/guide/explain.md.")]
pub struct Explain {
    /// The archive
    #[arg(value_name = "T.fathom")]
    pub archive: PathBuf,
    /// Print JSON (format: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
}
