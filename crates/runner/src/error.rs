//! What can go wrong around a benchmark, apart from what the rooms below say themselves.

use archive::table_maker::Failure;
use model::text::ShownPath as _;
use std::io;
use std::path::PathBuf;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for makes no sense here: the text says what would.
    #[error("{0}")]
    Usage(String),
    /// The design, its folders, its disk or its sink.
    #[error(transparent)]
    Experiment(#[from] experiment::Error),
    /// The file of a design.
    #[error(transparent)]
    Catalog(#[from] experiment::catalog::Error),
    /// Its log.
    #[error(transparent)]
    Store(#[from] experiment::store::Error),
    /// What an interrupted run left.
    #[error(transparent)]
    Resume(#[from] experiment::resume::Error),
    /// Its archive.
    #[error(transparent)]
    Archive(#[from] archive::Error),
    /// An archive cannot be opened.
    #[error(transparent)]
    Open(Failure),
    /// The system refused something.
    #[error("{doing}")]
    Io {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A command that is run again and again failed.
    #[error("{what} failed: {how}")]
    Command {
        /// Which.
        what: String,
        /// Its status, and what it said.
        how: String,
    },
    /// A process of ours refused, in its own words.
    #[error("{0}")]
    Refused(String),
    /// There is no recording, and nothing else to go by.
    #[error("{why}\n{remedy}")]
    NotRecorded {
        /// What the recorder said.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// All recordings lost something.
    #[error("{tries} recordings in a row are incomplete, so nothing was compared: {why}")]
    Incomplete {
        /// How many were made.
        tries: u32,
        /// What the last one lost.
        why: String,
    },
    /// No contract was recorded yet.
    #[error("{}: there is no such contract; make one: fathom check record -o {} -- CMD", .0.shown(), model::shell_word(.0))]
    NoContract(PathBuf),
    /// A file that is something else.
    #[error("{} is no contract", .file.shown())]
    Contract {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: analysis::check::contract::Unreadable,
    },
    /// Neither tracing nor /proc counts anything.
    #[error(
        "nothing can be counted here: no tracing, and the kernel has no /proc/PID/io, or lets root alone read that of the command"
    )]
    NothingCounted,
    /// What a process printed is something else.
    #[error("what {what} printed cannot be read")]
    Printed {
        /// Which.
        what: &'static str,
        /// Why not.
        source: serde_json::Error,
    },
    /// A workload that is compared with itself failed, or cannot run.
    #[error("{0}")]
    Workload(String),
    /// Somebody asked for the end before there was a comparison.
    #[error("interrupted before one comparison was complete")]
    Interrupted,
    /// A workload failed, or a setting could not be made.
    #[error(transparent)]
    Setting(#[from] workload::Error),
    /// A folder of others.
    #[error("{} is not an archive and contains none made by `fathom bench run`", .0.shown())]
    NoBenchmark(PathBuf),
    /// An archive of another kind.
    #[error("{} is {kind}, not a benchmark; {instead}", .archive.shown())]
    OtherKind {
        /// The archive.
        archive: PathBuf,
        /// Its kind.
        kind: archive::ArchiveKind,
        /// What shows it.
        instead: &'static str,
    },
    /// An archive of another kind than a recording.
    #[error("{} is {kind}, not a recording; {instead}", .archive.shown())]
    NoRecording {
        /// The archive.
        archive: PathBuf,
        /// Its kind.
        kind: archive::ArchiveKind,
        /// The command that shows the like.
        instead: &'static str,
    },
    /// A benchmark of something else.
    #[error("{archive} contains no {what}")]
    NoFigure {
        /// Its name.
        archive: String,
        /// What it would have to hold.
        what: &'static str,
    },
    /// One alone, and no parameter of it.
    #[error("nothing to compare with: give a second archive, or --by PARAMETER")]
    NothingToCompare,
    /// Settings of the machine are not as they were.
    #[error("not everything was put back: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NotPutBack(Vec<device::knobs::NotPutBack>),
}

/// The result of what may go wrong here.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds to an I/O error what was being done.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl Into<String>) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Io { doing: what.into(), source })
    }
}
