//! What a node lacks is copied to it, a region at a time: read from a copy in sync, written, and, some regions together, flushed and
//! recorded. So progress survives whatever ends, and a region that a request waits for comes first.

use super::super::mutant::Mutant;
use super::super::regions::RegionSet;
use super::{COPIED_MAX, COPY_BYTES, Copy, Fault, LATE_MS, Machine, NodeSet, Purpose, Reason, Token, Work, members};

/// A flush in this time is not slow.
const SLOW_FLUSH_MS: u64 = LATE_MS / 2;

impl Machine {
    /// Copies to a node what it lacks, a region at a time.
    pub(super) fn resync(&mut self, node: usize) {
        let state = &self.nodes[node];
        if !state.up || state.copy.is_some() || state.flushing.is_some() {
            return;
        }
        if self.wanted.lacks[node].is_empty() {
            if state.is_slow {
                // Whether it still is.
                if self.now_ms >= state.pause_until_ms {
                    self.nodes[node].flushing = Some(RegionSet::default());
                    self.send(node, Purpose::CopyFlush, Work::Flush);
                }
            } else if self.wanted.out >> node & 1 == 1 {
                self.wanted.out &= !(1 << node);
                self.is_changed = true;
            }
            return;
        }
        let awaited: RegionSet = self.waiting.iter().filter_map(|id| self.requests.get(id)).fold(
            RegionSet::default(),
            |mut set, request| {
                set.insert(request.region);
                set
            },
        );
        let is_missing = |region: &u32| !state.copied.contains(*region) && self.can_copy(node, *region);
        let urgent = self.wanted.lacks[node].iter().filter(|region| awaited.contains(*region)).find(is_missing);
        let is_paused = self.now_ms < state.pause_until_ms;
        let next = urgent.or_else(|| (!is_paused).then(|| self.wanted.lacks[node].iter().find(is_missing)).flatten());
        let is_awaited = state.copied.iter().any(|region| awaited.contains(region)) && !(state.is_slow && is_paused);
        let is_full = state.unflushed_copies >= COPIED_MAX;
        if !state.copied.is_empty() && ((next.is_none() && !is_paused) || is_full || (urgent.is_none() && is_awaited)) {
            let state = &mut self.nodes[node];
            state.flushing = Some(state.copied.clone());
            state.unflushed_copies = 0;
            // A write that it was given without durability, and may not have done before this flush.
            state.missed = self
                .requests
                .values()
                .filter(|r| (r.weak & !r.done) >> node & 1 == 1 && r.is_running_write())
                .fold(RegionSet::default(), |mut set, request| {
                    set.insert(request.region);
                    set
                });
            self.send(node, Purpose::CopyFlush, Work::Flush);
        } else if let Some(region) = next {
            self.nodes[node].copy = Some(Copy { region, done_bytes: 0, begin_ms: self.now_ms });
            self.copy_on(node);
        }
    }

    fn can_copy(&self, node: usize, region: u32) -> bool {
        self.sources(node, region) != 0
    }

    /// The copies from which a node gets a region: they have done the writes in progress, and no others begin. To wait for the end of
    /// these would be wrong: they may wait for this copy.
    fn sources(&self, node: usize, region: u32) -> NodeSet {
        let writes = self.requests.values().filter(|r| r.is_running_write() && r.region == region);
        writes.fold(self.readable(region) & !(1 << node), |sources, write| sources & write.done)
    }

    /// Reads the next part of the region that is copied.
    fn copy_on(&mut self, node: usize) {
        let Some(copy) = self.nodes[node].copy else { return };
        let at = u64::from(copy.region) * self.placement.region_bytes() + copy.done_bytes;
        let length = (self.placement.region_bytes() - copy.done_bytes).min(COPY_BYTES) as u32;
        let from = self.sources(node, copy.region);
        let nth = (self.last_token % u64::from(from.count_ones().max(1))) as usize;
        let source = members(from).nth(nth).and_then(|source| Some((source, self.placement.offset_on(source, at)?)));
        match source {
            Some((source, offset)) => {
                self.send(source, Purpose::CopyRead(node), Work::CopyRead { offset, length });
            }
            None => self.nodes[node].copy = None,
        }
    }

    pub(super) fn answer_copy_read(&mut self, to: usize, token: Token, result: Result<(), Fault>) {
        let Some(copy) = self.nodes[to].copy else { return };
        let at = u64::from(copy.region) * self.placement.region_bytes() + copy.done_bytes;
        let length = (self.placement.region_bytes() - copy.done_bytes).min(COPY_BYTES) as u32;
        match (result, self.placement.offset_on(to, at)) {
            (Ok(()), Some(offset)) => {
                self.send(to, Purpose::CopyWrite, Work::CopyWrite { read: token, offset, length });
            }
            _ => {
                self.nodes[to].copy = None;
                self.nodes[to].pause_until_ms = self.now_ms + 1000;
            }
        }
    }

    pub(super) fn answer_copy_write(&mut self, node: usize, result: Result<(), Fault>) {
        let Some(copy) = &mut self.nodes[node].copy else { return };
        if result.is_err() {
            self.nodes[node].copy = None;
            self.nodes[node].pause_until_ms = self.now_ms + 1000;
            self.fail_node(node, Reason::Failed);
            return;
        }
        copy.done_bytes += (self.placement.region_bytes() - copy.done_bytes).min(COPY_BYTES);
        if copy.done_bytes < self.placement.region_bytes() {
            self.copy_on(node);
            return;
        }
        let (region, begin_ms) = (copy.region, copy.begin_ms);
        let is_shared = !self.requests.is_empty();
        let state = &mut self.nodes[node];
        state.copied.insert(region);
        state.unflushed_copies += 1;
        state.copy = None;
        // Half of the time is the clients'.
        state.pause_until_ms = if is_shared { 2 * self.now_ms - begin_ms } else { 0 };
    }

    /// A flush that the machine asked for is done. Copied regions are on the node's medium: it no longer lacks them. But for those of
    /// which something was flushed meanwhile without it; and while it is slow, those that the next flush would wait for.
    pub(super) fn answer_copy_flush(&mut self, node: usize, sent_ms: u64) {
        let flushed = self.nodes[node].flushing.take().unwrap_or_default();
        let duration_ms = self.now_ms - sent_ms;
        let state = &mut self.nodes[node];
        state.is_slow &= duration_ms > SLOW_FLUSH_MS;
        let is_slow = state.is_slow;
        if is_slow {
            state.pause_until_ms = state.pause_until_ms.max(self.now_ms + duration_ms);
        }
        let is_kept = |region: &u32| {
            self.mutant != Mutant::ForgetMissed
                && (self.nodes[node].missed.contains(*region) || (is_slow && self.wanted.active.contains(*region)))
        };
        let done: Vec<u32> = flushed.iter().filter(|region| !is_kept(region)).collect();
        self.record_copies(node, done);
    }

    fn record_copies(&mut self, node: usize, flushed: Vec<u32>) {
        for region in flushed {
            debug_assert!(
                self.mutant != Mutant::None
                    || self
                        .requests
                        .values()
                        .filter(|r| r.is_running_write() && r.region == region)
                        .all(|r| { (r.done | r.live | r.failed) >> node & 1 == 1 }),
                "a write in progress goes past a copy that will be counted"
            );
            if self.nodes[node].copied.remove(region) {
                self.is_changed |= self.wanted.lacks[node].remove(region);
            }
        }
    }
}
