//! Operations as OpenTelemetry spans, in the JSON encoding of OTLP
//! (<https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>: identities in hexadecimal, 64-bit numbers as texts). Pure.
//!
//! A span's identity is a hash of the run and the operation: the same operation is the same span whenever it is sent, and a backend that
//! stores by identity stores it once.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// `SPAN_KIND_INTERNAL`: work below the application's own client span of the statement.
const SPAN_KIND_INTERNAL: u32 = 1;
/// `STATUS_CODE_ERROR`.
const STATUS_CODE_ERROR: u32 = 2;

/// Where times of an archive come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Both clocks were read when it was recorded.
    Read,
    /// An older archive records only when it was made: times are too early, by as long as setting up probes took.
    Estimated,
}

/// An execution that came with a trace context.
#[derive(Debug, Clone, PartialEq)]
pub struct Execution {
    /// Its archive's run.
    pub run: String,
    /// Its device.
    pub device: String,
    /// Its archive's name.
    pub archive: String,
    /// The context.
    pub traceparent: String,
    /// The operation.
    pub id: i64,
    /// When it began, ns since 1970.
    pub start_unix_ns: i64,
    /// When it ended.
    pub end_unix_ns: i64,
    /// How accurately the times are known.
    pub clock: Clock,
    /// Its shape.
    pub text: String,
    /// What SQLite returned.
    pub result: Option<i64>,
    /// Rows it returned.
    pub rows: i64,
    /// Where its time went, in ns.
    pub layers: BTreeMap<String, i64>,
}

/// The parts of a context: trace and parent, if the trace is sampled at all.
fn parse_traceparent(traceparent: &str) -> Option<(&str, &str)> {
    if !is_traceparent(traceparent) {
        return None;
    }
    let sampled = u8::from_str_radix(&traceparent[53..], 16).is_ok_and(|flags| flags & 1 == 1);
    sampled.then(|| (&traceparent[3..35], &traceparent[36..52]))
}

/// Whether a text is a context; one that a fleet's rules hashed or dropped is not.
fn is_traceparent(text: &str) -> bool {
    let hex =
        |part: &str| part.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')) && part.bytes().any(|c| c != b'0');
    text.len() == 55
        && text.is_ascii()
        && text.starts_with("00-")
        && (&text[35..36], &text[52..53]) == ("-", "-")
        && hex(&text[3..35])
        && hex(&text[36..52])
        && text[53..].bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

/// The identity of a span.
pub fn span_id(run: &str, id: i64) -> String {
    let hash = Sha256::digest(format!("{run}/{id}"));
    let hex: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    if hex.bytes().all(|c| c == b'0') { "0000000000000001".into() } else { hex }
}

fn text_attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn number_attribute(key: &str, value: i64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

fn span_json(one: &Execution) -> Option<Value> {
    let (trace, parent) = parse_traceparent(&one.traceparent)?;
    let first: String = one.text.split_whitespace().next().unwrap_or_default().chars().take(40).collect();
    let mut attributes = vec![
        text_attribute("db.system.name", "sqlite"),
        text_attribute("db.query.text", &one.text),
        number_attribute("db.response.returned_rows", one.rows),
        number_attribute("fathom.operation", one.id),
    ];
    if one.clock == Clock::Estimated {
        attributes.push(text_attribute("fathom.clock", "estimated"));
    }
    attributes.extend(one.layers.iter().map(|(layer, ns)| number_attribute(&format!("fathom.layer.{layer}_ns"), *ns)));
    let mut span = json!({
        "traceId": trace,
        "spanId": span_id(&one.run, one.id),
        "parentSpanId": parent,
        "flags": 1,
        "name": if first.is_empty() { "statement".into() } else { first },
        "kind": SPAN_KIND_INTERNAL,
        "startTimeUnixNano": one.start_unix_ns.max(0).to_string(),
        "endTimeUnixNano": one.end_unix_ns.max(one.start_unix_ns).max(0).to_string(),
        "attributes": attributes,
    });
    // SQLITE_OK, SQLITE_ROW and SQLITE_DONE.
    if let Some(result) = one.result.filter(|result| ![0, 100, 101].contains(result)) {
        span["status"] = json!({"code": STATUS_CODE_ERROR, "message": format!("SQLite returned {result}")});
    }
    Some(span)
}

/// An `ExportTraceServiceRequest` of these, and its number of spans; invalid or unsampled contexts are left out.
pub fn request(executions: &[Execution]) -> (Value, usize) {
    let mut resources: BTreeMap<&str, (&Execution, Vec<Value>)> = BTreeMap::new();
    let mut count = 0;
    for one in executions {
        if let Some(span) = span_json(one) {
            resources.entry(&one.run).or_insert_with(|| (one, Vec::new())).1.push(span);
            count += 1;
        }
    }
    let resources: Vec<Value> = resources
        .into_values()
        .map(|(of, spans)| {
            let attributes = [
                text_attribute("service.name", "fathom"),
                text_attribute("fathom.device", &of.device),
                text_attribute("fathom.run", &of.run),
                text_attribute("fathom.archive", &of.archive),
            ];
            let scope = json!({"name": "fathom", "version": env!("CARGO_PKG_VERSION")});
            json!({"resource": {"attributes": attributes}, "scopeSpans": [{"scope": scope, "spans": spans}]})
        })
        .collect();
    (json!({ "resourceSpans": resources }), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn execution(traceparent: &str) -> Execution {
        Execution {
            run: "0123456789abcdef".into(),
            device: "shelf-7".into(),
            archive: "a.fathom".into(),
            traceparent: traceparent.into(),
            id: 3,
            start_unix_ns: 1_795_456_989_402_286_832,
            end_unix_ns: 1_795_456_989_402_386_832,
            clock: Clock::Read,
            text: "INSERT INTO t VALUES (?)".into(),
            result: Some(101),
            rows: 0,
            layers: BTreeMap::from([("Driver".to_string(), 60_000)]),
        }
    }

    #[test]
    fn execution_is_a_span_below_the_applications_span() {
        let (request, count) = request(&[execution(TRACEPARENT)]);
        assert_eq!(count, 1);
        let span = &request["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(span["parentSpanId"], "00f067aa0ba902b7");
        assert_eq!(span["spanId"], span_id("0123456789abcdef", 3));
        // 64-bit numbers are texts, since a reader that has only doubles would round them.
        assert_eq!(span["startTimeUnixNano"], "1795456989402286832");
        assert_eq!((&span["name"], &span["status"]), (&json!("INSERT"), &Value::Null));
        assert!(span["attributes"].as_array().unwrap().contains(&number_attribute("fathom.layer.Driver_ns", 60_000)));
    }

    #[test]
    fn unsampled_hashed_or_broken_context_is_not_a_span() {
        for none in [
            TRACEPARENT.replace("-01", "-00"),
            "hash:0123456789abcdef".into(),
            "(dropped)".into(),
            TRACEPARENT.replace("4bf9", "4BF9"),
            TRACEPARENT.replacen("00-", "01-", 1),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("{TRACEPARENT}é").chars().skip(1).collect(),
            String::new(),
        ] {
            assert_eq!(request(&[execution(&none)]).1, 0, "{none}");
        }
    }

    #[test]
    fn failed_statement_is_an_error_and_ends_after_its_begin() {
        let one = Execution { result: Some(5), end_unix_ns: 0, ..execution(TRACEPARENT) };
        let span = span_json(&one).unwrap();
        assert_eq!(span["status"]["code"], 2);
        assert_eq!(span["endTimeUnixNano"], span["startTimeUnixNano"]);
        assert_ne!(span_id("a", 1), span_id("a", 2));
    }
}
