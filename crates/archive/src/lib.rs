//! `NAME.fathom/`: the only result format, written so that a crash or a full disk costs the newest second and never the
//! whole, and read so that nothing in it is trusted.
//!
//! ```text
//! NAME.fathom/
//!   meta.json        what this is, which versions wrote it; replaced as a whole, read before everything else
//!   events.log       what the probes recorded, in self-contained chunks          (see [`log`])
//!   runs.jsonl       what a benchmark measured, one line per replicate           (see [`runs`])
//!   lock             while it is written: the process that writes                (see [`Lock`])
//!   tables/          what the linker made of it, one Parquet file per table      (see [`tables`])
//!     index.json     which tables there are, and their rows
//! ```
//!
//! A crate of its own because every instrument writes this and every reader reads it, and because it alone needs
//! Parquet.
//!
//! The log is authoritative; the tables can always be made again from it. Hence the two are written in opposite ways:
//! the log grows chunk by chunk and is usable at every moment, the tables appear all at once, by renaming their directory,
//! and are either complete or absent.

mod archive;
pub mod atomic_file;
mod check_log;
pub mod error;
pub mod export;
pub mod interrupt;
mod kind;
mod layout;
mod lock;
pub mod log;
mod meta;
pub mod own_file;
mod packed;
pub mod runs;
pub mod signal_cleanup;
mod staged;
pub mod table_maker;
pub mod tables;
pub mod versions;

pub use archive::Archive;
pub use check_log::check_log;
pub use error::{Error, NoRoom, Result};
pub use kind::ArchiveKind;
pub use lock::Lock;
pub use log::{Damage, LogReader, LogSummary, LogWriter};
pub use meta::{Meta, MetaRoom, unix_now_ns};
pub use runs::{Runs, RunsWriter, is_lost};
pub use signal_cleanup::SignalCleanup;
pub use staged::StagedArchive;
pub use table_maker::TableMaker;
pub use tables::TablesWriter;
