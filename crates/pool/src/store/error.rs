//! Why a store cannot be created or opened, and how to fix it.

use model::text::ShownPath as _;
use std::io;
use std::path::PathBuf;

/// Why a store cannot be created or opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {}: {source}", path.shown())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// The file does not exist.
    #[error(
        "{} does not exist; `fathom pool node --init --store {} --size SIZE` makes a store there", path.shown(), model::shell_word(path)
    )]
    Missing { path: PathBuf },
    /// There is no valid header.
    #[error(
        "{} is not a store (a truncated store has lost its headers, which are at its end); make one with `fathom \
         pool node --init --store {} --size SIZE` (of a disk, --size is optional)",
        path.shown(),
        model::shell_word(path)
    )]
    Unformatted { path: PathBuf },
    /// The path is a directory.
    #[error(
        "{} is a directory, and a store is a file or a disk; make one with `fathom pool node --init --store {}/FILE --size SIZE`",
        path.shown(),
        model::shell_word(path)
    )]
    Directory { path: PathBuf },
    /// It contains data that would be lost.
    #[error("{} is not empty and not a store; --import keeps its content as the store's data", path.shown())]
    NotEmpty { path: PathBuf },
    /// It already is a store.
    #[error("{} is already a store (node {node}); to replace it, remove it first", path.shown())]
    Exists {
        path: PathBuf,
        /// The name of its node.
        node: String,
    },
    /// Another process uses it.
    #[error("{} is in use by another node, or mounted, or on a disk that is; a store has one node", path.shown())]
    InUse { path: PathBuf },
    /// It is of a newer release.
    #[error("{} was made by a newer Fathom (store version {version}, this program supports {known})", path.shown())]
    Newer {
        path: PathBuf,
        version: u32,
        /// The newest supported version.
        known: u32,
    },
    #[error("{}: {why}", path.shown())]
    Size {
        path: PathBuf,
        /// What is wrong, and how to fix it.
        why: String,
    },
    /// Its checksums do not fit into memory.
    #[error(
        "{}: the checksums of {size_bytes} bytes of data need {needed_bytes} bytes of memory, and this machine has {total_bytes}; use \
         a smaller store, or a machine with more memory",
        path.shown()
    )]
    Memory {
        path: PathBuf,
        /// Bytes of data.
        size_bytes: u64,
        /// Bytes of the table.
        needed_bytes: u64,
        /// Bytes of memory.
        total_bytes: u64,
    },
}
