//! Archives to summaries: what operations, files and gaps mean.
//!
//! The crates that produce the archive turn events into rows and know neither statistics nor SQLite; this crate turns
//! rows into what people read, and knows nothing of the kernel. [`rows::Rows`] holds the tables of a recording; from it
//! come [`summary`] (the contract of `show --json`, see [`contract`]), [`show`] (the same for people), [`figures`] (what
//! the report draws), [`explain`] (findings, and where the time went), [`diff`] (two recordings, or two sides of
//! several), [`check`] (a program's requests as a contract), [`whatif`] (predictions) and [`papers`] (our values next to
//! the papers'). [`bench`] does the same for archives of benchmarks and network runs. The meaning of SQL texts and of
//! SQLite's files is in `sqlite`.

mod account;
pub mod bench;
mod blind;
mod by_key;
pub mod caveats;
mod charges;
pub mod check;
mod checkpoints;
pub mod completeness;
pub mod contract;
pub mod counts;
mod device_times;
pub mod diff;
mod driver;
mod entries;
pub mod explain;
pub mod figures;
mod files;
mod flaws;
mod gaps;
#[cfg(test)]
mod handmade;
pub mod host_clock;
mod lines;
mod older_archives;
pub mod papers;
mod probes;
pub mod rows;
pub mod show;
#[cfg(test)]
mod small_trace;
mod stacks;
pub mod summary;
pub mod text;
mod times;
mod tracer;
mod waited_io;
mod waits;
pub mod whatif;

pub use contract::Summary;
pub use rows::Rows;
pub use summary::{summarise, summarise_archive};
