//! `fathom check`: what a program asks of the layers below, as a contract in a file, and how a later run differs.
//!
//! Times cannot be a contract: the same INSERTs take three times as long on a busy machine. Counts can. System calls are the program's
//! own, and exact; what the device is asked depends on who else flushes, and gets a band.
//!
//! [`observe`] counts a recording, [`contract`] is what several of them have in common, [`compare`] finds the differences of another,
//! [`because`] the setting that explains them, and [`text`] is what people read.

mod because;
mod compare;
pub mod contract;
mod count_name;
mod difference;
pub mod observe;
#[cfg(test)]
mod tests;
pub mod text;

pub use compare::{confirmed, confirmed_untraced, differences, judge, of_proc};
pub use contract::{Contract, Unreadable};
pub use difference::{Difference, Outcome};
pub use observe::{Counted, Observed, observe};
