//! What a probe records.
//!
//! An event is a [`Header`] (when, where, who) and a [`Record`] (what). Probes emit raw pointers, which `causal` joins. A
//! pointer alone is no identity: the kernel reuses it within a millisecond, so identity is (pointer, first-seen time).
//!
//! # Which thread a record belongs to
//!
//! `tgid` and `tid` are those of the thread that ran when the probe fired, with two exceptions: an `off_cpu` has those of the
//! thread that was off the CPU, and a completion (`rq_done`, `bio_done`) has those of whichever thread the interrupt hit, so
//! it belongs to none.
//!
//! # Time
//!
//! `CLOCK_BOOTTIME` in ns. A record that covers an interval (`syscall`, `op_end`, `off_cpu`, `join`, `statement`) is
//! stamped with its **end** and carries its start, since it is written when the interval ends. [`Event::start_ns`] returns the
//! time from which the record matters to others: the start, except for `op_end` and `statement`.

use crate::record::{Field, FieldInfo};
use crate::records;
use crate::words::Call;

mod bits;
mod parse_error;
mod text;

pub use bits::{
    bio_flags, chain_end, driver_what, file_what, flags, header_flags, mmc_answer, mmc_is, mmc_part, nvme_code,
    op_kind, scsi_code, task_what, uring_phase,
};
pub use parse_error::ParseError;

/// Version of the records below, incremented when their layout changes. Stored in the archive.
pub const EVENT_VERSION: u32 = 1;

/// The `cpu` of a `loss` that is not specific to one CPU, such as a damaged part of the log.
pub const ANY_CPU: u16 = u16::MAX;

records! {
    /// An SQL statement became known: prepared, or first seen at a step because it was prepared before the trace.
    1 statement Statement [text: len] {
        /// Address of the `sqlite3_stmt`, unique in its process until finalised.
        stmt: u64,
        /// When its prepare call began; 0 if it was first seen at a step.
        start_ns: u64,
        /// The prepare's result code.
        result: i32,
        /// 1: the text was truncated.
        flags: u16,
        /// Bytes of text.
        len: u16,
    }
    /// An execution of a statement (or of a function named by --op) began on this thread.
    2 op_begin OpBegin {
        /// Address of the `sqlite3_stmt`; for a function its number in the list of --op.
        key: u64,
        /// 0: SQL statement; 1: function named by --op.
        kind: u32,
        /// Nesting on this thread: 1 is the outermost. Statements that are open but between two steps do not count.
        depth: u32,
    }
    /// An execution ended: the step returned done or an error, or the statement was reset or finalised.
    3 op_end OpEnd {
        /// As in `op_begin`.
        key: u64,
        /// When it began.
        start_ns: u64,
        /// Rows it returned, counted in the kernel.
        rows: u64,
        /// Calls of `sqlite3_step`.
        steps: u64,
        /// Nanoseconds inside those calls; the rest is the application between rows.
        inside_ns: u64,
        /// SQLite's result code of the last step (101: done); the function's return value.
        result: i32,
        /// As in `op_begin`. 2: a function that was left other than by returning (longjmp, an exception), no later than now. 3:
        /// an execution that continued, but was displaced by others, since more than eight were open on its thread.
        kind: u32,
    }
    /// A span of the application's own, from its marks (see `model::marks`): the App layer.
    4 mark Mark [text: len] {
        /// When it began.
        start_ns: u64,
        /// Its ordinal among the program's marks.
        nth: u64,
        /// Keeps the layout free of gaps.
        pad: [u16; 3],
        /// Bytes of name.
        len: u16,
    }
    /// A system call that waits for the disk began (fsync, fdatasync, sync_file_range): it may take long, and others need to know
    /// of the wait before its `syscall` record is written.
    5 sync_begin SyncBegin {
        /// Inode.
        ino: u64,
        /// File system (kernel's dev_t: major << 20 | minor).
        dev: u32,
        /// Which call ([`Call`]).
        call: u16,
        /// Bit set of [`flags`].
        ctx: u16,
    }
    /// A system call ended. One record per call, written at its exit.
    6 syscall Syscall {
        /// When it was entered; with the thread, the call's identity.
        start_ns: u64,
        /// Inode, 0 if none.
        ino: u64,
        /// File position in bytes; -1 if it has none.
        pos: i64,
        /// Bytes requested.
        bytes: u64,
        /// Return value: bytes done, or a negative error number.
        result: i64,
        /// When the file system's own code was entered (0: not seen).
        fs_start_ns: u64,
        /// When that code was left: the end of the call, since the file systems' last tracepoints fire before their work is done.
        fs_end_ns: u64,
        /// File system.
        dev: u32,
        /// First jbd2 transaction that a handle of this call joined (0: none).
        txn: u32,
        /// Handles that joined it.
        handles: u16,
        /// Pages that had to be added to the page cache.
        cache_added: u16,
        /// Which call ([`Call`]).
        call: u16,
        /// Bit set of [`flags`].
        ctx: u16,
        /// File descriptor.
        fd: i32,
        /// How often the file system's write-begin ran, about once per folio.
        fs_writes: u32,
    }
    /// A file became known by name: opened, mapped as code, renamed or removed.
    7 file File [text: len] {
        /// Inode.
        ino: u64,
        /// File system.
        dev: u32,
        /// 0 open, 1 mapped as code, 2 removed, 3 renamed to this, 4 open when the trace began, 5 opened by the call that created it,
        /// 6 removed, but open or under another name.
        what: u16,
        /// Bytes of path, as the process sees it.
        len: u16,
    }
    /// A thread of an operation was off the CPU; stamped when it ran again.
    8 off_cpu OffCpu {
        /// When it left the CPU.
        start_ns: u64,
        /// When it was woken (0: it was never asleep, only preempted; or, with another state than 0, the wake-up was not seen).
        wake_ns: u64,
        /// Thread that woke it.
        waker: u32,
        /// Its state when it left: 0 runnable, 1 interruptible, 2 uninterruptible, 3 other.
        state: u16,
        /// Bit set of [`flags`].
        ctx: u16,
    }
    /// A bio entered the block layer.
    9 bio_queue BioQueue {
        /// Address of the bio.
        bio: u64,
        /// First sector (512 B) on `disk`.
        sector: u64,
        /// Inode whose pages it carries; for metadata the block device's own inode. 0: none.
        ino: u64,
        /// First page (4 KiB) of that inode.
        index: u64,
        /// `start_ns` of the system call that the thread was in; 0: none that is recorded.
        syscall_ns: u64,
        /// Bytes.
        bytes: u32,
        /// Disk.
        disk: u32,
        /// File system of `ino`; for metadata the block device.
        dev: u32,
        /// Consecutive pages from `index`; the rest, if any, follows in `bio_pages`.
        pages: u32,
        /// Operation ([`crate::DiskOp`]).
        op: u8,
        /// Completion handler ([`crate::BioEnd`]).
        end: u8,
        /// Bit set of [`bio_flags`].
        flags: u16,
        /// Bit set of [`flags`].
        ctx: u16,
        /// Keeps the layout free of gaps.
        pad: u16,
    }
    /// More pages of the bio just queued by this thread.
    10 bio_pages BioPages {
        /// Address of the bio.
        bio: u64,
        /// Inode.
        ino: u64,
        /// First page.
        index: u64,
        /// File system.
        dev: u32,
        /// Consecutive pages.
        pages: u32,
    }
    /// A bio was split: a new bio took the first part.
    11 bio_split BioSplit {
        /// The new bio, the first part.
        bio: u64,
        /// The original bio, which keeps the rest.
        parent: u64,
        /// Where the rest begins.
        sector: u64,
        /// Bytes of the new bio.
        bytes: u32,
        /// Disk.
        disk: u32,
    }
    /// A bio was remapped to another disk (device mapper), or from a partition to its disk.
    12 bio_remap BioRemap {
        /// The remapped bio.
        bio: u64,
        /// The bio it was made from (0: itself).
        parent: u64,
        /// Sector on `disk`.
        sector: u64,
        /// Sector on `from_disk`.
        from_sector: u64,
        /// Disk it goes to.
        disk: u32,
        /// Disk it comes from.
        from_disk: u32,
    }
    /// A request entered the I/O scheduler.
    13 rq_insert RqInsert {
        /// Address of the request.
        rq: u64,
        /// Disk.
        disk: u32,
        /// Keeps the layout free of gaps.
        pad: u32,
    }
    /// A request went to the driver.
    14 rq_issue RqIssue {
        /// Address of the request.
        rq: u64,
        /// First sector.
        sector: u64,
        /// When the request was allocated (0 if the kernel does not record it).
        alloc_ns: u64,
        /// Bytes.
        bytes: u32,
        /// Disk.
        disk: u32,
        /// Operation ([`crate::DiskOp`]).
        op: u8,
        /// Number of entries used in `bios`.
        listed: u8,
        /// Bit set of [`bio_flags`].
        flags: u16,
        /// Number of bios that it carries; those not listed follow in `rq_bios`.
        total: u32,
        /// The first four bios it carries.
        bios: [u64; 4],
    }
    /// More bios of the request just issued on this CPU.
    15 rq_bios RqBios {
        /// Address of the request.
        rq: u64,
        /// Number of entries used in `bios`.
        listed: u64,
        /// Bios.
        bios: [u64; 8],
    }
    /// A flush went to the driver on behalf of the waiters of its queue. Follows the `rq_issue` of the same request.
    16 flush_issue FlushIssue {
        /// Address of the flush request.
        rq: u64,
        /// The waiting bios (0: a bare flush whose bio is not available).
        bios: [u64; 4],
        /// Step of each waiter: 1 before its data, 4 after its data, 7 only the flush.
        steps: [u8; 4],
        /// Number of entries used in `bios`.
        listed: u16,
        /// Total number of waiters.
        total: u16,
    }
    /// A request, or a part of it, completed.
    17 rq_done RqDone {
        /// Address of the request.
        rq: u64,
        /// First sector of what completed.
        sector: u64,
        /// Bytes completed.
        bytes: u32,
        /// Disk.
        disk: u32,
        /// 0, or a negative error number.
        error: i32,
        /// Operation ([`crate::DiskOp`]).
        op: u8,
        /// 1: the whole request has completed.
        last: u8,
        /// Bit set of [`bio_flags`].
        flags: u16,
    }
    /// A bio without data completed (a bare flush, which may never reach the driver).
    18 bio_done BioDone {
        /// Address of the bio.
        bio: u64,
        /// Disk.
        disk: u32,
        /// 0, or a negative error number.
        error: i32,
    }
    /// The journal thread began to commit a transaction.
    19 commit_begin CommitBegin {
        /// Disk of the journal.
        dev: u32,
        /// Transaction.
        txn: u32,
    }
    /// The commit finished: the transaction is on the medium.
    20 commit_end CommitEnd {
        /// Disk of the journal.
        dev: u32,
        /// Transaction.
        txn: u32,
    }
    /// A thread joined a transaction outside any recorded system call, or a second one inside the call.
    21 join Join {
        /// When it joined (the record may be written later, with the count).
        start_ns: u64,
        /// Disk of the journal.
        dev: u32,
        /// Transaction.
        txn: u32,
        /// Handles.
        handles: u32,
        /// Bit set of [`flags`].
        ctx: u32,
    }
    /// The file system began to write a range: recorded for kernel threads (a loop disk's worker) and for long calls,
    /// whose pages may be written back before the call ends.
    22 fs_write FsWrite {
        /// Inode.
        ino: u64,
        /// First byte.
        pos: u64,
        /// Bytes.
        bytes: u32,
        /// File system.
        dev: u32,
        /// `start_ns` of the system call that the thread was in; 0: none that is recorded.
        syscall_ns: u64,
    }
    /// Pages were added to the page cache outside a recorded system call: a mapped file was touched.
    23 cache_add CacheAdd {
        /// Inode.
        ino: u64,
        /// First page.
        index: u64,
        /// File system.
        dev: u32,
        /// Pages.
        pages: u32,
    }
    /// A task was created, executed another program, or exited.
    24 task Task [text: len] {
        /// Its parent's tgid.
        parent: u32,
        /// 0 forked, 1 executed another program, 2 exited, 3 existed when the trace began.
        what: u16,
        /// Bytes of name.
        len: u16,
    }
    /// An io_uring request for a file was submitted or completed. Its submission time is its identity, as the start is for a
    /// system call: other records refer to it in `syscall_ns`.
    25 uring Uring {
        /// Address of the request.
        req: u64,
        /// Inode; 0: not known yet (a registered file, at submission).
        ino: u64,
        /// File position; -1 at submission: the file's current position, which the completion has.
        pos: i64,
        /// Bytes requested, or number of vectors; for an fsync, its flags (1: fdatasync).
        bytes: u64,
        /// Result at completion. In phase 2, the time of its submission.
        result: i64,
        /// File system.
        dev: u32,
        /// The kernel's IORING_OP number.
        opcode: u16,
        /// 0 submitted; 1 completed; 2 continued by this thread.
        phase: u16,
    }
    /// Records were lost on this CPU during an interval.
    26 loss Loss [text: len] {
        /// Last time at which nothing was lost yet.
        start_ns: u64,
        /// Number of lost records.
        events: u64,
        /// 0: `events` is exact; 1: it is a lower bound.
        bound: u16,
        /// What lost them ([`crate::LossSource`]).
        source: u16,
        /// Keeps the layout free of gaps.
        pad: u16,
        /// Bytes of the program's name.
        len: u16,
    }
    /// A task has a different ID inside its PID namespace, which its own marks use.
    27 inner_task InnerTask {
        /// Its process ID in the namespace.
        inner_tgid: u32,
        /// Its thread ID in the namespace.
        inner_tid: u32,
        /// Its process ID, as in all other records; the header has the thread that created it.
        tgid: u32,
        /// Its thread ID, as in all other records.
        tid: u32,
    }
    /// btrfs, f2fs or XFS writes what it logged to the medium: btrfs commits a transaction, f2fs writes a checkpoint, XFS writes
    /// a checkpoint of its log.
    28 checkpoint Checkpoint {
        /// Its number: btrfs's transaction, f2fs's checkpoint version, XFS's checkpoint sequence. In phase 2, why the call needed
        /// one (f2fs's `cp_reason_type`); 0: unknown.
        number: u64,
        /// `start_ns` of the system call that the thread was in; 0: none that is recorded.
        syscall_ns: u64,
        /// File system.
        dev: u32,
        /// 0 this thread started or requested it, 1 it is on the medium, 2 the call that this thread is ending needed one.
        phase: u16,
        /// Bit set of [`flags`].
        ctx: u16,
    }
    /// The driver sends a command of its own protocol to the device, for a request.
    29 driver_begin DriverBegin {
        /// Address of the driver's command; NVMe: of the request, MMC: of the `mmc_request`.
        command: u64,
        /// Address of the request that it is for; for an MMC command without a request, an address that belongs to none.
        rq: u64,
        /// The command as it is sent. MMC: argument, first sector of the data, blocks, [`mmc_is`]. SCSI: the first 16 bytes of
        /// the command block. NVMe: dwords 10 to 13.
        raw: [u8; 16],
        /// Bytes of data that it transfers.
        bytes: u32,
        /// Disk; 0: none, or unknown (MMC).
        disk: u32,
        /// The protocol ([`crate::Protocol`]).
        protocol: u16,
        /// SCSI: length of the command block. NVMe: opcode ([`nvme_code`]). MMC: the command's index, or its task's tag.
        code: u16,
        /// NVMe: the queue; 0: the admin queue.
        queue: u16,
        /// Keeps the layout free of gaps.
        pad: u16,
    }
    /// A driver's command ended, timed out or was refused.
    30 driver_end DriverEnd {
        /// Address of the driver's command.
        command: u64,
        /// SCSI: host byte << 16 | device status. NVMe: status. MMC: the host's error (-errno).
        result: u32,
        /// What happened ([`driver_what`]): 0 it ended, 1 it timed out, 2 the driver could not accept it.
        what: u16,
        /// The protocol ([`crate::Protocol`]).
        protocol: u16,
        /// SCSI: sense key, additional sense code and its qualifier; zeroes if there are none. MMC: the part that failed
        /// ([`mmc_part`]).
        sense: [u8; 4],
        /// MMC: the card's response to the command (R1: its status), combined with its response to CMD12 after it; 0: unknown.
        answer: u32,
    }
    /// What the thread waited for during the `off_cpu` just before this record.
    31 wait Wait {
        /// When the thread left the CPU.
        start_ns: u64,
        /// Upper bound of the time during which its cgroup had no CPU quota left.
        throttled_ns: u64,
        /// Thread that woke it; 0: unknown.
        waker: u32,
        /// Process of `waker`.
        waker_tgid: u32,
        /// What it slept for ([`crate::Wait`]); 0: not known.
        what: u16,
        /// Bit set of [`flags`].
        ctx: u16,
        /// Keeps the layout free of gaps.
        pad: u32,
    }
    /// A thread of an operation requested a file lock that another process or thread holds.
    32 lock Lock {
        /// Inode.
        ino: u64,
        /// First byte to be locked.
        pos: u64,
        /// File system.
        dev: u32,
        /// The process that holds it (for an OFD lock, the one that took it); 0: not known.
        holder: u32,
        /// 1 fcntl, 2 fcntl on an open file (OFD), 3 flock.
        kind: u16,
        /// 0 refused, 1 the thread waits for it.
        phase: u16,
        /// Bit set of [`flags`].
        ctx: u16,
        /// Keeps the layout free of gaps.
        pad: u16,
    }
    /// The stack of a thread that was off the CPU for long, in the kernel and in its program. The recorder derives it from the
    /// thread's memory, of which nothing else is kept; stamped when the thread ran again.
    33 stack Stack {
        /// When the thread left the CPU, as in its `off_cpu`.
        start_ns: u64,
        /// The kernel's functions (`chain`); 0: none.
        kernel: u32,
        /// The program's functions.
        program: u32,
        /// Bit set of [`flags`].
        ctx: u16,
        /// Keeps the layout free of gaps.
        pad: [u16; 3],
    }
    /// A call chain that `stack` records refer to, written once, before the first of them. One line per function, the innermost
    /// first: name and offset in it, file, offset in the file, build ID, separated by tabs.
    34 chain Chain [text: len] {
        /// Its number.
        chain: u32,
        /// Why it ends where it does ([`chain_end`]).
        ended: u16,
        /// Bytes of text.
        len: u16,
    }
    /// What SQLite itself counted during an execution, just before its `op_end`. Only from probes inside the process, where SQLite's
    /// functions that return its counters were found.
    35 op_counts OpCounts {
        /// As in `op_begin`.
        key: u64,
        /// When the execution began.
        start_ns: u64,
        /// Bit set of the fields below that are known, the first of them 1.
        known: u32,
        /// SQLITE_STMTSTATUS_FULLSCAN_STEP: steps forward in a table or index as part of a full scan.
        fullscan_steps: u32,
        /// SQLITE_STMTSTATUS_SORT.
        sorts: u32,
        /// SQLITE_STMTSTATUS_AUTOINDEX: rows inserted into automatic indices.
        autoindex_rows: u32,
        /// SQLITE_STMTSTATUS_VM_STEP.
        vm_steps: u32,
        /// SQLITE_STMTSTATUS_REPREPARE.
        reprepares: u32,
        /// SQLITE_STMTSTATUS_RUN: the statement's program and those of its triggers and foreign-key actions.
        runs: u32,
        /// SQLITE_DBSTATUS_CACHE_HIT, of the connection while the execution was open.
        cache_hits: u32,
        /// SQLITE_DBSTATUS_CACHE_MISS.
        cache_misses: u32,
        /// SQLITE_DBSTATUS_CACHE_WRITE.
        cache_writes: u32,
        /// SQLITE_DBSTATUS_CACHE_SPILL.
        cache_spills: u32,
        /// Keeps the layout free of gaps.
        pad: u32,
    }
}

/// When, where and who. 24 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// CLOCK_BOOTTIME, ns.
    pub time_ns: u64,
    /// Counts the CPU's records, lost ones included.
    pub seq: u32,
    /// CPU.
    pub cpu: u16,
    /// Kind of the record.
    pub kind: u8,
    /// Bit set of [`header_flags`].
    pub flags: u8,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When, where and who.
    pub header: Header,
    /// What.
    pub record: Record,
}

macro_rules! header_fields {
    ($($name:ident : $ty:ty = $doc:literal),* $(,)?) => {
        impl Header {
            /// Bytes of a header.
            pub const SIZE: usize = 0 $( + size_of::<$ty>() )*;
            /// How it is laid out.
            pub const FIELDS: &'static [FieldInfo] = &[$(FieldInfo {
                name: stringify!($name), c_type: <$ty as Field>::C_TYPE, count: 1, size: size_of::<$ty>(), doc: $doc,
            }),*];

            /// Reads a header; `None` if there are too few bytes.
            #[allow(unused_assignments)]
            pub fn decode(bytes: &[u8]) -> Option<Self> {
                if bytes.len() < Self::SIZE {
                    return None;
                }
                let mut at = 0;
                $( let $name = <$ty as Field>::get(&bytes[at..]); at += size_of::<$ty>(); )*
                Some(Self { $($name),* })
            }

            /// Appends it.
            pub fn encode(&self, out: &mut Vec<u8>) {
                $( self.$name.put(out); )*
            }
        }
    };
}
header_fields! {
    time_ns: u64 = "CLOCK_BOOTTIME, ns",
    seq: u32 = "counts the CPU's records, lost ones included",
    cpu: u16 = "CPU",
    kind: u8 = "kind of the record",
    flags: u8 = "bit set of `header_flags`",
    tgid: u32 = "process",
    tid: u32 = "thread",
}

impl Event {
    /// Reads one record as the kernel or the log holds it: header, body, padding.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let header = Header::decode(bytes)?;
        let record = Record::decode(header.kind, &bytes[Header::SIZE..])?;
        Some(Self { header, record })
    }

    /// Appends it, padded to a multiple of 8 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        Header { kind: self.record.kind(), ..self.header }.encode(out);
        self.record.encode(out);
        out.resize(start + (out.len() - start).next_multiple_of(8), 0);
    }

    /// Returns the time from which the record matters to others: its start, or its own time if it has no duration, and for the
    /// end of an execution and a statement's text, which nothing earlier needs.
    pub fn start_ns(&self) -> u64 {
        match &self.record {
            Record::Syscall(x) => x.start_ns,
            Record::OffCpu(x) => x.start_ns,
            Record::Join(x) if x.start_ns > 0 => x.start_ns,
            Record::Mark(x) => x.start_ns,
            _ => self.header.time_ns,
        }
    }
}

/// The constants that C needs in addition to the records.
pub fn c_constants() -> Vec<(&'static str, u64)> {
    let mut all: Vec<(&'static str, u64)> = vec![
        ("VERSION", u64::from(EVENT_VERSION)),
        ("IN_OP", flags::IN_OP.into()),
        ("IN_SYSCALL", flags::IN_SYSCALL.into()),
        ("KERNEL_THREAD", flags::KERNEL_THREAD.into()),
        ("TRACKED", flags::TRACKED.into()),
        ("TRACER", flags::TRACER.into()),
        ("DIRECT", flags::DIRECT.into()),
        ("SYNC_FILE", flags::SYNC_FILE.into()),
        ("REGULAR", flags::REGULAR.into()),
        ("BETWEEN_ROWS", flags::BETWEEN_ROWS.into()),
        ("HEADER_BETWEEN_ROWS", header_flags::BETWEEN_ROWS.into()),
        ("HEADER_DIRECT", header_flags::DIRECT.into()),
        ("HEADER_POLLING", header_flags::POLLING.into()),
        ("BIO_SYNC", bio_flags::SYNC.into()),
        ("BIO_META", bio_flags::META.into()),
        ("BIO_PREFLUSH", bio_flags::PREFLUSH.into()),
        ("BIO_FUA", bio_flags::FUA.into()),
        ("BIO_READ_AHEAD", bio_flags::READ_AHEAD.into()),
        ("BIO_BACKGROUND", bio_flags::BACKGROUND.into()),
        ("BIO_FLUSH_SEQUENCE", bio_flags::FLUSH_SEQUENCE.into()),
        ("BIO_COUNTED", bio_flags::COUNTED.into()),
        ("DRIVER_ENDED", driver_what::ENDED.into()),
        ("DRIVER_TIMED_OUT", driver_what::TIMED_OUT.into()),
        ("DRIVER_REFUSED", driver_what::REFUSED.into()),
        ("SCSI_ERROR_HANDLER", scsi_code::ERROR_HANDLER.into()),
        ("MMC_DATA", mmc_is::DATA.into()),
        ("MMC_WRITES", mmc_is::WRITES.into()),
        ("MMC_TASK", mmc_is::TASK.into()),
        ("MMC_OUT_OF_RANGE", mmc_answer::OUT_OF_RANGE.into()),
        ("MMC_PART_COUNT", mmc_part::COUNT.into()),
        ("MMC_PART_COMMAND", mmc_part::COMMAND.into()),
        ("MMC_PART_DATA", mmc_part::DATA.into()),
        ("MMC_PART_STOP", mmc_part::STOP.into()),
    ];
    all.extend(Call::ALL.iter().map(|c| (c.c_name(), u64::from(*c as u16))));
    all.extend(crate::Wait::ALL.iter().map(|w| (w.c_name(), u64::from(w.number()))));
    all.extend(crate::DiskOp::ALL.iter().map(|o| (o.c_name(), *o as u64)));
    all.extend(crate::Protocol::ALL.iter().map(|p| (p.c_name(), u64::from(*p as u16))));
    all.extend(crate::BioEnd::ALL.iter().map(|e| (e.c_name(), *e as u64)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_no_padding() {
        assert_eq!(Header::SIZE % 8, 0);
        for kind in Record::KINDS {
            let mut at = 0;
            for field in kind.fields {
                let element = field.size / field.count;
                assert_eq!(at % element, 0, "{}.{} would be moved by the C compiler", kind.name, field.name);
                at += field.size;
            }
            assert_eq!(at % 8, 0, "{} would be padded by the C compiler to a multiple of 8", kind.name);
            if kind.tail {
                assert_eq!(kind.fields.last().map(|f| f.name), Some("len"), "{}: a tail needs len, last", kind.name);
            }
        }
    }

    #[test]
    fn kinds_and_names_are_unique() {
        for (i, a) in Record::KINDS.iter().enumerate() {
            for b in &Record::KINDS[i + 1..] {
                assert!(a.kind != b.kind && a.name != b.name, "{} and {}", a.name, b.name);
            }
        }
    }

    #[test]
    fn every_kind_round_trips_through_bytes_and_text() {
        for kind in Record::KINDS {
            let body: Vec<u8> =
                (0..kind.size()).map(|i| if kind.tail && i >= kind.size() - 2 { 0 } else { i as u8 + 1 }).collect();
            let record = Record::decode(kind.kind, &body).expect(kind.name);
            let header = Header { time_ns: 77, seq: 0, cpu: 1, kind: kind.kind, flags: 0, tgid: 5, tid: 6 };
            let event = Event { header, record };
            let mut bytes = Vec::new();
            event.encode(&mut bytes);
            assert_eq!(bytes.len() % 8, 0);
            assert_eq!(Event::decode(&bytes).as_ref(), Some(&event));
            assert_eq!(Event::parse(&event.to_text()).as_ref(), Ok(&event), "{}", event.to_text());
        }
    }

    #[test]
    fn short_and_unknown_bytes_are_refused() {
        let mut bytes = Vec::new();
        Event { header: Header::default(), record: RqDone::default().into() }.encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(Event::decode(&bytes[..cut]), None, "cut at {cut}");
        }
        bytes[14] = 250;
        assert_eq!(Event::decode(&bytes), None);
    }
}
