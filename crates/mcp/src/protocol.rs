//! The protocol: JSON-RPC 2.0, one message per line. Pure, so that hostile lines can be tested.
//!
//! Written by hand: a server with read-only tools needs four methods, and the maintained library (rmcp) brings async streams, schema macros
//! and some fifty crates.

use crate::Result;
use serde_json::{Value, json};

/// Supported versions of the protocol, the newest last.
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Longest line that is read: a query, and paths.
pub const LONGEST_LINE: usize = 1 << 20;

#[derive(Debug, PartialEq)]
pub struct Call {
    pub tool: String,
    pub arguments: Value,
}

/// What a line requires.
#[derive(Debug, PartialEq)]
pub enum Wants {
    /// Nothing: a notification, or an unexpected response.
    Nothing,
    /// This answer.
    Answer(Value),
    /// A tool's result, under this id.
    Tool(Value, Call),
    /// The request of this id is not to be answered any more.
    Cancel(Value),
}

fn error(id: Value, code: i64, message: impl Into<String>) -> Wants {
    Wants::Answer(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message.into()}}))
}

fn result(id: Value, result: Value) -> Wants {
    Wants::Answer(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// Interprets a line; `tools` is the answer to `tools/list`.
pub fn read(line: &str, tools: &Value, instructions: &str) -> Wants {
    let Ok(message) = serde_json::from_str::<Value>(line) else {
        return error(Value::Null, -32700, "a message must be one line of JSON");
    };
    if !message.is_object() {
        return error(Value::Null, -32600, "a message must be an object; batches are not supported");
    }
    let id = message.get("id").cloned();
    // The specification of MCP excludes null, too.
    if id.as_ref().is_some_and(|id| !id.is_string() && !id.is_number()) {
        return error(Value::Null, -32600, "an id must be a string or a number");
    }
    let Some(method) = message.get("method").and_then(Value::as_str) else {
        return match id {
            Some(id) if message.get("result").is_none() && message.get("error").is_none() => {
                error(id, -32600, "no method")
            }
            _ => Wants::Nothing,
        };
    };
    let params = message.get("params").cloned().unwrap_or(Value::Null);
    let Some(id) = id else {
        return match params.get("requestId").filter(|_| method == "notifications/cancelled") {
            Some(id) => Wants::Cancel(id.clone()),
            None => Wants::Nothing,
        };
    };
    match method {
        "initialize" => {
            let asked = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
            let version =
                VERSIONS.iter().find(|known| **known == asked).or(VERSIONS.last()).copied().unwrap_or_default();
            let server = json!({"name": "fathom", "version": env!("CARGO_PKG_VERSION")});
            result(
                id,
                json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server, "instructions": instructions}),
            )
        }
        "ping" => result(id, json!({})),
        "tools/list" => result(id, json!({"tools": tools})),
        "tools/call" => match params.get("name").and_then(Value::as_str) {
            Some(name) => {
                let arguments = params.get("arguments").cloned().unwrap_or_else(|| json!({}));
                Wants::Tool(id, Call { tool: name.into(), arguments })
            }
            None => error(id, -32602, "no tool is named"),
        },
        other => error(id, -32601, format!("unknown method: {}", model::text::shown(other))),
    }
}

/// The answer to a line that is too long to be read, so that its request is unknown.
pub fn too_long() -> Value {
    let message = format!("a message is longer than {}", model::text::bytes(LONGEST_LINE as f64));
    json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": message}})
}

/// A tool's answer as a message; an error message has at most `most` characters.
pub fn answer(id: Value, result: Result<Value>, most: usize) -> Value {
    let (text, failed) = match result {
        Ok(value) => (value.to_string(), false),
        Err(why) => (cut(why.to_string(), most), true),
    };
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}], "isError": failed}})
}

/// The beginning of a text.
fn cut(text: String, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn asked(line: &str) -> Wants {
        read(line, &json!([]), "")
    }

    #[test]
    fn handshake_answers_known_version_or_newest() {
        for (asked_for, answered) in [("2025-03-26", "2025-03-26"), ("1999-01-01", "2025-11-25")] {
            let line =
                json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": asked_for}});
            let Wants::Answer(answer) = asked(&line.to_string()) else { panic!() };
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
            assert_eq!(asked(line), Wants::Nothing, "{line}");
        }
    }

    #[test]
    fn cancelled_request_is_noticed() {
        let line = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a","reason":"why"}}"#;
        assert_eq!(asked(line), Wants::Cancel("a".into()));
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
            let Wants::Answer(answer) = asked(line) else { panic!("{line}") };
            assert_eq!(answer["error"]["code"], code, "{line}");
        }
    }

    #[test]
    fn call_carries_tool_and_arguments() {
        let line = r#"{"id":"x","method":"tools/call","params":{"name":"list","arguments":{"folder":"a"}}}"#;
        let call = Call { tool: "list".into(), arguments: json!({"folder": "a"}) };
        assert_eq!(asked(line), Wants::Tool("x".into(), call));
        assert_eq!(answer("x".into(), Err(Error::Refused("no".into())), 99)["result"]["isError"], true);
    }
}
