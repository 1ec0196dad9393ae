//! A run as a benchmark's replicate prints it: a line of JSON a sample.

use net::result::{Summary, over_time, summary, told};
use net::run::Outcome;
use net::spec::Direction;
use serde_json::json;

/// The lines; an archive's samples are more.
pub fn of(outcome: &Outcome) -> Vec<String> {
    let Summary { metrics, verified, by, within, marks } = summary(outcome);
    let metrics = metrics.iter().map(|m| json!({"metric": m.name, "unit": m.unit, "v": m.value}));
    let verdict = json!({"verified": verified, "by": by, "within": within});
    let marks = marks.iter().map(|m| json!({"mark": m.name, "text": m.text}));
    metrics.chain([verdict]).chain(marks).map(|line| line.to_string()).collect()
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
