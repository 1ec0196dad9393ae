//! Errors of archives: each message states what happened, to which file, and what to do.

use model::text::ShownPath as _;
use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong with an archive.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused something.
    #[error("cannot {action} {}: {source}", path.shown())]
    Io {
        /// The failed operation, such as `read`.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The directory in which a file is to be created does not exist.
    #[error("there is no directory {}; make it first: mkdir -p {}", directory.shown(), model::shell_word(directory))]
    NoDirectory { directory: PathBuf },
    /// A directory is something else, and is left alone.
    #[error("{} is not a Fathom archive: {why}", path.shown())]
    NotAnArchive { path: PathBuf, why: String },
    /// An archive is there already.
    #[error("{} exists already; choose another name with -o, or remove it first", path.shown())]
    Exists { path: PathBuf },
    /// There is no space for it.
    #[error(
        "not enough space for {} (about {:.1} MiB): free some, or choose another path with -o; nothing was measured: \
         {source}",
        path.shown(), *bytes as f64 / 1048576.0
    )]
    NoSpace {
        path: PathBuf,
        /// How large it will be at least.
        bytes: u64,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process is writing the archive.
    #[error(
        "{} is being written{}; wait until it is complete, or give another name",
        path.shown(), pid.map_or(String::new(), |pid| format!(" by process {pid}"))
    )]
    Busy {
        path: PathBuf,
        /// The writer, if it is known.
        pid: Option<u32>,
    },
    /// A newer Fathom made it.
    #[error(
        "{} was made by {made_by}: its {what} has version {found}, and this Fathom ({}) reads versions up to \
         {newest}. Use that version of Fathom or a newer one",
        path.shown(), env!("CARGO_PKG_VERSION")
    )]
    Newer {
        path: PathBuf,
        /// The part whose version is too new.
        what: &'static str,
        /// That version.
        found: u32,
        /// The newest that this program knows.
        newest: u32,
        /// Who made it.
        made_by: String,
    },
    /// An archive of a kind that this program does not know.
    #[error(
        "{} was made by {made_by}: it is of kind {kind:?}, which this Fathom ({}) does not know. Use that version of \
         Fathom or a newer one",
        path.shown(), env!("CARGO_PKG_VERSION")
    )]
    UnknownKind {
        path: PathBuf,
        /// The kind in its `meta.json`.
        kind: String,
        /// Who made it.
        made_by: String,
    },
    /// A file's content is wrong.
    #[error("{} is damaged: {why}. {remedy}", path.shown())]
    Damaged {
        path: PathBuf,
        why: String,
        /// What to do.
        remedy: String,
    },
    /// The archive has a log but no tables yet.
    #[error("{} has no tables yet; `fathom reindex` builds them from its log", path.shown())]
    NotLinked { path: PathBuf },
    /// There is no space for more events. What was written before stays valid.
    #[error("{} is full ({why}): {kept_events} events were stored, {lost_events} were lost", path.shown())]
    Full {
        path: PathBuf,
        /// Whether the limit or the disk is the reason.
        why: NoRoom,
        /// Events in the log.
        kept_events: u64,
        /// Events that were appended but are not in it, including the one just refused.
        lost_events: u64,
    },
    /// The user interrupted.
    #[error("interrupted: {} was incomplete and has been removed", path.shown())]
    Interrupted { path: PathBuf },
    /// A record that no probe can have made was handed to the log.
    #[error(
        "cannot log a record of {bytes} bytes; records have {} to {} bytes",
        model::event::Header::SIZE,
        crate::layout::RECORD_BYTES_MAX
    )]
    BadRecord { bytes: usize },
}

/// Why a log takes no more. Reaching a requested limit is not a failure; a full disk always is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRoom {
    /// The requested limit.
    Limit { bytes: u64 },
    /// The disk, with the system's message.
    Disk(String),
}

impl std::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Limit { bytes } => write!(f, "the limit of {bytes} bytes was reached"),
            Self::Disk(why) => f.write_str(why),
        }
    }
}

/// A result with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Describes the defect of `meta.json`, without advising what is already being done.
    pub fn without_remedy(&self) -> String {
        match self {
            Self::Damaged { path, why, .. } => format!("{} is damaged: {why}", path.shown()),
            Self::NotAnArchive { path, .. } => format!("{} has no valid meta.json", path.shown()),
            other => other.to_string(),
        }
    }

    /// Whether an archive's log is usable in spite of this error of its `meta.json`.
    pub fn is_rescuable(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::NotAnArchive { .. })
    }

    /// `path` cannot be created: if its parent directory does not exist, the error names that.
    pub(crate) fn creating(action: &'static str, path: &Path, source: io::Error) -> Self {
        let directory = path.parent().filter(|directory| *directory != Path::new("") && !directory.is_dir());
        match directory {
            Some(directory) if source.kind() == io::ErrorKind::NotFound => {
                Self::NoDirectory { directory: directory.into() }
            }
            _ => Self::Io { action, path: path.into(), source },
        }
    }

    pub(crate) fn damaged_table(path: &Path, why: impl std::fmt::Display) -> Self {
        Self::Damaged {
            path: path.into(),
            why: why.to_string(),
            remedy: format!(
                "`fathom reindex {}` rebuilds the tables from the log",
                model::shell_word(path.parent().and_then(Path::parent).unwrap_or(path))
            ),
        }
    }
}

/// Whether the location written to is among an error's causes: no space, no quota, or not writable.
pub fn lacks_room(error: &(dyn std::error::Error + 'static)) -> bool {
    use io::ErrorKind as Kind;
    const LOCATION_ERROR_KINDS: [Kind; 5] =
        [Kind::StorageFull, Kind::QuotaExceeded, Kind::FileTooLarge, Kind::ReadOnlyFilesystem, Kind::PermissionDenied];
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|io| LOCATION_ERROR_KINDS.contains(&io.kind())) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Adds the failed operation and the file to an I/O error.
pub(crate) trait IoResultExt<T> {
    fn with_action(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoResultExt<T> for io::Result<T> {
    fn with_action(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { action, path: path.into(), source })
    }
}
