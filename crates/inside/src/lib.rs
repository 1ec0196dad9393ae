//! Probes inside the recorded process: the object that the loader loads, and what it shares with the recorder.
//!
//! A separate crate because its object is built for other programs, with another toolchain, and because its reader of their
//! records is pure: it can be fuzzed. The I/O (the directory, the files, the probes that inform the kernel side) is in
//! `capture`.
//!
//! | file | purpose |
//! |---|---|
//! | `object/` | the object: C without a libc, for x86-64 and aarch64 |
//! | [`layout`] | sizes, places and numbers that both sides share |
//! | [`image`] | how it is loaded into a program that has no loader |
//! | [`hook`] | how a function's code makes room for a jump, by processor |
//! | [`plan`] | the object's instructions: which functions of which files |
//! | [`question`] | what a process asks about a file that the plan may lack |
//! | [`piece`] | what a stopped thread is made to do before it resumes by itself |
//! | [`account`] | what was changed in a running process |
//! | [`ring`] | reads what it recorded, as untrusted input |

pub mod account;
pub mod hook;
pub mod image;
pub mod layout;
pub mod piece;
pub mod plan;
pub mod question;
pub mod ring;

/// The shared object; empty for unsupported processors.
pub static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inside.so"));

/// Functions of the object to which uprobes are attached: a thread reports where its state is (first argument: its address); a
/// library is hooked in this process (its place in the plan); a call could not be recorded.
pub const THREAD_FUNCTION: &str = "fathom_inside_thread";
pub const HOOKED_FUNCTION: &str = "fathom_inside_hooked";
pub const LOST_FUNCTION: &str = "fathom_inside_lost";
