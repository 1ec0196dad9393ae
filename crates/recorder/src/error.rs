//! What can go wrong while recording or linking.

use model::text::ShownPath as _;
use std::io;
use std::path::PathBuf;

/// Why there is no recording, or no tables for it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing can be recorded.
    #[error(transparent)]
    Capture(#[from] capture::Error),
    /// ftrace records nothing here.
    #[error(transparent)]
    Ftrace(#[from] capture::ftrace::Error),
    /// The request is supported by eBPF only.
    #[error("the ftrace backend does not record {0}; use --backend ebpf, or record a command or --pid")]
    NotByFtrace(String),
    /// Neither backend records here.
    #[error("{ebpf}; ftrace does not work either: {ftrace}")]
    NoBackend {
        /// Why not eBPF.
        ebpf: Box<Error>,
        /// Why not ftrace.
        ftrace: Box<Error>,
    },
    /// The command cannot be started.
    #[error(transparent)]
    Launch(#[from] capture::launch::LaunchError),
    /// There is no command, and nothing else to record.
    #[error("no command to run")]
    NoCommand,
    /// There is nothing to record in it.
    #[error("no process is in {}", .0.shown())]
    EmptyCgroup(PathBuf),
    /// The file of a function that is to be an operation was not found.
    #[error("--op {function}: {source}")]
    NoFile {
        /// Its file and name.
        function: String,
        source: crate::functions::NoFile,
    },
    /// Probes inside the command were requested and are not possible.
    #[error("the command cannot be probed inside: {why}; omit --probes inside to use uprobes")]
    NotInside { why: String },
    /// A function that is to be an operation cannot be probed.
    #[error("--op {function}: {why}")]
    Function {
        /// Its file and name.
        function: String,
        why: String,
    },
    /// The system refused something.
    #[error("{doing}")]
    Io {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The archive cannot be read or written.
    #[error(transparent)]
    Archive(#[from] archive::Error),
    /// `meta.json` cannot be written at the end of a recording.
    #[error("the events are kept; copy the archive to a disk with more space and run `fathom reindex` on it")]
    NoMeta(#[source] archive::Error),
    /// The archive does not exist any more.
    #[error("{} was removed while it was being written; the recording is lost", archive.shown())]
    Removed {
        archive: PathBuf,
        /// What could not be written.
        source: archive::Error,
    },
    /// The tables cannot be written.
    #[error("writing the tables of {}", dir.shown())]
    Tables { dir: PathBuf, source: archive::Error },
    /// A file cannot be imported.
    #[error("{}: {why}", file.shown())]
    Foreign { file: PathBuf, why: String },
    /// The metadata in `meta.json` cannot be read or written.
    #[error("meta.json: the metadata of the recording is damaged: {0}")]
    Metadata(#[from] serde_json::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether the archive's location is at fault: no space, no quota, or not a place to write to.
    pub fn lacks_room(&self) -> bool {
        archive::error::lacks_room(self)
    }
}

/// Adds to an I/O error what was being done.
pub(crate) trait ErrorContext<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> ErrorContext<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { doing: what(), source })
    }
}
