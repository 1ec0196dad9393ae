//! Network throughput tests, the sender's TCP state, an emulated link, and congestion controls.
//!
//! Traffic runs between two ends, the server ([`serve`]) and the client ([`run`]). They communicate over a control
//! connection ([`control`]), which carries the request ([`spec`]) and returns what each end measured ([`outcome`]). Data
//! uses separate connections ([`traffic`]), while the TCP state of the sending end is sampled every 10 ms ([`sampler`]).
//! The measurements become an estimate ([`estimate`]) and the causes that limited the transfer ([`why`]); both are pure.
//! [`result`] combines them, and [`rows`] converts the result to archive rows.

pub mod bound;
mod capability;
pub mod cc;
pub mod clock;
pub mod control;
mod error;
pub mod estimate;
pub mod flow;
pub mod highest_rate;
pub mod interface;
pub mod link;
pub mod local_run;
pub mod measure;
mod nan;
pub mod offset;
pub mod outcome;
pub mod probe;
pub mod progress;
pub mod quantity;
pub mod rate_check;
pub mod remote;
pub mod request;
pub mod result;
pub mod rows;
pub mod run;
pub mod run_archive;
pub mod sampler;
pub mod sampling_cost;
pub mod search;
pub mod serve;
pub mod show;
pub mod socket;
pub mod spec;
mod spec_error;
pub mod tcp_info;
pub mod traffic;
pub mod usage;
pub mod why;

pub use error::{Error, Result};
