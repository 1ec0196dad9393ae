//! File systems that keep their log on a disk of its own: what an fsync asks of that disk is a part of its cost.
//!
//! XFS names the disk in its mount options. ext4 does not, but its journal's thread is named after it.

use device::{Disks, Reader};
use model::Dev;

/// Returns such file systems and their disks: for each file system its own disk, then that of its log.
pub fn log_disks(disks: &Disks, reader: &dyn Reader) -> Vec<(Dev, Dev)> {
    let mut all: Vec<(Dev, Dev)> = Vec::new();
    for line in reader.read("/proc/self/mountinfo").unwrap_or_default().lines() {
        let Some((dev, kind, options)) = parse_mount(line) else { continue };
        let Some(own) = disks.whole(dev) else { continue };
        let log = match kind {
            "xfs" => options.split(',').find_map(|option| option.strip_prefix("logdev=")).map(str::to_owned),
            "ext4" => journal_disk(own.partitions.get(&dev).unwrap_or(&own.name), reader),
            _ => None,
        };
        let log = log.and_then(|name| disks.by_name(&reader.canonical(&name).unwrap_or(name)));
        let Some(log) = log.filter(|log| log.dev != own.dev) else { continue };
        for pair in [(dev, own.dev), (dev, log.dev)] {
            if !all.contains(&pair) {
                all.push(pair);
            }
        }
    }
    all
}

/// Returns the device, type and options of a mount (Documentation/filesystems/proc.rst).
fn parse_mount(line: &str) -> Option<(Dev, &str, &str)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
    let mut words = file_system.split(' ');
    let (kind, options) = (words.next()?, words.nth(1)?);
    Some((Dev::new(major.parse().ok()?, minor.parse().ok()?), kind, options))
}

/// Returns the disk or partition of the journal of the ext4 on this one, unless the journal is a file: then the name of its thread
/// (`jbd2_journal_start_thread`) has the inode's number at its end, and is no disk's.
fn journal_disk(of: &str, reader: &dyn Reader) -> Option<String> {
    let thread = reader.read(&format!("/sys/fs/ext4/{of}/journal_task")).ok()?;
    let thread = reader.read(&format!("/proc/{}/comm", thread.trim())).ok()?;
    Some(thread.trim().strip_prefix("jbd2/")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files, each with its content; a directory has whatever is in it.
    struct Files(&'static [(&'static str, &'static str)]);

    impl Reader for Files {
        fn read(&self, path: &str) -> Result<String, String> {
            self.0.iter().find(|(p, _)| *p == path).map(|(_, text)| (*text).into()).ok_or_else(|| "absent".into())
        }
        fn list(&self, directory: &str) -> Result<Vec<String>, String> {
            let inside = |path: &&'static str| path.strip_prefix(directory)?.strip_prefix('/')?.split('/').next();
            let mut all: Vec<String> = self.0.iter().filter_map(|(path, _)| inside(path)).map(str::to_owned).collect();
            all.dedup();
            if all.is_empty() { Err("absent".into()) } else { Ok(all) }
        }
        fn run(&self, _: &[&str]) -> Result<String, device::RunError> {
            Err(device::RunError::Failed("absent".into()))
        }
        fn canonical(&self, path: &str) -> Result<String, String> {
            Ok(path.into())
        }
        fn identity(&self, _: &str) -> Result<(Dev, u64), String> {
            Err("absent".into())
        }
    }

    /// An ext4 on a partition and an XFS, whose logs are on disks of their own, and an ext4 that has it in itself.
    #[test]
    fn file_system_with_an_external_log_has_two_disks() {
        let machine = Files(&[
            ("/sys/block/sda/dev", "8:0"),
            ("/sys/block/sda/sda1/partition", "1"),
            ("/sys/block/sda/sda1/dev", "8:1"),
            ("/sys/block/sdb/dev", "8:16"),
            ("/sys/block/sdc/dev", "8:32"),
            ("/sys/block/sdd/dev", "8:48"),
            ("/sys/fs/ext4/sda1/journal_task", "77\n"),
            ("/sys/fs/ext4/sdc/journal_task", "78\n"),
            ("/proc/77/comm", "jbd2/sdb\n"),
            ("/proc/78/comm", "jbd2/sdc-8\n"),
            (
                "/proc/self/mountinfo",
                "1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n2 1 8:32 / /mnt rw - ext4 /dev/sdc rw\n\
                 3 1 8:48 / /srv rw - xfs /dev/sdd rw,logdev=/dev/sdb,noquota\n4 1 8:48 / /home rw - xfs /dev/sdd \
                 rw,logdev=/dev/sdb,noquota\n5 1 0:5 / /proc rw - proc proc rw\ndamaged\n",
            ),
        ]);
        let disks = Disks::read(&machine).unwrap();
        let [sda1, sda, sdb, sdd] = [1, 0, 16, 48].map(|minor| Dev::new(8, minor));
        assert_eq!(log_disks(&disks, &machine), [(sda1, sda), (sda1, sdb), (sdd, sdd), (sdd, sdb)]);
    }
}
