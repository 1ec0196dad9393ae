//! Injected limits and the samples that they would produce.

use super::*;
use crate::outcome::{InterfaceCount, SocketSettings, UnreadSample};
use crate::spec::{Direction, SocketOptions};

/// A connection over a path with a given round trip, for 5 s.
#[derive(Debug)]
struct Case {
    spec: Spec,
    sent: SentDirection,
    received: ReceivedDirection,
    ends: (EndReport, EndReport),
}

const RUN_SECONDS: u64 = 5;

/// `at` modifies the blank sample of each moment, in us since the start.
fn case_with(at: impl Fn(u64, &mut TcpSample)) -> Case {
    let spec = Spec {
        traffic: Traffic::Tcp { rate_bps: None },
        directions: vec![Direction::Up],
        streams: 1,
        duration_ms: RUN_SECONDS * 1000,
        socket: SocketOptions::default(),
        copy: false,
        probe: false,
        readings: crate::spec::Readings::All,
    };
    let mut acked = 0;
    let samples = (1..=RUN_SECONDS * 100).map(|i| {
        let us = i * 10_000;
        let mut s = TcpSample {
            time_ns: us * 1000,
            busy_us: us,
            srtt_us: 32_000,
            min_rtt_us: 31_500,
            rto_us: 230_000,
            snd_mss: 1448,
            cwnd: 100,
            unacked: 90,
            data_segs_out: i * 100,
            snd_wnd: 1 << 20,
            ..TcpSample::default()
        };
        at(us, &mut s);
        // The bytes in flight arrive within a round trip (Little's law), unless the scenario sets them.
        if us > s.srtt_us {
            acked += s.in_flight_bytes() * 10_000 / s.srtt_us;
        }
        if s.bytes_acked == 0 {
            (s.bytes_acked, s.bytes_sent) = (acked, acked + s.in_flight_bytes());
        }
        s
    });
    let unread = (1..=RUN_SECONDS * 100).map(|i| UnreadSample {
        time_ns: i * 10_000_000,
        stream: 0,
        unread_bytes: 0,
        buffer_bytes: 131_072,
    });
    let granted = SocketSettings { send_buffer: 212_992, receive_buffer: 131_072, ..SocketSettings::default() };
    let mut ends = (EndReport::default(), EndReport::default());
    ends.0.settings.insert("net.ipv4.tcp_wmem".into(), "4096 16384 4194304".into());
    Case {
        spec,
        sent: SentDirection {
            direction: Direction::Up,
            start_ns: 0,
            end_ns: RUN_SECONDS * 1_000_000_000,
            sockets: vec![granted.clone()],
            threads: ThreadTotals::default(),
            packets: None,
            samples: samples.collect(),
            acks: Vec::new(),
            acks_lost: 0,
            carried: Vec::new(),
        },
        received: ReceivedDirection {
            direction: Direction::Up,
            start_ns: 0,
            ends_ns: Vec::new(),
            bytes: Vec::new(),
            streams: vec![0],
            sockets: vec![granted],
            threads: ThreadTotals::default(),
            unread: unread.collect(),
            packets: None,
            carried: Vec::new(),
        },
        ends,
    }
}

fn seen(case: &Case) -> BothEnds<'_> {
    BothEnds {
        spec: &case.spec,
        sent: &case.sent,
        received: &case.received,
        sender: &case.ends.0,
        receiver: &case.ends.1,
        rate_bps: 5e7,
        searched: None,
    }
}

fn judge(case: &Case) -> Vec<Limit> {
    let limits = limits(&seen(case));
    assert!(limits.iter().all(|l| l.share <= 1.0), "{limits:?}");
    let sum: f64 = limits.iter().map(|l| l.share).sum();
    assert!(limits.is_empty() || (sum > 0.95 && sum < 1.0 + 1e-9), "{limits:?}");
    limits
}

#[track_caller]
fn assert_first(case: &Case, cause: Cause, words: &[&str]) {
    let limits = judge(case);
    let text = format!("{} {}", limits[0].evidence, limits[0].remedy.clone().unwrap_or_default());
    assert_eq!(limits[0].cause, cause, "{limits:?}");
    assert!(words.iter().all(|w| text.contains(w)), "{text}");
}

#[test]
fn small_send_buffer_is_named_with_setting() {
    let small = |us, s: &mut TcpSample| {
        s.sndbuf_limited_us = us * 9 / 10;
        s.unacked = 147;
    };
    assert_first(
        &case_with(small),
        Cause::SendBuffer,
        &["208 KiB limit a stream", "at 32.0 ms", "53.2 Mb/s", "SO_SNDBUF 208 KiB", "net.ipv4.tcp_wmem", "4 MiB"],
    );
    let mut asked = case_with(small);
    asked.spec.socket.send_buffer = Some(106_496);
    assert_first(&asked, Cause::SendBuffer, &["raise --sndbuf"]);
}

#[test]
fn small_window_is_the_limit_unless_data_is_unread() {
    let mut small = case_with(|us, s| {
        s.rwnd_limited_us = us * 8 / 10;
        s.snd_wnd = 65_536;
    });
    assert_first(&small, Cause::ReceiveWindow, &["64.0 KiB in flight", "128 KiB", "net.ipv4.tcp_rmem"]);
    small.received.unread.iter_mut().for_each(|u| u.unread_bytes = 60_000);
    assert_first(&small, Cause::Application, &["unread", "read earlier"]);
    small.received.threads.busiest_ready_ns = 4_900_000_000;
    small.received.threads.busiest_cpu_ns = 500_000_000;
    assert_first(&small, Cause::Cpu, &["receiver", "ran for 10 %", "98 %"]);
    small.received.threads.busiest_ready_ns = 0;
    small.ends.1.machine.throttled = 0.7;
    assert_first(&small, Cause::Cpu, &["receiver", "quota", "70 %"]);
}

#[test]
fn stopped_receiver_counts_as_the_application() {
    let mut stopped = case_with(|us, s| s.rwnd_limited_us = us * 9 / 10);
    // It sampled once in 300 ms; its buffer may have been emptied a moment before.
    stopped.received.unread.retain(|u| u.time_ns % 300_000_000 == 0);
    assert_first(&stopped, Cause::Application, &["unread"]);
    assert!(judge(&stopped)[0].share > 0.85);
}

#[test]
fn loss_is_congestion_with_mathis_bound() {
    let lossy = case_with(|us, s| {
        s.total_retrans = us / 10_000;
        (s.cwnd, s.unacked) = (12, 12);
        s.ca_state = if us % 500_000 < 100_000 { 3 } else { 0 };
    });
    // 1 % and 32 ms and 1448 bytes: 362 kb/s x sqrt(75) = 3.1 Mb/s.
    assert_first(&lossy, Cause::Congestion, &["1.00 %", "3.14 Mb/s by Mathis", "bbr"]);
    assert!(judge(&lossy)[0].share > 0.9);
}

#[test]
fn standing_queue_means_link_rate_despite_full_window() {
    let queue = |us: u64, s: &mut TcpSample| {
        s.srtt_us = 60_000;
        s.sndbuf_limited_us = us * 3 / 10;
        s.rwnd_limited_us = us * 3 / 10;
    };
    assert_first(&case_with(queue), Cause::LinkRate, &["took 60.0 ms, 31.5 ms without load", "50.0 Mb/s"]);
    let overflowing = |us: u64, s: &mut TcpSample| {
        queue(us, s);
        s.total_retrans = us / 1_000_000;
    };
    assert_first(&case_with(overflowing), Cause::LinkRate, &[]);
}

#[test]
fn delayed_acknowledgement_is_no_queue() {
    let few = |us: u64, s: &mut TcpSample| {
        (s.srtt_us, s.unacked, s.sndbuf_limited_us) = (72_000, 2, us);
    };
    assert_first(&case_with(few), Cause::SendBuffer, &[]);
}

#[test]
fn window_that_a_paced_sender_fills_at_times_is_the_limit() {
    // 90 segments of 1448 bytes are in flight, of a window of 160,000 bytes.
    let paced = case_with(|us, s| (s.rwnd_limited_us, s.snd_wnd) = (us / 5, 160_000));
    assert_first(&paced, Cause::ReceiveWindow, &[]);
    assert!(judge(&paced)[0].share > 0.95);
    let wide = case_with(|us, s| (s.rwnd_limited_us, s.snd_wnd) = (us / 5, 1 << 20));
    assert_first(&wide, Cause::Congestion, &[]);
    assert_first(&case_with(|us, s| s.sndbuf_limited_us = us / 5), Cause::SendBuffer, &[]);
    // More was in flight for a moment, and half of the congestion window is free.
    let peak = case_with(|us, s| {
        (s.sndbuf_limited_us, s.unacked) = (us / 5, if us == 1_000_000 { 99 } else { 50 });
    });
    assert_first(&peak, Cause::SendBuffer, &[]);
    assert!(judge(&peak)[0].share > 0.9);
}

#[test]
fn pausing_application_leaves_tcp_idle() {
    let mut pausing = case_with(|us, s| s.busy_us = us / 5);
    assert_first(&pausing, Cause::Application, &["nothing to send", "write earlier"]);
    assert!((judge(&pausing)[0].share - 0.8).abs() < 0.02);
    pausing.sent.threads.busiest_ready_ns = 4_900_000_000;
    assert_first(&pausing, Cause::Cpu, &["sender"]);
    pausing.spec.traffic = Traffic::Tcp { rate_bps: Some(48_000_000) };
    assert_first(&pausing, Cause::Application, &["48.0 Mb/s", "--rate"]);
    // 50 Mb/s arrive, so the requested rate cannot be 1 Mb/s.
    pausing.spec.traffic = Traffic::Tcp { rate_bps: Some(1_000_000) };
    assert!(!judge(&pausing).iter().any(|l| l.evidence.contains("1.00 Mb/s per stream, as requested, and")));
}

#[test]
fn growing_window_is_congestion_without_loss() {
    assert_first(&case_with(|_, _| ()), Cause::Congestion, &["still growing", "--duration"]);
    let mut paced = case_with(|_, _| ());
    paced.spec.socket.pacing_bps = Some(32_000_000);
    assert_first(&paced, Cause::Application, &["--pacing"]);
    // Four times the requested rate arrives: then pacing is not the limit.
    paced.spec.socket.pacing_bps = Some(8_000_000);
    assert_ne!(judge(&paced)[0].cause, Cause::Application);
}

#[test]
fn mixed_limits_have_shares_of_time() {
    // Idle for 2 s, then limited by the send buffer for 3 s.
    let mixed = case_with(|us, s| {
        s.busy_us = us.saturating_sub(2_000_000);
        s.sndbuf_limited_us = us.saturating_sub(2_000_000);
    });
    let limits = judge(&mixed);
    assert_eq!(limits.iter().map(|l| l.cause).collect::<Vec<_>>(), [Cause::SendBuffer, Cause::Application]);
    assert!((limits[0].share - 0.6).abs() < 0.02 && (limits[1].share - 0.4).abs() < 0.02, "{limits:?}");
    // Each cause also has its time.
    let course = causes_over_time(&seen(&mixed));
    let greatest = |ns: u64| course.iter().filter(|m| m.start_ns == ns).max_by(|a, b| a.share.total_cmp(&b.share));
    assert_eq!(greatest(1_000_000_000).map(|m| m.cause), Some(Cause::Application));
    assert_eq!(greatest(4_000_000_000).map(|m| m.cause), Some(Cause::SendBuffer));
    assert!(course.is_sorted_by_key(|m| m.start_ns) && course.len() >= 50);
}

#[test]
fn congestion_control_in_use_is_not_recommended() {
    let lossy = |control: &str| {
        let mut case = case_with(|us, s| (s.total_retrans, s.ca_state, s.cwnd, s.unacked) = (us / 10_000, 3, 12, 12));
        case.sent.sockets[0].congestion = Some(control.into());
        let limits = judge(&case);
        assert_eq!(limits[0].cause, Cause::Congestion, "{limits:?}");
        limits[0].remedy.clone().unwrap()
    };
    assert!(lossy("cubic").contains("--cc bbr"));
    for control in ["bbr", "bbr3"] {
        let remedy = lossy(control);
        assert!(!remedy.contains("--cc") && remedy.contains("find where"), "{remedy}");
    }
}

#[test]
fn no_samples_give_no_verdict() {
    let mut none = case_with(|_, _| ());
    none.sent.samples.clear();
    assert!(judge(&none).is_empty());
}

#[test]
fn bbr_that_paces_at_the_path_rate_shows_the_link_rate() {
    // BBR on a link of 20 Mb/s and 20 ms: 40 segments in flight, a window of 80, data waiting, and almost no queue.
    let paced = |delivered: fn(u64) -> u64| {
        let mut case = case_with(move |us, s| {
            (s.srtt_us, s.min_rtt_us, s.cwnd, s.unacked) = (24_000, 20_000, 80, 40);
            (s.notsent_bytes, s.pacing_rate, s.delivery_rate) = (200_000, 2_500_000, delivered(us));
        });
        case.sent.sockets[0].congestion = Some("bbr".into());
        case
    };
    assert_first(
        &paced(|_| 2_400_000),
        Cause::LinkRate,
        &["bbr paced packets at 20.0 Mb/s", "window of 80", "19.2 Mb/s"],
    );
    // For two of five seconds it still probed for the rate.
    let limits = judge(&paced(|us| if us < 2_000_000 { 600_000 } else { 2_400_000 }));
    assert_eq!((limits[0].cause, limits[1].cause), (Cause::LinkRate, Cause::Congestion), "{limits:?}");
    assert!((limits[1].share - 0.4).abs() < 0.03, "{limits:?}");
    // Packets were paced at 20 Mb/s, and a third of that was delivered: that is not the rate of the path.
    let other = paced(|_| 800_000);
    assert_ne!(judge(&other)[0].cause, Cause::LinkRate);
    // A full window is the limit, whatever the other values are.
    let full = case_with(|_, s| {
        (s.notsent_bytes, s.pacing_rate, s.delivery_rate, s.unacked) = (200_000, 2_400_000, 2_400_000, 95);
    });
    assert_first(&full, Cause::Congestion, &["still growing"]);
}

#[test]
fn queue_and_full_window_outweigh_run_queue_wait() {
    // A machine that is busy with other work: both threads wait to run nearly all the time.
    let busy = |mut case: Case| {
        for threads in [&mut case.sent.threads, &mut case.received.threads] {
            (threads.busiest_ready_ns, threads.busiest_cpu_ns) = (4_900_000_000, 100_000_000);
        }
        case
    };
    assert_first(&busy(case_with(|_, s| s.srtt_us = 60_000)), Cause::LinkRate, &[]);
    let lossy = case_with(|us, s| (s.total_retrans, s.cwnd, s.unacked) = (us / 10_000, 12, 12));
    assert_first(&busy(lossy), Cause::Congestion, &["1.00 %"]);
    // Without either it is the CPU; one spurious retransmission in ten thousand segments changes nothing.
    assert_first(&busy(case_with(|_, _| ())), Cause::Cpu, &["sender"]);
    assert_first(&busy(case_with(|us, s| s.total_retrans = u64::from(us > 2_000_000))), Cause::Cpu, &["sender"]);
    // With unread data the standing queue is the receiver's own.
    let mut unread = busy(case_with(|_, s| s.srtt_us = 60_000));
    unread.received.unread.iter_mut().for_each(|u| u.unread_bytes = 60_000);
    assert_first(&unread, Cause::Cpu, &["receiver"]);
}

#[test]
fn weak_evidence_gives_no_cause() {
    // The sampler thread waited for a CPU for 183 % of the time.
    let starved = |mut case: Case| {
        (case.ends.0.sampler_wait_ns, case.ends.1.sampler_wait_ns) = (9_150_000_000, 9_150_000_000);
        case
    };
    let mut unread = case_with(|us, s| s.rwnd_limited_us = us * 9 / 10);
    unread.received.unread.iter_mut().for_each(|u| u.unread_bytes = 60_000);
    assert_first(&starved(unread), Cause::Application, &["unread"]);
    assert_first(&starved(case_with(|us, s| s.rwnd_limited_us = us * 9 / 10)), Cause::ReceiveWindow, &[]);
    assert_first(&starved(case_with(|us, s| s.sndbuf_limited_us = us)), Cause::SendBuffer, &[]);
    assert_first(&starved(case_with(|_, _| ())), Cause::Congestion, &["still growing"]);
    // It is reported with a thread that did lack a CPU, and both counters are read a little after the end of the run.
    let mut busy = starved(case_with(|us, s| s.busy_us = us / 5));
    (busy.sent.threads.busiest_ready_ns, busy.sent.threads.busiest_cpu_ns) = (5_050_000_000, 5_010_000_000);
    assert_first(
        &busy,
        Cause::Cpu,
        &["even the supervising thread", "for 100 %", "ran for 100 % of the time and was runnable for 100 %"],
    );
}

#[test]
fn requested_rate_is_the_limit_at_any_cpu_use() {
    // From another machine: "the sender's busiest thread ran for 49 % of the time and was ready to for 100 %", "98 %", "101 %".
    for (ran, ready) in [(2_450_000_000, 5_000_000_000), (4_900_000_000, 5_050_000_000), (10_000_000, 12_000_000)] {
        let mut paced = case_with(|us, s| (s.busy_us, s.notsent_bytes) = (us * 3 / 10, 0));
        (paced.sent.threads.busiest_cpu_ns, paced.sent.threads.busiest_ready_ns) = (ran, ready);
        paced.ends.0.machine.busy = 0.56;
        paced.spec.traffic = Traffic::Tcp { rate_bps: Some(50_000_000) };
        assert_first(&paced, Cause::Application, &["50.0 Mb/s per stream, as requested"]);
        assert_eq!(judge(&paced)[0].share, 1.0);
        // The requested rate was not reached: the cause is the CPU, if CPU time was lacking.
        paced.spec.traffic = Traffic::Tcp { rate_bps: Some(100_000_000) };
        let cause = if ready > 4_000_000_000 { Cause::Cpu } else { Cause::Application };
        assert_first(&paced, cause, &[]);
    }
}

#[test]
fn udp_run_has_one_cause() {
    let mut udp = case_with(|_, _| ());
    udp.spec.traffic = Traffic::Udp { rate_bps: 1_000_000, packet_bytes: 1000 };
    assert!(causes_over_time(&seen(&udp)).is_empty(), "without packets nothing is known");
    udp.sent.packets = Some(crate::outcome::PacketsSent { due: 625, sent: 625, ..Default::default() });
    udp.received.packets = Some(crate::outcome::PacketsReceived { received: 625, ..Default::default() });
    let all = causes_over_time(&seen(&udp));
    assert_eq!((all.len(), all[7].start_ns, all[7].share), (50, 700_000_000, 1.0));
    assert!(all.iter().all(|m| m.cause == Cause::Application));
    // Times reported by the other end are not trusted as bounds.
    udp.sent.end_ns = u64::MAX;
    assert_eq!(causes_over_time(&seen(&udp)).len(), 50);
}

#[test]
fn window_limit_follows_bytes_in_flight() {
    // The window was 1 MiB wide once, for a moment, and limited the rest of the run with 30 segments in flight.
    let narrow = case_with(|us, s| {
        s.rwnd_limited_us = us * 9 / 10;
        (s.unacked, s.snd_wnd) = if us == 10_000 { (30, 1 << 20) } else { (30, 45_000) };
    });
    // 30 x 1448 bytes in 32 ms are 10.9 Mb/s.
    assert_first(&narrow, Cause::ReceiveWindow, &["42.4 KiB in flight", "10.9 Mb/s"]);
}

#[test]
fn transactions_are_limited_by_round_trips_or_cpu() {
    let mut case = case_with(|_, _| ());
    case.spec.traffic = Traffic::Transactions { request_bytes: 1, response_bytes: 1 };
    assert!(transaction_limits(&case.spec, &case.ends.0, &case.ends.1).is_empty(), "there were none");
    case.ends.0.transactions = Some(crate::outcome::Transactions {
        ends_ns: vec![5_000_000_000],
        counts: vec![400],
        latency_us: [12_500.0, 0.0, 0.0, 0.0, 0.0],
        ..Default::default()
    });
    let limits = transaction_limits(&case.spec, &case.ends.0, &case.ends.1);
    assert_eq!((limits.len(), limits[0].cause, limits[0].share), (1, Cause::RoundTrips, 1.0));
    assert!(limits[0].evidence.contains("1 connection(s)") && limits[0].evidence.contains("12.5 ms"), "{limits:?}");
    assert!(limits[0].evidence.contains("allow 80 requests/s; 80 were answered"), "{limits:?}");
    // Half of them took 12.5 ms, and all together ten times as long: something else took the time.
    case.ends.0.transactions.as_mut().unwrap().counts = vec![40];
    assert_eq!(transaction_limits(&case.spec, &case.ends.0, &case.ends.1)[0].cause, Cause::Unexplained);
    case.ends.0.transactions.as_mut().unwrap().counts = vec![400];
    case.ends.0.transactions.as_mut().unwrap().threads.busiest_ready_ns = 4_500_000_000;
    let limits = transaction_limits(&case.spec, &case.ends.0, &case.ends.1);
    assert!(limits[0].cause == Cause::Cpu && limits[0].evidence.contains("90 %"), "{limits:?}");
}

/// Arbitrary samples, plausible or not: each is a step from the previous one.
fn any_case() -> impl proptest::strategy::Strategy<Value = Case> {
    use proptest::prelude::*;
    let row = (
        0_u64..3000,
        0_u64..3000,
        1_u64..400_000,
        0_u64..20_000,
        0_u64..12_000,
        0_u64..12_000,
        0_u64..12_000,
        0_u64..40,
        0_u8..5,
    );
    let threads = || (0_u64..6_000_000_000, 0_u64..10_000_000_000);
    let asked = proptest::option::of(1_000_000_u64..1_000_000_000);
    (proptest::collection::vec(row, 3..300), threads(), threads(), asked, 0_u64..10_000_000_000, 0.0..2.0_f64).prop_map(
        |(rows, sends, receives, asked, starved, throttled)| {
            let (mut busy, mut rwnd, mut sndbuf, mut again, mut acked) = (0, 0, 0, 0, 0);
            let mut case = case_with(|_, _| ());
            case.sent.samples = (1..)
                .zip(rows)
                .map(|(i, (cwnd, unacked, srtt, unsent, b, r, s, lost, state))| {
                    (busy, rwnd, sndbuf, again) = (busy + b, rwnd + r, sndbuf + s, again + lost / 30);
                    acked += unsent * 10;
                    TcpSample {
                        time_ns: i * 10_000_000,
                        cwnd,
                        unacked,
                        srtt_us: srtt,
                        min_rtt_us: srtt / 2 + 1,
                        snd_mss: 1448,
                        rto_us: 200_000,
                        notsent_bytes: unsent,
                        busy_us: busy,
                        rwnd_limited_us: rwnd,
                        sndbuf_limited_us: sndbuf,
                        total_retrans: again,
                        ca_state: state.into(),
                        bytes_acked: acked,
                        bytes_sent: acked + unacked * 1448,
                        data_segs_out: acked / 1448 + unacked + again,
                        pacing_rate: unsent * 1000,
                        delivery_rate: unsent * 900,
                        snd_wnd: unacked * 2000,
                        ..TcpSample::default()
                    }
                })
                .collect();
            for (threads, (cpu, ready)) in [(&mut case.sent.threads, sends), (&mut case.received.threads, receives)] {
                (threads.busiest_cpu_ns, threads.busiest_ready_ns) = (cpu, ready);
            }
            case.spec.traffic = Traffic::Tcp { rate_bps: asked };
            case.ends.0.sampler_wait_ns = starved;
            case.ends.1.machine.throttled = throttled;
            case
        },
    )
}

proptest::proptest! {
    #[test]
    fn causes_agree_with_evidence_and_shares_add_up(case in any_case()) {
        let seen = seen(&case);
        let limits = limits(&seen);
        let sum: f64 = limits.iter().map(|l| l.share).sum();
        assert!(sum <= 1.0 + 1e-9 && limits.iter().all(|l| (0.0..=1.0).contains(&l.share)), "{limits:?}");
        assert!(limits.is_sorted_by(|a, b| a.share >= b.share));
        let all = super::judge_direction(&seen);
        let ns: f64 = all.verdict.basis.values().map(|b| b.ns).sum();
        for (reason, basis) in &all.verdict.basis {
            let case = all.verdict.basis_of(*reason).unwrap();
            let contradicted = basis.ns >= CAUSE_SHARE_MIN * ns && judge::is_contradicted(*reason, case, &seen, &all.facts);
            assert!(!contradicted, "{reason:?} {basis:?}");
        }
        for moment in causes_over_time(&seen) {
            assert!((0.0..=1.0 + 1e-9).contains(&moment.share), "{moment:?}");
        }
    }
}

/// Bytes that the sender's interface has carried, sampled every 100 ms.
fn interface_counts(bytes: impl Fn(u64) -> u64) -> Vec<InterfaceCount> {
    (0..=RUN_SECONDS * 10)
        .map(|tenth| InterfaceCount { time_ns: tenth * 100_000_000, bytes: bytes(tenth * 100_000) })
        .collect()
}

#[test]
fn own_queue_is_not_competing_traffic() {
    // A token bucket of 20 Mb/s at the interface: TCP passes it 200 kB at once in every second window, and it sends them evenly.
    let mut own = case_with(|us, s| {
        (s.bytes_sent, s.bytes_acked, s.data_segs_out) = (us / 200_000 * 500_000, us * 5 / 2, 0);
        (s.unacked, s.snd_mss) = (345, 1448);
    });
    let most = |own: &Case| {
        let path = path::PathFindings::from_samples(&own.sent, &own.received, 1);
        (0..RUN_SECONDS * 10).map(|window| path.other_share(window)).fold(0.0, f64::max)
    };
    own.sent.carried = interface_counts(|us| us * 5 / 2);
    assert!(most(&own) < 0.01, "{}", most(&own));
    // The same with another sender of 15 Mb/s on the interface, minus what may have been in flight: 31 % of the 35.
    own.sent.carried = interface_counts(|us| us * 5 / 2 + us * 15 / 8);
    assert!((0.25..0.43).contains(&most(&own)), "{}", most(&own));
}

#[test]
fn spurious_retransmissions_are_no_policer() {
    // 17 Gb/s limited by a CPU, even, with some thousand spurious retransmissions among a million segments.
    let busy = case_with(|us, s| {
        (s.srtt_us, s.min_rtt_us, s.cwnd, s.unacked) = (100, 20, 200, 150);
        (s.bytes_acked, s.bytes_sent, s.delivered) = (us * 2_180, us * 2_185, us * 2_180 / 1448);
        (s.total_retrans, s.data_segs_out) = (us * 3 / 1000, us * 2_185 / 1448);
    });
    let drops = path::PathFindings::from_samples(&busy.sent, &busy.received, 1).drops;
    assert!(drops.is_none(), "{drops:?}");
}

#[test]
fn cause_refuted_by_rate_is_not_given() {
    // "533 segments at 22.0 ms are 281 Mb/s", where 16 arrive.
    let case = |lost: u64| {
        case_with(move |us, s| {
            (s.srtt_us, s.min_rtt_us, s.cwnd, s.unacked) = (22_000, 20_000, 533, 533);
            (s.bytes_acked, s.bytes_sent) = (us * 2, us * 2);
            (s.total_retrans, s.data_segs_out) = (us * lost / 1_000_000, us * 2 / 1448);
        })
    };
    for lost in [0, 10, 100] {
        let limits = judge(&case(lost));
        assert!(!limits.iter().any(|l| l.evidence.contains("533 segments at 22.0 ms are")), "{limits:?}");
    }
    // "Mathis allows 964 kb/s", with 8 % of loss, where 15.6 Mb/s arrive, evenly: the dropped packets exceeded a rate.
    let policed = case_with(|us, s| {
        (s.srtt_us, s.min_rtt_us, s.cwnd, s.unacked) = (22_000, 20_000, 30, 30);
        (s.bytes_acked, s.bytes_sent, s.delivered) = (us * 195 / 100, us * 212 / 100, us * 195 / 100 / 1448);
        (s.total_retrans, s.data_segs_out, s.ca_state) = (us * 117 / 1_000_000, us * 212 / 100 / 1448, 3);
    });
    let limits = judge(&policed);
    assert!([Cause::Policer, Cause::ShallowBuffer].contains(&limits[0].cause), "{limits:?}");
    assert!(!limits.iter().any(|l| l.evidence.contains("Mathis")), "{limits:?}");
}

#[test]
fn stalls_and_marks_are_named_with_times() {
    // Nothing is acknowledged from 2 to 4 s, while the retransmission timeout doubles.
    let outage = case_with(|us, s| {
        let lost = us.min(4_000_000).saturating_sub(2_000_000);
        (s.bytes_acked, s.bytes_sent) = ((us - lost) * 4, (us - lost) * 4 + 130_000);
        s.delivered = s.bytes_acked / 1448;
        if (2_000_000..4_000_000).contains(&us) {
            (s.ca_state, s.backoff, s.retransmits, s.last_ack_ms) = (4, lost / 500_000, lost / 500_000, lost / 1000);
        }
    });
    let limits = judge(&outage);
    let found = limits.iter().find(|l| l.cause == Cause::Outage).unwrap();
    assert!((found.share - 0.4).abs() < 0.05 && found.evidence.contains("2.00 to 4.01 s"), "{limits:?}");
    // Nothing but the handshake ever passed, and the control connection's packets did.
    let hole = case_with(|us, s| {
        (s.bytes_acked, s.bytes_sent, s.delivered, s.unacked) = (1, 14_481, 1, 10);
        (s.ca_state, s.backoff, s.retransmits) = (4, us / 1_000_000, us / 1_000_000);
    });
    assert_first(&hole, Cause::BlackHole, &["1448 bytes", "--mss"]);
    let marked = case_with(|us, s| (s.delivered_ce, s.unacked, s.ca_state) = (us / 50_000, 95, 2));
    assert_first(&marked, Cause::EcnMarks, &["100 marked"]);
}

#[test]
fn full_send_buffer_is_found_without_chronograph() {
    let small = case_with(|_, s| {
        (s.unacked, s.cwnd, s.notsent_bytes, s.sndbuf, s.wmem_queued) = (45, 100, 0, 90_000, 85_000);
    });
    assert_first(&small, Cause::SendBuffer, &["send buffer"]);
}
