//! What the path did with the offered traffic: whether it dropped what exceeded a rate, and who else used it. Pure.
//!
//! **Drops.** A path with random loss loses the same share at any rate, and the throughput varies with the window. One that
//! carries a fixed rate and drops the excess (a policer, a queue too short for a burst) loses nothing below that rate, and
//! all of the excess above it. Five signs distinguish them, of which two must be present:
//!
//! 1. *Steep.* The run is divided into bins of two round trips; each has the bytes sent, and the bytes delivered a round
//!    trip later. The slope of the missing bytes over the sent bytes is the loss rate if loss is random, and near 1 if the
//!    excess is dropped.
//! 2. *High.* Whenever losses begin, the send rate just before has a rank among all rates, weighted by bytes. Random loss
//!    can hit any packet: then the ranks are uniform, with a mean of one half, whatever the window did.
//! 3. *Long.* The same for the round trip: a queue is full when it begins to drop.
//! 4. *Flat.* From the first loss on, the same amount arrives in each interval of five round trips.
//! 5. *More than chance allows.* The throughput is far above what Reno and cubic would reach if that share of packets were
//!    lost at random.
//!
//! Observed in 36 runs with 0.3, 1 and 3 % of random loss: slopes up to 0.37, deviations of the rank up to 0.8 of its
//! standard deviations, and variations from 0.2 on; none was misclassified.
//!
//! **Policer or short queue.** A policer passes a burst at line speed, up to the size of its bucket, and delays nothing; a
//! queue passes nothing faster than its rate, and delays what waits. The byte counts distinguish them: those passed in a
//! moment beyond the rate, and those that the rate carries in the time by which round trips were longer when losses began.
//! Where less than a packet waits, both are equivalent, and it is called a policer.
//!
//! **Others.** The bytes that the interface of either end carried in each 100 ms, minus those of the run's own connections.
//! Only traffic on the same interface is visible: traffic behind a switch or an access point looks like a slower link.
//!
//! **Uncertainty.** Bins are coarse where a run has few round trips; below [`BINS_MIN`] there is no verdict.
//! Acknowledgements that arrive in batches look like a burst: a moment is at least 20 ms.

use super::WINDOW_NS;
use crate::bound;
use crate::outcome::{InterfaceCount, ReceivedDirection, SentDirection};
use crate::tcp_info::TcpSample;
use std::collections::BTreeMap;

/// The minimum share of the bytes sent beyond the mean that was missing.
const SLOPE_MIN: f64 = 0.4;
/// The minimum variation of the send rate, standard deviation over mean, to estimate a slope.
const RATE_VARIATION_MIN: f64 = 0.1;
/// The minimum distance of the ranks above one half, in standard deviations.
const RANK_DEVIATION_MIN: f64 = 2.5;
/// The maximum variation of the throughput, standard deviation over mean.
const THROUGHPUT_VARIATION_MAX: f64 = 0.13;
/// The minimum number of intervals of five round trips for a conclusion.
const STRETCHES_MIN: usize = 4;
/// The minimum factor by which the throughput exceeds what random loss allows.
const CHANCE_RATIO_MIN: f64 = 3.0;
/// The share of retransmitted segments above which it is evidence by itself.
const RETRANSMITTED_SHARE_MIN: f64 = 0.02;
/// The minimum ratio of burst to queued bytes: the window alone makes arrivals vary by as much as a short queue holds.
const BURST_QUEUE_RATIO_MIN: f64 = 3.0;
/// The minimum number of bins for a conclusion.
const BINS_MIN: usize = 8;
/// The minimum number of retransmissions for a conclusion.
const RETRANSMISSIONS_MIN: f64 = 4.0;
/// The minimum length of a bin, ns: two samples.
const BIN_NS_MIN: u64 = 20_000_000;
/// Headers of a segment as counted by an interface, with room for options and the layers below IP.
const SEGMENT_HEADER_BYTES: f64 = 80.0;

/// The conclusions about the path.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathFindings {
    /// Set if it drops what exceeds a rate.
    pub drops: Option<Drops>,
    /// By window: the share of other traffic in the interface's bytes, 0 to 1, and its rate, bit/s.
    others: BTreeMap<u64, (f64, f64)>,
}

/// A path that carries a fixed rate and drops the excess.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drops {
    /// The rate it carries, bit/s of payload, all streams together.
    pub rate_bps: f64,
    /// The rate in the fastest tenth of the time, bit/s.
    pub fastest_bps: f64,
    /// The share of retransmitted segments.
    pub retransmitted_share: f64,
    /// The share of the bytes sent beyond the mean that did not arrive.
    pub slope: f64,
    /// How far the ranks of the rates, and of the round trips, at which losses began exceed one half, in standard deviations.
    pub rate_rank_deviation: f64,
    pub rtt_rank_deviation: f64,
    /// Variation of the throughput, standard deviation over mean.
    pub throughput_variation: f64,
    /// Maximum bytes passed in a moment beyond the rate.
    pub burst_bytes: f64,
    /// Bytes queued when the queue was full.
    pub queued_bytes: f64,
    /// Whether it is a bucket rather than a queue.
    pub is_policer: bool,
}

impl PathFindings {
    /// Evaluates the samples and counters of a direction.
    pub fn from_samples(sent: &SentDirection, received: &ReceivedDirection, streams: usize) -> Self {
        Self { drops: find_drops(&sent.samples, sent.start_ns), others: other_traffic(sent, received, streams) }
    }

    /// The share of other traffic on the interface in this window.
    pub fn other_share(&self, number: u64) -> f64 {
        self.others.get(&number).map_or(0.0, |o| o.0)
    }

    /// The mean rate, bit/s, and share of other traffic, over the windows that contain any.
    pub fn mean_other_traffic(&self) -> (f64, f64) {
        let active: Vec<&(f64, f64)> = self.others.values().filter(|o| o.0 > 0.0).collect();
        let n = active.len().max(1) as f64;
        (active.iter().map(|o| o.1).sum::<f64>() / n, active.iter().map(|o| o.0).sum::<f64>() / n)
    }
}

/// The sum over streams, starting at 0 and ordered by time: the value of each stream is that of its last sample.
fn cumulative(samples: &[TcpSample], start_ns: u64, of: impl Fn(&TcpSample) -> f64) -> Vec<(u64, f64)> {
    let mut last: BTreeMap<u64, f64> = BTreeMap::new();
    let mut sum = 0.0;
    let mut course = Vec::with_capacity(samples.len() + 1);
    course.push((start_ns, 0.0));
    for s in samples {
        // Samples from the other end may be out of order.
        if course.last().is_some_and(|last: &(u64, f64)| s.time_ns < last.0) {
            continue;
        }
        let value = of(s);
        sum += value - last.insert(s.stream, value).unwrap_or(0.0);
        course.push((s.time_ns, sum));
    }
    course
}

/// The value at a time, interpolated linearly between samples.
fn interpolate(course: &[(u64, f64)], time_ns: u64) -> f64 {
    let next = course.partition_point(|p| p.0 <= time_ns);
    match (next.checked_sub(1).and_then(|i| course.get(i)), course.get(next)) {
        (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (time_ns - a.0) as f64 / (b.0 - a.0).max(1) as f64,
        (Some(one), None) | (None, Some(one)) => one.1,
        (None, None) => 0.0,
    }
}

/// The data for evaluating a path's losses.
struct Series {
    start_ns: u64,
    end_ns: u64,
    rtt_ns: u64,
    mss: f64,
    /// Cumulative bytes sent and delivered, and segments retransmitted.
    sent: Vec<(u64, f64)>,
    delivered: Vec<(u64, f64)>,
    retransmitted: Vec<(u64, f64)>,
}

impl Series {
    fn from_samples(samples: &[TcpSample], start_ns: u64) -> Option<Self> {
        let median = |of: fn(&TcpSample) -> u64| {
            let mut all: Vec<u64> = samples.iter().map(of).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or(0)
        };
        // Older kernels do not count segments delivered out of order.
        let active = samples.iter().any(|s| s.delivered > 0);
        let delivered = |s: &TcpSample| {
            if active {
                s.delivered as f64 * s.snd_mss as f64
            } else {
                s.bytes_acked as f64 + s.sacked as f64 * s.snd_mss as f64
            }
        };
        Some(Self {
            start_ns,
            end_ns: samples.last()?.time_ns,
            rtt_ns: median(|s| s.srtt_us).saturating_mul(1000).max(1),
            mss: median(|s| s.snd_mss) as f64,
            sent: cumulative(samples, start_ns, |s| s.bytes_sent as f64),
            delivered: cumulative(samples, start_ns, delivered),
            retransmitted: cumulative(samples, start_ns, |s| s.total_retrans as f64),
        })
    }

    fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Bytes sent in each bin of `bin_ns`, and those delivered a round trip later.
    fn bins(&self, bin_ns: u64) -> Vec<(f64, f64)> {
        let bins = self.length_ns().saturating_sub(self.rtt_ns) / bin_ns.max(1);
        // Whatever times the other end reports, there are no more bins than samples.
        let bins = usize::try_from(bins).unwrap_or(usize::MAX).min(self.sent.len());
        let edge = |i: usize| self.start_ns + i as u64 * bin_ns;
        (0..bins)
            .map(|i| {
                let (from, to) = (edge(i), edge(i + 1));
                let came =
                    interpolate(&self.delivered, to + self.rtt_ns) - interpolate(&self.delivered, from + self.rtt_ns);
                (interpolate(&self.sent, to) - interpolate(&self.sent, from), came)
            })
            .collect()
    }

    /// When losses began: a retransmission after a round trip without any.
    fn episodes(&self) -> Vec<u64> {
        let (mut episodes, mut last) = (Vec::new(), None::<u64>);
        for pair in self.retransmitted.windows(2) {
            let now = pair[1].0;
            if pair[1].1 > pair[0].1 {
                if last.is_none_or(|last| now.saturating_sub(last) > self.rtt_ns) {
                    episodes.push(now);
                }
                last = Some(now);
            }
        }
        episodes
    }
}

/// The missing share of each byte sent beyond the mean.
fn slope(bins: &[(f64, f64)]) -> f64 {
    let n = bins.len().max(1) as f64;
    let mean = (bins.iter().map(|b| b.0).sum::<f64>() / n, bins.iter().map(|b| b.0 - b.1).sum::<f64>() / n);
    let variance: f64 = bins.iter().map(|b| (b.0 - mean.0).powi(2)).sum();
    let together: f64 = bins.iter().map(|b| (b.0 - mean.0) * (b.0 - b.1 - mean.1)).sum();
    // With a constant send rate there is no evidence.
    let varies = variance > n * (RATE_VARIATION_MIN * mean.0).powi(2);
    if varies && bins.len() >= BINS_MIN { together / variance } else { 0.0 }
}

/// How many standard deviations the mean rank of a value at the beginning of losses is above one half. Counting begins at
/// the first loss, so that one is excluded.
fn rank_deviation(series: &Series, episodes: &[u64], value: impl Fn(u64) -> f64) -> f64 {
    let [first, rest @ ..] = episodes else { return 0.0 };
    if rest.is_empty() {
        return 0.0;
    }
    let before = |now: u64| interpolate(&series.sent, now.saturating_sub(series.rtt_ns));
    // Each sample represents the bytes sent since the previous one, a round trip earlier.
    let pairs = series.sent.windows(2).filter(|pair| pair[1].0 > *first);
    let mut all: Vec<(f64, f64)> =
        pairs.map(|pair| (value(pair[1].0), (before(pair[1].0) - before(pair[0].0)).max(0.0))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut below = vec![0.0];
    for (_, sent) in &all {
        below.push(below.last().copied().unwrap_or(0.0) + sent);
    }
    let total = below.last().copied().unwrap_or(0.0);
    if total <= 0.0 {
        return 0.0;
    }
    let rank = |now: u64| {
        let own = value(now);
        let (low, up) = (all.partition_point(|a| a.0 < own), all.partition_point(|a| a.0 <= own));
        (below[low] + below[up]) / 2.0 / total
    };
    let n = rest.len() as f64;
    (rest.iter().map(|now| rank(*now)).sum::<f64>() / n - 0.5) * (12.0 * n).sqrt()
}

/// The variation of the bytes that arrive in five round trips from the first loss on, their mean, and the rate of the
/// fastest tenth, bytes per second; `None` if there are too few.
fn throughput_variation(series: &Series, first: u64) -> Option<(f64, f64, f64)> {
    let long_ns = series.rtt_ns.saturating_mul(5).max(WINDOW_NS);
    let from = first.saturating_add(series.rtt_ns.saturating_mul(2));
    let stretches = usize::try_from(series.end_ns.saturating_sub(from) / long_ns).ok()?.min(series.sent.len());
    if stretches < STRETCHES_MIN {
        return None;
    }
    let edge = |i: usize| interpolate(&series.delivered, from + i as u64 * long_ns);
    let came: Vec<f64> = (0..stretches).map(|i| edge(i + 1) - edge(i)).collect();
    let mean = came.iter().sum::<f64>() / stretches as f64;
    let variance = came.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / (stretches - 1) as f64;
    let mut sorted = came;
    sorted.sort_by(f64::total_cmp);
    let fastest = sorted.get((stretches * 9 / 10).min(stretches - 1)).copied()?;
    let per_second = 1e9 / long_ns as f64;
    (mean > 0.0).then(|| (variance.sqrt() / mean, mean * per_second, fastest * per_second))
}

pub(super) fn find_drops(samples: &[TcpSample], start_ns: u64) -> Option<Drops> {
    let series = Series::from_samples(samples, start_ns)?;
    let lost = series.retransmitted.last()?.1;
    if lost < RETRANSMISSIONS_MIN {
        return None;
    }
    let least_us = samples.iter().filter_map(TcpSample::known_min_rtt_us).min()?;
    let episodes = series.episodes();
    let (varied, came, fastest) = throughput_variation(&series, *episodes.first()?)?;
    let bins = series.bins(series.rtt_ns.saturating_mul(2).max(BIN_NS_MIN));
    let span_ns = series.rtt_ns.max(BIN_NS_MIN);
    let sent_before = |now: u64| {
        let to = now.saturating_sub(series.rtt_ns);
        interpolate(&series.sent, to) - interpolate(&series.sent, to.saturating_sub(span_ns))
    };
    // A loss is noticed when data sent after it arrives, so the relevant round trip is the one just before.
    let trip = |now: u64| {
        let next = samples.partition_point(|s| s.time_ns < now);
        next.checked_sub(1).and_then(|i| samples.get(i)).map_or(0.0, |s| s.srtt_us as f64)
    };
    let (slope, long) = (slope(&bins), rank_deviation(&series, &episodes, trip));
    let high = rank_deviation(&series, &episodes, sent_before);
    let segments = cumulative(samples, start_ns, |s| s.data_segs_out as f64);
    let since = |course: &[(u64, f64)]| {
        course.last().map_or(0.0, |last| last.1) - interpolate(course, episodes[0].saturating_sub(1))
    };
    let share = (since(&series.retransmitted) / since(&segments).max(1.0)).min(0.99);
    let rtt_s = series.rtt_ns as f64 / 1e9;
    let by_chance = [bound::mathis(series.mss, rtt_s, share), bound::cubic(series.mss, rtt_s, share)];
    let streams = samples.iter().map(|s| s.stream).max().unwrap_or(0) as f64 + 1.0;
    let by_chance = by_chance.into_iter().flatten().fold(0.0, f64::max) * streams;
    let signs = [
        slope >= SLOPE_MIN,
        high >= RANK_DEVIATION_MIN,
        long >= RANK_DEVIATION_MIN,
        varied <= THROUGHPUT_VARIATION_MAX,
        came * 8.0 > CHANCE_RATIO_MIN * by_chance,
    ];
    // An even rate with more losses than chance explains also occurs without drops, where a CPU is the limit and some
    // retransmissions are spurious: then the retransmissions must be many, or belong to data sent above a rate.
    let by_rate = signs[..3].contains(&true) || share >= RETRANSMITTED_SHARE_MIN;
    if !by_rate || signs.iter().filter(|sign| **sign).count() < 2 {
        return None;
    }
    let moments = (series.length_ns() / BIN_NS_MIN).min(samples.len() as u64);
    let moment = |i: u64| interpolate(&series.delivered, start_ns + i * BIN_NS_MIN);
    let most = (0..moments).map(|i| moment(i + 1) - moment(i)).fold(0.0, f64::max);
    let burst = (most - came / 1e9 * BIN_NS_MIN as f64).max(0.0);
    let longer_us =
        episodes.iter().map(|now| (trip(*now) - least_us as f64).max(0.0)).sum::<f64>() / episodes.len() as f64;
    let queued = came / 1e6 * longer_us;
    let bucket = burst > BURST_QUEUE_RATIO_MIN * queued || queued < series.mss;
    Some(Drops {
        rate_bps: came * 8.0,
        fastest_bps: fastest * 8.0,
        retransmitted_share: share,
        slope,
        rate_rank_deviation: high,
        rtt_rank_deviation: long,
        throughput_variation: varied,
        burst_bytes: burst,
        queued_bytes: queued,
        is_policer: bucket,
    })
}

/// Pairs of samples that are evaluated together: a second. Effects of a queue at the interface itself, or of a late sample,
/// average out over it; other traffic does not.
const POOLED_PAIRS: usize = 10;

/// By window: the share and rate of other traffic at the end that had more of it.
fn other_traffic(sent: &SentDirection, received: &ReceivedDirection, streams: usize) -> BTreeMap<u64, (f64, f64)> {
    let own = cumulative(&sent.samples, sent.start_ns, |s| {
        s.bytes_sent as f64 + s.data_segs_out as f64 * SEGMENT_HEADER_BYTES
    });
    let Some(last) = own.last() else { return BTreeMap::new() };
    let mut all: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    // The receiver's clock may differ: its times are counted from the start of its run.
    let theirs: Vec<InterfaceCount> = received
        .carried
        .iter()
        .map(|c| InterfaceCount {
            time_ns: c.time_ns.saturating_sub(received.start_ns).saturating_add(sent.start_ns),
            ..*c
        })
        .collect();
    // Bytes in flight at both ends of an interval may appear as other traffic: at the sender's interface too, since a queue
    // may hold them before it.
    let in_flight_bytes =
        sent.samples.iter().map(TcpSample::in_flight_bytes).max().unwrap_or(0) as f64 * streams.max(1) as f64;
    for carried in [&sent.carried, &theirs] {
        for (nth, pair) in carried.windows(2).enumerate() {
            let around = nth.saturating_sub(POOLED_PAIRS / 2);
            let (from, to) = (carried[around], carried[(around + POOLED_PAIRS).min(carried.len() - 1)]);
            let (begin, end) = (pair[0], pair[1]);
            if to.time_ns > last.0.saturating_add(WINDOW_NS) || to.time_ns <= from.time_ns {
                continue;
            }
            let seen = to.bytes.saturating_sub(from.bytes) as f64;
            let foreign =
                (seen - (interpolate(&own, to.time_ns) - interpolate(&own, from.time_ns)) - in_flight_bytes).max(0.0);
            let (share, seconds) = (foreign / seen.max(1.0), (to.time_ns - from.time_ns) as f64 / 1e9);
            let first = begin.time_ns.saturating_sub(sent.start_ns) / WINDOW_NS;
            let end = end.time_ns.saturating_sub(sent.start_ns).saturating_sub(1) / WINDOW_NS;
            // A late sample of the counter covers several windows; their number is limited because the times are not trusted.
            for number in first..=end.min(first + 600) {
                let other = all.entry(number).or_default();
                if share > other.0 {
                    *other = (share, foreign * 8.0 / seconds);
                }
            }
        }
    }
    all
}
