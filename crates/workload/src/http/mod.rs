//! HTTP transactions: how many times per second one byte can be fetched from a Web server (paper 000, section 4.3).
//!
//! In the **closed loop** each of n connections sends its next request when the last was answered: the most that client,
//! network and server together can do. In the **open loop** (`--rate`) requests are due at a constant rate, and a
//! latency counts from when its request was due (see [`schedule`]). Latencies go into an HdrHistogram of three digits.
//!
//! Every response is checked: status and each byte of the body, which must be the same as in the first response.
//! `--self` serves from a thread of this process, so that a device can be measured alone; then client and server share
//! its cores.

mod client;
mod connection;
mod failure;
mod request;
mod response;
mod schedule;
mod server;
mod target;
#[cfg(test)]
mod tests;

pub use request::{HEAD_BYTES_MAX, Request, RequestKind, Requests};
pub use response::{MalformedResponse, Response};
pub use server::Server;

use crate::options::{Options, Spec};
use crate::{Error, check_cancelled, clock, write_sample};
use client::Outcome;
use connection::{Connection, Plan, Step};
use hdrhistogram::Histogram;
use model::Context;
use schedule::{Schedule, StopAt};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use target::Url;

const HELP_SUMMARY: &str = "HTTP transactions: GETs of one byte (paper 000, 4.3), in a closed loop or at a constant \
    rate.\n--self instead of --url serves from this process; on another machine: fathom bench serve-http";

/// Begins the mark `mode` of an open loop; its rate follows.
pub const OPEN_LOOP_MODE: &str = "open loop, ";

const OPTION_SPECS: &[Spec] = &[
    Spec { name: "url", default: "self", help: "http://HOST[:PORT]/PATH; self: a server in this process" },
    Spec { name: "connections", default: "1", help: "concurrent connections, 1 to 4096" },
    Spec { name: "keep-alive", default: "on", help: "on, or off: a new connection for each request" },
    Spec { name: "rate", default: "0", help: "total requests/s, open loop; 0: closed loop" },
    Spec { name: "iterations", default: "30", help: "number of iterations" },
    Spec { name: "inner", default: "0", help: "requests per iteration; 0: sized by --min-iteration-ms" },
    Spec { name: "min-iteration-ms", default: "10", help: "minimum duration of an iteration" },
    Spec { name: "duration", default: "0", help: "duration in seconds, instead of --iterations" },
    Spec { name: "threads", default: "0", help: "client threads; 0: one per core (with --self, half as many)" },
    Spec { name: "bytes", default: "", help: "expected length of the body; with --self, the length served [1]" },
    Spec { name: "status", default: "200", help: "expected status of each response" },
    Spec { name: "timeout-ms", default: "5000", help: "time limit for a complete response" },
    Spec { name: "max-errors", default: "0", help: "number of errors to tolerate; one more fails the run" },
];

/// A size that no iteration reaches, where doubling ends.
const INNER_MAX: u64 = 1 << 24;
/// Most connections: any usual limit of descriptors can be raised to this, and their buffers take 256 MiB.
const CONNECTIONS_MAX: usize = 4096;

#[derive(Debug)]
struct Parameters {
    url: Option<Url>,
    connections: usize,
    keep_alive: bool,
    rate: f64,
    iterations: u64,
    inner: u64,
    min_iteration_ms: u64,
    duration_ns: u64,
    threads: usize,
    bytes: Option<usize>,
    status: u16,
    timeout_ns: u64,
    max_errors: u64,
}

impl Parameters {
    fn parse(words: &[String]) -> Result<Self, Error> {
        // The only option without a value.
        let words: Vec<String> =
            words.iter().map(|w| if w == "--self" { "--url=self".into() } else { w.clone() }).collect();
        let options = Options::parse(HELP_SUMMARY, OPTION_SPECS, &words)?;
        let url = match options.text("url") {
            "self" => None,
            text => Some(Url::parse(text).map_err(|e| Error::Usage(e.to_string()))?),
        };
        let connections: usize = options.get("connections")?;
        if !(1..=CONNECTIONS_MAX).contains(&connections) {
            return Err(Error::Usage(format!("--connections must be from 1 to {CONNECTIONS_MAX}")));
        }
        let rate: f64 = options.get("rate")?;
        if !(0.0..=1e9).contains(&rate) || (rate > 0.0 && rate < 1e-3) {
            return Err(Error::Usage("--rate must be 0 (closed loop) or from 0.001 to 1e9 requests a second".into()));
        }
        let seconds: f64 = options.get("duration")?;
        if !(0.0..=1e6).contains(&seconds) {
            return Err(Error::Usage("--duration must be seconds, from 0 to 1000000".into()));
        }
        let iterations: u64 = options.get("iterations")?;
        if iterations == 0 && seconds == 0.0 {
            return Err(Error::Usage("--iterations must be at least 1, or give --duration".into()));
        }
        let bytes = match options.text("bytes") {
            "" => None,
            _ => Some(options.get("bytes")?),
        };
        let timeout_ms: u64 = options.get("timeout-ms")?;
        if !(1..=3_600_000).contains(&timeout_ms) {
            return Err(Error::Usage("--timeout-ms must be from 1 to 3600000".into()));
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = match options.get("threads")? {
            0 if url.is_none() => cores.div_ceil(2),
            0 => cores,
            n => n,
        };
        Ok(Self {
            url,
            connections,
            keep_alive: options.one_of("keep-alive", &["on", "off"])? == "on",
            rate,
            iterations,
            inner: options.get::<u64>("inner")?.min(INNER_MAX),
            min_iteration_ms: options.get::<u64>("min-iteration-ms")?.clamp(1, 60_000),
            duration_ns: (seconds * 1e9) as u64,
            threads: threads.min(connections),
            bytes,
            status: options.get("status")?,
            timeout_ns: timeout_ms * 1_000_000,
            max_errors: options.get("max-errors")?,
        })
    }

    fn stop_at(&self, inner: u64) -> StopAt {
        match self.duration_ns {
            0 => StopAt::Requests(inner.saturating_mul(self.iterations)),
            ns => StopAt::Elapsed(ns),
        }
    }
}

/// Runs the workload with `words` as its options and writes its lines to `out` at its end.
///
/// # Errors
/// See [`Error`]; wrong, missing or late responses beyond `--max-errors` are one.
pub fn run(words: &[String], context: &Context, out: &mut dyn Write) -> Result<(), Error> {
    let parameters = Parameters::parse(words)?;
    if let Some(url) = &parameters.url {
        return measure(&parameters, url, &url.to_string(), context, out);
    }
    let server = Server::bind("127.0.0.1:0", parameters.bytes.unwrap_or(1))?;
    let address = server.address();
    let url = Url { host: address.ip().to_string(), port: address.port(), path: "/".into() };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(1, &|| over.load(Ordering::Relaxed)));
        let result = measure(&parameters, &url, "a server in a thread of this process, over loopback", context, out);
        over.store(true, Ordering::Relaxed);
        let served = serving.join().unwrap_or_else(|_| Err(Error::Failed("the server's thread panicked".into())));
        result.and(served)
    })
}

fn measure(p: &Parameters, url: &Url, target: &str, context: &Context, out: &mut dyn Write) -> Result<(), Error> {
    let address = url.resolve().map_err(|e| Error::Failed(e.to_string()))?;
    let mut plan = Plan {
        address,
        request: url.request(p.keep_alive),
        keep_alive: p.keep_alive,
        status: p.status,
        body: None,
        timeout_ns: p.timeout_ns,
        blocking: true,
    };
    plan.body = Some(fetch_body(&plan, p)?);
    // With one connection per thread, each thread waits in its own socket.
    plan.blocking = p.connections == p.threads;
    let inner = size_iteration(p, &plan, context)?;
    let schedule = Schedule::new(p.rate, p.stop_at(inner), inner, p.max_errors);
    let seen = client::run(&plan, &schedule, p.connections, p.threads, context)?;
    let (done, errors, first) = schedule.counts();
    check_cancelled(context)?;
    let body = plan.body.as_ref().map_or(0, Vec::len);
    let by = format!(
        "{done} responses with status {} and a body the same as the first, of {body} byte(s); {errors} errors",
        p.status
    );
    if errors > p.max_errors {
        let first = first.map_or_else(String::new, |why| why.to_string());
        let by = format!("{by}; the first: {first}");
        writeln!(out, "{}", serde_json::json!({"verified": false, "by": by}))?;
        out.flush()?;
        return Err(Error::Failed(format!("{first}; {done} requests had succeeded")));
    }
    let mut lines = Vec::new();
    let loops =
        if p.rate > 0.0 { format!("{OPEN_LOOP_MODE}{} requests a second", p.rate) } else { "closed loop".into() };
    let alive = if p.keep_alive { "kept alive" } else { "a new one for each request" };
    let wait = if plan.blocking { "blocking" } else { "epoll" };
    let mode = format!("{loops}; {} connections, {alive}; {} threads of the client, {wait}", p.connections, p.threads);
    // The server measured against: results against two different servers are not compared.
    let peer = p.url.as_ref().map_or_else(|| target.to_string(), |_| plan.address.to_string());
    for (name, text) in [("target", target.to_string()), ("peer", peer), ("mode", mode), ("inner", inner.to_string())] {
        writeln!(lines, "{}", serde_json::json!({"mark": name, "text": text}))?;
    }
    if let Some(why) = first {
        writeln!(lines, "{}", serde_json::json!({"mark": "error", "text": why.to_string()}))?;
    }
    write_samples(&mut lines, &schedule, &seen, inner, (done, errors))?;
    writeln!(lines, "{}", serde_json::json!({"verified": true, "by": by}))?;
    // Only now, so that a slow reader of our output cannot disturb the timed part.
    out.write_all(&lines)?;
    out.flush()?;
    Ok(())
}

fn write_samples(
    lines: &mut dyn Write,
    schedule: &Schedule,
    seen: &Outcome,
    inner: u64,
    (done, errors): (u64, u64),
) -> Result<(), Error> {
    for (begin, end) in schedule.iterations() {
        write_sample(lines, "iteration", "ns", begin, (end - begin) as f64)?;
    }
    let (start, end) = (schedule.started_ns(), seen.end_ns.max(schedule.started_ns()));
    write_sample(lines, "work", "request", start, inner as f64)?;
    if end > start && done > 0 {
        write_sample(lines, "request.rate", "1/s", end, done as f64 * 1e9 / (end - start) as f64)?;
    }
    write_percentiles(lines, "latency", end, &seen.latency)?;
    write_percentiles(lines, "send.late", end, &seen.late)?;
    for (metric, unit, value) in [
        ("requests", "request", done),
        ("errors", "error", errors),
        ("reconnections", "connection", seen.reopened),
        ("received", "byte", seen.received),
    ] {
        write_sample(lines, metric, unit, end, value as f64)?;
    }
    Ok(())
}

/// The usual percentiles, except those with less than one value beyond them: that would be the maximum under another
/// name.
fn write_percentiles(lines: &mut dyn Write, name: &str, time_ns: u64, seen: &Histogram<u64>) -> Result<(), Error> {
    if seen.is_empty() {
        return Ok(());
    }
    for (percentile, label) in [(50.0, "p50"), (90.0, "p90"), (99.0, "p99"), (99.9, "p99.9")] {
        if seen.len() as f64 * (1.0 - percentile / 100.0) >= 1.0 {
            write_sample(
                lines,
                &format!("{name}.{label}"),
                "ns",
                time_ns,
                seen.value_at_percentile(percentile) as f64,
            )?;
        }
    }
    write_sample(lines, &format!("{name}.max"), "ns", time_ns, seen.max() as f64)?;
    Ok(())
}

/// Fetches once, to get the body that every later response must have.
fn fetch_body(plan: &Plan, p: &Parameters) -> Result<Vec<u8>, Error> {
    let mut connection = Connection::new();
    let now = clock::now_ns();
    let opened = connection.open(plan, true);
    let mut step = opened.map_or_else(Step::Failed, |()| connection.begin_request(plan, now, now));
    while step == Step::Waiting {
        step = if connection.deadline_ns <= clock::now_ns() {
            Step::Failed(connection.give_up(plan))
        } else {
            connection.advance(plan)
        };
    }
    if let Step::Failed(why) = step {
        return Err(Error::Failed(why.to_string()));
    }
    let body = connection.into_body();
    match p.bytes {
        Some(wanted) if wanted != body.len() => Err(Error::Failed(format!(
            "{} answers with {} bytes, not the {wanted} of --bytes",
            plan.address,
            body.len()
        ))),
        _ => Ok(body),
    }
}

/// Iterations tried per size. The shortest counts: one that was interrupted by other work is meaningless.
const SIZING_ITERATIONS: u64 = 3;

/// Returns the requests per iteration: doubled until it lasts long enough that the cost of clock and harness is
/// negligible.
fn size_iteration(p: &Parameters, plan: &Plan, context: &Context) -> Result<u64, Error> {
    if p.inner > 0 {
        return Ok(p.inner);
    }
    let least_ns = p.min_iteration_ms * 1_000_000;
    if p.rate > 0.0 {
        return Ok(((p.rate * least_ns as f64 / 1e9).ceil() as u64).clamp(1, INNER_MAX));
    }
    let mut inner = 1;
    loop {
        let schedule = Schedule::new(0.0, StopAt::Requests(inner * SIZING_ITERATIONS), inner, p.max_errors);
        client::run(plan, &schedule, p.connections, p.threads, context)?;
        let (_, errors, first) = schedule.counts();
        check_cancelled(context)?;
        if errors > p.max_errors {
            return Err(Error::Failed(first.map_or_else(String::new, |why| why.to_string())));
        }
        let long = schedule.iterations().iter().all(|(begin, end)| end - begin >= least_ns);
        if long || inner >= INNER_MAX {
            return Ok(inner);
        }
        inner *= 2;
    }
}
