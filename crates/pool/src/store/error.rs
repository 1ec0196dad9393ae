//! Why a store cannot be made or opened, and what to do.

use model::text::ShownPath as _;
use std::io;
use std::path::PathBuf;

/// Why a store cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.shown())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// Nothing at all.
    #[error(
        "{} does not exist; `fathom pool node --init --store {} --size SIZE` makes a store there", path.shown(), model::shell_word(path)
    )]
    Missing {
        /// Where.
        path: PathBuf,
    },
    /// No header.
    #[error(
        "{} is not a store (a truncated store has lost its headers, which are at its end); make one with `fathom \
         pool node --init --store {} --size SIZE` (of a disk, --size is optional)",
        path.shown(),
        model::shell_word(path)
    )]
    Unformatted {
        /// Where.
        path: PathBuf,
    },
    /// Nothing that a store could be.
    #[error(
        "{} is a folder, and a store is a file or a disk; make one with `fathom pool node --init --store {}/FILE --size SIZE`",
        path.shown(),
        model::shell_word(path)
    )]
    Folder {
        /// Where.
        path: PathBuf,
    },
    /// There is data that would be lost.
    #[error("{} is not empty and not a store; --import keeps its content as the store's data", path.shown())]
    NotEmpty {
        /// Where.
        path: PathBuf,
    },
    /// A store already.
    #[error("{} is already a store (node {node}); to replace it, remove it first", path.shown())]
    Exists {
        /// Where.
        path: PathBuf,
        /// Which node's.
        node: String,
    },
    /// Another process has it.
    #[error("{} is in use by another node, or mounted, or on a disk that is; a store has one node", path.shown())]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// From a newer release.
    #[error("{} was made by a newer Fathom (store version {version}, this program knows {known})", path.shown())]
    Newer {
        /// Where.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The newest that is known here.
        known: u32,
    },
    /// The wrong size.
    #[error("{}: {why}", path.shown())]
    Size {
        /// Where.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// Its checksums do not fit in memory.
    #[error(
        "{}: the checksums of {size_bytes} bytes of data need {needed_bytes} bytes of memory, and this machine has {total_bytes}; use \
         a smaller store, or a machine with more memory",
        path.shown()
    )]
    Memory {
        /// Where.
        path: PathBuf,
        /// Bytes of data.
        size_bytes: u64,
        /// Bytes of the table.
        needed_bytes: u64,
        /// Bytes of memory.
        total_bytes: u64,
    },
}
