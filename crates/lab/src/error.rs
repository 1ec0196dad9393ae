//! Errors of the lab. A test is skipped on [`Error::Missing`] and fails on everything else.

use model::text::ShownPath as _;
use std::path::{Path, PathBuf};

/// Why something could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine lacks a program, a package or the network to fetch it.
    #[error("{0}")]
    Missing(String),
    /// This machine lacks a program that the scenario runs.
    #[error("workload.programs: {0} is not installed on this machine")]
    Workload(String),
    /// There is no Fathom program for the guest's architecture, or only one built from other sources.
    #[error("{0}")]
    Program(String),
    /// A file could not be read or written.
    #[error("cannot {what} {}: {source}", path.shown())]
    Io {
        /// The failed operation.
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// The guest did not boot, died, or did not answer in time. The text ends with its console's last lines.
    #[error("the guest {0}")]
    Guest(String),
}

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io { what, path: path.to_path_buf(), source }
    }
}

/// Finds a program on the path.
pub(crate) fn find_program(program: &str, package: &str) -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // mkfs and similar programs are outside an ordinary user's path.
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = directories.map(|directory| directory.join(program)).find(|file| file.is_file());
    found.ok_or_else(|| Error::Missing(format!("{program} is not installed (package {package})")))
}
