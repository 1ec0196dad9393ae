//! Requests begin in order, as far as they overlap, and are sent to copies.

use super::request::{Kind, Phase};
use super::{Fault, Machine, Purpose, Reason, RequestId, Token, Work, members};

impl Machine {
    /// Starts waiting requests in order, as far as nothing that they overlap is before them.
    pub(super) fn start_waiting(&mut self) {
        let is_quorum = self.current.is_quorum(self.up());
        // With whether it is a write.
        let mut before: Vec<(u64, u64, bool)> = Vec::new();
        for r in self.requests.values().filter(|r| r.is_running_write() || r.is_running_retry()) {
            before.push((r.offset, r.end(), !r.kind.is_read()));
        }
        for id in std::mem::take(&mut self.waiting) {
            let Some(request) = self.requests.get(&id).filter(|r| !(r.is_answered && r.kind.is_read())) else {
                continue;
            };
            let (kind, region, is_retried) = (request.kind, request.region, request.is_retried);
            if kind == Kind::Flush {
                self.start_flush(id);
                continue;
            }
            let range = (request.offset, request.end());
            let overlaps = |(begin, end, write): &(u64, u64, bool)| {
                *begin < range.1 && range.0 < *end && (*write || !kind.is_read())
            };
            let is_copied = self.nodes.iter().any(|node| node.copy.is_some_and(|copy| copy.region == region));
            let is_ordered = before.iter().any(overlaps);
            let can = !is_ordered
                && is_quorum
                && if kind.is_read() { self.readable(region) != 0 } else { !is_copied && self.may_write(region) };
            if can {
                if let Some(request) = self.requests.get_mut(&id) {
                    request.phase = Phase::Running;
                }
                if !kind.is_read() {
                    self.touch(region);
                }
                // A read that writes have overtaken goes before the next one.
                if !kind.is_read() || is_retried {
                    before.push((range.0, range.1, !kind.is_read()));
                }
            } else {
                if !kind.is_read() || is_retried {
                    before.push((range.0, range.1, !kind.is_read()));
                }
                self.waiting.push_back(id);
            }
        }
    }

    pub(super) fn run_requests(&mut self) {
        let running: Vec<RequestId> =
            self.requests.iter().filter(|(_, r)| matches!(r.phase, Phase::Running)).map(|(id, _)| *id).collect();
        for id in running {
            let Some(request) = self.requests.get(&id) else { continue };
            if request.kind.is_read() {
                self.run_read(id);
                continue;
            }
            let to = match request.kind {
                Kind::Flush if request.flushes.is_empty() => 0,
                // A slow node flushes on its own; unless nothing goes on without it.
                Kind::Flush => self.up() & (!self.slow() | self.rest_of(id)),
                _ => self.targets(request.region),
            } & !(request.done | request.failed | request.live);
            members(to).for_each(|node| self.send_request(id, node));
            self.complete(id);
        }
    }

    pub(super) fn send_request(&mut self, id: RequestId, node: usize) {
        let region = self.requests.get(&id).map_or(0, |request| request.region);
        let is_excused = self.nodes[node].is_slow && self.unexcused(region) >> node & 1 == 0;
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.live |= 1 << node;
        request.sent_ms = self.now_ms;
        let (mut kind, length) = (request.kind, request.length);
        if is_excused
            && let Kind::Write { durable } | Kind::Trim { durable } = &mut kind
            && std::mem::take(durable)
        {
            request.weak |= 1 << node;
            self.nodes[node].missed.insert(region);
        }
        let work = match kind {
            Kind::Flush => Work::Flush,
            _ => match self.placement.offset_on(node, request.offset) {
                Some(offset) => Work::Request { request: id, kind, offset, length },
                None => return,
            },
        };
        self.send(node, Purpose::Request(id), work);
    }

    pub(super) fn answer_request(&mut self, id: RequestId, token: Token, node: usize, result: Result<(), Fault>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.live &= !(1 << node);
        match result {
            Ok(()) => request.done |= 1 << node,
            Err(_) => {
                request.failed |= 1 << node;
                request.error = Some(token);
            }
        }
        let (kind, region) = (request.kind, request.region);
        match (kind.is_read(), result) {
            (true, Ok(())) => self.answer_read(id, token),
            (true, Err(fault)) => {
                if fault == Fault::Damaged {
                    self.lose_region(node, region);
                }
            }
            (false, Ok(())) => {}
            (false, Err(_)) => {
                self.fail_node(node, Reason::Failed);
            }
        }
    }
}
