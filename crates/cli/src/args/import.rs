//! `fathom import`.

use crate::destination::directory_parser;
use clap::Args;
use formats::ftrace::calls::Machine;
use std::path::PathBuf;

/// Convert another tool's trace into an archive.
///
/// Reads trace-cmd's trace.dat (versions 6 and 7, also compressed), Perfetto traces with ftrace events (also compressed), ftrace as
/// text (tracefs's `trace`, `trace-cmd report`, `perf script`), and blktrace's binary files (DEV.blktrace.CPU, all CPUs of a device
/// together, or what `blkparse -d` writes). The format is detected from the content. Prints which layers the trace lacks. Such traces
/// do not record addresses of kernel objects, so bios, requests and pages are linked by disk, sector and time, with lower confidence.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo trace-cmd record -C boot -e raw_syscalls -e block -e jbd2 -e ext4 -e filemap \\
       -e sched_switch -e sched_waking -e task -e sched_process_exec -- sqlite3 my.db '…'
  fathom import trace.dat
  fathom show trace.fathom

  adb shell perfetto -o /data/misc/perfetto-traces/t -t 10s sched block ext4 f2fs
  adb pull /data/misc/perfetto-traces/t phone.pftrace
  fathom import phone.pftrace

  sudo blktrace -d /dev/sda -w 10 -o sda
  fathom import sda.blktrace.0")]
pub struct Import {
    /// Trace to convert; for blktrace, one file per disk (those of its other CPUs are read too)
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Archive to write [default: the first FILE's name with .fathom]; an existing one is kept as NAME.fathom.old
    #[arg(short, long, value_name = "T.fathom", value_parser = directory_parser())]
    pub output: Option<PathBuf>,
    /// Keep literals in stored SQL text; by default they are replaced by ? before anything is stored
    #[arg(long)]
    pub keep_sql: bool,
    /// Architecture of the trace's system call numbers: x86_64, aarch64, riscv64 or loongarch64 [default: as stated in the trace, else
    /// x86_64]
    #[arg(long, value_name = "ARCH", value_parser = machine)]
    pub machine: Option<Machine>,
    /// Print only errors
    #[arg(short, long)]
    pub quiet: bool,
}

fn machine(name: &str) -> Result<Machine, String> {
    Machine::from_uname(name).ok_or_else(|| "not one of x86_64, aarch64, riscv64, loongarch64".into())
}
