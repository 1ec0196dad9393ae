//! Tests through the binary, by lane.
