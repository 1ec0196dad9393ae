//! Foreign traces, read and written: the formats of other tools, and none of our own.
//!
//! A crate of its own because two crates need it that must not use each other (the importers below and the exporters
//! above), and because it is pure: bytes in, bytes out, no file, no clock, so that every reader is fuzzed.

pub mod blktrace;
pub mod ftrace;
pub mod perfetto;
pub mod tracedat;
