//! In place of `attach` where it is not written: registers, the piece of code and the search for a thread's number are x86-64's.

use crate::inside::error::NotImplanted;
use std::path::Path;

/// There are none.
#[derive(Debug, Default)]
pub struct Stuck;

impl Stuck {
    /// Nobody.
    pub fn let_go(&mut self) {}

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        true
    }
}

/// There is none.
#[derive(Debug)]
pub struct Attached;

impl Attached {
    /// The process.
    pub fn pid(&self) -> u32 {
        0
    }

    /// The same in a child.
    pub fn in_child(&self, _: u32) -> Self {
        Self
    }

    /// Nothing is to be taken out.
    pub fn take_out(&self, _: &mut Stuck) -> bool {
        true
    }
}

/// # Errors
/// Always.
pub fn attach(_: u32, _: &Path, _: &mut Stuck, _: impl FnMut(&[usize])) -> Result<Attached, NotImplanted> {
    Err(NotImplanted::Unsupported("the object is brought into processes that run on x86-64 only"))
}
