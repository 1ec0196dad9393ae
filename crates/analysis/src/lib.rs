//! Archives to summaries: what operations, files and gaps mean.
//!
//! The crates that produce the archive turn events into rows and know neither statistics nor SQLite; this crate turns
//! rows into what people read, and knows nothing of the kernel. [`rows::Rows`] holds the tables of a recording; from it
//! come [`summary`] (the contract of `show --json`, see [`contract`]), [`show`] (the same for people), [`figures`] (what
//! the report draws), [`explain`] (findings, and where the time went), [`diff`] (two recordings, or two sides of
//! several), [`check`] (a program's requests as a contract), [`whatif`] (predictions) and [`papers`] (our values next to
//! the papers'). [`bench`] does the same for archives of benchmarks and network runs. The meaning of SQL texts and of
//! SQLite's files is in `sqlite`.

pub mod account;
pub mod blind;
pub mod by_key;
pub mod caveats;
pub mod charges;
pub mod check_state;
pub mod completeness;
pub mod contract;
pub mod counts;
mod device_times;
mod driver;
pub mod entries;
pub mod figures;
mod files;
pub mod flaws;
mod gaps;
#[cfg(any(test, feature = "small-recordings"))]
pub mod handmade;
pub mod host_clock;
pub mod lines;
pub mod older_archives;
pub mod phase_names;
mod probes;
pub mod rows;
pub mod show;
#[cfg(any(test, feature = "small-recordings"))]
pub mod small_trace;
pub mod stacks;
pub mod summary;
pub mod text;
pub mod times;
pub mod tracer;
mod waited_io;
pub mod waits;

pub use contract::Summary;
pub use rows::Rows;
pub use summary::{summarise, summarise_archive};
