//! Many devices as one random-access disk.

pub mod frame;
pub mod layout;
pub mod setting;
pub mod store;
pub mod tuner;
