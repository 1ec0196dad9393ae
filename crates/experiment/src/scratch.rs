//! Folders that are removed with what is in them, whatever happens to the process that used them.

use crate::process;
use std::path::{Path, PathBuf};

/// A folder removed with what is in it.
#[derive(Debug)]
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// A new folder in `parent`.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub fn new(parent: &Path) -> Result<Self, String> {
        let path = parent.join(format!("fathom-bench-{}-{}", std::process::id(), process::now_ns()));
        match std::fs::create_dir(&path) {
            Ok(()) => Ok(Self(path)),
            Err(e) => Err(format!("cannot make a folder in {}: {e}", parent.display())),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A process that was killed a moment ago may still be writing; what it wrote after the first look goes with the
        // second. Storage that has vanished keeps what it has.
        let _ = std::fs::remove_dir_all(&self.0).or_else(|_| std::fs::remove_dir_all(&self.0));
    }
}
