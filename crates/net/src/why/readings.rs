//! The samples of a run in windows of 100 ms: converts the kernel's counters to shares of time, rates and means. Pure.
//!
//! **Uncertainty.** The kernel counts in ticks (1 to 10 ms), so the share of one window is coarse, and sums are accurate.

use super::{Facts, SAMPLE_SPAN_NS_MAX, STOPPED_INTERVALS, WINDOW_NS};
use crate::flow::account;
use crate::outcome::UnreadSample;
use crate::tcp_info::TcpSample;
use std::collections::BTreeMap;

/// A window of a connection's time; shares are 0 to 1 of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    pub stream: u64,
    pub number: u64,
    pub length_ns: f64,
    /// Shares of time: nothing in flight, limited by the receiver's window, send buffer full of data in flight.
    pub idle: f64,
    pub rwnd: f64,
    pub sndbuf: f64,
    pub rtt_us: f64,
    /// Segments.
    pub in_flight_segments: f64,
    pub cwnd: f64,
    /// Bytes: in flight, offered by the receiver, written and not yet sent.
    pub in_flight_bytes: f64,
    pub offered_bytes: f64,
    pub unsent_bytes: f64,
    /// The share of samples in which the whole send buffer was in flight.
    pub buffer_in_flight: f64,
    /// Segments retransmitted, and sent.
    pub retransmitted: u64,
    pub segments: u64,
    pub recovering: bool,
    /// Pacing and delivery rate, byte/s.
    pub pacing_rate: f64,
    pub delivery_rate: f64,
    /// Rate of acknowledged bytes, bit/s.
    pub acked_bps: f64,
}

/// Divides the samples into windows, by stream and time.
pub fn windows(samples: &[TcpSample], start_ns: u64) -> Vec<Window> {
    // A kernel that does not report the window gives 0; if another sample is not 0, then 0 is a closed window.
    let counted = samples.iter().any(|s| s.snd_wnd > 0);
    let mut by_place: BTreeMap<(u64, u64), Vec<&TcpSample>> = BTreeMap::new();
    let mut before: BTreeMap<u64, &TcpSample> = BTreeMap::new();
    for sample in samples {
        let number = sample.time_ns.saturating_sub(start_ns) / WINDOW_NS;
        let window = by_place.entry((sample.stream, number)).or_default();
        // A window begins with the last sample of the previous one.
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
                // Because of ticks, the sum may exceed 1.
                idle: (1.0 - busy).min(1.0 - rwnd - sndbuf).max(0.0),
                rwnd,
                sndbuf,
                rtt_us: mean(|s| s.srtt_us),
                in_flight_segments: mean(|s| s.unacked),
                cwnd: mean(|s| s.cwnd),
                in_flight_bytes: mean(TcpSample::in_flight_bytes),
                offered_bytes: if counted { mean(|s| s.snd_wnd) } else { f64::INFINITY },
                unsent_bytes: mean(|s| s.notsent_bytes),
                buffer_in_flight: readings.iter().filter(|s| account::is_buffer_in_flight(s)).count() as f64
                    / readings.len() as f64,
                retransmitted: last.total_retrans.saturating_sub(first.total_retrans),
                segments: last.data_segs_out.saturating_sub(first.data_segs_out),
                // 2: the window is being reduced, 3: recovery, 4: loss (include/uapi/linux/tcp.h).
                recovering: readings.iter().any(|s| s.ca_state >= 2),
                pacing_rate: mean(|s| s.pacing_rate),
                delivery_rate: mean(|s| s.delivery_rate),
                acked_bps: last.bytes_acked.saturating_sub(first.bytes_acked) as f64 * 8e9 / length_ns,
            })
        })
        .collect()
}

/// The mean share of the receive buffer that was unread, by stream and window. A sample covers the time since the previous
/// one. A receiver that did not sample for [`STOPPED_INTERVALS`] times the sampling interval did not read either:
/// everything that had arrived was unread, though its reading thread may have emptied the buffer before the next
/// sample.
pub fn unread_shares(looks: &[UnreadSample], start_ns: u64, every_ns: u64) -> BTreeMap<(u64, u64), f64> {
    let mut sums: BTreeMap<(u64, u64), (f64, f64)> = BTreeMap::new();
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    for look in looks {
        let before = seen.insert(look.stream, look.time_ns).unwrap_or(start_ns);
        let share = if look.time_ns.saturating_sub(before) > STOPPED_INTERVALS * every_ns {
            1.0
        } else {
            look.unread_bytes as f64 / look.buffer_bytes.max(1) as f64
        };
        let mut from = before.max(look.time_ns.saturating_sub(SAMPLE_SPAN_NS_MAX));
        while from < look.time_ns {
            let number = from.saturating_sub(start_ns) / WINDOW_NS;
            let end = start_ns.saturating_add((number + 1).saturating_mul(WINDOW_NS));
            // Both bounds are later than `from`, so the loop terminates.
            let to = end.min(look.time_ns).max(from + 1);
            let sum = sums.entry((look.stream, number)).or_default();
            sum.0 += share * (to - from) as f64;
            sum.1 += (to - from) as f64;
            from = to;
        }
    }
    sums.into_iter().map(|(place, (sum, ns))| (place, sum / ns)).collect()
}

/// The values for a whole direction.
pub fn direction_facts(samples: &[TcpSample]) -> Facts {
    let median = |of: fn(&TcpSample) -> u64| {
        let mut all: Vec<u64> = samples.iter().map(of).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or(0) as f64
    };
    let most = |of: fn(&TcpSample) -> u64| samples.iter().map(of).max().unwrap_or(0) as f64;
    let mut last: BTreeMap<u64, &TcpSample> = BTreeMap::new();
    last.extend(samples.iter().map(|s| (s.stream, s)));
    let least = samples.iter().filter_map(TcpSample::known_min_rtt_us).min();
    let sum = |of: fn(&TcpSample) -> u64| last.values().map(|s| of(s)).fold(0, u64::saturating_add) as f64;
    Facts {
        least_rtt_us: least.unwrap_or(0) as f64,
        rtt_us: median(|s| s.srtt_us),
        rto_us: median(|s| s.rto_us),
        mss: median(|s| s.snd_mss),
        in_flight_bytes_max: most(TcpSample::in_flight_bytes),
        segments: sum(|s| s.data_segs_out),
        retransmitted: sum(|s| s.total_retrans),
    }
}
