//! Converts a run to archive rows: a design of one cell with one replicate, whose samples are every interval of throughput
//! and every sample of the sender's TCP. All times are CLOCK_BOOTTIME of the client, so that a simultaneous recording uses
//! the same time axis; where both ends were started from a third machine, that machine's.

use crate::clock::Moment;
use crate::estimate::Throughput;
use crate::link::LinkReport;
use crate::remote::{Endpoint, RemoteOutcome};
use crate::result::{
    THROUGHPUT_METRIC, TRANSACTIONS_METRIC, directions, summary, time_series, total, transaction_limits,
};
use crate::run::Outcome;
use crate::spec::{Direction, Readings, Spec, Traffic, sampling_interval_ns};
use crate::tcp_info::{FIELDS, FIELDS_ALWAYS_STORED, FIELDS_STORED};
use model::table::{DesignCell, DesignRow, MarkRow, Replicate, Sample};
use model::text::rate;
use std::collections::BTreeMap;

/// The minimum size of an archive, bytes: without samples, with its tables.
const ARCHIVE_BYTES_MIN: u64 = 64 << 10;
/// A sample takes about 130 bytes in the log; a busy machine takes fewer samples than planned.
const SAMPLE_BYTES: u64 = 60;

/// The minimum size of a run's archive, bytes.
pub fn archive_bytes_min(spec: &Spec) -> u64 {
    let (sockets, ns) = (u64::from(spec.streams) * spec.directions.len() as u64, spec.duration_ms * 1_000_000);
    let readings = match spec.traffic {
        Traffic::Tcp { .. } if spec.readings != Readings::None => sockets * (ns / sampling_interval_ns(sockets, ns)),
        _ => 0,
    };
    ARCHIVE_BYTES_MIN + readings * (FIELDS_ALWAYS_STORED as u64 + 2) * SAMPLE_BYTES
}

/// Facts about a run besides the measurements of its ends.
#[derive(Debug)]
pub struct RowContext<'a> {
    /// How far the client's clock is ahead of the clock of the written times, ns.
    pub ahead_ns: i64,
    /// Labels: names and texts.
    pub marks: Vec<(String, String)>,
    /// Prefix of the labels that tell what limited a direction.
    pub limited_by: &'static str,
    /// A moment by the client's clock: CLOCK_BOOTTIME and ns since 1970.
    pub moment: Moment,
    /// The emulated link that the run used.
    pub link: Option<LinkReport<'a>>,
}

/// The rows of a run.
#[derive(Debug)]
pub struct Rows {
    pub replicate: Replicate,
    pub samples: Vec<Sample>,
    pub marks: Vec<MarkRow>,
}

/// The requested run as factors of a cell: names and values.
fn factors(spec: &Spec) -> BTreeMap<&'static str, String> {
    let mut factors = BTreeMap::new();
    let mut put = |name, value: Option<String>| value.and_then(|value| factors.insert(name, value));
    let bps = |bps: u64| rate(bps as f64);
    match spec.traffic {
        Traffic::Tcp { rate_bps } => {
            put("traffic", Some("tcp".into()));
            put("rate", rate_bps.map(bps));
        }
        Traffic::Udp { rate_bps, packet_bytes } => {
            put("traffic", Some("udp".into()));
            put("rate", Some(bps(rate_bps)));
            put("packet", Some(packet_bytes.to_string()));
        }
        Traffic::Transactions { request_bytes, response_bytes } => {
            put("traffic", Some("transactions".into()));
            put("request", Some(request_bytes.to_string()));
            put("response", Some(response_bytes.to_string()));
        }
    }
    put("direction", Some(spec.directions.iter().map(|d| d.name()).collect::<Vec<_>>().join("+")));
    put("streams", Some(spec.streams.to_string()));
    put("seconds", Some((spec.duration_ms as f64 / 1e3).to_string()));
    put("cc", spec.socket.congestion.clone());
    put("send_buffer", spec.socket.send_buffer.map(|b| b.to_string()));
    put("receive_buffer", spec.socket.receive_buffer.map(|b| b.to_string()));
    put("mss", spec.socket.mss.map(|b| b.to_string()));
    put("pacing", spec.socket.pacing_bps.map(bps));
    factors
}

/// The metric of its score.
fn score_metric(spec: &Spec) -> &'static str {
    if matches!(spec.traffic, Traffic::Transactions { .. }) { TRANSACTIONS_METRIC } else { THROUGHPUT_METRIC }
}

/// The run as a design named `name` with one cell. `argv`: the command that ran it; `link`: the emulated link, as requested.
pub fn design_rows(spec: &Spec, name: &str, argv: &[String], link: Option<&str>) -> (DesignRow, DesignCell) {
    let json = |value: serde_json::Result<String>| value.unwrap_or_default();
    let metric = score_metric(spec);
    let mut factors = factors(spec);
    factors.extend(link.map(|words| ("link", words.to_string())));
    let design = DesignRow {
        id: 0,
        name: name.into(),
        question: "What does the link deliver, and what limited it?".into(),
        seed: 0,
        quick: false,
        score: "value".into(),
        unit: Some(if metric == TRANSACTIONS_METRIC { "1/s" } else { "bit/s" }.into()),
        scale: 1.0,
        better: Some("higher".into()),
        precision: None,
        stopped: None,
        baseline: None,
        design: json(serde_json::to_string(spec)),
    };
    let cell = DesignCell {
        id: 0,
        design: 0,
        name: "run".into(),
        factors: json(serde_json::to_string(&factors)),
        argv: json(serde_json::to_string(argv)),
        metric: Some(metric.into()),
        same_as: None,
        absent: None,
    };
    (design, cell)
}

/// Labels that identify the ends, and the clock of the times.
pub fn end_labels(conducted: &RemoteOutcome, outcome: &Outcome) -> Vec<(&'static str, String)> {
    let mut facts = vec![("end.client", describe_end(&conducted.client))];
    facts.extend(conducted.server.as_ref().map(|s| ("end.server", describe_end(s))));
    let mut clocks = match conducted.skew {
        Some(skew) => format!(
            "times are of the machine that started both ends; the client's clock was {:.6} s ahead of it, to within \
             {:.1} us",
            skew.ahead_ns as f64 / 1e9,
            skew.error_ns as f64 / 1e3
        ),
        None => "times are of the client".into(),
    };
    if let Some(clock) = outcome.clock {
        clocks += &format!(
            "; the server's clock was {:.6} s ahead of the client's, to within {:.1} us",
            clock.ahead_ns / 1e9,
            clock.error_ns / 1e3
        );
    }
    facts.push(("clocks", clocks));
    facts
}

fn describe_end(end: &Endpoint) -> String {
    let fact = |name: &str| end.facts.get(name).and_then(|f| f.value.clone());
    let facts: Vec<String> =
        ["device.model", "os.name", "kernel.release", "cpu.architecture"].iter().filter_map(|n| fact(n)).collect();
    [std::slice::from_ref(&end.name), &facts[..]].concat().join(", ")
}

/// An estimate and its confidence interval, in the form that the page of a run reads.
fn estimate_samples(metric: &str, all: &Throughput) -> Vec<(String, f64)> {
    let ends = all.ci95.map(|(low, high)| [(format!("{metric}.low"), low), (format!("{metric}.high"), high)]);
    std::iter::once((metric.to_string(), all.steady)).chain(ends.into_iter().flatten()).collect()
}

/// Makes the rows of a run.
pub fn from_outcome(outcome: &Outcome, context: RowContext<'_>) -> Rows {
    let directions = directions(outcome);
    // Converts to the clock of the machine that started both ends.
    let to_start_clock = |ns: u64| ns.saturating_add_signed(context.ahead_ns.saturating_neg());
    let mut samples = Vec::new();
    let mut push = |metric: String, unit: &str, labels: String, time_ns: Option<u64>, value: f64| {
        samples.push(Sample {
            replicate: Some(0),
            metric,
            unit: unit.into(),
            labels,
            time_ns: time_ns.map(to_start_clock),
            value,
        });
    };
    // Converts a time of the end that recorded it to our clock.
    let to_client_clock = |by_other: bool, ns: u64| match outcome.clock.filter(|_| by_other) {
        Some(clock) => clock.to_ours(ns),
        None => ns,
    };
    let (mut start, mut end) = (u64::MAX, 0);
    for t in &directions {
        let up = t.direction == Direction::Up;
        let way = format!("direction={}", t.direction.name());
        if outcome.own.transactions.is_none() {
            for (name, value) in estimate_samples(score_metric(&outcome.spec), &t.throughput) {
                push(name, "bit/s", way.clone(), None, value);
            }
        }
        for p in time_series(outcome, t) {
            push(p.metric.into(), p.unit, p.labels, Some(p.time_ns), p.value);
        }
        for (kind, readings) in [("tcp", &t.sent.samples), ("ack", &t.sent.acks)] {
            for reading in readings {
                let at = Some(to_client_clock(!up, reading.time_ns));
                let labels = format!("{way} stream={}", reading.stream);
                // Per acknowledgement only the fields of the tracepoint are known.
                let always = if kind == "tcp" { FIELDS_ALWAYS_STORED } else { 0 };
                let fields = FIELDS[..FIELDS_STORED].iter().zip(reading.values()).enumerate();
                for (_, ((name, unit), value)) in fields.filter(|(i, (_, v))| *i < always || *v != 0) {
                    push(format!("{kind}.{name}"), unit, labels.clone(), at, value as f64);
                }
            }
        }
        for look in &t.received.unread {
            let (at, labels) = (Some(to_client_clock(up, look.time_ns)), format!("{way} stream={}", look.stream));
            push("receiver.unread".into(), "byte", labels.clone(), at, look.unread_bytes as f64);
            push("receiver.buffer".into(), "byte", labels, at, look.buffer_bytes as f64);
        }
        for limit in &t.limits {
            let cause = limit.cause.name().replace(' ', "_");
            push("limit".into(), "1", format!("{way} cause={cause}"), None, limit.share);
        }
        start = start.min(to_client_clock(!up, t.sent.start_ns));
        end = end.max(to_client_clock(!up, t.sent.end_ns));
    }
    if let Some(t) = &outcome.own.transactions {
        for (name, value) in
            total(outcome, &directions).iter().flat_map(|all| estimate_samples(TRANSACTIONS_METRIC, all))
        {
            push(name, "1/s", "direction=up".into(), None, value);
        }
        (start, end) = (t.start_ns, t.ends_ns.last().copied().unwrap_or(t.start_ns));
    }
    // The rest of a replicate's output: metrics of the whole run, and labels.
    let mut marks: Vec<MarkRow> = Vec::new();
    let mark = |(name, text): (String, String)| MarkRow { replicate: Some(0), name, text };
    let all = summary(outcome);
    marks.extend(all.marks.iter().map(|m| mark((m.name.clone(), m.text.clone()))));
    for m in all.metrics.iter().filter(|m| m.name != score_metric(&outcome.spec)) {
        push(m.name.clone(), m.unit, String::new(), None, if m.value.is_finite() { m.value } else { 0.0 });
    }
    marks.extend(context.marks.into_iter().map(mark));
    let of_transactions = outcome.own.transactions.iter().map(|_| (Direction::Up, transaction_limits(outcome)));
    let of_bulk = directions.iter().map(|t| (t.direction, t.limits.clone()));
    for (direction, limits) in of_transactions.chain(of_bulk).filter(|(_, limits)| !limits.is_empty()) {
        let name = format!("{}{}", context.limited_by, direction.name());
        marks.push(mark((name, serde_json::to_string(&limits).unwrap_or_default())));
    }
    for t in directions.iter().filter(|_| outcome.own.transactions.is_none()) {
        let (all, name) = (&t.throughput, format!("steady {}", t.direction.name()));
        let text = if all.is_steady {
            format!("from {:.1} s on; whole run {}", all.steady_from_s, rate(all.whole))
        } else {
            "no steady state: the estimate is the mean of the whole run".into()
        };
        marks.push(mark((name, text)));
    }
    let mut failure = outcome.own.trouble.clone();
    if let Some(link) = &context.link {
        for (name, unit, value) in link.metrics() {
            push(name, unit, String::new(), None, value);
        }
        marks.push(mark(("link".into(), link.document(all.relative_half_width, None).to_string())));
        failure = link.failure(failure, all.relative_half_width);
    }
    let replicate = Replicate {
        id: 0,
        cell: 0,
        block: 0,
        place: 0,
        start_ns: to_start_clock(start.min(end)),
        end_ns: to_start_clock(end),
        start_unix_ns: Some(context.moment.unix_ns_at(start.min(end))),
        exit: Some(0),
        verified: Some(failure.is_none()),
        verified_by: Some(verified_by(outcome).into()),
        warmup: false,
        why: None,
        gates: None,
        failure,
    };
    Rows { replicate, samples, marks }
}

/// What the verdict of a run relies on.
fn verified_by(outcome: &Outcome) -> &'static str {
    if outcome.own.transactions.is_some() {
        "transactions counted at the client"
    } else {
        "bytes counted at the receiver"
    }
}
