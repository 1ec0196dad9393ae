//! What limited UDP. It sends at the requested rate, so the question is what kept packets from leaving or arriving; if
//! nothing did, the requested rate is the limit.
//!
//! In this order: more than 1 % lost, and more lost than unsent (by the receiver's socket: its CPU; else the link); a
//! standing queue in the path: the link; a sender that sent late or not at all: its CPU; what stopped the search that found
//! the rate; the requested rate.
//!
//! There was a standing **queue** if no packet of the second half of the run was as fast as the fastest of all: it never
//! emptied, so the link was always busy. If less arrived in the run than requested, the last tenth alone suffices: the rest
//! was queued there (a sender that stalls for a moment lets a queue drain that exists before and after). The delay
//! variation of single packets is no evidence, since a single wait (of a radio, of a busy machine) causes it.
//!
//! **Uncertainty.** A path that became longer (a handover) looks like a queue. A queue shorter than 1 ms is not detected
//! until it overflows. The share is always 1: the time of each limit is not reported.

use super::{BothEnds, Cause, Limit, QUEUE_DELAY_US_MIN, cpu_bound, text};
use crate::outcome::PacketsSent;
use crate::rate_check::TrialVerdict;
use crate::spec::Traffic;
use model::text::{duration, rate};

/// The tolerated share of lost packets.
const LOST_SHARE_MAX: f64 = 0.01;
/// The tolerated share of due packets that were not sent.
const UNSENT_SHARE_MAX: f64 = 0.001;
/// The sender fell behind if half of its packets were late by more than this share of the run, or one in a hundred by more
/// than ten times that.
const LATE_SHARE_MAX: f64 = 0.01;
/// Where less than this share of the rate arrived in the run, a queue at its end is a sufficient explanation.
const RATE_SHARE_MIN: f64 = 0.98;
/// Upper bound of the drift between clocks of two machines.
const CLOCK_DRIFT_MAX: f64 = 2e-4;
/// The minimum number of delays to detect a queue.
const DELAYS_MIN: usize = 20;

/// What limited the direction; empty if there is no evidence.
pub fn limits(seen: &BothEnds<'_>) -> Vec<Limit> {
    let Traffic::Udp { rate_bps: requested_bps, .. } = seen.spec.traffic else { return Vec::new() };
    let (Some(sent), Some(received)) = (&seen.sent.packets, &seen.received.packets) else { return Vec::new() };
    let wall_ns = seen.sent.end_ns.saturating_sub(seen.sent.start_ns);
    let limit = |cause, evidence: String, remedy: Option<&str>| {
        vec![Limit { cause, share: 1.0, allows_bps: None, evidence, remedy: remedy.map(String::from) }]
    };
    let lost = sent.sent.saturating_sub(received.received);
    let lossy = lost as f64 > LOST_SHARE_MAX * sent.sent as f64 && lost >= sent.due.saturating_sub(sent.sent);
    if lossy && received.dropped_here.saturating_mul(2) >= lost {
        let evidence =
            format!("{} of {lost} lost packets were dropped by the receiver's own socket", received.dropped_here);
        let remedy = "give the receiver more CPU time, or a larger buffer: --rcvbuf, net.core.rmem_max there";
        return limit(Cause::Cpu, evidence, Some(remedy));
    }
    let came = format!("{} of the requested {} arrived", rate(seen.rate_bps), rate(requested_bps as f64));
    if lossy {
        let evidence = format!("{lost} of {} packets were lost in the network; {came}", sent.sent);
        return limit(Cause::LinkRate, evidence, Some("lower --rate"));
    }
    let short = seen.rate_bps < RATE_SHARE_MIN * requested_bps as f64;
    if let Some(longer_us) = standing_queue_us(&received.transit_ns, wall_ns, short) {
        let evidence = format!(
            "the path had a standing queue: at the end, packets took {} longer than the fastest, while {came}",
            duration(longer_us * 1e3)
        );
        return limit(Cause::LinkRate, evidence, Some("lower --rate: packets above the link's rate only queue"));
    }
    let faster = "send larger packets (--packet) or fewer (--rate), or give the sender's thread more CPU time";
    // Packets that were late but arrived within the run did not reduce its rate.
    if is_behind(sent, wall_ns) && (short || has_unsent(sent)) {
        let late = format!(
            "the sender sent {} of {} packets due, half of them more than {} late, one in a hundred more than {}",
            sent.sent,
            sent.due,
            duration(sent.late_us[0] * 1e3),
            duration(sent.late_us[1] * 1e3)
        );
        if sent.refused > 0 && !cpu_bound(&seen.sent.threads, seen.sender, wall_ns) {
            let evidence = format!("{late}; its own network interface's queue was full {} times", sent.refused);
            return limit(Cause::LinkRate, evidence, Some("lower --rate"));
        }
        let evidence = format!("{late}; {}", text::cpu_evidence("sender", &seen.sent.threads, seen, seen.sender));
        return limit(Cause::Cpu, evidence, Some(faster));
    }
    let late = if sent.late_us[1] >= 10_000.0 {
        format!("; one in a hundred was sent more than {} late", duration(sent.late_us[1] * 1e3))
    } else {
        String::new()
    };
    let all = format!("{} of {} packets arrived; {came}{late}", received.received, sent.sent);
    match seen.searched {
        Some(TrialVerdict::Short) => {
            limit(Cause::Cpu, format!("{all}; at a higher rate the sender did not send all packets due"), Some(faster))
        }
        Some(TrialVerdict::Dropped) => limit(
            Cause::Cpu,
            format!("{all}; at a higher rate the receiver's own socket dropped packets"),
            Some("give the receiver more CPU time, or a larger buffer: --rcvbuf, net.core.rmem_max there"),
        ),
        Some(TrialVerdict::Lossy) => {
            limit(Cause::LinkRate, format!("{all}; at a higher rate, packets were lost or a queue grew"), None)
        }
        // Every available rate passed.
        Some(TrialVerdict::Passed) => limit(Cause::Application, all, None),
        None => limit(Cause::Application, all, Some("raise --rate, or find the highest with --rate auto")),
    }
}

/// Whether some due packets were not sent.
fn has_unsent(sent: &PacketsSent) -> bool {
    sent.due.saturating_sub(sent.sent) as f64 > UNSENT_SHARE_MAX * sent.due as f64
}

/// Whether the sender could not sustain the rate.
fn is_behind(sent: &PacketsSent, wall_ns: u64) -> bool {
    let late_us = LATE_SHARE_MAX * wall_ns as f64 / 1e3;
    has_unsent(sent) || sent.late_us[0] > late_us || sent.late_us[1] > 10.0 * late_us
}

/// The median delay of the last tenth over the fastest packet, us; `None` if there was no standing queue throughout the
/// second half or, if the received rate fell `short`, the last tenth. Transit times may involve two clocks: only their
/// differences matter.
fn standing_queue_us(transits: &[(u64, i64)], wall_ns: u64, short: bool) -> Option<f64> {
    if transits.len() < DELAYS_MIN {
        return None;
    }
    let sorted = |part: &[(u64, i64)]| {
        let mut part: Vec<i64> = part.iter().map(|t| t.1).collect();
        part.sort_unstable();
        part
    };
    let all = sorted(transits);
    let last = sorted(transits.get(transits.len() / 2..)?);
    let end = sorted(transits.get(transits.len() - transits.len() / 10..)?);
    let least = *all.first()?;
    let over = |value: i64| value.saturating_sub(least) as f64;
    let stood = if short { end.first()? } else { last.first()? };
    let (rise, median) = (over(*stood), over(all[all.len() / 2]));
    // Where delays vary widely, the minimum of a few is not the true minimum.
    (rise > QUEUE_DELAY_US_MIN * 1e3 + CLOCK_DRIFT_MAX * wall_ns as f64 && rise * 2.0 >= median)
        .then(|| over(end[end.len() / 2]) / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{EndReport, PacketsReceived, ReceivedDirection, SentDirection};
    use crate::spec::{Direction, SocketOptions, Spec};
    use crate::usage::ThreadTotals;

    const NS_PER_MS: i64 = 1_000_000;

    /// A run of 3 s at 21 Mb/s in packets of 1200 bytes, all of which arrived after `delay`, a function of the elapsed
    /// share of the run.
    struct Case {
        sent: PacketsSent,
        received: PacketsReceived,
        threads: ThreadTotals,
        rate_bps: f64,
        searched: Option<TrialVerdict>,
    }

    fn case_with_delay(delay: impl Fn(f64) -> i64) -> Case {
        let sent = PacketsSent { due: 6562, sent: 6562, refused: 0, late_us: [20.0, 300.0, 2000.0] };
        let at = |i: u64| (i * 457_000, delay(i as f64 / 6562.0));
        let received =
            PacketsReceived { received: 6562, transit_ns: (0..6562).map(at).collect(), ..PacketsReceived::default() };
        Case { sent, received, threads: ThreadTotals::default(), rate_bps: 21e6, searched: None }
    }

    fn judge(story: &Case) -> (Cause, String, Option<String>) {
        let spec = Spec {
            traffic: Traffic::Udp { rate_bps: 21_000_000, packet_bytes: 1200 },
            directions: vec![Direction::Up],
            streams: 1,
            duration_ms: 3000,
            socket: SocketOptions::default(),
            copy: false,
            probe: false,
            readings: crate::spec::Readings::All,
        };
        let sent = SentDirection {
            direction: Direction::Up,
            start_ns: 0,
            end_ns: 3_000_000_000,
            sockets: Vec::new(),
            threads: story.threads,
            packets: Some(story.sent.clone()),
            samples: Vec::new(),
            acks: Vec::new(),
            acks_lost: 0,
            carried: Vec::new(),
        };
        let received = ReceivedDirection {
            direction: Direction::Up,
            start_ns: 0,
            ends_ns: Vec::new(),
            bytes: Vec::new(),
            streams: Vec::new(),
            sockets: Vec::new(),
            threads: ThreadTotals::default(),
            unread: Vec::new(),
            packets: Some(story.received.clone()),
            carried: Vec::new(),
        };
        let end = EndReport::default();
        let mut limits = limits(&BothEnds {
            spec: &spec,
            sent: &sent,
            received: &received,
            sender: &end,
            receiver: &end,
            rate_bps: story.rate_bps,
            searched: story.searched,
        });
        assert_eq!((limits.len(), limits[0].share), (1, 1.0));
        let limit = limits.remove(0);
        (limit.cause, limit.evidence, limit.remedy)
    }

    /// A clock offset of hours in either direction must not matter.
    const CLOCK_OFFSET_NS: i64 = -7_200_000 * NS_PER_MS;

    #[test]
    fn growing_queue_without_loss_shows_the_link_rate() {
        // 5 ms, and up to 150 more: 21 Mb/s over a link that carries 19.54 of them.
        let mut full = case_with_delay(|at| CLOCK_OFFSET_NS + 5 * NS_PER_MS + (at * 150e6) as i64);
        full.rate_bps = 19.55e6;
        let (cause, evidence, remedy) = judge(&full);
        assert_eq!(cause, Cause::LinkRate, "{evidence}");
        assert!(
            evidence.contains("143 ms longer") && evidence.contains("19.6 Mb/s of the requested 21.0"),
            "{evidence}"
        );
        assert!(remedy.unwrap().contains("lower --rate"));
        // The rate that a search finds is slightly too high: a queue of 1 %.
        assert_eq!(judge(&case_with_delay(|at| (at * 30e6) as i64)).0, Cause::LinkRate);
        // A queue that was full at once and stays full.
        assert_eq!(
            judge(&case_with_delay(|at| if at < 0.05 { (at * 1200e6) as i64 } else { 60 * NS_PER_MS })).0,
            Cause::LinkRate
        );
    }

    #[test]
    fn queue_that_a_halt_drains_shows_the_link_rate() {
        // The sender stalls at 60 % for as long as the queue needs to drain, sends what is due at once, and the queue builds up again.
        let mut halted =
            case_with_delay(|at| 5 * NS_PER_MS + if (0.60..0.61).contains(&at) { 0 } else { (at * 150e6) as i64 });
        halted.rate_bps = 19.8e6;
        assert_eq!(judge(&halted).0, Cause::LinkRate);
        // The first packet takes 275 ms, so that less arrives in 3 s; nothing is queued.
        let mut far = case_with_delay(|_| 275 * NS_PER_MS);
        far.rate_bps = 19.1e6;
        assert_eq!(judge(&far).0, Cause::Application);
    }

    #[test]
    fn variable_and_short_delays_are_no_standing_queue() {
        let cause = |delay: &dyn Fn(f64) -> i64| judge(&case_with_delay(delay)).0;
        assert_eq!(cause(&|_| 5 * NS_PER_MS), Cause::Application);
        // Jitter of up to 8 ms, a stall of the last fifth, clocks that drift by 100 ppm.
        assert_eq!(cause(&|at| ((at * 7919.0).fract() * 8e6) as i64), Cause::Application);
        assert_eq!(cause(&|at| if at > 0.8 { 200 * NS_PER_MS } else { 5 * NS_PER_MS }), Cause::Application);
        assert_eq!(cause(&|at| (at * 3e5) as i64), Cause::Application);
        // The minimum of few packets is not the true minimum.
        let mut few = case_with_delay(|_| 0);
        few.received.transit_ns = (0..40).map(|i| (i, (i as i64 * 7 + 3) % 40 * NS_PER_MS / 4)).collect();
        assert_eq!(judge(&few).0, Cause::Application);
        few.received.transit_ns.clear();
        assert_eq!(judge(&few).0, Cause::Application);
    }

    #[test]
    fn late_sender_is_cpu_limited() {
        let mut late = case_with_delay(|_| 5 * NS_PER_MS);
        late.sent.late_us = [200_000.0, 460_000.0, 470_000.0];
        late.threads =
            ThreadTotals { busiest_cpu_ns: 2_900_000_000, busiest_ready_ns: 2_950_000_000, ..ThreadTotals::default() };
        // Everything arrived: more CPU would not help.
        assert_eq!(judge(&late).0, Cause::Application);
        late.rate_bps = 19.6e6;
        let (cause, evidence, remedy) = judge(&late);
        assert_eq!(cause, Cause::Cpu, "{evidence}");
        assert!(evidence.contains("200 ms late") && evidence.contains("ran for 97 %"), "{evidence}");
        // There is only one flow, so more streams are no remedy.
        assert!(!remedy.unwrap().contains("--streams"));
        // It slept because its interface's queue was full.
        late.threads = ThreadTotals::default();
        late.sent.refused = 700;
        assert_eq!(judge(&late).0, Cause::LinkRate);
        // Some were not sent at all.
        let mut short = case_with_delay(|_| 5 * NS_PER_MS);
        (short.sent.sent, short.received.received) = (6000, 6000);
        assert_eq!(judge(&short).0, Cause::Cpu);
        // A momentary wait does not limit the rate.
        let mut moment = case_with_delay(|_| 5 * NS_PER_MS);
        moment.sent.late_us = [30.0, 40_000.0, 60_000.0];
        assert_eq!(judge(&moment).0, Cause::Application);
    }

    #[test]
    fn loss_on_path_and_at_receiver_are_distinguished() {
        let mut lossy = case_with_delay(|_| 5 * NS_PER_MS);
        lossy.received.received = 6200;
        assert_eq!(judge(&lossy).0, Cause::LinkRate);
        lossy.received.dropped_here = 300;
        assert_eq!(judge(&lossy).0, Cause::Cpu);
        // More packets were unsent than lost.
        lossy.sent.sent = 6400;
        lossy.received.received = 6300;
        assert!(judge(&lossy).1.contains("sent 6400 of 6562"));
    }

    #[test]
    fn cause_after_a_search_is_what_stopped_it() {
        let mut found = case_with_delay(|_| 5 * NS_PER_MS);
        for (trial, cause) in [
            (TrialVerdict::Short, Cause::Cpu),
            (TrialVerdict::Dropped, Cause::Cpu),
            (TrialVerdict::Lossy, Cause::LinkRate),
        ] {
            found.searched = Some(trial);
            let (named, evidence, remedy) = judge(&found);
            assert_eq!(named, cause, "{evidence}");
            assert!(!remedy.unwrap_or_default().contains("auto"), "a search is advised after a search");
        }
        found.searched = None;
        assert!(judge(&found).2.unwrap().contains("--rate auto"));
    }
}
