//! A piece of a code file in memory: kept for unwinding as long as a process is known, and shared by several processes.

use std::ops::{Deref, Range};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Bytes(Arc<[u8]>);

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Debug, Clone)]
pub struct Section {
    /// As the file is linked.
    pub addresses: Range<u64>,
    pub bytes: Bytes,
}
