//! Probes inside the recorded process: the object that the loader brings in, and what it shares with the recorder.
//!
//! A separate room because its object is made for other programs, by another toolchain, and because its reader of what they
//! leave is pure: it can be fuzzed. The I/O (the folder, the files, the probes that inform the kernel side) is `capture`'s.
//!
//! | file | what |
//! |---|---|
//! | `object/` | the object: C without a libc, for x86-64 and aarch64 |
//! | [`layout`] | sizes, places and numbers that both sides know |
//! | [`image`] | how it is brought into a program that has no loader |
//! | [`hook`] | how a function's code makes room for a jump, by processor |
//! | [`plan`] | the object's instructions: which functions of which files |
//! | [`question`] | what a process asks about a file that the plan may not have |
//! | [`piece`] | what a stopped thread is made to do, so that it goes on by itself |
//! | [`account`] | what was changed in a process that ran already |
//! | [`ring`] | reads what it recorded, as hostile input |

pub mod account;
pub mod hook;
pub mod image;
pub mod layout;
pub mod piece;
pub mod plan;
pub mod question;
pub mod ring;

/// The shared object; empty on processors that it was not written for.
pub static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inside.so"));

/// Functions of the object that uprobes stand on: a thread reports where its state is (first argument: its address); a library
/// is hooked in this process (its place in the plan); a call could not be recorded.
pub const THREAD: &str = "fathom_inside_thread";
/// See [`THREAD`].
pub const HOOKED: &str = "fathom_inside_hooked";
/// See [`THREAD`].
pub const LOST: &str = "fathom_inside_lost";
