//! Notices to the user while a benchmark is prepared. The caller decides whether and where to print them.

use model::counted;
use model::text::ShownPath as _;
use std::fmt;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Directories left by a killed run were removed.
    Removed {
        /// Number of directories.
        directories: usize,
        parent: PathBuf,
    },
    /// A value was replaced by another since it cannot run here.
    Instead(String),
    /// A damaged log was repaired.
    Mended(String),
    /// Settings of the machine that a killed run had changed were restored.
    PutBack(usize),
    /// A setting could not be restored.
    NotPutBack(String),
}

/// Receiver of notices.
pub type Notify<'a> = &'a dyn Fn(Notice);

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed { directories, parent } => {
                let directories = counted(*directories, "directory");
                write!(f, "removed {directories} in {}, left behind by a killed run", parent.shown())
            }
            Self::Instead(text) | Self::Mended(text) => f.write_str(text),
            Self::PutBack(count) => write!(f, "put back {} that a killed run had left", counted(*count, "setting")),
            Self::NotPutBack(why) => write!(f, "left by a killed run: {}", model::text::shown(why)),
        }
    }
}
