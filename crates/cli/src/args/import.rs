//! `fathom import`.

use clap::Args;
use std::path::PathBuf;

/// Make an archive of a trace that another tool recorded.
///
/// Read are trace.dat files of trace-cmd (versions 6 and 7, also compressed). Layers of which the trace tells nothing are
/// named. ftrace tells no addresses of the kernel's objects, so bios, requests and pages are linked by disk, sector and
/// time, and the links say so.
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
    /// The archive to make, by default named after FILE; an archive of that name is kept as NAME.fathom.old
    #[arg(short, long, value_name = "T.fathom")]
    pub output: Option<PathBuf>,
    /// Store SQL text with its literals; without this they are replaced by ? before anything is stored
    #[arg(long)]
    pub keep_sql: bool,
    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}
