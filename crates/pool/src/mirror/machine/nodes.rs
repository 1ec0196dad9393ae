//! Nodes come, go, and are recorded out.

use super::super::mutant::Mutant;
use super::{Action, Machine, Node, Purpose, Reason, Sent, Token};
use bytes::Bytes;

impl Machine {
    /// A node has connected; its newest record is in `slot`, with this sequence if it is one of this coordinator, or 0. What it may have
    /// lost is in that record ([`Machine::prepare_return`]).
    pub fn node_up(&mut self, node: usize, slot: Option<u64>, has: u64, now_ms: u64) {
        self.now_ms = now_ms;
        let slot = slot.map_or(0, |slot| 1 - slot);
        let is_slow = self.nodes[node].is_slow;
        self.nodes[node] = Node { up: true, slot, has, is_slow, ..Node::default() };
        self.pump();
    }

    /// A record that says what a node may have lost, and its sequence. Once it is on the node's own medium the node can be told that the
    /// loss is accepted, and come back: whoever counts on the node then also reads the record. In this order: else a coordinator that
    /// reads neither loss nor record would take what was lost from it.
    ///
    /// # Errors
    /// The number of regions of which no other copy is there.
    pub fn prepare_return(&mut self, node: usize, lost: &[u32]) -> Result<Option<(u64, Bytes)>, u32> {
        let new: Vec<u32> = lost.iter().copied().filter(|region| !self.wanted.lacks[node].contains(*region)).collect();
        match new.iter().filter(|region| self.readable(**region) & !(1 << node) == 0).count() {
            0 => {}
            count => return Err(count as u32),
        }
        if !new.is_empty() {
            self.wanted.lacks[node].extend(new);
            self.wanted.put_out(1 << node);
            (self.is_changed, self.is_superseded) = (true, true);
            self.pump();
        }
        let is_told = lost.iter().all(|region| self.current.lacks[node].contains(*region));
        Ok(is_told.then(|| (self.current.sequence, self.current.encode(&self.identity))))
    }

    /// A block of a node's copy is damaged: it is given the region by another.
    pub fn mend(&mut self, node: usize, region: u32, now_ms: u64) {
        self.now_ms = now_ms;
        self.lose_region(node, region);
        self.pump();
    }

    pub(super) fn lose_region(&mut self, node: usize, region: u32) {
        let others = self.counted(region) & self.up() & !(1 << node);
        if others.count_ones() as usize >= self.placement.copies_needed() {
            self.is_changed |= self.wanted.lacks[node].insert(region);
            self.nodes[node].copied.remove(region);
        }
    }

    /// A node's connection is lost.
    pub fn node_down(&mut self, node: usize, now_ms: u64) {
        self.now_ms = now_ms;
        if self.nodes[node].up {
            self.disconnect(node);
            if self.can_go_without(node) {
                self.mark_out(node);
            }
            self.pump();
        }
    }

    /// What it was asked is void.
    pub(super) fn disconnect(&mut self, node: usize) {
        let Node { has, is_slow, .. } = self.nodes[node];
        self.nodes[node] = Node { has, is_slow, ..Node::default() };
        let void: Vec<(Token, Sent)> =
            self.tokens.iter().filter(|(_, sent)| sent.node == node).map(|(token, sent)| (*token, *sent)).collect();
        for (token, sent) in void {
            self.tokens.remove(&token);
            match sent.purpose {
                Purpose::Request(id) => {
                    self.requests.get_mut(&id).iter_mut().for_each(|request| request.live &= !(1 << node));
                }
                Purpose::CopyRead(to) => self.nodes[to].copy = None,
                Purpose::Record(_) | Purpose::Probe | Purpose::CopyWrite | Purpose::CopyFlush => {}
            }
        }
        // A copy that was read from another node for this one.
        self.tokens.retain(|_, sent| !matches!(sent.purpose, Purpose::CopyRead(to) if to == node));
    }

    pub(super) fn mark_out(&mut self, node: usize) {
        if self.mutant != Mutant::ForgetBitmap {
            let held = |region: &u32| self.placement.holders(*region) >> node & 1 == 1;
            let active: Vec<u32> = self.records().flat_map(|record| record.active.iter()).filter(held).collect();
            self.wanted.lacks[node].extend(active);
        }
        self.wanted.put_out(1 << node);
        (self.is_changed, self.is_superseded) = (true, true);
    }

    /// Goes on without a node, if possible.
    pub(super) fn fail_node(&mut self, node: usize, why: Reason) -> bool {
        let can = self.nodes[node].up && self.can_go_without(node);
        if can {
            self.disconnect(node);
            self.mark_out(node);
            // It may only have been slow: when it is back its flushes are not waited for until one is fast.
            self.nodes[node].is_slow |= why == Reason::Late;
            self.actions.push(Action::Drop { node, why });
        }
        can
    }

    /// Goes on without the flushes of a node, if possible. It has everything, though perhaps not on its medium; so that is recorded as
    /// what it lacks, and it goes on getting writes, as after a copy of these regions ([`Machine::resync`]).
    pub(super) fn fall_behind(&mut self, node: usize) -> bool {
        if !self.nodes[node].up || !self.can_go_without(node) {
            return false;
        }
        let held = |region: &u32| self.placement.holders(*region) >> node & 1 == 1;
        let active: Vec<u32> = self.records().flat_map(|record| record.active.iter()).filter(held).collect();
        let out = self.wanted.out;
        self.wanted.put_out(1 << node);
        let mut is_new = out != self.wanted.out;
        for region in active {
            is_new |= self.excuse(node, region);
        }
        self.nodes[node].is_slow = true;
        if is_new {
            // Otherwise that is being recorded already.
            (self.is_changed, self.is_superseded) = (true, true);
        }
        true
    }

    /// Records that a connected copy may not have all of a region on its medium; true if that is new.
    pub(super) fn excuse(&mut self, node: usize, region: u32) -> bool {
        let is_new = self.wanted.lacks[node].insert(region);
        if is_new {
            self.nodes[node].copied.insert(region);
            self.is_changed = true;
        }
        is_new
    }
}
