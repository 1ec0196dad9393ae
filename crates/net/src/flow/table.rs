//! The flows that are watched, with their accounts, in bounded memory. Pure: times and samples are given.

use super::account::{Episode, FlowAccount};
use super::diag::DiagSocket;
use super::leaf::{Division, Leaf};
use super::receiving::ReceivingAccount;
use crate::tcp_info::TcpSample;
use crate::why;
use std::collections::HashMap;
use std::net::SocketAddr;

/// Flows followed at once; about 3 KiB each.
pub const FLOWS_MAX: usize = 10_000;
/// Ended flows that are kept with their accounts: those with the most bytes.
const ENDED_FLOWS_MAX: usize = 1000;
/// Samples of a flow with losses that are kept to tell a policer from chance; more are thinned out.
const HISTORY_SAMPLES_MAX: usize = 512;
/// Flows with such a history.
const HISTORIES_MAX: usize = 64;
/// The retransmissions at which a history begins.
const HISTORY_RETRANSMITS_MIN: u64 = 1;

/// A process, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    pub pid: u32,
    pub name: String,
}

/// The direction in which a flow moved most of its bytes: what its account is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Sends,
    Receives,
}

/// Bytes and other counts of a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    pub ns: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub retransmits: u64,
}

impl Moved {
    fn between(before: &TcpSample, now: &TcpSample) -> Self {
        Self {
            ns: now.time_ns.saturating_sub(before.time_ns),
            sent_bytes: now.bytes_acked.saturating_sub(before.bytes_acked),
            received_bytes: now.bytes_received.saturating_sub(before.bytes_received),
            retransmits: now.total_retrans.saturating_sub(before.total_retrans),
        }
    }

    pub fn role(&self) -> Role {
        if self.received_bytes > self.sent_bytes { Role::Receives } else { Role::Sends }
    }

    /// Bit/s in a direction.
    pub fn rate_bps(&self, role: Role) -> f64 {
        let bytes = if role == Role::Sends { self.sent_bytes } else { self.received_bytes };
        if self.ns == 0 { 0.0 } else { bytes as f64 * 8e9 / self.ns as f64 }
    }
}

/// One flow that is followed.
#[derive(Debug)]
struct Flow {
    key: FlowKey,
    owner: Option<Owner>,
    sending: FlowAccount,
    receiving: ReceivingAccount,
    first: TcpSample,
    last: TcpSample,
    samples: u64,
    /// Since the last interval was taken.
    interval_from: TcpSample,
    interval: (Division, Division),
    history: Vec<TcpSample>,
    history_stride: u64,
    seen_at_ns: u64,
}

/// What identifies a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowKey {
    pub cookie: u64,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    pub congestion: Option<String>,
}

/// A flow in one interval.
#[derive(Debug, Clone)]
pub struct FlowInterval {
    pub key: FlowKey,
    pub owner: Option<Owner>,
    pub moved: Moved,
    pub division: Division,
    /// The state at its end.
    pub sample: TcpSample,
}

/// A flow from the first to the last sample.
#[derive(Debug, Clone)]
pub struct FlowSummary {
    pub key: FlowKey,
    pub owner: Option<Owner>,
    pub moved: Moved,
    pub division: Division,
    pub local_queue_ns: u64,
    pub episodes: Vec<Episode>,
    pub episodes_more: u64,
    pub samples: u64,
    pub has_ended: bool,
    pub last: TcpSample,
}

/// What was not followed, by what is known of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unfollowed {
    /// Flows that began and ended between two samples: their totals are exact, their course is not known.
    pub short: u64,
    pub short_bytes: u64,
    pub short_retransmits: u64,
    /// Such flows whose process is not known, where flows were selected by process.
    pub ownerless: u64,
    /// Flows beyond [`FLOWS_MAX`].
    pub beyond: u64,
    /// Flows that vanished without a last message: what they did after their last sample is not known.
    pub cut: u64,
    /// Ended flows whose accounts were merged into `others`.
    pub merged: u64,
}

/// All flows.
#[derive(Debug, Default)]
pub struct FlowTable {
    flows: HashMap<u64, Flow>,
    ended: Vec<FlowSummary>,
    histories: usize,
    pub unfollowed: Unfollowed,
    /// The time of the merged flows.
    pub others: Division,
    sweep_ns: u64,
    /// The previous pass; 0 during the first one, whose flows are older than the watch.
    previous_ns: u64,
    beyond: std::collections::HashSet<u64>,
}

impl FlowTable {
    /// Begins a pass over all sockets.
    pub fn begin_pass(&mut self, now_ns: u64) {
        self.previous_ns = self.sweep_ns;
        self.sweep_ns = now_ns;
    }

    /// Whether the flow is known, so that it need not be selected again.
    pub fn contains(&self, cookie: u64) -> bool {
        self.flows.contains_key(&cookie)
    }

    /// Whether the flow's process is known.
    pub fn has_owner(&self, cookie: u64) -> bool {
        self.flows.get(&cookie).is_some_and(|flow| flow.owner.is_some())
    }

    /// Takes a sample of a selected flow.
    pub fn observe(&mut self, now_ns: u64, socket: &DiagSocket, owner: Option<Owner>) {
        let sample = TcpSample { time_ns: now_ns, ..socket.sample };
        if !self.flows.contains_key(&socket.cookie) {
            if self.flows.len() >= FLOWS_MAX {
                if self.beyond.len() < FLOWS_MAX && self.beyond.insert(socket.cookie) {
                    self.unfollowed.beyond += 1;
                }
                return;
            }
            // One that was not there before began after the previous pass, with nothing counted.
            let first = if self.previous_ns == 0 { sample } else { sample.at_birth(self.previous_ns) };
            self.flows.insert(socket.cookie, Flow::new(socket, first));
        }
        let Some(flow) = self.flows.get_mut(&socket.cookie) else { return };
        flow.seen_at_ns = self.sweep_ns;
        if owner.is_some() {
            flow.owner = owner;
        }
        flow.push(sample);
        let has_losses = sample.total_retrans >= flow.first.total_retrans + HISTORY_RETRANSMITS_MIN;
        if !flow.history.is_empty() || has_losses && self.histories < HISTORIES_MAX {
            if flow.history.is_empty() {
                self.histories += 1;
            }
            flow.keep(sample);
        }
    }

    /// Takes the last message of a destroyed socket; `owner` of one that was never sampled, `is_selected` as far as that can
    /// be told without its process.
    pub fn end(&mut self, now_ns: u64, socket: &DiagSocket, is_selected: Option<bool>) {
        let sample = TcpSample { time_ns: now_ns, ..socket.sample };
        if let Some(mut flow) = self.flows.remove(&socket.cookie) {
            // The socket's last counters are not later than its end.
            flow.push(sample);
            self.finish(flow, true);
            return;
        }
        self.beyond.remove(&socket.cookie);
        match is_selected {
            Some(true) => {
                self.unfollowed.short += 1;
                self.unfollowed.short_bytes += sample.bytes_acked + sample.bytes_received;
                self.unfollowed.short_retransmits += sample.total_retrans;
            }
            Some(false) => (),
            None => self.unfollowed.ownerless += 1,
        }
    }

    /// Ends a pass: flows that were not in it are gone, and without a last message if `are_ends_reported`.
    pub fn end_pass(&mut self) {
        let gone: Vec<u64> =
            self.flows.iter().filter(|(_, flow)| flow.seen_at_ns < self.sweep_ns).map(|(cookie, _)| *cookie).collect();
        for cookie in gone {
            // A pass may miss a socket that the kernel moves in its table meanwhile; and the last message, where it is
            // sent, comes when the socket is destroyed, which may be later than its last state.
            let Some(flow) = self.flows.get(&cookie) else { continue };
            if self.sweep_ns - flow.seen_at_ns >= GONE_AFTER_NS
                && let Some(flow) = self.flows.remove(&cookie)
            {
                self.unfollowed.cut += 1;
                self.finish(flow, true);
            }
        }
    }

    /// The flows' intervals since the last call: those in which something happened, the busiest first.
    pub fn take_intervals(&mut self) -> Vec<FlowInterval> {
        let mut intervals: Vec<FlowInterval> = self.flows.values_mut().filter_map(Flow::take_interval).collect();
        intervals.sort_by_key(|i| (std::cmp::Reverse(i.moved.sent_bytes + i.moved.received_bytes), i.key.cookie));
        intervals
    }

    /// The number of flows that are followed now.
    pub fn followed(&self) -> usize {
        self.flows.len()
    }

    /// Ends the watch: every flow with its account, those with the most bytes first.
    pub fn summaries(mut self) -> (Vec<FlowSummary>, Unfollowed, Division) {
        let flows: Vec<Flow> = self.flows.drain().map(|(_, flow)| flow).collect();
        for flow in flows {
            self.finish(flow, false);
        }
        sort(&mut self.ended);
        (self.ended, self.unfollowed, self.others)
    }

    fn finish(&mut self, flow: Flow, has_ended: bool) {
        if !flow.history.is_empty() {
            self.histories -= 1;
        }
        self.ended.push(flow.summary(has_ended));
        if self.ended.len() >= 2 * ENDED_FLOWS_MAX {
            sort(&mut self.ended);
            for merged in self.ended.drain(ENDED_FLOWS_MAX..) {
                self.unfollowed.merged += 1;
                self.others.add_all(&merged.division);
            }
        }
    }
}

/// A flow that was in no pass for this long is gone.
const GONE_AFTER_NS: u64 = 2_000_000_000;

fn sort(flows: &mut [FlowSummary]) {
    flows.sort_by_key(|f| (std::cmp::Reverse(f.moved.sent_bytes + f.moved.received_bytes), f.key.cookie));
}

impl Flow {
    fn new(socket: &DiagSocket, sample: TcpSample) -> Self {
        let mut flow = Self {
            key: FlowKey {
                cookie: socket.cookie,
                local: socket.local,
                peer: socket.peer,
                congestion: socket.congestion.clone(),
            },
            owner: None,
            sending: FlowAccount::new(socket.congestion.as_deref()),
            receiving: ReceivingAccount::default(),
            first: sample,
            last: sample,
            samples: 0,
            interval_from: sample,
            interval: (Division::default(), Division::default()),
            history: Vec::new(),
            history_stride: 1,
            seen_at_ns: 0,
        };
        flow.sending.push(&sample);
        flow.receiving.push(&sample);
        flow
    }

    fn push(&mut self, sample: TcpSample) {
        if sample.time_ns < self.last.time_ns {
            return;
        }
        self.samples += 1;
        self.interval.0.add_all(&self.sending.push(&sample));
        self.interval.1.add_all(&self.receiving.push(&sample));
        self.last = sample;
    }

    fn keep(&mut self, sample: TcpSample) {
        if !self.samples.is_multiple_of(self.history_stride) {
            return;
        }
        if self.history.is_empty() {
            self.history.push(self.first);
        }
        self.history.push(sample);
        if self.history.len() >= HISTORY_SAMPLES_MAX {
            let mut number = 0;
            self.history.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.history_stride *= 2;
        }
    }

    fn take_interval(&mut self) -> Option<FlowInterval> {
        let moved = Moved::between(&self.interval_from, &self.last);
        let (sending, receiving) = std::mem::take(&mut self.interval);
        self.interval_from = self.last;
        let has_moved = moved.sent_bytes + moved.received_bytes + moved.retransmits > 0;
        let is_active = moved.ns > 0 && (has_moved || self.last.unacked > 0 || self.last.notsent_bytes > 0);
        is_active.then(|| FlowInterval {
            key: self.key.clone(),
            owner: self.owner.clone(),
            moved,
            division: if moved.role() == Role::Sends { sending } else { receiving },
            sample: self.last,
        })
    }

    fn summary(mut self, has_ended: bool) -> FlowSummary {
        self.sending.finish();
        let moved = Moved::between(&self.first, &self.last);
        if why::dropping_rate_bps(&self.history).is_some() {
            self.sending.name_drops();
        }
        let (episodes, episodes_more) = self.sending.episodes();
        FlowSummary {
            division: if moved.role() == Role::Sends { self.sending.division() } else { self.receiving.division() },
            local_queue_ns: self.sending.local_queue_ns(),
            episodes: episodes.to_vec(),
            episodes_more,
            key: self.key,
            owner: self.owner,
            moved,
            samples: self.samples,
            has_ended,
            last: self.last,
        }
    }
}

/// The part of a division that its largest leaf has, 0 to 1.
pub fn largest_share(division: &Division) -> Option<(Leaf, f64)> {
    let (leaf, ns) = division.parts().first().copied()?;
    Some((leaf, ns as f64 / division.total_ns().max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(cookie: u64, bytes_acked: u64) -> DiagSocket {
        let sample = TcpSample { bytes_acked, snd_mss: 1448, ..TcpSample::default() };
        DiagSocket {
            cookie,
            state: 1,
            local: "127.0.0.1:1".parse().unwrap(),
            peer: "127.0.0.1:2".parse().unwrap(),
            interface: 0,
            uid: 0,
            inode: 1,
            cgroup: None,
            congestion: None,
            sample,
        }
    }

    #[test]
    fn nothing_is_missed_silently() {
        let mut table = FlowTable::default();
        // Followed to its last message; too short to be sampled; of an unknown process; another program's; vanished.
        table.begin_pass(1);
        table.observe(1, &socket(1, 0), None);
        table.observe(1, &socket(2, 0), None);
        table.end_pass();
        table.end(500, &socket(1, 7000), Some(true));
        table.end(500, &socket(3, 300), Some(true));
        table.end(500, &socket(4, 300), None);
        table.end(500, &socket(5, 300), Some(false));
        table.begin_pass(1 + GONE_AFTER_NS);
        table.end_pass();
        let (flows, unfollowed, _) = table.summaries();
        assert_eq!(flows.len(), 2);
        assert_eq!((flows[0].key.cookie, flows[0].moved.sent_bytes, flows[0].has_ended), (1, 7000, true));
        let expected = Unfollowed { short: 1, short_bytes: 300, ownerless: 1, cut: 1, ..Unfollowed::default() };
        assert_eq!(unfollowed, expected);
    }

    #[test]
    fn memory_is_bounded_and_the_rest_counted() {
        let mut table = FlowTable::default();
        table.begin_pass(1);
        for cookie in 0..FLOWS_MAX as u64 + 50 {
            table.observe(1, &socket(cookie, cookie), None);
        }
        assert_eq!((table.followed(), table.unfollowed.beyond), (FLOWS_MAX, 50));
        for cookie in 0..FLOWS_MAX as u64 {
            table.end(1_000_001, &socket(cookie, 2 * cookie), Some(true));
        }
        let (flows, unfollowed, others) = table.summaries();
        assert!(flows.len() < 2 * ENDED_FLOWS_MAX);
        assert_eq!(flows.len() as u64 + unfollowed.merged, FLOWS_MAX as u64);
        assert_eq!(flows[0].key.cookie, FLOWS_MAX as u64 - 1);
        assert_eq!(others.total_ns(), unfollowed.merged * 1_000_000);
    }
}
