//! A run as a benchmark's replicate prints it: a line of JSON a sample.

use super::result::{over_time, told, transactions, whole};
use net::run::Outcome;
use net::spec::Direction;
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
        if let Some(Ok(ratio)) = &t.cost {
            metric("readings.ratio", "1", ratio.value);
            metric("readings.ratio.low", "1", ratio.low);
            metric("readings.ratio.high", "1", ratio.high);
            metric("readings.pairs", "pair", ratio.n as f64);
        }
        if let Some(p) = &t.packets {
            metric(&format!("loss.{d}"), "1", p.loss);
            metric(&format!("jitter.{d}"), "us", p.jitter_us);
            p.one_way_us.as_ref().inspect(|one| metric(&format!("one_way.{d}.p50"), "us", one.p50));
        }
    }
    let received = told.iter().flat_map(|t| &t.received.streams).fold(0_u64, |sum, n| sum.saturating_add(*n));
    let counted = outcome.own.transactions.as_ref().map_or(received, |t| t.counts.iter().sum());
    let by = match &outcome.own.trouble {
        Some(trouble) => trouble.clone(),
        None => format!("{counted} counted at the receiver"),
    };
    let verified = outcome.own.trouble.is_none() && counted > 0;
    // How well it is known, for whoever adds what an emulated link did.
    let each = told.iter().map(|t| t.throughput.clone()).chain(whole(outcome, &told).filter(|_| told.is_empty()));
    let within = each.map(|t| t.ci95.map(|(low, high)| (high - low) / 2.0 / t.steady)).collect::<Option<Vec<f64>>>();
    let within = within.and_then(|all| all.into_iter().reduce(f64::max)).filter(|within| within.is_finite());
    lines.push(json!({"verified": verified, "by": by, "within": within}).to_string());
    let of_transactions = transactions(outcome);
    let both = told.len() > 1;
    let firsts = told.iter().map(|t| (t.limits.first(), if both { t.direction.name() } else { "" }));
    for (limit, way) in firsts.chain([(of_transactions.first(), "")]) {
        let Some(limit) = limit else { continue };
        let mark = format!("limited by {way}");
        lines.push(json!({"mark": mark.trim(), "text": limit.cause.name()}).to_string());
    }
    for t in &told {
        for (end, sockets) in [("sender", &t.sent.sockets), ("receiver", &t.received.sockets)] {
            let text = serde_json::to_string(&sockets.first()).unwrap_or_default();
            lines.push(json!({"mark": format!("granted {} {end}", t.direction.name()), "text": text}).to_string());
        }
    }
    lines
}

/// What a page draws over time: of the sending end's TCP the congestion window and the smoothed round-trip time, the throughput of
/// every interval, what held it back, and one-way delays. All by the clock of the end that asked.
pub fn readings(outcome: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    for t in &told(outcome) {
        for p in over_time(outcome, t) {
            let line = json!({"metric": p.metric, "unit": p.unit, "t": p.time_ns, "v": p.value, "labels": p.labels});
            lines.push(line.to_string());
        }
        let by_other = t.direction == Direction::Down;
        for reading in &t.sent.samples {
            let labels = format!("direction={} stream={}", t.direction.name(), reading.stream);
            let at = outcome.clock.filter(|_| by_other).map_or(reading.time_ns, |c| c.ours(reading.time_ns));
            for (metric, unit, v) in [("tcp.cwnd", "segment", reading.cwnd), ("tcp.srtt_us", "us", reading.srtt_us)] {
                let line = json!({"metric": metric, "unit": unit, "t": at, "v": v, "labels": labels});
                lines.push(line.to_string());
            }
        }
    }
    lines
}
