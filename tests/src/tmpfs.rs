//! A small file system in memory: a disk that is full, or gone.

use crate::run;
use anyhow::Result;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Unmounted when dropped.
pub struct Tmpfs(pub PathBuf);

impl Tmpfs {
    /// Mounts one of this size, such as `64k`, at a folder that is made for it. Needs root.
    pub fn new(at: PathBuf, size: &str) -> Result<Self> {
        fs::create_dir(&at)?;
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&at))?;
        Ok(Self(at))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
