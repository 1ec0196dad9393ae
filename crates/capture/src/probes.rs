//! The kernel probes, and how each is attached. Any may be missing on a given kernel: what it would have recorded is then
//! reported as blind, and all others continue.
//!
//! Two ways: by type (`tp_btf`), if the tracepoint belongs to the kernel proper: the verifier knows the arguments, and
//! fields are plain loads. By name (`raw_tp`), if it may belong to a module: every field is a guarded read.

use crate::error::chain;
use crate::kernel::places;
use crate::refusal::AttachError;
use aya::maps::{Array, MapError, ProgramArray};
use aya::programs::{BtfTracePoint, Program, ProgramError, RawTracePoint};
use aya::{Btf, Ebpf};
use model::table::Coverage;
use model::{Absence, Layer};

enum AttachMethod {
    /// By type: `tp_btf`.
    Type,
    /// By name: `raw_tp`.
    Name,
    /// Not attached, but called by another program through this table; typed by the tracepoint.
    Call(&'static str),
}
use AttachMethod::{Call, Name, Type};

/// One probe: the program, how and to which tracepoint it is attached, and the layer it observes.
struct Probe {
    program: &'static str,
    by: AttachMethod,
    tracepoint: &'static str,
    layer: Layer,
    /// Another program that does the same on another kernel; this one is tried if that one could not be attached.
    instead_of: Option<&'static str>,
}

const fn probe(program: &'static str, by: AttachMethod, tracepoint: &'static str, layer: Layer) -> Probe {
    Probe { program, by, tracepoint, layer, instead_of: None }
}

const fn instead(
    first: &'static str,
    program: &'static str,
    by: AttachMethod,
    tracepoint: &'static str,
    layer: Layer,
) -> Probe {
    Probe { program, by, tracepoint, layer, instead_of: Some(first) }
}

/// In the order of attaching: ends before begins, so that no begin is seen whose end could not be.
const PROBES: &[Probe] = &[
    probe("task_exit", Type, "sched_process_exit", Layer::App),
    probe("task_fork", Type, "task_newtask", Layer::App),
    probe("task_exec", Type, "sched_process_exec", Layer::App),
    probe("rq_done", Type, "block_rq_complete", Layer::Driver),
    probe("bio_done", Type, "block_bio_complete", Layer::Block),
    probe("scsi_done", Name, "scsi_dispatch_cmd_done", Layer::Driver),
    probe("scsi_timeout", Name, "scsi_dispatch_cmd_timeout", Layer::Driver),
    probe("scsi_refused", Name, "scsi_dispatch_cmd_error", Layer::Driver),
    probe("scsi_handler", Name, "scsi_eh_wakeup", Layer::Driver),
    probe("scsi_begin", Name, "scsi_dispatch_cmd_start", Layer::Driver),
    probe("mmc_end", Name, "mmc_request_done", Layer::Driver),
    probe("mmc_begin", Name, "mmc_request_start", Layer::Driver),
    probe("nvme_end", Name, "nvme_complete_rq", Layer::Driver),
    probe("nvme_begin", Name, "nvme_setup_cmd", Layer::Driver),
    probe("rq_issue", Type, "block_rq_issue", Layer::Driver),
    probe("flush_issue", Call("flush_program"), "block_rq_issue", Layer::Driver),
    probe("rq_insert", Type, "block_rq_insert", Layer::IoScheduler),
    probe("bio_split", Type, "block_split", Layer::Block),
    probe("bio_remap", Type, "block_bio_remap", Layer::Block),
    probe("bio_queue", Type, "block_bio_queue", Layer::Block),
    probe("jbd2_end_commit", Name, "jbd2_end_commit", Layer::FileSystem),
    probe("jbd2_start_commit", Name, "jbd2_start_commit", Layer::FileSystem),
    probe("jbd2_handle_start", Name, "jbd2_handle_start", Layer::FileSystem),
    probe("ext4_sync_enter", Name, "ext4_sync_file_enter", Layer::FileSystem),
    probe("ext4_da_write_begin", Name, "ext4_da_write_begin", Layer::FileSystem),
    probe("ext4_write_begin", Name, "ext4_write_begin", Layer::FileSystem),
    probe("ext4_unlink", Name, "ext4_unlink_enter", Layer::FileSystem),
    probe("page_dirtied", Type, "writeback_dirty_folio", Layer::FileSystem),
    probe("page_cache_add", Type, "mm_filemap_add_to_page_cache", Layer::FileSystem),
    // First: a sleep that was seen to begin then never lacks its wake-up because the probe came late.
    probe("sched_waking", Type, "sched_waking", Layer::RunQueue),
    probe("sched_switch", Type, "sched_switch", Layer::RunQueue),
    probe("posix_lock", Type, "posix_lock_inode", Layer::Syscall),
    probe("flock_lock", Type, "flock_lock_inode", Layer::Syscall),
    probe("uring_complete", Type, "io_uring_complete", Layer::Syscall),
    instead("uring_complete", "uring_complete_old", Type, "io_uring_complete", Layer::Syscall),
    probe("uring_submit", Name, "io_uring_submit_req", Layer::Syscall),
    instead("uring_submit", "uring_submit_old", Name, "io_uring_submit_sqe", Layer::Syscall),
    probe("sys_exit", Type, "sys_exit", Layer::Syscall),
    probe("sys_enter", Type, "sys_enter", Layer::Syscall),
];

/// Probes of one file system, which are attached when one of that kind is mounted: unloaded programs cost nothing, and
/// their module may not even exist before.
struct FileSystem {
    /// Name in `/sys/fs` and of the module.
    name: &'static str,
    /// An entry in the directory of each mounted one, and in no other directory of `/sys/fs/NAME`.
    entry: &'static str,
    probes: &'static [Probe],
}

const FILE_SYSTEMS: &[FileSystem] = &[
    FileSystem {
        name: "xfs",
        entry: "log",
        probes: &[
            probe("xfs_logged", Name, "xlog_iclog_callback", Layer::FileSystem),
            probe("xfs_force", Name, "xfs_log_force", Layer::FileSystem),
            probe("xfs_sync_enter", Name, "xfs_file_fsync", Layer::FileSystem),
            probe("xfs_write", Name, "xfs_file_buffered_write", Layer::FileSystem),
        ],
    },
    FileSystem {
        name: "btrfs",
        entry: "devices",
        probes: &[
            probe("btrfs_committed", Name, "btrfs_transaction_commit", Layer::FileSystem),
            probe("btrfs_sync_enter", Name, "btrfs_sync_file", Layer::FileSystem),
        ],
    },
    FileSystem {
        name: "f2fs",
        entry: "dirty_segments",
        probes: &[
            probe("f2fs_sync_exit", Name, "f2fs_sync_file_exit", Layer::FileSystem),
            probe("f2fs_checkpoint", Name, "f2fs_write_checkpoint", Layer::FileSystem),
            probe("f2fs_sync_enter", Name, "f2fs_sync_file_enter", Layer::FileSystem),
            probe("f2fs_write_begin", Name, "f2fs_write_begin", Layer::FileSystem),
        ],
    },
];

/// The probes of file systems that have not been mounted so far.
#[derive(Debug, Clone)]
pub struct UnmountedFileSystems(Vec<usize>);

impl UnmountedFileSystems {
    /// Creates it with all of them.
    pub fn new() -> Self {
        Self((0..FILE_SYSTEMS.len()).collect())
    }

    /// Attaches the probes of the file systems that were mounted meanwhile, anywhere: `/sys/fs` is independent of
    /// namespaces.
    pub fn attach_mounted(&mut self, ebpf: &mut Ebpf, types: &Btf) -> Vec<Coverage> {
        let (found, rest) = self.0.iter().partition(|i| is_mounted(&FILE_SYSTEMS[**i]));
        self.0 = rest;
        let found: Vec<usize> = found;
        found.into_iter().flat_map(|i| attach_file_system(ebpf, &FILE_SYSTEMS[i], types)).collect()
    }

    /// Returns the rows for those never mounted.
    pub fn rows(&self) -> Vec<Coverage> {
        let probes = self.0.iter().map(|i| &FILE_SYSTEMS[*i]).flat_map(|f| f.probes.iter().map(move |p| (f.name, p)));
        probes
            .map(|(name, p)| {
                let why = format!("no {name} was mounted");
                coverage_row(p.layer, p.program, Err(AttachError { why, absence: Absence::NotMounted }))
            })
            .collect()
    }
}

fn is_mounted(file_system: &FileSystem) -> bool {
    let directories = std::fs::read_dir(format!("/sys/fs/{}", file_system.name)).into_iter().flatten().flatten();
    directories.into_iter().any(|f| f.path().join(file_system.entry).exists())
}

fn attach_file_system(ebpf: &mut Ebpf, file_system: &FileSystem, types: &Btf) -> Vec<Coverage> {
    // Without the offsets, the probes that read them have nothing to record.
    let known = places::field_offsets(file_system.name).and_then(|known| {
        let map = ebpf.map_mut("places").ok_or("not in this build")?;
        let mut table: Array<_, u32> = map.try_into().map_err(|e: MapError| chain(&e))?;
        known.into_iter().try_for_each(|(place, offset)| table.set(place, offset, 0).map_err(|e| chain(&e)))
    });
    let outcome = |ebpf: &mut Ebpf, probe: &Probe| match &known {
        Err(why) if PROGRAMS_WITH_OFFSETS.contains(&probe.program) => Err(why.clone().into()),
        _ => attach_probe(ebpf, probe, types),
    };
    file_system.probes.iter().map(|p| coverage_row(p.layer, p.program, outcome(ebpf, p))).collect()
}

/// Programs that need the offsets of their file system's fields.
const PROGRAMS_WITH_OFFSETS: [&str; 4] = ["xfs_logged", "xfs_force", "btrfs_committed", "f2fs_checkpoint"];

/// Returns the names of the probes in every recording, by which they can be left out.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROBES.iter().filter(|probe| probe.instead_of.is_none()).map(|probe| probe.program)
}

/// Loads and attaches all kernel probes, except those `without`; the outcome of each is in the rows. The second value: whether the
/// kernel forbids the caller such programs, as far as the first one shows.
pub fn attach_all(ebpf: &mut Ebpf, types: &Btf, without: &[String]) -> (Vec<Coverage>, bool) {
    let mut rows: Vec<Coverage> = Vec::new();
    let mut forbidden = false;
    for probe in PROBES {
        if probe.instead_of.is_some_and(|first| rows.iter().any(|r| r.probe == first && r.attached)) {
            continue;
        }
        let left_out = without.iter().any(|name| name == probe.instead_of.unwrap_or(probe.program));
        let outcome = if left_out { Err("left out (--without)".into()) } else { attach_probe(ebpf, probe, types) };
        let row = coverage_row(probe.layer, probe.program, outcome);
        forbidden |= rows.is_empty() && row.absence == Some(Absence::NotPermitted);
        if let Some(first) = probe.instead_of {
            // One row for the two; the first one's reason is kept unless the second is attached.
            if row.attached {
                rows.retain(|r| r.probe != first);
                rows.push(row);
            }
            continue;
        }
        rows.push(row);
    }
    (rows, forbidden)
}

/// A row of the coverage: how the probe is attached, or why it is not.
pub fn coverage_row(layer: Layer, probe: &str, outcome: Result<String, AttachError>) -> Coverage {
    match outcome {
        Ok(how) => Coverage::attached(layer, probe, how),
        Err(AttachError { why, absence }) => Coverage::absent(layer, probe, absence, why),
    }
}

fn attach_probe(ebpf: &mut Ebpf, probe: &Probe, types: &Btf) -> Result<String, AttachError> {
    let program = ebpf.program_mut(probe.program).ok_or("not in this build")?;
    let name = probe.tracepoint;
    match probe.by {
        Type => {
            let program: &mut BtfTracePoint = program.try_into().map_err(|e| attach_error(name, &e))?;
            program.load(name, types).map_err(|e| attach_error(name, &e))?;
            program.attach().map_err(|e| attach_error(name, &e))?;
            Ok(format!("tp_btf {name}"))
        }
        Call(table) => {
            let program: &mut BtfTracePoint = program.try_into().map_err(|e| attach_error(name, &e))?;
            program.load(name, types).map_err(|e| attach_error(name, &e))?;
            let fd = program
                .fd()
                .and_then(|fd| fd.try_clone().map_err(ProgramError::IOError))
                .map_err(|e| AttachError::from_error(&e))?;
            let map = ebpf.map_mut(table).ok_or("not in this build")?;
            let mut table = ProgramArray::try_from(map).map_err(|e| AttachError::from_error(&e))?;
            table.set(0, &fd, 0).map_err(|e| AttachError::from_error(&e))?;
            Ok(format!("called at tp_btf {name}"))
        }
        Name => {
            let program: &mut RawTracePoint = program.try_into().map_err(|e| attach_error(name, &e))?;
            program.load().map_err(|e| attach_error(name, &e))?;
            program.attach(name).map_err(|e| attach_error(name, &e))?;
            Ok(format!("raw_tp {name}"))
        }
    }
}

/// Returns why a program is not attached to a tracepoint.
pub fn attach_error(tracepoint: &str, error: &ProgramError) -> AttachError {
    let none = |rest: &str| AttachError {
        why: format!("this kernel has no tracepoint {tracepoint}{rest}"),
        absence: Absence::NoTracepoint,
    };
    match error {
        ProgramError::Btf(_) => none(""),
        ProgramError::LoadError { io_error, verifier_log } => load_error(io_error, &verifier_log.to_string()),
        ProgramError::SyscallError(e) if e.io_error.kind() == std::io::ErrorKind::NotFound => {
            none(", or its module is not loaded")
        }
        other => AttachError::from_error(other),
    }
}

/// Returns why a program is not loaded, with the verifier's log.
pub fn load_error(error: &std::io::Error, log: &str) -> AttachError {
    // The last line before the statistics contains the reason.
    let statistics = ["processed ", "stack depth ", "verification time "];
    let line = log.lines().rev().map(str::trim).find(|l| !l.is_empty() && !statistics.iter().any(|s| l.starts_with(s)));
    let message = crate::error::without_errno(&error.to_string());
    let why = format!("the kernel rejected the program ({message}): {}", line.unwrap_or("no reason given"));
    AttachError::with_reason(why, error)
}

/// Returns the program's descriptor, if it is loaded.
pub fn program_fd(program: &Program) -> Option<std::os::fd::RawFd> {
    use std::os::fd::{AsFd, AsRawFd};
    program.fd().ok().map(|fd| fd.as_fd().as_raw_fd())
}
