//! The folder of kernels, and the folder of a run's result.

use crate::run::SCENARIO;
use model::text::ShownPath as _;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Why there is no folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// No folder for kernels is known.
    #[error("neither XDG_CACHE_HOME nor HOME is set: name a folder for kernels with --cache DIR")]
    NoHome,
    /// An existing file or folder is something else.
    #[error("{} exists and is not a lab result: name another folder with -o DIR", .0.shown())]
    Foreign(PathBuf),
    /// The path for the earlier result is taken.
    #[error("{} already exists; move it to keep {}", kept.shown(), folder.shown())]
    Kept {
        /// The path that is taken.
        kept: PathBuf,
        /// The earlier result.
        folder: PathBuf,
    },
    /// Another run is writing into it.
    #[error("{} is being written by another run: name another folder with -o DIR", .0.shown())]
    Busy(PathBuf),
    /// The system refused something.
    #[error("cannot {action} {}", path.shown())]
    Io {
        /// The failed operation.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// A result with an error of this module.
type Result<T> = std::result::Result<T, FolderError>;

fn tried<T>(action: &'static str, path: &Path, done: io::Result<T>) -> Result<T> {
    done.map_err(|source| FolderError::Io { action, path: path.into(), source })
}

/// Returns the folder of kernels: the requested one, or the user's cache folder.
///
/// # Errors
/// None was requested, and the user has none.
pub fn cache(asked: Option<&Path>) -> Result<PathBuf> {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    match (asked, of("XDG_CACHE_HOME"), of("HOME")) {
        (Some(asked), _, _) => Ok(asked.to_path_buf()),
        (None, Some(cache), _) => Ok(cache.join("fathom/lab")),
        (None, None, Some(home)) => Ok(home.join(".cache/fathom/lab")),
        (None, None, None) => Err(FolderError::NoHome),
    }
}

/// Creates the folder, empty, and keeps other runs out of it while the returned file is open. That of an earlier run is moved out of the
/// way; anything else there stays, and is an error.
///
/// # Errors
/// The existing folder is not a result, another run is writing into it, or the system refuses.
pub fn result(folder: &Path) -> Result<File> {
    let is_result = |folder: &Path| folder.join(SCENARIO).is_file();
    let used = || Ok(std::fs::read_dir(folder)?.next().is_some());
    if folder.exists() && tried("read", folder, used())? {
        if !is_result(folder) {
            return Err(FolderError::Foreign(folder.into()));
        }
        drop(own(folder)?);
        let mut old = tried("find", folder, folder.canonicalize())?.into_os_string();
        old.push(".old");
        let old = PathBuf::from(old);
        if old.exists() {
            if !is_result(&old) {
                return Err(FolderError::Kept { kept: old, folder: folder.into() });
            }
            tried("remove", &old, std::fs::remove_dir_all(&old))?;
        }
        tried("move aside", folder, std::fs::rename(folder, &old))?;
    }
    tried("create", folder, std::fs::create_dir_all(folder))?;
    own(folder)
}

/// Locks the folder; the lock ends with the process.
fn own(folder: &Path) -> Result<File> {
    let file = tried("open", folder, File::open(folder))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(FolderError::Busy(folder.into())),
        // Not every file system has locks.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_of_other_run_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("x.lab");
        let refused = || matches!(result(&folder), Err(FolderError::Busy(_)));
        let under_way = result(&folder).unwrap();
        assert!(refused(), "while its guest boots");
        std::fs::write(folder.join(SCENARIO), "1").unwrap();
        assert!(refused() && folder.join(SCENARIO).is_file(), "and while it runs");
        drop(under_way);
        result(&folder).unwrap();
        assert!(!folder.join(SCENARIO).exists());
    }

    #[test]
    fn earlier_result_is_kept_and_other_directories_not_moved() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("x.lab");
        for run in ["1", "2", "3"] {
            result(&folder).unwrap();
            assert_eq!(folder.read_dir().unwrap().count(), 0);
            std::fs::write(folder.join(SCENARIO), run).unwrap();
        }
        let kept = std::fs::read_to_string(top.path().join("x.lab.old").join(SCENARIO)).unwrap();
        assert_eq!(kept, "2");
        let said = result(top.path()).unwrap_err().to_string();
        assert!(said.contains("is not a lab result") && folder.exists(), "{said}");
    }
}
