//! What a user should know while a benchmark is prepared. The caller decides whether and where it is printed.

use model::counted;
use model::text::ShownPath as _;
use std::fmt;
use std::path::PathBuf;

/// One such fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A killed run had left folders.
    Removed {
        /// How many.
        folders: usize,
        /// Where.
        parent: PathBuf,
    },
    /// A value gave way to another since it cannot run here.
    Instead(String),
    /// What was wrong with a log, and mended.
    Mended(String),
    /// Settings of the machine that a killed run had left were put back.
    PutBack(usize),
    /// One could not be.
    NotPutBack(String),
}

/// Where notices go.
pub type Notify<'a> = &'a dyn Fn(Notice);

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed { folders, parent } => {
                let folders = counted(*folders, "folder");
                write!(f, "removed {folders} in {}, left behind by a killed run", parent.shown())
            }
            Self::Instead(text) | Self::Mended(text) => f.write_str(text),
            Self::PutBack(count) => write!(f, "put back {} that a killed run had left", counted(*count, "setting")),
            Self::NotPutBack(why) => write!(f, "left by a killed run: {}", model::text::shown(why)),
        }
    }
}
