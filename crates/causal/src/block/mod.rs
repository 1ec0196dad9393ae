//! Block I/O: bios, the requests that carry them to a disk, and the flushes of its cache that they wait for.
//!
//! What is completed is handed on (see `attribution`), with the charges that were determined when the bio was queued.

mod bio;
mod bios;
mod charging;
mod driver;
mod flush;
mod mmc;
mod nvme;
mod requests;
mod scsi;

use crate::attribution::Pending;
use crate::context::Context;
use crate::hash::FastMap;
use crate::objects::Objects;
use crate::pages::Taken;
use crate::tasks::Tasks;
use bio::Bio;
use driver::Sent;
use requests::Request;
use std::collections::VecDeque;

/// What block I/O asks and changes beside its own tracker: who was doing what, and what they did it to.
pub(crate) struct Env<'a, 'c> {
    pub tasks: &'a mut Tasks,
    pub objects: &'a mut Objects,
    pub cx: &'a mut Context<'c>,
}

/// All that is on its way to a disk.
#[derive(Default)]
pub(crate) struct BlockIo {
    bios: FastMap<u64, Bio>,
    /// Bios that want a flush, by age.
    barriers: VecDeque<u64>,
    /// Bios on disks that stand on other disks, by age.
    above: VecDeque<u64>,
    /// When requests entered the I/O scheduler.
    inserts: FastMap<u64, u64>,
    requests: FastMap<u64, Request>,
    /// Requests whose data is done but whose flush sequence is not, with their bios.
    sequences: FastMap<u64, Vec<u64>>,
    /// Commands that drivers sent and that have not ended, by address.
    sent: FastMap<u64, Sent>,
    /// Commands that are over, and not handed on yet.
    completed: Vec<Pending>,
    /// Kept for its memory.
    taken: Vec<Taken>,
}

impl BlockIo {
    #[inline]
    pub(crate) fn has_completed(&self) -> bool {
        !self.completed.is_empty()
    }

    /// Hands on the commands that are over since the last call.
    pub(crate) fn completed(&mut self) -> impl Iterator<Item = Pending> {
        self.completed.drain(..)
    }

    /// The end of the trace: what is still on its way has no end.
    pub(crate) fn finish(&mut self, env: &mut Env<'_, '_>) {
        let mut bios: Vec<(u64, u64)> = self.bios.iter().map(|(at, b)| (b.span, *at)).collect();
        bios.sort_unstable();
        bios.into_iter().for_each(|(_, at)| self.drop_bio(at, env));
        let mut requests: Vec<Request> = std::mem::take(&mut self.requests).into_values().collect();
        requests.sort_by_key(|r| r.command);
        let end_ns = env.cx.now_ns;
        requests.into_iter().for_each(|r| self.charge_open(r, end_ns, env));
        self.put_sent(env.cx);
    }

    pub(crate) fn len(&self) -> usize {
        self.bios.len()
            + self.barriers.len()
            + self.above.len()
            + self.inserts.len()
            + self.requests.len()
            + self.sequences.len()
            + self.sent.len()
    }
}
