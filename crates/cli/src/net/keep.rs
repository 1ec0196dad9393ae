//! A run in an archive: a design of one cell with one replicate, whose samples are every interval of throughput and every
//! reading of the sender's TCP. All times are CLOCK_BOOTTIME of the end that asked, so that a recording made beside it lies
//! on the same axis; where both ends were started from a third machine, that machine's.

use super::ends::home::Coming;
use super::ends::{About, One};
use super::lines;
use super::result::{over_time, told, transactions, whole};
use super::text::rate;
use analysis::bench::net::{LIMITED_BY, RUN};
use anyhow::Result;
use archive::runs::{Entry, Run};
use archive::{Archive, Meta, RunsWriter, SignalCleanup};
use model::table::{DesignCell, DesignRow, MarkRow, Replicate, Sample};
use net::estimate::Throughput;
use net::run::Outcome;
use net::sampler;
use net::spec::{Direction, Readings, Spec, Traffic};
use net::tcp_info::FIELDS;
use std::collections::BTreeMap;
use std::path::Path;

/// Less than this an archive hardly is, bytes: without a sample, with its tables.
const LEAST: u64 = 64 << 10;
/// A sample is some 130 bytes in the log; a busy machine makes fewer than it should.
const SAMPLE: u64 = 60;

/// The score of a run of transactions, as its lines call it.
const TRANSACTIONS: &str = "transactions";

/// What a run's archive will take at least, bytes.
pub fn size(spec: &Spec) -> u64 {
    let (sockets, ns) = (u64::from(spec.streams) * spec.directions.len() as u64, spec.duration_ms * 1_000_000);
    let readings = match spec.traffic {
        Traffic::Tcp { .. } if spec.readings != Readings::None => sockets * (ns / sampler::every_ns(sockets, ns)),
        _ => 0,
    };
    LEAST + readings * (FIELDS.len() as u64 + 2) * SAMPLE
}

/// Writes it, beside its place until all of it is there: if that fails, what stood there stands there still.
pub fn keep(outcome: &Outcome, output: &Path, about: Option<&About>, quiet: bool) -> Result<()> {
    let coming = Coming::begin(output)?;
    write(outcome, coming.folder(), about)?;
    coming.finish(output, quiet)
}

fn write(outcome: &Outcome, dir: &Path, about: Option<&About>) -> Result<()> {
    let argv: Vec<String> = std::env::args().collect();
    // Whose clock the times are of.
    let boot = match about.filter(|about| about.skew_ns.is_some()) {
        Some(about) => about.boot.clone(),
        None => device::boot_id(&device::Local),
    };
    let mut meta = Meta { boot, ..Meta::new("net", archive::unix_now_ns(), argv.clone()) };
    Archive::create(dir, &meta, true)?;
    let mut log = RunsWriter::create(dir)?;
    let mut facts = crate::bench::facts(&[]);
    if let Some(One { facts: theirs, .. }) = about.and_then(|a| a.serves.as_ref()) {
        facts.extend(theirs.iter().map(|(name, fact)| (format!("serves.{name}"), fact.clone())));
    }
    log.push(Entry::Machine(facts))?;
    let metric = metric(&outcome.spec);
    log.push(Entry::Design(DesignRow {
        id: 0,
        name: RUN.into(),
        question: "What does the link give, and what held it back?".into(),
        seed: 0,
        quick: false,
        score: "value".into(),
        unit: Some(if metric == TRANSACTIONS { "1/s" } else { "bit/s" }.into()),
        scale: 1.0,
        better: Some("higher".into()),
        precision: None,
        stopped: None,
        baseline: None,
        design: serde_json::to_string(&outcome.spec)?,
    }))?;
    log.push(Entry::Cell(DesignCell {
        id: 0,
        design: 0,
        name: "run".into(),
        factors: serde_json::to_string(&factors(&outcome.spec))?,
        argv: serde_json::to_string(&argv)?,
        metric: Some(metric.into()),
        same_as: None,
        absent: None,
    }))?;
    log.push(Entry::Replicate(Box::new(replicate(outcome, about))))?;
    log.push(Entry::Stopped { design: 0, why: "blocks".into(), replicates: Some(1) })?;
    {
        let _cleanup = SignalCleanup::tables(dir)?;
        log.runs().make_tables(dir)?;
    }
    meta.linked = true;
    meta.complete = true;
    meta.write(dir)?;
    Ok(())
}

/// What was asked for, as a cell's factors are written: names and words.
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

/// What its score is called.
fn metric(spec: &Spec) -> &'static str {
    if matches!(spec.traffic, Traffic::Transactions { .. }) { TRANSACTIONS } else { "throughput" }
}

/// An estimate and the ends of its interval, as `analysis::bench::net` reads them.
fn estimate(metric: &str, all: &Throughput) -> Vec<(String, f64)> {
    let ends = all.ci95.map(|(low, high)| [(format!("{metric}.low"), low), (format!("{metric}.high"), high)]);
    std::iter::once((metric.to_string(), all.steady)).chain(ends.into_iter().flatten()).collect()
}

fn replicate(outcome: &Outcome, about: Option<&About>) -> Run {
    let told = told(outcome);
    // Both ends were started from elsewhere: by the clock there.
    let home = |ns: u64| match about.and_then(|a| a.skew_ns) {
        Some((ahead, _)) => ns.saturating_add_signed(ahead.saturating_neg()),
        None => ns,
    };
    let mut samples = Vec::new();
    let mut push = |metric: String, unit: &str, labels: String, time_ns: Option<u64>, value: f64| {
        samples.push(Sample {
            replicate: Some(0),
            metric,
            unit: unit.into(),
            labels,
            time_ns: time_ns.map(home),
            value,
        });
    };
    // A time of the end that saw it, by our clock.
    let here = |by_other: bool, ns: u64| match outcome.clock.filter(|_| by_other) {
        Some(clock) => clock.ours(ns),
        None => ns,
    };
    let (mut start, mut end) = (u64::MAX, 0);
    for t in &told {
        let up = t.direction == Direction::Up;
        let way = format!("direction={}", t.direction.name());
        if outcome.own.transactions.is_none() {
            for (name, value) in estimate(metric(&outcome.spec), &t.throughput) {
                push(name, "bit/s", way.clone(), None, value);
            }
        }
        for p in over_time(outcome, t) {
            push(p.metric.into(), p.unit, p.labels, Some(p.time_ns), p.value);
        }
        for (kind, readings) in [("tcp", &t.sent.samples), ("ack", &t.sent.acks)] {
            for reading in readings {
                let at = Some(here(!up, reading.time_ns));
                let labels = format!("{way} stream={}", reading.stream);
                // Of each acknowledgement only what the tracepoint tells is known.
                let known = FIELDS.iter().zip(reading.values()).filter(|(_, v)| kind == "tcp" || *v != 0);
                for ((name, unit), value) in known {
                    push(format!("{kind}.{name}"), unit, labels.clone(), at, value as f64);
                }
            }
        }
        for look in &t.received.unread {
            let (at, labels) = (Some(here(up, look.time_ns)), format!("{way} stream={}", look.stream));
            push("receiver.unread".into(), "byte", labels.clone(), at, look.unread_bytes as f64);
            push("receiver.buffer".into(), "byte", labels, at, look.buffer_bytes as f64);
        }
        for limit in &t.limits {
            let cause = limit.cause.name().replace(' ', "_");
            push("limit".into(), "1", format!("{way} cause={cause}"), None, limit.share);
        }
        start = start.min(here(!up, t.sent.start_ns));
        end = end.max(here(!up, t.sent.end_ns));
    }
    if let Some(t) = &outcome.own.transactions {
        for (name, value) in whole(outcome, &told).iter().flat_map(|all| estimate(TRANSACTIONS, all)) {
            push(name, "1/s", "direction=up".into(), None, value);
        }
        (start, end) = (t.start_ns, t.ends_ns.last().copied().unwrap_or(t.start_ns));
    }
    // The rest of what a replicate prints: metrics of the whole run, and facts.
    let mut marks = Vec::new();
    for line in lines::of(outcome) {
        let Ok(value) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_string();
        if value["mark"].is_string() {
            marks.push(MarkRow { replicate: Some(0), name: text("mark"), text: text("text") });
        } else if value["metric"].as_str().is_some_and(|name| name != metric(&outcome.spec)) {
            push(
                text("metric"),
                value["unit"].as_str().unwrap_or_default(),
                String::new(),
                None,
                value["v"].as_f64().unwrap_or(0.0),
            );
        }
    }
    marks.extend(about.into_iter().flat_map(|a| ends(a, outcome)).map(|(name, text)| MarkRow {
        replicate: Some(0),
        name: name.into(),
        text,
    }));
    let of_transactions = outcome.own.transactions.iter().map(|_| (Direction::Up, transactions(outcome)));
    let of_bulk = told.iter().map(|t| (t.direction, t.limits.clone()));
    for (direction, limits) in of_transactions.chain(of_bulk).filter(|(_, limits)| !limits.is_empty()) {
        let name = format!("{LIMITED_BY}{}", direction.name());
        let text = serde_json::to_string(&limits).unwrap_or_default();
        marks.push(MarkRow { replicate: Some(0), name, text });
    }
    for t in told.iter().filter(|_| outcome.own.transactions.is_none()) {
        let (all, name) = (&t.throughput, format!("steady {}", t.direction.name()));
        let text = match all.is_steady {
            true => format!("from {:.1} s on; whole run {}", all.steady_from_s, rate(all.whole)),
            false => "no steady part: the estimate is the mean of the whole run".into(),
        };
        marks.push(MarkRow { replicate: Some(0), name, text });
    }
    let replicate = Replicate {
        id: 0,
        cell: 0,
        block: 0,
        place: 0,
        start_ns: home(start.min(end)),
        end_ns: home(end),
        start_unix_ns: Some(archive::unix_now_ns().saturating_sub(net::clock::now_ns().saturating_sub(start.min(end)))),
        exit: Some(0),
        verified: Some(outcome.own.trouble.is_none()),
        verified_by: Some("bytes counted at the receiver".into()),
        warmup: false,
        why: None,
        gates: None,
        failure: outcome.own.trouble.clone(),
    };
    Run { replicate, samples, marks }
}

/// What is told of the ends, and of the clocks.
fn ends(about: &About, outcome: &Outcome) -> Vec<(&'static str, String)> {
    let mut told = vec![("end.asks", one(&about.asks))];
    told.extend(about.serves.as_ref().map(|s| ("end.serves", one(s))));
    let mut clocks = match about.skew_ns {
        Some((ahead, error)) => format!(
            "times are of the machine that started both ends; the clock of the end that asks was {:.6} s ahead of it, known to {:.1} us",
            ahead as f64 / 1e9,
            error as f64 / 1e3
        ),
        None => "times are of the end that asks".into(),
    };
    if let Some(clock) = outcome.clock {
        clocks += &format!(
            "; that of the end that serves was {:.6} s ahead of the one that asks, known to {:.1} us",
            clock.ahead_ns / 1e9,
            clock.error_ns / 1e3
        );
    }
    told.push(("clocks", clocks));
    told
}

fn one(end: &One) -> String {
    let fact = |name: &str| end.facts.get(name).and_then(|f| f.value.clone());
    let facts: Vec<String> =
        ["device.model", "os.name", "kernel.release", "cpu.architecture"].iter().filter_map(|n| fact(n)).collect();
    [std::slice::from_ref(&end.name), &facts[..]].concat().join(", ")
}
