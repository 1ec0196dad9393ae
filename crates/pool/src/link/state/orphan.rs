//! Writes that may still be executed although nobody waits for them any more, and requests that must not overtake them.

use super::Job;

/// A write or trim whose requester is gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Orphan {
    pub number: u64,
    pub offset: u64,
    pub length: u32,
}

impl Orphan {
    pub fn touches(&self, job: &Job) -> bool {
        let (one, other) = (self.offset, job.request.offset);
        let within = |from: u64, to: u64, length: u32| to >= from && to - from < u64::from(length);
        job.number > self.number
            && job.request.length > 0
            && (within(one, other, self.length) || within(other, one, job.request.length))
    }
}
