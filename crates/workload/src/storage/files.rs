//! The run's own directory: it contains everything that the run creates, and is removed when the run ends, fails or is
//! cancelled.
//!
//! Files keep their names while they are used, so that a recording can identify them and a user who wonders what fills
//! the disk can see it. The price: SIGKILL leaves them. They are named `fathom-…`.

use super::io_error::on;
use crate::{Error, clock};
use model::text::ShownPath as _;
use std::path::{Path, PathBuf};

/// A directory, removed with its content when dropped.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// Creates a directory in `dir` for the workload `name`.
    pub(crate) fn new(dir: &Path, name: &str) -> Result<Self, Error> {
        // A unique name; create_dir fails if it exists, so that nothing that belongs to others is ever removed.
        let path = dir.join(format!("fathom-{name}-{}-{}", std::process::id(), clock::now_ns()));
        std::fs::create_dir(&path).map_err(|e| super::io_error::failed("create a directory in", dir, &e))?;
        Ok(Self { path })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a directory inside.
    pub(crate) fn inner(&self, name: &str) -> Result<Self, Error> {
        let path = self.path.join(name);
        std::fs::create_dir(&path).map_err(on("create", &path))?;
        Ok(Self { path })
    }

    /// Ends the run with `result`: removes the directory, and reports if that fails.
    pub(crate) fn end<T>(self, result: Result<T, Error>) -> Result<T, Error> {
        let path = self.path.clone();
        let removed = std::fs::remove_dir_all(&path);
        // The drop would only retry.
        std::mem::forget(self);
        match (result, removed) {
            (result, Ok(())) => result,
            (Err(Error::Failed(why)), Err(e)) => {
                Err(Error::Failed(format!("{why} (and {} could not be removed: {e})", path.shown())))
            }
            (Err(other), Err(_)) => Err(other),
            (Ok(_), Err(e)) => Err(super::io_error::failed("remove", &path, &e)),
        }
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
