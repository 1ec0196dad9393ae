//! What can go wrong while recording or linking.

use std::path::PathBuf;

/// Why there is no recording, or no tables of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive cannot be read or written.
    #[error(transparent)]
    Archive(#[from] archive::Error),
    /// The tables cannot be written.
    #[error("writing the tables of {}", dir.display())]
    Tables {
        /// The archive.
        dir: PathBuf,
        /// Why not.
        source: archive::Error,
    },
    /// What `meta.json` says of the machine cannot be read or written.
    #[error("meta.json: what is known of the machine is damaged: {0}")]
    Metadata(#[from] serde_json::Error),
}

/// A result of this room.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether the archive's place is at fault: no space, no quota, or not a place to write to.
    pub fn lacks_room(&self) -> bool {
        use std::io::ErrorKind as Kind;
        const KINDS: [Kind; 5] = [
            Kind::StorageFull,
            Kind::QuotaExceeded,
            Kind::FileTooLarge,
            Kind::ReadOnlyFilesystem,
            Kind::PermissionDenied,
        ];
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if error.downcast_ref::<std::io::Error>().is_some_and(|io| KINDS.contains(&io.kind())) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}
