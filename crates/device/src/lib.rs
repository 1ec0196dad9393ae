//! Facts about the device under test.
