//! The scripts for the guest's shell (busybox ash): prepare the disks, run the workload, unmount. Only texts, so that tests can
//! check them.

use super::{Backend, Bus, Disk, MOUNT_POINT, Scenario};
use child::quoted_if_needed;

/// The paths of the scripts in the guest.
pub(crate) const PREPARE_PATH: &str = "/lab/prepare";
/// The script of the workload.
pub(crate) const WORKLOAD_PATH: &str = "/lab/workload";
/// Contains the workload's exit status, once it has exited.
pub(crate) const STATUS_PATH: &str = "/run/workload.status";
/// The recording's name in the shared directory.
pub(crate) const ARCHIVE_NAME: &str = "trace.fathom";
/// Output of recording and workload.
pub(crate) const WORKLOAD_LOG: &str = "workload.log";

/// A shell on the terminal, which becomes its controlling terminal: so job control and Ctrl-C work in it.
pub(crate) const SHELL_COMMAND: &str =
    "cd /mnt; export PS1='lab:$PWD# '; setsid sh -c 'exec sh -i </dev/terminal >/dev/terminal 2>&1'";

/// Makes and mounts the file system; `programs` are names and paths. A file system that was made before the guest booted is only mounted.
pub(crate) fn prepare(scenario: &Scenario, programs: &[(String, String)], is_made: bool) -> String {
    let fs = &scenario.filesystem;
    let disk = format!("/dev/disk/{}", fs.disk);
    let mkfs = fs
        .kind
        .mkfs_options()
        .iter()
        .map(ToString::to_string)
        .chain(fs.mkfs.iter().cloned())
        .map(|w| quoted_if_needed(&w));
    let options = if fs.mount.is_empty() { String::new() } else { format!("-o {} ", quoted_if_needed(&fs.mount)) };
    let mut script = "set -e\n".to_string();
    if scenario.record.backend == Backend::Ftrace {
        script += "mount -t tracefs tracefs /sys/kernel/tracing\n";
    }
    for (name, path) in programs.iter().filter(|(name, path)| *path != format!("/bin/{name}")) {
        script += &format!("ln -sf {} {}\n", quoted_if_needed(path), quoted_if_needed(&format!("/bin/{name}")));
    }
    for (i, (name, disk)) in scenario.disk.iter().enumerate() {
        script += &set_up_disk(i, name, disk);
    }
    if !is_made {
        let (program, words) = (fs.kind.mkfs().0, mkfs.collect::<Vec<_>>().join(" "));
        script += &format!("{program} {words} {disk} >/run/mkfs.log 2>&1 || {{\n");
        script += "    status=$?\n    cat /run/mkfs.log >&2\n    exit $status\n}\n";
    }
    script += &format!("mount -t {} {options}{disk} {MOUNT_POINT}\nsync\n", fs.kind.name());
    for (name, map) in scenario.disk.iter().filter_map(|(name, disk)| Some((name, disk.map.as_ref()?))) {
        let table = map.table(&format!("/dev/disk/{name}-below"));
        script += &format!("size=$(blockdev --getsz /dev/disk/{name})\ndmsetup suspend --noudevsync {name}\n");
        script += &format!("dmsetup reload {name} --table \"0 $size {table}\"\ndmsetup resume --noudevsync {name}\n");
    }
    script
}

/// Sets up the `i`th disk: creates it if necessary, gives it its name and its scheduler, and puts the device mapper on
/// it.
fn set_up_disk(i: usize, name: &str, disk: &Disk) -> String {
    let node = format!("/dev/disk/{name}");
    let mut script = match disk.bus {
        Bus::Loop => format!(
            "mkdir -p /run/disks\nmountpoint -q /run/disks || mount -t tmpfs -o size=100% disks /run/disks\n\
             truncate -s {} /run/disks/{name}\nlosetup /dev/loop{i} /run/disks/{name}\nln -s /dev/loop{i} {node}\n",
            disk.size.0
        ),
        // The disk driver probes asynchronously.
        Bus::ScsiDebug => format!(
            "tries=0\nuntil [ -e {node} ] || [ $tries -ge 100 ]; do\n    for found in /sys/block/sd*; do\n        \
             ! grep -q scsi_debug $found/device/model || ln -s /dev/${{found##*/}} {node}\n    done\n    \
             tries=$((tries + 1))\n    [ -e {node} ] || sleep 0.1\ndone\n"
        ),
        Bus::Virtio | Bus::Scsi | Bus::Nvme | Bus::Sd => String::new(),
    };
    if let Some(scheduler) = disk.scheduler {
        let queue = format!("/sys/block/$(basename $(readlink -f {node}))/queue/scheduler");
        script += &format!("echo {} >{queue}\n", scheduler.name());
    }
    if disk.map.is_some() {
        script += &format!(
            "mv {node} {node}-below\nsize=$(blockdev --getsz {node}-below)\n\
             dmsetup create {name} --noudevsync --table \"0 $size linear {node}-below 0\"\n\
             ln -s /dev/dm-$(dmsetup info -c --noheadings -o minor {name}) {node}\n"
        );
    }
    script
}

/// Runs the workload; its status is stored separately, since the recording has one too.
pub(crate) fn workload(scenario: &Scenario) -> Result<String, String> {
    // From its first line the recorder finds the programs that it names.
    let mut script = format!("#!/bin/sh\ntrap 'echo $? >{STATUS_PATH}' EXIT\nset -e\ncd {MOUNT_POINT}\n");
    for command in &scenario.workload.commands {
        script += scenario.fill_placeholders(command)?.trim_end();
        script.push('\n');
    }
    Ok(script)
}

/// Records the workload into the shared directory.
pub(crate) fn record(scenario: &Scenario) -> String {
    let words = scenario.record.arguments.iter().map(|w| format!("{} ", quoted_if_needed(w))).collect::<String>();
    format!(
        "exec fathom record --backend {} --duration {} -o /share/{ARCHIVE_NAME} {words}-- sh {WORKLOAD_PATH} >/share/{WORKLOAD_LOG} 2>&1",
        scenario.record.backend.name(),
        scenario.workload.limit.0,
    )
}

/// Unmounts the file system and keeps the kernel log; prints the workload's status.
pub(crate) fn put_away() -> String {
    format!("cat {STATUS_PATH} 2>/dev/null\ndmesg >/share/kernel.log\numount {MOUNT_POINT}\nsync\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(settings: &[&str]) -> Scenario {
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        super::super::find("scsi-ext4", &settings).unwrap().1
    }

    #[test]
    fn file_system_is_made_and_mounted_with_options() {
        let scenario = scenario(&["filesystem.mount=noatime,commit=60", "filesystem.mkfs=['-O', '^has journal']"]);
        let script = prepare(&scenario, &[("fathom".into(), "/my programs/fathom".into())], false);
        assert!(script.contains("ln -sf '/my programs/fathom' /bin/fathom\n"), "{script}");
        let mkfs = "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 -O '^has journal' /dev/disk/data ";
        assert!(script.contains(mkfs), "{script}");
        assert!(script.contains("mount -t ext4 -o noatime,commit=60 /dev/disk/data /mnt\n"), "{script}");
        let made = prepare(&scenario, &[], true);
        assert!(!made.contains("mkfs") && made.contains("mount -t ext4 "), "{made}");
    }

    #[test]
    fn disks_get_their_scheduler_and_device_mapper() {
        let flakey = "disk.data.map={target='flakey', up_s=0, down_s=60, features=['error_writes']}";
        let script = prepare(&scenario(&["disk.data.scheduler=bfq", flakey]), &[], false);
        let order = ["echo bfq >/sys/block/", "linear /dev/disk/data-below 0", "mkfs.ext4", "mount -t ext4", "resume"];
        let at: Vec<usize> = order.iter().map(|part| script.find(part).unwrap_or_else(|| panic!("{script}"))).collect();
        assert!(at.is_sorted(), "{script}");
        assert!(script.contains("\"0 $size flakey /dev/disk/data-below 0 0 60 1 error_writes\""), "{script}");
    }

    #[test]
    fn workload_is_recorded_with_its_arguments() {
        let scenario =
            scenario(&["record.backend=ftrace", "record.arguments=['--op', \"a b's:f\"]", "workload.limit=5m"]);
        assert!(prepare(&scenario, &[], false).contains("mount -t tracefs "));
        let command = record(&scenario);
        let words = "fathom record --backend ftrace --duration 300 -o /share/trace.fathom --op 'a b'\\''s:f' -- sh /lab/workload ";
        assert!(command.contains(words), "{command}");
        assert!(workload(&scenario).unwrap().contains("--dir /mnt"));
    }
}
