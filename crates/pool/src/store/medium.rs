//! The file or block device of a store.

use super::{Error, is_zero};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait for a lock: a node that was just killed holds it for a moment longer, as does a child started by a
/// process with an open store, until it executes another program.
const LETTING_GO: Duration = Duration::from_secs(1);
/// How often a lock is tried: the kernel has no lock call with a timeout.
const AGAIN: Duration = Duration::from_millis(20);

/// The boot of the machine; where the kernel does not provide it, each start counts as a new one.
#[cfg(not(test))]
pub(super) use crate::shm::boot;

#[cfg(test)]
pub(super) use super::tests::log::boot;

/// Bytes of a file or device.
pub(super) fn length(file: &File) -> io::Result<u64> {
    use std::io::{Seek, SeekFrom};
    let mut file = file;
    file.seek(SeekFrom::End(0))
}

/// Opens or creates the file, or opens the device, exclusively for this process until it ends. On a block device O_EXCL
/// excludes file systems and the nodes of its partitions, or of the disk that it is a partition of (bd_prepare_to_claim in
/// the kernel); a file is locked. Also returns whether it was created.
pub(super) fn alone(path: &Path, create: bool) -> Result<(File, bool), Error> {
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
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Err(Error::Folder { path: path.into() }),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Err(Error::InUse { path: path.into() }),
        other => other,
    };
    let file = file.map_err(tried("open"))?;
    let began = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok((file, created)),
            Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < LETTING_GO => std::thread::sleep(AGAIN),
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
