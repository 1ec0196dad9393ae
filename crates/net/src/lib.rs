//! Traffic over a network, the state of the sender's TCP, an emulated link, and congestion controls.
//!
//! Traffic runs between two ends, the server ([`serve`]) and the client ([`run`]). They agree over a control connection
//! ([`control`]), which carries what is asked for ([`spec`]) and brings back what each end saw ([`outcome`]). Data goes
//! through connections of its own ([`traffic`]), while the sending end's TCP is read every 10 ms ([`sampler`]). What was
//! seen becomes an estimate ([`estimate`]) and the causes that held the transfer back ([`why`]); both are pure. [`result`] puts them
//! together, and [`rows`] makes an archive's rows of that.

pub mod asked;
pub mod bound;
pub mod cc;
pub mod clock;
pub mod control;
mod error;
pub mod estimate;
pub mod here;
pub mod highest;
pub mod interface;
pub mod keep;
pub mod link;
pub mod measure;
mod nan;
pub mod offset;
pub mod outcome;
pub mod probe;
pub mod progress;
pub mod quantity;
pub mod rate_check;
pub mod remote;
pub mod result;
pub mod rows;
pub mod run;
pub mod sampler;
pub mod search;
pub mod serve;
pub mod show;
pub mod socket;
pub mod spec;
mod spec_error;
pub mod tcp_info;
pub mod traffic;
pub mod turns;
pub mod usage;
pub mod why;

pub use error::{Error, Result};
