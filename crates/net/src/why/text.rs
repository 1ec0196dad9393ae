//! The texts of a limit: its evidence, and the setting that would change it.

use super::{Basis, BothEnds, Judgement, Reason, loss_bounds_from_facts};
use crate::flow::leaf::Leaf;
use crate::spec::Traffic;
use crate::usage::ThreadTotals;
use model::text::{bytes, duration, rate, size};

pub fn evidence_and_remedy(
    reason: Reason,
    seen: &BothEnds<'_>,
    judged: &Judgement,
    b: &Basis,
) -> (String, Option<String>) {
    let f = &judged.facts;
    let rtt = duration(b.rtt_us * 1e3);
    let cap = |bytes: f64| rate(bytes * 8.0 / (b.rtt_us.max(1.0) / 1e6));
    match reason {
        Reason::RequestedRate => {
            let asked = match seen.spec.traffic {
                Traffic::Tcp { rate_bps } => rate_bps.unwrap_or(0),
                _ => 0,
            };
            let evidence = format!(
                "the sender had nothing to send: it writes {} per stream, as requested, and {} arrived",
                rate(asked as f64),
                rate(seen.rate_bps)
            );
            (evidence, Some("raise or omit --rate".into()))
        }
        Reason::NothingToSend => match seen.spec.traffic {
            Traffic::Tcp { rate_bps: Some(asked) } => (
                format!("the sender had nothing to send: it writes {} per stream, as requested", rate(asked as f64)),
                Some("raise or omit --rate".into()),
            ),
            _ => (
                "the sender had nothing to send: the application had not written, and all data was acknowledged".into(),
                Some("write earlier, and more at once".into()),
            ),
        },
        Reason::RequestedPacing => {
            let asked = seen.spec.socket.pacing_bps.unwrap_or(0);
            let evidence =
                format!("packets were paced at {} per stream, as requested, without loss", rate(asked as f64));
            (evidence, Some("raise or omit --pacing".into()))
        }
        Reason::UnreadData => (
            "data waited unread at the receiver, whose thread was often asleep".into(),
            Some("read earlier, and more at once".into()),
        ),
        Reason::ReceiveWindow => {
            let buffer = seen.received.sockets.iter().map(|s| s.receive_buffer).max().unwrap_or(0);
            let evidence = format!(
                "the receive window was full: the {} in flight that it allows, of a receive buffer of {}, limit a \
                 stream to {} at {rtt}",
                bytes(b.in_flight_bytes),
                size(buffer),
                cap(b.in_flight_bytes)
            );
            let most = largest_setting(seen.receiver, "net.ipv4.tcp_rmem");
            let remedy = match seen.spec.socket.receive_buffer {
                Some(_) => format!("raise --rcvbuf, or omit it: the kernel then autotunes it up to {most}"),
                None => format!("receive buffer at most {most}: raise the last number of net.ipv4.tcp_rmem there"),
            };
            (evidence, Some(remedy))
        }
        Reason::SendBuffer => {
            let buffer = seen.sent.sockets.iter().map(|s| s.send_buffer).max().unwrap_or(0);
            let evidence = format!(
                "the whole send buffer was in flight: {} limit a stream to {} at {rtt} (SO_SNDBUF {} at the end of \
                 the run)",
                bytes(b.in_flight_bytes),
                cap(b.in_flight_bytes),
                size(buffer)
            );
            let most = largest_setting(seen.sender, "net.ipv4.tcp_wmem");
            let remedy = match seen.spec.socket.send_buffer {
                Some(_) => format!("raise --sndbuf, or omit it: the kernel then autotunes it up to {most}"),
                None => format!("send buffer at most {most}: raise the last number of net.ipv4.tcp_wmem there"),
            };
            (evidence, Some(remedy))
        }
        Reason::Loss => {
            let share = 100.0 * b.retransmitted / b.segments.max(1.0);
            let f = super::Facts { rtt_us: b.rtt_us, retransmitted: b.retransmitted, segments: b.segments, ..*f };
            let bound = loss_bounds_from_facts(&f, seen.sent.sockets.len().max(1)).map_or_else(
                String::new,
                |(mathis, padhye)| {
                    format!(
                        "; at this loss, Reno reaches {} by Mathis, {} by Padhye; {} arrived in the second half of \
                    the run",
                        rate(mathis),
                        rate(padhye),
                        rate(b.acked_bps * seen.sent.sockets.len().max(1) as f64)
                    )
                },
            );
            let evidence = format!(
                "the congestion window was reduced by loss: {share:.2} % of the segments were retransmitted, window \
                 {:.0} segments at {rtt}{bound}",
                b.cwnd
            );
            let mut remedy = "find where packets are lost (`ip -s link`, `tc -s qdisc`, the radio)".to_string();
            // Suggesting BBR is pointless where any version of it is already in use.
            if !seen.paces_by_model() {
                remedy += ", or use a congestion control that tolerates loss: --cc bbr";
            }
            (evidence, Some(remedy))
        }
        Reason::GrowingWindow => {
            let evidence = format!(
                "the congestion window was still growing: {:.0} segments at {rtt} are {} per stream",
                b.cwnd,
                cap(b.cwnd * f.mss)
            );
            (evidence, Some("measure longer (--duration), or use more streams".into()))
        }
        Reason::PacedBelowWindow => {
            let evidence = format!(
                "{} paced packets at {} per stream while data waited and its window of {:.0} segments was not full; \
                 {} were delivered",
                congestion_control_name(seen),
                rate(b.paced_bps),
                b.cwnd,
                rate(b.delivered_bps)
            );
            (evidence, Some("measure longer (--duration), or try another congestion control (--cc)".into()))
        }
        Reason::Policer | Reason::ShallowQueue => {
            let Some(d) = judged.path.drops else { return ("packets were dropped".into(), None) };
            let again = 100.0 * f.retransmitted / f.segments.max(1.0);
            let shown = format!(
                "{} arrived at a constant rate (within {:.0} %), and {again:.2} % of the segments were \
                 retransmitted; {:.0} % of what was sent above the mean was dropped",
                rate(d.rate_bps),
                100.0 * d.throughput_variation,
                100.0 * d.slope.clamp(0.0, 1.0)
            );
            match reason {
                Reason::Policer => (
                    format!(
                        "a policer drops what exceeds a rate, without queueing: {shown}; bursts of up to {} \
                        passed",
                        bytes(d.burst_bytes)
                    ),
                    Some(
                        "ask the network's operator for the policed rate, and stay below it: --pacing, or a shaper \
                        at the sender"
                            .into(),
                    ),
                ),
                _ => (
                    format!("a shallow queue in the path overflows: {shown}; it holds about {}", bytes(d.queued_bytes)),
                    Some(
                        "lengthen that queue, or send smaller bursts: --pacing, or a congestion control that paces \
                        (--cc bbr)"
                            .into(),
                    ),
                ),
            }
        }
        Reason::CompetingTraffic => {
            let (bps, share) = judged.path.mean_other_traffic();
            let evidence = format!(
                "other traffic used {} of the same interface, {:.0} %, while {} arrived here",
                rate(bps),
                100.0 * share,
                rate(seen.rate_bps)
            );
            (
                evidence,
                Some(
                    "stop it, or reserve bandwidth for this traffic; `ss -ti`, `ip -s link` and nethogs show \
                its source"
                        .into(),
                ),
            )
        }
        Reason::Unexplained => {
            let evidence = format!(
                "unknown: {} per stream were acknowledged at {rtt}, with {} in flight, a window of {:.0} segments \
                 and {} paced; {:.2} % of the segments were retransmitted",
                rate(b.acked_bps),
                bytes(b.in_flight_bytes),
                b.cwnd,
                rate(b.paced_bps),
                100.0 * f.retransmitted / f.segments.max(1.0)
            );
            (evidence, Some("store the run (-o) and inspect its page; measure longer (--duration)".into()))
        }
        Reason::StandingQueue => (
            format!(
                "the path had a standing queue: round trips took {rtt}, {} without load, while {} arrived",
                duration(f.least_rtt_us * 1e3),
                rate(seen.rate_bps)
            ),
            None,
        ),
        Reason::EstimatedPathRate => {
            let evidence = format!(
                "{} paced packets at {}, its estimate of the path's rate, while data waited and its window of {:.0} \
                 segments was not full; {} were delivered",
                congestion_control_name(seen),
                rate(b.paced_bps),
                b.cwnd,
                rate(b.delivered_bps)
            );
            (evidence, None)
        }
        Reason::EcnMarks => {
            let marked = seen.sent.samples.iter().map(|s| s.delivered_ce).max().unwrap_or(0);
            let evidence = format!(
                "the congestion window was reduced by congestion marks (ECN): {marked} marked segments were delivered, \
                 window {:.0} segments at {rtt}; nothing needed to be lost",
                b.cwnd
            );
            let remedy = "a queue in the path marks instead of dropping: use its share, or ask its operator for the \
                          threshold (`tc -s qdisc` there)";
            (evidence, Some(remedy.into()))
        }
        Reason::Outage => {
            let evidence = format!(
                "nothing got through from {}: data was in flight, and retransmissions were lost too",
                judged.stalls.times(Leaf::Outage)
            );
            (evidence, Some("find what was down at that time: link, route, firewall (`ip monitor`, `dmesg`)".into()))
        }
        Reason::BlackHole => {
            let evidence = format!(
                "not one segment of {:.0} bytes was delivered from {}, while small packets passed",
                f.mss,
                judged.stalls.times(Leaf::BlackHole)
            );
            let remedy = "a hop drops packets of this size without a message: --mss 1200 to confirm; lower the MTU, clamp the \
                          MSS, let ICMP pass, or set net.ipv4.tcp_mtu_probing=1";
            (evidence, Some(remedy.into()))
        }
        Reason::AckPath => {
            let evidence = format!(
                "data arrived, and its acknowledgements did not, from {}: what was sent again was a duplicate",
                judged.stalls.times(Leaf::AckPath)
            );
            (evidence, Some("find where the direction back loses packets".into()))
        }
        Reason::SenderCpu => (cpu_evidence("sender", &seen.sent.threads, seen, seen.sender), Some(cpu_remedy())),
        Reason::ReceiverCpu => {
            (cpu_evidence("receiver", &seen.received.threads, seen, seen.receiver), Some(cpu_remedy()))
        }
    }
}

/// The congestion control's name.
fn congestion_control_name<'a>(seen: &BothEnds<'a>) -> &'a str {
    seen.sent.sockets.iter().find_map(|s| s.congestion.as_deref()).unwrap_or("the congestion control")
}

pub fn cpu_remedy() -> String {
    "give that end's threads more CPU time (quota, priority, other load, frequency), or use more streams (--streams)"
        .into()
}

/// The CPU usage of an end's threads while data flowed.
pub fn cpu_evidence(
    end: &str,
    threads: &ThreadTotals,
    seen: &BothEnds<'_>,
    report: &crate::outcome::EndReport,
) -> String {
    cpu_evidence_in(end, threads, seen.sent.end_ns.saturating_sub(seen.sent.start_ns), report)
}

/// The CPU usage of an end's threads in `wall_ns`.
pub fn cpu_evidence_in(end: &str, threads: &ThreadTotals, wall_ns: u64, report: &crate::outcome::EndReport) -> String {
    let ran = 100.0 * super::share_of(threads.busiest_cpu_ns, wall_ns);
    let ready = 100.0 * super::share_of(threads.busiest_ready_ns, wall_ns);
    let throttled = 100.0 * report.machine.throttled.min(1.0);
    let quota =
        if throttled >= 1.0 { format!(", and a CPU quota throttled it for {throttled:.0} %") } else { String::new() };
    let starved = 100.0 * super::supervisor_wait_share(report, wall_ns);
    let starved = if starved >= 10.0 {
        format!("; even the supervising thread waited for a CPU for {starved:.0} %")
    } else {
        String::new()
    };
    format!(
        "the {end}'s busiest thread ran for {ran:.0} % of the time and was runnable for {ready:.0} \
         %{quota}{starved}; its machine was {:.0} % busy",
        100.0 * report.machine.busy
    )
}

/// The largest of a setting's three values, as a size.
fn largest_setting(end: &crate::outcome::EndReport, name: &str) -> String {
    let most = end.settings.get(name).and_then(|text| text.split(' ').next_back()?.parse().ok());
    most.map_or_else(|| format!("{name}'s last number"), size)
}
