//! The account is whole for any samples, and right for scripted flows.

use super::*;
use proptest::prelude::*;

/// One step of a random flow: what a kernel of any version could report next, and what it could not.
#[derive(Debug, Clone)]
struct Step {
    ns: u64,
    grow: [u64; 8],
    state: [u64; 9],
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![Just(0), 1..2_000_000_u64, 1_000_000..3_000_000_000_u64];
    let value = prop_oneof![Just(0), 1..20_u64, 1..1_000_000_u64, Just(u64::from(u32::MAX))];
    let step = (length, prop::array::uniform8(value.clone()), prop::array::uniform9(value));
    prop::collection::vec(step.prop_map(|(ns, grow, state)| Step { ns, grow, state }), 0..60)
}

fn samples(steps: &[Step]) -> Vec<TcpSample> {
    let mut s = TcpSample { snd_mss: 1448, ..TcpSample::default() };
    let mut all = Vec::new();
    for step in steps {
        s.time_ns += step.ns;
        let [busy, rwnd, sndbuf, acked, retrans, ce, dsack, rto] = step.grow;
        s.busy_us += busy;
        s.rwnd_limited_us += rwnd;
        s.sndbuf_limited_us += sndbuf;
        s.bytes_acked += acked;
        s.total_retrans += retrans;
        s.delivered_ce += ce;
        s.dsack_dups += dsack;
        s.total_rto += rto;
        let [unacked, cwnd, wnd, notsent, srtt, state, timeouts, queued, ack] = step.state;
        (s.unacked, s.cwnd, s.snd_wnd, s.notsent_bytes) = (unacked, cwnd, wnd, notsent);
        (s.srtt_us, s.min_rtt_us, s.ca_state) = (srtt, srtt / 2, state % 5);
        (s.retransmits, s.backoff, s.probes) = (timeouts % 16, timeouts % 5, timeouts % 3 / 2);
        (s.wmem_queued, s.sndbuf, s.last_ack_ms) = (queued, 100_000, ack);
        all.push(s);
    }
    all
}

proptest! {
    #[test]
    fn leaves_sum_to_the_observed_time(steps in steps(), congestion in prop_oneof![Just(None), Just(Some("bbr")), Just(Some("cubic"))]) {
        let mut account = FlowAccount::new(congestion);
        for sample in samples(&steps) {
            let (before, had) = (account.observed_ns(), account.ends().is_some());
            let interval = account.push(&sample);
            let length = account.observed_ns() - before;
            prop_assert!(!had || interval.total_ns() == length);
            // The rest of a stall is part of the division before it ends.
            prop_assert_eq!(account.division().total_ns(), account.observed_ns());
        }
        account.finish();
        account.name_drops();
        prop_assert_eq!(account.division().total_ns(), account.observed_ns());
        prop_assert_eq!(account.division().of(Leaf::CwndAfterLoss), 0);
    }
}

/// A bulk flow over 20 ms, sampled each 100 ms for `count` samples; `at` changes the sample.
fn flow(congestion: &str, count: u64, at: impl Fn(u64, &mut TcpSample)) -> FlowAccount {
    let mut account = FlowAccount::new(Some(congestion));
    for i in 0..count {
        let mut s = TcpSample {
            time_ns: i * 100_000_000,
            busy_us: i * 100_000,
            srtt_us: 20_000,
            min_rtt_us: 19_800,
            snd_mss: 1000,
            cwnd: 100,
            unacked: 95,
            ssthresh: 0x7fff_ffff,
            notsent_bytes: 200_000,
            snd_wnd: 1 << 20,
            options: 7,
            bytes_acked: i * 500_000,
            bytes_sent: i * 500_000 + 95_000,
            delivered: i * 500,
            rto_us: 220_000,
            sndbuf: 1 << 20,
            wmem_queued: 600_000,
            max_pacing_rate: u64::MAX,
            ..TcpSample::default()
        };
        at(i, &mut s);
        account.push(&s);
    }
    account.finish();
    account
}

fn largest(congestion: &str, at: impl Fn(u64, &mut TcpSample)) -> Leaf {
    flow(congestion, 50, at).division().largest().unwrap()
}

#[test]
fn each_limit_has_its_leaf() {
    for cc in ["cubic", "reno"] {
        assert_eq!(largest(cc, |_, _| ()), Leaf::CwndStart);
        assert_eq!(largest(cc, |i, s| s.total_retrans = i), Leaf::CwndAfterLoss);
        assert_eq!(largest(cc, |i, s| s.delivered_ce = 10 * i), Leaf::CwndAfterEcn);
        assert_eq!(largest(cc, |_, s| s.ca_state = 3), Leaf::FastRecovery);
    }
    for cc in ["cubic", "reno", "bbr"] {
        assert_eq!(largest(cc, |i, s| s.busy_us = i * 10_000), Leaf::Application);
        assert_eq!(
            largest(cc, |_, s| (s.unacked, s.notsent_bytes, s.app_limited, s.wmem_queued) = (20, 0, 1, 40_000)),
            Leaf::Application
        );
        assert_eq!(largest(cc, |_, s| s.srtt_us = 80_000), Leaf::LinkRate);
        assert_eq!(largest(cc, |i, s| (s.rwnd_limited_us, s.snd_wnd) = (i * 99_000, 96_000)), Leaf::ReceiveWindow);
        let unscaled = |i, s: &mut TcpSample| (s.rwnd_limited_us, s.snd_wnd, s.options) = (i * 99_000, 65_535, 3);
        assert_eq!(largest(cc, unscaled), Leaf::ReceiveWindowUnscaled);
        let closed = |i, s: &mut TcpSample| {
            (s.rwnd_limited_us, s.snd_wnd) = (i * 99_000, if i == 0 { 1 << 20 } else { 10_000 });
        };
        assert_eq!(largest(cc, closed), Leaf::Reader);
        // A small send buffer, whether the kernel's chronograph saw it or not.
        let buffer = |s: &mut TcpSample| {
            (s.notsent_bytes, s.unacked, s.cwnd, s.sndbuf, s.wmem_queued) = (0, 90, 100, 200_000, 180_000);
        };
        assert_eq!(largest(cc, |_, s| buffer(s)), Leaf::SendBuffer);
        assert_eq!(largest(cc, |i, s| (buffer(s), s.sndbuf_limited_us = i * 50_000).1), Leaf::SendBuffer);
        let paced = |_, s: &mut TcpSample| {
            (s.max_pacing_rate, s.pacing_rate, s.delivery_rate, s.unacked) = (5_000_000, 5_000_000, 4_900_000, 50);
        };
        assert_eq!(largest(cc, paced), Leaf::Pacing);
    }
    let estimated = |_, s: &mut TcpSample| (s.pacing_rate, s.delivery_rate, s.unacked) = (5_000_000, 4_900_000, 50);
    assert_eq!(largest("bbr", estimated), Leaf::LinkRate);
}

/// A flow that stops at `from` and goes on at `to`, in samples.
fn stalled(from: u64, to: u64, more: impl Fn(u64, &mut TcpSample)) -> FlowAccount {
    flow("cubic", 60, |i, s| {
        let lost = i.min(to).saturating_sub(from);
        s.bytes_acked = (i - lost.min(i)) * 500_000;
        s.delivered = s.bytes_acked / 1000;
        s.bytes_sent = s.bytes_acked + 95_000;
        if (from..to).contains(&i) {
            (s.ca_state, s.last_ack_ms, s.backoff, s.retransmits) =
                (4, lost * 100, (lost / 3).min(4), (lost / 3).min(4));
        }
        s.total_rto = (lost / 3).min(4);
        s.total_retrans = s.total_rto;
        more(i, s);
    })
}

#[test]
fn stall_with_timeouts_is_an_outage_from_when_to_when() {
    let outage = stalled(20, 40, |_, _| ());
    let (episodes, more) = outage.episodes();
    assert_eq!((episodes.len(), more), (1, 0));
    let episode = episodes[0];
    assert_eq!((episode.leaf, episode.timeouts), (Leaf::Outage, 4));
    assert!((1_900_000_000..=2_000_000_000).contains(&episode.start_ns), "{episode:?}");
    assert!((4_000_000_000..=4_100_000_000).contains(&episode.end_ns), "{episode:?}");
    assert_eq!(outage.division().of(Leaf::Outage), 2_000_000_000);
    // One timeout, and the retransmission gets through: recovery, no outage.
    let recovered = stalled(20, 24, |_, s| s.backoff = 0);
    assert!(recovered.episodes().0.is_empty());
    assert!(recovered.division().of(Leaf::TimeoutRecovery) >= 300_000_000);
    // It lasts to the end.
    assert_eq!(stalled(20, 60, |_, _| ()).episodes().0.len(), 1);
    // The retransmissions were duplicates: the data had arrived.
    let acks = stalled(20, 40, |i, s| s.dsack_dups = u64::from(i >= 40));
    assert_eq!(acks.episodes().0[0].leaf, Leaf::AckPath);
}

#[test]
fn black_hole_needs_small_packets_that_pass() {
    let hole = |acked: u64, heard: bool| {
        let account = stalled(0, 60, |i, s| {
            (s.bytes_acked, s.delivered, s.bytes_sent, s.unacked) = (acked, 1, acked + 10_000, 10);
            s.segs_in = if heard { i } else { 1 };
        });
        account.division().largest().unwrap()
    };
    assert_eq!(hole(300, false), Leaf::BlackHole);
    assert_eq!(hole(1, true), Leaf::BlackHole);
    // Only the handshake passed: it may be an outage.
    assert_eq!(hole(1, false), Leaf::Unknown);
}

#[test]
fn probes_with_an_open_window_are_no_slow_reader() {
    // A local filter drops what is sent: nothing is in flight, and the kernel probes.
    let filtered = stalled(20, 40, |i, s| {
        if (20..40).contains(&i) {
            (s.unacked, s.retransmits, s.backoff, s.probes) = (0, 0, 0, (i - 20) / 3);
        }
        s.total_rto = 0;
    });
    assert_eq!(filtered.episodes().0[0].leaf, Leaf::Outage);
    assert_eq!(filtered.division().of(Leaf::Reader), 0);
}

#[test]
fn loss_after_reordering_is_none() {
    let spurious = |i: u64, s: &mut TcpSample| (s.total_retrans, s.dsack_dups, s.reord_seen) = (i, i, 3);
    assert_eq!(largest("cubic", spurious), Leaf::Reordering);
}
