//! Watched flows, as text and as JSON lines.

use crate::flow::account::Episode;
use crate::flow::leaf::{Division, Leaf};
use crate::flow::table::{FlowInterval, FlowKey, FlowSummary, Owner, Role, largest_share};
use crate::flow::watch::{Coverage, Watched};
use crate::tcp_info::TcpSample;
use model::text::{bytes, count, duration, rate, shown};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The version of the JSON lines.
pub const FLOWS_VERSION: u32 = 1;
/// Flows in a text for each interval, and at the end.
const LINES_MAX: usize = 20;
/// Leaves of less than this share are not in the text.
const SHARE_MIN: f64 = 0.005;

/// What is watched, and how completely, as the first JSON line.
pub fn start_json(coverage: &Coverage, now_ns: u64) -> Value {
    json!({
        "version": FLOWS_VERSION,
        "type": "start",
        "time_ns": now_ns,
        "own_only_uid": coverage.own_only,
        "no_ends_because": coverage.no_ends_because,
        "no_openers_because": coverage.no_openers_because,
    })
}

/// What the user should know before anything else.
pub fn start_text(coverage: &Coverage) -> String {
    let mut out = String::new();
    if let Some(uid) = coverage.own_only {
        let _ = writeln!(out, "only sockets of user {uid}: others need root, or CAP_NET_ADMIN");
    }
    if let Some(why) = &coverage.no_ends_because {
        let _ = writeln!(out, "flows that begin and end between two samples are not seen: {why}");
    }
    if let Some(why) = &coverage.no_openers_because {
        let _ = writeln!(out, "the processes of flows that are shorter than a sample are not known: {why}");
    }
    out
}

fn key_json(key: &FlowKey, owner: Option<&Owner>) -> Value {
    json!({
        "flow": key.cookie,
        "local": key.local.to_string(),
        "peer": key.peer.to_string(),
        "congestion": key.congestion,
        "pid": owner.map(|o| o.pid),
        "process": owner.map(|o| &o.name),
    })
}

fn division_json(division: &Division) -> Value {
    division.parts().into_iter().map(|(leaf, ns)| (leaf_key(leaf), json!(ns))).collect::<serde_json::Map<_, _>>().into()
}

fn leaf_key(leaf: Leaf) -> String {
    serde_json::to_value(leaf).ok().and_then(|v| v.as_str().map(String::from)).unwrap_or_default()
}

fn merged(mut into: Value, more: Value) -> Value {
    if let (Value::Object(into), Value::Object(more)) = (&mut into, more) {
        into.extend(more);
    }
    into
}

fn state_json(s: &TcpSample) -> Value {
    json!({
        "cwnd_segments": s.cwnd,
        "ssthresh_segments": (s.ssthresh < 0x7fff_ffff).then_some(s.ssthresh),
        "srtt_us": s.srtt_us,
        "min_rtt_us": s.known_min_rtt_us(),
        "in_flight_segments": s.unacked,
        "unsent_bytes": s.notsent_bytes,
        "send_window_bytes": s.snd_wnd,
        "mss_bytes": s.snd_mss,
    })
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Sends => "sends",
        Role::Receives => "receives",
    }
}

/// An interval of a flow as a JSON line.
pub fn interval_json(i: &FlowInterval) -> Value {
    let role = i.moved.role();
    let own = json!({
        "version": FLOWS_VERSION,
        "type": "interval",
        "time_ns": i.sample.time_ns,
        "duration_ns": i.moved.ns,
        "account_of": role_name(role),
        "sent_bytes": i.moved.sent_bytes,
        "received_bytes": i.moved.received_bytes,
        "retransmits": i.moved.retransmits,
        "account_ns": division_json(&i.division),
    });
    merged(merged(own, key_json(&i.key, i.owner.as_ref())), state_json(&i.sample))
}

fn episode_json(e: &Episode) -> Value {
    json!({"start_ns": e.start_ns, "end_ns": e.end_ns, "leaf": e.leaf, "timeouts": e.timeouts})
}

/// A flow's whole account as a JSON line.
pub fn flow_json(f: &FlowSummary) -> Value {
    let own = json!({
        "version": FLOWS_VERSION,
        "type": "flow",
        "time_ns": f.last.time_ns,
        "duration_ns": f.moved.ns,
        "account_of": role_name(f.moved.role()),
        "sent_bytes": f.moved.sent_bytes,
        "received_bytes": f.moved.received_bytes,
        "retransmits": f.moved.retransmits,
        "account_ns": division_json(&f.division),
        "local_queue_ns": f.local_queue_ns,
        "stalls": f.episodes.iter().map(episode_json).collect::<Vec<_>>(),
        "stalls_not_listed": f.episodes_more,
        "samples": f.samples,
        "ended": f.has_ended,
    });
    merged(merged(own, key_json(&f.key, f.owner.as_ref())), state_json(&f.last))
}

/// The last JSON line: what was seen how.
pub fn end_json(w: &Watched, now_ns: u64) -> Value {
    let (u, c) = (&w.unfollowed, &w.coverage);
    json!({
        "version": FLOWS_VERSION,
        "type": "end",
        "time_ns": now_ns,
        "duration_ns": c.duration_ns,
        "flows_sampled": w.flows.len() as u64 + u.merged,
        "flows_merged": u.merged,
        "merged_account_ns": division_json(&w.others),
        "flows_seen_at_end_only": u.short,
        "seen_at_end_only_bytes": u.short_bytes,
        "seen_at_end_only_retransmits": u.short_retransmits,
        "flows_of_unknown_process": u.ownerless,
        "flows_beyond_limit": u.beyond,
        "flows_without_end": u.cut,
        "end_messages_lost": c.ends_lost,
        "own_only_uid": c.own_only,
        "no_ends_because": c.no_ends_because,
        "no_openers_because": c.no_openers_because,
        "passes": c.passes,
        "pass_interval_ns_max": c.pass_interval_ns_max,
        "cpu_ns": c.cpu_ns,
    })
}

fn name(key: &FlowKey, owner: Option<&Owner>) -> String {
    let of = owner.map_or_else(|| "?".into(), |o| format!("{}[{}]", shown(&o.name), o.pid));
    format!("{of} {} > {}", key.local, key.peer)
}

fn round_trip(s: &TcpSample) -> String {
    match s.known_min_rtt_us() {
        Some(least) => format!("rtt {} (least {})", duration(s.srtt_us as f64 * 1e3), duration(least as f64 * 1e3)),
        None => format!("rtt {}", duration(s.srtt_us as f64 * 1e3)),
    }
}

/// The active flows of an interval, a line each.
pub fn intervals_text(intervals: &[FlowInterval], elapsed_ns: u64) -> String {
    let mut out = String::new();
    for i in intervals.iter().take(LINES_MAX) {
        let (s, role) = (&i.sample, i.moved.role());
        let limit = largest_share(&i.division)
            .map_or_else(String::new, |(leaf, share)| format!("  {} {:.0} %", leaf.name(), 100.0 * share));
        let _ = writeln!(
            out,
            "{:6.1} s  {}  {} {}  cwnd {}  in flight {}  {}  retransmits {}{limit}",
            elapsed_ns as f64 / 1e9,
            name(&i.key, i.owner.as_ref()),
            role_name(role),
            rate(i.moved.rate_bps(role)),
            s.cwnd,
            s.unacked,
            round_trip(s),
            i.moved.retransmits,
        );
    }
    if intervals.len() > LINES_MAX {
        let _ = writeln!(out, "{:6.1} s  and {} more flows", elapsed_ns as f64 / 1e9, intervals.len() - LINES_MAX);
    }
    out
}

/// The accounts of all flows, and what was seen how.
pub fn summary_text(w: &Watched, started_ns: u64) -> String {
    let mut out = String::new();
    let at = |ns: u64| format!("{:.1} s", ns.saturating_sub(started_ns) as f64 / 1e9);
    for f in w.flows.iter().take(LINES_MAX) {
        let (s, role) = (&f.last, f.moved.role());
        let _ = writeln!(
            out,
            "\n{}\n  {} in {}, {}; {}, MSS {}, {}, {} retransmits",
            name(&f.key, f.owner.as_ref()),
            bytes(if role == Role::Sends { f.moved.sent_bytes } else { f.moved.received_bytes } as f64),
            duration(f.moved.ns as f64),
            rate(f.moved.rate_bps(role)),
            f.key.congestion.as_deref().map_or_else(|| "?".into(), shown),
            s.snd_mss,
            round_trip(s),
            f.moved.retransmits,
        );
        if role == Role::Receives {
            let _ = writeln!(out, "  as its receiver sees it; what held the sender is known at the other end");
        }
        let all = f.division.total_ns().max(1) as f64;
        for (leaf, ns) in f.division.parts() {
            if ns as f64 >= SHARE_MIN * all {
                let _ =
                    writeln!(out, "  {:32} {:>8} {:5.1} %", leaf.name(), duration(ns as f64), 100.0 * ns as f64 / all);
            }
        }
        for e in &f.episodes {
            let _ = writeln!(
                out,
                "  {}: from {} to {}, {} timeouts",
                e.leaf.name(),
                at(e.start_ns),
                at(e.end_ns),
                e.timeouts
            );
        }
        if f.episodes_more > 0 {
            let _ = writeln!(out, "  and {} more such times", f.episodes_more);
        }
        if f.local_queue_ns > 0 {
            let _ = writeln!(out, "  for {} the queue was this machine's own", duration(f.local_queue_ns as f64));
        }
    }
    if w.flows.len() > LINES_MAX {
        let _ = writeln!(out, "\nand {} more flows (--json has them)", w.flows.len() - LINES_MAX);
    }
    out.push('\n');
    out.push_str(&completeness_text(w));
    out
}

fn completeness_text(w: &Watched) -> String {
    let (u, c) = (&w.unfollowed, &w.coverage);
    let mut out = String::new();
    let sampled = w.flows.len() as u64 + u.merged;
    let _ = writeln!(
        out,
        "{} flows sampled, every {} at most; {:.2} % of a core",
        count(sampled as f64),
        duration(c.pass_interval_ns_max as f64),
        100.0 * c.cpu_ns as f64 / c.duration_ns.max(1) as f64
    );
    let mut more = |n: u64, what: &str| {
        if n > 0 {
            let _ = writeln!(out, "{} {what}", count(n as f64));
        }
    };
    more(u.short, &format!("flows were too short to be sampled; they moved {} in all", bytes(u.short_bytes as f64)));
    more(u.ownerless, "flows were too short to be sampled, and their process is not known: they may be others'");
    more(u.beyond, "flows were not followed: too many at once");
    more(u.cut, "flows ended unseen after their last sample");
    more(u.merged, "ended flows with few bytes are not listed");
    more(c.ends_lost, "times, the kernel had no room to report ends of flows: some may be missing");
    out + &start_text(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_leaf_has_a_key_and_a_name() {
        for leaf in Leaf::ALL {
            assert!(!leaf_key(leaf).is_empty() && !leaf.name().is_empty());
        }
        let mut division = Division::default();
        division.add(Leaf::CwndAfterEcn, 5);
        assert_eq!(division_json(&division), json!({"cwnd_after_ecn": 5}));
    }
}
