//! Formats a pool's results and state: pure, so that `fathom` only prints.

pub mod bench;
pub mod nbd;
pub mod scrub;
pub mod status;
