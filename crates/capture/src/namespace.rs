//! Process numbers, if Fathom itself runs in a PID namespace (a container).
//!
//! The probes record the numbers of the initial PID namespace; `/proc`, `--pid` and the result of fork use those of the
//! namespace that Fathom runs in. Outside a container they are the same, and everything here is the identity. Inside, no
//! file has both, so a BPF iterator reads them: it walks the tasks of its reader's namespace and writes each task's number
//! in both.
//!
//! There are even three: the namespace of this process, the one for which its `/proc` was mounted (a different one, further
//! out, after `unshare --pid` alone), and the machine's.
//!
//! *Uncertainty*: a number is reused once its task has ended; each query does a new walk, so its result was true a moment ago.
//! Tasks outside the namespace are seen by the probes but have no number here: nothing about them can be read.

use crate::kernel::types::KernelTypes;
use crate::{Error, error, refusal};
use aya::programs::Iter;
use aya::{Ebpf, EbpfLoader};
use std::fs;
use std::io::Read;
use std::sync::{Mutex, OnceLock, PoisonError};

static NAMESPACE_OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/namespace.bpf.o"));

/// The name of the machine's initial PID namespace in `/proc/self/ns` (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The numbers of a task. As in `bpf/namespace.bpf.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskNumbers {
    /// Process and thread in the machine's initial namespace: those in records.
    pub outside: (u32, u32),
    /// In this process's own namespace.
    own: (u32, u32),
    /// In the namespace of its `/proc`.
    pub proc: (u32, u32),
    /// In the task's own namespace; the numbers by which the task knows itself.
    pub inner: (u32, u32),
}

/// The namespace of this process.
enum Namespace {
    /// The machine's initial one: every number is the same everywhere.
    Machine,
    /// Another one. `same_proc`: its `/proc` is nevertheless the machine's.
    Within { walk: Mutex<Ebpf>, same_proc: bool },
}

/// A process never changes its namespace.
static NAMESPACE: OnceLock<Namespace> = OnceLock::new();

/// Whether this process is in another PID namespace than the machine's initial one, as far as `/proc` shows.
pub fn is_within() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|own| own.as_os_str() != INITIAL_PID_NAMESPACE)
}

/// Determines this process's namespace. Must be called before the others, which assume the machine's namespace until then.
///
/// # Errors
/// It is in a PID namespace, and the numbers outside cannot be determined.
pub fn determine_namespace() -> Result<(), Error> {
    if NAMESPACE.get().is_some() {
        return Ok(());
    }
    let place = read_namespace()?;
    let _ = NAMESPACE.set(place);
    Ok(())
}

fn read_namespace() -> Result<Namespace, Error> {
    let unknown = |why: String| Error::Namespace { why };
    let status = fs::read_to_string("/proc/self/status");
    let here = fs::read_link("/proc/self/ns/pid");
    let (Ok(status), Ok(here)) = (status, here) else {
        return Err(unknown("/proc/self is missing: /proc is not mounted, or belongs to another namespace".into()));
    };
    if here.as_os_str() == INITIAL_PID_NAMESPACE {
        return Ok(Namespace::Machine);
    }
    let outwards = proc_outwards(&status).ok_or_else(|| unknown("/proc/self/status has no NSpid line".into()))?;
    let types = KernelTypes::read(NAMESPACE_OBJECT)?;
    let mut walk = EbpfLoader::new()
        .btf(Some(&types.for_fields))
        .override_global("proc_outwards", &outwards, true)
        .load(NAMESPACE_OBJECT)
        .map_err(|e| refusal::load_error(&e))?;
    let program: &mut Iter = walk
        .program_mut("list_numbers")
        .ok_or_else(|| unknown("this build lacks the BPF program for it".into()))?
        .try_into()
        .map_err(|e| unknown(error::chain(&e)))?;
    program
        .load("task", &types.vmlinux)
        .map_err(|e| refusal::as_refusal(&e).unwrap_or_else(|| unknown(error::chain(&e))))?;
    let all = read_numbers(&mut walk).map_err(unknown)?;
    let own = all.iter().find(|n| n.own.0 == std::process::id());
    let own = own.ok_or_else(|| unknown("this process is not in the kernel's task list".into()))?;
    // In the machine's own /proc, every task's number is the one outside.
    let same_proc = own.proc == own.outside;
    Ok(Namespace::Within { walk: Mutex::new(walk), same_proc })
}

/// Returns by how many namespaces its `/proc` is further out than the process: the line NSpid has a number for each
/// (proc(5)).
fn proc_outwards(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    (line.split_whitespace().count() as u32).checked_sub(1)
}

/// Reads the numbers of every task in this namespace.
fn read_numbers(walk: &mut Ebpf) -> Result<Vec<TaskNumbers>, String> {
    let program: &mut Iter =
        walk.program_mut("list_numbers").ok_or("not in this build")?.try_into().map_err(|e| error::chain(&e))?;
    let link = program.attach().and_then(|id| program.take_link(id)).map_err(|e| error::chain(&e))?;
    let mut file = link.into_file().map_err(|e| error::chain(&e))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    Ok(parse_numbers(&bytes))
}

fn parse_numbers(bytes: &[u8]) -> Vec<TaskNumbers> {
    let number = |b: &[u8]| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]);
    let pair = |b: &[u8]| (number(&b[..4]), number(&b[4..]));
    let numbers = |b: &[u8]| TaskNumbers {
        outside: pair(&b[..8]),
        own: pair(&b[8..16]),
        proc: pair(&b[16..24]),
        inner: pair(&b[24..]),
    };
    bytes.chunks_exact(size_of::<[u32; 8]>()).map(numbers).collect()
}

/// Returns all tasks that the kernel lists now; `None` if numbers are the same everywhere.
fn all_tasks() -> Option<Vec<TaskNumbers>> {
    match NAMESPACE.get()? {
        Namespace::Machine => None,
        // A failing walk, though one worked before, returns no tasks.
        Namespace::Within { walk, .. } => {
            Some(read_numbers(&mut walk.lock().unwrap_or_else(PoisonError::into_inner)).unwrap_or_default())
        }
    }
}

/// Whether `/proc` and records use the same numbers.
fn same_proc() -> bool {
    matches!(NAMESPACE.get(), None | Some(Namespace::Machine | Namespace::Within { same_proc: true, .. }))
}

/// Whether this process is in a PID namespace other than the machine's.
pub fn in_pid_namespace() -> bool {
    matches!(NAMESPACE.get(), Some(Namespace::Within { .. }))
}

/// Returns this process's number in records.
pub fn tracer() -> u32 {
    let own = std::process::id();
    all_tasks().and_then(|all| all.iter().find(|n| n.own.0 == own).map(|n| n.outside.0)).unwrap_or(own)
}

/// Returns the number in `/proc` of a child of this process.
pub fn proc_pid_of_child(pid: u32) -> u32 {
    all_tasks().and_then(|all| all.iter().find(|n| n.own.0 == pid).map(|n| n.proc.0)).unwrap_or(pid)
}

/// Returns the number in records of a process in `/proc`.
pub fn outside_pid(proc: u32) -> Option<u32> {
    if same_proc() {
        return Some(proc);
    }
    all_tasks()?.iter().find(|n| n.proc.0 == proc).map(|n| n.outside.0)
}

/// Returns the number in `/proc` of a process in records; `None` if it is outside this namespace.
pub fn in_proc(tgid: u32) -> Option<u32> {
    if same_proc() {
        return Some(tgid);
    }
    all_tasks()?.iter().find(|n| n.outside.0 == tgid).map(|n| n.proc.0)
}

/// Returns the numbers of these threads of a process in `/proc`, for those that still exist.
pub fn threads(proc: u32, tids: &[u32]) -> Vec<TaskNumbers> {
    match all_tasks() {
        Some(all) if !same_proc() => all.into_iter().filter(|n| n.proc.0 == proc && tids.contains(&n.proc.1)).collect(),
        known => {
            let here = known.unwrap_or_default();
            let numbers = |tid: &u32| {
                let pair = (proc, *tid);
                let inner = here.iter().find(|n| n.outside == pair).map_or(pair, |n| n.inner);
                TaskNumbers { outside: pair, own: pair, proc: pair, inner }
            };
            tids.iter().map(numbers).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_and_global_task_ids_are_distinguished() {
        let words: Vec<u8> = (1..=16_u32).flat_map(u32::to_ne_bytes).collect();
        let all = parse_numbers(&words);
        assert_eq!(all[0], TaskNumbers { outside: (1, 2), own: (3, 4), proc: (5, 6), inner: (7, 8) });
        assert_eq!((all.len(), all[1].inner), (2, (15, 16)));
        assert_eq!(parse_numbers(&words[..63]).len(), 1);
    }

    #[test]
    fn nspid_shows_depth_of_proc_mount() {
        assert_eq!(proc_outwards("Name:\tsh\nNSpid:\t12\nNSpgid:\t12\n"), Some(0));
        assert_eq!(proc_outwards("NSpid:\t812\t33\t4\n"), Some(2));
        assert_eq!(proc_outwards("NSpid:\n"), None);
        assert_eq!(proc_outwards("Name:\tsh\n"), None);
    }

    #[test]
    fn unknown_namespaces_keep_task_ids() {
        let me = std::process::id();
        assert_eq!((tracer(), outside_pid(7), in_proc(7), proc_pid_of_child(7)), (me, Some(7), Some(7), 7));
        assert_eq!(threads(7, &[8])[0].inner, (7, 8));
    }
}
