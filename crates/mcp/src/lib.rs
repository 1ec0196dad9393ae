//! A read-only server of the Model Context Protocol that answers an assistant's questions about archives.
//!
//! [`inbox`] reads what the client sends, [`protocol`] parses a line, [`tools`] lists the tools, [`server`] answers a call by running a
//! verb of Fathom, [`claims`] lists the conclusions that an answer does not support, and [`fit`] keeps it within a budget of tokens. All
//! JSON handling is pure, so that hostile lines can be tested.

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
