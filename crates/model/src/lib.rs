//! The vocabulary of Fathom, declared once: what a probe records ([`event`]), what a program records about itself
//! ([`marks`]), what the linker derives from both ([`table`]), what a fleet adds to it ([`fleet`]), and the handful of
//! common values ([`words`]). No I/O, no clock, and no dependency except serde, so that every other crate can depend on it.
//!
//! Everything needed by another language is generated from here by `cargo xtask gen`: the C header of the BPF programs
//! ([`record::c_header`]) and the reference pages of the manual.

mod column;
pub mod context;
mod count;
pub mod event;
pub mod fleet;
mod lines;
mod loss_scope;
pub mod marks;
pub mod messages;
pub mod packed;
pub mod place;
pub mod program;
pub mod quantity;
pub mod record;
pub mod scsi;
mod shell;
pub mod table;
pub mod text;
pub mod words;

pub use context::Context;
pub use count::counted;
pub use event::{Event, Record};
pub use lines::Lines;
pub use loss_scope::LossScope;
pub use shell::shell_word;
pub use words::*;
