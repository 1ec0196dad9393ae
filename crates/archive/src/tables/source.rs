//! The log that tables were made from. Log and tables are separate files of a directory that people copy: with half of one and all of the
//! other, a recording would pass as another, complete one.

use super::Index;
use crate::error::{Error, IoResultExt, Result};
use crate::layout;
use serde::{Deserialize, Serialize};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// A log at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogState {
    pub bytes: u64,
    /// CRC-32 of all of it.
    pub sum: u32,
}

/// The log of an archive, if it has one.
pub(crate) fn log_of(dir: &Path) -> Option<PathBuf> {
    [layout::events(dir), layout::runs(dir)].into_iter().find(|log| log.is_file())
}

/// The error for a log of the archive `dir` that is not that of its tables.
pub(crate) fn damaged_log_error(dir: &Path, log: PathBuf, why: String) -> Error {
    let tables = model::shell_word(&super::tables_directory(dir));
    let remedy = format!(
        "The tables are complete: copy the archive again; to make tables from what is left of the log instead, move these away first: \
         mv {tables} {tables}.before"
    );
    Error::Damaged { path: log, why, remedy }
}

impl LogState {
    /// That of the log of the archive `dir`; `None` if it has none.
    pub fn from_archive(dir: &Path) -> Result<Option<Self>> {
        let Some(path) = log_of(dir) else { return Ok(None) };
        let mut file = crate::own_file::open(&path).with_action("open", &path)?;
        let (mut sum, mut size, mut bytes) = (crc32fast::Hasher::new(), 0, vec![0; 1 << 20]);
        loop {
            match file.read(&mut bytes).with_action("read", &path)? {
                0 => return Ok(Some(Self { bytes: size, sum: sum.finalize() })),
                n => {
                    sum.update(&bytes[..n]);
                    size += n as u64;
                }
            }
        }
    }

    fn size(dir: &Path) -> Option<u64> {
        Some(std::fs::metadata(log_of(dir)?).ok()?.len())
    }

    /// Whether the log is longer now.
    pub fn has_grown(&self, dir: &Path) -> bool {
        Self::size(dir).is_some_and(|bytes| bytes > self.bytes)
    }
}

/// Reports that the log of the archive `dir` has become shorter since its tables were made.
pub fn cut_log(dir: &Path) -> Option<Error> {
    let (made_from, log) = (Index::read(dir).ok()?.log?, log_of(dir)?);
    let bytes = LogState::size(dir)?;
    (bytes < made_from.bytes).then(|| {
        damaged_log_error(dir, log, format!("it has {bytes} bytes, but its tables were made from {}", made_from.bytes))
    })
}
