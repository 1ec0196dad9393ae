//! ftrace: the kernel's own trace buffers.
//!
//! - [`mod@format`]: the kernel's description of the layout of its events.
//! - [`page`]: the sub-buffers that hold them.
//! - [`seen`]: the events that mean something to Fathom, with their fields in places that are the same for every kernel.
//! - [`calls`]: the numbers of system calls, by architecture.
//! - [`merge`]: the CPUs' streams as one, in order of time.
//! - [`text`]: traces as text.
//! - [`gathered`]: what such a trace holds.
//! - [`translate`]: the same as events of the eBPF backend.

pub mod calls;
pub mod decoder;
pub mod format;
pub mod gathered;
pub mod merge;
pub mod page;
pub mod run;
pub mod text;
pub mod translate;
