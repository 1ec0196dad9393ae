//! Directories that are removed with their contents: on drop, or, if their owner was killed, by the next run in the same place.
//!
//! The kernel knows whether the owner is alive: as long as it is, it holds a lock (flock) on the directory itself, and no name,
//! number or time has to be trusted. So a concurrent run, even in another container, is never cleaned up. If a file system has no
//! such locks, only owners remove their directories; directories of other users are never removed.

use crate::process;
use model::text::ShownPath as _;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Prefix of the names. Versions that held no lock used `fathom-bench-…`, which nothing here touches.
const NAME_PREFIX: &str = "fathom-run-";

/// No directory could be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot create a directory in {}: {source}", parent.shown())]
pub struct ScratchError {
    pub parent: PathBuf,
    #[source]
    pub source: io::Error,
}

/// A directory that is removed with its contents.
#[derive(Debug)]
pub struct Scratch {
    pub path: PathBuf,
    /// Its lock, unless the file system has none.
    _lock: Option<File>,
}

impl Scratch {
    /// Makes a new directory in `parent`.
    pub fn new(parent: &Path) -> Result<Self, ScratchError> {
        let failed = |source| ScratchError { parent: parent.into(), source };
        loop {
            let path = parent.join(format!("{NAME_PREFIX}{}-{}", std::process::id(), process::now_ns()));
            match std::fs::create_dir(&path) {
                // A process in another PID namespace, at the same ns.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(failed)?,
            }
            let lock = match open_directory(&path) {
                // A cleanup may have been faster than our lock, and removed the directory as a leftover.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(failed)?,
            };
            match lock_directory(&lock, libc::LOCK_EX) {
                Ok(()) if !is_same_directory(&path, &lock) => {}
                locked => return Ok(Self { path, _lock: locked.is_ok().then_some(lock) }),
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove_directory(&self.path);
    }
}

fn remove_directory(path: &Path) -> bool {
    // A process that was killed just before may still be writing; the second attempt removes what it wrote after the
    // first. Storage that has vanished keeps its contents.
    std::fs::remove_dir_all(path).or_else(|_| std::fs::remove_dir_all(path)).is_ok()
}

/// Removes the directories that killed runs left in `parent`; returns their number.
pub fn remove_leftovers(parent: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(parent) else { return 0 };
    // SAFETY: takes no arguments and cannot fail.
    let me = unsafe { libc::geteuid() };
    let left = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(NAME_PREFIX));
    left.filter(|entry| {
        let path = entry.path();
        let Ok(directory) = open_directory(&path) else { return false };
        directory.metadata().is_ok_and(|about| about.uid() == me)
            && lock_directory(&directory, libc::LOCK_EX | libc::LOCK_NB).is_ok()
            && is_same_directory(&path, &directory)
            && remove_directory(&path)
    })
    .count()
}

/// Opens a directory; anything else, including a link to a directory, is an error.
fn open_directory(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

fn lock_directory(file: &File, how: libc::c_int) -> io::Result<()> {
    // SAFETY: a descriptor of ours; flock touches no memory.
    if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the path still refers to that directory.
fn is_same_directory(path: &Path, directory: &File) -> bool {
    let id = |about: std::fs::Metadata| (about.dev(), about.ino());
    std::fs::symlink_metadata(path).map(id).ok() == directory.metadata().map(id).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leftovers_of_killed_runs_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let live = Scratch::new(parent.path()).unwrap();
        std::fs::write(live.path.join("data"), "x").unwrap();
        // The state that a killed owner leaves: its lock is not held.
        let dead = parent.path().join(format!("{NAME_PREFIX}1-1"));
        std::fs::create_dir_all(dead.join("deep")).unwrap();
        std::fs::write(dead.join("deep/data"), "x").unwrap();
        // Directory entries that only look like one.
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("mine"), "x").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), parent.path().join(format!("{NAME_PREFIX}2-2"))).unwrap();
        std::fs::write(parent.path().join(format!("{NAME_PREFIX}3-3")), "x").unwrap();
        std::fs::create_dir(parent.path().join("fathom-bench-4-4")).unwrap();
        assert_eq!(remove_leftovers(parent.path()), 1);
        assert!(!dead.exists() && live.path.join("data").exists() && elsewhere.path().join("mine").exists());
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 4);
        let path = live.path.clone();
        drop(live);
        assert!(!path.exists() && remove_leftovers(parent.path()) == 0);
    }

    /// Directories being created are never mistaken for leftovers.
    #[test]
    fn concurrent_cleaning_keeps_new_directories() {
        let parent = tempfile::tempdir().unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    remove_leftovers(parent.path());
                }
            });
            for _ in 0..300 {
                let made = Scratch::new(parent.path()).unwrap();
                std::fs::write(made.path.join("data"), "x").unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
