//! The directory of kernels, and the directory of a run's result.

use crate::run::SCENARIO_FILE;
use model::text::ShownPath as _;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Why there is no directory.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// No directory for kernels is known.
    #[error("neither XDG_CACHE_HOME nor HOME is set: name a directory for kernels with --cache DIR")]
    NoHome,
    /// An existing file or directory is something else.
    #[error("{} exists and is not a lab result: name another directory with -o DIR", .0.shown())]
    Foreign(PathBuf),
    /// The path for the earlier result is taken.
    #[error("{} already exists; move it to keep {}", kept.shown(), directory.shown())]
    OldPathTaken {
        /// The path that is taken.
        kept: PathBuf,
        /// The earlier result.
        directory: PathBuf,
    },
    /// Another run is writing into it.
    #[error("{} is being written by another run: name another directory with -o DIR", .0.shown())]
    Busy(PathBuf),
    /// The system refused something.
    #[error("cannot {action} {}", path.shown())]
    Io {
        /// The failed operation.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// A result with an error of this module.
type Result<T> = std::result::Result<T, DirectoryError>;

fn io_result<T>(action: &'static str, path: &Path, done: io::Result<T>) -> Result<T> {
    done.map_err(|source| DirectoryError::Io { action, path: path.into(), source })
}

/// Returns the directory of kernels: the requested one, or the user's cache directory.
///
/// # Errors
/// None was requested, and the user has none.
pub fn cache(requested: Option<&Path>) -> Result<PathBuf> {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    match (requested, of("XDG_CACHE_HOME"), of("HOME")) {
        (Some(asked), _, _) => Ok(asked.to_path_buf()),
        (None, Some(cache), _) => Ok(cache.join("fathom/lab")),
        (None, None, Some(home)) => Ok(home.join(".cache/fathom/lab")),
        (None, None, None) => Err(DirectoryError::NoHome),
    }
}

/// Creates the directory, empty, and keeps other runs out of it while the returned file is open. That of an earlier run is moved out of the
/// way; anything else there stays, and is an error.
///
/// # Errors
/// The existing directory is not a result, another run is writing into it, or the system refuses.
pub fn create_result(directory: &Path) -> Result<File> {
    let is_result = |directory: &Path| directory.join(SCENARIO_FILE).is_file();
    let used = || Ok(std::fs::read_dir(directory)?.next().is_some());
    if directory.exists() && io_result("read", directory, used())? {
        if !is_result(directory) {
            return Err(DirectoryError::Foreign(directory.into()));
        }
        drop(lock(directory)?);
        let mut old = io_result("find", directory, directory.canonicalize())?.into_os_string();
        old.push(".old");
        let old = PathBuf::from(old);
        if old.exists() {
            if !is_result(&old) {
                return Err(DirectoryError::OldPathTaken { kept: old, directory: directory.into() });
            }
            io_result("remove", &old, std::fs::remove_dir_all(&old))?;
        }
        io_result("move aside", directory, std::fs::rename(directory, &old))?;
    }
    io_result("create", directory, std::fs::create_dir_all(directory))?;
    lock(directory)
}

/// Locks the directory; the lock ends with the process.
fn lock(directory: &Path) -> Result<File> {
    let file = io_result("open", directory, File::open(directory))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(DirectoryError::Busy(directory.into())),
        // Not every file system has locks.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_another_run_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("x.lab");
        let refused = || matches!(create_result(&directory), Err(DirectoryError::Busy(_)));
        let under_way = create_result(&directory).unwrap();
        assert!(refused(), "while its guest boots");
        std::fs::write(directory.join(SCENARIO_FILE), "1").unwrap();
        assert!(refused() && directory.join(SCENARIO_FILE).is_file(), "and while it runs");
        drop(under_way);
        create_result(&directory).unwrap();
        assert!(!directory.join(SCENARIO_FILE).exists());
    }

    #[test]
    fn earlier_result_is_kept_and_other_directories_not_moved() {
        let top = tempfile::tempdir().unwrap();
        let directory = top.path().join("x.lab");
        for run in ["1", "2", "3"] {
            create_result(&directory).unwrap();
            assert_eq!(directory.read_dir().unwrap().count(), 0);
            std::fs::write(directory.join(SCENARIO_FILE), run).unwrap();
        }
        let kept = std::fs::read_to_string(top.path().join("x.lab.old").join(SCENARIO_FILE)).unwrap();
        assert_eq!(kept, "2");
        let said = create_result(top.path()).unwrap_err().to_string();
        assert!(said.contains("is not a lab result") && directory.exists(), "{said}");
    }
}
