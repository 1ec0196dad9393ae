//! Perfetto's trace format (`.pftrace`): a stream of `TracePacket` messages in the protobuf encoding, written and read
//! by hand.
//!
//! By hand, because we need a dozen of its several hundred messages, and those have kept their field numbers since
//! 2019: [`mod@fields`] lists all of them. The encoder is checked against Perfetto's own trace processor in
//! `tests/trace_processor.rs`.
//!
//! - [`wire`]: the protobuf encoding, both ways.
//! - [`Writer`]: tracks, slices, instants, counters, flows, one call each.
//! - [`lanes`]: slices of one track must nest, and concurrent work of a disk does not; hence lanes.
//! - [`export()`]: the rows of an archive as a trace.
//! - [`Reader`]: the packets of a trace.
//! - [`ftrace`]: the kernel's events in a trace.

pub mod export;
pub mod fields;
pub mod ftrace;
pub mod lanes;
pub mod reader;
pub mod wire;
pub mod writer;

pub use export::{Summary, Tables, export};
pub use reader::{Packet, Reader};
pub use writer::{Clocks, Flow, Note, Slice, Track, Writer};
