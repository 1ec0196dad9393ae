//! Helpers shared by the tests.

use std::path::PathBuf;

/// A scratch parent that must be empty at the end.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let test = module_path!().split("::").next().unwrap_or_default();
        let path = std::env::temp_dir().join(format!("fathom-{test}-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
