//! A check's outcome as SARIF 2.1.0, which code hosts show beside the line of a change.
//!
//! One result for each difference. Its place is the line that makes the calls; where none is known, the contract's file, since hosts show no
//! result without a place.

use super::count_name::CountName;
use super::difference::{Difference, Outcome};
use super::located::Place;
use super::text::difference_text;
use serde_json::{Value, json};

const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
/// Rules: identity and description.
const RULES: [(&str, &str); 5] = [
    ("sync", "The program syncs files more or less often than its contract says"),
    ("statement", "A statement is new, gone, or runs more or less often"),
    ("bytes", "The program reads or writes more or fewer bytes"),
    ("call", "The program makes more or fewer system calls on files"),
    ("device", "The program makes the device do clearly more"),
];

fn rule_of(d: &Difference) -> usize {
    match CountName::parse(&d.what) {
        _ if d.device => 4,
        CountName::Call(call, _) if call.syncs() => 0,
        CountName::Executions | CountName::Rows => 1,
        CountName::BytesRead(_) | CountName::BytesWritten(_) => 2,
        _ => 3,
    }
}

/// Returns the log of a check against the contract in `file`.
pub fn sarif(outcome: &Outcome, file: &str) -> Value {
    let rules: Vec<Value> = RULES
        .iter()
        .map(|(id, text)| json!({ "id": id, "shortDescription": { "text": text }, "helpUri": concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/guide/check.md") }))
        .collect();
    let results: Vec<Value> = outcome.differences.iter().map(|d| result(outcome, d, file)).collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "Fathom",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": rules,
            } },
            "columnKind": "utf16CodeUnits",
            "results": results,
        }],
    })
}

fn result(outcome: &Outcome, d: &Difference, file: &str) -> Value {
    let rule = rule_of(d);
    let because = outcome.because.as_ref().map_or(String::new(), |why| format!(", since {why}"));
    let locations: Vec<Value> = match d.places.as_slice() {
        [] => vec![json!({ "physicalLocation": { "artifactLocation": artifact(file) } })],
        places => places.iter().take(1).map(location).collect(),
    };
    let related: Vec<Value> = d.places.iter().skip(1).map(location).collect();
    json!({
        "ruleId": RULES[rule].0,
        "ruleIndex": rule,
        "level": if d.device { "warning" } else { "error" },
        "message": { "text": format!("{}{because}", difference_text(d)) },
        "locations": locations,
        "relatedLocations": related,
        "partialFingerprints": { "fathomCount/v1": format!("{}|{}", d.statement.as_deref().unwrap_or_default(), d.what) },
        "properties": { "expected": d.expected, "found": d.found },
    })
}

fn location(place: &Place) -> Value {
    let mut physical = json!({ "artifactLocation": artifact(&place.file) });
    if let Some(line) = place.line.filter(|line| *line > 0) {
        physical["region"] = json!({ "startLine": line });
    }
    json!({ "physicalLocation": physical, "logicalLocations": [{ "fullyQualifiedName": place.function }] })
}

/// A relative path is below the root of the sources; its letters are encoded as in an address.
fn artifact(file: &str) -> Value {
    let uri: String = file.bytes().map(encode).collect();
    if file.starts_with('/') {
        json!({ "uri": format!("file://{uri}") })
    } else {
        json!({ "uri": uri, "uriBaseId": "%SRCROOT%" })
    }
}

fn encode(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}
