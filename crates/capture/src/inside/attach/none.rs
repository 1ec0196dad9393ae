//! Replaces `attach` where it is not implemented: registers, the piece of code and the search for a thread's number are specific
//! to x86-64.

use crate::inside::error::NotImplanted;
use std::path::Path;

/// Stuck threads; there are none.
#[derive(Debug, Default)]
pub struct Stuck;

impl Stuck {
    /// Does nothing.
    pub fn let_go(&mut self) {}

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        true
    }
}

/// A process with the object in it; there is none.
#[derive(Debug)]
pub struct Attached;

impl Attached {
    pub fn pid(&self) -> u32 {
        0
    }

    /// Returns the same for a child.
    pub fn in_child(&self, _: u32) -> Self {
        Self
    }

    /// Does nothing.
    pub fn take_out(&self, _: &mut Stuck) -> bool {
        true
    }
}

pub fn attach(_: u32, _: &Path, _: bool, _: &mut Stuck, _: impl FnMut(&[usize])) -> Result<Attached, NotImplanted> {
    Err(NotImplanted::Unsupported("running processes can be probed inside on x86-64 only"))
}
