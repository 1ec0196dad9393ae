//! Locks an archive for writing: one process at a time, and nobody moves or replaces the archive meanwhile.
//!
//! The kernel keeps the lock (flock on the file `lock`) and releases it however its holder ends, so that a file left behind by
//! a crash blocks nobody. The file holds the holder's process ID, for error messages, and for the holder to recognise its own lock.
//! Where a file system has no such locks (some network file systems), nothing is locked.

use crate::error::{Error, IoResultExt, Result};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Held while an archive is written; released when dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock of the archive `dir`, which must exist.
    ///
    /// # Errors
    /// [`Error::Busy`] if another writer holds it, [`Error::Io`].
    pub fn take(dir: &Path) -> Result<Self> {
        let path = lock_path(dir);
        loop {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let mut file = file.with_action("create", &path)?;
            if !try_flock(&file, libc::LOCK_EX)? {
                return Err(busy_error(dir, &mut file));
            }
            // Its holder may have removed the file between our opening and our locking it; then the name refers to
            // another file.
            let same =
                std::fs::metadata(&path).is_ok_and(|now| file.metadata().is_ok_and(|ours| ours.ino() == now.ino()));
            if !same {
                continue;
            }
            let said = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
            // On a full disk this fails; the archive is locked all the same.
            let _ = said;
            return Ok(Self { file, path });
        }
    }

    /// Fails if the archive `dir` is being written. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Busy`].
    pub fn is_free(dir: &Path) -> Result<()> {
        let Ok(mut file) = crate::own_file::open(&lock_path(dir)) else { return Ok(()) };
        match try_flock(&file, libc::LOCK_SH) {
            Ok(false) => Err(busy_error(dir, &mut file)),
            _ => Ok(()),
        }
    }

    /// Returns the lock file of the archive `dir`, if it names this process as the holder: for a process that is ended by a signal
    /// and drops nothing.
    pub fn of_this_process(dir: &Path) -> Option<PathBuf> {
        let path = lock_path(dir);
        let said = std::fs::read_to_string(&path).ok()?;
        (said.trim().parse() == Ok(std::process::id())).then_some(path)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removes the name first, then (with the file) the lock: a process that opened the file before finds the name
        // gone.
        let ours = self.file.metadata().map(|m| m.ino()).ok();
        if std::fs::metadata(&self.path).is_ok_and(|now| Some(now.ino()) == ours) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn lock_path(dir: &Path) -> PathBuf {
    dir.join("lock")
}

/// Tries to lock; returns false if another process holds the lock.
fn try_flock(file: &File, how: libc::c_int) -> Result<bool> {
    // SAFETY: a descriptor of ours; flock touches no memory.
    if unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    // Any other error means a file system without locks.
    Ok(std::io::Error::last_os_error().kind() != std::io::ErrorKind::WouldBlock)
}

fn busy_error(dir: &Path, file: &mut File) -> Error {
    let mut text = String::new();
    let _ = file.take(32).read_to_string(&mut text);
    Error::Busy { path: dir.into(), pid: text.trim().parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_writer_is_refused_with_pid_of_first() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        for error in [Lock::take(dir.path()).unwrap_err(), Lock::is_free(dir.path()).unwrap_err()] {
            assert!(matches!(error, Error::Busy { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
        }
        assert_eq!(Lock::of_this_process(dir.path()), Some(lock_path(dir.path())));
        drop(lock);
        assert_eq!(Lock::of_this_process(dir.path()), None);
        assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "nothing is left");
        Lock::is_free(dir.path()).unwrap();
        Lock::take(dir.path()).unwrap();
    }

    #[test]
    fn stale_lock_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("lock"), "1\n").unwrap();
        assert_eq!(Lock::of_this_process(dir.path()), None);
        Lock::is_free(dir.path()).unwrap();
        Lock::take(dir.path()).unwrap();
    }

    #[test]
    fn lock_moves_with_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::create_dir(&old).unwrap();
        let _lock = Lock::take(&old).unwrap();
        std::fs::rename(&old, &new).unwrap();
        assert!(Lock::is_free(&new).is_err());
    }
}
