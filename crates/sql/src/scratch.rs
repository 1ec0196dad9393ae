//! Directories in TMPDIR for as long as this process needs them: rewritten older tables, spilled data of a query, archives being fetched.
//!
//! A process that is killed leaves its directory. The process that creates the next one removes it, if it belongs to this user and is not in
//! use: each directory is locked (flock(2)) by its creator, and the kernel releases the lock with the process, however that ended. An age
//! would show neither.
//!
//! **Uncertainty.** Without flock in the file system no directory is recognised as left behind; such directories stay.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The prefixes of the names of our directories.
const DIRECTORY_PREFIXES: [&str; 3] = ["fathom-sql.", "fathom-fleet.", "fathom-page."];

/// Those of this process.
static OWN_DIRECTORIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// What a directory is for.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    Query = 0,
    /// Archives from a device.
    Device = 1,
    Page = 2,
}

/// A directory that is removed when this is dropped.
#[derive(Debug)]
pub struct HeldDirectory {
    path: PathBuf,
    _lock: File,
}

impl HeldDirectory {
    /// Creates a directory in TMPDIR; first removes those left by killed processes.
    pub fn new(purpose: Purpose) -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir(), purpose)
    }

    fn new_in(parent: &Path, purpose: Purpose) -> io::Result<Self> {
        sweep_leftovers(parent);
        loop {
            let path = tempfile::Builder::new().prefix(DIRECTORY_PREFIXES[purpose as usize]).tempdir_in(parent)?.keep();
            let opened = File::open(&path).map(|lock| (lock.try_lock(), lock));
            match opened {
                // Another process that swept before it was locked has removed it, or is about to.
                Ok((Err(fs::TryLockError::WouldBlock), _)) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Without locks it is never swept.
                Ok((_, lock)) if is_file_at(&path, &lock) => {
                    OWN_DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
                    return Ok(Self { path, _lock: lock });
                }
                Ok(_) => {}
                Err(error) => {
                    let _ = fs::remove_dir(&path);
                    return Err(error);
                }
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for HeldDirectory {
    fn drop(&mut self) {
        remove_directory(&self.path);
        OWN_DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| *path != self.path);
    }
}

/// Removes the remaining directories of this process, even if they are still written to: the process is about to end.
pub fn remove_ours() {
    let ours = std::mem::take(&mut *OWN_DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner));
    ours.iter().for_each(|path| remove_directory(path));
}

/// Removes a directory. A thread that still writes to it may have to be waited for.
fn remove_directory(path: &Path) {
    for _ in 0..100 {
        if fs::remove_dir_all(path).is_ok() || !path.exists() {
            return;
        }
        // A fixed wait: a file created meanwhile is found at the next try.
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether an open file is the one at this path.
fn is_file_at(path: &Path, file: &File) -> bool {
    let (there, opened) = (fs::symlink_metadata(path), file.metadata());
    matches!((there, opened), (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

/// Removes the directories left by killed processes of this user.
fn sweep_leftovers(parent: &Path) {
    let Ok(own) = fs::metadata("/proc/self").map(|about| about.uid()) else { return };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let ours = DIRECTORY_PREFIXES.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()));
        // A link, or another user's directory, may point anywhere.
        if !ours || !fs::symlink_metadata(&path).is_ok_and(|about| about.is_dir() && about.uid() == own) {
            continue;
        }
        let Ok(directory) = File::open(&path) else { continue };
        if directory.try_lock().is_ok() && is_file_at(&path, &directory) {
            // A directory that cannot be removed is left to the next process.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_without_an_owner_is_removed_and_others_stay() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        for directory in ["fathom-sql.left/deep", "fathom-fleet.left", "fathom-sqlx.left", "elsewhere"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        fs::write(at("fathom-sql.left/deep/spans.parquet"), "x").unwrap();
        fs::write(at("fathom-sql.file"), "x").unwrap();
        fs::write(at("elsewhere/kept"), "x").unwrap();
        std::os::unix::fs::symlink(at("elsewhere"), at("fathom-sql.link")).unwrap();
        let first = HeldDirectory::new_in(tmp.path(), Purpose::Query).unwrap();
        fs::write(first.path().join("a"), "x").unwrap();
        let second = HeldDirectory::new_in(tmp.path(), Purpose::Page).unwrap();
        assert!(first.path().join("a").is_file() && second.path().is_dir(), "a directory that is lived in is swept");
        assert!(!at("fathom-sql.left").exists() && !at("fathom-fleet.left").exists());
        assert!(at("fathom-sqlx.left").exists() && at("fathom-sql.file").exists() && at("elsewhere/kept").exists());
        let path = first.path().to_path_buf();
        drop(first);
        assert!(!path.exists() && second.path().is_dir());
    }

    #[test]
    fn directories_made_at_once_are_all_kept() {
        let tmp = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let held = HeldDirectory::new_in(tmp.path(), Purpose::Query).unwrap();
                        fs::write(held.path().join("a"), "x").unwrap();
                        std::thread::yield_now();
                        assert!(held.path().join("a").is_file());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
    }
}
