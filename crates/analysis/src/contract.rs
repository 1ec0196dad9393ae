//! The contract of `fathom show --json`: what a program may rely on.
//!
//! Names and shapes below change only together with [`VERSION`]; fields may be added without. Times are ns, sizes bytes,
//! shares from 0 to 1. "Mean" is per finished execution. A count that several operations have a part in (a shared
//! flush, a merged request, a commit of many) is counted by share; `touched` counts the whole thing for everybody who has a
//! part. An operation that contains others (a function around a statement) includes them; `own` leaves them out, so that the
//! own counts of all operations add up to the totals.

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
    /// A statement, function or mark each, the longest total time first.
    pub operations: Vec<OperationSummary>,
    /// Every device command of the window.
    pub device_commands: DeviceCommands,
    /// What drivers sent for them to their devices, where it was recorded.
    pub driver_commands: Vec<DriverCommands>,
    /// Links by how sure they are.
    pub links: ByConfidence<u64>,
    /// Links by relation.
    pub relations: BTreeMap<String, u64>,
    /// Device commands that are charged to anybody, by how sure the least sure link of the chain is: sums of shares.
    pub cause_confidence: ByConfidence<f64>,
    /// What is missing.
    pub loss: Loss,
    /// Whether it was checked that nothing is missing.
    pub completeness: Completeness,
    /// Facts about the device under test.
    pub environment: Environment,
    /// Disks.
    pub disks: Vec<DiskInfo>,
    /// Files that operations read or wrote.
    pub files: Vec<FileUse>,
    /// Which probes were in force.
    pub coverage: Vec<Probe>,
    /// What could not be seen, and what that means for the numbers above.
    pub blind: Vec<Blind>,
}

/// The recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Trace {
    /// The command that was recorded, or empty.
    pub command: Vec<String>,
    /// When the archive was made, ns since 1970.
    pub created_unix_ns: u64,
    /// Who made it.
    pub made_by: String,
    /// Whether the recording came to its end.
    pub complete: bool,
    /// From when on every probe was in force, CLOCK_BOOTTIME; if that is not known, the first begin of a span.
    pub start_ns: u64,
    /// Until when; if that is not known, the last end of a span.
    pub end_ns: u64,
}

/// Order statistics of one duration: linear interpolation between order statistics (type 7), rounded to ns.
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

/// How many durations are from one length to below another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// From this on.
    pub from_ns: u64,
    /// Below this.
    pub to_ns: u64,
    /// How many.
    pub count: u64,
}

/// All executions of one shape.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct OperationSummary {
    /// The shape's text.
    pub statement: String,
    /// `statement`, `transaction` (inferred), `function`, `mark` or `call`.
    pub kind: String,
    /// Executions that ended within the trace; everything below is about them.
    pub count: u64,
    /// Executions whose end was not seen.
    pub unfinished: u64,
    /// Executions that ended with an error; statements only.
    pub errors: u64,
    /// Executions by result code.
    pub results: BTreeMap<i64, u64>,
    /// Rows returned, all together.
    pub rows: u64,
    /// From begin to end.
    pub latency_ns: Times,
    /// How that is distributed: bins of a quarter of an octave, those without any left out. Their counts add up to `count`.
    pub distribution: Vec<Bin>,
    /// Of that, inside the database's calls.
    pub inside_ns: Times,
    /// Where the time went. `exclusive_ns` of all layers and `unexplained_ns` add up to `latency_ns.sum`.
    pub layers: BTreeMap<Layer, LayerTime>,
    /// What it waited for beside the disk, where the kernel reported it: locks, other programs, memory, quotas; the longest first. This
    /// time stands in `layers` too.
    pub waits: Vec<WaitedFor>,
    /// Where its threads slept longest, a choice of sleeps under the recording's budget (facts `stacks.*`); the longest first.
    pub slow_waits: Vec<SlowWait>,
    /// Time that no slice covers.
    pub unexplained_ns: u64,
    /// What of the time was the recording itself, which stands as layer `Tracer` and in no other; absent where the archive has no
    /// price of it.
    pub tracer: Option<TracerPart>,
    /// Means.
    pub per_operation: PerOperation,
    /// Of these, what no operation inside it did: the same where there is none.
    pub own: Own,
    /// The operations that its executions ran inside, by their text: how many of the `count` did.
    pub inside: BTreeMap<String, u64>,
    /// Runs of writes to files of one class without a sync between them, in the order in which they come.
    pub phases: Vec<Phase>,
    /// The time from one phase to the next.
    pub gaps: Vec<Gap>,
    /// From the end of an execution's last write to a database to the next statement, whatever it wrote elsewhere in between.
    pub database_to_next_ns: Option<Times>,
}

/// Time that belongs to one layer: the deepest that was waited on.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LayerTime {
    /// Sum over all executions.
    pub exclusive_ns: u64,
    /// Its part of the latencies' sum.
    pub share: f64,
    /// Median over the executions, those without any included.
    pub p50_ns: u64,
    /// 95th percentile, likewise.
    pub p95_ns: u64,
    /// The sum, by what the thread did or waited for.
    pub reasons: BTreeMap<String, u64>,
}

/// Waits of one kind that the same one ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WaitedFor {
    /// What for.
    pub wait: Wait,
    /// Path of the locked file.
    pub file: Option<String>,
    /// The process that held the lock, or ended the wait.
    pub by_tgid: Option<u32>,
    /// Its name.
    pub by_process: Option<String>,
    /// The statement, function or call that it was in.
    pub by_statement: Option<String>,
    /// How often.
    pub times: u64,
    /// Sum over all executions.
    pub ns: u64,
}

/// Long sleeps at one place.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SlowWait {
    /// The longest.
    pub longest_ns: u64,
    /// Sum of those that were looked at.
    pub ns: u64,
    /// How many that were; no count of all.
    pub times: u64,
    /// The system call, if it is known.
    pub call: Option<String>,
    /// The program's functions, the innermost first.
    pub program: Vec<String>,
    /// Why no further one is known; `None`: the last is the outermost.
    pub program_ended: Option<String>,
    /// The kernel's functions, the innermost first.
    pub kernel: Vec<String>,
}

/// What the recording took: how often its probes ran in the executions, times what they cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TracerPart {
    /// Sum over all executions, by the median price.
    pub ns: u64,
    /// By the first quartile of the price.
    pub low_ns: u64,
    /// By the third.
    pub high_ns: u64,
    /// `ns` of the latencies' sum.
    pub share: f64,
    /// Over a tenth: the times are more the recording's than can be left out of account.
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
    /// Commits of the file system's journal: the calls that joined a transaction share its commit; on btrfs, f2fs and XFS
    /// those that waited for it.
    pub journal_commits: f64,
    /// Bios queued on the disks that hold the files.
    pub bios: f64,
    /// Bytes that they read or write.
    pub block_bytes: f64,
    /// Commands with data issued to these disks: reads and writes.
    pub requests: f64,
    /// Discards issued to them, which name bytes but carry none.
    pub discards: f64,
    /// Bios that rode in another bio's request.
    pub merges: f64,
    /// Flush commands.
    pub flushes: f64,
    /// Bytes read and written by these commands.
    pub device_bytes: f64,
    /// Requests by their size in bytes (see [`size_class`]), by share.
    pub request_sizes: BTreeMap<u64, f64>,
    /// Whole things in which the operation has any part.
    pub touched: Touched,
    /// Bytes written at each layer.
    pub bytes_written: BytesWritten,
    /// Bytes written to the device for a byte that the operation wrote by system calls; absent if it wrote none.
    pub write_amplification: Option<f64>,
    /// Likewise on every disk, each stacked one by itself.
    pub by_disk: BTreeMap<String, DiskUse>,
}

/// What an operation did itself, without the operations inside it, mean per finished execution. Summed over all executions of
/// all operations, each thing is counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Own {
    /// Time that no operation inside it took.
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
    /// Mean number of calls by the part of the file they wrote.
    pub parts: BTreeMap<String, f64>,
    /// Mean number of calls by their size in bytes (see [`size_class`]).
    pub sizes: BTreeMap<u64, f64>,
}

/// The size under which `bytes` are counted: themselves up to 64 KiB, above it the next power of two, which they are up to, so that a trace
/// of endless variety has a bounded table.
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
    /// Mean number of calls that found all in the page cache: they added no page to it and waited for no disk.
    pub cache_hits: f64,
    /// Mean pages that had to be added to the page cache, those of mapped files included.
    pub pages_added: f64,
    /// Distinct files, over all executions.
    pub inodes: u64,
}

/// Counts without shares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Touched {
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
    /// Executions that have it.
    pub count: u64,
    /// Mean calls in it.
    pub writes: f64,
    /// Mean bytes.
    pub bytes: f64,
    /// From the begin of its first call to the end of its last.
    pub duration_ns: Times,
}

/// From the end of one phase to the begin of the next.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Gap {
    /// Phase, or `begin`.
    pub from: String,
    /// Phase, or `next statement`: the begin of the same thread's next one.
    pub to: String,
    /// How often.
    pub count: u64,
    /// How long.
    pub duration_ns: Times,
    /// Mean number of fsync and fdatasync calls in it.
    pub fsyncs: f64,
}

/// Every device command in the window is in exactly one of the four.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DeviceCommands {
    /// Commands issued to the disks that hold the files.
    pub total: u64,
    /// Charged to what was recorded: operations and recorded processes. Sum of shares, as those below.
    pub attributed: f64,
    /// Charged to processes that were not asked about.
    pub other_processes: f64,
    /// Charged to nobody.
    pub unattributed: f64,
    /// Charged to Fathom itself.
    pub tracer: f64,
    /// Of `attributed`: by operations.
    pub by_operations: f64,
    /// Of `attributed`: by recorded processes outside any operation.
    pub by_recorded_processes: f64,
    /// Of `total`: completion not seen.
    pub incomplete: u64,
    /// Tries that the driver gave back, and that were issued again; not in `total`.
    pub retried: u64,
    /// The same for every disk, each stacked one by itself.
    pub by_disk: BTreeMap<String, DiskCommands>,
    /// Who, other than operations, on the disks that hold the files.
    pub processes: Vec<ProcessUse>,
}

/// What a disk has to do with the files of the recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum DiskRole {
    /// Their file systems are on it.
    #[serde(rename = "holds the files")]
    HoldsFiles,
    /// Such a disk stands on it.
    #[serde(rename = "below")]
    Below,
    /// Nothing.
    #[default]
    #[serde(rename = "other")]
    Other,
}

impl DiskRole {
    /// As in JSON.
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
    pub retried: u64,
    /// Commands by what they do: `read`, `write`, `flush`, `discard`, `other`.
    pub kinds: BTreeMap<String, u64>,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Their times, by what they do.
    pub times: BTreeMap<String, CommandTimes>,
    /// Commands at the device at once: mean over the recording.
    pub depth_mean: f64,
    /// The most.
    pub depth_max: u64,
    /// The same over time: the recording in parts of equal length.
    pub depth_over_time: Vec<DepthPart>,
}

/// Commands at the device at once, during a part of the recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DepthPart {
    /// Where it begins, after the recording's start.
    pub from_ns: u64,
    /// Mean over it.
    pub mean: f64,
    /// The most.
    pub max: u64,
}

/// Times of the commands of one kind on one disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CommandTimes {
    /// Commands with a recorded bio.
    pub queued: u64,
    /// From the begin of the first of their bios to being issued (btt's Q2D).
    pub queue_to_issue_ns: Times,
    /// Commands that completed.
    pub completed: u64,
    /// From being issued to completion (btt's D2C).
    pub issue_to_complete_ns: Times,
}

/// What one process had of the device outside operations.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ProcessUse {
    /// Name.
    pub name: String,
    /// Process, if one is known.
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
    /// Name of the disk; absent if they went to a device that is none.
    pub disk: Option<String>,
    /// The protocol: `scsi`, `nvme` or `mmc`.
    pub protocol: String,
    /// Their name in it, such as `WRITE(10)`.
    pub name: String,
    /// How many. One that is sent again counts again.
    pub count: u64,
    /// Of these, those whose request was recorded.
    pub linked: u64,
    /// Bytes of data that they moved.
    pub bytes: u64,
    /// From being sent to their end, of those that ended.
    pub time_ns: Times,
    /// Those without an end.
    pub unfinished: u64,
    /// Those that the kernel gave up waiting for.
    pub timeouts: u64,
    /// Those that did not succeed, by the error that was reported.
    pub errors: BTreeMap<String, u64>,
}

/// A number for each confidence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ByConfidence<T> {
    /// The same object.
    pub exact: T,
    /// A field of the kernel's.
    pub structural: T,
    /// Thread and time.
    pub interval: T,
    /// Disk, sectors and time.
    pub address: T,
    /// A name or pattern.
    pub guess: T,
}

impl<T> ByConfidence<T> {
    /// The number of one.
    pub fn of(&mut self, confidence: model::Confidence) -> &mut T {
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
    /// Records lost, where their number is known.
    pub events: u64,
    /// Further lost records that the recorder counted, without their times.
    pub events_at_unknown_time: u64,
    /// Whether more may be lost.
    pub at_least: bool,
    /// Links that are less sure for it.
    pub weakened_links: u64,
    /// When and where.
    pub intervals: Vec<LossInterval>,
}

/// One interval in which records were lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LossInterval {
    /// What lost them.
    pub source: String,
    /// CPU; absent if any.
    pub cpu: Option<u32>,
    /// Begin, CLOCK_BOOTTIME.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// How many; absent if unknown.
    pub events: Option<u64>,
    /// Whether `events` is only the least.
    pub at_least: bool,
    /// The program concerned.
    pub program: Option<String>,
    /// Links that are less sure for it.
    pub weakened_links: u64,
}

/// The result of setting each disk's own statistics (`/sys/block/NAME/stat`), from the begin of the recording to its end, beside
/// the completions recorded.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Completeness {
    /// `checked`: nothing was lost, and all counts agree. `failed`: something is missing, or does not add up. `not checked`.
    pub state: String,
    /// Why it is not `checked`.
    pub why: Option<String>,
    /// Disks that did anything.
    pub disks: BTreeMap<String, DiskCheck>,
}

/// One disk's.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DiskCheck {
    /// As in [`Completeness`].
    pub state: String,
    /// Why it is not `checked`.
    pub why: Option<String>,
    /// `reads`, `writes`, `discards`, `flushes` completed; `bytes read`, `bytes written`, `bytes discarded`. The kernel counts an fsync that
    /// needs nothing but a flush as a write: of `writes` those are `flushes counted as writes`.
    pub counts: BTreeMap<String, CheckedCount>,
}

/// One count.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CheckedCount {
    /// By the kernel; absent if it does not tell.
    pub kernel: Option<u64>,
    /// Recorded.
    pub recorded: u64,
    /// Of `recorded`: completed as the statistics were read, so that the kernel may have counted it or not.
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
    /// What it stands on.
    pub below: String,
}

/// A file that operations used; in a recording without operations, one that the recorded processes used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileUse {
    /// Path; absent if it was never learnt.
    pub path: Option<String>,
    /// Class.
    pub class: FileClass,
    /// File system's number.
    pub dev: String,
    /// Inode.
    pub ino: u64,
    /// Calls that wrote it.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Calls that read it.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

/// Something that could not be seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Blind {
    /// The layer that is seen in part or not at all.
    pub layer: Layer,
    /// Whether no probe of the layer was in force.
    pub wholly: bool,
    /// What that means, in a sentence.
    pub means: String,
}

/// A probe.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Probe {
    /// Layer.
    pub layer: Layer,
    /// Name.
    pub probe: String,
    /// Whether it was in force.
    pub attached: bool,
    /// How it was attached, or why it is blind.
    pub how: String,
    /// Why it is not attached, as one of a few: `"not mounted"`, `"no tracepoint"`, `"no SQLite"`, `"not permitted"`, `"failed"`;
    /// null if it is attached, or nothing is known.
    pub absence: Option<Absence>,
    /// Times its program ran while the kernel counted, which is `environment["tracer.counted"]` ns of the recording.
    pub hits: Option<u64>,
    /// That as runs per second; absent if nothing was counted.
    pub runs_per_s: Option<f64>,
    /// Times it could not run.
    pub misses: Option<u64>,
    /// Mean time of one run, ns.
    pub price_ns: Option<f64>,
}
