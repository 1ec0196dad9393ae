//! The data of a request on its way to a node: in shared memory, where the node is on this machine, and otherwise in the frame.

use super::{InUse, Job, LARGE_BYTES, Parts, WORTH_A_PLACE_BYTES};
use crate::frame::{Class, Operation};
use crate::shm::Extent;
use nbd::buffer::{Buffer, place};

impl Job {
    pub(super) fn class(&self) -> Class {
        self.request.class()
    }

    pub(super) fn is_large(&self) -> bool {
        self.bytes() >= LARGE_BYTES
    }

    /// Moves its data to shared memory, if it is there or can be.
    pub(super) fn share(&mut self) {
        match self.request.operation {
            Operation::Read if self.bytes() < WORTH_A_PLACE_BYTES || self.request.unchecked => {}
            Operation::Read => {
                let buffer = Buffer::new(self.request.length as usize);
                self.places = Extent::of([&buffer[..]]);
                self.into = self.places.as_ref().map(|_| buffer);
            }
            Operation::Write if self.bytes() < WORTH_A_PLACE_BYTES => {}
            Operation::Write => {
                self.places = Extent::of(self.data.iter().map(|part| &part[..]));
                if self.places.is_none() && self.is_large() {
                    self.copy_to_shared();
                }
            }
            Operation::Flush | Operation::Trim | Operation::Map | Operation::Verify => {}
        }
        self.request.places = self.places.as_deref().map_or(0, Extent::count);
    }

    /// Copies its data to shared memory, if some is free now. When it was received there was none: a client may send more than
    /// is in flight to the node. In a frame it would be copied twice and summed twice.
    fn copy_to_shared(&mut self) {
        let mut buffer = Buffer::new(self.bytes());
        if place(&buffer).is_none() {
            return;
        }
        let mut begin = 0;
        for part in &self.data {
            buffer[begin..begin + part.len()].copy_from_slice(part);
            begin += part.len();
        }
        let data = buffer.share();
        self.places = Extent::of([&data[..]]);
        self.data = Parts::from_iter([data]);
    }

    /// Its connection is lost: returns the shared memory that the node may still use.
    pub(super) fn unshare(&mut self) -> Option<InUse> {
        self.places.take()?;
        self.request.places = 0;
        Some(InUse { _data: self.data.clone(), _into: self.into.take() })
    }

    pub(super) fn bytes(&self) -> usize {
        match self.request.operation {
            Operation::Read | Operation::Write => self.request.length as usize,
            Operation::Flush | Operation::Trim | Operation::Map | Operation::Verify => 0,
        }
    }
}
