//! Loads on storage: the sequential file of the papers' dd ([`seq`]), many small files ([`file`]), and random access
//! ([`random`]).
//!
//! Each states in one word, `--state`, what lies between the program and the disk, since that changes the number more
//! than most disks do ([`state`]). Each proves its result: every block carries a value computed from its offset and a
//! seed ([`pattern`]). Each reports the disk's own counts ([`directory`]), so that a "cold" read that never reached the disk,
//! or a read of one byte that cost a page, shows in the same lines as the score.
//!
//! Files are in a directory of the run's own, which is removed when the run ends, fails or is cancelled ([`files`]).

mod buffer;
mod directory;
pub mod file;
mod files;
mod io_error;
mod iterations;
mod lines;
mod machine;
mod pattern;
pub mod random;
pub mod seq;
mod state;
#[cfg(test)]
pub(crate) mod testing;
mod transfer;

pub(crate) use directory::{Account, Directory, check_free_space};
pub(crate) use lines::Lines;
pub(crate) use state::evict;
