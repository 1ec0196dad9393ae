//! What an assistant's client sends to `fathom mcp`, and what an archive puts into its answers.

use mcp::fit;
use mcp::protocol::{self, Action};
use serde_json::{Value, json};

pub fn line_seeds() -> Vec<Vec<u8>> {
    let lines = [
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": "a", "method": "ping"}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": {"name": "sql", "arguments": {"archives": ["a.fathom"], "query": "SELECT 1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}),
        json!({"operations": [{"statement": "INSERT", "count": 3}, {"statement": "SELECT"}], "facts": {"a": "b"}}),
    ];
    lines.iter().map(|line| line.to_string().into_bytes()).collect()
}

/// A line is answered once and under its own id, or not at all; whatever it holds fits into a budget, of which a larger one cuts nothing.
pub fn check_line(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    let message = serde_json::from_str::<Value>(&line).ok();
    match protocol::parse_line(&line, &json!([]), "") {
        Action::Answer(answer) => {
            assert_eq!(answer["jsonrpc"], "2.0");
            assert!(answer.get("result").is_some() != answer.get("error").is_some(), "{answer}");
            // An id that is no id cannot be returned.
            let id =
                message.as_ref().and_then(|message| message.get("id")).filter(|id| id.is_string() || id.is_number());
            assert_eq!(answer["id"], *id.unwrap_or(&Value::Null));
        }
        Action::Tool(id, _) => assert!(id.is_string() || id.is_number(), "{id}"),
        Action::Cancel(_) | Action::Nothing => {}
    }
    let Some(message) = message else { return };
    let size = |value: &Value| value.to_string().chars().count();
    let (fitted, cuts) = fit::fit(message.clone(), 150);
    assert!(size(&fitted) <= 150, "{fitted}");
    assert!(fitted == message || !cuts.is_empty() || fitted.get("too_large").is_some(), "{fitted}");
    assert_eq!(fit::fit(message.clone(), size(&message)), (message, vec![]));
}
