//! The words of Fathom, declared once: what a probe records ([`event`]), what a program records of itself ([`marks`]), what
//! the linker makes of both ([`table`]), and the handful of values all speak in ([`words`]). No I/O, no clock, and no
//! dependency but serde, so that every other room can stand on it.
//!
//! Everything that another language must know is generated from here by `cargo xtask gen`: the C header of the BPF
//! programs ([`record::c_header`]) and the reference pages of the manual.

pub mod context;
mod count;
pub mod event;
mod lines;
pub mod marks;
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
pub use shell::shell_word;
pub use words::*;
