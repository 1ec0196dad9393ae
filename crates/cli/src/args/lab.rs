//! Command line of `fathom lab`.

use crate::destination::directory_parser;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Record workloads on disks and file systems that this machine lacks, in a virtual machine with Debian's stock kernel.
///
/// QEMU boots the kernel with the modules of a scenario, and Fathom records inside: real drivers for SCSI, NVMe and others on any
/// machine, without root. The processor is emulated: a run shows what happens and in which order, not how fast.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Start here:
  fathom lab list                                       the scenarios
  fathom lab run scsi-ext4                              boot, run, record; writes scsi-ext4.lab/
  fathom show scsi-ext4.lab/trace.fathom                what its INSERTs did, down to the SCSI disk
  fathom lab run nvme-ext4 --set sqlite.journal_mode=wal"
)]
pub struct Lab {
    #[command(subcommand)]
    pub verb: LabVerb,
}

/// The commands of `lab`, documented at their arguments.
#[derive(Debug, Subcommand)]
pub enum LabVerb {
    List(LabList),
    Run(LabRun),
    Shell(LabShell),
    Exec(LabExec),
}

/// What a guest is made of.
#[derive(Debug, Args)]
pub struct HostArgs {
    /// Directory for kernels [default: fathom/lab in the user's cache directory]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Fathom's binary for the guest [default: this one; for another architecture, fathom-ARCH next to it]
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
}

/// A guest in which nothing is recorded unless its user does.
#[derive(Debug, Args)]
pub struct GuestArgs {
    /// Set a value of the scenario (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Host directory to mount as /share in the guest [default: a temporary one]
    #[arg(short, long, value_name = "DIR", value_parser = directory_parser())]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub host: HostArgs,
}

/// Boot a guest with a scenario's disks, and run one command in it, like ssh on another machine.
///
/// The command's stdin, stdout, stderr and exit status are those of `fathom lab exec`. It starts in /mnt, where the file system is
/// mounted; this program is available as `fathom`. The guest is on QEMU's user-mode network, where this machine is 10.0.2.2. The guest
/// ends with the command.
///
/// `--device lab:SCENARIO` does the same for `record`, `bench run`, `net run` and `device info`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom lab exec scsi-ext4 -- cat /proc/partitions
  fathom lab exec mmc-f2fs -- sh -c 'dd if=/dev/zero of=x bs=1M count=8 conv=fsync && ls -l'
  fathom bench run seq --quick --dir /mnt --device lab:nvme-ext4")]
pub struct LabExec {
    /// A scenario's name, or a file: FILE.toml
    #[arg(value_name = "SCENARIO")]
    pub scenario: String,
    /// Command to run, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    #[command(flatten)]
    pub guest: GuestArgs,
}

/// Boot a guest with a scenario's disks, or those of --disk, and open a shell in it.
///
/// The file system is mounted at /mnt, this program is available as `fathom`, and /share is the directory given by -o, which is kept. The
/// guest shuts down when the shell exits.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom lab shell scsi-ext4
  fathom lab shell --disk nvme:1G --disk sd       ext4 on the first, which is /dev/disk/disk0")]
pub struct LabShell {
    /// A scenario's name, or a file: FILE.toml
    #[arg(value_name = "SCENARIO", required_unless_present = "disk", conflicts_with = "disk")]
    pub scenario: Option<String>,
    /// Disk to use instead of a scenario's (repeatable): virtio, scsi, nvme, sd, scsi_debug or loop [default size: 256M]
    #[arg(long, value_name = "BUS[:SIZE]")]
    pub disk: Vec<String>,
    #[command(flatten)]
    pub guest: GuestArgs,
}

/// List the scenarios, or print one as a file to start from.
#[derive(Debug, Args)]
pub struct LabList {
    /// Print this scenario's TOML, with every default
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Boot a guest, run a scenario's workload in it under `fathom record`, and copy the recording back.
///
/// The result directory contains trace.fathom, workload.log, console.log and scenario.toml. They are written while the guest runs: if it
/// crashes, hangs or is stopped by Ctrl-C, everything recorded until then is kept. The first run downloads Debian's kernel (70 MB) with
/// apt-get; nothing is installed.
///
/// A series (paper-004) runs several scenarios one after the other, each into a directory of its own in the result directory, and compares
/// them in a figure of the papers, papers.md.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom lab run scsi-ext4                                        a built-in scenario
  fathom lab run scsi-ext4 --set disk.data.bus=nvme -o nvme.lab   with another disk
  fathom lab run my.toml                                          your own (docs/guide/lab.md)
  fathom lab run paper-004,rows=1000                              a series, 1,000 INSERTs each

Exit status: 0 if the workload ended as the scenario expects, recorded to its end; 1 otherwise.")]
pub struct LabRun {
    /// A scenario's name, or a file: FILE.toml
    #[arg(value_name = "SCENARIO")]
    pub scenario: String,
    /// Directory for the result; an existing one is kept as NAME.old [default: SCENARIO.lab]
    #[arg(short, long, value_name = "DIR", value_parser = directory_parser())]
    pub output: Option<PathBuf>,
    /// Set a value of the scenario (repeatable): record.backend=ftrace, disk.data.size=1G
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Keep the guest's disks and the command that started it, in DIR/guest
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub host: HostArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
