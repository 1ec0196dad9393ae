//! Archives to summaries: what operations, files and gaps mean.
//!
//! Everything before the archive turns events into rows and knows no statistics and no SQLite; everything here turns
//! rows into what people read, and knows no kernel. [`rows::Rows`] holds the tables; from it come [`summary`] (the
//! contract of `show --json`, see [`contract`]), [`show`] (the same for people), [`figures`] (what the report draws) and
//! [`papers`] (our values beside the papers'). What SQL texts and SQLite's files mean is in
//! `sqlite`.

mod account;
pub mod bench;
mod blind;
#[cfg(test)]
mod case;
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
mod gaps;
pub mod host_clock;
mod lines;
#[cfg(test)]
mod made;
mod older;
pub mod papers;
pub mod rows;
pub mod show;
mod stacks;
pub mod summary;
pub mod text;
mod times;
mod tracer;
mod waits;
pub mod whatif;

pub use contract::Summary;
pub use rows::Rows;
pub use summary::{summarise, summarise_archive};
