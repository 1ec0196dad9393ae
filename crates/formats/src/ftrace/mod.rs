//! ftrace: the kernel's own trace buffers.
//!
//! - [`mod@format`]: the kernel's description of the layout of its events.
//! - [`page`]: the sub-buffers that hold them.
//! - [`decoder`]: the events that Fathom interprets, with their fields at positions that are the same for every kernel.
//! - [`calls`]: the numbers of system calls, by architecture.
//! - [`merge`]: merges the CPUs' streams in time order.
//! - [`text`]: traces as text.
//! - [`content`]: the content of such a trace.
//! - [`translate`]: the same as events of the eBPF backend.

pub mod calls;
pub mod content;
pub mod decoder;
pub mod format;
pub mod merge;
pub mod page;
pub mod run;
pub mod text;
pub mod translate;
