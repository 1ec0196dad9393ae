//! Folders that are removed with what is in them: when they are dropped, or, if their owner was killed, by the next run in the same place.
//!
//! Whose owner lives the kernel knows: as long as he does, he holds a lock (flock) on the folder itself, and no name, number or time
//! has to be believed. So a run beside this one, in another container even, is never cleaned away. Where a file system has no such
//! locks, nothing is removed but by its owner; neither is what belongs to another user.

use crate::process;
use model::text::ShownPath as _;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How the names begin. Versions that held no lock named theirs `fathom-bench-…`, which nothing here touches.
const PREFIX: &str = "fathom-run-";

/// No folder could be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot create a folder in {}: {source}", parent.shown())]
pub struct NoFolder {
    /// Where.
    pub parent: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// A folder removed with what is in it.
#[derive(Debug)]
pub struct Scratch {
    /// The folder.
    pub path: PathBuf,
    /// Its lock, unless the file system has none.
    _lock: Option<File>,
}

impl Scratch {
    /// A new folder in `parent`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(parent: &Path) -> Result<Self, NoFolder> {
        let failed = |source| NoFolder { parent: parent.into(), source };
        loop {
            let path = parent.join(format!("{PREFIX}{}-{}", std::process::id(), process::now_ns()));
            match std::fs::create_dir(&path) {
                // Somebody in another PID namespace, at the same ns.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(failed)?,
            }
            let lock = match open(&path) {
                // Whoever cleans up may have been faster than our lock, and taken the folder for one that was left.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(failed)?,
            };
            match flock(&lock, libc::LOCK_EX) {
                Ok(()) if !is(&path, &lock) => {}
                locked => return Ok(Self { path, _lock: locked.is_ok().then_some(lock) }),
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn remove(path: &Path) -> bool {
    // A process that was killed a moment ago may still be writing; what it wrote after the first look goes with the
    // second. Storage that has vanished keeps what it has.
    std::fs::remove_dir_all(path).or_else(|_| std::fs::remove_dir_all(path)).is_ok()
}

/// Removes the folders that runs left in `parent` which were killed; returns how many.
pub fn clean(parent: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(parent) else { return 0 };
    // SAFETY: takes no arguments and cannot fail.
    let me = unsafe { libc::geteuid() };
    let left = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    left.filter(|entry| {
        let path = entry.path();
        let Ok(folder) = open(&path) else { return false };
        folder.metadata().is_ok_and(|about| about.uid() == me)
            && flock(&folder, libc::LOCK_EX | libc::LOCK_NB).is_ok()
            && is(&path, &folder)
            && remove(&path)
    })
    .count()
}

/// Opens a folder; what is none, a link to one included, is an error.
fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

fn flock(file: &File, how: libc::c_int) -> io::Result<()> {
    // SAFETY: a descriptor of ours; flock touches no memory.
    if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the path still leads to that folder.
fn is(path: &Path, folder: &File) -> bool {
    let id = |about: std::fs::Metadata| (about.dev(), about.ino());
    std::fs::symlink_metadata(path).map(id).ok() == folder.metadata().map(id).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leftovers_of_killed_runs_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let live = Scratch::new(parent.path()).unwrap();
        std::fs::write(live.path.join("data"), "x").unwrap();
        // As a killed owner leaves it: nobody holds its lock.
        let dead = parent.path().join(format!("{PREFIX}1-1"));
        std::fs::create_dir_all(dead.join("deep")).unwrap();
        std::fs::write(dead.join("deep/data"), "x").unwrap();
        // Directories that only look like one.
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("mine"), "x").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), parent.path().join(format!("{PREFIX}2-2"))).unwrap();
        std::fs::write(parent.path().join(format!("{PREFIX}3-3")), "x").unwrap();
        std::fs::create_dir(parent.path().join("fathom-bench-4-4")).unwrap();
        assert_eq!(clean(parent.path()), 1);
        assert!(!dead.exists() && live.path.join("data").exists() && elsewhere.path().join("mine").exists());
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 4);
        let path = live.path.clone();
        drop(live);
        assert!(!path.exists() && clean(parent.path()) == 0);
    }

    /// Directories being created are never mistaken for leftovers.
    #[test]
    fn concurrent_cleaning_keeps_new_directories() {
        let parent = tempfile::tempdir().unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    clean(parent.path());
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
