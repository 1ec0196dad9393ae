//! Which pool and which coordinator a store belongs to: it is reserved for a new pool, claimed by a coordinator, and forgotten. A claim
//! is on the medium before it is answered, so that an older coordinator is refused even after a power cut.

use super::{Header, Store, check_belongs};
use crate::protocol::Claim;
use crate::refusal::Refusal;
use std::io;
use std::sync::PoisonError;

impl Store {
    /// Checks whether a coordinator of `pool` may use it.
    fn check_claim(&self, pool: &str, claim: &Claim) -> Result<(), Refusal> {
        let header = self.header();
        if !(header.reserved && claim.also.reserve) {
            check_belongs((&header.pool, header.place.as_ref()), (pool, &claim.place))?;
        }
        let taken = claim.epoch == header.epoch && claim.coordinator != header.coordinator;
        if claim.epoch < header.epoch || taken {
            let (has, claimed, coordinator) = (header.epoch, claim.epoch, header.coordinator);
            return Err(Refusal::Fenced { has, claimed, coordinator });
        }
        // A claim is on the medium before it is answered.
        if claim.also.again && header.epoch < claim.epoch {
            return Err(Refusal::OlderStore { has: header.epoch, was: claim.epoch });
        }
        // This process may have written the header of a copy, too.
        let (has, was) = (self.opened_sequence, claim.also.sequence);
        if claim.also.again && claim.also.instance != self.instance && has < was {
            return Err(Refusal::OlderCopy { has, was });
        }
        Ok(())
    }

    /// Records pool and position, for a pool that is being created: until a coordinator claims the store, which it does
    /// when all nodes have got that far, another one may overwrite them.
    pub fn reserve(&self, pool: &str, claim: &Claim) -> Result<(), Refusal> {
        self.check_claim(pool, claim)?;
        let reserved = self.write_header(|h| Self::record_owner(h, pool, claim, |h| h.reserved |= h.place.is_none()));
        reserved.map_err(|error| Refusal::Header(error.to_string()))
    }

    /// Claims the store for a coordinator: pool, position and epoch are on the medium when this returns.
    pub fn claim(&self, pool: &str, claim: &Claim) -> Result<(), Refusal> {
        self.check_claim(pool, claim)?;
        if !claim.also.accepts.is_empty() {
            // A coordinator may have written here what is lost, so that others know it when it is accepted.
            self.disk.sync().map_err(|error| Refusal::Header(error.to_string()))?;
        }
        let (mut accepted, mut failed) = (None, Vec::new());
        let renewed = |h: &mut Header| {
            failed = self.remember_failed_flush(h, claim);
            // A coordinator that had everything flushed has lost nothing; and a loss is accepted only if it is exactly this one.
            let same = (h.epoch, &h.coordinator) == (claim.epoch, &claim.coordinator);
            let also = &claim.also;
            let known = also.accepts == h.lost && (also.accepts_id.is_empty() || also.accepts_id == h.loss_id);
            if !h.lost.is_empty() && ((same && also.flushed) || known) {
                accepted = Some(h.lost.clone());
                h.accept_loss();
            }
            (h.reserved, h.clean) = (false, false);
        };
        let belongs = {
            let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
            let belongs = self.write_new_header(&mut header, |h| Self::record_owner(h, pool, claim, renewed));
            if belongs.is_ok() && !failed.is_empty() {
                // In this order: a flush that does not find this began before the regions count as written.
                self.flushes.set_failed(true);
                self.regions.iter().for_each(|regions| regions.mark_as_written(failed.iter().copied()));
            }
            belongs
        };
        self.check_if_suspect();
        belongs.map_err(|error| Refusal::Header(error.to_string()))?;
        accepted.iter().for_each(|ranges| self.accept_medium(ranges));
        // With the lock: more may have been recorded meanwhile.
        let header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
        self.flushes.set_failed(!header.lost.is_empty());
        Ok(())
    }

    fn record_owner(h: &mut Header, pool: &str, claim: &Claim, change: impl FnOnce(&mut Header)) {
        change(h);
        h.pool = pool.into();
        h.place = Some(claim.place.clone());
        h.disk = claim.also.disk.or(h.disk);
        h.epoch = claim.epoch;
        h.coordinator.clone_from(&claim.coordinator);
    }

    /// Removes the store from its pool, like a new one. Its data is kept.
    pub fn forget(&self) -> io::Result<()> {
        self.write_header(|h| (h.pool, h.place, h.disk, h.reserved) = (String::new(), None, None, false))
    }
}
