//! The account of a flow at its sending end: each interval between two samples belongs to exactly one [`Leaf`] at each
//! moment, and the leaves sum to the observed time. Pure.
//!
//! The kernel's chronographs (`busy`, `rwnd_limited`, `sndbuf_limited`; net/ipv4/tcp_output.c, tcp_chrono_set) divide the
//! time first: not busy is the application's; the receiver's window and the full send buffer are what they say, unless a
//! queue stood in the path, for then more was in flight than the path holds and neither was too small. The rest, in which
//! data was queued and no such limit was counted, goes by the two samples that enclose it, half to each.
//!
//! **No progress.** While data is in flight and nothing is acknowledged or selectively acknowledged, the interval is held
//! back. When progress resumes or the flow ends, the whole stall gets one meaning: with two timeouts or more, an outage,
//! because a retransmission did not get through either; if only segments of full size did not, a black hole by size; if the
//! receiver then reports the retransmissions as duplicates, the acknowledgements were lost, not the data; with one timeout,
//! recovery; without any, what the moments said. Until then the account shows the meaning that the evidence has so far.
//!
//! **Uncertainty.** Chronographs count in jiffies (1 to 10 ms): what they report beyond an interval is carried to the next,
//! so sums are accurate and single short intervals are not. States between two samples are not seen. A queue that stood
//! during the whole life of a flow is part of its least round trip.

use super::leaf::{Division, Leaf};
use crate::cc;
use crate::tcp_info::{OPTION_WSCALE, TcpSample};

/// A queue lengthens the round trip by this factor, and by [`QUEUE_DELAY_US_MIN`].
pub const QUEUE_RTT_RATIO_MIN: f64 = 1.25;
pub const QUEUE_DELAY_US_MIN: f64 = 1000.0;
/// Fewer segments in flight are no queue; the receiver may delay its acknowledgement (RFC 1122, 4.2.3.2).
const QUEUE_SEGMENTS_MIN: u64 = 4;
/// A window is full if this share of it is in flight.
const FULL_SHARE_MIN: f64 = 0.8;
/// A receiver's window below this share of the largest one seen was closed by unread data.
const CLOSED_WINDOW_SHARE_MAX: f64 = 0.5;
/// A receiver that reads at once offers nearly all of its window while packets come one by one through a queue.
const OPEN_WINDOW_SHARE_MIN: f64 = 0.95;
/// Memory of written data above this share of the send buffer: the writer is woken when a third is free
/// (sk_stream_write_space).
const BUFFER_SHARE_MIN: f64 = 0.6;
/// Unsent data below this share of the data in flight: the buffer itself is in flight.
const UNSENT_SHARE_MAX: f64 = 0.25;
/// A path with a standing queue delivers this share of its fastest rate.
pub const USED_SHARE_MIN: f64 = 0.75;
/// Data in this machine's own queue: this share of what is in flight, and more than this.
const LOCAL_QUEUE_SHARE_MIN: f64 = 0.5;
const LOCAL_QUEUE_BYTES_MIN: u64 = 16 << 10;
/// A congestion control that paces at the path's rate has this share of it delivered.
pub const DELIVERED_PACING_SHARE_MIN: f64 = 0.75;
/// The requested pacing rate is the limit if this share of it is used and delivered (BBR drains at three quarters of it).
const PACED_SHARE_MIN: f64 = 0.7;
/// Timeouts without progress that make a stall an outage: the data was lost, and so was a retransmission.
const OUTAGE_TIMEOUTS_MIN: u64 = 2;
/// Of the retransmissions, the share reported as duplicates above which they were spurious.
const SPURIOUS_SHARE_MIN: f64 = 0.5;
/// Of the bytes in flight, the share acknowledged at once above which all had arrived.
const ALL_ACKED_SHARE_MIN: f64 = 0.9;
/// Below this a segment is not of full size.
const FULL_SIZE_SHARE_MIN: f64 = 0.75;
/// A prediction that is wrong by more than this factor refutes its leaf.
pub const REFUTING_FACTOR: f64 = 3.0;
/// Stalls with times that are kept; more are only counted.
const EPISODES_MAX: usize = 16;
/// States of congestion control (TCP_CA_* of include/uapi/linux/tcp.h).
const CA_RECOVERY: u64 = 3;
const CA_LOSS: u64 = 4;

/// A time without progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Episode {
    pub start_ns: u64,
    pub end_ns: u64,
    pub leaf: Leaf,
    pub timeouts: u64,
}

/// What reduced the congestion window last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reduction {
    None,
    Loss,
    Ecn,
}

/// A stall that may still become an outage.
#[derive(Debug, Clone, Copy)]
struct Stall {
    start_ns: u64,
    /// What the moments said.
    moments: Division,
    timeouts: u64,
    /// At its start.
    segs_in: u64,
    total_rto: u64,
    dsack_dups: u64,
    /// The peer was heard from after the first timeout.
    is_peer_heard: bool,
}

/// The account of one flow, of which samples are given in order of time.
#[derive(Debug, Clone)]
pub struct FlowAccount {
    /// Congestion control, if known.
    paces_by_model: bool,
    /// Small packets are known to pass from elsewhere, such as another connection over the same path.
    pub small_packets_pass: bool,
    first: Option<TcpSample>,
    last: Option<TcpSample>,
    settled: Division,
    stall: Option<Stall>,
    reduction: Reduction,
    window_max: u64,
    has_full_size_passed: bool,
    /// Chronographs' time beyond the intervals so far, ns.
    carried: [u64; 3],
    /// Time in which the queue was this machine's own, of [`Leaf::LinkRate`].
    local_queue_ns: u64,
    /// Sums over the flow, for Little's law: bytes in flight times us, and bytes acknowledged.
    in_flight_byte_us: f64,
    acked_bytes: f64,
    /// The highest delivery rate, byte/s.
    fastest: u64,
    episodes: Vec<Episode>,
    episodes_more: u64,
}

impl FlowAccount {
    /// An account of a flow with this congestion control.
    pub fn new(congestion: Option<&str>) -> Self {
        Self {
            paces_by_model: congestion.is_some_and(cc::paces_by_model),
            small_packets_pass: false,
            first: None,
            last: None,
            settled: Division::default(),
            stall: None,
            reduction: Reduction::None,
            window_max: 0,
            has_full_size_passed: false,
            carried: [0; 3],
            local_queue_ns: 0,
            in_flight_byte_us: 0.0,
            acked_bytes: 0.0,
            fastest: 0,
            episodes: Vec::new(),
            episodes_more: 0,
        }
    }

    /// Takes the next sample and returns the division of the time since the previous one, with the meaning that a stall
    /// has so far.
    pub fn push(&mut self, sample: &TcpSample) -> Division {
        let Some(before) = self.last else {
            self.begin(sample);
            return Division::default();
        };
        if sample.time_ns < before.time_ns {
            return Division::default();
        }
        self.last = Some(*sample);
        self.window_max = self.window_max.max(sample.snd_wnd);
        let length = sample.time_ns - before.time_ns;
        let mut interval = Division::default();
        let chronograph = |carried: &mut u64, now: u64, then: u64, room: u64| {
            let counted = *carried + now.saturating_sub(then).saturating_mul(1000);
            let taken = counted.min(room);
            // At most a second: a counter that ran ahead by more belongs to a time before the first sample.
            *carried = (counted - taken).min(1_000_000_000);
            taken
        };
        let busy = chronograph(&mut self.carried[0], sample.busy_us, before.busy_us, length);
        let rwnd = chronograph(&mut self.carried[1], sample.rwnd_limited_us, before.rwnd_limited_us, busy);
        let sndbuf = chronograph(&mut self.carried[2], sample.sndbuf_limited_us, before.sndbuf_limited_us, busy - rwnd);
        interval.add(Leaf::Application, length - busy);

        self.note_reduction(&before, sample);
        self.in_flight_byte_us +=
            (before.in_flight_bytes() + sample.in_flight_bytes()) as f64 / 2.0 * length as f64 / 1e3;
        self.fastest = self.fastest.max(sample.delivery_rate);
        self.acked_bytes += sample.bytes_acked.saturating_sub(before.bytes_acked) as f64;
        let mut moments = Division::default();
        let rwnd_leaf = self.window_leaf(&before, sample);
        moments.add(rwnd_leaf, rwnd);
        moments.add(if self.has_standing_queue(sample) { Leaf::LinkRate } else { Leaf::SendBuffer }, sndbuf);
        let rest = busy - rwnd - sndbuf;
        for (moment, ns) in [(&before, rest / 2), (sample, rest - rest / 2)] {
            let leaf = self.moment_leaf(moment, &before, sample);
            if leaf == Leaf::LinkRate && is_queued_here(moment) {
                self.local_queue_ns += ns;
            }
            moments.add(leaf, ns);
        }

        if is_progress(&before, sample) || !is_waiting(sample) || is_window_closed(sample) {
            self.note_size(&before, sample);
            self.end_stall(sample, Some(&before));
            interval.add_all(&moments);
            self.settled.add_all(&interval);
            return interval;
        }
        self.settled.add_all(&interval);
        let stall = self.stall.get_or_insert(Stall {
            start_ns: before
                .time_ns
                .max(sample.time_ns.saturating_sub(sample.last_ack_ms * 1_000_000))
                .min(sample.time_ns),
            moments: Division::default(),
            timeouts: 0,
            segs_in: before.segs_in,
            total_rto: before.total_rto,
            dsack_dups: before.dsack_dups,
            is_peer_heard: false,
        });
        stall.moments.add_all(&moments);
        let counted = sample.total_rto.saturating_sub(stall.total_rto);
        stall.is_peer_heard |= stall.timeouts > 0 && sample.segs_in > stall.segs_in;
        if stall.timeouts == 0 {
            stall.segs_in = sample.segs_in;
        }
        stall.timeouts = stall.timeouts.max(counted).max(sample.retransmits).max(sample.backoff).max(sample.probes);
        match self.stall_leaf(sample, None) {
            Some(leaf) => interval.add(leaf, busy),
            None => interval.add_all(&moments),
        }
        interval
    }

    /// Ends the account: a stall that lasts gets the meaning that it has now.
    pub fn finish(&mut self) {
        if let Some(last) = self.last {
            self.end_stall(&last, None);
        }
    }

    /// The division so far; a stall that lasts has the meaning that it has now.
    pub fn division(&self) -> Division {
        let mut all = self.settled;
        if let (Some(stall), Some(last)) = (&self.stall, &self.last) {
            add_stall(&mut all, stall, self.stall_leaf(last, None));
        }
        all
    }

    /// Gives the time after losses to a path that drops what exceeds a rate, if that was found by other means.
    pub fn name_drops(&mut self) {
        self.settled
            .move_all(&[Leaf::CwndAfterLoss, Leaf::FastRecovery, Leaf::TimeoutRecovery], Leaf::PolicerOrShallowQueue);
    }

    /// Stalls that were not mere recovery, with their times, and how many more there were.
    pub fn episodes(&self) -> (&[Episode], u64) {
        (&self.episodes, self.episodes_more)
    }

    /// Whether the congestion window was last reduced by a congestion mark.
    pub fn is_reduced_by_mark(&self) -> bool {
        self.reduction == Reduction::Ecn
    }

    /// Of the time of [`Leaf::LinkRate`], that in which the queue was this machine's own, ns.
    pub fn local_queue_ns(&self) -> u64 {
        self.local_queue_ns
    }

    /// The first and the last sample.
    pub fn ends(&self) -> Option<(&TcpSample, &TcpSample)> {
        self.first.as_ref().zip(self.last.as_ref())
    }

    /// The time between them, ns.
    pub fn observed_ns(&self) -> u64 {
        self.ends().map_or(0, |(first, last)| last.time_ns - first.time_ns)
    }

    fn begin(&mut self, sample: &TcpSample) {
        (self.first, self.last) = (Some(*sample), Some(*sample));
        self.window_max = sample.snd_wnd;
        // Before it was watched, a flow that has had this much acknowledged has sent segments of full size.
        self.has_full_size_passed = sample.bytes_acked >= 10 * sample.snd_mss.max(1);
        if sample.total_retrans > 0 {
            self.reduction = Reduction::Loss;
        } else if sample.delivered_ce > 0 {
            self.reduction = Reduction::Ecn;
        }
    }

    fn note_reduction(&mut self, before: &TcpSample, now: &TcpSample) {
        let lost = now.total_retrans.saturating_sub(before.total_retrans);
        let marked = now.delivered_ce.saturating_sub(before.delivered_ce);
        if lost > marked || now.lost > 0 && marked == 0 {
            self.reduction = Reduction::Loss;
        } else if marked > 0 {
            self.reduction = Reduction::Ecn;
        }
    }

    fn note_size(&mut self, before: &TcpSample, now: &TcpSample) {
        let acked = now.bytes_acked.saturating_sub(before.bytes_acked);
        let segments = now.delivered.saturating_sub(before.delivered).max(1);
        let mss = now.snd_mss.max(1);
        self.has_full_size_passed |= acked >= mss && acked as f64 >= FULL_SIZE_SHARE_MIN * (mss * segments) as f64;
    }

    /// The meaning of the present stall, which ended after the sample `before`; `None`: what its moments said.
    fn stall_leaf(&self, now: &TcpSample, before: Option<&TcpSample>) -> Option<Leaf> {
        let stall = self.stall.as_ref()?;
        let duplicates = now.dsack_dups.saturating_sub(stall.dsack_dups);
        if stall.timeouts == 0 {
            return None;
        }
        // All that was in flight had arrived: it is acknowledged at once, and what was sent again was a duplicate.
        let is_all_acked = before.is_some_and(|b| {
            outstanding_bytes(b) > 0
                && now.bytes_acked.saturating_sub(b.bytes_acked) as f64
                    >= ALL_ACKED_SHARE_MIN * outstanding_bytes(b) as f64
        });
        if is_all_acked && duplicates > 0 {
            return Some(Leaf::AckPath);
        }
        if stall.timeouts < OUTAGE_TIMEOUTS_MIN {
            return Some(Leaf::TimeoutRecovery);
        }
        if self.has_full_size_passed {
            return Some(Leaf::Outage);
        }
        let is_full_size =
            outstanding_bytes(now) as f64 >= FULL_SIZE_SHARE_MIN * (now.snd_mss * now.unacked.max(1)) as f64;
        // Nothing of full size has passed yet. That small packets do must be known: the handshake alone may have been before
        // an outage.
        let do_small_pass = self.small_packets_pass || stall.is_peer_heard || now.bytes_acked > 1;
        Some(match (is_full_size, do_small_pass) {
            (true, true) => Leaf::BlackHole,
            (true, false) => Leaf::Unknown,
            (false, _) => Leaf::Outage,
        })
    }

    fn end_stall(&mut self, now: &TcpSample, before: Option<&TcpSample>) {
        let (leaf, end_ns) = (self.stall_leaf(now, before), now.time_ns);
        let Some(stall) = self.stall.take() else { return };
        add_stall(&mut self.settled, &stall, leaf);
        if let Some(leaf) = leaf.filter(|leaf| *leaf != Leaf::TimeoutRecovery) {
            if self.episodes.len() < EPISODES_MAX {
                self.episodes.push(Episode { start_ns: stall.start_ns, end_ns, leaf, timeouts: stall.timeouts });
            } else {
                self.episodes_more += 1;
            }
        }
    }

    /// The leaf of the time in which the kernel says that the receiver's window held the flow back.
    fn window_leaf(&self, before: &TcpSample, now: &TcpSample) -> Leaf {
        let small = now.snd_wnd.max(before.snd_wnd);
        // A kernel before 5.4 does not report the window.
        if self.window_max == 0 {
            return Leaf::ReceiveWindow;
        }
        if is_window_closed(now) || (small as f64) < CLOSED_WINDOW_SHARE_MAX * self.window_max as f64 {
            return Leaf::Reader;
        }
        // A window that unread data made smaller delays acknowledgements, too, as a queue does: which it was is not known.
        if self.has_standing_queue(now) {
            return if self.is_window_open(small) { Leaf::LinkRate } else { Leaf::Unknown };
        }
        if now.options & OPTION_WSCALE == 0 { Leaf::ReceiveWindowUnscaled } else { Leaf::ReceiveWindow }
    }

    /// Whether the receiver has read what arrived: its window is about as large as ever.
    fn is_window_open(&self, window: u64) -> bool {
        window as f64 >= OPEN_WINDOW_SHARE_MIN * self.window_max as f64
    }

    /// The leaf of the time around a sample for which no chronograph ran but that of data queued.
    fn moment_leaf(&self, s: &TcpSample, before: &TcpSample, now: &TcpSample) -> Leaf {
        if is_window_closed(s) {
            return Leaf::Reader;
        }
        let in_network = s.segments_in_network();
        let is_full = in_network as f64 >= FULL_SHARE_MIN * s.cwnd as f64;
        let has_unsent = s.notsent_bytes > s.snd_mss;
        let is_buffer_in_flight = is_buffer_in_flight(s);
        if s.ca_state == CA_LOSS && !self.paces_by_model {
            return self.spurious_leaf(now).unwrap_or(Leaf::TimeoutRecovery);
        }
        if has_unsent && is_paced_as_requested(s) {
            return Leaf::Pacing;
        }
        let is_window_full = s.snd_wnd > 0 && s.in_flight_bytes() + s.snd_mss > s.snd_wnd;
        if self.has_standing_queue(s) && (is_full || has_unsent || is_buffer_in_flight) {
            return if is_window_full && has_unsent { self.window_leaf(s, s) } else { Leaf::LinkRate };
        }
        if s.ca_state == CA_RECOVERY && !self.paces_by_model {
            return self.spurious_leaf(now).unwrap_or(Leaf::FastRecovery);
        }
        if is_window_full && has_unsent && self.predicts(s.snd_wnd, before, now) {
            return self.window_leaf(s, s);
        }
        if is_buffer_in_flight && self.predicts(s.in_flight_bytes(), before, now) {
            return Leaf::SendBuffer;
        }
        if has_unsent && is_queued_here(s) {
            return Leaf::LinkRate;
        }
        if self.paces_by_model && has_unsent {
            // Its model of the path is the limit, whether its window is full or not.
            let is_estimate_delivered =
                s.delivery_rate > 0 && s.delivery_rate as f64 >= DELIVERED_PACING_SHARE_MIN * s.pacing_rate as f64;
            return match (is_estimate_delivered, self.reduction) {
                (true, _) if self.is_window_open(s.snd_wnd) => Leaf::LinkRate,
                (false, Reduction::None) if is_full => Leaf::CwndStart,
                _ => Leaf::Unknown,
            };
        }
        if is_full && (has_unsent || s.app_limited == 0) {
            if !self.predicts(s.cwnd * s.snd_mss, before, now) {
                return Leaf::Unknown;
            }
            return match self.reduction {
                Reduction::None => Leaf::CwndStart,
                Reduction::Ecn => Leaf::CwndAfterEcn,
                Reduction::Loss => self.spurious_leaf(now).unwrap_or(Leaf::CwndAfterLoss),
            };
        }
        if !has_unsent {
            return Leaf::Application;
        }
        Leaf::Unknown
    }

    /// Whether a queue stood in the path. A writer that refills a small buffer in bursts lengthens round trips too; then
    /// less is in flight, on average, than a path with a queue holds (Little's law), or less arrives than it delivers.
    fn has_standing_queue(&self, s: &TcpSample) -> bool {
        let is_drained = self.in_flight_byte_us < QUEUE_RTT_RATIO_MIN * self.acked_bytes * s.min_rtt_us as f64;
        let seconds = self.observed_ns() as f64 / 1e9;
        let is_unused = self.acked_bytes < USED_SHARE_MIN * self.fastest as f64 * seconds;
        has_queue(s) && !((is_drained || is_unused) && is_buffer_in_flight(s))
    }

    /// The leaf of losses that were none, if most retransmissions were reported as duplicates.
    fn spurious_leaf(&self, now: &TcpSample) -> Option<Leaf> {
        let is_spurious = now.dsack_dups > 0 && now.dsack_dups as f64 >= SPURIOUS_SHARE_MIN * now.total_retrans as f64;
        match (is_spurious, now.reord_seen > 0) {
            (true, true) => Some(Leaf::Reordering),
            (true, false) => Some(Leaf::AckPath),
            (false, _) => None,
        }
    }

    /// Whether so many bytes a round trip are about the rate of the interval. A short interval, in which few round trips
    /// are, says nothing.
    fn predicts(&self, bytes: u64, before: &TcpSample, now: &TcpSample) -> bool {
        let (length_us, rtt_us) = ((now.time_ns - before.time_ns) as f64 / 1e3, now.srtt_us.max(1) as f64);
        if length_us < 4.0 * rtt_us {
            return true;
        }
        let acked = now.bytes_acked.saturating_sub(before.bytes_acked) as f64;
        let predicted = bytes as f64 * length_us / rtt_us;
        let slack = (4 * now.snd_mss) as f64;
        acked <= predicted * REFUTING_FACTOR + slack && acked * REFUTING_FACTOR + slack >= predicted
    }
}

fn add_stall(all: &mut Division, stall: &Stall, leaf: Option<Leaf>) {
    match leaf {
        Some(leaf) => all.add(leaf, stall.moments.total_ns()),
        None => all.add_all(&stall.moments),
    }
}

/// Whether the receiver confirmed anything.
fn is_progress(before: &TcpSample, now: &TcpSample) -> bool {
    now.bytes_acked > before.bytes_acked || now.delivered > before.delivered
}

/// Whether the receiver's window has no room for a segment, and data waits for it. Probes alone are no sign of it: the
/// kernel also probes while its own packets cannot be sent.
fn is_window_closed(s: &TcpSample) -> bool {
    s.snd_wnd < s.snd_mss && s.notsent_bytes > 0 && (s.probes > 0 || s.snd_wnd > 0 && s.backoff == 0)
}

/// Whether the send buffer is nearly full, and nearly all of it is in flight.
pub fn is_buffer_in_flight(s: &TcpSample) -> bool {
    s.sndbuf > 0
        && s.wmem_queued as f64 >= BUFFER_SHARE_MIN * s.sndbuf as f64
        && s.notsent_bytes as f64 <= UNSENT_SHARE_MAX * s.in_flight_bytes() as f64
        && s.unacked > 0
}

/// Whether packets are due for an acknowledgement, or cannot even be sent (a local filter, no route).
fn is_waiting(s: &TcpSample) -> bool {
    s.unacked > 0 || s.probes > 0
}

/// Bytes sent and not acknowledged.
fn outstanding_bytes(s: &TcpSample) -> u64 {
    s.bytes_sent.saturating_sub(s.bytes_retrans).saturating_sub(s.bytes_acked)
}

/// Whether a queue stood in the path.
fn has_queue(s: &TcpSample) -> bool {
    let is_longer = |least_us: u64| s.srtt_us as f64 > least_us as f64 * QUEUE_RTT_RATIO_MIN + QUEUE_DELAY_US_MIN;
    s.unacked >= QUEUE_SEGMENTS_MIN && s.known_min_rtt_us().is_some_and(is_longer)
}

/// Whether the requested pacing rate is what is delivered. (A rate of 32 bits that is all ones is none, too.)
fn is_paced_as_requested(s: &TcpSample) -> bool {
    let has_limit = ![0, u64::MAX, u64::from(u32::MAX)].contains(&s.max_pacing_rate);
    let most = s.max_pacing_rate as f64;
    has_limit && s.pacing_rate as f64 >= PACED_SHARE_MIN * most && s.delivery_rate as f64 >= PACED_SHARE_MIN * most
}

/// Whether most of what is in flight waits in this machine's own queue.
fn is_queued_here(s: &TcpSample) -> bool {
    s.wmem_alloc > LOCAL_QUEUE_BYTES_MIN && s.wmem_alloc as f64 >= LOCAL_QUEUE_SHARE_MIN * s.in_flight_bytes() as f64
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
