//! Tasks that existed before the recording: passed to the kernel side, and named in the trace.

use crate::kernel::clock::boot_ns;
use crate::namespace::{self, TaskNumbers};
use model::event::{File, Header, InnerTask, Task, file_what, task_what};
use model::{Dev, Event, Record};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `cpu` of a record that was made in user space: it is not counted in any CPU's sequence.
pub const NO_CPU: u16 = u16::MAX;

/// Returns a process's name as a record, by its number in records; `None` if there is no such process.
pub fn name_of(tgid: u32) -> Option<Event> {
    let pid = namespace::in_proc(tgid)?;
    let text = comm_of(pid)?;
    let record: Record =
        Task { parent: parent_outside(pid), what: task_what::EXISTED_BEFORE, text, ..Task::default() }.into();
    let header = Header { time_ns: boot_ns(), cpu: NO_CPU, tgid, tid: tgid, kind: record.kind(), ..Header::default() };
    Some(Event { header, record })
}

/// Returns the numbers by which a task knows itself, and which its marks use, as a record; `None` if they are the same as
/// in records.
pub fn inner_numbers(task: TaskNumbers) -> Option<Event> {
    let ((tgid, tid), (inner_tgid, inner_tid)) = (task.outside, task.inner);
    let record: Record = InnerTask { inner_tgid, inner_tid, tgid, tid }.into();
    let header = Header { time_ns: boot_ns(), cpu: NO_CPU, tgid, tid, kind: record.kind(), ..Header::default() };
    (task.outside != task.inner).then_some(Event { header, record })
}

/// Returns all threads of a process; empty if there is no such process.
pub fn threads(tgid: u32) -> Vec<u32> {
    numeric_entries(Path::new(&format!("/proc/{tgid}/task")))
}

/// Returns the processes with this name, which the kernel cuts at 15 bytes.
pub fn processes_named(comm: &str) -> Vec<u32> {
    let comm = cut_comm(comm);
    numeric_entries(Path::new("/proc")).into_iter().filter(|pid| comm_of(*pid).as_deref() == Some(comm)).collect()
}

/// Returns a name as stored by the kernel: at most 15 bytes, cut at a character boundary.
pub fn cut_comm(comm: &str) -> &str {
    let mut end = comm.len().min(15);
    while !comm.is_char_boundary(end) {
        end -= 1;
    }
    &comm[..end]
}

/// Returns a process in `/proc` and its open files, as records.
pub fn describe_process(pid: u32) -> Vec<Event> {
    let Some(tgid) = namespace::outside_pid(pid) else { return Vec::new() };
    let header = Header { time_ns: boot_ns(), cpu: NO_CPU, tgid, tid: tgid, ..Header::default() };
    let event = |record: Record| Event { header: Header { kind: record.kind(), ..header }, record };
    let mut all = Vec::new();
    if let Some(text) = comm_of(pid) {
        all.push(event(
            Task { parent: parent_outside(pid), what: task_what::EXISTED_BEFORE, text, ..Task::default() }.into(),
        ));
    }
    for fd in numeric_entries(Path::new(&format!("/proc/{pid}/fd"))) {
        all.extend(describe_file(pid, fd));
    }
    all
}

/// Returns a file that a process in `/proc` has open, as a record; `None` if it is not a file.
pub fn describe_file(pid: u32, fd: u32) -> Option<Event> {
    let tgid = namespace::outside_pid(pid)?;
    let link = format!("/proc/{pid}/fd/{fd}");
    let (meta, path) = (fs::metadata(&link).ok()?, fs::read_link(&link).ok()?);
    if !meta.is_file() {
        return None;
    }
    // stat returns the number of a btrfs file's subvolume, which the probes do not see.
    let about = || {
        let mounts = fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
        btrfs_device(&text, &String::from_utf8_lossy(&mounts))
    };
    let whole = if libc::major(meta.dev()) == 0 { about() } else { None };
    let dev = whole.unwrap_or_else(|| Dev::new(libc::major(meta.dev()), libc::minor(meta.dev()))).0;
    let text = path.to_string_lossy().into_owned();
    let record: Record = File { ino: meta.ino(), dev, what: file_what::OPEN_BEFORE, text, ..File::default() }.into();
    let header = Header { time_ns: boot_ns(), cpu: NO_CPU, tgid, tid: tgid, kind: record.kind(), ..Header::default() };
    Some(Event { header, record })
}

/// Returns the number of the btrfs that contains an open file, from the texts of its `fdinfo` and of its process's `mountinfo`
/// (proc(5)).
fn btrfs_device(fdinfo: &str, mounts: &str) -> Option<Dev> {
    let mount = fdinfo.lines().find_map(|l| l.strip_prefix("mnt_id:"))?.trim();
    let line = mounts.lines().find(|l| l.split(' ').next() == Some(mount))?;
    let (before, after) = line.split_once(" - ")?;
    let (major, minor) = before.split(' ').nth(2)?.split_once(':')?;
    (after.split(' ').next() == Some("btrfs")).then_some(Dev::new(major.parse().ok()?, minor.parse().ok()?))
}

/// Returns the name of a process in `/proc`.
pub fn comm_of(pid: u32) -> Option<String> {
    let text = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&text).trim_end_matches('\n').to_string())
}

pub fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
}

/// `PF_KTHREAD` of include/linux/sched.h.
const PF_KTHREAD: u32 = 0x0020_0000;

/// Whether it is a kernel thread.
pub fn is_kernel_thread(tgid: u32) -> bool {
    stat_field(tgid, 6).is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// Returns the number in records of a process's parent; 0: it has none here.
fn parent_outside(pid: u32) -> u32 {
    parent_of(pid).filter(|parent| *parent != 0).and_then(namespace::outside_pid).unwrap_or(0)
}

fn parent_of(pid: u32) -> Option<u32> {
    stat_field(pid, 1)
}

/// Returns a field of `/proc/PID/stat`, counted from the one after the name, the state; the name may contain anything but ends at
/// the last `)`.
fn stat_field(pid: u32, field: usize) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    String::from_utf8_lossy(&stat).rsplit_once(") ")?.1.split(' ').nth(field)?.parse().ok()
}

fn numeric_entries(directory: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_found_with_threads_and_files() {
        let me = std::process::id();
        assert!(threads(me).contains(&me));
        assert_eq!(threads(0), Vec::<u32>::new());
        assert_eq!(parent_of(me), Some(std::os::unix::process::parent_id()));
        assert!(!is_kernel_thread(me));
        let file = tempfile::NamedTempFile::new().unwrap();
        let meta = file.as_file().metadata().unwrap();
        let events = describe_process(me);
        let Record::Task(task) = &events[0].record else { panic!("{:?}", events[0]) };
        assert_eq!((task.what, task.text.is_empty()), (task_what::EXISTED_BEFORE, false));
        assert!(processes_named(&task.text).contains(&me));
        assert!(events.iter().any(|e| match &e.record {
            Record::File(f) =>
                f.ino == meta.ino() && f.what == file_what::OPEN_BEFORE && Path::new(&f.text) == file.path(),
            _ => false,
        }));
    }

    #[test]
    fn btrfs_file_has_device_of_whole_volume() {
        let mounts = "36 35 0:45 /sub /mnt rw shared:1 - btrfs /dev/vdb rw,subvol=/sub\n\
                      37 35 254:0 / /home rw - ext4 /dev/vda rw\n";
        assert_eq!(btrfs_device("pos:\t0\nflags:\t02\nmnt_id:\t36\nino:\t257\n", mounts), Some(Dev::new(0, 45)));
        for other in ["mnt_id:\t37\n", "mnt_id:\t38\n", "mnt_id:\n", ""] {
            assert_eq!(btrfs_device(other, mounts), None, "{other}");
        }
    }

    #[test]
    fn comm_is_truncated_like_kernel() {
        assert_eq!(cut_comm("a-very-long-program-name"), "a-very-long-pro");
        assert_eq!(cut_comm("fourteen-bytesé"), "fourteen-bytes");
    }
}
