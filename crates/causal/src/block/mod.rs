//! Block I/O: bios, the requests that carry them to a disk, and the flushes of its cache that they wait for.
//!
//! Completed commands are handed on (see `attribution`), with the charges that were determined when the bio was queued.

mod bio;
mod bios;
mod charging;
mod driver;
mod flush;
mod mmc;
mod nvme;
mod requests;
mod scsi;

use crate::actor::Charge;
use crate::attribution::PendingCommand;
use crate::context::Context;
use crate::hash::FastMap;
use crate::objects::Objects;
use crate::tasks::Tasks;
use bio::Bio;
use charging::PagesInTransit;
use driver::SentCommand;
use requests::Request;
use std::collections::VecDeque;

/// What block I/O queries and changes apart from its own state: who was doing what, and to which objects.
pub(crate) struct Env<'a, 'c> {
    pub tasks: &'a mut Tasks,
    pub objects: &'a mut Objects,
    pub cx: &'a mut Context<'c>,
}

/// Everything in flight to a disk.
#[derive(Default)]
pub(crate) struct BlockIo {
    bios: FastMap<u64, Bio>,
    /// Bios that need a flush, by age.
    barriers: VecDeque<u64>,
    /// Bios on disks that are backed by other disks, by age.
    on_stacked_disks: VecDeque<u64>,
    /// When requests entered the I/O scheduler.
    inserts: FastMap<u64, u64>,
    requests: FastMap<u64, Request>,
    /// Requests whose data is done but whose flush sequence is not, with their bios.
    sequences: FastMap<u64, Vec<u64>>,
    /// Commands that drivers sent and that have not ended, by address.
    sent: FastMap<u64, SentCommand>,
    /// Commands that ended and have not been handed on yet.
    completed: Vec<PendingCommand>,
    carried: PagesInTransit,
}

impl BlockIo {
    #[inline]
    pub(crate) fn has_completed(&self) -> bool {
        !self.completed.is_empty()
    }

    /// Hands on the commands that ended since the last call.
    pub(crate) fn take_completed(&mut self) -> impl Iterator<Item = PendingCommand> {
        self.completed.drain(..)
    }

    /// Ends the trace: what is still in flight has no end.
    pub(crate) fn finish(&mut self, env: &mut Env<'_, '_>) {
        let mut bios: Vec<(u64, u64)> = self.bios.iter().map(|(at, b)| (b.span, *at)).collect();
        bios.sort_unstable();
        bios.into_iter().for_each(|(_, at)| self.drop_bio(at, env));
        let mut requests: Vec<Request> = std::mem::take(&mut self.requests).into_values().collect();
        requests.sort_by_key(|r| r.command);
        let end_ns = env.cx.now_ns;
        requests.into_iter().for_each(|r| self.charge_open(r, end_ns, env));
        self.put_sent(env.cx);
        assert!(self.bios.is_empty() && self.requests.is_empty() && self.sent.is_empty(), "something has no row");
    }

    /// Panics if something in flight contradicts itself, or is beyond its bound.
    pub(crate) fn check_invariants(&self) {
        assert!(self.completed.is_empty(), "a command was not handed on");
        assert!(self.bios.len() <= bios::BIOS_MAX && self.barriers.len() <= bios::BARRIERS_MAX);
        assert!(self.on_stacked_disks.len() <= bios::STACKED_BIOS_MAX);
        let mapped = [self.inserts.len(), self.requests.len(), self.sequences.len()];
        assert!(mapped.iter().all(|entries| *entries <= requests::IN_FLIGHT_MAX), "{mapped:?}");
        assert!(self.bios.values().flat_map(|bio| &bio.charges).all(Charge::is_valid));
        self.requests.values().for_each(Request::check_invariants);
    }

    pub(crate) fn len(&self) -> usize {
        self.bios.len()
            + self.barriers.len()
            + self.on_stacked_disks.len()
            + self.inserts.len()
            + self.requests.len()
            + self.sequences.len()
            + self.sent.len()
    }
}
