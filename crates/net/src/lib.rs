//! Traffic over a network, what the sender's TCP says of it, and an emulated link.

pub mod cc;
pub mod link;
