//! A recording without BPF: the kernel's own trace buffers (tracefs), in separate instances.
//!
//! Two instances, since the kernel filters an instance by process and a disk's commands must be recorded for all processes:
//! one for calls, sleeps and statements of the requested processes (`set_event_pid`, and their descendants by
//! `event-fork`), one for disks, file systems and tasks. The global buffers are left alone, since others may use them. The
//! data from the buffers is stored unchanged, page by page, and only parsed when the recording has ended
//! (`formats::ftrace`).
//!
//! | file | purpose |
//! |---|---|
//! | this one | a recording, from start to finish |
//! | `instance` | one instance: creation, reading, removal |
//! | `spool` | the data from one CPU's buffer |
//! | `functions` | uprobes on SQLite and on the C library's `open` |
//! | `before` | tasks and files that existed before |
//!
//! *Uncertainty*: a recorder that is killed leaves its instances and its probes; the next one removes those whose process
//! has ended. Within a PID namespace nothing is recorded: the kernel filters and records the numbers of the machine's initial one.

mod before;
mod functions;
mod instance;
mod spool;

use crate::kernel::clock::{boot_ns, process_cpu_ns};
use crate::namespace;
use crate::sqlite::find::FoundSqlite;
use bpf::tracefs;
use formats::ftrace::format::Format;
use formats::ftrace::page::Layout;
use formats::ftrace::translate::TraceContext;
use formats::tracedat::Stats;
use instance::Instance;
use model::text::ShownPath as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Events of disks, file systems and tasks, for all processes, each with a filter that drops what is not needed: buffers that a
/// commit leaves to be written home, and extents that have a place (written or not). Events that this kernel does not have are
/// skipped.
const GLOBAL_EVENTS: &[(&str, &str)] = &[
    ("block/block_bio_queue", ""),
    ("block/block_bio_remap", ""),
    ("block/block_split", ""),
    ("block/block_bio_complete", ""),
    ("block/block_getrq", ""),
    ("block/block_rq_insert", ""),
    ("block/block_rq_issue", ""),
    ("block/block_rq_complete", ""),
    ("block/block_dirty_buffer", "comm ~ \"jbd2*\""),
    ("jbd2/jbd2_start_commit", ""),
    ("jbd2/jbd2_end_commit", ""),
    ("jbd2/jbd2_handle_start", ""),
    ("ext4/ext4_da_write_begin", ""),
    ("ext4/ext4_write_begin", ""),
    ("ext4/ext4_writepages", ""),
    ("ext4/ext4_writepages_result", ""),
    ("ext4/ext4_es_lookup_extent_exit", "found == 1 && status & 3"),
    ("ext4/ext4_es_insert_extent", "status & 3"),
    ("f2fs/f2fs_write_begin", ""),
    ("scsi/scsi_dispatch_cmd_start", ""),
    ("scsi/scsi_dispatch_cmd_done", ""),
    ("scsi/scsi_dispatch_cmd_timeout", ""),
    ("scsi/scsi_dispatch_cmd_error", ""),
    ("scsi/scsi_eh_wakeup", ""),
    ("mmc/mmc_request_start", ""),
    ("mmc/mmc_request_done", ""),
    ("nvme/nvme_setup_cmd", ""),
    ("nvme/nvme_complete_rq", ""),
    ("ufs/ufshcd_command", ""),
    ("task/task_newtask", ""),
    ("sched/sched_process_exec", ""),
];

/// Events of the requested processes.
const CALLER_EVENTS: &[(&str, &str)] = &[
    ("raw_syscalls/sys_enter", ""),
    ("raw_syscalls/sys_exit", ""),
    ("sched/sched_switch", ""),
    ("sched/sched_waking", ""),
    ("sched/sched_process_exit", ""),
    ("ext4/ext4_sync_file_enter", ""),
    ("ext4/ext4_unlink_enter", ""),
    ("f2fs/f2fs_sync_file_enter", ""),
    ("filemap/mm_filemap_get_pages", ""),
    ("filemap/mm_filemap_add_to_page_cache", ""),
];

/// The tasks that the calls instance records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Callers {
    All,
    /// These processes, and their descendants; more may be added.
    Processes(Vec<u32>),
}

/// Why there is no such recording.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "tracefs is not mounted at /sys/kernel/tracing, and cannot be mounted here: as root, `mount -t tracefs none /sys/kernel/tracing`"
    )]
    NoTracefs,
    /// This user has no permission to access it.
    #[error("tracefs does not permit this user to trace: run as root (sudo)")]
    NotPermitted,
    /// The numbers of processes here are not those that tracefs filters by.
    #[error(
        "the ftrace backend does not record within a PID namespace (a container): tracefs knows processes by the machine's own numbers only; \
         run it outside"
    )]
    PidNamespace,
    /// It refused an operation.
    #[error("ftrace: {doing}: {source}")]
    Io { doing: String, source: io::Error },
    /// The kernel has none of the events that a recording needs.
    #[error("ftrace: this kernel has no event {0}")]
    NoEvent(&'static str),
}

type Result<T> = std::result::Result<T, Error>;

fn with_context<T>(result: io::Result<T>, what: impl FnOnce() -> String) -> Result<T> {
    result.map_err(|source| Error::Io { doing: what(), source })
}

/// Returns the path of a writable tracefs: where it is mounted, else in a private mount of this process.
///
/// # Errors
/// It does not exist, or this user may not create an instance in it.
pub fn writable_tracefs() -> Result<PathBuf> {
    if namespace::is_within() {
        return Err(Error::PidNamespace);
    }
    let denied = |p: &&str| {
        fs::metadata(Path::new(p).join("instances")).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
    };
    let forbidden = tracefs::MOUNT_POINTS.iter().any(denied);
    let Some(root) = tracefs::mount_point().or_else(tracefs::mount_privately) else {
        return Err(if forbidden { Error::NotPermitted } else { Error::NoTracefs });
    };
    if !root.join("events/block/block_rq_issue").is_dir() {
        return Err(Error::NoEvent("block:block_rq_issue"));
    }
    let trial = root.join(format!("instances/fathom-{}-trial", std::process::id()));
    with_context(fs::create_dir(&trial), || format!("making an instance, {}", trial.shown()))?;
    with_context(fs::remove_dir(&trial), || format!("removing {}", trial.shown()))?;
    Ok(root)
}

#[derive(Debug)]
pub struct Session {
    root: PathBuf,
    calls: Instance,
    disks: Instance,
    functions: functions::FunctionProbes,
    context: TraceContext,
    started_ns: u64,
    cpu_before_ns: u64,
}

/// What one instance recorded.
#[derive(Debug)]
pub struct RawBuffers {
    pub layout: Layout,
    /// Pages of each CPU.
    pub cpus: Vec<(u16, Vec<u8>)>,
    /// What the kernel counted.
    pub stats: Vec<Stats>,
}

#[derive(Debug)]
pub struct Recording {
    pub formats: Vec<Format>,
    /// The raw data of calls, and of disks.
    pub raw: Vec<RawBuffers>,
    /// What was known of tasks and files.
    pub context: TraceContext,
    /// Probes on functions, and why some are missing.
    pub functions: Vec<functions::ProbeOutcome>,
    /// Begin and end, CLOCK_BOOTTIME.
    pub window_ns: (u64, u64),
    /// CPU time of this process meanwhile, in ns.
    pub cpu_ns: u64,
    /// Why it ended early: its files had no room.
    pub full: Option<String>,
}

impl Session {
    /// Creates the instances and enables the events. `spool`: an empty directory for the data from the buffers.
    pub fn start(callers: &Callers, sqlite: &[FoundSqlite], spool: &Path) -> Result<Self> {
        let root = writable_tracefs()?;
        instance::remove_stale(&root);
        let me = std::process::id();
        let calls = Instance::create(&root, &format!("fathom-{me}-calls"), spool)?;
        let disks = Instance::create(&root, &format!("fathom-{me}-disks"), spool)?;
        let functions = functions::FunctionProbes::define(&root, sqlite);
        if *callers != Callers::All {
            calls.set_option("event-fork", true)?;
            // An empty list would record everyone, so this process is its placeholder. It stays in the list, since
            // rewriting the list empties it first; its own events are dropped when the events are read.
            calls.record_only(me)?;
        }
        disks.enable(GLOBAL_EVENTS)?;
        calls.enable(CALLER_EVENTS)?;
        calls.enable_group(functions.group());
        let context = before::read_context(me);
        let (started_ns, cpu_before_ns) = (boot_ns(), process_cpu_ns());
        let mut session = Self { root, calls, disks, functions, context, started_ns, cpu_before_ns };
        if let Callers::Processes(pids) = callers {
            pids.iter().try_for_each(|pid| session.track(*pid))?;
        }
        Ok(session)
    }

    /// Records another process, and its descendants.
    pub fn track(&mut self, pid: u32) -> Result<()> {
        self.calls.add_process(pid)?;
        self.context.open.extend(before::open_files(pid));
        Ok(())
    }

    /// Returns the processes that are recorded now, except this one.
    pub fn tracked(&self) -> Vec<u32> {
        let me = std::process::id();
        self.calls.processes().into_iter().filter(|pid| *pid != me).collect()
    }

    /// Reads what is in the buffers; returns the number of bytes.
    ///
    /// # Errors
    /// The buffers cannot be read, or the files cannot be written.
    pub fn drain(&mut self) -> Result<u64> {
        Ok(self.calls.drain()? + self.disks.drain()?)
    }

    /// Returns why it accepts no more: its files have no room.
    pub fn full_reason(&self) -> Option<&str> {
        self.calls.full_reason().or(self.disks.full_reason())
    }

    /// Returns the files that the recording writes, which are charged to it alone.
    pub fn own_files(&self) -> Vec<PathBuf> {
        self.calls.files().chain(self.disks.files()).map(Path::to_path_buf).collect()
    }

    /// Disables the events, reads what is left, and removes everything it created.
    pub fn finish(self) -> Result<Recording> {
        let window_ns = (self.started_ns, boot_ns());
        self.calls.stop();
        self.disks.stop();
        let full = self.full_reason().map(str::to_owned);
        let formats = read_formats(&self.root, self.functions.group());
        let raw = vec![self.calls.finish()?, self.disks.finish()?];
        let functions = self.functions.remove();
        let cpu_ns = process_cpu_ns().saturating_sub(self.cpu_before_ns);
        Ok(Recording { formats, raw, context: self.context, functions, window_ns, cpu_ns, full })
    }
}

/// Returns the formats of all events that may be in the buffers.
fn read_formats(root: &Path, group: &str) -> Vec<Format> {
    let own = fs::read_dir(root.join("events").join(group)).into_iter().flatten().flatten();
    let own = own.filter_map(|e| Some(format!("{group}/{}", e.file_name().to_str()?)));
    let known = GLOBAL_EVENTS.iter().chain(CALLER_EVENTS).map(|(name, _)| (*name).to_owned());
    known
        .chain(own)
        .filter_map(|name| {
            let text = fs::read_to_string(root.join("events").join(&name).join("format")).ok()?;
            Format::parse(name.split('/').next()?, &text)
        })
        .collect()
}
