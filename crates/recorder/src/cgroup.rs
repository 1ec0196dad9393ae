//! The processes of a cgroup.

use crate::{Error, ErrorContext, Result};
use model::text::ShownPath as _;
use std::path::{Path, PathBuf};

/// Where cgroup v2 is mounted; where version 1 is in use beside it, below that.
const MOUNT_POINTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Returns the processes in a cgroup, given by its directory or by its path below the root cgroup, and in those below it.
///
/// # Errors
/// It cannot be read, or has no process.
pub fn processes(cgroup: &Path) -> Result<Vec<u32>> {
    let directory = directory_of(cgroup);
    let (mut found, mut directories) = (Vec::new(), vec![directory.clone()]);
    while let Some(directory) = directories.pop() {
        let file = directory.join("cgroup.procs");
        let text = std::fs::read_to_string(&file).doing(|| format!("reading the cgroup's {}", file.shown()))?;
        found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
        let below = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        directories.extend(below.map(|entry| entry.path()).filter(|path| is_cgroup(path)));
    }
    if found.is_empty() { Err(Error::EmptyCgroup(directory)) } else { Ok(found) }
}

fn directory_of(cgroup: &Path) -> PathBuf {
    let [root, beside] = MOUNT_POINTS.map(Path::new);
    if cgroup.starts_with(root) {
        return cgroup.into();
    }
    let below = |root: &Path| root.join(cgroup.strip_prefix("/").unwrap_or(cgroup));
    [below(root), below(beside)].into_iter().find(|path| is_cgroup(path)).unwrap_or_else(|| below(root))
}

fn is_cgroup(directory: &Path) -> bool {
    directory.join("cgroup.procs").is_file()
}
