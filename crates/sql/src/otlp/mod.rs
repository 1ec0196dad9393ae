//! `fathom serve --otlp URL`: sends operations with a trace context to an OpenTelemetry collector, as spans below the
//! application's own ([`spans`]), by OTLP/HTTP with JSON.
//!
//! The fleet is polled every ten seconds. Its existing operations are sent first, then new ones. If a collector is unavailable or busy
//! (429, 502, 503, 504), the request is retried at a later poll, with growing back-off; what the collector rejects for good is counted
//! and reported. What was sent is remembered as long as this runs: after a restart everything is sent again, with the same identities.

pub mod spans;

use crate::engine::{Engine, Settings};
use crate::fleets::log::Fleet;
use anyhow::{Context as _, Result, bail};
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use futures_util::TryStreamExt;
use spans::{Clock, Execution};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

/// How often the fleet is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// The longest back-off.
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// Timeout of a request to the collector.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Archives that are read at a time.
const BATCH_ARCHIVES_MAX: usize = 50;
/// Bytes that are read of a collector's response.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// Spans per request.
const REQUEST_SPANS_MAX: usize = 512;

/// Counts of what was sent so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct SentCounts {
    /// Spans that the collector accepted.
    pub spans: u64,
    /// Spans that it rejected.
    pub rejected: u64,
    /// Exports that failed.
    pub failures: u64,
}

/// Sends a fleet's operations.
pub struct Exporter {
    url: String,
    client: reqwest::Client,
    sent: Mutex<SentCounts>,
}

/// Parses headers in a text such as `api-key=x,authorization=Basic%20YTpi`, whose values are percent-encoded, as specified for
/// OpenTelemetry's exporters. A `%` that encodes nothing stands for itself.
fn parse_headers(text: &str) -> Result<Vec<(&str, Vec<u8>)>> {
    let mut found = Vec::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (name, value) = pair.split_once('=').context("OTEL_EXPORTER_OTLP_HEADERS is not name=value,…")?;
        found.push((name.trim(), percent_decoded(value.trim().as_bytes())));
    }
    Ok(found)
}

/// The URL for spans of a collector: `/v1/traces` below its address, as specified for OpenTelemetry's exporters. An address that
/// already ends so is left as it is.
fn traces_url(address: &str) -> Result<String> {
    const TRACES_PATH: &str = "/v1/traces";
    reqwest::Url::parse(address).with_context(|| format!("{address} is not a collector's URL"))?;
    let below = address.trim_end_matches('/');
    Ok(if below.ends_with(TRACES_PATH) { below.into() } else { format!("{below}{TRACES_PATH}") })
}

fn percent_decoded(mut text: &[u8]) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).map(|digit| digit as u8);
    let mut bytes = Vec::new();
    while let [c, rest @ ..] = text {
        let encoded = match rest {
            [high, low, ..] if *c == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        bytes.push(encoded.map_or(*c, |(high, low)| high << 4 | low));
        text = if encoded.is_some() { &rest[2..] } else { rest };
    }
    bytes
}

/// A collector's response.
enum CollectorResponse {
    /// It accepted all but this many.
    Took(u64),
    /// It will never accept them, and why.
    Never(String),
    /// It may accept them later: the reason, and the delay if it gives one.
    Later(String, Option<Duration>),
}

impl Exporter {
    /// Creates an exporter for this collector; headers, such as a token, are taken from OTEL_EXPORTER_OTLP_HEADERS
    /// (`name=value,…`).
    ///
    /// # Errors
    /// The address or the headers are invalid.
    pub fn new(url: &str) -> Result<Self> {
        let url = traces_url(url)?;
        let mut headers = reqwest::header::HeaderMap::new();
        for (name, value) in parse_headers(&std::env::var("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default())? {
            let name: reqwest::header::HeaderName = name.parse().context("OTEL_EXPORTER_OTLP_HEADERS")?;
            let mut value = reqwest::header::HeaderValue::from_bytes(&value).context("OTEL_EXPORTER_OTLP_HEADERS")?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let client = reqwest::Client::builder()
            .default_headers(headers)
            .timeout(REQUEST_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .context("creating an HTTP client")?;
        Ok(Self { url, client, sent: Mutex::default() })
    }

    /// Counts of what was sent so far.
    pub fn sent(&self) -> SentCounts {
        self.sent.lock().map(|sent| *sent).unwrap_or_default()
    }

    fn count(&self, add: impl Fn(&mut SentCounts)) {
        if let Ok(mut sent) = self.sent.lock() {
            add(&mut sent);
        }
    }

    /// Sends until cancelled.
    pub async fn run(&self, place: &str, print: fn(&str) -> Result<()>) {
        let mut done = BTreeSet::new();
        let mut distance = POLL_INTERVAL;
        loop {
            match self.look(place, &mut done, print).await {
                Ok(()) => distance = POLL_INTERVAL,
                Err((error, after)) => {
                    self.count(|sent| sent.failures += 1);
                    let next = after.unwrap_or(distance * 2).clamp(POLL_INTERVAL, BACKOFF_MAX);
                    distance = next;
                    let text = model::text::shown(&format!("{error:#}"));
                    let _ = print(&format!("{text}; retrying in {} s\n", next.as_secs()));
                }
            }
            tokio::time::sleep(distance).await;
        }
    }

    /// Sends new operations.
    async fn look(
        &self,
        place: &str,
        done: &mut BTreeSet<String>,
        print: fn(&str) -> Result<()>,
    ) -> Result<(), (anyhow::Error, Option<Duration>)> {
        let plain = |error: anyhow::Error| (error.context("spans were not sent"), None);
        let fleet = Fleet::open(place).await.map_err(plain)?;
        if fleet.state.runs.iter().all(|run| done.contains(run)) {
            return Ok(());
        }
        let engine = Engine::over_fleet(&fleet, Settings::default()).map_err(plain)?;
        let with: Vec<String> = runs_with_contexts(&engine).await.map_err(plain)?;
        let new: Vec<&String> = with.iter().filter(|run| !done.contains(*run)).collect();
        for some in new.chunks(BATCH_ARCHIVES_MAX) {
            let all = executions(&engine, some).await.map_err(plain)?;
            for some in all.chunks(REQUEST_SPANS_MAX) {
                let (request, count) = spans::request(some);
                if count == 0 {
                    continue;
                }
                match self.post(&request).await {
                    CollectorResponse::Took(rejected) => self.count(|sent| {
                        sent.rejected += rejected;
                        sent.spans += (count as u64).saturating_sub(rejected);
                    }),
                    CollectorResponse::Never(why) => {
                        self.count(|sent| sent.rejected += count as u64);
                        let _ = print(&format!("{} rejected {count} spans: {}\n", self.url, model::text::shown(&why)));
                    }
                    CollectorResponse::Later(why, after) => {
                        return Err((
                            anyhow::anyhow!("{} does not accept spans at the moment: {why}", self.url),
                            after,
                        ));
                    }
                }
            }
            done.extend(some.iter().map(|run| (*run).clone()));
        }
        done.extend(fleet.state.runs.iter().cloned());
        Ok(())
    }

    async fn post(&self, request: &serde_json::Value) -> CollectorResponse {
        let body = request.to_string();
        let sent = self.client.post(&self.url).header("content-type", "application/json").body(body).send().await;
        let mut answer = match sent {
            Ok(answer) => answer,
            Err(error) => return CollectorResponse::Later(error_chain(&error), None),
        };
        let status = answer.status();
        let after = answer.headers().get("retry-after").and_then(|after| after.to_str().ok()?.parse().ok());
        let mut body = Vec::new();
        while body.len() < RESPONSE_BYTES_MAX
            && let Ok(Some(some)) = answer.chunk().await
        {
            body.extend_from_slice(&some);
        }
        let body = String::from_utf8_lossy(&body);
        if status.is_success() {
            // An empty response, or one without partialSuccess, accepts all.
            let parsed: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
            let rejected = &parsed["partialSuccess"]["rejectedSpans"];
            let rejected = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or(0);
            return CollectorResponse::Took(rejected);
        }
        let why = format!("{status} {}", body.chars().take(200).collect::<String>().trim());
        match status.as_u16() {
            429 | 502 | 503 | 504 => CollectorResponse::Later(why, after.map(Duration::from_secs)),
            _ => CollectorResponse::Never(why),
        }
    }
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

async fn query_rows(engine: &Engine, sql: &str) -> Result<Vec<RecordBatch>> {
    let (_, rows) = engine.run(sql).await?;
    Ok(rows.try_collect().await?)
}

fn cell_text(batch: &RecordBatch, column: usize, row: usize) -> String {
    datafusion::arrow::util::display::array_value_to_string(batch.column(column), row).unwrap_or_default()
}

fn cell_integer(batch: &RecordBatch, column: usize, row: usize) -> Option<i64> {
    let column = batch.column(column).as_primitive_opt::<Int64Type>()?;
    column.is_valid(row).then(|| column.value(row))
}

/// The archives that have contexts.
async fn runs_with_contexts(engine: &Engine) -> Result<Vec<String>> {
    let batches = query_rows(engine, r#"SELECT DISTINCT "run" FROM contexts ORDER BY "run""#).await?;
    Ok(batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| cell_text(batch, 0, row))).collect())
}

/// The executions with a context in some archives. Unfinished ones are left out.
async fn executions(engine: &Engine, runs: &[&String]) -> Result<Vec<Execution>> {
    let mut names = Vec::new();
    for run in runs {
        if !run.bytes().all(|c| c.is_ascii_hexdigit()) {
            bail!("{run:?} is not a run");
        }
        names.push(format!("'{run}'"));
    }
    let these = names.join(", ");
    let mut clocks: BTreeMap<String, (Option<i64>, Option<i64>, i64)> = BTreeMap::new();
    let facts = format!(
        r#"SELECT a."run", a."created_unix_ns", f."name", TRY_CAST(f."value" AS BIGINT) FROM archives a LEFT JOIN facts f
        ON f."run" = a."run" AND f."name" IN ('trace.start', 'trace.start_unix') WHERE a."run" IN ({these})"#
    );
    for batch in query_rows(engine, &facts).await? {
        for row in 0..batch.num_rows() {
            let clock = clocks.entry(cell_text(&batch, 0, row)).or_default();
            clock.2 = cell_integer(&batch, 1, row).unwrap_or(0);
            match cell_text(&batch, 2, row).as_str() {
                "trace.start" => clock.0 = cell_integer(&batch, 3, row),
                "trace.start_unix" => clock.1 = cell_integer(&batch, 3, row),
                _ => {}
            }
        }
    }
    let mut layers: BTreeMap<(String, i64), BTreeMap<String, i64>> = BTreeMap::new();
    let slices = format!(
        r#"SELECT s."run", s."operation", s."layer", CAST(sum(s."end_ns" - s."start_ns") AS BIGINT)
        FROM slices s JOIN contexts c ON c."run" = s."run" AND c."operation" = s."operation"
        WHERE c."run" IN ({these}) GROUP BY s."run", s."operation", s."layer""#
    );
    for batch in query_rows(engine, &slices).await? {
        for row in 0..batch.num_rows() {
            let of = (cell_text(&batch, 0, row), cell_integer(&batch, 1, row).unwrap_or(0));
            layers.entry(of).or_default().insert(cell_text(&batch, 2, row), cell_integer(&batch, 3, row).unwrap_or(0));
        }
    }
    let operations = format!(
        r#"SELECT c."run", c."device", c."archive", c."traceparent", o."id", o."start_ns", o."end_ns", o."rows", o."result", s."text"
        FROM contexts c JOIN operations o ON o."run" = c."run" AND o."id" = c."operation"
        LEFT JOIN shapes s ON s."run" = o."run" AND s."id" = o."shape"
        WHERE c."run" IN ({these}) AND o."end_ns" IS NOT NULL ORDER BY c."run", o."id""#
    );
    let mut found = Vec::new();
    for batch in query_rows(engine, &operations).await? {
        for row in 0..batch.num_rows() {
            let run = cell_text(&batch, 0, row);
            let (start, unix, created) = clocks.get(&run).copied().unwrap_or_default();
            // Times of the archive begin with its trace, or at the latest when it was made.
            let Some(start) = start else { continue };
            let (base, clock) = unix.map_or((created, Clock::Estimated), |unix| (unix, Clock::Read));
            let id = cell_integer(&batch, 4, row).unwrap_or(0);
            let at = |column: usize| {
                cell_integer(&batch, column, row).unwrap_or(0).saturating_sub(start).saturating_add(base)
            };
            found.push(Execution {
                device: cell_text(&batch, 1, row),
                archive: cell_text(&batch, 2, row),
                traceparent: cell_text(&batch, 3, row),
                id,
                start_unix_ns: at(5),
                end_unix_ns: at(6),
                clock,
                text: cell_text(&batch, 9, row),
                result: cell_integer(&batch, 8, row),
                rows: cell_integer(&batch, 7, row).unwrap_or(0),
                layers: layers.remove(&(run.clone(), id)).unwrap_or_default(),
                run,
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collector_address_leads_to_its_traces() {
        for (word, expected) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("https://host/otlp//", "https://host/otlp/v1/traces"),
            ("http://host/v1/traces", "http://host/v1/traces"),
            ("http://host/v1/traces/", "http://host/v1/traces"),
        ] {
            assert_eq!(traces_url(word).unwrap(), expected, "{word}");
        }
        for none in ["", "127.0.0.1:4318", "http://", "http://host:99999", "http://:4318"] {
            assert!(traces_url(none).is_err(), "{none}");
        }
    }

    #[test]
    fn header_values_are_percent_decoded() {
        let found = parse_headers("api-key=a=b, authorization=Basic%20eDp5%3d ,x=100%,y=%zz%2,").unwrap();
        let shown: Vec<(&str, String)> =
            found.into_iter().map(|(name, value)| (name, String::from_utf8(value).unwrap())).collect();
        let expected = [("api-key", "a=b"), ("authorization", "Basic eDp5="), ("x", "100%"), ("y", "%zz%2")];
        assert_eq!(shown, expected.map(|(name, value)| (name, value.to_string())));
        assert!(parse_headers("").unwrap().is_empty() && parse_headers("token").is_err());
    }
}
