//! The contract of `fathom show --json`: what a program may rely on.
//!
//! Names and shapes below change only together with [`VERSION`]; fields may be added without a new version. Times are ns,
//! sizes bytes, shares from 0 to 1. "Mean" is per finished execution. A count to which several operations contribute (a
//! shared flush, a merged request, a commit of many) is divided between them by share; `touched` counts the whole thing for
//! each operation that contributes. An operation that contains others (a function around a statement) includes them; `own`
//! leaves them out, so that the own counts of all operations add up to the totals.

use crate::caveats::Caveats;
use crate::check_state::CheckState;
use crate::phase_names::GapEnd;
use model::{Absence, Environment, Layer, Wait};
use serde::Serialize;
use sqlite::FileClass;
use std::collections::BTreeMap;

/// Version of this contract. 2 renamed `loss.untold` to `loss.events_at_unknown_time`.
pub const VERSION: u32 = 2;

/// What an archive holds, in one object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// [`VERSION`].
    pub version: u32,
    /// The recording itself.
    pub trace: Trace,
    /// One entry for each statement, function or mark, the longest total time first.
    pub operations: Vec<OperationSummary>,
    /// Every device command in the window.
    pub device_commands: DeviceCommands,
    /// Commands that drivers sent to their devices, where they were recorded.
    pub driver_commands: Vec<DriverCommands>,
    /// Links by confidence.
    pub links: ByConfidence<u64>,
    /// Links by relation.
    pub relations: BTreeMap<String, u64>,
    /// Device commands that are charged to any process, by the weakest confidence in their chain of links: sums of shares.
    pub cause_confidence: ByConfidence<f64>,
    /// What is missing.
    pub loss: Loss,
    /// Whether the recording was checked for missing events.
    pub completeness: Completeness,
    /// What cannot be claimed from this recording.
    pub caveats: Caveats,
    /// Facts about the device under test.
    pub environment: Environment,
    /// Disks.
    pub disks: Vec<DiskInfo>,
    /// Files that the recorded processes read or wrote, in operations and outside.
    pub files: Vec<FileUse>,
    /// The recorded processes' calls on files, by name. Those that read, write or copy add up to the calls of `files`, but for those
    /// without a file.
    pub calls: BTreeMap<String, CallTotal>,
    /// Which probes were in force.
    pub coverage: Vec<Probe>,
    /// What could not be seen, and how that affects the numbers above.
    pub blind: Vec<Blind>,
}

/// The recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Trace {
    /// The command that was recorded, or empty.
    pub command: Vec<String>,
    /// When the archive was made, ns since 1970.
    pub created_unix_ns: u64,
    /// The program that made it.
    pub made_by: String,
    /// Whether the recording ended normally.
    pub complete: bool,
    /// When the last probe was attached, CLOCK_BOOTTIME; if that is not known, the start of the first span.
    pub start_ns: u64,
    /// When the recording ended; if that is not known, the end of the last span.
    pub end_ns: u64,
}

/// Percentiles of one duration: linear interpolation between order statistics (type 7), rounded to ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// Median.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// The longest.
    pub max: u64,
    /// Sum.
    pub sum: u64,
}

/// Number of durations in a range of lengths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// Lower bound, inclusive.
    pub from_ns: u64,
    /// Upper bound, exclusive.
    pub to_ns: u64,
    /// Number of durations.
    pub count: u64,
}

/// All executions of one shape.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct OperationSummary {
    /// The shape's text.
    pub statement: String,
    /// `statement`, `transaction` (inferred), `function`, `mark` or `call`.
    pub kind: String,
    /// Executions that ended within the trace; all fields below are about these.
    pub count: u64,
    /// Executions whose end was not seen.
    pub unfinished: u64,
    /// Executions that ended with an error; statements only.
    pub errors: u64,
    /// Executions by result code.
    pub results: BTreeMap<i64, u64>,
    /// Rows returned by all executions.
    pub rows: u64,
    /// From start to end.
    pub latency_ns: Times,
    /// Distribution of the latency: bins of a quarter of an octave, without the empty ones. Their counts add up to `count`.
    pub distribution: Vec<Bin>,
    /// The part of the latency inside the database's calls.
    pub inside_ns: Times,
    /// Where the time went. `exclusive_ns` of all layers and `unexplained_ns` add up to `latency_ns.sum`.
    pub layers: BTreeMap<Layer, LayerTime>,
    /// Waits for anything but the disk, where the kernel reported it: locks, other programs, memory, quotas; the longest first.
    /// This time is in `layers` too.
    pub waits: Vec<WaitSummary>,
    /// Where its threads slept longest, from a sample of sleeps within the recording's budget (facts `stacks.*`); the longest first.
    pub slow_waits: Vec<SlowWait>,
    /// Time that no slice covers.
    pub unexplained_ns: u64,
    /// The part of the time that the recording itself took, which is in layer `Tracer` and in no other; absent where the archive
    /// has no estimate of this cost.
    pub tracer: Option<TracerPart>,
    /// Means.
    pub per_operation: PerOperation,
    /// What it waited for, of a call that is an operation; absent for others, which are charged for what they cause.
    pub waited_for: Option<WaitedIo>,
    /// The same means without the operations inside this one; identical where there are none.
    pub own: OwnCounts,
    /// The operations inside which its executions ran, by their text: how many of the `count` did.
    pub inside: BTreeMap<String, u64>,
    /// Runs of writes to files of one class without a sync between them, in order.
    pub phases: Vec<Phase>,
    /// The time from one phase to the next.
    pub gaps: Vec<Gap>,
    /// From the end of an execution's last write to a database to the next statement, whatever it wrote elsewhere in between.
    pub database_to_next_ns: Option<Times>,
}

/// Time that belongs to one layer: the deepest one that was waited on.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LayerTime {
    /// Sum over all executions.
    pub exclusive_ns: u64,
    /// Its share of the sum of latencies.
    pub share: f64,
    /// Median over all executions, including those that spent no time in the layer.
    pub p50_ns: u64,
    /// 95th percentile, likewise.
    pub p95_ns: u64,
    /// The sum, by what the thread did or waited for.
    pub reasons: BTreeMap<String, u64>,
}

/// Waits of one kind, ended by the same holder or waker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WaitSummary {
    /// What was waited for.
    pub wait: Wait,
    /// Path of the locked file.
    pub file: Option<String>,
    /// The process that held the lock, or ended the wait.
    pub by_tgid: Option<u32>,
    /// Its name.
    pub by_process: Option<String>,
    /// The statement, function or call that the process was in.
    pub by_statement: Option<String>,
    /// Number of waits.
    pub times: u64,
    /// Sum over all executions.
    pub ns: u64,
}

/// Long sleeps at one place.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SlowWait {
    /// The longest.
    pub longest_ns: u64,
    /// Sum of the sampled sleeps.
    pub ns: u64,
    /// Number of sampled sleeps, not of all sleeps.
    pub times: u64,
    /// The system call, if it is known.
    pub call: Option<String>,
    /// The program's functions, the innermost first.
    pub program: Vec<String>,
    /// Why the stack ends there; `None`: the last function is the outermost.
    pub program_ended: Option<String>,
    /// The kernel's functions, the innermost first.
    pub kernel: Vec<String>,
}

/// Cost of the recording: how often its probes ran in the executions, times the cost of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TracerPart {
    /// Sum over all executions, by the median cost.
    pub ns: u64,
    /// By the first quartile of the cost.
    pub low_ns: u64,
    /// By the third quartile.
    pub high_ns: u64,
    /// Share of `ns` in the sum of latencies.
    pub share: f64,
    /// Over a tenth: the cost of the recording is too large to be ignored in the times.
    pub large: bool,
}

/// Means per finished execution.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PerOperation {
    /// Recorded system calls.
    pub syscalls: f64,
    /// fsync and fdatasync.
    pub fsyncs: f64,
    /// System calls by name.
    pub calls: BTreeMap<String, f64>,
    /// Calls that entered the file system to write, by class of file.
    pub filesystem_writes: BTreeMap<FileClass, Writes>,
    /// Calls that entered the file system to read.
    pub filesystem_reads: BTreeMap<FileClass, Reads>,
    /// Commits of the file system's journal: the calls that joined a transaction share its commit; on btrfs, f2fs and
    /// XFS, only the calls that waited for it do.
    pub journal_commits: f64,
    /// Bios queued on the disks that hold the files.
    pub bios: f64,
    /// Bytes that these bios read or write.
    pub block_bytes: f64,
    /// Commands with data issued to these disks: reads and writes.
    pub requests: f64,
    /// Discards issued to them, which name bytes but carry none.
    pub discards: f64,
    /// Bios that were merged into another bio's request.
    pub merges: f64,
    /// Flush commands.
    pub flushes: f64,
    /// Bytes read and written by these commands.
    pub device_bytes: f64,
    /// Requests by their size in bytes (see [`size_class`]), by share.
    pub request_sizes: BTreeMap<u64, f64>,
    /// Undivided counts of the things to which the operation contributes.
    pub touched: TouchedCounts,
    /// Bytes written at each layer.
    pub bytes_written: BytesWritten,
    /// Bytes written to the device for each byte that the operation wrote by system calls; absent if it wrote none.
    pub write_amplification: Option<f64>,
    /// The same for every disk; each layer of stacked disks separately.
    pub by_disk: BTreeMap<String, DiskUse>,
}

/// What an operation did itself, without the operations inside it, mean per finished execution. Summed over all executions of
/// all operations, each thing is counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct OwnCounts {
    /// Time outside the operations inside it.
    pub latency_ns: f64,
    /// As in [`PerOperation`].
    pub syscalls: f64,
    /// As in [`PerOperation`].
    pub fsyncs: f64,
    /// As in [`PerOperation`].
    pub journal_commits: f64,
    /// As in [`PerOperation`].
    pub bios: f64,
    /// As in [`PerOperation`].
    pub requests: f64,
    /// As in [`PerOperation`].
    pub discards: f64,
    /// As in [`PerOperation`].
    pub flushes: f64,
    /// As in [`PerOperation`].
    pub device_bytes: f64,
}

/// Writes to one class of file.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Writes {
    /// Mean number of calls.
    pub count: f64,
    /// Mean bytes.
    pub bytes: f64,
    /// Distinct files, over all executions.
    pub inodes: u64,
    /// Mean number of calls by the part of the file that they wrote.
    pub parts: BTreeMap<String, f64>,
    /// Mean number of calls by their size in bytes (see [`size_class`]).
    pub sizes: BTreeMap<u64, f64>,
}

/// Returns the size class of `bytes`: `bytes` itself up to 64 KiB, above that the next power of two (rounded up), which bounds
/// the table for any trace.
pub fn size_class(bytes: u64) -> u64 {
    if bytes <= 65_536 { bytes } else { bytes.checked_next_power_of_two().unwrap_or(u64::MAX) }
}

/// Reads of one class of file.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Reads {
    /// Mean number of calls.
    pub count: f64,
    /// Mean bytes.
    pub bytes: f64,
    /// Mean number of calls that found all data in the page cache: they added no page to it and waited for no disk.
    pub cache_hits: f64,
    /// Mean number of pages added to the page cache, including those of mapped files.
    pub pages_added: f64,
    /// Distinct files, over all executions.
    pub inodes: u64,
}

/// Counts that are not divided by share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TouchedCounts {
    /// Commits.
    pub journal_commits: f64,
    /// Bios.
    pub bios: f64,
    /// Requests.
    pub requests: f64,
    /// Flushes.
    pub flushes: f64,
}

/// Bytes written at each layer, mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct BytesWritten {
    /// By system calls.
    pub syscall: f64,
    /// In bios.
    pub block: f64,
    /// In device commands.
    pub device: f64,
}

/// Commands on one disk, mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct DiskUse {
    /// Bios.
    pub bios: f64,
    /// Commands with data.
    pub requests: f64,
    /// Discards.
    pub discards: f64,
    /// Flushes.
    pub flushes: f64,
    /// Bytes.
    pub bytes: f64,
}

/// A run of writes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Phase {
    /// Class and ordinal, such as `rollback journal write 1`.
    pub phase: String,
    /// Executions that have this phase.
    pub count: u64,
    /// Mean number of calls.
    pub writes: f64,
    /// Mean bytes.
    pub bytes: f64,
    /// From the start of the first call to the end of the last.
    pub duration_ns: Times,
}

/// The interval from the end of one phase to the start of the next.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Gap {
    /// Phase, or `begin`.
    pub from: GapEnd,
    /// Phase, or `next statement`: the start of the same thread's next statement.
    pub to: GapEnd,
    /// Number of gaps.
    pub count: u64,
    /// Length of the gaps.
    pub duration_ns: Times,
    /// Mean number of fsync and fdatasync calls in a gap.
    pub fsyncs: f64,
}

/// Every device command in the window is in exactly one of the four classes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DeviceCommands {
    /// Commands issued to the disks that hold the files.
    pub total: u64,
    /// Charged to what was recorded: operations and recorded processes. A sum of shares, like those below.
    pub attributed: f64,
    /// Charged to processes outside the recording's target.
    pub other_processes: f64,
    /// Charged to no process.
    pub unattributed: f64,
    /// Charged to Fathom itself.
    pub tracer: f64,
    /// Of `attributed`: by operations.
    pub by_operations: f64,
    /// Of `attributed`: by recorded processes outside any operation.
    pub by_recorded_processes: f64,
    /// Of `total`: commands for which a call waited that is an operation, whoever they are charged to. A number of commands.
    pub waited_for_by_calls: u64,
    /// Of `total`: commands whose completion was not seen.
    pub incomplete: u64,
    /// Of `total`: commands that completed, but whose issue was not seen, or comes after the completion by the trace's clock. They are in
    /// no time.
    pub untimed: u64,
    /// Attempts that the driver handed back and that were issued again; not in `total`.
    pub retried: u64,
    /// The same for every disk; each layer of stacked disks separately.
    pub by_disk: BTreeMap<String, DiskCommands>,
    /// Users other than operations, on the disks that hold the files.
    pub processes: Vec<ProcessUse>,
}

/// How a disk is related to the files of the recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum DiskRole {
    /// The disk holds their file systems.
    #[serde(rename = "holds the files")]
    HoldsFiles,
    /// A disk that holds the files is stacked on this one.
    #[serde(rename = "below")]
    Below,
    /// Not related.
    #[default]
    #[serde(rename = "other")]
    Other,
}

impl DiskRole {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::HoldsFiles => "holds the files",
            Self::Below => "below",
            Self::Other => "other",
        }
    }
}

/// Commands of one disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DiskCommands {
    /// `holds the files`, `below` such a disk, or `other`.
    pub role: DiskRole,
    /// Commands.
    pub total: u64,
    /// As in [`DeviceCommands`].
    pub attributed: f64,
    /// As in [`DeviceCommands`].
    pub other_processes: f64,
    /// As in [`DeviceCommands`].
    pub unattributed: f64,
    /// As in [`DeviceCommands`].
    pub tracer: f64,
    /// As in [`DeviceCommands`].
    pub incomplete: u64,
    /// As in [`DeviceCommands`].
    pub untimed: u64,
    /// As in [`DeviceCommands`].
    pub retried: u64,
    /// Commands by kind: `read`, `write`, `flush`, `discard`, `other`.
    pub kinds: BTreeMap<String, u64>,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Times by kind of command.
    pub times: BTreeMap<String, CommandTimes>,
    /// Queue depth at the device: mean over the recording.
    pub depth_mean: f64,
    /// The maximum queue depth.
    pub depth_max: u64,
    /// Queue depth over time: the recording in parts of equal length.
    pub depth_over_time: Vec<DepthPart>,
}

/// Queue depth at the device during a part of the recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DepthPart {
    /// Start of the part, relative to the recording's start.
    pub from_ns: u64,
    /// Mean depth.
    pub mean: f64,
    /// Maximum depth.
    pub max: u64,
}

/// Times of the commands of one kind on one disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CommandTimes {
    /// Commands with a recorded bio.
    pub queued: u64,
    /// From the start of their first bio until they were issued (btt's Q2D).
    pub queue_to_issue_ns: Times,
    /// Commands that completed.
    pub completed: u64,
    /// From issue to completion (btt's D2C).
    pub issue_to_complete_ns: Times,
}

/// Use of the device by one process outside operations.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ProcessUse {
    /// Name.
    pub name: String,
    /// Process ID, if known.
    pub tgid: Option<u32>,
    /// `process`, `other process`, `tracer` or `unattributed`.
    pub origin: String,
    /// Commands, by share.
    pub commands: f64,
    /// Bytes, by share.
    pub bytes: f64,
}

/// Commands of one name that a driver sent to one disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DriverCommands {
    /// Name of the disk; absent if the device is not a disk.
    pub disk: Option<String>,
    /// The protocol: `scsi`, `nvme` or `mmc`.
    pub protocol: String,
    /// Name of the command in the protocol, such as `WRITE(10)`.
    pub name: String,
    /// Number of commands; a command that is sent again counts again.
    pub count: u64,
    /// Of these, those whose request was recorded.
    pub linked: u64,
    /// Bytes of data that they transferred.
    pub bytes: u64,
    /// From submission to completion, for those that completed.
    pub time_ns: Times,
    /// Commands without a completion.
    pub unfinished: u64,
    /// Commands on which the kernel timed out.
    pub timeouts: u64,
    /// Commands that failed, by reported error.
    pub errors: BTreeMap<String, u64>,
}

/// A number for each level of confidence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ByConfidence<T> {
    /// The same object.
    pub exact: T,
    /// From a field of the kernel.
    pub structural: T,
    /// By thread and time.
    pub interval: T,
    /// By disk, sectors and time.
    pub address: T,
    /// By a name or pattern.
    pub guess: T,
}

impl<T> ByConfidence<T> {
    /// Returns the number of one confidence.
    pub fn get_mut(&mut self, confidence: model::Confidence) -> &mut T {
        match confidence {
            model::Confidence::Exact => &mut self.exact,
            model::Confidence::Structural => &mut self.structural,
            model::Confidence::Interval => &mut self.interval,
            model::Confidence::Address => &mut self.address,
            model::Confidence::Guess => &mut self.guess,
        }
    }
}

/// What is missing.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Loss {
    /// Lost records, where their number is known.
    pub events: u64,
    /// Further lost records that the recorder counted, at unknown times.
    pub events_at_unknown_time: u64,
    /// Whether more may be lost.
    pub at_least: bool,
    /// Device commands of unknown origin on the disks that hold the files, if they are more than 1 % of those; otherwise 0.
    pub unattributed_commands: f64,
    /// Links whose confidence was lowered because of the loss.
    pub weakened_links: u64,
    /// When and where records were lost.
    pub intervals: Vec<LossInterval>,
}

/// One interval in which records were lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LossInterval {
    /// What lost them.
    pub source: String,
    /// CPU; absent if it may be any.
    pub cpu: Option<u32>,
    /// Start, CLOCK_BOOTTIME.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Number of lost records; absent if unknown.
    pub events: Option<u64>,
    /// Whether `events` is a lower bound.
    pub at_least: bool,
    /// The program concerned.
    pub program: Option<String>,
    /// Links whose confidence was lowered because of the loss.
    pub weakened_links: u64,
}

/// The result of comparing each disk's own statistics (`/sys/block/NAME/stat`), from the start of the recording to its end, with
/// the recorded completions.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Completeness {
    /// `checked`: nothing was lost, and all counts agree. `failed`: something is missing, or the counts disagree. `not checked`.
    pub state: CheckState,
    /// Why the state is not `checked`.
    pub why: Option<String>,
    /// Disks with any activity.
    pub disks: BTreeMap<String, DiskCheck>,
}

/// The result for one disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DiskCheck {
    /// As in [`Completeness`].
    pub state: CheckState,
    /// Why the state is not `checked`.
    pub why: Option<String>,
    /// `reads`, `writes`, `discards`, `flushes` completed; `bytes read`, `bytes written`, `bytes discarded`. The kernel counts an
    /// fsync that needs only a flush as a write: these are the `flushes counted as writes` among the `writes`.
    pub counts: BTreeMap<String, CheckedCount>,
}

/// One count.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CheckedCount {
    /// Count of the kernel; absent if the kernel does not report it.
    pub kernel: Option<u64>,
    /// Recorded count.
    pub recorded: u64,
    /// Of `recorded`: commands that completed while the statistics were read, so that the kernel may or may not have counted them.
    pub unsure: u64,
}

/// A disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DiskInfo {
    /// Name, such as `vda`.
    pub name: String,
    /// Number as `lsblk` shows it.
    pub dev: String,
    /// `holds the files`, `below` or `other`.
    pub role: DiskRole,
    /// The disks below it.
    pub below: String,
}

/// All recorded calls of one name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CallTotal {
    /// Calls.
    pub count: u64,
    /// Of these, outside any operation.
    pub outside: u64,
    /// Of these, calls that read, write or copy of which the file is not known.
    pub without_file: u64,
    /// Bytes read, written or copied.
    pub bytes: u64,
}

/// What a call that is an operation waited for, mean per finished execution: commands and commits that it sent, or that kept it asleep,
/// whoever caused them. Several operations may have waited for the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct WaitedIo {
    /// Commands with data.
    pub requests: f64,
    /// Flush commands.
    pub flushes: f64,
    /// Commits of the file system.
    pub commits: f64,
    /// Bytes of these requests.
    pub bytes: f64,
    /// Whose data that was: `bytes` by cause.
    pub data: WaitedData,
}

/// Bytes by who caused them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct WaitedData {
    /// The operation.
    pub itself: f64,
    /// Its process, otherwise: before the call, or in other threads.
    pub process: f64,
    /// Other processes.
    pub others: f64,
    /// Unknown.
    pub unattributed: f64,
}

/// A file that the recorded processes used, in operations and outside.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FileUse {
    /// Path; absent if unknown.
    pub path: Option<String>,
    /// Class.
    pub class: FileClass,
    /// Number of the file system's device.
    pub dev: String,
    /// Inode.
    pub ino: u64,
    /// Calls that wrote it, including the targets of sendfile, splice and copy_file_range.
    pub writes: u64,
    /// Of these, outside any operation.
    pub writes_outside: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Calls that read it.
    pub reads: u64,
    /// Of these, outside any operation.
    pub reads_outside: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes of pages that stores to a mapping dirtied, without a call.
    pub mapped_bytes_written: u64,
    /// Bytes of pages that accesses to a mapping added to the page cache, without a call.
    pub mapped_bytes_read: u64,
}

impl FileUse {
    /// Adds the counts of another file of the same name.
    pub fn add(&mut self, other: &Self) {
        self.writes += other.writes;
        self.writes_outside += other.writes_outside;
        self.bytes_written = self.bytes_written.saturating_add(other.bytes_written);
        self.reads += other.reads;
        self.reads_outside += other.reads_outside;
        self.bytes_read = self.bytes_read.saturating_add(other.bytes_read);
        self.mapped_bytes_written = self.mapped_bytes_written.saturating_add(other.mapped_bytes_written);
        self.mapped_bytes_read = self.mapped_bytes_read.saturating_add(other.mapped_bytes_read);
    }

    /// Bytes moved by calls.
    pub fn moved(&self) -> u64 {
        self.bytes_written.saturating_add(self.bytes_read)
    }
}

/// A layer that could not be seen completely.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Blind {
    /// The layer that is seen partly or not at all.
    pub layer: Layer,
    /// Whether no probe of the layer was attached.
    pub wholly: bool,
    /// The consequence, in a sentence.
    pub means: String,
}

/// A probe.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Probe {
    /// Layer.
    pub layer: Layer,
    /// Name.
    pub probe: String,
    /// Whether it was attached.
    pub attached: bool,
    /// How it was attached, or why it was not.
    pub how: String,
    /// Why it is not attached, one of: `"not mounted"`, `"no tracepoint"`, `"no SQLite"`, `"not permitted"`, `"failed"`; null if
    /// it is attached, or the reason is unknown.
    pub absence: Option<Absence>,
    /// Times its program ran while the kernel counted runs, which is `environment["tracer.counted"]` ns of the recording.
    pub hits: Option<u64>,
    /// The same as runs per second; absent if nothing was counted.
    pub runs_per_s: Option<f64>,
    /// Times it could not run.
    pub misses: Option<u64>,
    /// Mean time of one run, ns.
    pub price_ns: Option<f64>,
}
