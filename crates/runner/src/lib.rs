//! Turns a request for a benchmark into an evaluated archive. Joins crates that must not depend on each other: `experiment`,
//! which measures, and `analysis`, which determines current interval widths and the contents of recordings; `workload` and `lab`
//! provide programs and disks.
//!
//! [`run`] measures designs into an archive, [`ab`] compares commands, [`selftest`] compares a workload with itself; [`fix`]
//! tries remedies, [`check`] counts a command's requests, [`guest`] reads recordings of a guest of the lab, [`once`] runs a
//! workload without a design. [`archives`] and [`both`] select the two sides of a comparison. [`results`] formats the output of
//! the program.

pub mod ab;
pub mod archives;
pub mod both;
pub mod check;
mod error;
pub mod fix;
pub mod guest;
mod machine;
mod notice;
pub mod once;
pub mod papers;
pub mod papers_beside;
pub mod papers_network;
pub mod quantity;
pub mod results;
pub mod run;
mod score;
pub mod selftest;
mod setting;
mod supervised;
pub mod traced;

pub use error::{Error, Result};
pub use machine::facts;
pub use notice::{Notice, Notify};

use archive::Archive;
use archive::table_maker::Failure;
use std::path::Path;

/// Opens an archive, making its tables if it has none; the caller provides the table makers of all kinds.
pub type Open<'a> = &'a dyn Fn(&Path) -> std::result::Result<Archive, Failure>;
