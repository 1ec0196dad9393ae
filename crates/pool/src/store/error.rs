//! Why a store cannot be made or opened, and what to do.

use super::header::VERSION;
use std::io;
use std::path::PathBuf;

/// Why a store cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system said no.
    #[error("cannot {action} {}: {source}", path.display())]
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
        "there is no {}; `fathom pool node --init --store {} --size SIZE` makes a store there", path.display(), path.display()
    )]
    Missing {
        /// Where.
        path: PathBuf,
    },
    /// No header.
    #[error(
        "{} is no store of a pool (one that was cut short has lost its headers, which stand at its very end); make it one with \
         `fathom pool node --init --store {}`",
        path.display(),
        path.display()
    )]
    Unformatted {
        /// Where.
        path: PathBuf,
    },
    /// There is data that would be lost.
    #[error("{} is not empty and is no store of a pool; --import takes its content in as the store's data", path.display())]
    NotEmpty {
        /// Where.
        path: PathBuf,
    },
    /// A store already.
    #[error("{} is a store already (node {node}); remove it first if it may go", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
        /// Which node's.
        node: String,
    },
    /// Another process has it.
    #[error("{} is in use: by another node, or mounted, or a part of a disk that is; a store has one node", path.display())]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// From a newer release.
    #[error("{} was made by a newer Fathom (store version {version}, this program knows {VERSION})", path.display())]
    Newer {
        /// Where.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The wrong size.
    #[error("{}: {why}", path.display())]
    Size {
        /// Where.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
}
