/* Generated from crates/model by `cargo xtask gen`. Do not edit. */
/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef FATHOM_EVENTS_H
#define FATHOM_EVENTS_H

#define FATHOM_VERSION 1
#define FATHOM_IN_OP 1
#define FATHOM_IN_SYSCALL 2
#define FATHOM_KERNEL_THREAD 4
#define FATHOM_TRACKED 8
#define FATHOM_TRACER 16
#define FATHOM_DIRECT 32
#define FATHOM_SYNC_FILE 64
#define FATHOM_REGULAR 128
#define FATHOM_BETWEEN_ROWS 256
#define FATHOM_HEADER_BETWEEN_ROWS 2
#define FATHOM_HEADER_DIRECT 4
#define FATHOM_HEADER_POLLING 8
#define FATHOM_BIO_SYNC 1
#define FATHOM_BIO_META 2
#define FATHOM_BIO_PREFLUSH 4
#define FATHOM_BIO_FUA 8
#define FATHOM_BIO_READ_AHEAD 16
#define FATHOM_BIO_BACKGROUND 32
#define FATHOM_BIO_FLUSH_SEQUENCE 64
#define FATHOM_BIO_COUNTED 128
#define FATHOM_DRIVER_ENDED 0
#define FATHOM_DRIVER_TIMED_OUT 1
#define FATHOM_DRIVER_REFUSED 2
#define FATHOM_SCSI_ERROR_HANDLER 65535
#define FATHOM_MMC_DATA 1
#define FATHOM_MMC_WRITES 2
#define FATHOM_MMC_TASK 4
#define FATHOM_MMC_OUT_OF_RANGE 2147483648
#define FATHOM_MMC_PART_COUNT 1
#define FATHOM_MMC_PART_COMMAND 2
#define FATHOM_MMC_PART_DATA 3
#define FATHOM_MMC_PART_STOP 4
#define FATHOM_CALL_READ 1
#define FATHOM_CALL_PREAD64 2
#define FATHOM_CALL_READV 3
#define FATHOM_CALL_PREADV 4
#define FATHOM_CALL_WRITE 5
#define FATHOM_CALL_PWRITE64 6
#define FATHOM_CALL_WRITEV 7
#define FATHOM_CALL_PWRITEV 8
#define FATHOM_CALL_LSEEK 9
#define FATHOM_CALL_FSYNC 10
#define FATHOM_CALL_FDATASYNC 11
#define FATHOM_CALL_SYNC_FILE_RANGE 12
#define FATHOM_CALL_FTRUNCATE 13
#define FATHOM_CALL_FALLOCATE 14
#define FATHOM_CALL_UNLINK 15
#define FATHOM_CALL_RENAME 16
#define FATHOM_CALL_OPEN 17
#define FATHOM_CALL_MSYNC 18
#define FATHOM_CALL_MMAP 19
#define FATHOM_CALL_IO_URING_ENTER 20
#define FATHOM_CALL_COPY_RANGE 21
#define FATHOM_CALL_SYNC 22
#define FATHOM_CALL_SENDFILE 23
#define FATHOM_CALL_SPLICE 24
#define FATHOM_CALL_PREADV2 25
#define FATHOM_CALL_PWRITEV2 26
#define FATHOM_CALL_TRUNCATE 27
#define FATHOM_CALL_LINK 28
#define FATHOM_CALL_SYMLINK 29
#define FATHOM_CALL_MKDIR 30
#define FATHOM_CALL_RMDIR 31
#define FATHOM_WAIT_FCNTL 1
#define FATHOM_WAIT_FLOCK 2
#define FATHOM_WAIT_FUTEX 3
#define FATHOM_WAIT_TIMER 4
#define FATHOM_WAIT_POLL 5
#define FATHOM_WAIT_PIPE 6
#define FATHOM_WAIT_SOCKET 7
#define FATHOM_WAIT_CHILD 8
#define FATHOM_WAIT_PAGE_FAULT 9
#define FATHOM_WAIT_RECLAIM 10
#define FATHOM_WAIT_DIRTY_THROTTLING 11
#define FATHOM_WAIT_TRANSACTION 12
#define FATHOM_WAIT_JOURNAL_SPACE 13
#define FATHOM_WAIT_COMMIT 14
#define FATHOM_WAIT_KERNEL_LOCK 15
#define FATHOM_WAIT_REQUEST_TAG 16
#define FATHOM_WAIT_WRITE_THROTTLING 17
#define FATHOM_WAIT_IO_QUOTA 18
#define FATHOM_WAIT_CPU_QUOTA 19
#define FATHOM_WAIT_WRITEBACK 20
#define FATHOM_WAIT_BUFFER 21
#define FATHOM_WAIT_F2FS_CHECKPOINT 22
#define FATHOM_WAIT_F2FS_CLEANING 23
#define FATHOM_OP_READ 0
#define FATHOM_OP_WRITE 1
#define FATHOM_OP_FLUSH 2
#define FATHOM_OP_DISCARD 3
#define FATHOM_OP_WRITE_ZEROES 4
#define FATHOM_OP_DRIVER 5
#define FATHOM_OP_OTHER 6
#define FATHOM_PROTOCOL_SCSI 1
#define FATHOM_PROTOCOL_NVME 2
#define FATHOM_PROTOCOL_MMC 3
#define FATHOM_END_UNKNOWN 0
#define FATHOM_END_EXT4 1
#define FATHOM_END_BUFFER_HEAD 2
#define FATHOM_END_DIRECT 3
#define FATHOM_END_WAIT 4
#define FATHOM_END_CLONE 5
#define FATHOM_END_PAGE_READ 6
#define FATHOM_END_CRYPT 7
#define FATHOM_END_LOG 8

#define FATHOM_KIND_STATEMENT 1
#define FATHOM_KIND_OP_BEGIN 2
#define FATHOM_KIND_OP_END 3
#define FATHOM_KIND_MARK 4
#define FATHOM_KIND_SYNC_BEGIN 5
#define FATHOM_KIND_SYSCALL 6
#define FATHOM_KIND_FILE 7
#define FATHOM_KIND_OFF_CPU 8
#define FATHOM_KIND_BIO_QUEUE 9
#define FATHOM_KIND_BIO_PAGES 10
#define FATHOM_KIND_BIO_SPLIT 11
#define FATHOM_KIND_BIO_REMAP 12
#define FATHOM_KIND_RQ_INSERT 13
#define FATHOM_KIND_RQ_ISSUE 14
#define FATHOM_KIND_RQ_BIOS 15
#define FATHOM_KIND_FLUSH_ISSUE 16
#define FATHOM_KIND_RQ_DONE 17
#define FATHOM_KIND_BIO_DONE 18
#define FATHOM_KIND_COMMIT_BEGIN 19
#define FATHOM_KIND_COMMIT_END 20
#define FATHOM_KIND_JOIN 21
#define FATHOM_KIND_FS_WRITE 22
#define FATHOM_KIND_CACHE_ADD 23
#define FATHOM_KIND_TASK 24
#define FATHOM_KIND_URING 25
#define FATHOM_KIND_LOSS 26
#define FATHOM_KIND_INNER_TASK 27
#define FATHOM_KIND_CHECKPOINT 28
#define FATHOM_KIND_DRIVER_BEGIN 29
#define FATHOM_KIND_DRIVER_END 30
#define FATHOM_KIND_WAIT 31
#define FATHOM_KIND_LOCK 32
#define FATHOM_KIND_STACK 33
#define FATHOM_KIND_CHAIN 34
#define FATHOM_KIND_OP_COUNTS 35

/* An SQL statement became known: prepared, or first seen at a step because it was prepared before the trace. */
struct fathom_statement {
	__u64 stmt; /* Address of the `sqlite3_stmt`, unique in its process until finalised. */
	__u64 start_ns; /* When its prepare call began; 0 if it was first seen at a step. */
	__s32 result; /* The prepare's result code. */
	__u16 flags; /* 1: the text was truncated. */
	__u16 len; /* Bytes of text. */
};

/* An execution of a statement (or of a function named by --op) began on this thread. */
struct fathom_op_begin {
	__u64 key; /* Address of the `sqlite3_stmt`; for a function its number in the list of --op. */
	__u32 kind; /* 0: SQL statement; 1: function named by --op. */
	__u32 depth; /* Nesting on this thread: 1 is the outermost. Statements that are open but between two steps do not count. */
};

/* An execution ended: the step returned done or an error, or the statement was reset or finalised. */
struct fathom_op_end {
	__u64 key; /* As in `op_begin`. */
	__u64 start_ns; /* When it began. */
	__u64 rows; /* Rows it returned, counted in the kernel. */
	__u64 steps; /* Calls of `sqlite3_step`. */
	__u64 inside_ns; /* Nanoseconds inside those calls; the rest is the application between rows. */
	__s32 result; /* SQLite's result code of the last step (101: done); the function's return value. */
	__u32 kind; /* As in `op_begin`. 2: a function that was left other than by returning (longjmp, an exception), no later than now. 3: an execution that continued, but was displaced by others, since more than eight were open on its thread. */
};

/* A span of the application's own, from its marks (see `model::marks`): the App layer. */
struct fathom_mark {
	__u64 start_ns; /* When it began. */
	__u64 nth; /* Its ordinal among the program's marks. */
	__u16 pad[3]; /* Keeps the layout free of gaps. */
	__u16 len; /* Bytes of name. */
};

/* A system call that waits for the disk began (fsync, fdatasync, sync_file_range): it may take long, and others need to know of the wait before its `syscall` record is written. */
struct fathom_sync_begin {
	__u64 ino; /* Inode. */
	__u32 dev; /* File system (kernel's dev_t: major << 20 | minor). */
	__u16 call; /* Which call ([`Call`]). */
	__u16 ctx; /* Bit set of [`flags`]. */
};

/* A system call ended. One record per call, written at its exit. */
struct fathom_syscall {
	__u64 start_ns; /* When it was entered; with the thread, the call's identity. */
	__u64 ino; /* Inode, 0 if none. */
	__s64 pos; /* File position in bytes; -1 if it has none. */
	__u64 bytes; /* Bytes requested. */
	__s64 result; /* Return value: bytes done, or a negative error number. */
	__u64 fs_start_ns; /* When the file system's own code was entered (0: not seen). */
	__u64 fs_end_ns; /* When that code was left: the end of the call, since the file systems' last tracepoints fire before their work is done. */
	__u32 dev; /* File system. */
	__u32 txn; /* First jbd2 transaction that a handle of this call joined (0: none). */
	__u16 handles; /* Handles that joined it. */
	__u16 cache_added; /* Pages that had to be added to the page cache. */
	__u16 call; /* Which call ([`Call`]). */
	__u16 ctx; /* Bit set of [`flags`]. */
	__s32 fd; /* File descriptor. */
	__u32 fs_writes; /* How often the file system's write-begin ran, about once per folio. */
};

/* A file became known by name: opened, mapped as code, renamed or removed. */
struct fathom_file {
	__u64 ino; /* Inode. */
	__u32 dev; /* File system. */
	__u16 what; /* 0 open, 1 mapped as code, 2 removed, 3 renamed to this, 4 open when the trace began, 5 opened by the call that created it, 6 removed, but open or under another name. */
	__u16 len; /* Bytes of path, as the process sees it. */
};

/* A thread of an operation was off the CPU; stamped when it ran again. */
struct fathom_off_cpu {
	__u64 start_ns; /* When it left the CPU. */
	__u64 wake_ns; /* When it was woken (0: it was never asleep, only preempted; or, with another state than 0, the wake-up was not seen). */
	__u32 waker; /* Thread that woke it. */
	__u16 state; /* Its state when it left: 0 runnable, 1 interruptible, 2 uninterruptible, 3 other. */
	__u16 ctx; /* Bit set of [`flags`]. */
};

/* A bio entered the block layer. */
struct fathom_bio_queue {
	__u64 bio; /* Address of the bio. */
	__u64 sector; /* First sector (512 B) on `disk`. */
	__u64 ino; /* Inode whose pages it carries; for metadata the block device's own inode. 0: none. */
	__u64 index; /* First page (4 KiB) of that inode. */
	__u64 syscall_ns; /* `start_ns` of the system call that the thread was in; 0: none that is recorded. */
	__u32 bytes; /* Bytes. */
	__u32 disk; /* Disk. */
	__u32 dev; /* File system of `ino`; for metadata the block device. */
	__u32 pages; /* Consecutive pages from `index`; the rest, if any, follows in `bio_pages`. */
	__u8 op; /* Operation ([`crate::DiskOp`]). */
	__u8 end; /* Completion handler ([`crate::BioEnd`]). */
	__u16 flags; /* Bit set of [`bio_flags`]. */
	__u16 ctx; /* Bit set of [`flags`]. */
	__u16 pad; /* Keeps the layout free of gaps. */
};

/* More pages of the bio just queued by this thread. */
struct fathom_bio_pages {
	__u64 bio; /* Address of the bio. */
	__u64 ino; /* Inode. */
	__u64 index; /* First page. */
	__u32 dev; /* File system. */
	__u32 pages; /* Consecutive pages. */
};

/* A bio was split: a new bio took the first part. */
struct fathom_bio_split {
	__u64 bio; /* The new bio, the first part. */
	__u64 parent; /* The original bio, which keeps the rest. */
	__u64 sector; /* Where the rest begins. */
	__u32 bytes; /* Bytes of the new bio. */
	__u32 disk; /* Disk. */
};

/* A bio was remapped to another disk (device mapper), or from a partition to its disk. */
struct fathom_bio_remap {
	__u64 bio; /* The remapped bio. */
	__u64 parent; /* The bio it was made from (0: itself). */
	__u64 sector; /* Sector on `disk`. */
	__u64 from_sector; /* Sector on `from_disk`. */
	__u32 disk; /* Disk it goes to. */
	__u32 from_disk; /* Disk it comes from. */
};

/* A request entered the I/O scheduler. */
struct fathom_rq_insert {
	__u64 rq; /* Address of the request. */
	__u32 disk; /* Disk. */
	__u32 pad; /* Keeps the layout free of gaps. */
};

/* A request went to the driver. */
struct fathom_rq_issue {
	__u64 rq; /* Address of the request. */
	__u64 sector; /* First sector. */
	__u64 alloc_ns; /* When the request was allocated (0 if the kernel does not record it). */
	__u32 bytes; /* Bytes. */
	__u32 disk; /* Disk. */
	__u8 op; /* Operation ([`crate::DiskOp`]). */
	__u8 listed; /* Number of entries used in `bios`. */
	__u16 flags; /* Bit set of [`bio_flags`]. */
	__u32 total; /* Number of bios that it carries; those not listed follow in `rq_bios`. */
	__u64 bios[4]; /* The first four bios it carries. */
};

/* More bios of the request just issued on this CPU. */
struct fathom_rq_bios {
	__u64 rq; /* Address of the request. */
	__u64 listed; /* Number of entries used in `bios`. */
	__u64 bios[8]; /* Bios. */
};

/* A flush went to the driver on behalf of the waiters of its queue. Follows the `rq_issue` of the same request. */
struct fathom_flush_issue {
	__u64 rq; /* Address of the flush request. */
	__u64 bios[4]; /* The waiting bios (0: a bare flush whose bio is not available). */
	__u8 steps[4]; /* Step of each waiter: 1 before its data, 4 after its data, 7 only the flush. */
	__u16 listed; /* Number of entries used in `bios`. */
	__u16 total; /* Total number of waiters. */
};

/* A request, or a part of it, completed. */
struct fathom_rq_done {
	__u64 rq; /* Address of the request. */
	__u64 sector; /* First sector of what completed. */
	__u32 bytes; /* Bytes completed. */
	__u32 disk; /* Disk. */
	__s32 error; /* 0, or a negative error number. */
	__u8 op; /* Operation ([`crate::DiskOp`]). */
	__u8 last; /* 1: the whole request has completed. */
	__u16 flags; /* Bit set of [`bio_flags`]. */
};

/* A bio without data completed (a bare flush, which may never reach the driver). */
struct fathom_bio_done {
	__u64 bio; /* Address of the bio. */
	__u32 disk; /* Disk. */
	__s32 error; /* 0, or a negative error number. */
};

/* The journal thread began to commit a transaction. */
struct fathom_commit_begin {
	__u32 dev; /* Disk of the journal. */
	__u32 txn; /* Transaction. */
};

/* The commit finished: the transaction is on the medium. */
struct fathom_commit_end {
	__u32 dev; /* Disk of the journal. */
	__u32 txn; /* Transaction. */
};

/* A thread joined a transaction outside any recorded system call, or a second one inside the call. */
struct fathom_join {
	__u64 start_ns; /* When it joined (the record may be written later, with the count). */
	__u32 dev; /* Disk of the journal. */
	__u32 txn; /* Transaction. */
	__u32 handles; /* Handles. */
	__u32 ctx; /* Bit set of [`flags`]. */
};

/* The file system began to write a range: recorded for kernel threads (a loop disk's worker) and for long calls, whose pages may be written back before the call ends. */
struct fathom_fs_write {
	__u64 ino; /* Inode. */
	__u64 pos; /* First byte. */
	__u32 bytes; /* Bytes. */
	__u32 dev; /* File system. */
	__u64 syscall_ns; /* `start_ns` of the system call that the thread was in; 0: none that is recorded. */
};

/* Pages were added to the page cache outside a recorded system call: a mapped file was touched. */
struct fathom_cache_add {
	__u64 ino; /* Inode. */
	__u64 index; /* First page. */
	__u32 dev; /* File system. */
	__u32 pages; /* Pages. */
};

/* A task was created, executed another program, or exited. */
struct fathom_task {
	__u32 parent; /* Its parent's tgid. */
	__u16 what; /* 0 forked, 1 executed another program, 2 exited, 3 existed when the trace began. */
	__u16 len; /* Bytes of name. */
};

/* An io_uring request for a file was submitted or completed. Its submission time is its identity, as the start is for a system call: other records refer to it in `syscall_ns`. */
struct fathom_uring {
	__u64 req; /* Address of the request. */
	__u64 ino; /* Inode; 0: not known yet (a registered file, at submission). */
	__s64 pos; /* File position; -1 at submission: the file's current position, which the completion has. */
	__u64 bytes; /* Bytes requested, or number of vectors; for an fsync, its flags (1: fdatasync). */
	__s64 result; /* Result at completion. In phase 2, the time of its submission. */
	__u32 dev; /* File system. */
	__u16 opcode; /* The kernel's IORING_OP number. */
	__u16 phase; /* 0 submitted; 1 completed; 2 continued by this thread. */
};

/* Records were lost on this CPU during an interval. */
struct fathom_loss {
	__u64 start_ns; /* Last time at which nothing was lost yet. */
	__u64 events; /* Number of lost records. */
	__u16 bound; /* 0: `events` is exact; 1: it is a lower bound. */
	__u16 source; /* What lost them ([`crate::LossSource`]). */
	__u16 pad; /* Keeps the layout free of gaps. */
	__u16 len; /* Bytes of the program's name. */
};

/* A task has a different ID inside its PID namespace, which its own marks use. */
struct fathom_inner_task {
	__u32 inner_tgid; /* Its process ID in the namespace. */
	__u32 inner_tid; /* Its thread ID in the namespace. */
	__u32 tgid; /* Its process ID, as in all other records; the header has the thread that created it. */
	__u32 tid; /* Its thread ID, as in all other records. */
};

/* btrfs, f2fs or XFS writes what it logged to the medium: btrfs commits a transaction, f2fs writes a checkpoint, XFS writes a checkpoint of its log. */
struct fathom_checkpoint {
	__u64 number; /* Its number: btrfs's transaction, f2fs's checkpoint version, XFS's checkpoint sequence. In phase 2, why the call needed one (f2fs's `cp_reason_type`); 0: unknown. */
	__u64 syscall_ns; /* `start_ns` of the system call that the thread was in; 0: none that is recorded. */
	__u32 dev; /* File system. */
	__u16 phase; /* 0 this thread started or requested it, 1 it is on the medium, 2 the call that this thread is ending needed one. */
	__u16 ctx; /* Bit set of [`flags`]. */
};

/* The driver sends a command of its own protocol to the device, for a request. */
struct fathom_driver_begin {
	__u64 command; /* Address of the driver's command; NVMe: of the request, MMC: of the `mmc_request`. */
	__u64 rq; /* Address of the request that it is for; for an MMC command without a request, an address that belongs to none. */
	__u8 raw[16]; /* The command as it is sent. MMC: argument, first sector of the data, blocks, [`mmc_is`]. SCSI: the first 16 bytes of the command block. NVMe: dwords 10 to 13. */
	__u32 bytes; /* Bytes of data that it transfers. */
	__u32 disk; /* Disk; 0: none, or unknown (MMC). */
	__u16 protocol; /* The protocol ([`crate::Protocol`]). */
	__u16 code; /* SCSI: length of the command block. NVMe: opcode ([`nvme_code`]). MMC: the command's index, or its task's tag. */
	__u16 queue; /* NVMe: the queue; 0: the admin queue. */
	__u16 pad; /* Keeps the layout free of gaps. */
};

/* A driver's command ended, timed out or was refused. */
struct fathom_driver_end {
	__u64 command; /* Address of the driver's command. */
	__u32 result; /* SCSI: host byte << 16 | device status. NVMe: status. MMC: the host's error (-errno). */
	__u16 what; /* What happened ([`driver_what`]): 0 it ended, 1 it timed out, 2 the driver could not accept it. */
	__u16 protocol; /* The protocol ([`crate::Protocol`]). */
	__u8 sense[4]; /* SCSI: sense key, additional sense code and its qualifier; zeroes if there are none. MMC: the part that failed ([`mmc_part`]). */
	__u32 answer; /* MMC: the card's response to the command (R1: its status), combined with its response to CMD12 after it; 0: unknown. */
};

/* What the thread waited for during the `off_cpu` just before this record. */
struct fathom_wait {
	__u64 start_ns; /* When the thread left the CPU. */
	__u64 throttled_ns; /* Upper bound of the time during which its cgroup had no CPU quota left. */
	__u32 waker; /* Thread that woke it; 0: unknown. */
	__u32 waker_tgid; /* Process of `waker`. */
	__u16 what; /* What it slept for ([`crate::Wait`]); 0: not known. */
	__u16 ctx; /* Bit set of [`flags`]. */
	__u32 pad; /* Keeps the layout free of gaps. */
};

/* A thread of an operation requested a file lock that another process or thread holds. */
struct fathom_lock {
	__u64 ino; /* Inode. */
	__u64 pos; /* First byte to be locked. */
	__u32 dev; /* File system. */
	__u32 holder; /* The process that holds it (for an OFD lock, the one that took it); 0: not known. */
	__u16 kind; /* 1 fcntl, 2 fcntl on an open file (OFD), 3 flock. */
	__u16 phase; /* 0 refused, 1 the thread waits for it. */
	__u16 ctx; /* Bit set of [`flags`]. */
	__u16 pad; /* Keeps the layout free of gaps. */
};

/* The stack of a thread that was off the CPU for long, in the kernel and in its program. The recorder derives it from the thread's memory, of which nothing else is kept; stamped when the thread ran again. */
struct fathom_stack {
	__u64 start_ns; /* When the thread left the CPU, as in its `off_cpu`. */
	__u32 kernel; /* The kernel's functions (`chain`); 0: none. */
	__u32 program; /* The program's functions. */
	__u16 ctx; /* Bit set of [`flags`]. */
	__u16 pad[3]; /* Keeps the layout free of gaps. */
};

/* A call chain that `stack` records refer to, written once, before the first of them. One line per function, the innermost first: name and offset in it, file, offset in the file, build ID, separated by tabs. */
struct fathom_chain {
	__u32 chain; /* Its number. */
	__u16 ended; /* Why it ends where it does ([`chain_end`]). */
	__u16 len; /* Bytes of text. */
};

/* What SQLite itself counted during an execution, just before its `op_end`. Only from probes inside the process, where SQLite's functions that return its counters were found. */
struct fathom_op_counts {
	__u64 key; /* As in `op_begin`. */
	__u64 start_ns; /* When the execution began. */
	__u32 known; /* Bit set of the fields below that are known, the first of them 1. */
	__u32 fullscan_steps; /* SQLITE_STMTSTATUS_FULLSCAN_STEP: steps forward in a table or index as part of a full scan. */
	__u32 sorts; /* SQLITE_STMTSTATUS_SORT. */
	__u32 autoindex_rows; /* SQLITE_STMTSTATUS_AUTOINDEX: rows inserted into automatic indices. */
	__u32 vm_steps; /* SQLITE_STMTSTATUS_VM_STEP. */
	__u32 reprepares; /* SQLITE_STMTSTATUS_REPREPARE. */
	__u32 runs; /* SQLITE_STMTSTATUS_RUN: the statement's program and those of its triggers and foreign-key actions. */
	__u32 cache_hits; /* SQLITE_DBSTATUS_CACHE_HIT, of the connection while the execution was open. */
	__u32 cache_misses; /* SQLITE_DBSTATUS_CACHE_MISS. */
	__u32 cache_writes; /* SQLITE_DBSTATUS_CACHE_WRITE. */
	__u32 cache_spills; /* SQLITE_DBSTATUS_CACHE_SPILL. */
	__u32 pad; /* Keeps the layout free of gaps. */
};

#endif
