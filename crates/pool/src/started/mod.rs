//! Nodes started on this machine for a measurement: one process each ([`process`]), connected by an emulated medium
//! ([`cluster`]), and computing while they are read ([`compute`]).

pub mod cluster;
pub mod compute;
mod error;
pub mod process;

pub use cluster::{Cluster, ClusterSpec};
pub use error::{Error, Result};
pub use process::NodeProcess;
