//! The data of a request on its way to a node: in shared memory, where the node is on this machine, and otherwise in the frame.

use super::{Job, LARGE_BYTES, MemoryInUse, Parts, SHARED_DATA_BYTES_MIN};
use crate::frame::{Operation, WaitClass};
use crate::shm::Extent;
use nbd::buffer::{Buffer, shared_offset};

impl Job {
    pub(super) fn class(&self) -> WaitClass {
        self.request.class()
    }

    pub(super) fn is_large(&self) -> bool {
        self.bytes() >= LARGE_BYTES
    }

    /// Moves its data to shared memory, if it is there or can be.
    pub(super) fn move_to_shared_memory(&mut self) {
        match self.request.operation {
            Operation::Read if self.bytes() < SHARED_DATA_BYTES_MIN || self.request.unchecked => {}
            Operation::Read => {
                let buffer = Buffer::new(self.request.length as usize);
                self.extents = Extent::encode([&buffer[..]]);
                self.reply_buffer = self.extents.as_ref().map(|_| buffer);
            }
            Operation::Write if self.bytes() < SHARED_DATA_BYTES_MIN => {}
            Operation::Write => {
                self.extents = Extent::encode(self.data.iter().map(|part| &part[..]));
                if self.extents.is_none() && self.is_large() {
                    self.copy_to_shared();
                }
            }
            Operation::Flush | Operation::Trim | Operation::Map | Operation::Verify => {}
        }
        self.request.extent_count = self.extents.as_deref().map_or(0, Extent::count);
    }

    /// Copies its data to shared memory, if some is free now. When it was received there was none: a client may send more than
    /// is in flight to the node. In a frame it would be copied twice and summed twice.
    fn copy_to_shared(&mut self) {
        let mut buffer = Buffer::new(self.bytes());
        if shared_offset(&buffer).is_none() {
            return;
        }
        let mut begin = 0;
        for part in &self.data {
            buffer[begin..begin + part.len()].copy_from_slice(part);
            begin += part.len();
        }
        let data = buffer.into_bytes();
        self.extents = Extent::encode([&data[..]]);
        self.data = Parts::from_iter([data]);
    }

    /// Its connection is lost: returns the shared memory that the node may still use.
    pub(super) fn take_shared_memory(&mut self) -> Option<MemoryInUse> {
        self.extents.take()?;
        self.request.extent_count = 0;
        Some(MemoryInUse { _data: self.data.clone(), _into: self.reply_buffer.take() })
    }

    pub(super) fn bytes(&self) -> usize {
        match self.request.operation {
            Operation::Read | Operation::Write => self.request.length as usize,
            Operation::Flush | Operation::Trim | Operation::Map | Operation::Verify => 0,
        }
    }
}
