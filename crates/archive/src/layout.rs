//! Where the logs stand in an archive, and how long a record of one may be. `meta.json` is read before either of them, and tells by
//! them what an archive without it was.

use std::path::{Path, PathBuf};

/// Bytes of the longest record: the largest text (64 KiB) and its fields.
pub const MAX_RECORD: usize = 128 << 10;

/// The log of a recording's events.
pub fn events(dir: &Path) -> PathBuf {
    dir.join("events.log")
}

/// The log of a benchmark's, or a network run's, processes.
pub fn runs(dir: &Path) -> PathBuf {
    dir.join("runs.jsonl")
}
