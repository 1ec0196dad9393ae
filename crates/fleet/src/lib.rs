//! What a fleet of archives is, apart from its store and its SQL engine: the identity of a recording ([`identity`]), its row in the table
//! of archives ([`row`]), which texts are private ([`privacy`]), which files belong to the fleet ([`commits`], [`plan`]), archives on
//! devices ([`devices`]), and the command line ([`args`]).
//!
//! A crate of its own because it needs neither a store nor an engine: `sql`, which has both, is compiled only on request, and this is
//! always tested.

pub mod args;
pub mod candidates;
pub mod commits;
pub mod devices;
pub mod identity;
pub mod plan;
pub mod privacy;
pub mod questions;
pub mod row;

pub use identity::Identity;
pub use model::fleet::{ARCHIVES_TABLE, DATE_COLUMN, LEADING_COLUMNS, tables};
