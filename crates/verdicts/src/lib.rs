//! What recordings prove. [`explain`] accounts for all time of a recording's statements and names the causes that it knows; [`diff`]
//! compares two recordings, statement by statement and call by call; [`check`] compares counts with a contract that is kept beside the
//! code; [`whatif`] predicts what a change would save; [`fix`] makes such a change on a copy and measures it.
//!
//! A verdict claims only what its rows prove, and carries the caveats of its recording ([`analysis::caveats`]). All but [`fix`] and
//! [`check::counted`], which start programs, are pure.

pub mod check;
pub mod checkpoints;
pub mod diff;
pub mod explain;
pub mod fix;
pub mod whatif;
