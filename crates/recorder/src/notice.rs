//! What a user should know while a recording is made or linked. The caller decides how it reads, and what is worth saying.

use crate::Error;
use std::path::PathBuf;

/// One such fact.
#[derive(Debug)]
pub enum Notice {
    /// An archive's `meta.json` is missing or damaged; its events are linked without what it said.
    MetaUnreadable(archive::Error),
    /// What `meta.json` says of the machine is damaged; the events are linked without it.
    MetadataDamaged {
        /// The archive.
        archive: PathBuf,
        /// Why.
        error: Error,
    },
    /// An archive has no tables yet; its events are being linked.
    Linking {
        /// The archive.
        archive: PathBuf,
    },
}

/// Where notices go.
pub type Notify<'a> = &'a dyn Fn(Notice);
