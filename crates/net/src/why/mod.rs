//! Why a transfer was no faster: what held it back, for which share of its time, and what would change that. Pure: it sees
//! only what both ends read.
//!
//! The question is always what would change if a cause were gone, asked of quantities that do not depend on how a processor idles or accounts its
//! time: what waits to be sent, what is under way, which window is full, what is delivered. The sender's kernel says for how much of its time a
//! connection had nothing to send, waited for the receiver's window, or had its whole send buffer in flight (`struct tcp_info`: busy, rwnd_limited,
//! sndbuf_limited). Time is cut into windows of 100 ms, and each part of each window gets one reason, the first that holds:
//!
//! ```text
//! nothing to send       the sender's processor as far as its thread was ready, which it then did not send; the application for the rest
//! receiver's window     if data lay unread, the receiver's processor as far as its thread was ready, and the
//!                       application for the rest; the path, if a queue stood in it; else the window
//! send buffer full      the path, if a queue stood in it; the receiver's processor, if data lay unread; else the buffer
//! the rest              the application, if it asked to be paced; the receiver's processor or the application, if data lay unread and the
//!                       receiver's window held the connection back at other times; the path, if a queue stood in it; the path, if it dropped
//!                       what exceeded a rate; congestion, if the congestion window was full and cut by loss; a processor; the receiver's
//!                       window or the send buffer, if it held the connection back at other times and was nearly full of data in flight
//!                       now (the buffer also if the congestion window was not full); the link, if the congestion control held data
//!                       back though its window was not full, at the rate that was delivered: what it found the path to carry (BBR);
//!                       else congestion: the window was cut by loss, or had not yet grown, or the control let go no more
//! ```
//!
//! **Refutation.** Most reasons predict a rate by the numbers that they are reported with. One whose prediction is far from what arrived while it held is discarded, and
//! all is judged again without it ([`judge`]). What nothing explains is called unexplained.
//!
//! An application that is to write so much a second and whose data arrived at that rate is the limit, whatever else was so: without it all else
//! would be as it was, and nothing but a higher rate would change what arrives.
//!
//! **The path.** A queue stood in it if the round trip took a quarter and 1 ms longer than the least of the run: then more was
//! in flight than the path holds, so no window and no buffer was too small. (With fewer than four segments in flight it is
//! rather the receiver that delays its acknowledgements, RFC 1122, 4.2.3.2.) Whether it drops what exceeds a rate, and who else used it, [`path`] decides:
//! the link's rate, a policer, a short queue, others.
//!
//! **Processors.** A thread was ready all the time if it ran or waited to run for 80 % of it, or if a quota held it back. That a thread which
//! only looks after the others waited for a processor is a weak sign: it is reported beside a processor that is named, and names none. Processors stand
//! behind queue and loss on purpose. On a machine that is busy with other things every thread waits, but as
//! long as a queue stands in the path, or what the congestion window allows is in flight, no thread's waiting costs a byte.
//!
//! **Uncertainty.** The kernel counts in ticks (1 to 10 ms). A processor is judged over the whole run, not by window. Others who share the path but not an
//! interface with an end look like a slower link.

mod judge;
mod path;
mod readings;
pub mod stored;
mod text;
mod udp;

use crate::bound;
use crate::outcome::{EndReport, Received, Sent};
use crate::rate_check::TrialVerdict;
use crate::spec::{Spec, Traffic};
use crate::tcp_info::TcpSample;
use crate::usage::Threads;
use judge::{Basis, Verdict};
use model::text::duration;
use path::Path;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Length of a window, ns.
const WINDOW_NS: u64 = 100_000_000;
/// A thread that was ready for this share of the time had a processor too few.
const READY: f64 = 0.8;
/// A quota that held threads back for this share of the time was felt.
const THROTTLED: f64 = 0.1;
/// A queue makes a round trip longer by this, us, and by a factor.
const QUEUE_US: f64 = 1000.0;
/// See [`readings::unread`].
const STOPPED: u64 = 10;
/// A sample stands for at most this much time before it.
const LONGEST_STOP_NS: u64 = 5_000_000_000;
/// A cause with less is not reported.
const LEAST: f64 = 0.01;

/// What holds a transfer back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A program did not write, or did not read.
    Application,
    /// The receiver's window.
    ReceiveWindow,
    /// The send buffer.
    SendBuffer,
    /// The congestion window.
    Congestion,
    /// The link carries no more.
    LinkRate,
    /// The path drops what exceeds a rate, without a queue.
    Policer,
    /// A queue in the path that is too short for what comes at once.
    ShallowBuffer,
    /// Others who use the same interface.
    CompetingTraffic,
    /// One request waits for the answer to the one before.
    RoundTrips,
    /// A processor of an end.
    Cpu,
    /// Nothing that was read explains it.
    Unexplained,
}

impl Cause {
    /// In words.
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
            Self::Unexplained => "unexplained",
        }
    }
}

/// A cause with its share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    /// What.
    pub cause: Cause,
    /// The share of the run's time, 0 to 1; all shares sum to 1 but for those below 0.01.
    pub share: f64,
    /// The rate that it allows all streams together by the numbers of its evidence, bit/s; none if it names no rate.
    pub allows_bps: Option<f64>,
    /// What shows it, with numbers.
    pub evidence: String,
    /// What would change it, naming the setting; none if nothing at the ends would.
    pub remedy: Option<String>,
}

/// What both ends saw of a direction.
#[derive(Debug, Clone, Copy)]
pub struct BothEnds<'a> {
    /// What was asked for.
    pub spec: &'a Spec,
    /// The direction at its sender.
    pub sent: &'a Sent,
    /// The direction at its receiver.
    pub received: &'a Received,
    /// The sending end.
    pub sender: &'a EndReport,
    /// The receiving end.
    pub receiver: &'a EndReport,
    /// What arrived, bit/s over the whole run.
    pub rate_bps: f64,
    /// UDP at the highest rate that a search found: what stopped the search.
    pub searched: Option<TrialVerdict>,
}

/// Where a part of the time went, finer than [`Cause`], since remedies differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// It writes so much a second, and that arrived.
    Asked,
    NothingToSend,
    Paced,
    NotRead,
    Window,
    Buffer,
    Loss,
    Growing,
    /// The control lets go no more, though its window has room.
    HeldBack,
    Queue,
    Found,
    Policed,
    Shallow,
    Others,
    SenderCpu,
    ReceiverCpu,
    Unexplained,
}

impl Reason {
    fn cause(self) -> Cause {
        match self {
            Self::Asked | Self::NothingToSend | Self::Paced | Self::NotRead => Cause::Application,
            Self::Window => Cause::ReceiveWindow,
            Self::Buffer => Cause::SendBuffer,
            Self::Loss | Self::Growing | Self::HeldBack => Cause::Congestion,
            Self::Queue | Self::Found => Cause::LinkRate,
            Self::Policed => Cause::Policer,
            Self::Shallow => Cause::ShallowBuffer,
            Self::Others => Cause::CompetingTraffic,
            Self::SenderCpu | Self::ReceiverCpu => Cause::Cpu,
            Self::Unexplained => Cause::Unexplained,
        }
    }
}

/// Numbers of a whole direction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Facts {
    /// Least and median round trip, us.
    least_rtt_us: f64,
    rtt_us: f64,
    rto_us: f64,
    mss: f64,
    /// Most bytes in flight of a connection.
    in_flight: f64,
    /// Segments sent, and sent again.
    segments: f64,
    again: f64,
}

/// All that a TCP direction is judged by, and the verdict.
struct Judgement {
    facts: Facts,
    path: Path,
    verdict: Verdict,
}

fn judged(seen: &BothEnds<'_>) -> Judgement {
    let windows = readings::windows(&seen.sent.samples, seen.sent.start_ns);
    let facts = readings::facts(&seen.sent.samples);
    let path = Path::of(seen.sent, seen.received, seen.sent.sockets.len());
    let verdict = judge::verdict(seen, &facts, &windows, &path);
    Judgement { facts, path, verdict }
}

/// What held TCP back in a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedCause {
    /// When the stretch began, CLOCK_BOOTTIME of the sending end. It is 100 ms long.
    pub start_ns: u64,
    /// What.
    pub cause: Cause,
    /// For which share of it, 0 to 1; those of one stretch sum to 1.
    pub share: f64,
}

/// What held the direction back as time went on: the shares of each 100 ms, of all streams together. Of UDP one cause holds for
/// the whole run. Empty for transactions.
pub fn course(seen: &BothEnds<'_>) -> Vec<TimedCause> {
    match seen.spec.traffic {
        Traffic::Tcp { .. } => (),
        Traffic::Udp { .. } => {
            let Some(limit) = udp::limits(seen).into_iter().next() else { return Vec::new() };
            // However long the other end claims that it sent.
            let long_ns = seen.sent.end_ns.saturating_sub(seen.sent.start_ns).min(seen.spec.duration_ms * 1_000_000);
            let start = |at: u64| seen.sent.start_ns.saturating_add(at * WINDOW_NS);
            let one = |at| TimedCause { start_ns: start(at), cause: limit.cause, share: limit.share };
            return (0..long_ns.div_ceil(WINDOW_NS)).map(one).collect();
        }
        Traffic::Transactions { .. } => return Vec::new(),
    }
    let mut stretches: BTreeMap<u64, BTreeMap<Cause, f64>> = BTreeMap::new();
    for part in judged(seen).verdict.parts {
        *stretches.entry(part.number).or_default().entry(part.reason.cause()).or_default() += part.ns;
    }
    let moments = stretches.into_iter().flat_map(|(number, causes)| {
        let all: f64 = causes.values().sum();
        let start_ns = seen.sent.start_ns.saturating_add(number.saturating_mul(WINDOW_NS));
        causes.into_iter().map(move |(cause, ns)| TimedCause { start_ns, cause, share: ns / all })
    });
    moments.filter(|m| m.share >= LEAST).collect()
}

/// What held the direction back, the largest share first. Empty if too little was read.
pub fn limits(seen: &BothEnds<'_>) -> Vec<Limit> {
    match seen.spec.traffic {
        Traffic::Tcp { .. } => (),
        Traffic::Udp { .. } => return udp::limits(seen),
        // Transactions have no sender: [`transactions`].
        Traffic::Transactions { .. } => return Vec::new(),
    }
    let judged = judged(seen);
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
            // The greatest part speaks for its cause.
            let reason = parts.first()?.0;
            let basis = judged.verdict.basis_of(reason)?;
            let allows = judge::allows(reason, basis, seen, &judged.facts);
            let (evidence, remedy) = text::of(reason, seen, &judged, basis);
            (share >= LEAST).then_some(Limit {
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

/// What held transactions back, which are asked for one after the other by each connection. Empty if there were none.
pub fn transactions(spec: &Spec, asks: &EndReport, serves: &EndReport) -> Vec<Limit> {
    let Some(t) = asks.transactions.as_ref().filter(|t| t.counts.iter().any(|n| *n > 0)) else { return Vec::new() };
    let wall_ns = t.ends_ns.last().map_or(0, |end| end.saturating_sub(t.start_ns));
    let limit =
        |cause, evidence, remedy| vec![Limit { cause, share: 1.0, allows_bps: None, evidence, remedy: Some(remedy) }];
    if cpu_bound(&t.threads, asks, wall_ns) {
        return limit(Cause::Cpu, text::busy("client", &t.threads, wall_ns, asks), text::cpu_remedy());
    }
    if serves.machine.throttled >= THROTTLED {
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
        // Most were quick, and a few took most of the time.
        let evidence = format!("{evidence_text}; some took much longer, up to {}", duration(t.latency_us[4] * 1e3));
        return limit(Cause::Unexplained, evidence, "find the cause with `fathom record` during the run".into());
    }
    limit(Cause::RoundTrips, evidence_text, "send more at a time (--streams), or shorten the path".into())
}

/// For which share of the time an end's busiest thread ran, waited to run, or was held back by a quota.
fn ready(threads: &Threads, end: &EndReport, wall_ns: u64) -> f64 {
    (share_of(threads.busiest_ready_ns, wall_ns) + end.machine.throttled.clamp(0.0, 1.0)).min(1.0)
}

/// Whether an end's threads were ready all the time, or held back by a quota.
fn cpu_bound(threads: &Threads, end: &EndReport, wall_ns: u64) -> bool {
    share_of(threads.busiest_ready_ns, wall_ns) >= READY || end.machine.throttled >= THROTTLED
}

/// A time as a share of the run's, 0 to 1: both are read at slightly different moments, so that one may seem longer than the whole.
fn share_of(ns: u64, wall_ns: u64) -> f64 {
    (ns as f64 / wall_ns.max(1) as f64).min(1.0)
}

/// For which share of the time the thread that looks waited for a processor. It describes the machine, and is reported beside a cause; it is none.
fn starved(end: &EndReport, wall_ns: u64) -> f64 {
    share_of(end.sampler_wait_ns, wall_ns)
}

/// The bounds of Mathis and Padhye for the loss and the round trip that were measured, in bit/s for all streams together;
/// `None` if nothing was sent again.
pub fn bounds(samples: &[TcpSample], streams: usize) -> Option<(f64, f64)> {
    let f = readings::facts(samples);
    of_facts(&f, streams)
}

fn of_facts(f: &Facts, streams: usize) -> Option<(f64, f64)> {
    let (loss, rtt) = (f.again / f.segments.max(1.0), f.rtt_us / 1e6);
    let n = streams as f64;
    Some((bound::mathis(f.mss, rtt, loss)? * n, bound::padhye(f.mss, rtt, f.rto_us / 1e6, loss)? * n))
}

#[cfg(test)]
mod tests;
