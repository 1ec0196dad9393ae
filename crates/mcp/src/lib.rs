//! An assistant's questions about archives, answered by the Model Context Protocol; it only reads.
//!
//! [`inbox`] hears the client, [`protocol`] takes a line apart, [`tools`] says what is offered, [`server`] answers a call by a verb of
//! Fathom, [`claims`] says what the answer cannot carry, [`fit`] keeps it within a budget of tokens. What knows JSON is pure, so that
//! hostile lines can be tried on it.

pub mod claims;
pub mod error;
pub mod fit;
pub mod inbox;
pub mod protocol;
pub mod server;
pub mod tools;
pub mod verb;

pub use error::{Error, Result};
pub use server::Server;
