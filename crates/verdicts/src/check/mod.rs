//! `fathom check`: a program's requests to the layers below, as a contract in a file, and the differences of a later run.
//!
//! Times cannot be a contract: the same INSERTs take three times as long on a busy machine. Counts can. System calls depend only
//! on the program, and are exact; requests to the device depend on who else flushes, and get a range.
//!
//! [`observe`] counts a recording, [`contract`] is what several of them have in common, [`temporary`] merges calls on files whose names
//! differ in each run, [`proof`] shows what a contract would notice, [`compare`] finds the differences of
//! another one, [`because`] the setting that explains them, [`located`] the lines that make the calls. [`text`] and [`comment`] format them
//! for people, with a [`sentence`], [`sarif`] and [`junit`] for code hosts and CI systems.

pub mod attached_counts;
mod because;
pub mod comment;
mod compare;
pub mod contract;
mod count_name;
pub mod counted;
mod difference;
pub mod junit;
pub mod located;
pub mod observe;
pub mod proof;
pub mod sarif;
pub mod sentence;
mod temporary;
#[cfg(test)]
mod tests;
pub mod text;

pub use compare::{check_traced, check_untraced, differences, judge, untraced_differences};
pub(crate) use compare::{count_tolerance, count_weight};
pub use contract::{Contract, ContractError};
pub use difference::{Difference, Outcome};
pub use observe::{ObservedRun, SectionCounts, observe};
