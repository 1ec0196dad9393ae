//! A run as JSON. docs/guide/net.md defines the format.

use super::RunView;
use crate::estimate::Throughput;
use crate::result::{DirectionResult, directions, relative_half_width, total, transaction_limits};
use crate::run::Outcome;
use crate::spec::Direction;
use crate::why::Limit;
use serde_json::{Value, json};
use std::path::Path;

/// Version 1 had no `version`, and with two directions only what limited the first. 3 renamed `ends.asks`, `ends.serves`
/// (client, server), and in `search` `not_carried_upper` (lost_or_queued_upper), `not_held_bps` (lowest_failed_bps) and
/// `waiting` (queued).
const JSON_VERSION: u32 = 3;

/// What limited each direction, or the transactions.
fn limited_by(outcome: &Outcome, directions: &[DirectionResult<'_>]) -> Vec<Value> {
    let one = |direction: Option<Direction>, limit: &Limit| {
        let mut value = json!(limit);
        value["direction"] = json!(direction);
        value
    };
    match &outcome.own.transactions {
        Some(_) => transaction_limits(outcome).iter().map(|limit| one(None, limit)).collect(),
        None => directions.iter().flat_map(|t| t.limits.iter().map(|limit| one(Some(t.direction), limit))).collect(),
    }
}

/// The whole run, with the path of the archive that contains its samples; `None` if nothing was measured.
pub fn from_run(shown: &RunView<'_>, samples: Option<&Path>) -> Option<Value> {
    let outcome = &shown.measured.outcome;
    let directions = directions(outcome);
    let all = total(outcome, &directions)?;
    let mut invalid = outcome.own.trouble.clone();
    let own = relative_half_width(outcome, &directions);
    if let Some(link) = &shown.link {
        invalid = link.failure(invalid, own);
    }
    let mut value = json!({
        "version": JSON_VERSION,
        "throughput_bps": throughput_json(&all),
        "limited_by": limited_by(outcome, &directions),
        "samples": samples,
        // Null without an emulated link.
        "lateness_us": shown.link.map(|link| link.lateness()),
        "valid": invalid.is_none(),
        "invalid": invalid,
        "interrupted": shown.measured.interrupted,
        "spec": outcome.spec,
        "directions": directions.iter().map(|t| direction_json(t, outcome)).collect::<Vec<_>>(),
        "clock": outcome.clock.map(|c| json!({
            "other_ahead_ns": c.ahead_ns, "drift": c.drift, "error_ns": c.error_ns,
        })),
    });
    if let Some(t) = &outcome.own.transactions {
        value["throughput_bps"] = Value::Null;
        value["transactions_per_s"] = throughput_json(&all);
        let [p50, p90, p99, p999, max] = t.latency_us;
        value["latency_us"] = json!({"p50": p50, "p90": p90, "p99": p99, "p99_9": p999, "max": max});
    }
    if let Some(search) = &shown.measured.search {
        value["search"] = json!(search);
    }
    if let Some((client, server)) = shown.ends {
        value["ends"] = json!({"client": client, "server": server});
    }
    if let Some(link) = &shown.link {
        value["link"] = link.document(own, None);
    }
    Some(value)
}

fn throughput_json(t: &Throughput) -> Value {
    json!({
        "estimate": t.steady,
        "ci95": t.ci95.map(|(low, high)| [low, high]),
        "whole_run": t.whole,
        "steady_from_s": t.steady_from_s,
        "steady": t.is_steady,
        "alike": t.batch_correlation,
    })
}

/// The CPU time of the sender's sampler as a share of the run.
fn sampler_cpu_share(t: &DirectionResult<'_>, outcome: &Outcome) -> f64 {
    let wall = t.sent.end_ns.saturating_sub(t.sent.start_ns).max(1);
    outcome.sender(t.direction).sampler_cpu_ns as f64 / wall as f64
}

fn direction_json(t: &DirectionResult<'_>, outcome: &Outcome) -> Value {
    let last = |of: fn(&crate::tcp_info::TcpSample) -> u64| {
        let streams = t.sent.sockets.len() as u64;
        let last = |stream| t.sent.samples.iter().rev().find(|s| s.stream == stream);
        (0..streams).filter_map(last).map(of).fold(0, u64::saturating_add)
    };
    let tcp = !t.sent.samples.is_empty();
    json!({
        "direction": t.direction,
        "throughput_bps": throughput_json(&t.throughput),
        "limited_by": t.limits,
        "streams_bytes": t.received.streams,
        "retransmits": tcp.then(|| last(|s| s.total_retrans)),
        "segments": tcp.then(|| last(|s| s.data_segs_out)),
        "bounds_bps": t.bounds.map(|(mathis, padhye)| json!({"mathis": mathis, "padhye": padhye})),
        "readings": t.sent.samples.len(),
        "acknowledgements": {"recorded": t.sent.acks.len(), "lost": t.sent.acks_lost},
        "packets": t.packets,
        "readings_ratio": t.cost.as_ref().map(|cost| match cost {
            Ok(r) => json!({"estimate": r.value, "ci95": [r.low, r.high], "pairs": r.n}),
            Err(why) => json!({"unknown": why.to_string()}),
        }),
        "sender": {"sockets": t.sent.sockets, "threads": t.sent.threads},
        "sampler_cpu_share": sampler_cpu_share(t, outcome),
        "receiver": {"sockets": t.received.sockets, "threads": t.received.threads},
        "intervals_bps": t.throughput.intervals.iter().map(|(s, bps)| json!([s, bps])).collect::<Vec<_>>(),
    })
}
