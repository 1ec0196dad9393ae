//! Why a transfer was not faster: what limited it, for which share of its time, and what would change that. Pure: it uses
//! only what both ends measured.
//!
//! The question is always what would change if a cause were removed, and it is answered from quantities that do not depend
//! on how a CPU idles or accounts its time: data waiting to be sent, data in flight, full windows, delivered data. The
//! sender's kernel reports for how much of its time a connection had nothing to send, waited for the receiver's window, or
//! had its whole send buffer in flight (`struct tcp_info`: busy, rwnd_limited, sndbuf_limited). Time is divided into
//! windows of 100 ms, and each part of each window gets one reason, the first that applies:
//!
//! ```text
//! nothing to send       the sender's CPU for the time that its thread was runnable without sending; the application for the rest
//! receiver's window     if data was unread, the receiver's CPU for the time that its thread was runnable, and the
//!                       application for the rest; the path, if there was a queue in it; else the window
//! send buffer full      the path, if there was a queue in it; the receiver's CPU, if data was unread; else the buffer
//! the rest              the application, if it requested pacing; the receiver's CPU or the application, if data was unread and the
//!                       receiver's window limited the connection at other times; the path, if there was a queue in it; the path,
//!                       if it dropped what exceeded a rate; congestion, if the congestion window was full and reduced by loss;
//!                       a CPU; the receiver's window or the send buffer, if it limited the connection at other times and was
//!                       nearly full of data in flight now (the buffer also if the congestion window was not full); the link, if
//!                       the congestion control limited the rate although its window was not full, to the rate that was
//!                       delivered: its estimate of the path (BBR); else congestion: the window was reduced by loss, or had not
//!                       yet grown, or the control paced no faster
//! ```
//!
//! **Refutation.** Most reasons predict a rate from the numbers that they are reported with. A reason whose prediction is
//! far from the rate that arrived in its time is discarded, and everything is evaluated again without it ([`judge`]). The
//! remainder is called unexplained.
//!
//! **Stalls.** Before all this, windows without progress are what the account of their stream says ([`stalls`]): an outage, a
//! black hole by size, lost acknowledgements.
//!
//! An application with a requested write rate whose data arrived at that rate is the limit, regardless of all else: only a
//! higher requested rate would change what arrives.
//!
//! **The path.** There was a queue if the round trip took a quarter and 1 ms longer than the minimum of the run: then more
//! was in flight than the path holds, so no window and no buffer was too small. (With fewer than four segments in flight it
//! is rather the receiver that delays its acknowledgements, RFC 1122, 4.2.3.2.) [`path`] determines whether the path drops
//! what exceeds a rate, and who else used it: the link's rate, a policer, a short queue, competing traffic.
//!
//! **CPUs.** A thread was always runnable if it ran or waited to run for 80 % of the time, or if a quota throttled it. A
//! supervising thread that waited for a CPU is weak evidence: it is reported with a CPU cause, but is never a cause
//! itself. CPUs come after queue and loss on purpose. On a machine that is busy with other work every thread waits, but as
//! long as there is a queue in the path, or the full congestion window is in flight, a waiting thread does not reduce the
//! throughput.
//!
//! **Uncertainty.** The kernel counts in ticks (1 to 10 ms). A CPU is evaluated over the whole run, not by window. Traffic
//! that shares the path but no interface with an end looks like a slower link.

mod judge;
mod path;
mod readings;
mod stalls;
pub mod stored;
mod text;
mod udp;

use crate::flow::account::QUEUE_DELAY_US_MIN;
use crate::outcome::{EndReport, ReceivedDirection, SentDirection};
use crate::rate_check::TrialVerdict;
use crate::spec::{Spec, Traffic};
use crate::tcp_info::TcpSample;
use crate::usage::ThreadTotals;
use crate::{bound, cc};
use judge::{Basis, Findings, Verdict};
use model::text::duration;
use path::PathFindings;
use serde::{Deserialize, Serialize};
use stalls::Stalls;
use std::collections::BTreeMap;

/// Length of a window, ns.
const WINDOW_NS: u64 = 100_000_000;
/// A thread that was runnable for this share of the time lacked CPU time.
const CPU_READY_SHARE_MIN: f64 = 0.8;
/// A quota that throttled threads for this share of the time had an effect.
const THROTTLED_SHARE_MIN: f64 = 0.1;
/// See [`readings::unread_shares`].
const STOPPED_INTERVALS: u64 = 10;
/// A sample represents at most this much time before it.
const SAMPLE_SPAN_NS_MAX: u64 = 5_000_000_000;
/// A cause with a smaller share is not reported.
const CAUSE_SHARE_MIN: f64 = 0.01;

/// What limits a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A program did not write, or did not read.
    Application,
    /// The receiver's window.
    ReceiveWindow,
    SendBuffer,
    Congestion,
    /// The link carries no more.
    LinkRate,
    /// The path drops what exceeds a rate, without queueing.
    Policer,
    /// A queue in the path that is too short for bursts.
    ShallowBuffer,
    /// Other traffic on the same interface.
    CompetingTraffic,
    /// Each request waits for the response to the previous one.
    RoundTrips,
    /// A CPU of one end.
    Cpu,
    /// Marks by the network (ECN) that reduced the congestion window.
    EcnMarks,
    /// Nothing got through for a time.
    Outage,
    /// Packets of full size do not get through.
    BlackHole,
    /// Acknowledgements were lost.
    AckPath,
    /// No measurement explains it.
    Unexplained,
}

impl Cause {
    /// The cause as text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::ReceiveWindow => "receive window",
            Self::SendBuffer => "send buffer",
            Self::Congestion => "congestion",
            Self::LinkRate => "link rate",
            Self::Policer => "policer",
            Self::ShallowBuffer => "shallow buffer",
            Self::CompetingTraffic => "competing traffic",
            Self::RoundTrips => "round trips",
            Self::Cpu => "CPU",
            Self::EcnMarks => "ECN marks",
            Self::Outage => "outage",
            Self::BlackHole => "black hole",
            Self::AckPath => "lost acknowledgements",
            Self::Unexplained => "unexplained",
        }
    }
}

/// A cause and its share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    pub cause: Cause,
    /// The share of the run's time, 0 to 1; all shares sum to 1 but for those below 0.01.
    pub share: f64,
    /// The rate that it allows all streams together according to its evidence, bit/s; `None` if it predicts no rate.
    pub allows_bps: Option<f64>,
    /// The evidence, with numbers.
    pub evidence: String,
    /// What would change it, naming the setting; `None` if nothing at the ends would.
    pub remedy: Option<String>,
}

/// The measurements of both ends for one direction.
#[derive(Debug, Clone, Copy)]
pub struct BothEnds<'a> {
    pub spec: &'a Spec,
    /// The direction at its sender.
    pub sent: &'a SentDirection,
    /// The direction at its receiver.
    pub received: &'a ReceivedDirection,
    pub sender: &'a EndReport,
    pub receiver: &'a EndReport,
    /// Throughput at the receiver, bit/s over the whole run.
    pub rate_bps: f64,
    /// For UDP at the highest rate of a search: what stopped the search.
    pub searched: Option<TrialVerdict>,
}

impl BothEnds<'_> {
    /// Whether the sender's congestion control paces by a model of the path.
    fn paces_by_model(&self) -> bool {
        self.sent.sockets.iter().any(|socket| socket.congestion.as_deref().is_some_and(cc::paces_by_model))
    }
}

/// The reason for a part of the time, finer than [`Cause`], since remedies differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// The application has a requested write rate, and that rate arrived.
    RequestedRate,
    NothingToSend,
    RequestedPacing,
    UnreadData,
    ReceiveWindow,
    SendBuffer,
    Loss,
    GrowingWindow,
    /// The congestion control limits the rate, although its window has room.
    PacedBelowWindow,
    StandingQueue,
    EstimatedPathRate,
    Policer,
    ShallowQueue,
    CompetingTraffic,
    SenderCpu,
    ReceiverCpu,
    EcnMarks,
    Outage,
    BlackHole,
    AckPath,
    Unexplained,
}

impl Reason {
    fn cause(self) -> Cause {
        match self {
            Self::RequestedRate | Self::NothingToSend | Self::RequestedPacing | Self::UnreadData => Cause::Application,
            Self::ReceiveWindow => Cause::ReceiveWindow,
            Self::SendBuffer => Cause::SendBuffer,
            Self::Loss | Self::GrowingWindow | Self::PacedBelowWindow => Cause::Congestion,
            Self::StandingQueue | Self::EstimatedPathRate => Cause::LinkRate,
            Self::Policer => Cause::Policer,
            Self::ShallowQueue => Cause::ShallowBuffer,
            Self::CompetingTraffic => Cause::CompetingTraffic,
            Self::SenderCpu | Self::ReceiverCpu => Cause::Cpu,
            Self::EcnMarks => Cause::EcnMarks,
            Self::Outage => Cause::Outage,
            Self::BlackHole => Cause::BlackHole,
            Self::AckPath => Cause::AckPath,
            Self::Unexplained => Cause::Unexplained,
        }
    }
}

/// Values for a whole direction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Facts {
    /// Minimum and median round trip, us.
    least_rtt_us: f64,
    rtt_us: f64,
    rto_us: f64,
    mss: f64,
    /// Maximum bytes in flight of a connection.
    in_flight_bytes_max: f64,
    /// Segments sent, and retransmitted.
    segments: f64,
    retransmitted: f64,
}

/// The basis of a TCP direction's evaluation, and its verdict.
struct Judgement {
    facts: Facts,
    path: PathFindings,
    stalls: Stalls,
    verdict: Verdict,
}

fn judge_direction(seen: &BothEnds<'_>) -> Judgement {
    let windows = readings::windows(&seen.sent.samples, seen.sent.start_ns);
    let facts = readings::direction_facts(&seen.sent.samples);
    let path = PathFindings::from_samples(seen.sent, seen.received, seen.sent.sockets.len());
    let congestion = seen.sent.sockets.iter().find_map(|socket| socket.congestion.as_deref());
    let stalls = Stalls::from_samples(&seen.sent.samples, seen.sent.start_ns, congestion);
    let verdict = judge::judge_run(seen, &facts, &windows, &Findings { path: &path, stalls: &stalls });
    Judgement { facts, path, stalls, verdict }
}

/// What limited TCP in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedCause {
    /// The start of the interval, CLOCK_BOOTTIME of the sending end. It is 100 ms long.
    pub start_ns: u64,
    pub cause: Cause,
    /// Its share of the interval, 0 to 1; the shares of one interval sum to 1.
    pub share: f64,
}

/// What limited the direction over time: the shares for each 100 ms, over all streams. For UDP one cause applies to the
/// whole run. Empty for transactions.
pub fn causes_over_time(seen: &BothEnds<'_>) -> Vec<TimedCause> {
    match seen.spec.traffic {
        Traffic::Tcp { .. } => (),
        Traffic::Udp { .. } => {
            let Some(limit) = udp::limits(seen).into_iter().next() else { return Vec::new() };
            // The other end's times are not trusted, so the duration is limited.
            let long_ns = seen.sent.end_ns.saturating_sub(seen.sent.start_ns).min(seen.spec.duration_ms * 1_000_000);
            let start = |at: u64| seen.sent.start_ns.saturating_add(at * WINDOW_NS);
            let one = |at| TimedCause { start_ns: start(at), cause: limit.cause, share: limit.share };
            return (0..long_ns.div_ceil(WINDOW_NS)).map(one).collect();
        }
        Traffic::Transactions { .. } => return Vec::new(),
    }
    let mut stretches: BTreeMap<u64, BTreeMap<Cause, f64>> = BTreeMap::new();
    for part in judge_direction(seen).verdict.parts {
        *stretches.entry(part.number).or_default().entry(part.reason.cause()).or_default() += part.ns;
    }
    let moments = stretches.into_iter().flat_map(|(number, causes)| {
        let all: f64 = causes.values().sum();
        let start_ns = seen.sent.start_ns.saturating_add(number.saturating_mul(WINDOW_NS));
        causes.into_iter().map(move |(cause, ns)| TimedCause { start_ns, cause, share: ns / all })
    });
    moments.filter(|m| m.share >= CAUSE_SHARE_MIN).collect()
}

/// What limited the direction, the largest share first. Empty if there is too little data.
pub fn limits(seen: &BothEnds<'_>) -> Vec<Limit> {
    match seen.spec.traffic {
        Traffic::Tcp { .. } => (),
        Traffic::Udp { .. } => return udp::limits(seen),
        // Transactions have no bulk sender: see [`transaction_limits`].
        Traffic::Transactions { .. } => return Vec::new(),
    }
    let judged = judge_direction(seen);
    let reasons: BTreeMap<Reason, f64> =
        judged.verdict.basis.iter().map(|(reason, basis)| (*reason, basis.ns)).collect();
    let streams = seen.sent.sockets.len().max(1) as f64;
    let all: f64 = reasons.values().sum();
    let mut causes: BTreeMap<Cause, Vec<(Reason, f64)>> = BTreeMap::new();
    for (reason, part) in reasons {
        causes.entry(reason.cause()).or_default().push((reason, part / all));
    }
    let mut limits: Vec<Limit> = causes
        .into_iter()
        .filter_map(|(cause, mut parts)| {
            parts.sort_by(|a, b| b.1.total_cmp(&a.1));
            let share = parts.iter().map(|p| p.1).sum::<f64>().min(1.0);
            // The largest part provides the evidence of its cause.
            let reason = parts.first()?.0;
            let basis = judged.verdict.basis_of(reason)?;
            let allows = judge::allowed_rates(reason, basis, seen, &judged.facts);
            let (evidence, remedy) = text::evidence_and_remedy(reason, seen, &judged, basis);
            (share >= CAUSE_SHARE_MIN).then_some(Limit {
                cause,
                share,
                allows_bps: allows.map(|a| a.1 * streams),
                evidence,
                remedy,
            })
        })
        .collect();
    limits.sort_by(|a, b| b.share.total_cmp(&a.share));
    limits
}

/// What limited transactions, which each connection makes one after the other. Empty if there were none.
pub fn transaction_limits(spec: &Spec, asks: &EndReport, serves: &EndReport) -> Vec<Limit> {
    let Some(t) = asks.transactions.as_ref().filter(|t| t.counts.iter().any(|n| *n > 0)) else { return Vec::new() };
    let wall_ns = t.ends_ns.last().map_or(0, |end| end.saturating_sub(t.start_ns));
    let limit =
        |cause, evidence, remedy| vec![Limit { cause, share: 1.0, allows_bps: None, evidence, remedy: Some(remedy) }];
    if cpu_bound(&t.threads, asks, wall_ns) {
        return limit(Cause::Cpu, text::cpu_evidence_in("client", &t.threads, wall_ns, asks), text::cpu_remedy());
    }
    if serves.machine.throttled >= THROTTLED_SHARE_MIN {
        let evidence = format!(
            "a CPU quota throttled the server for {:.0} % of the time",
            100.0 * serves.machine.throttled.min(1.0)
        );
        return limit(Cause::Cpu, evidence, text::cpu_remedy());
    }
    let (streams, seconds) = (f64::from(spec.streams), wall_ns as f64 / 1e9);
    let answered = t.counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n)) as f64 / seconds.max(1e-9);
    let allowed = streams * 1e6 / t.latency_us[0].max(1e-3);
    let evidence_text = format!(
        "{} connection(s) with one request in flight each and a median response time of {} (network and server \
         included) allow {allowed:.0} requests/s; {answered:.0} were answered",
        spec.streams,
        duration(t.latency_us[0] * 1e3)
    );
    if answered * 3.0 < allowed {
        // Most were fast, and a few took most of the time.
        let evidence = format!("{evidence_text}; some took much longer, up to {}", duration(t.latency_us[4] * 1e3));
        return limit(Cause::Unexplained, evidence, "find the cause with `fathom record` during the run".into());
    }
    limit(Cause::RoundTrips, evidence_text, "send more at a time (--streams), or shorten the path".into())
}

/// The share of the time in which an end's busiest thread ran, waited to run, or was throttled by a quota.
fn ready_share(threads: &ThreadTotals, end: &EndReport, wall_ns: u64) -> f64 {
    (share_of(threads.busiest_ready_ns, wall_ns) + end.machine.throttled.clamp(0.0, 1.0)).min(1.0)
}

/// Whether an end's threads were always runnable, or throttled by a quota.
fn cpu_bound(threads: &ThreadTotals, end: &EndReport, wall_ns: u64) -> bool {
    share_of(threads.busiest_ready_ns, wall_ns) >= CPU_READY_SHARE_MIN || end.machine.throttled >= THROTTLED_SHARE_MIN
}

/// A time as a share of the run's, limited to 1: both are read at slightly different moments, so that the time may seem
/// longer than the run.
fn share_of(ns: u64, wall_ns: u64) -> f64 {
    (ns as f64 / wall_ns.max(1) as f64).min(1.0)
}

/// The share of the time in which the supervising thread waited for a CPU. It describes the machine, and is reported with
/// a cause; it is not a cause itself.
fn supervisor_wait_share(end: &EndReport, wall_ns: u64) -> f64 {
    share_of(end.sampler_wait_ns, wall_ns)
}

/// The rate, bit/s, beyond which the path dropped what a flow sent, according to samples of its sender; `None` without
/// evidence of such a rate.
pub fn dropping_rate_bps(samples: &[TcpSample]) -> Option<f64> {
    path::find_drops(samples, samples.first()?.time_ns).map(|drops| drops.rate_bps)
}

/// The bounds of Mathis and Padhye for the measured loss and round trip, in bit/s for all streams together; `None` without
/// retransmissions.
pub fn loss_bounds(samples: &[TcpSample], streams: usize) -> Option<(f64, f64)> {
    let f = readings::direction_facts(samples);
    loss_bounds_from_facts(&f, streams)
}

fn loss_bounds_from_facts(f: &Facts, streams: usize) -> Option<(f64, f64)> {
    let (loss, rtt) = (f.retransmitted / f.segments.max(1.0), f.rtt_us / 1e6);
    let n = streams as f64;
    Some((bound::mathis(f.mss, rtt, loss)? * n, bound::padhye(f.mss, rtt, f.rto_us / 1e6, loss)? * n))
}

#[cfg(test)]
mod tests;
