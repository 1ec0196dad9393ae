//! Why SQLite cannot be probed inside: on this machine, in a library, in a stopped program. Uprobes are used then.

use crate::sqlite::entry::EntryError;
use inside::hook::HookError;
use inside::image::ImageError;
use model::text::ShownPath as _;
use std::path::PathBuf;

/// Why nothing can be probed inside on this machine.
#[derive(Debug, thiserror::Error)]
pub enum InsideError {
    /// The object exists for other processors only.
    #[error("there is no object for this processor yet")]
    NoObject,
    /// Pages have another size, as is possible on arm64 kernels.
    #[error("this kernel has pages of {0} bytes; the object is built for pages of 4096 bytes")]
    Pages(i64),
    /// The process numbers outside this namespace cannot be determined.
    #[error("{0}")]
    Namespace(String),
    /// Fathom runs in a container.
    #[error("Fathom runs in a container, whose process IDs are not the kernel's")]
    Container,
    /// Its clock differs from the kernel's.
    #[error("Fathom runs in a time namespace, whose clocks are not the kernel's")]
    TimeNamespace,
    /// None of the libraries can be probed inside.
    #[error("{}: {why}", path.shown())]
    Refused {
        /// The first of them.
        path: PathBuf,
        why: PlanError,
    },
    #[error("no library with SQLite in it was found before the command started")]
    NoLibrary,
    /// There is no tmpfs directory for the object.
    #[error("none of /dev/shm, /tmp and /run is a writable tmpfs without noexec")]
    NoDirectory,
    /// A file of the directory could not be created or written.
    #[error("{}: {}", path.shown(), crate::error::chain(source))]
    File { path: PathBuf, source: std::io::Error },
    /// This build's kernel side and object do not match.
    #[error("this build lacks {0}")]
    Build(&'static str),
    /// The kernel refused a table or a uprobe on the object.
    #[error("{0}")]
    Attach(String),
}

/// Why a library cannot be probed inside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("there are too many libraries with SQLite in them")]
    TooMany,
    /// `--op` names functions of too many files, or too many of one file.
    #[error("--op names functions of more than {0} files, or more than {1} functions of one file")]
    TooManyNamed(usize, usize),
    /// A named function must not be hooked, for this reason.
    #[error("{function}: {why}")]
    Named { function: String, why: &'static str },
    /// It is in another root, where the object is missing.
    #[error("it is in another root directory")]
    OtherRoot,
    /// The plan cannot be extended.
    #[error("the plan cannot be written: {0}")]
    Plan(String),
    /// Its file does not exist any more.
    #[error("its file cannot be inspected")]
    NoFile,
    #[error("{0} not found in it")]
    NoFunction(String),
    /// There is no function to probe under a name.
    #[error("{function}: {why}")]
    NoEntry { function: String, why: EntryError },
    #[error("{0}: its code cannot be read")]
    NoCode(String),
    /// A function's code is for another processor.
    #[error("{0}: it is for another architecture")]
    Architecture(String),
    #[error("{function}: {why}")]
    NoHook { function: String, why: HookError },
}

/// Why the object was not loaded into a program without a loader; the program runs unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ImplantError {
    /// This build has no suitable object.
    #[error("this build's object cannot be implanted")]
    Object,
    /// The program was released, or ended, before.
    #[error("{0}")]
    NotStopped(&'static str),
    #[error("it cannot be traced: {}", crate::error::chain(.0))]
    NotTraced(std::io::Error),
    /// A part of it cannot be read.
    #[error("{what} cannot be read{}", .source.as_ref().map_or_else(String::new, |e| format!(": {}", crate::error::chain(e))))]
    Unreadable {
        what: &'static str,
        /// The system's reason, if there is one.
        source: Option<std::io::Error>,
    },
    /// A system call in the stopped program failed; its changes were undone.
    #[error("{}", crate::error::chain(.0))]
    System(#[from] std::io::Error),
    /// Not now; it may be possible a moment later.
    #[error("{0}")]
    Busy(&'static str),
    /// It is of a kind that is left alone.
    #[error("{0}")]
    Unsupported(&'static str),
    /// Its file or memory is not understood.
    #[error("{0}")]
    Unfit(#[from] ImageError),
}
