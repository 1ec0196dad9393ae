//! `fathom import`.

use clap::Args;
use std::path::PathBuf;

/// Convert another tool's trace into an archive.
///
/// Reads trace.dat files of trace-cmd (versions 6 and 7, also compressed), and prints which layers the trace lacks. ftrace
/// does not record addresses of kernel objects, so bios, requests and pages are linked by disk, sector and time, with lower
/// confidence.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  sudo trace-cmd record -C boot -e raw_syscalls -e block -e jbd2 -e ext4 -e filemap \\
       -e sched_switch -e sched_waking -e task -e sched_process_exec -- sqlite3 my.db '…'
  fathom import trace.dat
  fathom show trace.fathom")]
pub struct Import {
    /// The trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Archive to write [default: FILE's name with .fathom]; an existing one is kept as NAME.fathom.old
    #[arg(short, long, value_name = "T.fathom")]
    pub output: Option<PathBuf>,
    /// Keep literals in stored SQL text; by default they are replaced by ? before anything is stored
    #[arg(long)]
    pub keep_sql: bool,
    /// Print only errors
    #[arg(short, long)]
    pub quiet: bool,
}
