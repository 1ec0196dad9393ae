//! A run as a benchmark's replicate prints it: a line of JSON a sample.

use super::result::{told, whole};
use net::run::Outcome;
use serde_json::json;

/// The lines; an archive's samples are more.
pub fn of(outcome: &Outcome) -> Vec<String> {
    let told = told(outcome);
    let mut lines = Vec::new();
    let mut metric = |name: &str, unit: &str, v: f64| {
        lines.push(json!({"metric": name, "unit": unit, "v": v}).to_string());
    };
    if let Some(all) = whole(outcome, &told) {
        match &outcome.own.transactions {
            Some(t) => {
                metric("transactions", "1/s", all.steady);
                metric("latency.p50", "us", t.latency_us[0]);
                metric("latency.p99", "us", t.latency_us[2]);
            }
            None => {
                metric("throughput", "bit/s", all.steady);
                metric("throughput.whole", "bit/s", all.whole);
            }
        }
    }
    for t in &told {
        let d = t.direction.name();
        if told.len() > 1 {
            metric(&format!("throughput.{d}"), "bit/s", t.throughput.steady);
        }
        for limit in &t.limits {
            let cause = limit.cause.name().replace(' ', "_").to_lowercase();
            metric(&format!("limit.{d}.{cause}"), "1", limit.share);
        }
        if let Some(p) = &t.packets {
            metric(&format!("loss.{d}"), "1", p.loss);
            metric(&format!("jitter.{d}"), "us", p.jitter_us);
            p.one_way_us.as_ref().inspect(|one| metric(&format!("one_way.{d}.p50"), "us", one.p50));
        }
    }
    let received: u64 = told.iter().flat_map(|t| &t.received.streams).sum();
    let counted = outcome.own.transactions.as_ref().map_or(received, |t| t.counts.iter().sum());
    let by = match &outcome.own.trouble {
        Some(trouble) => trouble.clone(),
        None => format!("{counted} counted at the receiver"),
    };
    let verified = outcome.own.trouble.is_none() && counted > 0;
    lines.push(json!({"verified": verified, "by": by}).to_string());
    if let Some(first) = told.iter().flat_map(|t| &t.limits).next() {
        lines.push(json!({"mark": "limited by", "text": first.cause.name()}).to_string());
    }
    for t in &told {
        for (end, sockets) in [("sender", &t.sent.sockets), ("receiver", &t.received.sockets)] {
            let text = serde_json::to_string(&sockets.first()).unwrap_or_default();
            lines.push(json!({"mark": format!("granted {} {end}", t.direction.name()), "text": text}).to_string());
        }
    }
    lines
}

/// Readings of the sending end's TCP, by that end's clock: congestion window and smoothed round-trip time.
pub fn readings(outcome: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    for sent in outcome.spec.directions.iter().filter_map(|d| outcome.sent(*d)) {
        for reading in &sent.samples {
            let labels = format!("direction={} stream={}", sent.direction.name(), reading.stream);
            for (metric, unit, v) in [("tcp.cwnd", "segment", reading.cwnd), ("tcp.srtt_us", "us", reading.srtt_us)] {
                let line = json!({"metric": metric, "unit": unit, "t": reading.time_ns, "v": v, "labels": labels});
                lines.push(line.to_string());
            }
        }
    }
    lines
}
