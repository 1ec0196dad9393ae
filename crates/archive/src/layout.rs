//! The paths of the logs in an archive, and the longest record. `meta.json` is read before either log; without it, the logs tell
//! what the archive is.

use std::path::{Path, PathBuf};

/// Bytes of the longest record: the largest text (64 KiB) and its fields.
pub const RECORD_BYTES_MAX: usize = 128 << 10;

/// The log of a recording's events.
pub fn events(dir: &Path) -> PathBuf {
    dir.join("events.log")
}

/// The log of a benchmark's, or a network run's, processes.
pub fn runs(dir: &Path) -> PathBuf {
    dir.join("runs.jsonl")
}
