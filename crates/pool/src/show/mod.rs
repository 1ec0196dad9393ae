//! What a pool's figures and state look like: pure, so that `fathom` only prints it.

pub mod bench;
pub mod nbd;
pub mod status;
