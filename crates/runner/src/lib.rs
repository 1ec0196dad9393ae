//! A benchmark from a request to a judged archive. It joins rooms that must not know each other: `experiment`, which measures, and
//! `analysis`, which says how narrow an interval is already and what a recording shows; `workload` and `lab` give it programs and disks.
//!
//! [`run`] measures designs into an archive, [`ab`] commands beside each other, [`selftest`] a workload beside itself; [`fix`] tries
//! remedies, [`check`] counts what a command asks for, [`guest`] reads what a guest of the lab recorded, [`once`] runs a workload without a design. [`archives`] and [`both`] are two that are
//! compared. [`results`] puts together what leaves the program.

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
pub mod traced;

pub use error::{Error, Result};
pub use machine::facts;
pub use notice::{Notice, Notify};

use archive::Archive;
use archive::table_maker::Failure;
use std::path::Path;

/// Opens an archive, making its tables if it has none: who opens hands in the makers of all kinds.
pub type Open<'a> = &'a dyn Fn(&Path) -> std::result::Result<Archive, Failure>;
