//! A run in the output format of a benchmark's replicate: one line of JSON per sample.

use super::RunView;
use crate::result::{Summary, directions, summary, time_series};
use crate::run::Outcome;
use crate::spec::Direction;
use serde_json::{Value, json};

/// The lines of a run, and whether its result is valid.
#[derive(Debug)]
pub struct Lines {
    /// Without line ends; an archive contains more samples.
    pub lines: Vec<String>,
    pub verified: bool,
    pub by: String,
}

/// Makes the lines. `over_time`: include the time series of a page.
pub fn from_run(shown: &RunView<'_>, over_time: bool) -> Lines {
    let outcome = &shown.measured.outcome;
    let all = summary(outcome);
    let mut lines: Vec<Value> =
        all.metrics.iter().map(|m| json!({"metric": m.name, "unit": m.unit, "v": m.value})).collect();
    let marks = all.marks.iter().map(|m| json!({"mark": m.name, "text": m.text}));
    let Some(link) = &shown.link else {
        let Summary { verified, by, relative_half_width: within, .. } = &all;
        lines.push(json!({"verified": verified, "by": by, "within": within}));
        lines.extend(marks);
        if over_time {
            lines.extend(series_lines(outcome));
        }
        return Lines { lines: to_strings(&lines), verified: all.verified, by: all.by };
    };
    lines.extend(marks);
    if over_time {
        lines.extend(series_lines(outcome));
    }
    let (verified, by) = link.verdict(&all);
    lines.extend(link.metrics().into_iter().map(|(name, unit, v)| json!({"metric": name, "unit": unit, "v": v})));
    lines.push(json!({"mark": "link", "text": link.document(all.relative_half_width, None).to_string()}));
    lines.push(json!({"verified": verified, "by": by}));
    Lines { lines: to_strings(&lines), verified, by }
}

fn to_strings(lines: &[Value]) -> Vec<String> {
    lines.iter().map(Value::to_string).collect()
}

/// The time series of a page: congestion window and smoothed round-trip time of the sender's TCP, the throughput of every
/// interval, what limited it, and one-way delays. All by the client's clock.
fn series_lines(outcome: &Outcome) -> Vec<Value> {
    let mut lines = Vec::new();
    for t in &directions(outcome) {
        let points = time_series(outcome, t);
        lines.extend(
            points
                .into_iter()
                .map(|p| json!({"metric": p.metric, "unit": p.unit, "t": p.time_ns, "v": p.value, "labels": p.labels})),
        );
        let by_other = t.direction == Direction::Down;
        for reading in &t.sent.samples {
            let labels = format!("direction={} stream={}", t.direction.name(), reading.stream);
            let at = outcome.clock.filter(|_| by_other).map_or(reading.time_ns, |c| c.to_ours(reading.time_ns));
            for (metric, unit, v) in [("tcp.cwnd", "segment", reading.cwnd), ("tcp.srtt_us", "us", reading.srtt_us)] {
                lines.push(json!({"metric": metric, "unit": unit, "t": at, "v": v, "labels": labels}));
            }
        }
    }
    lines
}
