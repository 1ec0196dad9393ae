//! Why a tool has no result. The assistant reads the text, so it names the remedy.

use model::text::ShownPath as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument is missing or has another type.
    #[error("the argument {name} is missing or is not a {wanted}")]
    Argument { name: &'static str, wanted: &'static str },
    /// A tool that is not offered.
    #[error("unknown tool: {0}")]
    NoTool(String),
    /// A path that cannot be followed.
    #[error("{path}: {source}")]
    NoPath {
        /// As it was given.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// A path that leads outside.
    #[error("{0} is outside the directories of this server")]
    Outside(String),
    /// Not an archive.
    #[error(transparent)]
    Archive(#[from] archive::Error),
    /// Reading it would write to it.
    #[error("{} has no tables, and this server only reads: run `fathom reindex` on it first", .0.shown())]
    NoTables(PathBuf),
    /// A query that is longer than an argument of a process may be.
    #[error("the query is longer than {}", model::text::bytes(*.0 as f64))]
    QueryTooLong(usize),
    /// A verb cannot be run.
    #[error("cannot run {}: {source}", program.shown())]
    Run {
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It takes too long.
    #[error("no answer within {} s; ask for less", .0.as_secs())]
    TimedOut(Duration),
    /// The client cancelled the request.
    #[error("cancelled")]
    Cancelled,
    /// Its answer is too large.
    #[error("the answer is larger than {}: ask for less with WHERE, GROUP BY or LIMIT", model::text::bytes(*.0 as f64))]
    AnswerTooLarge(u64),
    /// A verb refused, with its own message.
    #[error("{0}")]
    Refused(String),
    /// Its output is not JSON.
    #[error("its output is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
}

/// The result of a tool.
pub type Result<T> = std::result::Result<T, Error>;
