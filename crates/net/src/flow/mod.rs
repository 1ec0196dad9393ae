//! Any program's flows, without traffic of our own: what the kernel says of its sockets, sampled, and what held each flow.
//!
//! | file | purpose |
//! |---|---|
//! | [`leaf`] | what a flow's time is divided into |
//! | [`account`] | samples become a division of the flow's whole time; pure |
//! | [`diag`] | the kernel's list of sockets, and of those destroyed |
//! | [`receiving`] | the same as far as a receiver can see; pure |
//! | [`openers`] | which process opened a connection that is gone |
//! | [`owners`] | which process has a socket open |
//! | [`table`] | the flows that are followed, in bounded memory; pure |
//! | [`watch`] | passes over the sockets, until it ends |

pub mod account;
pub mod diag;
pub mod leaf;
pub mod openers;
pub mod owners;
pub mod receiving;
pub mod table;
pub mod watch;
