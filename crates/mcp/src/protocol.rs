//! The protocol: JSON-RPC 2.0, one message per line. Pure, so that hostile lines can be tested.
//!
//! Written by hand: a server with read-only tools needs four methods, and the maintained library (rmcp) brings async streams, schema macros
//! and some fifty crates.

use crate::Result;
use serde_json::{Value, json};

/// Supported versions of the protocol, the newest last.
const PROTOCOL_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Longest line that is read: a query, and paths.
pub const LINE_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, PartialEq)]
pub struct Call {
    pub tool: String,
    pub arguments: Value,
}

/// What a line requires.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Nothing: a notification, or an unexpected response.
    Nothing,
    /// This answer.
    Answer(Value),
    /// A tool's result, under this id.
    Tool(Value, Call),
    /// The request of this id is not to be answered any more.
    Cancel(Value),
}

fn error_answer(id: Value, code: i64, message: impl Into<String>) -> Action {
    Action::Answer(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message.into()}}))
}

fn result_answer(id: Value, result: Value) -> Action {
    Action::Answer(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// Interprets a line; `tools` is the answer to `tools/list`.
pub fn parse_line(line: &str, tools: &Value, instructions: &str) -> Action {
    let Ok(message) = serde_json::from_str::<Value>(line) else {
        return error_answer(Value::Null, -32700, "a message must be one line of JSON");
    };
    if !message.is_object() {
        return error_answer(Value::Null, -32600, "a message must be an object; batches are not supported");
    }
    let id = message.get("id").cloned();
    // The specification of MCP excludes null, too.
    if id.as_ref().is_some_and(|id| !id.is_string() && !id.is_number()) {
        return error_answer(Value::Null, -32600, "an id must be a string or a number");
    }
    let Some(method) = message.get("method").and_then(Value::as_str) else {
        return match id {
            Some(id) if message.get("result").is_none() && message.get("error").is_none() => {
                error_answer(id, -32600, "no method")
            }
            _ => Action::Nothing,
        };
    };
    let params = message.get("params").cloned().unwrap_or(Value::Null);
    let Some(id) = id else {
        return match params.get("requestId").filter(|_| method == "notifications/cancelled") {
            Some(id) => Action::Cancel(id.clone()),
            None => Action::Nothing,
        };
    };
    match method {
        "initialize" => {
            let asked = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
            let version = PROTOCOL_VERSIONS
                .iter()
                .find(|known| **known == asked)
                .or(PROTOCOL_VERSIONS.last())
                .copied()
                .unwrap_or_default();
            let server = json!({"name": "fathom", "version": env!("CARGO_PKG_VERSION")});
            result_answer(
                id,
                json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server, "instructions": instructions}),
            )
        }
        "ping" => result_answer(id, json!({})),
        "tools/list" => result_answer(id, json!({"tools": tools})),
        "tools/call" => match params.get("name").and_then(Value::as_str) {
            Some(name) => {
                let arguments = params.get("arguments").cloned().unwrap_or_else(|| json!({}));
                Action::Tool(id, Call { tool: name.into(), arguments })
            }
            None => error_answer(id, -32602, "no tool is named"),
        },
        other => error_answer(id, -32601, format!("unknown method: {}", model::text::shown(other))),
    }
}

/// The answer to a line that is too long to be read, so that its request is unknown.
pub fn too_long_error() -> Value {
    let message = format!("a message is longer than {}", model::text::bytes(LINE_BYTES_MAX as f64));
    json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": message}})
}

/// A tool's answer as a message; an error message has at most `most` characters.
pub fn answer(id: Value, result: Result<Value>, characters_max: usize) -> Value {
    let (text, failed) = match result {
        Ok(value) => (value.to_string(), false),
        Err(why) => (truncate(why.to_string(), characters_max), true),
    };
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}], "isError": failed}})
}

/// The beginning of a text.
fn truncate(text: String, characters_max: usize) -> String {
    match text.char_indices().nth(characters_max) {
        Some(_) => text.chars().take(characters_max.saturating_sub(1)).chain(['…']).collect(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn parse(line: &str) -> Action {
        parse_line(line, &json!([]), "")
    }

    #[test]
    fn handshake_answers_a_known_version_or_the_newest() {
        for (asked_for, answered) in [("2025-03-26", "2025-03-26"), ("1999-01-01", "2025-11-25")] {
            let line =
                json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": asked_for}});
            let Action::Answer(answer) = parse(&line.to_string()) else { panic!() };
            assert_eq!(answer["result"]["protocolVersion"], answered);
            assert_eq!(answer["id"], 1);
        }
    }

    #[test]
    fn notification_gets_no_answer() {
        for line in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":3,"result":{}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}"#,
        ] {
            assert_eq!(parse(line), Action::Nothing, "{line}");
        }
    }

    #[test]
    fn cancelled_request_is_noticed() {
        let line = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a","reason":"why"}}"#;
        assert_eq!(parse(line), Action::Cancel("a".into()));
    }

    #[test]
    fn wrong_line_is_answered_by_its_error() {
        for (line, code) in [
            ("nonsense", -32700),
            ("[]", -32600),
            (r#"{"id":1}"#, -32600),
            (r#"{"id":null,"method":"ping"}"#, -32600),
            (r#"{"id":{},"method":"ping"}"#, -32600),
            (r#"{"id":1,"method":"resources/list"}"#, -32601),
            (r#"{"id":1,"method":"tools/call"}"#, -32602),
        ] {
            let Action::Answer(answer) = parse(line) else { panic!("{line}") };
            assert_eq!(answer["error"]["code"], code, "{line}");
        }
    }

    #[test]
    fn call_carries_the_tool_and_its_arguments() {
        let line = r#"{"id":"x","method":"tools/call","params":{"name":"list","arguments":{"folder":"a"}}}"#;
        let call = Call { tool: "list".into(), arguments: json!({"folder": "a"}) };
        assert_eq!(parse(line), Action::Tool("x".into(), call));
        assert_eq!(answer("x".into(), Err(Error::Refused("no".into())), 99)["result"]["isError"], true);
    }
}
