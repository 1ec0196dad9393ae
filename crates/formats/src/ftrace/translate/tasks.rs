//! The identity of a thread: its process, its name, whether it belongs to the kernel.
//!
//! *Uncertainty*: ftrace records threads, not processes. The process of a thread that was created before the trace began
//! is known only if the recorder gave it; otherwise the thread stands for itself. Whether a thread is the kernel's is
//! known from the recorder, or else from its name and from its making no system calls.

use std::collections::{HashMap, HashSet};

/// `CLONE_THREAD` of include/uapi/linux/sched.h.
const CLONE_THREAD: u64 = 0x10000;

/// Prefixes of kernel threads' names, for those that deal with storage or with waiting for it.
const KERNEL_NAMES: [&str; 24] = [
    "kworker/",
    "jbd2/",
    "ksoftirqd/",
    "swapper",
    "kswapd",
    "loop",
    "rcu_",
    "rcuo",
    "migration/",
    "kcompactd",
    "kthreadd",
    "khugepaged",
    "ext4",
    "f2fs_",
    "xfsaild/",
    "xfs-",
    "btrfs-",
    "mmcqd",
    "irq/",
    "scsi_",
    "kblockd",
    "dmcrypt",
    "md",
    "writeback",
];

/// Known tasks.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    /// Thread to process.
    processes: HashMap<u32, u32>,
    names: HashMap<u32, String>,
    /// Threads that make system calls.
    callers: HashSet<u32>,
    kernel: HashSet<u32>,
    /// Whether the recorder reported all threads that existed, so that names need not be looked up.
    all_reported: bool,
}

impl Tasks {
    /// A thread's name.
    pub fn set_name(&mut self, tid: u32, name: &str) {
        self.names.insert(tid, name.to_owned());
    }

    /// A thread that existed, and its process; 0: it is the kernel's.
    pub fn add_existing(&mut self, tid: u32, tgid: u32) {
        self.all_reported = true;
        if tgid == 0 {
            self.kernel.insert(tid);
        } else {
            self.processes.insert(tid, tgid);
        }
    }

    /// A thread belongs to that process; other threads may have existed, too.
    pub fn set_process(&mut self, tid: u32, tgid: u32) {
        self.processes.insert(tid, tgid);
    }

    /// A thread made a system call.
    pub fn on_call(&mut self, tid: u32) {
        self.callers.insert(tid);
    }

    /// A task was created by `maker`; returns whether it is a process of its own.
    pub fn created(&mut self, maker: u32, tid: u32, flags: u64, name: &str) -> bool {
        let thread = flags & CLONE_THREAD != 0;
        let tgid = if thread { self.process(maker) } else { tid };
        self.processes.insert(tid, tgid);
        if self.is_kernel(maker) && !self.callers.contains(&tid) {
            self.kernel.insert(tid);
        } else {
            self.kernel.remove(&tid);
        }
        self.set_name(tid, name);
        !thread
    }

    /// The process of a thread.
    pub fn process(&self, tid: u32) -> u32 {
        self.processes.get(&tid).copied().unwrap_or(tid)
    }

    pub fn name(&self, tid: u32) -> Option<&str> {
        self.names.get(&tid).map(String::as_str)
    }

    /// Whether it is a kernel thread.
    pub fn is_kernel(&self, tid: u32) -> bool {
        if tid == 0 || tid == 2 || self.kernel.contains(&tid) {
            return true;
        }
        if self.callers.contains(&tid) || self.processes.contains_key(&tid) || self.all_reported {
            return false;
        }
        self.name(tid).is_some_and(|name| KERNEL_NAMES.iter().any(|k| name.starts_with(k)))
    }

    /// Whether it was seen making system calls.
    pub fn is_caller(&self, tid: u32) -> bool {
        self.callers.contains(&tid)
    }
}
