//! Assigns one reason to each part of each window, consistent with the reason's own numbers. Pure.
//!
//! A reason that names a limit also predicts the rate that the limit allows: a window allows its bytes per round trip, a
//! loss rate what Reno or cubic reaches with it. If the data that arrived in the windows assigned to the reason differs
//! from that by more than a factor of [`REFUTING_FACTOR`], the reason is refuted; then everything is evaluated again
//! without it. What remains when every reason was refuted is called unexplained.

use super::path::PathFindings;
use super::readings::{Window, unread_shares};
use super::stalls::Stalls;
use super::{BothEnds, CAUSE_SHARE_MIN, Facts, Reason, cpu_bound, ready_share};
use crate::flow::account::{DELIVERED_PACING_SHARE_MIN, QUEUE_RTT_RATIO_MIN, REFUTING_FACTOR, USED_SHARE_MIN};
use crate::flow::leaf::Leaf;
use crate::spec::Traffic;
use crate::{bound, spec};
use std::collections::{BTreeMap, BTreeSet};

/// A rate-limited application is the limit of its run if this share of the requested rate arrived: at the end some data is
/// still in flight.
const RATE_MET_SHARE_MIN: f64 = 0.95;
/// With a smaller share of retransmissions the window was hardly reduced: spurious ones occur on a path without loss too.
const RETRANSMITTED_SHARE_MIN: f64 = 0.001;
/// A window or buffer of which this share is in flight is nearly full: a congestion control that paces its packets (BBR)
/// fills it only now and then.
const NEARLY_FULL_SHARE_MIN: f64 = 0.6;
/// A window or buffer limited the connection at other times if it did so for this share of the run.
const LIMITED_SHARE_MIN: f64 = 0.05;
/// A window of which less than this share is in flight, although data waits, is not the limit.
const FULL_SHARE_MIN: f64 = 0.8;
/// Fewer segments in flight than this do not form a queue.
const QUEUE_SEGMENTS_MIN: f64 = 4.0;
/// Unread bytes above this share of the receive buffer mean that the receiver is slow (about half of the buffer can hold payload).
const UNREAD_SHARE_MIN: f64 = 0.15;
/// A path that mostly carries what it carried at its fastest is used fully.
const FULL_RATE_SHARE_MIN: f64 = 0.9;
/// A queue of this share of the bandwidth-delay product holds the bursts of a model of the path.
const DEEP_QUEUE_SHARE_MIN: f64 = 0.5;
/// Other traffic below this share of the interface's bytes has no relevant effect.
const OTHER_TRAFFIC_SHARE_MIN: f64 = 0.1;

/// A part of the run's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReasonTime {
    /// The number of the window.
    pub number: u64,
    pub reason: Reason,
    pub ns: f64,
}

/// Means over the time assigned to a reason, for one connection.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Basis {
    pub ns: f64,
    pub rtt_us: f64,
    /// Segments.
    pub cwnd: f64,
    /// Bytes in flight, limited to the window that the receiver offered.
    pub in_flight_bytes: f64,
    /// Rates, bit/s: acknowledged, paced, delivered.
    pub acked_bps: f64,
    pub paced_bps: f64,
    pub delivered_bps: f64,
    /// Segments retransmitted, and sent.
    pub retransmitted: f64,
    pub segments: f64,
}

impl Basis {
    fn add(&mut self, w: &Window, ns: f64) {
        let share = ns / (self.ns + ns);
        let mean = |old: &mut f64, new: f64| *old += (new - *old) * share;
        mean(&mut self.rtt_us, w.rtt_us);
        mean(&mut self.cwnd, w.cwnd);
        mean(&mut self.in_flight_bytes, w.in_flight_bytes.min(w.offered_bytes));
        mean(&mut self.acked_bps, w.acked_bps);
        mean(&mut self.paced_bps, w.pacing_rate * 8.0);
        mean(&mut self.delivered_bps, w.delivery_rate * 8.0);
        self.retransmitted += w.retransmitted as f64 * ns / w.length_ns;
        self.segments += w.segments as f64 * ns / w.length_ns;
        self.ns += ns;
    }
}

/// The conclusions for a run.
#[derive(Debug, Default)]
pub struct Verdict {
    pub parts: Vec<ReasonTime>,
    pub basis: BTreeMap<Reason, Basis>,
    /// The same for the second half of the run. The models of loss assume a steady window, and slow start overshoots by far.
    late: BTreeMap<Reason, Basis>,
}

impl Verdict {
    /// The means that a reason is checked and reported by.
    pub fn basis_of(&self, reason: Reason) -> Option<&Basis> {
        let late = if reason == Reason::Loss { self.late.get(&reason) } else { None };
        late.or_else(|| self.basis.get(&reason))
    }
}

/// What was found beyond single windows.
#[derive(Debug, Clone, Copy)]
pub struct Findings<'a> {
    pub path: &'a PathFindings,
    pub stalls: &'a Stalls,
}

/// Evaluates the whole run.
pub fn judge_run(seen: &BothEnds<'_>, facts: &Facts, windows: &[Window], findings: &Findings<'_>) -> Verdict {
    let run = JudgeContext::new(seen, facts, windows, findings);
    let mut refuted = BTreeSet::new();
    loop {
        let verdict = run.assign_reasons(&refuted);
        let all: f64 = verdict.basis.values().map(|b| b.ns).sum();
        let contradicted = |(reason, basis): (&Reason, &Basis)| {
            let by = verdict.basis_of(*reason).unwrap_or(basis);
            (basis.ns >= CAUSE_SHARE_MIN * all && is_contradicted(*reason, by, seen, facts)).then_some(*reason)
        };
        let more: Vec<Reason> = verdict.basis.iter().filter_map(contradicted).collect();
        // Each iteration refutes at least one more reason, and there are only a few.
        if more.is_empty() || more.iter().all(|reason| refuted.contains(reason)) {
            return verdict;
        }
        refuted.extend(more);
    }
}

/// The minimum and maximum rate that the reason allows one connection, bit/s, from the numbers reported with it; `None` if
/// it predicts no rate.
pub fn allowed_rates(reason: Reason, basis: &Basis, seen: &BothEnds<'_>, facts: &Facts) -> Option<(f64, f64)> {
    let in_a_round_trip = |bytes: f64| (basis.rtt_us > 0.0).then(|| bytes * 8e6 / basis.rtt_us);
    let one = |bps: f64| (bps, bps);
    match reason {
        Reason::RequestedRate => match seen.spec.traffic {
            Traffic::Tcp { rate_bps } => rate_bps.map(|bps| one(bps as f64)),
            _ => None,
        },
        Reason::RequestedPacing => seen.spec.socket.pacing_bps.map(|bps| one(bps as f64)),
        Reason::ReceiveWindow | Reason::SendBuffer => in_a_round_trip(basis.in_flight_bytes).map(one),
        Reason::GrowingWindow => in_a_round_trip(basis.cwnd * facts.mss).map(one),
        Reason::Loss => {
            let (loss, rtt_s) = (basis.retransmitted / basis.segments.max(1.0), basis.rtt_us / 1e6);
            let mathis = bound::mathis(facts.mss, rtt_s, loss)?;
            let padhye = bound::padhye(facts.mss, rtt_s, facts.rto_us / 1e6, loss)?;
            Some((padhye.min(mathis), mathis.max(bound::cubic(facts.mss, rtt_s, loss)?)))
        }
        _ => None,
    }
}

/// Whether the rate that the reason allows is far from the rate that arrived in its time.
pub fn is_contradicted(reason: Reason, basis: &Basis, seen: &BothEnds<'_>, facts: &Facts) -> bool {
    let Some((least, most)) = allowed_rates(reason, basis, seen, facts) else { return false };
    let arrived = basis.acked_bps;
    // A stalled stream is allowed nothing, and nothing arrives.
    let slow = facts.mss * 8.0;
    arrived > (most * REFUTING_FACTOR).max(slow) || arrived * REFUTING_FACTOR < least && least > slow
}

/// The values that are the same for all windows of a run.
struct JudgeContext<'a> {
    seen: &'a BothEnds<'a>,
    facts: &'a Facts,
    windows: &'a [Window],
    path: &'a PathFindings,
    stalls: &'a Stalls,
    unread: BTreeMap<(u64, u64), f64>,
    sender_cpu: bool,
    receiver_cpu: bool,
    sender_ready: f64,
    /// The share of the idle time, and of the time with unread data, that is due to a CPU.
    idle_by_cpu: f64,
    slow_by_cpu: f64,
    by_rwnd: bool,
    by_sndbuf: bool,
    /// Whether more was in flight, on average, than a path without a queue holds (Little's law), and the path delivered all
    /// the time. A writer that refills a small buffer in bursts lengthens round trips too, but then the path drains in
    /// between.
    is_queued: bool,
    requested_bps: Option<u64>,
    paces_by_model: bool,
    /// The first window of each stream with a loss: before it the reason cannot be loss.
    first_loss: BTreeMap<u64, u64>,
}

impl<'a> JudgeContext<'a> {
    fn new(seen: &'a BothEnds<'a>, facts: &'a Facts, windows: &'a [Window], findings: &Findings<'a>) -> Self {
        let wall = seen.sent.end_ns.saturating_sub(seen.sent.start_ns);
        let (sender_ready, receiver_ready) = (
            ready_share(&seen.sent.threads, seen.sender, wall),
            ready_share(&seen.received.threads, seen.receiver, wall),
        );
        let sockets = u64::from(seen.spec.streams) * seen.spec.directions.len() as u64;
        let every_ns = spec::sampling_interval_ns(sockets, seen.spec.duration_ms.saturating_mul(1_000_000));
        let unread = unread_shares(&seen.received.unread, seen.received.start_ns, every_ns);
        let share = |of: &dyn Fn(&Window) -> f64| {
            let (part, all) = windows.iter().fold((0.0, 0.0), |(p, a), w| (p + of(w) * w.length_ns, a + w.length_ns));
            if all > 0.0 { part / all } else { 0.0 }
        };
        let idle = share(&|w| w.idle);
        let slow = share(&|w| f64::from(u8::from(is_receiver_slow(&unread, w))));
        let asked = match seen.spec.traffic {
            Traffic::Tcp { rate_bps } => rate_bps,
            _ => None,
        };
        let mut first_loss = BTreeMap::new();
        for w in windows.iter().filter(|w| w.retransmitted > 0 || w.recovering) {
            first_loss.entry(w.stream).or_insert(w.number);
        }
        Self {
            sender_cpu: cpu_bound(&seen.sent.threads, seen.sender, wall),
            receiver_cpu: cpu_bound(&seen.received.threads, seen.receiver, wall),
            sender_ready,
            // While there is nothing to send, the sender's thread runs, waits to run, or sleeps; it does not wait for TCP.
            // So the part of its runnable time that does not fit into the remaining time is due to the CPU.
            idle_by_cpu: if idle > 0.0 { ((sender_ready + idle - 1.0) / idle).clamp(0.0, 1.0) } else { 0.0 },
            // While unread data waits, the receiver's thread does not wait for data: it runs, waits to run, or sleeps.
            slow_by_cpu: if slow > 0.0 { (receiver_ready / slow).min(1.0) } else { 0.0 },
            by_rwnd: share(&|w| w.rwnd) > LIMITED_SHARE_MIN,
            by_sndbuf: share(&|w| w.sndbuf) > LIMITED_SHARE_MIN,
            is_queued: is_queued(facts, windows),
            paces_by_model: seen.paces_by_model(),
            seen,
            facts,
            windows,
            path: findings.path,
            stalls: findings.stalls,
            unread,
            requested_bps: asked,
            first_loss,
        }
    }

    fn assign_reasons(&self, refuted: &BTreeSet<Reason>) -> Verdict {
        let mut verdict = Verdict::default();
        let last = self.windows.iter().map(|w| w.number).max().unwrap_or(0);
        let mut add = |window: &Window, reason, share: f64| {
            let ns = share * window.length_ns;
            if ns > 0.0 {
                verdict.parts.push(ReasonTime { number: window.number, reason, ns });
                verdict.basis.entry(reason).or_default().add(window, ns);
                if window.number > last / 2 {
                    verdict.late.entry(reason).or_default().add(window, ns);
                }
            }
        };
        // The application reached its requested rate: removing any other limit would change nothing.
        let met =
            |rate: u64| self.seen.rate_bps >= RATE_MET_SHARE_MIN * rate as f64 * f64::from(self.seen.spec.streams);
        if self.requested_bps.is_some_and(met) && !refuted.contains(&Reason::RequestedRate) {
            self.windows.iter().for_each(|w| add(w, Reason::RequestedRate, 1.0));
            return verdict;
        }
        for window in self.windows {
            if let Some(reason) = self.stalls.in_window(window.stream, window.number).map(stall_reason) {
                add(window, Reason::NothingToSend, window.idle);
                add(window, reason, 1.0 - window.idle);
                continue;
            }
            let slow = is_receiver_slow(&self.unread, window);
            let queue = self.queue_reason(window);
            let rest = self.remaining_reason(window, slow, refuted);
            add(window, Reason::SenderCpu, window.idle * self.idle_by_cpu);
            add(window, Reason::NothingToSend, window.idle * (1.0 - self.idle_by_cpu));
            let not_refuted = |reason| if refuted.contains(&reason) { rest } else { reason };
            if slow {
                add(window, Reason::ReceiverCpu, window.rwnd * self.slow_by_cpu);
                add(window, Reason::UnreadData, window.rwnd * (1.0 - self.slow_by_cpu));
            } else {
                add(window, queue.unwrap_or_else(|| not_refuted(Reason::ReceiveWindow)), window.rwnd);
            }
            let by_buffer = match (queue, slow && self.receiver_cpu) {
                (_, true) => Reason::ReceiverCpu,
                (Some(queue), _) => queue,
                (None, false) => not_refuted(Reason::SendBuffer),
            };
            add(window, by_buffer, window.sndbuf);
            add(window, rest, (1.0 - window.idle - window.rwnd - window.sndbuf).max(0.0));
        }
        verdict
    }

    /// The reason of a queue in the path, if there was one: the link, or competing traffic.
    fn queue_reason(&self, window: &Window) -> Option<Reason> {
        if window.buffer_in_flight > 0.5 && !self.is_queued {
            return None;
        }
        let longer = window.rtt_us > self.facts.least_rtt_us * QUEUE_RTT_RATIO_MIN + super::QUEUE_DELAY_US_MIN;
        (longer && window.in_flight_segments >= QUEUE_SEGMENTS_MIN)
            .then(|| self.competing_traffic(window).unwrap_or(Reason::StandingQueue))
    }

    /// Competing traffic on the link, if there is any.
    fn competing_traffic(&self, window: &Window) -> Option<Reason> {
        (self.path.other_share(window.number) >= OTHER_TRAFFIC_SHARE_MIN).then_some(Reason::CompetingTraffic)
    }

    /// The reason of drops in the path.
    fn drop_reason(&self, window: &Window) -> Option<Reason> {
        self.path.drops.map(|drops| {
            self.competing_traffic(window).unwrap_or(if drops.is_policer {
                Reason::Policer
            } else if self.paces_by_model
                && drops.rate_bps >= FULL_RATE_SHARE_MIN * drops.fastest_bps
                && drops.queued_bytes >= DEEP_QUEUE_SHARE_MIN * drops.rate_bps * self.facts.least_rtt_us / 8e6
            {
                // A model of the path does not reduce its window by such losses: the link is used fully, whatever it drops.
                Reason::EstimatedPathRate
            } else {
                Reason::ShallowQueue
            })
        })
    }

    /// The reason for the time for which the kernel reports none: data was in flight, and neither the receiver's window nor
    /// the send buffer was full.
    fn remaining_reason(&self, w: &Window, slow: bool, refuted: &BTreeSet<Reason>) -> Reason {
        let after = self.first_loss.get(&w.stream).is_some_and(|first| *first <= w.number);
        let marked = self.stalls.is_marked(w.stream, w.number) && !self.paces_by_model;
        let lossy = after
            && (w.recovering || self.facts.retransmitted >= RETRANSMITTED_SHARE_MIN * self.facts.segments.max(1.0));
        let full = w.in_flight_segments >= FULL_SHARE_MIN * w.cwnd;
        let held = self.requested_bps.is_some();
        let queue = self.queue_reason(w);
        let candidates = [
            (self.seen.spec.socket.pacing_bps.is_some() && queue.is_none() && w.retransmitted == 0).then_some(Reason::RequestedPacing),
            (slow && (self.by_rwnd && self.slow_by_cpu > 0.5 || self.receiver_cpu)).then_some(Reason::ReceiverCpu),
            (self.by_rwnd && slow).then_some(Reason::UnreadData),
            queue,
            (marked && full).then_some(Reason::EcnMarks),
            if lossy && !marked { self.drop_reason(w) } else { None },
            (full && lossy).then_some(Reason::Loss),
            (self.sender_cpu && !(full && w.unsent_bytes > self.facts.mss)).then_some(Reason::SenderCpu),
            self.receiver_cpu.then_some(Reason::ReceiverCpu),
            (self.by_rwnd && w.retransmitted == 0 && w.in_flight_bytes >= NEARLY_FULL_SHARE_MIN * w.offered_bytes).then_some(Reason::ReceiveWindow),
            (w.buffer_in_flight > 0.5 && w.retransmitted == 0).then_some(Reason::SendBuffer),
            (self.by_sndbuf
                && w.retransmitted == 0
                // The buffer is nearly full of data in flight, or at least the congestion window is not full.
                && (w.in_flight_segments < NEARLY_FULL_SHARE_MIN * w.cwnd
                    || w.in_flight_bytes >= NEARLY_FULL_SHARE_MIN * self.facts.in_flight_bytes_max && w.unsent_bytes < w.in_flight_bytes))
                .then_some(Reason::SendBuffer),
            (!held && w.retransmitted == 0 && !w.recovering && is_held_back(w)).then(|| self.competing_traffic(w).unwrap_or(Reason::EstimatedPathRate)),
            marked.then_some(Reason::EcnMarks),
            (!self.paces_by_model && after).then_some(Reason::Loss),
            // The application limits its rate, and its data is awaiting acknowledgement.
            held.then_some(Reason::NothingToSend),
            (!lossy && (full || w.unsent_bytes <= self.facts.mss)).then_some(Reason::GrowingWindow),
            // Data waits, and the window has room: the congestion control itself limits the rate.
            (w.unsent_bytes > self.facts.mss && !full).then_some(Reason::PacedBelowWindow),
            // No data waits, and all windows have room: the application does not write enough.
            (w.unsent_bytes <= self.facts.mss && !full).then_some(if self.sender_ready > 0.5 {
                Reason::SenderCpu
            } else {
                Reason::NothingToSend
            }),
        ];
        candidates.into_iter().flatten().find(|reason| !refuted.contains(reason)).unwrap_or(Reason::Unexplained)
    }
}

fn is_queued(facts: &Facts, windows: &[Window]) -> bool {
    let sum = |of: fn(&Window) -> f64| windows.iter().map(|w| of(w) * w.length_ns).sum::<f64>();
    let (in_flight, acked, length) = (sum(|w| w.in_flight_bytes), sum(|w| w.acked_bps / 8.0), sum(|_| 1.0));
    let mut delivered: Vec<f64> = windows.iter().map(|w| w.delivery_rate).collect();
    delivered.sort_by(f64::total_cmp);
    let fastest = delivered.get(windows.len() * 9 / 10).copied().unwrap_or(0.0);
    in_flight >= QUEUE_RTT_RATIO_MIN * acked * facts.least_rtt_us / 1e6 && acked >= USED_SHARE_MIN * fastest * length
}

fn stall_reason(leaf: Leaf) -> Reason {
    match leaf {
        Leaf::Outage => Reason::Outage,
        Leaf::BlackHole => Reason::BlackHole,
        Leaf::AckPath => Reason::AckPath,
        _ => Reason::Unexplained,
    }
}

fn is_receiver_slow(unread: &BTreeMap<(u64, u64), f64>, window: &Window) -> bool {
    unread.get(&(window.stream, window.number)).is_some_and(|share| *share >= UNREAD_SHARE_MIN)
}

/// Whether data waited although neither window was full, and the paced rate was delivered: then the congestion control
/// itself limits the rate, because it has found that the path carries no more.
fn is_held_back(w: &Window) -> bool {
    w.unsent_bytes > 0.0
        && w.in_flight_segments < FULL_SHARE_MIN * w.cwnd
        && w.in_flight_bytes < FULL_SHARE_MIN * w.offered_bytes
        && w.delivery_rate > 0.0
        && w.delivery_rate >= DELIVERED_PACING_SHARE_MIN * w.pacing_rate
}
