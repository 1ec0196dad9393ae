//! Why a transfer was no faster: what held it back, for which share of its time, and what would change that. Pure: it sees
//! only what both ends read.
//!
//! The sender's kernel says for how much of its time a connection had nothing to send, waited for the receiver's window,
//! or had its whole send buffer in flight (`struct tcp_info`: busy, rwnd_limited, sndbuf_limited). Time is cut into
//! windows of 100 ms, and each part of each window gets one cause:
//!
//! ```text
//! nothing to send       the sender's processor as far as its thread was ready, which it then did not send; the application for the rest
//! receiver's window     if data lay unread, the receiver's processor as far as its thread was ready, and the
//!                       application for the rest; the link, if a queue stood in the path; else the window
//! send buffer full      the link, if a queue stood in the path; a processor, if an end was ready all the time; else the buffer
//! the rest              the application, if it asked to be paced; the receiver's processor, if data lay unread and its thread was ready
//!                       all the time; the application, if data lay unread and the receiver's window held the connection back at
//!                       other times; the link, if a queue stood in the path; congestion, if the congestion window was full and
//!                       cut by loss; a processor; the receiver's window or the send buffer, if it held the connection back at other times and was
//!                       nearly full of data in flight now (the buffer also if
//!                       the congestion window was not full); the link, if the congestion control held data back though its window
//!                       was not full, at the rate that was delivered: what it found the path to carry (BBR);
//!                       else congestion: the window was cut by loss, or had not yet grown
//! ```
//!
//! A **queue** stood in the path if the round trip took a quarter and 1 ms longer than the least of the run: then more was
//! in flight than the path holds, so no window and no buffer was too small. (With fewer than [`FEW`] segments in flight it is
//! rather the receiver that delays its acknowledgements, RFC 1122, 4.2.3.2.) A thread was **ready all the time** if it ran
//! or waited to run for 80 % of it, or if a quota held it back. That a thread which only looks after the others waited for a processor is a weak
//! sign: it is told beside a processor that is named, and names none.
//!
//! An application that is to write so much a second and whose data arrived at that rate is the limit, whatever else was so: without it all else
//! would be as it was, and nothing but a higher rate would change what arrives.
//!
//! Processors stand behind queue and loss on purpose. On a machine that is busy with other things every thread waits, but as
//! long as a queue stands in the path, or what the congestion window allows is in flight, no thread's waiting costs a byte.
//!
//! **Uncertainty.** The kernel counts in ticks (1 to 10 ms). A bottleneck without a queue that drops what exceeds its rate
//! looks like loss, and is called congestion; so does a link that loses packets by itself: the bounds of Mathis and
//! Padhye beside it tell what that much loss allows. A processor is judged over the whole run, not by window.

mod text;
mod udp;

use crate::bound;
use crate::held::Trial;
use crate::outcome::{EndReport, Received, Sent, Unread};
use crate::sampler;
use crate::spec::{Spec, Traffic};
use crate::tcp_info::TcpSample;
use crate::usage::Threads;
use serde::Serialize;
use std::collections::BTreeMap;

/// Length of a window, ns.
const WINDOW_NS: u64 = 100_000_000;
/// A thread that was ready for this share of the time had a processor too few.
const READY: f64 = 0.8;
/// A quota that held threads back for this share of the time was felt.
const THROTTLED: f64 = 0.1;
/// An application that holds itself back is what limits its run if so much of what it was asked for arrived: at the end some is still under way.
const MET: f64 = 0.95;
/// Of so few segments sent again the window was hardly cut: a path without loss sends some again by mistake.
const LOSSY: f64 = 0.001;
/// A queue makes a round trip longer by this factor and by [`QUEUE_US`].
const QUEUE: f64 = 1.25;
const QUEUE_US: f64 = 1000.0;
/// A window or buffer of which this share is in flight is nearly full: a control that paces its packets (BBR) fills it
/// only now and then.
const NEARLY: f64 = 0.6;
/// It held the connection back at other times: for this share of the run.
const AT_TIMES: f64 = 0.05;
/// A window of which less than this share is in flight, though data wait, is not what holds them back.
const UNFILLED: f64 = 0.8;
/// A control that paces at what the path carries has so much of it delivered; one that still looks for more paces at twice as much or more
/// (BBR's startup), and one that does not pace names a rate that its window never reaches.
const CARRIED: f64 = 0.75;
/// So few segments in flight make no queue.
const FEW: f64 = 4.0;
/// Unread bytes from this share of the receive buffer on say that the receiver is slow (of the buffer, about half can
/// hold payload).
const UNREAD: f64 = 0.15;
/// See [`unread`].
const STOPPED: u64 = 10;
/// What a look finds tells of so much time before it at most.
const LONGEST_STOP_NS: u64 = 5_000_000_000;
/// A cause with less is not told.
const LEAST: f64 = 0.01;

/// What holds a transfer back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
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
    /// A processor of an end.
    Cpu,
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
            Self::Cpu => "CPU",
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
    /// What shows it, with numbers.
    pub evidence: String,
    /// What would change it, naming the setting; none if nothing at the ends would.
    pub remedy: Option<String>,
}

/// What both ends saw of a direction.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
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
    pub searched: Option<Trial>,
}

/// Where a part of the time went, finer than [`Cause`], since remedies differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    NothingToSend,
    Paced,
    NotRead,
    Window,
    Buffer,
    Loss,
    Growing,
    Queue,
    Found,
    SenderCpu,
    ReceiverCpu,
}

impl Reason {
    fn cause(self) -> Cause {
        match self {
            Self::NothingToSend | Self::Paced | Self::NotRead => Cause::Application,
            Self::Window => Cause::ReceiveWindow,
            Self::Buffer => Cause::SendBuffer,
            Self::Loss | Self::Growing => Cause::Congestion,
            Self::Queue | Self::Found => Cause::LinkRate,
            Self::SenderCpu | Self::ReceiverCpu => Cause::Cpu,
        }
    }
}

/// Numbers of a whole direction that sentences are made of.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Facts {
    /// Least and median round trip, us.
    least_rtt_us: f64,
    rtt_us: f64,
    rto_us: f64,
    mss: f64,
    /// Median congestion window, segments.
    cwnd: f64,
    /// Bytes in flight of a connection while its send buffer, and while its receiver's window, held it back: means over that time.
    in_buffer: f64,
    in_window: f64,
    /// Most bytes in flight of a connection.
    in_flight: f64,
    /// Segments sent, and sent again.
    segments: f64,
    again: f64,
    /// Median rates at which packets were let go and were delivered, bit/s.
    paced_bps: f64,
    delivered_bps: f64,
}

/// What held TCP back in a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// When the stretch began, CLOCK_BOOTTIME of the sending end. It is 100 ms long.
    pub start_ns: u64,
    /// What.
    pub cause: Cause,
    /// For which share of it, 0 to 1; those of one stretch sum to 1.
    pub share: f64,
}

/// What held the direction back as time went on: the shares of each 100 ms, of all streams together. Of UDP one cause holds for
/// the whole run. Empty for transactions.
pub fn course(seen: &Seen<'_>) -> Vec<Moment> {
    match seen.spec.traffic {
        Traffic::Tcp { .. } => (),
        Traffic::Udp { .. } => {
            let Some(limit) = udp::limits(seen).into_iter().next() else { return Vec::new() };
            // However long the other end says that it sent.
            let long_ns = seen.sent.end_ns.saturating_sub(seen.sent.start_ns).min(seen.spec.duration_ms * 1_000_000);
            let start = |at: u64| seen.sent.start_ns.saturating_add(at * WINDOW_NS);
            let one = |at| Moment { start_ns: start(at), cause: limit.cause, share: limit.share };
            return (0..long_ns.div_ceil(WINDOW_NS)).map(one).collect();
        }
        Traffic::Transactions { .. } => return Vec::new(),
    }
    let mut stretches: BTreeMap<u64, BTreeMap<Cause, f64>> = BTreeMap::new();
    let windows = windows(&seen.sent.samples, seen.sent.start_ns);
    for (number, reason, ns) in of_tcp(seen, &facts(&seen.sent.samples, &windows), &windows) {
        *stretches.entry(number).or_default().entry(reason.cause()).or_default() += ns;
    }
    let moments = stretches.into_iter().flat_map(|(number, causes)| {
        let all: f64 = causes.values().sum();
        let start_ns = seen.sent.start_ns.saturating_add(number.saturating_mul(WINDOW_NS));
        causes.into_iter().map(move |(cause, ns)| Moment { start_ns, cause, share: ns / all })
    });
    moments.filter(|m| m.share >= LEAST).collect()
}

/// What held the direction back, the largest share first. Empty if too little was read to say.
pub fn limits(seen: &Seen<'_>) -> Vec<Limit> {
    let windows = windows(&seen.sent.samples, seen.sent.start_ns);
    let facts = facts(&seen.sent.samples, &windows);
    let parts = match seen.spec.traffic {
        Traffic::Tcp { .. } => of_tcp(seen, &facts, &windows),
        Traffic::Udp { .. } => return udp::limits(seen),
        // Transactions have no sender: [`transactions`].
        Traffic::Transactions { .. } => return Vec::new(),
    };
    let mut reasons: BTreeMap<Reason, f64> = BTreeMap::new();
    for (_, reason, ns) in parts {
        *reasons.entry(reason).or_default() += ns;
    }
    let all: f64 = reasons.values().sum();
    let mut causes: BTreeMap<Cause, Vec<(Reason, f64)>> = BTreeMap::new();
    for (reason, part) in reasons {
        causes.entry(reason.cause()).or_default().push((reason, part / all));
    }
    let mut limits: Vec<Limit> = causes
        .into_iter()
        .filter_map(|(cause, mut parts)| {
            parts.sort_by(|a, b| b.1.total_cmp(&a.1));
            let share = parts.iter().map(|p| p.1).sum();
            // The greatest part speaks for its cause.
            let (evidence, remedy) = text::of(parts.first()?.0, seen, &facts);
            (share >= LEAST).then_some(Limit { cause, share, evidence, remedy })
        })
        .collect();
    limits.sort_by(|a, b| b.share.total_cmp(&a.share));
    limits
}

/// What held transactions back, which are asked for one after the other by each connection. Empty if there were none.
pub fn transactions(spec: &Spec, asks: &EndReport, serves: &EndReport) -> Vec<Limit> {
    let Some(t) = asks.transactions.as_ref().filter(|t| t.counts.iter().any(|n| *n > 0)) else { return Vec::new() };
    let wall_ns = t.ends_ns.last().map_or(0, |end| end.saturating_sub(t.start_ns));
    let limit = |cause, evidence, remedy| vec![Limit { cause, share: 1.0, evidence, remedy: Some(remedy) }];
    if cpu_bound(&t.threads, asks, wall_ns) {
        return limit(Cause::Cpu, text::busy("end that asks", &t.threads, wall_ns, asks), text::cpu_remedy());
    }
    if serves.machine.throttled >= THROTTLED {
        let evidence =
            format!("a quota held the end that serves back for {:.0} % of the time", 100.0 * serves.machine.throttled);
        return limit(Cause::Cpu, evidence, text::cpu_remedy());
    }
    let evidence = format!(
        "{} connection(s) with one request under way each, which waited {} for its answer (median), the network and the other end included",
        spec.streams,
        text::ms(t.latency_us[0])
    );
    limit(Cause::Application, evidence, "ask more at a time: --streams; or shorten the way there and back".into())
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

/// For which share of the time the thread that looks waited for a processor. It tells of the machine, and is told beside a cause; it is none.
fn starved(end: &EndReport, wall_ns: u64) -> f64 {
    share_of(end.sampler_wait_ns, wall_ns)
}

/// The parts of the run's time: the number of the window, what held the connection back, and for how many ns.
fn of_tcp(seen: &Seen<'_>, facts: &Facts, windows: &[Window]) -> Vec<(u64, Reason, f64)> {
    let wall = seen.sent.end_ns.saturating_sub(seen.sent.start_ns);
    let sender_cpu = cpu_bound(&seen.sent.threads, seen.sender, wall);
    let receiver_cpu = cpu_bound(&seen.received.threads, seen.receiver, wall);
    let (sender_ready, receiver_ready) =
        (ready(&seen.sent.threads, seen.sender, wall), ready(&seen.received.threads, seen.receiver, wall));
    let asked = match seen.spec.traffic {
        Traffic::Tcp { rate_bps } => rate_bps,
        _ => None,
    };
    // It got what it asked for: whatever else is so, taking it away would change nothing.
    if asked.is_some_and(|rate| seen.rate_bps >= MET * rate as f64 * f64::from(seen.spec.streams)) {
        return windows.iter().map(|w| (w.number, Reason::NothingToSend, w.length_ns)).collect();
    }
    let held = asked.is_some();
    let sockets = u64::from(seen.spec.streams) * seen.spec.directions.len() as u64;
    let every_ns = sampler::every_ns(sockets, seen.spec.duration_ms.saturating_mul(1_000_000));
    let unread = unread(&seen.received.unread, seen.received.start_ns, every_ns);
    let mut parts = Vec::new();
    let at_times = |of: fn(&Window) -> f64| {
        let (held, all) =
            windows.iter().fold((0.0, 0.0), |(held, all), w| (held + of(w) * w.length_ns, all + w.length_ns));
        held > AT_TIMES * all
    };
    let (by_rwnd, by_sndbuf) = (at_times(|w| w.rwnd), at_times(|w| w.sndbuf));
    let over_time = |of: &dyn Fn(&Window) -> f64| {
        let (part, all) = windows.iter().fold((0.0, 0.0), |(p, a), w| (p + of(w) * w.length_ns, a + w.length_ns));
        if all > 0.0 { part / all } else { 0.0 }
    };
    // While there is nothing to send, the sender's thread runs, waits to run, or sleeps; it is not waiting for TCP. What it was ready for and cannot
    // have been ready for at other times was the processor's.
    let idle = over_time(&|w| w.idle);
    let idle_by_cpu = if idle > 0.0 { ((sender_ready + idle - 1.0) / idle).clamp(0.0, 1.0) } else { 0.0 };
    // While data lie unread, the receiver's thread is not waiting for data: it runs or waits to run, or it sleeps.
    let is_slow = |w: &Window| unread.get(&(w.stream, w.number)).is_some_and(|share| *share >= UNREAD);
    let slow_time = over_time(&|w| f64::from(u8::from(is_slow(w))));
    let slow_by_cpu = if slow_time > 0.0 { (receiver_ready / slow_time).min(1.0) } else { 0.0 };
    let lossy = |w: &Window| w.recovering || facts.again >= LOSSY * facts.segments.max(1.0);
    for window in windows {
        let slow = is_slow(window);
        let queue = window.in_flight >= FEW && window.rtt_us > facts.least_rtt_us * QUEUE + QUEUE_US;
        let mut add = |reason, share: f64| {
            if share > 0.0 {
                parts.push((window.number, reason, share * window.length_ns));
            }
        };
        add(Reason::SenderCpu, window.idle * idle_by_cpu);
        add(Reason::NothingToSend, window.idle * (1.0 - idle_by_cpu));
        let by_window = if queue { Reason::Queue } else { Reason::Window };
        add(Reason::ReceiverCpu, if slow { window.rwnd * slow_by_cpu } else { 0.0 });
        add(
            if slow { Reason::NotRead } else { by_window },
            if slow { window.rwnd * (1.0 - slow_by_cpu) } else { window.rwnd },
        );
        let by_buffer = match (queue, slow && receiver_cpu) {
            (_, true) => Reason::ReceiverCpu,
            (true, _) => Reason::Queue,
            (false, false) => Reason::Buffer,
        };
        add(by_buffer, window.sndbuf);
        let rest = if seen.spec.socket.pacing_bps.is_some() && !queue && window.again == 0 {
            Reason::Paced
        } else if slow && (by_rwnd && slow_by_cpu > 0.5 || receiver_cpu) {
            Reason::ReceiverCpu
        } else if by_rwnd && slow {
            Reason::NotRead
        } else if queue {
            Reason::Queue
        } else if window.in_flight >= UNFILLED * window.cwnd && lossy(window) {
            Reason::Loss
        } else if sender_cpu {
            Reason::SenderCpu
        } else if receiver_cpu {
            Reason::ReceiverCpu
        } else if by_rwnd && window.again == 0 && window.flying >= NEARLY * window.offered {
            Reason::Window
        } else if by_sndbuf
            && window.again == 0
            // The buffer is nearly full of data in flight, or at least the congestion window is not.
            && (window.in_flight < NEARLY * window.cwnd
                || window.flying >= NEARLY * facts.in_flight && window.waiting < window.flying)
        {
            Reason::Buffer
        } else if !held && window.again == 0 && !window.recovering && window.held_back() {
            Reason::Found
        } else if window.recovering || facts.again > 0.0 {
            Reason::Loss
        } else if held {
            // It sends what it is given, and waits for the acknowledgement.
            Reason::NothingToSend
        } else {
            Reason::Growing
        };
        add(rest, (1.0 - window.idle - window.rwnd - window.sndbuf).max(0.0));
    }
    parts
}

/// A stretch of a connection's time; shares are 0 to 1 of it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Window {
    stream: u64,
    number: u64,
    length_ns: f64,
    idle: f64,
    rwnd: f64,
    sndbuf: f64,
    rtt_us: f64,
    in_flight: f64,
    cwnd: f64,
    /// Bytes: in flight, offered by the receiver, written and not yet sent.
    flying: f64,
    offered: f64,
    waiting: f64,
    again: u64,
    recovering: bool,
    /// Rates at which packets were let go and were delivered, byte/s.
    paced: f64,
    delivered: f64,
}

impl Window {
    /// Whether data waited though neither window was full, and as much was delivered as was let go: then the congestion control itself
    /// holds them back, because it has found that the path carries no more.
    fn held_back(&self) -> bool {
        self.waiting > 0.0
            && self.in_flight < UNFILLED * self.cwnd
            && self.flying < UNFILLED * self.offered
            && self.delivered > 0.0
            && self.delivered >= CARRIED * self.paced
    }
}

fn windows(samples: &[TcpSample], start_ns: u64) -> Vec<Window> {
    // A kernel that does not tell the window says 0; to one that does, 0 is a window that is closed.
    let told = samples.iter().any(|s| s.snd_wnd > 0);
    let mut by_place: BTreeMap<(u64, u64), Vec<&TcpSample>> = BTreeMap::new();
    let mut before: BTreeMap<u64, &TcpSample> = BTreeMap::new();
    for sample in samples {
        let number = sample.time_ns.saturating_sub(start_ns) / WINDOW_NS;
        let window = by_place.entry((sample.stream, number)).or_default();
        // A window begins with the last reading of the one before it.
        if window.is_empty() {
            window.extend(before.get(&sample.stream));
        }
        window.push(sample);
        before.insert(sample.stream, sample);
    }
    by_place
        .into_iter()
        .filter_map(|((stream, number), readings)| {
            let (first, last) = (*readings.first()?, *readings.last()?);
            let length_ns = last.time_ns.checked_sub(first.time_ns).filter(|ns| *ns > 0)? as f64;
            let share = |now: u64, then: u64| (now.saturating_sub(then) as f64 * 1e3 / length_ns).min(1.0);
            let busy = share(last.busy_us, first.busy_us);
            let rwnd = share(last.rwnd_limited_us, first.rwnd_limited_us);
            let sndbuf = share(last.sndbuf_limited_us, first.sndbuf_limited_us).min(1.0 - rwnd);
            let mean =
                |of: fn(&TcpSample) -> u64| readings.iter().map(|s| of(s) as f64).sum::<f64>() / readings.len() as f64;
            Some(Window {
                stream,
                number,
                length_ns,
                // Ticks may say more than 1 in all.
                idle: (1.0 - busy).min(1.0 - rwnd - sndbuf),
                rwnd,
                sndbuf,
                rtt_us: mean(|s| s.srtt_us),
                in_flight: mean(|s| s.unacked),
                cwnd: mean(|s| s.cwnd),
                flying: mean(TcpSample::in_flight_bytes),
                offered: if told { mean(|s| s.snd_wnd) } else { f64::INFINITY },
                waiting: mean(|s| s.notsent_bytes),
                again: last.total_retrans.saturating_sub(first.total_retrans),
                // 2: the window is being reduced, 3: recovery, 4: loss (include/uapi/linux/tcp.h).
                recovering: readings.iter().any(|s| s.ca_state >= 2),
                paced: mean(|s| s.pacing_rate),
                delivered: mean(|s| s.delivery_rate),
            })
        })
        .collect()
}

/// The mean share of the receive buffer that lay unread, by stream and window. A look tells of the time since the one before
/// it. A receiver that did not look for [`STOPPED`] times as long as it should did not read either: all that had come lay
/// there, though its reading thread may have emptied it before it looked again.
fn unread(looks: &[Unread], start_ns: u64, every_ns: u64) -> BTreeMap<(u64, u64), f64> {
    let mut sums: BTreeMap<(u64, u64), (f64, f64)> = BTreeMap::new();
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    for look in looks {
        let before = seen.insert(look.stream, look.time_ns).unwrap_or(start_ns);
        let share = match look.time_ns.saturating_sub(before) > STOPPED * every_ns {
            true => 1.0,
            false => look.unread_bytes as f64 / look.buffer_bytes.max(1) as f64,
        };
        let mut from = before.max(look.time_ns.saturating_sub(LONGEST_STOP_NS));
        while from < look.time_ns {
            let number = from.saturating_sub(start_ns) / WINDOW_NS;
            let end = start_ns.saturating_add((number + 1).saturating_mul(WINDOW_NS));
            // Both bounds are later than `from`, so it comes to an end.
            let to = end.min(look.time_ns).max(from + 1);
            let sum = sums.entry((look.stream, number)).or_default();
            sum.0 += share * (to - from) as f64;
            sum.1 += (to - from) as f64;
            from = to;
        }
    }
    sums.into_iter().map(|(place, (sum, ns))| (place, sum / ns)).collect()
}

/// The mean of what was in flight over the time that `held` gives a share of each window of; all of the time if it was never so.
fn while_held(windows: &[Window], held: fn(&Window) -> f64) -> f64 {
    let mean = |held: &dyn Fn(&Window) -> f64| {
        let ns: f64 = windows.iter().map(|w| held(w) * w.length_ns).sum();
        let sum: f64 = windows.iter().map(|w| held(w) * w.length_ns * w.flying.min(w.offered)).sum();
        (ns > 0.0).then_some(sum / ns)
    };
    mean(&held).or_else(|| mean(&|_| 1.0)).unwrap_or(0.0)
}

fn facts(samples: &[TcpSample], windows: &[Window]) -> Facts {
    let median = |of: fn(&TcpSample) -> u64| {
        let mut all: Vec<u64> = samples.iter().map(of).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or(0) as f64
    };
    let most = |of: fn(&TcpSample) -> u64| samples.iter().map(of).max().unwrap_or(0) as f64;
    let mut last: BTreeMap<u64, &TcpSample> = BTreeMap::new();
    last.extend(samples.iter().map(|s| (s.stream, s)));
    let least = samples.iter().map(|s| s.min_rtt_us).filter(|us| *us > 0 && *us < u64::from(u32::MAX)).min();
    Facts {
        least_rtt_us: least.unwrap_or(0) as f64,
        rtt_us: median(|s| s.srtt_us),
        rto_us: median(|s| s.rto_us),
        mss: median(|s| s.snd_mss),
        cwnd: median(|s| s.cwnd),
        in_buffer: while_held(windows, |w| w.sndbuf),
        in_window: while_held(windows, |w| w.rwnd),
        in_flight: most(TcpSample::in_flight_bytes),
        segments: last.values().map(|s| s.data_segs_out).sum::<u64>() as f64,
        again: last.values().map(|s| s.total_retrans).sum::<u64>() as f64,
        paced_bps: median(|s| s.pacing_rate) * 8.0,
        delivered_bps: median(|s| s.delivery_rate) * 8.0,
    }
}

/// The bounds of Mathis and Padhye for the loss and the round trip that were measured, in bit/s for all streams together;
/// `None` if nothing was sent again.
pub fn bounds(samples: &[TcpSample], streams: usize) -> Option<(f64, f64)> {
    let f = facts(samples, &[]);
    of_facts(&f, streams)
}

fn of_facts(f: &Facts, streams: usize) -> Option<(f64, f64)> {
    let (loss, rtt) = (f.again / f.segments.max(1.0), f.rtt_us / 1e6);
    let n = streams as f64;
    Some((bound::mathis(f.mss, rtt, loss)? * n, bound::padhye(f.mss, rtt, f.rto_us / 1e6, loss)? * n))
}

#[cfg(test)]
mod tests;
