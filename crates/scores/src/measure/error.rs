//! Errors around a benchmark, in addition to those of the underlying crates.

use archive::table_maker::Failure;
use model::text::ShownPath as _;
use std::io;
use std::path::PathBuf;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An invalid request: the text explains what is valid.
    #[error("{0}")]
    Usage(String),
    /// The design, its directories, its disk or its sink.
    #[error(transparent)]
    Experiment(#[from] experiment::Error),
    /// The design's file.
    #[error(transparent)]
    Catalog(#[from] experiment::catalog::Error),
    #[error(transparent)]
    Store(#[from] experiment::store::Error),
    /// The state left by an interrupted run.
    #[error(transparent)]
    Resume(#[from] experiment::resume::Error),
    #[error(transparent)]
    Archive(#[from] archive::Error),
    /// An archive cannot be opened.
    #[error(transparent)]
    Open(Failure),
    /// A system call or I/O operation failed.
    #[error("{doing}")]
    Io {
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A repeatedly run command failed.
    #[error("{what} failed: {how}")]
    Command {
        what: String,
        /// Its status, and its output.
        how: String,
    },
    /// A process of ours failed, with its error message.
    #[error("{0}")]
    Refused(String),
    /// There is no recording, and no substitute for it.
    #[error("{why}\n{remedy}")]
    NotRecorded {
        /// The recorder's error.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// All recordings lost events.
    #[error("{tries} recordings in a row are incomplete, so nothing was compared: {why}")]
    Incomplete {
        /// Number of attempts.
        tries: u32,
        /// The loss of the last one.
        why: String,
    },
    /// No contract was recorded yet.
    #[error("{}: there is no such contract; make one: fathom check record -o {} -- CMD", .0.shown(), model::shell_word(.0))]
    NoContract(PathBuf),
    /// The file is not a contract.
    #[error("{} is not a contract", .file.shown())]
    Contract { file: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    /// Neither tracing nor /proc counts anything.
    #[error(
        "nothing can be counted here: no tracing, and the kernel has no /proc/PID/io, or lets only root read that of the command"
    )]
    NothingCounted,
    /// The output of a process is malformed.
    #[error("cannot read the output of {what}")]
    MalformedOutput { what: &'static str, source: serde_json::Error },
    /// A workload that is compared with itself failed, or cannot run.
    #[error("{0}")]
    Workload(String),
    /// Interrupted before there was a comparison.
    #[error("interrupted before one comparison was complete")]
    Interrupted,
    /// The user interrupted before there was a result.
    #[error("interrupted")]
    Cancelled,
    /// A workload failed, or a setting could not be made.
    #[error(transparent)]
    Setting(#[from] workload::Error),
    /// A directory with no benchmark.
    #[error("{} is not an archive and contains none made by `fathom bench run`", .0.shown())]
    NoBenchmark(PathBuf),
    /// An archive of another kind.
    #[error("{} is {kind}, not a benchmark; {instead}", .archive.shown())]
    OtherKind {
        archive: PathBuf,
        kind: archive::ArchiveKind,
        /// The command that shows it.
        instead: &'static str,
    },
    /// An archive of another kind than a recording.
    #[error("{} is {kind}, not a recording; {instead}", .archive.shown())]
    NoRecording { archive: PathBuf, kind: archive::ArchiveKind, instead: &'static str },
    /// A benchmark without the figures.
    #[error("{archive} contains no {what}")]
    NoFigure {
        archive: String,
        /// What it would need to contain.
        what: &'static str,
    },
    /// Only one archive, and no parameter to compare.
    #[error("nothing to compare with: give a second archive, or --by PARAMETER")]
    NothingToCompare,
    /// Some settings of the machine could not be restored.
    #[error("not everything was put back: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NotPutBack(Vec<device::knobs::RestoreError>),
}

/// Result with the error of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds the current operation to an I/O error.
pub trait IoContext<T> {
    fn doing(self, what: impl Into<String>) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn doing(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Io { doing: what.into(), source })
    }
}
