//! What is read from the running kernel before the probes are loaded.

pub mod calls;
pub mod clock;
pub mod compat;
pub mod places;
pub mod symbols;
pub mod types;
