//! What happens because time passes: late nodes are recorded out or as behind, requests fail, regions are no longer active.

use super::request::{Kind, Phase, Request};
use super::{
    ACTIVE_MS, Action, Activity, LATE_MS, Machine, NodeSet, Purpose, Reason, RequestError, RequestId, SILENT_MS,
    SUSPECT_MS, members,
};

impl Machine {
    /// Time passes.
    pub fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        for node in 0..self.nodes.len() {
            if !self.nodes[node].up && self.wanted.out >> node & 1 == 0 && self.can_go_without(node) {
                self.mark_out(node);
            }
        }
        // Those that others wait for: for a write, for anything else that is not a flush, and for what a medium may take long for.
        let (mut late, mut behind): (NodeSet, NodeSet) = (0, 0);
        for (id, request) in &self.requests {
            let is_change = request.phase == Phase::Running && !request.kind.is_read();
            let rest = if is_change { self.rest_of(*id) | request.live } else { 0 };
            let is_suspect = rest & !self.slow() == 0 && now_ms >= request.begin_ms + LATE_MS;
            let limit_ms = if is_suspect { SUSPECT_MS } else { LATE_MS };
            if rest & !self.up() == 0 && request.rest_since_ms.is_some_and(|since| now_ms >= since + limit_ms) {
                *(if request.kind == Kind::Flush { &mut behind } else { &mut late }) |= rest;
            }
        }
        let is_record_late =
            self.durable.sequence != self.current.sequence && now_ms >= self.current_since_ms + LATE_MS;
        let is_proof_late = self.requests.values().any(|request| {
            (request.kind.is_read() || request.kind == Kind::Flush)
                && request.phase == Phase::Running
                && !request.is_answered
                && now_ms >= request.begin_ms + LATE_MS
                && !self.is_proved(request)
        });
        let mut cancelled = None;
        for (token, sent) in &self.tokens {
            let is_late = now_ms >= sent.at_ms + LATE_MS;
            let is_silent = now_ms >= sent.at_ms + SILENT_MS;
            let node = 1 << sent.node;
            match sent.purpose {
                Purpose::Record(_) if is_late && is_record_late => behind |= node,
                Purpose::Request(id) if self.requests.get(&id).is_none_or(|r| !r.kind.is_read()) => {}
                Purpose::Record(_) | Purpose::CopyFlush => {}
                Purpose::Probe | Purpose::Request(_) if is_late && !is_silent && is_proof_late => behind |= node,
                Purpose::CopyRead(to) if is_late && !is_silent && self.is_copy_awaited(to) => {
                    cancelled = Some((*token, to));
                }
                Purpose::CopyWrite if is_late && self.is_copy_awaited(sent.node) => late |= node,
                Purpose::Request(_) | Purpose::Probe | Purpose::CopyRead(_) | Purpose::CopyWrite if is_silent => {
                    late |= node;
                }
                Purpose::Request(_) | Purpose::Probe | Purpose::CopyRead(_) | Purpose::CopyWrite => {}
            }
        }
        members(late).for_each(|node| {
            self.fail_node(node, Reason::Late);
        });
        members(behind & !late).for_each(|node| {
            self.fall_behind(node);
        });
        if let Some((token, to)) = cancelled {
            // Another source may be faster; what is read meanwhile changes nothing.
            self.tokens.remove(&token);
            self.nodes[to].copy = None;
            self.nodes[to].pause_until_ms = now_ms + LATE_MS;
        }
        self.expire();
        self.retire_regions();
        self.pump();
    }

    /// Whether a request waits for the region that is copied to a node.
    fn is_copy_awaited(&self, node: usize) -> bool {
        let region = self.nodes[node].copy.map(|copy| copy.region);
        self.waiting
            .iter()
            .filter_map(|id| self.requests.get(id))
            .any(|r| Some(r.region) == region && r.kind != Kind::Flush)
    }

    fn expire(&mut self) {
        let old = |request: &Request| !request.is_answered && self.now_ms >= request.begin_ms + self.timeout_ms;
        let expired: Vec<RequestId> =
            self.requests.iter().filter(|(_, request)| old(request)).map(|(id, _)| *id).collect();
        for id in expired {
            let down = self.placement.holders(self.requests[&id].region) & !self.up();
            let result = Err(RequestError::Needs(down | self.needed()));
            self.actions.push(Action::Reply { request: id, result });
            let is_waiting = matches!(self.requests[&id].phase, Phase::Waiting);
            if let Some(request) = self.requests.get_mut(&id) {
                // Its range stays locked until all copies agree.
                request.is_answered = true;
                if is_waiting || request.kind == Kind::Flush || (request.kind.is_read() && request.live == 0) {
                    self.requests.remove(&id);
                    self.waiting.retain(|other| *other != id);
                }
            }
        }
    }

    /// Regions that are flushed and no longer written are not active.
    fn retire_regions(&mut self) {
        let is_written = |region: u32| {
            self.requests.values().any(|r| !r.kind.is_read() && r.kind != Kind::Flush && r.region == region)
        };
        let old = |activity: &Activity| self.now_ms >= activity.at_ms + ACTIVE_MS;
        let (flushed, unflushed): (Vec<_>, Vec<_>) = self
            .active
            .iter()
            .filter(|(_, a)| old(a))
            .map(|(r, a)| (*r, a.unflushed))
            .partition(|(_, unflushed)| !unflushed);
        let retired: Vec<u32> =
            flushed.into_iter().map(|(region, _)| region).filter(|region| !is_written(*region)).collect();
        for region in retired {
            self.active.remove(&region);
            self.is_changed |= self.wanted.active.remove(region);
        }
        let is_flushing = self.requests.values().any(|request| request.kind == Kind::Flush);
        if !unflushed.is_empty() && !is_flushing && self.is_ready {
            self.last_internal += 1;
            let request = Request { is_answered: true, ..Request::new(Kind::Flush, 0, 0, 0, self.now_ms) };
            self.requests.insert(self.last_internal, request);
            self.waiting.push_back(self.last_internal);
        }
    }
}
