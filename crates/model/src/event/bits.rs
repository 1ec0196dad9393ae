//! Bit sets and kinds in records and their headers, the same on every kernel.

/// Bits of `ctx`: the context of the thread.
pub mod flags {
    /// Inside an operation.
    pub const IN_OP: u16 = 1;
    /// Inside a recorded system call.
    pub const IN_SYSCALL: u16 = 2;
    /// A kernel thread.
    pub const KERNEL_THREAD: u16 = 4;
    /// Belongs to what was requested to be recorded.
    pub const TRACKED: u16 = 8;
    /// Belongs to Fathom itself.
    pub const TRACER: u16 = 16;
    /// O_DIRECT file.
    pub const DIRECT: u16 = 32;
    /// O_SYNC or O_DSYNC file, or a write with RWF_SYNC or RWF_DSYNC.
    pub const SYNC_FILE: u16 = 64;
    /// Regular file.
    pub const REGULAR: u16 = 128;
    /// A statement is open on the thread, but none of its steps runs: the application is between its rows.
    pub const BETWEEN_ROWS: u16 = 256;
}

/// Bits of a header's `flags`. They do not repeat what a record's own `ctx` contains; for records without one they contain
/// everything.
pub mod header_flags {
    /// The thread is a kernel thread.
    pub const KERNEL_THREAD: u8 = 1;
    /// In `statement`, `fs_write`, `cache_add` and `uring`: a statement is open, but none of its steps was running.
    pub const BETWEEN_ROWS: u8 = 2;
    /// In `uring`: the file is opened with O_DIRECT.
    pub const DIRECT: u8 = 4;
    /// In `uring`: submitted by the kernel thread that polls the ring (SQPOLL), which serves the whole process.
    pub const POLLING: u8 = 8;
}

/// Bits of `flags` of bios and requests, the same on every kernel.
pub mod bio_flags {
    /// A task waits for it.
    pub const SYNC: u16 = 1;
    /// Metadata.
    pub const META: u16 = 2;
    /// Flush the disk's cache first.
    pub const PREFLUSH: u16 = 4;
    /// Written to the medium before it completes.
    pub const FUA: u16 = 8;
    /// Read ahead.
    pub const READ_AHEAD: u16 = 16;
    /// Background.
    pub const BACKGROUND: u16 = 32;
    /// The request is the flush machinery's own (RQF_FLUSH_SEQ).
    pub const FLUSH_SEQUENCE: u16 = 64;
    /// The request counts in the disk's statistics (RQF_IO_STAT).
    pub const COUNTED: u16 = 128;
    /// How long it took is not known: by the trace's own clock it ended before it was issued.
    pub const UNTIMED: u16 = 256;
}

/// `what` of a `file` record: how the file became known.
pub mod file_what {
    /// Opened.
    pub const OPENED: u16 = 0;
    /// Mapped as code.
    pub const CODE: u16 = 1;
    /// Removed.
    pub const REMOVED: u16 = 2;
    /// Renamed to this.
    pub const RENAMED: u16 = 3;
    /// Open when the trace began.
    pub const OPEN_BEFORE: u16 = 4;
    /// Opened by the call that created it. If that is unknown, [`OPENED`].
    pub const CREATED: u16 = 5;
    /// Its name was removed, but it has another one or is in use, so its pages can still be written.
    pub const UNLINKED: u16 = 6;
}

/// `what` of a `task` record: what happened to the thread.
pub mod task_what {
    /// Forked.
    pub const FORKED: u16 = 0;
    /// Executed another program.
    pub const EXECUTED: u16 = 1;
    /// Ended.
    pub const ENDED: u16 = 2;
    /// Existed when the trace began.
    pub const EXISTED_BEFORE: u16 = 3;
}

/// `phase` of a `uring` record: what happened to the request.
pub mod uring_phase {
    /// Submitted.
    pub const SUBMITTED: u16 = 0;
    /// Completed.
    pub const COMPLETED: u16 = 1;
    /// Carried on by this thread.
    pub const CARRIED_ON: u16 = 2;
}

/// `kind` of an `op_begin` record: what the operation is.
pub mod op_kind {
    /// An SQL statement.
    pub const STATEMENT: u32 = 0;
    /// A function named by `--op`.
    pub const FUNCTION: u32 = 1;
}

/// `what` of a `driver_end` record: what happened to the driver's command.
pub mod driver_what {
    /// It ended.
    pub const ENDED: u16 = 0;
    /// It took longer than the kernel waits; its end may follow.
    pub const TIMED_OUT: u16 = 1;
    /// The driver could not accept it, and it will be retried.
    pub const REFUSED: u16 = 2;
}

/// `code` of a `driver_begin` record of SCSI that is not the length of a command block.
pub mod scsi_code {
    /// No command: the kernel woke the error handler of a host (the number in the first four bytes of `raw`), which resets devices, and
    /// whose own commands have no events. It has no end.
    pub const ERROR_HANDLER: u16 = 0xffff;
}

/// `code` of a `driver_begin` record of NVMe that is not an operation code, which has eight bits.
pub mod nvme_code {
    /// A text does not say which command it was.
    pub const UNKNOWN: u16 = 0x100;
}

/// The last element of `raw` in a `driver_begin` record of MMC: the kind of command.
pub mod mmc_is {
    /// It moves data.
    pub const DATA: u32 = 1;
    /// The data goes to the card.
    pub const WRITES: u32 = 2;
    /// A task of a command queue engine, which creates the commands itself.
    pub const TASK: u32 = 4;
}

/// Bits of a card's response (R1: its status), in a `driver_end` record of MMC.
pub mod mmc_answer {
    /// The requested range lies beyond the card's end. The card also reports this after a read up to its last block, in response to
    /// CMD12: used only from the command's own response (mmc_blk_eval_resp_error, drivers/mmc/core/block.c).
    pub const OUT_OF_RANGE: u32 = 1 << 31;
}

/// The first part that failed, in a `driver_end` record of MMC.
pub mod mmc_part {
    /// CMD23 before the command.
    pub const COUNT: u32 = 1;
    /// The command.
    pub const COMMAND: u32 = 2;
    /// Its data.
    pub const DATA: u32 = 3;
    /// CMD12 after it.
    pub const STOP: u32 = 4;
}

/// `ended` of a `chain` record: why no further function is known.
pub mod chain_end {
    /// It is the outermost.
    pub const WHOLE: u16 = 0;
    /// Longer chains are cut.
    pub const TOO_LONG: u16 = 1;
    /// The rest of the stack lies beyond the part that was read.
    pub const BEYOND_COPY: u16 = 2;
    /// The caller of the last one cannot be determined.
    pub const NO_CALLER: u16 = 3;
    /// The process ended before the location of its code was read.
    pub const PROCESS_ENDED: u16 = 4;
    /// The thread touched memory that was not present: its stack is not taken then.
    pub const PAGE_FAULT: u16 = 5;
    /// A 32-bit program's stack is not read.
    pub const NOT_64_BIT: u16 = 6;
    /// The thread did not return from its system call, or there was no room for its stack.
    pub const NOT_TAKEN: u16 = 7;

    /// Describes the reason; `None`: nothing is missing.
    pub fn text(ended: u16) -> Option<&'static str> {
        Some(match ended {
            WHOLE => return None,
            TOO_LONG => "longer chains are cut",
            BEYOND_COPY => "the stack goes on beyond what was copied",
            NO_CALLER => "nothing tells who called it: no unwind information, no frame pointer",
            PROCESS_ENDED => "the process ended before it was known where its code lies",
            PAGE_FAULT => "a page fault: only the function is known",
            NOT_64_BIT => "a 32-bit program",
            NOT_TAKEN => "the stack was not taken: the thread did not leave its system call",
            _ => "unknown",
        })
    }
}
