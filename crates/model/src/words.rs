//! The enumerations of events and rows.

use serde::{Deserialize, Serialize};

/// Declares an enumeration that has a stable name in text, JSON and Parquet.
macro_rules! names {
    ($(#[$meta:meta])* $Type:ident { $( $(#[doc = $doc:literal])+ $Variant:ident = $name:literal ),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $Type { $( $(#[doc = $doc])+ #[serde(rename = $name)] $Variant, )* }
        impl $Type {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$Variant),*];
            /// The name in text, JSON and Parquet.
            pub fn name(self) -> &'static str {
                match self { $( Self::$Variant => $name, )* }
            }
            /// Returns the variant of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $( $name => Some(Self::$Variant), )* _ => None }
            }
        }
        impl std::fmt::Display for $Type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

/// Declares an enumeration whose numbers the kernel side uses.
macro_rules! numbers {
    ($(#[$meta:meta])* $Type:ident : $repr:ty { $( $(#[doc = $doc:literal])+ $Variant:ident = $n:literal $name:literal $c:literal ),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr($repr)]
        pub enum $Type { $( $(#[doc = $doc])+ $Variant = $n, )* }
        impl $Type {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$Variant),*];
            /// The name in text.
            pub fn name(self) -> &'static str {
                match self { $( Self::$Variant => $name, )* }
            }
            /// The name of its constant in C, less the prefix `FATHOM_`.
            pub fn c_name(self) -> &'static str {
                match self { $( Self::$Variant => $c, )* }
            }
            /// Returns the variant of that number.
            pub fn from_number(n: $repr) -> Option<Self> {
                match n { $( $n => Some(Self::$Variant), )* _ => None }
            }
        }
    };
}

names! {
    /// A layer of the stack, from the application down. `RunQueue` is not one of the papers' layers: it is the time in which a
    /// thread could have run but no CPU was free.
    Layer {
        /// The application's own marks.
        App = "App",
        /// SQLite, or a function named by --op.
        Database = "Database",
        /// The system call.
        Syscall = "Syscall",
        /// The file system and its journal.
        FileSystem = "FileSystem",
        /// From a bio's queueing until it is in a request.
        Block = "Block",
        /// From a request's allocation until its issue.
        IoScheduler = "IoScheduler",
        /// From a request's issue until its completion: driver and device.
        Driver = "Driver",
        /// Runnable, but not running.
        RunQueue = "RunQueue",
        /// The part of the thread's time that the recording itself took. In no table: summaries estimate it, and subtract it from
        /// the others.
        Tracer = "Tracer",
    }
}

names! {
    /// How a child span derives from its parent.
    Relation {
        /// The parent's thread created the child.
        Calls = "calls",
        /// The parent wrote the pages that the child carries.
        Dirties = "dirties",
        /// The parent's handle is in the transaction that the child commits.
        JoinsTransaction = "joins transaction",
        /// The commit wrote the child.
        Commits = "commits",
        /// The request carries the bio.
        Carries = "carries",
        /// The request carries the bio besides others.
        Merges = "merges",
        /// The child is a part of the parent.
        Splits = "splits",
        /// The child is the parent on another disk.
        Remaps = "remaps",
        /// The parent waits for the flush.
        WaitsForFlush = "waits for flush",
        /// The parent waits for the file system's own writes, such as its log.
        WaitsForLog = "waits for log",
        /// The child is a retry of the parent.
        Retries = "retries",
    }
}

names! {
    /// How certain a link is, in ascending order: a chain is as certain as its weakest link.
    Confidence {
        /// A name or a pattern suggests it.
        Guess = "guess",
        /// Same disk, same sectors, near in time.
        Address = "address",
        /// Same thread (or the journal's), within the time, and nothing was lost meanwhile.
        Interval = "interval",
        /// A field of the kernel shows it: inode and page, the system call that a thread was in.
        Structural = "structural",
        /// The same object, by its address and lifetime.
        Exact = "exact",
    }
}

impl Confidence {
    /// Returns the next lower confidence, for a loss inside a link's window.
    #[must_use]
    pub fn weakened(self) -> Self {
        match self {
            Self::Exact => Self::Structural,
            Self::Structural => Self::Interval,
            Self::Interval => Self::Address,
            Self::Address | Self::Guess => Self::Guess,
        }
    }
}

names! {
    /// What a share of a device command is charged to.
    Origin {
        /// An operation selected for recording.
        Operation = "operation",
        /// A recorded process, outside any operation.
        Process = "process",
        /// A process not selected for recording.
        OtherProcess = "other process",
        /// Fathom itself.
        Tracer = "tracer",
        /// Unknown: dirtied before the trace began, by a process that was not recorded, or lost.
        Unattributed = "unattributed",
    }
}

names! {
    /// What a thread of an operation was doing or waiting for, within a layer.
    Reason {
        /// Running.
        Cpu = "cpu",
        /// Asleep until the device finished a data command.
        Device = "device",
        /// Asleep until the device finished a flush.
        Flush = "flush",
        /// Asleep until a request was issued.
        Queue = "queue",
        /// Asleep while the journal's thread worked.
        Journal = "journal",
        /// Runnable, waiting for a CPU.
        RunQueue = "run queue",
        /// Asleep for something else (a lock, a timer, a pipe), or not known.
        Other = "other",
    }
}

names! {
    /// What a thread slept for, or waited for a CPU for, as the kernel itself shows it. The probes number them from 1 in this
    /// order, so append new ones.
    Wait {
        /// A lock on a file by fcntl; also the sleeps of SQLite's busy handler after the lock was refused, by the kernel or, if
        /// another thread of its process holds it, by SQLite itself.
        Fcntl = "fcntl lock",
        /// A lock on a file by flock.
        Flock = "flock lock",
        /// A futex: a lock or condition variable of the program.
        Futex = "futex",
        /// A timer (nanosleep).
        Timer = "timer",
        /// An event on one of several descriptors (poll, select, epoll).
        Poll = "poll",
        /// A pipe's other end.
        Pipe = "pipe",
        /// A socket's other end.
        Socket = "socket",
        /// The end of a child process.
        Child = "child process",
        /// A page that was accessed but not present.
        PageFault = "page fault",
        /// Memory, which the thread itself had to free.
        Reclaim = "memory reclaim",
        /// Permission to dirty more pages (`balance_dirty_pages`).
        DirtyThrottling = "dirty throttling",
        /// A journal transaction that is locked, or a block that the journal is writing.
        Transaction = "journal transaction",
        /// Room in the journal.
        JournalSpace = "journal space",
        /// The end of the journal's commit.
        Commit = "journal commit",
        /// A kernel lock: an inode's, a mutex.
        KernelLock = "kernel lock",
        /// A place in the disk's queue.
        RequestTag = "request tag",
        /// Permission to send more writes (blk-wbt and similar).
        WriteThrottling = "write throttling",
        /// The cgroup's share of a disk.
        IoQuota = "I/O quota",
        /// The cgroup's CPU time of the next period.
        CpuQuota = "CPU quota",
        /// A page under writeback.
        Writeback = "page writeback",
        /// A metadata block that is being read or written.
        Buffer = "metadata block",
        /// A checkpoint of f2fs.
        F2fsCheckpoint = "f2fs checkpoint",
        /// Free segments, which f2fs cleans.
        F2fsCleaning = "f2fs cleaning",
    }
}

impl Wait {
    /// Returns whether it is a lock, which another thread holds.
    pub fn is_lock(self) -> bool {
        matches!(self, Self::Fcntl | Self::Flock | Self::Futex | Self::KernelLock)
    }

    /// Its number in a `wait` record.
    pub fn number(self) -> u16 {
        self as u16 + 1
    }

    /// Returns the wait of that number; `None` for 0 or a number of a newer log.
    pub fn from_number(n: u16) -> Option<Self> {
        Self::ALL.get(usize::from(n).checked_sub(1)?).copied()
    }

    /// The name of its constant in C, less the prefix `FATHOM_`.
    pub fn c_name(self) -> &'static str {
        match self {
            Self::Fcntl => "WAIT_FCNTL",
            Self::Flock => "WAIT_FLOCK",
            Self::Futex => "WAIT_FUTEX",
            Self::Timer => "WAIT_TIMER",
            Self::Poll => "WAIT_POLL",
            Self::Pipe => "WAIT_PIPE",
            Self::Socket => "WAIT_SOCKET",
            Self::Child => "WAIT_CHILD",
            Self::PageFault => "WAIT_PAGE_FAULT",
            Self::Reclaim => "WAIT_RECLAIM",
            Self::DirtyThrottling => "WAIT_DIRTY_THROTTLING",
            Self::Transaction => "WAIT_TRANSACTION",
            Self::JournalSpace => "WAIT_JOURNAL_SPACE",
            Self::Commit => "WAIT_COMMIT",
            Self::KernelLock => "WAIT_KERNEL_LOCK",
            Self::RequestTag => "WAIT_REQUEST_TAG",
            Self::WriteThrottling => "WAIT_WRITE_THROTTLING",
            Self::IoQuota => "WAIT_IO_QUOTA",
            Self::CpuQuota => "WAIT_CPU_QUOTA",
            Self::Writeback => "WAIT_WRITEBACK",
            Self::Buffer => "WAIT_BUFFER",
            Self::F2fsCheckpoint => "WAIT_F2FS_CHECKPOINT",
            Self::F2fsCleaning => "WAIT_F2FS_CLEANING",
        }
    }
}

names! {
    /// Why a probe is not attached.
    Absence {
        /// No file system of its kind was mounted: nothing was missed.
        NotMounted = "not mounted",
        /// The kernel has no such tracepoint, or its module is not loaded.
        NoTracepoint = "no tracepoint",
        /// No SQLite was found in the process; `how` names what is recorded instead of its statements.
        NoSqlite = "no SQLite",
        /// A process used SQLite before it was found: its first statements, or all, may be missing.
        Late = "found late",
        /// The kernel does not permit it.
        NotPermitted = "not permitted",
        /// Any other reason, which `how` gives.
        Failed = "failed",
        /// Its events are in the imported trace, but none of them could be used.
        Unreadable = "not readable",
    }
}

names! {
    /// What may lose records.
    LossSource {
        /// The ring buffer was full.
        Ring = "ring buffer full",
        /// A program was not run because it was already running on this CPU.
        Recursion = "program re-entered",
        /// The disk that holds the archive was full.
        ArchiveFull = "archive full",
        /// A table in the kernel was full: a thread or a statement could not be followed.
        TableFull = "kernel table full",
        /// A damaged part of the log.
        Damage = "log damaged",
        /// The kernel did not run a program where it should have, and counted no miss.
        NotRun = "probe not run",
        /// A task was preempted while it wrote a record, and did not run again before the recording ended: what is behind that record
        /// in the ring buffer could not be read.
        Unread = "ring buffer not read",
        /// Events of an imported trace whose form is unknown, or that lack a field; `program` is their kind.
        Unreadable = "event not readable",
    }
}

impl LossSource {
    /// Its number in a `loss` record.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// Returns the source of that number; an unknown number (a newer log) is damage.
    pub fn from_number(n: u16) -> Self {
        Self::ALL.get(usize::from(n)).copied().unwrap_or(Self::Damage)
    }
}

numbers! {
    /// A system call, the same number on every architecture.
    Call: u16 {
        /// read
        Read = 1 "read" "CALL_READ",
        /// pread64
        Pread64 = 2 "pread64" "CALL_PREAD64",
        /// readv
        Readv = 3 "readv" "CALL_READV",
        /// preadv
        Preadv = 4 "preadv" "CALL_PREADV",
        /// write
        Write = 5 "write" "CALL_WRITE",
        /// pwrite64
        Pwrite64 = 6 "pwrite64" "CALL_PWRITE64",
        /// writev
        Writev = 7 "writev" "CALL_WRITEV",
        /// pwritev
        Pwritev = 8 "pwritev" "CALL_PWRITEV",
        /// lseek
        Lseek = 9 "lseek" "CALL_LSEEK",
        /// fsync
        Fsync = 10 "fsync" "CALL_FSYNC",
        /// fdatasync
        Fdatasync = 11 "fdatasync" "CALL_FDATASYNC",
        /// sync_file_range
        SyncFileRange = 12 "sync_file_range" "CALL_SYNC_FILE_RANGE",
        /// ftruncate
        Ftruncate = 13 "ftruncate" "CALL_FTRUNCATE",
        /// fallocate
        Fallocate = 14 "fallocate" "CALL_FALLOCATE",
        /// unlink and unlinkat
        Unlink = 15 "unlink" "CALL_UNLINK",
        /// rename, renameat and renameat2
        Rename = 16 "rename" "CALL_RENAME",
        /// open, openat and openat2
        Open = 17 "open" "CALL_OPEN",
        /// msync
        Msync = 18 "msync" "CALL_MSYNC",
        /// mmap
        Mmap = 19 "mmap" "CALL_MMAP",
        /// io_uring_enter
        IoUringEnter = 20 "io_uring_enter" "CALL_IO_URING_ENTER",
        /// copy_file_range; in logs of Fathom 0.3 and older also sendfile and splice
        CopyRange = 21 "copy_file_range" "CALL_COPY_RANGE",
        /// sync and syncfs
        Sync = 22 "sync" "CALL_SYNC",
        /// sendfile
        Sendfile = 23 "sendfile" "CALL_SENDFILE",
        /// splice
        Splice = 24 "splice" "CALL_SPLICE",
        /// preadv2
        Preadv2 = 25 "preadv2" "CALL_PREADV2",
        /// pwritev2
        Pwritev2 = 26 "pwritev2" "CALL_PWRITEV2",
        /// truncate
        Truncate = 27 "truncate" "CALL_TRUNCATE",
        /// link and linkat
        Link = 28 "link" "CALL_LINK",
        /// symlink and symlinkat
        Symlink = 29 "symlink" "CALL_SYMLINK",
        /// mkdir and mkdirat
        Mkdir = 30 "mkdir" "CALL_MKDIR",
        /// rmdir
        Rmdir = 31 "rmdir" "CALL_RMDIR",
    }
}

impl Call {
    /// Whether it writes a file's bytes.
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Pwrite64 | Self::Writev | Self::Pwritev | Self::Pwritev2)
    }

    /// Whether it writes a file's bytes that the kernel takes from another file, or from a pipe.
    pub fn copies(self) -> bool {
        matches!(self, Self::CopyRange | Self::Sendfile | Self::Splice)
    }

    /// Whether it reads a file's bytes.
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Pread64 | Self::Readv | Self::Preadv | Self::Preadv2)
    }

    /// Whether it changes the file system other than by writing.
    pub fn changes(self) -> bool {
        use Call::{Fallocate, Ftruncate, Link, Mkdir, Rename, Rmdir, Symlink, Truncate, Unlink};
        matches!(self, Ftruncate | Fallocate | Unlink | Rename | Truncate | Link | Symlink | Mkdir | Rmdir)
    }

    /// Whether it waits for the medium.
    pub fn syncs(self) -> bool {
        matches!(self, Self::Fsync | Self::Fdatasync | Self::SyncFileRange | Self::Msync | Self::Sync)
    }
}

numbers! {
    /// What a bio or request does, the same number on every kernel.
    DiskOp: u8 {
        /// Read.
        Read = 0 "read" "OP_READ",
        /// Write.
        Write = 1 "write" "OP_WRITE",
        /// Flush the disk's cache.
        Flush = 2 "flush" "OP_FLUSH",
        /// Discard.
        Discard = 3 "discard" "OP_DISCARD",
        /// Write zeroes.
        WriteZeroes = 4 "write zeroes" "OP_WRITE_ZEROES",
        /// A command issued by the driver or by a program (SCSI, NVMe pass-through).
        DriverCommand = 5 "driver command" "OP_DRIVER",
        /// Another.
        Other = 6 "other" "OP_OTHER",
    }
}

numbers! {
    /// The completion handler of a bio (`bi_end_io`), which shows what kind of bio it is.
    BioEnd: u8 {
        /// Not known.
        Unknown = 0 "unknown" "END_UNKNOWN",
        /// ext4's data writes.
        Ext4 = 1 "ext4 data" "END_EXT4",
        /// A buffer head: metadata and the journal.
        BufferHead = 2 "buffer head" "END_BUFFER_HEAD",
        /// Direct I/O.
        Direct = 3 "direct I/O" "END_DIRECT",
        /// A thread waits for just this bio (a bare flush).
        Wait = 4 "waited for" "END_WAIT",
        /// A clone made by the device mapper.
        Clone = 5 "clone" "END_CLONE",
        /// Reads into the page cache.
        PageRead = 6 "page read" "END_PAGE_READ",
        /// A bio of the device mapper's crypt target.
        Crypt = 7 "crypt" "END_CRYPT",
        /// A block of the file system's log that the thread writes itself, without a commit of the journal (ext4's fast commit).
        Log = 8 "log" "END_LOG",
    }
}

numbers! {
    /// The protocol between a driver and its device.
    Protocol: u16 {
        /// SCSI, also for SATA, USB and UFS disks.
        Scsi = 1 "scsi" "PROTOCOL_SCSI",
        /// NVMe.
        Nvme = 2 "nvme" "PROTOCOL_NVME",
        /// MMC: SD cards, eMMC.
        Mmc = 3 "mmc" "PROTOCOL_MMC",
    }
}

/// A block device's number as the kernel keeps it: major << 20 | minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Dev(pub u32);

impl Dev {
    /// From the two numbers that `lsblk` shows.
    pub fn new(major: u32, minor: u32) -> Self {
        Self(major << 20 | minor)
    }

    pub fn major(self) -> u32 {
        self.0 >> 20
    }

    pub fn minor(self) -> u32 {
        self.0 & 0xf_ffff
    }

    /// A number for the `nth` disk of which a trace has only the name: one that no kernel gives, since majors of block devices are below
    /// `BLKDEV_MAJOR_MAX` (512).
    pub fn placeholder(nth: u32) -> Self {
        Self::new(0xfff, nth & 0xf_ffff)
    }
}

impl std::fmt::Display for Dev {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major(), self.minor())
    }
}

/// A fact about the device under test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// The value, or nothing if it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<String>,
    /// Why it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unknown: Option<String>,
    /// Unit of the value.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unit: Option<String>,
    /// Where it was read.
    pub source: String,
    /// `device`, `boot` or `run`: how long it holds.
    pub varies: String,
}

/// Facts by name, such as `kernel.release`.
pub type Environment = std::collections::BTreeMap<String, Fact>;

/// The fact, and its value, of a machine whose processor is emulated in software: its times show order, not speed.
pub const EMULATED_PROCESSOR: (&str, &str) = ("virtual.accelerator", "tcg");
/// Why no conclusion about times is drawn from such a machine.
pub const EMULATED_TIMES: &str = "the processor is emulated (QEMU's TCG): times show order, not speed";

/// Whether a machine's processor is emulated in software: QEMU's TCG is the only emulator that the facts name.
pub fn is_emulated(environment: &Environment) -> bool {
    let (name, value) = EMULATED_PROCESSOR;
    environment.get(name).and_then(|fact| fact.value.as_deref()) == Some(value)
}

names! {
    /// What a row of `shapes` is.
    ShapeKind {
        /// An SQL statement.
        Statement = "statement",
        /// A function named by --op.
        Function = "function",
        /// A mark that the program sets.
        Mark = "mark",
        /// A system call of a program without operations of its own.
        Call = "call",
        /// A transaction inferred from SQLite's files.
        Transaction = "transaction",
    }
}

names! {
    /// The kinds of `spans` rows that the code tests for; all others are names of calls, disk operations and events.
    SpanKind {
        /// A statement is compiled.
        Prepare = "prepare",
        /// A file system reads, below a call or without one.
        Read = "read",
        /// A file system writes, likewise.
        Write = "write",
        /// An access to a mapped file added pages to the page cache, without a call.
        MappedRead = "mapped read",
        /// A store to a mapped file dirtied pages, without a call.
        MappedWrite = "mapped write",
        /// f2fs needs a checkpoint.
        CheckpointNeeded = "checkpoint needed",
    }
}

names! {
    /// A flag of a bio, request or command, and of the call that made it: a word of `spans.flags`.
    SpanFlag {
        /// A thread waits for it.
        Sync = "sync",
        /// Metadata of a file system.
        Meta = "meta",
        /// After a flush of the device's cache.
        Preflush = "preflush",
        /// Durable before it completes (FUA).
        Fua = "fua",
        /// How long the command took is not known: its issue was not recorded, or comes after its completion by the trace's own clock.
        /// `start_ns` is then no later than `end_ns`, and no more.
        Untimed = "untimed",
    }
}

names! {
    /// The code of a finding of `fathom explain`: docs/guide/explain.md describes each.
    FindingCode {
        /// Journal of a journal.
        J01 = "J01",
        /// Journal file created and deleted per transaction.
        J02 = "J02",
        /// Fdatasync turned into a full commit.
        J03 = "J03",
        /// Two or more flushes a commit.
        F01 = "F01",
        /// Flush behind someone else's flush.
        F02 = "F02",
        /// Flush dominates.
        F03 = "F03",
        /// Foreign pages in an fsync.
        W01 = "W01",
        /// Queue longer than device.
        Q01 = "Q01",
        /// Device tail.
        D01 = "D01",
        /// Autocommit loop.
        S01 = "S01",
        /// WAL checkpoint stall.
        S02 = "S02",
        /// Statement prepared for every execution.
        S03 = "S03",
        /// Full scan where an index would serve.
        S04 = "S04",
        /// Automatic index built for each execution.
        S05 = "S05",
        /// Sort in a temporary file.
        S06 = "S06",
        /// Cache spill.
        S07 = "S07",
        /// Statement prepared again by SQLite itself.
        S08 = "S08",
        /// Trigger or foreign-key action for each row.
        S09 = "S09",
        /// Connection opened for every execution.
        S10 = "S10",
        /// Write amplification.
        R01 = "R01",
        /// Scheduling delay.
        G01 = "G01",
        /// F2fs checkpoint forced.
        C01 = "C01",
        /// Lock wait.
        L01 = "L01",
        /// Dirty throttling.
        M01 = "M01",
        /// The trace is unreliable: about the whole recording, so that no remedy for a command follows from it.
        T01 = "T01",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for c in Confidence::ALL {
            assert_eq!(Confidence::from_name(c.name()), Some(*c));
        }
        for c in Call::ALL {
            assert_eq!(Call::from_number(*c as u16), Some(*c));
        }
    }

    #[test]
    fn the_confidence_of_a_chain_is_that_of_its_weakest_link() {
        assert_eq!(
            [Confidence::Exact, Confidence::Interval, Confidence::Structural].iter().min(),
            Some(&Confidence::Interval)
        );
    }

    #[test]
    fn a_device_number_prints_as_in_lsblk() {
        assert_eq!(Dev::new(254, 0).to_string(), "254:0");
        assert_eq!(Dev::new(7, 300).minor(), 300);
        assert_eq!((Dev::placeholder(2).major(), Dev::placeholder(2).minor()), (4095, 2));
    }
}

/// Why an fsync made f2fs write a checkpoint of the whole file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointReason {
    /// Name in a span's flags.
    pub name: &'static str,
    /// Whether changes to directories, links or special files caused it, rather than the file that was synced.
    pub is_of_directories: bool,
}

/// f2fs's `cp_reason_type`, from 1 on (fs/f2fs/f2fs.h).
pub const CHECKPOINT_REASONS: [CheckpointReason; 11] = {
    const fn reason(name: &'static str, is_of_directories: bool) -> CheckpointReason {
        CheckpointReason { name, is_of_directories }
    }
    [
        reason("no regular file", true),
        reason("compressed file", false),
        reason("file with hard links", true),
        reason("file system that needs one first", false),
        reason("file with a wrong parent", false),
        reason("no room to roll forward", false),
        reason("node that the last one lacks", false),
        reason("mount option fastboot", false),
        reason("two active logs only", false),
        reason("directory to be recovered", true),
        reason("directory with new extended attributes", true),
    ]
};
