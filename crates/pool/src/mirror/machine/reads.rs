//! Reads, and the proof that what they return is the last that was written.

use super::super::mutant::Mutant;
use super::request::{Kind, Phase, Request};
use super::{Action, HEDGE_MS, Machine, NodeSet, Purpose, RequestError, RequestId, Token, Work, members};

impl Machine {
    /// A read that a write has overtaken begins again: what it has seen is on one copy, and would be gone with this coordinator.
    pub(super) fn answer_read(&mut self, id: RequestId, token: Token) {
        let request = &self.requests[&id];
        let overlaps = |w: &Request| w.is_running_write() && w.offset < request.end() && request.offset < w.end();
        if !request.is_answered && request.held.is_none() && self.requests.values().any(overlaps) {
            if request.phase == Phase::Running {
                self.waiting.push_front(id);
            }
            self.requests.get_mut(&id).iter_mut().for_each(|r| (r.phase, r.is_retried) = (Phase::Waiting, true));
            return;
        }
        if let Some(request) = self.requests.get_mut(&id) {
            request.held.get_or_insert(token);
        }
    }

    /// Whether the data of an answer is still needed.
    pub fn is_held(&self, token: Token) -> bool {
        self.requests.values().any(|request| request.held == Some(token) && !request.is_answered)
    }

    /// Whether no other coordinator can have been ready when a request began: a quorum has answered something sent later, and a node
    /// answers none but its newest coordinator. Otherwise one that was deposed could read what others have overwritten since.
    pub(super) fn is_proved(&self, request: &Request) -> bool {
        let nodes = self.set_of(self.placement.all_nodes(), |node| self.nodes[node].proved > request.after);
        self.mutant == Mutant::ReadWithoutProof || self.issued.iter().all(|record| record.is_quorum(nodes))
    }

    /// Asks for what is missing to prove that.
    pub(super) fn probe(&mut self) {
        let needs =
            |r: &&Request| (r.kind.is_read() || r.kind == Kind::Flush) && r.phase == Phase::Running && !r.is_answered;
        let unproved = self.requests.values().filter(needs).filter(|request| !self.is_proved(request));
        let Some((after, asked)) = unproved.map(|request| (request.after, request.live)).min() else { return };
        for node in members(self.up() & !asked) {
            let state = &mut self.nodes[node];
            if !state.is_probed && state.proved <= after {
                state.is_probed = true;
                self.send(node, Purpose::Probe, Work::Probe { offset: self.placement.meta_offset(node) });
            }
        }
    }

    pub(super) fn run_read(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        if let (Some(token), false, true) = (request.held, request.is_answered, self.is_proved(request)) {
            self.actions.push(Action::Reply { request: id, result: Ok(token) });
            self.requests.get_mut(&id).iter_mut().for_each(|request| request.is_answered = true);
        }
        let Some(request) = self.requests.get(&id) else { return };
        if request.is_answered && request.live == 0 {
            self.requests.remove(&id);
            return;
        }
        let is_hedged = self.now_ms >= request.sent_ms + HEDGE_MS;
        if request.is_answered || request.held.is_some() || (request.live != 0 && !is_hedged) {
            return;
        }
        let left = self.readable(request.region) & !(request.failed | request.live);
        if left == 0 {
            if let (0, Some(token)) = (request.live, request.error) {
                self.requests.remove(&id);
                self.actions.push(Action::Reply { request: id, result: Err(RequestError::Failed(token)) });
            }
            return;
        }
        let late = self
            .tokens
            .values()
            .filter(|sent| self.now_ms >= sent.at_ms + HEDGE_MS)
            .fold(0, |set: NodeSet, sent| set | 1 << sent.node);
        let prompt = if left & !late == 0 { left } else { left & !late };
        let nth = id as usize % prompt.count_ones() as usize;
        if let Some(node) = members(prompt).nth(nth) {
            self.send_request(id, node);
        }
    }
}
