//! Conclusions that an answer does not support, derived from its JSON: losses, blind layers, too few executions, high tracer overhead, an
//! interval that includes both signs. They come before the numbers.

use serde_json::{Value, json};

/// Claims about a recording, from its summary.
pub fn of_recording(summary: &Value) -> Vec<Value> {
    let mut claims = caveats(summary).map(|caveat| json!(caveat)).collect::<Vec<_>>();
    claims.extend(blind(summary).map(|(layer, means)| json!(format!("anything about {layer}: {means}"))));
    let statements = |wanted: &dyn Fn(&Value) -> bool| {
        let operations = summary["operations"].as_array().into_iter().flatten().filter(|operation| wanted(operation));
        let names: Vec<String> =
            operations.filter_map(|operation| operation["statement"].as_str()).map(shorten_statement).collect();
        match names.len() {
            0 => None,
            n if n > STATEMENTS_NAMED_MAX => {
                Some(format!("{} and {} more", names[..STATEMENTS_NAMED_MAX].join(", "), n - STATEMENTS_NAMED_MAX))
            }
            _ => Some(names.join(", ")),
        }
    };
    if let Some(names) = statements(&|operation| operation["tracer"]["large"] == true) {
        claims.push(json!(format!(
            "how fast these are without recording (tracer overhead is over a tenth of their time): {names}"
        )));
    }
    if let Some(names) = statements(&|operation| operation["count"].as_u64().is_some_and(|count| count < 6)) {
        claims.push(json!(format!("percentiles of these (fewer than six executions): {names}")));
    }
    claims
}

/// What a recording cannot carry, by its own account.
fn caveats(recording: &Value) -> impl Iterator<Item = &str> {
    recording["caveats"].as_array().into_iter().flatten().filter_map(|caveat| caveat["cannot_claim"].as_str())
}

/// Layers that were not recorded, and what that means.
fn blind(recording: &Value) -> impl Iterator<Item = (String, &str)> {
    recording["blind"].as_array().into_iter().flatten().map(|blind| {
        let layer = format!("the layer {}", blind["layer"].as_str().unwrap_or("unknown"));
        (layer, blind["means"].as_str().unwrap_or_default())
    })
}

/// Number of statements named in a claim.
const STATEMENTS_NAMED_MAX: usize = 4;

/// A statement in a few words.
fn shorten_statement(statement: &str) -> String {
    match statement.char_indices().nth(50) {
        Some((at, _)) => format!("`{}…`", &statement[..at]),
        None => format!("`{statement}`"),
    }
}

/// Claims about two recordings, from their difference.
pub fn of_difference(diff: &Value) -> Vec<Value> {
    let mut claims = Vec::new();
    if diff["verdict"] == "inconclusive" {
        let why = diff["why"].as_str().unwrap_or("the interval includes both signs");
        claims.push(json!(format!("which of the two is faster: {why}")));
    }
    for side in ["a", "b"] {
        if diff[side]["losses"].as_array().is_some_and(|losses| !losses.is_empty()) {
            claims.push(json!(format!("that {side} does not do something: it lost records")));
        }
        claims.extend(caveats(&diff[side]).map(|caveat| json!(format!("of {side}: {caveat}"))));
        claims.extend(
            blind(&diff[side]).map(|(layer, means)| json!(format!("anything about {layer} of {side}: {means}"))),
        );
    }
    claims
}

/// Claims about two benchmarks, from their comparison.
pub fn of_comparison(compared: &Value) -> Vec<Value> {
    let results = || compared["results"].as_array().into_iter().flatten();
    let with = |verdict: &str| results().filter(|result| result["verdict"] == verdict).count();
    let mut claims = Vec::new();
    for (verdict, why) in [
        ("inconclusive", "their intervals are neither within nor beyond the margin"),
        ("disturbed", "other processes interfered"),
    ] {
        let count = with(verdict);
        if count > 0 {
            claims.push(json!(format!("which is faster, of {count} cells that are {verdict}: {why}")));
        }
    }
    let unmatched =
        ["incomparable", "unmatched"].iter().filter_map(|list| compared[list].as_array()).map(Vec::len).sum::<usize>();
    if unmatched > 0 {
        claims.push(json!(format!(
            "anything about {unmatched} cells that are in one benchmark only or cannot be compared"
        )));
    }
    if results().next().is_none() {
        claims.push(json!("that one is faster: they have no cell in common"));
    }
    claims
}

/// Claims about rows of a query; of so many of its archives, the processor was emulated.
pub fn of_rows(emulated: usize) -> Vec<Value> {
    let mut claims = vec![json!(
        "a difference or a trend from these rows alone: they have no intervals; `diff` of two recordings does"
    )];
    if emulated > 0 {
        claims.push(json!(format!(
            "how fast anything is in {emulated} of the archives: the processor was emulated (QEMU's TCG), so that times show order, not \
             speed"
        )));
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flawed_recording_limits_the_claims() {
        let summary = json!({
            "caveats": [{"limit": "cut_short", "because": "x", "cannot_claim": "the end: cut short"}],
            "blind": [{"layer": "Database", "means": "statements are missing"}],
            "operations": [{"statement": "SELECT 1", "count": 2, "tracer": {"large": true}}],
        });
        let claims: Vec<String> =
            of_recording(&summary).iter().map(|claim| claim.as_str().unwrap_or_default().to_string()).collect();
        for part in ["the end: cut short", "Database", "a tenth", "six executions"] {
            assert!(claims.iter().any(|claim| claim.contains(part)), "{part}: {claims:?}");
        }
        let sound = json!({
            "caveats": [], "blind": [], "operations": [{"statement": "x", "count": 6, "tracer": null}],
        });
        assert!(of_recording(&sound).is_empty());
    }

    #[test]
    fn cells_without_a_verdict_limit_the_claims() {
        let compared = json!({"results": [{"verdict": "slower"}, {"verdict": "inconclusive"}, {"verdict": "disturbed"}],
            "incomparable": [1], "unmatched": [1, 2]});
        let claims = serde_json::to_string(&of_comparison(&compared)).unwrap();
        for part in ["of 1 cells that are inconclusive", "interfered", "about 3 cells"] {
            assert!(claims.contains(part), "{part}: {claims}");
        }
        assert!(of_comparison(&json!({"results": [{"verdict": "equivalent"}], "unmatched": []})).is_empty());
        assert_eq!(of_comparison(&json!({"results": []})), [json!("that one is faster: they have no cell in common")]);
    }

    #[test]
    fn inconclusive_difference_carries_no_verdict() {
        let diff = json!({"verdict": "inconclusive", "why": "too few", "a": {"losses": [1]}, "b": {"losses": []}});
        assert_eq!(
            of_difference(&diff),
            [json!("which of the two is faster: too few"), json!("that a does not do something: it lost records")]
        );
        assert!(of_difference(&json!({"verdict": "slower"})).is_empty());
    }

    #[test]
    fn difference_carries_no_more_than_either_recording() {
        let sound = json!({"caveats": [], "losses": [], "blind": []});
        let flawed = json!({"caveats": [{"cannot_claim": "the end: cut short"}], "losses": [], "blind": [{"layer": "Driver", "means": "no commands"}]});
        assert!(of_difference(&json!({"verdict": "slower", "a": sound, "b": sound})).is_empty());
        for (a, b, side) in [(&flawed, &sound, "a"), (&sound, &flawed, "b")] {
            let claims = of_difference(&json!({"verdict": "slower", "a": a, "b": b}));
            assert_eq!(
                claims,
                [
                    json!(format!("of {side}: the end: cut short")),
                    json!(format!("anything about the layer Driver of {side}: no commands")),
                ]
            );
        }
    }
}
