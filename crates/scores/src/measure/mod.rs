//! Turns a request for a benchmark into an evaluated archive: `experiment` measures, this crate's estimates determine how wide the intervals
//! are meanwhile, `workload` and `lab` provide programs and disks.
//!
//! [`run`] measures designs into an archive, [`ab`] compares commands, [`selftest`] compares a workload with itself, [`once`] runs a
//! workload without a design. [`archives`] selects the two sides of a comparison. [`results`] formats the output of the program.

pub mod ab;
pub mod archives;
pub mod error;
mod machine;
mod notice;
pub mod once;
pub mod quantity;
pub mod results;
pub mod run;
mod score;
pub mod selftest;
mod setting;
pub mod supervised;

pub use error::{Error, Result};
pub use machine::facts;
pub use notice::{Notice, Notify};

use archive::Archive;
use archive::table_maker::Failure;
use std::path::Path;

/// Opens an archive, making its tables if it has none; the caller provides the table makers of all kinds.
pub type Open<'a> = &'a dyn Fn(&Path) -> std::result::Result<Archive, Failure>;
