//! Many devices as one random-access disk.

pub mod setting;
pub mod tuner;
