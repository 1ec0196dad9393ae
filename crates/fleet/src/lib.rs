//! What a fleet of archives is, apart from where it is stored and who asks it: which recording is which ([`identity`]), which
//! columns tell their rows apart ([`columns`]), what of it is private ([`privacy`]), and which files belong to it
//! ([`commits`], [`plan`]); which are on devices ([`devices`]); and how all that is asked for ([`args`]).
//!
//! A room of its own because it needs neither a store nor an engine: `sql`, which has both, is compiled only where somebody
//! asks for it, and what can go wrong here is tested always.

pub mod args;
pub mod columns;
pub mod commits;
pub mod devices;
pub mod identity;
pub mod plan;
pub mod privacy;
pub mod questions;

pub use columns::{ARCHIVES, DATE, LEADING, tables};
pub use identity::Identity;
