//! The file or block device of a store.

use super::{Error, is_zero};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait for a lock: a node that was just killed holds it for a moment longer, as does a child started by a
/// process with an open store, until it executes another program.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a lock is tried: the kernel has no lock call with a timeout.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The boot of the machine; where the kernel does not provide it, each start counts as a new one.
#[cfg(not(test))]
pub(super) use crate::shm::boot;

#[cfg(test)]
pub(super) use super::tests::log::boot;

/// Identifies the file or device of a store together with the page cache that it has had since: a disk that is replugged, or a
/// file system that is mounted again, begins with an empty one, whatever the boot of the machine is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MediumId {
    /// Major and minor number of the disk.
    device: (u32, u32),
    /// The kernel's number of this instance of the disk (Linux 5.15), which a disk that is replugged does not get again.
    disk_sequence: Option<u64>,
    /// Of the file; 0 for a disk.
    inode: u64,
    /// The mount, and the namespace that it is in: numbers that are never given again (Linux 6.11).
    mount: Option<(u64, u64)>,
}

impl MediumId {
    /// Of an open file or device; `None` if its file system is on no disk of its own (overlayfs, btrfs, NFS, memory).
    pub fn from_file(file: &File) -> Option<Self> {
        use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
        let data = file.metadata().ok()?;
        let is_device = data.file_type().is_block_device();
        let number = if is_device { data.rdev() } else { data.dev() };
        let device = (rustix::fs::major(number), rustix::fs::minor(number));
        let mount = if is_device { None } else { mount_id(file) };
        let inode = if is_device { 0 } else { data.ino() };
        (device.0 != 0).then(|| Self { device, disk_sequence: disk_sequence(device), inode, mount })
    }

    /// Whether the page cache of `self` may still be that of `before`. Numbers that only one of them has prove nothing.
    pub fn continues(&self, before: &Self) -> bool {
        let same_disk = self.disk_sequence.zip(before.disk_sequence).is_none_or(|(now, then)| now == then);
        let same_mount = self.mount.zip(before.mount).is_none_or(|(now, then)| now.0 != then.0 || now.1 == then.1);
        (self.device, self.inode) == (before.device, before.inode) && same_disk && same_mount
    }
}

/// The sequence number of a disk, or of that of a partition.
fn disk_sequence((major, minor): (u32, u32)) -> Option<u64> {
    let read = |place| std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{place}")).ok();
    read("diskseq").or_else(|| read("../diskseq"))?.trim().parse().ok()
}

/// Namespace and mount of a file.
fn mount_id(file: &File) -> Option<(u64, u64)> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    use std::os::fd::AsRawFd as _;
    /// STATX_MNT_ID_UNIQUE of linux/stat.h (Linux 6.8).
    const MOUNT_UNIQUE: u32 = 0x4000;
    /// NS_GET_MNTNS_ID of linux/nsfs.h (Linux 6.11): `_IOR(0xb7, 5, __u64)`.
    const NAMESPACE_UNIQUE: u32 = 0x8008_b705;
    let data = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::from_bits_retain(MOUNT_UNIQUE)).ok()?;
    let namespace = File::open("/proc/self/ns/mnt").ok()?;
    let mut number = 0_u64;
    // SAFETY: it is open, and this request writes a u64; an older kernel, or another file there, rejects it.
    let asked = unsafe { libc::ioctl(namespace.as_raw_fd(), NAMESPACE_UNIQUE as _, &raw mut number) };
    (asked == 0 && data.stx_mask & MOUNT_UNIQUE != 0).then_some((number, data.stx_mnt_id))
}

/// Bytes of a file or device.
pub(super) fn file_length(file: &File) -> io::Result<u64> {
    use std::io::{Seek, SeekFrom};
    let mut file = file;
    file.seek(SeekFrom::End(0))
}

/// Opens or creates the file, or opens the device, exclusively for this process until it ends. On a block device O_EXCL
/// excludes file systems and the nodes of its partitions, or of the disk that it is a partition of (bd_prepare_to_claim in
/// the kernel); a file is locked. Also returns whether it was created.
pub(super) fn open_exclusively(path: &Path, create: bool) -> Result<(File, bool), Error> {
    use rustix::fs::{FlockOperation, OFlags, flock};
    use std::os::unix::fs::OpenOptionsExt as _;
    let tried = |action| move |source: io::Error| Error::Io { action, path: path.into(), source };
    let there = File::options().read(true).write(true).custom_flags(OFlags::EXCL.bits() as i32).open(path);
    let mut created = false;
    let file = match there {
        Err(error) if create && error.kind() == io::ErrorKind::NotFound => {
            created = true;
            File::options().read(true).write(true).create_new(true).open(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::Missing { path: path.into() }),
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            return Err(Error::Directory { path: path.into() });
        }
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Err(Error::InUse { path: path.into() }),
        other => other,
    };
    let file = file.map_err(tried("open"))?;
    let began = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok((file, created)),
            Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(LOCK_POLL_INTERVAL)
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::InUse { path: path.into() }),
            Err(error) => return Err(Error::Io { action: "lock", path: path.into(), source: error.into() }),
        }
    }
}

/// Whether everything from `at` to `length` reads as zeroes; holes are not read.
pub(super) fn reads_as_zeroes(file: &File, mut at: u64, length: u64) -> io::Result<bool> {
    let mut piece = vec![0; 1 << 20];
    while at < length {
        match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => at = data,
            Err(rustix::io::Errno::NXIO) => return Ok(true),
            Err(_) => {}
        }
        let now = (length - at).min(piece.len() as u64) as usize;
        file.read_exact_at(&mut piece[..now], at)?;
        if !is_zero(&piece[..now]) {
            return Ok(false);
        }
        at += now as u64;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_cache_ends_with_disk_inode_or_mount() {
        let first = MediumId { device: (8, 1), disk_sequence: Some(9), inode: 12, mount: Some((4, 31)) };
        let other = |change: fn(&mut MediumId)| {
            let mut other = first.clone();
            change(&mut other);
            other.continues(&first)
        };
        assert!(other(|_| {}));
        assert!(!other(|id| id.device.1 = 2));
        assert!(!other(|id| id.disk_sequence = Some(10)));
        assert!(!other(|id| id.inode = 13));
        assert!(!other(|id| id.mount = Some((4, 32))));
        // A mount has another number in each namespace, and older kernels have no numbers.
        assert!(other(|id| id.mount = Some((5, 32))));
        assert!(other(|id| (id.mount, id.disk_sequence) = (None, None)));
    }
}
