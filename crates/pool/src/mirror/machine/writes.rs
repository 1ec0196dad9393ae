//! Writes and flushes: what they wait for, and how they end.

use super::super::mutant::Mutant;
use super::request::{Kind, Phase, Request};
use super::{Action, Activity, Machine, NodeSet, RequestError, RequestId, members};

impl Machine {
    pub(super) fn touch(&mut self, region: u32) {
        self.last_version += 1;
        self.active.insert(region, Activity { at_ms: self.now_ms, unflushed: true, version: self.last_version });
    }

    /// Whether a region is recorded as active, and has enough copies; if not, that is begun.
    pub(super) fn may_write(&mut self, region: u32) -> bool {
        let is_new = self.wanted.active.insert(region);
        self.is_changed |= is_new;
        if is_new {
            self.touch(region);
        }
        if is_new {
            // Who is away will not have what is written now.
            for node in members(self.placement.holders(region) & !self.up()) {
                if self.wanted.out >> node & 1 == 1 && self.can_go_without(node) && self.mutant != Mutant::ForgetBitmap
                {
                    self.wanted.lacks[node].insert(region);
                }
            }
            // Nor will a slow one have it on its medium.
            for node in members(self.placement.holders(region) & self.slow()) {
                if self.can_go_without(node) && self.excuse(node, region) {
                    self.wanted.put_out(1 << node);
                }
            }
        }
        let is_active = self.issued.iter().all(|record| record.active.contains(region));
        is_active
            && (self.counted(region) & self.targets(region)).count_ones() as usize >= self.placement.copies_needed()
    }

    pub(super) fn start_flush(&mut self, id: RequestId) {
        let unflushed = self.active.iter().filter(|(_, activity)| activity.unflushed);
        let regions: Vec<(u32, u64)> = unflushed.map(|(region, activity)| (*region, activity.version)).collect();
        if let Some(request) = self.requests.get_mut(&id) {
            (request.flushes, request.phase) = (regions, Phase::Running);
        }
    }

    /// The nodes that a request waits for.
    pub(super) fn rest_of(&self, id: RequestId) -> NodeSet {
        let request = &self.requests[&id];
        if request.kind == Kind::Flush {
            if self.mutant == Mutant::FlushWithoutRecord {
                return request.flushes.iter().fold(0, |set, (region, _)| set | self.unexcused(*region))
                    & self.up()
                    & !request.done
                    & !self.wanted.out;
            }
            let slow = self.slow();
            let of = |region: u32| self.unexcused(region) | (self.targets(region) & !slow);
            return request.flushes.iter().fold(0, |set, (region, _)| set | of(*region)) & !request.done;
        }
        if self.mutant == Mutant::AckAfterOne && request.done != 0 {
            return 0;
        }
        // Whoever gets the region's writes is waited for: one that was late would be done after the next one.
        (self.unexcused(request.region) | self.targets(request.region)) & !request.done
    }

    /// Whether enough copies have done it.
    pub(super) fn has_enough(&self, request: &Request) -> bool {
        let needed = self.placement.copies_needed();
        let enough = |region: u32| (self.counted(region) & request.done).count_ones() as usize >= needed;
        match (request.kind, self.mutant) {
            (_, Mutant::AckAfterOne | Mutant::ForgetBitmap | Mutant::FlushWithoutRecord) => true,
            (Kind::Flush, _) => request.flushes.iter().all(|(region, _)| enough(*region)),
            _ => enough(request.region),
        }
    }

    /// Ends a write or flush that is done.
    pub(super) fn complete(&mut self, id: RequestId) {
        let (rest, Some(request)) = (self.rest_of(id), self.requests.get(&id)) else { return };
        let enough = self.has_enough(request);
        let (kind, region, failed, live) = (request.kind, request.region, request.failed, request.live);
        if rest == 0 && enough && (kind != Kind::Flush || self.is_proved(request)) {
            debug_assert!(
                self.mutant != Mutant::None || kind == Kind::Flush || self.readable(region) & !request.done == 0,
                "a copy that may be read has not got a write"
            );
            if live != 0 && kind != Kind::Flush {
                // A copy that is no longer waited for may yet do it: others of its range come later.
                let Some(request) = self.requests.get_mut(&id) else { return };
                request.rest_since_ms.get_or_insert(self.now_ms);
                if !std::mem::replace(&mut request.is_answered, true) {
                    self.actions.push(Action::Reply { request: id, result: Ok(0) });
                }
                return;
            }
            let Some(request) = self.requests.remove(&id) else { return };
            if kind == Kind::Flush {
                self.remember_missed(&request);
                for (region, version) in request.flushes {
                    let unchanged = self.active.get_mut(&region).filter(|activity| activity.version == version);
                    unchanged.into_iter().for_each(|activity| activity.unflushed = false);
                }
            } else {
                self.touch(region);
            }
            if !request.is_answered {
                self.actions.push(Action::Reply { request: id, result: Ok(0) });
            }
            return;
        }
        if failed & rest != 0 && live == 0 && rest & !failed == 0 {
            self.end_failed(id);
            return;
        }
        let Some(request) = self.requests.get_mut(&id) else { return };
        if rest != 0 && (enough || request.done != 0) {
            request.rest_since_ms.get_or_insert(self.now_ms);
        }
    }

    /// What was flushed, and is not known to be on the media of slow nodes.
    fn remember_missed(&mut self, flush: &Request) {
        for node in members(self.up() & !flush.done) {
            self.nodes[node].missed.extend(flush.flushes.iter().map(|(region, _)| *region));
        }
    }

    /// All copies have answered, and the failed ones cannot be gone without: one copy becomes the truth, and an error the reply.
    pub(super) fn end_failed(&mut self, id: RequestId) {
        let Some(request) = self.requests.remove(&id) else { return };
        if request.kind != Kind::Flush {
            let truth = if request.done != 0 { request.done } else { 1 << request.failed.trailing_zeros() };
            for node in members(request.failed & !truth) {
                self.is_changed |= self.wanted.lacks[node].insert(request.region);
                self.nodes[node].copied.remove(request.region);
                self.wanted.put_out(1 << node);
            }
        }
        if let (false, Some(token)) = (request.is_answered, request.error) {
            self.actions.push(Action::Reply { request: id, result: Err(RequestError::Failed(token)) });
        }
    }
}
