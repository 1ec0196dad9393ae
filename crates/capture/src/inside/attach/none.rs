//! Replaces `attach` where it is not implemented: registers, the piece of code and the search for a thread's number are specific
//! to x86-64.

use crate::inside::error::ImplantError;
use std::path::Path;

/// Stuck threads; there are none.
#[derive(Debug, Default)]
pub struct StuckThreads;

impl StuckThreads {
    /// Does nothing.
    pub fn release_stopped(&mut self) {}

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        true
    }
}

/// A process with the object in it; there is none.
#[derive(Debug)]
pub struct Attachment;

impl Attachment {
    pub fn pid(&self) -> u32 {
        0
    }

    /// Returns the same for a child.
    pub fn in_child(&self, _: u32) -> Self {
        Self
    }

    /// Does nothing.
    pub fn remove_object(&self, _: &mut StuckThreads) -> bool {
        true
    }
}

pub fn attach(
    _: u32,
    _: &Path,
    _: bool,
    _: &mut StuckThreads,
    _: impl FnMut(&[usize]),
) -> Result<Attachment, ImplantError> {
    Err(ImplantError::Unsupported("running processes can be probed inside on x86-64 only"))
}
