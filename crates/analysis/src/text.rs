//! Texts that came from a traced program, and numbers, as they are shown.

pub use model::text::{bytes, count, date, digits, duration, scale, shown, size, steers};

/// A text inside a Markdown table: what could be markup is escaped.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in shown(text).chars() {
        if matches!(c, '|' | '`' | '<' | '*' | '_' | '[' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
