//! A small file system in memory: a disk that is full, or gone.

use anyhow::Result;
use lab::kept::UndoGuard;
use std::fs;
use std::path::PathBuf;

/// Unmounted when dropped, or when the test is killed.
pub struct Tmpfs(pub PathBuf, #[expect(dead_code, reason = "it is for its end")] UndoGuard);

impl Tmpfs {
    /// Mounts one of this size, such as `64k`, at a directory that is created for it. Needs root.
    pub fn new(at: PathBuf, size: &str) -> Result<Self> {
        fs::create_dir(&at)?;
        Self::mount_at(at, &format!("size={size}"))
    }

    /// Mounts one with these options at an existing directory.
    pub fn mount_at(at: PathBuf, options: &str) -> Result<Self> {
        let kept = UndoGuard::mount("tmpfs", options, &at)?;
        Ok(Self(at, kept))
    }
}
